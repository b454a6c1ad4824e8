// RUN: intarsia-opt %s | intarsia-opt | FileCheck %s
// RUN: intarsia-opt %s --mlir-print-op-generic | intarsia-opt | FileCheck %s
// RUN: intarsia-opt %s --mlir-print-debuginfo | intarsia-opt --mlir-print-debuginfo \
// RUN:   | FileCheck %s --check-prefix=LOC

!x = !intarsia.tensor<[s0, 64]xf32>
!y = !intarsia.tensor<[64]xi64>

func.func private @true_graph(!x) -> !x
func.func private @false_graph(!x) -> !x

// CHECK-LABEL: func.func @call(
// CHECK-SAME: %[[X:.+]]: !intarsia.tensor<[s0, 64]xf32>, %[[I:.+]]: !intarsia.tensor<[64]xi64>
func.func @call(%x: !x, %i: !y) -> !x {
  // CHECK: %[[MUL:.+]] = intarsia.call "aten::mul.Scalar"(self = %[[X]], other = 1.5) :
  // LOC: intarsia.call "aten::mul.Scalar"{{.*}} loc(#[[USER:.+]])
  %0 = intarsia.call "aten::mul.Scalar"(self = %x, other = 1.5) : (!x) -> !x loc("model.py":12:0)
  // No arguments, no results.
  // CHECK: intarsia.call "mylib::barrier"() {effectful} : () -> ()
  intarsia.call "mylib::barrier"() {effectful} : () -> ()
  return %0 : !x
}
// LOC: #[[USER]] = loc("model.py":12:0)

// CHECK-LABEL: func.func @constants
func.func @constants(%x: !x) {
  // CHECK: "mylib::numbers"(a = 3, b = -9223372036854775808, c = 1.5, d = -0.0, e = 0.1,
  // CHECK-SAME: f = 1.0e+20, g = 5.0e-324, h = 1.7976931348623157e+308,
  // CHECK-SAME: i = inf, j = neg_inf, k = nan, l = 0x7FF0000000000001 : f64)
  intarsia.call "mylib::numbers"(
      a = 3, b = -9223372036854775808, c = 1.5, d = -0.0, e = 0.1,
      f = 100000000000000000000.0, g = 4.9e-324, h = 1.7976931348623157e308,
      i = inf, j = neg_inf, k = nan, l = 0x7FF0000000000001 : f64) {effectful} : () -> ()
  // CHECK: "mylib::others"(a = none, b = true, c = false, d = complex<1.5, nan>,
  // CHECK-SAME: e = dtype<bool>, f = device<"cuda:0">, g = layout<"strided">,
  // CHECK-SAME: h = memory_format<"channels_last">, i = object<3>, j = @true_graph)
  intarsia.call "mylib::others"(
      a = none, b = true, c = false, d = complex<1.5, nan>, e = dtype<bool>,
      f = device<"cuda:0">, g = layout<"strided">,
      h = memory_format<"channels_last">, i = #intarsia.object<3>,
      j = @true_graph) {effectful} : () -> ()
  // CHECK: "mylib::strings"(a = "", b = "say \22hi\22\0A", c = "none", d = "\C3\A4", "not a word" = "%x")
  intarsia.call "mylib::strings"(a = "", b = "say \"hi\"\n", c = "none", d = "\C3\A4",
                                 "not a word" = "%x") {effectful} : () -> ()
  return
}

// CHECK-LABEL: func.func @lists(
// CHECK-SAME: %[[X:.+]]: !intarsia.tensor<[s0, 64]xf32>, %[[I:.+]]: !intarsia.tensor<[64]xi64>, %[[N:.+]]: index
func.func @lists(%x: !x, %i: !y, %n: index, %b: i1, %f: f64) {
  // CHECK: "mylib::lists"(a = [], b = [1, 2], c = [%[[X]], none, %[[I]]], d = [%[[N]], 4, -1],
  // CHECK-SAME: e = {{\[\[}}1, 2], [3], []], f = [2.5, 1], g = ["a", "b"], h = [true, false])
  intarsia.call "mylib::lists"(a = [], b = [1, 2], c = [%x, none, %i], d = [%n, 4, -1],
      e = [[1, 2], [3], []], f = [2.5, 1], g = ["a", "b"], h = [true, false])
      {effectful} : (!x, !y, index) -> ()
  // CHECK: "mylib::symbolic"(n = %{{.*}}, b = %{{.*}}, f = %{{.*}}) {{.*}} : (index, i1, f64) -> ()
  intarsia.call "mylib::symbolic"(n = %n, b = %b, f = %f) {effectful} : (index, i1, f64) -> ()
  // A value is one operand, however often it is passed.
  // CHECK: "mylib::same"(a = %[[X]], b = [%[[X]], %[[X]]]) {{.*}} : (!intarsia.tensor<[s0, 64]xf32>) -> ()
  intarsia.call "mylib::same"(a = %x, b = [%x, %x]) {effectful} : (!x) -> ()
  return
}

