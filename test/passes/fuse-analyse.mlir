// RUN: intarsia-opt --lower-calls --fuse-analyse %s | FileCheck %s

// The iteration space of each kernel: the sizes of the largest tensor, and which
// of its dimensions are rows. A row runs along what reductions are along.

// Element by element: rows only.
// CHECK-LABEL: func.func @elements
// CHECK: decisions {rows = 2 : i64, space = [#intarsia.expr<"s0">, #intarsia.expr<"5">]}
func.func @elements(%x: !intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[s0, 5]xf32> {
  %0 = intarsia.call "aten::exp"(self = %x) : (!intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[s0, 5]xf32>
  return %0 : !intarsia.tensor<[s0, 5]xf32>
}

// Rows of the row-major order.
// CHECK-LABEL: func.func @rows
// CHECK: decisions {rows = 1 : i64, space = [#intarsia.expr<"s0">, #intarsia.expr<"5">]}
func.func @rows(%x: !intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[s0, 5]xf32> {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = -1, half_to_float = false) : (!intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[s0, 5]xf32>
  return %0 : !intarsia.tensor<[s0, 5]xf32>
}

// Rows along other dimensions: `order` names those of the rows first.
// CHECK-LABEL: func.func @columns
// CHECK: decisions {order = array<i64: 1, 0>, rows = 1 : i64, space = [#intarsia.expr<"s0">, #intarsia.expr<"5">]}
// CHECK: decisions {order = array<i64: 1, 0, 2>, rows = 1 : i64, space = [#intarsia.expr<"3">, #intarsia.expr<"4">, #intarsia.expr<"5">]}
func.func @columns(%x: !intarsia.tensor<[s0, 5]xf32>, %y: !intarsia.tensor<[3, 4, 5]xf32>) -> (!intarsia.tensor<[s0, 5]xf32>, !intarsia.tensor<[4]xf32>) {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = 0, half_to_float = false) : (!intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[s0, 5]xf32>
  %1 = intarsia.call "aten::sum.dim_IntList"(self = %y, dim = [0, 2], keepdim = false, dtype = none) : (!intarsia.tensor<[3, 4, 5]xf32>) -> !intarsia.tensor<[4]xf32>
  return %0, %1 : !intarsia.tensor<[s0, 5]xf32>, !intarsia.tensor<[4]xf32>
}

// One row.
// CHECK-LABEL: func.func @all
// CHECK: decisions {rows = 0 : i64, space = [#intarsia.expr<"s0">, #intarsia.expr<"5">]}
func.func @all(%x: !intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[]xf32> {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[]xf32>
  return %0 : !intarsia.tensor<[]xf32>
}

// A result a row beside one an element.
// CHECK-LABEL: func.func @layer_norm
// CHECK: intarsia.kernel
// CHECK-SAME: decisions {rows = 1 : i64, space = [#intarsia.expr<"s0">, #intarsia.expr<"8">]}
// CHECK-NOT: intarsia.kernel(
// CHECK: return
func.func @layer_norm(%x: !intarsia.tensor<[s0, 8]xf32>, %w: !intarsia.tensor<[8]xf32>) -> (!intarsia.tensor<[s0, 8]xf32>, !intarsia.tensor<[s0, 1]xf32>, !intarsia.tensor<[s0, 1]xf32>) {
  %0:3 = intarsia.call "aten::native_layer_norm"(input = %x, normalized_shape = [8], weight = %w, bias = %w, eps = 1.000000e-05) : (!intarsia.tensor<[s0, 8]xf32>, !intarsia.tensor<[8]xf32>) -> (!intarsia.tensor<[s0, 8]xf32>, !intarsia.tensor<[s0, 1]xf32>, !intarsia.tensor<[s0, 1]xf32>)
  return %0#0, %0#1, %0#2 : !intarsia.tensor<[s0, 8]xf32>, !intarsia.tensor<[s0, 1]xf32>, !intarsia.tensor<[s0, 1]xf32>
}

// Results that share no space: two kernels, each with what it needs.
#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @split
// CHECK-SAME: (%[[X:.+]]: !intarsia.tensor<[3]xf32>, %[[Y:.+]]: !intarsia.tensor<[s0]xf32>)
// CHECK: intarsia.kernel(%[[X]])
// CHECK-SAME: decisions {rows = 1 : i64, space = [#intarsia.expr<"3">]}
// CHECK-NOT: tensor<?xf32>
// CHECK: intarsia.kernel(%[[Y]]) symbols [s0]
// CHECK-SAME: decisions {rows = 1 : i64, space = [#intarsia.expr<"s0">]}
func.func @split(%x: !intarsia.tensor<[3]xf32>, %y: !intarsia.tensor<[s0]xf32>) -> (!intarsia.tensor<[3]xf32>, !intarsia.tensor<[s0]xf32>) {
  %0:2 = intarsia.kernel(%x, %y) symbols [s0] ops ["my::pair"] : (!intarsia.tensor<[3]xf32>, !intarsia.tensor<[s0]xf32>) -> (!intarsia.tensor<[3]xf32>, !intarsia.tensor<[s0]xf32>) {
  ^bb0(%a: tensor<3xf32>, %b: tensor<?xf32>, %n: index):
    %e = tensor.empty() : tensor<3xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<3xf32>) outs(%e : tensor<3xf32>) {
    ^bb0(%in: f32, %out: f32):
      %1 = arith.negf %in : f32
      linalg.yield %1 : f32
    } -> tensor<3xf32>
    %f = tensor.empty(%n) : tensor<?xf32>
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%b : tensor<?xf32>) outs(%f : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %3 = arith.negf %in : f32
      linalg.yield %3 : f32
    } -> tensor<?xf32>
    intarsia.yield %0, %2 : tensor<3xf32>, tensor<?xf32>
  }
  return %0#0, %0#1 : !intarsia.tensor<[3]xf32>, !intarsia.tensor<[s0]xf32>
}
