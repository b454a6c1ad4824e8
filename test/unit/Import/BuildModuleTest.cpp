//===- BuildModuleTest.cpp - The builder
//------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What each kind of node becomes in the dialect, through both readers.
//
//===----------------------------------------------------------------------===//

#include "Fixtures.h"

#include "dialects/Graph/Graph.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace intarsia;
using namespace intarsia::importer;
using namespace intarsia::importer::test;

#define EXPECT_CONTAINS(text, part)                                            \
  EXPECT_NE((text).find(part), std::string::npos) << (text)
#define EXPECT_LACKS(text, part)                                               \
  EXPECT_EQ((text).find(part), std::string::npos) << (text)

namespace {

class BuildPt2 : public ArchiveFolder {};

/// Reader B's JSON with one graph: tensors are f32[s0, 4] unless `values` says
/// otherwise.
std::string program(const std::string &inputs, const std::string &nodes,
                    const std::string &outputs, const std::string &values,
                    const std::string &rest = "") {
  auto specs = [](const std::string &list, const char *kind, bool named) {
    std::string out;
    size_t count = 0;
    for (size_t at = 0; at < list.size();) {
      size_t end = list.find(',', at);
      if (end == list.npos)
        end = list.size();
      out += (count++ ? "," : "") + std::string("{\"kind\":\"") + kind + "\"" +
             (named ? ",\"name\":\"" + list.substr(at, end - at) + "\"" : "") +
             "}";
      at = end + 1;
    }
    return out;
  };
  auto names = [](const std::string &list, bool asValue) {
    std::string out;
    for (size_t at = 0; at < list.size();) {
      size_t end = list.find(',', at);
      if (end == list.npos)
        end = list.size();
      std::string name = "\"" + list.substr(at, end - at) + "\"";
      out += (out.empty() ? "" : ",") +
             (asValue ? "{\"kind\":\"value\",\"value\":" + name + "}" : name);
      at = end + 1;
    }
    return out;
  };
  return "{\"graph\":{\"inputs\":[" + names(inputs, false) + "],\"nodes\":[" +
         nodes + "],\"outputs\":[" + names(outputs, true) + "],\"values\":{" +
         values + "}},\"inputs\":[" + specs(inputs, "user_input", true) +
         "],\"outputs\":[" + specs(outputs, "useroutput", false) + "]" + rest +
         "}";
}

std::string tensor(const std::string &name, const std::string &sizes,
                   const std::string &strides,
                   const std::string &dtype = "f32") {
  return "\"" + name + "\":{\"kind\":\"tensor\",\"tensor\":{\"dtype\":\"" +
         dtype + "\",\"sizes\":[" + sizes + "],\"strides\":[" + strides + "]}}";
}

const std::string kS0 = "\"Symbol('s0', positive=True, integer=True)\"";
std::string matrix(const std::string &name) {
  return tensor(name, kS0 + ",4", "4,1");
}
std::string value(const std::string &name) {
  return "{\"kind\":\"value\",\"value\":\"" + name + "\"}";
}
std::string output(const std::string &name) {
  return "{\"kind\":\"value\",\"name\":\"" + name + "\"}";
}
std::string node(const std::string &target, const std::string &args,
                 const std::string &outputs, const std::string &rest = "") {
  return "{\"name\":\"n\",\"target\":\"" + target + "\",\"args\":[" + args +
         "],\"outputs\":[" + outputs + "]" + rest + "}";
}
std::string arg(const std::string &value, const std::string &name = "") {
  return "[\"" + name + "\"," + value + "]";
}

std::string importJson(const std::string &json) {
  return importText(readJson(json));
}

} // namespace

TEST_F(BuildPt2, ExportedProgram) {
  std::string text = importText(readPt2(write(modelRecords())));
  // Arguments: names, targets, what is written and what export fixed.
  EXPECT_CONTAINS(text, "%arg0: !intarsia.tensor<[4]xf32> {intarsia.kind = "
                        "\"buffer\", intarsia.mutated, intarsia.name = "
                        "\"b_buf\", intarsia.target = \"buf\"}");
  EXPECT_CONTAINS(text, "intarsia.constant = true, intarsia.kind = "
                        "\"constant_input\"");
  EXPECT_CONTAINS(text, "intarsia.output = \"buffer_mutation\", "
                        "intarsia.target = \"buf\"");
  EXPECT_CONTAINS(text, "intarsia.guards = [\"eq(mod(s0, 8), 0)\"]");
  EXPECT_CONTAINS(text, "#intarsia.operand<3>, #intarsia.none]");
  EXPECT_CONTAINS(text, "s0 = [unit, 64]");
  EXPECT_CONTAINS(text, "record = \"data/weights/weight_0\"");
  // Defaults are filled in, the wrapper is gone, the mutation is by value.
  EXPECT_CONTAINS(text, "\"aten::add.Tensor\"(self = %arg2, other = %arg1, "
                        "alpha = 1)");
  EXPECT_CONTAINS(text, "\"mylib::acc_\"(x = %arg0, y = %arg2) mutates(%arg0)");
  EXPECT_LACKS(text, "auto_functionalized");
  // Views, unbacked symbols, assertions; arithmetic on sizes is no call.
  EXPECT_CONTAINS(text, "views = array<i64: 0, 0>");
  EXPECT_CONTAINS(text, "#intarsia.bind<\"u0\" = 0, \"size:0\">");
  EXPECT_CONTAINS(text, "intarsia.assert \"le(3, s0)\", \"too few rows\"");
  EXPECT_LACKS(text, "sym_size");
}

