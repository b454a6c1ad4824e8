//===- Calls.cpp - Calling a registered operator --------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An opaque call: its operator is resolved and its constants are boxed once
// (`prepareCall`); at run time (`runCall`) the arguments go on a boxed stack,
// the dispatcher runs the kernel, and what comes back is held against what the
// fake implementation promised.
//
// The call is a redispatch with the autograd and autocast keys masked out of
// the computed key set, not a thread-local exclusion: kernels that use autograd
// inside keep working. When something wants to see every call (a dispatch mode,
// a functorch layer, a tensor subclass), it is an ordinary dispatcher call.
//
//===----------------------------------------------------------------------===//

#include "Products.h"
#include "Shim.h"
#include "lib/Runtime/ExprTable.h"
#include "lib/Runtime/Overlap.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

using namespace intarsia::runtime;
using namespace intarsia::runtime::shim;
using intarsia::DType;
namespace plan = intarsia::plan;

namespace {

/// With one of these the whole dispatcher has to see the call.
constexpr c10::DispatchKeySet interceptingKeys(
    {c10::DispatchKey::Python, c10::DispatchKey::PythonDispatcher,
     c10::DispatchKey::PreDispatch, c10::DispatchKey::Functionalize,
     c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
     c10::DispatchKey::FuncTorchDynamicLayerBackMode,
     c10::DispatchKey::FuncTorchBatched,
     c10::DispatchKey::FuncTorchBatchedDecomposition,
     c10::DispatchKey::FuncTorchVmapMode,
     c10::DispatchKey::FuncTorchGradWrapper,
     c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::Tracer,
     c10::DispatchKey::DeferredInit});

/// What an argument's schema type makes of a number.
enum class Target : uint8_t { Natural, Int, Float, Bool, Tensor };

struct ArgPlan {
  enum class Form : uint8_t { Constant, Slot, Expr, View, List, Tuple, Dict };
  Form form = Form::Constant;
  Target target = Target::Natural;
  plan::Slot slot = -1;
  plan::ExprId expr = -1;
  c10::IValue constant;
  std::vector<ArgPlan> list;
  c10::TypePtr elementType; // List; of a Dict its own type
  const plan::Arg *view = nullptr;
};

/// One size or stride of a spec: a constant unless `expr` is set.
struct Extent {
  int64_t constant = 0;
  plan::ExprId expr = -1;
};

struct SpecPlan {
  caffe2::TypeMeta dtype;
  c10::Device device = c10::kCPU;
  std::vector<Extent> sizes, strides;
};

struct ResultPlan {
  plan::Result::Kind kind = plan::Result::Kind::Ignore;
  plan::Slot slot = -1;
  std::optional<SpecPlan> spec;
  std::vector<ResultPlan> list;
  const plan::Result *data = nullptr; // what it binds
  plan::ExprId expect = -1;
  bool binds = false;
  bool declaredAlias = false;
  /// The argument that the operator says it returns; of a tied result.
  std::optional<size_t> argument;
};

/// The thread's spare stack. Calls nest (a kernel may run a compiled program):
/// whoever finds none makes a new one. A plain pointer in static TLS, because a
/// dynamic one costs a call to find.
thread_local torch::jit::Stack *spareStack
    __attribute__((tls_model("initial-exec"))) = nullptr;

torch::jit::Stack *newStack() {
  // Frees the spare one when the thread ends.
  struct Owner {
    ~Owner() {
      delete spareStack;
      spareStack = nullptr;
    }
  };
  thread_local Owner owner;
  (void)owner;
  auto *stack = new torch::jit::Stack();
  stack->reserve(32);
  return stack;
}

class StackLease {
public:
  StackLease() : stack(std::exchange(spareStack, nullptr)) {
    if (!stack) [[unlikely]]
      stack = newStack();
  }
  ~StackLease() {
    stack->clear();
    if (!spareStack) [[likely]]
      spareStack = stack;
    else
      delete stack;
  }
  torch::jit::Stack *stack;
};

using Autocast = std::vector<std::pair<at::DeviceType, at::ScalarType>>;

/// Turns autocast on for what a kernel calls, and back afterwards.
class AutocastGuard {
public:
  explicit AutocastGuard(const Autocast &wanted) {
    at::autocast::increment_nesting();
    for (auto [device, dtype] : wanted) {
      before.push_back({device, at::autocast::is_autocast_enabled(device),
                        at::autocast::get_autocast_dtype(device)});
      at::autocast::set_autocast_enabled(device, true);
      at::autocast::set_autocast_dtype(device, dtype);
    }
  }
  ~AutocastGuard() {
    for (const Before &state : before) {
      at::autocast::set_autocast_enabled(state.device, state.enabled);
      at::autocast::set_autocast_dtype(state.device, state.dtype);
    }
    if (at::autocast::decrement_nesting() == 0)
      at::autocast::clear_cache();
  }
  AutocastGuard(const AutocastGuard &) = delete;
  AutocastGuard &operator=(const AutocastGuard &) = delete;

private:
  struct Before {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  c10::SmallVector<Before, 2> before;
};

/// Where a value stands among the results; made into text only for messages.
struct Place {
  size_t index;
  const Place *parent = nullptr;
  std::string text() const {
    return parent ? parent->text() + "[" + std::to_string(index) + "]"
                  : "output " + std::to_string(index);
  }
};

template <typename Range>
std::string listText(const Range &values) {
  std::string text = "[";
  bool first = true;
  for (int64_t value : values) {
    text += (first ? "" : ", ") + std::to_string(value);
    first = false;
  }
  return text + "]";
}

std::string dtypeText(caffe2::TypeMeta dtype) {
  return std::string(c10::getDtypeNames(dtype.toScalarType()).first);
}

} // namespace

namespace intarsia::runtime {

/// Such a tensor has neither sizes nor strides, and says so by an exception.
static bool isNested(const c10::TensorImpl *tensor) {
  return tensor->key_set().has(c10::DispatchKey::NestedTensor);
}

/// What most calls return, one tensor whose promise has no symbols, in a form
/// that is compared at once.
struct PlainResult {
  bool active = false;
  bool anyIndex = true; // any device of the type fits
  plan::Slot slot = -1;
  c10::Device device = c10::kCPU;
  caffe2::TypeMeta dtype;
  c10::SmallVector<int64_t, 5> sizes, strides;

  bool fits(const c10::TensorImpl *tensor) const {
    c10::Device got = tensor->device();
    return !isNested(tensor) && tensor->dtype() == dtype &&
           got.type() == device.type() &&
           (anyIndex || got.index() == device.index()) &&
           tensor->layout() == c10::Layout::Strided &&
           same(tensor->sizes(), sizes) && same(tensor->strides(), strides);
  }

private:
  /// Not memcmp: there are one to five numbers.
  static bool same(c10::IntArrayRef got,
                   const c10::SmallVector<int64_t, 5> &want) {
    if (got.size() != want.size())
      return false;
    for (size_t i = 0; i < got.size(); ++i)
      if (got[i] != want[i])
        return false;
    return true;
  }
};

struct PreparedCall {
  PreparedCall(c10::OperatorHandle op, const CallSite &site)
      : step(*site.step), op(std::move(op)), exprs(*site.exprs),
        symbols(*site.symbols), strict(site.strict),
        isSimple(site.step->mutates.empty() && site.step->autocast.empty() &&
                 !site.step->flag),
        checksAlias(site.step->checkAlias), name(site.step->op) {
    makeExtractor(this->op);
    if (site.record)
      fakeLocation = site.record->fakeLocation;
    isAten = (name.rfind("aten::", 0) == 0 || name.rfind("prims::", 0) == 0) &&
             !(site.record && site.record->isForeign);
    // Eager comes through the operator's own autograd kernel, in which what its
    // kernel computes is not recorded.
    belowAutograd = !isAten && (hasKernel(c10::DispatchKey::Autograd) ||
                                hasKernel(c10::DispatchKey::AutogradCPU) ||
                                hasKernel(c10::DispatchKey::AutogradCUDA));
    // The kernel is given other strides than the fake was.
    freeLayout = this->op.hasTag(at::Tag::needs_contiguous_strides) ||
                 this->op.hasTag(at::Tag::needs_fixed_stride_order) ||
                 this->op.hasTag(at::Tag::flexible_layout);
  }

