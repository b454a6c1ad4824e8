//===- Executor.cpp - Running a plan
//------------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// `Program::run`: binds and checks the inputs, then executes the steps in
// order. The state of one call of one function is an `Activation` on the C++
// stack; nothing is shared between calls but the thread's cache of arena
// memory.
//
//===----------------------------------------------------------------------===//

#include "CudaCode.h"
#include "MemoryCache.h"
#include "ProgramImpl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

using namespace intarsia;
using namespace intarsia::runtime;
using plan::Step;

namespace {

std::string listText(const int64_t *values, size_t count) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i)
    text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

std::string dtypeText(int16_t dtype) {
  if (auto known = dtypeFromScalarType(dtype))
    return std::string(dtypeTorchName(*known));
  return "dtype " + std::to_string(dtype);
}

std::string valueText(const Value &value) {
  switch (value.kind) {
  case Value::Kind::None:
    return "None";
  case Value::Kind::Tensor:
    return "a tensor";
  case Value::Kind::Int:
    return std::to_string(value.integer);
  case Value::Kind::Float:
    return std::to_string(value.real);
  case Value::Kind::Bool:
    return value.boolean ? "True" : "False";
  case Value::Kind::Boxed:
    if (const std::string *text = torchApi().boxedText(value.boxed))
      return "'" + *text + "'";
    return "an object";
  case Value::Kind::Pointer:
    return "memory";
  }
  return "?";
}

/// A short array on the stack, a longer one on the heap; not initialised.
template <typename T, size_t N>
class Scratch {
  static_assert(std::is_trivially_copyable_v<T>);

public:
  explicit Scratch(size_t count)
      : data(reinterpret_cast<T *>(
            count <= N ? inlineData : ::operator new(count * sizeof(T)))) {}
  ~Scratch() {
    if (static_cast<void *>(data) != inlineData)
      ::operator delete(data);
  }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  T &operator[](size_t i) { return data[i]; }
  T *get() { return data; }
  const T *get() const { return data; }

private:
  alignas(T) unsigned char inlineData[N * sizeof(T)];
  T *data;
};

/// Values that are released at the end of their scope.
class OwnedValues {
public:
  OwnedValues() = default;
  explicit OwnedValues(size_t count) : values(count) {}
  ~OwnedValues() {
    for (Value &value : values)
      release(value);
  }
  OwnedValues(OwnedValues &&) = default;
  OwnedValues &operator=(OwnedValues &&other) noexcept {
    std::swap(values, other.values);
    return *this;
  }
  /// Hands the reference over.
  Value take(size_t i) { return std::exchange(values[i], Value()); }
  std::vector<Value> values;
};

/// What a kernel reports of a check that failed: its number, from 1, and of an
/// index its value and the size.
struct FailedCheck {
  int64_t number, index, size;
};

class Activation {
public:
  Activation(const Program &program, const Program::Impl &impl,
             const FunctionPlan &plan, Profile *profile)
      : program(program), impl(impl), torch(*impl.torch), plan(plan),
        function(*plan.function), profile(profile),
        slots(size_t(function.slotCount)), symbols(function.symbols.size()),
        frame{slots.get(), symbols.get()} {
    std::memset(static_cast<void *>(frame.slots), 0,
                sizeof(Value) * size_t(function.slotCount));
    if (plan.setsGrad)
      gradBefore = torch.gradEnabled();
  }

  ~Activation() {
    for (plan::Slot i = 0; i < function.slotCount; ++i)
      drop(frame.slots[i]);
    for (CudaStatus &status : cudaStatuses)
      drop(status.values);
    if (plan.setsGrad)
      torch.setGradEnabled(gradBefore);
    if (autocastDevice >= 0)
      torch.setAutocast(autocastDevice, autocastBefore);
  }

  /// `values`: one for each input of the function, borrowed.
  void bindInputs(const Value *values, bool steal, Value *stolen);
  void execute();
  /// The owned value of output `index`.
  Value output(size_t index);

private:
  /// Writes what the program did to copies of inputs into the inputs.
  void copyBackInputs();
  void freeAfter(const Instruction &instruction) {
    const plan::Slot *freed = plan.freed.data() + instruction.firstFreed;
    for (uint32_t i = 0; i < instruction.freeCount; ++i)
      drop(frame.slots[freed[i]]);
  }
  void drop(Value &value) {
    if (value.kind == Value::Kind::Tensor)
      torch.release(value.tensor);
    else if (value.kind == Value::Kind::Boxed)
      torch.releaseBoxed(value.boxed);
    value.kind = Value::Kind::None;
  }

  [[noreturn]] void failed() const {
    ShimError &error = *torch.lastError();
    Error failure(error.kind, error.message);
    failure.cause = std::move(error.cause);
    throw failure;
  }
  [[noreturn]] void inputError(const plan::Input &input,
                               const std::string &what) const {
    throw Error(ErrorKind::Guard, "input \"" + input.name + "\": " + what);
  }
  [[noreturn]] void internal(const std::string &what) const {
    throw Error(ErrorKind::Internal, "internal error: " + what);
  }

  int64_t integer(plan::ExprId id) const {
    return plan.exprs.integer(id, frame.symbols);
  }
  int64_t extent(const Extent &e) const {
    return e.expr < 0 ? e.constant : integer(e.expr);
  }
  const Extent *sizesOf(const SpecPlan &spec) const {
    return plan.extents.data() + spec.first;
  }
  const Extent *stridesOf(const SpecPlan &spec) const {
    return sizesOf(spec) + spec.dim;
  }
  /// What a spec says in this call.
  struct Layout {
    Layout(const Activation &activation, const SpecPlan &spec)
        : dim(spec.dim), sizes(dim), strides(dim) {
      for (size_t i = 0; i < dim; ++i)
        sizes[i] = activation.extent(activation.sizesOf(spec)[i]);
      for (size_t i = 0; i < dim; ++i)
        strides[i] = activation.extent(activation.stridesOf(spec)[i]);
    }
    size_t dim;
    Scratch<int64_t, 8> sizes, strides;
  };
  /// A new tensor.
  TensorImpl *empty(const SpecPlan &spec, const Layout &layout) const {
    TensorImpl *out = nullptr;
    if (torch.emptyStrided(spec.dtype, spec.deviceType, spec.deviceIndex,
                           int64_t(layout.dim), layout.sizes.get(),
                           layout.strides.get(), &out))
      failed();
    return out;
  }
  Value number(plan::ExprId id) const {
    int64_t bits = plan.exprs.bits(id, frame.symbols);
    switch (plan.exprs.type(id)) {
    case ExprTable::Type::Float:
      return Value::of(std::bit_cast<double>(bits));
    case ExprTable::Type::Bool:
      return Value::of(bits != 0);
    default:
      return Value::of(bits);
    }
  }
  TensorImpl *tensor(plan::Slot slot) const {
    const Value &value = frame.slots[slot];
    if (value.kind != Value::Kind::Tensor)
      internal("slot " + std::to_string(slot) + " holds " + valueText(value) +
               ", not a tensor");
    return value.tensor;
  }

  void bindTensor(const InputPlan &input, const TensorInfo &info);
  void checkTensor(const InputPlan &input, const TensorInfo &info,
                   Value &slotValue);
  void bindNumber(const InputPlan &input, const Value &value);
  void checkConstant(const plan::Input &input, const Value &value) const;
  void checkRanges() const;
  [[noreturn]] void outOfRange(const Binder &binder) const;
  void checkGuards() const;
  std::string symbolValues(plan::ExprId id) const;

  void run(const Instruction &instruction);
  void runStep(const StepPlan &step);
  void alloc(const Instruction &step);
  void profiledBuffers(const StepPlan &step, Value *out);
  void launch(const StepPlan &step);
  void launchOnCuda(const StepPlan &step, void **buffers,
                    const int64_t *symbols, int64_t domain);
  void launchForeign(const StepPlan &step);
  void launchNamed(const plan::Kernel &kernel, CudaKernel &code, int device,
                   CUstream stream, const CudaGeometry &geometry,
                   void **parameters);
  int cudaDeviceOf(const StepPlan &step,
                   const std::vector<plan::Slot> &slots) const;
  CUdeviceptr cudaStatus(int device, CUstream stream, int32_t place);
  /// Waits for the kernels whose checks may fail; `at`: the step of one that
  /// did.
  void finishCudaChecks(size_t &at);
  [[noreturn]] void checkFailed(const plan::Kernel &kernel,
                                const FailedCheck &check) const;
  class SeparatedBuffers;
  class LaunchRecord;
  void view(const Instruction &step);
  void cond(const StepPlan &step);
  void whileLoop(const StepPlan &step);
  void invoke(const StepPlan &step);
  void map(const StepPlan &step);
  void scan(const StepPlan &step);
  void python(const StepPlan &step);

