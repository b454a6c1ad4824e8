//===- CallTest.cpp - Calling operators through the shim
//----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Each form of argument and result, and each way in which a kernel can break
// the promise of its fake implementation.
//
//===----------------------------------------------------------------------===//

#include "PlanFixture.h"

#include <cmath>

using namespace intarsia;
using namespace intarsia::test;

namespace {

class CallTest : public ::testing::Test {
protected:
  void SetUp() override {
    loadOperators();
    warnings().clear();
    setWarningHandler([](const char *text) { warnings().push_back(text); });
  }
  void TearDown() override { setWarningHandler(nullptr); }
  static std::vector<std::string> &warnings() {
    static std::vector<std::string> list;
    return list;
  }
};

/// f(x: f32[2, 3]) = op(x, args...) promised as f32[sizes].
std::unique_ptr<Program> unary(const std::string &op,
                               std::vector<plan::Arg> more = {},
                               std::vector<std::string> sizes = {"2", "3"},
                               std::vector<std::string> strides = {"3", "1"},
                               DType dtype = DType::F32, bool strict = false,
                               bool checkAlias = false) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  std::vector<plan::Arg> args = {B::atSlot(0)};
  args.insert(args.end(), more.begin(), more.end());
  plan::Step &step =
      f.call(op, args, {B::tensor(1, f.spec(sizes, strides, dtype))});
  step.checkAlias = checkAlias;
  f.output(1);
  return program({f.function}, {}, strict);
}

TEST_F(CallTest, CallsAnAtenOperator) {
  auto p = unary("aten::mul.Scalar", {B::real(2)});
  EXPECT_EQ(contents(run(*p, {iota({2, 3})})[0]),
            (std::vector<float>{0, 2, 4, 6, 8, 10}));
}

TEST_F(CallTest, FillsDefaultsThatThePlanLeavesOut) {
  auto p = unary("aten::add.Tensor", {B::atSlot(0)});
  EXPECT_EQ(contents(run(*p, {iota({2, 3})})[0]),
            (std::vector<float>{0, 2, 4, 6, 8, 10}));
}

TEST_F(CallTest, NumberForATensorDoesNotPromote) {
  // A Python number: f32 stays f32 although 2.0 is a double.
  auto p = unary("aten::mul.Tensor", {B::real(2)});
  EXPECT_EQ(contents(run(*p, {iota({2, 3})})[0]),
            (std::vector<float>{0, 2, 4, 6, 8, 10}));
}

TEST_F(CallTest, EveryKindOfArgumentArrives) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  using Kind = plan::Arg::Kind;
  f.call("rt::kinds",
         {B::atSlot(0), B::none(), B::list({B::atSlot(0), B::atSlot(0)}),
          B::integer(7), B::list({B::none(), B::atSlot(0)}),
          B::integer(3) /* for a float */, B::boolean(true),
          B::text(Kind::String, "a\"b\nc"), B::real(INFINITY),
          B::dtype(DType::F16), B::text(Kind::Device, "cpu"),
          B::text(Kind::Layout, "strided"),
          B::text(Kind::MemoryFormat, "channels_last"),
          B::list({B::real(1.5), B::integer(2)})},
         {B::number(1)});
  f.output(1);
  auto p = program({f.function});
  Value out = runValues(*p, {iota({2, 3})})[0];
  ASSERT_EQ(out.kind, Value::Kind::Boxed);
  EXPECT_EQ(*torchApi().boxedText(out.boxed),
            "[2, 3] 0 2 [7, 7] 2 3 1 a\"b\nc inf Half cpu Strided "
            "ChannelsLast [1.5, 2]");
  release(out);
}

TEST_F(CallTest, ArgumentThatDoesNotFitTheSchema) {
  std::string text = errorOf(ErrorKind::Load, [] {
    unary("rt::scale", {B::text(plan::Arg::Kind::String, "two")});
  });
  EXPECT_CONTAINS(text,
                  "rt::scale: argument 'factor' of type float cannot take "
                  "the string 'two'");
  EXPECT_CONTAINS(text, "model.py:12");
}

TEST_F(CallTest, UnknownOperator) {
  std::string text =
      errorOf(ErrorKind::Load, [] { unary("nothere::op.overload"); });
  EXPECT_CONTAINS(text, "operator nothere::op.overload is not registered");
  EXPECT_CONTAINS(text, "--op-library");
  text = errorOf(ErrorKind::Load, [] { unary("aten::mul.Typo"); });
  EXPECT_CONTAINS(text, "aten::mul.Scalar");
}

