//===- Verify.cpp - Is a plan fit to be executed?
//-----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Checks a plan once, so that the executor need not check anything at each
// step. A plan is a list without jumps, so a walk in order knows which slots
// are filled and which symbols are bound at each step.
//
//===----------------------------------------------------------------------===//

#include "ForeignKernel.h"
#include "ProgramImpl.h"

#include <algorithm>
#include <set>

using namespace intarsia;
using namespace intarsia::runtime;
using plan::Step;

std::string intarsia::runtime::stepName(const plan::Plan &plan,
                                        const Step &step) {
  switch (step.kind) {
  case Step::Kind::Call:
    return "call " + step.op;
  case Step::Kind::Alloc:
    return "alloc";
  case Step::Kind::Launch:
  case Step::Kind::LaunchForeign:
    return step.kernel >= 0 && size_t(step.kernel) < plan.kernels.size()
               ? "launch " + plan.kernels[size_t(step.kernel)].symbol
               : "launch";
  case Step::Kind::View:
    return "view";
  case Step::Kind::Clone:
    return "clone";
  case Step::Kind::Copy:
    return "copy";
  case Step::Kind::Move:
    return "move";
  case Step::Kind::Free:
    return "free";
  case Step::Kind::Cond:
    return "cond";
  case Step::Kind::While:
    return "while_loop";
  case Step::Kind::Invoke:
    return "invoke " + (step.functions.empty() ? "" : step.functions[0]);
  case Step::Kind::Map:
    return "map";
  case Step::Kind::Scan:
    return "scan";
  case Step::Kind::Python:
    return step.op.empty() ? "python" : "python " + step.op;
  case Step::Kind::SetGrad:
    return "set_grad";
  case Step::Kind::Autocast:
    return "autocast";
  case Step::Kind::Assert:
    return "assert";
  }
  return "step";
}

namespace {

class Verifier {
public:
  Verifier(const plan::Plan &plan, const FunctionPlan &compiled)
      : plan(plan), function(*compiled.function), exprs(compiled.exprs),
        binders(compiled.binders) {}

  void run() {
    if (function.slotCount < 0)
      fail("a negative number of slots");
    filled.assign(size_t(function.slotCount), false);
    bound.assign(function.symbols.size(), false);
    for (const Binder &binder : binders)
      bound[size_t(binder.symbol)] = true;
    for (const plan::Input &input : function.inputs) {
      if (input.spec)
        useSpec(*input.spec);
      if (input.kind == plan::Input::Kind::Tensor && input.slot < 0 &&
          !input.spec)
        fail("input '" + input.name + "' has neither slot nor spec");
      if (input.expr >= 0)
        useExpr(input.expr);
      if (input.slot >= 0)
        fill(input.slot);
    }
    for (const plan::Guard &guard : function.guards)
      useExpr(guard.expr);
    if (function.arenaSize >= 0)
      useExpr(function.arenaSize);
    for (const Step &s : function.steps) {
      step = &s;
      visit(s);
    }
    step = nullptr;
    for (const plan::Arg &output : function.outputs)
      use(output);
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    std::string where = "function '" + function.name + "'";
    if (step)
      where += ", step " + std::to_string(step - function.steps.data()) + " (" +
               stepName(plan, *step) + ")";
    throw Error(ErrorKind::Internal, "malformed plan: " + where + ": " + what);
  }

  void useExpr(plan::ExprId id) const {
    if (id < 0 || size_t(id) >= exprs.size())
      fail("there is no expression " + std::to_string(id));
    for (int32_t symbol : exprs.symbolsOf(id))
      if (!bound[size_t(symbol)])
        fail("symbol '" + function.symbols[size_t(symbol)].name +
             "' is used before it is bound");
  }
  void useIntegers(const std::vector<plan::ExprId> &ids) const {
    for (plan::ExprId id : ids) {
      useExpr(id);
      if (exprs.type(id) == ExprTable::Type::Float)
        fail("expression '" + exprs.text(id) + "' is not an integer");
    }
  }
  void useSpec(const plan::TensorSpec &spec) const {
    if (spec.sizes.size() != spec.strides.size())
      fail("a tensor with more sizes than strides or the reverse");
    useIntegers(spec.sizes);
    useIntegers(spec.strides);
  }
  void useSlot(plan::Slot slot) const {
    if (slot < 0 || slot >= function.slotCount)
      fail("there is no slot " + std::to_string(slot));
    if (!filled[size_t(slot)])
      fail("slot " + std::to_string(slot) + " is read while it is empty");
  }
  void fill(plan::Slot slot) {
    if (slot < 0 || slot >= function.slotCount)
      fail("there is no slot " + std::to_string(slot));
    if (filled[size_t(slot)])
      fail("slot " + std::to_string(slot) + " is filled twice");
    filled[size_t(slot)] = true;
  }
  void bind(int32_t symbol) {
    if (symbol < 0 || size_t(symbol) >= function.symbols.size())
      fail("there is no symbol " + std::to_string(symbol));
    bound[size_t(symbol)] = true;
  }