TEST_F(BuildPt2, LocationsAreTheUsersLines) {
  llvm::Expected<Program> program = readPt2(write(modelRecords()));
  ASSERT_TRUE(static_cast<bool>(program));
  mlir::MLIRContext context;
  auto module = buildModule(*program, &context, testSchemas);
  ASSERT_TRUE(static_cast<bool>(module));
  std::string place;
  (*module)->walk([&](graph::CallOp call) {
    if (call.getCallee() == "aten::add.Tensor")
      place = describeLocation(call.getLoc());
  });
  EXPECT_EQ(place, "/home/me/model.py:12 in forward: return x + self.c");
  EXPECT_EQ(describeLocation(mlir::UnknownLoc::get(&context)), "");
}

TEST_F(BuildPt2, UnfunctionalisedProgramsKeepOrder) {
  auto records = modelRecords();
  std::string &model = records["models/model.json"];
  model.replace(model.find("\"ATEN\""), 6, "\"TRAINING\"");
  // b.add_(x[0]) instead of the wrapper.
  size_t at = model.find("{\"target\": \"torch.ops.higher_order.auto"),
         end = model.find("{\"target\": \"torch.ops.aten.split");
  model.replace(
      at, end - at,
      R"({"target": "torch.ops.aten.add_.Tensor", "name": "add_", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "b_buf"}}, "kind": 1}, {"name": "other", "arg": {"as_tensor": {"name": "c_c"}}, "kind": 1}], "outputs": [{"as_tensor": {"name": "getitem_1"}}], "metadata": {}},)");
  std::string text = importText(readPt2(write(records)));
  EXPECT_CONTAINS(text, "intarsia.aliasing");
  EXPECT_CONTAINS(text, "\"aten::add_.Tensor\"(self = %arg0, other = %arg1) "
                        "mutates(%arg0) returns(tied) {aliasing");
  // What does not touch the written storage stays pure.
  EXPECT_CONTAINS(text, "alpha = 1) {schema");
}

TEST(BuildJson, ArgumentsTakeTheSchemasForms) {
  std::string text = importJson(program(
      "x",
      node("aten::avg_pool",
           arg(value("x")) + "," + arg("{\"kind\":\"int\",\"value\":3}"),
           output("y")),
      "y", matrix("x") + "," + matrix("y")));
  // int[2] from one number, float from an int, a dtype from its number.
  EXPECT_CONTAINS(text, "kernel = [3, 3], scale = 2.0, dtype = dtype<bf16>");
}

TEST(BuildJson, InPlaceWritesToInputsAreResults) {
  std::string text = importJson(program(
      "x,y",
      node("aten::copy_", arg(value("x")) + "," + arg(value("y")), output("c")),
      "y", matrix("x") + "," + matrix("y") + "," + matrix("c")));
  EXPECT_CONTAINS(text, "intarsia.output = \"input_mutation\", intarsia.target "
                        "= \"x\"");
  EXPECT_CONTAINS(text, "return %arg1, %copy_");
  EXPECT_CONTAINS(text, "intarsia.returns = [#intarsia.operand<0>]");
}

