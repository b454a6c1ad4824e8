// RUN: intarsia-opt --lower-calls=devices=cpu,cuda --split-input-file %s | FileCheck %s

// What follows a product on a GPU and is its library's epilogue, with eager's numbers.

!x = !intarsia.tensor<[s0, 64]xf32, device = "cuda:0">
!w = !intarsia.tensor<[64, 64]xf32, device = "cuda:0">
!b = !intarsia.tensor<[64]xf32, device = "cuda:0">
// CHECK-LABEL: @relu
// CHECK: %[[H:.+]] = intarsia.call "aten::_addmm_activation"(self = %{{.+}}, mat1 = %{{.+}}, mat2 = %{{.+}}, beta = 1, alpha = 1, use_gelu = false)
// CHECK-NOT: aten::relu
// CHECK: intarsia.call "aten::addmm"(self = %{{.+}}, mat1 = %[[H]]
// CHECK: intarsia.kernel
// CHECK-SAME: aten::gelu
func.func @relu(%x: !x, %w: !w, %b: !b) -> !x attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::addmm"(self = %b, mat1 = %x, mat2 = %w, beta = 1, alpha = 1) : (!b, !x, !w) -> !x
  %1 = intarsia.call "aten::relu"(self = %0) : (!x) -> !x
  %2 = intarsia.call "aten::addmm"(self = %b, mat1 = %1, mat2 = %w, beta = 1, alpha = 1) : (!b, !x, !w) -> !x
  %3 = intarsia.call "aten::gelu"(self = %2, approximate = "tanh") : (!x) -> !x
  return %3 : !x
}

// -----

// A kernel reads it anyway; the product itself is wanted; another factor; the CPU.

!x = !intarsia.tensor<[s0, 64]xf32, device = "cuda:0">
!w = !intarsia.tensor<[64, 64]xf32, device = "cuda:0">
!b = !intarsia.tensor<[64]xf32, device = "cuda:0">
!cx = !intarsia.tensor<[s0, 64]xf32>
!cw = !intarsia.tensor<[64, 64]xf32>
!cb = !intarsia.tensor<[64]xf32>
// CHECK-LABEL: @others
// CHECK-NOT: _addmm_activation
// CHECK: return
func.func @others(%x: !x, %w: !w, %b: !b, %cx: !cx, %cw: !cw, %cb: !cb) -> (!x, !x, !x, !x, !cx)
    attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::addmm"(self = %b, mat1 = %x, mat2 = %w, beta = 1, alpha = 1) : (!b, !x, !w) -> !x
  %1 = intarsia.call "aten::relu"(self = %0) : (!x) -> !x
  %2 = intarsia.call "aten::mul.Tensor"(self = %1, other = %x) : (!x, !x) -> !x
  %3 = intarsia.call "aten::addmm"(self = %b, mat1 = %x, mat2 = %w, beta = 1, alpha = 1) : (!b, !x, !w) -> !x
  %4 = intarsia.call "aten::relu"(self = %3) : (!x) -> !x
  %5 = intarsia.call "aten::addmm"(self = %b, mat1 = %x, mat2 = %w, beta = 2, alpha = 1) : (!b, !x, !w) -> !x
  %6 = intarsia.call "aten::relu"(self = %5) : (!x) -> !x
  %7 = intarsia.call "aten::addmm"(self = %cb, mat1 = %cx, mat2 = %cw, beta = 1, alpha = 1) : (!cb, !cx, !cw) -> !cx
  %8 = intarsia.call "aten::relu"(self = %7) : (!cx) -> !cx
  return %2, %3, %4, %6, %8 : !x, !x, !x, !x, !cx
}
