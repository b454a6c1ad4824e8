// RUN: intarsia-opt --lower=devices=cuda --fuse --cuda-schedule --cuda-emit-kernels --split-input-file --verify-diagnostics %s | FileCheck %s

// One thread an element, in steps of the whole grid. Parameters: the input, the
// result, s0, the number of elements, the status.

!t = !intarsia.tensor<[s0, 8]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @pointwise
// CHECK: intarsia.kernel{{.*}} symbol = "k0_exp"
// CHECK: gpu.module @kernels
// CHECK: gpu.func @k0_exp(%[[X:.+]]: !llvm.ptr, %[[OUT:.+]]: !llvm.ptr, %{{.+}}: i64, %[[DOMAIN:.+]]: i64, %{{.+}}: !llvm.ptr) kernel attributes {known_block_size = array<i32: 256, 1, 1>}
// CHECK: gpu.block_dim x
// CHECK: gpu.block_id x
// CHECK: gpu.thread_id x
// CHECK: gpu.grid_dim x
// CHECK: arith.muli
// CHECK: %[[BEGIN:.+]] = arith.addi
// CHECK: %[[STEP:.+]] = arith.muli
// CHECK: scf.for %[[I:.+]] = %[[BEGIN]] to %[[DOMAIN]] step %[[STEP]] : i64
// CHECK: llvm.getelementptr %[[X]][%[[I]]]
// CHECK: llvm.load {{.*}} -> f32
// CHECK: math.exp %{{.+}} : f32
// CHECK: llvm.getelementptr %[[OUT]][%[[I]]]
// CHECK: llvm.store {{.*}} : f32
// CHECK: gpu.return
func.func @pointwise(%x: !t) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::exp"(self = %x) : (!t) -> !t
  return %0 : !t
}

// -----

// One thread a row: the maximum, the sum and the quotients, one loop after the
// other.

!t = !intarsia.tensor<[s0, 8]xf32, device = "cuda:0">

// CHECK-LABEL: gpu.func @k0__softmax
// CHECK: scf.for %{{.+}} = %{{.+}} to %{{.+}} step %{{.+}} : i64 {
// CHECK: scf.for {{.*}} iter_args(%{{.+}} = %{{.+}}) -> (f32) : i64
// CHECK: arith.maximumf
// CHECK: scf.for {{.*}} iter_args(%{{.+}} = %{{.+}}) -> (f32) : i64
// CHECK: arith.addf
// CHECK: scf.for
// CHECK: arith.divf
// CHECK: llvm.store
// CHECK: gpu.return
func.func @rows(%x: !t) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = -1, half_to_float = false) : (!t) -> !t
  return %0 : !t
}

// -----

// All of a tensor is one row: one thread's work, the others have none.

!t = !intarsia.tensor<[s0, 8]xf32, device = "cuda:0">
!scalar = !intarsia.tensor<[]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @whole
// CHECK: domain = #intarsia.expr<"1">
// CHECK: gpu.func
// CHECK: scf.for
// CHECK: iter_args
// CHECK: llvm.store
func.func @whole(%x: !t) -> !scalar attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!t) -> !scalar
  return %0 : !scalar
}

// -----

// A check that fails is stored to the status, the last parameter.

!w = !intarsia.tensor<[11, 3]xf32, device = "cuda:0">
!i = !intarsia.tensor<[s0]xi64, device = "cuda:0">
!t = !intarsia.tensor<[s0, 3]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @embedding
// CHECK: checks = [{index, text = "aten::embedding: index out of range in self (size 11)"}]
// CHECK: gpu.func @k0_embedding({{.*}}, %[[STATUS:.+]]: !llvm.ptr) kernel
// CHECK: scf.if
// CHECK: %[[ONE:.+]] = arith.constant 1 : i64
// CHECK: llvm.store %[[ONE]], %[[STATUS]]
func.func @embedding(%w: !w, %i: !i) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::embedding"(weight = %w, indices = %i, padding_idx = -1, scale_grad_by_freq = false, sparse = false) : (!w, !i) -> !t
  return %0 : !t
}

// -----

// Equal kernels share a function.

!t = !intarsia.tensor<[8]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @shared
// CHECK-COUNT-1: gpu.func
// CHECK-NOT: gpu.func
func.func @shared(%x: !t, %y: !t) -> (!t, !t) {
  %0 = intarsia.call "aten::exp"(self = %x) : (!t) -> !t
  %1 = intarsia.call "aten::exp"(self = %y) : (!t) -> !t
  return %0, %1 : !t, !t
}

// -----

func.func @elsewhere(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  // expected-error @below {{is on cpu, not on cuda: pass lower-calls the option devices=cuda}}
  %r = intarsia.kernel(%x) ops ["aten::neg"] decisions {space = [#intarsia.expr<"8">], rows = 1 : i64}
      : (!intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  ^bb0(%a: tensor<8xf32>):
    intarsia.yield %a : tensor<8xf32>
  }
  return %r : !intarsia.tensor<[8]xf32>
}
