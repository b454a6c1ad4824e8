//===- PromisedNumbers.cpp - What fakes say of numbers alone --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements PromisedNumbers.h. A fake implementation is the operator's kernel
// for the device "meta": it is called as a plan calls kernels, with tensors
// that have no memory.
//
//===----------------------------------------------------------------------===//

#include "PromisedNumbers.h"
#include "intarsia/Import/Import.h"
#include "intarsia/Runtime/Torch.h"
#include "lib/Runtime/ExprTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <optional>
#include <set>

using namespace intarsia;
using importer::Argument;
using importer::Graph;
using importer::Node;
using importer::ValueMeta;
using llvm::StringRef;

namespace {

/// What the symbols of a program are in one try.
using Assignment = std::map<std::string, int64_t>;

/// Why a number is not known.
struct Unknown {
  std::string reason;
};

/// One call of a fake implementation.
class FakeCall {
public:
  FakeCall(const Graph &graph, const Assignment &symbols)
      : graph(graph), symbols(symbols) {}
  ~FakeCall() {
    for (runtime::Value &slot : slots) {
      if (slot.kind == runtime::Value::Kind::Tensor)
        torch.release(slot.tensor);
      if (slot.kind == runtime::Value::Kind::Boxed)
        torch.releaseBoxed(slot.boxed);
    }
  }
  FakeCall(const FakeCall &) = delete;
  FakeCall &operator=(const FakeCall &) = delete;

  /// Throws Unknown.
  ValueMeta run(const Node &node, const importer::OperatorSchema &schema) {
    step.op = node.target;
    addArguments(node, schema);
    plan::Result result;
    result.kind = plan::Result::Kind::Number;
    result.slot = plan::Slot(slots.size());
    slots.emplace_back();
    step.results.push_back(result);

    runtime::ExprTable exprs;
    std::vector<plan::Symbol> noSymbols;
    runtime::CallSite site{&step,
                           nullptr,
                           &exprs,
                           &noSymbols,
                           /*strict=*/false,
                           plan::Products::Eager,
                           nullptr,
                           nullptr};
    runtime::PreparedCall *call = nullptr;
    if (torch.prepareCall(&site, &call))
      fail();
    runtime::Frame frame{slots.data(), nullptr};
    int status = torch.runFake(call, &frame);
    torch.destroyCall(call);
    if (status)
      fail();
    return asMeta(slots.back());
  }

private:
  [[noreturn]] void fail() {
    runtime::ShimError *error = torch.lastError();
    // A Python exception must not outlive the interpreter.
    error->cause = nullptr;
    throw Unknown{error->message};
  }

  static ValueMeta asMeta(const runtime::Value &value) {
    ValueMeta meta;
    switch (value.kind) {
    case runtime::Value::Kind::Int:
      meta.kind = ValueMeta::Kind::SymInt;
      meta.expr = SymExpr::integer(value.integer);
      return meta;
    case runtime::Value::Kind::Float:
      meta.kind = ValueMeta::Kind::SymFloat;
      meta.expr = SymExpr::real(value.real);
      return meta;
    case runtime::Value::Kind::Bool:
      meta.kind = ValueMeta::Kind::SymBool;
      meta.expr = SymExpr::boolean(value.boolean);
      return meta;
    default:
      throw Unknown{"its fake returns no number"};
    }
  }

  /// In the order of the schema, to which positional arguments belong.
  void addArguments(const Node &node, const importer::OperatorSchema &schema) {
    size_t position = 0;
    std::map<std::string, const Argument *> given;
    for (const auto &[name, argument] : node.args)
      given[name.empty() && position < schema.arguments.size()
                ? schema.arguments[position++].name
                : name] = &argument;
    for (const importer::SchemaArgument &declared : schema.arguments) {
      auto found = given.find(declared.name);
      if (found != given.end())
        step.args.push_back(planned(*found->second));
      else if (declared.defaultValue)
        step.args.push_back(planned(*declared.defaultValue));
      else
        throw Unknown{"argument '" + declared.name + "' is missing"};
    }
  }

