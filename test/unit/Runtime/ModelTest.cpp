//===- ModelTest.cpp - Compiled artifacts
//-------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Artifacts made by hand: weights mapped out of the archive, kernels unpacked,
// and everything that must be refused with a reason. intarsia-run is run on
// them as a user would.
//
//===----------------------------------------------------------------------===//

#include "PlanFixture.h"
#include "intarsia-c/Runtime.h"
#include "intarsia/Artifact/Archive.h"
#include "intarsia/Plan/Metadata.h"
#include "intarsia/Runtime/Frozen.h"
#include "intarsia/Runtime/Npy.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

using namespace intarsia;
using namespace intarsia::test;
namespace fs = std::filesystem;

namespace {

std::string contentOf(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream),
          std::istreambuf_iterator<char>()};
}

class ModelTest : public ::testing::Test {
protected:
  void SetUp() override {
    folder = fs::temp_directory_path() /
             ("intarsia-model-" + std::to_string(getpid()));
    fs::create_directories(folder);
    path = (folder / "model.pt2").string();
    options.cacheDirectory = (folder / "cache").string();

    // counter += x; y = kernel(x) + weight, with the weights in one record.
    B f("forward");
    f.input("w", 0, f.spec({"2", "3"}, {"3", "1"})).weight = "lin.weight";
    f.input("c", 1, f.spec({}, {})).weight = "counter";
    f.input("x", 2, f.spec({"2", "3"}, {"3", "1"}));
    f.call("aten::add_.Scalar", {B::atSlot(1), B::integer(1)}, {B::tensor(-1)})
        .mutates = {1};
    f.function.steps.back().results[0].kind = plan::Result::Kind::Tied;
    plan::Step &alloc = f.step(plan::Step::Kind::Alloc);
    alloc.slot = f.grow(3);
    alloc.spec = f.spec({"2", "3"}, {"3", "1"});
    plan::Step &launch = f.step(plan::Step::Kind::Launch);
    launch.kernel = 0;
    launch.buffers = {2, 3};
    launch.symbols = {f.expr("3")};
    launch.domain = f.expr("2");
    f.call("rt::scale", {B::atSlot(3), B::real(1)}, {B::tensor(4)});
    f.call("aten::add.Tensor", {B::atSlot(4), B::atSlot(0)}, {B::tensor(5)});
    f.function.outputs = {B::atSlot(5), B::atSlot(1)};
    plan.functions = {f.function};
    plan.kernels = {{"add_one_rows", "aten::add.Scalar", "cpu", {}}};
    plan.operators = {
        {"rt::scale", "rt::scale(Tensor x, float factor) -> Tensor", ""}};
    B specs("specs"); // expressions of the main function
    plan::Weight weight;
    weight.name = "lin.weight";
    weight.spec = *plan.functions[0].inputs[0].spec;
    weight.record = "data/weights/weight_0";
    weight.storageOffset = 1;
    plan::Weight counter;
    counter.name = "counter";
    counter.spec = *plan.functions[0].inputs[1].spec;
    counter.record = "data/weights/weight_0";
    counter.mutated = true;
    plan.weights = {weight, counter};
    metadata.targets = {{"cpu", "cpu", "generic", {}, std::string(64, 'a')}};
    metadata.operators = plan.operators;
  }
  void TearDown() override { fs::remove_all(folder); }

  void write() {
    artifact::ArchiveWriter writer(path, "model");
    float values[] = {10, 0, 1, 2, 3, 4, 5};
    if (hasWeights)
      writer.add(
          "data/weights/weight_0",
          std::string_view(reinterpret_cast<char *>(values), sizeof values));
    if (!bundled.empty())
      writer.add("data/intarsia/libraries/libops.so", bundled);
    writer.add("data/intarsia/cpu/plan.json", plan::toJson(plan));
    writer.add("data/intarsia/cpu/kernels.so", contentOf(RUNTIME_TEST_KERNELS));
    metadata.codeDigest = writer.digest(plan::isCodeRecord);
    writer.add("data/intarsia/metadata.json", plan::toJson(metadata));
    writer.finish();
  }
  std::string fault() {
    write();
    return errorOf(ErrorKind::Load, [&] { Model::load(path, options); });
  }

