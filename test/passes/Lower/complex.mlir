// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// A complex number is an integer of the bits of its parts.

// CHECK-LABEL: func.func @product
// CHECK: linalg.generic
// CHECK: ^bb0(%{{.+}}: i64, %{{.+}}: i64, %{{.+}}: i64):
// CHECK-COUNT-4: arith.mulf %{{.+}}, %{{.+}} : f32
// CHECK: arith.ori
// CHECK: linalg.yield %{{.+}} : i64
func.func @product(%x: !intarsia.tensor<[s0]xc64>) -> !intarsia.tensor<[s0]xc64> {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %x)
    : (!intarsia.tensor<[s0]xc64>) -> !intarsia.tensor<[s0]xc64>
  return %0 : !intarsia.tensor<[s0]xc64>
}

// What a lazy view shows is computed for kernels that read it ...

// CHECK-LABEL: func.func @views
// CHECK-NOT: intarsia.call
// CHECK: intarsia.kernel({{.*}} ops ["aten::_conj"]
// CHECK: intarsia.kernel({{.*}} ops ["aten::select.int"]
// CHECK: intarsia.kernel({{.*}} ops ["aten::mul.Tensor"]
func.func @views(%x: !intarsia.tensor<[s0]xc64>) -> !intarsia.tensor<[s0]xc64> {
  %0 = intarsia.call "aten::_conj"(self = %x) {views = array<i64: 0>}
    : (!intarsia.tensor<[s0]xc64>) -> !intarsia.tensor<[s0]xc64>
  %1 = intarsia.call "aten::view_as_real"(self = %x) {views = array<i64: 0>}
    : (!intarsia.tensor<[s0]xc64>) -> !intarsia.tensor<[s0, 2]xf32>
  %2 = intarsia.call "aten::select.int"(self = %1, dim = -1, index = 1) {views = array<i64: 0>}
    : (!intarsia.tensor<[s0, 2]xf32>) -> !intarsia.tensor<[s0]xf32, strides = [2]>
  %3 = intarsia.call "aten::mul.Tensor"(self = %0, other = %2)
    : (!intarsia.tensor<[s0]xc64>, !intarsia.tensor<[s0]xf32, strides = [2]>) -> !intarsia.tensor<[s0]xc64>
  return %3 : !intarsia.tensor<[s0]xc64>
}

// ... and stays a view where somebody else sees it.

// CHECK-LABEL: func.func @seen
// CHECK: intarsia.call "aten::_conj"
// CHECK: intarsia.kernel
func.func @seen(%x: !intarsia.tensor<[s0]xc64>) -> (!intarsia.tensor<[s0]xc64>, !intarsia.tensor<[s0]xc64>) {
  %0 = intarsia.call "aten::_conj"(self = %x) {views = array<i64: 0>}
    : (!intarsia.tensor<[s0]xc64>) -> !intarsia.tensor<[s0]xc64>
  %1 = intarsia.call "aten::neg"(self = %0)
    : (!intarsia.tensor<[s0]xc64>) -> !intarsia.tensor<[s0]xc64>
  return %0, %1 : !intarsia.tensor<[s0]xc64>, !intarsia.tensor<[s0]xc64>
}

// Eager warns of what this drops.

// CHECK-LABEL: func.func @dropped
// CHECK: intarsia.call "aten::_to_copy"
func.func @dropped(%x: !intarsia.tensor<[4]xc64>) -> !intarsia.tensor<[4]xf32> {
  %0 = intarsia.call "aten::_to_copy"(self = %x, dtype = dtype<f32>, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none)
    : (!intarsia.tensor<[4]xc64>) -> !intarsia.tensor<[4]xf32>
  return %0 : !intarsia.tensor<[4]xf32>
}
