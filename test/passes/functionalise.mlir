// RUN: intarsia-opt --functionalise %s | FileCheck %s

!m = !intarsia.tensor<[4, 8]xf32>
!v = !intarsia.tensor<[8]xf32>
!c = !intarsia.tensor<[4]xf32, strides = [8]>

// A part of a buffer: a kernel may make its new value, which is put back.
// CHECK-LABEL: func.func @part
// CHECK-SAME: -> (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[4, 8]xf32> {intarsia.output = "buffer_mutation", intarsia.target = "cache"})
// CHECK-NOT: aliasing
// CHECK: %[[OLD:.+]] = intarsia.call "aten::select.int"(self = %arg0
// CHECK: %[[NEW:.+]] = intarsia.call "aten::add_.Tensor"(self = %[[OLD]], other = %arg1{{.*}} mutates(%[[OLD]])
// CHECK: %[[CACHE:.+]] = intarsia.call "aten::select_scatter"(self = %arg0, src = %[[NEW]], dim = 0, index = 1)
// CHECK: %[[SUM:.+]] = intarsia.call "aten::sum.dim_IntList"(self = %[[CACHE]]
// CHECK: return %[[SUM]], %[[CACHE]]
func.func @part(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}, %x: !v {intarsia.kind = "user", intarsia.name = "x"}) -> !intarsia.tensor<[4]xf32> attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 0, index = 1) {aliasing, views = array<i64: 0>} : (!m) -> !v
  %1 = intarsia.call "aten::add_.Tensor"(self = %0, other = %x, alpha = 1) mutates(%0) returns(tied) {aliasing} : (!v, !v) -> !v
  %2 = intarsia.call "aten::sum.dim_IntList"(self = %b, dim = [1], keepdim = false, dtype = none) {aliasing} : (!m) -> !intarsia.tensor<[4]xf32>
  return %2 : !intarsia.tensor<[4]xf32>
}

// What stays a call writes its part of the buffer itself.
// CHECK-LABEL: func.func @opaque_part
// CHECK: %[[CACHE:.+]] = intarsia.call "my::write"(x = view<%arg0, [4], [8], 2>, y = %arg1) mutates(%arg0) :
// CHECK-SAME: -> !intarsia.tensor<[4, 8]xf32>
// CHECK: return %[[CACHE]]
func.func @opaque_part(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}, %x: !v {intarsia.kind = "user", intarsia.name = "x"}) attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::select.int"(self = %b, dim = 1, index = 2) {aliasing, views = array<i64: 0>} : (!m) -> !c
  %1 = intarsia.call "my::write"(x = %0, y = %x) mutates(%0) returns() {aliasing} : (!c, !v) -> !c
  return
}

// Also a copy, where no operator puts back what such a view takes.
// CHECK-LABEL: func.func @narrowed
// CHECK-NOT: "aten::view"
// CHECK: %[[CACHE:.+]] = intarsia.call "aten::copy_"(self = view<%arg0, [2, 8], [8, 1], 8>, src = %arg1, non_blocking = false) mutates(%arg0)
// CHECK: return %[[CACHE]]
func.func @narrowed(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}, %x: !intarsia.tensor<[2, 8]xf32> {intarsia.kind = "user", intarsia.name = "x"}) attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::narrow"(self = %b, dim = 0, start = 1, length = 2) {aliasing, views = array<i64: 0>} : (!m) -> !intarsia.tensor<[2, 8]xf32>
  %1 = intarsia.call "aten::copy_"(self = %0, src = %x, non_blocking = false) mutates(%0) returns(tied) {aliasing} : (!intarsia.tensor<[2, 8]xf32>, !intarsia.tensor<[2, 8]xf32>) -> !intarsia.tensor<[2, 8]xf32>
  return
}