  /// Runs intarsia-run; its exit code, with stdout and stderr in `output`.
  int tool(const std::string &arguments) {
    std::string command = "INTARSIA_CACHE_DIR='" + options.cacheDirectory +
                          "' " INTARSIA_RUN_TOOL " " + arguments + " > '" +
                          (folder / "out").string() + "' 2>&1";
    int status = std::system(command.c_str());
    output = contentOf(folder / "out");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path folder;
  std::string path, output, bundled;
  bool hasWeights = true;
  plan::Plan plan;
  plan::Metadata metadata;
  Model::Options options;
};

TEST_F(ModelTest, WeightsKernelsAndState) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  write();
  std::string before = contentOf(path);
  auto model = Model::load(path, options);
  std::vector<Tensor> out = model->run({iota({2, 3})});
  EXPECT_EQ(contents(out[0]), (std::vector<float>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(contents(out[1]), (std::vector<float>{11}));
  EXPECT_EQ(contents(model->run({iota({2, 3})})[1]), (std::vector<float>{12}));
  // The state is this instance's: neither the file nor another one sees it.
  EXPECT_EQ(contentOf(path), before);
  EXPECT_EQ(contents(Model::load(path, options)->run({iota({2, 3})})[1]),
            (std::vector<float>{11}));
  // The unpacked kernels are found under their hash; damage is repaired.
  fs::path kernels = fs::path(options.cacheDirectory) / "kernels" /
                     (std::string(64, 'a') + ".so");
  ASSERT_TRUE(fs::exists(kernels));
  std::ofstream(kernels, std::ios::app) << "damage";
  Model::load(path, options);
  EXPECT_EQ(contentOf(kernels), contentOf(RUNTIME_TEST_KERNELS));
}

TEST_F(ModelTest, NoWritableCache) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  options.cacheDirectory = "/proc/nowhere";
  write();
  EXPECT_EQ(contents(Model::load(path, options)->run({iota({2, 3})})[0])[0], 1);
}

TEST_F(ModelTest, TensorsOutliveTheModel) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  write();
  Tensor counter = Model::load(path, options)->run({iota({2, 3})})[1];
  EXPECT_EQ(contents(counter), (std::vector<float>{11}));
}

TEST_F(ModelTest, InstancesShareWeightsButNotState) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  write();
  auto model = Model::load(path, options);
  model->run({iota({2, 3})});
  auto other = model->instance();
  EXPECT_EQ(contents(other->run({iota({2, 3})})[1]), (std::vector<float>{11}));
  EXPECT_EQ(contents(model->run({iota({2, 3})})[1]), (std::vector<float>{12}));

  // Replaced by name; of other strides: a copy with those of the program.
  Tensor weight = iota({3, 2});
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Guard,
              [&] { model->instance({{"lin.weight", weight}}); }),
      "weight 'lin.weight' is a tensor of float32 [2, 3] on cpu, not of "
      "float32 [3, 2] on cpu");
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Guard, [&] { model->instance({{"bias", weight}}); }),
      "no weight 'bias'; it has: lin.weight, counter");
  weight = Tensor::empty(DType::F32, {2, 3});
  std::fill_n(static_cast<float *>(weight.data()), 6, 100.f);
  auto updated = model->instance({{"lin.weight", weight}});
  EXPECT_EQ(updated->weight("lin.weight").data(), weight.data());
  EXPECT_EQ(contents(updated->run({iota({2, 3})})[0]),
            (std::vector<float>{101, 102, 103, 104, 105, 106}));
  EXPECT_EQ(contents(model->run({iota({2, 3})})[0]),
            (std::vector<float>{1, 3, 5, 7, 9, 11}));
  model.reset();
  EXPECT_EQ(contents(other->run({iota({2, 3})})[1]), (std::vector<float>{12}));
}

