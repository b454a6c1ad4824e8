// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// Statistics of float32 are summed in double, and everything is one kernel: the
// result, what the backward pass wants, the new running statistics.

// CHECK-LABEL: func.func @batch_norm
// CHECK: %[[KERNEL:.+]]:3 = intarsia.kernel
// CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel", "reduction"]
// CHECK: arith.addf %{{.+}}, %{{.+}} : f64
// CHECK: math.sqrt %{{.+}} : f64
// CHECK-NOT: intarsia.call
// CHECK: return %[[KERNEL]]#0, %[[KERNEL]]#1, %[[KERNEL]]#2
func.func @batch_norm(%x: !intarsia.tensor<[s0, 4, 9]xf32>, %c: !intarsia.tensor<[4]xf32>)
    -> (!intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>) {
  %0:5 = intarsia.call "aten::_native_batch_norm_legit_functional"(input = %x, weight = %c, bias = %c, running_mean = %c, running_var = %c, training = true, momentum = 0.1, eps = 1.0e-5)
    : (!intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>)
    -> (!intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>)
  return %0#0, %0#1, %0#4 : !intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>
}

// Without training it reads the running statistics: another operator's work.

// CHECK-LABEL: func.func @frozen
// CHECK: intarsia.call "aten::_native_batch_norm_legit_functional"
func.func @frozen(%x: !intarsia.tensor<[2, 4, 9]xf32>, %c: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[2, 4, 9]xf32> {
  %0:5 = intarsia.call "aten::_native_batch_norm_legit_functional"(input = %x, weight = %c, bias = %c, running_mean = %c, running_var = %c, training = false, momentum = 0.1, eps = 1.0e-5)
    : (!intarsia.tensor<[2, 4, 9]xf32>, !intarsia.tensor<[4]xf32>)
    -> (!intarsia.tensor<[2, 4, 9]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>)
  return %0#0 : !intarsia.tensor<[2, 4, 9]xf32>
}

// All gradients reduce the same rows; one that is masked off is not made.

// CHECK-LABEL: func.func @batch_norm_backward
// CHECK: %[[KERNEL:.+]]:2 = intarsia.kernel
// CHECK-NOT: iterator_types = ["parallel", "reduction"
// CHECK: return %[[KERNEL]]#0, %[[KERNEL]]#1
func.func @batch_norm_backward(%g: !intarsia.tensor<[s0, 4, 9]xf32>, %c: !intarsia.tensor<[4]xf32>) -> (!intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>) {
  %0:2 = intarsia.call "aten::native_batch_norm_backward"(grad_out = %g, input = %g, weight = %c, running_mean = none, running_var = none, save_mean = %c, save_invstd = %c, train = true, eps = 1.0e-5, output_mask = [true, true, false]) returns(0, 1, none)
    : (!intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>) -> (!intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>)
  return %0#0, %0#1 : !intarsia.tensor<[s0, 4, 9]xf32>, !intarsia.tensor<[4]xf32>
}

// With channels last, PyTorch's kernel is faster.

// CHECK-LABEL: func.func @channels_last
// CHECK: intarsia.call "aten::native_batch_norm_backward"
func.func @channels_last(%g: !intarsia.tensor<[2, 4, 9]xf32, strides = [36, 1, 4]>, %c: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32> {
  %0:3 = intarsia.call "aten::native_batch_norm_backward"(grad_out = %g, input = %g, weight = %c, running_mean = none, running_var = none, save_mean = %c, save_invstd = %c, train = true, eps = 1.0e-5, output_mask = [true, true, true])
    : (!intarsia.tensor<[2, 4, 9]xf32, strides = [36, 1, 4]>, !intarsia.tensor<[4]xf32>) -> (!intarsia.tensor<[2, 4, 9]xf32, strides = [36, 1, 4]>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>)
  return %0#1 : !intarsia.tensor<[4]xf32>
}