TEST(BuildJson, ViewsOfMutatedBases) {
  std::string op = "{\"kind\":\"operator\",\"value\":\"mylib::inc_\"}";
  std::string values = tensor("base", "8,4", "4,1") + "," +
                       tensor("view", "4,8", "8,1") + "," +
                       tensor("new", "8,4", "4,1");
  auto build = [&](const std::string &view) {
    return importJson(program(
        "base",
        node("higher_order::auto_functionalized_v2",
             arg(op) + "," +
                 arg("{\"kind\":\"int\",\"value\":0}", "_x_base_index") + view +
                 "," +
                 arg("{\"kind\":\"list\",\"value\":[" + value("base") + "]}",
                     "_all_bases"),
             output("view") + "," + output("new")),
        "view,new", values));
  };
  auto ints = [](const std::string &a, const std::string &b) {
    return "{\"kind\":\"list\",\"value\":[{\"kind\":\"int\",\"value\":" + a +
           "},{\"kind\":\"int\",\"value\":" + b + "}]}";
  };
  auto integer = [](const std::string &v) {
    return "{\"kind\":\"int\",\"value\":" + v + "}";
  };
  std::string strided = build("," + arg(ints("4", "8"), "_x_size") + "," +
                              arg(ints("8", "1"), "_x_stride") + "," +
                              arg(integer("0"), "_x_storage_offset"));
  EXPECT_CONTAINS(strided, "x = view<%arg0, [4, 8], [8, 1], 0>) mutates(%arg0) "
                           "returns(tied)");
  // What the operator returned is the view of the base's new value.
  EXPECT_CONTAINS(strided, "\"aten::as_strided\"(self = %inc_, size = [4, 8]");

  std::string sliced = build("," + arg(integer("0"), "_x_slice_dim") + "," +
                             arg(integer("2"), "_x_slice_start") + "," +
                             arg(integer("5"), "_x_slice_end"));
  EXPECT_CONTAINS(sliced, "view<%arg0, [3, 4], [4, 1], 8>");

  std::string whole = build("");
  EXPECT_CONTAINS(whole, "x = %arg0) mutates(%arg0) returns(tied)");
  EXPECT_CONTAINS(whole, "return %inc_, %inc_");
  EXPECT_LACKS(whole, "as_strided");
}

TEST(BuildJson, OutArgumentsAreAllocated) {
  std::string op = "{\"kind\":\"operator\",\"value\":\"mylib::out\"}";
  std::string four =
      "{\"kind\":\"list\",\"value\":[{\"kind\":\"int\",\"value\":4}]}";
  std::string one =
      "{\"kind\":\"list\",\"value\":[{\"kind\":\"int\",\"value\":1}]}";
  std::string text = importJson(program(
      "x",
      node("higher_order::auto_functionalized_v2",
           arg(op) + "," + arg(value("x"), "x") + "," + arg(four, "_out_size") +
               "," + arg(one, "_out_stride") + "," +
               arg("{\"kind\":\"dtype\",\"value\":\"f32\"}", "_out_dtype") +
               "," +
               arg("{\"kind\":\"device\",\"value\":\"cpu\"}", "_out_device") +
               "," + arg("{\"kind\":\"list\",\"value\":[]}", "_all_bases"),
           output("y")),
      "y", tensor("x", "4", "1") + "," + tensor("y", "4", "1")));
  EXPECT_CONTAINS(text,
                  "%empty_strided = intarsia.call \"aten::empty_strided\"");
  EXPECT_CONTAINS(text, "\"mylib::out\"(x = %arg0, out = %empty_strided) "
                        "mutates(%empty_strided) returns(tied)");
  EXPECT_CONTAINS(text, "return %out");
}

TEST(BuildJson, EffectsKeepOrderWithoutTokens) {
  std::string json =
      program("t,x",
              node("higher_order::with_effects",
                   arg(value("t")) + "," +
                       arg("{\"kind\":\"operator\",\"value\":\"mylib::nz\"}") +
                       "," + arg(value("x")),
                   output("t2") + "," + output("y")) +
                  "," + node("mylib::print", arg(value("y")), ""),
              "t2,y",
              tensor("t", "0", "1") + "," + tensor("t2", "0", "1") + "," +
                  matrix("x") + "," + matrix("y"));
  json.replace(json.find("\"user_input\",\"name\":\"t\""), 12, "\"token\"");
  std::string text = importJson(json);
  EXPECT_CONTAINS(text, "%arg0: !intarsia.object {intarsia.kind = \"token\"");
  EXPECT_CONTAINS(text, "\"mylib::nz\"(x = %arg1) {effectful");
  EXPECT_CONTAINS(text, "\"mylib::print\"(x = %nz) {effectful");
  EXPECT_CONTAINS(text, "return %arg0, %nz");
}

