// RUN: intarsia-opt --lower-calls=devices=cpu,cuda %s | FileCheck %s

// A running reduction keeps the accumulator after each element: its maps are
// all the identity. float32 accumulates in double.

// CHECK-LABEL: func.func @sum
// CHECK: arith.extf %{{.+}} : f32 to f64
// CHECK: %[[START:.+]] = linalg.fill ins(%{{.+}} : f64) outs(%{{.+}} : tensor<?x8xf64>)
// CHECK: linalg.generic
// CHECK-SAME: indexing_maps = [#[[ID:.+]], #[[ID]]]
// CHECK-SAME: iterator_types = ["reduction", "parallel"]
// CHECK-SAME: outs(%[[START]] : tensor<?x8xf64>)
// CHECK-NEXT: ^bb0(%[[E:.+]]: f64, %[[ACC:.+]]: f64):
// CHECK-NEXT: %[[S:.+]] = arith.addf %[[ACC]], %[[E]] : f64
// CHECK-NEXT: linalg.yield %[[S]] : f64
// CHECK: arith.truncf %{{.+}} : f64 to f32
func.func @sum(%x: !intarsia.tensor<[s0, 8]xf32>) -> !intarsia.tensor<[s0, 8]xf32> {
  %0 = intarsia.call "aten::cumsum"(self = %x, dim = -2, dtype = none)
    : (!intarsia.tensor<[s0, 8]xf32>) -> !intarsia.tensor<[s0, 8]xf32>
  return %0 : !intarsia.tensor<[s0, 8]xf32>
}

// bool counts in i64.

// CHECK-LABEL: func.func @count
// CHECK: arith.extui %{{.+}} : i1 to i64
// CHECK: arith.addi {{.+}} : i64
func.func @count(%x: !intarsia.tensor<[8]xbool>) -> !intarsia.tensor<[8]xi64> {
  %0 = intarsia.call "aten::cumsum"(self = %x, dim = 0, dtype = none)
    : (!intarsia.tensor<[8]xbool>) -> !intarsia.tensor<[8]xi64>
  return %0 : !intarsia.tensor<[8]xi64>
}

// The last of equal elements, and NaN for good.

// CHECK-LABEL: func.func @extremum
// CHECK: linalg.fill {{.*}} : tensor<4x5xi64>
// CHECK-NEXT: linalg.generic
// CHECK-SAME: iterator_types = ["reduction", "parallel"]
// CHECK-SAME: outs(%{{.+}}, %{{.+}} : tensor<4x5xf32>, tensor<4x5xi64>)
// CHECK: arith.cmpf oge
// CHECK: arith.cmpf une
// CHECK: linalg.yield %{{.+}}, %{{.+}} : f32, i64
func.func @extremum(%x: !intarsia.tensor<[4, 5]xf32>) -> (!intarsia.tensor<[4, 5]xf32>, !intarsia.tensor<[4, 5]xi64>) {
  %0:2 = intarsia.call "aten::cummax"(self = %x, dim = 0)
    : (!intarsia.tensor<[4, 5]xf32>) -> (!intarsia.tensor<[4, 5]xf32>, !intarsia.tensor<[4, 5]xi64>)
  return %0#0, %0#1 : !intarsia.tensor<[4, 5]xf32>, !intarsia.tensor<[4, 5]xi64>
}

// On CUDA a row is a warp's: few long ones are PyTorch's, which shares out a row.

!few = !intarsia.tensor<[511, 1025]xf32, device = "cuda:0">
!many = !intarsia.tensor<[512, 1025]xf32, device = "cuda:0">
!short = !intarsia.tensor<[s0, 1024]xf32, device = "cuda:0">
!unknown = !intarsia.tensor<[512, s0]xf32, device = "cuda:0">
// CHECK-LABEL: func.func @cuda
// CHECK: intarsia.call "aten::cumsum"
// CHECK: intarsia.kernel{{.*}}ops ["aten::cumsum"]
// CHECK: intarsia.kernel{{.*}}ops ["aten::cummax"]
// CHECK: intarsia.call "aten::cumsum"
func.func @cuda(%a: !few, %b: !many, %c: !short, %d: !unknown) -> (!few, !many, !short, !unknown)
    attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::cumsum"(self = %a, dim = 1, dtype = none) : (!few) -> !few
  %1 = intarsia.call "aten::cumsum"(self = %b, dim = 1, dtype = none) : (!many) -> !many
  %2:2 = intarsia.call "aten::cummax"(self = %c, dim = 1)
    : (!short) -> (!short, !intarsia.tensor<[s0, 1024]xi64, device = "cuda:0">)
  %3 = intarsia.call "aten::cumsum"(self = %d, dim = 1, dtype = none) : (!unknown) -> !unknown
  return %0, %1, %2#0, %3 : !few, !many, !short, !unknown
}

// Where no rows lie side by side, PyTorch's loops are faster.

// CHECK-LABEL: func.func @alone
// CHECK: intarsia.call "aten::cummin"
// CHECK: intarsia.call "aten::logcumsumexp"
func.func @alone(%x: !intarsia.tensor<[4, 5]xf32>, %y: !intarsia.tensor<[1, 5]xf32>) -> (!intarsia.tensor<[4, 5]xf32>, !intarsia.tensor<[1, 5]xf32>) {
  %0:2 = intarsia.call "aten::cummin"(self = %x, dim = 1)
    : (!intarsia.tensor<[4, 5]xf32>) -> (!intarsia.tensor<[4, 5]xf32>, !intarsia.tensor<[4, 5]xi64>)
  %1 = intarsia.call "aten::logcumsumexp"(self = %y, dim = 1)
    : (!intarsia.tensor<[1, 5]xf32>) -> !intarsia.tensor<[1, 5]xf32>
  return %0#0, %1 : !intarsia.tensor<[4, 5]xf32>, !intarsia.tensor<[1, 5]xf32>
}

// A tensor without dimensions is left to the operator.

// CHECK-LABEL: func.func @scalar
// CHECK: intarsia.call "aten::cumprod"
func.func @scalar(%x: !intarsia.tensor<[]xf32>) -> !intarsia.tensor<[]xf32> {
  %0 = intarsia.call "aten::cumprod"(self = %x, dim = 0, dtype = none)
    : (!intarsia.tensor<[]xf32>) -> !intarsia.tensor<[]xf32>
  return %0 : !intarsia.tensor<[]xf32>
}
