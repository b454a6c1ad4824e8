//===- Losses.cpp - Loss functions and their gradients ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A loss is computed in the kernel that reduces it. Eager stores the losses of
// the elements before it reduces them, so they round to the input's dtype.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Compose.h"

using namespace mlir;

namespace intarsia::lower {
namespace {

/// PyTorch's numbers for a loss's reduction.
enum LossReduction : int64_t { lossNone = 0, lossMean = 1, lossSum = 2 };

/// The mean or sum over all elements, if one is wanted.
Lowered reducedLoss(graph::CallOp call, KernelBuilder &kernel,
                    const Tensor &losses, int64_t reduction) {
  if (reduction == lossNone)
    return SmallVector<Tensor>{losses};
  SmallVector<int64_t> dims =
      llvm::to_vector(llvm::seq<int64_t>(0, losses.rank()));
  Tensor result = reduce(kernel, Reduction::Sum,
                         kernel.cast(losses, computeType(losses.dtype)), dims);
  if (reduction == lossMean) {
    SymExpr count = countOf(losses.sizes, dims);
    result =
        compute(kernel, {result}, {}, result.dtype, [&](ArrayRef<Scalar> v) {
          return v[0] / exprScalar(count, v[0]);
        });
  }
  return SmallVector<Tensor>{kernel.cast(result, resultDType(call))};
}

/// A loss on each element, then a mean or sum over all. The elements are a
/// tensor of the input's dtype in eager, so they round. After self and target,
/// the loss has the call's tensors of the names in `more`, of that dtype.
Lowered lowerElementLoss(graph::CallOp call, KernelBuilder &kernel,
                         ArrayRef<StringRef> more,
                         llvm::function_ref<Scalar(ArrayRef<Scalar>)> loss) {
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  std::optional<Tensor> target = tensorArgument(call, kernel, "target");
  std::optional<int64_t> reduction = call.intArg("reduction");
  DType dtype = resultDType(call);
  if (!self || !target || !reduction || self->dtype != dtype ||
      target->dtype != dtype || self->sizes != target->sizes ||
      !isFloatingPoint(dtype))
    return failure();
  SmallVector<Operand> operands = {*self, *target};
  for (StringRef name : more) {
    std::optional<Argument> factor = argument(call, kernel, name);
    if (!factor || !factor->tensor || factor->dtype != dtype ||
        !broadcastsTo(*factor, self->sizes))
      return failure();
    operands.push_back(broadcast(*factor->tensor, self->sizes));
  }
  Tensor losses = compute(kernel, operands, self->sizes, dtype, loss);
  return reducedLoss(call, kernel, losses, *reduction);
}

Lowered lowerElementLoss(
    graph::CallOp call, KernelBuilder &kernel,
    llvm::function_ref<Scalar(const Scalar &, const Scalar &)> loss) {
  return lowerElementLoss(call, kernel, {},
                          [&](ArrayRef<Scalar> v) { return loss(v[0], v[1]); });
}

Lowered lowerMSELoss(graph::CallOp call, KernelBuilder &kernel) {
  DType dtype = resultDType(call);
  return lowerElementLoss(call, kernel, [&](const Scalar &a, const Scalar &b) {
    Scalar difference = (a - b).roundedTo(dtype);
    return difference * difference;
  });
}

// PyTorch's kernel for one of the half precision types rounds after every step.

Lowered lowerSmoothL1Loss(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<double> beta = call.floatArg("beta");
  if (!beta)
    return failure();
  return lowerElementLoss(call, kernel, [&](const Scalar &a, const Scalar &b) {
    DType dtype = resultDType(call) == DType::F16 ? DType::F16 : a.dtype();
    auto round = [&](const Scalar &x) { return x.roundedTo(dtype); };
    Scalar limit = round(a.constant(*beta));
    Scalar distance = abs(round(a - b));
    return select(distance < limit,
                  round(round(0.5 * distance) * distance) / limit,
                  distance - round(0.5 * limit));
  });
}

Lowered lowerHuberLoss(graph::CallOp call, KernelBuilder &kernel) {
  std::optional<double> delta = call.floatArg("delta");
  if (!delta)
    return failure();
  return lowerElementLoss(call, kernel, [&](const Scalar &a, const Scalar &b) {
    DType dtype = resultDType(call) == DType::BF16 ? DType::BF16 : a.dtype();
    auto round = [&](const Scalar &x) { return x.roundedTo(dtype); };
    Scalar limit = round(a.constant(*delta));
    Scalar distance = abs(round(a - b));
    return select(distance <= limit, round(0.5 * distance) * distance,
                  limit * round(distance - round(0.5 * limit)));
  });
}

/// (1 - target) * x - log(sigmoid(x)), a chain of operators in eager. The
/// logarithm's factor is 1 + (pos_weight - 1) * target.
Lowered lowerBCEWithLogits(graph::CallOp call, KernelBuilder &kernel) {
  bool hasWeight = !call.isNone("weight");
  bool hasPositive = !call.isNone("pos_weight");
  SmallVector<StringRef> more;
  if (hasPositive)
    more.push_back("pos_weight");
  if (hasWeight)
    more.push_back("weight");
  DType dtype = resultDType(call);
  auto round = [&](const Scalar &x) { return x.roundedTo(dtype); };
  return lowerElementLoss(call, kernel, more, [&](ArrayRef<Scalar> v) {
    const Scalar &x = v[0], &target = v[1];
    Scalar log = round(min(x, x.constant(0.0)) - log1p(exp(-abs(x))));
    if (hasPositive) {
      Scalar factor = round(round(round(v[2] - 1.0) * target) + 1.0);
      log = round(factor * log);
    }
    Scalar loss = round(round(1.0 - target) * x) - log;
    return hasWeight ? round(loss) * v.back() : loss;
  });
}

/// The gradient of such a loss, as PyTorch's kernels multiply it together: the
/// factor of a mean, the loss's derivative, the gradient of the result.
Lowered lowerElementLossBackward(
    graph::CallOp call, KernelBuilder &kernel,
    llvm::function_ref<Scalar(const Scalar &factor, const Scalar &difference,
                              const Scalar &grad)>
        derivative,
    double factorOfSum = 1.0) {
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  std::optional<Tensor> self = tensorArgument(call, kernel, "self");
  std::optional<Tensor> target = tensorArgument(call, kernel, "target");
  std::optional<int64_t> reduction = call.intArg("reduction");
  SmallVector<SymExpr> sizes = resultSizes(call);
  if (!grad || !self || !target || !reduction || self->sizes != sizes ||
      target->sizes != sizes || !isFloatingPoint(self->dtype) ||
      target->dtype != self->dtype || grad->dtype != self->dtype ||
      !(grad->sizes.empty() || grad->sizes == sizes))
    return failure();
  SymExpr count = 1;
  for (const SymExpr &size : sizes)
    count = count * size;
  return SmallVector<Tensor>{compute(
      kernel, {broadcast(*grad, sizes), *self, *target}, sizes,
      resultDType(call), [&](ArrayRef<Scalar> v) {
        Scalar factor = v[0].constant(factorOfSum);
        if (*reduction == lossMean) {
          // In double, as eager's host code has it.
          Scalar wide = v[0].to(DType::F64);
          factor = (factorOfSum / exprScalar(count, wide)).to(v[0].dtype());
        }
        DType dtype = resultDType(call);
        return derivative(factor.roundedTo(dtype),
                          (v[1] - v[2]).roundedTo(dtype), v[0]);
      })};
}

Lowered lowerMSELossBackward(graph::CallOp call, KernelBuilder &kernel) {
  DType dtype = resultDType(call);
  return lowerElementLossBackward(
      call, kernel,
      [&](const Scalar &factor, const Scalar &difference, const Scalar &grad) {
        return (factor * difference).roundedTo(dtype) * grad;
      },
      2.0);
}

/// Smooth L1 (`beta`) and Huber loss (`delta`): `inside` the limit the
/// derivative is that of a square.
Lowered lowerLimitedLossBackward(graph::CallOp call, KernelBuilder &kernel,
                                 StringRef limitName, bool divides) {
  std::optional<double> limit = call.floatArg(limitName);
  DType dtype = resultDType(call);
  if (!limit)
    return failure();
  return lowerElementLossBackward(
      call, kernel,
      [&](const Scalar &factor, const Scalar &difference, const Scalar &grad) {
        auto round = [&](const Scalar &x) { return x.roundedTo(dtype); };
        Scalar bound = round(factor.constant(*limit));
        Scalar sign = select(difference > 0.0, factor.constant(1.0),
                             factor.constant(-1.0));
        Scalar inside = divides ? round(difference / bound) : difference;
        Scalar outside = divides ? sign : sign * bound;
        Scalar slope = select(abs(difference) >= bound, outside, inside);
        return round(factor * slope) * grad;
      });
}

Lowered lowerSmoothL1LossBackward(graph::CallOp call, KernelBuilder &kernel) {
  return lowerLimitedLossBackward(call, kernel, "beta", /*divides=*/true);
}

Lowered lowerHuberLossBackward(graph::CallOp call, KernelBuilder &kernel) {
  return lowerLimitedLossBackward(call, kernel, "delta", /*divides=*/false);
}

/// The tensors of binary_cross_entropy, which halves never reach on the CPU.
struct BinaryCrossEntropy {
  Tensor self, target;
  SmallVector<Operand> operands; // self, target, weight if there is one
  int64_t reduction;

