// roi_align on a GPU: a thread for each value of the output. Its backward adds atomically, so that
// sums may differ in their last bits from run to run; --deterministic refuses it.

#include "roi_align.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>

namespace foundry {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;

// What a thread goes over: the samples of one bin, with the four pixels and weights of each.
template <typename scalar_t, typename T, typename Visit>
__device__ void visit_samples(
    const scalar_t* rois, int64_t box, int64_t row, int64_t column, T spatial_scale,
    int64_t pooled_height, int64_t pooled_width, int64_t height, int64_t width,
    int64_t sampling_ratio, bool aligned, const Visit& visit) {
  const scalar_t* corner = rois + 5 * box;
  const auto vertical = extent<T>(
      T(corner[2]), T(corner[4]), spatial_scale, pooled_height, sampling_ratio, aligned);
  const auto horizontal = extent<T>(
      T(corner[1]), T(corner[3]), spatial_scale, pooled_width, sampling_ratio, aligned);
  const double count = vertical.num_samples * horizontal.num_samples;
  const T mean = T(1) / T(count > 1.0 ? count : 1.0);
  double first_y, last_y, first_x, last_x;
  near_samples(vertical, row, height, first_y, last_y);
  near_samples(horizontal, column, width, first_x, last_x);
  for (double i = first_y; height > 0 && i <= last_y; ++i) {
    const T y = sample_position(vertical, row, i);
    if (!is_near(y, height)) continue;
    const auto ys = neighbours(y, height);
    for (double j = first_x; width > 0 && j <= last_x; ++j) {
      const T x = sample_position(horizontal, column, j);
      if (!is_near(x, width)) continue;
      const auto xs = neighbours(x, width);
      visit(ys.low * width + xs.low, ys.weight_low * xs.weight_low * mean);
      visit(ys.low * width + xs.high, ys.weight_low * xs.weight_high * mean);
      visit(ys.high * width + xs.low, ys.weight_high * xs.weight_low * mean);
      visit(ys.high * width + xs.high, ys.weight_high * xs.weight_high * mean);
    }
  }
}

// Which value of the output [R,C,PH,PW] an index means.
struct Bin {
  int64_t box, channel, row, column;
};

__device__ Bin bin_of(int64_t index, int64_t channels, int64_t height, int64_t width) {
  return {index / (width * height * channels), index / (width * height) % channels,
          index / width % height, index % width};
}

template <typename scalar_t>
__device__ int64_t image_of(const scalar_t* rois, int64_t box, int64_t batch) {
  const auto image = static_cast<float>(rois[5 * box]);
  CUDA_KERNEL_ASSERT(image >= 0.0f && image < static_cast<float>(batch));
  return static_cast<int64_t>(image);
}

template <typename scalar_t, typename T>
__global__ void pool_kernel(
    int64_t total, const scalar_t* input, const scalar_t* rois, scalar_t* output, T spatial_scale,
    int64_t pooled_height, int64_t pooled_width, int64_t batch, int64_t channels, int64_t height,
    int64_t width, int64_t sampling_ratio, bool aligned) {
  for (int64_t index = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; index < total;
       index += int64_t(blockDim.x) * gridDim.x) {
    const auto [box, channel, row, column] =
        bin_of(index, channels, pooled_height, pooled_width);
    const int64_t plane = image_of(rois, box, batch) * channels + channel;
    const scalar_t* values = input + plane * height * width;
    T sum = 0;
    visit_samples<scalar_t, T>(
        rois, box, row, column, spatial_scale, pooled_height, pooled_width, height, width,
        sampling_ratio, aligned,
        [&](int64_t pixel, T weight) { sum += weight * T(values[pixel]); });
    output[index] = static_cast<scalar_t>(sum);
  }
}

template <typename scalar_t, typename T>
__global__ void spread_kernel(
    int64_t total, const scalar_t* grad, const scalar_t* rois, T* result, T spatial_scale,
    int64_t pooled_height, int64_t pooled_width, int64_t batch, int64_t channels, int64_t height,
    int64_t width, int64_t sampling_ratio, bool aligned) {
  for (int64_t index = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; index < total;
       index += int64_t(blockDim.x) * gridDim.x) {
    const auto [box, channel, row, column] =
        bin_of(index, channels, pooled_height, pooled_width);
    const int64_t plane = image_of(rois, box, batch) * channels + channel;
    T* values = result + plane * height * width;
    const T value = T(grad[index]);
    visit_samples<scalar_t, T>(
        rois, box, row, column, spatial_scale, pooled_height, pooled_width, height, width,
        sampling_ratio, aligned,
        [&](int64_t pixel, T weight) { gpuAtomicAdd(values + pixel, weight * value); });
  }
}

int num_blocks(int64_t total) {
  return static_cast<int>(std::clamp<int64_t>((total + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

}  // namespace

at::Tensor roi_align_cuda(
    const at::Tensor& input, const at::Tensor& rois, double spatial_scale, int64_t pooled_height,
    int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  check_forward(input, rois, pooled_height, pooled_width, sampling_ratio);
  const c10::cuda::CUDAGuard guard(input.device());
  at::Tensor output = at::empty(
      {rois.size(0), input.size(1), pooled_height, pooled_width},
      input.options().memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor planes = input.contiguous(), boxes = rois.contiguous();
  if (output.numel() == 0) return output;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, input.scalar_type(), "roi_align", [&] {
        using T = at::opmath_type<scalar_t>;
        pool_kernel<scalar_t, T>
            <<<num_blocks(output.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
                output.numel(), planes.const_data_ptr<scalar_t>(),
                boxes.const_data_ptr<scalar_t>(), output.mutable_data_ptr<scalar_t>(),
                T(spatial_scale), pooled_height, pooled_width, input.size(0), input.size(1),
                input.size(2), input.size(3), sampling_ratio, aligned);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      });
  return output;
}

at::Tensor roi_align_backward_cuda(
    const at::Tensor& grad, const at::Tensor& rois, double spatial_scale, int64_t pooled_height,
    int64_t pooled_width, int64_t batch, int64_t channels, int64_t height, int64_t width,
    int64_t sampling_ratio, bool aligned) {
  check_backward(grad, rois, pooled_height, pooled_width, channels, sampling_ratio);
  at::globalContext().alertNotDeterministic("foundry::_roi_align_backward");
  const c10::cuda::CUDAGuard guard(grad.device());
  const auto wide = grad.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor result = at::zeros({batch, channels, height, width}, grad.options().dtype(wide));
  const at::Tensor grads = grad.contiguous(), boxes = rois.contiguous();
  if (grad.numel() == 0) return result.to(grad.scalar_type());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, grad.scalar_type(), "roi_align_backward", [&] {
        using T = at::opmath_type<scalar_t>;
        spread_kernel<scalar_t, T>
            <<<num_blocks(grad.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
                grad.numel(), grads.const_data_ptr<scalar_t>(), boxes.const_data_ptr<scalar_t>(),
                result.mutable_data_ptr<T>(), T(spatial_scale), pooled_height, pooled_width,
                batch, channels, height, width, sampling_ratio, aligned);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
      });
  return result.to(grad.scalar_type());
}

TORCH_LIBRARY_IMPL(foundry, CUDA, library) {
  library.impl("roi_align", TORCH_FN(roi_align_cuda));
  library.impl("_roi_align_backward", TORCH_FN(roi_align_backward_cuda));
}

}  // namespace foundry
