// What the schema, the CPU kernel and the CUDA kernel of roi_align share.
//
// R boxes, N images, C channels, H height, W width, PH x PW bins.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/TensorUtils.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define FOUNDRY_HOST_DEVICE __host__ __device__
#else
#define FOUNDRY_HOST_DEVICE
#endif

namespace foundry {

constexpr int64_t kMaxSamplingRatio = 1024;
constexpr double kMaxIndex = 1e9;  // of a sample in its bin

// The two pixels of one axis that a sample lies between.
template <typename T>
struct Neighbours {
  int64_t low, high;
  T weight_low, weight_high;
};

// Whether a sample counts: one more than a pixel outside of the image gives nothing, nor does NaN.
template <typename T>
FOUNDRY_HOST_DEVICE bool is_near(T position, int64_t size) {
  return position >= T(-1) && position <= T(size);
}

template <typename T>
FOUNDRY_HOST_DEVICE Neighbours<T> neighbours(T position, int64_t size) {
  const T inside = position > T(0) ? position : T(0);
  const int64_t low = static_cast<int64_t>(inside);
  if (low >= size - 1) {
    return {size - 1, size - 1, T(1), T(0)};
  }
  const T share = inside - T(low);
  return {low, low + 1, T(1) - share, share};
}

// One axis of a box: where it begins, how wide a bin is, and how many samples a bin has.
template <typename T>
struct Extent {
  T start, bin;
  double num_samples;  // a whole number that may be larger than any integer type
};

template <typename T>
FOUNDRY_HOST_DEVICE Extent<T> extent(
    T from, T to, T spatial_scale, int64_t num_bins, int64_t sampling_ratio, bool aligned) {
  const T offset = aligned ? T(0.5) : T(0);
  const T start = from * spatial_scale - offset;
  const T end = to * spatial_scale - offset;
  T length = end - start;
  // as Detectron's first version did; not where it is infinite
  if (!aligned && length < T(1) && length - length == T(0)) {
    length = T(1);
  }
  const T bin = length / T(num_bins);
  const double found = sampling_ratio > 0 ? double(sampling_ratio) : std::ceil(double(bin));
  return {start, bin, found > 0 ? found : 0};
}

template <typename T>
FOUNDRY_HOST_DEVICE T sample_position(const Extent<T>& axis, int64_t bin, double index) {
  const T first = axis.start + T(bin) * axis.bin;
  return first + T(index + 0.5) * axis.bin / T(axis.num_samples);
}

// The samples of a bin that can be near the image; beyond them a huge box would have too many.
template <typename T>
FOUNDRY_HOST_DEVICE void near_samples(
    const Extent<T>& axis, int64_t bin, int64_t size, double& first, double& last) {
  first = 0;
  last = axis.num_samples - 1;
  const double step = double(axis.bin) / axis.num_samples;
  if (!(step > 0)) {  // a box that is turned round, with the samples asked for, or not finite
    last = last < double(kMaxSamplingRatio) ? last : -1;
    return;
  }
  const double start = double(axis.start) + double(bin) * double(axis.bin);
  const double low = std::floor((-1.0 - start) / step - 0.5) - 1;
  const double high = std::ceil((double(size) - start) / step - 0.5) + 1;
  first = low > first ? low : first;
  last = high < last ? high : last;
  if (!(first < kMaxIndex)) {  // beyond it one sample is not told from the next; or NaN
    first = 0;
    last = -1;
  }
}

at::Tensor roi_align_cpu(
    const at::Tensor& input, const at::Tensor& rois, double spatial_scale, int64_t pooled_height,
    int64_t pooled_width, int64_t sampling_ratio, bool aligned);

at::Tensor roi_align_backward_cpu(
    const at::Tensor& grad, const at::Tensor& rois, double spatial_scale, int64_t pooled_height,
    int64_t pooled_width, int64_t batch, int64_t channels, int64_t height, int64_t width,
    int64_t sampling_ratio, bool aligned);

// Raise a ValueError with what was got and what is expected.
void check_forward(
    const at::Tensor& input, const at::Tensor& rois, const c10::SymInt& pooled_height,
    const c10::SymInt& pooled_width, int64_t sampling_ratio);

void check_backward(
    const at::Tensor& grad, const at::Tensor& rois, const c10::SymInt& pooled_height,
    const c10::SymInt& pooled_width, const c10::SymInt& channels, int64_t sampling_ratio);

}  // namespace foundry
