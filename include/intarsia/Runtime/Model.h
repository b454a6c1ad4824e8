//===- Model.h - Loading and running a compiled artifact ----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The C++ API for whoever ships a model: load what `intarsia-compile` wrote,
// run it, no Python. The artifact is the original .pt2 archive with these
// records added, a folder for each processor that it was compiled for:
//
//   data/intarsia/metadata.json           plan::Metadata
//   data/intarsia/<folder>/plan.json      plan::Plan
//   data/intarsia/<folder>/kernels.so     absent when the plan has no kernels
//   data/intarsia/libraries/<name>        operator libraries, if bundled
//   data/intarsia/frozen.json             with --freeze: the plan::Plan of what
//   data/intarsia/frozen/<n>              depends on weights alone, its results
//
// Or a sidecar with these records alone, beside the .pt2 archive. Weights are
// the archive's own records, mapped; a weight that the program mutates is
// private to each Model.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_MODEL_H
#define INTARSIA_RUNTIME_MODEL_H

#include "intarsia/Runtime/Program.h"
#include "intarsia/Support/DType.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace intarsia::runtime {

/// A counted reference on a PyTorch tensor, for code without torch headers.
/// Code that has them converts by `c10::intrusive_ptr<c10::TensorImpl>::reclaim
/// (reinterpret_cast<c10::TensorImpl *>(tensor.take()))`.
class Tensor {
public:
  Tensor() = default;
  /// Takes over the reference.
  explicit Tensor(TensorImpl *impl) : impl(impl) {}
  Tensor(const Tensor &other);
  Tensor(Tensor &&other) noexcept : impl(std::exchange(other.impl, nullptr)) {}
  Tensor &operator=(Tensor other) noexcept {
    std::swap(impl, other.impl);
    return *this;
  }
  ~Tensor();

  /// Uninitialised, contiguous, on the CPU.
  static Tensor empty(DType dtype, const std::vector<int64_t> &sizes);

  explicit operator bool() const { return impl != nullptr; }
  TensorImpl *get() const { return impl; }
  TensorImpl *take() { return std::exchange(impl, nullptr); }
  std::vector<int64_t> sizes() const;
  std::vector<int64_t> strides() const; // in elements
  int64_t elementCount() const;
  DType dtype() const;
  std::string device() const;
  /// The first element. Throws Error for a tensor that is not plain memory.
  void *data() const;
  /// On the CPU, contiguous; itself when it is so already.
  Tensor contiguousOnCpu() const;

private:
  // Replaced by an equal tensor when its memory is asked for and has lazy bits.
  mutable TensorImpl *impl = nullptr;
};

/// Takes over a value: a tensor, a number as a tensor without dimensions; empty
/// for None, a string or a list.
Tensor takeTensor(Value &value);

class Model {
public:
  struct Options {
    /// Libraries that register the operators, loaded first.
    std::vector<std::string> operatorLibraries;
    /// "cpu" or "cuda"; "": the only one in the artifact, else "cpu".
    std::string target;
    /// Where kernels are unpacked; "": INTARSIA_CACHE_DIR, else
    /// $XDG_CACHE_HOME/intarsia, else ~/.cache/intarsia. When it cannot be
    /// written, a private temporary file.
    std::string cacheDirectory;
    /// Compares the checksums of weights, too, which reads the whole file.
    bool verify = false;
    /// Object weights and Python steps, for the Python door.
    Program::Options program;
  };

  /// Of the processors that the artifact was compiled for, takes the one that
  /// uses most of this machine's features. Operator libraries that the artifact
  /// brings along are loaded if operators are missing. Throws Error(Load)
  /// naming the artifact's fault, the missing operator or what the machine
  /// lacks.
  static std::unique_ptr<Model> load(const std::string &path,
                                     const Options &options);
  ~Model();

  /// The tensors of one call in the order of the exported program's flat
  /// inputs and outputs. Thread-safe as Program::run. Numbers go through
  /// `program().run`. Throws Error.
  std::vector<Tensor> run(const std::vector<Tensor> &inputs) const;

  /// Another model of the same artifact: it shares kernels and weights with
  /// this one, also those that were replaced in it, and begins with the mutated
  /// weights as they are in the artifact. `weights` replaces weights by their
  /// fully qualified names: tensors of the same dtype, sizes and device (of any
  /// strides), whose memory is shared with the caller; tied weights are
  /// replaced together, and what was frozen is computed again. Running models
  /// are not touched: to update weights under load, make an instance and swap
  /// the pointer. Thread-safe. Throws Error(Guard) for a name that does not
  /// exist or a tensor that does not fit.
  std::unique_ptr<Model>
  instance(const std::map<std::string, Tensor> &weights = {}) const;

  /// The fully qualified names of parameters, buffers and constants.
  std::vector<std::string> weightNames() const;
  /// The weight that this model uses; throws Error(Guard) for an unknown name.
  Tensor weight(const std::string &name) const;

  const Program &program() const;

private:
  Model();
  struct Shared;
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_MODEL_H
