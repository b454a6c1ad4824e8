// RUN: intarsia-opt --lower-calls --fuse --cpu-schedule --cpu-emit-kernels %s | FileCheck %s

// One function a kernel, in `@kernels`: the buffers and sizes are read from the
// arrays that KernelABI.h describes, then come the loops.

!vec = !intarsia.tensor<[s0]xf32>
!mat = !intarsia.tensor<[s0, 1024]xf32>

// Equal kernels share a function.
// CHECK-LABEL: func.func @shared
// CHECK: ops ["aten::neg"] {{.*}}symbol = "k0_neg"
// CHECK: ops ["aten::neg"] {{.*}}symbol = "k0_neg"
func.func @shared(%x: !vec) -> !vec {
  %0 = intarsia.call "aten::neg"(self = %x) : (!vec) -> !vec
  %1 = intarsia.call "my::opaque"(x = %0) : (!vec) -> !vec
  %2 = intarsia.call "aten::neg"(self = %1) : (!vec) -> !vec
  return %2 : !vec
}

// A row of 1024 floats is cached.
// CHECK-LABEL: func.func @rows
// CHECK: scratch = #intarsia.expr<"4096">
// CHECK-SAME: symbol = "k1__softmax"
func.func @rows(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = 1, half_to_float = false) : (!mat) -> !mat
  return %0 : !mat
}

// CHECK-LABEL: func.func @columns
// CHECK: symbol = "k2__softmax"
func.func @columns(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = 0, half_to_float = false) : (!mat) -> !mat
  return %0 : !mat
}

// What is checked at run time has a number and a text.
// CHECK-LABEL: func.func @checked
// CHECK: checks = [{index, text = "aten::embedding: index out of range in self (index {index}, size {size})"}]
func.func @checked(%w: !mat, %i: !intarsia.tensor<[3]xi64>) -> !intarsia.tensor<[3, 1024]xf32> {
  %0 = intarsia.call "aten::embedding"(weight = %w, indices = %i, padding_idx = -1, scale_grad_by_freq = false, sparse = false) : (!mat, !intarsia.tensor<[3]xi64>) -> !intarsia.tensor<[3, 1024]xf32>
  return %0 : !intarsia.tensor<[3, 1024]xf32>
}

// CHECK-LABEL: func.func @joined
// CHECK: symbol = "k4_sum_mul_cat"
func.func @joined(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [1], keepdim = true, dtype = none) : (!mat) -> !intarsia.tensor<[s0, 1]xf32>
  %1 = intarsia.call "aten::mul.Tensor"(self = %x, other = %0) : (!mat, !intarsia.tensor<[s0, 1]xf32>) -> !mat
  %2 = intarsia.call "aten::cat"(tensors = [%1], dim = 1) : (!mat) -> !mat
  return %2 : !mat
}

// CHECK-LABEL: func.func @large
// CHECK: symbol = "k5_native_layer_norm"
!large = !intarsia.tensor<[4096, 1024]xf32>
!per_row = !intarsia.tensor<[4096, 1]xf32>
func.func @large(%x: !large) -> (!large, !per_row, !per_row) {
  %0:3 = intarsia.call "aten::native_layer_norm"(input = %x, normalized_shape = [1024], weight = none, bias = none, eps = 1.000000e-05 : f64) : (!large) -> (!large, !per_row, !per_row)
  return %0#0, %0#1, %0#2 : !large, !per_row, !per_row
}

// CHECK-LABEL: func.func @across
// CHECK: scratch = #intarsia.expr<"16384">
// CHECK-SAME: symbol = "k6_add"
!dense = !intarsia.tensor<[64, 32]xf32>
!across = !intarsia.tensor<[64, 32]xf32, strides = [1, 64]>
func.func @across(%x: !across, %y: !dense) -> !dense {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %y, alpha = 1) : (!across, !dense) -> !dense
  return %0 : !dense
}