  /// The leaves of `args` from `first` on, owned.
  OwnedValues arguments(const std::vector<plan::Arg> &args, size_t first = 0) {
    OwnedValues out;
    for (size_t i = first; i < args.size(); ++i)
      argument(args[i], out.values);
    return out;
  }
  void argument(const plan::Arg &arg, std::vector<Value> &out);
  OwnedValues callFunction(const FunctionPlan &callee,
                           const std::vector<Value> &inputs);
  bool truth(const Value &value) const;
  Value slice(const Value &value, int64_t index) const;
  int64_t leadingSize(const Value &value) const;
  Value stackSlices(const StepPlan &step, size_t leaf,
                    const std::vector<OwnedValues> &rows, size_t column);
  /// Checks the values against the step's results and stores them.
  void store(const StepPlan &step, OwnedValues values);
  void bindResult(const plan::Result &result, const Value &value);
  void storeOne(const StepPlan &step, const StepPlan::Leaf &leaf, size_t index,
                Value value);

  const Program &program;
  const Program::Impl &impl;
  const TorchApi &torch;
  const FunctionPlan &plan;
  const plan::Function &function;
  Profile *profile;
  Scratch<Value, 64> slots;
  Scratch<int64_t, 32> symbols;
  Frame frame;
  /// Inputs that the program writes and that did not have the expected layout:
  /// each, and the copy that it became.
  OwnedValues relaid;
  MemoryLease arena;
  /// The numbers of the checks that failed, on each device that kernels with
  /// checks were launched on: statusCount of FailedCheck.
  struct CudaStatus {
    int device;
    CUstream stream;
    Value values;
    CUdeviceptr memory;
  };
  std::vector<CudaStatus> cudaStatuses;
  bool gradBefore = false;
  int8_t autocastDevice = -1; // set by this function
  AutocastState autocastBefore;
};

//===----------------------------------------------------------------------===//
// Entry
//===----------------------------------------------------------------------===//

void Activation::bindTensor(const InputPlan &input, const TensorInfo &info) {
  const SpecPlan &spec = *input.spec;
  const plan::Input &data = *input.input;
  if (!info.strides) [[unlikely]]
    inputError(data, "expected a strided tensor, got one that is sparse or has "
                     "another layout without strides");
  if (info.dtype != spec.dtype)
    inputError(data, "expected dtype " + dtypeText(spec.dtype) + ", got " +
                         dtypeText(info.dtype));
  if (info.deviceType != spec.deviceType ||
      (spec.deviceType != 0 && spec.deviceIndex >= 0 &&
       info.deviceIndex != spec.deviceIndex)) {
    std::string got = torch.deviceName(info.deviceType, info.deviceIndex);
    inputError(data, "expected device " + data.spec->device + ", got " + got);
  }
  if (info.dim != int64_t(spec.dim))
    inputError(data, "expected " + std::to_string(spec.dim) +
                         " dimensions, got " + std::to_string(info.dim) +
                         " (size " + listText(info.sizes, size_t(info.dim)) +
                         ")");
  const Extent *sizes = sizesOf(spec), *strides = stridesOf(spec);
  for (size_t i = 0; i < spec.dim; ++i)
    if (sizes[i].binds >= 0)
      frame.symbols[sizes[i].binds] = info.sizes[i];
  for (size_t i = 0; i < spec.dim; ++i)
    if (strides[i].binds >= 0)
      frame.symbols[strides[i].binds] = info.strides[i];
}

void Activation::checkTensor(const InputPlan &input, const TensorInfo &info,
                             Value &slotValue) {
  const SpecPlan &spec = *input.spec;
  const plan::Input &data = *input.input;
  size_t dim = spec.dim;
  const Extent *sizes = sizesOf(spec), *strides = stridesOf(spec);
  bool isEmpty = false;
  for (size_t i = 0; i < dim; ++i) {
    int64_t want = extent(sizes[i]);
    isEmpty |= want == 0;
    if (info.sizes[i] == want) [[likely]]
      continue;
    std::string expression;
    if (sizes[i].expr >= 0)
      expression = " (" + plan.exprs.text(sizes[i].expr) +
                   symbolValues(sizes[i].expr) + ")";
    inputError(data, "expected size " + std::to_string(want) + expression +
                         " in dimension " + std::to_string(i) + ", got " +
                         std::to_string(info.sizes[i]) + " (size " +
                         listText(info.sizes, dim) + ")");
  }
  if (isEmpty)
    return;
  bool same = true;
  for (size_t i = 0; i < dim; ++i)
    same &= info.strides[i] == extent(strides[i]) || info.sizes[i] <= 1;
  if (same) [[likely]]
    return;
  Layout layout(*this, spec);
  if (data.checkStrides)
    inputError(data, "expected strides " + listText(layout.strides.get(), dim) +
                         ", got " + listText(info.strides, dim));
  if (slotValue.kind != Value::Kind::Tensor)
    return;
  TensorImpl *copy = nullptr;
  if (torch.emptyStrided(info.dtype, info.deviceType, info.deviceIndex,
                         int64_t(dim), layout.sizes.get(), layout.strides.get(),
                         &copy))
    failed();
  if (torch.copy(copy, slotValue.tensor)) {
    torch.release(copy);
    failed();
  }
  if (!data.mutated) {
    torch.release(slotValue.tensor);
    slotValue.tensor = copy;
    return;
  }
  relaid.values.push_back(slotValue); // takes over its reference
  slotValue.tensor = copy;
  relaid.values.push_back(retain(slotValue));
}

void Activation::copyBackInputs() {
  for (size_t i = 0; i < relaid.values.size(); i += 2)
    if (torch.copy(relaid.values[i].tensor, relaid.values[i + 1].tensor))
      failed();
}

void Activation::bindNumber(const InputPlan &input, const Value &value) {
  const plan::Input &data = *input.input;
  int64_t bits = 0;
  switch (data.kind) {
  case plan::Input::Kind::SymInt:
    if (value.kind != Value::Kind::Int)
      inputError(data, "expected an integer, got " + valueText(value));
    bits = value.integer;
    break;
  case plan::Input::Kind::SymFloat:
    if (value.kind == Value::Kind::Int)
      bits = std::bit_cast<int64_t>(double(value.integer));
    else if (value.kind == Value::Kind::Float)
      bits = std::bit_cast<int64_t>(value.real);
    else
      inputError(data, "expected a float, got " + valueText(value));
    break;
  default:
    if (value.kind != Value::Kind::Bool)
      inputError(data, "expected a bool, got " + valueText(value));
    bits = value.boolean;
    break;
  }
  if (data.symbol < 0)
    return; // compared with its expression once all symbols are bound
  if (!input.rebinds)
    frame.symbols[data.symbol] = bits;
  else if (frame.symbols[data.symbol] != bits)
    inputError(data, "got " + valueText(value) + ", but another input says " +
                         std::to_string(frame.symbols[data.symbol]));
}

void Activation::checkConstant(const plan::Input &input,
                               const Value &value) const {
  const plan::Arg &want = input.constant;
  bool same = false;
  std::string text;
  switch (want.kind) {
  case plan::Arg::Kind::None:
    same = value.kind == Value::Kind::None;
    text = "None";
    break;
  case plan::Arg::Kind::Int:
    same = value.kind == Value::Kind::Int && value.integer == want.integer;
    text = std::to_string(want.integer);
    break;
  case plan::Arg::Kind::Float:
    same = value.kind == Value::Kind::Float &&
           (value.real == want.real ||
            (value.real != value.real && want.real != want.real));
    text = std::to_string(want.real);
    break;
  case plan::Arg::Kind::Bool:
    same = value.kind == Value::Kind::Bool && value.boolean == want.boolean;
    text = want.boolean ? "True" : "False";
    break;
  case plan::Arg::Kind::String: {
    const std::string *got = value.kind == Value::Kind::Boxed
                                 ? torch.boxedText(value.boxed)
                                 : nullptr;
    same = got && want.text == *got;
    text = "'" + want.text + "'";
    break;
  }
  default:
    same = true; // the exporter fixes only the kinds above
    break;
  }
  if (!same)
    inputError(input, "the program was exported with " + text + ", got " +
                          valueText(value));
}

