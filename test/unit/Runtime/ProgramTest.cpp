//===- ProgramTest.cpp - Running plans
//----------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What happens at entry (binding, guards, layouts), every kind of step, memory
// and threads.
//
//===----------------------------------------------------------------------===//

#include "PlanFixture.h"

#include <atomic>
#include <thread>

using namespace intarsia;
using namespace intarsia::test;
using plan::Step;

namespace {

class ProgramTest : public ::testing::Test {
protected:
  void SetUp() override { loadOperators(); }
};

/// f(x: f32[s0, 3]) = x * 2, with s0 in [2, 8] and even.
B dynamicFunction() {
  B f("forward");
  f.symbol("s0", 2, 8);
  f.input("x", 0, f.spec({"s0", "3"}, {"3", "1"}));
  f.function.guards.push_back({f.expr("eq(mod(s0, 2), 0)"), "s0 % 2 == 0"});
  f.call("aten::mul.Scalar", {B::atSlot(0), B::integer(2)},
         {B::tensor(1, f.spec({"s0", "3"}, {"3", "1"}))});
  f.free({0});
  f.output(1);
  f.function.outputs.push_back(B::ofExpr(f.expr("s0*3")));
  return f;
}

TEST_F(ProgramTest, SymbolsAreBoundFromInputs) {
  auto p = program({dynamicFunction().function});
  for (int64_t n : {2, 4, 8}) {
    std::vector<Value> out = runValues(*p, {iota({n, 3})});
    EXPECT_EQ(Tensor(out[0].tensor).sizes(), (std::vector<int64_t>{n, 3}));
    EXPECT_EQ(out[1].integer, 3 * n);
  }
}

TEST_F(ProgramTest, InputsThatDoNotFit) {
  auto p = program({dynamicFunction().function});
  auto message = [&](const std::vector<Tensor> &inputs) {
    return errorOf(ErrorKind::Guard, [&] { runValues(*p, inputs); });
  };
  EXPECT_CONTAINS(message({Tensor::empty(DType::F64, {2, 3})}),
                  "input \"x\": expected dtype float32, got float64");
  EXPECT_CONTAINS(message({iota({6})}),
                  "input \"x\": expected 2 dimensions, got 1 (size [6])");
  EXPECT_CONTAINS(message({iota({2, 4})}),
                  "input \"x\": expected size 3 in dimension 1, got 4");
  EXPECT_CONTAINS(message({iota({1, 3})}),
                  "input \"x\": the size of dimension 0 is 1, but the program "
                  "was compiled for 2 to 8 (s0)");
  EXPECT_CONTAINS(message({iota({3, 3})}),
                  "do not satisfy the condition 's0 % 2 == 0'");
  EXPECT_CONTAINS(message({iota({3, 3})}), "s0 = 3");
  EXPECT_CONTAINS(message({iota({3, 3})}), "size 0 of input \"x\"");
  EXPECT_CONTAINS(message({}), "takes 1 inputs, got 0");
}

TEST_F(ProgramTest, SizesAreComparedAcrossInputs) {
  B f("forward");
  f.symbol("s0");
  f.input("x", 0, f.spec({"2*s0"}, {"1"}));
  f.input("y", 1, f.spec({"s0"}, {"1"}));
  f.output(0);
  auto p = program({f.function});
  run(*p, {iota({6}), iota({3})});
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Guard, [&] { run(*p, {iota({5}), iota({3})}); }),
      "input \"x\": expected size 6 (2*s0 with s0 = 3) in dimension 0, got 5");
}