  void use(const plan::Arg &arg) {
    switch (arg.kind) {
    case plan::Arg::Kind::Slot:
      useSlot(arg.slot);
      break;
    case plan::Arg::Kind::Expr:
      useExpr(arg.expr);
      break;
    case plan::Arg::Kind::View:
      useSlot(arg.slot);
      useIntegers(arg.sizes);
      useIntegers(arg.strides);
      useIntegers({arg.offset});
      if (arg.sizes.size() != arg.strides.size())
        fail("a view with more sizes than strides or the reverse");
      break;
    case plan::Arg::Kind::List:
      for (const plan::Arg &member : arg.list)
        use(member);
      break;
    case plan::Arg::Kind::Function:
      useFunction(arg.text);
      break;
    default:
      break;
    }
  }

  void useFunction(const std::string &name) const {
    for (const plan::Function &f : plan.functions)
      if (f.name == name)
        return;
    fail("there is no function '" + name + "'");
  }

  void bindAll(const plan::Result &result) {
    if (result.bindsSymbol >= 0)
      bind(result.bindsSymbol);
    for (const auto *binds : {&result.bindsSize, &result.bindsStride})
      for (auto [symbol, dim] : *binds) {
        bind(symbol);
        if (dim < 0 ||
            (result.spec && size_t(dim) >= result.spec->sizes.size()))
          fail("a symbol is bound by dimension " + std::to_string(dim) +
               ", which the result does not have");
      }
    for (const plan::Result &member : result.list)
      bindAll(member);
  }
  void define(const plan::Result &result) {
    if (result.spec)
      useSpec(*result.spec);
    if (result.expect >= 0)
      useExpr(result.expect);
    if (result.slot >= 0)
      fill(result.slot);
    for (const plan::Result &member : result.list)
      define(member);
  }
  void define(const Step &s) {
    for (const plan::Result &result : s.results)
      bindAll(result);
    for (const plan::Result &result : s.results)
      define(result);
  }

  void visit(const Step &s) {
    for (const plan::Arg &arg : s.args)
      use(arg);
    for (plan::Slot slot : s.mutates)
      useSlot(slot);
    switch (s.kind) {
    case Step::Kind::Call:
    case Step::Kind::Python:
      define(s);
      break;
    case Step::Kind::Alloc:
    case Step::Kind::View:
      if (!s.spec)
        fail("it has no spec");
      useSpec(*s.spec);
      if (s.kind == Step::Kind::View || s.source >= 0)
        useSlot(s.source);
      if (s.kind == Step::Kind::View) {
        useIntegers({s.offset});
      } else if (s.offset >= 0) {
        useIntegers({s.offset});
        if (function.arenaSize < 0)
          fail("the function has no arena");
      }
      fill(s.slot);
      break;
    case Step::Kind::Launch:
      if (s.kernel < 0 || size_t(s.kernel) >= plan.kernels.size())
        fail("there is no kernel " + std::to_string(s.kernel));
      for (plan::Slot slot : s.buffers)
        useSlot(slot);
      useIntegers(s.symbols);
      useIntegers({s.domain});
      if (s.grain >= 0)
        useIntegers({s.grain});
      for (plan::ExprId id :
           {s.scratch, s.threads, s.blocks, s.shared, s.extent})
        if (id >= 0)
          useIntegers({id});
      if (plan.kernels[size_t(s.kernel)].target == "cuda" && s.threads < 0)
        fail("a kernel for CUDA has no number of threads");
      if (!plan.kernels[size_t(s.kernel)].wideSymbol.empty() && s.extent < 0)
        fail("a kernel with two entries has no extent");
      for (const Step::Apart &pair : s.apart)
        for (int32_t buffer : {pair.written, pair.other})
          if (buffer < 0 || size_t(buffer) >= s.buffers.size())
            fail("the kernel has no buffer " + std::to_string(buffer));
      break;
    case Step::Kind::LaunchForeign:
      visitForeign(s);
      break;
    case Step::Kind::Clone:
    case Step::Kind::Move:
      useSlot(s.source);
      fill(s.slot);
      break;
    case Step::Kind::Copy:
      useSlot(s.source);
      useSlot(s.slot);
      break;
    case Step::Kind::Free:
      for (plan::Slot slot : s.slots) {
        useSlot(slot);
        filled[size_t(slot)] = false;
      }
      break;
    case Step::Kind::Cond:
    case Step::Kind::While:
    case Step::Kind::Invoke:
    case Step::Kind::Map:
    case Step::Kind::Scan: {
      bool isPair = s.kind == Step::Kind::Cond || s.kind == Step::Kind::While;
      if (s.functions.size() != (isPair ? 2 : 1))
        fail("it has " + std::to_string(s.functions.size()) + " functions");
      for (const std::string &name : s.functions)
        useFunction(name);
      if (s.carried < 0 || s.scanned < 0)
        fail("a negative number of arguments");
      define(s);
      break;
    }
    case Step::Kind::SetGrad:
      break;
    case Step::Kind::Autocast:
      if (s.args.size() != 1 || (s.args[0].kind != plan::Arg::Kind::None &&
                                 s.args[0].kind != plan::Arg::Kind::DType))
        fail("an autocast step has one argument, a dtype or none");
      break;
    case Step::Kind::Assert:
      useExpr(s.expr);
      break;
    }
  }

