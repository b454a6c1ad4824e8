//===- Weights.cpp - The weights of an artifact ---------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Weights.h.
//
//===----------------------------------------------------------------------===//

#include "Weights.h"
#include "LoadTorch.h"
#include "intarsia/Plan/Metadata.h"
#include "intarsia/Runtime/Frozen.h"

using namespace intarsia;
using namespace intarsia::runtime;
using artifact::Archive;
using artifact::Record;

//===----------------------------------------------------------------------===//
// WeightReader
//===----------------------------------------------------------------------===//

static std::string shapeText(const std::vector<int64_t> &sizes) {
  std::string text;
  for (int64_t size : sizes)
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

WeightReader::WeightReader(const Archive &own, const Archive &weights,
                           const plan::Plan &plan, MappedRecords &records)
    : own(own), weights(weights), exprs(plan.functions[0].exprs),
      records(records) {
  for (const plan::Weight &weight : plan.weights)
    if (weight.mutated)
      written.insert(weight.record);
}

Value WeightReader::read(const plan::Weight &weight) {
  std::vector<int64_t> sizes = constants(weight, weight.spec.sizes);
  std::vector<int64_t> strides = constants(weight, weight.spec.strides);
  const Tensor &base = record(weight);
  int64_t bytes = torchApi().storageBytes(base.get());
  int64_t itemSize = dtypeSize(weight.spec.dtype);
  int64_t last = 0;
  bool empty = false, valid = weight.storageOffset >= 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t step = 0;
    valid &= sizes[i] >= 0 && strides[i] >= 0;
    empty |= sizes[i] == 0;
    if (valid && sizes[i] > 0)
      valid &= !__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) &&
               !__builtin_add_overflow(last, step, &last);
  }
  int64_t end = 0;
  valid &= !__builtin_add_overflow(last, weight.storageOffset, &end) &&
           !__builtin_add_overflow(end, int64_t(1), &end) &&
           !__builtin_mul_overflow(end, itemSize, &end);
  if (!valid || (!empty && end > bytes))
    fail(weight, "does not fit its record '" + weight.record + "' of " +
                     std::to_string(bytes) + " bytes");
  TensorImpl *tensor = nullptr;
  if (torchApi().onStorage(base.get(), int16_t(weight.spec.dtype),
                           int64_t(sizes.size()), sizes.data(), strides.data(),
                           weight.storageOffset, &tensor))
    throwShimError();
  return Value::of(tensor);
}

Value WeightReader::checked(const plan::Weight &weight, const Tensor &given) {
  std::vector<int64_t> sizes = constants(weight, weight.spec.sizes);
  std::vector<int64_t> strides = constants(weight, weight.spec.strides);
  if (!given || given.dtype() != weight.spec.dtype || given.sizes() != sizes ||
      given.device() != weight.spec.device)
    throw Error(
        ErrorKind::Guard,
        "weight '" + weight.name + "' is a tensor of " +
            std::string(dtypeTorchName(weight.spec.dtype)) + " " +
            shapeText(sizes) + " on " + weight.spec.device +
            (given
                 ? ", not of " + std::string(dtypeTorchName(given.dtype())) +
                       " " + shapeText(given.sizes()) + " on " + given.device()
                 : ", not an empty Tensor"));
  TensorInfo info;
  if (torchApi().describe(given.get(), &info))
    throwShimError();
  if (!info.strided)
    throw Error(ErrorKind::Guard,
                "weight '" + weight.name +
                    "' is a strided tensor, not one of another layout");
  if (given.strides() == strides)
    return retain(Value::of(given.get()));
  int8_t type, index;
  TensorImpl *copy = nullptr;
  if (torchApi().parseDevice(weight.spec.device.c_str(), &type, &index) ||
      torchApi().emptyStrided(int16_t(weight.spec.dtype), type, index,
                              int64_t(sizes.size()), sizes.data(),
                              strides.data(), &copy))
    throwShimError();
  Tensor owned(copy);
  if (torchApi().copy(copy, given.get()))
    throwShimError();
  return Value::of(owned.take());
}

