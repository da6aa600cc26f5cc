// foundry::roi_align: its schema, shapes, gradient and rule under autocast; see roi_align.py.

#include "roi_align.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace foundry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr const char* kForward = "foundry::roi_align";
constexpr const char* kBackward = "foundry::_roi_align_backward";

void check_rois(const at::Tensor& rois) {
  TORCH_CHECK_VALUE(
      rois.dim() == 2 && rois.sym_size(1) == 5,
      "roi_align: rois must be [R,5] (index of the image, x1, y1, x2, y2), got ", rois.sym_sizes());
}

void check_same(const char* name, const at::Tensor& tensor, const at::Tensor& rois) {
  TORCH_CHECK_VALUE(
      tensor.is_floating_point(),
      "roi_align: ", name, " must be of a floating-point type, got ", tensor.scalar_type());
  TORCH_CHECK_VALUE(
      rois.scalar_type() == tensor.scalar_type(),
      "roi_align: rois must be of the type of ", name, ", ", tensor.scalar_type(), ", got ",
      rois.scalar_type());
  TORCH_CHECK_VALUE(
      rois.device() == tensor.device(),
      "roi_align: rois must be on the device of ", name, ", ", tensor.device(), ", got ",
      rois.device());
}

void check_settings(
    const c10::SymInt& pooled_height, const c10::SymInt& pooled_width, int64_t sampling_ratio) {
  TORCH_CHECK_VALUE(
      pooled_height > 0 && pooled_width > 0,
      "roi_align: the pooled size must be at least 1x1, got ", pooled_height, "x", pooled_width);
  TORCH_CHECK_VALUE(
      sampling_ratio <= kMaxSamplingRatio,
      "roi_align: sampling_ratio must be at most ", kMaxSamplingRatio, ", got ", sampling_ratio);
}

}  // namespace

void check_forward(
    const at::Tensor& input, const at::Tensor& rois, const c10::SymInt& pooled_height,
    const c10::SymInt& pooled_width, int64_t sampling_ratio) {
  TORCH_CHECK_VALUE(
      input.dim() == 4, "roi_align: input must be [N,C,H,W], got ", input.sym_sizes());
  check_rois(rois);
  check_same("input", input, rois);
  check_settings(pooled_height, pooled_width, sampling_ratio);
}

void check_backward(
    const at::Tensor& grad, const at::Tensor& rois, const c10::SymInt& pooled_height,
    const c10::SymInt& pooled_width, const c10::SymInt& channels, int64_t sampling_ratio) {
  check_rois(rois);
  check_same("the gradient", grad, rois);
  check_settings(pooled_height, pooled_width, sampling_ratio);
  TORCH_CHECK_VALUE(
      grad.dim() == 4 && grad.sym_size(0) == rois.sym_size(0) && grad.sym_size(1) == channels &&
          grad.sym_size(2) == pooled_height && grad.sym_size(3) == pooled_width,
      "roi_align: the gradient must be [R,C,PH,PW] = [", rois.sym_size(0), ", ", channels, ", ",
      pooled_height, ", ", pooled_width, "], got ", grad.sym_sizes());
}

// ---- through the dispatcher ---------------------------------------------------------------

at::Tensor roi_align(
    const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
    c10::SymInt pooled_height, c10::SymInt pooled_width, int64_t sampling_ratio, bool aligned) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow(kForward, "")
                       .typed<decltype(roi_align)>();
  return op.call(
      input, rois, spatial_scale, std::move(pooled_height), std::move(pooled_width),
      sampling_ratio, aligned);
}

at::Tensor roi_align_backward(
    const at::Tensor& grad, const at::Tensor& rois, double spatial_scale,
    c10::SymInt pooled_height, c10::SymInt pooled_width, c10::SymInt batch, c10::SymInt channels,
    c10::SymInt height, c10::SymInt width, int64_t sampling_ratio, bool aligned) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow(kBackward, "")
                       .typed<decltype(roi_align_backward)>();
  return op.call(
      grad, rois, spatial_scale, std::move(pooled_height), std::move(pooled_width),
      std::move(batch), std::move(channels), std::move(height), std::move(width), sampling_ratio,
      aligned);
}

// ---- shapes -------------------------------------------------------------------------------

at::Tensor roi_align_meta(
    const at::Tensor& input, const at::Tensor& rois, double, c10::SymInt pooled_height,
    c10::SymInt pooled_width, int64_t sampling_ratio, bool) {
  check_forward(input, rois, pooled_height, pooled_width, sampling_ratio);
  return at::empty_symint(
      {rois.sym_size(0), input.sym_size(1), std::move(pooled_height), std::move(pooled_width)},
      input.options());
}

at::Tensor roi_align_backward_meta(
    const at::Tensor& grad, const at::Tensor& rois, double, c10::SymInt pooled_height,
    c10::SymInt pooled_width, c10::SymInt batch, c10::SymInt channels, c10::SymInt height,
    c10::SymInt width, int64_t sampling_ratio, bool) {
  check_backward(grad, rois, pooled_height, pooled_width, channels, sampling_ratio);
  return at::empty_symint(
      {std::move(batch), std::move(channels), std::move(height), std::move(width)},
      grad.options());
}

// ---- gradients: both directions are linear, so each is the other's -------------------------

