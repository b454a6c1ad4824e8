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

#include "passes/Lower/Arguments.h"
#include "passes/Lower/EmbeddingGradient.h"
#include "passes/Lower/InPlace.h"
#include "passes/Lower/LongRows.h"
#include "passes/Lower/Lowering.h"
#include "passes/Lower/Refusals.h"
#include "passes/Lower/Scalar.h"
#include "passes/Lower/TakeApart.h"
#include "passes/Normalise/AliasSets.h"
#include "passes/Normalise/NewCall.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSet.h"
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

/// Whether there is a complex tensor, or number, in the call.
bool isComplexCall(graph::CallOp call) {
  auto isComplexType = [](Type type) {
    auto tensor = dyn_cast<graph::TensorType>(type);
    return tensor && isComplex(tensor.getDtype());
  };
  return llvm::any_of(call->getOperandTypes(), isComplexType) ||
         llvm::any_of(call->getResultTypes(), isComplexType) ||
         llvm::any_of(call.getArgs(), llvm::IsaPred<graph::ComplexAttr>);
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

/// relu(addmm(...)) on a GPU becomes one call, whose product applies the
/// function before it stores (cuBLASLt's epilogue): the same numbers, as what
/// rounds keeps the order and zero. Only where relu would be a kernel of its
/// own, which reads and writes all of it once more. (PyTorch's other epilogue,
/// gelu, rounds once where eager rounds twice.)
void foldEpilogue(graph::CallOp relu) {
  if (relu.getCallee() != "aten::relu" || !relu.isPure())
    return;
  Value product = relu.operand("self");
  auto addmm = product ? product.getDefiningOp<graph::CallOp>() : nullptr;
  if (!addmm || addmm.getCallee() != "aten::addmm" || !addmm.isPure() ||
      !product.hasOneUse() || addmm.floatArg("beta") != 1.0 ||
      addmm.floatArg("alpha") != 1.0)
    return;
  auto type = cast<graph::TensorType>(product.getType());
  Value bias = addmm.operand("self");
  auto biasType = bias ? dyn_cast<graph::TensorType>(bias.getType()) : nullptr;
  if (!type.getDevice().starts_with("cuda") || !biasType ||
      biasType.getRank() != 1 || !isFloatingPoint(type.getDtype()) ||
      type != relu.getOutputs().front().getType())
    return;
  auto isLibraryCall = [](Operation *user) {
    auto call = dyn_cast<graph::CallOp>(user);
    return isa<func::ReturnOp>(user) ||
           (call && !lower::LoweringTable::get().lookup(call.getCallee()) &&
            !lower::lookupView(call.getCallee()));
  };
  if (!llvm::all_of(relu.getOutputs().front().getUsers(), isLibraryCall))
    return;
  OpBuilder builder(relu);
  Value folded = NewCall(builder, addmm.getLoc(), "aten::_addmm_activation")
                     .from(addmm, "self")
                     .from(addmm, "mat1")
                     .from(addmm, "mat2")
                     .integer("beta", 1)
                     .integer("alpha", 1)
                     .boolean("use_gelu", false)
                     .createOne(type);
  relu.getOutputs().front().replaceAllUsesWith(folded);
  relu.erase();
  addmm.erase();
}

/// What a view shows of the elements of its source, where that is not what is
/// in memory: PyTorch has bits for it beside the tensor, or another dtype.
using Change = lower::Scalar (*)(const lower::Scalar &);
struct ChangingView {
  Value source;
  Change change = nullptr;
};

ChangingView changingView(graph::CallOp call) {
  StringRef name = call.getCallee();
  Value source = call.operand("self");
  if (name == "aten::_conj")
    return {source, [](const lower::Scalar &z) { return lower::conjugate(z); }};
  if (name == "aten::_neg_view")
    return {source, [](const lower::Scalar &x) { return -x; }};
  // One of the two parts.
  auto parts = name == "aten::select.int"
                   ? source.getDefiningOp<graph::CallOp>()
                   : graph::CallOp();
  if (!parts || parts.getCallee() != "aten::view_as_real")
    return {};
  int64_t last = cast<graph::TensorType>(source.getType()).getRank() - 1;
  std::optional<int64_t> dim = call.intArg("dim"), index = call.intArg("index");
  if (!index || (dim != last && dim != -1))
    return {};
  bool isReal = *index == 0 || *index == -2;
  return {parts.operand("self"),
          isReal
              ? Change([](const lower::Scalar &z) { return z.real(); })
              : Change([](const lower::Scalar &z) { return z.imaginary(); })};
}

/// Whether only kernels read a value, some of them through `hasViews`.
bool readByKernelsAlone(Value value, bool &hasViews) {
  return !value.use_empty() &&
         llvm::all_of(value.getUsers(), [&](Operation *user) {
           if (isa<graph::KernelOp>(user))
             return true;
           auto call = dyn_cast<graph::CallOp>(user);
           if (!call || !lower::lookupView(call.getCallee()) ||
               call->getNumResults() != 1)
             return false;
           hasViews = true;
           return readByKernelsAlone(call->getResult(0), hasViews);
         });
}

/// Whether numbers stand where the operator takes tensors, as autograd writes
/// conj(2j): nothing that a kernel would be for.
bool isOfNumbers(graph::CallOp call) {
  return llvm::none_of(call.getInputs().getTypes(),
                       llvm::IsaPred<graph::TensorType>) &&
         call.getSchema().value_or("").split('(').second.starts_with("Tensor");
}

/// The calls that might become kernels.
SmallVector<graph::CallOp> callsOf(func::FuncOp function) {
  SmallVector<graph::CallOp> calls;
  function.walk([&](graph::CallOp call) {
    if (!isOfNumbers(call))
      calls.push_back(call);
  });
  return calls;
}

class LowerCalls final : public intarsia::impl::LowerCallsBase<LowerCalls> {
public:
  using LowerCallsBase::LowerCallsBase;

  void runOnOperation() override {
    if (devices.empty())
      targets = {"cpu"};
    else
      targets.assign(devices.begin(), devices.end());
    for (const std::string &target : targets)
      if (target != "cpu" && target != "cuda") {
        getOperation().emitError("lower-calls: the option devices has '")
            << target << "'; kernels are made for cpu and cuda";
        return signalPassFailure();
      }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      // Autocast acts on the operators, not on what kernels do instead.
      if (function->hasAttr(autocastAttrName))
        continue;
      for (graph::CallOp call : callsOf(function))
        if (!lower::addRowsOfEmbedding(call))
          lower::takeApart(call);
      if (llvm::is_contained(targets, "cuda"))
        llvm::for_each(callsOf(function), foldEpilogue);
      for (graph::CallOp call : callsOf(function))
        if (!call.getEffectful() && call.isPure() && !call.use_empty() &&
            (emulated || lower::hasFewLongRows(call)) &&
            hasKernelTypes(call, targets))
          lower::splitLongRows(call);
      for (graph::CallOp call : callsOf(function)) {
        if (call.getEffectful())
          continue;
        if (std::string twin = lower::functionalTwin(call); !twin.empty())
          lowerInPlace(call, twin);
        else
          lower(call);
      }
      // From the last, so that the readers are kernels already.
      SmallVector<graph::CallOp> calls = callsOf(function);
      for (graph::CallOp call : llvm::reverse(calls))
        lowerChangingView(call);
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
    const lower::LoweringTable &table = lower::LoweringTable::get();
    lower::Lowering lowering = isComplexCall(call)
                                   ? table.lookupComplex(call.getCallee())
                                   : table.lookup(call.getCallee());
    if (!lowering)
      return {};
    // An update in place writes less than a kernel that makes all anew, unless
    // all is written, or read to see what is (a mask).
    bool isUpdate = call->hasAttr("intarsia.reuse") &&
                    call.getCallee() != "aten::copy" &&
                    call.getCallee() != "aten::index_put";
    if (!call.isPure() || !hasKernelTypes(call, targets) || call->use_empty() ||
        isUpdate || lower::refusedByEager(call) ||
        lower::hasFewLongRows(call)) {
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

  /// A kernel computes what a view shows, instead of its readers' calls, which
  /// would copy it first.
  void lowerChangingView(graph::CallOp call) {
    auto [source, change] = changingView(call);
    bool hasViews = false;
    if (!change || !call.isPure() || !hasKernelTypes(call, targets) ||
        !lower::storageType(
            call.getContext(),
            cast<graph::TensorType>(source.getType()).getDtype()) ||
        !readByKernelsAlone(call->getResult(0), hasViews))
      return;
    auto type = cast<graph::TensorType>(call->getResult(0).getType());
    // Kernels take what they read with any strides; views have those of theirs.
    if (!type.hasContiguousStrides()) {
      if (hasViews)
        return;
      type = graph::TensorType::get(call.getContext(), type.getSizeExprs(),
                                    type.getDtype(), type.getDevice());
    }
    OpBuilder builder(call);
    lower::KernelBuilder kernel(builder, call.getLoc());
    lower::Tensor in = kernel.input(source);
    lower::Tensor result = kernel.pointwise(
        in, in.sizes, type.getDtype(),
        [&](OpBuilder &inside, Location loc, ValueRange values) {
          lower::ScalarContext context{kernel, inside, loc};
          return change({context, values[0], in.dtype}).getValue();
        });
    if (result.sizes != type.getSizeExprs())
      return;
    graph::KernelOp op = kernel.finish(result, type, call.getCallee());
    call->getResult(0).replaceAllUsesWith(op.getOutputs().front());
    call.erase();
    ++numLowered;
  }

  SmallVector<std::string> targets;
};

} // namespace
