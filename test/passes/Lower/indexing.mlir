// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// A position is checked, and clamped so that a wrong one reads nothing foreign.

// CHECK-LABEL: func.func @embedding
// CHECK: ^bb0(%[[W:.+]]: tensor<11x3xf32>, %{{.+}}: tensor<?xi64>, %{{.+}}: index):
// CHECK: ^bb0(%[[I:.+]]: i64, %{{.+}}: f32):
// CHECK: %[[COLUMN:.+]] = linalg.index 1 : index
// CHECK: intarsia.check_index %{{.+}}, %{{.+}} of %{{.+}}, "aten::embedding: index out of range in self (index {index}, size {size})" index_error
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: tensor.extract %[[W]][%{{.+}}, %[[COLUMN]]] : tensor<11x3xf32>
func.func @embedding(%w: !intarsia.tensor<[11, 3]xf32>, %i: !intarsia.tensor<[s0]xi64>) -> !intarsia.tensor<[s0, 3]xf32> {
  %0 = intarsia.call "aten::embedding"(weight = %w, indices = %i, padding_idx = -1, scale_grad_by_freq = false, sparse = false)
    : (!intarsia.tensor<[11, 3]xf32>, !intarsia.tensor<[s0]xi64>) -> !intarsia.tensor<[s0, 3]xf32>
  return %0 : !intarsia.tensor<[s0, 3]xf32>
}

// Index tensors that stand apart go to the front of the result, and wrap.

// CHECK-LABEL: func.func @index
// CHECK: tensor<2x3x4x5xf32>
// CHECK: %[[D1:.+]] = linalg.index 1 : index
// CHECK: %[[D2:.+]] = linalg.index 2 : index
// CHECK: arith.addi
// CHECK: intarsia.check_index {{.+}}, "aten::index: index {index} is out of bounds for dimension 0 with size {size}" index_error
// CHECK: intarsia.check_index {{.+}}, "aten::index: index {index} is out of bounds for dimension 2 with size {size}" index_error
// CHECK: tensor.extract %{{.+}}[%{{.+}}, %[[D1]], %{{.+}}, %[[D2]]]
func.func @index(%x: !intarsia.tensor<[2, 3, 4, 5]xf32>, %i: !intarsia.tensor<[7]xi64>) -> !intarsia.tensor<[7, 3, 5]xf32> {
  %0 = intarsia.call "aten::index.Tensor"(self = %x, indices = [%i, none, %i])
    : (!intarsia.tensor<[2, 3, 4, 5]xf32>, !intarsia.tensor<[7]xi64>) -> !intarsia.tensor<[7, 3, 5]xf32>
  return %0 : !intarsia.tensor<[7, 3, 5]xf32>
}

// A mask as an index has a size that is data.

// CHECK-LABEL: func.func @mask
// CHECK: intarsia.call "aten::index.Tensor"
func.func @mask(%x: !intarsia.tensor<[4]xf32>, %m: !intarsia.tensor<[4]xbool>) -> !intarsia.tensor<[u0]xf32> {
  %0 = intarsia.call "aten::index.Tensor"(self = %x, indices = [%m]) {binds = [#intarsia.bind<"u0" = 0, "size:0">]}
    : (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xbool>) -> !intarsia.tensor<[u0]xf32>
  return %0 : !intarsia.tensor<[u0]xf32>
}

// One index a row: no two values go to the same place.

// CHECK-LABEL: func.func @scatter
// CHECK: intarsia.check_index {{.+}}, "aten::scatter: index {index} is out of bounds for dimension 1 with size {size}"{{$}}
// CHECK: arith.cmpi eq
// CHECK: arith.select
func.func @scatter(%x: !intarsia.tensor<[s0, 5]xf32>, %i: !intarsia.tensor<[s0, 1]xi64>) -> !intarsia.tensor<[s0, 5]xf32> {
  %0 = intarsia.call "aten::scatter.value"(self = %x, dim = 1, index = %i, value = 2.5)
    : (!intarsia.tensor<[s0, 5]xf32>, !intarsia.tensor<[s0, 1]xi64>) -> !intarsia.tensor<[s0, 5]xf32>
  return %0 : !intarsia.tensor<[s0, 5]xf32>
}

// Several may: the library's order decides.

// CHECK-LABEL: func.func @scatter_several
// CHECK: intarsia.call "aten::scatter.value"
func.func @scatter_several(%x: !intarsia.tensor<[s0, 5]xf32>, %i: !intarsia.tensor<[s0, 2]xi64>) -> !intarsia.tensor<[s0, 5]xf32> {
  %0 = intarsia.call "aten::scatter.value"(self = %x, dim = 1, index = %i, value = 2.5)
    : (!intarsia.tensor<[s0, 5]xf32>, !intarsia.tensor<[s0, 2]xi64>) -> !intarsia.tensor<[s0, 5]xf32>
  return %0 : !intarsia.tensor<[s0, 5]xf32>
}

// A number where a mask is true is a choice; where indices say, a call.
// CHECK-LABEL: func.func @masked
// CHECK: intarsia.kernel(%arg0, %arg2, %arg1) ops ["aten::index_put"]
// CHECK: arith.select
// CHECK: intarsia.call "aten::index_put"
func.func @masked(%x: !intarsia.tensor<[4, 8]xf32>, %m: !intarsia.tensor<[4]xbool>, %v: !intarsia.tensor<[]xf32>, %i: !intarsia.tensor<[2]xi64>) -> (!intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[4, 8]xf32>) {
  %0 = intarsia.call "aten::index_put"(self = %x, indices = [%m], values = %v, accumulate = false) : (!intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[4]xbool>, !intarsia.tensor<[]xf32>) -> !intarsia.tensor<[4, 8]xf32>
  %1 = intarsia.call "aten::index_put"(self = %x, indices = [%i], values = %v, accumulate = false) : (!intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[2]xi64>, !intarsia.tensor<[]xf32>) -> !intarsia.tensor<[4, 8]xf32>
  return %0, %1 : !intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[4, 8]xf32>
}