TEST(BuildJson, SubgraphsGetTheSymbolsTheyUse) {
  std::string body =
      "{\"inputs\":[\"a\"],\"nodes\":[" +
      node("aten::view",
           arg(value("a")) + "," +
               arg("{\"kind\":\"list\",\"value\":[{\"kind\":\"symint\","
                   "\"value\":" +
                   kS0 + "},{\"kind\":\"int\",\"value\":4}]}"),
           output("b")) +
      "],\"outputs\":[" + value("b") + "],\"values\":{" +
      tensor("a",
             "\"Mul(Integer(4), Symbol('s0', positive=True, integer=True))\"",
             "1") +
      "," + matrix("b") + "}}";
  std::string text = importJson(program(
      "p,x,y",
      node("higher_order::cond",
           arg(value("p")) + "," + arg("{\"kind\":\"graph\",\"value\":\"t\"}") +
               "," + arg("{\"kind\":\"graph\",\"value\":\"f\"}") + "," +
               arg("{\"kind\":\"list\",\"value\":[" + value("x") + "]}"),
           output("z")),
      "z",
      tensor("p", "", "", "bool") + "," +
          tensor(
              "x",
              "\"Mul(Integer(4), Symbol('s0', positive=True, integer=True))\"",
              "1") +
          "," + matrix("y") + "," + matrix("z"),
      ",\"graphs\":{\"t\":" + body + ",\"f\":" + body + "}"));
  EXPECT_CONTAINS(text, "pred = %arg0, true_fn = @t, false_fn = @f, operands = "
                        "[%arg1, %0]");
  EXPECT_CONTAINS(
      text, "func.func private @t(%arg0: !intarsia.tensor<[\"4*s0\"]xf32> "
            "{intarsia.kind = \"user\", intarsia.name = \"a\"}, "
            "%arg1: index {intarsia.expr = #intarsia.expr<\"s0\">, "
            "intarsia.kind = \"symbol\"}");
}

TEST(BuildJson, EagerStridesWhereTheyDiffer) {
  std::string text = importJson(program(
      "x",
      node("mylib::nz", arg(value("x")), output("y"),
           ",\"eagerStrides\":[[1,8]]"),
      "y", tensor("x", "8,4", "4,1") + "," + tensor("y", "8,4", "4,1")));
  EXPECT_CONTAINS(text, "intarsia.eager_strides = [[#intarsia.expr<\"1\">, "
                        "#intarsia.expr<\"8\">]]");
}

TEST(BuildJson, AutocastAroundAnOperator) {
  std::string text = importJson(program(
      "x",
      node("mylib::nz", arg(value("x")), output("y"),
           ",\"autocast\":\"cpu=bf16\""),
      "y", tensor("x", "8,4", "4,1") + "," + tensor("y", "8,4", "4,1")));
  EXPECT_CONTAINS(text, "intarsia.autocast = \"cpu=bf16\"");
}

TEST(BuildJson, Errors) {
  std::string two = matrix("x") + "," + matrix("y");
  EXPECT_CONTAINS(importJson(program(
                      "x", node("aten::nothing", "", output("y")), "y", two)),
                  "error: operator 'aten::nothing' (node 'n'): 'aten::nothing' "
                  "is not registered");
  EXPECT_CONTAINS(
      importJson(program("x",
                         node("aten::add.Tensor", arg(value("x")), output("y")),
                         "y", two)),
      "is not given the argument 'other'");
  EXPECT_CONTAINS(
      importJson(
          program("x",
                  node("aten::add.Tensor",
                       arg(value("y")) + "," + arg(value("x")), output("y")),
                  "y", two)),
      "uses the value 'y', which nothing before it defines");
  EXPECT_CONTAINS(
      importJson(program("x",
                         node("torch._C::_enter", arg(value("x")), output("y")),
                         "y", two)),
      "is a Python function");
  EXPECT_CONTAINS(importJson(program("x", "", "y", two)),
                  "output 0 of the program: uses the value 'y'");
  EXPECT_CONTAINS(importJson(program("x,x", "", "x", two)), "defined twice");
  EXPECT_CONTAINS(
      importJson(
          program("x",
                  node("higher_order::invoke_subgraph",
                       arg("{\"kind\":\"graph\",\"value\":\"g\"}"), ""),
                  "x", two,
                  ",\"graphs\":{\"g\":{\"inputs\":[],\"nodes\":[" +
                      node("higher_order::invoke_subgraph",
                           arg("{\"kind\":\"graph\",\"value\":\"g\"}"), "") +
                      "],\"outputs\":[],\"values\":{}}}")),
      "contain themselves");
  EXPECT_CONTAINS(importJson("{"), "is not JSON");
  EXPECT_CONTAINS(importJson("[]"), "'program' is an array");
  EXPECT_CONTAINS(
      importJson(
          program("x", node("mylib::nz", arg(value("x")), output("y")), "y",
                  matrix("x") + "," +
                      tensor("y", "\"Add(Symbol('u0'), Integer(1))\"", "1"))),
      "depends on the symbol 'u0'");
}
