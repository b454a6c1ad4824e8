//===- KernelsTest.cpp - From LLVM dialect to callable code ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Object emission, linking and the cache, each by what a caller notices.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Target/Kernels.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <atomic>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace intarsia;
namespace fs = std::filesystem;

namespace {

std::string readFile(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A cache folder of its own for each test.
class KernelsTest : public testing::Test {
protected:
  KernelsTest() {
    context.loadDialect<mlir::LLVM::LLVMDialect>();
    std::string name = (fs::temp_directory_path() / "kernels-XXXXXX").string();
    cache = mkdtemp(name.data());
    if (const char *value = std::getenv("INTARSIA_CACHE_DIR"))
      previous = value;
    setenv("INTARSIA_CACHE_DIR", cache.c_str(), 1);
  }
  ~KernelsTest() override {
    fs::remove_all(cache);
    setenv("INTARSIA_CACHE_DIR", previous.c_str(), 1);
  }

  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text) {
    return mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }

  /// A function that adds `value`.
  static std::string adder(const std::string &name, int value) {
    return "llvm.func @" + name +
           "(%x: i64) -> i64 {\n"
           "  %c = llvm.mlir.constant(" +
           std::to_string(value) +
           " : i64) : i64\n"
           "  %y = llvm.add %x, %c : i64\n"
           "  llvm.return %y : i64\n}\n";
  }

  /// The message of the TargetError that `run` throws.
  template <typename F>
  static std::string failure(F run) {
    try {
      run();
    } catch (const TargetError &error) {
      return error.what();
    }
    return "no error";
  }

  mlir::MLIRContext context;
  fs::path cache;
  std::string previous;
};

using Unary = int64_t (*)(int64_t);

TEST_F(KernelsTest, CompiledFunctionsAreFoundByName) {
  auto module = parse(adder("first", 1) + adder("second", 2));
  KernelCode code = compileKernels(*module, {});
  ASSERT_FALSE(code.path.empty());
  EXPECT_EQ(code.memory, nullptr);
  void *library = dlopen(code.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto first = reinterpret_cast<Unary>(dlsym(library, "first"));
  auto second = reinterpret_cast<Unary>(dlsym(library, "second"));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first(40), 41);
  EXPECT_EQ(second(40), 42);
  dlclose(library);
}

TEST_F(KernelsTest, SecondCompilationComesFromTheCache) {
  auto module = parse(adder("f", 1));
  KernelCode first = compileKernels(*module, {});
  KernelCode second = compileKernels(*module, {});
  EXPECT_FALSE(first.fromCache);
  EXPECT_TRUE(second.fromCache);
  EXPECT_EQ(first.path, second.path);
  EXPECT_EQ(first.sharedObject, second.sharedObject);
  EXPECT_EQ(readFile(first.path), first.sharedObject);
}

TEST_F(KernelsTest, OtherCodeOrCPUIsAnotherEntry) {
  KernelCode one = compileKernels(*parse(adder("f", 1)), {});
  KernelCode two = compileKernels(*parse(adder("f", 2)), {});
  KernelCode old = compileKernels(*parse(adder("f", 1)), {"x86-64-v2", ""});
  EXPECT_NE(one.path, two.path);
  EXPECT_FALSE(old.fromCache);
}

TEST_F(KernelsTest, LocationsDoNotMatterToTheCache) {
  auto module = parse(adder("f", 1));
  auto moved = parse("\n\n" + adder("f", 1));
  compileKernels(*module, {});
  EXPECT_TRUE(compileKernels(*moved, {}).fromCache);
}

TEST_F(KernelsTest, DamagedEntriesAreBuiltAgain) {
  auto module = parse(adder("f", 1));
  KernelCode good = compileKernels(*module, {});
  fs::resize_file(good.path, good.sharedObject.size() / 2);
  KernelCode again = compileKernels(*module, {});
  EXPECT_FALSE(again.fromCache);
  EXPECT_EQ(readFile(again.path), good.sharedObject);

  // One flipped byte is found as well.
  std::string changed = good.sharedObject;
  changed[changed.size() / 2] ^= 1;
  std::ofstream(good.path, std::ios::binary) << changed;
  EXPECT_FALSE(compileKernels(*module, {}).fromCache);

  for (const auto &key : fs::directory_iterator(cache / "keys"))
    std::ofstream(key.path()) << "nonsense";
  again = compileKernels(*module, {});
  EXPECT_FALSE(again.fromCache);
  EXPECT_EQ(readFile(again.path), good.sharedObject);
}

TEST_F(KernelsTest, UnusableCacheFolderMeansMemory) {
  std::string file = cache / "file";
  std::ofstream(file) << "not a folder";
  setenv("INTARSIA_CACHE_DIR", file.c_str(), 1);
  auto module = parse(adder("first", 1) + adder("second", 2));
  testing::internal::CaptureStderr();
  KernelCode code = compileKernels(*module, {});
  std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("'" + file + "'"), std::string::npos) << warning;
  EXPECT_NE(warning.find("set INTARSIA_CACHE_DIR"), std::string::npos);
  EXPECT_TRUE(code.path.empty());
  EXPECT_FALSE(code.sharedObject.empty());
  ASSERT_NE(code.memory, nullptr);
  auto second = reinterpret_cast<Unary>(code.memory->lookup("second"));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second(40), 42);
  EXPECT_EQ(code.memory->lookup("third"), nullptr);
}