  void visitForeign(const Step &s) const {
    if (s.kernel < 0 || size_t(s.kernel) >= plan.kernels.size())
      fail("there is no kernel " + std::to_string(s.kernel));
    const plan::Kernel &kernel = plan.kernels[size_t(s.kernel)];
    if (kernel.target != "cuda" || kernel.variants.empty())
      fail("the kernel has no variants for CUDA");
    if (s.symbols.size() != 3)
      fail("a grid has three numbers");
    useIntegers(s.symbols);
    if (std::none_of(s.args.begin(), s.args.end(), [](const plan::Arg &arg) {
          return arg.kind == plan::Arg::Kind::Slot;
        }))
      fail("the kernel has no tensor, so no device");
    for (const plan::Kernel::Variant &variant : kernel.variants) {
      if (variant.parameters.size() != s.args.size())
        fail("variant " + variant.module + " takes " +
             std::to_string(variant.parameters.size()) + " arguments");
      if (variant.threads < 1 || variant.scratch < 0 || variant.scratch > 8)
        fail("variant " + variant.module + " has no sensible geometry");
      for (size_t i = 0; i < s.args.size(); ++i)
        checkParameter(s.args[i], variant.parameters[i]);
    }
  }
  void checkParameter(const plan::Arg &arg,
                      const std::string &parameter) const {
    if (parameter.empty())
      return;
    std::optional<ForeignParameter> parsed = ForeignParameter::parse(parameter);
    if (!parsed)
      fail("'" + parameter + "' is no kind of parameter");
    using Kind = plan::Arg::Kind;
    bool isPointer = arg.kind == Kind::Slot;
    bool isNumber = arg.kind == Kind::Expr || arg.kind == Kind::Int ||
                    arg.kind == Kind::Float || arg.kind == Kind::Bool;
    if (parsed->kind == ForeignParameter::Kind::Pointer ? !isPointer
                                                        : !isNumber)
      fail("an argument is none that '" + parameter + "' takes");
  }

  const plan::Plan &plan;
  const plan::Function &function;
  const ExprTable &exprs;
  const std::vector<Binder> &binders;
  const Step *step = nullptr;
  std::vector<bool> filled, bound;
};

/// Nested functions must not call themselves.
void checkAcyclic(const plan::Plan &plan, const plan::Function &function,
                  std::set<std::string> &active, std::set<std::string> &done) {
  if (done.count(function.name))
    return;
  if (!active.insert(function.name).second)
    throw Error(ErrorKind::Internal, "malformed plan: function '" +
                                         function.name + "' calls itself");
  for (const Step &step : function.steps)
    for (const std::string &name : step.functions)
      for (const plan::Function &callee : plan.functions)
        if (callee.name == name)
          checkAcyclic(plan, callee, active, done);
  active.erase(function.name);
  done.insert(function.name);
}

} // namespace

void intarsia::runtime::verify(const plan::Plan &plan,
                               const std::deque<FunctionPlan> &functions) {
  for (const FunctionPlan &function : functions)
    Verifier(plan, function).run();
  std::set<std::string> active, done;
  for (const plan::Function &function : plan.functions)
    checkAcyclic(plan, function, active, done);
  if (!plan.outputs.empty() &&
      plan.outputs.size() != plan.functions[0].outputs.size())
    throw Error(ErrorKind::Internal,
                "malformed plan: it describes " +
                    std::to_string(plan.outputs.size()) + " outputs of " +
                    std::to_string(plan.functions[0].outputs.size()));
}
