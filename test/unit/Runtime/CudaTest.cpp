//===- CudaTest.cpp - Kernels on a GPU that is none -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the runtime asks CUDA's driver for, and what it says when that fails.
// The devices are those of operators/FakeCuda.h: sm_80, sm_90, sm_75, sm_86 and
// sm_100.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Runtime/Cuda.h"
#include "PlanFixture.h"
#include "intarsia/Artifact/Archive.h"
#include "intarsia/Plan/Metadata.h"
#include "operators/FakeCuda.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <unistd.h>

using namespace intarsia;
using namespace intarsia::test;
namespace fs = std::filesystem;

namespace {

std::string ptxFor(const std::string &arch) {
  const char *parameters = "(.param .u64 x, .param .u64 out, .param .u64 "
                           "columns, .param .u64 rows, .param .u64 status) {}";
  return ".version 8.0\n.target " + arch + "\n.visible .entry add_one_rows" +
         parameters + "\n.visible .entry failing_check" + parameters;
}

CudaImage ptx(const std::string &arch) { return {arch, true, ptxFor(arch)}; }
CudaImage cubin(const std::string &arch) {
  return {arch, false, "\177ELF of " + arch};
}

class CudaTest : public ::testing::Test {
protected:
  void SetUp() override {
    setenv("INTARSIA_CUDA_DRIVER", RUNTIME_TEST_FAKE_CUDA, 1);
    torchApi();
    void *library = dlopen(RUNTIME_TEST_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
    ASSERT_TRUE(library) << dlerror();
    fake = reinterpret_cast<FakeCuda *(*)()>(dlsym(library, "fake_cuda"))();
    *fake = FakeCuda();
  }

  static Tensor on(int device, const Tensor &tensor) {
    TensorImpl *moved = nullptr;
    EXPECT_EQ(torchApi().toDevice(tensor.get(), 1, int8_t(device), &moved), 0)
        << torchApi().lastError()->message;
    return Tensor(moved);
  }

  /// A kernel over [s0, 3] on a device, one iteration a row.
  plan::Plan plan(int device, const std::string &kernel = "add_one_rows") {
    B f("forward");
    f.symbol("s0", 1);
    auto spec = [&] {
      plan::TensorSpec spec = f.spec({"s0", "3"}, {"3", "1"});
      spec.device = "cuda:" + std::to_string(device);
      return spec;
    };
    f.input("x", 0, spec());
    plan::Step &alloc = f.step(plan::Step::Kind::Alloc);
    alloc.slot = f.grow(1);
    alloc.spec = spec();
    plan::Step &launch = f.step(plan::Step::Kind::Launch);
    launch.kernel = 0;
    launch.buffers = {0, 1};
    launch.symbols = {f.expr("3")};
    launch.domain = f.expr("s0");
    launch.threads = f.expr("64");
    f.output(1);
    plan::Plan plan;
    plan.functions = {f.function};
    plan.kernels = {{kernel, "aten::add.Scalar, aten::mul.Tensor", "cuda", {}}};
    if (kernel == "failing_check")
      plan.kernels[0].checks = {
          {"a value", false},
          {"aten::embedding: index {index} of {size}", true}};
    return plan;
  }
  plan::ExprId expr(plan::Plan &plan, const std::string &text) {
    plan.functions[0].exprs.push_back(*SymExpr::parse(text));
    return plan::ExprId(plan.functions[0].exprs.size() - 1);
  }

  std::unique_ptr<Program> create(plan::Plan plan,
                                  std::shared_ptr<const CudaCode> code) {
    Program::Options options;
    options.cuda = std::move(code);
    return Program::create(std::move(plan), std::move(options));
  }
  static std::shared_ptr<const CudaCode> code(std::vector<CudaImage> images) {
    return std::make_shared<const CudaCode>(std::move(images), "'m.pt2'");
  }

  size_t calls(const std::string &function) const {
    return size_t(std::count_if(
        fake->log.begin(), fake->log.end(), [&](const std::string &line) {
          return line.rfind(function + " ", 0) == 0 || line == function;
        }));
  }
  bool called(const std::string &line) const {
    return std::find(fake->log.begin(), fake->log.end(), line) !=
           fake->log.end();
  }

  FakeCuda *fake = nullptr;
};

TEST_F(CudaTest, LaunchesOnPyTorchsStream) {
  auto shared = code({ptx("sm_80"), ptx("sm_90")});
  auto program = create(plan(0), shared);
  EXPECT_EQ(calls("cuModuleLoadDataEx"), 0u); // not before it is needed
  fake->streams[0] = reinterpret_cast<void *>(0xa0);
  Tensor x = on(0, iota({130, 3}));
  std::vector<Tensor> results = run(*program, {x});
  EXPECT_EQ(results[0].device(), "cuda:0");
  EXPECT_EQ(contents(results[0])[7], 8.0f);
  EXPECT_TRUE(called("cuLaunchKernel add_one_rows grid 3 1 1 block 64 1 1 "
                     "shared 0 stream 0xa0 device 0"));
  // Buffers, symbols, iterations, and no place for failed checks.
  EXPECT_EQ(fake->parameters, (std::vector<long long>{
                                  (long long)(x.data()),
                                  (long long)(results[0].data()), 3, 130, 0}));
  EXPECT_EQ(calls("cuStreamSynchronize"), 0u);

  // A stream is current in a moment; the module is loaded once a device, for
  // all programs.
  fake->streams[0] = reinterpret_cast<void *>(0xb0);
  run(*program, {x});
  EXPECT_TRUE(called("cuLaunchKernel add_one_rows grid 3 1 1 block 64 1 1 "
                     "shared 0 stream 0xb0 device 0"));
  run(*create(plan(0), shared), {x});
  run(*create(plan(1), shared), {on(1, iota({1, 3}))});
  EXPECT_TRUE(called("cuLaunchKernel add_one_rows grid 1 1 1 block 64 1 1 "
                     "shared 0 stream 0 device 1"));
  EXPECT_EQ(calls("cuModuleLoadDataEx"), 2u);
  EXPECT_TRUE(called("cuModuleLoadDataEx device 0 ptx sm_80"));
  EXPECT_TRUE(called("cuModuleLoadDataEx device 1 ptx sm_90"));
  EXPECT_EQ(calls("cuModuleGetFunction"), 2u);

  program.reset();
  EXPECT_EQ(calls("cuModuleUnload"), 0u);
  shared.reset();
  EXPECT_EQ(calls("cuModuleUnload"), 2u);

  // Without iterations there is no launch.
  fake->log.clear();
  plan::Plan none = plan(0);
  none.functions[0].steps[1].domain = expr(none, "s0 - 1");
  run(*create(none, code({ptx("sm_80")})), {on(0, iota({1, 3}))});
  EXPECT_EQ(calls("cuLaunchKernel"), 0u);
}

TEST_F(CudaTest, OneProgramOnTwoGpus) {
  // The kernel of plan(0), and once more on cuda:1, where a check fails.
  plan::Plan both = plan(0);
  plan::Function &function = both.functions[0];
  plan::Input other = function.inputs[0];
  plan::Step alloc = function.steps[0], launch = function.steps[1];
  other.name = "y";
  other.slot = 2;
  other.spec->device = alloc.spec->device = "cuda:1";
  alloc.slot = 3;
  launch.buffers = {2, 3};
  launch.kernel = 1;
  function.inputs.push_back(other);
  function.steps.push_back(alloc);
  function.steps.push_back(launch);
  function.slotCount = 4;
  function.outputs.push_back(B::atSlot(3));
  both.kernels.push_back(both.kernels[0]);
  auto shared = code({ptx("sm_80"), ptx("sm_90")});
  auto program = create(both, shared);
  fake->streams[0] = reinterpret_cast<void *>(0xa0);
  fake->streams[1] = reinterpret_cast<void *>(0xb0);
  std::vector<Tensor> inputs = {on(0, iota({2, 3})), on(1, iota({2, 3}))};
  std::vector<Tensor> results = run(*program, inputs);
  EXPECT_EQ(results[0].device(), "cuda:0");
  EXPECT_EQ(results[1].device(), "cuda:1");
  EXPECT_EQ(contents(results[0])[5], 6.0f);
  EXPECT_EQ(contents(results[1])[5], 6.0f);
  EXPECT_TRUE(called("cuLaunchKernel add_one_rows grid 1 1 1 block 64 1 1 "
                     "shared 0 stream 0xa0 device 0"));
  EXPECT_TRUE(called("cuLaunchKernel add_one_rows grid 1 1 1 block 64 1 1 "
                     "shared 0 stream 0xb0 device 1"));
  EXPECT_TRUE(called("cuModuleLoadDataEx device 0 ptx sm_80"));
  EXPECT_TRUE(called("cuModuleLoadDataEx device 1 ptx sm_90"));

  // Each GPU has a status of its own.
  both.kernels[1] = plan(1, "failing_check").kernels[0];
  EXPECT_EQ(
      errorOf(ErrorKind::Index, [&] { run(*create(both, shared), inputs); }),
      "aten::embedding: index 11 of 4 (model.py:12 in forward: y = f(x))");
  EXPECT_TRUE(called("cuStreamSynchronize 0xb0"));
  EXPECT_EQ(calls("cuStreamSynchronize 0xa0"), 0u);
}

TEST_F(CudaTest, GeometryIsThePlans) {
  plan::Plan wide = plan(0);
  wide.functions[0].steps[1].blocks = expr(wide, "2*s0");
  wide.functions[0].steps[1].shared = expr(wide, "16384*s0");
  auto program = create(wide, code({ptx("sm_80")}));
  run(*program, {on(0, iota({2, 3}))});
  EXPECT_TRUE(called("cuLaunchKernel add_one_rows grid 4 1 1 block 64 1 1 "
                     "shared 32768 stream 0 device 0"));
  EXPECT_EQ(calls("cuFuncSetAttribute"), 0u);
  for (int i = 0; i < 2; ++i)
    run(*program, {on(0, iota({4, 3}))});
  EXPECT_TRUE(called("cuFuncSetAttribute add_one_rows 8 65536"));
  EXPECT_EQ(calls("cuFuncSetAttribute"), 1u);
  std::string message = errorOf(ErrorKind::Operator,
                                [&] { run(*program, {on(0, iota({8, 3}))}); });
  EXPECT_CONTAINS(message, "kernel add_one_rows (aten::add.Scalar, "
                           "aten::mul.Tensor) needs 131072 bytes of shared "
                           "memory, and a block on cuda:0 (Fake 80) has at "
                           "most 101376 (model.py:12");
}

TEST_F(CudaTest, LargeTensorsHaveAnEntryOfTheirOwn) {
  plan::Plan wide = plan(0, "narrow");
  wide.kernels[0].wideSymbol = "add_one_rows";
  wide.functions[0].steps[1].extent = expr(wide, "s0*1073741823 + 1");
  auto shared = code({cubin("sm_80")});
  auto program = create(wide, shared);
  run(*program, {on(0, iota({2, 3}))}); // 2147483647
  EXPECT_EQ(calls("cuLaunchKernel narrow"), 1u);
  run(*program, {on(0, iota({3, 3}))});
  EXPECT_EQ(calls("cuLaunchKernel narrow"), 1u);
  EXPECT_EQ(calls("cuLaunchKernel add_one_rows"), 1u);
  wide.functions[0].steps[1].extent = -1;
  EXPECT_CONTAINS(errorOf(ErrorKind::Internal, [&] { create(wide, shared); }),
                  "a kernel with two entries has no extent");
}

/// A kernel of Triton's that writes x: `count` elements of it, in three ways.
class ForeignTest : public CudaTest {
protected:
  plan::Plan foreign(plan::Slot other = 0) {
    B f("forward");
    f.symbol("s0", 1);
    for (int i = 0; i < 2; ++i) {
      plan::TensorSpec spec = f.spec({"s0"}, {"1"});
      spec.device = i == 0 || other == 0 ? "cuda:0" : "cuda:1";
      f.input(i ? "y" : "x", i, spec);
    }
    plan::Step &launch = f.step(plan::Step::Kind::LaunchForeign);
    launch.kernel = 0;
    launch.args = {
        B::atSlot(0),    B::atSlot(other), B::ofExpr(f.expr("s0*count")),
        B::integer(1),   B::integer(-7),   B::real(0.5),
        B::boolean(true)};
    f.symbol("count");
    plan::Input &count = f.function.inputs.emplace_back();
    count.name = "count";
    count.kind = plan::Input::Kind::SymInt;
    count.symbol = 1;
    launch.mutates = {0};
    launch.symbols = {f.expr("floordiv(s0, 4)"), f.expr("2"), f.expr("3")};
    f.output(0);
    plan::Plan plan;
    plan.functions = {f.function};
    plan.kernels = {{"scale", "Triton, kernels.py:3", "cuda", {}}};
    plan.kernels[0].variants = {
        {"scale_a",
         "scale",
         128,
         {"*/16", "*/16", "i32/16", "", "i8", "f32", "u1"},
         2},
        {"scale_b", "scale", 128, {"*", "*", "i32", "", "i16", "f32", "u1"}, 2},
        {"scale_c",
         "scale",
         256,
         {"*", "*", "i64", "i32", "i64", "f64", "u1"},
         0}};
    return plan;
  }
  static std::shared_ptr<const CudaCode> images() {
    auto image = [](const std::string &module, size_t parameters,
                    int64_t shared) {
      std::string text = ".version 8.0\n.target sm_80\n.visible .entry scale(";
      for (size_t i = 0; i < parameters; ++i)
        text +=
            std::string(i ? ", " : "") + ".param .b64 p" + std::to_string(i);
      return CudaImage{"sm_80", true, text + ") {}", module, shared};
    };
    return code({image("scale_a", 8, 65536), image("scale_b", 8, 0),
                 image("scale_c", 7, 0)});
  }
  /// Runs it over n elements, from `offset` on in their memory.
  void launch(const Program &program, int64_t n, int64_t offset,
              int64_t count) {
    fake->log.clear();
    fake->parameters.clear();
    Tensor memory = on(0, iota({n + offset}));
    TensorImpl *view = nullptr;
    int64_t stride = 1;
    ASSERT_EQ(torchApi().asStrided(memory.get(), 1, &n, &stride, offset, &view),
              0);
    Tensor x(view), y = on(0, iota({n}));
    pointer = (long long)(x.data());
    Value inputs[] = {Value::of(x.get()), Value::of(y.get()), Value::of(count)};
    Value output;
    program.run(inputs, 3, &output, 1);
    Tensor owned(output.tensor);
  }
  long long pointer = 0;
};

TEST_F(ForeignTest, TheFirstVariantThatFitsIsLaunched) {
  auto program = create(foreign(), images());
  launch(*program, 16, 0, 1);
  EXPECT_TRUE(
      called("cuLaunchKernel scale grid 4 2 3 block 128 1 1 shared 65536 "
             "stream 0 device 0"));
  EXPECT_TRUE(called("cuFuncSetAttribute scale 8 65536"));
  // The constant is not passed; two null pointers are. Numbers are read from
  // their lowest bytes.
  EXPECT_EQ(fake->parameters, (std::vector<long long>{pointer, pointer, 16, -7,
                                                      0x3f000000, 1, 0, 0}));
  // Not a multiple of 16, not an aligned pointer: no assumption holds.
  for (auto [n, offset] : {std::pair(9, 0), std::pair(16, 1)}) {
    launch(*program, n, offset, 1);
    EXPECT_TRUE(called("cuLaunchKernel scale grid " + std::to_string(n / 4) +
                       " 2 3 block 128 1 1 shared 0 stream 0 device 0"));
    EXPECT_EQ(fake->parameters[2], n);
  }
  // More than 32 bits hold.
  launch(*program, 16, 0, int64_t(1) << 28);
  EXPECT_TRUE(called("cuLaunchKernel scale grid 4 2 3 block 256 1 1 shared 0 "
                     "stream 0 device 0"));
  EXPECT_EQ(fake->parameters,
            (std::vector<long long>{pointer, pointer, int64_t(1) << 32, 1, -7,
                                    0x3fe0000000000000, 1}));
  // An empty grid launches nothing.
  launch(*program, 3, 0, 1);
  EXPECT_EQ(calls("cuLaunchKernel"), 0u);
}

TEST_F(ForeignTest, WritesAreCounted) {
  auto program = create(foreign(), images());
  Tensor x = on(0, iota({16}));
  int64_t before = torchApi().version(x.get());
  Value inputs[] = {Value::of(x.get()), Value::of(x.get()),
                    Value::of(int64_t(1))};
  Value output;
  program->run(inputs, 3, &output, 1);
  Tensor owned(output.tensor);
  EXPECT_EQ(torchApi().version(x.get()), before + 1);
}

TEST_F(ForeignTest, ErrorsSayWhatIsWrong) {
  plan::Plan narrow = foreign();
  narrow.kernels[0].variants.pop_back();
  auto program = create(narrow, images());
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Guard,
              [&] { launch(*program, 16, 0, int64_t(1) << 28); }),
      "kernel scale was not compiled for the arguments (a tensor, a "
      "tensor, 4294967296, 1, -7, 0.5");
  program = create(foreign(1), images());
  EXPECT_CONTAINS(errorOf(ErrorKind::Guard,
                          [&] {
                            Tensor x = on(0, iota({16})), y = on(1, iota({16}));
                            Value inputs[] = {Value::of(x.get()),
                                              Value::of(y.get()),
                                              Value::of(int64_t(1))};
                            Value output;
                            program->run(inputs, 3, &output, 1);
                          }),
                  "kernel scale reads and writes tensors of one GPU");
  program = create(foreign(), code({ptx("sm_80")}));
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Load, [&] { launch(*program, 16, 0, 1); }),
      "'m.pt2', scale_a, has no kernels for cuda:0 (Fake 80, sm_80)");
  program = create(foreign(), images());
  fake->errors = {{"cuLaunchKernel", 1}};
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Operator, [&] { launch(*program, 16, 0, 1); }),
      "kernel scale (Triton, kernels.py:3) cannot be launched on cuda:0 with 4 "
      "x "
      "2 x 3 blocks of 128 threads and 65536 bytes of shared memory: "
      "CUDA_ERROR_INVALID_VALUE");
  // What it did before, or another kernel, is known at the next launch.
  fake->errors = {{"cuLaunchKernel", 700}};
  std::string message =
      errorOf(ErrorKind::Operator, [&] { launch(*program, 16, 0, 1); });
  EXPECT_CONTAINS(message, "kernel scale (Triton, kernels.py:3)");
  EXPECT_CONTAINS(message, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_CONTAINS(message, "CUDA cannot be used in this process any more");
  fake->errors.clear();

  auto malformed = [&](auto change) {
    plan::Plan bad = foreign();
    change(bad);
    return errorOf(ErrorKind::Internal, [&] { create(bad, images()); });
  };
  EXPECT_CONTAINS(
      malformed([](plan::Plan &bad) { bad.kernels[0].variants.clear(); }),
      "the kernel has no variants for CUDA");
  EXPECT_CONTAINS(malformed([](plan::Plan &bad) {
                    bad.kernels[0].variants[1].parameters.pop_back();
                  }),
                  "variant scale_b takes 6 arguments");
  for (const char *text : {"f16", "i7", "f32/16", "i", "16", "/16"})
    EXPECT_CONTAINS(malformed([&](plan::Plan &bad) {
                      bad.kernels[0].variants[0].parameters[5] = text;
                    }),
                    std::string("'") + text + "' is no kind of parameter");
  EXPECT_CONTAINS(malformed([](plan::Plan &bad) {
                    bad.kernels[0].variants[0].parameters[0] = "i32";
                  }),
                  "an argument is none that 'i32' takes");
  EXPECT_CONTAINS(malformed([](plan::Plan &bad) {
                    bad.functions[0].steps[0].symbols.pop_back();
                  }),
                  "a grid has three numbers");
}

