// RUN: intarsia-opt --plan-waits %s | FileCheck %s

!v = !intarsia.tensor<[8]xf32>
!m = !intarsia.tensor<[2, 4]xf32>

// To the first use, views included; the starts keep their order.
// CHECK-LABEL: func.func @late
// CHECK: "_c10d_functional::all_reduce"(input = %arg0
// CHECK-NEXT: "my::work"(x = %arg1
// CHECK-NEXT: "_c10d_functional::all_reduce"(input = %arg1
// CHECK-NEXT: "my::work"(x = %arg0
// CHECK-NEXT: "_c10d_functional::wait_tensor"
// CHECK-NEXT: "aten::view"
// CHECK-NEXT: "my::use"
// CHECK-NEXT: "_c10d_functional::wait_tensor"
// CHECK-NEXT: return
func.func @late(%x: !v, %y: !v) -> (!v, !m, !v) {
  %0 = intarsia.call "_c10d_functional::all_reduce"(input = %x, reduce_op = "sum", group_name = "0") {effectful} : (!v) -> !v
  %1 = intarsia.call "_c10d_functional::wait_tensor"(tensor = %0) {effectful, views = array<i64: 0>} : (!v) -> !v
  %2 = intarsia.call "aten::view"(self = %1, size = [2, 4]) {views = array<i64: 0>} : (!v) -> !m
  %3 = intarsia.call "my::work"(x = %y) : (!v) -> !v
  %4 = intarsia.call "_c10d_functional::all_reduce"(input = %y, reduce_op = "sum", group_name = "0") {effectful} : (!v) -> !v
  %5 = intarsia.call "_c10d_functional::wait_tensor"(tensor = %4) {effectful, views = array<i64: 0>} : (!v) -> !v
  %6 = intarsia.call "my::work"(x = %x) : (!v) -> !v
  %7 = intarsia.call "my::use"(x = %2) : (!m) -> !m
  return %6, %7, %5 : !v, !m, !v
}

// What needs the result and is not observed is late, too: work that needs nothing
// of it, and the start of another collective, come before.
// CHECK-LABEL: func.func @with_consumers
// CHECK: "_c10d_functional::all_reduce"(input = %arg0
// CHECK-NEXT: "aten::cos"
// CHECK-NEXT: "_c10d_functional::all_reduce"(input = %arg1
// CHECK-NEXT: "_c10d_functional::wait_tensor"
// CHECK-NEXT: "aten::sin"
// CHECK-NEXT: "aten::view"
// CHECK-NEXT: "my::use"
// CHECK-NEXT: "aten::neg"
// CHECK-NEXT: "_c10d_functional::wait_tensor"
// CHECK-NEXT: "aten::exp"
// CHECK-NEXT: return
func.func @with_consumers(%x: !v, %y: !v) -> (!v, !m, !v, !v) {
  %0 = intarsia.call "_c10d_functional::all_reduce"(input = %x, reduce_op = "sum", group_name = "0") {effectful} : (!v) -> !v
  %1 = intarsia.call "_c10d_functional::wait_tensor"(tensor = %0) {effectful, views = array<i64: 0>} : (!v) -> !v
  %2 = intarsia.call "aten::sin"(self = %1) : (!v) -> !v
  %3 = intarsia.call "aten::view"(self = %2, size = [2, 4]) {views = array<i64: 0>} : (!v) -> !m
  %4 = intarsia.call "aten::cos"(self = %y) : (!v) -> !v
  %5 = intarsia.call "_c10d_functional::all_reduce"(input = %y, reduce_op = "sum", group_name = "0") {effectful} : (!v) -> !v
  %6 = intarsia.call "_c10d_functional::wait_tensor"(tensor = %5) {effectful, views = array<i64: 0>} : (!v) -> !v
  %7 = intarsia.call "aten::exp"(self = %6) : (!v) -> !v
  %8 = intarsia.call "my::use"(x = %3) : (!m) -> !m
  %9 = intarsia.call "aten::neg"(self = %4) : (!v) -> !v
  return %9, %8, %7, %2 : !v, !m, !v, !v
}

// A collective may still read memory that is written in place.
// CHECK-LABEL: func.func @before_a_write
// CHECK: "my::work"
// CHECK-NEXT: "_c10d_functional::wait_tensor"
// CHECK-NEXT: "my::write"
// CHECK-NEXT: return
func.func @before_a_write(%x: !v, %y: !v) -> (!v, !v) {
  %0 = intarsia.call "_c10d_functional::all_reduce"(input = %x, reduce_op = "sum", group_name = "0") {effectful} : (!v) -> !v
  %1 = intarsia.call "_c10d_functional::wait_tensor"(tensor = %0) {effectful, views = array<i64: 0>} : (!v) -> !v
  %2 = intarsia.call "my::work"(x = %y) : (!v) -> !v
  %3 = intarsia.call "my::write"(x = %x) mutates(%x) returns() : (!v) -> !v
  return %1, %3 : !v, !v
}