TEST_F(ModelTest, TheBestProcessorIsChosen) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  // The kernels of the first folder alone are any good.
  metadata.targets = {{"cpu", "cpu", "some", {"sse2"}, std::string(64, 'a')},
                      {"cpu", "none", "least", {}, std::string(64, 'b')},
                      {"cpu", "nowhere", "next", {"sse2", "avx9000"}, "c"}};
  write();
  EXPECT_EQ(contents(Model::load(path, options)->run({iota({2, 3})})[0])[0], 1);
  metadata.targets = {{"cpu", "cpu", "one", {"avx9000"}, ""},
                      {"cpu", "cpu", "two", {"avx9001", "avx9002"}, ""}};
  std::string text = fault();
  EXPECT_CONTAINS(text, "\n  one needs avx9000\n  two needs avx9001, avx9002");
}

TEST_F(ModelTest, BundledLibraries) {
  // They are loaded where an operator is missing: in a process of its own.
  metadata.libraries = {{"libops.so", std::string(64, 'd')}};
  bundled = contentOf(RUNTIME_TEST_OPERATORS);
  write();
  std::string input = (folder / "x.npy").string();
  writeNpy(input, iota({2, 3}));
  EXPECT_EQ(tool(path + " --input " + input), 0) << output;
  // Twice would be an error.
  EXPECT_EQ(
      tool(path + " --op-library " RUNTIME_TEST_OPERATORS " --input " + input),
      0)
      << output;
}

TEST_F(ModelTest, Sidecar) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  write();
  std::string program = path;
  path = (folder / "code.pt2").string();
  metadata.program = "model.pt2";
  metadata.programDigest =
      artifact::Archive(program).digest(plan::isProgramRecord);
  hasWeights = false;
  write();
  EXPECT_EQ(contents(Model::load(path, options)->run({iota({2, 3})})[0])[0], 1);
  metadata.programDigest = "1-2";
  EXPECT_CONTAINS(fault(), "that file has changed");
  metadata.program = "../model.pt2";
  EXPECT_CONTAINS(fault(), "is no file name");
  metadata.program = "gone.pt2";
  EXPECT_CONTAINS(fault(), "gone.pt2");
}

TEST_F(ModelTest, FromC) {
  write();
  const char *library = RUNTIME_TEST_OPERATORS;
  IntarsiaModel *model = nullptr, *other = nullptr;
  EXPECT_EQ(intarsiaModelLoad("/nowhere.pt2", nullptr, 0, &model),
            INTARSIA_LOAD_ERROR);
  EXPECT_CONTAINS(std::string(intarsiaErrorMessage()), "/nowhere.pt2");
  ASSERT_EQ(intarsiaModelLoad(path.c_str(), &library, 1, &model),
            INTARSIA_SUCCESS)
      << intarsiaErrorMessage();
  EXPECT_EQ(intarsiaModelInputCount(model), 1u);
  EXPECT_STREQ(intarsiaModelInputName(model, 0), "x");
  EXPECT_EQ(intarsiaModelInputName(model, 1), nullptr);
  ASSERT_EQ(intarsiaModelOutputCount(model), 2u);

  int64_t sizes[] = {2, 3}, seen[2], strides[2];
  IntarsiaTensor *x = nullptr, *out[2] = {};
  EXPECT_EQ(intarsiaTensorCreate(99, 2, sizes, &x), INTARSIA_GUARD_ERROR);
  ASSERT_EQ(intarsiaTensorCreate(INTARSIA_FLOAT32, 2, sizes, &x),
            INTARSIA_SUCCESS);
  void *data = nullptr;
  ASSERT_EQ(intarsiaTensorData(x, &data), INTARSIA_SUCCESS);
  std::iota(static_cast<float *>(data), static_cast<float *>(data) + 6, 0.f);
  const IntarsiaTensor *inputs[] = {x, x};
  EXPECT_EQ(intarsiaModelRun(model, inputs, 2, out, 2), INTARSIA_GUARD_ERROR);
  EXPECT_EQ(intarsiaModelRun(model, inputs, 1, out, 1), INTARSIA_GUARD_ERROR);
  EXPECT_EQ(out[0], nullptr);
  ASSERT_EQ(intarsiaModelRun(model, inputs, 1, out, 2), INTARSIA_SUCCESS)
      << intarsiaErrorMessage();
  ASSERT_EQ(intarsiaTensorShape(out[0], seen, strides), INTARSIA_SUCCESS);
  EXPECT_EQ(seen[1], 3);
  EXPECT_EQ(strides[0], 3);
  ASSERT_EQ(intarsiaTensorData(out[0], &data), INTARSIA_SUCCESS);
  EXPECT_EQ(static_cast<float *>(data)[5], 11);

  const char *name = "lin.weight";
  ASSERT_EQ(intarsiaModelInstance(model, &name, inputs, 1, &other),
            INTARSIA_SUCCESS)
      << intarsiaErrorMessage();
  for (IntarsiaTensor *tensor : {x, out[0], out[1]})
    intarsiaTensorDestroy(tensor);
  intarsiaModelDestroy(model);
  intarsiaModelDestroy(other);
  intarsiaModelDestroy(nullptr);
}