  void build(const CallSite &site);
  void run(Frame &frame, torch::jit::Stack &stack);
  void runFake(Frame &frame, torch::jit::Stack &stack);
  void receiveAll(Frame &frame, torch::jit::Stack &stack);

  const plan::Step &step;

  std::string at() const {
    return step.location.empty() ? "" : " (" + step.location + ")";
  }

private:
  bool hasKernel(c10::DispatchKey key) const {
    return op.hasKernelForDispatchKey(key) &&
           !op.isKernelFallthroughKernel(key);
  }

  [[noreturn]] void broken(const std::string &what) const {
    std::string remedy;
    if (isAten)
      remedy =
          "PyTorch's own implementations of this operator disagree; please "
          "report it to PyTorch.";
    else
      remedy =
          "Fix the fake implementation" +
          (fakeLocation.empty() ? std::string() : " (" + fakeLocation + ")") +
          " or the kernel: they must agree for all inputs.";
    throw Error(ErrorKind::Contract, name + ": " + what + at() + ". " + remedy);
  }
  [[noreturn]] void misfit(const c10::Argument &argument,
                           const std::string &what) const {
    throw Error(ErrorKind::Load, name + ": argument '" + argument.name() +
                                     "' of type " + argument.type()->str() +
                                     " cannot take " + what + at());
  }

  ArgPlan compile(const plan::Arg &arg, const c10::TypePtr &type,
                  const c10::Argument &argument, const CallSite &site);
  ArgPlan compileTuple(const plan::Arg &arg, const c10::TupleType &type,
                       const c10::Argument &argument, const CallSite &site);
  ArgPlan compileDict(const plan::Arg &arg,
                      const std::shared_ptr<c10::DictType> &type,
                      const c10::Argument &argument, const CallSite &site);
  c10::IValue boxConstant(const plan::Arg &arg, const c10::TypePtr &type,
                          const c10::Argument &argument, const CallSite &site);
  ResultPlan compile(const plan::Result &result);
  void collectInputs(const ArgPlan &arg);

  c10::IValue boxNumber(const Value &value, Target target) const;
  c10::IValue boxArgument(const ArgPlan &arg, const Frame &frame) const;
  void boxAll(const Frame &frame, torch::jit::Stack &stack) const;
  at::Tensor viewOf(const plan::Arg &view, const Frame &frame) const;

  int64_t extent(const Extent &extent, const Frame &frame) const {
    return extent.expr < 0 ? extent.constant
                           : exprs.integer(extent.expr, frame.symbols);
  }
  std::vector<int64_t> extents(const std::vector<Extent> &list,
                               const Frame &frame) const {
    std::vector<int64_t> values;
    for (const Extent &e : list)
      values.push_back(extent(e, frame));
    return values;
  }
  void receive(const ResultPlan &result, c10::IValue &&value, Frame &frame,
               const Place &place);
  void bindSymbols(const ResultPlan &result, const c10::IValue &value,
                   Frame &frame, const Place &place);
  void receiveTensor(const ResultPlan &result, at::Tensor tensor, Frame &frame,
                     const Place &place);
  void receiveNumber(const ResultPlan &result, const c10::IValue &value,
                     Frame &frame, const Place &place);
  void checkNumber(plan::ExprId expected, const c10::IValue &value,
                   const Frame &frame, const Place &place) const;
  void checkTied(const ResultPlan &result, const c10::IValue &value,
                 const Frame &frame, const Place &place) const;
  bool fits(const SpecPlan &spec, c10::TensorImpl *tensor,
            const Frame &frame) const;
  at::Tensor mend(const SpecPlan &spec, at::Tensor tensor, const Frame &frame,
                  const Place &place);
  void bind(int32_t symbol, int64_t bits, Frame &frame, const Place &place,
            const char *what = nullptr, int32_t dim = -1);
  void checkAliases(const Frame &frame) const;
  void checkAlias(
      const ResultPlan &result, const Place &place, const Frame &frame,
      std::vector<std::pair<c10::TensorImpl *, std::string>> &seen) const;

  void shareVersion(const Frame &frame, const torch::jit::Stack &stack) const;
  void parseAutocast();
  void callUnderAutocast(c10::DispatchKeySet keys, Frame &frame,
                         torch::jit::Stack &stack);
  void callDirectly(c10::DispatchKeySet keys, Frame &frame,
                    torch::jit::Stack &stack);
  void dispatch(const c10::OperatorHandle &op, c10::DispatchKeySet keys,
                torch::jit::Stack &stack);

  c10::OperatorHandle op;
  /// Where PyTorch does not show the operator's own.
  std::unique_ptr<c10::DispatchKeyExtractor> ownExtractor;