TEST_F(CallTest, ChangedSchemaShowsBoth) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  f.call("rt::same", {B::atSlot(0)}, {B::tensor(1)});
  f.output(1);
  plan::Plan plan;
  plan.functions = {f.function};
  plan.operators = {{"rt::same", "rt::same(Tensor x, float f) -> Tensor", ""}};
  std::string text =
      errorOf(ErrorKind::Load, [&] { Program::create(plan, {}); });
  EXPECT_CONTAINS(text, "compiled for: rt::same(Tensor x, float f) -> Tensor");
  EXPECT_CONTAINS(text, "registered:   rt::same(Tensor x) -> Tensor");
  plan.operators[0].schema = "rt::same(Tensor x) -> Tensor";
  EXPECT_NE(Program::create(plan, {}), nullptr);
}

TEST_F(CallTest, KernelThatRaises) {
  auto p = unary("rt::fail");
  try {
    run(*p, {iota({2, 3})});
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(int(error.kind), int(ErrorKind::Operator));
    EXPECT_STREQ(error.what(), "rt::fail: the kernel refuses [2, 3] "
                               "(model.py:12 in forward: y = f(x))");
    EXPECT_EQ(error.op, "rt::fail");
    EXPECT_EQ(error.location, "model.py:12 in forward: y = f(x)");
    EXPECT_TRUE(error.cause);
  }
}

TEST_F(CallTest, BrokenPromises) {
  auto message = [&](std::vector<std::string> sizes,
                     std::vector<std::string> strides, DType dtype) {
    auto p = unary("rt::same", {}, sizes, strides, dtype);
    return errorOf(ErrorKind::Contract, [&] { run(*p, {iota({2, 3})}); });
  };
  std::string text = message({"4", "4"}, {"4", "1"}, DType::F32);
  EXPECT_CONTAINS(text,
                  "rt::same: output 0 has size [2, 3], but its fake "
                  "implementation promised [4, 4] (model.py:12 in forward: y = "
                  "f(x)). Fix the fake implementation or the kernel");
  EXPECT_CONTAINS(message({"6"}, {"1"}, DType::F32), "has size [2, 3]");
  EXPECT_CONTAINS(message({"2", "3"}, {"3", "1"}, DType::F64),
                  "output 0 has dtype float32, but its fake implementation "
                  "promised float64");
}

TEST_F(CallTest, FakeLocationIsNamed) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  f.call("rt::same", {B::atSlot(0)}, {B::tensor(1, f.spec({"3"}, {"1"}))});
  f.output(1);
  plan::Plan plan;
  plan.functions = {f.function};
  plan.operators = {{"rt::same", "", "ops.py:10"}};
  auto p = Program::create(plan, {});
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Contract, [&] { run(*p, {iota({2, 3})}); }),
      "Fix the fake implementation (ops.py:10) or the kernel");
}

TEST_F(CallTest, OtherStridesAreCopiedWithOneWarning) {
  auto p = unary("rt::transposed");
  for (int i = 0; i < 3; ++i) {
    Tensor out = run(*p, {iota({2, 3})})[0];
    EXPECT_EQ(out.strides(), (std::vector<int64_t>{3, 1}));
    EXPECT_EQ(contents(out), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  }
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_CONTAINS(warnings()[0], "rt::transposed: output 0 has strides [1, 2]");
  EXPECT_CONTAINS(warnings()[0], "promised [3, 1]");
  EXPECT_CONTAINS(warnings()[0], "model.py:12");
}

TEST_F(CallTest, OtherStridesAreAnErrorWhenStrict) {
  auto p =
      unary("rt::transposed", {}, {"2", "3"}, {"3", "1"}, DType::F32, true);
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Contract, [&] { run(*p, {iota({2, 3})}); }),
      "output 0 has strides [1, 2]");
}

TEST_F(CallTest, UndeclaredAlias) {
  auto p = unary("rt::identity", {}, {"2", "3"}, {"3", "1"}, DType::F32, false,
                 /*checkAlias=*/true);
  std::string text =
      errorOf(ErrorKind::Contract, [&] { run(*p, {iota({2, 3})}); });
  EXPECT_CONTAINS(text, "rt::identity: output 0 shares memory with argument "
                        "'x', which its schema does not declare");
  auto honest =
      unary("rt::same", {}, {"2", "3"}, {"3", "1"}, DType::F32, false, true);
  EXPECT_EQ(run(*honest, {iota({2, 3})}).size(), 1u);
}

