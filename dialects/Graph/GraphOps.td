//===- GraphOps.td - Operations of the intarsia dialect -*- tablegen -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_DIALECTS_GRAPH_GRAPHOPS_TD
#define INTARSIA_DIALECTS_GRAPH_GRAPHOPS_TD

include "dialects/Graph/GraphTypes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Intarsia_Op<string mnemonic, list<Trait> traits = []>
    : Op<GraphDialect, mnemonic, traits>;

def Intarsia_AnyValue : AnyTypeOf<[Intarsia_TensorType, Intarsia_ObjectType, Index, I1, F64]>;

def Intarsia_CallOp : Intarsia_Op<"call", [
    AttrSizedResultSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "a call of a registered operator";
  let description = [{
    Calls the operator `callee` ("ns::name.overload"; the default overload has
    no suffix) through PyTorch's dispatcher. It is opaque unless a lowering is
    registered for the name.

    ```mlir
    %0 = intarsia.call "aten::mul.Scalar"(self = %x, other = 1.5)
      : (!intarsia.tensor<[s0, 64]xf32>) -> !intarsia.tensor<[s0, 64]xf32>
    %1:2 = intarsia.call "mylib::put_"(self = %0, where = [%i, none], mode = "nearest")
      mutates(%0) {effectful}
      : (!intarsia.tensor<[s0, 64]xf32>, !intarsia.tensor<[64]xi64>)
      -> (!intarsia.tensor<[64]xf32>, !intarsia.tensor<[s0, 64]xf32>)
    %2:3 = intarsia.call "mylib::split"(x = %0, n = 2) returns([0, 1], none, 2)
      : (!intarsia.tensor<[s0, 64]xf32>)
      -> (!intarsia.tensor<[s0, 32]xf32>, !intarsia.tensor<[s0, 32]xf32>, index)
    ```

    `args` has one entry for each argument of the schema, in schema order, with
    defaults filled in, and `arg_names` their names. In parentheses: how the
    assembly prints it.

    - `#intarsia.operand<N>`: the call's operand N (a tensor; `index`, `i1` or
      `f64` for a symbolic number; an object) (`%x`)
    - `#intarsia.view<N, ...>`: a view of operand N
      (`view<%x, [4], [1], s0>`: sizes, strides, storage offset)
    - an `i64` or `f64` attribute (`3`, `1.5`, `inf`, `neg_inf`, `nan`), a
      boolean (`true`), a string (`"nearest"`)
    - `#intarsia.none`, `complex`, `dtype`, `device`, `layout`, `memory_format`,
      `object` (an entry of the side table) (without `#intarsia.`: `none`,
      `complex<1.5, -2.0>`, `dtype<bf16>`, `device<"cuda:0">`,
      `layout<"strided">`, `memory_format<"channels_last">`, `object<3>`)
    - a FlatSymbolRefAttr: a subgraph, of higher-order operators (`@true_graph`)
    - an ArrayAttr: a list of these (`[%x, none, 3]`)

    Operands are numbered by their first appearance in `args`, and a value is an
    operand once, however often it appears there: the assembly names values.
    Where a rewriting has left other numbers, the assembly prints
    `operands(%a, %a)` first, and numbers (`operand<1>`) among the arguments.

    `returns` has one entry for each return of the schema: `#intarsia.operand<N>`
    is *result* N, an ArrayAttr a list of results, `#intarsia.none` a return
    that the fake implementation left out, unit (`tied`) a return that is one of
    the mutated arguments. Printed unless it is each output in turn.

    Mutation is by value: after the `outputs`, each entry of `mutates` (operand
    numbers) has one more result in `updated`, the new value of that operand's
    base, of the same type.

    A call that mutates, is `effectful`, draws `random` numbers, is `aliasing`
    or `binds` symbols has a write effect: it is never dropped, merged, or moved
    across another such call. Any other is a function of its operands.

    1. There are as many `updated` results as `mutates` entries, each of the
       type of the operand it updates.
    2. Every operand is referred to from `args`, and every number in `args` is
       that of an operand.
    3. `arg_names` are as many strings as `args` has entries, all different.
    4. Every output is referred to exactly once from `returns`.
    5. An argument is of one of the forms above.
    6. The callee is "namespace::name", with the overload, if any, after a dot.
    7. `mutates` holds different numbers of operands that are not numbers.
    8. `binds` holds `#intarsia.bind` attributes that name results of the call,
       and dimensions that their types have.
    9. `views` has one entry for each output: an operand's number, or -1.
    10. A subgraph is a function of the module.
  }];
  let arguments = (ins
    StrAttr:$callee,
    Variadic<Intarsia_AnyValue>:$inputs,
    ArrayAttr:$args,
    ArrayAttr:$arg_names,
    ArrayAttr:$returns,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$mutates,
    // Observable beyond its results: printing, collectives, ORDERED effects.
    UnitAttr:$effectful,
    // Draws from a generator.
    UnitAttr:$random,
    // Reads or writes storage that other values of the graph share: programs
    // that are not functional. Such calls keep their order.
    UnitAttr:$aliasing,
    // For each output, the operand whose storage it may share (a view), or -1.
    OptionalAttr<DenseI64ArrayAttr>:$views,
    OptionalAttr<ArrayAttr>:$binds,
    OptionalAttr<ArrayAttr>:$tags,
    OptionalAttr<StrAttr>:$schema);
  let results = (outs Variadic<Intarsia_AnyValue>:$outputs,
                      Variadic<Intarsia_AnyValue>:$updated);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The argument with this schema name: an attribute as `args` holds it;
    /// null when the operator has none of that name.
    ::mlir::Attribute arg(::llvm::StringRef name);
    /// The operand for this argument; null when it is a constant or None.
    ::mlir::Value operand(::llvm::StringRef name);
    ::std::optional<int64_t> intArg(::llvm::StringRef name);
    ::std::optional<double> floatArg(::llvm::StringRef name); // int or float
    ::std::optional<bool> boolArg(::llvm::StringRef name);
    ::std::optional<::intarsia::DType> dtypeArg(::llvm::StringRef name);
    ::std::optional<::llvm::StringRef> stringArg(::llvm::StringRef name);
    bool isNone(::llvm::StringRef name); // absent counts
    /// A list of integers, constant or symbolic (from `intarsia.size` operands).
    ::std::optional<::llvm::SmallVector<::intarsia::SymExpr>> sizesArg(::llvm::StringRef name);
    /// One integer, constant or symbolic.
    ::std::optional<::intarsia::SymExpr> sizeArg(::llvm::StringRef name);
    ::llvm::SmallVector<::mlir::Value> operandList(::llvm::StringRef name);
    /// Neither effects, randomness, mutation, aliasing nor symbols it defines.
    bool isPure();
    /// Whether somebody could notice that the call is dropped, repeated or moved
    /// across another such call. Only PyTorch's own operators can be relied on to
    /// have no effects that they do not declare.
    bool isObservable();
  }];
}