  template <typename Handle>
  void makeExtractor(const Handle &handle) {
    if constexpr (!requires { handle.dispatchKeyExtractor(); }) {
      ownExtractor = std::make_unique<c10::DispatchKeyExtractor>(
          c10::DispatchKeyExtractor::make(handle.schema()));
      // The key of ordinary tensors and threads that, without a kernel of its
      // own, passes calls on; `tracedKeys` has the others.
      constexpr c10::DispatchKey passing = c10::DispatchKey::BackendSelect;
      ownExtractor->setOperatorHasFallthroughForKey(
          passing, !handle.hasKernelForDispatchKey(passing));
    }
  }
  template <typename Handle>
  const c10::DispatchKeyExtractor &extractor(const Handle &handle) const {
    if constexpr (requires { handle.dispatchKeyExtractor(); })
      return handle.dispatchKeyExtractor();
    else
      return *ownExtractor;
  }
  const ExprTable &exprs;
  const std::vector<plan::Symbol> &symbols;
  bool strict, isAten = false, anyBinds = false;
  bool isSimple; // nothing to arrange around the call
  bool checksAlias;
  bool isView = false; // a view operator of PyTorch's
  bool belowAutograd, freeLayout;
  std::vector<ArgPlan> args;
  PlainResult plain;
  /// Slots of tensors among the arguments, for aliases; their names beside.
  c10::SmallVector<plan::Slot, 4> inputs;
  std::vector<std::string> inputNames;
  std::vector<ResultPlan> results;
  std::string name, fakeLocation;
  Autocast autocast;
  std::optional<Product> product;
  std::string currentArgument;
};

//===----------------------------------------------------------------------===//
// Preparing
//===----------------------------------------------------------------------===//

static Target targetOf(const c10::TypePtr &type) {
  switch (type->kind()) {
  case c10::TypeKind::IntType:
  case c10::TypeKind::SymIntType:
  case c10::TypeKind::ScalarTypeType:
  case c10::TypeKind::LayoutType:
  case c10::TypeKind::MemoryFormatType:
    return Target::Int;
  case c10::TypeKind::FloatType:
  case c10::TypeKind::SymFloatType:
    return Target::Float;
  case c10::TypeKind::BoolType:
  case c10::TypeKind::SymBoolType:
    return Target::Bool;
  case c10::TypeKind::TensorType:
    return Target::Tensor;
  default:
    return Target::Natural;
  }
}

/// A number where a tensor is wanted, as Python's argument parser makes it: it
/// does not take part in dtype promotion as a tensor would.
static c10::IValue wrappedNumber(const at::Scalar &scalar) {
  at::Tensor tensor = c10::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

static std::optional<c10::Layout> layoutFromName(std::string text) {
  if (text.rfind("torch.", 0) == 0)
    text.erase(0, 6);
  if (text == "strided")
    return c10::Layout::Strided;
  if (text == "sparse_coo")
    return c10::Layout::Sparse;
  if (text == "sparse_csr")
    return c10::Layout::SparseCsr;
  if (text == "sparse_csc")
    return c10::Layout::SparseCsc;
  if (text == "sparse_bsr")
    return c10::Layout::SparseBsr;
  if (text == "sparse_bsc")
    return c10::Layout::SparseBsc;
  if (text == "_mkldnn")
    return c10::Layout::Mkldnn;
  if (text == "jagged")
    return c10::Layout::Jagged;
  return std::nullopt;
}

static std::optional<c10::MemoryFormat> memoryFormatFromName(std::string text) {
  if (text.rfind("torch.", 0) == 0)
    text.erase(0, 6);
  if (text == "contiguous_format")
    return c10::MemoryFormat::Contiguous;
  if (text == "preserve_format")
    return c10::MemoryFormat::Preserve;
  if (text == "channels_last")
    return c10::MemoryFormat::ChannelsLast;
  if (text == "channels_last_3d")
    return c10::MemoryFormat::ChannelsLast3d;
  return std::nullopt;
}

c10::IValue PreparedCall::boxConstant(const plan::Arg &arg,
                                      const c10::TypePtr &type,
                                      const c10::Argument &argument,
                                      const CallSite &site) {
  Target target = targetOf(type);
  bool any = type->kind() == c10::TypeKind::AnyType;
  bool number = type->kind() == c10::TypeKind::NumberType || any;
  switch (arg.kind) {
  case plan::Arg::Kind::Int:
    if (target == Target::Int || number)
      return arg.integer;
    if (target == Target::Float)
      return double(arg.integer);
    if (target == Target::Bool && (arg.integer == 0 || arg.integer == 1))
      return arg.integer == 1;
    if (target == Target::Tensor)
      return wrappedNumber(arg.integer);
    if (type->kind() == c10::TypeKind::ComplexType)
      return c10::complex<double>(double(arg.integer), 0);
    misfit(argument, "the integer " + std::to_string(arg.integer));
  case plan::Arg::Kind::Float:
    if (target == Target::Float || number)
      return arg.real;
    if (target == Target::Tensor)
      return wrappedNumber(arg.real);
    if (type->kind() == c10::TypeKind::ComplexType)
      return c10::complex<double>(arg.real, 0);
    misfit(argument, "the float " + std::to_string(arg.real));
  case plan::Arg::Kind::Bool:
    if (target == Target::Bool || number)
      return arg.boolean;
    if (target == Target::Int) // as in Python, where bool is an int
      return int64_t(arg.boolean);
    if (target == Target::Float)
      return double(arg.boolean);
    if (target == Target::Tensor)
      return wrappedNumber(arg.boolean);
    misfit(argument, "a bool");
  case plan::Arg::Kind::Complex: {
    c10::complex<double> value(arg.real, arg.imaginary);
    if (number || type->kind() == c10::TypeKind::ComplexType)
      return value;
    if (target == Target::Tensor)
      return wrappedNumber(value);
    misfit(argument, "a complex number");
  }
  case plan::Arg::Kind::String:
    if (type->kind() == c10::TypeKind::StringType || any)
      return arg.text;
    if (type->kind() == c10::TypeKind::DeviceObjType)
      return c10::Device(arg.text);
    misfit(argument, "the string '" + arg.text + "'");
  case plan::Arg::Kind::DType:
    if (target == Target::Int || any)
      return int64_t(arg.dtype);
    misfit(argument, "a dtype");
  case plan::Arg::Kind::Device:
    if (type->kind() == c10::TypeKind::DeviceObjType || any)
      return c10::Device(arg.text);
    misfit(argument, "a device");
  case plan::Arg::Kind::Layout:
    if (auto layout = layoutFromName(arg.text))
      if (target == Target::Int || any)
        return int64_t(*layout);
    misfit(argument, "the layout '" + arg.text + "'");
  case plan::Arg::Kind::MemoryFormat:
    if (auto format = memoryFormatFromName(arg.text))
      if (target == Target::Int || any)
        return int64_t(*format);
    misfit(argument, "the memory format '" + arg.text + "'");
  case plan::Arg::Kind::Object: {
    std::string error = "this process has no side table of objects (an "
                        "artifact cannot hold one)";
    Boxed *boxed = site.boxObject ? site.boxObject(site.boxContext, arg.integer,
                                                   &type, &error)
                                  : nullptr;
    if (!boxed)
      misfit(argument, "object " + std::to_string(arg.integer) + ": " + error);
    c10::IValue value = *unwrap(boxed);
    delete unwrap(boxed);
    return value;
  }
  default:
    misfit(argument, "an argument of this kind");
  }
}

ArgPlan PreparedCall::compile(const plan::Arg &arg, const c10::TypePtr &type,
                              const c10::Argument &argument,
                              const CallSite &site) {
  using Kind = plan::Arg::Kind;
  ArgPlan out;
  if (auto optional = type->cast<c10::OptionalType>()) {
    if (arg.kind == Kind::None)
      return out;
    return compile(arg, optional->getElementType(), argument, site);
  }
  out.target = targetOf(type);
  switch (arg.kind) {
  case Kind::None:
    if (type->kind() == c10::TypeKind::NoneType ||
        type->kind() == c10::TypeKind::AnyType ||
        type->kind() == c10::TypeKind::TensorType) // an undefined tensor
      return out;
    misfit(argument, "None");
  case Kind::Slot:
    out.form = ArgPlan::Form::Slot;
    out.slot = arg.slot;
    return out;
  case Kind::Expr:
    if (out.target == Target::Int &&
        exprs.type(arg.expr) == ExprTable::Type::Float)
      misfit(argument, "the float expression '" + exprs.text(arg.expr) + "'");
    // A single number for int[2] means that number twice.
    if (auto list = type->cast<c10::ListType>()) {
      plan::Arg many;
      many.kind = Kind::List;
      many.list.assign(size_t(argument.N().value_or(1)), arg);
      return compile(many, type, argument, site);
    }
    out.form = ArgPlan::Form::Expr;
    out.expr = arg.expr;
    return out;
  case Kind::View:
    out.form = ArgPlan::Form::View;
    out.slot = arg.slot;
    out.view = &arg;
    return out;
  case Kind::List: {
    if (auto tuple = type->cast<c10::TupleType>())
      return compileTuple(arg, *tuple, argument, site);
    if (auto dict = type->cast<c10::DictType>())
      return compileDict(arg, dict, argument, site);
    c10::TypePtr elementType;
    if (auto list = type->cast<c10::ListType>())
      elementType = list->getElementType();
    else if (type->kind() == c10::TypeKind::AnyType)
      elementType = c10::AnyType::get();
    else
      misfit(argument, "a list");
    out.form = ArgPlan::Form::List;
    out.elementType = elementType;
    bool constant = true;
    for (const plan::Arg &member : arg.list) {
      out.list.push_back(compile(member, elementType, argument, site));
      constant &= out.list.back().form == ArgPlan::Form::Constant;
    }
    if (constant) {
      c10::impl::GenericList values(elementType);
      values.reserve(out.list.size());
      for (const ArgPlan &member : out.list)
        values.push_back(member.constant);
      out = ArgPlan();
      out.constant = c10::IValue(std::move(values));
    }
    return out;
  }
  case Kind::Function:
    misfit(argument, "a function");
  default:
    if (auto list = type->cast<c10::ListType>();
        list && arg.kind != Kind::Object) {
      plan::Arg many;
      many.kind = Kind::List;
      many.list.assign(size_t(argument.N().value_or(1)), arg);
      return compile(many, type, argument, site);
    }
    out.constant = boxConstant(arg, type, argument, site);
    return out;
  }
}

ArgPlan PreparedCall::compileTuple(const plan::Arg &arg,
                                   const c10::TupleType &type,
                                   const c10::Argument &argument,
                                   const CallSite &site) {
  c10::ArrayRef<c10::TypePtr> types = type.elements();
  if (types.size() != arg.list.size())
    misfit(argument, std::to_string(arg.list.size()) + " values");
  ArgPlan out;
  out.form = ArgPlan::Form::Tuple;
  for (size_t i = 0; i < types.size(); ++i)
    out.list.push_back(compile(arg.list[i], types[i], argument, site));
  return out;
}

/// A dictionary is the list of its keys and values in turn.
ArgPlan PreparedCall::compileDict(const plan::Arg &arg,
                                  const std::shared_ptr<c10::DictType> &type,
                                  const c10::Argument &argument,
                                  const CallSite &site) {
  if (arg.list.size() % 2)
    misfit(argument, "a key without a value");
  ArgPlan out;
  out.form = ArgPlan::Form::Dict;
  out.elementType = type;
  for (size_t i = 0; i < arg.list.size(); ++i)
    out.list.push_back(
        compile(arg.list[i], i % 2 ? type->getValueType() : type->getKeyType(),
                argument, site));
  return out;
}

ResultPlan PreparedCall::compile(const plan::Result &result) {
  ResultPlan out;
  out.kind = result.kind;
  out.slot = result.slot;
  out.data = &result;
  out.expect = result.expect;
  out.binds = result.bindsSymbol >= 0 || !result.bindsSize.empty() ||
              !result.bindsStride.empty();
  if (result.spec) {
    SpecPlan spec;
    spec.dtype = c10::scalarTypeToTypeMeta(
        static_cast<c10::ScalarType>(result.spec->dtype));
    spec.device = c10::Device(result.spec->device);
    auto extent = [&](plan::ExprId id) {
      Extent e;
      if (exprs.isConstant(id))
        e.constant = exprs.integer(id, nullptr);
      else
        e.expr = id;
      return e;
    };
    for (plan::ExprId id : result.spec->sizes)
      spec.sizes.push_back(extent(id));
    for (plan::ExprId id : result.spec->strides)
      spec.strides.push_back(extent(id));
    out.spec = std::move(spec);
  }
  for (const plan::Result &member : result.list) {
    out.list.push_back(compile(member));
    out.binds |= out.list.back().binds;
  }
  anyBinds |= out.binds;
  return out;
}

void PreparedCall::collectInputs(const ArgPlan &arg) {
  if (arg.form == ArgPlan::Form::Slot || arg.form == ArgPlan::Form::View) {
    inputs.push_back(arg.slot);
    inputNames.push_back(currentArgument);
  }
  for (const ArgPlan &member : arg.list)
    collectInputs(member);
}

/// A dtype that autocast computes in, by its name in plans.
static std::optional<c10::ScalarType> autocastDtype(const std::string &name) {
  if (name == "bf16")
    return c10::ScalarType::BFloat16;
  if (name == "f16")
    return c10::ScalarType::Half;
  if (name == "f32")
    return c10::ScalarType::Float;
  if (name == "f64")
    return c10::ScalarType::Double;
  return std::nullopt;
}

void PreparedCall::parseAutocast() {
  std::istringstream list(step.autocast);
  for (std::string entry; std::getline(list, entry, ',');) {
    size_t equals = entry.find('=');
    std::optional<c10::ScalarType> dtype;
    if (equals != std::string::npos)
      dtype = autocastDtype(entry.substr(equals + 1));
    if (!dtype)
      throw Error(ErrorKind::Load,
                  name + ": '" + step.autocast + "' is no autocast" + at());
    autocast.emplace_back(c10::Device(entry.substr(0, equals)).type(), *dtype);
  }
}

void PreparedCall::build(const CallSite &site) {
  parseAutocast();
  const c10::FunctionSchema &schema = op.schema();
  if (site.record && !site.record->schema.empty()) {
    std::ostringstream current;
    current << schema;
    if (current.str() != site.record->schema) {
      bool compatible = false;
      try {
        compatible = schema.isBackwardCompatibleWith(
            torch::jit::parseSchema(site.record->schema));
      } catch (const std::exception &) {
        // A schema that this version cannot read is not the same.
      }
      if (!compatible)
        throw Error(ErrorKind::Load,
                    name +
                        ": the registered schema is not the one that the "
                        "program was compiled for.\n  compiled for: " +
                        site.record->schema +
                        "\n  registered:   " + current.str() +
                        "\nCompile the program again, or load the operator "
                        "library that it was compiled with.");
    }
  }
  const auto &arguments = schema.arguments();
  if (step.args.size() > arguments.size())
    throw Error(ErrorKind::Load, name + ": the call has " +
                                     std::to_string(step.args.size()) +
                                     " arguments, the schema " +
                                     std::to_string(arguments.size()) + at());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i < step.args.size()) {
      currentArgument = arguments[i].name();
      args.push_back(
          compile(step.args[i], arguments[i].type(), arguments[i], site));
      if (step.checkAlias)
        collectInputs(args.back());
      continue;
    }
    if (!arguments[i].default_value())
      throw Error(ErrorKind::Load, name + ": argument '" + arguments[i].name() +
                                       "' is missing in the plan" + at());
    ArgPlan constant;
    constant.constant = *arguments[i].default_value();
    args.push_back(std::move(constant));
  }
  if (step.results.size() > schema.returns().size())
    throw Error(ErrorKind::Load, name + ": the plan expects " +
                                     std::to_string(step.results.size()) +
                                     " results, the schema has " +
                                     std::to_string(schema.returns().size()) +
                                     at());
  for (size_t i = 0; i < step.results.size(); ++i) {
    results.push_back(compile(step.results[i]));
    const c10::Argument &declared = schema.returns()[i];
    results.back().declaredAlias = declared.alias_info() != nullptr;
    isView |= isAten && declared.alias_info() &&
              !declared.alias_info()->isWrite() && !args.empty() &&
              args[0].form == ArgPlan::Form::Slot;
    if (!isAten && results.back().kind == plan::Result::Kind::Tied &&
        declared.alias_info())
      for (size_t a = 0; a < arguments.size() && a < args.size(); ++a)
        if (const c10::AliasInfo *alias = arguments[a].alias_info();
            alias && alias->beforeSets() == declared.alias_info()->beforeSets())
          results.back().argument = a;
    // A number that nobody uses leaves no trace in an exported program.
    c10::TypeKind kind = declared.type()->kind();
    if (results.back().kind == plan::Result::Kind::None &&
        kind != c10::TypeKind::TensorType &&
        kind != c10::TypeKind::OptionalType && kind != c10::TypeKind::AnyType &&
        kind != c10::TypeKind::NoneType)
      results.back().kind = plan::Result::Kind::Ignore;
  }
  if (results.size() != 1 || anyBinds || !results[0].spec ||
      results[0].kind != plan::Result::Kind::Tensor || results[0].slot < 0)
    return;
  const SpecPlan &spec = *results[0].spec;
  plain.active = true;
  plain.slot = results[0].slot;
  plain.dtype = spec.dtype;
  plain.device = spec.device;
  plain.anyIndex = !spec.device.has_index() || spec.device.is_cpu();
  auto constants = [&](const std::vector<Extent> &from,
                       c10::SmallVector<int64_t, 5> &to) {
    for (const Extent &extent : from) {
      plain.active &= extent.expr < 0;
      to.push_back(extent.constant);
    }
  };
  constants(spec.sizes, plain.sizes);
  constants(spec.strides, plain.strides);
  if (isSimple && isAten)
    product = Product::of(name, site.products,
                          /*sizesAreKnown=*/symbols.empty());
  isSimple &= !product;
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

c10::IValue PreparedCall::boxNumber(const Value &value, Target target) const {
  switch (value.kind) {
  case Value::Kind::Int:
    if (target == Target::Float)
      return double(value.integer);
    if (target == Target::Tensor)
      return wrappedNumber(value.integer);
    if (target == Target::Bool)
      return value.integer != 0;
    return value.integer;
  case Value::Kind::Float:
    if (target == Target::Tensor)
      return wrappedNumber(value.real);
    if (target == Target::Int || target == Target::Bool)
      throw Error(ErrorKind::Internal,
                  name + ": a float is passed where the schema has an integer" +
                      at());
    return value.real;
  case Value::Kind::Bool:
    if (target == Target::Float)
      return double(value.boolean);
    if (target == Target::Tensor)
      return wrappedNumber(value.boolean);
    if (target == Target::Int)
      return int64_t(value.boolean);
    return value.boolean;
  case Value::Kind::Boxed:
    return *unwrap(value.boxed);
  case Value::Kind::None:
    return c10::IValue();
  case Value::Kind::Tensor:
    return c10::IValue(share(value.tensor));
  case Value::Kind::Pointer:
    break;
  }
  throw Error(ErrorKind::Internal,
              name + ": arena memory is passed to an operator" + at());
}

at::Tensor PreparedCall::viewOf(const plan::Arg &view,
                                const Frame &frame) const {
  const Value &base = frame.slots[view.slot];
  if (base.kind != Value::Kind::Tensor)
    throw Error(ErrorKind::Internal,
                name + ": a view of something that is not a tensor" + at());
  c10::SmallVector<int64_t, 8> sizes, strides;
  for (plan::ExprId id : view.sizes)
    sizes.push_back(exprs.integer(id, frame.symbols));
  for (plan::ExprId id : view.strides)
    strides.push_back(exprs.integer(id, frame.symbols));
  c10::TensorImpl *tensor = unwrap(base.tensor);
  int64_t first =
      tensor->storage_offset() + exprs.integer(view.offset, frame.symbols);
  // How a written view lies in its base is PyTorch's word, and it does not say
  // so when the view has another dtype.
  int64_t end = first + 1;
  for (size_t i = 0; i < sizes.size(); ++i)
    end += (sizes[i] - 1) * strides[i];
  bool isEmpty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  if (!isEmpty && (first < 0 || size_t(end) * tensor->dtype().itemsize() >
                                    tensor->storage().nbytes()))
    throw Error(ErrorKind::Internal,
                name + ": a view that it writes, of size " + listText(sizes) +
                    " and strides " + listText(strides) +
                    ", reaches beyond the memory of its base" + at());
  return makeView(tensor, sizes, strides, first);
}

c10::IValue PreparedCall::boxArgument(const ArgPlan &arg,
                                      const Frame &frame) const {
  switch (arg.form) {
  case ArgPlan::Form::Constant:
    return arg.constant;
  case ArgPlan::Form::Slot: {
    const Value &value = frame.slots[arg.slot];
    if (value.kind == Value::Kind::Tensor) [[likely]]
      return c10::IValue(share(value.tensor));
    return boxNumber(value, arg.target);
  }
  case ArgPlan::Form::Expr: {
    int64_t bits = exprs.bits(arg.expr, frame.symbols);
    switch (exprs.type(arg.expr)) {
    case ExprTable::Type::Int:
      return boxNumber(Value::of(bits), arg.target);
    case ExprTable::Type::Float:
      return boxNumber(Value::of(std::bit_cast<double>(bits)), arg.target);
    case ExprTable::Type::Bool:
      return boxNumber(Value::of(bits != 0), arg.target);
    }
    return c10::IValue();
  }
  case ArgPlan::Form::View:
    return c10::IValue(viewOf(*arg.view, frame));
  case ArgPlan::Form::Tuple: {
    std::vector<c10::IValue> values;
    for (const ArgPlan &member : arg.list)
      values.push_back(boxArgument(member, frame));
    return c10::ivalue::Tuple::create(std::move(values));
  }
  case ArgPlan::Form::List: {
    c10::impl::GenericList values(arg.elementType);
    values.reserve(arg.list.size());
    for (const ArgPlan &member : arg.list)
      values.push_back(boxArgument(member, frame));
    return c10::IValue(std::move(values));
  }
  case ArgPlan::Form::Dict: {
    const auto &type = arg.elementType->expectRef<c10::DictType>();
    c10::impl::GenericDict values(type.getKeyType(), type.getValueType());
    for (size_t i = 0; i + 1 < arg.list.size(); i += 2)
      values.insert(boxArgument(arg.list[i], frame),
                    boxArgument(arg.list[i + 1], frame));
    return c10::IValue(std::move(values));
  }
  }
  return c10::IValue();
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

bool PreparedCall::fits(const SpecPlan &spec, c10::TensorImpl *tensor,
                        const Frame &frame) const {
  if (tensor->dtype() != spec.dtype || isNested(tensor) ||
      tensor->layout() != c10::Layout::Strided)
    return false;
  c10::Device device = tensor->device();
  if (device.type() != spec.device.type() ||
      (spec.device.has_index() && !device.is_cpu() &&
       device.index() != spec.device.index()))
    return false;
  c10::IntArrayRef sizes = tensor->sizes();
  if (sizes.size() != spec.sizes.size())
    return false;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != extent(spec.sizes[i], frame))
      return false;
  if (!step.fixStrides)
    return true;
  c10::IntArrayRef strides = tensor->strides();
  for (size_t i = 0; i < strides.size(); ++i)
    if (strides[i] != extent(spec.strides[i], frame) && sizes[i] > 1)
      return tensor->numel() == 0;
  return true;
}

/// Once for an operator's output, whatever the sizes and the programs.
static bool isFirstWarning(const std::string &subject) {
  static std::mutex mutex;
  static std::set<std::string> given;
  std::lock_guard<std::mutex> lock(mutex);
  return given.insert(subject).second;
}

/// The slow path of a result that is not exactly as promised: an error, or a
/// copy when only the strides differ.
at::Tensor PreparedCall::mend(const SpecPlan &spec, at::Tensor tensor,
                              const Frame &frame, const Place &place) {
  std::string promise = ", but its fake implementation promised ";
  if (isNested(tensor.unsafeGetTensorImpl()))
    broken(place.text() + " is a nested tensor" + promise +
           "a tensor of size " + listText(extents(spec.sizes, frame)));
  if (tensor.layout() != c10::Layout::Strided) {
    std::ostringstream layout;
    layout << tensor.layout();
    broken(place.text() + " has the layout " + layout.str() + promise +
           "a strided tensor");
  }
  // Some of PyTorch's own fakes are wrong about dtypes; the graph behind was
  // traced with what they said. In an autocast region it is the program.
  if (tensor.dtype() != spec.dtype && isAten && step.flag)
    throw Error(ErrorKind::Contract,
                name + ": " + place.text() + " has dtype " +
                    dtypeText(tensor.dtype()) + " under autocast" + at() +
                    ", but the program was recorded with " +
                    dtypeText(spec.dtype) +
                    ": torch.export.export(..., strict=True) records dtypes "
                    "as if there were no autocast. Export with strict=False");
  if (tensor.dtype() != spec.dtype && !isAten)
    broken(place.text() + " has dtype " + dtypeText(tensor.dtype()) + promise +
           dtypeText(spec.dtype) +
           (autocast.empty()
                ? ""
                : "; what the kernel calls is cast by autocast (" +
                      step.autocast +
                      "), as in eager: convert the result to its input's "
                      "dtype, or use register_autocast"));
  c10::Device device = tensor.device();
  if (device.type() != spec.device.type() ||
      (spec.device.has_index() && !device.is_cpu() &&
       device.index() != spec.device.index()))
    broken(place.text() + " is on " + device.str() + promise +
           spec.device.str());
  std::vector<int64_t> sizes = extents(spec.sizes, frame);
  if (tensor.sizes() != c10::IntArrayRef(sizes))
    broken(place.text() + " has size " + listText(tensor.sizes()) + promise +
           listText(sizes));
  std::vector<int64_t> strides = extents(spec.strides, frame);
  std::string what =
      place.text() + " has strides " + listText(tensor.strides()) + " (size " +
      listText(tensor.sizes()) + ")" + promise + listText(strides);
  if (strict && !freeLayout)
    broken(what);
  if (!isAten && !freeLayout && isFirstWarning(name + place.text()))
    shim::warn(
        name + ": " + what + at() +
        ". It is copied into the promised layout at every call. To save the "
        "copy, return the kernel's strides from the fake implementation" +
        (fakeLocation.empty() ? "" : " (" + fakeLocation + ")") + ".");
  at::Tensor mended =
      makeEmpty(spec.dtype.toScalarType(), device, sizes, strides);
  copyElements(mended, tensor);
  return mended;
}

void PreparedCall::bind(int32_t symbol, int64_t bits, Frame &frame,
                        const Place &place, const char *what, int32_t dim) {
  const plan::Symbol &info = symbols[size_t(symbol)];
  if (!info.isFloat &&
      ((info.min && bits < *info.min) || (info.max && bits > *info.max))) {
    std::string subject = place.text();
    if (what)
      subject += std::string(": the ") + what;
    if (dim >= 0)
      subject += " of dimension " + std::to_string(dim);
    std::string range = info.min && info.max
                            ? "from " + std::to_string(*info.min) + " to " +
                                  std::to_string(*info.max)
                        : info.min ? "of at least " + std::to_string(*info.min)
                                   : "of at most " + std::to_string(*info.max);
    subject += " is " + std::to_string(bits);
    // PyTorch's own operators promise nothing of a value: the program does.
    if (isAten)
      throw Error(ErrorKind::Guard, name + ": " + subject +
                                        ", but the program was traced with a "
                                        "check (torch._check) for a value " +
                                        range + at());
    broken(subject + ", but its fake implementation promised a value " + range);
  }
  frame.symbols[symbol] = bits;
}

/// Binds the unbacked symbols that a result defines, before any spec is
/// checked: a size may be another result.
void PreparedCall::bindSymbols(const ResultPlan &result,
                               const c10::IValue &value, Frame &frame,
                               const Place &place) {
  if (!result.list.empty() && value.isList()) {
    c10::ArrayRef<c10::IValue> members = value.toListRef();
    for (size_t i = 0; i < members.size() && i < result.list.size(); ++i)
      bindSymbols(result.list[i], members[i], frame, Place{i, &place});
  }
  const plan::Result &data = *result.data;
  if (data.bindsSymbol >= 0) {
    bool isFloat = symbols[size_t(data.bindsSymbol)].isFloat;
    const char *wanted = isFloat ? "a float" : "an integer";
    if (isFloat && value.isDouble())
      bind(data.bindsSymbol, std::bit_cast<int64_t>(value.toDouble()), frame,
           place);
    else if (!isFloat && value.isInt())
      bind(data.bindsSymbol, value.toInt(), frame, place);
    else if (!isFloat && value.isBool())
      bind(data.bindsSymbol, value.toBool(), frame, place);
    else if (!isFloat && result.spec && value.isTensor() &&
             value.toTensor().defined())
      bind(data.bindsSymbol, value.toTensor().storage_offset(), frame, place,
           "storage offset");
    else
      broken(place.text() + " is " + value.tagKind() +
             ", but its fake implementation promised " + wanted);
  }
  if (data.bindsSize.empty() && data.bindsStride.empty())
    return;
  if (!value.isTensor() || !value.toTensor().defined())
    broken(place.text() + " is " + value.tagKind() +
           ", but its fake implementation promised a tensor");
  const at::Tensor &tensor = value.toTensor();
  if (isNested(tensor.unsafeGetTensorImpl()))
    broken(place.text() +
           " is a nested tensor, but its fake implementation promised a plain "
           "one");
  if (result.spec && size_t(tensor.dim()) != result.spec->sizes.size())
    broken(place.text() + " has " + std::to_string(tensor.dim()) +
           " dimensions, but its fake implementation promised " +
           std::to_string(result.spec->sizes.size()));
  for (auto [symbol, dim] : data.bindsSize)
    bind(symbol, tensor.size(dim), frame, place, "size", dim);
  for (auto [symbol, dim] : data.bindsStride)
    bind(symbol, tensor.stride(dim), frame, place, "stride", dim);
}

void PreparedCall::receiveTensor(const ResultPlan &result, at::Tensor tensor,
                                 Frame &frame, const Place &place) {
  if (!tensor.defined()) {
    if (result.spec)
      broken(place.text() +
             " is None, but its fake implementation promised a tensor");
    return; // the slot stays None
  }
  c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  if (result.spec && !fits(*result.spec, impl, frame)) [[unlikely]]
    tensor = mend(*result.spec, std::move(tensor), frame, place);
  if (result.slot >= 0)
    frame.slots[result.slot] = Value::of(give(std::move(tensor)));
}

void PreparedCall::receiveNumber(const ResultPlan &result,
                                 const c10::IValue &value, Frame &frame,
                                 const Place &place) {
  Value number;
  if (value.isInt())
    number = Value::of(value.toInt());
  else if (value.isDouble())
    number = Value::of(value.toDouble());
  else if (value.isBool())
    number = Value::of(value.toBool());
  else if (value.isSymInt())
    number = Value::of(value.toSymInt().guard_int(__FILE__, __LINE__));
  else if (value.isSymFloat())
    number = Value::of(value.toSymFloat().guard_float(__FILE__, __LINE__));
  else if (value.isSymBool())
    number = Value::of(value.toSymBool().guard_bool(__FILE__, __LINE__));
  else if (!value.isTensor() && !value.isNone())
    number = Value::of(box(value));
  else
    broken(place.text() + " is " + value.tagKind() +
           ", but its fake implementation promised a number");
  if (result.slot >= 0)
    frame.slots[result.slot] = number;
  else if (number.kind == Value::Kind::Boxed)
    delete unwrap(number.boxed);
}

/// The program was traced with the number that the fake returned.
void PreparedCall::checkNumber(plan::ExprId expected, const c10::IValue &value,
                               const Frame &frame, const Place &place) const {
  int64_t bits = exprs.bits(expected, frame.symbols);
  auto differs = [&](auto given, auto promised) {
    std::ostringstream text;
    text << std::boolalpha << place.text() << " is " << given
         << ", but its fake implementation promised " << promised
         << ". (For a size that only the kernel knows, return "
            "torch.library.get_ctx().new_dynamic_size() from the fake.)";
    broken(text.str());
  };
  switch (exprs.type(expected)) {
  case ExprTable::Type::Int:
    if (value.isInt() && value.toInt() != bits)
      differs(value.toInt(), bits);
    if (value.isDouble() && value.toDouble() != double(bits)) // a Scalar
      differs(value.toDouble(), bits);
    return;
  case ExprTable::Type::Float: {
    double promised = std::bit_cast<double>(bits);
    if (value.isInt() && double(value.toInt()) != promised) // a Scalar
      differs(value.toInt(), promised);
    if (value.isDouble() && value.toDouble() != promised &&
        !(std::isnan(value.toDouble()) && std::isnan(promised)))
      differs(value.toDouble(), promised);
    return;
  }
  case ExprTable::Type::Bool:
    if (value.isBool() && value.toBool() != (bits != 0))
      differs(value.toBool(), bits != 0);
    return;
  }
}

/// Null when the tensor has none.
static const void *storageOf(const c10::TensorImpl *tensor) {
  return tensor->unsafe_storage().unsafeGetStorageImpl();
}

static bool sharesStorage(const Value &value, const void *storage) {
  return value.kind == Value::Kind::Tensor &&
         storageOf(unwrap(value.tensor)) == storage;
}

/// The program goes on with the argument.
void PreparedCall::checkTied(const ResultPlan &result, const c10::IValue &value,
                             const Frame &frame, const Place &place) const {
  if (!result.argument || args[*result.argument].slot < 0 || !value.isTensor())
    return;
  const Value &argument = frame.slots[args[*result.argument].slot];
  if (!sharesStorage(argument, storageOf(value.unsafeToTensorImpl())))
    throw Error(
        ErrorKind::Contract,
        name + ": " + place.text() +
            " is another tensor than argument "
            "'" +
            op.schema().arguments()[*result.argument].name() +
            "', which its schema says it returns" + at() +
            ". Return the argument itself from the kernel, or declare "
            "a result of its own in the schema (Tensor, without (a!)).");
}

void PreparedCall::receive(const ResultPlan &result, c10::IValue &&value,
                           Frame &frame, const Place &place) {
  if (result.expect >= 0)
    checkNumber(result.expect, value, frame, place);
  switch (result.kind) {
  case plan::Result::Kind::Tied:
    return checkTied(result, value, frame, place);
  case plan::Result::Kind::Ignore:
    // What PyTorch's own fakes promise of results that nobody reads is not
    // always true, and nobody's mistake that could be put right.
    if ((!result.spec || isAten) && !result.binds)
      return;
    [[fallthrough]];
  case plan::Result::Kind::Tensor:
    if (value.isNone())
      return receiveTensor(result, at::Tensor(), frame, place);
    if (!value.isTensor())
      broken(place.text() + " is " + value.tagKind() +
             ", but its fake implementation promised a tensor");
    return receiveTensor(result, std::move(value).toTensor(), frame, place);
  case plan::Result::Kind::Number:
    return receiveNumber(result, value, frame, place);
  case plan::Result::Kind::None:
    if (value.isNone() || (value.isTensor() && !value.toTensor().defined()))
      return;
    broken(place.text() + " is " + value.tagKind() +
           ", but its fake implementation promised None");
  case plan::Result::Kind::List: {
    if (!value.isList())
      broken(place.text() + " is " + value.tagKind() +
             ", but its fake implementation promised a list");
    c10::ArrayRef<c10::IValue> members = value.toListRef();
    if (members.size() != result.list.size())
      broken(place.text() + " has " + std::to_string(members.size()) +
             " members, but its fake implementation promised " +
             std::to_string(result.list.size()));
    for (size_t i = 0; i < members.size(); ++i)
      receive(result.list[i], c10::IValue(members[i]), frame, Place{i, &place});
    return;
  }
  }
}

static bool mayOverlap(const c10::TensorImpl *a, const c10::TensorImpl *b) {
  auto info = [](const c10::TensorImpl *tensor) {
    TensorInfo out = {};
    out.dim = tensor->dim();
    out.sizes = tensor->sizes().data();
    out.strides = tensor->strides().data();
    out.storageOffset = tensor->storage_offset();
    out.dtype = int16_t(tensor->dtype().toScalarType());
    return out;
  };
  return mayOverlap(info(a), info(b));
}

void PreparedCall::checkAlias(
    const ResultPlan &result, const Place &place, const Frame &frame,
    std::vector<std::pair<c10::TensorImpl *, std::string>> &seen) const {
  for (size_t i = 0; i < result.list.size(); ++i)
    checkAlias(result.list[i], Place{i, &place}, frame, seen);
  if (result.kind != plan::Result::Kind::Tensor || result.slot < 0 ||
      result.declaredAlias)
    return;
  const Value &value = frame.slots[result.slot];
  if (value.kind != Value::Kind::Tensor)
    return;
  c10::TensorImpl *tensor = unwrap(value.tensor);
  const void *storage = storageOf(tensor);
  if (!storage || tensor->numel() == 0)
    return;
  auto refuse = [&](const std::string &other) {
    throw Error(ErrorKind::Contract,
                name + ": " + place.text() + " shares memory with " + other +
                    ", which its schema does not declare" + at() +
                    ". Return a copy from the kernel (for example x.clone())" +
                    (fakeLocation.empty()
                         ? std::string()
                         : ", and a new tensor from the fake implementation (" +
                               fakeLocation + ")") +
                    ".");
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (sharesStorage(frame.slots[inputs[i]], storage))
      refuse("argument '" + inputNames[i] + "'");
  for (const auto &[other, otherPlace] : seen)
    if (storageOf(other) == storage && mayOverlap(other, tensor))
      refuse(otherPlace);
  seen.emplace_back(tensor, place.text());
}

void PreparedCall::checkAliases(const Frame &frame) const {
  std::vector<std::pair<c10::TensorImpl *, std::string>> seen;
  for (size_t i = 0; i < results.size(); ++i)
    checkAlias(results[i], Place{i}, frame, seen);
}

//===----------------------------------------------------------------------===//
// The call
//===----------------------------------------------------------------------===//

namespace {
/// Eager's call of an operator under a TorchFunctionMode,
/// `torch.device("meta")` among them, goes to the mode, which is off while it
/// calls on: no kernel sees one.
class WithoutFunctionModes {
public:
  WithoutFunctionModes() {
    if (TLS::stack_len() == 0) [[likely]]
      return;
    before = TLS::get_state();
    auto disabled = TLS::get_disabled_state();
    TLS::set_state(TLS());
    TLS::set_disabled_state(disabled);
  }
  ~WithoutFunctionModes() {
    if (before)
      TLS::set_state(*before);
  }
  WithoutFunctionModes(const WithoutFunctionModes &) = delete;
  WithoutFunctionModes &operator=(const WithoutFunctionModes &) = delete;

private:
  using TLS = at::impl::PythonTorchFunctionTLS;
  std::optional<TLS> before;
};
} // namespace

/// `op`: the call's own operator, or another that computes the same.
void PreparedCall::dispatch(const c10::OperatorHandle &op,
                            c10::DispatchKeySet keys,
                            torch::jit::Stack &stack) {
  std::optional<at::AutoDispatchBelowAutograd> guard;
  if (belowAutograd)
    guard.emplace();
  // A redispatch is not reported to profilers: do it here.
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks) [[likely]] {
    op.redispatchBoxed(keys, &stack);
    return;
  }
  at::RecordFunction record(std::move(*callbacks));
  if (record.isActive())
    record.before(
        std::reference_wrapper<const c10::FunctionSchema>(op.schema()),
        c10::ArrayRef<const c10::IValue>(stack.data(), stack.size()));
  op.redispatchBoxed(keys, &stack);
  if (record.needsOutputs())
    record.setOutputs(std::vector<c10::IValue>(stack.begin(), stack.end()));
}

/// A kernel below ADInplaceOrView does not count its writes, unless it calls
/// others that do: whoever counted, it must have been somebody.
void PreparedCall::callDirectly(c10::DispatchKeySet keys, Frame &frame,
                                torch::jit::Stack &stack) {
  struct Written {
    plan::Slot slot;
    c10::TensorImpl *tensor;
    at::DimVector sizes;
    std::optional<uint32_t> version;
  };
  c10::SmallVector<Written, 2> written;
  for (plan::Slot slot : step.mutates) {
    const Value &value = frame.slots[slot];
    if (value.kind != Value::Kind::Tensor)
      continue;
    c10::TensorImpl *tensor = unwrap(value.tensor);
    Written &entry = written.emplace_back(Written{slot, tensor, {}, {}});
    if (!tensor->is_inference())
      entry.version = tensor->version_counter().current_version();
    if (!isAten && !isNested(tensor))
      entry.sizes = tensor->sizes();
  }
  dispatch(op, keys, stack);
  for (const Written &entry : written) {
    c10::TensorImpl *tensor = entry.tensor;
    if (entry.version &&
        tensor->version_counter().current_version() == *entry.version)
      tensor->bump_version();
    if (!isAten && !isNested(tensor) &&
        tensor->sizes() != at::IntArrayRef(entry.sizes)) [[unlikely]] {
      std::string argument = "what it writes";
      for (size_t i = 0; i < step.args.size(); ++i)
        if (step.args[i].kind == plan::Arg::Kind::Slot &&
            step.args[i].slot == entry.slot)
          argument = "argument '" + op.schema().arguments()[i].name() + "'";
      broken(argument + " has size " + listText(tensor->sizes()) +
             " after the call and had " + listText(entry.sizes) +
             ": an operator in a graph may not resize what it writes");
    }
  }
}

/// The operator's own autocast rule has acted; what its kernel calls is cast.
void PreparedCall::callUnderAutocast(c10::DispatchKeySet keys, Frame &frame,
                                     torch::jit::Stack &stack) {
  AutocastGuard guard(autocast);
  if (!keys.has_any(interceptingKeys))
    return callDirectly(keys - tracedKeys, frame, stack);
  op.callBoxed(stack);
}

// These three are the cost of every call: one function with `runCall`.
[[gnu::always_inline]] inline void
PreparedCall::boxAll(const Frame &frame, torch::jit::Stack &stack) const {
  for (const ArgPlan &arg : args) {
    if (arg.form == ArgPlan::Form::Slot &&
        frame.slots[arg.slot].kind == Value::Kind::Tensor) [[likely]]
      stack.emplace_back(share(frame.slots[arg.slot].tensor));
    else if (arg.form == ArgPlan::Form::Constant)
      stack.emplace_back(arg.constant);
    else
      stack.emplace_back(boxArgument(arg, frame));
  }
}

[[gnu::always_inline]] inline void PreparedCall::run(Frame &frame,
                                                     torch::jit::Stack &stack) {
  boxAll(frame, stack);
  WithoutFunctionModes withoutModes;
  c10::DispatchKeySet keys = extractor(op).getDispatchKeySetBoxed(&stack);
  bool direct = !keys.has_any(interceptingKeys);
  if (isSimple && direct) [[likely]]
    dispatch(op, keys - tracedKeys, stack);
  else if (product && direct &&
           (keys - tracedKeys).highestPriorityTypeId() ==
               c10::DispatchKey::CPU &&
           product->moveToLibrary(stack))
    dispatch(product->library(), keys - tracedKeys, stack);
  else if (!autocast.empty())
    callUnderAutocast(keys, frame, stack);
  else if (direct)
    callDirectly(keys - (step.flag ? autogradKeys : tracedKeys), frame, stack);
  else
    op.callBoxed(stack);
}

void PreparedCall::runFake(Frame &frame, torch::jit::Stack &stack) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Meta))
    throw Error(ErrorKind::Load,
                name + " has no fake implementation of its own" + at());
  boxAll(frame, stack);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
}