TEST_F(ProgramTest, OtherLayoutIsCopiedUnlessItIsAGuard) {
  for (bool checked : {false, true}) {
    B f("forward");
    f.input("x", 0, f.spec({"2", "3"}, {"3", "1"})).checkStrides = checked;
    f.output(0);
    auto p = program({f.function});
    Tensor base = iota({3, 2});
    int64_t sizes[] = {2, 3}, strides[] = {1, 2};
    TensorImpl *view = nullptr;
    ASSERT_EQ(torchApi().asStrided(base.get(), 2, sizes, strides, 0, &view), 0);
    Tensor x(view);
    if (checked) {
      EXPECT_CONTAINS(errorOf(ErrorKind::Guard, [&] { run(*p, {x}); }),
                      "input \"x\": expected strides [3, 1], got [1, 2]");
      continue;
    }
    Tensor out = run(*p, {x})[0];
    EXPECT_EQ(out.strides(), (std::vector<int64_t>{3, 1}));
    EXPECT_EQ(contents(out), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  }
}

TEST_F(ProgramTest, ConstantInputs) {
  B f("forward");
  f.input("x", 0, f.spec({"2"}, {"1"}));
  plan::Input flag;
  flag.name = "flag";
  flag.kind = plan::Input::Kind::Constant;
  flag.constant = B::boolean(true);
  f.function.inputs.push_back(flag);
  f.output(0);
  auto p = program({f.function});
  Tensor x = iota({2});
  Value inputs[] = {Value::of(x.get()), Value::of(true)}, output;
  p->run(inputs, 2, &output, 1);
  release(output);
  inputs[1] = Value::of(false);
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Guard, [&] { p->run(inputs, 2, &output, 1); }),
      "input \"flag\": the program was exported with True, got False");
}

TEST_F(ProgramTest, SymIntInputs) {
  B f("forward");
  f.symbol("s0", 1, 5);
  plan::Input n;
  n.name = "n";
  n.kind = plan::Input::Kind::SymInt;
  n.symbol = 0;
  f.function.inputs.push_back(n);
  f.function.outputs = {B::ofExpr(f.expr("floordiv(s0, 2) + 1")),
                        B::ofExpr(f.expr("truediv(s0, 2)")),
                        B::ofExpr(f.expr("lt(s0, 3)"))};
  auto p = program({f.function});
  Value input = Value::of(int64_t(5)), outputs[3];
  p->run(&input, 1, outputs, 3);
  EXPECT_EQ(outputs[0].integer, 3);
  EXPECT_EQ(outputs[1].kind, Value::Kind::Float);
  EXPECT_EQ(outputs[1].real, 2.5);
  EXPECT_EQ(outputs[2].kind, Value::Kind::Bool);
  EXPECT_FALSE(outputs[2].boolean);
  input = Value::of(int64_t(6));
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Guard, [&] { p->run(&input, 1, outputs, 3); }),
      "input \"n\": the value is 6, but the program was compiled for 1 to 5");
}

