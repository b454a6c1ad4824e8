//===- PlanInplace.cpp - Decide which writes happen in place --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `plan-inplace`: the one place where it is decided whether a
// mutating call writes the storage of its base or a copy. Nothing is
// transformed; the plan builder follows the attributes.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"
#include "passes/Plan/Reuse.h"
#include "passes/Plan/Storage.h"
#include "passes/Plan/Views.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace intarsia {
#define GEN_PASS_DEF_PLANINPLACE
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

/// How a reason names an operation.
static std::string describe(Operation *op) {
  if (auto call = dyn_cast<graph::CallOp>(op))
    return call.getCallee().str();
  if (auto kernel = dyn_cast<graph::KernelOp>(op)) {
    ArrayAttr ops = kernel.getOps();
    return ops.empty() ? "a kernel"
                       : "the kernel of " +
                             cast<StringAttr>(ops.getValue().front()).str();
  }
  return op->getName().getStringRef().str();
}

static std::string describeArgument(func::FuncOp function,
                                    BlockArgument argument) {
  auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                    "intarsia.name");
  return name ? name.str() : "#" + std::to_string(argument.getArgNumber());
}

namespace {

/// The decisions of one function.
class Decider {
public:
  Decider(func::FuncOp function, bool reuse, bool own)
      : function(function), storage(function), reuse(reuse), own(own) {}

  void run() {
    findWritebacks();
    for (Operation &op : function.getBody().front()) {
      if (auto call = dyn_cast<graph::CallOp>(op)) {
        if (!call.getMutates().empty())
          decide(call);
        else
          decideReuse(call);
      } else if (auto kernel = dyn_cast<graph::KernelOp>(op)) {
        decideInto(kernel);
        decideOver(kernel);
      }
      storage.visit(&op);
    }
    decideResults();
  }

  unsigned inplaceCount = 0, cloneCount = 0, reuseCount = 0;

private:
  /// An argument may be written early only if the program writes it at all.
  void findWritebacks() {
    for (unsigned i = 0, e = function.getNumResults(); i != e; ++i)
      if (BlockArgument argument = mutatedArgument(function, i))
        writtenBack.insert(argument);
  }

  void decide(graph::CallOp call) {
    Builder builder(call.getContext());
    call->removeAttr(writebackAttrName);
    Value source = call.operand("src");
    if (BlockArgument argument = overwrittenArgument(call);
        argument && source) {
      bool isDone = storage.isCurrentValue(source, argument);
      if (isDone || (source.getType() == argument.getType() &&
                     !call.getAliasing() && writtenBack.contains(argument) &&
                     storage.laterReader(call, argument))) {
        call->setAttr(writebackAttrName,
                      builder.getStringAttr(isDone ? "inplace" : "later"));
        call->setAttr(inplaceAttrName, builder.getStrArrayAttr({"inplace"}));
        ++inplaceCount;
        return;
      }
    }
    SmallVector<std::string> reasons;
    for (int64_t operand : call.getMutates())
      reasons.push_back(whyClone(call, call.getInputs()[operand]));
    // Two bases in one storage are written together or not at all: a copy of
    // one of them would separate what the operator was given as one.
    for (auto [i, a] : llvm::enumerate(call.getMutates()))
      for (auto [j, b] : llvm::enumerate(call.getMutates()))
        if (i != j && reasons[i].empty() && !reasons[j].empty() &&
            storage.mayShare(call.getInputs()[a], call.getInputs()[b]))
          reasons[i] = reasons[j];

    SmallVector<Attribute> decisions;
    for (const std::string &reason : reasons) {
      decisions.push_back(builder.getStringAttr(
          reason.empty() ? "inplace" : "clone: " + reason));
      ++(reason.empty() ? inplaceCount : cloneCount);
    }
    call->setAttr(inplaceAttrName, builder.getArrayAttr(decisions));
  }

  /// Empty: the base's own storage may be written.
  std::string whyClone(graph::CallOp call, Value base) {
    if (call.getAliasing())
      return "";
    for (Value root : storage.roots(base)) {
      if (auto argument = dyn_cast<BlockArgument>(root)) {
        if (!writtenBack.contains(argument))
          return "argument " + describeArgument(function, argument) +
                 " belongs to the caller";
      } else if (root.getDefiningOp<graph::WeightOp>()) {
        return "the storage is a constant's";
      }
    }
    if (Operation *reader = storage.laterReader(call, base))
      return isa<func::ReturnOp>(reader)
                 ? "the old value is returned"
                 : "the old value is read by " + describe(reader);
    return "";
  }

  /// Whether a kernel or an operator of PyTorch's made the tensor, and nothing
  /// else has it. What a custom operator returned, it may know again.
  bool isOwn(Value value) {
    if (storage.roots(value) != Storage::Roots{value})
      return false;
    auto call = value.getDefiningOp<graph::CallOp>();
    if (!call)
      return value.getDefiningOp<graph::KernelOp>() != nullptr;
    return call.getCallee().starts_with("aten::") && !call.getEffectful() &&
           !call.getAliasing();
  }