TEST_F(ModelTest, ArtifactsThatAreRefused) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  metadata.format = 99;
  EXPECT_CONTAINS(fault(), "has format 99");
  metadata.format = plan::artifactFormat;
  metadata.targets[0].features = {"avx9000", "64bit"};
  EXPECT_CONTAINS(fault(), "\n  generic needs avx9000");
  metadata.targets[0].features = {};
  options.target = "cuda";
  EXPECT_CONTAINS(fault(), "is not compiled for target 'cuda'; it has: cpu");
  options.target = "";
  plan.operators = {{"nothere::a", "nothere::a(Tensor x) -> Tensor", ""},
                    {"nothere::b", "nothere::b(Tensor x) -> Tensor", ""}};
  std::string text = fault();
  EXPECT_CONTAINS(text, "nothere::a   compiled for: nothere::a(Tensor x) -> ");
  EXPECT_CONTAINS(text, "nothere::b   compiled for: nothere::b(Tensor x) -> ");
  EXPECT_CONTAINS(text, "--op-library");
  plan.operators = {};
  plan.weights[0].storageOffset = 2;
  EXPECT_CONTAINS(fault(), "weight 'lin.weight' does not fit its record "
                           "'data/weights/weight_0' of 28 bytes");
  plan.weights[0].storageOffset = 1;
  plan.weights[0].record = "data/weights/weight_7";
  EXPECT_CONTAINS(fault(), "has no record 'data/weights/weight_7'");
}

TEST_F(ModelTest, WhatIsFrozenComesInParts) {
  // a = w + 1, b = a * 2 and c = v * w; v is freed, and w is an output, too.
  B f("main");
  std::vector<std::string> sizes = {"2"}, strides = {"1"};
  f.input("w", 0, f.spec(sizes, strides)).weight = "w";
  f.input("v", 1, f.spec(sizes, strides)).weight = "v";
  auto result = [&](plan::Slot slot) {
    return std::vector{B::tensor(slot, f.spec(sizes, strides))};
  };
  f.call("aten::add.Scalar", {B::atSlot(0), B::integer(1)}, result(2));
  f.call("aten::neg", {B::atSlot(1)}, result(3));
  f.free({1});
  f.call("aten::mul.Scalar", {B::atSlot(2), B::integer(2)}, result(4));
  f.call("aten::mul.Tensor", {B::atSlot(3), B::atSlot(0)}, result(5));
  f.free({3});
  for (plan::Slot slot : {2, 5, 4, 0})
    f.output(slot);
  plan::Plan frozen;
  frozen.functions = {f.function};
  for (const char *name : {"w", "v"}) {
    plan::Weight weight;
    weight.name = name;
    weight.spec = *f.function.inputs[0].spec;
    weight.record = std::string("data/weights/") + name;
    frozen.weights.push_back(weight);
  }
  {
    artifact::ArchiveWriter writer(path, "model");
    float w[] = {1, 2}, v[] = {3, 4};
    for (auto [name, values] : {std::pair("w", w), std::pair("v", v)})
      writer.add(std::string("data/weights/") + name,
                 std::string_view(reinterpret_cast<char *>(values), sizeof w));
    writer.finish();
  }
  using Values = std::vector<float>;
  for (int64_t bytes : {0, 1 << 20}) {
    std::vector<size_t> order;
    std::map<size_t, Values> values;
    computeFrozen(
        artifact::Archive(path), frozen,
        [&](size_t index, Tensor value) {
          order.push_back(index);
          values[index] = contents(value);
        },
        bytes);
    EXPECT_EQ(order, bytes ? (std::vector<size_t>{0, 1, 2, 3})
                           : (std::vector<size_t>{0, 2, 1, 3}));
    EXPECT_EQ(values[0], (Values{2, 3}));
    EXPECT_EQ(values[1], (Values{-3, -8}));
    EXPECT_EQ(values[2], (Values{4, 6}));
    EXPECT_EQ(values[3], (Values{1, 2}));
  }
}

