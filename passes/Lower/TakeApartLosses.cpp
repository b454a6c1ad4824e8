//===- TakeApartLosses.cpp - Composite losses as calls ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Losses that PyTorch implements with other operators become the calls that
// eager makes. Operands of several sizes, layouts or dtypes stay with eager.
//
//===----------------------------------------------------------------------===//

#include "passes/Lower/Parts.h"

#include <numbers>

using namespace mlir;

namespace intarsia::lower {
namespace {

enum LossReduction : int64_t { lossNone = 0, lossMean = 1, lossSum = 2 };

/// The calls that a call is taken apart into: of floats, without a gap in
/// memory.
class Steps {
public:
  Steps(graph::CallOp call, OpBuilder &builder)
      : call(call), builder(builder) {}

  NewCall make(StringRef name) { return lower::make(call, builder, name); }

  Value unary(StringRef name, Value x) {
    return make(name).value("self", x).createOne(x.getType());
  }
  Value mul(Value x, Value y) { return binary("aten::mul.Tensor", x, y); }
  Value div(Value x, Value y) { return binary("aten::div.Tensor", x, y); }
  Value xlogy(Value x, Value y) { return binary("aten::xlogy.Tensor", x, y); }
  Value add(Value x, Value y) { return linear("aten::add.Tensor", x, y); }
  Value sub(Value x, Value y) { return linear("aten::sub.Tensor", x, y); }

  Value mul(Value x, double number) {
    return make("aten::mul.Scalar")
        .value("self", x)
        .constant("other", builder.getF64FloatAttr(number))
        .createOne(x.getType());
  }
  Value add(Value x, double number) {
    return make("aten::add.Scalar")
        .value("self", x)
        .constant("other", builder.getF64FloatAttr(number))
        .integer("alpha", 1)
        .createOne(x.getType());
  }

  /// The call's number `name`, added to a tensor, or less a tensor.
  Value addNumber(Value x, StringRef name) {
    return make("aten::add.Scalar")
        .value("self", x)
        .from(call, name, "other")
        .integer("alpha", 1)
        .createOne(x.getType());
  }
  Value numberLess(StringRef name, Value x) {
    return make("aten::rsub.Scalar")
        .value("self", x)
        .from(call, name, "other")
        .integer("alpha", 1)
        .createOne(x.getType());
  }
  Value atLeastZero(Value x) {
    return make("aten::clamp_min")
        .value("self", x)
        .integer("min", 0)
        .createOne(x.getType());
  }
  /// The type of what a comparison of `x` gives.
  static graph::TensorType truthOf(Value x) {
    graph::TensorType type = typeOf(x);
    return graph::TensorType::get(type.getContext(), type.getSizeExprs(),
                                  type.getStrideExprs(), DType::Bool,
                                  type.getDevice());
  }
  /// 0 where `mask` is true.
  Value maskedOut(Value x, Value mask) {
    return make("aten::masked_fill.Scalar")
        .value("self", x)
        .value("mask", mask)
        .integer("value", 0)
        .createOne(x.getType());
  }
  /// `x` where `condition` is not `number`, else 0.
  Value whereNot(Value condition, int64_t number, Value x) {
    Type truth = truthOf(condition);
    Value differs = make("aten::ne.Scalar")
                        .value("self", condition)
                        .integer("other", number)
                        .createOne(truth);
    return make("aten::where.ScalarOther")
        .value("condition", differs)
        .value("self", x)
        .integer("other", 0)
        .createOne(x.getType());
  }

  /// Over one dimension.
  Value norm(Value x, int64_t dim, bool keepdim,
             llvm::function_ref<void(NewCall &)> addOrder) {
    NewCall norm = make("aten::linalg_vector_norm");
    norm.value("self", x);
    addOrder(norm);
    return norm.integers("dim", {dim})
        .boolean("keepdim", keepdim)
        .none("dtype")
        .createOne(without(typeOf(x), dim, keepdim));
  }
  Value sum(Value x, int64_t dim) {
    return make("aten::sum.dim_IntList")
        .value("self", x)
        .integers("dim", {dim})
        .boolean("keepdim", false)
        .none("dtype")
        .createOne(without(typeOf(x), dim, false));
  }

