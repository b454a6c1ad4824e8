//===- Registrations.cpp - The ways to register an operator in C++ --------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One operator for each way in which C++ registers them, for
// test/python/test_registrations.py.
//
//===----------------------------------------------------------------------===//

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <stdexcept>

static at::Tensor scaled(const at::Tensor &x, double factor) {
  return x * factor;
}

static at::Tensor like(const at::Tensor &x) { return at::empty_like(x); }

static at::Tensor doubled(const at::Tensor &x) { return x * 2; }

static at::Tensor scaledBy(const at::Tensor &x, const at::Scalar &factor) {
  return x * factor;
}

static at::Tensor likeScaled(const at::Tensor &x, const at::Scalar &) {
  return at::empty_like(x);
}

static void addInto(at::Tensor &x, const at::Tensor &y) { x.add_(y); }

static at::Tensor longer(const at::Tensor &x) {
  return at::empty({x.size(0) + 1}, x.options());
}

static at::Tensor throwing(const at::Tensor &x, c10::string_view kind) {
  if (kind == "index")
    TORCH_CHECK_INDEX(false, "out of range: ", x.size(0));
  if (kind == "value")
    TORCH_CHECK_VALUE(false, "no such value: ", x.size(0));
  if (kind == "type")
    TORCH_CHECK_TYPE(false, "no such type: ", x.size(0));
  if (kind == "missing")
    TORCH_CHECK_NOT_IMPLEMENTED(false, "not implemented: ", x.size(0));
  if (kind == "standard")
    throw std::runtime_error("standard: " + std::to_string(x.size(0)));
  if (kind == "range")
    throw std::out_of_range("range: " + std::to_string(x.size(0)));
  if (kind == "number")
    throw 5;
  TORCH_CHECK(false, "check: ", x.size(0));
}

namespace {
struct Cubed : torch::autograd::Function<Cubed> {
  static at::Tensor forward(torch::autograd::AutogradContext *context,
                            const at::Tensor &x) {
    at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x});
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("registrations::cubed", "")
                         .typed<at::Tensor(const at::Tensor &)>();
    return op.call(x);
  }
  static torch::autograd::variable_list
  backward(torch::autograd::AutogradContext *context,
           torch::autograd::variable_list gradients) {
    at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * x * x * 3};
  }
};
} // namespace

TORCH_LIBRARY(registrations, m) {
  // What follows has its fakes in this module of Python.
  m.set_python_module("registered_fakes");
  m.def("scaled(Tensor x, float factor) -> Tensor");
}

TORCH_LIBRARY_FRAGMENT(registrations, m) {
  // The older name of the same.
  m.impl_abstract_pystub("registered_fakes");
  m.def("scaled_too(Tensor x, float factor) -> Tensor");
}

TORCH_LIBRARY_FRAGMENT(registrations, m) {
  m.def("doubled(Tensor x) -> Tensor");
  m.def("doubled.by(Tensor x, Scalar factor) -> Tensor");
  m.def("implicit(Tensor x) -> Tensor", [](const at::Tensor &x) {
    return (x * 2).sin() + x.sum(0, /*keepdim=*/true);
  });
  m.def("add_into_(Tensor(a!) x, Tensor y) -> ()");
  m.def("longer(Tensor x) -> Tensor");
  m.def("throwing(Tensor x, str kind) -> Tensor");
  m.def("cubed(Tensor x) -> Tensor");
  m.def("no_fake(Tensor x, int[] dims, *, Tensor? bias=None) -> Tensor[]");
  m.def("explicit_kernel(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(registrations, CPU, m) {
  m.impl("scaled", scaled);
  m.impl("scaled_too", scaled);
  m.impl("doubled", doubled);
  m.impl("doubled.by", scaledBy);
  m.impl("add_into_", addInto);
  m.impl("longer", doubled);
  m.impl("throwing", throwing);
  m.impl("cubed", [](const at::Tensor &x) { return x * x * x; });
  m.impl("no_fake", [](const at::Tensor &x, at::IntArrayRef,
                       const std::optional<at::Tensor> &) {
    return std::vector<at::Tensor>{x.clone()};
  });
}

TORCH_LIBRARY_IMPL(registrations, Meta, m) {
  m.impl("doubled", like);
  m.impl("doubled.by", likeScaled);
  m.impl("add_into_", [](at::Tensor &, const at::Tensor &) {});
  m.impl("longer", longer);
  m.impl("throwing",
         [](const at::Tensor &x, c10::string_view) { return like(x); });
  m.impl("cubed", like);
}

TORCH_LIBRARY_IMPL(registrations, Autograd, m) {
  m.impl("cubed", [](const at::Tensor &x) { return Cubed::apply(x); });
}

// A kernel for every device is its own fake.
TORCH_LIBRARY_IMPL(registrations, CompositeExplicitAutograd, m) {
  m.impl("explicit_kernel", [](const at::Tensor &x) { return x.cos(); });
}
