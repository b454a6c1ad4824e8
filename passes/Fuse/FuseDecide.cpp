//===- FuseDecide.cpp - Decide which kernels become one ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `fuse-decide`: puts kernels into groups, each of which
// `fuse-apply` makes one kernel. The rule is `Decider::worthFusing`; whether a
// group can be one operation in the program's order at all is
// `Decider::canBeOne`.
//
//===----------------------------------------------------------------------===//

#include "passes/Fuse/FuseGraph.h"
#include "passes/Kernel/Body.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <set>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::fuse;
using namespace intarsia::kernel;

namespace intarsia {
#define GEN_PASS_DEF_FUSEDECIDE
#include "passes/Passes.h.inc"
} // namespace intarsia

namespace {

/// Where a kernel reads what another computes: the position in the result of
/// that one, whatever views are between them, over the variables d0, d1, ... of
/// the reading kernel's space; nullopt when it is computed from data.
struct Access {
  Value result;
  std::optional<SymExpr> position;
};

/// What fusion needs to know of one kernel.
struct KernelFacts {
  Space space;
  bool reducesRows = false; // along what its space says is a row
  bool reducesOtherwise = false;
  bool runs = false; // some of it, keeping the value after each element
  bool dear = false;
  int64_t opCount = 0;
  SmallVector<Access> accesses;

  SmallVector<SymExpr> position() const {
    SmallVector<SymExpr> position;
    for (int64_t dim = 0; dim < space.rank(); ++dim)
      position.push_back(SymExpr::symbol("d" + std::to_string(dim)));
    return position;
  }
};

/// Finds the accesses of a kernel, from its results backwards.
class AccessWalk {
public:
  AccessWalk(graph::KernelOp kernelOp, KernelFacts &facts)
      : kernelOp(kernelOp), facts(facts) {
    SmallVector<SymExpr> position = facts.position();
    for (auto [at, size] : llvm::zip_equal(position, facts.space.sizes))
      ranges[at.name()] = size;
    for (auto [value, result] : llvm::zip_equal(
             kernelOp.getBody().front().getTerminator()->getOperands(),
             kernelOp.getResults())) {
      SmallVector<SymExpr> sizes =
          cast<graph::TensorType>(result.getType()).getSizeExprs();
      SymExpr at = productOf(sizes) == facts.space.size()
                       ? linearize(position, facts.space.sizes)
                       : facts.space.rowOf(position);
      visit(value, delinearize(at, sizes, ranges));
    }
  }

private:
  void visit(Value tensor, ArrayRef<SymExpr> index) {
    std::string key = std::to_string(
        reinterpret_cast<uintptr_t>(tensor.getAsOpaquePointer()));
    for (const SymExpr &expr : index)
      key += "|" + expr.str();
    if (!seen.insert(key).second)
      return;
    if (auto argument = dyn_cast<BlockArgument>(tensor)) {
      visitInput(kernelOp.getInputs()[argument.getArgNumber()], index);
      return;
    }
    Operation *op = tensor.getDefiningOp();
    if (std::optional<SmallVector<SymExpr>> source =
            sourceIndex(op, index, ranges))
      return visit(op->getOperand(0), *source);
    if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
      SymExpr start;
      for (Value input : concat.getInputs()) {
        SmallVector<SymExpr> shifted(index);
        shifted[concat.getDim()] = index[concat.getDim()] - start;
        start = start + sizesOf(input)[concat.getDim()];
        visit(input, shifted);
      }
      return;
    }
    if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      SmallVector<SymExpr> source(index);
      for (auto [at, low] : llvm::zip_equal(source, pad.getMixedLowPad()))
        at = at - exprOfFold(low);
      return visit(pad.getSource(), source);
    }
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic)
      return;
    SmallVector<SymExpr> position(index);
    if (generic.getNumReductionLoops() > 0 && !runs(generic))
      position = reductionPosition(
          generic, cast<OpResult>(tensor).getResultNumber(), index);
    for (OpOperand *input : generic.getDpsInputOperands())
      if (isa<RankedTensorType>(input->get().getType()))
        visit(input->get(),
              applyMap(generic.getMatchingIndexingMap(input), position));
    generic->walk(
        [&](tensor::ExtractOp extract) { visitAnywhere(extract.getTensor()); });
  }

  void visitInput(Value input, ArrayRef<SymExpr> index) {
    if (!producerOf(input))
      return;
    std::optional<SmallVector<SymExpr>> position(index);
    while (auto view = input.getDefiningOp<graph::CallOp>()) {
      if (position)
        position = viewedPosition(view, *position, ranges);
      input = viewSource(view);
    }
    Access access{input, std::nullopt};
    if (position)
      access.position = linearize(
          *position, cast<graph::TensorType>(input.getType()).getSizeExprs());
    facts.accesses.push_back(access);
  }

  SmallVector<SymExpr> reductionPosition(linalg::GenericOp generic,
                                         unsigned result,
                                         ArrayRef<SymExpr> index) {
    SmallVector<SymExpr> position(generic.getNumLoops());
    AffineMap out =
        generic.getMatchingIndexingMap(generic.getDpsInitOperand(result));
    for (auto [expr, at] : llvm::zip_equal(out.getResults(), index))
      position[cast<AffineDimExpr>(expr).getPosition()] = at;
    OpOperand *input = generic.getDpsInputOperand(0);
    SmallVector<SymExpr> sizes = sizesOf(input->get());
    bool isSpace = ArrayRef(sizes) == ArrayRef(facts.space.sizes) &&
                   static_cast<int64_t>(index.size()) == facts.space.rows;
    for (auto [loop, kind] : llvm::enumerate(generic.getIteratorTypesArray())) {
      if (kind != utils::IteratorType::reduction)
        continue;
      std::string symbol =
          isSpace ? "d" + std::to_string(loop) : "q" + std::to_string(fresh++);
      ranges.try_emplace(symbol, sizes[loop]);
      position[loop] = SymExpr::symbol(symbol);
    }
    return position;
  }

  /// All inputs that `tensor` is computed from may be read anywhere.
  void visitAnywhere(Value tensor) {
    if (auto argument = dyn_cast<BlockArgument>(tensor)) {
      Value input = kernelOp.getInputs()[argument.getArgNumber()];
      if (!producerOf(input))
        return;
      while (auto view = input.getDefiningOp<graph::CallOp>())
        input = viewSource(view);
      facts.accesses.push_back({input, std::nullopt});
      return;
    }
    if (Operation *op = tensor.getDefiningOp())
      for (Value operand : op->getOperands())
        if (isa<RankedTensorType>(operand.getType()))
          visitAnywhere(operand);
  }

  graph::KernelOp kernelOp;
  KernelFacts &facts;
  Ranges ranges;
  llvm::StringSet<> seen;
  int64_t fresh = 0;
};

