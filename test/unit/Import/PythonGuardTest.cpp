//===- PythonGuardTest.cpp - Guards as Python text
//--------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Guards that PyTorch was seen to write, and what they mean.
//
//===----------------------------------------------------------------------===//

#include "lib/Import/PythonGuard.h"

#include "gtest/gtest.h"

using namespace intarsia;
using namespace intarsia::importer;

namespace {

const ValueMeta *resolve(std::string_view path) {
  static const ValueMeta kTensor = [] {
    ValueMeta meta;
    meta.kind = ValueMeta::Kind::Tensor;
    meta.tensor.sizes = {SymExpr::symbol("s0"), SymExpr(4)};
    meta.tensor.strides = {SymExpr(4), SymExpr(1)};
    return meta;
  }();
  static const ValueMeta kNumber = [] {
    ValueMeta meta;
    meta.kind = ValueMeta::Kind::SymInt;
    meta.expr = SymExpr::symbol("s7");
    return meta;
  }();
  if (path == "['x']" || path == "['d']['k'][0]")
    return &kTensor;
  return path == "['n']" ? &kNumber : nullptr;
}

std::string guard(const std::string &text) {
  std::string error;
  std::optional<SymExpr> expr = parsePythonGuard(text, resolve, error);
  return expr ? expr->str() : "error: " + error;
}

/// The same expression from our own text form.
std::string expr(const std::string &text) {
  std::optional<SymExpr> parsed = SymExpr::parse(text);
  return parsed ? parsed->str() : "malformed expectation";
}

} // namespace

TEST(PythonGuard, Conditions) {
  EXPECT_EQ(guard("L['x'].size()[0] % 8 == 0"), expr("eq(mod(s0, 8), 0)"));
  EXPECT_EQ(guard("((4*L['x'].size()[0]) % (8*(L['x'].size()[0] // 8))) == 0"),
            expr("eq(mod(4*s0, 8*floordiv(s0, 8)), 0)"));
  EXPECT_EQ(guard("Eq(Mod(s77, 8), 0)"), expr("eq(mod(s77, 8), 0)"));
  EXPECT_EQ(guard("2 <= L['x'].size()[0] and L['x'].size()[0] <= 64"),
            expr("and(le(2, s0), le(s0, 64))"));
  EXPECT_EQ(guard("2 <= L['n'] < 9"), expr("and(le(2, s7), lt(s7, 9))"));
  EXPECT_EQ(guard("not L['n'] != 3"), expr("eq(s7, 3)"));
  EXPECT_EQ(guard("L['d']['k'][0].size()[0] > L['n']"), expr("lt(s7, s0)"));
  EXPECT_EQ(guard("-L['n'] + 2**3 >= Max(1, L['n'])"),
            expr("le(max(1, s7), 8 - s7)"));
  EXPECT_EQ(guard("L['x'].storage_offset() == 0"), "true");
  EXPECT_EQ(guard("L['x'].stride()[0] == 4 or L['n'] == 1"), "true");
}

TEST(PythonGuard, WhatIsNotUnderstoodIsAnError) {
  for (std::string text :
       {"", "L['y'].size()[0] == 1", "L['x'].size()[7] == 1", "L['x'] == 1",
        "f(s0)", "s0 ==", "(s0", "s0)", "L['x", "L['x'].dtype == torch.float32",
        "99999999999999999999 == s0", "math.isnan(L['n'])", "s0 if s0 else s1",
        "Max() == 1", "Mod(s0) == 1"})
    EXPECT_EQ(guard(text).substr(0, 6), "error:")
        << text << " -> " << guard(text);
  EXPECT_EQ(guard(std::string(100000, '(')), "error: it is nested too deeply");
  EXPECT_EQ(guard(std::string(100000, '-')), "error: it is nested too deeply");
}

TEST(PythonGuard, InputPaths) {
  std::string leaf = R"({"type": null, "context": null, "children_spec": []})";
  std::string spec =
      R"([1, {"type": "builtins.tuple", "context": "null", "children_spec": [
           {"type": "builtins.tuple", "context": "null", "children_spec": [)" +
      leaf +
      R"(, {"type": "builtins.dict", "context": "[\"k\", \"l\"]", "children_spec": [)" +
      leaf +
      R"(, {"type": "builtins.list", "context": "null", "children_spec": [)" +
      leaf + "]}]}, " + leaf +
      R"(]}, {"type": "builtins.dict", "context": "[\"z\"]", "children_spec": [)" +
      leaf + "]}]}]";
  std::map<std::string, size_t> paths =
      inputPaths(spec, {"x", "d", "args_0", "z"});
  EXPECT_EQ(paths["['x']"], 0u);
  EXPECT_EQ(paths["['d']['k']"], 1u);
  EXPECT_EQ(paths["['d']['l'][0]"], 2u);
  EXPECT_EQ(paths["['args_0']"], 3u);
  EXPECT_EQ(paths["['args'][0]"], 3u);
  EXPECT_EQ(paths["['z']"], 4u);
  EXPECT_TRUE(inputPaths("nonsense", {}).empty());
}