TEST_F(KernelsTest, CallOfALibraryFunctionIsAnError) {
  auto module = parse("llvm.func @f(%x: f32) -> f32 {\n"
                      "  %y = llvm.intr.exp(%x) : (f32) -> f32\n"
                      "  llvm.return %y : f32\n}\n");
  std::string message = failure([&] { emitObject(*module, {}); });
  EXPECT_NE(message.find("'expf'"), std::string::npos) << message;
}

TEST_F(KernelsTest, ContractionIsRefused) {
  auto module =
      parse("llvm.func @f(%x: f32) -> f32 {\n"
            "  %y = llvm.fmul %x, %x {fastmathFlags = #llvm.fastmath<contract>}"
            " : f32\n  llvm.return %y : f32\n}\n");
  std::string message = failure([&] { emitObject(*module, {}); });
  EXPECT_NE(message.find("kernel 'f'"), std::string::npos) << message;
}

TEST_F(KernelsTest, ProductAndSumAreNotContracted) {
  auto module = parse("llvm.func @f(%x: f32, %y: f32) -> f32 {\n"
                      "  %p = llvm.fmul %x, %x : f32\n"
                      "  %s = llvm.fadd %p, %y : f32\n"
                      "  llvm.return %s : f32\n}\n");
  std::string text = emitText(*module, {"x86-64-v3", ""}, TextForm::Assembly);
  EXPECT_EQ(text.find("vfm"), std::string::npos) << text;
}

TEST_F(KernelsTest, UnknownCPUAndFeatureAreErrors) {
  auto module = parse(adder("f", 1));
  EXPECT_NE(failure([&] {
              compileKernels(*module, {"pentium-9", ""});
            }).find("unknown CPU 'pentium-9'"),
            std::string::npos);
  EXPECT_NE(failure([&] {
              compileKernels(*module, {"native", "+warp"});
            }).find("unknown CPU feature '+warp'"),
            std::string::npos);
}

TEST_F(KernelsTest, RequiredFeaturesAreThoseOfTheCPU) {
  ResolvedTarget v2 = resolveTarget({"x86-64-v2", ""});
  EXPECT_TRUE(v2.has("sse4.2"));
  EXPECT_FALSE(v2.has("avx"));
  EXPECT_EQ(v2.vectorBits, 128u);
  ResolvedTarget v4 = resolveTarget({"x86-64-v4", "-bmi2"});
  EXPECT_TRUE(v4.has("avx512vl"));
  EXPECT_FALSE(v4.has("bmi2"));
  EXPECT_EQ(v4.vectorBits, 512u);
}