struct Group {
  SmallVector<int64_t> members; // nodes, sorted
  Space space;
  bool reducesRows = false, reducesOtherwise = false, runs = false;
  int64_t opCount = 0;
};

class Decider {
public:
  Decider(Block &block, int64_t maxOps) : order(block), maxOps(maxOps) {
    for (Operation *op : order.operations())
      if (auto kernelOp = dyn_cast<graph::KernelOp>(op))
        addKernel(kernelOp);
  }

  /// Fails on a kernel without a space.
  LogicalResult run() {
    if (!isValid)
      return failure();
    for (Operation *op : order.operations()) {
      auto kernelOp = dyn_cast<graph::KernelOp>(op);
      if (!kernelOp)
        continue;
      for (Value input : kernelOp.getInputs())
        if (graph::KernelOp producer = producerOf(input);
            producer && producer->getBlock() == kernelOp->getBlock())
          tryFuse(producer, kernelOp);
    }
    return success();
  }

  /// Marks the kernels of each group of more than one.
  int64_t annotate() {
    int64_t number = 0;
    for (auto &[first, group] : groups) {
      if (group.members.size() < 2)
        continue;
      Builder builder(order.operations()[first]->getContext());
      NamedAttrList decisions;
      group.space.set(decisions, builder.getContext());
      for (int64_t member : group.members) {
        auto kernelOp = cast<graph::KernelOp>(order.operations()[member]);
        kernelOp->setAttr(groupAttrName, builder.getI64IntegerAttr(number));
        kernelOp.setDecisionsAttr(
            decisions.getDictionary(builder.getContext()));
      }
      ++number;
    }
    return number;
  }

private:
  void addKernel(graph::KernelOp kernelOp) {
    FailureOr<Space> space = Space::of(kernelOp);
    if (failed(space)) {
      isValid = false;
      return;
    }
    KernelFacts facts;
    facts.space = *space;
    bool isRowKernel = !facts.space.isElementwise();
    for (Operation &op : kernelOp.getBody().front()) {
      if (reduces(&op))
        (isRowKernel ? facts.reducesRows : facts.reducesOtherwise) = true;
      facts.runs |= runs(&op);
      op.walk([&](Operation *inner) { facts.dear |= isDear(inner); });
      ++facts.opCount;
    }
    AccessWalk(kernelOp, facts);
    int64_t node = order.indexOf(kernelOp);
    Group group;
    group.members = {node};
    group.space = facts.space;
    group.reducesRows = facts.reducesRows;
    group.reducesOtherwise = facts.reducesOtherwise;
    group.runs = facts.runs;
    group.opCount = facts.opCount;
    groups[node] = group;
    groupOf[node] = node;
    kernelFacts[node] = std::move(facts);
  }

