//===- CallTest.cpp - Tests of how lowerings read a call ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The accessors by name of `intarsia.call`, and the types' own functions.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::graph;

namespace {
class CallTest : public testing::Test {
protected:
  CallTest() {
    context.loadDialect<GraphDialect, func::FuncDialect, arith::ArithDialect>();
  }

  /// The first call of the module.
  CallOp parse(StringRef text) {
    module = parseSourceString<ModuleOp>(text, &context);
    CallOp call;
    if (module)
      module->walk([&](CallOp op) {
        call = op;
        return WalkResult::interrupt();
      });
    return call;
  }

  graph::TensorType tensor(ArrayRef<SymExpr> sizes, ArrayRef<SymExpr> strides) {
    return graph::TensorType::get(&context, sizes, strides, DType::F32);
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

SymExpr expr(const char *text) { return *SymExpr::parse(text); }
} // namespace

TEST_F(CallTest, ArgumentsByName) {
  CallOp call = parse(R"mlir(
    func.func @f(%x: !intarsia.tensor<[4]xf32>, %y: !intarsia.tensor<[4]xf32>) {
      intarsia.call "mylib::f"(x = %x, list = [%y, none, %x], i = 3, f = 2.5,
          b = true, s = "text", d = dtype<bf16>, n = none) {effectful}
          : (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>) -> ()
      return
    })mlir");
  ASSERT_TRUE(call);
  EXPECT_EQ(call.operand("x"), call.getInputs()[0]);
  EXPECT_FALSE(call.operand("i"));
  EXPECT_FALSE(call.operand("absent"));
  EXPECT_EQ(
      call.operandList("list"),
      (SmallVector<Value>{call.getInputs()[1], Value(), call.getInputs()[0]}));
  EXPECT_EQ(call.operandList("x"), SmallVector<Value>{call.getInputs()[0]});
  EXPECT_EQ(call.intArg("i"), 3);
  EXPECT_EQ(call.intArg("b"), std::nullopt);
  EXPECT_EQ(call.floatArg("f"), 2.5);
  EXPECT_EQ(call.floatArg("i"), 3.0);
  EXPECT_EQ(call.boolArg("b"), true);
  EXPECT_EQ(call.boolArg("i"), std::nullopt);
  EXPECT_EQ(call.stringArg("s"), "text");
  EXPECT_EQ(call.dtypeArg("d"), DType::BF16);
  EXPECT_TRUE(call.isNone("n"));
  EXPECT_TRUE(call.isNone("absent"));
  EXPECT_FALSE(call.isNone("x"));
}

TEST_F(CallTest, SymbolicSizes) {
  CallOp call = parse(R"mlir(
    func.func @f(%n: index {intarsia.expr = #intarsia.expr<"2*s0">}, %unknown: index) {
      %m = intarsia.size "s0 + 1" : index
      %c = arith.constant 7 : index
      intarsia.call "mylib::f"(known = [%n, %m, %c, -1], unknown = [1, %unknown],
          one = %m, mixed = [1, none]) {effectful} : (index, index, index, index) -> ()
      return
    })mlir");
  ASSERT_TRUE(call);
  auto sizes = call.sizesArg("known");
  ASSERT_TRUE(sizes);
  EXPECT_EQ(*sizes, (SmallVector<SymExpr>{expr("2*s0"), expr("s0 + 1"),
                                          SymExpr(7), SymExpr(-1)}));
  EXPECT_EQ(call.sizesArg("unknown"), std::nullopt);
  EXPECT_EQ(call.sizesArg("mixed"), std::nullopt);
  EXPECT_EQ(call.sizesArg("one"), std::nullopt);
  EXPECT_EQ(call.sizeArg("one"), expr("s0 + 1"));
  EXPECT_EQ(call.sizeArg("absent"), std::nullopt);
}

TEST_F(CallTest, Purity) {
  EXPECT_TRUE(
      parse(R"mlir(intarsia.call "mylib::f"() : () -> ())mlir").isPure());
  for (const char *facts : {"effectful", "random", "aliasing"})
    EXPECT_FALSE(parse((Twine(R"mlir(intarsia.call "mylib::f"() {)mlir") +
                        facts + "} : () -> ()")
                           .str())
                     .isPure());
}

TEST_F(CallTest, ObservableUnlessPyTorchsOwn) {
  const char *call = R"mlir(intarsia.call "{0}::f"() : () -> ())mlir";
  EXPECT_TRUE(parse(llvm::formatv(call, "mylib").str()).isObservable());
  EXPECT_FALSE(parse(llvm::formatv(call, "aten").str()).isObservable());
  EXPECT_FALSE(parse(llvm::formatv(call, "prims").str()).isObservable());
  EXPECT_TRUE(parse(R"mlir(intarsia.call "aten::f"() {random} : () -> ())mlir")
                  .isObservable());
}

TEST_F(CallTest, ContiguousStrides) {
  SymExpr s0 = expr("s0"), u0 = expr("u0");
  EXPECT_TRUE(graph::TensorType::get(&context, {s0, 4, u0}, DType::F32)
                  .hasContiguousStrides());
  EXPECT_EQ(contiguousStrides({SymExpr(2), s0, SymExpr(0), SymExpr(3)}),
            (SmallVector<SymExpr>{expr("3*s0"), 3, 3, 1}));
  EXPECT_FALSE(tensor({4, s0}, {1, 4}).hasContiguousStrides());
  // The stride of a dimension of size 1, and of an empty tensor, is any.
  EXPECT_TRUE(tensor({1, 4}, {77, 1}).hasContiguousStrides());
  EXPECT_TRUE(tensor({0, 4}, {1, 1}).hasContiguousStrides());
  // As PyTorch writes them for unbacked sizes.
  EXPECT_TRUE(tensor({4, u0}, {expr("max(1, u0)"), 1}).hasContiguousStrides());
}

TEST_F(CallTest, BuiltinTypes) {
  auto builtin = [&](DType dtype) {
    return graph::TensorType::get(&context, {expr("s0"), 4}, dtype).toBuiltin();
  };
  Builder builder(&context);
  int64_t any = ShapedType::kDynamic;
  EXPECT_EQ(builtin(DType::F32),
            RankedTensorType::get({any, 4}, builder.getF32Type()));
  EXPECT_EQ(builtin(DType::Bool),
            RankedTensorType::get({any, 4}, builder.getI8Type()));
  EXPECT_EQ(builtin(DType::U16),
            RankedTensorType::get({any, 4}, builder.getI16Type()));
  // As its byte.
  EXPECT_EQ(builtin(DType::F8E5M2),
            RankedTensorType::get({any, 4}, builder.getI8Type()));
  // Both parts beside each other.
  EXPECT_EQ(builtin(DType::C64),
            RankedTensorType::get({any, 4}, builder.getI64Type()));
  EXPECT_EQ(builtin(DType::C128),
            RankedTensorType::get({any, 4}, builder.getIntegerType(128)));
  EXPECT_FALSE(builtin(DType::C32));
  EXPECT_FALSE(builtin(DType::F8E5M2FNUZ));
}
