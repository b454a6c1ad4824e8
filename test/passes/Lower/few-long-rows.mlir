// RUN: intarsia-opt --lower-calls=devices=cpu,cuda --split-input-file %s | FileCheck %s

// A row is at most a block's on a GPU: of few long ones PyTorch's kernel, which splits
// them, makes more. What is not known may be long.

!x = !intarsia.tensor<[4096, 1024]xf32, device = "cuda:0">
!s = !intarsia.tensor<[]xf32, device = "cuda:0">
// CHECK-LABEL: @whole
// CHECK: call "aten::sum"
func.func @whole(%x: !x) -> !s {
  %0 = intarsia.call "aten::sum"(self = %x, dtype = none) : (!x) -> !s
  return %0 : !s
}

// -----

!x = !intarsia.tensor<[s0, 1024]xf32, device = "cuda:0">
!s = !intarsia.tensor<[]xf32, device = "cuda:0">
// CHECK-LABEL: @symbolic
// CHECK: call "aten::mean"
func.func @symbolic(%x: !x) -> !s attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::mean"(self = %x, dtype = none) : (!x) -> !s
  return %0 : !s
}

// -----

!x = !intarsia.tensor<[65536, 768]xf32, device = "cuda:0">
!r = !intarsia.tensor<[768]xf32, device = "cuda:0">
// CHECK-LABEL: @columns
// CHECK: call "aten::sum.dim_IntList"
func.func @columns(%x: !x) -> !r {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [0], keepdim = false, dtype = none) : (!x) -> !r
  return %0 : !r
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
