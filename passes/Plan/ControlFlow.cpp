//===- ControlFlow.cpp - Higher-order calls as steps ----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The calls of higher-order operators: control flow becomes steps with nested
// functions; a region whose effect was applied when the program was traced
// (checkpointing, autocast) is executed where it stands; whatever else has a
// Python callable in the side table is left to it.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/FunctionPlanner.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace intarsia {

/// Refers to functions that get the same arguments, and appends to these the
/// constants that any of them needs.
LogicalResult FunctionPlanner::useFunctions(graph::CallOp call,
                                            ArrayRef<FlatSymbolRefAttr> names,
                                            plan::Step &step) {
  SmallVector<NestedFunction *> nested;
  for (FlatSymbolRefAttr name : names) {
    FailureOr<NestedFunction *> function = planner.nested(name, call);
    if (failed(function))
      return failure();
    nested.push_back(*function);
    step.functions.push_back(name.getValue().str());
  }
  std::vector<std::string> wanted;
  for (NestedFunction *function : nested)
    for (const std::string &name : function->weights)
      if (!llvm::is_contained(wanted, name))
        wanted.push_back(name);
  for (NestedFunction *function : nested) {
    if (function->weights == wanted)
      continue;
    if (function->used)
      return call.emitError("function @")
             << planner.plan.functions[function->index].name
             << " is used with and without the constant '" << wanted.back()
             << "'";
    // The others' constants are inputs that this one does not read.
    plan::Function &body = planner.plan.functions[function->index];
    std::vector<plan::Input> own(body.inputs.end() - function->weights.size(),
                                 body.inputs.end());
    body.inputs.resize(body.inputs.size() - own.size());
    for (const std::string &name : wanted) {
      auto known = llvm::find(function->weights, name);
      plan::Input input;
      if (known != function->weights.end()) {
        input = own[known - function->weights.begin()];
      } else {
        input.name = name;
        input.kind = plan::Input::Kind::Object;
        input.slot = body.slotCount++;
      }
      body.inputs.push_back(std::move(input));
    }
    function->weights = wanted;
  }
  for (NestedFunction *function : nested)
    function->used = true;
  for (const std::string &name : wanted) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::Slot;
    arg.slot = weightInput(name);
    step.args.push_back(std::move(arg));
  }
  return success();
}

namespace {
/// How a higher-order call is executed.
enum class Form { Cond, While, Map, Scan, Invoke, SetGrad, Autocast, Python };
} // namespace

static Form formOf(StringRef name) {
  return llvm::StringSwitch<Form>(name)
      .Case("cond", Form::Cond)
      .Case("while_loop", Form::While)
      .Cases({"map", "map_impl"}, Form::Map)
      .Case("scan", Form::Scan)
      .Case("wrap_with_set_grad_enabled", Form::SetGrad)
      .Case("wrap_with_autocast", Form::Autocast)
      .Cases({"invoke_subgraph", "wrap"}, Form::Invoke)
      .Cases({"wrap_activation_checkpoint", "tag_activation_checkpoint"},
             Form::Invoke)
      .Cases({"hints_wrapper", "strict_mode"}, Form::Invoke)
      .Default(Form::Python);
}

