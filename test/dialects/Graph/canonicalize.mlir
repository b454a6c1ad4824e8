// RUN: intarsia-opt %s --canonicalize --cse | FileCheck %s

!x = !intarsia.tensor<[s0]xf32>

// An unused call of PyTorch's own goes, an equal one is merged: without effects it
// is a function of its operands.
// CHECK-LABEL: func.func @pure
func.func @pure(%x: !x) -> (!x, !x) {
  // CHECK-NOT: "aten::unused"
  %0 = intarsia.call "aten::unused"(x = %x) : (!x) -> !x
  // CHECK: %[[F:.+]] = intarsia.call "aten::f"
  // CHECK-NOT: "aten::f"
  %1 = intarsia.call "aten::f"(x = %x, n = 1) : (!x) -> !x
  %2 = intarsia.call "aten::f"(x = %x, n = 1) : (!x) -> !x
  // CHECK: return %[[F]], %[[F]]
  return %1, %2 : !x, !x
}

// Of somebody else's it is not known that it has no effects.
// CHECK-LABEL: func.func @unknown
func.func @unknown(%x: !x) -> (!x, !x) {
  // CHECK: "mylib::unused"
  %0 = intarsia.call "mylib::unused"(x = %x) : (!x) -> !x
  // CHECK-COUNT-2: "mylib::f"
  %1 = intarsia.call "mylib::f"(x = %x, n = 1) : (!x) -> !x
  %2 = intarsia.call "mylib::f"(x = %x, n = 1) : (!x) -> !x
  return %1, %2 : !x, !x
}

// Another constant is another call.
// CHECK-LABEL: func.func @different
func.func @different(%x: !x) -> (!x, !x) {
  // CHECK: %[[A:.+]] = intarsia.call "mylib::f"(x = %{{.*}}, n = 1)
  // CHECK: %[[B:.+]] = intarsia.call "mylib::f"(x = %{{.*}}, n = 1.0)
  %1 = intarsia.call "mylib::f"(x = %x, n = 1) : (!x) -> !x
  %2 = intarsia.call "mylib::f"(x = %x, n = 1.0) : (!x) -> !x
  // CHECK: return %[[A]], %[[B]]
  return %1, %2 : !x, !x
}

// A call with effects stays, as often and in the order it was written, used or
// not.
// CHECK-LABEL: func.func @effects
func.func @effects(%x: !x) {
  // CHECK: "mylib::print"
  // CHECK-NEXT: "mylib::rand"
  // CHECK-NEXT: "mylib::print"
  // CHECK-NEXT: "mylib::rand"
  // CHECK-NEXT: "mylib::set_"
  // CHECK-NEXT: "mylib::set_"
  // CHECK-NEXT: "mylib::alias"
  // CHECK-NEXT: "mylib::alias"
  // CHECK-NEXT: "mylib::item"
  // CHECK-NEXT: "mylib::item"
  intarsia.call "mylib::print"(x = %x) {effectful} : (!x) -> ()
  %0 = intarsia.call "mylib::rand"(x = %x) {random} : (!x) -> !x
  intarsia.call "mylib::print"(x = %x) {effectful} : (!x) -> ()
  %1 = intarsia.call "mylib::rand"(x = %x) {random} : (!x) -> !x
  %2 = intarsia.call "mylib::set_"(x = %x) mutates(%x) : (!x) -> !x
  %3 = intarsia.call "mylib::set_"(x = %x) mutates(%x) : (!x) -> !x
  %4 = intarsia.call "mylib::alias"(x = %x) {aliasing} : (!x) -> !x
  %5 = intarsia.call "mylib::alias"(x = %x) {aliasing} : (!x) -> !x
  %6 = intarsia.call "mylib::item"(x = %x) {binds = [#intarsia.bind<"u0" = 0, "value">]} : (!x) -> index
  %7 = intarsia.call "mylib::item"(x = %x) {binds = [#intarsia.bind<"u1" = 0, "value">]} : (!x) -> index
  return
}

// Operands that become equal stay two operands: of a mutating call one may be
// written and the other not.
// CHECK-LABEL: func.func @equal_operands
func.func @equal_operands(%x: !x) -> !x {
  // CHECK: %[[F:.+]] = intarsia.call "aten::f"
  %0 = intarsia.call "aten::f"(x = %x) : (!x) -> !x
  %1 = intarsia.call "aten::f"(x = %x) : (!x) -> !x
  // CHECK: "mylib::g_"(x = operand<0>, y = operand<1>) operands(%[[F]], %[[F]]) mutates(0)
  %2 = intarsia.call "mylib::g_"(x = %0, y = %1) mutates(%0) : (!x, !x) -> !x
  return %2 : !x
}

// CHECK-LABEL: func.func @sizes
func.func @sizes() -> (index, index) {
  // Equal expressions are equal numbers.
  // CHECK: %[[N:.+]] = intarsia.size "2*s0"
  %0 = intarsia.size "s0*2" : index
  %1 = intarsia.size "s0 + s0" : index
  // CHECK-NEXT: return %[[N]], %[[N]]
  return %0, %1 : index, index
}

// CHECK-LABEL: func.func @asserts
func.func @asserts() {
  // CHECK-NOT: "always"
  intarsia.assert "le(s0, s0 + 1)", "always"
  // CHECK: intarsia.assert "le(4, s0)", "sometimes"
  intarsia.assert "le(4, s0)", "sometimes"
  // CHECK: intarsia.assert "false", "never"
  intarsia.assert "lt(s0, s0)", "never"
  return
}

// What a kernel does not use, or is given twice, is dropped.
// CHECK-LABEL: func.func @kernel(
// CHECK-SAME: %[[X:.+]]: !intarsia.tensor<[s0]xf32>, %[[Y:.+]]: !intarsia.tensor<[s0]xf32>
func.func @kernel(%x: !x, %y: !x) -> !x {
  // CHECK: %[[R:.+]] = intarsia.kernel(%[[X]]) symbols [s0] ops ["aten::add.Tensor"] :
  // CHECK-NEXT: ^bb0(%[[A:.+]]: tensor<?xf32>, %[[N:.+]]: index):
  // CHECK-NEXT: tensor.empty(%[[N]])
  // CHECK-NEXT: linalg.add ins(%[[A]], %[[A]] :
  %0:2 = intarsia.kernel(%x, %y, %x) symbols ["s0 + 1", s0, s0] ops ["aten::add.Tensor"] : (!x, !x, !x) -> (!x, !x) {
  ^bb0(%a: tensor<?xf32>, %b: tensor<?xf32>, %c: tensor<?xf32>, %m: index, %n: index, %k: index):
    %e = tensor.empty(%n) : tensor<?xf32>
    %1 = linalg.add ins(%a, %c : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %f = tensor.empty(%k) : tensor<?xf32>
    %2 = linalg.exp ins(%b : tensor<?xf32>) outs(%f : tensor<?xf32>) -> tensor<?xf32>
    intarsia.yield %1, %2 : tensor<?xf32>, tensor<?xf32>
  }
  // CHECK: return %[[R]]
  return %0#0 : !x
}

// Once decisions are made, operands keep their numbers.
// CHECK-LABEL: func.func @decided
func.func @decided(%x: !x) -> !x {
  // CHECK: intarsia.kernel(%{{.*}}, %{{.*}}) decisions {inplace = 1 : i64}
  %0 = intarsia.kernel(%x, %x) decisions {inplace = 1} : (!x, !x) -> !x {
  ^bb0(%a: tensor<?xf32>, %b: tensor<?xf32>):
    intarsia.yield %b : tensor<?xf32>
  }
  return %0 : !x
}