  static std::optional<BinaryCrossEntropy> get(graph::CallOp call,
                                               KernelBuilder &kernel) {
    std::optional<Tensor> self = tensorArgument(call, kernel, "self");
    std::optional<Tensor> target = tensorArgument(call, kernel, "target");
    std::optional<Argument> weight = argument(call, kernel, "weight");
    std::optional<int64_t> reduction = call.intArg("reduction");
    if (!self || !target || !reduction || self->sizes != target->sizes ||
        self->dtype != target->dtype ||
        (self->dtype != DType::F32 && self->dtype != DType::F64))
      return std::nullopt;
    BinaryCrossEntropy loss{*self, *target, {*self, *target}, *reduction};
    if (!call.isNone("weight")) {
      if (!weight || !weight->tensor || weight->dtype != self->dtype ||
          !broadcastsTo(*weight, self->sizes))
        return std::nullopt;
      loss.operands.push_back(broadcast(*weight->tensor, self->sizes));
    }
    return loss;
  }
};

Lowered lowerBCE(graph::CallOp call, KernelBuilder &kernel) {
  auto loss = BinaryCrossEntropy::get(call, kernel);
  if (!loss)
    return failure();
  Tensor losses = compute(
      kernel, loss->operands, loss->self.sizes, loss->self.dtype,
      [&](ArrayRef<Scalar> v) {
        const Scalar &x = v[0], &target = v[1];
        check((x >= 0.0) & (x <= 1.0),
              "aten::binary_cross_entropy: all elements of input should be "
              "between 0 and 1");
        // Bounded, so that an x of 0 or 1 has a loss.
        Scalar logOther = stdMax(log1p(-x), x.constant(-100.0));
        Scalar logX = stdMax(log(x), x.constant(-100.0));
        Scalar value = (target - 1.0) * logOther - target * logX;
        return v.size() == 3 ? value * v[2] : value;
      });
  return reducedLoss(call, kernel, losses, loss->reduction);
}

Lowered lowerBCEBackward(graph::CallOp call, KernelBuilder &kernel) {
  auto loss = BinaryCrossEntropy::get(call, kernel);
  std::optional<Argument> grad = argument(call, kernel, "grad_output");
  if (!loss || !grad || !grad->tensor || grad->dtype != loss->self.dtype ||
      !broadcastsTo(*grad, loss->self.sizes))
    return failure();
  SymExpr count = 1;
  for (const SymExpr &size : loss->self.sizes)
    count = count * size;
  loss->operands.push_back(broadcast(*grad->tensor, loss->self.sizes));
  return SmallVector<Tensor>{
      compute(kernel, loss->operands, loss->self.sizes, resultDType(call),
              [&](ArrayRef<Scalar> v) {
                const Scalar &x = v[0];
                Scalar below = stdMax((1.0 - x) * x, x.constant(1e-12));
                Scalar result = v.back() * (x - v[1]) / below;
                if (v.size() == 4)
                  result = result * v[2];
                if (loss->reduction == lossMean)
                  result = result / exprScalar(count, x);
                return result;
              })};
}

/// The class that a row's target names, and its weight.
struct Target {
  Scalar index, isIgnored, weight;
};

struct NegativeLogLikelihood {
  KernelBuilder &kernel;
  Tensor self, target;
  std::optional<Tensor> weight;
  int64_t reduction, ignoreIndex;