// CHECK-LABEL: func.func @mutation(
// CHECK-SAME: %[[X:.+]]: !intarsia.tensor<[s0, 64]xf32>, %[[I:.+]]: !intarsia.tensor<[64]xi64>
func.func @mutation(%x: !x, %i: !y) -> !x {
  // CHECK: %[[PUT:.+]]:2 = intarsia.call "mylib::put_"(self = %[[X]], where = [%[[I]], none], mode = "nearest")
  // CHECK-SAME: mutates(%[[X]]) : (!intarsia.tensor<[s0, 64]xf32>, !intarsia.tensor<[64]xi64>)
  // CHECK-SAME: -> (!intarsia.tensor<[64]xf32>, !intarsia.tensor<[s0, 64]xf32>)
  %0:2 = intarsia.call "mylib::put_"(self = %x, where = [%i, none], mode = "nearest")
      mutates(%x) : (!x, !y) -> (!intarsia.tensor<[64]xf32>, !x)
  // An operator that returns what it mutates.
  // CHECK: %[[ADD:.+]] = intarsia.call "aten::add_.Scalar"(self = %[[PUT]]#1, other = 1) mutates(%[[PUT]]#1) returns(tied)
  %1 = intarsia.call "aten::add_.Scalar"(self = %0#1, other = 1) mutates(%0#1) returns(tied) : (!x) -> !x
  // A view of the base is written.
  // CHECK: intarsia.call "mylib::fill_"(self = view<%[[ADD]], [4, s0], [64, 1], "2*s0">, value = 0.0)
  // CHECK-SAME: mutates(%[[ADD]])
  %2 = intarsia.call "mylib::fill_"(self = view<%1, [4, s0], [64, 1], "s0 + s0">, value = 0.0)
      mutates(%1) : (!x) -> !x
  // Two views of one base, of which one is the whole.
  // CHECK: intarsia.call "mylib::copy_"(to = view<%{{.*}}, [2, 64], [64, 1], 0>, from = %{{.*}}) mutates
  %3 = intarsia.call "mylib::copy_"(to = view<%2, [2, 64], [64, 1], 0>, from = %2) mutates(%2) : (!x) -> !x
  return %3 : !x
}

// CHECK-LABEL: func.func @returns
func.func @returns(%x: !x) -> (!x, !x, index) {
  // CHECK: %[[S:.+]]:3 = intarsia.call "mylib::split"(x = %{{.*}}) returns([0, 1], none, 2)
  %0:3 = intarsia.call "mylib::split"(x = %x) returns([0, 1], none, 2) : (!x) -> (!x, !x, index)
  // CHECK: intarsia.call "mylib::empty_list"(x = %{{.*}}) returns([], none) {effectful} :
  intarsia.call "mylib::empty_list"(x = %x) returns([], none) {effectful} : (!x) -> ()
  return %0#0, %0#1, %0#2 : !x, !x, index
}

// CHECK-LABEL: func.func @facts
func.func @facts(%x: !x) -> !intarsia.tensor<[u0, 64]xf32> {
  // CHECK: "mylib::nonzero"(x = %{{.*}}) {binds = [#intarsia.bind<"u0" = 0, "size:0">],
  // CHECK-SAME: random, schema = "mylib::nonzero(Tensor x) -> Tensor", tags = ["pt2_compliant_tag"]}
  %0 = intarsia.call "mylib::nonzero"(x = %x) {
      random, binds = [#intarsia.bind<"u0" = 0, "size:0">], tags = ["pt2_compliant_tag"],
      schema = "mylib::nonzero(Tensor x) -> Tensor"} : (!x) -> !intarsia.tensor<[u0, 64]xf32>
  // CHECK: "aten::view"({{.*}}) {aliasing, views = array<i64: 0>}
  %1 = intarsia.call "aten::view"(self = %x, size = [-1]) {aliasing, views = array<i64: 0>}
      : (!x) -> !intarsia.tensor<["64*s0"]xf32>
  return %0 : !intarsia.tensor<[u0, 64]xf32>
}

// CHECK-LABEL: func.func @subgraphs
func.func @subgraphs(%x: !x, %p: i1, %o: !intarsia.object) -> !x {
  // CHECK: "higher_order::cond"(pred = %{{.*}}, true_fn = @true_graph, false_fn = @false_graph, operands = [%{{.*}}])
  %0 = intarsia.call "higher_order::cond"(pred = %p, true_fn = @true_graph,
      false_fn = @false_graph, operands = [%x]) : (i1, !x) -> !x
  // CHECK: "mylib::method"(self = %{{.*}}) mutates(%{{.*}}) : (!intarsia.object) -> !intarsia.object
  %1 = intarsia.call "mylib::method"(self = %o) mutates(%o) : (!intarsia.object) -> !intarsia.object
  return %0 : !x
}

// What rewritings leave: equal operands, another order. Numbers, not values,
// keep them apart.
// CHECK-LABEL: func.func @numbered(
// CHECK-SAME: %[[X:.+]]: !intarsia.tensor<[s0, 64]xf32>, %[[Y:.+]]: !intarsia.tensor<[s0, 64]xf32>
func.func @numbered(%x: !x, %y: !x) {
  // CHECK: "mylib::f_"(a = operand<0>, b = view<1, [2], [1], 0>) operands(%[[X]], %[[X]]) mutates(1)
  %0 = intarsia.call "mylib::f_"(a = operand<0>, b = view<1, [2], [1], 0>) operands(%x, %x) mutates(1) : (!x, !x) -> !x
  // CHECK: "mylib::f"(a = [operand<1>], b = operand<0>) operands(%[[X]], %[[Y]])
  %1 = intarsia.call "mylib::f"(a = [operand<1>], b = operand<0>) operands(%x, %y) : (!x, !x) -> !x
  return
}

// CHECK-LABEL: func.func @numbers
func.func @numbers() -> (index, index, i1, f64) {
  // CHECK: intarsia.size s0 : index
  %0 = intarsia.size s0 : index
  // CHECK: intarsia.size "12*s0 + 1" : index
  %1 = intarsia.size "s0*12 + 1" : index
  // CHECK: intarsia.size "lt(s0, 4)" : i1
  %2 = intarsia.size "lt(s0, 4)" : i1
  // CHECK: intarsia.size "truediv(s0, 2)" : f64
  %3 = intarsia.size "truediv(s0, 2)" : f64
  // CHECK: intarsia.assert "le(1, u0)", "the batch must not be empty"
  intarsia.assert "ge(u0, 1)", "the batch must not be empty"
  return %0, %1, %2, %3 : index, index, i1, f64
}

// CHECK-LABEL: func.func @number_argument
// CHECK-SAME: index {intarsia.expr = #intarsia.expr<"2*s0">}
func.func @number_argument(%n: index {intarsia.expr = #intarsia.expr<"s0*2">}) {
  return
}

// CHECK-LABEL: func.func @weight
func.func @weight() -> !intarsia.tensor<[2]xf32> {
  // CHECK: intarsia.weight "lin.weight" : !intarsia.tensor<[2]xf32>
  %0 = intarsia.weight "lin.weight" : !intarsia.tensor<[2]xf32>
  return %0 : !intarsia.tensor<[2]xf32>
}

// CHECK-LABEL: func.func @kernel(
// CHECK-SAME: %[[X:.+]]: !intarsia.tensor<[s0, 64]xf32>
func.func @kernel(%x: !x) -> !x {
  // CHECK: intarsia.kernel(%[[X]]) symbols [s0, "2*s0"] ops ["aten::exp"] decisions {tile = 8 : i64} :
  // CHECK-SAME: (!intarsia.tensor<[s0, 64]xf32>) -> !intarsia.tensor<[s0, 64]xf32> {
  // CHECK-NEXT: ^bb0(%[[A:.+]]: tensor<?x64xf32>, %[[N:.+]]: index, %{{.*}}: index):
  // CHECK: %[[E:.+]] = linalg.exp
  // CHECK-NEXT: intarsia.yield %[[E]] : tensor<?x64xf32>
  %r = intarsia.kernel(%x) symbols [s0, "s0*2"] ops ["aten::exp"] decisions {tile = 8} : (!x) -> !x {
  ^bb0(%a: tensor<?x64xf32>, %n: index, %m: index):
    %e = tensor.empty(%n) : tensor<?x64xf32>
    %0 = linalg.exp ins(%a : tensor<?x64xf32>) outs(%e : tensor<?x64xf32>) -> tensor<?x64xf32>
    intarsia.yield %0 : tensor<?x64xf32>
  }
  // bool is i8 inside, u8 is signless.
  // CHECK: intarsia.kernel() : () -> (!intarsia.tensor<[2]xbool>, !intarsia.tensor<[]xu8>) {
  %c:2 = intarsia.kernel() : () -> (!intarsia.tensor<[2]xbool>, !intarsia.tensor<[]xu8>) {
    %0 = arith.constant dense<[0, 1]> : tensor<2xi8>
    %1 = arith.constant dense<255> : tensor<i8>
    intarsia.yield %0, %1 : tensor<2xi8>, tensor<i8>
  }
  return %r : !x
}
