//===- PlanTest.cpp - Plans as text
//-------------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What is written is read back exactly, faults are named by their place, and
// the listing says what a reader needs.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Plan/Plan.h"
#include "intarsia/Plan/Metadata.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace intarsia;
using namespace intarsia::plan;

namespace {

Arg floatArg(double value) {
  Arg arg;
  arg.kind = Arg::Kind::Float;
  arg.real = value;
  return arg;
}

/// Something in every field.
Plan everything() {
  Plan plan;
  Function f;
  f.name = "forward";
  f.exprs = {SymExpr::symbol("s0"), SymExpr(4), *SymExpr::parse("s0*4 + 1")};
  f.symbols = {{"s0", false, 2, 64}, {"zf0", true, {}, {}}};
  Input x;
  x.name = "x";
  x.slot = 0;
  TensorSpec spec;
  spec.dtype = DType::BF16;
  spec.device = "cuda:1";
  spec.sizes = {0, 1};
  spec.strides = {1, 1};
  x.spec = spec;
  x.checkStrides = true;
  f.inputs.push_back(x);
  Input constant;
  constant.name = "mode";
  constant.kind = Input::Kind::Constant;
  constant.constant.kind = Arg::Kind::String;
  constant.constant.text = "a\"b\nc";
  f.inputs.push_back(constant);
  f.guards = {{2, "s0*4 + 1"}};

  Step call;
  call.op = "mylib::op.overload";
  call.location = "model.py:12 in forward: y = f(x)";
  call.checkAlias = true;
  call.fixStrides = false;
  call.autocast = "cpu=bf16";
  call.mutates = {0};
  Arg list;
  list.kind = Arg::Kind::List;
  list.list = {
      floatArg(INFINITY), floatArg(-INFINITY),
      floatArg(NAN),      floatArg(0.1),
      floatArg(-0.0),     floatArg(std::numeric_limits<double>::denorm_min())};
  Arg complex;
  complex.kind = Arg::Kind::Complex;
  complex.real = 1;
  complex.imaginary = -INFINITY;
  Arg view;
  view.kind = Arg::Kind::View;
  view.slot = 0;
  view.sizes = {1};
  view.strides = {1};
  view.offset = 1;
  Arg integer;
  integer.kind = Arg::Kind::Int;
  integer.integer = std::numeric_limits<int64_t>::min();
  Arg dtype;
  dtype.kind = Arg::Kind::DType;
  dtype.dtype = DType::F8E4M3FN;
  call.args = {list, complex, view, integer, dtype, Arg()};
  Result result;
  result.kind = Result::Kind::Tensor;
  result.slot = 1;
  result.spec = spec;
  result.bindsSize = {{0, 1}};
  result.expect = 2;
  Result lists;
  lists.kind = Result::Kind::List;
  lists.list = {result, Result()};
  call.results = {result, lists};
  f.steps.push_back(call);

  Step launch;
  launch.kind = Step::Kind::Launch;
  launch.kernel = 0;
  launch.buffers = {0, 1};
  launch.symbols = {0};
  launch.domain = 0;
  launch.grain = 1;
  launch.scratch = 2;
  launch.threads = 1;
  launch.blocks = 2;
  launch.shared = 1;
  launch.extent = 2;
  f.steps.push_back(launch);
  Step scan;
  scan.kind = Step::Kind::Scan;
  scan.functions = {"body"};
  scan.carried = 1;
  scan.scanned = 2;
  f.steps.push_back(scan);
  Step foreign;
  foreign.kind = Step::Kind::LaunchForeign;
  foreign.kernel = 1;
  foreign.args = {call.args[3]};
  foreign.mutates = {1};
  foreign.symbols = {0, 1, 2};
  f.steps.push_back(foreign);
  Arg output;
  output.kind = Arg::Kind::Slot;
  output.slot = 1;
  f.outputs = {output};
  f.slotCount = 2;
  f.arenaSize = 1;
  plan.functions = {f, Function{}};
  plan.functions[1].name = "body";
  plan.kernels = {{"k0",
                   "aten::add.Tensor, aten::mul.Tensor",
                   "cpu",
                   {Check{"a", true}, Check{"b"}}},
                  {"add", "Triton, kernels.py:3", "cuda", {}}};
  plan.kernels[1].variants = {{"add_1", "add", 128, {"*/16", "", "i32"}, 2}};
  plan.operators = {{"mylib::op.overload",
                     "mylib::op.overload(Tensor x) -> Tensor", "ops.py:10"}};
  Weight weight;
  weight.name = "lin.weight";
  weight.spec = spec;
  weight.record = "data/weights/weight_0";
  weight.storageOffset = 5;
  weight.mutated = true;
  plan.weights = {weight};
  plan.outputs = {{OutputInfo::Kind::BufferMutation, "lin.weight"}};
  plan.inSpec = "[1, {}]";
  plan.strict = true;
  plan.products = Products::OneDNN;
  return plan;
}

TEST(PlanTest, RoundTrip) {
  Plan plan = everything();
  std::string json = toJson(plan);
  Plan back = fromJson(json);
  EXPECT_EQ(toJson(back), json);
  const Step &call = back.functions[0].steps[0];
  const std::vector<Arg> &numbers = call.args[0].list;
  EXPECT_EQ(numbers[0].real, INFINITY);
  EXPECT_EQ(numbers[1].real, -INFINITY);
  EXPECT_TRUE(std::isnan(numbers[2].real));
  EXPECT_EQ(numbers[3].real, 0.1);
  EXPECT_TRUE(std::signbit(numbers[4].real));
  EXPECT_EQ(numbers[5].real, std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(call.args[1].imaginary, -INFINITY);
  EXPECT_EQ(call.args[3].integer, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(call.results[1].list[0].bindsSize,
            (std::vector<std::pair<int32_t, int32_t>>{{0, 1}}));
  EXPECT_EQ(call.results[0].expect, 2);
  EXPECT_FALSE(call.fixStrides);
  EXPECT_EQ(call.autocast, "cpu=bf16");
  EXPECT_EQ(back.functions[0].inputs[1].constant.text, "a\"b\nc");
  EXPECT_EQ(back.functions[0].exprs[2], plan.functions[0].exprs[2]);
  EXPECT_EQ(back.functions[0].steps[2].scanned, 2);
  EXPECT_EQ(back.functions[0].steps[3].symbols, (std::vector<ExprId>{0, 1, 2}));
  EXPECT_EQ(back.kernels[1].variants[0].parameters,
            (std::vector<std::string>{"*/16", "", "i32"}));
  EXPECT_EQ(back.kernels[1].variants[0].scratch, 2);
  EXPECT_EQ(back.weights[0].storageOffset, 5);
}

std::string faultOf(const std::string &json) {
  try {
    fromJson(json);
  } catch (const std::runtime_error &error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanTest, FaultsAreNamedByTheirPlace) {
  EXPECT_NE(faultOf("{\"functions\": [").find("malformed plan"),
            std::string::npos);
  EXPECT_EQ(faultOf("{}"), "malformed plan: top level: there is no function");
  EXPECT_EQ(faultOf("{\"functions\": [{\"name\": \"f\", \"slotCount\": 1, "
                    "\"steps\": [{\"kind\": \"jump\"}]}]}"),
            "malformed plan: functions[0].steps[0].kind: unknown kind 'jump'");
  EXPECT_EQ(
      faultOf("{\"functions\": [{\"name\": \"f\", \"slotCount\": \"1\"}]}"),
      "malformed plan: functions[0].slotCount: an integer is expected");
  EXPECT_EQ(faultOf("{\"functions\": [{\"slotCount\": 1}]}"),
            "malformed plan: functions[0]: field 'name' is missing");
  EXPECT_NE(
      faultOf("{\"functions\": [{\"name\": \"f\", \"slotCount\": 0, "
              "\"exprs\": [\"s0 +\"]}]}")
          .find("functions[0].exprs[0]: cannot read the expression 's0 +'"),
      std::string::npos);
  EXPECT_NE(faultOf("{\"functions\": [{\"name\": \"f\", \"slotCount\": 0, "
                    "\"inputs\": [{\"name\": \"x\", \"kind\": \"tensor\", "
                    "\"spec\": {\"dtype\": \"f33\"}}]}]}")
                .find("functions[0].inputs[0].spec.dtype: unknown dtype 'f33'"),
            std::string::npos);
}

TEST(PlanTest, DeepListsAreRefused) {
  std::string arg = "{\"kind\": \"none\"}";
  for (int i = 0; i < 1000; ++i)
    arg = "{\"kind\": \"list\", \"list\": [" + arg + "]}";
  EXPECT_NE(faultOf("{\"functions\": [{\"name\": \"f\", \"slotCount\": 0, "
                    "\"outputs\": [" +
                    arg + "]}]}")
                .find("nested too deeply"),
            std::string::npos);
}

TEST(PlanTest, BytesThatAreNotUtf8AreStillWritten) {
  Plan plan = everything();
  plan.functions[0].steps[0].location = "caf\xe9.py:1";
  EXPECT_NO_THROW(fromJson(toJson(plan)));
}

TEST(PlanTest, Listing) {
  std::string text = print(everything());
  for (const char *line :
       {"weight \"lin.weight\": bf16[s0, 4] strides [4, 4] on cuda:1",
        "kernel 0 @k0 (cpu): aten::add.Tensor, aten::mul.Tensor",
        "func forward(x: bf16[s0, 4]", "range s0 in [2, 64]",
        "call mylib::op.overload([inf, -inf, nan, 0.10000000000000001, -0,",
        "// model.py:12 in forward: y = f(x)",
        "launch 0 @k0(%0, %1) symbols [s0] domain s0 grain 4 scratch",
        "threads 4 blocks", "shared 4 extent", "return %1 into \"lin.weight\""})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
}

TEST(MetadataTest, RoundTrip) {
  Metadata metadata;
  metadata.intarsiaVersion = "0.1.0";
  metadata.torchVersion = "2.15.0";
  metadata.targets = {
      {"cpu", "cpu", "x86-64-v3", {"sse4.2"}, ""},
      {"cpu", "cpu-x", "sapphirerapids", {"avx512f", "sse4.2"}, "abcd"}};
  metadata.targets[1].images = {{"sm_90", "kernels.sm_90.ptx"}};
  metadata.libraries = {{"libops.so", "01ab"}};
  metadata.program = "model.pt2";
  metadata.programDigest = "12-34";
  metadata.operators = {{"mylib::op", "mylib::op(Tensor x) -> Tensor", ""}};
  std::string json = toJson(metadata);
  Metadata back = metadataFromJson(json);
  EXPECT_EQ(toJson(back), json);
  EXPECT_EQ(back.targets[1].features[1], "sse4.2");
  EXPECT_EQ(back.targets[1].images.at(0).file, "kernels.sm_90.ptx");
  EXPECT_THROW(metadataFromJson("{\"format\": \"one\"}"), std::runtime_error);
}

} // namespace
