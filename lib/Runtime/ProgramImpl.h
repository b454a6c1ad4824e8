//===- ProgramImpl.h - The compiled form of a plan ----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What `Program::create` makes of a plan and the executor reads: names resolved
// to pointers, constants told from expressions, what binds which symbol
// decided. Immutable after creation.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_PROGRAMIMPL_H
#define INTARSIA_LIB_RUNTIME_PROGRAMIMPL_H

#include "ExprTable.h"
#include "ForeignKernel.h"
#include "intarsia/Runtime/KernelABI.h"
#include "intarsia/Runtime/Program.h"

#include <deque>
#include <map>
#include <optional>
#include <set>

namespace intarsia::runtime {

/// One size or stride: a constant unless `expr` is set. In an input, `binds`
/// names the symbol that takes this place's value.
struct Extent {
  int64_t constant = 0;
  plan::ExprId expr = -1;
  int32_t binds = -1;
};

struct SpecPlan {
  int16_t dtype = 0;
  int8_t deviceType = 0, deviceIndex = -1;
  uint32_t dim = 0, first = 0; // `dim` sizes, then strides, in the extents
};

struct FunctionPlan;
class CudaKernel;

struct StepPlan {
  const plan::Step *step = nullptr;
  PreparedCall *call = nullptr;     // Call
  IntarsiaKernel kernel = nullptr;  // Launch
  CudaKernel *cudaKernel = nullptr; // Launch on a GPU, instead
  CudaKernel *wideKernel = nullptr; // of large tensors there, if not null
  /// Launch on a GPU of a kernel with checks: where its failed check goes in
  /// the function's statuses.
  int32_t status = -1;
  /// LaunchForeign, and the tensors among its arguments.
  std::vector<ForeignVariant> variants;
  std::vector<plan::Slot> tensors;
  std::string recordName; // Launch: its name in profilers
  /// Launch: the Alloc instruction of each buffer that is memory of the arena,
  /// or -1.
  std::vector<int32_t> arenaAllocs;
  int8_t autocastDevice = -1; // Autocast: the type
  std::vector<const FunctionPlan *> functions;
  /// Leaves of `step->results`, lists flattened, with their specs.
  struct Leaf {
    const plan::Result *result;
    std::optional<SpecPlan> spec;
  };
  std::vector<Leaf> results; // Cond, While, Invoke, Map, Scan, Python
};

/// What the executor's loop reads, close together and in the order of use: a
/// product may leave nothing of a plan in the caches. Most steps are calls,
/// views and allocations, many followed by a Free.
struct alignas(64) Instruction {
  PreparedCall *call = nullptr; // Call
  plan::Step::Kind kind = plan::Step::Kind::Call;
  bool isInArena = false; // Alloc
  uint32_t step = 0;
  uint32_t freeCount = 0, firstFreed = 0; // of the Free step that follows it
  plan::Slot slot = -1, source = -1;      // Alloc, View
  SpecPlan spec;                          // Alloc, View
  Extent offset;                          // Alloc in the arena, View
};

static_assert(sizeof(Instruction) == 64);

struct InputPlan {
  const plan::Input *input = nullptr;
  std::optional<SpecPlan> spec;
  int64_t weight = -1; // index into Plan::weights
  /// SymInt, SymFloat, SymBool: an earlier input binds the symbol already, so
  /// this one is compared.
  bool rebinds = false;
};

/// Which input a symbol comes from, for messages.
struct Binder {
  int32_t symbol;
  size_t input;
  int32_t dim = -1; // -1: the number itself
  bool isStride = false;
};

struct FunctionPlan {
  const plan::Function *function = nullptr;
  ExprTable exprs;
  std::vector<InputPlan> inputs;
  std::vector<StepPlan> steps;
  std::vector<Instruction> instructions; // all of `steps`
  std::vector<plan::Slot> freed;         // by the instructions, in order
  std::vector<Extent> extents; // of inputs, instructions and results, in order
  std::vector<Binder> binders;
  bool setsGrad = false;
  int32_t statusCount = 0; // launches with checks on a GPU
};

struct Program::Impl {
  ~Impl();

  plan::Plan plan;
  Options options;
  const TorchApi *torch = nullptr;
  std::deque<FunctionPlan> functions; // stable addresses
  std::map<std::string, const FunctionPlan *> byName;
  std::vector<Value> weights; // owned
  std::vector<PreparedCall *> calls;
  void *kernels = nullptr;   // dlopen handle
  std::set<int> cudaDevices; // that its tensors are on
  /// The entry's inputs that the caller passes and outputs that it gets.
  std::vector<size_t> userInputs, userOutputs;
  /// Output index -> the tensor that takes its value: an entry input's index.
  struct CopyBack {
    size_t output, input;
  };
  std::vector<CopyBack> copyBacks;
};

/// Throws Error(Internal), naming function and step, unless every index is in
/// range, every slot is filled before it is read and every symbol bound before
/// it is used: the executor relies on it.
void verify(const plan::Plan &plan, const std::deque<FunctionPlan> &functions);

/// "call mylib::op", "launch k0" ... for messages.
std::string stepName(const plan::Plan &plan, const plan::Step &step);

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_PROGRAMIMPL_H
