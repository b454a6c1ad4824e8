// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// By a whole factor an image is enlarged by an index map: no position is data.

// CHECK-LABEL: func.func @whole_factor
// CHECK: intarsia.kernel
// CHECK-NOT: tensor.extract
// CHECK: tensor.collapse_shape
func.func @whole_factor(%x: !intarsia.tensor<[2, 3, s0, 7]xf32>) -> !intarsia.tensor<[2, 3, "2*s0", 14]xf32> {
  %n = intarsia.size "2*s0" : index
  %0 = intarsia.call "aten::upsample_nearest2d"(self = %x, output_size = [%n, 14], scales_h = none, scales_w = none)
    : (!intarsia.tensor<[2, 3, s0, 7]xf32>, index) -> !intarsia.tensor<[2, 3, "2*s0", 14]xf32>
  return %0 : !intarsia.tensor<[2, 3, "2*s0", 14]xf32>
}

// Otherwise positions are computed in f32, and stay inside.

// CHECK-LABEL: func.func @other_factor
// CHECK: math.floor %{{.+}} : f32
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: tensor.extract
func.func @other_factor(%x: !intarsia.tensor<[2, 3, 5, 7]xf32>) -> !intarsia.tensor<[2, 3, 8, 7]xf32> {
  %0 = intarsia.call "aten::upsample_nearest2d"(self = %x, output_size = [8, 7], scales_h = none, scales_w = none)
    : (!intarsia.tensor<[2, 3, 5, 7]xf32>) -> !intarsia.tensor<[2, 3, 8, 7]xf32>
  return %0 : !intarsia.tensor<[2, 3, 8, 7]xf32>
}

// The gradient is a sum over blocks.

// CHECK-LABEL: func.func @backward
// CHECK: tensor.expand_shape
// CHECK: iterator_types = ["parallel", "parallel", "parallel", "reduction", "parallel", "reduction"]
func.func @backward(%g: !intarsia.tensor<[2, 3, 10, 14]xf32>) -> !intarsia.tensor<[2, 3, 5, 7]xf32> {
  %0 = intarsia.call "aten::upsample_nearest2d_backward"(grad_output = %g, output_size = [10, 14], input_size = [2, 3, 5, 7], scales_h = none, scales_w = none)
    : (!intarsia.tensor<[2, 3, 10, 14]xf32>) -> !intarsia.tensor<[2, 3, 5, 7]xf32>
  return %0 : !intarsia.tensor<[2, 3, 5, 7]xf32>
}