void Activation::outOfRange(const Binder &binder) const {
  const plan::Symbol &symbol = function.symbols[size_t(binder.symbol)];
  std::string range;
  if (symbol.min && symbol.max)
    range = std::to_string(*symbol.min) + " to " + std::to_string(*symbol.max);
  else if (symbol.min)
    range = "at least " + std::to_string(*symbol.min);
  else
    range = "at most " + std::to_string(*symbol.max);
  std::string what = "the value";
  if (binder.dim >= 0)
    what = std::string("the ") + (binder.isStride ? "stride" : "size") +
           " of dimension " + std::to_string(binder.dim);
  inputError(function.inputs[binder.input],
             what + " is " + std::to_string(frame.symbols[binder.symbol]) +
                 ", but the program was compiled for " + range + " (" +
                 symbol.name + ")");
}

void Activation::checkRanges() const {
  for (const Binder &binder : plan.binders) {
    const plan::Symbol &symbol = function.symbols[size_t(binder.symbol)];
    int64_t value = frame.symbols[binder.symbol];
    if (symbol.isFloat)
      continue;
    if ((symbol.min && value < *symbol.min) ||
        (symbol.max && value > *symbol.max)) [[unlikely]]
      outOfRange(binder);
  }
}

std::string Activation::symbolValues(plan::ExprId id) const {
  std::string text;
  for (int32_t symbol : plan.exprs.symbolsOf(id)) {
    const plan::Symbol &info = function.symbols[size_t(symbol)];
    int64_t bits = frame.symbols[symbol];
    text += (text.empty() ? " with " : ", ") + info.name + " = " +
            (info.isFloat ? std::to_string(std::bit_cast<double>(bits))
                          : std::to_string(bits));
  }
  return text;
}

void Activation::checkGuards() const {
  for (const plan::Guard &guard : function.guards) {
    if (plan.exprs.bits(guard.expr, frame.symbols)) [[likely]]
      continue;
    const std::string &text =
        guard.text.empty() ? plan.exprs.text(guard.expr) : guard.text;
    std::string names;
    for (int32_t symbol : plan.exprs.symbolsOf(guard.expr))
      for (const Binder &binder : plan.binders)
        if (binder.symbol == symbol) {
          const plan::Input &input = function.inputs[binder.input];
          names += (names.empty() ? "; " : ", ") +
                   function.symbols[size_t(symbol)].name + " is " +
                   (binder.dim < 0
                        ? std::string("the value")
                        : std::string(binder.isStride ? "stride " : "size ") +
                              std::to_string(binder.dim)) +
                   " of input \"" + input.name + "\"";
        }
    throw Error(ErrorKind::Guard, "the inputs do not satisfy the condition '" +
                                      text + "' of the program" +
                                      symbolValues(guard.expr) + names);
  }
}

void Activation::bindInputs(const Value *values, bool steal, Value *stolen) {
  size_t count = plan.inputs.size();
  Scratch<TensorInfo, 16> infos(count);
  for (size_t i = 0; i < count; ++i) {
    const InputPlan &input = plan.inputs[i];
    const plan::Input &data = *input.input;
    const Value &value = values[i];
    switch (data.kind) {
    case plan::Input::Kind::Tensor:
      if (value.kind != Value::Kind::Tensor) [[unlikely]]
        inputError(data, "expected a tensor, got " + valueText(value));
      if (!input.spec)
        break;
      if (torch.describe(value.tensor, &infos[i])) [[unlikely]]
        inputError(data, torch.lastError()->message);
      bindTensor(input, infos[i]);
      break;
    case plan::Input::Kind::SymInt:
    case plan::Input::Kind::SymFloat:
    case plan::Input::Kind::SymBool:
      bindNumber(input, value);
      break;
    case plan::Input::Kind::Constant:
      checkConstant(data, value);
      break;
    case plan::Input::Kind::None:
      if (value.kind != Value::Kind::None)
        inputError(data, "expected None, got " + valueText(value));
      break;
    case plan::Input::Kind::Object:
      break;
    }
    if (data.slot < 0)
      continue;
    // Objects of Kind::Pointer cannot come from outside.
    if (steal && stolen[i].kind != Value::Kind::None)
      frame.slots[data.slot] = std::exchange(stolen[i], Value());
    else if (value.kind == Value::Kind::Tensor) {
      torch.retain(value.tensor);
      frame.slots[data.slot] = value;
    } else
      frame.slots[data.slot] = retain(value);
  }
  checkRanges();
  for (size_t i = 0; i < count; ++i) {
    const InputPlan &input = plan.inputs[i];
    const plan::Input &data = *input.input;
    if (input.spec && data.kind == plan::Input::Kind::Tensor) {
      Value none;
      checkTensor(input, infos[i],
                  data.slot >= 0 ? frame.slots[data.slot] : none);
    } else if (data.expr >= 0 && data.symbol < 0) {
      Value want = number(data.expr);
      const Value &got = values[i].kind != Value::Kind::None || data.slot < 0
                             ? values[i]
                             : frame.slots[data.slot];
      bool same = got.kind == want.kind && (want.kind == Value::Kind::Bool
                                                ? got.boolean == want.boolean
                                                : got.integer == want.integer);
      if (!same)
        inputError(data, "expected " + valueText(want) + " (" +
                             plan.exprs.text(data.expr) +
                             symbolValues(data.expr) + "), got " +
                             valueText(got));
    }
  }
  if (!function.guards.empty())
    checkGuards();
  if (function.arenaSize >= 0)
    arena.acquire(size_t(std::max<int64_t>(integer(function.arenaSize), 0)));
}

