// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// Operators of programs that were not decomposed.

!mat = !intarsia.tensor<[s0, 12]xf32>
!vec = !intarsia.tensor<[12]xf32>
!pair = !intarsia.tensor<[s0, 6]xf32, strides = [12, 1]>

// Pieces are views, whose readers look through them.
// CHECK-LABEL: func.func @pieces
// CHECK: intarsia.call "aten::slice.Tensor"(self = %{{.+}}, dim = 1, start = 0, end = 6, step = 1)
// CHECK: intarsia.call "aten::slice.Tensor"(self = %{{.+}}, dim = 1, start = 6, end = 12, step = 1)
// CHECK-NOT: tensor_split
func.func @pieces(%x: !mat) -> (!pair, !pair) {
  %0:2 = intarsia.call "aten::tensor_split.sections"(self = %x, sections = 2, dim = 1) {views = array<i64: 0, 0>} : (!mat) -> (!pair, !pair)
  return %0#0, %0#1 : !pair, !pair
}

// One weight a channel.
// CHECK-LABEL: func.func @prelu
// CHECK-NOT: intarsia.call "aten::prelu"
// CHECK: intarsia.kernel
func.func @prelu(%x: !mat, %w: !vec) -> !mat {
  %0 = intarsia.call "aten::prelu"(self = %x, weight = %w) : (!mat, !vec) -> !mat
  return %0 : !mat
}

// In training it draws random numbers.
// CHECK-LABEL: func.func @rrelu
// CHECK: intarsia.kernel
// CHECK: intarsia.call "aten::rrelu"{{.*}}training = true
func.func @rrelu(%x: !mat) -> (!mat, !mat) {
  %0 = intarsia.call "aten::rrelu"(self = %x, lower = 0.125, upper = 0.25, training = false, generator = none) : (!mat) -> !mat
  %1 = intarsia.call "aten::rrelu"(self = %x, lower = 0.125, upper = 0.25, training = true, generator = none) {random} : (!mat) -> !mat
  return %0, %1 : !mat, !mat
}
