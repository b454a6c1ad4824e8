//===- Frozen.cpp - What depends on weights alone -------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Frozen.h. The results of a large model do not fit into memory
// beside each other, but each layer's depend on that layer's weights alone: the
// plan falls into groups of steps that share no values, and some groups at a
// time run as a plan of their own.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Runtime/Frozen.h"
#include "Weights.h"
#include "intarsia/Plan/Metadata.h"

#include <map>
#include <numeric>
#include <optional>

using namespace intarsia;
using namespace intarsia::runtime;
using plan::Slot;
using plan::Step;

namespace {

/// Divides a plan without inputs.
class Parts {
public:
  explicit Parts(const plan::Plan &plan)
      : plan(plan), function(plan.functions[0]),
        parents(size_t(function.slotCount)) {
    std::iota(parents.begin(), parents.end(), 0);
    // Weights that nobody writes do not order the steps that read them.
    isWeight.assign(parents.size(), false);
    bool writes = false;
    for (const Step &step : function.steps)
      writes |= !step.mutates.empty() || step.kind == Step::Kind::Copy;
    for (const plan::Input &input : function.inputs)
      if (input.slot >= 0 && !writes)
        isWeight[size_t(input.slot)] = true;
    for (const Step &step : function.steps)
      join(slotsOf(step));
    // Symbols tie steps together, too.
    bool isOne = !function.symbols.empty();
    for (const plan::Arg &output : function.outputs)
      isOne |= output.kind != plan::Arg::Kind::Slot;
    if (isOne)
      std::fill(parents.begin(), parents.end(), 0);
  }

  struct Part {
    plan::Plan plan;
    std::vector<size_t> outputs; // the whole plan's
  };

  std::vector<Part> divide(int64_t partBytes) {
    // The groups in the order of their outputs, and the part of each.
    std::map<Slot, size_t> partOf;
    std::vector<std::vector<size_t>> outputs;
    int64_t bytes = 0;
    std::map<Slot, int64_t> sizes = groupBytes();
    for (size_t i = 0; i < function.outputs.size(); ++i) {
      Slot group = groupOf(function.outputs[i]);
      auto [entry, isNew] = partOf.try_emplace(group, outputs.size());
      if (isNew) {
        if (outputs.empty() || bytes > partBytes) {
          outputs.emplace_back();
          bytes = 0;
        }
        entry->second = outputs.size() - 1;
        bytes += sizes[group];
      }
      outputs[entry->second].push_back(i);
    }
    std::vector<Part> parts;
    for (size_t i = 0; i < outputs.size(); ++i)
      parts.push_back({partWith(partOf, i, outputs[i]), outputs[i]});
    return parts;
  }

private:
  static void collect(const plan::Arg &arg, std::vector<Slot> &slots) {
    if (arg.slot >= 0)
      slots.push_back(arg.slot);
    for (const plan::Arg &member : arg.list)
      collect(member, slots);
  }
  static void collect(const plan::Result &result, std::vector<Slot> &slots) {
    if (result.slot >= 0)
      slots.push_back(result.slot);
    for (const plan::Result &member : result.list)
      collect(member, slots);
  }
  static std::vector<Slot> slotsOf(const Step &step) {
    std::vector<Slot> slots;
    for (const plan::Arg &arg : step.args)
      collect(arg, slots);
    for (const plan::Result &result : step.results)
      collect(result, slots);
    for (const auto *list : {&step.mutates, &step.buffers, &step.slots})
      slots.insert(slots.end(), list->begin(), list->end());
    for (Slot slot : {step.slot, step.source})
      if (slot >= 0)
        slots.push_back(slot);
    return slots;
  }

  Slot find(Slot slot) {
    while (parents[size_t(slot)] != slot)
      slot = parents[size_t(slot)] = parents[size_t(parents[size_t(slot)])];
    return slot;
  }
  void join(const std::vector<Slot> &slots) {
    Slot first = -1;
    for (Slot slot : slots) {
      if (isWeight[size_t(slot)])
        continue;
      if (first >= 0)
        parents[size_t(find(slot))] = find(first);
      else
        first = slot;
    }
  }
  Slot groupOf(const plan::Arg &output) {
    return output.kind == plan::Arg::Kind::Slot ? find(output.slot) : 0;
  }

