//===- calls.cpp - What calls.py measures ---------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An operator that does nothing but make its result, and the shortest ways that
// C++ has to call one, as reference.
//
//===----------------------------------------------------------------------===//

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <ctime>

static at::Tensor emptyLike(const at::Tensor &x) { return at::empty_like(x); }

static double threadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

constexpr c10::DispatchKeySet masked =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::autocast_dispatch_keyset;

/// Seconds for one of `count` typed calls of `name` on `x` below autograd: the
/// least that PyTorch's dispatcher takes.
static double typedSeconds(const at::Tensor &x, c10::string_view name,
                           int64_t count) {
  auto op = c10::Dispatcher::singleton()
                .findSchemaOrThrow(std::string(name).c_str(), "")
                .typed<at::Tensor(const at::Tensor &)>();
  at::Tensor current = x; // each result is the next argument
  double start = threadSeconds();
  for (int64_t i = 0; i < count; ++i)
    current = op.redispatch(current.key_set() - masked, current);
  return (threadSeconds() - start) / double(count);
}

/// Seconds for one of `count` boxed calls of `name` on `x`; `below`: with
/// autograd's keys masked out, as a compiled program calls.
static double boxedSeconds(const at::Tensor &x, c10::string_view name,
                           bool below, int64_t count) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      std::string(name).c_str(), "");
  torch::jit::Stack stack;
  at::Tensor current = x; // each result is the next argument
  double start = threadSeconds();
  for (int64_t i = 0; i < count; ++i) {
    stack.emplace_back(current);
    if (below) {
      auto keys = op.dispatchKeyExtractor().getDispatchKeySetBoxed(&stack);
      op.redispatchBoxed(keys - masked, &stack);
    } else {
      op.callBoxed(stack);
    }
    current = std::move(stack[0]).toTensor();
    stack.clear();
  }
  return (threadSeconds() - start) / double(count);
}

TORCH_LIBRARY(intarsia_bench, m) {
  m.def("cpp(Tensor x) -> Tensor");
  m.def("boxed_seconds(Tensor x, str name, bool below, int count) -> float",
        boxedSeconds);
  m.def("typed_seconds(Tensor x, str name, int count) -> float", typedSeconds);
}
TORCH_LIBRARY_IMPL(intarsia_bench, CPU, m) { m.impl("cpp", emptyLike); }
TORCH_LIBRARY_IMPL(intarsia_bench, Meta, m) { m.impl("cpp", emptyLike); }
