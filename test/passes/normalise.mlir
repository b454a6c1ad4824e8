// RUN: intarsia-opt --normalise %s | FileCheck %s

!vec = !intarsia.tensor<[s0]xf32>

// CHECK-LABEL: func.func @equal_sizes
func.func @equal_sizes(%x: !vec) -> (!vec, !vec) {
  // CHECK: %[[N:.+]] = intarsia.size "2*s0" : index
  // CHECK-NOT: intarsia.size
  %n = intarsia.size "2*s0" : index
  %m = intarsia.size "s0 + s0" : index
  // CHECK: "my::take"(x = %{{.+}}, n = %[[N]])
  // CHECK: "my::take"(x = %{{.+}}, n = %[[N]])
  %0 = intarsia.call "my::take"(x = %x, n = %n) : (!vec, index) -> !vec
  %1 = intarsia.call "my::take"(x = %x, n = %m) : (!vec, index) -> !vec
  return %0, %1 : !vec, !vec
}

// Equal calls stay two: their results may not share storage.
// CHECK-LABEL: func.func @equal_calls
// CHECK-COUNT-2: "aten::exp"
func.func @equal_calls(%x: !vec) -> (!vec, !vec) {
  %0 = intarsia.call "aten::exp"(self = %x) : (!vec) -> !vec
  %1 = intarsia.call "aten::exp"(self = %x) : (!vec) -> !vec
  return %0, %1 : !vec, !vec
}

// CHECK-LABEL: func.func @dead
// CHECK-NOT: aten::exp
// CHECK-NOT: aten::neg
// What has an effect, or may have one, stays.
// CHECK: "my::unknown"
// CHECK: "aten::bernoulli"
// CHECK: "aten::nonzero"
func.func @dead(%x: !vec) -> !vec {
  %0 = intarsia.call "aten::exp"(self = %x) : (!vec) -> !vec
  %1 = intarsia.call "aten::neg"(self = %0) : (!vec) -> !vec
  %2 = intarsia.call "my::unknown"(x = %x) : (!vec) -> !vec
  %3 = intarsia.call "aten::bernoulli"(self = %x, generator = none) {random} : (!vec) -> !vec
  %4 = intarsia.call "aten::nonzero"(self = %x) {binds = [#intarsia.bind<"u0" = 0, "size:0">]} : (!vec) -> !intarsia.tensor<[u0, 1]xi64>
  return %x : !vec
}

// CHECK-LABEL: func.func @no_ops
// CHECK-NEXT: "my::one"(x = %arg0)
// CHECK-NEXT: return
func.func @no_ops(%x: !vec) -> !vec {
  %n = intarsia.size "s0" : index
  %0 = intarsia.call "aten::detach"(self = %x) {views = array<i64: 0>} : (!vec) -> !vec
  %1 = intarsia.call "aten::view"(self = %0, size = [%n]) {views = array<i64: 0>} : (!vec, index) -> !vec
  %2 = intarsia.call "my::one"(x = %1) : (!vec) -> !vec
  return %2 : !vec
}

// The caller gets a tensor of its own; a view of another start is no no-op.
// CHECK-LABEL: func.func @kept
// CHECK: "aten::detach"
// CHECK: "aten::select.int"
func.func @kept(%x: !intarsia.tensor<[2, 2]xf32>) -> (!intarsia.tensor<[2, 2]xf32>, !intarsia.tensor<[2]xf32>) {
  %0 = intarsia.call "aten::detach"(self = %x) {views = array<i64: 0>} : (!intarsia.tensor<[2, 2]xf32>) -> !intarsia.tensor<[2, 2]xf32>
  %1 = intarsia.call "aten::select.int"(self = %x, dim = 0, index = 1) {views = array<i64: 0>} : (!intarsia.tensor<[2, 2]xf32>) -> !intarsia.tensor<[2]xf32>
  return %0, %1 : !intarsia.tensor<[2, 2]xf32>, !intarsia.tensor<[2]xf32>
}
