// RUN: intarsia-opt --lower --fuse --cpu --plan %s | FileCheck %s
// RUN: intarsia-opt --lower --fuse --cpu --plan --plan-print %s -o /dev/null | FileCheck --check-prefix=PLAN %s

// The whole path on one program: what surrounds the opaque call becomes two
// kernels, with sizes that only the run knows.

!mat = !intarsia.tensor<[s0, 64]xbf16>
!vec = !intarsia.tensor<[64]xbf16>
!col = !intarsia.tensor<[s0, 1]xf32>

// CHECK-LABEL: func.func @main
// CHECK: %[[K:.+]] = intarsia.kernel({{.*}} ops ["aten::mul.Tensor", "aten::add.Tensor", "aten::tanh", "aten::_softmax"]
// CHECK: %[[C:.+]] = intarsia.call "my::opaque"(x = %[[K]])
// CHECK: intarsia.kernel(%[[C]], {{.*}} ops ["aten::add.Tensor", "aten::native_layer_norm", "aten::gelu"]
// CHECK: return

// Only the LLVM dialect in the code: no call of a mathematics library, no
// operation of another dialect.
// CHECK: module @kernels
// CHECK: llvm.func @k0_mul_add_tanh__softmax
// CHECK-NOT: {{scf|arith|vector|cf|math|func}}.
// CHECK-NOT: llvm.call @
// CHECK: llvm.func @k1_add_native_layer_norm_gelu
// CHECK-NOT: {{scf|arith|vector|cf|math|func}}.
// CHECK-NOT: llvm.call @

// What lies between goes through memory of its own, since an operator sees it.
// PLAN: kernel 0 @k0_mul_add_tanh__softmax (cpu): aten::mul.Tensor, aten::add.Tensor, aten::tanh, aten::_softmax
// PLAN: kernel 1 @k1_add_native_layer_norm_gelu (cpu): aten::add.Tensor, aten::native_layer_norm, aten::gelu
// PLAN: func main(
// PLAN: %[[A:.+]] = alloc bf16[s0, 64] strides [64, 1]{{$|  //}}
// PLAN-NEXT: launch 0 @k0_mul_add_tanh__softmax({{.*}}, %[[A]]) symbols [s0] domain s0
// PLAN: %[[C:.+]] = call my::opaque(%[[A]])
// PLAN: launch 1 @k1_add_native_layer_norm_gelu(%[[C]],
// PLAN: return
func.func @main(%x: !mat, %a: !vec, %b: !vec, %w: !vec) -> !mat attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %a) : (!mat, !vec) -> !mat
  %1 = intarsia.call "aten::add.Tensor"(self = %0, other = %b, alpha = 1) : (!mat, !vec) -> !mat
  %2 = intarsia.call "aten::tanh"(self = %1) : (!mat) -> !mat
  %3 = intarsia.call "aten::_softmax"(self = %2, dim = -1, half_to_float = false) : (!mat) -> !mat
  %4 = intarsia.call "my::opaque"(x = %3) : (!mat) -> !mat
  %5 = intarsia.call "aten::add.Tensor"(self = %4, other = %x, alpha = 1) : (!mat, !mat) -> !mat
  %6:3 = intarsia.call "aten::native_layer_norm"(input = %5, normalized_shape = [64], weight = %w, bias = none, eps = 1.000000e-05) : (!mat, !vec) -> (!mat, !col, !col)
  %7 = intarsia.call "aten::gelu"(self = %6#0, approximate = "none") : (!mat) -> !mat
  return %7 : !mat
}
