//===- Pointwise.cpp - Operators on each element by itself --------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One line an operator: its formula on scalars, and its tensor arguments by
// name. Formulas follow PyTorch's CPU kernels (ATen/native/cpu) in their order
// of operations; f16 and bf16 are computed in f32 and rounded once, unless
// eager rounds in between. Where PyTorch's kernels compute a fused
// multiply-add, so do we, by saying so.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Arguments.h"
#include "passes/Lower/Special.h"

#include <cmath>
#include <limits>
#include <numbers>

using namespace mlir;

namespace intarsia::lower {
namespace {

//===----------------------------------------------------------------------===//
// From a formula to a lowering
//===----------------------------------------------------------------------===//

/// A string as a template argument.
template <size_t size>
struct Name {
  constexpr Name(const char (&literal)[size]) {
    std::copy_n(literal, size, text);
  }
  char text[size];
};

/// In which dtype the operands meet.
enum class Common {
  Result,   // the result's
  Promoted, // what PyTorch promotes the operands to
  First,    // the first operand's
};

template <Common common, NumberPrecision precision, auto formula, Name... names>
Lowered lowerFormula(graph::CallOp call, KernelBuilder &kernel) {
  SmallVector<Argument> arguments;
  for (StringRef name : {StringRef(names.text)...}) {
    std::optional<Argument> found = argument(call, kernel, name);
    if (!found)
      return failure();
    arguments.push_back(*found);
  }
  DType dtype = common == Common::Result     ? resultDType(call)
                : common == Common::Promoted ? promoteTypes(arguments)
                                             : arguments.front().dtype;
  return lowerPointwise(
      call, kernel, arguments, dtype, precision, [&](ArrayRef<Scalar> scalars) {
        return [&]<size_t... i>(std::index_sequence<i...>) -> Scalar {
          if constexpr (std::is_invocable_v<decltype(formula), graph::CallOp,
                                            decltype(scalars[i])...>)
            return formula(call, scalars[i]...);
          else
            return formula(scalars[i]...);
        }(std::make_index_sequence<sizeof...(names)>());
      });
}

/// Operands in the result's dtype.
template <auto formula, Name... names>
constexpr Lowering pointwise =
    lowerFormula<Common::Result, NumberPrecision::Rounded, formula, names...>;
template <auto formula>
constexpr Lowering unary = pointwise<formula, "self">;
template <auto formula>
constexpr Lowering binary = pointwise<formula, "self", "other">;
/// A second operand that is a number keeps its precision.
template <auto formula>
constexpr Lowering exactBinary =
    lowerFormula<Common::Result, NumberPrecision::ExactIfSecond, formula,
                 "self", "other">;
/// Answers about the operands: a bool.
template <auto formula>
constexpr Lowering test =
    lowerFormula<Common::First, NumberPrecision::Rounded, formula, "self">;
template <auto formula>
constexpr Lowering comparison =
    lowerFormula<Common::Promoted, NumberPrecision::Rounded, formula, "self",
                 "other">;

void decline(const Scalar &scalar) { scalar.getContext().kernel.decline(); }

/// Operators that eager refuses for floats: the call does so too.
Scalar integral(const Scalar &scalar) {
  if (isFloatingPoint(scalar.dtype()))
    decline(scalar);
  return scalar;
}

Scalar number(graph::CallOp call, StringRef name, const Scalar &like) {
  return numberArgument(call, name, like);
}

bool isOnCpu(graph::CallOp call) {
  return resultType(call).getDevice() == "cpu";
}

Scalar isTrue(const Scalar &a) { return a.to(DType::Bool); }
Scalar sigmoid(const Scalar &x) { return 1.0 / (1.0 + exp(-x)); }
Scalar infinity(const Scalar &like) {
  return like.constant(std::numeric_limits<double>::infinity());
}

//===----------------------------------------------------------------------===//
// Sums and products
//===----------------------------------------------------------------------===//

/// a + sign * alpha * b, alpha rounded to the result's dtype.
Scalar addScaled(graph::CallOp call, const Scalar &a, const Scalar &b,
                 int sign) {
  // A complex 1 counts: its imaginary part is a 0 that meets infinities.
  bool isOne = call.isNone("alpha") || call.floatArg("alpha") == 1.0;
  if (isOne && !a.isComplexNumber())
    return sign > 0 ? a + b : a - b;
  Scalar alpha = isOne ? a.constant(1)
                       : number(call, "alpha", a).roundedTo(resultDType(call));
  if (a.dtype() == DType::Bool)
    return a | (b & alpha);
  if (sign < 0) {
    // The negative of a real number is one: its imaginary part is no -0.
    bool isReal = a.isComplexNumber() &&
                  !isa_and_present<graph::ComplexAttr>(call.arg("alpha"));
    alpha = isReal ? complexNumber(-alpha.real(), alpha.imaginary()) : -alpha;
  }
  return fma(b, alpha, a);
}

Scalar lerp(const Scalar &from, const Scalar &to, const Scalar &weight) {
  Scalar difference = to - from;
  return select(abs(weight) < 0.5, fma(weight, difference, from),
                fma(-difference, 1.0 - weight, to));
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// Wraps, by repeated squaring.
Scalar powInteger(const Scalar &x, int64_t exponent) {
  std::optional<Scalar> result;
  Scalar square = x;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2)
      result = result ? *result * square : square;
    if (exponent > 1)
      square = square * square;
  }
  return result ? *result : x.constant(1);
}

Lowered lowerPowScalar(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Argument> self = argument(call, kernel, "self");
  std::optional<Argument> exponent = argument(call, kernel, "exponent");
  if (!self || !exponent || !exponent->constantFloat())
    return failure();
  double value = *exponent->constantFloat();
  DType dtype = resultDType(call);
  if (!isFloatingPoint(dtype) &&
      (!isInteger(dtype) || value < 0 || isFloatingPoint(exponent->dtype)))
    return failure();
  // A number rounds as every other; integers only have the exponents above.
  auto body = [&](ArrayRef<Scalar> scalars) -> Scalar {
    const Scalar &x = scalars[0];
    auto rounded = [&](const Scalar &scalar) {
      return scalar.roundedTo(dtype);
    };
    if (!isFloatingPoint(dtype))
      return powInteger(x, static_cast<int64_t>(value));
    if (value == 0)
      return x.constant(1);
    if (value == 1)
      return x;
    if (dtype != DType::F16) {
      if (value == 0.5)
        return sqrt(x);
      if (value == -0.5)
        return 1.0 / sqrt(x);
      if (value == -1)
        return 1.0 / x;
      if (value == 3)
        return rounded(x * x) * x;
      if (value == -2)
        return 1.0 / rounded(x * x);
    }
    if (value == 2)
      return x * x;
    return pow(x, rounded(x.constant(value)));
  };
  return lowerPointwise(call, kernel, *self, dtype, NumberPrecision::Rounded,
                        body);
}

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

template <bool hasTensorBounds>
Lowered lowerClamp(graph::CallOp call, KernelBuilder &kernel) {
  SmallVector<Argument> arguments;
  std::optional<Argument> self = argument(call, kernel, "self");
  if (!self)
    return failure();
  arguments.push_back(*self);
  int lowest = 0, highest = 0;
  for (auto [name, position] :
       {std::pair{"min", &lowest}, std::pair{"max", &highest}}) {
    if (call.isNone(name))
      continue;
    std::optional<Argument> bound = argument(call, kernel, name);
    if (!bound)
      return failure();
    *position = static_cast<int>(arguments.size());
    arguments.push_back(*bound);
  }
  return lowerPointwise(
      call, kernel, arguments, resultDType(call), NumberPrecision::Rounded,
      [&](ArrayRef<Scalar> scalars) {
        Scalar x = scalars[0];
        if (hasTensorBounds) {
          if (lowest)
            x = max(x, scalars[lowest]);
          return highest ? min(x, scalars[highest]) : x;
        }
        if (lowest)
          x = stdMax(x, scalars[lowest]);
        if (highest)
          x = stdMin(x, scalars[highest]);
        for (int bound : {lowest, highest})
          if (bound && x.isFloat() &&
              !(arguments[bound].constantFloat() &&
                !std::isnan(*arguments[bound].constantFloat())))
            x = select(isNaN(scalars[bound]), scalars[bound], x);
        return x;
      });
}

Scalar nanToNum(graph::CallOp call, const Scalar &x) {
  if (!x.isFloat())
    return x;
  DType dtype = resultDType(call);
  const llvm::fltSemantics &semantics =
      cast<FloatType>(storageType(call.getContext(), dtype))
          .getFloatSemantics();
  APFloat largest = APFloat::getLargest(semantics);
  bool isLossy = false;
  largest.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                  &isLossy);
  double limit = largest.convertToDouble();
  auto replacement = [&](StringRef name, double value) {
    return x.constant(call.floatArg(name).value_or(value)).roundedTo(dtype);
  };
  double inf = std::numeric_limits<double>::infinity();
  return select(isNaN(x), replacement("nan", 0.0),
                select(x == inf, replacement("posinf", limit),
                       select(x == -inf, replacement("neginf", -limit), x)));
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

constexpr double sqrtHalf = std::numbers::sqrt2 / 2;
constexpr double twoOverSqrtPi = 2 * std::numbers::inv_sqrtpi;
constexpr double geluKappa = 0.044715;
constexpr double geluBeta = std::numbers::sqrt2 * twoOverSqrtPi * 0.5;

bool isTanhGelu(graph::CallOp call) {
  return call.stringArg("approximate") == "tanh";
}

/// In this form the emitters of math see one function.
Scalar normalCdf(const Scalar &x) { return 0.5 * (1.0 + erf(x * sqrtHalf)); }

Scalar gelu(graph::CallOp call, const Scalar &x) {
  if (!isTanhGelu(call))
    return x * normalCdf(x);
  Scalar inner = geluBeta * fma(x.constant(geluKappa), x * x * x, x);
  return 0.5 * x * (1.0 + tanh(inner));
}

Scalar geluBackward(graph::CallOp call, const Scalar &grad, const Scalar &x) {
  if (!isTanhGelu(call)) {
    Scalar pdf = (twoOverSqrtPi * sqrtHalf * 0.5) * exp(x * x * -0.5);
    return grad * (normalCdf(x) + x * pdf);
  }
  Scalar square = x * x;
  Scalar inner = geluBeta * fma(x.constant(geluKappa), square * x, x);
  Scalar innerTanh = tanh(inner);
  Scalar left = 0.5 * x;
  Scalar leftDerivative = 0.5 * (1.0 + innerTanh);
  Scalar tanhDerivative = fma(-innerTanh, innerTanh, x.constant(1));
  Scalar innerDerivative =
      geluBeta * fma(x.constant(3.0 * geluKappa), square, x.constant(1));
  return grad * (leftDerivative + left * tanhDerivative * innerDerivative);
}

Scalar softplus(graph::CallOp call, const Scalar &x) {
  Scalar beta = number(call, "beta", x);
  Scalar scaled = x * beta;
  return select(scaled > number(call, "threshold", x), x,
                log1p(exp(scaled)) / beta);
}

Scalar softplusBackward(graph::CallOp call, const Scalar &grad,
                        const Scalar &x) {
  Scalar scaled = x * number(call, "beta", x);
  Scalar power = exp(scaled);
  return select(scaled > number(call, "threshold", x), grad,
                grad * power / (power + 1.0));
}

Scalar elu(graph::CallOp call, const Scalar &x) {
  Scalar scale = number(call, "scale", x);
  Scalar negative = number(call, "alpha", x) * scale;
  return select(x <= 0.0, expm1(x * number(call, "input_scale", x)) * negative,
                x * scale);
}

Scalar eluBackward(graph::CallOp call, const Scalar &grad, const Scalar &x) {
  Scalar scale = number(call, "scale", x);
  Scalar inputScale = number(call, "input_scale", x);
  Scalar negative = number(call, "alpha", x) * scale;
  Scalar below = call.boolArg("is_result").value_or(false)
                     ? grad * inputScale * (x + negative)
                     : grad * inputScale * negative * exp(x * inputScale);
  // NaN goes the negative way, as in PyTorch's vector loop.
  return select(x > 0.0, grad * scale, below);
}

/// PyTorch's kernel for f16 rounds after every step, the one for bf16 does not.
Scalar sigmoidBackward(graph::CallOp call, const Scalar &grad,
                       const Scalar &y) {
  DType dtype = resultDType(call) == DType::F16 ? DType::F16 : grad.dtype();
  return (grad * (1.0 - y).roundedTo(dtype)).roundedTo(dtype) * y;
}

Scalar hardSigmoid(const Scalar &x) {
  return stdMin(stdMax(x + 3.0, x.constant(0.0)), x.constant(6.0)) / 6.0;
}

Scalar hardSwish(const Scalar &x) {
  return x * stdMin(stdMax(x + 3.0, x.constant(0.0)), x.constant(6.0)) / 6.0;
}

Scalar hardSwishBackward(const Scalar &grad, const Scalar &x) {
  return select(x <= -3.0, x.constant(0.0),
                select(x >= 3.0, grad, grad * (x / 3.0 + 0.5)));
}

/// The first half of a dimension times the sigmoid of the second.
Lowered lowerGLU(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  if (!self || !isFloatingPoint(self->dtype) || self->rank() == 0)
    return failure();
  std::optional<int64_t> dim = dimArgument(call, "dim", self->rank());
  if (!dim)
    return failure();
  SmallVector<SymExpr> sizes = resultSizes(call);
  const SymExpr &half = sizes[*dim];
  return SmallVector<Tensor>{kernel.pointwise(
      {kernel.slice(*self, *dim, 0, half, 1),
       kernel.slice(*self, *dim, half, half, 1)},
      sizes, self->dtype,
      [&](OpBuilder &builder, Location loc, ValueRange values) {
        ScalarContext context{kernel, builder, loc};
        DType dtype = computeType(self->dtype);
        Scalar a = Scalar(context, values[0], self->dtype).to(dtype);
        Scalar b = Scalar(context, values[1], self->dtype).to(dtype);
        return (a * sigmoid(b)).to(self->dtype).getValue();
      })};
}

/// The gradients of both halves, one after the other.
Lowered lowerGLUBackward(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  // Halves round at several places of eager's two steps.
  if (!grad || !self || self->rank() == 0 || grad->dtype != self->dtype ||
      (self->dtype != DType::F32 && self->dtype != DType::F64))
    return failure();
  std::optional<int64_t> dim = dimArgument(call, "dim", self->rank());
  if (!dim)
    return failure();
  SmallVector<SymExpr> sizes = grad->sizes;
  const SymExpr &half = sizes[*dim];
  if (half + half != self->sizes[*dim])
    return failure();
  Tensor a = kernel.slice(*self, *dim, 0, half, 1);
  Tensor b = kernel.slice(*self, *dim, half, half, 1);
  auto gradient = [&](bool isFirst) {
    return kernel.pointwise(
        {a, b, *grad}, sizes, self->dtype,
        [&](OpBuilder &builder, Location loc, ValueRange values) {
          ScalarContext context{kernel, builder, loc};
          Scalar x(context, values[0], self->dtype);
          Scalar gate = sigmoid(x.with(values[1])), g = x.with(values[2]);
          Scalar result = isFirst ? gate * g : (1.0 - gate) * gate * x * g;
          return result.getValue();
        });
  };
  return SmallVector<Tensor>{
      kernel.concat({gradient(true), gradient(false)}, *dim, self->sizes)};
}

/// The gradients of the input and of the weight, before that is summed.
Lowered lowerPReLUBackward(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Argument> grad = argument(call, kernel, "grad_output");
  std::optional<Argument> self = argument(call, kernel, "self");
  std::optional<Argument> weight = argument(call, kernel, "weight");
  if (!grad || !self || !weight)
    return failure();
  SmallVector<Argument> arguments = {*self, *weight, *grad};
  DType dtype = resultDType(call);
  Lowered ofInput = lowerPointwise(
      call, kernel, arguments, dtype, NumberPrecision::Rounded,
      [](ArrayRef<Scalar> v) { return select(v[0] > 0.0, v[2], v[1] * v[2]); });
  Lowered ofWeight = lowerPointwise(
      call, kernel, arguments, dtype, NumberPrecision::Rounded,
      [](ArrayRef<Scalar> v) {
        return select(v[0] > 0.0, v[2].constant(0.0), v[0] * v[2]);
      });
  if (failed(ofInput) || failed(ofWeight) ||
      resultSizes(call, 0) != resultSizes(call, 1))
    return failure();
  return SmallVector<Tensor>{(*ofInput)[0], (*ofWeight)[0]};
}

Scalar logSigmoidBackward(const Scalar &grad, const Scalar &x,
                          const Scalar &buffer) {
  Scalar one = x.constant(1.0), isNegative = x < 0.0;
  Scalar sign = select(isNegative, one, -one);
  return (select(isNegative, one, x.constant(0.0)) -
          sign * (buffer / (1.0 + buffer))) *
         grad;
}

Scalar logit(graph::CallOp call, const Scalar &x) {
  Scalar z = x;
  if (std::optional<double> eps = call.floatArg("eps")) {
    Scalar low = x.constant(*eps), high = 1.0 - low;
    z = select(x < low, low, select(x > high, high, x));
  }
  return log(z / (1.0 - z));
}

Scalar logitBackward(graph::CallOp call, const Scalar &grad, const Scalar &x) {
  Scalar inside = select((x == 0.0) | (x == 1.0), grad * infinity(x),
                         grad / (x * (1.0 - x)));
  if (std::optional<double> eps = call.floatArg("eps")) {
    Scalar low = x.constant(*eps), high = 1.0 - low;
    return select((x < low) | (x > high), x.constant(0.0), inside);
  }
  return select((x < 0.0) | (x > 1.0),
                x.constant(std::numeric_limits<double>::quiet_NaN()), inside);
}

/// The second result is what the backward pass wants of the CPU's kernel.
Lowered lowerLogSigmoid(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  if (!self || resultType(call).getDevice() != "cpu")
    return failure();
  SmallVector<Tensor> results;
  for (bool wantsBuffer : {false, true})
    results.push_back(kernel.pointwise(
        *self, resultSizes(call), self->dtype,
        [&](OpBuilder &builder, Location loc, ValueRange values) {
          ScalarContext context{kernel, builder, loc};
          Scalar x = Scalar(context, values[0], self->dtype)
                         .to(computeType(self->dtype));
          Scalar buffer = exp(-abs(x));
          Scalar result =
              wantsBuffer ? buffer : min(x, x.constant(0.0)) - log1p(buffer);
          return result.to(self->dtype).getValue();
        }));
  return results;
}

//===----------------------------------------------------------------------===//
// Bits
//===----------------------------------------------------------------------===//

Scalar isShift(const Scalar &a, const Scalar &by) {
  return (by >= a.constant(0)) & (by < a.constant(8 * dtypeSize(a.dtype())));
}

Scalar leftShift(const Scalar &a, const Scalar &by) {
  Scalar zero = a.constant(0);
  Scalar isValid = isShift(a, by);
  return select(isValid, shiftLeft(a, select(isValid, by, zero)), zero);
}

Scalar rightShift(const Scalar &a, const Scalar &by) {
  int64_t most = 8 * dtypeSize(a.dtype()) - 1;
  if (!isSignedInteger(a.dtype())) {
    Scalar zero = a.constant(0);
    Scalar isValid = isShift(a, by);
    return select(isValid, shiftRight(a, select(isValid, by, zero)), zero);
  }
  return shiftRight(a, select(isShift(a, by), by, a.constant(most)));
}

Scalar sign(const Scalar &x) {
  if (x.dtype() == DType::Bool)
    return x;
  Scalar zero = x.constant(0), one = x.constant(1);
  Scalar negative = isInteger(x.dtype()) && !isSignedInteger(x.dtype())
                        ? zero
                        : select(x < zero, x.constant(-1), zero);
  return select(x > zero, one, negative);
}

Scalar signBit(const Scalar &x) {
  if (x.isFloat())
    return copysign(x.constant(1.0), x) < 0.0;
  if (!isSignedInteger(x.dtype()))
    return isNaN(x);
  return x < x.constant(0);
}

//===----------------------------------------------------------------------===//
// Choices and copies
//===----------------------------------------------------------------------===//

/// The condition is not promoted with the others.
Lowered lowerChoice(graph::CallOp call, KernelBuilder &kernel,
                    StringRef condition, StringRef ifTrue, StringRef ifFalse) {
  std::optional<Argument> mask = argument(call, kernel, condition);
  std::optional<Argument> yes = argument(call, kernel, ifTrue);
  std::optional<Argument> no = argument(call, kernel, ifFalse);
  if (!mask || !yes || !no || mask->dtype != DType::Bool)
    return failure();
  DType dtype = resultDType(call);
  // bool -> dtype -> bool is exact.
  return lowerPointwise(call, kernel, {*mask, *yes, *no}, dtype,
                        NumberPrecision::Rounded, [](ArrayRef<Scalar> scalars) {
                          return select(isTrue(scalars[0]), scalars[1],
                                        scalars[2]);
                        });
}

Lowered lowerPrimsWhere(graph::CallOp call, KernelBuilder &kernel) {
  return lowerChoice(call, kernel, "pred", "a", "b");
}

Lowered lowerWhere(graph::CallOp call, KernelBuilder &kernel) {
  return lowerChoice(call, kernel, "condition", "self", "other");
}

Lowered lowerMaskedFill(graph::CallOp call, KernelBuilder &kernel) {
  return lowerChoice(call, kernel, "mask", "value", "self");
}

/// Converts the argument `name` to the result's dtype.
template <Name name>
Lowered lowerCopy(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<Argument> source = argument(call, kernel, name.text);
  if (!source || !broadcastsTo(*source, resultSizes(call)))
    return failure();
  DType dtype = resultDType(call);
  // Eager warns of the imaginary parts that are lost.
  if (isComplex(source->dtype) && !isComplex(dtype) && dtype != DType::Bool)
    return failure();
  if (source->isNumber())
    return lowerPointwise(call, kernel, *source, dtype,
                          NumberPrecision::Rounded,
                          [](ArrayRef<Scalar> scalars) { return scalars[0]; });
  return SmallVector<Tensor>{kernel.pointwise(
      *source->tensor, resultSizes(call), dtype,
      [&](OpBuilder &builder, Location loc, ValueRange values) {
        return convertScalar(builder, loc, values[0], source->dtype, dtype);
      })};
}

} // namespace

