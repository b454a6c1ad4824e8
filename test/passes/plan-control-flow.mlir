// RUN: intarsia-opt --plan-inplace --plan-print %s -o /dev/null | FileCheck %s

// Higher-order calls become steps with nested functions.

!vec = !intarsia.tensor<[s0]xf32>
!row = !intarsia.tensor<[4, s0]xf32>
!flag = !intarsia.tensor<[]xbool>
!int = !intarsia.tensor<[]xi64>

module attributes {intarsia.weights = [{name = "c", type = !intarsia.tensor<[2]xf32>, record = "data/constants/c", offset = 0}]} {

// CHECK-LABEL: func main
// CHECK-SAME: c: f32[2] strides [1] weight "c" -> %[[C:[0-9]+]])
func.func @main(%x: !vec, %p: !flag, %i: !int, %xs: !row)
    -> (!vec, !vec, !vec, !row, !vec, !row) {
  // One branch uses a constant: both get it.
  // CHECK: %[[A:[0-9]+]] = cond @then @else(%[[P:[0-9]+]], %[[X:[0-9]+]], %[[C]])
  %a = intarsia.call "higher_order::cond"(pred = %p, true_fn = @then, false_fn = @else, operands = [%x])
    : (!flag, !vec) -> !vec
  // CHECK: {{.*}}, %[[B:[0-9]+]] = while @condition @body carried 2(%[[I:[0-9]+]], %[[A]], %[[X]])
  %w:2 = intarsia.call "higher_order::while_loop"(cond_fn = @condition, body_fn = @body,
      carried_inputs = [%i, %a], additional_inputs = [%x]) : (!int, !vec, !vec) -> (!int, !vec)
  // CHECK: = invoke @region(%[[B]])
  %s = intarsia.call "higher_order::invoke_subgraph"(subgraph = @region, identifier = "region_0", operands = [%w#1])
    : (!vec) -> !vec
  // CHECK: = map @region carried 1(%[[XS:[0-9]+]])
  %m = intarsia.call "higher_order::map_impl"(f = @region, xs = [%xs], pos_args = []) : (!row) -> !row
  // CHECK: = scan @step carried 1 scanned 1(%[[A]], %[[XS]], %[[X]])
  %sc:2 = intarsia.call "higher_order::scan"(combine_fn = @step, init = [%a], xs = [%xs], additional_inputs = [%x])
    : (!vec, !row, !vec) -> (!vec, !row)
  // CHECK: = invoke @with_grad
  %g = intarsia.call "higher_order::wrap_with_set_grad_enabled"(enable_grad = true, subgraph = @with_grad, operands = [%x])
    : (!vec) -> !vec
  // CHECK: = invoke @with_autocast
  %ac = intarsia.call "higher_order::wrap_with_autocast"(device_type = "cpu", dtype = dtype<bf16>, enabled = true,
      cache_enabled = none, subgraph = @with_autocast, operands = [%g]) : (!vec) -> !vec
  return %a, %s, %ac, %m, %sc#0, %sc#1 : !vec, !vec, !vec, !row, !vec, !row
}

// CHECK-LABEL: func then(arg0: f32[s0] strides [1] -> %{{[0-9]+}}, c: f32[2]
func.func private @then(%x: !vec) -> !vec {
  %c = intarsia.weight "c" : !intarsia.tensor<[2]xf32>
  %0 = intarsia.call "my::two"(x = %x, y = %c) : (!vec, !intarsia.tensor<[2]xf32>) -> !vec
  return %0 : !vec
}
// CHECK-LABEL: func else(arg0: f32[s0] strides [1] -> %{{[0-9]+}}, c: object
func.func private @else(%x: !vec) -> !vec {
  return %x : !vec
}
func.func private @condition(%i: !int, %y: !vec, %x: !vec) -> !flag {
  %0 = intarsia.call "aten::lt.Scalar"(self = %i, other = 3) : (!int) -> !flag
  return %0 : !flag
}
func.func private @body(%i: !int, %y: !vec, %x: !vec) -> (!int, !vec) {
  %0 = intarsia.call "aten::add.Tensor"(self = %i, other = 1, alpha = 1) : (!int) -> !int
  %1 = intarsia.call "my::two"(x = %y, y = %x) : (!vec, !vec) -> !vec
  return %0, %1 : !int, !vec
}
func.func private @region(%x: !vec) -> !vec {
  %0 = intarsia.call "my::one"(x = %x) : (!vec) -> !vec
  return %0 : !vec
}
func.func private @step(%carry: !vec, %x: !vec, %more: !vec) -> (!vec, !vec) {
  %0 = intarsia.call "my::two"(x = %carry, y = %x) : (!vec, !vec) -> !vec
  return %0, %0 : !vec, !vec
}
// CHECK-LABEL: func with_grad
// CHECK-NEXT: set_grad true
func.func private @with_grad(%x: !vec) -> !vec {
  %0 = intarsia.call "my::one"(x = %x) : (!vec) -> !vec
  return %0 : !vec
}
// CHECK-LABEL: func with_autocast
// CHECK-NEXT: autocast "cpu" true bf16
func.func private @with_autocast(%x: !vec) -> !vec attributes {intarsia.autocast} {
  %0 = intarsia.call "my::one"(x = %x) : (!vec) -> !vec
  return %0 : !vec
}
}