def Intarsia_SizeOp : Intarsia_Op<"size", [Pure]> {
  let summary = "a symbolic number as a value";
  let description = [{
    The value of an expression over the function's symbols: an `index`
    (SymInt), an `i1` (SymBool) or an `f64` (SymFloat).

    ```mlir
    %n = intarsia.size "12*s0" : index
    %m = intarsia.size s0 : index
    %c = intarsia.size "lt(s0, 4)" : i1
    ```

    1. A condition is an `i1`, and an `i1` is a condition or a symbol.
    2. What may be a float is an `f64`.
  }];
  let arguments = (ins Intarsia_ExprAttr:$expr);
  let results = (outs AnyTypeOf<[Index, I1, F64]>:$result);
  let assemblyFormat = "custom<Expr>($expr) attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Intarsia_WeightOp : Intarsia_Op<"weight", [Pure]> {
  let summary = "a tensor that the program carries (a lifted constant)";
  let description = [{ `%0 = intarsia.weight "name" : !intarsia.tensor<[2]xf32>` }];
  let arguments = (ins StrAttr:$name);
  let results = (outs Intarsia_TensorType:$result);
  let assemblyFormat = "$name attr-dict `:` qualified(type($result))";
}

def Intarsia_AssertOp : Intarsia_Op<"assert", [MemoryEffects<[MemWrite]>]> {
  let summary = "a condition on symbols that is checked at run time";
  let description = [{
    ```mlir
    intarsia.assert "le(1, u0)", "the batch must not be empty"
    intarsia.assert "lt(u0, s0)", "an index is out of range" index_error
    ```

    It fails with a `RuntimeError`, or with an `IndexError`.

    1. The condition is a condition, not a number.
  }];
  let arguments = (ins Intarsia_ExprAttr:$condition, StrAttr:$message,
      UnitAttr:$index_error);
  let assemblyFormat =
      "custom<Expr>($condition) `,` $message (`index_error` $index_error^)? attr-dict";
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def Intarsia_CheckIndexOp
    : Intarsia_Op<"check_index", [MemoryEffects<[MemWrite]>]> {
  let summary = "an index that data decides, checked by a kernel";
  let description = [{
    Stands in the body of a kernel, which fails where the condition does not
    hold: with the message, in which `{index}` and `{size}` stand for their
    values, as an `IndexError` or else as a `RuntimeError`.

    ```mlir
    intarsia.check_index %inside, %index of %size,
      "aten::index: index {index} is out of bounds, size {size}" index_error
    ```
  }];
  let arguments = (ins I1:$condition, I64:$index, I64:$size, StrAttr:$message,
      UnitAttr:$index_error);
  let assemblyFormat = [{
    $condition `,` $index `of` $size `,` $message
    (`index_error` $index_error^)? attr-dict
  }];
}

def Intarsia_KernelOp : Intarsia_Op<"kernel", [
    IsolatedFromAbove, Pure, SingleBlock,
    SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "a computation that is compiled: builtin tensors inside";
  let description = [{
    Everything inside is on builtin tensors and is compiled to one kernel. The
    block's arguments are, in order, one `tensor` for each input (the same
    rank; a size that is an integer constant is static, others are `?`) and one
    `index` for each entry of `symbols`, the value of that expression. The
    yielded tensors are the results; their memory has the strides of the result
    types.

    Element types inside: signless integers of the width (`u8` too: the
    operators' lowerings know the sign), `i1` tensors are not used: bool is
    `i8` holding 0 or 1, a complex number an integer of its width.

    `ops` names the operators that it came from, in order; `decisions` are what
    the fusion and scheduling passes decided.

    ```mlir
    %r = intarsia.kernel(%x) symbols [s0] ops ["aten::exp"]
        : (!intarsia.tensor<[s0, 64]xf32>) -> !intarsia.tensor<[s0, 64]xf32> {
    ^bb0(%a: tensor<?x64xf32>, %n: index):
      %e = tensor.empty(%n) : tensor<?x64xf32>
      %0 = linalg.exp ins(%a : tensor<?x64xf32>) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
      intarsia.yield %0 : tensor<?x64xf32>
    }
    ```

    1. The block's arguments match the inputs and symbols as above.
    2. The yielded values match the result types' sizes and dtype.
    3. `symbols` are expressions, `ops` strings.

    Canonicalisation drops inputs and symbols that are not used or passed twice
    and results that are not used, until `decisions`, which may count them, are
    made.
  }];
  let arguments = (ins Variadic<Intarsia_TensorType>:$inputs,
                       ArrayAttr:$symbols, // of ExprAttr
                       DefaultValuedAttr<ArrayAttr, "{}">:$ops,
                       OptionalAttr<DictionaryAttr>:$decisions);
  let results = (outs Variadic<Intarsia_TensorType>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `(` $inputs `)` custom<Symbols>($symbols) (`ops` $ops^)?
    (`decisions` $decisions^)? attr-dict-with-keyword
    `:` functional-type($inputs, $outputs) $body
  }];
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
  let extraClassDeclaration = [{
    /// The block's arguments that stand for inputs, and those for symbols.
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getInputArguments();
    ::llvm::MutableArrayRef<::mlir::BlockArgument> getSymbolArguments();
    ::intarsia::SymExpr getSymbolExpr(unsigned index);
  }];
}

def Intarsia_YieldOp : Intarsia_Op<"yield", [Pure, Terminator, HasParent<"KernelOp">]> {
  let summary = "the results of a kernel";
  let arguments = (ins Variadic<AnyRankedTensor>:$operands);
  let builders = [OpBuilder<(ins), [{ /* the implicit one: no results */ }]>];
  let assemblyFormat = "attr-dict ($operands^ `:` type($operands))?";
}

#endif // INTARSIA_DIALECTS_GRAPH_GRAPHOPS_TD