  static std::optional<NegativeLogLikelihood> get(graph::CallOp call,
                                                  KernelBuilder &kernel) {
    std::optional<Tensor> self = tensorArgument(call, kernel, "self");
    std::optional<Tensor> target = tensorArgument(call, kernel, "target");
    std::optional<int64_t> reduction = call.intArg("reduction");
    std::optional<int64_t> ignoreIndex = call.intArg("ignore_index");
    // Eager accumulates f16 and bf16 in ways of its own.
    if (!self || !target || !reduction || !ignoreIndex || self->rank() < 2 ||
        target->rank() != self->rank() - 1 || target->dtype != DType::I64 ||
        (self->dtype != DType::F32 && self->dtype != DType::F64))
      return std::nullopt;
    // Classes are dimension 1; the others are the target's. Of rows that are
    // products of other sizes only a check at run time may know that.
    SmallVector<SymExpr> rows = self->sizes;
    rows.erase(rows.begin() + 1);
    if (rows != target->sizes &&
        (rows.size() != 1 ||
         (rows[0].asInteger() && target->sizes[0].asInteger())))
      return std::nullopt;
    return NegativeLogLikelihood{
        kernel,     *self,
        *target,    tensorArgument(call, kernel, "weight"),
        *reduction, *ignoreIndex};
  }