Value WeightReader::packed(const plan::Weight &weight, const Value &source,
                           bool isOwn) {
  Tensor own;
  Tensor &packed = isOwn ? own : records[weight.name];
  if (!packed) {
    std::vector<int64_t> sizes = constants(weight, weight.spec.sizes);
    std::vector<int64_t> strides = constants(weight, weight.spec.strides);
    TensorInfo info;
    TensorImpl *view = nullptr, *tensor = nullptr;
    if (torchApi().describe(source.tensor, &info) ||
        torchApi().asStrided(source.tensor, int64_t(sizes.size()), sizes.data(),
                             strides.data(), info.storageOffset, &view))
      throwShimError();
    Tensor matrix(view);
    if (torchApi().packWeight(view, weight.packedRows, &tensor))
      throwShimError();
    packed = Tensor(tensor);
  }
  return retain(Value::of(packed.get()));
}

void WeightReader::fail(const plan::Weight &weight, const std::string &what) {
  throw Error(ErrorKind::Load, "'" + archiveOf(weight).path() + "': weight '" +
                                   weight.name + "' " + what);
}

const Archive &WeightReader::archiveOf(const plan::Weight &weight) const {
  return plan::isProgramRecord(weight.record) ? weights : own;
}

std::vector<int64_t>
WeightReader::constants(const plan::Weight &weight,
                        const std::vector<plan::ExprId> &ids) {
  std::vector<int64_t> values;
  for (plan::ExprId id : ids) {
    std::optional<int64_t> value;
    if (id >= 0 && size_t(id) < exprs.size())
      value = exprs[size_t(id)].asInteger();
    if (!value)
      fail(weight, "has a size that is not a constant");
    values.push_back(*value);
  }
  return values;
}

/// The tensor on a weight's record: this instance's own copy where the
/// program writes a weight that lies in it, so that weights that share memory
/// still do.
const Tensor &WeightReader::record(const plan::Weight &weight) {
  if (!written.count(weight.record))
    return onDevice(weight);
  Tensor &copy = copies[weight.record + " " + weight.spec.device];
  if (!copy) {
    TensorImpl *tensor = nullptr;
    if (torchApi().clonePreservingStrides(onDevice(weight).get(), &tensor))
      throwShimError();
    copy = Tensor(tensor);
  }
  return copy;
}

/// The record's bytes on the weight's device, where they are copied once.
const Tensor &WeightReader::onDevice(const plan::Weight &weight) {
  const std::string &device = weight.spec.device;
  if (device == "cpu")
    return mapped(weight);
  Tensor &there = records[weight.record + " " + device];
  if (!there) {
    int8_t type, index;
    TensorImpl *tensor = nullptr;
    if (torchApi().parseDevice(device.c_str(), &type, &index) ||
        torchApi().toDevice(mapped(weight).get(), type, index, &tensor))
      throwShimError();
    there = Tensor(tensor);
  }
  return there;
}

const Tensor &WeightReader::mapped(const plan::Weight &weight) {
  const Archive &archive = archiveOf(weight);
  auto it = records.find(weight.record);
  if (it != records.end())
    return it->second;
  const Record *entry = archive.find(weight.record);
  if (!entry)
    fail(weight, "has no record '" + weight.record + "' in the archive");
  // What the tensor keeps alive: the mapping, or the inflated bytes.
  struct Owner {
    std::shared_ptr<void> mapping;
    std::string inflated;
  };
  auto owner = std::make_unique<Owner>();
  void *data = nullptr;
  if (entry->deflated) {
    owner->inflated = archive.read(weight.record);
    data = owner->inflated.data();
  } else {
    owner->mapping = archive.mapping();
    data = archive.bytes(*entry).data();
  }
  int64_t size = int64_t(entry->size), stride = 1;
  TensorImpl *tensor = nullptr;
  if (torchApi().fromBlob(
          data, size, int16_t(DType::U8), 1, &size, &stride,
          [](void *context) { delete static_cast<Owner *>(context); },
          owner.get(), &tensor))
    throwShimError();
  owner.release();
  return records.emplace(weight.record, Tensor(tensor)).first->second;
}

//===----------------------------------------------------------------------===//
// WeightValues
//===----------------------------------------------------------------------===//

bool intarsia::runtime::isDerived(const plan::Weight &weight) {
  return weight.record.rfind(plan::frozenRecords, 0) == 0 ||
         !weight.packedFrom.empty();
}

