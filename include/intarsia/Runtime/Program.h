//===- Program.h - A plan ready to run ----------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A plan whose operators are resolved, whose kernels are loaded and whose
// expressions are compiled. `run` keeps all its state per call: it may be
// called from many threads at once and re-entered from an operator's kernel.
// It never takes the GIL itself; call it without.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_PROGRAM_H
#define INTARSIA_RUNTIME_PROGRAM_H

#include "intarsia/Plan/Plan.h"
#include "intarsia/Runtime/Cuda.h"
#include "intarsia/Runtime/Error.h"
#include "intarsia/Runtime/Torch.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace intarsia::runtime {

class Program;

/// One execution of a `Python` step. `args` are the leaves of step.args in
/// order, lists flattened, borrowed: a leaf of kind Function is None here (its
/// name is in the step; run it with `program.runFunction`). The callback fills
/// `results` (owned), one for each leaf of step.results, and throws on failure.
struct PythonCall {
  const Program &program;
  const plan::Step &step;
  const Value *args;
  size_t argCount;
  Value *results;
  size_t resultCount;
};

/// Times of the steps of one or more runs, by function and step.
struct Profile {
  struct Entry {
    int64_t count = 0;
    int64_t nanoseconds = 0;
  };
  /// Parallel to Plan::functions and their steps; sized by Program::run. A step
  /// that runs nested functions includes their time.
  std::vector<std::vector<Entry>> steps;
  Entry total;
};

class Program {
public:
  struct Options {
    /// The shared object with the plan's CPU kernels; "" when it has none.
    std::string kernelLibrary;
    /// Instead of `kernelLibrary`: the address of a kernel by its name, null
    /// when there is none. Whoever owns the code keeps it (the function object
    /// lives as long as the program).
    std::function<void *(const std::string &name)> kernel;
    /// The plan's CUDA kernels, which programs may share; null when it has
    /// none. Loaded on a device at the first launch there.
    std::shared_ptr<const CudaCode> cuda;
    /// Boxes side-table object `index` as the type at `type`; returns null and
    /// sets *error on failure. Called during `create` only. In Python:
    /// TorchPythonApi::box with the GIL.
    std::function<Boxed *(int64_t index, const void *type, std::string *error)>
        boxObject;
    /// The owned value of plan.weights[i], by its index.
    std::function<Value(size_t index)> weight;
    /// Executes `Python` steps.
    std::function<void(const PythonCall &call)> python;
    /// The program says itself where autocast acts: what the caller has set is
    /// off while it runs.
    bool ownAutocast = false;
  };

  /// Throws Error.
  static std::unique_ptr<Program> create(plan::Plan plan, Options options);
  ~Program();
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;

  enum Flags : uint32_t {
    None = 0,
    /// `run` takes over the references in `inputs` (also when it throws), so
    /// that an input's memory can be freed at its last use. Afterwards they are
    /// Kind::None.
    StealInputs = 1,
  };

  /// Calls the entry function. `inputs`: one for each input without a weight,
  /// in order, borrowed unless StealInputs is given. `outputs`: one for each
  /// output of kind User, owned by the caller, written only on success.
  /// Mutations of buffers and inputs that the plan returns as outputs are
  /// copied back. Throws Error.
  void run(Value *inputs, size_t inputCount, Value *outputs, size_t outputCount,
           uint32_t flags = None, Profile *profile = nullptr) const;

  /// Calls a nested function by name, for `Python` steps.
  void runFunction(const std::string &name, Value *inputs, size_t inputCount,
                   Value *outputs, size_t outputCount,
                   uint32_t flags = None) const;

  const plan::Plan &plan() const;
  /// Inputs and outputs that `run` takes and gives.
  size_t inputCount() const;
  size_t outputCount() const;
  const plan::Input &input(size_t index) const;
  /// The borrowed value of plan().weights[i].
  Value weight(size_t index) const;

  struct Impl; // internal to the runtime library

private:
  Program();
  std::unique_ptr<Impl> impl;
};

/// The owned value of an input that export fixed.
Value constantValue(const plan::Arg &constant);
/// Drops the reference that a value owns, if any, and makes it None.
void release(Value &value);
/// Another owned value of the same thing.
Value retain(const Value &value);

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_PROGRAM_H
