// RUN: intarsia-opt --lower-calls --fuse-analyse --fuse-decide --fuse-apply %s | FileCheck %s

// Each group becomes one kernel: what is read inside needs no memory, views
// between its members are index maps, and what somebody else needs is a result.

!vec = !intarsia.tensor<[8]xf32>
!mat = !intarsia.tensor<[s0, 8]xf32>
!tam = !intarsia.tensor<[8, s0]xf32, strides = [1, 8]>
!row = !intarsia.tensor<[1, s0, 8]xf32>

// CHECK-LABEL: func.func @chain
// CHECK-SAME: (%[[X:.+]]: !intarsia.tensor<[s0, 8]xf32>, %[[Y:.+]]: !intarsia.tensor<[8]xf32>)
// CHECK: intarsia.kernel(%[[X]], %[[Y]]) symbols [s0] ops ["aten::exp", "aten::add.Tensor", "aten::_softmax"]
// CHECK-SAME: decisions {rows = 1 : i64, space = [#intarsia.expr<"s0">, #intarsia.expr<"8">]}
// CHECK-SAME: -> !intarsia.tensor<[s0, 8]xf32>
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.maximumf
// CHECK: intarsia.yield %{{[0-9]+}} : tensor<?x8xf32>
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @chain(%x: !mat, %y: !vec) -> !mat {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::add.Tensor"(self = %0, other = %y, alpha = 1) : (!mat, !vec) -> !mat
  %2 = intarsia.call "aten::_softmax"(self = %1, dim = 1, half_to_float = false) : (!mat) -> !mat
  return %2 : !mat
}

// Two results, one of which a call reads; the view for it comes after the kernel,
// the view inside is gone.
// CHECK-LABEL: func.func @results
// CHECK: %[[K:.+]]:2 = intarsia.kernel(
// CHECK-SAME: ops ["aten::neg", "aten::abs"]
// CHECK: tensor.expand_shape
// CHECK: intarsia.yield %{{.+}}, %{{.+}} : tensor<?x8xf32>, tensor<1x?x8xf32>
// CHECK: %[[V:.+]] = intarsia.call "aten::unsqueeze"(self = %[[K]]#0
// CHECK: intarsia.call "my::see"(x = %[[V]])
// CHECK-NOT: "aten::unsqueeze"
// CHECK: return %[[K]]#1
func.func @results(%x: !mat) -> (!row, !vec) {
  %0 = intarsia.call "aten::neg"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::unsqueeze"(self = %0, dim = 0) {views = array<i64: 0>} : (!mat) -> !row
  %2 = intarsia.call "aten::abs"(self = %1) : (!row) -> !row
  %3 = intarsia.call "my::see"(x = %1) : (!row) -> !vec
  return %2, %3 : !row, !vec
}

// A transposition between two members is a map, and no call is left.
// CHECK-LABEL: func.func @transposed
// CHECK: intarsia.kernel({{.*}} ops ["aten::neg", "aten::abs"]
// CHECK: linalg.generic {indexing_maps = [#[[T:.+]], #{{.+}}]
// CHECK: intarsia.yield %{{.+}} : tensor<8x?xf32>
// CHECK-NOT: "aten::t"
// CHECK: return
func.func @transposed(%x: !mat) -> !tam {
  %0 = intarsia.call "aten::neg"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::t"(self = %0) {views = array<i64: 0>} : (!mat) -> !tam
  %2 = intarsia.call "aten::abs"(self = %1) : (!tam) -> !tam
  return %2 : !tam
}

// Operations are moved as little as that needs: what lies between two members
// and depends on neither stays before them, what depends on the first comes after.
// CHECK-LABEL: func.func @order
// CHECK: intarsia.call "my::before"
// CHECK: intarsia.kernel({{.*}} ops ["aten::exp", "aten::neg"]
// CHECK: intarsia.call "my::after"
// CHECK: intarsia.call "my::print"
// CHECK: return
func.func @order(%x: !mat) -> (!mat, !mat, !mat) {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "my::before"(x = %x) : (!mat) -> !mat
  %2 = intarsia.call "my::after"(x = %0) : (!mat) -> !mat
  %3 = intarsia.call "aten::neg"(self = %0) : (!mat) -> !mat
  intarsia.call "my::print"(x = %3) {effectful} : (!mat) -> ()
  return %1, %2, %3 : !mat, !mat, !mat
}

// What nobody needs is gone before anything is decided, but for calls of which it
// is not known that they do no more.
// CHECK-LABEL: func.func @dead
// CHECK-NOT: intarsia.kernel
// CHECK: intarsia.call "my::see"
// CHECK-NOT: intarsia.kernel
// CHECK: return
func.func @dead(%x: !mat) -> !mat {
  %s = intarsia.call "my::see"(x = %x) : (!mat) -> !mat
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::t"(self = %0) {views = array<i64: 0>} : (!mat) -> !tam
  %2 = intarsia.call "aten::neg"(self = %1) : (!tam) -> !tam
  return %x : !mat
}
