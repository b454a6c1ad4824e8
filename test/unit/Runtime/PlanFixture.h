//===- PlanFixture.h - Plans made by hand for tests ---------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A builder that makes small plans readable, tensors with known contents, and a
// check of an error's kind and message.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TEST_UNIT_RUNTIME_PLANFIXTURE_H
#define INTARSIA_TEST_UNIT_RUNTIME_PLANFIXTURE_H

#include "intarsia/Runtime/Model.h"
#include "intarsia/Runtime/Program.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace intarsia::test {

using namespace intarsia::runtime;

/// Loads the operator library of these tests, once.
inline void loadOperators() {
  static const bool loaded = [] {
    loadOperatorLibrary(RUNTIME_TEST_OPERATORS);
    return true;
  }();
  (void)loaded;
}

/// Builds one function of a plan. Slots are given by number.
class FunctionBuilder {
public:
  explicit FunctionBuilder(const std::string &name) { function.name = name; }

  plan::ExprId expr(const std::string &text) {
    auto parsed = SymExpr::parse(text);
    EXPECT_TRUE(parsed.has_value()) << text;
    function.exprs.push_back(parsed.value_or(SymExpr()));
    return plan::ExprId(function.exprs.size() - 1);
  }
  int32_t symbol(const std::string &name, std::optional<int64_t> min = {},
                 std::optional<int64_t> max = {}) {
    plan::Symbol symbol;
    symbol.name = name;
    symbol.min = min;
    symbol.max = max;
    function.symbols.push_back(symbol);
    return int32_t(function.symbols.size() - 1);
  }
  plan::TensorSpec spec(const std::vector<std::string> &sizes,
                        const std::vector<std::string> &strides,
                        DType dtype = DType::F32) {
    plan::TensorSpec spec;
    spec.dtype = dtype;
    for (const std::string &size : sizes)
      spec.sizes.push_back(expr(size));
    for (const std::string &stride : strides)
      spec.strides.push_back(expr(stride));
    return spec;
  }
  plan::Input &input(const std::string &name, plan::Slot slot,
                     std::optional<plan::TensorSpec> spec) {
    plan::Input input;
    input.name = name;
    input.slot = grow(slot);
    input.spec = std::move(spec);
    function.inputs.push_back(input);
    return function.inputs.back();
  }
  plan::Step &step(plan::Step::Kind kind) {
    function.steps.emplace_back();
    function.steps.back().kind = kind;
    function.steps.back().location = "model.py:12 in forward: y = f(x)";
    return function.steps.back();
  }
  plan::Step &call(const std::string &op, std::vector<plan::Arg> args,
                   std::vector<plan::Result> results) {
    plan::Step &step = this->step(plan::Step::Kind::Call);
    step.op = op;
    step.args = std::move(args);
    step.results = std::move(results);
    for (const plan::Result &result : step.results) {
      grow(result.slot);
      for (const plan::Result &member : result.list)
        grow(member.slot);
    }
    return step;
  }
  void free(std::vector<plan::Slot> slots) {
    step(plan::Step::Kind::Free).slots = std::move(slots);
  }
  plan::Slot grow(plan::Slot slot) {
    function.slotCount = std::max(function.slotCount, slot + 1);
    return slot;
  }
  void output(plan::Slot slot) { function.outputs.push_back(atSlot(slot)); }

  static plan::Arg atSlot(plan::Slot slot) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::Slot;
    arg.slot = slot;
    return arg;
  }
  static plan::Arg ofExpr(plan::ExprId id) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::Expr;
    arg.expr = id;
    return arg;
  }
  static plan::Arg none() { return plan::Arg(); }
  static plan::Arg integer(int64_t value) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::Int;
    arg.integer = value;
    return arg;
  }
  static plan::Arg real(double value) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::Float;
    arg.real = value;
    return arg;
  }
  static plan::Arg boolean(bool value) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::Bool;
    arg.boolean = value;
    return arg;
  }
  static plan::Arg text(plan::Arg::Kind kind, const std::string &value) {
    plan::Arg arg;
    arg.kind = kind;
    arg.text = value;
    return arg;
  }
  static plan::Arg dtype(DType value) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::DType;
    arg.dtype = value;
    return arg;
  }
  static plan::Arg list(std::vector<plan::Arg> members) {
    plan::Arg arg;
    arg.kind = plan::Arg::Kind::List;
    arg.list = std::move(members);
    return arg;
  }
  static plan::Result tensor(plan::Slot slot,
                             std::optional<plan::TensorSpec> spec = {}) {
    plan::Result result;
    result.kind = plan::Result::Kind::Tensor;
    result.slot = slot;
    result.spec = std::move(spec);
    return result;
  }
  static plan::Result number(plan::Slot slot) {
    plan::Result result;
    result.kind = plan::Result::Kind::Number;
    result.slot = slot;
    return result;
  }

  plan::Function function;
};

using B = FunctionBuilder;

inline std::unique_ptr<Program> program(std::vector<plan::Function> functions,
                                        Program::Options options = {},
                                        bool strict = false) {
  plan::Plan plan;
  plan.functions = std::move(functions);
  plan.strict = strict;
  return Program::create(std::move(plan), std::move(options));
}

/// A contiguous f32 tensor holding 0, 1, 2, ...
inline Tensor iota(const std::vector<int64_t> &sizes) {
  Tensor tensor = Tensor::empty(DType::F32, sizes);
  float *data = static_cast<float *>(tensor.data());
  std::iota(data, data + tensor.elementCount(), 0.0f);
  return tensor;
}

inline std::vector<float> contents(const Tensor &tensor) {
  Tensor local = tensor.contiguousOnCpu();
  const float *data = static_cast<const float *>(local.data());
  return {data, data + local.elementCount()};
}

/// Runs with tensors in and out; a number comes back as Value.
inline std::vector<Value> runValues(const Program &program,
                                    const std::vector<Tensor> &inputs) {
  std::vector<Value> values, outputs(program.outputCount());
  for (const Tensor &input : inputs)
    values.push_back(Value::of(input.get()));
  program.run(values.data(), values.size(), outputs.data(), outputs.size());
  return outputs;
}

inline std::vector<Tensor> run(const Program &program,
                               const std::vector<Tensor> &inputs) {
  std::vector<Tensor> tensors;
  for (Value &value : runValues(program, inputs)) {
    EXPECT_EQ(value.kind, Value::Kind::Tensor);
    tensors.emplace_back(value.tensor);
  }
  return tensors;
}

/// Runs `body` and returns the message of the Error of `kind` that it throws.
template <typename Body>
std::string errorOf(ErrorKind kind, Body body) {
  try {
    body();
  } catch (const Error &error) {
    EXPECT_EQ(int(error.kind), int(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

#define EXPECT_CONTAINS(text, part)                                            \
  EXPECT_NE(std::string(text).find(part), std::string::npos)                   \
      << "expected '" << part << "' in: " << text

} // namespace intarsia::test

#endif // INTARSIA_TEST_UNIT_RUNTIME_PLANFIXTURE_H
