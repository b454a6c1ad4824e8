// RUN: intarsia-opt --lower-calls=devices=cpu,cuda --split-input-file %s | FileCheck %s

// A row is at most a block's on a GPU: few long ones are cut into pieces, which make
// partial results, and these the result.

!x = !intarsia.tensor<[4096, 1024]xf32, device = "cuda:0">
!s = !intarsia.tensor<[]xf32, device = "cuda:0">
// CHECK-LABEL: @whole
// CHECK: call "aten::view"({{.*}}size = [512, 8, 1024]
// CHECK: intarsia.kernel({{.*}}ops ["aten::sum.dim_IntList"]{{.*}}-> !intarsia.tensor<[512, 1, 1]xf32
// CHECK: intarsia.kernel({{.*}}ops ["aten::sum.dim_IntList"]{{.*}}-> !intarsia.tensor<[]xf32
func.func @whole(%x: !x) -> !s {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!x) -> !s
  return %0 : !s
}

// -----

// What is not known may be long, or not: PyTorch's kernel looks.

!x = !intarsia.tensor<[s0, 1024]xf32, device = "cuda:0">
!s = !intarsia.tensor<[]xf32, device = "cuda:0">
// CHECK-LABEL: @symbolic
// CHECK: call "aten::mean"
func.func @symbolic(%x: !x) -> !s attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::mean"(self = %x, dtype = none) : (!x) -> !s
  return %0 : !s
}

// -----

// Columns: 24 blocks have 32 of them each. The halves are rounded at the end.

!x = !intarsia.tensor<[65536, 768]xbf16, device = "cuda:0">
!r = !intarsia.tensor<[1, 768]xbf16, device = "cuda:0">
// CHECK-LABEL: @columns
// CHECK: call "aten::view"({{.*}}size = [32, 2048, 768]
// CHECK: intarsia.kernel({{.*}}-> !intarsia.tensor<[32, 1, 768]xf32
// CHECK: intarsia.kernel({{.*}}-> !intarsia.tensor<[1, 768]xf32
// CHECK: intarsia.kernel({{.*}}ops ["aten::div.Scalar"]
// CHECK: intarsia.kernel({{.*}}ops ["prims::convert_element_type"]{{.*}}-> !intarsia.tensor<[1, 768]xbf16
func.func @columns(%x: !x) -> !r {
  %0 = intarsia.call "aten::mean.dim"(self = %x, dim = [0], keepdim = true, dtype = none) : (!x) -> !r
  return %0 : !r
}

// -----

// A row of a length that no number of pieces divides has a longer one's last piece.

!x = !intarsia.tensor<[4, 1000003]xf32, device = "cuda:0">
!r = !intarsia.tensor<[4]xf32, device = "cuda:0">
// CHECK-LABEL: @prime
// CHECK: intarsia.kernel({{.*}}ops ["aten::constant_pad_nd"]
// CHECK: call "aten::view"
// CHECK: ops ["aten::amax"]
// CHECK: ops ["aten::amax"]{{.*}}-> !intarsia.tensor<[4]xf32
func.func @prime(%x: !x) -> !r {
  %0 = intarsia.call "aten::amax"(self = %x, dim = [1], keepdim = false) : (!x) -> !r
  return %0 : !r
}

// -----

// A norm is a sum of what is computed for each element, and so is a loss; truth values
// are counted as numbers.