  /// Reduces the losses of elements as `reduction` says.
  Parts reduced(Value losses) {
    std::optional<int64_t> reduction = call.intArg("reduction");
    if (reduction == lossNone)
      return {losses};
    return {make(reduction == lossMean ? "aten::mean" : "aten::sum")
                .value("self", losses)
                .none("dtype")
                .createOne(call.getOutputs().front().getType())};
  }

  /// The call's tensors of these names, if each lies as a result would; none
  /// where one does not.
  SmallVector<Value> alike(ArrayRef<StringRef> names) {
    SmallVector<Value> values;
    for (StringRef name : names) {
      Value value = call.operand(name);
      graph::TensorType type = typeOf(value);
      if (!type || !isFloatingPoint(type.getDtype()) ||
          !type.hasContiguousStrides() ||
          (!values.empty() && type != values.front().getType()))
        return {};
      values.push_back(value);
    }
    return values;
  }

private:
  Value binary(StringRef name, Value x, Value y) {
    return make(name).value("self", x).value("other", y).createOne(x.getType());
  }
  Value linear(StringRef name, Value x, Value y) {
    return make(name)
        .value("self", x)
        .value("other", y)
        .integer("alpha", 1)
        .createOne(x.getType());
  }
  static graph::TensorType without(graph::TensorType type, int64_t dim,
                                   bool keepdim) {
    SmallVector<SymExpr> sizes = type.getSizeExprs();
    if (keepdim)
      sizes[dim] = SymExpr(1);
    else
      sizes.erase(sizes.begin() + dim);
    return denseType(type, sizes);
  }

  graph::CallOp call;
  OpBuilder &builder;
};

Parts takeL1Loss(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"self", "target"});
  if (values.empty())
    return {};
  return steps.reduced(
      steps.unary("aten::abs", steps.sub(values[0], values[1])));
}

Parts takeKLDivergence(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"self", "target"});
  std::optional<bool> isLog = call.boolArg("log_target");
  if (values.empty() || !isLog)
    return {};
  Value x = values[0], target = values[1];
  if (*isLog)
    return steps.reduced(
        steps.mul(steps.unary("aten::exp", target), steps.sub(target, x)));
  return steps.reduced(
      steps.sub(steps.xlogy(target, target), steps.mul(target, x)));
}

Parts takeHingeEmbeddingLoss(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"self", "target"});
  if (values.empty())
    return {};
  Value x = values[0], target = values[1];
  Value beyond = steps.atLeastZero(steps.numberLess("margin", x));
  return steps.reduced(steps.add(steps.whereNot(target, 1, beyond),
                                 steps.whereNot(target, -1, x)));
}

Parts takeMarginRankingLoss(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"input1", "input2", "target"});
  if (values.empty())
    return {};
  Value product = steps.mul(steps.unary("aten::neg", values[2]),
                            steps.sub(values[0], values[1]));
  return steps.reduced(steps.atLeastZero(steps.addNumber(product, "margin")));
}

Parts takeSoftMarginLoss(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"self", "target"});
  if (values.empty())
    return {};
  Value power = steps.mul(steps.unary("aten::neg", values[1]), values[0]);
  return steps.reduced(
      steps.unary("aten::log1p", steps.unary("aten::exp", power)));
}

/// If it is `full`, with Stirling's approximation of the target's factorial.
Parts takePoissonLoss(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"input", "target"});
  std::optional<bool> isLog = call.boolArg("log_input");
  std::optional<bool> isFull = call.boolArg("full");
  if (values.empty() || !isLog || !isFull)
    return {};
  Value x = values[0], target = values[1];
  auto log = [&](Value value) { return steps.unary("aten::log", value); };
  Value loss =
      *isLog ? steps.sub(steps.unary("aten::exp", x), steps.mul(target, x))
             : steps.sub(x, steps.mul(target, log(steps.addNumber(x, "eps"))));
  if (*isFull) {
    Value factorial =
        steps.add(steps.sub(steps.mul(target, log(target)), target),
                  steps.mul(log(steps.mul(target, 2 * std::numbers::pi)), 0.5));
    Value isSmall = steps.make("aten::le.Scalar")
                        .value("self", target)
                        .integer("other", 1)
                        .createOne(Steps::truthOf(target));
    loss = steps.add(loss, steps.maskedOut(factorial, isSmall));
  }
  return steps.reduced(loss);
}