  int64_t bytesOf(const std::optional<plan::TensorSpec> &spec) const {
    if (!spec)
      return 0;
    int64_t bytes = dtypeSize(spec->dtype);
    for (plan::ExprId id : spec->sizes) {
      std::optional<int64_t> size = function.exprs[size_t(id)].asInteger();
      if (!size || __builtin_mul_overflow(bytes, *size, &bytes))
        return 0;
    }
    return bytes;
  }
  std::map<Slot, int64_t> groupBytes() {
    std::map<Slot, int64_t> sizes;
    for (const Step &step : function.steps)
      for (const plan::Result &result : step.results)
        if (result.slot >= 0)
          sizes[find(result.slot)] += bytesOf(result.spec);
    return sizes;
  }

  plan::Plan partWith(const std::map<Slot, size_t> &partOf, size_t part,
                      const std::vector<size_t> &outputs) {
    std::vector<bool> isUsed(parents.size(), false);
    auto belongs = [&](Slot slot) {
      auto found = partOf.find(find(slot));
      return found != partOf.end() && found->second == part;
    };
    plan::Plan out;
    out.operators = plan.operators;
    out.strict = plan.strict;
    out.products = plan.products;
    plan::Function &entry = out.functions.emplace_back();
    entry.name = function.name;
    entry.exprs = function.exprs;
    entry.symbols = function.symbols;
    entry.guards = function.guards;
    entry.slotCount = function.slotCount;
    entry.arenaSize = function.arenaSize;
    for (size_t index : outputs) {
      entry.outputs.push_back(function.outputs[index]);
      if (function.outputs[index].kind == plan::Arg::Kind::Slot)
        isUsed[size_t(function.outputs[index].slot)] = true;
    }
    for (const Step &step : function.steps) {
      std::vector<Slot> slots = slotsOf(step);
      bool isOurs = true; // a step without values, which sets a mode
      for (Slot slot : slots)
        if (!isWeight[size_t(slot)])
          isOurs = belongs(slot);
      if (step.kind == Step::Kind::Free) {
        Step freed = step;
        std::erase_if(freed.slots,
                      [&](Slot slot) { return !isUsed[size_t(slot)]; });
        if (!freed.slots.empty())
          entry.steps.push_back(std::move(freed));
        continue;
      }
      if (!isOurs)
        continue;
      for (Slot slot : slots)
        isUsed[size_t(slot)] = true;
      entry.steps.push_back(step);
    }
    for (const plan::Input &input : function.inputs) {
      if (input.slot < 0 || !isUsed[size_t(input.slot)])
        continue;
      entry.inputs.push_back(input);
      for (const plan::Weight &weight : plan.weights)
        if (weight.name == input.weight)
          out.weights.push_back(weight);
    }
    for (size_t i = 1; i < plan.functions.size(); ++i)
      out.functions.push_back(plan.functions[i]);
    return out;
  }

  const plan::Plan &plan;
  const plan::Function &function;
  std::vector<Slot> parents; // of a union-find structure over slots
  std::vector<bool> isWeight;
};

} // namespace

std::string intarsia::runtime::frozenRecord(size_t index) {
  return std::string(plan::frozenRecords) + std::to_string(index);
}

void intarsia::runtime::computeFrozen(
    const artifact::Archive &archive, const plan::Plan &plan,
    const std::function<void(size_t index, Tensor)> &take, int64_t partBytes) {
  // A sum of parts depends on how many there are: the result must not depend on
  // the machine's cores.
  struct OneThread {
    int32_t before = torchApi().threadCount();
    OneThread() { torchApi().setThreadCount(1); }
    ~OneThread() { torchApi().setThreadCount(before); }
  } oneThread;
  MappedRecords records;
  for (const Parts::Part &part : Parts(plan).divide(partBytes)) {
    WeightValues weights(archive, archive, part.plan, nullptr, records, {}, {});
    std::vector<Tensor> outputs = outputsOf(part.plan, weights);
    for (size_t i = 0; i < outputs.size(); ++i)
      take(part.outputs[i], std::move(outputs[i]));
  }
}
