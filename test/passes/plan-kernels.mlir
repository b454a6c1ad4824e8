// RUN: intarsia-opt --plan-inplace --plan-print %s -o /dev/null | FileCheck %s

// Kernels in the plan: launches with their decisions, and memory. What only
// kernels see lies in the arena; what an operator sees or the caller gets is a
// tensor.

!vec = !intarsia.tensor<[s0]xf32>

// The arena has two places, not three: the third buffer takes the first one's.
// CHECK-LABEL: func main
// CHECK: arena 128*floordiv(s0 + 15, 16)
func.func @main(%x: !vec) -> !vec attributes {intarsia.symbols = {s0 = [2, unit]}} {
  // CHECK: %[[A:[0-9]+]] = alloc f32[s0] strides [1] in arena at 0
  // CHECK-NEXT: launch 0 @k0_exp(%[[X:[0-9]+]], %[[A]]) symbols [s0] domain s0 grain 1024 scratch 256
  %a = intarsia.kernel(%x) symbols [s0] ops ["aten::exp"] decisions {symbol = "k0_exp", domain = #intarsia.expr<"s0">, grain = 1024 : i64, scratch = 256 : i64}
      : (!vec) -> !vec {
  ^bb0(%t: tensor<?xf32>, %n: index):
    intarsia.yield %t : tensor<?xf32>
  }
  // CHECK: %[[B:[0-9]+]] = alloc f32[s0] strides [1] in arena at 64*floordiv(s0 + 15, 16)
  // CHECK-NEXT: launch 1 @k1_neg(%[[A]], %[[B]]) symbols [] domain floordiv(s0, 8)
  %b = intarsia.kernel(%a) ops ["aten::neg"] decisions {symbol = "k1_neg", domain = #intarsia.expr<"floordiv(s0, 8)">}
      : (!vec) -> !vec {
  ^bb0(%t: tensor<?xf32>):
    intarsia.yield %t : tensor<?xf32>
  }
  // CHECK: %[[C:[0-9]+]] = alloc f32[s0] strides [1] in arena at 0
  // CHECK-NEXT: launch 1 @k1_neg(%[[B]], %[[C]])
  %c = intarsia.kernel(%b) ops ["aten::neg"] decisions {symbol = "k1_neg", domain = #intarsia.expr<"floordiv(s0, 8)">}
      : (!vec) -> !vec {
  ^bb0(%t: tensor<?xf32>):
    intarsia.yield %t : tensor<?xf32>
  }
  // An operator sees this one: a tensor, freed after its last use.
  // CHECK: %[[D:[0-9]+]] = alloc f32[s0] strides [1]{{$|  //}}
  // CHECK: launch 0 @k0_exp(%[[C]], %[[D]])
  %d = intarsia.kernel(%c) symbols [s0] ops ["aten::exp"] decisions {symbol = "k0_exp", domain = #intarsia.expr<"s0">, grain = 1024 : i64, scratch = 256 : i64}
      : (!vec) -> !vec {
  ^bb0(%t: tensor<?xf32>, %n: index):
    intarsia.yield %t : tensor<?xf32>
  }
  // CHECK: %[[E:[0-9]+]] = call my::see(%[[D]])
  // CHECK-NEXT: free %[[D]]
  %e = intarsia.call "my::see"(x = %d) : (!vec) -> !vec
  // CHECK: %[[F:[0-9]+]] = alloc f32[s0] strides [1]{{$|  //}}
  // CHECK: launch 1 @k1_neg(%[[E]], %[[F]])
  // CHECK-NEXT: free %[[E]]
  %f = intarsia.kernel(%e) ops ["aten::neg"] decisions {symbol = "k1_neg", domain = #intarsia.expr<"floordiv(s0, 8)">}
      : (!vec) -> !vec {
  ^bb0(%t: tensor<?xf32>):
    intarsia.yield %t : tensor<?xf32>
  }
  // CHECK-NEXT: return %[[F]]
  return %f : !vec
}