  /// `index` is where to read: in range whatever the data.
  Target at(const Scalar &target) const;
  /// A row of one tensor, in range in the other.
  Scalar rowIn(const Tensor &tensor, const Scalar &row) const;
  bool hasRowsOfTarget() const { return self.sizes[0] == target.sizes[0]; }
};

Scalar NegativeLogLikelihood::rowIn(const Tensor &tensor,
                                    const Scalar &row) const {
  if (hasRowsOfTarget())
    return row;
  Scalar rows = exprScalar(self.sizes[0], row);
  check(rows == exprScalar(target.sizes[0], row),
        "aten::nll_loss: the input and the target have different sizes");
  return min(row, exprScalar(tensor.sizes[0], row) - row.constant(1));
}

Target NegativeLogLikelihood::at(const Scalar &target) const {
  Scalar isIgnored = target == target.constant(ignoreIndex);
  Scalar index = checkedIndex(
      select(isIgnored, target.constant(0), target), self.sizes[1], false,
      "aten::nll_loss: Target {index} is out of bounds (size {size}).");
  Scalar one = Scalar(target.getContext(), nullptr, self.dtype).constant(1.0);
  Scalar weightOf = weight ? readAt(*weight, {index}) : one;
  return {index, isIgnored,
          select(isIgnored, weightOf.constant(0.0), weightOf)};
}

Lowered lowerNLLLoss(graph::CallOp call, KernelBuilder &kernel) {
  auto loss = NegativeLogLikelihood::get(call, kernel);
  if (!loss)
    return failure();
  DType dtype = loss->self.dtype;
  ArrayRef<SymExpr> rows = loss->target.sizes;
  Tensor losses =
      computeAt(kernel, {loss->target}, rows, dtype,
                [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
                  Target target = loss->at(v[0]);
                  SmallVector<Scalar> at = llvm::to_vector(position);
                  at[0] = loss->rowIn(loss->self, at[0]);
                  at.insert(at.begin() + 1, target.index);
                  Scalar value = readAt(loss->self, at);
                  return select(target.isIgnored, value.constant(0.0),
                                -value * target.weight);
                });
  if (loss->reduction == lossNone) {
    if (!call.getOutputs()[1].use_empty())
      return failure();
    return SmallVector<Tensor>{losses, Tensor()};
  }
  Tensor weights =
      compute(kernel, {loss->target}, rows, dtype,
              [&](ArrayRef<Scalar> v) { return loss->at(v[0]).weight; });
  SmallVector<int64_t> dims =
      llvm::to_vector(llvm::seq<int64_t>(0, rows.size()));
  Tensor total = reduce(kernel, Reduction::Sum, losses, dims);
  Tensor totalWeight = reduce(kernel, Reduction::Sum, weights, dims);
  if (loss->reduction == lossMean)
    total = compute(kernel, {total, totalWeight}, {}, dtype,
                    [](ArrayRef<Scalar> v) { return v[0] / v[1]; });
  return SmallVector<Tensor>{total, totalWeight};
}

Lowered lowerNLLLossBackward(graph::CallOp call, KernelBuilder &kernel) {
  auto loss = NegativeLogLikelihood::get(call, kernel);
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  std::optional<Tensor> totalWeight =
      tensorArgument(call, kernel, "total_weight");
  if (!loss || !grad || !totalWeight || totalWeight->rank() != 0 ||
      grad->sizes != (loss->reduction == lossNone ? loss->target.sizes
                                                  : SmallVector<SymExpr>()))
    return failure();
  bool isAligned = loss->hasRowsOfTarget();
  if (!isAligned && grad->rank() != 0)
    return failure();
  Operand gradient = grad->rank() == 0 ? Operand(Access{*grad, {}})
                                       : along(*grad, loss->self.rank(), 1);
  SmallVector<Operand> operands = {gradient, Access{*totalWeight, {}}};
  if (isAligned)
    operands.push_back(along(loss->target, loss->self.rank(), 1));
  return SmallVector<Tensor>{computeAt(
      kernel, operands, loss->self.sizes, resultDType(call),
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        Target target = loss->at(
            isAligned ? v[2]
                      : readAt(loss->target,
                               {loss->rowIn(loss->target, position[0])}));
        Scalar scaled = loss->reduction == lossMean ? v[0] / v[1] : v[0];
        Scalar isTarget = (position[1] == target.index) & ~target.isIgnored;
        return select(isTarget, -scaled * target.weight, scaled.constant(0.0));
      })};
}

//===----------------------------------------------------------------------===//
// A margin between the target's class and each of the others
//===----------------------------------------------------------------------===//

struct MultiMargin {
  Tensor self, target;
  std::optional<Tensor> weight;
  int64_t power, reduction;