TEST_F(ProgramTest, TensorsAreFreedAtTheirLastUse) {
  B f("forward");
  f.input("x", 0, f.spec({"2"}, {"1"}));
  f.call("rt::same", {B::atSlot(0)}, {B::tensor(1)});
  f.free({0});
  f.output(1);
  auto p = program({f.function});
  Tensor x = iota({2}), watch = x;
  int64_t before = torchApi().storageUseCount(watch.get());
  Value input = Value::of(x.take()), output;
  p->run(&input, 1, &output, 1, Program::StealInputs);
  EXPECT_EQ(input.kind, Value::Kind::None);
  release(output);
  EXPECT_EQ(torchApi().storageUseCount(watch.get()), before);
  // Also when it throws.
  Value wrong = Value::of(iota({3}).take());
  errorOf(ErrorKind::Guard,
          [&] { p->run(&wrong, 1, &output, 1, Program::StealInputs); });
  EXPECT_EQ(wrong.kind, Value::Kind::None);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// f(x: f32[s0, 3]) = double_rows(add_one_rows(x)), the sum in the arena.
std::unique_ptr<Program> kernelProgram(bool parallel) {
  B f("forward");
  f.symbol("s0");
  f.input("x", 0, f.spec({"s0", "3"}, {"3", "1"}));
  f.function.arenaSize = f.expr("12*s0 + 64");
  Step &arena = f.step(Step::Kind::Alloc);
  arena.slot = f.grow(1);
  arena.spec = f.spec({"s0", "3"}, {"3", "1"});
  arena.offset = f.expr("64");
  auto launch = [&](int32_t kernel, plan::Slot from, plan::Slot to) {
    Step &step = f.step(Step::Kind::Launch);
    step.kernel = kernel;
    step.buffers = {from, to};
    step.symbols = {f.expr("3")};
    step.domain = f.expr("s0");
    step.grain = f.expr(parallel ? "1" : "1000000");
    step.scratch = f.expr("12");
  };
  launch(0, 0, 1);
  Step &alloc = f.step(Step::Kind::Alloc);
  alloc.slot = f.grow(2);
  alloc.spec = f.spec({"s0", "3"}, {"3", "1"});
  launch(1, 1, 2);
  f.output(2);
  plan::Plan plan;
  plan.functions = {f.function};
  plan.kernels = {{"add_one_rows", "aten::add", "cpu", {}},
                  {"double_rows", "aten::mul", "cpu", {}}};
  Program::Options options;
  options.kernelLibrary = RUNTIME_TEST_KERNELS;
  return Program::create(plan, options);
}

/// Whether both results of a function are one tensor.
bool returnsOneTensor(B &f, const Tensor &x) {
  auto p = program({f.function});
  Value input = Value::of(x.get()), outputs[2];
  p->run(&input, 1, outputs, 2);
  bool isSame = outputs[0].tensor == outputs[1].tensor;
  for (Value &output : outputs)
    release(output);
  return isSame;
}

TEST_F(ProgramTest, ATensorIsTakenOverWhenNobodyElseHoldsIt) {
  // x -> its copy -> the same tensor, or one of its own, of the given sizes.
  auto run = [&](bool isHeld, std::vector<std::string> sizes) {
    B f("forward");
    f.input("x", 0, f.spec({"2"}, {"1"}));
    Step &clone = f.step(Step::Kind::Clone);
    clone.source = 0;
    clone.slot = f.grow(1);
    if (isHeld) {
      Step &move = f.step(Step::Kind::Move);
      move.source = 1;
      move.slot = f.grow(2);
    }
    Step &alloc = f.step(Step::Kind::Alloc);
    alloc.source = 1;
    alloc.slot = f.grow(3);
    alloc.spec = f.spec(sizes, {"1"});
    f.output(1);
    f.output(3);
    return returnsOneTensor(f, iota({2}));
  };
  EXPECT_TRUE(run(false, {"2"}));
  EXPECT_FALSE(run(true, {"2"}));
  EXPECT_FALSE(run(false, {"1"}));
}

TEST_F(ProgramTest, AViewIsTakenOverWhenItIsAllOfItsStorage) {
  // x -> its copy -> a view, which is left alone -> the same tensor, or
  // another.
  auto run = [&](std::vector<std::string> sizes,
                 std::vector<std::string> strides, const char *offset) {
    B f("forward");
    f.input("x", 0, f.spec({"4"}, {"1"}));
    Step &clone = f.step(Step::Kind::Clone);
    clone.source = 0;
    clone.slot = f.grow(1);
    Step &view = f.step(Step::Kind::View);
    view.source = 1;
    view.slot = f.grow(2);
    view.spec = f.spec(sizes, strides);
    view.offset = f.expr(offset);
    f.step(Step::Kind::Free).slots = {1};
    Step &alloc = f.step(Step::Kind::Alloc);
    alloc.source = 2;
    alloc.slot = f.grow(3);
    alloc.spec = f.spec(sizes, strides);
    f.output(2);
    f.output(3);
    return returnsOneTensor(f, iota({4}));
  };
  EXPECT_TRUE(run({"2", "2"}, {"2", "1"}, "0"));
  EXPECT_FALSE(run({"2"}, {"1"}, "0"));
  EXPECT_FALSE(run({"2"}, {"1"}, "2"));
}

TEST_F(ProgramTest, KernelsAndArena) {
  for (bool parallel : {false, true}) {
    auto p = kernelProgram(parallel);
    for (int64_t n : {0, 1, 7, 1000}) {
      std::vector<float> out = contents(run(*p, {iota({n, 3})})[0]);
      ASSERT_EQ(out.size(), size_t(3 * n));
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(out[i], 2 * (float(i) + 1));
    }
  }
}

std::unique_ptr<Program> oneKernel(plan::Kernel kernel) {
  B f("forward");
  f.input("x", 0, f.spec({"2"}, {"1"}));
  Step &step = f.step(Step::Kind::Launch);
  step.kernel = 0;
  step.buffers = {0};
  step.domain = f.expr("1");
  f.output(0);
  plan::Plan plan;
  plan.functions = {f.function};
  plan.kernels = {std::move(kernel)};
  Program::Options options;
  options.kernelLibrary = RUNTIME_TEST_KERNELS;
  return Program::create(plan, options);
}

TEST_F(ProgramTest, KernelOfAnotherPlan) {
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Load, [] { oneKernel({"nothere", "", "cpu", {}}); }),
      "does not define nothere");
  EXPECT_CONTAINS(errorOf(ErrorKind::Load,
                          [] { oneKernel({"add_one_rows", "", "tpu", {}}); }),
                  "for target 'tpu'");
}