// A view that was taken before a write is read after it: taken anew.
// CHECK-LABEL: func.func @through_views
// CHECK: %[[Y:.+]] = intarsia.call "my::make"
// CHECK: %[[T:.+]] = intarsia.call "aten::t"(self = %[[Y]])
// CHECK: %[[NEW:.+]] = intarsia.call "aten::exp_"(self = %[[T]]) mutates(%[[T]])
// CHECK: %[[Y1:.+]] = intarsia.call "aten::t"(self = %[[NEW]])
// CHECK: %[[ROW:.+]] = intarsia.call "aten::select.int"(self = %[[Y1]]
// CHECK: "my::use"(x = %[[ROW]])
// CHECK: return %{{.+}}, %[[Y1]]
func.func @through_views(%x: !m {intarsia.kind = "user", intarsia.name = "x"}) -> (!v, !m) attributes {intarsia.aliasing} {
  %y = intarsia.call "my::make"(x = %x) {aliasing} : (!m) -> !m
  %row = intarsia.call "aten::select.int"(self = %y, dim = 0, index = 3) {aliasing, views = array<i64: 0>} : (!m) -> !v
  %t = intarsia.call "aten::t"(self = %y) {aliasing, views = array<i64: 0>} : (!m) -> !intarsia.tensor<[8, 4]xf32, strides = [1, 8]>
  %1 = intarsia.call "aten::exp_"(self = %t) mutates(%t) returns(tied) {aliasing} : (!intarsia.tensor<[8, 4]xf32, strides = [1, 8]>) -> !intarsia.tensor<[8, 4]xf32, strides = [1, 8]>
  %2 = intarsia.call "my::use"(x = %row) {aliasing} : (!v) -> !v
  return %2, %y : !v, !m
}

// Returned, a buffer must stay the buffer: all in order, as it came.
// CHECK-LABEL: func.func @returned
// CHECK-SAME: intarsia.aliasing
// CHECK: "aten::exp_"(self = %arg0) mutates(%arg0) returns(tied) {aliasing}
func.func @returned(%b: !m {intarsia.kind = "buffer", intarsia.target = "cache"}) -> !m attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::exp_"(self = %b) mutates(%b) returns(tied) {aliasing} : (!m) -> !m
  return %0 : !m
}

// One of the user's tensors may be the other. What touches neither is free.
// CHECK-LABEL: func.func @two_inputs
// CHECK-SAME: intarsia.aliasing
// CHECK: "aten::exp_"{{.*}}aliasing
// CHECK: "aten::mul.Tensor"{{.*}}aliasing
// CHECK: %[[T:.+]] = intarsia.call "my::make"
// CHECK: "aten::sin_"(self = %[[T]]) mutates(%[[T]]) returns(tied) :
func.func @two_inputs(%x: !v {intarsia.kind = "user", intarsia.name = "x"}, %y: !v {intarsia.kind = "user", intarsia.name = "y"}) -> (!v, !v) attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::exp_"(self = %x) mutates(%x) returns(tied) {aliasing} : (!v) -> !v
  %1 = intarsia.call "aten::mul.Tensor"(self = %y, other = %y) {aliasing} : (!v) -> !v
  %2 = intarsia.call "my::make"(x = %1) : (!v) -> !v
  %3 = intarsia.call "aten::sin_"(self = %2) mutates(%2) returns(tied) {aliasing} : (!v) -> !v
  return %1, %2 : !v, !v
}

// A view of no known form; a write that takes another part of the same storage.
// CHECK-LABEL: func.func @unknown
// CHECK-SAME: intarsia.aliasing
// CHECK-COUNT-5: aliasing
func.func @unknown(%x: !v {intarsia.kind = "user", intarsia.name = "x"}) -> (!v, !v) attributes {intarsia.aliasing} {
  %0 = intarsia.call "my::make"(x = %x) : (!v) -> !v
  %1 = intarsia.call "my::view"(x = %0) {aliasing, views = array<i64: 0>} : (!v) -> !v
  %2 = intarsia.call "aten::exp_"(self = %1) mutates(%1) returns(tied) {aliasing} : (!v) -> !v
  %3 = intarsia.call "my::make"(x = %x) {aliasing} : (!v) -> !v
  %4 = intarsia.call "aten::alias"(self = %3) {aliasing, views = array<i64: 0>} : (!v) -> !v
  %5 = intarsia.call "my::write"(x = %3, y = %4) mutates(%3) returns() {aliasing} : (!v, !v) -> !v
  return %0, %3 : !v, !v
}

// What is copied onto itself was written before.
// CHECK-LABEL: func.func @onto_itself
// CHECK: %[[NEW:.+]] = intarsia.call "aten::exp_"
// CHECK-NOT: copy_
// CHECK: return %[[NEW]]
func.func @onto_itself(%b: !v {intarsia.kind = "buffer", intarsia.target = "b"}) attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::exp_"(self = %b) mutates(%b) returns(tied) {aliasing} : (!v) -> !v
  %1 = intarsia.call "aten::copy_"(self = %0, src = %0, non_blocking = false) mutates(%0) returns(tied) {aliasing} : (!v) -> !v
  return
}
