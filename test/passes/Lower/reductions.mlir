// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// A reduction's body is its combiner and nothing else; what is computed before
// it is a step of its own. bf16 accumulates in f32.

// CHECK-LABEL: func.func @sum
// CHECK: arith.extf %{{.+}} : bf16 to f32
// CHECK: %[[START:.+]] = linalg.fill ins(%{{.+}} : f32) outs(%{{.+}} : tensor<?xf32>)
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["reduction", "parallel"]
// CHECK-SAME: outs(%[[START]] : tensor<?xf32>)
// CHECK-NEXT: ^bb0(%[[E:.+]]: f32, %[[ACC:.+]]: f32):
// CHECK-NEXT: %[[S:.+]] = arith.addf %[[ACC]], %[[E]] : f32
// CHECK-NEXT: linalg.yield %[[S]] : f32
// CHECK: arith.truncf %{{.+}} : f32 to bf16
// CHECK: tensor.expand_shape %{{.+}} {{\[}}[0, 1]] output_shape [1, %{{.+}}] : tensor<?xbf16> into tensor<1x?xbf16>
func.func @sum(%x: !intarsia.tensor<[3, s0]xbf16>) -> !intarsia.tensor<[1, s0]xbf16> {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [0], keepdim = true, dtype = none)
    : (!intarsia.tensor<[3, s0]xbf16>) -> !intarsia.tensor<[1, s0]xbf16>
  return %0 : !intarsia.tensor<[1, s0]xbf16>
}

// Integers and bool add up in i64; the mean of a symbolic number of elements.

// CHECK-LABEL: func.func @counts
// CHECK: arith.extui %{{.+}} : i1 to i64
// CHECK: arith.addi {{.+}} : i64
// CHECK: ops ["aten::mean"]
// CHECK: %[[N:.+]] = arith.sitofp %{{.+}} : i64 to f32
// CHECK: arith.divf %{{.+}}, %[[N]] : f32
func.func @counts(%x: !intarsia.tensor<[3, s0]xbool>, %y: !intarsia.tensor<[3, s0]xf32>) -> (!intarsia.tensor<[]xi64>, !intarsia.tensor<[]xf32>) {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none)
    : (!intarsia.tensor<[3, s0]xbool>) -> !intarsia.tensor<[]xi64>
  %1 = intarsia.call "aten::mean"(self = %y, dtype = none)
    : (!intarsia.tensor<[3, s0]xf32>) -> !intarsia.tensor<[]xf32>
  return %0, %1 : !intarsia.tensor<[]xi64>, !intarsia.tensor<[]xf32>
}

// Two results at once; NaN wins, then the lower position.

// CHECK-LABEL: func.func @extremum
// CHECK: arith.constant 0xFF800000 : f32
// CHECK: arith.constant 9223372036854775807 : i64
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "reduction"]
// CHECK-SAME: outs(%{{.+}}, %{{.+}} : tensor<4xf32>, tensor<4xi64>)
// CHECK: arith.cmpf ogt
// CHECK: arith.cmpf une
// CHECK: arith.cmpi slt
// CHECK: linalg.yield %{{.+}}, %{{.+}} : f32, i64
func.func @extremum(%x: !intarsia.tensor<[4, 5]xf32>) -> (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xi64>) {
  %0:2 = intarsia.call "aten::max.dim"(self = %x, dim = 1, keepdim = false)
    : (!intarsia.tensor<[4, 5]xf32>) -> (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xi64>)
  return %0#0, %0#1 : !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xi64>
}

// A variance accumulates in f64; any is an "or" on bytes.

// CHECK-LABEL: func.func @variance
// CHECK: arith.extf %{{.+}} : f32 to f64
// CHECK: arith.addf {{.+}} : f64
// CHECK: math.sqrt %{{.+}} : f64
// CHECK: ops ["aten::any.dim"]
// CHECK: arith.maxui {{.+}} : i8
func.func @variance(%x: !intarsia.tensor<[4, 5]xf32>) -> (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xbool>) {
  %0 = intarsia.call "aten::std.correction"(self = %x, dim = [1], correction = 0, keepdim = false)
    : (!intarsia.tensor<[4, 5]xf32>) -> !intarsia.tensor<[4]xf32>
  %1 = intarsia.call "aten::any.dim"(self = %x, dim = 1, keepdim = false)
    : (!intarsia.tensor<[4, 5]xf32>) -> !intarsia.tensor<[4]xbool>
  return %0, %1 : !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xbool>
}