  plan::Arg planned(const Argument &argument) {
    using Kind = Argument::Kind;
    plan::Arg arg;
    arg.text = argument.text;
    arg.integer = argument.integer;
    arg.real = argument.real;
    arg.imaginary = argument.imaginary;
    arg.boolean = argument.boolean;
    arg.dtype = argument.dtype;
    switch (argument.kind) {
    case Kind::None:
      return arg;
    case Kind::Value:
      return planned(argument.text);
    case Kind::SymInt:
    case Kind::SymFloat:
    case Kind::SymBool:
      return number(argument.expr);
    case Kind::Int:
      arg.kind = plan::Arg::Kind::Int;
      return arg;
    case Kind::Float:
      arg.kind = plan::Arg::Kind::Float;
      return arg;
    case Kind::Bool:
      arg.kind = plan::Arg::Kind::Bool;
      return arg;
    case Kind::String:
      arg.kind = plan::Arg::Kind::String;
      return arg;
    case Kind::Complex:
      arg.kind = plan::Arg::Kind::Complex;
      return arg;
    case Kind::DType:
      arg.kind = plan::Arg::Kind::DType;
      return arg;
    case Kind::Device:
      arg.kind = plan::Arg::Kind::Device;
      return arg;
    case Kind::Layout:
      arg.kind = plan::Arg::Kind::Layout;
      return arg;
    case Kind::MemoryFormat:
      arg.kind = plan::Arg::Kind::MemoryFormat;
      return arg;
    case Kind::List:
      arg.kind = plan::Arg::Kind::List;
      for (const Argument &member : argument.list)
        arg.list.push_back(planned(member));
      return arg;
    case Kind::Graph:
    case Kind::Operator:
    case Kind::Object:
      break;
    }
    throw Unknown{"it takes what is no value"};
  }

  plan::Arg planned(const std::string &name) {
    auto found = graph.values.find(name);
    if (found == graph.values.end())
      throw Unknown{"nothing is known of its argument '" + name + "'"};
    const ValueMeta &value = found->second;
    switch (value.kind) {
    case ValueMeta::Kind::Tensor: {
      plan::Arg arg;
      arg.kind = plan::Arg::Kind::Slot;
      arg.slot = plan::Slot(slots.size());
      slots.push_back(emptyTensor(value.tensor));
      return arg;
    }
    case ValueMeta::Kind::SymInt:
    case ValueMeta::Kind::SymFloat:
    case ValueMeta::Kind::SymBool:
      return number(value.expr);
    case ValueMeta::Kind::None:
      return plan::Arg();
    case ValueMeta::Kind::Object:
      break;
    }
    throw Unknown{"nothing is known of its argument '" + name + "'"};
  }

  runtime::Value emptyTensor(const importer::TensorMeta &meta) {
    int8_t type = 0, index = 0;
    std::vector<int64_t> sizes = extents(meta.sizes);
    std::vector<int64_t> strides = extents(meta.strides);
    runtime::TensorImpl *tensor = nullptr;
    if (torch.parseDevice("meta", &type, &index) ||
        torch.emptyStrided(int16_t(meta.dtype), type, index,
                           int64_t(sizes.size()), sizes.data(), strides.data(),
                           &tensor))
      fail();
    return runtime::Value::of(tensor);
  }

  std::vector<int64_t> extents(const std::vector<SymExpr> &list) {
    std::vector<int64_t> values;
    for (const SymExpr &expr : list) {
      SymValue value = evaluate(expr);
      if (!std::holds_alternative<int64_t>(value))
        throw Unknown{"a size is no integer"};
      values.push_back(std::get<int64_t>(value));
    }
    return values;
  }

  SymValue evaluate(const SymExpr &expr) {
    std::optional<SymValue> value =
        expr.evaluate([&](const std::string &name) -> std::optional<SymValue> {
          auto found = symbols.find(name);
          if (found == symbols.end())
            return std::nullopt;
          return found->second;
        });
    if (!value)
      throw Unknown{"nothing is known of " + expr.str()};
    return *value;
  }

  plan::Arg number(const SymExpr &expr) {
    plan::Arg arg;
    SymValue value = evaluate(expr);
    if (const auto *integer = std::get_if<int64_t>(&value)) {
      arg.kind = plan::Arg::Kind::Int;
      arg.integer = *integer;
    } else if (const auto *real = std::get_if<double>(&value)) {
      arg.kind = plan::Arg::Kind::Float;
      arg.real = *real;
    } else {
      arg.kind = plan::Arg::Kind::Bool;
      arg.boolean = std::get<bool>(value);
    }
    return arg;
  }