TEST_F(CudaTest, TheBestImageIsTaken) {
  std::vector<CudaImage> images = {cubin("sm_80"), cubin("sm_90"),
                                   cubin("sm_90a"), ptx("sm_90")};
  auto loaded = [&](int device) {
    fake->log.clear();
    code(images)->load(device);
    for (const std::string &line : fake->log)
      if (line.rfind("cuModuleLoadDataEx", 0) == 0)
        return line;
    return std::string();
  };
  EXPECT_EQ(loaded(0), "cuModuleLoadDataEx device 0 cubin ");
  EXPECT_EQ(loaded(1), "cuModuleLoadDataEx device 1 cubin ");
  EXPECT_EQ(loaded(3), "cuModuleLoadDataEx device 3 cubin "); // sm_86: sm_80's
  EXPECT_EQ(loaded(4), "cuModuleLoadDataEx device 4 ptx sm_90"); // sm_100
  std::string message = errorOf(ErrorKind::Load, [&] { loaded(2); });
  EXPECT_EQ(message, "'m.pt2' has no kernels for cuda:2 (Fake 75, sm_75); it "
                     "has: sm_80, sm_90, sm_90a, sm_90 (PTX: it and later). "
                     "Compile it with --arch sm_75 beside the others.");
  images = {ptx("sm_90a")};
  EXPECT_EQ(loaded(1), "cuModuleLoadDataEx device 1 ptx sm_90a");
  errorOf(ErrorKind::Load, [&] { loaded(4); });
  EXPECT_CONTAINS(errorOf(ErrorKind::Load, [&] { loaded(7); }),
                  "'m.pt2' has kernels for CUDA (sm_90a (PTX: it and later)), "
                  "but there is no device cuda:7: CUDA's driver finds 5");
}

