// RUN: intarsia-opt --restore-updates --normalise %s | FileCheck %s

!m = !intarsia.tensor<[4, 8]xf32>
!v = !intarsia.tensor<[8]xf32>
!i = !intarsia.tensor<[1]xi64>
!s = !intarsia.tensor<[1]xf32>

// A row gets new elements, and is put back.
// CHECK-LABEL: func.func @row
// CHECK-NEXT: %[[NEW:.+]] = intarsia.call "aten::index_copy_"(self = view<%arg0, [8], [1], 16>, dim = 0, index = %arg1, source = %arg2) mutates(%arg0) returns(tied)
// CHECK-NEXT: %[[ROW:.+]] = intarsia.call "aten::select.int"(self = %[[NEW]]
// CHECK-NEXT: "my::use"(x = %[[ROW]])
// CHECK-NOT: scatter
// CHECK: return %{{.+}}, %[[NEW]]
func.func @row(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}, %i: !i, %x: !s) -> (!v, !m {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 0, index = 2) {views = array<i64: 0>} : (!m) -> !v
  %1 = intarsia.call "aten::index_copy"(self = %0, dim = 0, index = %i, source = %x) : (!v, !i, !s) -> !v
  %2 = intarsia.call "aten::select_scatter"(self = %b, src = %1, dim = 0, index = 2) : (!m, !v) -> !m
  %3 = intarsia.call "aten::select.int"(self = %2, dim = 0, index = 2) {views = array<i64: 0>} : (!m) -> !v
  %4 = intarsia.call "my::use"(x = %3) : (!v) -> !v
  return %4, %2 : !v, !m
}

// Through two views: what is written was computed, by the second one from what it was.
// CHECK-LABEL: func.func @nested
// CHECK-NEXT: %[[NEW:.+]] = intarsia.call "aten::copy_"(self = view<%arg0, [2], [1], 18>, src = %arg1, non_blocking = false) mutates(%arg0)
// CHECK-NEXT: %[[ROW:.+]] = intarsia.call "aten::select.int"(self = %[[NEW]], dim = 0, index = 1)
// CHECK-NEXT: %[[PART:.+]] = intarsia.call "aten::slice.Tensor"(self = %[[ROW]]
// CHECK-NEXT: %[[EXP:.+]] = intarsia.call "aten::exp_"(self = %[[PART]]) mutates(%[[PART]])
// CHECK-NEXT: %[[NEXT:.+]] = intarsia.call "aten::copy_"(self = view<%[[NEW]], [4], [1], 8>, src = %[[EXP]], non_blocking = false) mutates(%[[NEW]])
// CHECK-NEXT: return %[[NEXT]]
func.func @nested(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}, %x: !intarsia.tensor<[2]xf32>) -> (!m {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 0, index = 2) {views = array<i64: 0>} : (!m) -> !v
  %1 = intarsia.call "aten::slice_scatter"(self = %0, src = %x, dim = 0, start = 2, end = 4, step = 1) : (!v, !intarsia.tensor<[2]xf32>) -> !v
  %2 = intarsia.call "aten::select_scatter"(self = %b, src = %1, dim = 0, index = 2) : (!m, !v) -> !m
  %3 = intarsia.call "aten::select.int"(self = %2, dim = 0, index = 1) {views = array<i64: 0>} : (!m) -> !v
  %4 = intarsia.call "aten::slice.Tensor"(self = %3, dim = 0, start = 0, end = 4, step = 1) {views = array<i64: 0>} : (!v) -> !intarsia.tensor<[4]xf32>
  %5 = intarsia.call "aten::exp_"(self = %4) mutates(%4) returns(tied) : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  %6 = intarsia.call "aten::slice_scatter"(self = %3, src = %5, dim = 0, start = 0, end = 4, step = 1) : (!v, !intarsia.tensor<[4]xf32>) -> !v
  %7 = intarsia.call "aten::select_scatter"(self = %2, src = %6, dim = 0, index = 1) : (!m, !v) -> !m
  return %7 : !m
}

// Put back elsewhere than where it was taken: not the same write.
// CHECK-LABEL: func.func @elsewhere
// CHECK: %[[COPIED:.+]] = intarsia.call "aten::index_copy_"(self = view<%arg0, [8], [1], 16>
// CHECK: %[[ROW:.+]] = intarsia.call "aten::select.int"(self = %[[COPIED]], dim = 0, index = 2)
// CHECK: %[[NEW:.+]] = intarsia.call "aten::select_scatter"(self = %arg0, src = %[[ROW]], dim = 0, index = 3)
// CHECK: return %[[NEW]]
func.func @elsewhere(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}, %i: !i, %x: !s) -> (!m {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 0, index = 2) {views = array<i64: 0>} : (!m) -> !v
  %1 = intarsia.call "aten::index_copy"(self = %0, dim = 0, index = %i, source = %x) : (!v, !i, !s) -> !v
  %2 = intarsia.call "aten::select_scatter"(self = %b, src = %1, dim = 0, index = 3) : (!m, !v) -> !m
  return %2 : !m
}

// A source in the same memory is read before anything is written.
// CHECK-LABEL: func.func @overlapping
// CHECK-NOT: mutates
// CHECK: "aten::slice_scatter"
func.func @overlapping(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}) -> (!m {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 0, index = 2) {views = array<i64: 0>} : (!m) -> !v
  %1 = intarsia.call "aten::slice.Tensor"(self = %0, dim = 0, start = 0, end = 4, step = 1) {views = array<i64: 0>} : (!v) -> !intarsia.tensor<[4]xf32>
  %2 = intarsia.call "aten::slice_scatter"(self = %0, src = %1, dim = 0, start = 2, end = 6, step = 1) : (!v, !intarsia.tensor<[4]xf32>) -> !v
  %3 = intarsia.call "aten::select_scatter"(self = %b, src = %2, dim = 0, index = 2) : (!m, !v) -> !m
  return %3 : !m
}

// What no argument gets stays a value.
// CHECK-LABEL: func.func @value
// CHECK-NOT: mutates
// CHECK: return
func.func @value(%b: !m {intarsia.kind = "user", intarsia.name = "x"}, %i: !i, %x: !s) -> !m {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 0, index = 2) {views = array<i64: 0>} : (!m) -> !v
  %1 = intarsia.call "aten::index_copy"(self = %0, dim = 0, index = %i, source = %x) : (!v, !i, !s) -> !v
  %2 = intarsia.call "aten::select_scatter"(self = %b, src = %1, dim = 0, index = 2) : (!m, !v) -> !m
  return %2 : !m
}

// A copy in place, into a view, needs no new value of the view.
// CHECK-LABEL: func.func @copied
// CHECK-NEXT: %[[NEW:.+]] = intarsia.call "aten::copy_"(self = view<%arg0, [4], [8], 3>, src = %arg1, non_blocking = false) mutates(%arg0)
// CHECK-NEXT: return %[[NEW]]
func.func @copied(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}, %x: !intarsia.tensor<[4]xf32>) -> (!m {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 1, index = 3) {views = array<i64: 0>} : (!m) -> !intarsia.tensor<[4]xf32, strides = [8]>
  %1 = intarsia.call "aten::copy_"(self = %0, src = %x, non_blocking = false) mutates(%0) returns(tied) : (!intarsia.tensor<[4]xf32, strides = [8]>, !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32, strides = [8]>
  %2 = intarsia.call "aten::select_scatter"(self = %b, src = %1, dim = 1, index = 3) : (!m, !intarsia.tensor<[4]xf32, strides = [8]>) -> !m
  return %2 : !m
}
