// RUN: intarsia-opt --inline-regions %s | FileCheck %s

!v = !intarsia.tensor<[8]xf32>

// PyTorch's own operators do not see the grad mode; the region is gone.
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.+]] = intarsia.call "aten::exp"(self = %arg0)
// CHECK: %[[B:.+]] = intarsia.call "higher_order::wrap_with_set_grad_enabled"(enable_grad = false, subgraph = @custom, operands = [%[[A]]])
// CHECK: %[[C:.+]] = intarsia.call "my::op"(x = %[[B]])
// CHECK: %[[D:.+]] = intarsia.call "aten::exp"(self = %[[C]])
// CHECK: return %[[D]]
func.func @main(%x: !v) -> !v {
  %0 = intarsia.call "higher_order::wrap_with_set_grad_enabled"(enable_grad = false, subgraph = @plain, operands = [%x]) : (!v) -> !v
  %1 = intarsia.call "higher_order::wrap_with_set_grad_enabled"(enable_grad = false, subgraph = @custom, operands = [%0]) : (!v) -> !v
  %2 = intarsia.call "higher_order::wrap"(subgraph = @outer, operands = [%1]) : (!v) -> !v
  return %2 : !v
}

// CHECK-NOT: @plain
// CHECK: @custom
// CHECK-NOT: @outer
func.func private @plain(%x: !v) -> !v attributes {intarsia.returns = [#intarsia.operand<0>]} {
  %0 = intarsia.call "aten::exp"(self = %x) : (!v) -> !v
  return %0 : !v
}
func.func private @custom(%x: !v) -> !v attributes {intarsia.returns = [#intarsia.operand<0>]} {
  %0 = intarsia.call "my::op"(x = %x) : (!v) -> !v
  return %0 : !v
}
func.func private @outer(%x: !v) -> !v attributes {intarsia.returns = [#intarsia.operand<0>]} {
  %0 = intarsia.call "my::op"(x = %x) : (!v) -> !v
  %1 = intarsia.call "higher_order::wrap"(subgraph = @plain, operands = [%0]) : (!v) -> !v
  return %1 : !v
}