  static std::optional<MultiMargin> get(graph::CallOp call,
                                        KernelBuilder &kernel) {
    std::optional<Tensor> self = tensorArgument(call, kernel, "self");
    std::optional<Tensor> target = tensorArgument(call, kernel, "target");
    std::optional<Argument> power = argument(call, kernel, "p");
    std::optional<int64_t> reduction = call.intArg("reduction");
    if (!self || !target || !power || !reduction || self->rank() != 2 ||
        target->rank() != 1 || target->dtype != DType::I64 ||
        target->sizes[0] != self->sizes[0] ||
        (power->constantFloat() != 1.0 && power->constantFloat() != 2.0) ||
        (self->dtype != DType::F32 && self->dtype != DType::F64))
      return std::nullopt;
    MultiMargin loss{*self, *target, tensorArgument(call, kernel, "weight"),
                     *power->constantFloat() == 1.0 ? 1 : 2, *reduction};
    if (loss.weight &&
        (loss.weight->dtype != self->dtype ||
         loss.weight->sizes != ArrayRef(self->sizes).take_back(1)))
      return std::nullopt;
    return loss;
  }

  /// What `term` makes of the element's distance into the margin, with the
  /// weight of the target's class; 0 outside of the margin.
  Tensor terms(graph::CallOp call, KernelBuilder &kernel,
               llvm::function_ref<Scalar(const Scalar &distance)> term) const {
    return computeAt(
        kernel, {self, along(target, 2, 1)}, self.sizes, self.dtype,
        [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
          Scalar index = checked(v[1]);
          Scalar distance = numberArgument(call, "margin", v[0]) -
                            readAt(self, {position[0], index}) + v[0];
          Scalar result = term(distance);
          if (weight)
            result = result * readAt(*weight, {index});
          Scalar counts = (distance > 0.0) & (position[1] != index);
          return select(counts, result, result.constant(0.0));
        });
  }
  Scalar checked(const Scalar &index) const {
    return checkedIndex(index, self.sizes[1], /*wraps=*/false,
                        "aten::multi_margin_loss: target out of range",
                        IndexFailure::RuntimeError);
  }
};

Lowered lowerMultiMarginLoss(graph::CallOp call, KernelBuilder &kernel) {
  auto loss = MultiMargin::get(call, kernel);
  if (!loss)
    return failure();
  Tensor terms = loss->terms(call, kernel, [&](const Scalar &distance) {
    return loss->power == 1 ? distance : distance * distance;
  });
  Tensor sums = reduce(kernel, Reduction::Sum, terms, {1});
  Tensor losses =
      compute(kernel, {sums}, sums.sizes, sums.dtype, [&](ArrayRef<Scalar> v) {
        return v[0] / exprScalar(loss->self.sizes[1], v[0]);
      });
  return reducedLoss(call, kernel, losses, loss->reduction);
}

Lowered lowerMultiMarginLossBackward(graph::CallOp call,
                                     KernelBuilder &kernel) {
  auto loss = MultiMargin::get(call, kernel);
  std::optional<Tensor> grad = tensorArgument(call, kernel, "grad_output");
  if (!loss || !grad || grad->dtype != loss->self.dtype ||
      grad->sizes != (loss->reduction == lossNone ? loss->target.sizes
                                                  : SmallVector<SymExpr>()))
    return failure();
  ArrayRef<SymExpr> sizes = loss->self.sizes;
  Tensor terms = loss->terms(call, kernel, [&](const Scalar &distance) {
    // In double, as eager's host code has it.
    SymExpr count =
        loss->reduction == lossMean ? sizes[0] * sizes[1] : sizes[1];
    Scalar factor =
        (1.0 / exprScalar(count, distance.to(DType::F64))).to(distance.dtype());
    return loss->power == 1 ? factor : 2.0 * factor * distance;
  });
  Tensor sums = reduce(kernel, Reduction::Sum, terms, {1});
  Operand gradient =
      grad->rank() == 0 ? Operand(Access{*grad, {}}) : along(*grad, 2, 1);
  return SmallVector<Tensor>{computeAt(
      kernel, {terms, along(sums, 2, 1), along(loss->target, 2, 1), gradient},
      sizes, resultDType(call),
      [&](ArrayRef<Scalar> v, ArrayRef<Scalar> position) {
        return select(position[1] == loss->checked(v[2]), -v[1], v[0]) * v[3];
      })};
}

} // namespace