// CHECK-LABEL: func.func @pieces
// CHECK: symbol = "k7_index_cat"
func.func @pieces(%x: !mat, %i: !intarsia.tensor<[7]xi64>, %y: !intarsia.tensor<[7, 3]xf32>) -> !intarsia.tensor<[7, 1027]xf32> {
  %0 = intarsia.call "aten::index.Tensor"(self = %x, indices = [%i]) : (!mat, !intarsia.tensor<[7]xi64>) -> !intarsia.tensor<[7, 1024]xf32>
  %1 = intarsia.call "aten::cat"(tensors = [%0, %y], dim = 1) : (!intarsia.tensor<[7, 1024]xf32>, !intarsia.tensor<[7, 3]xf32>) -> !intarsia.tensor<[7, 1027]xf32>
  return %1 : !intarsia.tensor<[7, 1027]xf32>
}

// CHECK: module @kernels

// Whole vectors, then masked ones.
// CHECK-LABEL: func.func @k0_neg
// CHECK-SAME: (%[[BUFFERS:.+]]: !llvm.ptr, %[[SIZES:.+]]: !llvm.ptr, %[[BEGIN:.+]]: i64, %[[END:.+]]: i64, %[[SCRATCH:.+]]: !llvm.ptr) -> i64
// CHECK: scf.for %{{.+}} = %[[BEGIN]] to %[[SPLIT:.+]] step %{{.+}} : i64 {
// CHECK: llvm.load {{.*}} -> vector<64xf32>
// CHECK: arith.negf {{.*}} : vector<64xf32>
// CHECK: llvm.store
// CHECK: scf.for %{{.+}} = %[[SPLIT]] to %[[END]] step %{{.+}} : i64 {
// CHECK: llvm.intr.masked.load
// CHECK: arith.negf {{.*}} : vector<16xf32>
// CHECK: llvm.intr.masked.store
// CHECK: return

// A loop over rows; three passes over each. The lanes of a reduction become one
// at its end. 1024 is a multiple of the lanes: nothing is masked.
// CHECK-LABEL: func.func @k1__softmax
// CHECK-NOT: masked
// CHECK: scf.for
// CHECK: scf.for {{.*}} iter_args
// CHECK: arith.maximumf {{.*}} : vector<64xf32>
// CHECK: vector.shuffle
// CHECK: scf.for {{.*}} iter_args
// CHECK: math.exp {{.*}} : vector<64xf32>
// CHECK: llvm.store {{.*}} : vector<64xf32>
// CHECK: arith.addf
// CHECK: vector.shuffle
// CHECK: arith.divf {{.*}} : f32
// CHECK: scf.for
// CHECK-NOT: math.exp
// CHECK-NOT: arith.divf
// CHECK: math.fma {{.*}} : vector<64xf32>
// CHECK: return

// Lanes across the rows; both reductions and the results are loops inside, one
// after the other.
// CHECK-LABEL: func.func @k2__softmax
// CHECK: scf.for {{.*}} : i64 {
// CHECK: %[[MAX:.+]] = scf.for {{.*}} iter_args
// CHECK: arith.maximumf {{.*}} : vector<64xf32>
// CHECK: %[[SUM:.+]] = scf.for {{.*}} iter_args
// CHECK: arith.subf %{{.+}}, %[[MAX]] : vector<64xf32>
// CHECK: arith.divf %{{.+}}, %[[SUM]] : vector<64xf32>
// CHECK: scf.for
// CHECK: math.fma %{{.+}}, %[[SUM]], %{{.+}} : vector<64xf32>
// CHECK: return

// CHECK-LABEL: func.func @k3_embedding
// CHECK: %[[STATUS:.+]] = llvm.alloca
// CHECK: scf.if
// CHECK: llvm.store %{{.+}}, %[[STATUS]]
// The index and the size are left in the scratch memory, %arg4.
// CHECK: %[[PLACE:.+]] = llvm.getelementptr %arg4[0]
// CHECK-NEXT: llvm.store %{{.+}}, %[[PLACE]]
// CHECK: %[[NUMBER:.+]] = llvm.getelementptr %[[STATUS]][0]
// CHECK: %[[RESULT:.+]] = llvm.load %[[NUMBER]]
// CHECK: return %[[RESULT]] : i64