  const runtime::TorchApi &torch = runtime::torchApi();
  const Graph &graph;
  const Assignment &symbols;
  plan::Step step;
  std::vector<runtime::Value> slots;
};

/// Values that the program's sizes may have, such that a number that is the
/// same for all does not depend on them.
std::vector<Assignment> assignments(const importer::Program &program) {
  std::set<std::string> names;
  auto collect = [&](const Graph &graph) {
    for (const auto &[name, value] : graph.values) {
      value.expr.collectSymbols(names);
      for (const SymExpr &expr : value.tensor.sizes)
        expr.collectSymbols(names);
      for (const SymExpr &expr : value.tensor.strides)
        expr.collectSymbols(names);
    }
  };
  collect(program.graph);
  for (const auto &[name, graph] : program.graphs)
    collect(graph);
  if (names.empty())
    return {Assignment()};
  std::vector<Assignment> result;
  for (int64_t multiple : {1, 8, 48}) {
    Assignment &symbols = result.emplace_back();
    for (const std::string &name : names)
      symbols[name] = int64_t(llvm::alignTo(5, uint64_t(multiple)));
    for (const importer::RangeConstraint &range : program.ranges) {
      auto found = symbols.find(range.symbol);
      if (found == symbols.end())
        continue;
      int64_t least = std::max<int64_t>(range.min.value_or(0), 0);
      if (least < INT64_MAX / 2)
        found->second =
            int64_t(llvm::alignTo(uint64_t(least) + 5, uint64_t(multiple)));
      if (range.max)
        found->second = std::min(found->second, *range.max);
    }
  }
  return result;
}

bool returnsNumber(const importer::OperatorSchema &schema) {
  return schema.returns.size() == 1 &&
         llvm::is_contained({"int", "SymInt", "float", "SymFloat", "bool",
                             "SymBool", "Scalar"},
                            schema.returns[0].type);
}

class Noter {
public:
  Noter(importer::Program &program, const importer::SchemaProvider &registered,
        const importer::SchemaProvider &schemas,
        const std::function<PromisedNumbers()> &askPython)
      : program(program), registered(registered), schemas(schemas),
        askPython(askPython) {}

  void run() {
    visit(program.graph, "");
    for (auto &[name, graph] : program.graphs)
      visit(graph, name);
  }

private:
  void visit(Graph &graph, const std::string &name) {
    std::map<std::string, size_t> calls;
    for (Node &node : graph.nodes) {
      StringRef target = node.target;
      if (target.starts_with("aten::") || target.starts_with("prims::") ||
          target.starts_with("_c10d_functional::") ||
          target.starts_with("higher_order::"))
        continue;
      size_t number = calls[node.target]++; // as Python counts them
      if (node.outputs.size() != 1 ||
          node.outputs[0].kind != importer::Output::Kind::None)
        continue;
      std::optional<importer::OperatorSchema> schema = schemas(node.target);
      if (!schema || !returnsNumber(*schema))
        continue;
      try {
        importer::promiseNumber(node, graph,
                                promiseOf(node, graph, *schema, name, number));
      } catch (const Unknown &unknown) {
        if (warned.insert(node.target).second)
          runtime::warn(node.target +
                        ": the number that it returns will not be compared "
                        "with its fake's: " +
                        unknown.reason +
                        ". intarsia.export notes it in the program");
      }
    }
  }

  /// Python's fakes are asked in Python, where tensors have their own device.
  ValueMeta promiseOf(const Node &node, const Graph &graph,
                      const importer::OperatorSchema &schema,
                      const std::string &name, size_t number) {
    bool isHere = registered(node.target) && !schema.fakeLocation.empty();
    return isHere ? ofFake(node, graph, schema) : ofPython(node, name, number);
  }

  ValueMeta ofFake(const Node &node, const Graph &graph,
                   const importer::OperatorSchema &schema) {
    std::optional<ValueMeta> promised;
    for (const Assignment &symbols : assignments(program)) {
      ValueMeta now = FakeCall(graph, symbols).run(node, schema);
      if (promised &&
          (promised->kind != now.kind || promised->expr != now.expr))
        throw Unknown{"it depends on sizes"};
      promised = now;
    }
    return *promised;
  }

  ValueMeta ofPython(const Node &node, const std::string &name, size_t number) {
    if (!told)
      told = askPython();
    const std::vector<ValueMeta> &calls = (*told)[name][node.target];
    if (number >= calls.size() || calls[number].kind == ValueMeta::Kind::None)
      throw Unknown{"its fake is registered by Python code"};
    return calls[number];
  }

  importer::Program &program;
  const importer::SchemaProvider &registered, &schemas;
  const std::function<PromisedNumbers()> &askPython;
  std::optional<PromisedNumbers> told;
  std::set<std::string> warned;
};

} // namespace

void intarsia::notePromisedNumbers(
    importer::Program &program, const importer::SchemaProvider &registered,
    const importer::SchemaProvider &schemas,
    const std::function<PromisedNumbers()> &askPython) {
  Noter(program, registered, schemas, askPython).run();
}
