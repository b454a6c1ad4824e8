//===- programs.cpp - The registered operators of programs.py -------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include <ATen/ATen.h>
#include <torch/library.h>

/// Writes `rows` (batch, heads, new, width) into the cache from `position` on.
static void append(at::Tensor cache, const at::Tensor &rows, int64_t position) {
  cache.narrow(2, position, rows.size(2)).copy_(rows);
}

static at::Tensor swiglu(const at::Tensor &gate, const at::Tensor &up) {
  return at::silu(gate).mul_(up);
}

static std::tuple<at::Tensor, at::Tensor> swigluBackward(const at::Tensor &grad,
                                                         const at::Tensor &gate,
                                                         const at::Tensor &up) {
  return {at::silu_backward(grad * up, gate), at::silu(gate).mul_(grad)};
}

/// Sums the messages (edges, width) of each target node.
static at::Tensor scatterSum(const at::Tensor &messages,
                             const at::Tensor &target, int64_t nodes) {
  return messages.new_zeros({nodes, messages.size(1)})
      .index_add_(0, target, messages);
}

static at::Tensor doubled(const at::Tensor &x) { return x + x; }

TORCH_LIBRARY(intarsia_programs, m) {
  m.def("append(Tensor(a!) cache, Tensor rows, SymInt position) -> ()");
  m.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  m.def("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, "
        "Tensor)");
  m.def("scatter_sum(Tensor messages, Tensor target, SymInt nodes) -> Tensor");
  m.def("doubled(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(intarsia_programs, CPU, m) {
  m.impl("append", append);
  m.impl("swiglu", swiglu);
  m.impl("swiglu_backward", swigluBackward);
  m.impl("scatter_sum", scatterSum);
  m.impl("doubled", doubled);
}