  graph::KernelOp kernelAt(int64_t node) {
    return cast<graph::KernelOp>(order.operations()[node]);
  }

  void tryFuse(graph::KernelOp producer, graph::KernelOp consumer) {
    int64_t first = groupOf[order.indexOf(producer)];
    int64_t second = groupOf[order.indexOf(consumer)];
    if (first == second)
      return;
    Group &a = groups[first], &b = groups[second];
    std::optional<Group> merged = worthFusing(a, b);
    if (!merged || !canBeOne(*merged))
      return;
    int64_t name = std::min(first, second);
    for (int64_t member : merged->members)
      groupOf[member] = name;
    groups.erase(std::max(first, second));
    groups[name] = std::move(*merged);
  }

  /// Calls `visit` with every access of a kernel of `consumers` to a result of
  /// a kernel of `producers`.
  void forEachAccess(
      const Group &producers, const Group &consumers,
      llvm::function_ref<void(const KernelFacts &, const Access &)> visit) {
    for (int64_t node : consumers.members)
      for (const Access &access : kernelFacts[node].accesses) {
        int64_t producer = order.indexOf(access.result.getDefiningOp());
        if (llvm::is_contained(producers.members, producer))
          visit(kernelFacts[node], access);
      }
  }

  /// The rule. Fusing two kernels saves writing and reading what is between
  /// them; it must not make anybody compute a value more often than before,
  /// except where that costs less than memory traffic does.
  std::optional<Group> worthFusing(const Group &a, const Group &b) {
    if (a.opCount + b.opCount > maxOps)
      return std::nullopt;

    // Values read at positions that data decides would be computed again for
    // every read.
    bool readAnywhere = false, aligned = true;
    std::map<void *, std::set<std::string>> positions;
    forEachAccess(a, b, [&](const KernelFacts &facts, const Access &access) {
      if (!access.position) {
        readAnywhere = true;
        return;
      }
      positions[access.result.getAsOpaquePointer()].insert(
          access.position->str());
      std::optional<SymExpr> row = rowOf(a.space, facts);
      aligned &=
          *access.position == linearize(facts.position(), facts.space.sizes) ||
          (row && *access.position == *row);
      aligned &= row || !a.reducesRows;
    });
    if (readAnywhere)
      return std::nullopt;

    Group merged;
    llvm::append_range(merged.members, a.members);
    llvm::append_range(merged.members, b.members);
    llvm::sort(merged.members);
    merged.opCount = a.opCount + b.opCount;
    merged.reducesRows = a.reducesRows || b.reducesRows;
    merged.reducesOtherwise = a.reducesOtherwise || b.reducesOtherwise;
    merged.runs = a.runs || b.runs;
    merged.space = a.reducesRows && !b.reducesRows ? a.space : b.space;
    bool sameSize = a.space.size() == b.space.size();

    // A running value has readers at its own position only, since it is one
    // that a loop carries. If that loop is the innermost, there are no lanes,
    // and what is dear is better off elsewhere.
    if (merged.runs) {
      bool hasLanes = !merged.space.isTrailing();
      bool readsInPlace = aligned && !b.reducesRows;
      for (const Group *group : {&a, &b})
        for (int64_t member : group->members) {
          const KernelFacts &facts = kernelFacts[member];
          readsInPlace &= facts.space.sizes == merged.space.sizes;
          if (facts.dear && !facts.runs && !hasLanes)
            return std::nullopt;
        }
      if (a.runs && !readsInPlace)
        return std::nullopt;
    }

    // A reduction's result is computed once a row, so its readers must be of
    // that row; that of another reduction once an element.
    if (a.reducesRows || a.reducesOtherwise) {
      if (!aligned || b.reducesOtherwise)
        return std::nullopt;
      bool fits = false;
      if (a.reducesRows && b.reducesRows)
        fits = a.space.hasRowsOf(b.space);
      else if (a.reducesRows)
        fits = sameSize || b.space.size() == a.space.rowCount();
      else
        fits = sameSize && !b.reducesRows;
      return fits ? std::optional(merged) : std::nullopt;
    }

    // A producer that computes element by element.
    bool isRead = false; // by somebody else
    bool dear = false;
    auto isMember = [&](Operation *op) {
      return llvm::is_contained(merged.members, order.indexOf(op)) &&
             isa<graph::KernelOp>(op);
    };
    for (int64_t member : a.members) {
      dear |= kernelFacts[member].dear;
      for (Value result : kernelAt(member).getResults())
        isRead |= neededOutside(result, isMember);
    }
    // What is dear is computed at one position only.
    bool once = llvm::all_of(
        positions, [](const auto &entry) { return entry.second.size() == 1; });
    if (dear && !once)
      return std::nullopt;
    // What is stored anyway is read back more cheaply than it is computed again
    // in another order.
    if (isRead && !aligned)
      return std::nullopt;
    if (!b.reducesOtherwise &&
        (sameSize || (b.reducesRows && a.space.size() == b.space.rowCount())))
      return merged;
    // Of another size: computed where it is needed, if nobody else needs it
    // and it is either cheap or not computed more often.
    if (isRead || (dear && !b.reducesOtherwise))
      return std::nullopt;
    return merged;
  }