LogicalResult FunctionPlanner::planHigherOrder(graph::CallOp call) {
  StringRef name = call.getCallee();
  name.consume_front("higher_order::");
  // The Python front door may pass the operator itself.
  Form form = isa_and_nonnull<graph::ObjectAttr>(call.arg("callable"))
                  ? Form::Python
                  : formOf(name);

  llvm::DenseMap<int64_t, plan::Slot> replaced;
  plan::Step step = newStep(Kind::Invoke, call.getLoc());
  prepareMutation(call, step, replaced);
  // Writes happen in the nested functions, which say so themselves.
  step.mutates.clear();

  // The functions, and what else there is, as it came: a list stays a list.
  SmallVector<FlatSymbolRefAttr> functions;
  std::vector<plan::Arg> before, after;
  for (Attribute attribute : call.getArgs()) {
    if (auto function = dyn_cast<FlatSymbolRefAttr>(attribute))
      functions.push_back(function);
    else
      (functions.empty() ? before : after)
          .push_back(argument(call, attribute, replaced));
  }
  auto malformed = [&]() {
    return call.emitError("unexpected arguments of ") << call.getCallee();
  };
  auto append = [](const plan::Arg &arg, std::vector<plan::Arg> &args) {
    if (arg.kind == plan::Arg::Kind::List)
      args.insert(args.end(), arg.list.begin(), arg.list.end());
    else
      args.push_back(arg);
  };
  auto lists = [&](size_t count) {
    return after.size() >= count &&
           llvm::all_of(ArrayRef(after).take_front(count),
                        [](const plan::Arg &arg) {
                          return arg.kind == plan::Arg::Kind::List;
                        });
  };

  size_t functionCount = 1;
  switch (form) {
  case Form::Cond:
    step.kind = Kind::Cond;
    functionCount = 2;
    if (before.size() != 1 || functions.size() != 2 || after.size() > 1)
      return malformed();
    step.args.push_back(before.front());
    for (const plan::Arg &arg : after)
      append(arg, step.args);
    break;
  case Form::While:
    step.kind = Kind::While;
    functionCount = 2;
    if (functions.size() != 2 || !lists(1))
      return malformed();
    step.carried = after.front().list.size();
    for (const plan::Arg &arg : after)
      append(arg, step.args);
    break;
  case Form::Map:
    step.kind = Kind::Map;
    if (!lists(1))
      return malformed();
    step.carried = after.front().list.size();
    for (const plan::Arg &arg : after)
      append(arg, step.args);
    break;
  case Form::Scan:
    step.kind = Kind::Scan;
    if (!lists(2))
      return malformed();
    step.carried = after[0].list.size();
    step.scanned = after[1].list.size();
    for (const plan::Arg &arg : after)
      append(arg, step.args);
    break;
  case Form::SetGrad:
  case Form::Autocast:
  case Form::Invoke: {
    if (functions.size() != 1)
      return malformed();
    auto body = planner.module.lookupSymbol<func::FuncOp>(functions.front());
    std::vector<plan::Arg> given;
    for (const plan::Arg &arg : after)
      append(arg, given);
    // invoke_subgraph names the region, wrappers append their own options.
    if (name == "invoke_subgraph" && !given.empty() &&
        given.front().kind == plan::Arg::Kind::String)
      given.erase(given.begin());
    if (!body || given.size() < body.getNumArguments())
      return malformed();
    given.resize(body.getNumArguments());
    step.args = std::move(given);
    break;
  }
  case Form::Python: {
    step.kind = Kind::Python;
    step.op = call.getCallee().str();
    for (Attribute attribute : call.getArgs()) {
      plan::Arg arg = argument(call, attribute, replaced);
      if (step.object < 0 && arg.kind == plan::Arg::Kind::Object)
        step.object = arg.integer;
      else
        step.args.push_back(std::move(arg));
    }
    if (step.object < 0)
      return call.emitError("higher-order operator ")
             << call.getCallee()
             << " is not supported here: it needs the Python front door "
                "(torch.compile); "
             << (name.starts_with("triton_kernel_wrapper")
                     ? "make an operator of the kernel before exporting "
                       "(torch.library.triton_op)"
                     : "decompose it before exporting");
    for (FlatSymbolRefAttr function : functions) {
      FailureOr<NestedFunction *> nested = planner.nested(function, call);
      if (failed(nested))
        return failure();
      if (!(*nested)->weights.empty())
        return call.emitError("the subgraph of ")
               << call.getCallee() << " uses a lifted constant";
      (*nested)->used = true;
    }
    functionCount = 0;
    break;
  }
  }
  if (functionCount) {
    if (functions.size() != functionCount)
      return malformed();
    if (failed(useFunctions(call, functions, step)))
      return failure();
  }
  if (form == Form::SetGrad) {
    if (before.size() != 1 || before.front().kind != plan::Arg::Kind::Bool)
      return malformed();
    if (failed(setGradMode(call, functions.front(), before.front().boolean)))
      return failure();
  }
  if (form == Form::Autocast) {
    // device_type, dtype, enabled, cache_enabled
    using ArgKind = plan::Arg::Kind;
    if (before.size() != 4 || before[0].kind != ArgKind::String ||
        before[2].kind != ArgKind::Bool)
      return malformed();
    if (failed(setAutocast(call, functions.front(), before)))
      return failure();
  }
  results(call, step);
  out.steps.push_back(std::move(step));
  return success();
}

plan::Function &FunctionPlanner::bodyOf(FlatSymbolRefAttr name) {
  return *llvm::find_if(planner.plan.functions,
                        [&](const plan::Function &function) {
                          return function.name == name.getValue();
                        });
}

/// The mode holds until the function returns: it is the body's first step. What
/// autocast acts on in the body was marked when it was planned.
LogicalResult FunctionPlanner::setAutocast(graph::CallOp call,
                                           FlatSymbolRefAttr name,
                                           ArrayRef<plan::Arg> arguments) {
  plan::Function *body = &bodyOf(name);
  plan::Step mode;
  mode.kind = Kind::Autocast;
  mode.text = arguments[0].text;
  mode.args = {arguments[1]};
  mode.flag = arguments[2].boolean;
  if (!body->steps.empty() && body->steps.front().kind == Kind::Autocast) {
    const plan::Step &known = body->steps.front();
    if (known.text == mode.text && known.flag == mode.flag &&
        known.args[0].kind == mode.args[0].kind &&
        known.args[0].dtype == mode.args[0].dtype)
      return success();
    return call.emitError("subgraph ")
           << name << " is used with different kinds of autocast";
  }
  body->steps.insert(body->steps.begin(), std::move(mode));
  return success();
}

/// The mode holds until the function returns: it is the body's first step.
LogicalResult FunctionPlanner::setGradMode(graph::CallOp call,
                                           FlatSymbolRefAttr name,
                                           bool enabled) {
  plan::Function *body = &bodyOf(name);
  if (!body->steps.empty() && body->steps.front().kind == Kind::SetGrad) {
    if (body->steps.front().flag == enabled)
      return success();
    return call.emitError("subgraph ")
           << name << " is used with and without gradients";
  }
  plan::Step mode;
  mode.kind = Kind::SetGrad;
  mode.flag = enabled;
  body->steps.insert(body->steps.begin(), std::move(mode));
  return success();
}

} // namespace intarsia