  /// An update of what is written back anyway is done where it lies, and so is,
  /// in the end, one of what the program made itself.
  void decideReuse(graph::CallOp call) {
    call->removeAttr(reuseAttrName);
    if (!reuse || !updateOf(call))
      return;
    Value self = call.operand("self");
    const Storage::Roots &roots = storage.roots(self);
    bool isWrittenBack = !roots.empty() && llvm::all_of(roots, [&](Value root) {
      return writtenBack.contains(root);
    });
    bool overlaps = llvm::any_of(call.getArgNames(), [&](Attribute attribute) {
      StringRef name = cast<StringAttr>(attribute).getValue();
      return name != "self" && // t.scatter(0, i, t) reads t a second time
             llvm::any_of(call.operandList(name), [&](Value operand) {
               return operand && storage.mayShare(operand, self);
             });
    });
    bool mayReuse = (isWrittenBack && !leaves(call.getOutputs().front())) ||
                    (own && isOwn(self));
    if (!mayReuse || overlaps || storage.laterReader(call, self))
      return;
    call->setAttr(reuseAttrName, StringAttr::get(call.getContext(), "inplace"));
    ++reuseCount;
  }

  /// A kernel that makes the new value of an argument writes it there.
  void decideInto(graph::KernelOp kernel) {
    kernel->removeAttr(intoAttrName);
    kernel->removeAttr(apartAttrName);
    if (!reuse)
      return;
    SmallVector<int64_t> into(kernel->getNumResults(), -1), apart;
    for (OpResult result : kernel->getResults()) {
      BlockArgument argument = destinationOf(result);
      if (!argument || argument.getType() != result.getType() ||
          llvm::is_contained(into, argument.getArgNumber()) || leaves(result) ||
          storage.laterReader(kernel, argument))
        continue;
      std::optional<SmallVector<int64_t>> pairs =
          mayWrite(kernel, result, argument, into);
      if (!pairs)
        continue;
      llvm::append_range(apart, *pairs);
      into[result.getResultNumber()] = argument.getArgNumber();
      ++reuseCount;
    }
    if (llvm::all_of(into, [](int64_t number) { return number < 0; }))
      return;
    kernel->setAttr(intoAttrName,
                    DenseI64ArrayAttr::get(kernel.getContext(), into));
    if (!apart.empty())
      kernel->setAttr(apartAttrName,
                      DenseI64ArrayAttr::get(kernel.getContext(), apart));
  }

  /// What `value` shows through strided views, or itself.
  static Value viewed(Value value) {
    while (auto call = value.getDefiningOp<graph::CallOp>()) {
      std::optional<StridedView> view = stridedView(call);
      if (!view)
        break;
      value = view->source;
    }
    return value;
  }

  /// A result takes over the tensor of an operator of PyTorch's that the kernel
  /// is the last to read, be it through a view.
  void decideOver(graph::KernelOp kernel) {
    kernel->removeAttr(overAttrName);
    SmallVector<int64_t> over(kernel->getNumResults(), -1);
    if (!reuse || kernel->hasAttr(intoAttrName))
      return;
    for (auto [index, input] : llvm::enumerate(kernel.getInputs())) {
      Value made = viewed(input);
      if (!made.getDefiningOp<graph::CallOp>() || !isOwn(made) ||
          storage.roots(input) != Storage::Roots{made} ||
          storage.laterReader(kernel, input) || !hasOneLoop(kernel, input) ||
          !isReadInPlace(kernel.getInputArguments()[index]))
        continue;
      if (llvm::any_of(llvm::enumerate(kernel.getInputs()), [&](auto other) {
            return other.index() != index &&
                   storage.mayShare(other.value(), input);
          }))
        continue;
      for (OpResult result : kernel->getResults())
        if (int64_t &taken = over[result.getResultNumber()];
            taken < 0 && result.getType() == input.getType()) {
          taken = static_cast<int64_t>(index);
          ++reuseCount;
          break;
        }
    }
    if (llvm::any_of(over, [](int64_t input) { return input >= 0; }))
      kernel->setAttr(overAttrName,
                      DenseI64ArrayAttr::get(kernel.getContext(), over));
  }

  /// The argument that gets `value` at the end; null when there is none.
  BlockArgument destinationOf(Value value) {
    for (OpOperand &use : value.getUses()) {
      if (isa<func::ReturnOp>(use.getOwner()))
        if (BlockArgument argument =
                mutatedArgument(function, use.getOperandNumber()))
          return argument;
      auto call = dyn_cast<graph::CallOp>(use.getOwner());
      if (!call || call.operand("src") != value)
        continue;
      BlockArgument argument = overwrittenArgument(call);
      if (argument && writtenBack.contains(argument))
        return argument;
    }
    return {};
  }

