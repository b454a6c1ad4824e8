// RUN: intarsia-opt --freeze-weights --split-input-file %s | FileCheck %s

!w = !intarsia.tensor<[4, 8]xf32>
!v = !intarsia.tensor<[8]xf32>

// A computed value becomes a weight; a view of a weight, what reads an input and what is
// returned stay.
// CHECK: module attributes {intarsia.weights = [
// CHECK-SAME: {name = "frozen:0", offset = 0 : i64, record = "data/intarsia/frozen/0", type = !intarsia.tensor<[4, 8]xf32>}
// CHECK-SAME: {name = "frozen:1", offset = 0 : i64, record = "data/intarsia/frozen/1", type = !intarsia.tensor<[8]xf32>}
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[EXP:.+]] = intarsia.weight "frozen:0"
// CHECK-NEXT: %[[TWO:.+]] = intarsia.weight "frozen:1"
// CHECK-NEXT: %[[ROW:.+]] = intarsia.call "aten::select.int"(self = %arg1
// CHECK-NEXT: %[[LEFT:.+]] = intarsia.call "aten::neg"(self = %arg1)
// CHECK-NEXT: %[[A:.+]] = intarsia.call "aten::add.Tensor"(self = %arg0, other = %[[EXP]]
// CHECK-NEXT: %[[B:.+]] = intarsia.call "aten::add.Tensor"(self = %[[TWO]], other = %[[ROW]]
// CHECK-NEXT: return %[[A]], %[[LEFT]], %[[B]]
// CHECK: module @frozen attributes {intarsia.weights = [{name = "w"
// CHECK-NOT: name = "b"
// CHECK: func.func @main(%arg0: {{.*}} {intarsia.kind = "parameter", intarsia.target = "w"}
// CHECK-NEXT: %[[E:.+]] = intarsia.call "aten::exp"(self = %arg0)
// CHECK-NEXT: %[[R:.+]] = intarsia.call "aten::select.int"(self = %[[E]]
// CHECK-NEXT: %[[F:.+]] = intarsia.call "aten::full"
// CHECK-NEXT: %[[T:.+]] = intarsia.call "aten::mul.Tensor"(self = %[[R]], other = %[[F]])
// CHECK-NEXT: return %[[E]], %[[T]]
module attributes {intarsia.weights = [
    {name = "w", offset = 0 : i64, record = "data/weights/weight_0", type = !w},
    {name = "b", offset = 0 : i64, record = "data/weights/weight_1", type = !w}]} {
  func.func @main(%x: !w {intarsia.kind = "user"},
                  %w: !w {intarsia.kind = "parameter", intarsia.target = "w"}) -> (!w, !w, !v) {
    %0 = intarsia.call "aten::exp"(self = %w) : (!w) -> !w
    %1 = intarsia.call "aten::select.int"(self = %0, dim = 0, index = 2) {views = array<i64: 0>} : (!w) -> !v
    %2 = intarsia.call "aten::full"(size = [8], fill_value = 2.0) : () -> !v
    %3 = intarsia.call "aten::mul.Tensor"(self = %1, other = %2) : (!v, !v) -> !v
    %4 = intarsia.call "aten::select.int"(self = %w, dim = 0, index = 1) {views = array<i64: 0>} : (!w) -> !v
    %5 = intarsia.call "aten::neg"(self = %w) : (!w) -> !w
    %6 = intarsia.call "aten::add.Tensor"(self = %x, other = %0) : (!w, !w) -> !w
    %7 = intarsia.call "aten::add.Tensor"(self = %3, other = %4) : (!v, !v) -> !v
    return %6, %5, %7 : !w, !w, !v
  }
}

// -----

!v = !intarsia.tensor<[8]xf32>
!big = !intarsia.tensor<[1024, 1024]xf32>

// Nothing is frozen of: a buffer that is written, and what lies in its record; a weight
// without a record; operators of others, and random ones; uninitialised memory; factories
// alone; what is much larger than the weights.
// CHECK-NOT: frozen
module attributes {intarsia.weights = [
    {name = "steps", offset = 0 : i64, record = "data/weights/weight_0", type = !v},
    {name = "alias", offset = 0 : i64, record = "data/weights/weight_0", type = !v},
    {name = "object", offset = 0 : i64, object = 3 : i64, type = !v},
    {name = "w", offset = 0 : i64, record = "data/weights/weight_1", type = !v}]} {
  func.func @main(%x: !v {intarsia.kind = "user"},
                  %steps: !v {intarsia.kind = "buffer", intarsia.target = "steps"},
                  %alias: !v {intarsia.kind = "buffer", intarsia.target = "alias"},
                  %object: !v {intarsia.kind = "parameter", intarsia.target = "object"},
                  %w: !v {intarsia.kind = "parameter", intarsia.target = "w"})
      -> (!v {intarsia.output = "buffer_mutation", intarsia.target = "steps"}, !v, !v, !v, !v, !v, !v, !big) {
    %0 = intarsia.call "aten::exp"(self = %steps) : (!v) -> !v
    %1 = intarsia.call "aten::exp"(self = %alias) : (!v) -> !v
    %2 = intarsia.call "aten::exp"(self = %object) : (!v) -> !v
    %3 = intarsia.call "my::exp"(self = %w) : (!v) -> !v
    %4 = intarsia.call "aten::rand_like"(self = %w) {random} : (!v) -> !v
    %5 = intarsia.call "aten::empty_like"(self = %w) : (!v) -> !v
    %6 = intarsia.call "aten::full"(size = [8], fill_value = 2.0) : () -> !v
    %7 = intarsia.call "aten::expand_copy"(self = %w, size = [1024, 1024]) : (!v) -> !big
    %8 = intarsia.call "my::use"(a = %0) : (!v) -> !v
    %9 = intarsia.call "my::use"(a = %1) : (!v) -> !v
    %10 = intarsia.call "my::use"(a = %2) : (!v) -> !v
    %11 = intarsia.call "my::use"(a = %3) : (!v) -> !v
    %12 = intarsia.call "my::use"(a = %4) : (!v) -> !v
    %13 = intarsia.call "my::use"(a = %5) : (!v) -> !v
    %14 = intarsia.call "my::use"(a = %6) : (!v) -> !v
    %15 = intarsia.call "my::use"(a = %7) : (!big) -> !big
    return %8, %9, %10, %11, %12, %13, %14, %15 : !v, !v, !v, !v, !v, !v, !v, !big
  }
}