  /// The row of `space` that a kernel's position lies in, if it can be told.
  static std::optional<SymExpr> rowOf(const Space &space,
                                      const KernelFacts &facts) {
    SmallVector<SymExpr> position = facts.position();
    if (facts.space.sizes == space.sizes)
      return space.rowOf(position);
    SymExpr full = linearize(position, facts.space.sizes);
    if (facts.space.isElementwise() && facts.space.size() == space.rowCount())
      return full;
    if (space.isElementwise() && space.size() == facts.space.rowCount())
      return facts.space.rowOf(position);
    if (!space.isTrailing() || !facts.space.isTrailing())
      return std::nullopt;
    if (!facts.space.isElementwise())
      return facts.space.rowOf(position);
    Ranges ranges;
    for (auto [at, size] : llvm::zip_equal(position, facts.space.sizes))
      ranges[at.name()] = size;
    SymExpr inner(1);
    for (int64_t dim : space.innerDims())
      inner = inner * space.sizes[dim];
    return floorDiv(full, inner, ranges);
  }

  /// True if no path leaves the group and comes back: then its members can be
  /// one operation.
  bool canBeOne(const Group &group) {
    auto isMember = [&](int64_t node) {
      return llvm::is_contained(group.members, node);
    };
    int64_t last = group.members.back();
    DenseSet<std::pair<int64_t, int64_t>> visited;
    SmallVector<std::pair<int64_t, bool>> work; // node, reached by views only
    auto push = [&](int64_t node, bool views) {
      if (visited.insert({node, views}).second)
        work.push_back({node, views});
    };
    auto expand = [&](int64_t node, bool views) -> bool {
      for (int64_t next : order.successors(node)) {
        if (isMember(next)) {
          if (!views)
            return false;
          continue;
        }
        auto call = dyn_cast<graph::CallOp>(order.operations()[next]);
        push(next, views && call && viewSource(call));
      }
      return true;
    };
    for (int64_t member : group.members)
      if (!expand(member, /*views=*/true))
        return false;
    while (!work.empty()) {
      auto [node, views] = work.pop_back_val();
      // Another group is one operation too: what any member leads to.
      if (auto other = groupOf.find(node); other != groupOf.end()) {
        const Group &through = groups[other->second];
        if (through.members.front() > last)
          continue;
        for (int64_t member : through.members)
          if (!expand(member, false))
            return false;
        continue;
      }
      if (node > last)
        continue;
      if (!expand(node, views))
        return false;
    }
    return true;
  }

  OrderGraph order;
  bool isValid = true;
  int64_t maxOps;
  std::map<int64_t, Group> groups; // by their first member
  DenseMap<int64_t, int64_t> groupOf;
  DenseMap<int64_t, KernelFacts> kernelFacts;
};

class FuseDecide final : public ::intarsia::impl::FuseDecideBase<FuseDecide> {
public:
  using FuseDecideBase::FuseDecideBase;
  void runOnOperation() override {
    WalkResult walked = getOperation().walk([&](func::FuncOp function) {
      if (function.isExternal())
        return WalkResult::advance();
      Decider decider(function.getBody().front(), maxOps);
      if (failed(decider.run()))
        return WalkResult::interrupt();
      numGroups += decider.annotate();
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
