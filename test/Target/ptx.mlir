// RUN: intarsia-opt --lower=devices=cuda --fuse --cuda %s -o %t.mlir
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_80 %t.mlir -o %t.80.ptx
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_90 %t.mlir -o %t.90.ptx
// RUN: FileCheck %s --check-prefixes=CHECK,SM80 < %t.80.ptx
// RUN: FileCheck %s --check-prefixes=CHECK,SM90 < %t.90.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_80 -Werror %t.80.ptx -o %t.80.cubin %}
// RUN: %if ptxas %{ ptxas -arch=sm_90 -Werror %t.90.ptx -o %t.90.cubin %}
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_75 %t.mlir -o %t.75.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_75 -Werror %t.75.ptx -o %t.75.cubin %}
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_86 %t.mlir -o %t.86.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_86 -Werror %t.86.ptx -o %t.86.cubin %}
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_89 %t.mlir -o %t.89.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_89 -Werror %t.89.ptx -o %t.89.cubin %}
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_100 %t.mlir -o %t.100.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_100 -Werror %t.100.ptx -o %t.100.cubin %}
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_103 %t.mlir -o %t.103.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_103 -Werror %t.103.ptx -o %t.103.cubin %}
// RUN: intarsia-translate --kernels-to-ptx --arch=sm_120 %t.mlir -o %t.120.ptx
// RUN: %if ptxas %{ ptxas -arch=sm_120 -Werror %t.120.ptx -o %t.120.cubin %}
// RUN: not intarsia-translate --kernels-to-ptx --arch=gfx90a %t.mlir 2>&1 | FileCheck %s --check-prefix=ARCH
// RUN: not intarsia-translate --kernels-to-ptx %s 2>&1 | FileCheck %s --check-prefix=NONE

// The same fused kernels as the CPU's, as PTX. Nothing is called; what the user
// wrote is not contracted (.rn), and denormals are kept (no .ftz).

// ARCH: unknown CUDA architecture 'gfx90a'; it is a name such as sm_80 or sm_90
// NONE: there is no gpu.module to make PTX of

// SM80: .target sm_80
// SM90: .target sm_90
// CHECK-NOT: .extern .func
// CHECK-NOT: .ftz

!x = !intarsia.tensor<[s0, 1024]xf32, device = "cuda:0">
!row = !intarsia.tensor<[1024]xf32, device = "cuda:0">
!stat = !intarsia.tensor<[s0, 1]xf32, device = "cuda:0">
!h = !intarsia.tensor<[s0, 1024]xbf16, device = "cuda:0">
!w = !intarsia.tensor<[s1, 64]xf32, device = "cuda:0">
!i = !intarsia.tensor<[s0]xi64, device = "cuda:0">
!e = !intarsia.tensor<[s0, 64]xf32, device = "cuda:0">

// CHECK: .visible .entry k0_mul_add_tanh__softmax(
// CHECK: .maxntid 256
// CHECK: mul.rn.f32
// CHECK: add.rn.f32
// CHECK: max.NaN.f32
// CHECK: shfl.sync.bfly
// CHECK: shfl.sync.idx
// CHECK: st.global
// CHECK-NOT: .extern .func
func.func @main(%x: !x, %a: !row, %b: !row, %h: !h, %w: !w, %i: !i) -> (!x, !x, !h, !e)
    attributes {intarsia.symbols = {s0 = [2, unit], s1 = [2, unit]}} {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %a) : (!x, !row) -> !x
  %1 = intarsia.call "aten::add.Tensor"(self = %0, other = %b, alpha = 1) : (!x, !row) -> !x
  %2 = intarsia.call "aten::tanh"(self = %1) : (!x) -> !x
  %3 = intarsia.call "aten::_softmax"(self = %2, dim = -1, half_to_float = false) : (!x) -> !x

  // CHECK: .visible .entry k1_native_layer_norm(
  // CHECK: sqrt.rn.f32
  // CHECK-NOT: .extern .func
  %4:3 = intarsia.call "aten::native_layer_norm"(input = %x, normalized_shape = [1024], weight = %a, bias = %b, eps = 1.0e-5)
    : (!x, !row, !row) -> (!x, !stat, !stat)

  // A bf16 chain rounds after each operator, as eager does, two numbers at once.
  // CHECK: .visible .entry k2_gelu_mul(
  // CHECK: .maxntid 256
  // CHECK: ld.global.v4.b32
  // CHECK: cvt.rn.bf16x2.f32
  // CHECK: cvt.rn.bf16x2.f32
  // SM80: fma.rn.bf16x2
  // SM90: mul.rn.bf16x2
  // CHECK: st.global.v4.b32
  // CHECK-NOT: .extern .func
  %5 = intarsia.call "aten::gelu"(self = %h, approximate = "none") : (!h) -> !h
  %6 = intarsia.call "aten::mul.Tensor"(self = %5, other = %h) : (!h, !h) -> !h

  // CHECK: .visible .entry k3_embedding(
  // CHECK-NOT: .extern .func
  %7 = intarsia.call "aten::embedding"(weight = %w, indices = %i, padding_idx = -1, scale_grad_by_freq = false, sparse = false) : (!w, !i) -> !e
  return %3, %4#0, %6, %7 : !x, !x, !h, !e
}
