// RUN: intarsia-opt --lower-calls --fuse-repeat %s | FileCheck %s
// RUN: intarsia-opt --lower-calls --fuse %s | FileCheck --check-prefix=FUSED %s

// What is smaller before it is computed is computed for each kernel that reads it.

!half = !intarsia.tensor<[s0, 8]xbf16>
!mat = !intarsia.tensor<[s0, 8]xf32>
!row = !intarsia.tensor<[1, s0, 8]xf32>
!vec = !intarsia.tensor<[8]xf32>

// A cast to a wider dtype, one for each reader, one of which reads a view. The sum
// over rows and the one of each row are no one kernel; neither reads the cast.
// CHECK-LABEL: func.func @cast
// CHECK: %[[A:.+]] = intarsia.kernel(%arg0) {{.*}}ops ["aten::_to_copy"]
// CHECK: intarsia.kernel(%[[A]]) {{.*}}ops ["aten::sum.dim_IntList"]
// CHECK: %[[B:.+]] = intarsia.kernel(%arg0) {{.*}}ops ["aten::_to_copy"]
// CHECK: %[[V:.+]] = intarsia.call "aten::unsqueeze"(self = %[[B]]
// CHECK: intarsia.kernel(%[[V]]) {{.*}}ops ["aten::sum.dim_IntList"]
// FUSED-LABEL: func.func @cast
// FUSED: intarsia.kernel(%arg0) {{.*}}ops ["aten::_to_copy", "aten::sum.dim_IntList"]
// FUSED: intarsia.kernel(%arg0) {{.*}}ops ["aten::_to_copy", "aten::sum.dim_IntList"]
// FUSED-NOT: intarsia.kernel(
func.func @cast(%x: !half) -> (!vec, !intarsia.tensor<[1, s0]xf32>) {
  %0 = intarsia.call "aten::_to_copy"(self = %x, dtype = #intarsia.dtype<f32>, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (!half) -> !mat
  %1 = intarsia.call "aten::sum.dim_IntList"(self = %0, dim = [0], keepdim = false, dtype = none) : (!mat) -> !vec
  %2 = intarsia.call "aten::unsqueeze"(self = %0, dim = 0) {views = array<i64: 0>} : (!mat) -> !row
  %3 = intarsia.call "aten::sum.dim_IntList"(self = %2, dim = [2], keepdim = false, dtype = none) : (!row) -> !intarsia.tensor<[1, s0]xf32>
  return %1, %3 : !vec, !intarsia.tensor<[1, s0]xf32>
}

// Readers that become one kernel have one cast.
// FUSED-LABEL: func.func @together
// FUSED: intarsia.kernel(%arg0) {{.*}}ops ["aten::_to_copy", "aten::neg", "aten::abs", "aten::add.Tensor"]
// FUSED: arith.extf
// FUSED-NOT: arith.extf
// FUSED: return
func.func @together(%x: !half) -> !mat {
  %0 = intarsia.call "aten::_to_copy"(self = %x, dtype = #intarsia.dtype<f32>, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (!half) -> !mat
  %1 = intarsia.call "aten::neg"(self = %0) : (!mat) -> !mat
  %2 = intarsia.call "aten::abs"(self = %0) : (!mat) -> !mat
  %3 = intarsia.call "aten::add.Tensor"(self = %1, other = %2, alpha = 1) : (!mat, !mat) -> !mat
  return %3 : !mat
}

// Not a cast to a narrower dtype, not one that somebody else needs anyway, and not
// one of memory that is written to: later it would be another value.
// CHECK-LABEL: func.func @once
// CHECK-COUNT-2: "aten::_to_copy"
// CHECK: intarsia.call "my::put_"
// CHECK-NOT: "aten::_to_copy"
// CHECK: return
func.func @once(%x: !half, %y: !half) -> (!mat, !mat, !mat, !mat, !half) {
  %0 = intarsia.call "aten::_to_copy"(self = %x, dtype = #intarsia.dtype<f32>, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (!half) -> !mat
  %1 = intarsia.call "aten::neg"(self = %0) : (!mat) -> !mat
  %2 = intarsia.call "aten::abs"(self = %0) : (!mat) -> !mat
  %3 = intarsia.call "aten::_to_copy"(self = %y, dtype = #intarsia.dtype<f32>, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (!half) -> !mat
  %4 = intarsia.call "my::put_"(x = %y) mutates(%y) : (!half) -> !half
  %5 = intarsia.call "aten::neg"(self = %3) : (!mat) -> !mat
  %6 = intarsia.call "aten::abs"(self = %3) : (!mat) -> !mat
  return %0, %2, %5, %6, %4 : !mat, !mat, !mat, !mat, !half
}
