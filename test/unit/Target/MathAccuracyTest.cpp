//===- MathAccuracyTest.cpp - Sweeps over the math emitters ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Compiles each emitter to a loop over arrays and compares it with a reference
// of higher precision (double for f32, x87 long double for f64) over all
// exponents, with the inputs that are special to each function. Prints the
// largest error in units of the last place and the time an element takes.
//
// INTARSIA_MATH_SWEEP=full makes it dense (minutes); INTARSIA_MATH_CPU chooses
// another CPU than this machine's ("x86-64-v2": no FMA).
//
//===----------------------------------------------------------------------===//

#include "intarsia/Target/Kernels.h"
#include "passes/CPU/MathEmitters.h"
#include "passes/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "gtest/gtest.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <dlfcn.h>
#include <filesystem>
#include <random>

using namespace intarsia;

namespace {

/// A function and what it should give.
struct Case {
  const char *name;
  const char *op;
  long double (*exact)(long double);
  double (*exactForF32)(double);
  bool f64;
  /// Where to measure the speed.
  double low, high;
};

template <typename T>
T rsqrt(T x) {
  return 1 / std::sqrt(x);
}

#define FUNCTION(name, op, f64, low, high)                                     \
  Case {                                                                       \
    #name, op, [](long double x) { return std::name(x); },                     \
        [](double x) { return std::name(x); }, f64, low, high                  \
  }

const Case cases[] = {
    FUNCTION(acos, "math.acos", true, -1, 1),
    FUNCTION(acosh, "math.acosh", true, 1, 10),
    FUNCTION(asin, "math.asin", true, -1, 1),
    FUNCTION(asinh, "math.asinh", true, -10, 10),
    FUNCTION(atan, "math.atan", true, -10, 10),
    FUNCTION(atanh, "math.atanh", true, -1, 1),
    FUNCTION(cbrt, "math.cbrt", true, -10, 10),
    FUNCTION(cos, "math.cos", true, -10, 10),
    FUNCTION(cosh, "math.cosh", true, -10, 10),
    FUNCTION(erf, "math.erf", true, -4, 4),
    FUNCTION(erfc, "math.erfc", false, -4, 4),
    FUNCTION(exp, "math.exp", true, -10, 10),
    FUNCTION(exp2, "math.exp2", true, -10, 10),
    FUNCTION(expm1, "math.expm1", true, -10, 10),
    FUNCTION(log, "math.log", true, 0, 10),
    FUNCTION(log10, "math.log10", true, 0, 10),
    FUNCTION(log1p, "math.log1p", true, 0, 10),
    FUNCTION(log2, "math.log2", true, 0, 10),
    Case{"rsqrt", "math.rsqrt", rsqrt<long double>, rsqrt<double>, true, 0, 10},
    FUNCTION(sin, "math.sin", true, -10, 10),
    FUNCTION(sinh, "math.sinh", true, -10, 10),
    FUNCTION(tan, "math.tan", true, -10, 10),
    FUNCTION(tanh, "math.tanh", true, -10, 10),
};

bool isFull() {
  const char *value = std::getenv("INTARSIA_MATH_SWEEP");
  return value && std::string(value) == "full";
}

TargetOptions targetOptions() {
  const char *cpu = std::getenv("INTARSIA_MATH_CPU");
  return {cpu ? cpu : "native", ""};
}

/// Tests must not fill the user's cache.
class PrivateCache : public testing::Environment {
public:
  void SetUp() override {
    std::string name =
        (std::filesystem::temp_directory_path() / "math-XXXXXX").string();
    path = mkdtemp(name.data());
    setenv("INTARSIA_CACHE_DIR", path.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(path); }

private:
  std::string path;
};

const testing::Environment *const privateCache =
    testing::AddGlobalTestEnvironment(new PrivateCache);

/// Compiles `func.func @kernel` of `text` and keeps it loaded.
class Compiled {
public:
  explicit Compiled(const std::string &text) {
    ResolvedTarget target = resolveTarget(targetOptions());
    mlir::DialectRegistry registry;
    registry.insert<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect,
                    mlir::func::FuncDialect, mlir::LLVM::LLVMDialect,
                    mlir::math::MathDialect, mlir::scf::SCFDialect,
                    mlir::vector::VectorDialect>();
    mlir::MLIRContext context(registry);
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      throw std::runtime_error("test module does not parse:\n" + text);
    mlir::PassManager passes(&context);
    CPUExpandMathOptions options;
    options.fma = target.has("fma");
    options.avx512 = target.has("avx512f");
    passes.addPass(createCPUExpandMath(options));
    passes.addPass(createCPUCheckMath());
    CPUExpandConversionsOptions conversions;
    conversions.f16c = target.has("f16c");
    passes.addPass(createCPUExpandConversions(conversions));
    passes.addPass(mlir::createCanonicalizerPass());
    passes.addPass(mlir::createCSEPass());
    passes.addPass(mlir::createLoopInvariantCodeMotionPass());
    passes.addPass(mlir::createSCFToControlFlowPass());
    passes.addPass(mlir::createConvertVectorToLLVMPass());
    passes.addPass(mlir::createConvertMathToLLVMPass());
    passes.addPass(mlir::createArithToLLVMConversionPass());
    passes.addPass(mlir::createConvertControlFlowToLLVMPass());
    passes.addPass(mlir::createConvertFuncToLLVMPass());
    passes.addPass(mlir::createReconcileUnrealizedCastsPass());
    if (mlir::failed(passes.run(*module)))
      throw std::runtime_error("test module does not compile");
    code = compileKernels(*module, targetOptions());
    if (!code.path.empty())
      library = dlopen(code.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      throw std::runtime_error("the kernel can't be loaded");
    function = reinterpret_cast<void (*)(void *, void *, void *, int64_t)>(
        dlsym(library, "kernel"));
  }
  ~Compiled() { dlclose(library); }

  /// out[i] = f(x[i], y[i]); `count` a multiple of the lanes.
  void operator()(void *x, void *y, void *out, int64_t count) const {
    function(x, y, out, count);
  }

private:
  KernelCode code;
  void *library = nullptr;
  void (*function)(void *, void *, void *, int64_t) = nullptr;
};

constexpr int lanes = 16;

/// A loop over arrays with `body` between `%x`, `%y` and `%r`.
std::string loop(const std::string &in, const std::string &out,
                 const std::string &body, int width = lanes) {
  std::string n = std::to_string(width);
  auto vector = [&](const std::string &element) {
    return width == 1 ? element : "vector<" + n + "x" + element + ">";
  };
  auto pointer = [&](const std::string &base, const std::string &element) {
    return "llvm.getelementptr %" + base +
           "[%j] : (!llvm.ptr, i64) -> "
           "!llvm.ptr, " +
           element;
  };
  return "func.func @kernel(%px: !llvm.ptr, %py: !llvm.ptr, %pr: !llvm.ptr, "
         "%n: i64) {\n"
         "  %zero = arith.constant 0 : index\n"
         "  %step = arith.constant " +
         n +
         " : index\n"
         "  %end = arith.index_cast %n : i64 to index\n"
         "  scf.for %i = %zero to %end step %step {\n"
         "    %j = arith.index_cast %i : index to i64\n"
         "    %ax = " +
         pointer("px", in) +
         "\n"
         "    %x = llvm.load %ax {alignment = 4 : i64} : !llvm.ptr -> " +
         vector(in) +
         "\n"
         "    %ay = " +
         pointer("py", in) +
         "\n"
         "    %y = llvm.load %ay {alignment = 4 : i64} : !llvm.ptr -> " +
         vector(in) +
         "\n"
         "    " +
         body +
         "\n"
         "    %ar = " +
         pointer("pr", out) +
         "\n"
         "    llvm.store %r, %ar {alignment = 4 : i64} : " +
         vector(out) +
         ", !llvm.ptr\n"
         "  }\n  return\n}\n";
}

std::string unaryBody(const char *op, const std::string &type) {
  return std::string("%r = ") + op + " %x : " + type;
}

/// The distance of `value` from `exact` in units of the last place of the
/// result; infinite if one of them is special and the other is not.
template <typename T, typename R>
double ulps(T value, R exact) {
  constexpr int mantissa = std::numeric_limits<T>::digits;
  constexpr int least = std::numeric_limits<T>::min_exponent;
  if (std::isnan(exact) || std::isnan(value))
    return std::isnan(exact) && std::isnan(value) ? 0 : INFINITY;
  T rounded = T(exact);
  if (value == rounded)
    return std::signbit(value) == std::signbit(rounded) ||
                   (rounded == 0 && exact != 0)
               ? double(std::fabs(R(value) - exact) == 0 || std::isinf(rounded)
                            ? 0
                            : std::fabs(std::ldexp(
                                  R(value) - exact,
                                  mantissa -
                                      std::max(std::ilogb(exact) + 1, least))))
               : INFINITY;
  if (std::isinf(rounded) || std::isinf(value)) {
    // Overflow is one step beyond the largest number.
    R limit = std::ldexp(R(1), std::numeric_limits<T>::max_exponent);
    R a = std::isinf(value) ? std::copysign(limit, R(value)) : R(value);
    R e = std::isinf(exact) ? std::copysign(limit, exact) : exact;
    return double(std::fabs(
        std::ldexp(a - e, mantissa - std::numeric_limits<T>::max_exponent)));
  }
  if (exact == 0)
    return INFINITY;
  int exponent = std::max(std::ilogb(exact) + 1, least);
  return double(std::fabs(std::ldexp(R(value) - exact, mantissa - exponent)));
}

struct Worst {
  double error = 0;
  double input = 0, second = 0, value = 0;
};

template <typename T>
void fillTail(std::vector<T> &inputs) {
  while (inputs.size() % 64)
    inputs.push_back(1);
}

template <typename T>
double nanosecondsAnElement(const Compiled &kernel, double low, double high) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> distribution(low, high);
  std::vector<T> x(4096), r(4096);
  for (T &value : x)
    value = T(distribution(random));
  double best = 1e9;
  for (int i = 0; i < 30; ++i) {
    auto start = std::chrono::steady_clock::now();
    for (int j = 0; j < 10; ++j)
      kernel(x.data(), x.data(), r.data(), x.size());
    std::chrono::duration<double, std::nano> time =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / 10 / x.size());
  }
  return best;
}

void report(const char *name, const char *type, const Worst &worst,
            double time) {
  std::printf("%-6s %s: %.3f ulp at %.17g (gives %.9g), %.2f ns/element\n",
              name, type, worst.error, worst.input, worst.value, time);
}

class MathAccuracy : public testing::TestWithParam<Case> {};

TEST_P(MathAccuracy, F32WithinTwoUlp) {
  const Case &c = GetParam();
  Compiled kernel(loop("f32", "f32", unaryBody(c.op, "vector<16xf32>")));
  Worst worst;
  std::vector<float> inputs, results;
  auto run = [&] {
    fillTail(inputs);
    results.resize(inputs.size());
    kernel(inputs.data(), inputs.data(), results.data(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      double exact = c.exactForF32(inputs[i]);
      double error = ulps(results[i], exact);
      if (!(error <= worst.error))
        worst = {error, inputs[i], 0, results[i]};
    }
    inputs.clear();
  };
  // Special values, and every number near 0, 1 and the powers of two.
  for (uint32_t exponent = 0; exponent < 512; ++exponent)
    for (int32_t d = -64; d < 64; ++d)
      inputs.push_back(std::bit_cast<float>((exponent << 23) + uint32_t(d)));
  run();
  // A step that is no multiple of a power of two.
  uint32_t step = isFull() ? 61 : 8191;
  uint64_t bits = 0;
  while (bits < (uint64_t(1) << 32)) {
    while (inputs.size() < 65536 && bits < (uint64_t(1) << 32)) {
      inputs.push_back(std::bit_cast<float>(uint32_t(bits)));
      bits += step;
    }
    run();
  }
  report(c.name, "f32", worst,
         nanosecondsAnElement<float>(kernel, c.low, c.high));
  EXPECT_LE(worst.error, 2)
      << c.name << "(" << worst.input << ") = " << worst.value;
}

TEST_P(MathAccuracy, ScalarsAgreeWithVectors) {
  const Case &c = GetParam();
  Compiled vector(loop("f32", "f32", unaryBody(c.op, "vector<16xf32>")));
  Compiled scalar(loop("f32", "f32", unaryBody(c.op, "f32"), 1));
  std::vector<float> inputs;
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += 1000003)
    inputs.push_back(std::bit_cast<float>(uint32_t(bits)));
  fillTail(inputs);
  std::vector<float> one(inputs.size()), many(inputs.size());
  scalar(inputs.data(), inputs.data(), one.data(), inputs.size());
  vector(inputs.data(), inputs.data(), many.data(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::isnan(many[i]) && std::isnan(one[i]))
      continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(one[i]), std::bit_cast<uint32_t>(many[i]))
        << c.name << "(" << inputs[i] << ")";
  }
}