Value Activation::output(size_t index) {
  const plan::Arg &arg = function.outputs[index];
  std::vector<Value> values;
  if (arg.kind == plan::Arg::Kind::Slot) {
    const Value &value = frame.slots[arg.slot];
    if (value.kind == Value::Kind::Pointer)
      internal("an output is memory of the arena");
    return retain(value);
  }
  argument(arg, values);
  if (values.size() != 1) {
    for (Value &value : values)
      release(value);
    internal("an output is a list");
  }
  return values[0];
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void Activation::alloc(const Instruction &step) {
  Value &slot = frame.slots[step.slot];
  if (step.isInArena) {
    slot.kind = Value::Kind::Pointer;
    slot.pointer = static_cast<char *>(arena.data()) + extent(step.offset);
    return;
  }
  Layout layout(*this, step.spec);
  if (step.source >= 0) {
    Value &source = frame.slots[step.source];
    if (source.kind == Value::Kind::Tensor &&
        torch.isHeldOnce(source.tensor, int64_t(layout.dim), layout.sizes.get(),
                         layout.strides.get())) {
      slot = retain(source);
      return;
    }
  }
  slot = Value::of(empty(step.spec, layout));
}

void Activation::view(const Instruction &step) {
  Layout layout(*this, step.spec);
  TensorImpl *source = tensor(step.source), *out = nullptr;
  TensorInfo info;
  torch.describe(source, &info);
  if (torch.asStrided(source, int64_t(layout.dim), layout.sizes.get(),
                      layout.strides.get(),
                      info.storageOffset + extent(step.offset), &out))
    failed();
  frame.slots[step.slot] = Value::of(out);
}

struct LaunchContext {
  IntarsiaKernel kernel;
  void *const *buffers;
  const int64_t *symbols;
  size_t scratch;
  std::atomic<int64_t> failedCheck{0};
  int64_t failedIndex = 0, failedSize = 0;
};

void runKernel(int64_t begin, int64_t end, void *context) {
  auto &launch = *static_cast<LaunchContext *>(context);
  void *scratch = launch.scratch ? threadScratch(launch.scratch) : nullptr;
  if (int64_t check = launch.kernel(launch.buffers, launch.symbols, begin, end,
                                    scratch)) [[unlikely]] {
    int64_t none = 0; // the first one counts
    if (launch.failedCheck.compare_exchange_strong(none, check) && scratch) {
      launch.failedIndex = static_cast<int64_t *>(scratch)[0];
      launch.failedSize = static_cast<int64_t *>(scratch)[1];
    }
  }
}

static std::string withNumber(std::string text, std::string_view name,
                              int64_t number) {
  if (size_t at = text.find(name); at != std::string::npos)
    text.replace(at, name.size(), std::to_string(number));
  return text;
}

/// The bytes that a strided tensor spans, from its first element.
static std::pair<const char *, const char *> spanOf(const TensorInfo &info,
                                                    const void *data) {
  int64_t last = 0;
  for (int64_t d = 0; d < info.dim; ++d) {
    if (info.sizes[d] == 0)
      return {};
    last += (info.sizes[d] - 1) * info.strides[d];
  }
  std::optional<DType> dtype = dtypeFromScalarType(info.dtype);
  auto begin = static_cast<const char *>(data);
  return {begin, begin + (last + 1) * (dtype ? dtypeSize(*dtype) : 16)};
}

/// Tensors in the place of a kernel's buffers. Results that it would store into
/// an argument whose memory overlaps what it reads get tensors of their own,
/// which are copied when it is done. Of a lazily conjugated or negated buffer
/// there is a copy that is not lazy; the buffer itself stays as it is.
class Activation::SeparatedBuffers {
public:
  SeparatedBuffers(Activation &activation, const Step &step)
      : activation(activation), step(step) {}

  /// Takes over the copy of a lazy buffer.
  void keep(int32_t buffer, TensorImpl *copy) {
    bool isWritten = std::count(step.mutates.begin(), step.mutates.end(),
                                step.buffers[size_t(buffer)]);
    (isWritten ? results : operands).emplace_back(buffer, Value::of(copy));
  }

  void separate(void **buffers) {
    for (const Step::Apart &pair : step.apart) {
      TensorInfo written, other;
      if (!describe(pair.written, written) || !describe(pair.other, other) ||
          (pair.orSame && buffers[pair.written] == buffers[pair.other]))
        continue;
      auto [begin, end] = spanOf(written, buffers[pair.written]);
      auto [otherBegin, otherEnd] = spanOf(other, buffers[pair.other]);
      if (begin < otherEnd && otherBegin < end) [[unlikely]]
        separate(pair.written, written, buffers);
    }
  }
  SeparatedBuffers(const SeparatedBuffers &) = delete;
  ~SeparatedBuffers() {
    for (auto *list : {&results, &operands})
      for (auto &[buffer, value] : *list)
        release(value);
  }

  void copyBack() {
    for (auto &[buffer, value] : results)
      if (activation.torch.copy(tensorOf(buffer), value.tensor))
        activation.failed();
  }

private:
  TensorImpl *tensorOf(int32_t buffer) {
    const Value &value = activation.frame.slots[step.buffers[size_t(buffer)]];
    return value.kind == Value::Kind::Tensor ? value.tensor : nullptr;
  }

  bool describe(int32_t buffer, TensorInfo &info) {
    TensorImpl *tensor = tensorOf(buffer);
    if (!tensor)
      return false; // memory of the arena is nobody else's
    if (activation.torch.describe(tensor, &info))
      activation.failed();
    return info.strides != nullptr;
  }

  void separate(int32_t buffer, const TensorInfo &info, void **buffers) {
    TensorImpl *tensor = nullptr;
    if (activation.torch.emptyStrided(info.dtype, info.deviceType,
                                      info.deviceIndex, info.dim, info.sizes,
                                      info.strides, &tensor))
      activation.failed();
    results.emplace_back(buffer, Value::of(tensor));
    TensorImpl *resolved = nullptr; // it is not lazy
    if (activation.torch.dataPointer(tensor, &buffers[buffer], &resolved))
      activation.failed();
  }

  Activation &activation;
  const Step &step;
  std::vector<std::pair<int32_t, Value>> results, operands;
};

/// A kernel's buffers as profilers see them: of memory of the arena, the sizes.
void Activation::profiledBuffers(const StepPlan &step, Value *out) {
  for (size_t i = 0; i < step.step->buffers.size(); ++i) {
    const Value &value = frame.slots[step.step->buffers[i]];
    if (value.kind == Value::Kind::Tensor) {
      out[i] = retain(value);
      continue;
    }
    if (step.arenaAllocs[i] < 0)
      continue;
    const SpecPlan &spec = plan.instructions[size_t(step.arenaAllocs[i])].spec;
    Layout layout(*this, spec);
    int8_t type = 0, index = 0;
    TensorImpl *shape = nullptr;
    if (!torch.parseDevice("meta", &type, &index) &&
        !torch.emptyStrided(spec.dtype, type, index, int64_t(layout.dim),
                            layout.sizes.get(), layout.strides.get(), &shape))
      out[i] = Value::of(shape);
  }
}

/// Shows a launch to PyTorch's profilers as long as it lives.
class Activation::LaunchRecord {
public:
  LaunchRecord(Activation &activation, const StepPlan &step)
      : activation(activation), step(step) {
    record = activation.torch.beginRecord(
        step.recordName.c_str(), step.step->buffers.size(),
        [](void *context, Value *out) {
          auto &self = *static_cast<LaunchRecord *>(context);
          self.activation.profiledBuffers(self.step, out);
        },
        this);
  }
  ~LaunchRecord() {
    if (record)
      activation.torch.endRecord(record);
  }
  LaunchRecord(const LaunchRecord &) = delete;
  LaunchRecord &operator=(const LaunchRecord &) = delete;

private:
  Activation &activation;
  const StepPlan &step;
  void *record;
};

void Activation::launch(const StepPlan &step) {
  const Step &data = *step.step;
  int64_t domain = integer(data.domain);
  Scratch<void *, 16> buffers(data.buffers.size());
  Scratch<int64_t, 16> symbolArguments(data.symbols.size());
  SeparatedBuffers separated(*this, data);
  for (size_t i = 0; i < data.buffers.size(); ++i) {
    const Value &value = frame.slots[data.buffers[i]];
    if (value.kind == Value::Kind::Pointer) {
      buffers[i] = value.pointer;
      continue;
    }
    TensorImpl *resolved = nullptr;
    if (torch.dataPointer(tensor(data.buffers[i]), &buffers[i], &resolved))
      failed();
    if (resolved) [[unlikely]]
      separated.keep(int32_t(i), resolved);
  }
  for (plan::Slot slot : data.mutates)
    if (frame.slots[slot].kind == Value::Kind::Tensor)
      torch.bumpVersion(frame.slots[slot].tensor);
  if (domain <= 0)
    return;
  separated.separate(buffers.get());
  for (size_t i = 0; i < data.symbols.size(); ++i)
    symbolArguments[i] = integer(data.symbols[i]);
  if (step.cudaKernel) {
    launchOnCuda(step, buffers.get(), symbolArguments.get(), domain);
    separated.copyBack();
    return;
  }
  LaunchContext context{step.kernel, buffers.get(), symbolArguments.get(),
                        data.scratch >= 0 ? size_t(integer(data.scratch)) : 0};
  int64_t grain = data.grain >= 0 ? integer(data.grain) : domain;
  // PyTorch would round up, and give each of two threads little more than half.
  int64_t chunks = domain / std::max<int64_t>(grain, 1);
  int error = 0;
  {
    LaunchRecord record(*this, step);
    if (chunks <= 1)
      runKernel(0, domain, &context);
    else
      error = torch.parallelFor(0, domain, (domain + chunks - 1) / chunks,
                                runKernel, &context);
  }
  if (error)
    failed();
  if (int64_t check = context.failedCheck.load(std::memory_order_relaxed))
      [[unlikely]]
    checkFailed(impl.plan.kernels[size_t(data.kernel)],
                {check, context.failedIndex, context.failedSize});
  separated.copyBack();
}

void Activation::checkFailed(const plan::Kernel &kernel,
                             const FailedCheck &check) const {
  if (check.number < 0 || size_t(check.number) > kernel.checks.size())
    internal("a kernel reports a check that the plan does not know");
  const plan::Check &failed = kernel.checks[size_t(check.number) - 1];
  std::string text = withNumber(failed.text, "{index}", check.index);
  throw Error(failed.isIndex ? ErrorKind::Index : ErrorKind::Operator,
              withNumber(text, "{size}", check.size));
}

//===----------------------------------------------------------------------===//
// CUDA
//===----------------------------------------------------------------------===//

/// The device of all tensors of a launch.
int Activation::cudaDeviceOf(const StepPlan &step,
                             const std::vector<plan::Slot> &slots) const {
  constexpr int8_t cuda = 1; // c10::DeviceType::CUDA
  TensorInfo first{};
  for (size_t i = 0; i < slots.size(); ++i) {
    TensorInfo info;
    if (torch.describe(tensor(slots[i]), &info))
      failed();
    if (i == 0)
      first = info;
    if (info.deviceType == cuda && info.deviceIndex == first.deviceIndex)
      continue;
    std::string device = torch.deviceName(info.deviceType, info.deviceIndex);
    throw Error(
        ErrorKind::Guard,
        "kernel " + impl.plan.kernels[size_t(step.step->kernel)].symbol +
            " reads and writes tensors of one GPU, but one is on " + device +
            (i ? std::string(" and another on ") +
                     torch.deviceName(first.deviceType, first.deviceIndex)
               : ""));
  }
  return first.deviceIndex;
}

/// Where a launch on `device` reports a failed check, zero now.
CUdeviceptr Activation::cudaStatus(int device, CUstream stream, int32_t place) {
  auto address = [&](const CudaStatus &status) {
    return status.memory + sizeof(FailedCheck) * CUdeviceptr(place);
  };
  for (const CudaStatus &status : cudaStatuses)
    if (status.device == device && status.stream == stream)
      return address(status);
  CudaStatus &status = cudaStatuses.emplace_back();
  status.device = device;
  status.stream = stream;
  TensorImpl *values = nullptr;
  int64_t size = 3 * int64_t(plan.statusCount), stride = 1;
  if (torch.emptyStrided(int16_t(DType::I64), /*CUDA*/ 1, int8_t(device), 1,
                         &size, &stride, &values))
    failed();
  status.values = Value::of(values);
  void *memory = nullptr;
  TensorImpl *resolved = nullptr; // it is not lazy
  if (torch.dataPointer(values, &memory, &resolved))
    failed();
  status.memory = reinterpret_cast<CUdeviceptr>(memory);
  CudaGuard guard(cudaDevice(device));
  if (CUresult error = cudaDriver().cuMemsetD8Async(
          status.memory, 0, sizeof(int64_t) * size_t(size), stream))
    throwCudaError("memory on cuda:" + std::to_string(device) +
                       " cannot be set to zero",
                   error);
  return address(status);
}

void Activation::launchOnCuda(const StepPlan &step, void **buffers,
                              const int64_t *symbols, int64_t domain) {
  const Step &data = *step.step;
  int device = cudaDeviceOf(step, data.buffers);
  CUstream stream = currentCudaStream(device);
  CudaGeometry geometry;
  geometry.threads = std::max<int64_t>(integer(data.threads), 1);
  geometry.blocks = data.blocks >= 0 ? integer(data.blocks)
                                     : (domain - 1) / geometry.threads + 1;
  geometry.blocks = std::max<int64_t>(geometry.blocks, 1);
  geometry.shared = data.shared >= 0 ? integer(data.shared) : 0;

  CUdeviceptr status =
      step.status >= 0 ? cudaStatus(device, stream, step.status) : 0;
  // passes/CUDA/CUDAEmitKernels.cpp: buffers, symbols, iterations, status.
  size_t count = data.buffers.size() + data.symbols.size() + 2;
  Scratch<void *, 32> parameters(count);
  void **next = parameters.get();
  for (size_t i = 0; i < data.buffers.size(); ++i)
    *next++ = &buffers[i];
  for (size_t i = 0; i < data.symbols.size(); ++i)
    *next++ = const_cast<int64_t *>(&symbols[i]);
  *next++ = &domain;
  *next++ = &status;

  CudaKernel *kernel = step.cudaKernel;
  if (step.wideKernel && integer(data.extent) > INT32_MAX)
    kernel = step.wideKernel;
  LaunchRecord record(*this, step);
  launchNamed(impl.plan.kernels[size_t(data.kernel)], *kernel, device, stream,
              geometry, parameters.get());
}

/// Says in errors which kernel it is.
void Activation::launchNamed(const plan::Kernel &kernel, CudaKernel &code,
                             int device, CUstream stream,
                             const CudaGeometry &geometry, void **parameters) {
  try {
    code.launch(device, stream, geometry, parameters);
  } catch (const Error &error) {
    if (error.kind != ErrorKind::Operator)
      throw;
    throw Error(error.kind, "kernel " + kernel.symbol + " (" + kernel.summary +
                                ") " + error.what());
  }
}

void Activation::launchForeign(const StepPlan &step) {
  const Step &data = *step.step;
  const plan::Kernel &kernel = impl.plan.kernels[size_t(data.kernel)];
  size_t count = data.args.size();
  Scratch<Value, 16> values(count);
  for (size_t i = 0; i < count; ++i) {
    const plan::Arg &arg = data.args[i];
    switch (arg.kind) {
    case plan::Arg::Kind::Slot: {
      TensorImpl *resolved = nullptr;
      void *pointer = nullptr;
      if (torch.dataPointer(tensor(arg.slot), &pointer, &resolved))
        failed();
      if (resolved) {
        torch.release(resolved);
        throw Error(ErrorKind::Guard,
                    "kernel " + kernel.symbol +
                        " is given a tensor that is conjugated or negated "
                        "lazily, whose memory holds other values; call "
                        "resolve_conj() and resolve_neg() before it");
      }
      values[i] = Value();
      values[i].kind = Value::Kind::Pointer;
      values[i].pointer = pointer;
      break;
    }
    case plan::Arg::Kind::Expr:
      values[i] = number(arg.expr);
      break;
    case plan::Arg::Kind::Int:
      values[i] = Value::of(arg.integer);
      break;
    case plan::Arg::Kind::Float:
      values[i] = Value::of(arg.real);
      break;
    case plan::Arg::Kind::Bool:
      values[i] = Value::of(arg.boolean);
      break;
    default:
      internal("an argument of a foreign kernel is no tensor and no number");
    }
  }
  for (plan::Slot slot : data.mutates)
    torch.bumpVersion(tensor(slot));
  int64_t blocks[3];
  bool isEmpty = false;
  for (size_t i = 0; i < 3; ++i) {
    blocks[i] = integer(data.symbols[i]);
    isEmpty |= blocks[i] == 0;
    // Only x goes beyond 65535, which the driver says itself.
    if (blocks[i] < 0 || blocks[i] > INT32_MAX)
      throw Error(ErrorKind::Guard, "kernel " + kernel.symbol +
                                        " is launched with a grid of " +
                                        std::to_string(blocks[i]) + " blocks");
  }
  if (isEmpty)
    return;
  const ForeignVariant *variant = chooseVariant(step.variants, values.get());
  if (!variant) {
    std::string given;
    for (size_t i = 0; i < count; ++i)
      given += (i ? ", " : "") + (values[i].kind == Value::Kind::Pointer
                                      ? std::string("a tensor")
                                      : valueText(values[i]));
    throw Error(ErrorKind::Guard, "kernel " + kernel.symbol +
                                      " was not compiled for the arguments (" +
                                      given + ")");
  }
  int device = cudaDeviceOf(step, step.tensors);
  CUstream stream = currentCudaStream(device);
  CudaGeometry geometry;
  geometry.threads = variant->threads;
  geometry.blocks = blocks[0];
  geometry.blocksY = blocks[1];
  geometry.blocksZ = blocks[2];
  geometry.shared = -1;
  Scratch<uint64_t, 32> bytes(count + size_t(variant->scratch));
  Scratch<void *, 32> parameters(count + size_t(variant->scratch));
  size_t passed = 0;
  auto pass = [&](uint64_t value) {
    bytes[passed] = value;
    parameters[passed] = &bytes[passed];
    ++passed;
  };
  for (size_t i = 0; i < count; ++i)
    if (variant->parameters[i].kind != ForeignParameter::Kind::NotPassed)
      pass(variant->parameters[i].bytes(values[i]));
  for (int64_t i = 0; i < variant->scratch; ++i)
    pass(0);
  LaunchRecord record(*this, step);
  launchNamed(kernel, *variant->kernel, device, stream, geometry,
              parameters.get());
}

void Activation::finishCudaChecks(size_t &at) {
  for (CudaStatus &status : cudaStatuses) {
    CudaGuard guard(cudaDevice(status.device));
    const CudaDriver &driver = cudaDriver();
    std::vector<FailedCheck> checks(size_t(plan.statusCount));
    CUresult error = driver.cuMemcpyDtoHAsync(
        checks.data(), status.memory, sizeof(FailedCheck) * checks.size(),
        status.stream);
    if (!error)
      error = driver.cuStreamSynchronize(status.stream);
    if (error)
      throwCudaError("the kernels on cuda:" + std::to_string(status.device) +
                         " did not end",
                     error);
    for (size_t i = 0; i < plan.steps.size(); ++i)
      if (int32_t place = plan.steps[i].status;
          place >= 0 && checks[size_t(place)].number) {
        at = i;
        checkFailed(impl.plan.kernels[size_t(function.steps[i].kernel)],
                    checks[size_t(place)]);
      }
  }
}

void Activation::argument(const plan::Arg &arg, std::vector<Value> &out) {
  switch (arg.kind) {
  case plan::Arg::Kind::None:
  case plan::Arg::Kind::Function:
    out.push_back(Value());
    return;
  case plan::Arg::Kind::Slot:
    if (frame.slots[arg.slot].kind == Value::Kind::Pointer)
      internal("memory of the arena leaves its function");
    out.push_back(retain(frame.slots[arg.slot]));
    return;
  case plan::Arg::Kind::Expr:
    out.push_back(number(arg.expr));
    return;
  case plan::Arg::Kind::Int:
    out.push_back(Value::of(arg.integer));
    return;
  case plan::Arg::Kind::Float:
    out.push_back(Value::of(arg.real));
    return;
  case plan::Arg::Kind::Bool:
    out.push_back(Value::of(arg.boolean));
    return;
  case plan::Arg::Kind::String:
  case plan::Arg::Kind::Device:
  case plan::Arg::Kind::Layout:
  case plan::Arg::Kind::MemoryFormat:
    out.push_back(Value::of(torch.boxString(arg.text)));
    return;
  case plan::Arg::Kind::List:
    for (const plan::Arg &member : arg.list)
      argument(member, out);
    return;
  case plan::Arg::Kind::View: {
    size_t dim = arg.sizes.size();
    Scratch<int64_t, 8> sizes(dim), strides(dim);
    for (size_t i = 0; i < dim; ++i) {
      sizes[i] = integer(arg.sizes[i]);
      strides[i] = integer(arg.strides[i]);
    }
    TensorImpl *base = tensor(arg.slot), *view = nullptr;
    TensorInfo info;
    torch.describe(base, &info);
    if (torch.asStrided(base, int64_t(dim), sizes.get(), strides.get(),
                        info.storageOffset + integer(arg.offset), &view))
      failed();
    out.push_back(Value::of(view));
    return;
  }
  case plan::Arg::Kind::DType:
    out.push_back(Value::of(int64_t(arg.dtype)));
    return;
  case plan::Arg::Kind::Complex:
  case plan::Arg::Kind::Object:
    internal("a complex number or an object is passed to a nested function");
  }
}

OwnedValues Activation::callFunction(const FunctionPlan &callee,
                                     const std::vector<Value> &inputs) {
  if (inputs.size() != callee.inputs.size())
    internal("function '" + callee.function->name + "' takes " +
             std::to_string(callee.inputs.size()) + " inputs, got " +
             std::to_string(inputs.size()));
  Activation activation(program, impl, callee, profile);
  activation.bindInputs(inputs.data(), false, nullptr);
  activation.execute();
  OwnedValues outputs;
  for (size_t i = 0; i < callee.function->outputs.size(); ++i)
    outputs.values.push_back(activation.output(i));
  return outputs;
}

bool Activation::truth(const Value &value) const {
  Value scalar = value;
  if (value.kind == Value::Kind::Tensor && torch.item(value.tensor, &scalar))
    failed();
  switch (scalar.kind) {
  case Value::Kind::Bool:
    return scalar.boolean;
  case Value::Kind::Int:
    return scalar.integer != 0;
  case Value::Kind::Float:
    return scalar.real != 0;
  default:
    internal("a condition is " + valueText(scalar));
  }
}

void Activation::cond(const StepPlan &step) {
  OwnedValues all = arguments(step.step->args);
  if (all.values.empty())
    internal("cond without a predicate");
  bool taken = truth(all.values[0]);
  OwnedValues inputs;
  for (size_t i = 1; i < all.values.size(); ++i)
    inputs.values.push_back(all.take(i));
  store(step, callFunction(*step.functions[taken ? 0 : 1], inputs.values));
}

void Activation::invoke(const StepPlan &step) {
  OwnedValues inputs = arguments(step.step->args);
  store(step, callFunction(*step.functions[0], inputs.values));
}

void Activation::whileLoop(const StepPlan &step) {
  OwnedValues state = arguments(step.step->args);
  size_t carried = size_t(step.step->carried);
  if (carried > state.values.size())
    internal("a loop carries more values than it has");
  OwnedValues initial;
  for (size_t i = 0; i < carried; ++i)
    initial.values.push_back(retain(state.values[i]));
  for (;;) {
    OwnedValues condition = callFunction(*step.functions[0], state.values);
    if (condition.values.size() != 1)
      internal("the condition of a loop has " +
               std::to_string(condition.values.size()) + " outputs");
    if (!truth(condition.values[0]))
      break;
    OwnedValues next = callFunction(*step.functions[1], state.values);
    if (next.values.size() != carried)
      internal("the body of a loop returns " +
               std::to_string(next.values.size()) + " values for " +
               std::to_string(carried));
    for (size_t i = 0; i < carried; ++i)
      std::swap(state.values[i], next.values[i]);
  }
  // Results are new tensors, also when the body never ran or passed one on.
  OwnedValues results(carried);
  for (size_t i = 0; i < carried; ++i) {
    results.values[i] = state.take(i);
    Value &value = results.values[i];
    if (value.kind != Value::Kind::Tensor)
      continue;
    const void *storage = torch.storage(value.tensor);
    bool shared = false;
    auto compare = [&](const Value &other) {
      shared |= other.kind == Value::Kind::Tensor &&
                (other.tensor == value.tensor ||
                 (storage && torch.storage(other.tensor) == storage));
    };
    for (const Value &other : initial.values)
      compare(other);
    for (const Value &other : state.values)
      compare(other);
    for (size_t j = 0; j < i; ++j)
      compare(results.values[j]);
    if (!shared)
      continue;
    TensorImpl *copy = nullptr;
    if (torch.clonePreservingStrides(value.tensor, &copy))
      failed();
    release(value);
    value = Value::of(copy);
  }
  store(step, std::move(results));
}

int64_t Activation::leadingSize(const Value &value) const {
  TensorInfo info;
  if (value.kind != Value::Kind::Tensor)
    internal("a loop runs over " + valueText(value));
  if (torch.describe(value.tensor, &info))
    failed();
  if (info.dim == 0)
    internal("a loop runs over a tensor without dimensions");
  return info.sizes[0];
}

Value Activation::slice(const Value &value, int64_t index) const {
  TensorInfo info;
  TensorImpl *out = nullptr;
  if (torch.describe(value.tensor, &info) || !info.strides ||
      torch.asStrided(value.tensor, info.dim - 1, info.sizes + 1,
                      info.strides + 1,
                      info.storageOffset + index * info.strides[0], &out))
    failed();
  return Value::of(out);
}

Value Activation::stackSlices(const StepPlan &step, size_t leaf,
                              const std::vector<OwnedValues> &rows,
                              size_t column) {
  std::vector<TensorImpl *> tensors;
  for (const OwnedValues &row : rows) {
    const Value &value = row.values.at(column);
    if (value.kind != Value::Kind::Tensor)
      return Value(); // None in every row
    tensors.push_back(value.tensor);
  }
  TensorImpl *out = nullptr;
  if (tensors.empty()) {
    // Nothing to stack: the promise says what an empty result looks like.
    if (leaf >= step.results.size() || !step.results[leaf].spec)
      return Value();
    const SpecPlan &spec = *step.results[leaf].spec;
    out = empty(spec, Layout(*this, spec));
  } else if (torch.stack(tensors.data(), int64_t(tensors.size()), &out)) {
    failed();
  }
  return Value::of(out);
}

void Activation::map(const StepPlan &step) {
  OwnedValues all = arguments(step.step->args);
  size_t mapped = size_t(step.step->carried);
  if (mapped == 0 || mapped > all.values.size())
    internal("map over " + std::to_string(mapped) + " arguments");
  int64_t count = leadingSize(all.values[0]);
  std::vector<OwnedValues> rows;
  for (int64_t i = 0; i < count; ++i) {
    OwnedValues inputs;
    for (size_t a = 0; a < all.values.size(); ++a)
      inputs.values.push_back(a < mapped ? slice(all.values[a], i)
                                         : retain(all.values[a]));
    rows.push_back(callFunction(*step.functions[0], inputs.values));
  }
  OwnedValues results;
  for (size_t i = 0; i < step.functions[0]->function->outputs.size(); ++i)
    results.values.push_back(stackSlices(step, i, rows, i));
  store(step, std::move(results));
}

void Activation::scan(const StepPlan &step) {
  OwnedValues all = arguments(step.step->args);
  size_t carried = size_t(step.step->carried);
  size_t scanned = size_t(step.step->scanned);
  if (scanned == 0 || carried + scanned > all.values.size())
    internal("scan over " + std::to_string(scanned) + " arguments");
  int64_t count = leadingSize(all.values[carried]);
  std::vector<OwnedValues> rows;
  for (int64_t i = 0; i < count; ++i) {
    OwnedValues inputs;
    for (size_t a = 0; a < all.values.size(); ++a)
      inputs.values.push_back(a >= carried && a < carried + scanned
                                  ? slice(all.values[a], i)
                                  : retain(all.values[a]));
    OwnedValues outputs = callFunction(*step.functions[0], inputs.values);
    if (outputs.values.size() < carried)
      internal("the body of a scan returns too few values");
    for (size_t c = 0; c < carried; ++c) {
      release(all.values[c]);
      all.values[c] = outputs.take(c);
    }
    rows.push_back(std::move(outputs));
  }
  OwnedValues results;
  for (size_t c = 0; c < carried; ++c)
    results.values.push_back(all.take(c));
  for (size_t i = carried; i < step.functions[0]->function->outputs.size(); ++i)
    results.values.push_back(stackSlices(step, i, rows, i));
  store(step, std::move(results));
}

void Activation::python(const StepPlan &step) {
  OwnedValues args = arguments(step.step->args);
  OwnedValues results(step.results.size());
  impl.options.python({program, *step.step, args.values.data(),
                       args.values.size(), results.values.data(),
                       results.values.size()});
  store(step, std::move(results));
}

//===----------------------------------------------------------------------===//
// Results of nested functions and Python
//===----------------------------------------------------------------------===//

void Activation::bindResult(const plan::Result &result, const Value &value) {
  if (result.bindsSymbol >= 0) {
    switch (value.kind) {
    case Value::Kind::Int:
    case Value::Kind::Float:
      frame.symbols[result.bindsSymbol] = value.integer;
      break;
    case Value::Kind::Bool:
      frame.symbols[result.bindsSymbol] = value.boolean;
      break;
    case Value::Kind::Tensor:
      break;
    default:
      internal("a symbol is bound by " + valueText(value));
    }
  }
  bool isOffset = result.bindsSymbol >= 0 && value.kind == Value::Kind::Tensor;
  if (!isOffset && result.bindsSize.empty() && result.bindsStride.empty())
    return;
  TensorInfo info;
  if (value.kind != Value::Kind::Tensor)
    internal("a symbol is bound by the size of " + valueText(value));
  if (torch.describe(value.tensor, &info))
    failed();
  if (isOffset)
    frame.symbols[result.bindsSymbol] = info.storageOffset;
  for (auto [symbol, dim] : result.bindsSize)
    if (dim < info.dim)
      frame.symbols[symbol] = info.sizes[dim];
  for (auto [symbol, dim] : result.bindsStride)
    if (dim < info.dim && info.strides)
      frame.symbols[symbol] = info.strides[dim];
}

void Activation::storeOne(const StepPlan &step, const StepPlan::Leaf &leaf,
                          size_t index, Value value) {
  OwnedValues owned;
  owned.values.push_back(value);
  std::string name = "output " + std::to_string(index);
  auto broken = [&](const std::string &what) {
    throw Error(ErrorKind::Contract, stepName(impl.plan, *step.step) + ": " +
                                         name + " " + what +
                                         " was promised when it was traced");
  };
  const plan::Result &result = *leaf.result;
  if (leaf.spec) {
    if (value.kind != Value::Kind::Tensor)
      broken("is " + valueText(value) + ", but a tensor");
    TensorInfo info;
    if (torch.describe(value.tensor, &info))
      failed();
    const SpecPlan &spec = *leaf.spec;
    Layout layout(*this, spec);
    const int64_t *sizes = layout.sizes.get(), *strides = layout.strides.get();
    size_t dim = layout.dim;
    if (info.dtype != spec.dtype)
      broken("has dtype " + dtypeText(info.dtype) + ", but " +
             dtypeText(spec.dtype));
    if (info.dim != int64_t(dim) ||
        std::memcmp(info.sizes, sizes, dim * sizeof(int64_t)))
      broken("has size " + listText(info.sizes, size_t(info.dim)) + ", but " +
             listText(sizes, dim));
    bool same = true, isEmpty = false;
    for (size_t i = 0; i < dim; ++i) {
      same &= !info.strides || info.strides[i] == strides[i] || sizes[i] <= 1;
      isEmpty |= sizes[i] == 0;
    }
    if (!same && !isEmpty && step.step->fixStrides) {
      TensorImpl *copy = nullptr;
      if (torch.emptyStrided(info.dtype, info.deviceType, info.deviceIndex,
                             int64_t(dim), sizes, strides, &copy))
        failed();
      OwnedValues target;
      target.values.push_back(Value::of(copy));
      if (torch.copy(copy, value.tensor))
        failed();
      std::swap(owned.values[0], target.values[0]);
    }
  }
  if (result.slot >= 0 && result.kind != plan::Result::Kind::None &&
      result.kind != plan::Result::Kind::Tied)
    frame.slots[result.slot] = owned.take(0);
}

void Activation::store(const StepPlan &step, OwnedValues values) {
  if (values.values.size() != step.results.size())
    internal(stepName(impl.plan, *step.step) + " returned " +
             std::to_string(values.values.size()) + " values, not " +
             std::to_string(step.results.size()));
  for (size_t i = 0; i < step.results.size(); ++i)
    bindResult(*step.results[i].result, values.values[i]);
  for (size_t i = 0; i < step.results.size(); ++i)
    storeOne(step, step.results[i], i, values.take(i));
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

void Activation::run(const Instruction &instruction) {
  switch (instruction.kind) {
  case Step::Kind::Call:
    if (torch.runCall(instruction.call, &frame)) [[unlikely]]
      failed();
    return;
  case Step::Kind::Alloc:
    return alloc(instruction);
  case Step::Kind::View:
    return view(instruction);
  default:
    return runStep(plan.steps[instruction.step]);
  }
}

void Activation::runStep(const StepPlan &step) {
  const Step &data = *step.step;
  switch (data.kind) {
  case Step::Kind::Call:
  case Step::Kind::Alloc:
  case Step::Kind::View:
    internal("a step that is an instruction of its own");
  case Step::Kind::Free:
    for (plan::Slot slot : data.slots)
      drop(frame.slots[slot]);
    return;
  case Step::Kind::Launch:
    return launch(step);
  case Step::Kind::LaunchForeign:
    return launchForeign(step);
  case Step::Kind::Clone: {
    TensorImpl *out = nullptr;
    if (torch.clonePreservingStrides(tensor(data.source), &out))
      failed();
    frame.slots[data.slot] = Value::of(out);
    return;
  }
  case Step::Kind::Copy:
    if (torch.copy(tensor(data.slot), tensor(data.source)))
      failed();
    return;
  case Step::Kind::Move:
    frame.slots[data.slot] = retain(frame.slots[data.source]);
    return;
  case Step::Kind::Cond:
    return cond(step);
  case Step::Kind::While:
    return whileLoop(step);
  case Step::Kind::Invoke:
    return invoke(step);
  case Step::Kind::Map:
    return map(step);
  case Step::Kind::Scan:
    return scan(step);
  case Step::Kind::Python:
    return python(step);
  case Step::Kind::SetGrad:
    torch.setGradEnabled(data.flag);
    return;
  case Step::Kind::Autocast:
    autocastBefore = torch.autocastState(step.autocastDevice);
    autocastDevice = step.autocastDevice;
    // Without the cache of casts, which lives as long as a Python context does.
    torch.setAutocast(autocastDevice,
                      {data.flag,
                       data.args[0].kind == plan::Arg::Kind::DType
                           ? int16_t(data.args[0].dtype)
                           : int16_t(-1),
                       false});
    return;
  case Step::Kind::Assert:
    if (!plan.exprs.bits(data.expr, frame.symbols)) [[unlikely]]
      throw Error(data.flag ? ErrorKind::Index : ErrorKind::Guard,
                  (data.text.empty()
                       ? "the assertion '" + plan.exprs.text(data.expr) +
                             "' does not hold"
                       : data.text) +
                      symbolValues(data.expr));
    return;
  }
}

void Activation::execute() {
  size_t at = 0;
  try {
    if (!profile) [[likely]] {
      for (const Instruction &instruction : plan.instructions) {
        at = instruction.step;
        run(instruction);
        freeAfter(instruction);
      }
      if (!cudaStatuses.empty()) [[unlikely]]
        finishCudaChecks(at);
      return copyBackInputs();
    }
    std::vector<Profile::Entry> &entries =
        profile->steps[size_t(&function - impl.plan.functions.data())];
    auto timed = [&](size_t step, auto &&body) {
      auto start = std::chrono::steady_clock::now();
      body();
      // What a step begins on a GPU is its time.
      for (int device : impl.cudaDevices)
        if (torch.synchronize(/*CUDA*/ 1, int8_t(device)))
          failed();
      auto &entry = entries[step];
      entry.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::steady_clock::now() - start)
                               .count();
      ++entry.count;
    };
    for (const Instruction &instruction : plan.instructions) {
      at = instruction.step;
      timed(at, [&] { run(instruction); });
      if (instruction.freeCount)
        timed(at + 1, [&] { freeAfter(instruction); });
    }
    at = plan.steps.empty() ? 0 : plan.steps.size() - 1;
    finishCudaChecks(at);
  } catch (Error &error) {
    // The innermost step with a source line is the user's place. A call's
    // message, made by the shim, has it already.
    const Step &step = function.steps[at];
    if (error.op.empty())
      error.op = step.op;
    if (!error.location.empty() || step.location.empty())
      throw;
    if (step.kind == Step::Kind::Call) {
      error.location = step.location;
      throw;
    }
    Error located(error.kind,
                  std::string(error.what()) + " (" + step.location + ")");
    located.op = error.op;
    located.location = step.location;
    located.cause = error.cause;
    throw located;
  }
  copyBackInputs();
}

void prepareProfile(Profile *profile, const plan::Plan &plan) {
  if (!profile || !profile->steps.empty())
    return;
  for (const plan::Function &function : plan.functions)
    profile->steps.emplace_back(function.steps.size());
}

/// Turns the caller's autocast off until the end of the scope.
class WithoutAutocast {
public:
  WithoutAutocast(const TorchApi &torch, bool active) : torch(torch) {
    for (int8_t device : devices) {
      before[device] = active ? torch.autocastState(device) : AutocastState();
      if (before[device].enabled)
        torch.setAutocast(device, {false, -1, before[device].cache});
    }
  }
  ~WithoutAutocast() {
    for (int8_t device : devices)
      if (before[device].enabled)
        torch.setAutocast(device, before[device]);
  }

private:
  static constexpr int8_t devices[] = {0, 1}; // CPU, CUDA
  const TorchApi &torch;
  AutocastState before[2];
};

/// Keeps the caller's references, however the call ends.
class StolenInputs {
public:
  StolenInputs(Value *values, size_t count, bool active)
      : values(values), count(active ? count : 0) {}
  ~StolenInputs() {
    for (size_t i = 0; i < count; ++i)
      release(values[i]);
  }

private:
  Value *values;
  size_t count;
};

} // namespace

