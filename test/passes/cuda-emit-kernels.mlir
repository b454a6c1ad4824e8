// RUN: intarsia-opt --lower=devices=cuda --fuse --cuda-schedule --cuda-emit-kernels --split-input-file --verify-diagnostics %s | FileCheck %s

// In steps of the whole grid. Parameters: the input, the result, s0, the number of
// elements, the status.

!t = !intarsia.tensor<[s0, 8]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @pointwise
// CHECK: intarsia.kernel{{.*}} symbol = "k0_exp"{{.*}} wide = {extent = #intarsia.expr<"{{.+}}">, symbol = "k0_exp_wide"}
// CHECK: gpu.module @kernels
// CHECK: gpu.func @k0_exp(%[[X:.+]]: !llvm.ptr, %[[OUT:.+]]: !llvm.ptr, %{{.+}}: i64, %[[DOMAIN:.+]]: i64, %{{.+}}: !llvm.ptr) kernel attributes {known_block_size = array<i32: 256, 1, 1>}
// CHECK: gpu.block_id x
// CHECK: gpu.thread_id x
// CHECK: gpu.grid_dim x
// Positions have 32 bits.
// CHECK: %[[FIRST:.+]] = arith.addi
// CHECK: %[[BEGIN:.+]] = arith.trunci %[[FIRST]] : i64 to i32
// CHECK: %[[END:.+]] = arith.trunci %[[DOMAIN]] : i64 to i32
// Four elements at a time, where the addresses allow it.
// CHECK: llvm.ptrtoint %[[X]]
// CHECK: llvm.ptrtoint %[[OUT]]
// CHECK: %[[CHUNKS:.+]] = arith.select
// CHECK: scf.for %[[C:.+]] = %[[BEGIN]] to %[[CHUNKS]] step %[[STEP:.+]] : i32
// CHECK: %[[V:.+]] = arith.muli %[[C]]
// CHECK: llvm.getelementptr %[[X]][%[[V]]]
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: math.exp %{{.+}} : vector<4xf32>
// CHECK: llvm.getelementptr %[[OUT]][%[[V]]]
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xf32>
// The rest, or all.
// CHECK: scf.for %[[I:.+]] = %{{.+}} to %[[END]] step %[[STEP]] : i32
// CHECK: llvm.getelementptr %[[X]][%[[I]]]
// CHECK: llvm.load {{.*}} -> f32
// CHECK: llvm.store {{.*}} : f32
// CHECK: gpu.return
// Sizes may need more.
// CHECK: gpu.func @k0_exp_wide(
// CHECK: scf.for {{.*}} : i64
// CHECK: scf.for {{.*}} : i64
func.func @pointwise(%x: !t) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::exp"(self = %x) : (!t) -> !t
  return %0 : !t
}

// -----

// Eight elements: a warp has the row. The maximum, the sum and the quotients, one
// loop after the other, and between them shuffles.

!t = !intarsia.tensor<[s0, 8]xf32, device = "cuda:0">

// CHECK-LABEL: gpu.func @k0__softmax
// CHECK: %[[REST:.+]] = arith.remui
// CHECK: %[[MEMBER:.+]] = arith.trunci %[[REST]]
// CHECK: scf.for %{{.+}} = %{{.+}} to %{{.+}} step %{{.+}} : i32 {
// CHECK: scf.for %{{.+}} = %[[MEMBER]] to {{.*}} iter_args(%{{.+}} = %{{.+}}) -> (f32) : i32
// CHECK: arith.maximumf
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.shuffle idx
// CHECK: scf.for %{{.+}} = %[[MEMBER]] to {{.*}} iter_args(%{{.+}} = %{{.+}}) -> (f32) : i32
// CHECK: arith.addf
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: scf.for %{{.+}} = %[[MEMBER]]
// CHECK: arith.divf
// CHECK: llvm.store
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
func.func @rows(%x: !t) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = -1, half_to_float = false) : (!t) -> !t
  return %0 : !t
}

// -----

// All of a tensor is one row, of one block: one value a warp goes through shared
// memory, and one thread stores the result.

!t = !intarsia.tensor<[2000, 8]xf32, device = "cuda:0">
!scalar = !intarsia.tensor<[]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @whole
// CHECK: domain = #intarsia.expr<"1">
// CHECK: gpu.func {{.*}} workgroup(%[[SHARED:.+]] : memref<16xi32, #gpu.address_space<workgroup>>)
// CHECK: %[[FIRST:.+]] = arith.cmpi eq
// CHECK: scf.for
// CHECK: iter_args
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: scf.if
// CHECK: memref.store %{{.+}}, %[[SHARED]]
// CHECK: gpu.barrier
// CHECK-COUNT-16: memref.load %[[SHARED]]
// CHECK: gpu.barrier
// CHECK: scf.if %[[FIRST]]
// CHECK: llvm.store
func.func @whole(%x: !t) -> !scalar {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!t) -> !scalar
  return %0 : !scalar
}

// -----

// Columns: those of a warp's threads lie side by side, each is shared by the
// block's warps.

!t = !intarsia.tensor<[2000, 8]xf64, device = "cuda:0">
!row = !intarsia.tensor<[8]xf64, device = "cuda:0">

// CHECK-LABEL: func.func @columns
// CHECK: across
// CHECK: gpu.func {{.*}} workgroup(%[[LOW:.+]] : memref<256xi32, #gpu.address_space<workgroup>>, %[[HIGH:.+]] : memref<256xi32, #gpu.address_space<workgroup>>)
// CHECK: %[[WARP64:.+]] = arith.divui
// CHECK: %[[LANE64:.+]] = arith.remui
// CHECK: %[[WARP:.+]] = arith.trunci %[[WARP64]]
// CHECK: %[[LANE:.+]] = arith.trunci %[[LANE64]]
// CHECK: scf.for %[[FIRST:.+]] =
// CHECK: %[[COLUMN:.+]] = arith.addi %[[FIRST]], %[[LANE]]
// CHECK: arith.cmpi slt, %[[COLUMN]]
// CHECK: arith.minsi %[[COLUMN]]
// CHECK: scf.for {{.*}} = %[[WARP]]
// CHECK-NOT: gpu.shuffle
// CHECK: memref.store %{{.+}}, %[[LOW]]
// CHECK: memref.store %{{.+}}, %[[HIGH]]
// CHECK: gpu.barrier
// CHECK-COUNT-8: memref.load %[[HIGH]]
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK: llvm.store
func.func @columns(%x: !t) -> !row {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [0], keepdim = false, dtype = none)
    : (!t) -> !row
  return %0 : !row
}

// -----

// A check that fails is stored to the status, the last parameter.

!w = !intarsia.tensor<[11, 3]xf32, device = "cuda:0">
!i = !intarsia.tensor<[s0]xi64, device = "cuda:0">
!t = !intarsia.tensor<[s0, 3]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @embedding
// CHECK: checks = [{index, text = "aten::embedding: index out of range in self (index {index}, size {size})"}]
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
