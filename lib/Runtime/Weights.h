//===- Weights.h - The weights of an artifact -------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Weights are records of the archive, mapped; one that a program writes is a
// copy of the instance's own. What was computed of weights at compile time
// (--freeze) is weights too, and is computed again when one of those is
// replaced.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_WEIGHTS_H
#define INTARSIA_LIB_RUNTIME_WEIGHTS_H

#include "intarsia/Artifact/Archive.h"
#include "intarsia/Runtime/Model.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace intarsia::runtime {

/// A record's name, and its device unless that is the CPU -> a tensor on the
/// whole record, which no program writes.
using MappedRecords = std::map<std::string, Tensor>;

/// Makes the tensors of the weights of one plan, for one instance.
class WeightReader {
public:
  /// `own` holds the records below data/intarsia/, `weights` all others: the
  /// same archive, except for a sidecar. All arguments are kept by reference.
  WeightReader(const artifact::Archive &own, const artifact::Archive &weights,
               const plan::Plan &plan, MappedRecords &records);

  /// Owned.
  Value read(const plan::Weight &weight);

  /// `source`'s value as oneDNN wants it: made once for all instances that have
  /// the file's weight (`isOwn`: another one). Owned.
  Value packed(const plan::Weight &weight, const Value &source, bool isOwn);

  /// A user's tensor for the weight: itself, or a copy with the strides that
  /// the program was compiled for.
  /// Owned. Throws Error(Guard) for another dtype, shape or device.
  Value checked(const plan::Weight &weight, const Tensor &given);

private:
  [[noreturn]] void fail(const plan::Weight &weight, const std::string &what);
  std::vector<int64_t> constants(const plan::Weight &weight,
                                 const std::vector<plan::ExprId> &ids);
  const artifact::Archive &archiveOf(const plan::Weight &weight) const;
  const Tensor &record(const plan::Weight &weight);
  const Tensor &onDevice(const plan::Weight &weight);
  const Tensor &mapped(const plan::Weight &weight);

  const artifact::Archive &own, &weights;
  const std::vector<SymExpr> &exprs;
  MappedRecords &records;
  std::set<std::string> written; // records that the program writes
  std::map<std::string, Tensor> copies;
};

/// Whether the weight is made of others: at compile time, or when it is loaded.
bool isDerived(const plan::Weight &weight);

/// `replaced` under all names of each weight that it has one of. Throws
/// Error(Guard) where it has two tensors for one weight.
std::map<std::string, Tensor>
underAllNames(const plan::Plan &plan,
              const std::map<std::string, Tensor> &replaced);

/// The weights of one instance, in the order of `plan.weights`, owned by the
/// result. `replaced` goes by names, with all of a tied weight. `frozen` (may
/// be null) computes what is frozen, when it must be. `other` gives weights
/// that no record holds.
class WeightValues {
public:
  WeightValues(const artifact::Archive &own, const artifact::Archive &weights,
               const plan::Plan &plan, const plan::Plan *frozen,
               MappedRecords &records,
               const std::map<std::string, Tensor> &replaced,
               const std::function<Value(size_t)> &other);
  ~WeightValues();
  WeightValues(const WeightValues &) = delete;
  WeightValues &operator=(const WeightValues &) = delete;

  /// Gives the reference away.
  Value take(size_t index) { return std::exchange(values[index], Value()); }

private:
  void read(WeightReader &reader, const plan::Plan &plan,
            const std::map<std::string, Tensor> &replaced,
            const std::function<Value(size_t)> &other);
  void pack(WeightReader &reader, const plan::Plan &plan,
            const plan::Weight &weight,
            const std::map<std::string, Tensor> &replaced);

  std::vector<Value> values;
};

/// What a program without inputs returns.
std::vector<Tensor> outputsOf(const plan::Plan &plan, WeightValues &weights);

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_WEIGHTS_H
