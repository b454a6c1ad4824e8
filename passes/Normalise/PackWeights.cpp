//===- PackWeights.cpp - Lay out weights for products ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements `pack-weights`.
//
//===----------------------------------------------------------------------===//

#include "passes/Normalise/NewCall.h"
#include "passes/Normalise/Weights.h"
#include "passes/Passes.h"

namespace intarsia {
#define GEN_PASS_DEF_PACKWEIGHTS
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

/// Rows and elements of a weight from which on oneDNN with a packed weight is
/// the faster library (one row of 512 x 1376: 0.13 ms against 0.07 in MKL; 16:
/// equal; 128: 8 % less).
static constexpr int64_t fewestRows = 32, smallestWeight = 1 << 14;

namespace {

/// x (..., k) times the transpose of a weight (n, k), plus a bias (n).
struct Product {
  Value x, weight, bias;    // no bias: null
  graph::TensorType matrix; // of the weight as an n x k matrix
  int64_t rows;
};

class Packer {
public:
  explicit Packer(ModuleOp module, func::FuncOp main)
      : module(module), main(main), known(findUnwrittenWeights(module, main)) {}

  unsigned run() {
    unsigned count = 0;
    for (Operation &op :
         llvm::make_early_inc_range(main.getBody().front().getOperations()))
      if (auto call = dyn_cast<graph::CallOp>(op))
        if (std::optional<Product> product = match(call)) {
          rewrite(call, *product);
          ++count;
        }
    if (count)
      addWeights(module, entries);
    return count;
  }

private:
  static graph::TensorType plainMatrix(Type type) {
    auto tensor = dyn_cast<graph::TensorType>(type);
    return tensor && tensor.getSizeExprs().size() == 2 &&
                   tensor.getDtype() == DType::F32 &&
                   tensor.getDevice() == "cpu"
               ? tensor
               : graph::TensorType();
  }

  std::optional<Product> match(graph::CallOp call) {
    Product product;
    StringRef callee = call.getCallee();
    if (!call.isPure() || call->getNumResults() != 1)
      return std::nullopt;
    if (callee == "aten::linear") {
      product.x = call.operand("input");
      product.weight = call.operand("weight");
      product.bias = call.operand("bias");
      product.matrix =
          product.weight ? plainMatrix(product.weight.getType()) : nullptr;
    } else if (callee == "aten::mm" || callee == "aten::matmul" ||
               callee == "aten::addmm") {
      bool hasBias = callee == "aten::addmm";
      if (hasBias && (call.floatArg("alpha").value_or(1) != 1 ||
                      call.floatArg("beta").value_or(1) != 1))
        return std::nullopt;
      product.x = call.operand(hasBias ? "mat1" : "self");
      product.weight =
          call.operand(callee == "aten::matmul" ? "other" : "mat2");
      if (hasBias)
        product.bias = call.operand("self");
      auto right =
          product.weight ? plainMatrix(product.weight.getType()) : nullptr;
      if (!right)
        return std::nullopt;
      auto reversed = [](ArrayRef<SymExpr> list) {
        return SmallVector<SymExpr>(llvm::reverse(list));
      };
      product.matrix = graph::TensorType::get(
          call.getContext(), reversed(right.getSizeExprs()),
          reversed(right.getStrideExprs()), DType::F32);
    }
    if (!product.x || !product.matrix)
      return std::nullopt;
    return fits(call, product) ? std::optional(product) : std::nullopt;
  }

  /// Finds the weight behind the matrix, and whether the product is what
  /// packing is for.
  bool fits(graph::CallOp call, Product &product) {
    if (auto view = product.weight.getDefiningOp<graph::CallOp>()) {
      StringRef callee = view.getCallee();
      bool isTransposed = callee == "aten::t" || callee == "aten::permute" ||
                          callee == "aten::transpose.int";
      if (!isTransposed)
        return false;
      product.weight = view.operand("self");
      // Of a matrix: the same one, or its transpose; the strides say which.
      if (!product.weight || !plainMatrix(product.weight.getType()))
        return false;
    }
    StringRef name = weightName(product.weight, main);
    auto x = dyn_cast<graph::TensorType>(product.x.getType());
    auto result = dyn_cast<graph::TensorType>(call->getResult(0).getType());
    auto bias = product.bias
                    ? dyn_cast<graph::TensorType>(product.bias.getType())
                    : graph::TensorType();
    if (name.empty() || !known.contains(name) || !x || !result ||
        x.getDtype() != DType::F32 || x.getDevice() != "cpu" ||
        !result.hasContiguousStrides() ||
        (product.bias &&
         (!bias || bias.getDtype() != DType::F32 ||
          !bias.hasContiguousStrides() || // oneDNN does not look at them
          bias.getSizeExprs() !=
              ArrayRef(product.matrix.getSizeExprs()).take_front())))
      return false;
    product.rows = 1;
    SmallVector<SymExpr> sizes = x.getSizeExprs();
    for (const SymExpr &size : ArrayRef(sizes).drop_back()) {
      std::optional<int64_t> count = size.asInteger();
      if (!count)
        return false;
      product.rows *= *count;
    }
    int64_t elements = 1;
    for (const SymExpr &size : product.matrix.getSizeExprs())
      elements *= *size.asInteger(); // of a weight: constants
    return product.rows >= fewestRows && elements >= smallestWeight;
  }

  void rewrite(graph::CallOp call, const Product &product) {
    OpBuilder builder(call);
    NamedAttrList fields;
    fields.append("type", TypeAttr::get(product.matrix));
    fields.append("packed_from",
                  builder.getStringAttr(weightName(product.weight, main)));
    fields.append("packed_rows", builder.getI64IntegerAttr(product.rows));
    StringAttr &name = names[fields.getDictionary(module.getContext())];
    if (!name) {
      name = builder.getStringAttr("packed:" + llvm::Twine(entries.size()));
      fields.append("name", name);
      entries.push_back(fields.getDictionary(module.getContext()));
    }
    auto packed =
        graph::WeightOp::create(builder, call.getLoc(), product.matrix, name);
    NewCall linear(builder, call.getLoc(), "mkldnn::_linear_pointwise");
    linear.value("X", product.x).value("W", packed.getResult());
    if (product.bias)
      linear.value("B", product.bias);
    else
      linear.none("B");
    Value result = linear.constant("attr", builder.getStringAttr("none"))
                       .constant("scalars", builder.getArrayAttr({}))
                       .constant("algorithm", builder.getStringAttr(""))
                       .createOne(call->getResult(0).getType());
    call->getResult(0).replaceAllUsesWith(result);
    SmallVector<Operation *> dead = {call};
    while (!dead.empty()) {
      Operation *op = dead.pop_back_val();
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp();
            source && source->hasOneUse() &&
            (isa<graph::WeightOp>(source) || isView(source)))
          dead.push_back(source);
      op->erase();
    }
  }

  static bool isView(Operation *op) {
    auto call = dyn_cast<graph::CallOp>(op);
    return call && call->getNumResults() == 1 && !call.isObservable() &&
           call.getViews();
  }

  ModuleOp module;
  func::FuncOp main;
  llvm::StringMap<DictionaryAttr> known; // weights that nothing writes
  DenseMap<Attribute, StringAttr> names;
  SmallVector<Attribute> entries;
};

struct PackWeights final : intarsia::impl::PackWeightsBase<PackWeights> {
  void runOnOperation() override {
    auto main = getOperation().lookupSymbol<func::FuncOp>("main");
    if (main && !main.isExternal() && llvm::hasSingleElement(main.getBody()))
      numPacked += Packer(getOperation(), main).run();
  }
};

} // namespace