void registerLosses(LoweringTable &table) {
  auto add = [&](std::initializer_list<StringRef> names, Lowering lowering) {
    for (StringRef name : names)
      table.add(name, lowering);
  };
  table.add("aten::mse_loss", lowerMSELoss);
  table.add("aten::mse_loss_backward", lowerMSELossBackward);
  table.add("aten::multi_margin_loss", lowerMultiMarginLoss);
  table.add("aten::multi_margin_loss_backward", lowerMultiMarginLossBackward);
  table.add("aten::smooth_l1_loss", lowerSmoothL1Loss);
  table.add("aten::smooth_l1_loss_backward", lowerSmoothL1LossBackward);
  table.add("aten::huber_loss", lowerHuberLoss);
  table.add("aten::huber_loss_backward", lowerHuberLossBackward);
  table.add("aten::binary_cross_entropy", lowerBCE);
  table.add("aten::binary_cross_entropy_backward", lowerBCEBackward);
  table.add("aten::binary_cross_entropy_with_logits", lowerBCEWithLogits);
  add({"aten::nll_loss_forward", "aten::nll_loss2d_forward"}, lowerNLLLoss);
  add({"aten::nll_loss_backward", "aten::nll_loss2d_backward"},
      lowerNLLLossBackward);
}

} // namespace intarsia::lower