//===----------------------------------------------------------------------===//
// Distances
//===----------------------------------------------------------------------===//

Value distance(Steps &steps, graph::CallOp call, Value a, Value b,
               bool keepdim) {
  Value difference = steps.addNumber(steps.sub(a, b), "eps");
  return steps.norm(difference, typeOf(a).getRank() - 1, keepdim,
                    [&](NewCall &norm) { norm.from(call, "p", "ord"); });
}

Parts takePairwiseDistance(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"x1", "x2"});
  std::optional<bool> keepdim = call.boolArg("keepdim");
  if (values.empty() || typeOf(values[0]).getRank() == 0 || !keepdim)
    return {};
  return {distance(steps, call, values[0], values[1], *keepdim)};
}

Parts takeTripletMarginLoss(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"anchor", "positive", "negative"});
  if (values.empty() || typeOf(values[0]).getRank() == 0 ||
      call.boolArg("swap") != false)
    return {};
  Value near = distance(steps, call, values[0], values[1], false);
  Value far = distance(steps, call, values[0], values[2], false);
  return steps.reduced(
      steps.atLeastZero(steps.sub(steps.addNumber(near, "margin"), far)));
}

/// Each vector is divided by its length first.
Parts takeCosineSimilarity(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  SmallVector<Value> values = steps.alike({"x1", "x2"});
  std::optional<int64_t> dim =
      values.empty() ? std::nullopt
                     : dimArgument(call, "dim", typeOf(values[0]).getRank());
  if (!dim || typeOf(values[0]).getRank() == 0)
    return {};
  for (Value &value : values) {
    Value length = steps.norm(value, *dim, true,
                              [](NewCall &norm) { norm.integer("ord", 2); });
    length = steps.make("aten::clamp_min")
                 .value("self", length)
                 .from(call, "eps", "min")
                 .createOne(length.getType());
    value = steps.div(value, length);
  }
  return {steps.sum(steps.mul(values[0], values[1]), *dim)};
}

//===----------------------------------------------------------------------===//
// Classes
//===----------------------------------------------------------------------===//

/// The loss of the classes that `target` names.
Parts classLoss(graph::CallOp call, OpBuilder &builder, Value logs) {
  Type result = call.getOutputs().front().getType();
  graph::TensorType type = typeOf(logs);
  int64_t rank = type.getRank();
  // PyTorch has operators for these ranks; it reshapes others.
  if (rank != 1 && rank != 2 && rank != 4)
    return {};
  StringRef name =
      rank == 4 ? "aten::nll_loss2d_forward" : "aten::nll_loss_forward";
  return {make(call, builder, name)
              .value("self", logs)
              .from(call, "target")
              .from(call, "weight")
              .from(call, "reduction")
              .from(call, "ignore_index")
              .create({result, denseType(type, {})})
              .getOutputs()
              .front()};
}

Parts takeClassLoss(graph::CallOp call, OpBuilder &builder) {
  Value self = call.operand("self");
  graph::TensorType type = typeOf(self);
  return type ? classLoss(call, builder, self) : Parts();
}

/// The loss of classes, a part of which is spread over all of them.
Parts smoothedLoss(graph::CallOp call, OpBuilder &builder, Value logs,
                   int64_t dim, double part) {
  Steps steps(call, builder);
  Value target = call.operand("target");
  std::optional<int64_t> reduction = call.intArg("reduction");
  Parts loss = classLoss(call, builder, logs);
  if (loss.empty())
    return {};
  Value isIgnored = steps.make("aten::eq.Scalar")
                        .value("self", target)
                        .from(call, "ignore_index", "other")
                        .createOne(Steps::truthOf(target));
  Value spread = steps.maskedOut(steps.unary("aten::neg", steps.sum(logs, dim)),
                                 isIgnored);
  if (reduction != lossNone) {
    Type result = call.getOutputs().front().getType();
    auto total = [&](Value x, Type type) {
      return steps.make("aten::sum")
          .value("self", x)
          .none("dtype")
          .createOne(type);
    };
    spread = total(spread, result);
    if (reduction == lossMean) {
      Value counts = steps.make("aten::logical_not")
                         .value("self", isIgnored)
                         .createOne(isIgnored.getType());
      auto type = cast<graph::TensorType>(result);
      Value count = total(
          counts, graph::TensorType::get(type.getContext(), type.getSizeExprs(),
                                         DType::I64, type.getDevice()));
      spread = steps.div(spread, count);
    }
  }
  int64_t classes = *typeOf(logs).getSizeExprs()[dim].asInteger();
  return {steps.add(steps.mul(loss.front(), 1 - part),
                    steps.mul(spread, part / static_cast<double>(classes)))};
}