// The row's sum is computed once, before the loop over what is joined.
// CHECK-LABEL: func.func @k4_sum_mul_cat
// CHECK: scf.for
// CHECK: scf.for {{.*}} iter_args
// CHECK: arith.addf {{.*}} : vector<64xf32>
// CHECK: vector.extract
// CHECK: scf.for
// CHECK-NOT: iter_args
// CHECK: llvm.store
// CHECK-NOT: iter_args
// CHECK: return

// Where the result is not where the input is and begins a line of memory, it is
// stored past the caches, and the next row is fetched while this one is at hand.
// Nobody may be told that the kernel is done before all is stored.
// CHECK-LABEL: func.func @k5_native_layer_norm
// CHECK: %[[APART:.+]] = llvm.icmp "ne"
// CHECK: %[[STREAM:.+]] = arith.andi %{{.+}}, %[[APART]]
// CHECK: scf.if %[[STREAM]]
// CHECK: llvm.intr.prefetch
// CHECK: %[[ALIGNED:.+]] = arith.cmpi eq
// CHECK: %[[NOW:.+]] = arith.andi %[[STREAM]], %[[ALIGNED]]
// CHECK: scf.if %[[NOW]]
// CHECK: llvm.store {{.*}} {alignment = 64 : i64, nontemporal}
// CHECK: } else {
// CHECK: llvm.store
// CHECK: scf.if %[[STREAM]]
// CHECK-NEXT: llvm.fence seq_cst

// Sixteen columns of sixteen rows are loaded along the rows and transposed; the
// rows then read them along their lanes.
// CHECK-LABEL: func.func @k6_add
// CHECK: scf.for {{.*}} step %c16_i64
// CHECK: scf.for {{.*}} step %c16_i64
// CHECK-COUNT-16: llvm.load {{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK-COUNT-64: vector.shuffle {{.*}} : vector<16xf32>, vector<16xf32>
// CHECK-COUNT-16: llvm.store {{.*}} : vector<16xf32>, !llvm.ptr
// CHECK-NOT: gather
// CHECK: return

// The lanes of a row run in pieces where a concatenation goes from one operand
// to the next: no position is compared, no load is masked but the last one's.
// CHECK-LABEL: func.func @k7_index_cat
// CHECK: scf.for {{.*}} step %c64_i64
// CHECK-NOT: masked
// CHECK: llvm.store %{{.*}} : vector<64xf32>
// CHECK-NOT: vector<64
// CHECK: scf.for {{.*}} step %c16_i64
// CHECK: masked.load
// CHECK-NOT: masked.load
// CHECK: return

// A running sum is carried by the loop along its dimension, lanes of rows at
// once, and what reads it does so there.

// CHECK-LABEL: func.func @{{k[0-9]+}}_cumsum_neg
// CHECK: scf.for %{{.+}} step %{{.+}} : i64 {
// CHECK: scf.for %{{.+}} iter_args(%[[SUM:.+]] = %{{.+}}) -> (vector<64xf64>)
// CHECK: %[[X:.+]] = arith.extf %{{.+}} : vector<64xf32> to vector<64xf64>
// CHECK: %[[NEXT:.+]] = arith.addf %[[SUM]], %[[X]] : vector<64xf64>
// CHECK: %[[OUT:.+]] = arith.truncf %[[NEXT]]
// CHECK: %[[NEG:.+]] = arith.negf %[[OUT]]
// CHECK: llvm.store %[[NEG]]
// CHECK: scf.yield %[[NEXT]]
func.func @running(%x: !intarsia.tensor<[s0, 512]xf32>) -> !intarsia.tensor<[s0, 512]xf32> attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::cumsum"(self = %x, dim = 0, dtype = none) : (!intarsia.tensor<[s0, 512]xf32>) -> !intarsia.tensor<[s0, 512]xf32>
  %1 = intarsia.call "aten::neg"(self = %0) : (!intarsia.tensor<[s0, 512]xf32>) -> !intarsia.tensor<[s0, 512]xf32>
  return %1 : !intarsia.tensor<[s0, 512]xf32>
}