/// A write through a view counts as one of what it views. The kernels that see
/// to it are those of autograd.
void PreparedCall::shareVersion(const Frame &frame,
                                const torch::jit::Stack &stack) const {
  const Value &value = frame.slots[args[0].slot];
  if (value.kind != Value::Kind::Tensor)
    return;
  c10::TensorImpl *base = unwrap(value.tensor);
  auto share = [&](const c10::IValue &result) {
    if (!result.isTensor() || !result.toTensor().defined())
      return;
    c10::TensorImpl *view = result.unsafeToTensorImpl();
    if (!view->is_inference() && !base->is_inference() && storageOf(view) &&
        storageOf(view) == storageOf(base))
      view->set_version_counter(base->version_counter());
  };
  for (const c10::IValue &result : stack) {
    share(result);
    if (result.isTensorList())
      for (const c10::IValue &member : result.toListRef())
        share(member);
  }
}

[[gnu::always_inline]] inline void
PreparedCall::receiveAll(Frame &frame, torch::jit::Stack &stack) {
  if (isView) [[unlikely]]
    shareVersion(frame, stack);
  if (plain.active && stack[0].isTensor()) [[likely]] {
    // One tensor, exactly as promised.
    c10::TensorImpl *impl = stack[0].unsafeToTensorImpl();
    if (impl != c10::UndefinedTensorImpl::singleton() && plain.fits(impl))
        [[likely]] {
      frame.slots[plain.slot] = Value::of(give(std::move(stack[0]).toTensor()));
      if (!checksAlias)
        return;
      bool shared = false;
      for (plan::Slot input : inputs)
        shared |= sharesStorage(frame.slots[input], storageOf(impl));
      if (shared) [[unlikely]]
        checkAliases(frame);
      return;
    }
  }
  if (anyBinds)
    for (size_t i = 0; i < results.size(); ++i)
      bindSymbols(results[i], stack[i], frame, Place{i});
  for (size_t i = 0; i < results.size(); ++i)
    receive(results[i], std::move(stack[i]), frame, Place{i});
  if (checksAlias)
    checkAliases(frame);
}

