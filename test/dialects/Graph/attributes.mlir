// RUN: intarsia-opt %s | intarsia-opt | FileCheck %s

// CHECK-LABEL: func.func private @attributes
// CHECK-SAME: bind = #intarsia.bind<"u0" = 1, "size:0">
// CHECK-SAME: complex = #intarsia.complex<0.1, neg_inf>
// CHECK-SAME: device = #intarsia.device<"cuda:1">
// CHECK-SAME: dtype = #intarsia.dtype<bf16>
// CHECK-SAME: expr = #intarsia.expr<"12*s0 + 1">
// CHECK-SAME: layout = #intarsia.layout<"sparse_coo">
// CHECK-SAME: memory_format = #intarsia.memory_format<"channels_last">
// CHECK-SAME: none = #intarsia.none
// CHECK-SAME: object = #intarsia.object<3>
// CHECK-SAME: operand = #intarsia.operand<0>
// CHECK-SAME: symbol = #intarsia.expr<"s0">
// CHECK-SAME: view = #intarsia.view<0, [4, s0], [s0, 1], "2*s0">
func.func private @attributes() attributes {
  bind = #intarsia.bind<"u0" = 1, "size:0">,
  complex = #intarsia.complex<0.1, neg_inf>,
  device = #intarsia.device<"cuda:1">,
  dtype = #intarsia.dtype<bf16>,
  expr = #intarsia.expr<"1 + s0*12">,
  layout = #intarsia.layout<"sparse_coo">,
  memory_format = #intarsia.memory_format<"channels_last">,
  none = #intarsia.none,
  object = #intarsia.object<3>,
  operand = #intarsia.operand<0>,
  symbol = #intarsia.expr<s0>,
  view = #intarsia.view<0, [4, s0], [s0, 1], "s0 + s0">}