// Each record is whole, but they are not of one file.
TEST_F(ModelTest, RecordsOfDifferentFiles) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  write();
  const artifact::Archive whole(path);
  plan.functions[0].steps[2].symbols.clear(); // the kernel would read it
  for (std::string_view changed : {"cpu/plan.json", "cpu/kernels.so"}) {
    path = (folder / "mixed.pt2").string();
    artifact::ArchiveWriter writer(path, "model");
    for (const artifact::Record &record : whole.records())
      if (!record.name.ends_with(changed))
        writer.copy(whole, record);
      else if (changed == "cpu/plan.json")
        writer.add(record.name, plan::toJson(plan));
      else
        writer.add(record.name, whole.read(record.name).substr(0, 1000));
    writer.finish();
    EXPECT_CONTAINS(
        errorOf(ErrorKind::Load, [&] { Model::load(path, options); }),
        "mixed.pt2' was changed after it was compiled");
  }
}

// A checksum can be made to fit: what it protects may be anything. Every change
// of one byte, and numbers where none was expected, must be refused or
// harmless.
TEST_F(ModelTest, ChangedRecordsDoNotCrash) {
  options.operatorLibraries = {RUNTIME_TEST_OPERATORS};
  write();
  const std::string kernels = contentOf(RUNTIME_TEST_KERNELS);
  metadata.codeDigest = "@";
  const std::string texts[] = {plan::toJson(metadata), plan::toJson(plan)};
  std::mt19937 random(1);
  int refused = 0, total = 0;
  for (int which : {0, 1})
    for (int round = 0; round < 300; ++round, ++total) {
      std::string changed[] = {texts[0], texts[1]};
      std::string &text = changed[which];
      size_t at = random() % text.size();
      switch (random() % 4) {
      case 0:
        text[at] = char(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 40);
        break;
      case 2:
        if (size_t digit = text.find_first_of("0123456789", at);
            digit != std::string::npos)
          text.replace(digit, 1, round % 2 ? "-1" : "4611686018427387904");
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), 30));
      }
      artifact::ArchiveWriter writer(path, "model");
      writer.add("data/weights/weight_0", std::string(28, '\0'));
      writer.add("data/intarsia/cpu/plan.json", changed[1]);
      writer.add("data/intarsia/cpu/kernels.so", kernels);
      if (size_t place = changed[0].find('@'); place != std::string::npos)
        changed[0].replace(place, 1, writer.digest(plan::isCodeRecord));
      writer.add("data/intarsia/metadata.json", changed[0]);
      writer.finish();
      try {
        Model::load(path, options);
      } catch (const Error &error) {
        ++refused;
        EXPECT_NE(std::string(error.what()), "");
      }
    }
  EXPECT_GT(refused, total / 3);
}