class MathAccuracyF64 : public testing::TestWithParam<Case> {};

TEST_P(MathAccuracyF64, WithinTwoUlp) {
  const Case &c = GetParam();
  Compiled kernel(loop("f64", "f64", unaryBody(c.op, "vector<16xf64>")));
  Worst worst;
  std::mt19937_64 random(7);
  std::vector<double> inputs, results;
  auto run = [&] {
    fillTail(inputs);
    results.resize(inputs.size());
    kernel(inputs.data(), inputs.data(), results.data(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      double error = ulps(results[i], c.exact(inputs[i]));
      if (!(error <= worst.error))
        worst = {error, inputs[i], 0, results[i]};
    }
    inputs.clear();
  };
  for (uint64_t exponent = 0; exponent < 4096; ++exponent)
    for (int64_t d = -8; d < 8; ++d)
      inputs.push_back(std::bit_cast<double>((exponent << 52) + uint64_t(d)));
  run();
  // Each exponent alike, and more where functions are interesting.
  int perExponent = isFull() ? 4096 : 64;
  for (uint64_t exponent = 0; exponent < 4096; ++exponent) {
    uint64_t magnitude = exponent & 2047;
    int count = magnitude >= 1023 - 30 && magnitude <= 1023 + 11
                    ? 64 * perExponent
                    : perExponent;
    for (int i = 0; i < count; ++i)
      inputs.push_back(std::bit_cast<double>(exponent << 52 | random() >> 12));
    if (inputs.size() > 65536)
      run();
  }
  run();
  report(c.name, "f64", worst,
         nanosecondsAnElement<double>(kernel, c.low, c.high));
  EXPECT_LE(worst.error, 2)
      << c.name << "(" << worst.input << ") = " << worst.value;
}

INSTANTIATE_TEST_SUITE_P(All, MathAccuracy, testing::ValuesIn(cases),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

std::vector<Case> casesOfF64() {
  std::vector<Case> result;
  for (const Case &c : cases)
    if (c.f64)
      result.push_back(c);
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, MathAccuracyF64, testing::ValuesIn(casesOfF64()),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

/// Two operands: all pairs of special values, and random ones. `R` is the
/// format of the exact result.
template <typename T, typename R>
void checkBinary(const char *name, const char *op, R (*exact)(R, R),
                 double limit = 2) {
  constexpr bool isSingle = sizeof(T) == 4;
  using Bits = std::conditional_t<isSingle, uint32_t, uint64_t>;
  std::string element = isSingle ? "f32" : "f64";
  Compiled kernel(
      loop(element, element,
           std::string("%r = ") + op + " %x, %y : vector<16x" + element + ">"));
  using Limits = std::numeric_limits<T>;
  std::vector<T> special = {0,
                            1,
                            T(0.5),
                            2,
                            3,
                            T(1.5),
                            T(1e10),
                            T(1e30),
                            7,
                            Limits::max(),
                            33,
                            16777216,
                            33554430,
                            INFINITY,
                            NAN,
                            Limits::min() / 8,
                            T(1e-5),
                            T(0.333),
                            T(std::sqrt(Limits::max())),
                            T(std::sqrt(Limits::min()))};
  for (size_t i = 0, n = special.size(); i < n; ++i)
    special.push_back(-special[i]);
  std::vector<T> x, y;
  for (T a : special)
    for (T b : special) {
      x.push_back(a);
      y.push_back(b);
    }
  std::mt19937_64 random(3);
  int count = isFull() ? 20000000 : 300000;
  for (int i = 0; i < count; ++i) {
    Bits a = Bits(random()), b = Bits(random());
    if (i % 2) {
      // Operands whose result is seldom out of range.
      constexpr int mantissa = Limits::digits - 1;
      constexpr Bits fraction = (Bits(1) << mantissa) - 1;
      constexpr Bits sign = Bits(1) << (8 * sizeof(T) - 1);
      constexpr Bits half = Bits(Limits::max_exponent - 2) << mantissa;
      a = (a & (2 * fraction + 1)) | half;
      b = (b & (sign | (8 * fraction + 7))) + half;
    }
    x.push_back(std::bit_cast<T>(a));
    y.push_back(std::bit_cast<T>(b));
  }
  fillTail(x);
  fillTail(y);
  std::vector<T> results(x.size());
  kernel(x.data(), y.data(), results.data(), x.size());
  Worst worst;
  for (size_t i = 0; i < x.size(); ++i) {
    double error = ulps(results[i], exact(x[i], y[i]));
    if (!(error <= worst.error))
      worst = {error, x[i], y[i], results[i]};
  }
  report(name, element.c_str(), worst, nanosecondsAnElement<T>(kernel, 0.1, 5));
  EXPECT_LE(worst.error, limit) << name << "(" << worst.input << ", "
                                << worst.second << ") = " << worst.value;
}

// The results are at most 1, where an ulp is 2^-24.
TEST(MathAccuracy, NormalCdfWithinTwoUlpOfOne) {
  auto constant = [](const char *name, const char *value) {
    return std::string("%") + name + " = arith.constant dense<" + value +
           "> : vector<16xf32>\n";
  };
  Compiled kernel(loop("f32", "f32",
                       constant("scale", "0.707106769") +
                           constant("one", "1.0") + constant("half", "0.5") +
                           "%a = arith.mulf %x, %scale : vector<16xf32>\n"
                           "%b = math.erf %a : vector<16xf32>\n"
                           "%c = arith.addf %one, %b : vector<16xf32>\n"
                           "%r = arith.mulf %half, %c : vector<16xf32>"));
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += 4093)
    x.push_back(std::bit_cast<float>(uint32_t(bits)));
  for (int i = -1000000; i <= 1000000; ++i)
    x.push_back(float(i) * 7e-6f);
  for (float special : {0.0f, -0.0f, INFINITY, -INFINITY})
    x.push_back(special);
  fillTail(x);
  std::vector<float> result(x.size());
  kernel(x.data(), x.data(), result.data(), x.size());
  Worst worst;
  for (size_t i = 0; i < x.size(); ++i) {
    double exact = 0.5 * std::erfc(-x[i] * std::sqrt(0.5));
    double error = std::isnan(x[i]) && std::isnan(result[i])
                       ? 0
                       : std::ldexp(std::abs(result[i] - exact), 24);
    if (!(error <= worst.error))
      worst = {error, x[i], 0, result[i]};
    // Times a large x, a tiny error would not be one.
    if (x[i] < -7 || x[i] == 0 || x[i] > 7) {
      ASSERT_EQ(result[i], x[i] == 0 ? 0.5f : float(x[i] > 0)) << x[i];
    }
  }
  report("normal", "f32", worst, nanosecondsAnElement<float>(kernel, -4, 4));
  EXPECT_LE(worst.error, 2) << "Phi(" << worst.input << ") = " << worst.value;
}

TEST(MathAccuracy, PowWithinTwoUlp) {
  checkBinary<float, double>("pow", "math.powf",
                             [](double x, double y) { return std::pow(x, y); });
  checkBinary<double, long double>(
      "pow", "math.powf",
      [](long double x, long double y) { return std::pow(x, y); });
}

TEST(MathAccuracy, Atan2WithinTwoUlp) {
  checkBinary<float, double>("atan2", "math.atan2", [](double y, double x) {
    return std::atan2(y, x);
  });
  checkBinary<double, long double>(
      "atan2", "math.atan2",
      [](long double y, long double x) { return std::atan2(y, x); });
}

TEST(MathAccuracy, FmodIsExact) {
  checkBinary<float, double>(
      "fmod", "arith.remf", [](double x, double y) { return std::fmod(x, y); },
      /*limit=*/0);
  checkBinary<double, long double>(
      "fmod", "arith.remf",
      [](long double x, long double y) { return std::fmod(x, y); },
      /*limit=*/0);
}

TEST(MathAccuracy, BF16RoundsToNearestEven) {
  Compiled kernel(
      loop("f32", "bf16",
           "%r = arith.truncf %x : vector<16xf32> to vector<16xbf16>"));
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += 4093)
    x.push_back(std::bit_cast<float>(uint32_t(bits)));
  for (uint32_t top = 0; top < 65536; ++top)
    for (uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(top << 16 | low));
  fillTail(x);
  std::vector<uint16_t> result(x.size());
  kernel(x.data(), x.data(), result.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    uint32_t bits = std::bit_cast<uint32_t>(x[i]);
    uint32_t low = bits & 0xffff, top = bits >> 16;
    uint32_t expected =
        top + (low > 0x8000 || (low == 0x8000 && (top & 1)) ? 1 : 0);
    if (std::isnan(x[i]))
      expected = 0x7fc0;
    ASSERT_EQ(result[i], expected) << std::hex << bits;
  }
}

TEST(MathAccuracy, BF16IsExactInF32) {
  Compiled kernel(loop(
      "bf16", "f32", "%r = arith.extf %x : vector<16xbf16> to vector<16xf32>"));
  std::vector<uint16_t> x(65536);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = uint16_t(i);
  std::vector<uint32_t> result(x.size());
  kernel(x.data(), x.data(), result.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(result[i], uint32_t(i) << 16);
}

TEST(MathAccuracy, F16RoundTripsAndRoundsToNearestEven) {
  Compiled toF32(loop("f16", "f32",
                      "%r = arith.extf %x : vector<16xf16> to vector<16xf32>"));
  Compiled toF16(loop(
      "f32", "f16", "%r = arith.truncf %x : vector<16xf32> to vector<16xf16>"));
  std::vector<uint16_t> half(65536), back(65536);
  std::vector<float> single(65536);
  for (size_t i = 0; i < half.size(); ++i)
    half[i] = uint16_t(i);
  toF32(half.data(), half.data(), single.data(), half.size());
  toF16(single.data(), single.data(), back.data(), half.size());
  auto exact = [](uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? std::ldexp(1024.f + mantissa, exponent - 25)
                                 : std::ldexp(float(mantissa), -24);
    return bits & 0x8000 ? -value : value;
  };
  for (size_t i = 0; i < half.size(); ++i) {
    if (std::isnan(exact(half[i]))) {
      ASSERT_TRUE(std::isnan(single[i]) && std::isnan(exact(back[i]))) << i;
      continue;
    }
    ASSERT_EQ(single[i], exact(half[i])) << i;
    ASSERT_EQ(back[i], half[i]);
  }
  // Between two neighbours, the middle goes to the even one.
  std::vector<float> x;
  std::vector<uint16_t> expected;
  for (uint16_t i = 0; i < 0x7bff; ++i) {
    float low = exact(i), high = exact(i + 1), middle = (low + high) / 2;
    for (float value : {std::nextafter(middle, 0.f), middle,
                        std::nextafter(middle, INFINITY)}) {
      x.push_back(value);
      expected.push_back(value < middle                   ? i
                         : value > middle || (i & 1) == 1 ? i + 1
                                                          : i);
    }
  }
  for (auto [value, bits] :
       std::initializer_list<std::pair<float, uint16_t>>{{65519.99f, 0x7bff},
                                                         {65520.f, 0x7c00},
                                                         {1e38f, 0x7c00},
                                                         {-65520.f, 0xfc00},
                                                         {1e-40f, 0},
                                                         {-1e-40f, 0x8000}}) {
    x.push_back(value);
    expected.push_back(bits);
  }
  while (x.size() % lanes) {
    x.push_back(1);
    expected.push_back(0x3c00);
  }
  std::vector<uint16_t> result(x.size());
  toF16(x.data(), x.data(), result.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(result[i], expected[i]) << x[i];
}

} // namespace