/// Of classes or, where the target has the input's sizes, of their
/// probabilities.
Parts takeCrossEntropy(graph::CallOp call, OpBuilder &builder) {
  Steps steps(call, builder);
  graph::TensorType type = typeOf(call.operand("self"));
  graph::TensorType target = typeOf(call.operand("target"));
  std::optional<int64_t> reduction = call.intArg("reduction");
  std::optional<double> smoothing = call.floatArg("label_smoothing");
  if (!type || !target || !reduction || type.getRank() == 0 || !smoothing)
    return {};
  int64_t classes = type.getRank() == 1 ? 0 : 1;
  std::optional<int64_t> count = type.getSizeExprs()[classes].asInteger();
  if (*smoothing != 0.0 &&
      (!count || *smoothing < 0 || *smoothing > 1 || !call.isNone("weight")))
    return {};
  bool isOfClasses = target.getRank() < type.getRank();
  if (isOfClasses
          ? target.getDtype() != DType::I64
          : !call.isNone("weight") || steps.alike({"self", "target"}).empty())
    return {};
  graph::TensorType dense = denseType(type, type.getSizeExprs());
  Value logs = steps.make("aten::_log_softmax")
                   .from(call, "self")
                   .integer("dim", classes)
                   .boolean("half_to_float", false)
                   .createOne(dense);
  if (isOfClasses) {
    Parts loss = *smoothing == 0.0
                     ? classLoss(call, builder, logs)
                     : smoothedLoss(call, builder, logs, classes, *smoothing);
    if (loss.empty())
      logs.getDefiningOp()->erase();
    return loss;
  }
  Value wanted = call.operand("target");
  if (*smoothing != 0.0)
    wanted = steps.add(steps.mul(wanted, 1 - *smoothing),
                       *smoothing / static_cast<double>(*count));
  Value products = steps.mul(logs, wanted);
  if (reduction == lossNone)
    return {steps.unary("aten::neg", steps.sum(products, classes))};
  Type result = call.getOutputs().front().getType();
  Value sum = steps.make("aten::sum")
                  .value("self", products)
                  .none("dtype")
                  .createOne(result);
  Value loss = steps.unary("aten::neg", sum);
  if (reduction == lossSum)
    return {loss};
  SymExpr rows(1);
  for (auto [dim, size] : llvm::enumerate(type.getSizeExprs()))
    if (static_cast<int64_t>(dim) != classes)
      rows = rows * size;
  return {steps.make("aten::div.Scalar")
              .value("self", loss)
              .size("other", rows)
              .createOne(result)};
}

} // namespace

void addLosses(llvm::StringMap<Composite> &table) {
  table["aten::cosine_similarity"] = takeCosineSimilarity;
  table["aten::cross_entropy_loss"] = takeCrossEntropy;
  table["aten::hinge_embedding_loss"] = takeHingeEmbeddingLoss;
  table["aten::kl_div"] = takeKLDivergence;
  table["aten::l1_loss"] = takeL1Loss;
  table["aten::margin_ranking_loss"] = takeMarginRankingLoss;
  table["aten::nll_loss"] = takeClassLoss;
  table["aten::nll_loss2d"] = takeClassLoss;
  table["aten::nll_loss_nd"] = takeClassLoss;
  table["aten::pairwise_distance"] = takePairwiseDistance;
  table["aten::poisson_nll_loss"] = takePoissonLoss;
  table["aten::soft_margin_loss"] = takeSoftMarginLoss;
  table["aten::triplet_margin_loss"] = takeTripletMarginLoss;
}

} // namespace intarsia::lower
