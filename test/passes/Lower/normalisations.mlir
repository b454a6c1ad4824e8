// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// CHECK-LABEL: func.func @softmax
// CHECK: arith.extf
// CHECK: arith.maximumf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: arith.truncf {{.+}} : f32 to bf16
func.func @softmax(%x: !intarsia.tensor<[2, s0, 9]xbf16>) -> !intarsia.tensor<[2, s0, 9]xbf16> {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = -2, half_to_float = false)
    : (!intarsia.tensor<[2, s0, 9]xbf16>) -> !intarsia.tensor<[2, s0, 9]xbf16>
  return %0 : !intarsia.tensor<[2, s0, 9]xbf16>
}

// Statistics that nobody reads are not made.

// CHECK-LABEL: func.func @layer_norm
// CHECK: %[[KERNEL:.+]] = intarsia.kernel
// CHECK-SAME: -> !intarsia.tensor<[s0, 9]xf32> {
// CHECK-NOT: tensor.expand_shape
// CHECK: return %[[KERNEL]]
func.func @layer_norm(%x: !intarsia.tensor<[s0, 9]xf32>, %w: !intarsia.tensor<[9]xf32>, %b: !intarsia.tensor<[9]xf32>) -> !intarsia.tensor<[s0, 9]xf32> {
  %0:3 = intarsia.call "aten::native_layer_norm"(input = %x, normalized_shape = [9], weight = %w, bias = %b, eps = 1.0e-5)
    : (!intarsia.tensor<[s0, 9]xf32>, !intarsia.tensor<[9]xf32>, !intarsia.tensor<[9]xf32>)
    -> (!intarsia.tensor<[s0, 9]xf32>, !intarsia.tensor<[s0, 1]xf32>, !intarsia.tensor<[s0, 1]xf32>)
  return %0#0 : !intarsia.tensor<[s0, 9]xf32>
}

// Three gradients, of which one reduces rows and two reduce columns.

// CHECK-LABEL: func.func @layer_norm_backward
// CHECK: intarsia.kernel
// CHECK-DAG: iterator_types = ["parallel", "reduction"]
// CHECK-DAG: iterator_types = ["reduction", "parallel"]
// CHECK: intarsia.yield %{{.+}}, %{{.+}}, %{{.+}} : tensor<?x9xf32>, tensor<9xf32>, tensor<9xf32>
func.func @layer_norm_backward(%g: !intarsia.tensor<[s0, 9]xf32>, %m: !intarsia.tensor<[s0, 1]xf32>, %w: !intarsia.tensor<[9]xf32>)
    -> (!intarsia.tensor<[s0, 9]xf32>, !intarsia.tensor<[9]xf32>, !intarsia.tensor<[9]xf32>) {
  %0:3 = intarsia.call "aten::native_layer_norm_backward"(grad_out = %g, input = %g, normalized_shape = [9], mean = %m, rstd = %m, weight = %w, bias = %w, output_mask = [true, true, true])
    : (!intarsia.tensor<[s0, 9]xf32>, !intarsia.tensor<[s0, 1]xf32>, !intarsia.tensor<[9]xf32>)
    -> (!intarsia.tensor<[s0, 9]xf32>, !intarsia.tensor<[9]xf32>, !intarsia.tensor<[9]xf32>)
  return %0#0, %0#1, %0#2 : !intarsia.tensor<[s0, 9]xf32>, !intarsia.tensor<[9]xf32>, !intarsia.tensor<[9]xf32>
}