TEST_F(CudaTest, ErrorsNameKernelOperatorsAndLine) {
  auto program = create(plan(0), code({ptx("sm_80")}));
  Tensor x = on(0, iota({2, 3}));
  auto failing = [&](const std::string &function, int error, ErrorKind kind) {
    fake->errors = {{function, error}};
    std::string message = errorOf(kind, [&] { run(*program, {x}); });
    fake->errors.clear();
    return message;
  };
  EXPECT_EQ(failing("cuModuleLoadDataEx", 218, ErrorKind::Load),
            "the kernels of 'm.pt2' for sm_80 cannot be loaded on cuda:0 (Fake "
            "80, sm_80): CUDA_ERROR_INVALID_PTX (what it means)\nwhat the "
            "driver's compiler says (model.py:12 in forward: y = f(x))");
  EXPECT_CONTAINS(failing("cuModuleLoadDataEx", 222, ErrorKind::Load),
                  "The driver is older than the PTX");
  EXPECT_CONTAINS(failing("cuModuleGetFunction", 500, ErrorKind::Load),
                  "the kernels of 'm.pt2' do not define add_one_rows");
  EXPECT_EQ(failing("cuLaunchKernel", 1, ErrorKind::Operator),
            "kernel add_one_rows (aten::add.Scalar, aten::mul.Tensor) cannot "
            "be launched on cuda:0 with 1 blocks of 64 threads and 0 bytes of "
            "shared memory: CUDA_ERROR_INVALID_VALUE (what it means) "
            "(model.py:12 in forward: y = f(x))");
  std::string message = failing("cuLaunchKernel", 700, ErrorKind::Operator);
  EXPECT_CONTAINS(message, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_CONTAINS(message, "A kernel that ran before did this");
  EXPECT_CONTAINS(message, "CUDA_LAUNCH_BLOCKING=1");
  EXPECT_CONTAINS(
      failing("aoti_torch_get_current_cuda_stream", 1, ErrorKind::Operator),
      "PyTorch's current stream of cuda:0");
  message = failing("allocate", 2, ErrorKind::Operator);
  EXPECT_CONTAINS(message, "CUDA out of memory");
  EXPECT_CONTAINS(message, "model.py:12 in forward");
  // After errors that leave the context whole, all is well.
  EXPECT_EQ(contents(run(*program, {x})[0])[5], 6.0f);

  EXPECT_CONTAINS(errorOf(ErrorKind::Load, [&] { create(plan(0), nullptr); }),
                  "the plan has kernels for CUDA, but their code was not "
                  "given");
  plan::Plan malformed = plan(0);
  malformed.functions[0].steps[1].threads = -1;
  EXPECT_CONTAINS(errorOf(ErrorKind::Internal,
                          [&] { create(malformed, code({ptx("sm_80")})); }),
                  "has no number of threads");
}

TEST_F(CudaTest, FailedChecksAreWaitedFor) {
  auto program = create(plan(0, "failing_check"), code({ptx("sm_80")}));
  Tensor x = on(0, iota({2, 3}));
  fake->streams[0] = reinterpret_cast<void *>(0xa0);
  EXPECT_EQ(
      errorOf(ErrorKind::Index, [&] { run(*program, {x}); }),
      "aten::embedding: index 11 of 4 (model.py:12 in forward: y = f(x))");
  EXPECT_TRUE(called("cuMemsetD8Async 24 stream 0xa0"));
  EXPECT_TRUE(called("cuStreamSynchronize 0xa0"));
  fake->errors = {{"cuStreamSynchronize", 700}};
  EXPECT_CONTAINS(errorOf(ErrorKind::Operator, [&] { run(*program, {x}); }),
                  "the kernels on cuda:0 did not end: "
                  "CUDA_ERROR_ILLEGAL_ADDRESS");
  fake->errors = {{"cuMemcpyDtoHAsync", 900}};
  EXPECT_CONTAINS(errorOf(ErrorKind::Operator, [&] { run(*program, {x}); }),
                  "cannot be captured in a CUDA graph");
}

TEST_F(CudaTest, ProfilesWaitForEachStep) {
  auto program = create(plan(0), code({ptx("sm_80")}));
  Value input = Value::of(on(0, iota({2, 3})).take()), output;
  Profile profile;
  program->run(&input, 1, &output, 1, Program::StealInputs, &profile);
  Tensor owned(output.tensor);
  EXPECT_EQ(profile.steps[0][1].count, 1);
  // Of the allocation, of the launch.
  EXPECT_EQ(calls("synchronizeDevice 0"), 2u);
}

TEST_F(CudaTest, TensorsOfOneLaunchAreOnOneDevice) {
  plan::Plan mixed = plan(0);
  plan::Input other = mixed.functions[0].inputs[0];
  other.name = "y";
  other.slot = 2;
  other.spec->device = "cuda:1";
  mixed.functions[0].inputs.push_back(other);
  mixed.functions[0].slotCount = 3;
  mixed.functions[0].steps[1].buffers = {0, 2};
  auto program = create(mixed, code({ptx("sm_80")}));
  EXPECT_CONTAINS(
      errorOf(
          ErrorKind::Guard,
          [&] { run(*program, {on(0, iota({2, 3})), on(1, iota({2, 3}))}); }),
      "kernel add_one_rows reads and writes tensors of one GPU, but one is on "
      "cuda:1 and another on cuda:0");
  EXPECT_CONTAINS(errorOf(ErrorKind::Guard,
                          [&] {
                            run(*create(plan(0), code({ptx("sm_80")})),
                                {iota({2, 3})});
                          }),
                  "input \"x\": expected device cuda:0, got cpu");
}

TEST_F(CudaTest, ArtifactsLoadTheirKernelsAndWeightsOnce) {
  fs::path folder =
      fs::temp_directory_path() / ("intarsia-cuda-" + std::to_string(getpid()));
  fs::create_directories(folder);
  std::string path = (folder / "m.pt2").string();
  auto write = [&](int device) {
    plan::Plan data = plan(device);
    B f("weights");
    plan::TensorSpec spec;
    spec.device = "cuda:" + std::to_string(device);
    spec.sizes = {expr(data, "2"), expr(data, "3")};
    spec.strides = {expr(data, "3"), expr(data, "1")};
    for (const char *name : {"w", "tied"}) {
      plan::Weight weight;
      weight.name = name;
      weight.spec = spec;
      weight.record = "data/weights/weight_0";
      data.weights.push_back(weight);
    }
    plan::Input input;
    input.name = "w";
    input.slot = 2;
    input.spec = spec;
    input.weight = "w";
    data.functions[0].inputs.push_back(input);
    data.functions[0].slotCount = 3;
    plan::Metadata metadata;
    plan::Metadata::Target target;
    target.name = target.folder = "cuda";
    target.images = {{"sm_80", "kernels.sm_80.cubin"},
                     {"sm_90", "kernels.sm_90.ptx"}};
    metadata.targets = {target};
    artifact::ArchiveWriter writer(path, "m");
    std::vector<float> values = {0, 1, 2, 3, 4, 5};
    writer.add("data/weights/weight_0",
               std::string_view(reinterpret_cast<char *>(values.data()), 24));
    writer.add("data/intarsia/cuda/plan.json", plan::toJson(data));
    writer.add("data/intarsia/cuda/kernels.sm_80.cubin", cubin("sm_80").code);
    writer.add("data/intarsia/cuda/kernels.sm_90.ptx", ptx("sm_90").code);
    metadata.codeDigest = writer.digest(plan::isCodeRecord);
    writer.add("data/intarsia/metadata.json", plan::toJson(metadata));
    writer.finish();
  };
  write(0);
  {
    auto model = Model::load(path, {});
    EXPECT_TRUE(called("cuModuleLoadDataEx device 0 cubin "));
    auto other = model->instance();
    EXPECT_EQ(model->weight("w").device(), "cuda:0");
    EXPECT_EQ(contents(model->weight("tied"))[4], 4.0f);
    // Instances and tied names share the memory.
    EXPECT_EQ(model->weight("w").data(), model->weight("tied").data());
    EXPECT_EQ(model->weight("w").data(), other->weight("w").data());
    Tensor x = on(0, iota({2, 3}));
    EXPECT_EQ(contents(model->run({x})[0])[5], 6.0f);
    EXPECT_EQ(contents(other->run({x})[0])[5], 6.0f);
    EXPECT_EQ(calls("cuModuleLoadDataEx"), 1u);
  }
  EXPECT_EQ(calls("cuModuleUnload"), 1u);
  write(2);
  EXPECT_EQ(errorOf(ErrorKind::Load, [&] { Model::load(path, {}); }),
            "'" + path +
                "' has no kernels for cuda:2 (Fake 75, sm_75); it has: sm_80, "
                "sm_90 (PTX: it and later). Compile it with --arch sm_75 "
                "beside the others.");
  fs::remove_all(folder);
}

} // namespace
