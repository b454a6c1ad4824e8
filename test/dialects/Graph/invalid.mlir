// RUN: intarsia-opt %s --split-input-file --verify-diagnostics

// The number before a group is that of the constraint in the .td file.

//===----------------------------------------------------------------------===//
// !intarsia.tensor
//===----------------------------------------------------------------------===//

// 1.
// expected-error @+1 {{a tensor type has as many strides as sizes, not 1 strides for 2 sizes}}
func.func private @f(!intarsia.tensor<[2, 3]xf32, strides = [1]>)

// -----
// 2.
// expected-error @+1 {{size 1 is negative: -1}}
func.func private @f(!intarsia.tensor<[2, -1]xf32>)

// -----
// 3.
// expected-error @+1 {{"lt(s0, 2)" is a condition, not a size or stride}}
func.func private @f(!intarsia.tensor<["lt(s0, 2)"]xf32>)

// -----
// expected-error @+1 {{expected 'x' and a dtype, such as 'xf32', after the sizes}}
func.func private @f(!intarsia.tensor<[2]xf33>)

// -----
// expected-error @+1 {{expected 'x' and a dtype, such as 'xf32', after the sizes}}
func.func private @f(!intarsia.tensor<[2]f32>)

// -----
// expected-error @+1 {{expected 'strides' or 'device'}}
func.func private @f(!intarsia.tensor<[2]xf32, layout = "strided">)

// -----
// expected-error @+1 {{malformed expression: unknown function 'gamma'}}
func.func private @f(!intarsia.tensor<["gamma(s0)"]xf32>)

// -----
// expected-error @+1 {{malformed expression: unexpected end}}
func.func private @f(!intarsia.tensor<["s0 +"]xf32>)

// -----
// expected-error @+1 {{expected an integer, a symbol or a quoted expression}}
func.func private @f(!intarsia.tensor<[%x]xf32>)

// -----

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

// expected-error @+1 {{unknown dtype 'float32'}}
func.func private @f() attributes {a = #intarsia.dtype<float32>}

// -----
// expected-error @+1 {{a view has as many strides as sizes, not 1 strides for 2 sizes}}
func.func private @f() attributes {a = #intarsia.view<0, [2, 3], [1], 0>}

// -----
// expected-error @+1 {{the path of a binding is "value", "offset", "size:D" or "stride:D", not "shape:0"}}
func.func private @f() attributes {a = #intarsia.bind<"u0" = 0, "shape:0">}

// -----
// expected-error @+1 {{a binding names a symbol}}
func.func private @f() attributes {a = #intarsia.bind<"" = 0, "value">}

// -----
// expected-error @+1 {{a binding's result is not negative}}
func.func private @f() attributes {a = #intarsia.bind<"u0" = -1, "value">}

// -----

//===----------------------------------------------------------------------===//
// intarsia.call: syntax
//===----------------------------------------------------------------------===//

!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x, %y: !x) {
  // expected-error @+1 {{'%y' is not an argument of the call}}
  intarsia.call "mylib::f_"(x = %x) mutates(%y) : (!x) -> !x
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{arguments are given as values or as numbers of operands, not as both}}
  intarsia.call "mylib::f"(x = %x) operands(%x) : (!x) -> ()
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{a call that mutates 1 operands has at least as many results, not 0}}
  intarsia.call "mylib::f_"(x = %x) mutates(%x) : (!x) -> ()
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{expected an output's number, a list of these, 'none' or 'tied'}}
  intarsia.call "mylib::f"(x = %x) returns(%x) : (!x) -> !x
}

// -----

//===----------------------------------------------------------------------===//
// intarsia.call: verifier
//===----------------------------------------------------------------------===//

// 1.
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{updates operand 0 of type '!intarsia.tensor<[4]xf32>' with a value of type '!intarsia.tensor<[5]xf32>'}}
  %0 = intarsia.call "mylib::f_"(x = %x) mutates(%x) : (!x) -> !intarsia.tensor<[5]xf32>
  return
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{mutates 1 operands, but has 0 updated results}}
  %0 = "intarsia.call"(%x) {callee = "mylib::f_", args = [#intarsia.operand<0>], arg_names = ["x"],
      returns = [#intarsia.operand<0>], mutates = array<i64: 0>,
      resultSegmentSizes = array<i32: 1, 0>} : (!x) -> !x
  return
}

// -----
// 2.
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{no argument names operand 1}}
  intarsia.call "mylib::f"(x = operand<0>) operands(%x, %x) : (!x, !x) -> ()
  return
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{argument 'y' names operand 1, but there are 1}}
  intarsia.call "mylib::f"(x = operand<0>, y = [operand<1>]) operands(%x) : (!x) -> ()
  return
}