//===----------------------------------------------------------------------===//
// The entries
//===----------------------------------------------------------------------===//

void registerPointwise(LoweringTable &table) {
  using S = const Scalar &;
  using Call = graph::CallOp;
  auto add = [&](std::initializer_list<StringRef> names, Lowering lowering) {
    for (StringRef name : names)
      table.add(name, lowering);
  };
  // clang-format off

  // Sums, products, quotients.
  add({"aten::add.Tensor", "aten::add.Scalar"}, binary<[](Call call, S a, S b) { return addScaled(call, a, b, 1); }>);
  add({"aten::sub.Tensor", "aten::sub.Scalar"}, binary<[](Call call, S a, S b) { return addScaled(call, a, b, -1); }>);
  add({"aten::rsub.Tensor", "aten::rsub.Scalar"}, binary<[](Call call, S a, S b) { return addScaled(call, b, a, -1); }>);
  add({"aten::mul.Tensor", "aten::mul.Scalar"}, exactBinary<[](S a, S b) { return a * b; }>);
  table.add("aten::addcmul", pointwise<[](Call call, S a, S b, S c) { return fma(number(call, "value", a) * b, c, a); }, "self", "tensor1", "tensor2">);
  table.add("aten::addcdiv", pointwise<[](Call call, S a, S b, S c) { return a + number(call, "value", a) * b / c; }, "self", "tensor1", "tensor2">);
  table.add("aten::lerp.Tensor", pointwise<[](S a, S b, S weight) { return lerp(a, b, weight); }, "self", "end", "weight">);
  table.add("aten::lerp.Scalar", pointwise<[](Call call, S a, S b) { return lerp(a, b, number(call, "weight", a)); }, "self", "end">);
  table.add("aten::neg", unary<[](S x) { return -x; }>);
  table.add("aten::abs", unary<[](S x) { return abs(x); }>);
  table.add("aten::reciprocal", unary<[](S x) { return 1.0 / x; }>);
  table.add("aten::square", unary<[](S x) { return x * x; }>);
  table.add("aten::pow.Tensor_Scalar", lowerPowScalar);
  table.add("aten::pow.Tensor_Tensor", pointwise<[](S x, S y) { return pow(x, y); }, "self", "exponent">);
  table.add("prims::pow", binary<[](S x, S y) { return pow(x, y); }>);
  table.add("aten::pow.Scalar", pointwise<[](S x, S y) { return pow(x, y); }, "self", "exponent">);
  table.add("aten::sqrt", unary<[](S x) { return sqrt(x); }>);
  table.add("aten::rsqrt", unary<[](S x) { return 1.0 / sqrt(x); }>);
  table.add("aten::hypot", binary<[](S a, S b) { return hypot(a, b); }>);

  // Rounding and signs.
  table.add("aten::ceil", unary<[](S x) { return ceil(x); }>);
  table.add("aten::floor", unary<[](S x) { return floor(x); }>);
  table.add("aten::trunc", unary<[](S x) { return trunc(x); }>);
  table.add("aten::round", unary<[](S x) { return roundEven(x); }>);
  table.add("aten::frac", unary<[](S x) { return x - trunc(x); }>);
  add({"aten::sign", "aten::sgn"}, unary<[](S x) { return sign(x); }>);
  table.add("aten::signbit", test<[](S x) { return signBit(x); }>);
  add({"aten::copysign.Tensor", "aten::copysign.Scalar"}, binary<[](S a, S b) { return copysign(a, b); }>);
  table.add("aten::heaviside", pointwise<[](S x, S values) { return select(x == x.constant(0), values, (x > x.constant(0)).to(x.dtype())); }, "self", "values">);
  table.add("aten::nan_to_num", unary<[](Call call, S x) { return nanToNum(call, x); }>);

  // Functions.
  table.add("aten::acos", unary<[](S x) { return acos(x); }>);
  table.add("aten::acosh", unary<[](S x) { return acosh(x); }>);
  table.add("aten::asin", unary<[](S x) { return asin(x); }>);
  table.add("aten::asinh", unary<[](S x) { return asinh(x); }>);
  table.add("aten::atan", unary<[](S x) { return atan(x); }>);
  table.add("aten::atanh", unary<[](S x) { return atanh(x); }>);
  table.add("aten::atan2", binary<[](S a, S b) { return atan2(a, b); }>);
  table.add("prims::cbrt", unary<[](S x) { return cbrt(x); }>);
  table.add("aten::digamma", unary<[](S x) { return digamma(x); }>);
  table.add("aten::lgamma", unary<[](S x) { return logGamma(x); }>);
  table.add("aten::cos", unary<[](S x) { return cos(x); }>);
  table.add("aten::cosh", unary<[](S x) { return cosh(x); }>);
  table.add("aten::erf", unary<[](S x) { return erf(x); }>);
  table.add("aten::erfc", unary<[](S x) { return erfc(x); }>);
  table.add("aten::exp", unary<[](S x) { return exp(x); }>);
  table.add("aten::exp2", unary<[](S x) { return exp2(x); }>);
  table.add("aten::expm1", unary<[](S x) { return expm1(x); }>);
  table.add("aten::log", unary<[](S x) { return log(x); }>);
  table.add("aten::log10", unary<[](S x) { return log10(x); }>);
  table.add("aten::log1p", unary<[](S x) { return log1p(x); }>);
  table.add("aten::log2", unary<[](S x) { return log2(x); }>);
  table.add("aten::sin", unary<[](S x) { return sin(x); }>);
  table.add("aten::sinh", unary<[](S x) { return sinh(x); }>);
  table.add("aten::tan", unary<[](S x) { return tan(x); }>);
  table.add("aten::tanh", unary<[](S x) { return tanh(x); }>);
  table.add("aten::sigmoid", unary<[](S x) { return sigmoid(x); }>);
  table.add("aten::logaddexp", binary<[](S a, S b) { return select(isInf(a) & (a == b), a, max(a, b) + log1p(exp(-abs(a - b)))); }>);
  table.add("aten::logaddexp2", binary<[](S a, S b) { return select(isInf(a) & (a == b), a, max(a, b) + log1p(exp2(-abs(a - b))) * std::numbers::log2e); }>);
  table.add("aten::special_entr", unary<[](S x) { return select(isNaN(x), x, select(x > 0.0, -x * log(x), select(x == 0.0, x.constant(0), -infinity(x)))); }>);
  table.add("aten::deg2rad", unary<[](S x) { return x * (std::numbers::pi / 180); }>);
  table.add("aten::rad2deg", unary<[](S x) { return x * (180 / std::numbers::pi); }>);
  table.add("aten::angle", unary<[](S x) { return select(isNaN(x), x, select(x < 0.0, x.constant(std::numbers::pi), x.constant(0))); }>);
  add({"aten::xlogy.Tensor", "aten::xlogy.Scalar_Other", "aten::xlogy.Scalar_Self"}, binary<[](Call call, S x, S y) { return select(isNaN(y), y, select(x == 0.0, x.constant(0), x * log(y).roundedTo(resultDType(call)))); }>);
  table.add("aten::sinc", unary<[](S x) { Scalar product = std::numbers::pi * x; return select(x == 0.0, x.constant(1), sin(product) / product); }>);

  // Activations and their derivatives.
  table.add("aten::relu", unary<[](S x) { return stdMax(x, x.constant(0)); }>);
  table.add("aten::relu6", unary<[](S x) { return stdMin(stdMax(x, x.constant(0)), x.constant(6)); }>);
  table.add("aten::threshold", unary<[](Call call, S x) { return select(x <= number(call, "threshold", x), number(call, "value", x), x); }>);
  table.add("aten::threshold_backward", pointwise<[](Call call, S grad, S x) { return select(x <= number(call, "threshold", x), grad.constant(0), grad); }, "grad_output", "self">);
  table.add("aten::leaky_relu", unary<[](Call call, S x) { return select(x > 0.0, x, x * number(call, "negative_slope", x)); }>);
  table.add("aten::leaky_relu_backward", pointwise<[](Call call, S grad, S x) { return select(x > 0.0, grad, grad * number(call, "negative_slope", x)); }, "grad_output", "self">);
  table.add("aten::_prelu_kernel", pointwise<[](S x, S weight) { return select(x > 0.0, x, weight * x); }, "self", "weight">);
  table.add("aten::elu", unary<[](Call call, S x) { return elu(call, x); }>);
  table.add("aten::elu_backward", pointwise<[](Call call, S grad, S x) { return eluBackward(call, grad, x); }, "grad_output", "self_or_result">);
  table.add("aten::gelu", unary<[](Call call, S x) { return gelu(call, x); }>);
  table.add("aten::gelu_backward", pointwise<[](Call call, S grad, S x) { return geluBackward(call, grad, x); }, "grad_output", "self">);
  table.add("aten::silu", unary<[](S x) { return x / (1.0 + exp(-x)); }>);
  table.add("aten::silu_backward", pointwise<[](S grad, S x) { Scalar s = sigmoid(x); return grad * s * fma(x, 1.0 - s, x.constant(1)); }, "grad_output", "self">);
  table.add("aten::mish", unary<[](S x) { return x * tanh(log1p(exp(x))); }>);
  table.add("aten::softplus", unary<[](Call call, S x) { return softplus(call, x); }>);
  table.add("aten::softplus_backward", pointwise<[](Call call, S grad, S x) { return softplusBackward(call, grad, x); }, "grad_output", "self">);
  table.add("aten::sigmoid_backward", pointwise<[](Call call, S grad, S y) { return sigmoidBackward(call, grad, y); }, "grad_output", "output">);
  table.add("aten::tanh_backward", pointwise<[](S grad, S y) { return grad * fma(-y, y, y.constant(1)); }, "grad_output", "output">);
  table.add("aten::hardsigmoid", unary<[](S x) { return hardSigmoid(x); }>);
  table.add("aten::hardsigmoid_backward", pointwise<[](S grad, S x) { return select((x > -3.0) & (x < 3.0), grad * double(1.0f / 6), grad.constant(0)); }, "grad_output", "self">);
  table.add("aten::hardswish", unary<[](S x) { return hardSwish(x); }>);
  table.add("aten::hardswish_backward", pointwise<[](S grad, S x) { return hardSwishBackward(grad, x); }, "grad_output", "self">);
  table.add("aten::hardtanh", unary<[](Call call, S x) { return stdMin(stdMax(x, number(call, "min_val", x)), number(call, "max_val", x)); }>);
  table.add("aten::hardtanh_backward", pointwise<[](Call call, S grad, S x) { return select((x > number(call, "min_val", x)) & (x < number(call, "max_val", x)), grad, grad.constant(0)); }, "grad_output", "self">);
  table.add("aten::hardshrink", unary<[](Call call, S x) { Scalar limit = number(call, "lambd", x).roundedTo(resultDType(call)); return select((x >= -limit) & (x <= limit), x.constant(0), x); }>);
  table.add("aten::softshrink", unary<[](Call call, S x) { Scalar limit = number(call, "lambd", x).roundedTo(resultDType(call)); return select(x > limit, x - limit, select(x < -limit, x + limit, x * 0.0)); }>);
  table.add("aten::glu", lowerGLU);
  table.add("aten::glu_backward", lowerGLUBackward);
  table.add("aten::log_sigmoid_forward", lowerLogSigmoid);
  table.add("aten::log_sigmoid_backward", pointwise<[](S grad, S x, S buffer) { return logSigmoidBackward(grad, x, buffer); }, "grad_output", "self", "buffer">);
  table.add("aten::_prelu_kernel_backward", lowerPReLUBackward);
  table.add("aten::hardshrink_backward", pointwise<[](Call call, S grad, S x) { Scalar limit = number(call, "lambd", x).roundedTo(resultDType(call)); return select((x >= -limit) & (x <= limit), x.constant(0), grad); }, "grad_out", "self">);
  table.add("aten::softshrink_backward", pointwise<[](Call call, S grad, S x) { Scalar limit = number(call, "lambd", x).roundedTo(resultDType(call)); return select((x >= -limit) & (x <= limit), x.constant(0), grad); }, "grad_output", "self">);
  table.add("aten::logit", unary<[](Call call, S x) { return logit(call, x); }>);
  table.add("aten::logit_backward", pointwise<[](Call call, S grad, S x) { return logitBackward(call, grad, x); }, "grad_output", "self">);
  table.add("aten::celu", unary<[](Call call, S x) { Scalar alpha = number(call, "alpha", x); return select(x <= 0.0, expm1(x * (x.constant(1.0 / call.floatArg("alpha").value_or(1.0)))) * alpha, x); }>);
  table.add("aten::native_dropout_backward", pointwise<[](Call call, S grad, S mask) { return grad * mask * number(call, "scale", grad); }, "grad_output", "mask">);

  // Comparisons and limits.
  add({"aten::eq.Tensor", "aten::eq.Scalar"}, comparison<[](S a, S b) { return a == b; }>);
  add({"aten::ne.Tensor", "aten::ne.Scalar"}, comparison<[](S a, S b) { return a != b; }>);
  add({"aten::lt.Tensor", "aten::lt.Scalar"}, comparison<[](S a, S b) { return a < b; }>);
  add({"aten::le.Tensor", "aten::le.Scalar"}, comparison<[](S a, S b) { return a <= b; }>);
  add({"aten::gt.Tensor", "aten::gt.Scalar"}, comparison<[](S a, S b) { return (a > b); }>);
  add({"aten::ge.Tensor", "aten::ge.Scalar"}, comparison<[](S a, S b) { return a >= b; }>);
  add({"aten::maximum", "aten::max.other"}, binary<[](S a, S b) { return max(a, b); }>);
  add({"aten::minimum", "aten::min.other"}, binary<[](S a, S b) { return min(a, b); }>);
  // Of two zeros, C has the first one; a GPU the greater or the smaller one.
  table.add("aten::fmax", binary<[](Call call, S a, S b) { return isOnCpu(call) ? select((a >= b) | isNaN(b), a, b) : fmax(a, b); }>);
  table.add("aten::fmin", binary<[](Call call, S a, S b) { return isOnCpu(call) ? select((a <= b) | isNaN(b), a, b) : fmin(a, b); }>);
  table.add("aten::clamp", lowerClamp<false>);
  table.add("aten::clamp.Tensor", lowerClamp<true>);
  table.add("aten::clamp_min", lowerClamp<false>);
  table.add("aten::clamp_min.Tensor", lowerClamp<true>);
  table.add("aten::clamp_max", lowerClamp<false>);
  table.add("aten::clamp_max.Tensor", lowerClamp<true>);
  table.add("aten::isnan", test<[](S x) { return isNaN(x); }>);
  table.add("aten::isinf", test<[](S x) { return isInf(x); }>);
  table.add("aten::isposinf", test<[](S x) { return x.isFloat() ? x == std::numeric_limits<double>::infinity() : isNaN(x); }>);
  table.add("aten::isneginf", test<[](S x) { return x.isFloat() ? x == -std::numeric_limits<double>::infinity() : isNaN(x); }>);
  table.add("aten::isfinite", test<[](S x) { return x.isFloat() ? abs(x) < std::numeric_limits<double>::infinity() : ~isNaN(x); }>);

  // Logic and bits.
  table.add("aten::logical_and", comparison<[](S a, S b) { return isTrue(a) & isTrue(b); }>);
  table.add("aten::logical_or", comparison<[](S a, S b) { return isTrue(a) | isTrue(b); }>);
  table.add("aten::logical_xor", comparison<[](S a, S b) { return isTrue(a) ^ isTrue(b); }>);
  table.add("aten::logical_not", test<[](S x) { return ~isTrue(x); }>);
  add({"aten::bitwise_and.Tensor", "aten::bitwise_and.Scalar", "aten::bitwise_and.Scalar_Tensor", "aten::__and__.Tensor", "aten::__and__.Scalar"}, binary<[](S a, S b) { return integral(a) & b; }>);
  add({"aten::bitwise_or.Tensor", "aten::bitwise_or.Scalar", "aten::bitwise_or.Scalar_Tensor", "aten::__or__.Tensor", "aten::__or__.Scalar"}, binary<[](S a, S b) { return integral(a) | b; }>);
  add({"aten::bitwise_xor.Tensor", "aten::bitwise_xor.Scalar", "aten::bitwise_xor.Scalar_Tensor", "aten::__xor__.Tensor", "aten::__xor__.Scalar"}, binary<[](S a, S b) { return integral(a) ^ b; }>);
  table.add("aten::bitwise_not", unary<[](S x) { return ~integral(x); }>);
  add({"aten::bitwise_left_shift.Tensor", "aten::bitwise_left_shift.Tensor_Scalar", "aten::__lshift__.Tensor", "aten::__lshift__.Scalar"}, binary<[](S a, S b) { return leftShift(integral(a), b); }>);
  add({"aten::bitwise_right_shift.Tensor", "aten::bitwise_right_shift.Tensor_Scalar", "aten::__rshift__.Tensor", "aten::__rshift__.Scalar"}, binary<[](S a, S b) { return rightShift(integral(a), b); }>);

  // Choices, conversions, copies.
  add({"aten::where.self", "aten::where.ScalarSelf", "aten::where.ScalarOther", "aten::where.Scalar"}, lowerWhere);
  add({"aten::masked_fill.Scalar", "aten::masked_fill.Tensor"}, lowerMaskedFill);
  add({"aten::clone", "aten::_to_copy", "aten::lift_fresh_copy"}, lowerCopy<"self">);
  table.add("aten::copy", lowerCopy<"src">);
  table.add("prims::convert_element_type", lowerCopy<"a">);
  table.add("prims::where", lowerPrimsWhere);
  add({"aten::fill.Scalar", "aten::fill.Tensor"}, lowerCopy<"value">);
  // clang-format on

  // PyTorch's reference implementations are written in these; they have the
  // names and the arguments of operators.
  for (StringRef name :
       {"abs",      "acos",    "acosh",       "asin",  "asinh", "atan",
        "atan2",    "atanh",   "bitwise_not", "ceil",  "clone", "cos",
        "cosh",     "digamma", "lgamma",      "erf",   "erfc",  "exp",
        "exp2",     "expm1",   "floor",       "fmax",  "fmin",  "hypot",
        "isfinite", "log",     "log10",       "log1p", "log2",  "maximum",
        "minimum",  "neg",     "reciprocal",  "round", "rsqrt", "sign",
        "signbit",  "sin",     "sinh",        "sqrt",  "tan",   "tanh",
        "trunc"})
    table.add(("prims::" + name).str(), table.lookup(("aten::" + name).str()));
  for (StringRef name : {"add", "bitwise_and", "bitwise_or", "bitwise_xor",
                         "eq", "ge", "gt", "le", "lt", "mul", "ne", "sub"})
    table.add(("prims::" + name).str(),
              table.lookup(("aten::" + name + ".Tensor").str()));
  table.add("prims::fill", table.lookup("aten::fill.Scalar"));
  table.add("prims::shift_left",
            table.lookup("aten::bitwise_left_shift.Tensor"));
  table.add("prims::shift_right_arithmetic",
            table.lookup("aten::bitwise_right_shift.Tensor"));
}

} // namespace intarsia::lower