TEST_F(ProgramTest, KernelWhoseCheckFails) {
  auto index =
      oneKernel({"failing_check",
                 "",
                 "cpu",
                 {plan::Check{"first"}, plan::Check{"the second", true}}});
  EXPECT_EQ(errorOf(ErrorKind::Index, [&] { run(*index, {iota({2})}); }),
            "the second (model.py:12 in forward: y = f(x))");
  auto value =
      oneKernel({"failing_check",
                 "",
                 "cpu",
                 {plan::Check{"first"}, plan::Check{"out of 0", false}}});
  EXPECT_EQ(errorOf(ErrorKind::Operator, [&] { run(*value, {iota({2})}); }),
            "out of 0 (model.py:12 in forward: y = f(x))");
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

TEST_F(ProgramTest, ViewCloneCopyMove) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  Step &clone = f.step(Step::Kind::Clone);
  clone.slot = f.grow(1);
  clone.source = 0;
  Step &view = f.step(Step::Kind::View);
  view.slot = f.grow(2);
  view.source = 1;
  view.spec = f.spec({"3", "2"}, {"1", "3"});
  view.offset = f.expr("0");
  Step &row = f.step(Step::Kind::View);
  row.slot = f.grow(3);
  row.source = 0;
  row.spec = f.spec({"3", "2"}, {"0", "1"});
  row.offset = f.expr("4");
  Step &copy = f.step(Step::Kind::Copy);
  copy.slot = 2;
  copy.source = 3;
  Step &move = f.step(Step::Kind::Move);
  move.slot = f.grow(4);
  move.source = 1;
  f.free({1, 2, 3});
  f.output(4);
  auto p = program({f.function});
  Tensor x = iota({2, 3});
  EXPECT_EQ(contents(run(*p, {x})[0]), (std::vector<float>{4, 4, 4, 5, 5, 5}));
  EXPECT_EQ(contents(x), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST_F(ProgramTest, AssertAndItsPlace) {
  B f("forward");
  f.symbol("s0");
  f.input("x", 0, f.spec({"s0"}, {"1"}));
  Step &step = f.step(Step::Kind::Assert);
  step.expr = f.expr("lt(s0, 3)");
  step.text = "x must be short";
  f.output(0);
  auto p = program({f.function});
  run(*p, {iota({2})});
  EXPECT_EQ(errorOf(ErrorKind::Guard, [&] { run(*p, {iota({3})}); }),
            "x must be short with s0 = 3 (model.py:12 in forward: y = f(x))");
}

TEST_F(ProgramTest, GradModeIsRestored) {
  B f("forward");
  f.input("x", 0, f.spec({"2"}, {"1"}));
  f.step(Step::Kind::SetGrad).flag = false;
  f.call("rt::grad_mode", {B::atSlot(0)}, {B::number(1)});
  f.call("rt::fail", {B::atSlot(0)}, {B::tensor(2)});
  f.output(1);
  auto p = program({f.function});
  torchApi().setGradEnabled(true);
  errorOf(ErrorKind::Operator, [&] { runValues(*p, {iota({2})}); });
  EXPECT_TRUE(torchApi().gradEnabled());
}

/// g(x: f32[2]) = op(x, 2)
plan::Function branch(const std::string &name, const std::string &op) {
  B f(name);
  f.input("x", 0, f.spec({"2"}, {"1"}));
  f.call(op, {B::atSlot(0), B::integer(2)},
         {B::tensor(1, f.spec({"2"}, {"1"}))});
  f.output(1);
  return f.function;
}

TEST_F(ProgramTest, Cond) {
  B f("forward");
  f.symbol("s0");
  f.input("x", 0, f.spec({"2"}, {"1"}));
  f.input("y", 1, f.spec({"s0"}, {"1"}));
  Step &step = f.step(Step::Kind::Cond);
  step.functions = {"double", "plus"};
  step.args = {B::ofExpr(f.expr("lt(s0, 3)")), B::atSlot(0)};
  step.results = {B::tensor(f.grow(2), f.spec({"2"}, {"1"}))};
  f.output(2);
  auto p = program({f.function, branch("double", "aten::mul.Scalar"),
                    branch("plus", "aten::add.Scalar")});
  EXPECT_EQ(contents(run(*p, {iota({2}), iota({1})})[0]),
            (std::vector<float>{0, 2}));
  EXPECT_EQ(contents(run(*p, {iota({2}), iota({5})})[0]),
            (std::vector<float>{2, 3}));
}

TEST_F(ProgramTest, WhileReturnsNewTensors) {
  // while i < limit: i, x = i + 1, x * 2
  B cond("cond");
  cond.symbol("u0");
  cond.symbol("u1");
  auto number = [](B &f, const std::string &name, int32_t symbol) {
    plan::Input input;
    input.name = name;
    input.kind = plan::Input::Kind::SymInt;
    input.symbol = symbol;
    f.function.inputs.push_back(input);
  };
  number(cond, "i", 0);
  cond.input("x", 0, cond.spec({"2"}, {"1"}));
  number(cond, "limit", 1);
  cond.function.outputs = {B::ofExpr(cond.expr("lt(u0, u1)"))};
  B body("body");
  body.symbol("u0");
  body.symbol("u1");
  number(body, "i", 0);
  body.input("x", 0, body.spec({"2"}, {"1"}));
  number(body, "limit", 1);
  body.call("aten::mul.Scalar", {B::atSlot(0), B::integer(2)}, {B::tensor(1)});
  body.function.outputs = {B::ofExpr(body.expr("u0 + 1")), B::atSlot(1)};
  B f("forward");
  f.symbol("s0");
  f.input("x", 0, f.spec({"2"}, {"1"}));
  f.input("y", 1, f.spec({"s0"}, {"1"}));
  Step &step = f.step(Step::Kind::While);
  step.functions = {"cond", "body"};
  step.carried = 2;
  step.args = {B::integer(0), B::atSlot(0), B::ofExpr(f.expr("s0"))};
  step.results = {B::number(f.grow(2)), B::tensor(f.grow(3))};
  f.function.outputs = {B::atSlot(2), B::atSlot(3)};
  auto p = program({f.function, cond.function, body.function});
  for (int64_t n : {0, 1, 5}) {
    Tensor x = iota({2});
    std::vector<Value> out = runValues(*p, {x, iota({n})});
    EXPECT_EQ(out[0].integer, n);
    Tensor result(out[1].tensor);
    EXPECT_EQ(contents(result), (std::vector<float>{0, float(1 << n)}));
    EXPECT_NE(torchApi().storage(result.get()), torchApi().storage(x.get()));
  }
}

TEST_F(ProgramTest, MapAndScan) {
  B f("forward");
  f.symbol("s0");
  f.input("x", 0, f.spec({"s0", "2"}, {"2", "1"}));
  f.input("start", 1, f.spec({"2"}, {"1"}));
  Step &map = f.step(Step::Kind::Map);
  map.functions = {"double"};
  map.carried = 1;
  map.args = {B::atSlot(0)};
  map.results = {B::tensor(f.grow(2), f.spec({"s0", "2"}, {"2", "1"}))};
  Step &scan = f.step(Step::Kind::Scan);
  scan.functions = {"sum"};
  scan.carried = 1;
  scan.scanned = 1;
  scan.args = {B::atSlot(1), B::atSlot(2)};
  scan.results = {B::tensor(f.grow(3), f.spec({"2"}, {"1"})),
                  B::tensor(f.grow(4), f.spec({"s0", "2"}, {"2", "1"}))};
  f.function.outputs = {B::atSlot(2), B::atSlot(3), B::atSlot(4)};
  B sum("sum");
  sum.input("state", 0, sum.spec({"2"}, {"1"}));
  sum.input("row", 1, sum.spec({"2"}, {"1"}));
  sum.call("aten::add.Tensor", {B::atSlot(0), B::atSlot(1)}, {B::tensor(2)});
  sum.function.outputs = {B::atSlot(2), B::atSlot(2)};
  auto p =
      program({f.function, branch("double", "aten::mul.Scalar"), sum.function});
  std::vector<Tensor> out = run(*p, {iota({3, 2}), iota({2})});
  EXPECT_EQ(contents(out[0]), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(contents(out[1]), (std::vector<float>{12, 19}));
  EXPECT_EQ(contents(out[2]), (std::vector<float>{0, 3, 4, 9, 12, 19}));
  out = run(*p, {iota({0, 2}), iota({2})});
  EXPECT_EQ(out[0].sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(contents(out[1]), (std::vector<float>{0, 1}));
}

TEST_F(ProgramTest, PythonSteps) {
  B f("forward");
  f.input("x", 0, f.spec({"2"}, {"1"}));
  Step &step = f.step(Step::Kind::Python);
  step.object = 3;
  step.args = {B::list({B::atSlot(0), B::integer(7)}),
               B::text(plan::Arg::Kind::Function, "double")};
  step.results = {B::tensor(f.grow(1), f.spec({"2"}, {"1"}))};
  f.output(1);
  std::vector<plan::Function> functions = {
      f.function, branch("double", "aten::mul.Scalar")};
  EXPECT_CONTAINS(errorOf(ErrorKind::Load, [&] { program(functions); }),
                  "needs Python");
  Program::Options options;
  options.python = [](const PythonCall &call) {
    ASSERT_EQ(call.argCount, 3u);
    EXPECT_EQ(call.args[1].integer, 7);
    Value input = call.args[0];
    call.program.runFunction("double", &input, 1, call.results, 1);
  };
  auto p = program(functions, options);
  EXPECT_EQ(contents(run(*p, {iota({2})})[0]), (std::vector<float>{0, 2}));
}

TEST_F(ProgramTest, MutationsAreCopiedBack) {
  B f("forward");
  f.input("buffer", 0, f.spec({"2"}, {"1"})).weight = "model.buffer";
  f.input("x", 1, f.spec({"2"}, {"1"}));
  f.call("aten::add.Tensor", {B::atSlot(0), B::atSlot(1)}, {B::tensor(2)});
  f.call("aten::mul.Scalar", {B::atSlot(1), B::integer(2)}, {B::tensor(3)});
  f.function.outputs = {B::atSlot(2), B::atSlot(3), B::atSlot(2)};
  plan::Plan plan;
  plan.functions = {f.function};
  plan::Weight weight;
  weight.name = "model.buffer";
  plan.weights = {weight};
  plan.outputs = {{plan::OutputInfo::Kind::BufferMutation, "model.buffer"},
                  {plan::OutputInfo::Kind::InputMutation, "x"},
                  {plan::OutputInfo::Kind::User, ""}};
  Program::Options options;
  options.weight = [](size_t) { return Value::of(iota({2}).take()); };
  auto p = Program::create(plan, options);
  ASSERT_EQ(p->inputCount(), 1u);
  ASSERT_EQ(p->outputCount(), 1u);
  Tensor x = iota({2});
  EXPECT_EQ(contents(run(*p, {x})[0]), (std::vector<float>{0, 2}));
  EXPECT_EQ(contents(x), (std::vector<float>{0, 2}));
  EXPECT_EQ(contents(run(*p, {x})[0]), (std::vector<float>{0, 4}));
}

TEST_F(ProgramTest, ProfileCountsSteps) {
  auto p = program({dynamicFunction().function});
  Profile profile;
  Tensor x = iota({2, 3});
  for (int i = 0; i < 3; ++i) {
    Value input = Value::of(x.get()), outputs[2];
    p->run(&input, 1, outputs, 2, Program::None, &profile);
    release(outputs[0]);
  }
  ASSERT_EQ(profile.steps.size(), 1u);
  EXPECT_EQ(profile.steps[0][0].count, 3);
  EXPECT_EQ(profile.total.count, 3);
}

TEST_F(ProgramTest, ThreadsAreIndependent) {
  auto p = program({dynamicFunction().function});
  auto kernels = kernelProgram(true);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      int64_t n = 2 * (t + 1);
      for (int i = 0; i < 300; ++i) {
        std::vector<Value> out = runValues(*p, {iota({n, 3})});
        Tensor result(out[0].tensor);
        wrong += out[1].integer != 3 * n || contents(result)[3] != 6;
        wrong += contents(run(*kernels, {iota({n, 3})})[0])[5] != 12;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

//===----------------------------------------------------------------------===//
// Plans that must be refused
//===----------------------------------------------------------------------===//

TEST_F(ProgramTest, MalformedPlans) {
  auto message = [](const B &f) {
    return errorOf(ErrorKind::Internal, [&] { program({f.function}); });
  };
  B empty("forward");
  empty.grow(3);
  empty.output(2);
  EXPECT_CONTAINS(message(empty), "slot 2 is read while it is empty");
  B range("forward");
  range.output(7);
  EXPECT_CONTAINS(message(range), "there is no slot 7");
  B unbound("forward");
  unbound.symbol("u0");
  unbound.function.outputs = {B::ofExpr(unbound.expr("u0 + 1"))};
  EXPECT_CONTAINS(message(unbound), "symbol 'u0' is used before it is bound");
  B unknown("forward");
  unknown.function.outputs = {B::ofExpr(unknown.expr("s9"))};
  EXPECT_CONTAINS(message(unknown), "unknown symbol 's9'");
  B twice("forward");
  twice.input("x", 0, twice.spec({"2"}, {"1"}));
  twice.call("rt::same", {B::atSlot(0)}, {B::tensor(0)});
  EXPECT_CONTAINS(message(twice), "slot 0 is filled twice");
  B recursive("forward");
  recursive.step(Step::Kind::Invoke).functions = {"forward"};
  EXPECT_CONTAINS(message(recursive), "calls itself");
}

} // namespace