// Sums of a size known at run time are added in blocks of 64 additions, in
// blocks again; a short row has a loop without blocks.
// CHECK-LABEL: func.func @{{k[0-9]+}}_sum_neg
// CHECK: %[[ONE:.+]] = arith.constant 4096 : i64
// CHECK: %[[SHORT:.+]] = arith.cmpi sle, %{{.+}}, %[[ONE]]
// CHECK: scf.if %[[SHORT]]
// CHECK-NOT: scf.if
// CHECK:   scf.for
// CHECK-NOT: scf.for
// CHECK: } else {
// CHECK:   %[[MANY:.+]] = arith.constant 262144 : i64
// CHECK:   scf.for %{{.+}} to %{{.+}} step %[[MANY]]
// CHECK:     %[[BLOCK:.+]] = arith.constant 4096 : i64
// CHECK:     scf.for %{{.+}} to %{{.+}} step %[[BLOCK]]
// CHECK:       scf.for
func.func @short(%x: !intarsia.tensor<[s0, s1]xf32>) -> !intarsia.tensor<[s0]xf32> attributes {intarsia.symbols = {s0 = [2, unit], s1 = [2, unit]}} {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [1], keepdim = false, dtype = none) : (!intarsia.tensor<[s0, s1]xf32>) -> !intarsia.tensor<[s0]xf32>
  %1 = intarsia.call "aten::neg"(self = %0) : (!intarsia.tensor<[s0]xf32>) -> !intarsia.tensor<[s0]xf32>
  return %1 : !intarsia.tensor<[s0]xf32>
}

// Columns of many rows far apart come in tiles, whose accumulators are in the
// scratch memory, %arg4: they are cleared, row by row is added to those of a
// block and the block's to them, and the rest of the kernel reads them.
// CHECK-LABEL: func.func @{{k[0-9]+}}_sum_neg
// CHECK: %[[TILE:.+]] = arith.constant 1024 : i64
// CHECK: scf.for %[[AT:.+]] = %{{.+}} to %{{.+}} step %[[TILE]]
// CHECK:   scf.for
// CHECK:     llvm.getelementptr %arg4
// CHECK:     llvm.store
// CHECK:   %[[BLOCK:.+]] = arith.constant 64 : i64
// CHECK:   scf.for %{{.+}} to %{{.+}} step %[[BLOCK]]
// CHECK:     %[[ROW:.+]] = arith.constant 1 : i64
// CHECK:     scf.for %{{.+}} to %{{.+}} step %[[ROW]]
// CHECK:       scf.for
// CHECK:         llvm.getelementptr %arg4
// CHECK:         %[[BEFORE:.+]] = llvm.load
// CHECK-COUNT-4: llvm.intr.prefetch
// CHECK:         %[[ELEMENT:.+]] = llvm.load
// CHECK:         %[[AFTER:.+]] = arith.addf %[[BEFORE]], %[[ELEMENT]]
// CHECK:         llvm.store %[[AFTER]]
// CHECK:     llvm.getelementptr %arg4
// CHECK:     llvm.getelementptr %arg4
// CHECK:     arith.addf
// CHECK:     llvm.store
// CHECK:   arith.negf
func.func @tiles(%x: !intarsia.tensor<[4096, 2048]xf32>) -> !intarsia.tensor<[2048]xf32> {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [0], keepdim = false, dtype = none) : (!intarsia.tensor<[4096, 2048]xf32>) -> !intarsia.tensor<[2048]xf32>
  %1 = intarsia.call "aten::neg"(self = %0) : (!intarsia.tensor<[2048]xf32>) -> !intarsia.tensor<[2048]xf32>
  return %1 : !intarsia.tensor<[2048]xf32>
}

// What is read backwards is read forwards and turned round.
// CHECK-LABEL: func.func @{{k[0-9]+}}_flip
// CHECK-NOT: gather
// CHECK: %[[READ:.+]] = llvm.load {{.*}} -> vector<64xf32>
// CHECK: vector.shuffle %[[READ]], %[[READ]] [63, 62
// CHECK-NOT: gather
// CHECK: return
func.func @flip(%x: !intarsia.tensor<[16, 1024]xf32>) -> !intarsia.tensor<[16, 1024]xf32> {
  %0 = intarsia.call "aten::flip"(self = %x, dims = [1]) : (!intarsia.tensor<[16, 1024]xf32>) -> !intarsia.tensor<[16, 1024]xf32>
  return %0 : !intarsia.tensor<[16, 1024]xf32>
}
