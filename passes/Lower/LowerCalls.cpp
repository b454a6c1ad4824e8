//===- LowerCalls.cpp - From calls to kernels ---------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `lower-calls`: each call that the table of Lowering.h has an entry
// for becomes a kernel of its own. What a kernel cannot do or observe
// (mutation, randomness, other devices, dtypes without kernels) is decided
// here, once, so that entries only know their operator.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/InPlace.h"
#include "passes/Lower/Lowering.h"
#include "passes/Lower/Refusals.h"
#include "passes/Normalise/AliasSets.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSwitch.h"

namespace intarsia {
#define GEN_PASS_DEF_LOWERCALLS
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

namespace {

/// PyTorch itself implements little more for the others than conversions.
bool hasArithmetic(DType dtype) {
  return dtype != DType::U16 && dtype != DType::U32 && dtype != DType::U64 &&
         !(isFloatingPoint(dtype) && dtypeSize(dtype) == 1);
}

/// Whether the operator converts elements, or moves them as they are.
bool converts(StringRef name) {
  return llvm::StringSwitch<bool>(name)
      .Cases({"aten::_to_copy", "aten::clone", "aten::copy",
              "aten::lift_fresh_copy", "aten::to.device", "aten::to.dtype",
              "aten::to.dtype_layout", "aten::type_as", "aten::contiguous",
              "aten::cat", "aten::stack", "prims::cat",
              "prims::convert_element_type"},
             true)
      .Default(false);
}

/// Whether all tensors of the call may be a kernel's: of a dtype that kernels
/// have, on one device of `devices`, and not known to be empty (nothing to
/// compile; a concatenation leaves such parts out).
bool hasKernelTypes(graph::CallOp call, ArrayRef<std::string> devices) {
  StringRef device;
  auto isFine = [&](Type type) {
    auto tensor = dyn_cast<graph::TensorType>(type);
    if (!tensor)
      return true;
    if (device.empty())
      device = tensor.getDevice();
    return tensor.getDevice() == device &&
           llvm::is_contained(devices, device.split(':').first) &&
           (hasArithmetic(tensor.getDtype()) || converts(call.getCallee())) &&
           lower::storageType(call.getContext(), tensor.getDtype());
  };
  auto isEmpty = [](Type type) {
    auto tensor = dyn_cast<graph::TensorType>(type);
    return tensor && llvm::any_of(tensor.getSizes(), [](graph::ExprAttr size) {
             return size.getExpr().isInteger(0);
           });
  };
  bool isConcatenation = call.getCallee().ends_with("::cat");
  for (Value input : call.getInputs())
    if (!isFine(input.getType()) ||
        (!isConcatenation && isEmpty(input.getType())))
      return false;
  for (Value output : call.getOutputs())
    if (!isa<graph::TensorType>(output.getType()) ||
        (!output.use_empty() &&
         (!isFine(output.getType()) || isEmpty(output.getType()))))
      return false;
  return !call.getOutputs().empty();
}

class LowerCalls final : public intarsia::impl::LowerCallsBase<LowerCalls> {
public:
  using LowerCallsBase::LowerCallsBase;

  void runOnOperation() override {
    if (devices.empty())
      targets = {"cpu"};
    else
      targets.assign(devices.begin(), devices.end());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      // Autocast acts on the operators, not on what kernels do instead.
      if (function->hasAttr(autocastAttrName))
        continue;
      SmallVector<graph::CallOp> calls;
      function.walk([&](graph::CallOp call) { calls.push_back(call); });
      for (graph::CallOp call : calls) {
        if (std::string twin = lower::functionalTwin(call); !twin.empty())
          lowerInPlace(call, twin);
        else
          lower(call);
      }
    }
  }

private:
  /// By value, an update in place is its twin's result.
  void lowerInPlace(graph::CallOp call, StringRef twinName) {
    Value updated = call.getUpdated().front();
    if (updated.use_empty())
      return call.erase();
    OpBuilder builder(call);
    graph::CallOp twin = lower::createTwin(builder, call, twinName);
    updated.replaceAllUsesWith(twin.getOutputs().front());
    Value result = lower(twin);
    if (result)
      return call.erase();
    twin.getOutputs().front().replaceAllUsesWith(updated);
    twin.erase();
  }

  /// Returns the first result of the kernel; null when the call stays a call.
  Value lower(graph::CallOp call) {
    lower::Lowering lowering =
        lower::LoweringTable::get().lookup(call.getCallee());
    if (!lowering)
      return {};
    // An update in place writes less than a kernel that makes all anew, unless
    // all is written.
    bool isUpdate =
        call->hasAttr("intarsia.reuse") && call.getCallee() != "aten::copy";
    if (!call.isPure() || !hasKernelTypes(call, targets) || call->use_empty() ||
        isUpdate || lower::refusedByEager(call)) {
      ++numDeclined;
      return {};
    }
    OpBuilder builder(call);
    lower::KernelBuilder kernel(builder, call.getLoc());
    FailureOr<SmallVector<lower::Tensor>> results = lowering(call, kernel);
    if (failed(results) || kernel.declined()) {
      ++numDeclined;
      return {};
    }
    assert(results->size() == call.getOutputs().size() &&
           "a lowering returns one tensor an output");

    SmallVector<lower::Tensor> used;
    SmallVector<graph::TensorType> types;
    SmallVector<Value> replaced;
    for (auto [output, tensor] : llvm::zip(call.getOutputs(), *results)) {
      if (output.use_empty())
        continue;
      assert(tensor.value && "a used output was left out");
      // Sizes that are equal, but not in their types, are nobody's to assume.
      if (tensor.sizes !=
          cast<graph::TensorType>(output.getType()).getSizeExprs()) {
        ++numDeclined;
        return {};
      }
      used.push_back(tensor);
      types.push_back(cast<graph::TensorType>(output.getType()));
      replaced.push_back(output);
    }
    graph::KernelOp op = kernel.finish(used, types, call.getCallee());
    for (auto [output, result] : llvm::zip(replaced, op.getOutputs()))
      output.replaceAllUsesWith(result);
    call.erase();
    ++numLowered;
    return op.getOutputs().front();
  }

  SmallVector<std::string> targets;
};

} // namespace
