//===- GraphTypes.td - Types of the intarsia dialect -*- tablegen -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_DIALECTS_GRAPH_GRAPHTYPES_TD
#define INTARSIA_DIALECTS_GRAPH_GRAPHTYPES_TD

include "dialects/Graph/GraphAttrs.td"

class Intarsia_Type<string name, string typeMnemonic> : TypeDef<GraphDialect, name> {
  let mnemonic = typeMnemonic;
}

def Intarsia_TensorType : Intarsia_Type<"Tensor", "tensor"> {
  let summary = "a tensor value: symbolic sizes, strides, dtype, device";
  let description = [{
    Sizes and strides (in elements) are integers, symbols, or quoted
    expressions. Strides are printed only when they are not those of a
    contiguous tensor; the device only when it is not `cpu`.

    1. There are as many strides as sizes.
    2. A size that is an integer is not negative.
    3. A size or stride is not a condition.
    4. The device is named.

    ```mlir
    !intarsia.tensor<[s0, 64]xf32>
    !intarsia.tensor<[s0, "12*s0"]xbf16, strides = [1, s0], device = "cuda:0">
    !intarsia.tensor<[]xi64>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::intarsia::graph::ExprAttr">:$sizes,
                        ArrayRefParameter<"::intarsia::graph::ExprAttr">:$strides,
                        "::intarsia::DType":$dtype,
                        StringRefParameter<"device">:$device);
  // `strides` always has `sizes.size()` entries; this builder fills in the
  // contiguous ones.
  let builders = [
    TypeBuilder<(ins "::llvm::ArrayRef<::intarsia::SymExpr>":$sizes,
                     "::intarsia::DType":$dtype,
                     CArg<"::llvm::StringRef", "\"cpu\"">:$device)>,
    TypeBuilder<(ins "::llvm::ArrayRef<::intarsia::SymExpr>":$sizes,
                     "::llvm::ArrayRef<::intarsia::SymExpr>":$strides,
                     "::intarsia::DType":$dtype,
                     CArg<"::llvm::StringRef", "\"cpu\"">:$device)>];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    int64_t getRank() const { return getSizes().size(); }
    ::llvm::SmallVector<::intarsia::SymExpr> getSizeExprs() const;
    ::llvm::SmallVector<::intarsia::SymExpr> getStrideExprs() const;
    /// The product of the sizes.
    ::intarsia::SymExpr getNumElements() const;
    /// As torch.Tensor.is_contiguous() has it: the strides of dimensions of size
    /// 1, and of a tensor with no elements, do not count. A symbolic size is
    /// taken to be none of these.
    bool hasContiguousStrides() const;
    /// The builtin tensor that stands for it inside a kernel: constant sizes are
    /// static, others dynamic. Null for element types that have no kernels.
    ::mlir::RankedTensorType toBuiltin() const;
  }];
}

def Intarsia_ObjectType : Intarsia_Type<"Object", "object"> {
  let summary = "a value that is neither a tensor nor a number (a script object, an effect token)";
}

#endif // INTARSIA_DIALECTS_GRAPH_GRAPHTYPES_TD