TEST_F(CallTest, UnbackedSizeIsBoundAndChecked) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  int32_t u0 = f.symbol("u0", 0, 4);
  plan::Result indices =
      B::tensor(1, f.spec({"u0", "2"}, {"2", "1"}, DType::I64));
  plan::Result count = B::number(2);
  count.bindsSymbol = u0;
  f.call("rt::nonzero_count", {B::atSlot(0)}, {indices, count});
  f.function.outputs = {B::atSlot(1), B::ofExpr(f.expr("2*u0"))};
  auto p = program({f.function});
  Tensor x = iota({2, 3});
  float *data = static_cast<float *>(x.data());
  data[4] = data[5] = 0;
  std::vector<Value> out = runValues(*p, {x});
  EXPECT_EQ(Tensor(out[0].tensor).sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(out[1].integer, 6);
  // Five elements are not zero: more than the fake allowed.
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Contract, [&] { run(*p, {iota({2, 3})}); }),
      "output 1 is 5, but its fake implementation promised a value from 0 to "
      "4");
}

TEST_F(CallTest, NumberIsWhatTheProgramWasTracedWith) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  plan::Result indices, count = B::number(1);
  count.expect = f.expr("6");
  f.call("rt::nonzero_count", {B::atSlot(0)}, {indices, count});
  f.function.outputs = {B::atSlot(1)};
  auto p = program({f.function});
  Tensor x = iota({2, 3});
  static_cast<float *>(x.data())[0] = 9;
  EXPECT_EQ(runValues(*p, {x})[0].integer, 6);
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Contract, [&] { run(*p, {iota({2, 3})}); }),
      "output 1 is 5, but its fake implementation promised 6");
}

TEST_F(CallTest, UnbackedSizeFromATensorsDimension) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  int32_t u0 = f.symbol("u0", 0);
  plan::Result indices =
      B::tensor(1, f.spec({"u0", "2"}, {"1", "u0"}, DType::I64));
  indices.bindsSize = {{u0, 0}};
  plan::Step &step = f.call("aten::nonzero", {B::atSlot(0)}, {indices});
  (void)step;
  f.output(1);
  f.function.outputs.push_back(B::ofExpr(f.expr("u0")));
  auto p = program({f.function});
  std::vector<Value> out = runValues(*p, {iota({2, 3})});
  EXPECT_EQ(Tensor(out[0].tensor).sizes(), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(out[1].integer, 5);
}

TEST_F(CallTest, ListsOfResults) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  plan::Result list;
  list.kind = plan::Result::Kind::List;
  list.list = {B::tensor(1, f.spec({"1", "3"}, {"3", "1"})),
               B::tensor(2, f.spec({"1", "3"}, {"3", "1"}))};
  f.call("rt::halves", {B::atSlot(0)}, {list});
  f.output(2);
  auto p = program({f.function});
  EXPECT_EQ(contents(run(*p, {iota({2, 3})})[0]),
            (std::vector<float>{3, 4, 5}));

  B g("forward");
  g.input("x", 0, g.spec({"2", "3"}, {"3", "1"}));
  list.list = {B::tensor(1)};
  g.call("rt::halves", {B::atSlot(0)}, {list});
  g.output(1);
  auto q = program({g.function});
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Contract, [&] { run(*q, {iota({2, 3})}); }),
      "output 0 has 2 members, but its fake implementation promised 1");

  // A wrong member is named by its place.
  B h("forward");
  h.input("x", 0, h.spec({"2", "3"}, {"3", "1"}));
  list.list = {B::tensor(1), B::tensor(2, h.spec({"3"}, {"1"}))};
  h.call("rt::halves", {B::atSlot(0)}, {list});
  h.output(2);
  auto r = program({h.function});
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Contract, [&] { run(*r, {iota({2, 3})}); }),
      "output 0[1] has size [1, 3]");
}