!x = !intarsia.tensor<[4096, 1024]xbf16, device = "cuda:0">
!b = !intarsia.tensor<[1000003]xbool, device = "cuda:0">
!s = !intarsia.tensor<[]xbf16, device = "cuda:0">
!t = !intarsia.tensor<[]xbool, device = "cuda:0">
// CHECK-LABEL: @norm
// CHECK: ops ["aten::mul.Tensor"]
// CHECK: ops ["aten::sum.dim_IntList"]{{.*}}-> !intarsia.tensor<[512, 1, 1]xf32
// CHECK: ops ["aten::sum.dim_IntList"]{{.*}}-> !intarsia.tensor<[]xf32
// CHECK: ops ["aten::sqrt"]
// CHECK: ops ["prims::convert_element_type"]{{.*}}-> !intarsia.tensor<[]xbf16
func.func @norm(%x: !x) -> !s {
  %0 = intarsia.call "aten::linalg_vector_norm"(self = %x, ord = 2, dim = none, keepdim = false, dtype = none) : (!x) -> !s
  return %0 : !s
}
// CHECK-LABEL: @loss
// CHECK: ops ["aten::mse_loss"]{{.*}}-> !intarsia.tensor<[4096, 1024]xbf16
// CHECK: ops ["aten::sum.dim_IntList"]{{.*}}-> !intarsia.tensor<[512, 1, 1]xf32
func.func @loss(%x: !x, %y: !x) -> !s {
  %0 = intarsia.call "aten::mse_loss"(self = %x, target = %y, reduction = 1) : (!x, !x) -> !s
  return %0 : !s
}
// CHECK-LABEL: @truth
// CHECK: ops ["aten::constant_pad_nd"]{{.*}}xu8
// CHECK: ops ["aten::any.dims"]
// CHECK: ops ["aten::any.dims"]{{.*}}-> !intarsia.tensor<[]xu8
// CHECK: ops ["prims::convert_element_type"]{{.*}}-> !intarsia.tensor<[]xbool
func.func @truth(%b: !b) -> !t {
  %0 = intarsia.call "aten::any"(self = %b) : (!b) -> !t
  return %0 : !t
}

// -----

// The variance of a row is the mean of the pieces' and the variance of their means.

!x = !intarsia.tensor<[4096, 1024]xf32, device = "cuda:0">
!s = !intarsia.tensor<[]xf32, device = "cuda:0">
// CHECK-LABEL: @deviation
// CHECK: ops ["aten::var_mean.correction"]{{.*}}-> (!intarsia.tensor<[512, 1, 1]xf64
// CHECK: ops ["aten::var.correction"]{{.*}}-> !intarsia.tensor<[]xf64
// CHECK: ops ["aten::mean.dim"]
// CHECK: ops ["aten::sqrt"]
// CHECK: ops ["prims::convert_element_type"]{{.*}}-> !intarsia.tensor<[]xf32
func.func @deviation(%x: !x) -> !s {
  %0 = intarsia.call "aten::std.correction"(self = %x, dim = none, correction = 1, keepdim = false) : (!x) -> !s
  return %0 : !s
}

// -----

// What has no pieces of its own kind is PyTorch's.

!x = !intarsia.tensor<[4096, 1024]xf32, device = "cuda:0">
!i = !intarsia.tensor<[]xi64, device = "cuda:0">
// CHECK-LABEL: @position
// CHECK: call "aten::argmax"
func.func @position(%x: !x) -> !i {
  %0 = intarsia.call "aten::argmax"(self = %x, dim = none, keepdim = false) : (!x) -> !i
  return %0 : !i
}

// -----

// CHECK-LABEL: @short
// CHECK: intarsia.kernel
!x = !intarsia.tensor<[64, 1024]xf32, device = "cuda:0">
!s = !intarsia.tensor<[]xf32, device = "cuda:0">
func.func @short(%x: !x) -> !s {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!x) -> !s
  return %0 : !s
}

// -----

// CHECK-LABEL: @many
// CHECK: intarsia.kernel
!x = !intarsia.tensor<[s0, 262144]xf32, device = "cuda:0">
!r = !intarsia.tensor<[s0]xf32, device = "cuda:0">
func.func @many(%x: !x) -> !r attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::amax"(self = %x, dim = [-1], keepdim = false) : (!x) -> !r
  return %0 : !r
}

// -----

// On the CPU the rows' blocks are shared out among threads.
// CHECK-LABEL: @on_the_cpu
// CHECK: intarsia.kernel
!x = !intarsia.tensor<[4096, 1024]xf32>
func.func @on_the_cpu(%x: !x) -> !intarsia.tensor<[]xf32> {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!x) -> !intarsia.tensor<[]xf32>
  return %0 : !intarsia.tensor<[]xf32>
}
