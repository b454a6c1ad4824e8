//===- Passes.td - All passes of Intarsia -*- tablegen -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The passes by stage, alphabetical. Their implementations are in
// passes/<Stage>/, one file a pass; the pipelines are in Pipelines.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_PASSES_TD
#define INTARSIA_PASSES_PASSES_TD

include "mlir/Pass/PassBase.td"

def CPUCheckMath : Pass<"cpu-check-math"> {
  let summary = "Refuse math operations that are not instructions";
  let description = [{
    An error, naming the operation, for each operation of the math dialect that
    neither `cpu-expand-math` replaces nor the CPU has as an instruction: LLVM
    would call libm for every element, and kernels are linked with no library.
  }];
}

def CPUEmitKernels : Pass<"cpu-emit-kernels", "::mlir::ModuleOp"> {
  let summary = "Make one function of loops and vectors for each kernel";
  let description = [{
    Each scheduled `intarsia.kernel` becomes a `func.func` of the nested module
    `@kernels`, with the signature of KernelABI.h; equal kernels share
    one function. The kernel's `decisions` learn `symbol`, `scratch` (bytes a
    thread needs) and `checks` (texts and kinds of the run-time checks).
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
  let statistics = [
    Statistic<"numKernels", "kernels", "Functions emitted">,
    Statistic<"numShared", "shared", "Kernels equal to an earlier one">];
}

def CPUExpandComplex : Pass<"cpu-expand-complex"> {
  let summary = "Take vectors of complex numbers apart by shuffles";
  let description = [{
    A complex number is an integer with the real part in its low half. Where a
    half of a vector of those becomes floats, or two vectors of floats become
    halves, `vector.deinterleave` and `vector.interleave` replace the shifts.
    Vectors of i128 are moved and selected as floats.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::vector::VectorDialect"];
}

def CPUExpandConversions : Pass<"cpu-expand-conversions"> {
  let summary = "Round to bf16 and f16 as PyTorch does";
  let description = [{
    Replaces `arith.truncf` and `arith.extf` from and to bf16 by integer
    arithmetic: round to nearest even, denormals kept (the instruction that LLVM
    would select on CPUs flushes them), any NaN becomes 0x7fc0. Between f64 and either
    format values go through f32, as in eager. With `integers`, no value of the
    formats is left that LLVM could convert on its own.
  }];
  let options = [
    Option<"f16c", "f16c", "bool", "true",
           "Whether the CPU converts between f16 and f32; without it integer "
           "arithmetic does">,
    Option<"bf16", "bf16", "bool", "false",
           "Whether an instruction rounds f32 to bf16 and keeps denormals, as "
           "GPUs have it from sm_80 on (for others LLVM writes arithmetic)">,
    Option<"integers", "integers", "bool", "false",
           "Store and move bf16, and f16 without F16C, as i16">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::LLVM::LLVMDialect"];
}

def CPUExpandMath : Pass<"cpu-expand-math"> {
  let summary = "Replace math functions by vector code";
  let description = [{
    Replaces exp, tanh, sin and the like, on scalars and vectors, by arithmetic:
    within 2 ulp for every f32 (f16 and bf16 are computed in f32), with fused
    multiply-add inside. Operations that are one instruction stay; so do
    functions of f64 without an accurate emitter (see MathEmitters.h).
  }];
  let options = [
    Option<"fma", "fma", "bool", "true",
           "Whether the CPU has fused multiply-add; without it f32 functions "
           "are computed in f64">,
    Option<"avx512", "avx512", "bool", "false",
           "Whether the CPU has AVX-512F, which looks up 16 numbers at once">];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
  let statistics = [
    Statistic<"numExpanded", "expanded", "Operations replaced">];
}

def CPUSchedule : Pass<"cpu-schedule", "::mlir::ModuleOp"> {
  let summary = "Decide the loops, lanes and threads of each kernel";
  let description = [{
    Reads `decisions` of every `intarsia.kernel`: `space`, the sizes of the
    iteration space, and `rows`, how many leading dimensions are rows (all of
    them unless the kernel reduces along the others). Decides and adds:

      loops         the dimensions of each loop, outermost first: those that lie
                    one after the other in all memory that is read or written
                    are one loop
      row_loops     how many loops the parallel loop stands for
      flat          the only loop is the parallel one
      vector_roots  results are stored along the lanes of the last loop
      packs         rows of a block, of which operands that lie across them are
                    transposed into scratch memory first
      lanes, tail_lanes
      streams       the results that are stored past the caches where they are
                    too large for them (8 MiB), which the kernel sees at run time
      domain, grain the parallel loop's iterations, and the fewest worth a thread

    and marks `linalg.generic` operations with `intarsia.cached` whose values
    are dear and needed by several passes over a row.
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", "512",
           "Bits of the target's vector registers">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def CPUToLLVM : Pass<"cpu-to-llvm", "::mlir::ModuleOp"> {
  let summary = "Convert kernels to the LLVM dialect, completely";
  let description = [{
    Runs on the module of kernels: scf, arith, math, vector and func become the
    LLVM dialect. An operation that can't is an error.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect"];
}

def CUDAEmitKernels : Pass<"cuda-emit-kernels", "::mlir::ModuleOp"> {
  let summary = "Make one gpu.func for each kernel";
  let description = [{
    Each `intarsia.kernel` that `cuda-schedule` has scheduled becomes a kernel
    function of the `gpu.module` `@kernels`; equal kernels share one. Its
    parameters are a pointer for each input and each result (to the first
    element), an i64 for each symbol, the number of iterations, and a pointer to
    an i64 that the number (from 1) of a failed run-time check is stored to.
    Threads, or their teams, step through the iterations by the size of the grid;
    a team's values become one by shuffles and shared memory. The kernel's
    `decisions` learn `symbol` and `checks`.

    A kernel that is not on CUDA is an error, unless it is to be emulated.
  }];
  let options = [
    Option<"emulated", "emulated", "bool", "false",
           "Take kernels for any device: a CPU will run them (gpu-to-simt)">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
  let statistics = [
    Statistic<"numKernels", "kernels", "Functions emitted">,
    Statistic<"numShared", "shared", "Kernels equal to an earlier one">];
}

def CUDASchedule : Pass<"cuda-schedule", "::mlir::ModuleOp"> {
  let summary = "Decide what a thread of each kernel computes, and the launch";
  let description = [{
    Adds to the `decisions` of every `intarsia.kernel` `loops`, `row_loops`,
    `flat` and `vector_roots`, as `cpu-schedule` does (see there), and

      lanes    elements that a thread of an elementwise kernel (`flat`) has at a
               time: as many as 16 bytes hold where all results lie in the order
               of the loop; where an address is not one for it, the code goes
               element by element
      team     how many threads share a row of a kernel that reduces along rows:
               1 (not said), a warp, or a block
      across   memory runs across the rows: 32 of them that lie side by side are
               a block's, whose warps are the members of each row's team
      domain   elements or rows
      threads  of a block
      grid     blocks
      narrow   positions have 32 bits, which is enough: `extent` (twice the
               largest number of elements that comes up, and some) stays below
               2^31
      wide     a dictionary of `extent` where sizes decide on that: there is a
               second entry with positions of 64 bits, whose `symbol` emission
               adds

    (docs/cuda-route.md says what a launch makes of them). A reduction of several
    dimensions becomes one loop (`intarsia.merged`), which the team divides.
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect", "::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def CUDAPackArithmetic : Pass<"cuda-pack-arithmetic", "::mlir::gpu::GPUModuleOp"> {
  let summary = "Add, subtract and multiply vectors of bf16 and f16 as such";
  let description = [{
    A sum, difference or product that is computed in f32 of numbers of bf16 or
    f16 and rounded to that format becomes one of the format: the same number,
    and a GPU computes two at once (on sm_75 f16's alone; for bf16 LLVM writes
    what was there before).
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::vector::VectorDialect"];
  let statistics = [Statistic<"numPacked", "packed", "Operations replaced">];
}

def CUDAToNVVM : Pass<"cuda-to-nvvm", "::mlir::gpu::GPUModuleOp"> {
  let summary = "Convert CUDA kernels to the LLVM and NVVM dialects, completely";
  let description = [{
    Runs on the `gpu.module` of kernels: scf, arith, math and gpu become the LLVM
    and NVVM dialects, without calls of libdevice. An operation that can't is an
    error.
  }];
  let dependentDialects = ["::mlir::cf::ControlFlowDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def FuseAnalyse : Pass<"fuse-analyse", "::mlir::ModuleOp"> {
  let summary = "Find the iteration space of each kernel; split kernels that have several";
  let description = [{
    Gives every `intarsia.kernel` the `decisions` `space` (the sizes of its
    iteration space) and `rows`: a kernel that reduces along trailing dimensions
    iterates over the reduced tensor, its leading `rows` dimensions being rows;
    others over their result. A kernel whose results have different spaces
    (a norm's gradients) becomes several.
  }];
  let statistics = [Statistic<"numSplit", "split", "Kernels that became several">];
}

def FuseApply : Pass<"fuse-apply", "::mlir::ModuleOp"> {
  let summary = "Make each group of kernels one kernel";
  let description = [{
    Merges the kernels that have the same `intarsia.group`. Only results that
    are needed outside the group are results of the merged kernel; views between
    members become index maps inside it.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
  let statistics = [Statistic<"numFused", "fused", "Kernels made of several">];
}

def FuseDecide : Pass<"fuse-decide", "::mlir::ModuleOp"> {
  let summary = "Decide which kernels become one";
  let description = [{
    Gives kernels that are to become one the same `intarsia.group`, and the
    space of the whole in their `decisions`. A producer joins its consumer if
    both iterate over spaces of the same size (or rows of it), if what a
    reduction gives is read by its own row only, and if no value is computed
    more often than before unless that is cheaper than reading it from memory.
    Nothing moves across an effect that it could observe.
  }];
  let options = [
    Option<"maxOps", "max-ops", "int64_t", "400",
           "Operations in the body of one kernel at the most">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
  let statistics = [Statistic<"numGroups", "groups", "Groups of more than one kernel">];
}

def FuseRepeat : Pass<"fuse-repeat", "::mlir::ModuleOp"> {
  let summary = "Compute again, for each reader, what is smaller before it is computed";
  let description = [{
    A cheap kernel whose operands take less memory than its result, a cast to a
    wider dtype or a constant, and that only kernels read becomes one for each of
    them: `fuse-decide` need not choose who takes it in, and nobody reads the
    wide value from memory. Copies that end in one kernel are one again.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
  let statistics = [Statistic<"numRepeated", "repeated", "Kernels that became several">];
}

def FuseWiden : Pass<"fuse-widen", "::mlir::ModuleOp"> {
  let summary = "Keep f32 between the operators of a kernel"
                " (numerics=\"fused\")";
  let description = [{
    A bf16 or f16 value that one operator of a kernel makes and another uses is
    passed on in f32, unrounded, unless the first is a cast that the user wrote.
    Results of the kernel are rounded as before.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
  let statistics = [Statistic<"numWidened", "widened", "Roundings taken away">];
}

def FreezeWeights : Pass<"freeze-weights", "::mlir::ModuleOp"> {
  let summary = "Compute once what depends on weights alone";
  let description = [{
    Calls of PyTorch's own operators whose operands are weights, or results of
    such calls, move from `@main` to the function `@main` of a nested module
    `@frozen`; `@main` gets their results as further weights, `frozen:0`, ...,
    with the records `data/intarsia/frozen/0`, ... of the file. Not moved are

    * what depends on a weight whose storage the program writes, or on one that
      no record holds;
    * calls of other operators, which are never left out, and random ones;
    * views alone, which cost nothing, and factories alone, which cost memory;
    * what `@main` may return: its caller may write it;
    * results larger than a megabyte and than twice the weights that they are
      made of.

    ```mlir
    %0 = intarsia.call "aten::exp"(self = %weight)
      : (!intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32>
    // becomes
    %0 = intarsia.weight "frozen:0" : !intarsia.tensor<[8]xf32>
    ```
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [Statistic<"numFrozen", "frozen", "Results made weights">];
}

def PackWeights : Pass<"pack-weights", "::mlir::ModuleOp"> {
  let summary = "Lay out weights for products when they are loaded";
  let description = [{
    A product (`aten::linear`, `matmul`, `mm`, `addmm`) of float32 rows on the CPU, at
    least 32 and known, with a weight that nothing writes becomes oneDNN's, with a further
    weight `packed:0`, ..., which the runtime makes of the other one when the file
    is loaded.

    ```mlir
    %0 = intarsia.call "aten::linear"(input = %x, weight = %w, bias = none)
      : (!intarsia.tensor<[64, 256]xf32>, !intarsia.tensor<[128, 256]xf32>)
      -> !intarsia.tensor<[64, 128]xf32>
    // becomes
    %p = intarsia.weight "packed:0" : !intarsia.tensor<[128, 256]xf32>
    %0 = intarsia.call "mkldnn::_linear_pointwise"(X = %x, W = %p, B = none,
        attr = "none", scalars = [], algorithm = "") ...
    ```
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [Statistic<"numPacked", "packed", "Products with packed weights">];
}

def Functionalise : Pass<"functionalise", "::mlir::ModuleOp"> {
  let summary = "Rename writes through shared storage to values, where all is known";
  let description = [{
    In a function with `intarsia.aliasing` a mutating call changes every value
    that shares the storage, and calls that touch such storage are `aliasing`:
    they stay calls, in order. This pass takes each set of values that share a
    written storage, and if every operator that makes, writes or takes one of
    them is known for what it does, renames the writes to values: a write gives
    the storage's root (a function argument, or the result that made the storage)
    a new value, and a view is taken anew, from the latest one, where it is read.

    ```mlir
    %1 = intarsia.call "aten::select.int"(self = %b, ...) {aliasing, views = ...}
    %2 = intarsia.call "aten::add_.Tensor"(self = %1, ...) mutates(%1) {aliasing}
    // becomes
    %1 = intarsia.call "aten::select.int"(self = %b, ...) {views = ...}
    %2 = intarsia.call "aten::add_.Tensor"(self = %1, ...) mutates(%1)
    %3 = intarsia.call "aten::select_scatter"(self = %b, src = %2, ...)
    ```

    The new value of an argument becomes a result of the function, of which the
    argument is updated at the end. A write that no kernel is made of says which
    part of the root it writes (`view<...>`), so that it can be done in place.

    A set stays as it is when

    * a view of it is of no known form, or may be a copy or not;
    * the root is an argument of a nested function, one of several of the user's
      (which may be one tensor), one of two names of the same bytes, or one that
      is returned, as itself or as a view of it;
    * a call changes a member's sizes, or writes it and takes another member;
    * control flow writes a member or may return it;
    * a call that writes it takes a member of a set that stays as it is.

    A function in which nothing is left to keep in order is no longer
    `intarsia.aliasing`.
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [
    Statistic<"numRenamed", "renamed", "Storages whose writes became values">,
    Statistic<"numKept", "kept", "Written storages that stay as they are">];
}

def GPUToSIMT : Pass<"gpu-to-simt", "::mlir::ModuleOp"> {
  let summary = "Make CPU kernels of CUDA kernels, which emulate a grid of threads";
  let description = [{
    A test aid. Each kernel function of the `gpu.module` `@kernels`, after
    `cuda-emit-kernels` and before NVVM, becomes a function of the module
    `@kernels` with the signature of KernelABI.h that runs all threads of a grid
    on one CPU thread. Where the kernel has barriers or shuffles, a thread is an
    LLVM coroutine. Every load and store is held against the buffer (or the
    shared memory) that it belongs to, and its address against its alignment.

    The kernels' `checks` learn three more: an access out of bounds, one that is
    not aligned, and threads that wait for each other at different places. With
    `traces` there is a global variable `intarsia_simt_trace`: where it points
    to memory, of which the first word is 0 and the second the number of records
    that the rest has place for, each access leaves a record of four words there:
    the thread, the place in the code (times two, plus one for a store), the
    address, the bytes.
  }];
  let options = [
    Option<"traces", "traces", "bool", "false", "Whether accesses are recorded">,
    Option<"maxBlocks", "max-blocks", "int64_t", "5",
           "Blocks of a grid, at most: those that do more turns are seen to">,
    Option<"narrowLimit", "narrow-limit", "int64_t", "2147483647",
           "The `extent` above which a kernel's `wide` entry runs">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::cf::ControlFlowDialect",
                           "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::scf::SCFDialect"];
}

def InlineRegions : Pass<"inline-regions", "::mlir::ModuleOp"> {
  let summary = "Put regions that change nothing into their surroundings";
  let description = [{
    Calls of `higher_order::wrap`, `strict_mode` and of the activation
    checkpoints, which only run their subgraph, are replaced by what is in it; so
    are calls of `wrap_with_set_grad_enabled` when all operators in it are
    PyTorch's own, which do not see the grad mode below autograd. An operator of
    the user's may: its region stays, and is executed with the mode set.
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [Statistic<"numInlined", "inlined", "Regions put in place">];
}

def LowerCalls : Pass<"lower-calls", "::mlir::ModuleOp"> {
  let summary = "Turn calls of operators that have a lowering into kernels";
  let description = [{
    Each `intarsia.call` whose operator has an entry in the table of
    passes/Lower/Lowering.h becomes one `intarsia.kernel` on builtin tensors.
    A call stays a call when

    * its operator has no entry, or the entry declines its arguments;
    * it draws random numbers, has effects, aliases, or defines symbols;
    * it mutates anything but its argument `self`, or no operator of the table
      computes what it stores there (`aten::add.Tensor` for `aten::add_.Tensor`);
    * a tensor of it has a dtype without kernels (complex, 8-bit floats), is
      known to be empty, or is not on the one device of the others;
    * that device is not one of `devices`.

    View operators stay calls: fusion looks through them. On CUDA a reduction
    of few long rows is taken apart first: into one of pieces of the rows, and
    one of what those make. docs/operators.md lists the table.

    ```mlir
    %0 = intarsia.call "aten::exp"(self = %x)
      : (!intarsia.tensor<[s0]xf32>) -> !intarsia.tensor<[s0]xf32>
    ```
  }];
  let options = [
    ListOption<"devices", "devices", "std::string",
               "Types of device to make kernels for (cpu, cuda); default: cpu">,
    Option<"emulated", "emulated", "bool", "false",
           "What is on the CPU is lowered as for CUDA">];
  let dependentDialects = [
    "::intarsia::graph::GraphDialect", "::mlir::arith::ArithDialect",
    "::mlir::cf::ControlFlowDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
  let statistics = [
    Statistic<"numLowered", "lowered", "Calls that became kernels">,
    Statistic<"numDeclined", "declined",
              "Calls of operators in the table that stayed calls">];
}

def Normalise : Pass<"normalise", "::mlir::ModuleOp"> {
  let summary = "Remove what carries no meaning: duplicate sizes, dead and no-op calls";
  let description = [{
    Brings an imported module into the form that later stages expect, changing
    nothing that a program could observe:

    * equal `intarsia.size` and `intarsia.weight` operations are merged, at the
      top of the block in which they dominate their uses;
    * a call without effects, randomness, mutation or aliasing whose results
      nobody uses is removed (a call that defines a symbol that is used stays);
    * a call, not marked `aliasing`, that returns its argument unchanged
      (`aten::detach`, `aten::alias`, `aten::lift_fresh`, a `view` to the same
      sizes, ...) is replaced by the argument, unless the result leaves the
      function.

    Equal calls of opaque operators are not merged: a call is never duplicated,
    but neither may two calls become one, because their results must not share
    storage.
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [
    Statistic<"numDead", "dead-calls", "Calls removed because nobody used them">,
    Statistic<"numNoOps", "no-ops", "Calls replaced by their argument">,
    Statistic<"numMerged", "merged", "Sizes and weights merged with an equal one">];
}

def PlanInplace : Pass<"plan-inplace", "::mlir::ModuleOp"> {
  let summary = "Decide for every mutating call which bases are written in place";
  let description = [{
    Mutation is by value in the dialect: a call with `mutates` returns the new
    value of every base that it writes. This pass decides, for each of them,
    whether the operator may write the storage that holds the old value, or
    gets a copy, by read/write conflict analysis over the whole function: a
    base is written in place exactly if nothing that can run later reads the
    old value through any value that may share its storage.

    The decision is recorded on the call as `intarsia.inplace`, an array with
    one entry for each entry of `mutates`:

      "inplace"           the storage of the old value is written
      "clone: <reason>"   the old value is copied first

    and on each function result that updates an input or a buffer
    (`intarsia.output` of "buffer_mutation", "input_mutation" or
    "parameter_mutation") as `intarsia.writeback`: "inplace" when the storage of
    the input already holds the result, "copy" otherwise. An `aten::copy_` into
    a function argument whose storage already holds what is copied gets
    `intarsia.writeback = "inplace"` too: it is not executed. It gets "later"
    when the old value is still read after it: the copy happens at the end.

    A function argument that no result updates belongs to the caller and is
    never written.

    With `reuse`, a call that returns an updated copy of its argument
    (`aten::index_put`, `aten::slice_scatter`, `aten::copy`, ...) gets
    `intarsia.reuse = "inplace"` when that argument's storage is written back
    anyway, nothing reads the old value later, and the new one does not leave
    the function otherwise: what functionalisation made of a write into a buffer
    is a write into the buffer again. The pass runs once before lowering, which
    leaves these calls alone, and once at the end, where all is decided anew.
    Then, with `own`, what a kernel or an operator of PyTorch's has made is
    updated where it lies too, if nothing reads the old value later.

    Likewise a kernel that makes the new value of an argument gets
    `intarsia.into`, one argument number a result (-1: a new tensor), when it
    may store into that argument itself: nothing reads the old value later, and
    if the kernel does, then element by element. Two of the user's arguments may
    share memory: `intarsia.apart` has the pairs of buffers that are compared
    when the kernel is launched.

    A call that is `aliasing` writes all its bases in place: that is what the
    program means.
  }];
  let options = [
    Option<"reuse", "reuse", "bool", /*default=*/"true",
           "Update arguments that are written back where they lie">,
    Option<"own", "own", "bool", /*default=*/"false",
           "Update what the program made itself where it lies, too">];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [
    Statistic<"numInplace", "in-place", "Bases written in place">,
    Statistic<"numClones", "clones", "Bases that are copied first">,
    Statistic<"numReuses", "reuses", "Functional updates done in place">];
}

def PlanPrint : Pass<"plan-print", "::mlir::ModuleOp"> {
  let summary = "Print the plan of the module to standard output";
  let description = [{
    Translates the module to a plan (`buildPlan`) and prints the listing. The
    module itself is unchanged. Kernels need `decisions` with a `symbol`.
  }];
  let options = [
    Option<"stridedViews", "strided-views", "bool", /*default=*/"true",
           "Make views of a known form in the plan, without a call">,
    Option<"strict", "strict", "bool", /*default=*/"false",
           "Other strides of a result than its fake's are errors">];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
}

def PlanWaits : Pass<"plan-waits", "::mlir::ModuleOp"> {
  let summary = "Wait for collectives as late as possible";
  let description = [{
    `_c10d_functional::wait_tensor` ends a collective that another call started.
    It is moved down, past everything that does not need what it returns, so that
    the communication goes on meanwhile; and with it what needs it and may be late
    itself, as nobody sees when it runs: kernels, views, and operators of PyTorch's
    without effects. They go no further than to

    * the first operation that needs them and can't move: a custom operator, another
      collective, one with effects;
    * the first that writes memory in place, as a collective may still read or
      fill that memory;
    * the end of the function.

    The starts of collectives keep their order: all processes must agree on it.

    ```mlir
    %1 = intarsia.call "_c10d_functional::all_reduce"(input = %x, ...) {effectful} : ...
    %3 = intarsia.call "my::work"(x = %y) : ...
    %2 = intarsia.call "_c10d_functional::wait_tensor"(tensor = %1) {effectful} : ...
    %4 = intarsia.call "aten::add.Tensor"(self = %2, other = %3, alpha = 1) : ...
    ```
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [Statistic<"numSunk", "sunk", "Waits that moved down">];
}

def RestoreUpdates : Pass<"restore-updates", "::mlir::ModuleOp"> {
  let summary = "Write a part of an argument where it lies";
  let description = [{
    Functionalisation makes of a write into a view a new value of the view, which
    is put into a new value of what it is a view of, and so on. Where an argument
    gets the last of these values anyway, the part alone is written again.

    ```mlir
    %1 = intarsia.call "aten::select.int"(self = %cache, dim = 0, index = 1)
    %2 = intarsia.call "aten::index_copy"(self = %1, dim = 0, index = %i, ...)
    %3 = intarsia.call "aten::select_scatter"(self = %cache, src = %2, ...)
    // becomes
    %3 = intarsia.call "aten::index_copy_"(self = view<%cache, ...>, ...)
      mutates(%cache) returns(tied)
    ```

    What put the part back is the argument's new value; what else read it is a
    view of that. An update of which a tensor may lie in the same memory stays as
    it is. Whether the write is done in place is decided by `plan-inplace`.
  }];
  let dependentDialects = ["::intarsia::graph::GraphDialect"];
  let statistics = [
    Statistic<"numRestored", "restored", "Updates that became writes">];
}

#endif // INTARSIA_PASSES_PASSES_TD