// -----
func.func @f(%n: index) {
  // expected-error @+1 {{argument 'x' is a view of operand 0, which is not a tensor}}
  intarsia.call "mylib::f"(x = view<%n, [2], [1], 0>) : (index) -> ()
  return
}

// -----
// 3.
func.func @f() {
  // expected-error @+1 {{has two arguments 'x'}}
  intarsia.call "mylib::f"(x = 1, x = 2) : () -> ()
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{has 1 arguments, but 2 argument names}}
  "intarsia.call"() {callee = "mylib::f", args = [1], arg_names = ["x", "y"], returns = [],
      resultSegmentSizes = array<i32: 0, 0>} : () -> ()
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{an argument's name is a string, not 2}}
  "intarsia.call"() {callee = "mylib::f", args = [1], arg_names = [2], returns = [],
      resultSegmentSizes = array<i32: 0, 0>} : () -> ()
  return
}

// -----
// 4.
!x = !intarsia.tensor<[4]xf32>
func.func @f() {
  // expected-error @+1 {{no return names output 1}}
  %0:2 = intarsia.call "mylib::f"() returns(0) : () -> (!x, !x)
  return
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f() {
  // expected-error @+1 {{returns output 0 twice}}
  %0 = intarsia.call "mylib::f"() returns([0, 0]) : () -> !x
  return
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f() {
  // expected-error @+1 {{returns output 1, but there are 1}}
  %0 = intarsia.call "mylib::f"() returns(0, 1) : () -> !x
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{a return is an output's number, a list of these, none or tied, not}}
  intarsia.call "mylib::f"() returns([[none]]) : () -> ()
  return
}

// -----
// 5.
func.func @f() {
  // expected-error @+1 {{argument 'x' has no known form: 1 : i32 (integers are i64, floats f64 attributes)}}
  intarsia.call "mylib::f"(x = [1 : i32]) : () -> ()
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{argument 'x' has no known form: 1.000000e+00 : f32}}
  intarsia.call "mylib::f"(x = 1.0 : f32) : () -> ()
  return
}

// -----
// 6.
func.func @f() {
  // expected-error @+1 {{the callee is "namespace::name" or "namespace::name.overload", not "add"}}
  intarsia.call "add"() : () -> ()
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{the callee is "namespace::name" or "namespace::name.overload", not "aten::add."}}
  intarsia.call "aten::add."() : () -> ()
  return
}

// -----
// 7.
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{mutates operand 0 twice}}
  %0:2 = intarsia.call "mylib::f_"(x = %x) mutates(%x, %x) : (!x) -> (!x, !x)
  return
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{mutates operand 1, but there are 1}}
  %0 = intarsia.call "mylib::f_"(x = %x) mutates(1) : (!x) -> !x
  return
}

// -----
func.func @f(%n: index) {
  // expected-error @+1 {{mutates operand 0, which is a number: 'index'}}
  %0 = intarsia.call "mylib::f_"(x = %n) mutates(%n) : (index) -> index
  return
}

