//===- Memory.cpp - Arena and lifetimes of a plan's function --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Two passes over the finished steps. Buffers that only kernels see share one
// block of memory, the arena: a buffer takes over the place of a dead one of
// the same class. Everything else is a reference-counted tensor that is
// dropped after its last use.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/FunctionPlanner.h"

#include <limits>

using namespace mlir;

namespace intarsia {

/// Kernels load and store whole vectors; this is a cache line and the widest.
static constexpr int64_t arenaAlignment = 64;

/// A permutation of a contiguous tensor: it fills its memory without gaps.
static bool isDense(graph::TensorType type) {
  SmallVector<SymExpr> sizes = type.getSizeExprs(),
                       strides = type.getStrideExprs();
  SmallVector<int64_t> rest;
  for (int64_t dim = 0, e = sizes.size(); dim != e; ++dim)
    if (!sizes[dim].isInteger(1))
      rest.push_back(dim);
  SymExpr expected(1);
  while (!rest.empty()) {
    auto next = llvm::find_if(
        rest, [&](int64_t dim) { return strides[dim] == expected; });
    if (next == rest.end())
      return false;
    expected = expected * sizes[*next];
    rest.erase(next);
  }
  return true;
}

bool FunctionPlanner::belongsInArena(Value value) {
  auto type = cast<graph::TensorType>(value.getType());
  return planner.options.arena && type.getDevice() == "cpu" && isDense(type) &&
         llvm::all_of(value.getUsers(), [](Operation *user) {
           return isa<graph::KernelOp>(user);
         });
}

static SymExpr alignedBytes(graph::TensorType type) {
  SymExpr bytes = type.getNumElements() * SymExpr(dtypeSize(type.getDtype()));
  if (std::optional<int64_t> known = bytes.asInteger())
    return (*known + arenaAlignment - 1) / arenaAlignment * arenaAlignment;
  return SymExpr::make(
             SymExpr::Kind::FloorDiv,
             {bytes + SymExpr(arenaAlignment - 1), SymExpr(arenaAlignment)}) *
         SymExpr(arenaAlignment);
}

static void eachSlot(const plan::Arg &arg,
                     llvm::function_ref<void(plan::Slot)> visit) {
  if (arg.slot >= 0)
    visit(arg.slot);
  for (const plan::Arg &member : arg.list)
    eachSlot(member, visit);
}

static void eachSlot(const plan::Result &result,
                     llvm::function_ref<void(plan::Slot)> visit) {
  if (result.slot >= 0)
    visit(result.slot);
  for (const plan::Result &member : result.list)
    eachSlot(member, visit);
}

static void eachSlot(const plan::Step &step,
                     llvm::function_ref<void(plan::Slot)> visit) {
  for (const plan::Arg &arg : step.args)
    eachSlot(arg, visit);
  for (const plan::Result &result : step.results)
    eachSlot(result, visit);
  for (plan::Slot slot : step.mutates)
    visit(slot);
  for (plan::Slot slot : step.buffers)
    visit(slot);
  for (plan::Slot slot : {step.slot, step.source})
    if (slot >= 0)
      visit(slot);
}

void FunctionPlanner::planArena() {
  if (arenaSlots.empty())
    return;
  std::vector<size_t> lastUse(out.slotCount, 0);
  for (auto [index, step] : llvm::enumerate(out.steps))
    eachSlot(step, [&](plan::Slot slot) { lastUse[slot] = index; });

  // Places in the arena. Those of constant size come first, so that their
  // offsets are constants.
  struct Place {
    SymExpr size;
    size_t freeAt = 0; // the step after which it is free
    SymExpr offset;
  };
  std::vector<Place> places;
  std::map<plan::Slot, size_t> placeOf;
  for (auto [index, step] : llvm::enumerate(out.steps)) {
    if (step.kind != Kind::Alloc || !arenaSlots.contains(step.slot))
      continue;
    SymExpr size = alignedBytes(arenaSlots.lookup(step.slot));
    std::optional<int64_t> bytes = size.asInteger();
    Place *best = nullptr;
    for (Place &place : places) {
      if (place.freeAt >= index)
        continue;
      if (place.size == size) {
        best = &place;
        break;
      }
      // A constant size may also take the smallest larger place.
      std::optional<int64_t> capacity = place.size.asInteger();
      if (bytes && capacity && *capacity >= *bytes &&
          (!best || *capacity < *best->size.asInteger()))
        best = &place;
    }
    if (!best) {
      places.push_back({size, 0, SymExpr(0)});
      best = &places.back();
    }
    best->freeAt = lastUse[step.slot];
    placeOf[step.slot] = best - places.data();
  }

  SymExpr end(0);
  for (bool isConstant : {true, false})
    for (Place &place : places)
      if (place.size.asInteger().has_value() == isConstant) {
        place.offset = end;
        end = end + place.size;
      }
  for (plan::Step &step : out.steps)
    if (auto it = placeOf.find(step.slot);
        step.kind == Kind::Alloc && it != placeOf.end())
      step.offset = expr(places[it->second].offset);
  out.arenaSize = expr(end);
}

void FunctionPlanner::insertFrees() {
  constexpr int64_t never = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> lastUse(out.slotCount, -1);
  for (auto [index, step] : llvm::enumerate(out.steps))
    eachSlot(step,
             [&, index = index](plan::Slot slot) { lastUse[slot] = index; });
  // Weights live as long as the program, arena places are not references.
  for (const plan::Arg &output : out.outputs)
    eachSlot(output, [&](plan::Slot slot) { lastUse[slot] = never; });
  for (const plan::Input &input : out.inputs)
    if (input.slot >= 0 && !input.weight.empty())
      lastUse[input.slot] = never;
  for (auto [slot, type] : arenaSlots)
    lastUse[slot] = never;

  std::vector<std::vector<plan::Slot>> dead(out.steps.size() + 1);
  for (plan::Slot slot = 0; slot != out.slotCount; ++slot)
    if (lastUse[slot] != never)
      dead[lastUse[slot] + 1].push_back(slot);

  std::vector<plan::Step> steps;
  for (size_t index = 0; index <= out.steps.size(); ++index) {
    if (!dead[index].empty()) {
      plan::Step free;
      free.kind = Kind::Free;
      free.slots = std::move(dead[index]);
      steps.push_back(std::move(free));
    }
    if (index != out.steps.size())
      steps.push_back(std::move(out.steps[index]));
  }
  out.steps = std::move(steps);
}

} // namespace intarsia