/// Tied weights have several names and one place.
static std::string placeOf(const plan::Plan &plan, const plan::Weight &weight) {
  std::string place = weight.record.empty() ? weight.name : weight.record;
  place += " " + std::to_string(weight.storageOffset) + " " +
           std::string(dtypeName(weight.spec.dtype));
  for (const auto *list : {&weight.spec.sizes, &weight.spec.strides}) {
    place += ";";
    for (plan::ExprId id : *list)
      if (id >= 0 && size_t(id) < plan.functions[0].exprs.size())
        place += " " + plan.functions[0].exprs[size_t(id)].str();
  }
  return place;
}

std::map<std::string, Tensor> intarsia::runtime::underAllNames(
    const plan::Plan &plan, const std::map<std::string, Tensor> &replaced) {
  std::map<std::string, Tensor> all;
  if (replaced.empty())
    return all;
  std::map<std::string, std::pair<std::string, Tensor>> byPlace;
  for (const plan::Weight &weight : plan.weights)
    if (auto given = replaced.find(weight.name); given != replaced.end()) {
      auto [entry, isNew] = byPlace.try_emplace(placeOf(plan, weight), *given);
      if (!isNew && entry->second.second.data() != given->second.data())
        throw Error(ErrorKind::Guard, "weights '" + entry->second.first +
                                          "' and '" + weight.name +
                                          "' are one tensor: replace them by "
                                          "one");
    }
  for (const plan::Weight &weight : plan.weights)
    if (auto given = byPlace.find(placeOf(plan, weight));
        given != byPlace.end())
      all.insert_or_assign(weight.name, given->second.second);
  return all;
}

std::vector<Tensor> intarsia::runtime::outputsOf(const plan::Plan &plan,
                                                 WeightValues &weights) {
  Program::Options options;
  options.ownAutocast = true;
  options.weight = [&](size_t index) { return weights.take(index); };
  std::unique_ptr<Program> program = Program::create(plan, std::move(options));
  std::vector<Value> values(program->outputCount());
  program->run(nullptr, 0, values.data(), values.size());
  std::vector<Tensor> tensors;
  for (Value &value : values)
    tensors.push_back(takeTensor(value));
  return tensors;
}

WeightValues::WeightValues(const Archive &own, const Archive &weights,
                           const plan::Plan &plan, const plan::Plan *frozen,
                           MappedRecords &records,
                           const std::map<std::string, Tensor> &replaced,
                           const std::function<Value(size_t)> &other) {
  std::map<std::string, Tensor> all = replaced;
  if (!replaced.empty()) {
    bool isChanged = false;
    if (frozen)
      for (const plan::Weight &weight : frozen->weights)
        isChanged |= all.count(weight.name) != 0;
    if (isChanged) {
      WeightValues sources(own, weights, *frozen, nullptr, records, all, {});
      std::vector<Tensor> computed = outputsOf(*frozen, sources);
      for (const plan::Weight &weight : plan.weights)
        for (size_t i = 0; i < computed.size(); ++i)
          if (weight.record == frozenRecord(i))
            all.insert_or_assign(weight.name, computed[i]);
    }
  }
  WeightReader reader(own, weights, plan, records);
  try {
    read(reader, plan, all, other);
  } catch (...) {
    for (Value &value : values)
      release(value);
    throw;
  }
}

void WeightValues::read(WeightReader &reader, const plan::Plan &plan,
                        const std::map<std::string, Tensor> &replaced,
                        const std::function<Value(size_t)> &other) {
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const plan::Weight &weight = plan.weights[i];
    if (auto given = replaced.find(weight.name); given != replaced.end())
      values.push_back(reader.checked(weight, given->second));
    else if (!weight.packedFrom.empty())
      pack(reader, plan, weight, replaced);
    else if (weight.record.empty() && other)
      values.push_back(other(i));
    else
      values.push_back(reader.read(weight));
  }
}

void WeightValues::pack(WeightReader &reader, const plan::Plan &plan,
                        const plan::Weight &weight,
                        const std::map<std::string, Tensor> &replaced) {
  for (size_t i = 0; i < values.size(); ++i)
    if (plan.weights[i].name == weight.packedFrom) {
      values.push_back(reader.packed(weight, values[i],
                                     replaced.count(weight.packedFrom) != 0));
      return;
    }
  throw Error(ErrorKind::Load, "the plan packs weight '" + weight.packedFrom +
                                   "', which does not come before");
}

WeightValues::~WeightValues() {
  for (Value &value : values)
    release(value);
}