  /// The kernel's loads of the argument must come before its stores: element by
  /// element, at the same place, where one loop stores all results. Two of the
  /// user's arguments may share memory, which is seen when the kernel is
  /// launched: returned are the pairs of buffers that must not overlap then.
  std::optional<SmallVector<int64_t>> mayWrite(graph::KernelOp kernel,
                                               OpResult result,
                                               BlockArgument argument,
                                               ArrayRef<int64_t> into) {
    bool oneLoop = hasOneLoop(kernel, argument);
    int64_t inputCount = kernel.getInputs().size();
    int64_t written = inputCount + result.getResultNumber();
    SmallVector<int64_t> apart;
    for (auto [index, input] : llvm::enumerate(kernel.getInputs())) {
      bool same = storage.mayShare(input, argument);
      bool maybe = isUsers(argument) &&
                   llvm::any_of(storage.roots(input), [&](Value root) {
                     auto other = dyn_cast<BlockArgument>(root);
                     return other && isUsers(other);
                   });
      bool inPlace = oneLoop && input.getType() == argument.getType() &&
                     isReadInPlace(kernel.getInputArguments()[index]);
      if (same && !(inPlace && storage.isCurrentValue(input, argument)))
        return std::nullopt;
      if (!same && maybe)
        apart.append({written, int64_t(index), inPlace});
    }
    for (auto [other, number] : llvm::enumerate(into))
      if (number >= 0 && isUsers(argument) &&
          isUsers(function.getArgument(number)))
        apart.append({written, inputCount + int64_t(other), false});
    return apart;
  }

  bool isUsers(BlockArgument argument) {
    auto kind = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                      "intarsia.kind");
    return !kind || kind.getValue() == "user";
  }

  /// Whether one loop, over the tensor's elements, stores all results of the
  /// kernel, those of an element after it was read.
  static bool hasOneLoop(graph::KernelOp kernel, Value tensor) {
    auto sizesOf = [](Value value) {
      return cast<graph::TensorType>(value.getType()).getSizes();
    };
    return llvm::all_of(kernel->getResults(), [&](Value result) {
      return sizesOf(result) == sizesOf(tensor);
    });
  }

  /// Whether an element of the result depends on the same element alone.
  static bool isReadInPlace(Value tensor) {
    return llvm::all_of(tensor.getUses(), [](OpOperand &use) {
      if (isa<graph::YieldOp>(use.getOwner()))
        return true;
      auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
      return generic && generic.isDpsInput(&use) &&
             generic.getNumParallelLoops() == generic.getNumLoops() &&
             generic.getMatchingIndexingMap(&use).isIdentity() &&
             llvm::all_of(
                 generic.getDpsInitsMutable(),
                 [&](OpOperand &init) {
                   return generic.getMatchingIndexingMap(&init).isIdentity();
                 }) &&
             llvm::all_of(generic->getResults(),
                          [](Value result) { return isReadInPlace(result); });
    });
  }

  /// Whether the caller gets the value, or one that may share its storage,
  /// otherwise than as the new value of an argument. It would hold a tensor
  /// that the next call changes, where the program may have made one of its
  /// own.
  bool leaves(Value value) {
    return llvm::any_of(value.getUses(), [&](OpOperand &use) {
      Operation *user = use.getOwner();
      if (isa<func::ReturnOp>(user))
        return !mutatedArgument(function, use.getOperandNumber());
      auto call = dyn_cast<graph::CallOp>(user);
      if (!call)
        return false;
      if (call.getCallee().starts_with("higher_order::"))
        return llvm::any_of(call->getResults(),
                            [&](Value result) { return leaves(result); });
      for (auto [operand, updated] :
           llvm::zip(call.getMutates(), call.getUpdated()))
        if (call.getInputs()[operand] == value && leaves(updated))
          return true;
      if (updateOf(call) && call.operand("self") == value)
        return leaves(call.getOutputs().front());
      std::optional<ArrayRef<int64_t>> views = call.getViews();
      for (auto [index, output] : llvm::enumerate(call.getOutputs()))
        if (views && index < views->size() && (*views)[index] >= 0 &&
            call.getInputs()[(*views)[index]] == value && leaves(output))
          return true;
      return false;
    });
  }

  void decideResults() {
    auto results =
        cast<func::ReturnOp>(function.getBody().front().getTerminator());
    for (auto [i, value] : llvm::enumerate(results.getOperands())) {
      BlockArgument argument = mutatedArgument(function, i);
      if (!argument)
        continue;
      bool inplace = storage.isCurrentValue(value, argument);
      function.setResultAttr(
          i, writebackAttrName,
          StringAttr::get(function.getContext(), inplace ? "inplace" : "copy"));
    }
  }

  func::FuncOp function;
  Storage storage;
  bool reuse, own;
  llvm::DenseSet<Value> writtenBack;
};

struct PlanInplace final : intarsia::impl::PlanInplaceBase<PlanInplace> {
  using PlanInplaceBase::PlanInplaceBase;

  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      if (!function.getBody().hasOneBlock()) {
        function.emitError("expected a function of one block");
        return signalPassFailure();
      }
      Decider decider(function, reuse, own);
      decider.run();
      numInplace += decider.inplaceCount;
      numClones += decider.cloneCount;
      numReuses += decider.reuseCount;
    }
  }
};

} // namespace
