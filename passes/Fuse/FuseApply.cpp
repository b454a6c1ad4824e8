//===- FuseApply.cpp - Make each group of kernels one kernel ----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `fuse-apply`: the kernels that `fuse-decide` put into one group
// become one kernel; views between them become index maps inside it. Operations
// are reordered as little as that needs.
//
//===----------------------------------------------------------------------===//

#include "passes/Fuse/FuseGraph.h"
#include "passes/Lower/Lowering.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

#include <queue>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::fuse;

namespace intarsia {
#define GEN_PASS_DEF_FUSEAPPLY
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

using Groups = llvm::MapVector<int64_t, SmallVector<graph::KernelOp>>;

std::optional<int64_t> groupNumber(Operation *op) {
  auto attr = op->getAttrOfType<IntegerAttr>(groupAttrName);
  return attr ? std::optional(attr.getInt()) : std::nullopt;
}

/// Sorts the block so that the members of each group are neighbours.
LogicalResult gather(Block &block, const Groups &groups) {
  OrderGraph order(block);
  int64_t count = order.operations().size();
  // A group is represented by its last member.
  SmallVector<int64_t> leader(count);
  SmallVector<SmallVector<int64_t>> members(count);
  for (int64_t node = 0; node < count; ++node)
    leader[node] = node;
  for (const auto &[number, kernels] : groups) {
    int64_t last = 0;
    for (graph::KernelOp kernelOp : kernels)
      last = std::max(last, order.indexOf(kernelOp));
    for (graph::KernelOp kernelOp : kernels) {
      leader[order.indexOf(kernelOp)] = last;
      members[last].push_back(order.indexOf(kernelOp));
    }
  }
  // Views that lead from a group to itself will be inside it.
  auto isInlined = [&](int64_t view, int64_t user) {
    auto call = dyn_cast<graph::CallOp>(order.operations()[view]);
    if (!call || !isa<graph::KernelOp>(order.operations()[user]))
      return false;
    graph::KernelOp producer = producerOf(call->getResult(0));
    return producer && leader[order.indexOf(producer)] == leader[user] &&
           members[leader[user]].size() > 1;
  };
  SmallVector<int64_t> waiting(count, 0);
  SmallVector<SmallVector<int64_t>> after(count);
  for (int64_t node = 0; node < count; ++node)
    for (int64_t next : order.successors(node)) {
      if (leader[node] == leader[next] || isInlined(node, next))
        continue;
      after[leader[node]].push_back(leader[next]);
      ++waiting[leader[next]];
    }
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> ready;
  for (int64_t node = 0; node < count; ++node)
    if (leader[node] == node && waiting[node] == 0)
      ready.push(node);
  SmallVector<Operation *> sorted;
  while (!ready.empty()) {
    int64_t node = ready.top();
    ready.pop();
    if (members[node].empty())
      sorted.push_back(order.operations()[node]);
    for (int64_t member : members[node])
      sorted.push_back(order.operations()[member]);
    for (int64_t next : after[node])
      if (--waiting[next] == 0)
        ready.push(next);
  }
  if (static_cast<int64_t>(sorted.size()) != count)
    return block.getParentOp()->emitError(
        "the fusion groups cannot be ordered: a group depends on itself");
  for (Operation *op : sorted)
    op->moveBefore(&block, block.end());
  return success();
}

/// Operators that exist in order to round.
bool isExplicitCast(Attribute op) {
  StringRef name = cast<StringAttr>(op).getValue();
  return name == "aten::_to_copy" || name == "prims::convert_element_type" ||
         name.starts_with("aten::to.") || name == "aten::type_as";
}

/// Whether two kernels compute the same from the same.
bool isCopyOf(graph::KernelOp a, graph::KernelOp b) {
  return a.getInputs() == b.getInputs() && a.getSymbols() == b.getSymbols() &&
         a.getResultTypes() == b.getResultTypes() && a.getOps() == b.getOps() &&
         OperationEquivalence::isRegionEquivalentTo(
             &a.getBody(), &b.getBody(), OperationEquivalence::IgnoreLocations);
}

/// The kernel that computes what `members`, in order, compute.
LogicalResult merge(ArrayRef<graph::KernelOp> members) {
  auto isMember = [&](Operation *op) {
    return llvm::is_contained(members, dyn_cast<graph::KernelOp>(op));
  };
  graph::KernelOp last = members.back();
  SmallVector<Location> locations;
  for (graph::KernelOp member : members)
    locations.push_back(member.getLoc());
  OpBuilder builder(last);
  lower::KernelBuilder kernel(builder,
                              FusedLoc::get(builder.getContext(), locations));
  DenseMap<Value, lower::Tensor> inside;

  // A graph value as a tensor of the new body.
  std::function<FailureOr<lower::Tensor>(Value)> resolve =
      [&](Value value) -> FailureOr<lower::Tensor> {
    if (auto known = inside.find(value); known != inside.end())
      return known->second;
    graph::KernelOp producer = producerOf(value);
    if (!producer || !isMember(producer))
      return kernel.input(value);
    auto call = value.getDefiningOp<graph::CallOp>();
    FailureOr<lower::Tensor> source = resolve(viewSource(call));
    if (failed(source))
      return failure();
    FailureOr<lower::Tensor> view =
        lower::lookupView(call.getCallee())(call, kernel, *source);
    if (succeeded(view))
      inside[value] = *view;
    return view;
  };

  SmallVector<Attribute> names;
  SmallVector<std::pair<Value, lower::Tensor>> results;
  for (size_t number = 0; number < members.size(); ++number) {
    graph::KernelOp member = members[number];
    // `fuse-repeat` made one for each of two readers, which are both here.
    const auto *copied =
        llvm::find_if(members.take_front(number), [&](graph::KernelOp other) {
          return isCopyOf(other, member);
        });
    if (copied != members.begin() + number) {
      graph::KernelOp original = *copied;
      for (auto [result, known] :
           llvm::zip_equal(member.getResults(), original.getResults())) {
        inside[result] = inside.lookup(known);
        if (neededOutside(result, isMember))
          results.emplace_back(result, inside[result]);
      }
      continue;
    }
    llvm::append_range(names, member.getOps());
    Block &body = member.getBody().front();
    IRMapping mapping;
    unsigned inputCount = member.getInputs().size();
    for (BlockArgument argument : body.getArguments()) {
      unsigned number = argument.getArgNumber();
      if (number >= inputCount) {
        mapping.map(argument,
                    kernel.size(cast<graph::ExprAttr>(
                                    member.getSymbols()[number - inputCount])
                                    .getExpr()));
        continue;
      }
      FailureOr<lower::Tensor> tensor = resolve(member.getInputs()[number]);
      if (failed(tensor))
        return member.emitError(
            "a view between fused kernels has no index map");
      mapping.map(argument, tensor->value);
    }
    bool isCast = llvm::any_of(member.getOps(), isExplicitCast);
    for (Operation &op : body.without_terminator()) {
      Operation *clone = kernel.builder().clone(op, mapping);
      if (isCast && isa<linalg::GenericOp>(clone))
        clone->setAttr(explicitCastAttrName, builder.getUnitAttr());
    }
    for (auto [result, yielded] : llvm::zip_equal(
             member.getResults(), body.getTerminator()->getOperands())) {
      auto type = cast<graph::TensorType>(result.getType());
      lower::Tensor tensor;
      tensor.value = mapping.lookupOrDefault(yielded);
      tensor.sizes = type.getSizeExprs();
      tensor.dtype = type.getDtype();
      inside[result] = tensor;
      if (neededOutside(result, isMember))
        results.emplace_back(result, tensor);
    }
  }

  assert(!results.empty() && "what nobody needs was erased before");
  SmallVector<lower::Tensor> tensors;
  SmallVector<graph::TensorType> types;
  for (auto &[result, tensor] : results) {
    tensors.push_back(tensor);
    types.push_back(cast<graph::TensorType>(result.getType()));
  }
  graph::KernelOp fused = kernel.finish(tensors, types, "");
  fused.setOpsAttr(builder.getArrayAttr(names));
  fused.setDecisionsAttr(last.getDecisionsAttr());
  for (auto [old, made] : llvm::zip_equal(results, fused.getResults()))
    old.first.replaceAllUsesWith(made);

  // Views that are inside now have no users left.
  for (graph::KernelOp member : llvm::reverse(members)) {
    SmallVector<Operation *> views;
    std::function<void(Value)> collect = [&](Value value) {
      for (Operation *user : value.getUsers())
        if (auto call = dyn_cast<graph::CallOp>(user)) {
          collect(call->getResult(0));
          views.push_back(call);
        }
    };
    for (Value result : member.getResults())
      collect(result);
    for (Operation *view : views)
      if (view->use_empty())
        view->erase();
    member.erase();
  }
  return success();
}

class FuseApply final : public ::intarsia::impl::FuseApplyBase<FuseApply> {
public:
  using FuseApplyBase::FuseApplyBase;

  void runOnOperation() override {
    WalkResult walked = getOperation().walk([&](func::FuncOp function) {
      if (function.isExternal())
        return WalkResult::advance();
      Block &block = function.getBody().front();
      Groups groups;
      for (auto kernelOp : block.getOps<graph::KernelOp>())
        if (std::optional<int64_t> number = groupNumber(kernelOp))
          groups[*number].push_back(kernelOp);
      if (groups.empty())
        return WalkResult::advance();
      if (failed(gather(block, groups)))
        return WalkResult::interrupt();
      // In the new order.
      groups.clear();
      for (auto kernelOp : block.getOps<graph::KernelOp>())
        if (std::optional<int64_t> number = groupNumber(kernelOp))
          groups[*number].push_back(kernelOp);
      for (auto &[number, members] : groups) {
        if (failed(merge(members)))
          return WalkResult::interrupt();
        ++numFused;
      }
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
