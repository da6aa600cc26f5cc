// roi_align on a CPU. The bilinear weights of a sample are a product of one of its row and one of
// its column, so a bin's mean is taken along the height first, over whole runs of pixels, which
// the compiler vectorises, and then along the width.

#include "roi_align.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace foundry {
namespace {

constexpr int64_t kGrain = 1 << 14;  // operations that are worth a thread

// For each bin of one axis of a box: the pixels that it touches, and the share of each.
template <typename T>
struct Shares {
  std::vector<int64_t> ends;  // of each bin, in the two below
  std::vector<int32_t> pixels;
  std::vector<T> weights;
  int64_t first = 0, last = -1;  // of all pixels

  void add(int64_t pixel, T weight, size_t begin) {
    const size_t count = pixels.size();
    // samples of a bin come in order, so an equal pixel is one of the last two
    for (size_t back = 1; back <= 2 && begin + back <= count; ++back) {
      if (pixels[count - back] == pixel) {
        weights[count - back] += weight;
        return;
      }
    }
    pixels.push_back(static_cast<int32_t>(pixel));
    weights.push_back(weight);
    first = last < first ? pixel : std::min(first, pixel);
    last = std::max(last, pixel);
  }

  Shares(const Extent<T>& axis, int64_t num_bins, int64_t size) {
    ends.reserve(num_bins);
    for (int64_t bin = 0; bin < num_bins; ++bin) {
      const size_t begin = pixels.size();
      double sample, final;
      near_samples(axis, bin, size, sample, final);
      for (; size > 0 && sample <= final; ++sample) {
        const T position = sample_position(axis, bin, sample);
        if (is_near(position, size)) {
          const auto found = neighbours(position, size);
          add(found.low, found.weight_low, begin);
          add(found.high, found.weight_high, begin);
        }
      }
      const T mean = T(1) / T(std::max(axis.num_samples, 1.0));
      std::for_each(weights.begin() + begin, weights.end(), [mean](T& w) { w *= mean; });
      ends.push_back(static_cast<int64_t>(pixels.size()));
    }
  }
};

template <typename T>
struct Box {
  int64_t image;
  Shares<T> rows, columns;
};

template <typename scalar_t, typename T>
std::vector<Box<T>> boxes_of(
    const at::Tensor& rois, T spatial_scale, int64_t pooled_height, int64_t pooled_width,
    int64_t batch, int64_t height, int64_t width, int64_t sampling_ratio, bool aligned) {
  const at::Tensor values = rois.contiguous();
  const scalar_t* data = values.const_data_ptr<scalar_t>();
  std::vector<Box<T>> boxes;
  boxes.reserve(rois.size(0));
  for (int64_t index = 0; index < rois.size(0); ++index, data += 5) {
    const T image = T(data[0]);
    TORCH_CHECK_VALUE(
        image >= T(0) && image < T(batch),
        "roi_align: rois[", index, ", 0] is the index of an image, 0 to ", batch - 1, ", got ",
        image);
    const auto axis = [&](int from, int64_t num_bins, int64_t size) {
      const auto found = extent<T>(
          T(data[from]), T(data[from + 2]), spatial_scale, num_bins, sampling_ratio, aligned);
      return Shares<T>(found, num_bins, size);
    };
    boxes.push_back(
        {static_cast<int64_t>(image), axis(2, pooled_height, height), axis(1, pooled_width, width)});
  }
  return boxes;
}

// One channel of one box: plane [H,W] -> output [PH,PW]; `line` holds W values.
template <typename scalar_t, typename T>
void pool(const Box<T>& box, const scalar_t* plane, int64_t width, scalar_t* output, T* line) {
  const auto& [image, rows, columns] = box;
  const int64_t length = columns.last - columns.first + 1;
  int64_t row = 0;
  for (const int64_t row_end : rows.ends) {
    std::fill_n(line, std::max<int64_t>(length, 0), T(0));
    for (; row < row_end; ++row) {
      const scalar_t* values = plane + rows.pixels[row] * width + columns.first;
      const T weight = rows.weights[row];
      for (int64_t x = 0; x < length; ++x) {
        line[x] += weight * T(values[x]);
      }
    }
    int64_t column = 0;
    for (const int64_t column_end : columns.ends) {
      T sum = 0;
      for (; column < column_end; ++column) {
        sum += columns.weights[column] * line[columns.pixels[column] - columns.first];
      }
      *output++ = static_cast<scalar_t>(sum);
    }
  }
}

// The other way round: grad [PH,PW] is added to what plane [H,W] gets.
template <typename scalar_t, typename T>
void spread(const Box<T>& box, const scalar_t* grad, int64_t width, T* plane, T* line) {
  const auto& [image, rows, columns] = box;
  const int64_t length = columns.last - columns.first + 1;
  int64_t row = 0;
  for (const int64_t row_end : rows.ends) {
    std::fill_n(line, std::max<int64_t>(length, 0), T(0));
    int64_t column = 0;
    for (const int64_t column_end : columns.ends) {
      const T value = T(*grad++);
      for (; column < column_end; ++column) {
        line[columns.pixels[column] - columns.first] += columns.weights[column] * value;
      }
    }
    for (; row < row_end; ++row) {
      T* values = plane + rows.pixels[row] * width + columns.first;
      const T weight = rows.weights[row];
      for (int64_t x = 0; x < length; ++x) {
        values[x] += weight * line[x];
      }
    }
  }
}

}  // namespace