TEST_F(ModelTest, NotAnArtifact) {
  artifact::ArchiveWriter writer(path, "model");
  writer.add("models/model.json", "{}");
  writer.finish();
  EXPECT_CONTAINS(errorOf(ErrorKind::Load, [&] { Model::load(path, options); }),
                  "Run intarsia-compile on it first");
  write();
  std::string whole = contentOf(path);
  for (size_t size :
       {size_t(0), size_t(10), whole.size() / 2, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        << whole.substr(0, size);
    EXPECT_CONTAINS(
        errorOf(ErrorKind::Load, [&] { Model::load(path, options); }), path);
  }
}

TEST_F(ModelTest, ToolWritesOutputs) {
  write();
  std::string input = (folder / "x.npy").string();
  writeNpy(input, iota({2, 3}));
  std::string out = (folder / "results").string();
  std::string base = path + " --op-library " RUNTIME_TEST_OPERATORS;
  ASSERT_EQ(tool(base + " --input " + input + " --output-dir " + out), 0)
      << output;
  EXPECT_EQ(output, "");
  EXPECT_EQ(contents(readNpy(out + "/output_0.npy")),
            (std::vector<float>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(contents(readNpy(out + "/output_1.npy")), (std::vector<float>{11}));
  EXPECT_EQ(tool(base + " --input x=" + input + " --benchmark 3 --profile"), 0);
  EXPECT_CONTAINS(output, "over 3 runs: minimum");
  EXPECT_CONTAINS(output, "call rt::scale");
  EXPECT_CONTAINS(output, "launch add_one_rows (aten::add.Scalar)");
  EXPECT_CONTAINS(output, "// model.py:12");
  EXPECT_EQ(tool(base + " --print-plan"), 0);
  EXPECT_CONTAINS(output, "func forward(");
}

TEST_F(ModelTest, ToolReportsFaults) {
  write();
  std::string good = (folder / "x.npy").string();
  std::string bad = (folder / "bad.npy").string();
  std::string out = (folder / "results").string();
  writeNpy(good, iota({2, 3}));
  writeNpy(bad, iota({2, 4}));
  std::string base =
      path + " --op-library " RUNTIME_TEST_OPERATORS " --output-dir " + out;
  EXPECT_EQ(tool("--help"), 0);
  EXPECT_CONTAINS(output, "exit codes:");
  EXPECT_EQ(tool(""), 2);
  EXPECT_EQ(tool(base + " --frobnicate"), 2);
  EXPECT_CONTAINS(output, "unknown option --frobnicate");
  EXPECT_EQ(tool(base), 3);
  EXPECT_CONTAINS(output, "inputs are missing: x");
  EXPECT_EQ(tool(base + " --input " + bad), 3);
  EXPECT_CONTAINS(output, "input \"x\": expected size 3 in dimension 1, got 4");
  EXPECT_EQ(tool(base + " --input " + good + " " + good), 3);
  EXPECT_CONTAINS(output, "too many inputs");
  EXPECT_EQ(tool(base + " --input " + (folder / "none.npy").string()), 3);
  EXPECT_CONTAINS(output, "cannot be opened");
  for (const char *kind : {".npy", ".pt", ".safetensors"}) {
    std::string pipe = (folder / "pipe").string() + kind;
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(tool(base + " --input " + pipe), 3);
    EXPECT_CONTAINS(output, "is not a regular file");
  }
  EXPECT_EQ(tool((folder / "none.pt2").string() + " --input " + good), 4);
  EXPECT_CONTAINS(output, "none.pt2");
  EXPECT_EQ(tool(path + " --input " + good), 4);
  EXPECT_CONTAINS(output, "rt::scale");
  EXPECT_EQ(tool(path + " --op-library " RUNTIME_TEST_PYTHON_OPERATORS), 4);
  EXPECT_CONTAINS(output, "torch/library.h");
  // Nothing was written by any of them.
  EXPECT_FALSE(fs::exists(out));
  std::ofstream(out) << "a file where the folder should be";
  EXPECT_EQ(tool(base + " --input " + good), 5);
  EXPECT_EQ(output.find("terminate"), std::string::npos);
}

} // namespace
