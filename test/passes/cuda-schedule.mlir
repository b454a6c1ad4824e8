// RUN: intarsia-opt --cuda-schedule %s | FileCheck %s

// One thread an element: one loop over all dimensions, whatever the strides.

!t = !intarsia.tensor<[s0, 8]xf32, device = "cuda:0">
!transposed = !intarsia.tensor<[s0, 8]xf32, strides = [1, s0], device = "cuda:0">
!row = !intarsia.tensor<[s0]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @pointwise
// CHECK: intarsia.kernel
// CHECK-SAME: domain = #intarsia.expr<"8*s0">
// CHECK-SAME: flat
// CHECK-SAME: lanes = 1
// CHECK-SAME: loops = [array<i64: 0, 1>]
// CHECK-SAME: row_loops = 0
// CHECK-SAME: threads = 256
func.func @pointwise(%x: !t) -> !transposed attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %r = intarsia.kernel(%x) symbols [s0] ops ["aten::neg"]
      decisions {space = [#intarsia.expr<"s0">, #intarsia.expr<"8">], rows = 2 : i64} : (!t) -> !transposed {
  ^bb0(%a: tensor<?x8xf32>, %n: index):
    intarsia.yield %a : tensor<?x8xf32>
  }
  return %r : !transposed
}

// One thread a row. The size of the row is needed, so it becomes a symbol.

// CHECK-LABEL: func.func @rows
// CHECK: intarsia.kernel
// CHECK-SAME: symbols [s0]
// CHECK-SAME: domain = #intarsia.expr<"s0">
// CHECK-NOT: flat
// CHECK-SAME: loops = [array<i64: 0>, array<i64: 1>]
// CHECK-SAME: row_loops = 1
// CHECK-SAME: threads = 64
// CHECK-NOT: vector_roots
func.func @rows(%x: !t) -> !row attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %r = intarsia.kernel(%x) ops ["aten::sum"]
      decisions {space = [#intarsia.expr<"s0">, #intarsia.expr<"8">], rows = 1 : i64} : (!t) -> !row {
  ^bb0(%a: tensor<?x8xf32>):
    %c0 = arith.constant 0 : index
    %n = tensor.dim %a, %c0 : tensor<?x8xf32>
    %e = tensor.empty(%n) : tensor<?xf32>
    intarsia.yield %e : tensor<?xf32>
  }
  return %r : !row
}