// Copies of any size work on a CPU without wide vectors and need no memcpy.
TEST_F(KernelsTest, MemoryIntrinsicsNeedNoLibrary) {
  auto module = parse(R"(
    llvm.func @copy(%d: !llvm.ptr, %s: !llvm.ptr, %n: i64) {
      "llvm.intr.memcpy"(%d, %s, %n) <{isVolatile = false}>
        : (!llvm.ptr, !llvm.ptr, i64) -> ()
      llvm.return
    }
    llvm.func @move(%d: !llvm.ptr, %s: !llvm.ptr, %n: i64) {
      "llvm.intr.memmove"(%d, %s, %n) <{isVolatile = false}>
        : (!llvm.ptr, !llvm.ptr, i64) -> ()
      llvm.return
    }
    llvm.func @fill(%d: !llvm.ptr, %n: i64) {
      %c = llvm.mlir.constant(7 : i8) : i8
      "llvm.intr.memset"(%d, %c, %n) <{isVolatile = false}>
        : (!llvm.ptr, i8, i64) -> ()
      llvm.return
    }
    llvm.func @large(%d: !llvm.ptr, %s: !llvm.ptr) {
      "llvm.intr.memcpy.inline"(%d, %s) <{isVolatile = false, len = 8 : i64}>
        : (!llvm.ptr, !llvm.ptr) -> ()
      %n = llvm.mlir.constant(4096 : i64) : i64
      "llvm.intr.memcpy"(%d, %s, %n) <{isVolatile = false}>
        : (!llvm.ptr, !llvm.ptr, i64) -> ()
      llvm.return
    })");
  ASSERT_TRUE(module);
  for (const char *cpu : {"native", "x86-64-v2"}) {
    KernelCode code = compileKernels(*module, {cpu, ""});
    void *library = dlopen(code.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    auto copy = reinterpret_cast<void (*)(char *, const char *, int64_t)>(
        dlsym(library, "copy"));
    auto move = reinterpret_cast<void (*)(char *, const char *, int64_t)>(
        dlsym(library, "move"));
    auto fill =
        reinterpret_cast<void (*)(char *, int64_t)>(dlsym(library, "fill"));
    for (int size : {0, 1, 63, 64, 65, 1000}) {
      std::string source(size, 'x');
      for (int i = 0; i < size; ++i)
        source[i] = char(i);
      std::string target(size + 1, '-');
      copy(target.data(), source.data(), size);
      EXPECT_EQ(target, source + "-") << cpu << " " << size;
      move(target.data() + 1, target.data(), size);
      EXPECT_EQ(target.substr(1), source) << cpu << " " << size;
      target.assign(size + 1, '-');
      fill(target.data(), size);
      EXPECT_EQ(target, std::string(size, 7) + "-") << cpu << " " << size;
    }
    dlclose(library);
  }
}

// Many kernels are generated in parallel; the bytes don't depend on it, and a
// table that two of them share goes with each.
TEST_F(KernelsTest, ManyKernelsAreDeterministic) {
  std::string text = "llvm.mlir.global private constant @table(dense<[10, 20]> "
                     ": tensor<2xi64>) : !llvm.array<2 x i64>\n";
  for (int i = 0; i < 60; ++i) {
    text += "llvm.func @k" + std::to_string(i) +
            "(%x: i64) -> i64 {\n"
            "  %t = llvm.mlir.addressof @table : !llvm.ptr\n"
            "  %e = llvm.getelementptr %t[0, %x] : (!llvm.ptr, i64) -> "
            "!llvm.ptr, !llvm.array<2 x i64>\n"
            "  %v0 = llvm.load %e : !llvm.ptr -> i64\n";
    for (int j = 0; j < 100; ++j)
      text += "  %v" + std::to_string(j + 1) + " = llvm.mul %v" +
              std::to_string(j) + ", %x : i64\n";
    text += "  llvm.return %v100 : i64\n}\n";
  }
  auto module = parse(text);
  ASSERT_TRUE(module);
  ResolvedTarget target = resolveTarget({});
  std::vector<std::string> first = emitObjects(*module, target);
  EXPECT_GT(first.size(), 1u);
  EXPECT_EQ(first, emitObjects(*module, target));
  EXPECT_EQ(linkSharedObject(first), linkSharedObject(first));

  KernelCode code = compileKernels(*module, {});
  void *library = dlopen(code.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto last = reinterpret_cast<Unary>(dlsym(library, "k59"));
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last(1), 20);
  dlclose(library);
}

TEST_F(KernelsTest, SharedObjectTellsNoPath) {
  KernelCode code = compileKernels(*parse(adder("f", 1)), {});
  EXPECT_EQ(code.sharedObject.find("/tmp"), std::string::npos);
  EXPECT_EQ(code.sharedObject.find("/shm"), std::string::npos);
  EXPECT_EQ(code.sharedObject.find(fs::current_path().string()),
            std::string::npos);
}

TEST_F(KernelsTest, ThreadsMayLinkAtOnce) {
  auto module = parse(adder("f", 1));
  std::vector<std::string> objects = {emitObject(*module, {})};
  std::string expected = linkSharedObject(objects);
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 10; ++j)
        equal += linkSharedObject(objects) == expected;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(equal, 40);
}

TEST_F(KernelsTest, ForkedProcessCanLink) {
  auto module = parse(adder("f", 1));
  std::vector<std::string> objects = {emitObject(*module, {})};
  std::string expected = linkSharedObject(objects);
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop)
      linkSharedObject(objects);
  });
  for (int i = 0; i < 10; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20); // a hang must end
      _exit(linkSharedObject(objects) == expected ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
}

} // namespace