class RoiAlign : public torch::autograd::Function<RoiAlign> {
 public:
  static Variable forward(
      AutogradContext* context, const Variable& input, const Variable& rois, double spatial_scale,
      c10::SymInt pooled_height, c10::SymInt pooled_width, int64_t sampling_ratio, bool aligned) {
    context->saved_data["spatial_scale"] = spatial_scale;
    context->saved_data["pooled_height"] = pooled_height;
    context->saved_data["pooled_width"] = pooled_width;
    context->saved_data["sampling_ratio"] = sampling_ratio;
    context->saved_data["aligned"] = aligned;
    context->saved_data["shape"] = input.sym_sizes();
    context->save_for_backward({rois});
    at::AutoDispatchBelowADInplaceOrView guard;
    return roi_align(
        input, rois, spatial_scale, std::move(pooled_height), std::move(pooled_width),
        sampling_ratio, aligned);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto& data = context->saved_data;
    const auto shape = data.at("shape").toList();
    const auto size = [&](size_t axis) { return shape.get(axis).toSymInt(); };
    const Variable result = roi_align_backward(
        grads[0], context->get_saved_variables()[0], data.at("spatial_scale").toDouble(),
        data.at("pooled_height").toSymInt(), data.at("pooled_width").toSymInt(), size(0), size(1),
        size(2), size(3), data.at("sampling_ratio").toInt(), data.at("aligned").toBool());
    return {result, {}, {}, {}, {}, {}, {}};
  }
};

class RoiAlignBackward : public torch::autograd::Function<RoiAlignBackward> {
 public:
  static Variable forward(
      AutogradContext* context, const Variable& grad, const Variable& rois, double spatial_scale,
      c10::SymInt pooled_height, c10::SymInt pooled_width, c10::SymInt batch,
      c10::SymInt channels, c10::SymInt height, c10::SymInt width, int64_t sampling_ratio,
      bool aligned) {
    context->saved_data["spatial_scale"] = spatial_scale;
    context->saved_data["pooled_height"] = pooled_height;
    context->saved_data["pooled_width"] = pooled_width;
    context->saved_data["sampling_ratio"] = sampling_ratio;
    context->saved_data["aligned"] = aligned;
    context->save_for_backward({rois});
    at::AutoDispatchBelowADInplaceOrView guard;
    return roi_align_backward(
        grad, rois, spatial_scale, std::move(pooled_height), std::move(pooled_width),
        std::move(batch), std::move(channels), std::move(height), std::move(width),
        sampling_ratio, aligned);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto& data = context->saved_data;
    const Variable result = roi_align(
        grads[0], context->get_saved_variables()[0], data.at("spatial_scale").toDouble(),
        data.at("pooled_height").toSymInt(), data.at("pooled_width").toSymInt(),
        data.at("sampling_ratio").toInt(), data.at("aligned").toBool());
    return {result, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  }
};

at::Tensor roi_align_autograd(
    const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
    c10::SymInt pooled_height, c10::SymInt pooled_width, int64_t sampling_ratio, bool aligned) {
  return RoiAlign::apply(
      input, rois, spatial_scale, std::move(pooled_height), std::move(pooled_width),
      sampling_ratio, aligned);
}

at::Tensor roi_align_backward_autograd(
    const at::Tensor& grad, const at::Tensor& rois, double spatial_scale,
    c10::SymInt pooled_height, c10::SymInt pooled_width, c10::SymInt batch, c10::SymInt channels,
    c10::SymInt height, c10::SymInt width, int64_t sampling_ratio, bool aligned) {
  return RoiAlignBackward::apply(
      grad, rois, spatial_scale, std::move(pooled_height), std::move(pooled_width),
      std::move(batch), std::move(channels), std::move(height), std::move(width), sampling_ratio,
      aligned);
}

// ---- autocast: positions need the bits of float32 ------------------------------------------

template <c10::DispatchKey key, c10::DeviceType device>
at::Tensor roi_align_autocast(
    const at::Tensor& input, const at::Tensor& rois, double spatial_scale,
    c10::SymInt pooled_height, c10::SymInt pooled_width, int64_t sampling_ratio, bool aligned) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(key);
  const auto single = [](const at::Tensor& tensor) {
    return at::autocast::cached_cast(at::kFloat, tensor, device);
  };
  return roi_align(
             single(input), single(rois), spatial_scale, std::move(pooled_height),
             std::move(pooled_width), sampling_ratio, aligned)
      .to(input.scalar_type());
}

TORCH_LIBRARY(foundry, library) {
  library.def(
      "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
      "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, "
      "SymInt pooled_width, SymInt batch, SymInt channels, SymInt height, SymInt width, "
      "int sampling_ratio, bool aligned) -> Tensor",
      {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(foundry, CPU, library) {
  library.impl("roi_align", TORCH_FN(roi_align_cpu));
  library.impl("_roi_align_backward", TORCH_FN(roi_align_backward_cpu));
}

TORCH_LIBRARY_IMPL(foundry, Meta, library) {
  library.impl("roi_align", TORCH_FN(roi_align_meta));
  library.impl("_roi_align_backward", TORCH_FN(roi_align_backward_meta));
}

TORCH_LIBRARY_IMPL(foundry, Autograd, library) {
  library.impl("roi_align", TORCH_FN(roi_align_autograd));
  library.impl("_roi_align_backward", TORCH_FN(roi_align_backward_autograd));
}

TORCH_LIBRARY_IMPL(foundry, Autocast, library) {
  library.impl(
      "roi_align",
      TORCH_FN((roi_align_autocast<c10::DispatchKey::Autocast, c10::DeviceType::CUDA>)));
}

TORCH_LIBRARY_IMPL(foundry, AutocastCPU, library) {
  library.impl(
      "roi_align",
      TORCH_FN((roi_align_autocast<c10::DispatchKey::AutocastCPU, c10::DeviceType::CPU>)));
}

}  // namespace foundry