TEST_F(CallTest, OptionalResult) {
  auto make = [](bool give, bool promised) {
    B f("forward");
    f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
    plan::Result second = B::tensor(2, f.spec({"2", "3"}, {"3", "1"}));
    if (!promised) {
      second = plan::Result();
      second.kind = plan::Result::Kind::None;
    }
    f.call("rt::maybe", {B::atSlot(0), B::boolean(give)},
           {B::tensor(1), second});
    f.output(1);
    return program({f.function});
  };
  EXPECT_EQ(run(*make(true, true), {iota({2, 3})}).size(), 1u);
  EXPECT_EQ(run(*make(false, false), {iota({2, 3})}).size(), 1u);
  EXPECT_CONTAINS(errorOf(ErrorKind::Contract,
                          [&] { run(*make(false, true), {iota({2, 3})}); }),
                  "output 1 is None, but its fake implementation promised a "
                  "tensor");
  EXPECT_CONTAINS(errorOf(ErrorKind::Contract,
                          [&] { run(*make(true, false), {iota({2, 3})}); }),
                  "output 1 is Tensor, but its fake implementation promised "
                  "None");
}

TEST_F(CallTest, KernelMayUseAutogradInside) {
  auto p = unary("rt::gradient_of_square");
  EXPECT_EQ(contents(run(*p, {iota({2, 3})})[0]),
            (std::vector<float>{0, 2, 4, 6, 8, 10}));
}

TEST_F(CallTest, MutationReachesTheTensor) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  plan::Step &step = f.call("rt::add_one", {B::atSlot(0)}, {});
  step.mutates = {0};
  auto p = program({f.function});
  Tensor x = iota({2, 3});
  run(*p, {x});
  EXPECT_EQ(contents(x), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(CallTest, MutationIsCountedOnceBelowAutograd) {
  // aten::add_.Tensor below ADInplaceOrView does not count its write;
  // aten::add_.Scalar calls it through the dispatcher, which does.
  for (bool scalar : {false, true}) {
    B f("forward");
    f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
    plan::Result tied;
    tied.kind = plan::Result::Kind::Tied;
    f.call(scalar ? "aten::add_.Scalar" : "aten::add_.Tensor",
           {B::atSlot(0), B::integer(1)}, {tied})
        .mutates = {0};
    auto p = program({f.function});
    Tensor x = iota({2, 3});
    int64_t before = torchApi().version(x.get());
    run(*p, {x});
    EXPECT_EQ(torchApi().version(x.get()), before + 1) << scalar;
  }
}

TEST_F(CallTest, ViewArgumentSharesMemory) {
  B f("forward");
  f.input("x", 0, f.spec({"2", "3"}, {"3", "1"}));
  plan::Arg view;
  view.kind = plan::Arg::Kind::View;
  view.slot = 0;
  view.sizes = {f.expr("3")};
  view.strides = {f.expr("1")};
  view.offset = f.expr("3");
  f.call("rt::add_one", {view}, {}).mutates = {0};
  auto p = program({f.function});
  Tensor x = iota({2, 3});
  run(*p, {x});
  EXPECT_EQ(contents(x), (std::vector<float>{0, 1, 2, 4, 5, 6}));
}

TEST_F(CallTest, SchemaAsJson) {
  const char *json = torchApi().operatorSchema("rt::defaults");
  ASSERT_NE(json, nullptr);
  std::string text = json;
  EXPECT_CONTAINS(text, "\"name\": \"rt::defaults\"");
  EXPECT_CONTAINS(text, "{\"name\": \"n\", \"type\": \"int\", \"kwarg_only\": "
                        "false, \"alias_set\": [], \"is_write\": false, "
                        "\"default\": {\"kind\": \"int\", \"value\": 3}}");
  EXPECT_CONTAINS(text, "{\"kind\": \"float\", \"value\": 2.0}");
  EXPECT_CONTAINS(text, "{\"kind\": \"string\", \"value\": \"a\\\"b\"}");
  EXPECT_CONTAINS(text, "\"type\": \"int[2]\"");
  EXPECT_CONTAINS(text, "\"type\": \"ScalarType?\"");
  EXPECT_CONTAINS(text,
                  "{\"name\": \"out\", \"type\": \"Tensor?\", "
                  "\"kwarg_only\": true, \"alias_set\": [\"a\"], "
                  "\"is_write\": true, \"default\": {\"kind\": \"none\"}}");
  EXPECT_CONTAINS(
      text, "{\"kind\": \"memoryformat\", \"value\": \"contiguous_format\"}");
  EXPECT_EQ(torchApi().operatorSchema("rt::nothing"), nullptr);
  text = torchApi().operatorSchema("aten::expand");
  EXPECT_CONTAINS(text, "\"type\": \"SymInt[]\"");
  text = torchApi().operatorSchema("aten::add_.Tensor");
  EXPECT_CONTAINS(text, "\"inplace\"");
}

} // namespace