// -----
// 8.
func.func @f() {
  // expected-error @+1 {{binds holds #intarsia.bind attributes, not "u0"}}
  intarsia.call "mylib::f"() {binds = ["u0"]} : () -> ()
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{binds 'u0' to output 1, but there are 1}}
  %0 = intarsia.call "mylib::f"() {binds = [#intarsia.bind<"u0" = 1, "value">]} : () -> index
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{binds 'u0' to the size:0 of output 0, which is a 'index'}}
  %0 = intarsia.call "mylib::f"() {binds = [#intarsia.bind<"u0" = 0, "size:0">]} : () -> index
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{binds 'u0' to the value of output 0, which is a '!intarsia.tensor<[u0]xf32>'}}
  %0 = intarsia.call "mylib::f"() {binds = [#intarsia.bind<"u0" = 0, "value">]}
      : () -> !intarsia.tensor<[u0]xf32>
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{binds 'u0' to dimension 1 of output 0, which has 1}}
  %0 = intarsia.call "mylib::f"() {binds = [#intarsia.bind<"u0" = 0, "stride:1">]}
      : () -> !intarsia.tensor<[u0]xf32>
  return
}

// -----
// 9.
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{views has 2 entries, but there are 1 outputs}}
  %0 = intarsia.call "mylib::f"(x = %x) {views = array<i64: 0, 0>} : (!x) -> !x
  return
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{an output is a view of operand 1, but there are 1}}
  %0 = intarsia.call "mylib::f"(x = %x) {views = array<i64: 1>} : (!x) -> !x
  return
}

// -----
// 10.
func.func @f(%p: i1) {
  // expected-error @+1 {{calls the subgraph @true_graph, which is no function of the module}}
  intarsia.call "higher_order::cond"(pred = %p, graphs = [@true_graph]) : (i1) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// intarsia.size, intarsia.assert
//===----------------------------------------------------------------------===//

// 1.
func.func @f() {
  // expected-error @+1 {{"lt(s0, 4)" is a condition: its type is i1, not 'index'}}
  %0 = intarsia.size "lt(s0, 4)" : index
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{"2*s0" is not a condition: its type is not i1}}
  %0 = intarsia.size "2*s0" : i1
  return
}

// -----
// 2.
func.func @f() {
  // expected-error @+1 {{"truediv(s0, 2)" may be a float: its type is f64, not 'index'}}
  %0 = intarsia.size "truediv(s0, 2)" : index
  return
}

// -----
// 1.
func.func @f() {
  // expected-error @+1 {{"s0 + 1" is not a condition}}
  intarsia.assert "s0 + 1", "message"
  return
}

// -----

//===----------------------------------------------------------------------===//
// intarsia.kernel
//===----------------------------------------------------------------------===//

// 1.
!x = !intarsia.tensor<[s0, 4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{has 1 inputs and 1 symbols, but its block has 1 arguments}}
  intarsia.kernel(%x) symbols [s0] : (!x) -> () {
  ^bb0(%a: tensor<?x4xf32>):
    intarsia.yield
  }
  return
}

// -----
!x = !intarsia.tensor<[s0, 4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{input 0 of type '!intarsia.tensor<[s0, 4]xf32>' is a 'tensor<?x4xf32>' inside the kernel, not a 'tensor<?x?xf32>'}}
  intarsia.kernel(%x) : (!x) -> () {
  ^bb0(%a: tensor<?x?xf32>):
    intarsia.yield
  }
  return
}

// -----
!x = !intarsia.tensor<[4]xc32>
func.func @f(%x: !x) {
  // expected-error @+1 {{input 0 has the type '!intarsia.tensor<[4]xc32>', of which there are no kernels}}
  intarsia.kernel(%x) : (!x) -> () {
  ^bb0(%a: tensor<4xcomplex<f16>>):
    intarsia.yield
  }
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{symbol 0 is an index inside the kernel, not a 'i64'}}
  intarsia.kernel() symbols [s0] : () -> () {
  ^bb0(%n: i64):
    intarsia.yield
  }
  return
}

// -----
// 2.
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{has 1 results, but yields 0 tensors}}
  %0 = intarsia.kernel(%x) : (!x) -> !x {
  ^bb0(%a: tensor<4xf32>):
    intarsia.yield
  }
  return
}

// -----
!x = !intarsia.tensor<[4]xf32>
func.func @f(%x: !x) {
  // expected-error @+1 {{result 0 of type '!intarsia.tensor<[4]xbool>' is a 'tensor<4xi8>' inside the kernel, not a 'tensor<4xf32>'}}
  %0 = intarsia.kernel(%x) : (!x) -> !intarsia.tensor<[4]xbool> {
  ^bb0(%a: tensor<4xf32>):
    intarsia.yield %a : tensor<4xf32>
  }
  return
}

// -----
// 3.
func.func @f() {
  // expected-error @+1 {{expects expressions as symbols, not "s0"}}
  "intarsia.kernel"() ({
  ^bb0(%n: index):
    "intarsia.yield"() : () -> ()
  }) {symbols = ["s0"]} : () -> ()
  return
}

// -----
func.func @f() {
  // expected-error @+1 {{expects operators' names in ops, not 1}}
  intarsia.kernel() ops [1] : () -> () {
    intarsia.yield
  }
  return
}

// -----

//===----------------------------------------------------------------------===//
// Attributes of functions' arguments
//===----------------------------------------------------------------------===//

// expected-error @+1 {{'intarsia.expr' of argument 0 is an expression, not "s0"}}
func.func private @f(index {intarsia.expr = "s0"})

// -----
// expected-error @+1 {{'intarsia.expr' is for index, i1 and f64 arguments; argument 0 is 'i64'}}
func.func private @f(i64 {intarsia.expr = #intarsia.expr<s0>})