int shim::prepareCall(const CallSite *site, PreparedCall **out) {
  *out = nullptr;
  return guarded(ErrorKind::Load, [&] {
    const std::string &name = site->step->op;
    auto op = c10::Dispatcher::singleton().findSchema(splitName(name));
    if (!op) {
      std::string space = name.substr(0, name.find("::"));
      std::string message =
          "operator " + name + " is not registered in this process";
      if (site->record && !site->record->schema.empty())
        message += "; the program was compiled for " + site->record->schema;
      std::string overloads = operatorOverloads(name.c_str());
      if (!overloads.empty())
        message += ". Registered are: " + overloads;
      if (!site->step->location.empty())
        message += " (" + site->step->location + ")";
      message += ". Load the library that registers '" + space +
                 "' (--op-library libX.so, or Options::operatorLibraries; in "
                 "Python, import the module that registers it) before the "
                 "program.";
      throw Error(ErrorKind::Load, message);
    }
    auto call = std::make_unique<PreparedCall>(*op, *site);
    call->build(*site);
    *out = call.release();
  });
}

void shim::destroyCall(PreparedCall *call) { delete call; }

template <typename Run>
[[gnu::always_inline]] static inline int run(PreparedCall *call, Frame *frame,
                                             Run runKernel) {
  StackLease lease;
  try {
    runKernel(*lease.stack);
  } catch (const Error &) {
    return failWithCurrentException(ErrorKind::Operator);
  } catch (...) {
    return failWithCurrentException(ErrorKind::Operator, call->step.op + ": ",
                                    call->at());
  }
  return guarded(ErrorKind::Contract,
                 [&] { call->receiveAll(*frame, *lease.stack); });
}

int shim::runCall(PreparedCall *call, Frame *frame) {
  return run(call, frame,
             [&](torch::jit::Stack &stack) { call->run(*frame, stack); });
}

int shim::runFake(PreparedCall *call, Frame *frame) {
  return run(call, frame,
             [&](torch::jit::Stack &stack) { call->runFake(*frame, stack); });
}

} // namespace intarsia::runtime
