// RUN: intarsia-opt --lower-calls %s | FileCheck %s
// RUN: intarsia-opt --lower-calls=devices=cpu,cuda %s | FileCheck %s --check-prefix=CUDA

// What stays a call, and why.

// CHECK-LABEL: func.func @unknown
// CHECK: intarsia.call "mylib::exp"
func.func @unknown(%x: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32> {
  %0 = intarsia.call "mylib::exp"(self = %x) : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  return %0 : !intarsia.tensor<[4]xf32>
}

// CHECK-LABEL: func.func @complex
// CHECK: intarsia.call "aten::exp2"
func.func @complex(%x: !intarsia.tensor<[4]xc64>) -> !intarsia.tensor<[4]xc64> {
  %0 = intarsia.call "aten::exp2"(self = %x) : (!intarsia.tensor<[4]xc64>) -> !intarsia.tensor<[4]xc64>
  return %0 : !intarsia.tensor<[4]xc64>
}

// A copy from one device to another is nobody's kernel. Nothing is compiled for
// a device that was not asked for.

// CHECK-LABEL: func.func @devices
// CHECK: intarsia.call "aten::_to_copy"
// CHECK-NOT: intarsia.kernel
// CHECK: intarsia.call "aten::exp"
// CUDA-LABEL: func.func @devices
// CUDA: intarsia.call "aten::_to_copy"
// CUDA: intarsia.kernel
// CUDA-NEXT: ^bb0
func.func @devices(%x: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32, device = "cuda:0"> {
  %0 = intarsia.call "aten::_to_copy"(self = %x, dtype = none, layout = none, device = device<"cuda:0">, pin_memory = none, non_blocking = false, memory_format = none)
    : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32, device = "cuda:0">
  %1 = intarsia.call "aten::exp"(self = %0) : (!intarsia.tensor<[4]xf32, device = "cuda:0">) -> !intarsia.tensor<[4]xf32, device = "cuda:0">
  return %1 : !intarsia.tensor<[4]xf32, device = "cuda:0">
}

// CHECK-LABEL: func.func @random
// CHECK: intarsia.call "aten::clone"
// CHECK: intarsia.call "aten::clone"
// CHECK: intarsia.call "aten::exp"
func.func @random(%x: !intarsia.tensor<[4]xf32>, %empty: !intarsia.tensor<[0, 3]xf32>)
    -> (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[0, 3]xf32>) {
  %0 = intarsia.call "aten::clone"(self = %x, memory_format = none) {random}
    : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  %1 = intarsia.call "aten::clone"(self = %x, memory_format = none) {effectful}
    : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  %2 = intarsia.call "aten::exp"(self = %empty) : (!intarsia.tensor<[0, 3]xf32>) -> !intarsia.tensor<[0, 3]xf32>
  return %0, %1, %2 : !intarsia.tensor<[4]xf32>, !intarsia.tensor<[4]xf32>, !intarsia.tensor<[0, 3]xf32>
}

// Sizes that the types do not say are equal.

// CHECK-LABEL: func.func @unproved
// CHECK: intarsia.call "aten::add.Tensor"
func.func @unproved(%x: !intarsia.tensor<[u0]xf32>, %y: !intarsia.tensor<[u1]xf32>) -> !intarsia.tensor<[u0]xf32> {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %y, alpha = 1)
    : (!intarsia.tensor<[u0]xf32>, !intarsia.tensor<[u1]xf32>) -> !intarsia.tensor<[u0]xf32>
  return %0 : !intarsia.tensor<[u0]xf32>
}

// CHECK-LABEL: func.func @aliasing
// CHECK: intarsia.call "aten::exp"
func.func @aliasing(%x: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32> attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::exp"(self = %x) {aliasing} : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  return %0 : !intarsia.tensor<[4]xf32>
}

// By value, an update in place is its twin's result; a comparison stores a number.

// CHECK-LABEL: func.func @in_place
// CHECK-NEXT: intarsia.kernel(%arg0) {{.*}}ops ["aten::exp"]
// CHECK: intarsia.call "aten::eq_.Scalar"
func.func @in_place(%x: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32> {
  %0 = intarsia.call "aten::exp_"(self = %x) mutates(%x) returns(tied) : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  %1 = intarsia.call "aten::eq_.Scalar"(self = %0, other = 1) mutates(%0) returns(tied) : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  return %1 : !intarsia.tensor<[4]xf32>
}

// In a region of autocast all is left to the operators.

// CHECK-LABEL: func.func @autocast
// CHECK: intarsia.call "aten::exp"
func.func @autocast(%x: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32> attributes {intarsia.autocast} {
  %0 = intarsia.call "aten::exp"(self = %x) : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  return %0 : !intarsia.tensor<[4]xf32>
}

// Views are looked through later, by fusion.

// CHECK-LABEL: func.func @view
// CHECK: intarsia.call "aten::t"
func.func @view(%x: !intarsia.tensor<[4, 3]xf32>) -> !intarsia.tensor<[3, 4]xf32, strides = [1, 3]> {
  %0 = intarsia.call "aten::t"(self = %x) {views = array<i64: 0>} : (!intarsia.tensor<[4, 3]xf32>) -> !intarsia.tensor<[3, 4]xf32, strides = [1, 3]>
  return %0 : !intarsia.tensor<[3, 4]xf32, strides = [1, 3]>
}

// A result of another rank than the operator's has no lowering.
// CHECK-LABEL: func.func @vector_of_an_identity
// CHECK: intarsia.call "aten::eye.m"
func.func @vector_of_an_identity(%x: !intarsia.tensor<[4, 4]xf32>) -> !intarsia.tensor<[4]xf32> {
  %0 = intarsia.call "aten::eye.m"(self = %x) : (!intarsia.tensor<[4, 4]xf32>) -> !intarsia.tensor<[4]xf32>
  return %0 : !intarsia.tensor<[4]xf32>
}
