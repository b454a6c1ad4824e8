//===- Refusals.cpp - Dtypes that eager refuses ---------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Refusals.h. A kernel could compute the floor of a bool or the
// softmax of integers; eager refuses. Fake implementations, which know only of
// promotion, often do not. The test that compares this list with eager is
// test/python/test_dtype_refusals.py.
//
//===----------------------------------------------------------------------===//

#include "Refusals.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace intarsia;

/// No bool comes out of these: they refuse it.
static const llvm::StringSet<> withoutBool = {
    "abs",
    "addcmul",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "__lshift__",
    "__rshift__",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "div",
    "divide",
    "floor",
    "floor_divide",
    "fmod",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "neg",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "relu",
    "remainder",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "round",
    "threshold",
    "trunc",
};

/// Only floats come out of these.
static const llvm::StringSet<> floatsOnly = {
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "_log_softmax",
    "_log_softmax_backward_data",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_safe_softmax",
    "_softmax",
    "_softmax_backward_data",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "addcdiv",
    "batch_norm",
    "elu",
    "frac",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "im2col",
    "layer_norm",
    "lerp",
    "log_sigmoid",
    "log_sigmoid_forward",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "mish",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
    "silu",
    "softmax",
    "softplus",
    "softshrink",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
};

/// Their parameters have the dtype of the input, or the input is of half
/// precision and they are all float32.
static const llvm::StringSet<> normalisations = {
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "batch_norm",
    "group_norm",
    "layer_norm",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
};

static std::optional<DType> dtypeOf(Value value) {
  auto tensor = dyn_cast<graph::TensorType>(value.getType());
  return tensor ? std::optional(tensor.getDtype()) : std::nullopt;
}

/// The dtype of an argument that is a tensor.
static std::optional<DType> dtypeOf(graph::CallOp call, StringRef name) {
  auto operand = dyn_cast_or_null<graph::OperandAttr>(call.arg(name));
  return operand ? dtypeOf(call.getInputs()[operand.getIndex()]) : std::nullopt;
}

static bool mixesParameters(graph::CallOp call) {
  if (call.getInputs().empty())
    return false;
  std::optional<DType> input = dtypeOf(call.getInputs().front());
  bool isHalf = input == DType::BF16 || input == DType::F16;
  std::optional<DType> parameters;
  for (Value value : call.getInputs().drop_front()) {
    std::optional<DType> dtype = dtypeOf(value);
    if (!dtype)
      continue;
    if (dtype != parameters.value_or(*dtype))
      return true;
    parameters = dtype;
  }
  return parameters && parameters != input &&
         !(isHalf && parameters == DType::F32);
}

bool lower::refusedByEager(graph::CallOp call) {
  auto [space, rest] = call.getCallee().split("::");
  StringRef name = rest.split('.').first;
  std::optional<DType> made = call.getOutputs().empty()
                                  ? std::nullopt
                                  : dtypeOf(call.getOutputs().front());
  if (space != "aten" || !made)
    return false;
  if (withoutBool.contains(name) && made == DType::Bool)
    return true;
  if (floatsOnly.contains(name) && !isFloatingPoint(*made) && !isComplex(*made))
    return true;
  if (normalisations.contains(name) && mixesParameters(call))
    return true;
  if (name == "heaviside")
    return dtypeOf(call, "self") != dtypeOf(call, "values");
  if (name == "sub" || name == "subtract" || name == "rsub")
    return llvm::any_of(
               call.getInputs(),
               [](Value value) { return dtypeOf(value) == DType::Bool; }) ||
           isa_and_nonnull<BoolAttr>(call.arg("other"));
  if (name == "addcdiv") {
    std::optional<DType> above = dtypeOf(call, "tensor1"),
                         below = dtypeOf(call, "tensor2");
    return above && below && !isFloatingPoint(*above) && !isComplex(*above) &&
           !isFloatingPoint(*below) && !isComplex(*below);
  }
  return false;
}