void Program::run(Value *inputs, size_t inputCount, Value *outputs,
                  size_t outputCount, uint32_t flags, Profile *profile) const {
  const Impl &program = *impl;
  bool steal = flags & StealInputs;
  StolenInputs stolen(inputs, inputCount, steal);
  auto start = std::chrono::steady_clock::time_point();
  if (profile) {
    prepareProfile(profile, program.plan);
    start = std::chrono::steady_clock::now();
  }
  if (inputCount != program.userInputs.size())
    throw Error(ErrorKind::Guard,
                "the program takes " +
                    std::to_string(program.userInputs.size()) +
                    " inputs, got " + std::to_string(inputCount));
  if (outputCount != program.userOutputs.size())
    throw Error(ErrorKind::Guard,
                "the program has " +
                    std::to_string(program.userOutputs.size()) +
                    " outputs, not " + std::to_string(outputCount));

  WithoutAutocast autocast(*program.torch, program.options.ownAutocast);
  const FunctionPlan &entry = program.functions[0];
  size_t count = entry.inputs.size();
  bool direct = program.weights.empty() && program.copyBacks.empty();
  Scratch<Value, 32> gathered(direct ? 0 : count), owned(direct ? 0 : count);
  Value *values = inputs, *toSteal = inputs;
  OwnedValues targets; // what mutated values are copied back into
  if (!direct) {
    size_t user = 0;
    for (size_t i = 0; i < count; ++i) {
      owned[i] = Value();
      if (entry.inputs[i].weight >= 0)
        gathered[i] = program.weights[size_t(entry.inputs[i].weight)];
      else {
        gathered[i] = inputs[user];
        if (steal)
          owned[i] = std::exchange(inputs[user], Value());
        ++user;
      }
    }
    values = gathered.get();
    toSteal = owned.get();
  }
  StolenInputs gatheredStolen(owned.get(), count, steal && !direct);
  for (const Impl::CopyBack &copy : program.copyBacks)
    targets.values.push_back(retain(values[copy.input]));

  Activation activation(*this, program, entry, profile);
  activation.bindInputs(values, steal, toSteal);
  activation.execute();

  OwnedValues results;
  for (size_t index : program.userOutputs)
    results.values.push_back(activation.output(index));
  for (size_t i = 0; i < program.copyBacks.size(); ++i) {
    OwnedValues value;
    value.values.push_back(activation.output(program.copyBacks[i].output));
    const Value &from = value.values[0], &to = targets.values[i];
    if (from.kind != Value::Kind::Tensor || to.kind != Value::Kind::Tensor)
      throw Error(ErrorKind::Internal,
                  "internal error: a mutated value is not a tensor");
    if (from.tensor != to.tensor && program.torch->copy(to.tensor, from.tensor))
      throw Error(program.torch->lastError()->kind,
                  program.torch->lastError()->message);
  }
  for (size_t i = 0; i < results.values.size(); ++i)
    outputs[i] = results.take(i);
  if (profile) {
    profile->total.nanoseconds +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::steady_clock::now() - start)
            .count();
    ++profile->total.count;
  }
}

void Program::runFunction(const std::string &name, Value *inputs,
                          size_t inputCount, Value *outputs, size_t outputCount,
                          uint32_t flags) const {
  bool steal = flags & StealInputs;
  StolenInputs stolen(inputs, inputCount, steal);
  auto it = impl->byName.find(name);
  if (it == impl->byName.end())
    throw Error(ErrorKind::Internal, "there is no function '" + name + "'");
  const FunctionPlan &callee = *it->second;
  if (inputCount != callee.inputs.size() ||
      outputCount != callee.function->outputs.size())
    throw Error(ErrorKind::Internal,
                "function '" + name + "' takes " +
                    std::to_string(callee.inputs.size()) + " inputs and has " +
                    std::to_string(callee.function->outputs.size()) +
                    " outputs");
  Activation activation(*this, *impl, callee, nullptr);
  activation.bindInputs(inputs, steal, inputs);
  activation.execute();
  OwnedValues results;
  for (size_t i = 0; i < outputCount; ++i)
    results.values.push_back(activation.output(i));
  for (size_t i = 0; i < outputCount; ++i)
    outputs[i] = results.take(i);
}
