//===- GraphAttrs.td - Attributes of the intarsia dialect -*- tablegen -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_DIALECTS_GRAPH_GRAPHATTRS_TD
#define INTARSIA_DIALECTS_GRAPH_GRAPHATTRS_TD

include "dialects/Graph/GraphDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"

class Intarsia_Attr<string name, string attrMnemonic> : AttrDef<GraphDialect, name> {
  let mnemonic = attrMnemonic;
}

def Intarsia_ExprAttr : Intarsia_Attr<"Expr", "expr"> {
  let summary = "a symbolic expression in normal form";
  let description = [{
    Holds an `intarsia::SymExpr`; equal attributes are equal expressions. The
    parser brings any text into normal form. Inside types and operations it is
    printed bare: an integer, a symbol, or the quoted text of an expression.

    ```mlir
    #intarsia.expr<"12*s0 + 1">
    ```
  }];
  let parameters = (ins "::intarsia::SymExpr":$expr);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// The canonical text.
    ::std::string getText() const { return getExpr().str(); }
  }];
}

def Intarsia_DTypeAttr : Intarsia_Attr<"DType", "dtype"> {
  let summary = "an element type of PyTorch";
  let description = [{
    ```mlir
    #intarsia.dtype<bf16>
    ```
  }];
  let parameters = (ins "::intarsia::DType":$value);
  let hasCustomAssemblyFormat = 1;
}

def Intarsia_DeviceAttr : Intarsia_Attr<"Device", "device"> {
  let summary = "a device";
  let description = [{ `#intarsia.device<"cuda:0">` }];
  let parameters = (ins StringRefParameter<"as torch prints it">:$value);
  let assemblyFormat = "`<` $value `>`";
}

def Intarsia_LayoutAttr : Intarsia_Attr<"Layout", "layout"> {
  let summary = "a tensor layout";
  let description = [{ `#intarsia.layout<"strided">` }];
  let parameters = (ins StringRefParameter<"as torch names it">:$value);
  let assemblyFormat = "`<` $value `>`";
}

def Intarsia_MemoryFormatAttr : Intarsia_Attr<"MemoryFormat", "memory_format"> {
  let summary = "a memory format";
  let description = [{ `#intarsia.memory_format<"channels_last">` }];
  let parameters = (ins StringRefParameter<"as torch names it">:$value);
  let assemblyFormat = "`<` $value `>`";
}

def Intarsia_NoneAttr : Intarsia_Attr<"None", "none"> {
  let summary = "Python's None";
}

def Intarsia_ComplexAttr : Intarsia_Attr<"Complex", "complex"> {
  let summary = "a complex number";
  let description = [{ `#intarsia.complex<1.5, -2.0>`; also `inf`, `-inf` and `nan` }];
  let parameters = (ins APFloatParameter<"double">:$real,
                        APFloatParameter<"double">:$imaginary);
  let builders = [AttrBuilder<(ins "double":$real, "double":$imaginary)>];
  let hasCustomAssemblyFormat = 1;
}

def Intarsia_OperandAttr : Intarsia_Attr<"Operand", "operand"> {
  let summary = "an argument that is an operand of the call";
  let description = [{
    Inside `args`: the position of the operand. In the call's assembly it is
    printed as the operand itself.
  }];
  let parameters = (ins "int64_t":$index);
  let assemblyFormat = "`<` $index `>`";
}

def Intarsia_ViewAttr : Intarsia_Attr<"View", "view"> {
  let summary = "an argument that is a view of an operand's storage";
  let description = [{
    A mutating operator was given a view of a base: the argument is
    `as_strided(base, sizes, strides, offset)` and the call returns the new
    value of the *base*.

    ```mlir
    #intarsia.view<0, [4, s0], [s0, 1], "2*s0">
    ```
  }];
  let parameters = (ins "int64_t":$index,
                        ArrayRefParameter<"::intarsia::graph::ExprAttr">:$sizes,
                        ArrayRefParameter<"::intarsia::graph::ExprAttr">:$strides,
                        "::intarsia::graph::ExprAttr":$offset);
  let assemblyFormat = [{
    `<` $index `,` custom<ExprList>($sizes) `,` custom<ExprList>($strides) `,`
        custom<Expr>($offset) `>`
  }];
  let genVerifyDecl = 1;
}

def Intarsia_ObjectAttr : Intarsia_Attr<"Object", "object"> {
  let summary = "what cannot be data: an index into the program's side table";
  let parameters = (ins "int64_t":$index);
  let assemblyFormat = "`<` $index `>`";
}

def Intarsia_BindAttr : Intarsia_Attr<"Bind", "bind"> {
  let summary = "an unbacked symbol that a result defines";
  let description = [{
    The symbol, the number of the result, and where in it the value stands:
    "value" (a number), "size:D" or "stride:D" (a tensor's dimension D), "offset".

    ```mlir
    #intarsia.bind<"u0" = 0, "size:1">
    ```
  }];
  let parameters = (ins StringRefParameter<"symbol">:$symbol, "int64_t":$result,
                        StringRefParameter<"path">:$path);
  let assemblyFormat = "`<` $symbol `=` $result `,` $path `>`";
  let genVerifyDecl = 1;
}

#endif // INTARSIA_DIALECTS_GRAPH_GRAPHATTRS_TD
