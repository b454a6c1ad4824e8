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

// The gradient of a table that is a product's weight too: the rows that were
// looked up are added up where each word is first, and then to the product's.
// CHECK-LABEL: func.func @tied_embedding
// CHECK: %[[MM:.+]] = intarsia.call "aten::mm"
// CHECK: %[[FIRSTS:.+]] = intarsia.call "aten::scatter_reduce.two"({{.*}} index = %[[INDEX:.+]], src = {{.*}} reduce = "amin"
// CHECK: intarsia.kernel(%[[FIRSTS]], %[[INDEX]]) ops ["aten::index_select"]
// CHECK: %[[SUMS:.+]] = intarsia.call "aten::index_add"({{.*}} source = %arg2
// CHECK: %[[RESULT:.+]] = intarsia.call "aten::index_add"(self = %[[MM]], dim = 0, index = %[[INDEX]], source = %[[SUMS]]
// CHECK-NOT: embedding_dense_backward
// CHECK: return %[[RESULT]]
func.func @tied_embedding(%a: !intarsia.tensor<[2048, 8]xf32>, %b: !intarsia.tensor<[8, 512]xf32>, %gradient: !intarsia.tensor<[128, 512]xf32>, %words: !intarsia.tensor<[2, 64]xi64, strides = [65, 1]>) -> !intarsia.tensor<[2048, 512]xf32> {
  %0 = intarsia.call "aten::mm"(self = %a, mat2 = %b) : (!intarsia.tensor<[2048, 8]xf32>, !intarsia.tensor<[8, 512]xf32>) -> !intarsia.tensor<[2048, 512]xf32>
  %1 = intarsia.call "aten::t"(self = %0) {views = array<i64: 0>} : (!intarsia.tensor<[2048, 512]xf32>) -> !intarsia.tensor<[512, 2048]xf32, strides = [1, 512]>
  %2 = intarsia.call "aten::t"(self = %1) {views = array<i64: 0>} : (!intarsia.tensor<[512, 2048]xf32, strides = [1, 512]>) -> !intarsia.tensor<[2048, 512]xf32>
  %3 = intarsia.call "aten::embedding_dense_backward"(grad_output = %gradient, indices = %words, num_weights = 2048, padding_idx = -1, scale_grad_by_freq = false) : (!intarsia.tensor<[128, 512]xf32>, !intarsia.tensor<[2, 64]xi64, strides = [65, 1]>) -> !intarsia.tensor<[2048, 512]xf32>
  %4 = intarsia.call "aten::add.Tensor"(self = %2, other = %3, alpha = 1) : (!intarsia.tensor<[2048, 512]xf32>, !intarsia.tensor<[2048, 512]xf32>) -> !intarsia.tensor<[2048, 512]xf32>
  return %4 : !intarsia.tensor<[2048, 512]xf32>
}