at::Tensor roi_align_cpu(
    const at::Tensor& input, const at::Tensor& rois, double spatial_scale, int64_t pooled_height,
    int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
  check_forward(input, rois, pooled_height, pooled_width, sampling_ratio);
  const int64_t channels = input.size(1), height = input.size(2), width = input.size(3);
  const int64_t num_bins = pooled_height * pooled_width;
  at::Tensor output = at::empty(
      {rois.size(0), channels, pooled_height, pooled_width},
      input.options().memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor planes = input.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, input.scalar_type(), "roi_align", [&] {
        using T = at::opmath_type<scalar_t>;
        const auto boxes = boxes_of<scalar_t, T>(
            rois, T(spatial_scale), pooled_height, pooled_width, input.size(0), height, width,
            sampling_ratio, aligned);
        const scalar_t* source = planes.const_data_ptr<scalar_t>();
        scalar_t* target = output.mutable_data_ptr<scalar_t>();
        const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, 8 * num_bins));
        const int64_t total = rois.size(0) * channels;
        at::parallel_for(0, total, grain, [&](int64_t begin, int64_t end) {
          std::vector<T> line(width);
          for (int64_t index = begin; index < end; ++index) {
            const auto& box = boxes[index / channels];
            const int64_t plane = box.image * channels + index % channels;
            pool(box, source + plane * height * width, width, target + index * num_bins,
                 line.data());
          }
        });
      });
  return output;
}

at::Tensor roi_align_backward_cpu(
    const at::Tensor& grad, const at::Tensor& rois, double spatial_scale, int64_t pooled_height,
    int64_t pooled_width, int64_t batch, int64_t channels, int64_t height, int64_t width,
    int64_t sampling_ratio, bool aligned) {
  check_backward(grad, rois, pooled_height, pooled_width, channels, sampling_ratio);
  const int64_t num_bins = pooled_height * pooled_width;
  const at::Tensor grads = grad.contiguous();
  const auto wide = grad.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor result = at::zeros({batch, channels, height, width}, grad.options().dtype(wide));
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, grad.scalar_type(), "roi_align_backward", [&] {
        using T = at::opmath_type<scalar_t>;
        const auto boxes = boxes_of<scalar_t, T>(
            rois, T(spatial_scale), pooled_height, pooled_width, batch, height, width,
            sampling_ratio, aligned);
        const scalar_t* source = grads.const_data_ptr<scalar_t>();
        T* target = result.mutable_data_ptr<T>();
        const int64_t work = std::max<int64_t>(1, 8 * num_bins * rois.size(0));
        // each channel by one thread, in the order of the boxes: no races, the same sums
        at::parallel_for(0, channels, std::max<int64_t>(1, kGrain / work),
                         [&](int64_t begin, int64_t end) {
          std::vector<T> line(width);
          for (size_t index = 0; index < boxes.size(); ++index) {
            for (int64_t channel = begin; channel < end; ++channel) {
              const int64_t plane = boxes[index].image * channels + channel;
              const int64_t bins = (static_cast<int64_t>(index) * channels + channel) * num_bins;
              spread(boxes[index], source + bins, width, target + plane * height * width,
                     line.data());
            }
          }
        });
      });
  return result.to(grad.scalar_type());
}

}  // namespace foundry
