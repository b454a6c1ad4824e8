//===- CompilerTest.cpp - The compiler as a library -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// compile() on programs made by hand, with made-up operators: no PyTorch.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Compiler/Compiler.h"
#include "intarsia/Import/Import.h"

#include "gtest/gtest.h"

#include <filesystem>
#include <thread>

using namespace intarsia;

#define EXPECT_CONTAINS(text, part)                                            \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << text

namespace {

/// "my::one(Tensor x) -> Tensor" is registered, and "aten::exp".
std::optional<importer::OperatorSchema> schemas(const std::string &name) {
  std::string argument = name == "aten::exp" ? "self" : "x";
  if (name != "my::one" && name != "aten::exp")
    return std::nullopt;
  return importer::parseOperatorSchema(
      R"({"name": ")" + name + R"(", "schema": ")" + name + "(Tensor " +
      argument + R"() -> Tensor", "arguments": [{"name": ")" + argument +
      R"(", "type": "Tensor"}], "returns": [{"name": "", "type": "Tensor"}]})");
}

/// One input `x` of size [n, 8], the operators applied one after the other.
importer::Program chain(const std::vector<std::string> &operators) {
  importer::Program program;
  importer::Graph &graph = program.graph;
  importer::ValueMeta meta;
  meta.kind = importer::ValueMeta::Kind::Tensor;
  meta.tensor.sizes = {SymExpr::symbol("s0"), SymExpr(8)};
  meta.tensor.strides = {SymExpr(8), SymExpr(1)};
  graph.inputs = {"x"};
  graph.values["x"] = meta;
  importer::InputSpec input;
  input.name = "x";
  program.inputs = {input};
  std::string last = "x";
  auto value = [](const std::string &name) {
    importer::Argument argument;
    argument.kind = importer::Argument::Kind::Value;
    argument.text = name;
    return argument;
  };
  for (size_t i = 0; i < operators.size(); ++i) {
    importer::Node node;
    node.name = "n" + std::to_string(i);
    node.target = operators[i];
    node.args = {{"", value(last)}};
    importer::Output output;
    output.kind = importer::Output::Kind::Value;
    output.name = last = node.name;
    node.outputs = {output};
    node.stack = {{"model.py", int64_t(i) + 10, "forward", "y = f(x)"}};
    graph.values[node.name] = meta;
    graph.nodes.push_back(node);
  }
  graph.outputs = {value(last)};
  program.outputs.resize(1);
  program.ranges = {{"s0", 2, 64}};
  return program;
}

std::string errorOf(const importer::Program &program,
                    const CompileOptions &options = {}) {
  try {
    compile(program, options, schemas);
  } catch (const CompileError &error) {
    return error.what();
  }
  return "";
}

TEST(Compiler, EveryNodeIsACallWithoutFusion) {
  CompileOptions options;
  options.fuse = false;
  CompiledProgram compiled =
      compile(chain({"aten::exp", "my::one", "aten::exp"}), options, schemas);
  EXPECT_EQ(compiled.callCount, 3);
  EXPECT_EQ(compiled.kernelCount, 0);
  EXPECT_TRUE(compiled.sharedObject.empty());
  EXPECT_EQ(compiled.plan.operators.size(), 2u);
}

TEST(Compiler, KernelsSurroundTheOpaqueCall) {
  CompiledProgram compiled =
      compile(chain({"aten::exp", "my::one", "aten::exp"}), {}, schemas);
  EXPECT_EQ(compiled.callCount, 1);
  EXPECT_EQ(compiled.kernelCount, 2);
  // Equal kernels are compiled once.
  EXPECT_EQ(compiled.plan.kernels.size(), 1u);
  EXPECT_FALSE(compiled.sharedObject.empty());
  EXPECT_EQ(plan::print(plan::fromJson(plan::toJson(compiled.plan))),
            plan::print(compiled.plan));
}

TEST(Compiler, ErrorsNameOperatorLineAndRemedy) {
  std::string message = errorOf(chain({"aten::exp", "other::op"}));
  EXPECT_CONTAINS(message, "other::op");
  EXPECT_CONTAINS(message, "model.py:11 in forward: y = f(x)");
  EXPECT_CONTAINS(message, "--op-library");
}

TEST(Compiler, OptionsAreChecked) {
  CompileOptions options;
  options.numerics = "loose";
  EXPECT_CONTAINS(errorOf(chain({"aten::exp"}), options),
                  "numerics is \"eager\" or \"fused\"");
  options = {};
  options.products = "mkl";
  EXPECT_CONTAINS(errorOf(chain({"aten::exp"}), options),
                  "products is \"auto\", \"eager\" or \"onednn\"");
  options = {};
  options.cpu = "no-such-cpu";
  EXPECT_CONTAINS(errorOf(chain({"aten::exp"}), options), "no-such-cpu");
}

TEST(Compiler, DumpsEachStage) {
  std::string pattern =
      std::filesystem::temp_directory_path() / "intarsia-dump-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  CompileOptions options;
  options.dumpDir = pattern + "/stages";
  compile(chain({"aten::exp"}), options, schemas);
  for (const char *name : {"imported.mlir", "lowered.mlir", "fused.mlir",
                           "kernels.mlir", "llvm.ll", "plan.txt"})
    EXPECT_TRUE(std::filesystem::file_size(options.dumpDir + "/" + name) > 0)
        << name;
  options.dumpDir = "/proc/nowhere";
  EXPECT_CONTAINS(errorOf(chain({"aten::exp"}), options),
                  "cannot write /proc/nowhere");
  std::filesystem::remove_all(pattern);
}

TEST(Compiler, RunsInSeveralThreads) {
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&texts, i] {
      texts[i] = plan::print(
          compile(chain({"aten::exp", "my::one"}), {}, schemas).plan);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &text : texts)
    EXPECT_EQ(text, texts[0]);
}

} // namespace
