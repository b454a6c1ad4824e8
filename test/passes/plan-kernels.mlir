// RUN: intarsia-opt --split-input-file --plan-inplace --plan-print %s -o /dev/null | FileCheck %s

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

// -----

!vec = !intarsia.tensor<[8]xf32>
#id = affine_map<(d0) -> (d0)>

// The new value of an argument is stored there: element by element.
// CHECK: func main(x: {{.*}} -> %[[X:[0-9]+]], y: {{.*}} -> %[[Y:[0-9]+]])
// CHECK-NEXT: launch 0 @add(%[[X]], %[[Y]], %[[X]])
// CHECK: return %[[X]] into "x"
func.func @main(%x: !vec {intarsia.name = "x", intarsia.kind = "user"}, %y: !vec {intarsia.name = "y", intarsia.kind = "user"})
    -> (!vec {intarsia.output = "input_mutation", intarsia.target = "x"}) {
  %0 = intarsia.kernel(%x, %y) ops ["aten::add.Tensor"] decisions {symbol = "add", domain = 8 : i64}
      : (!vec, !vec) -> !vec {
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.addf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    intarsia.yield %r : tensor<8xf32>
  }
  %1 = intarsia.call "aten::copy_"(self = %x, src = %0, non_blocking = false) mutates(%x) returns(tied) : (!vec, !vec) -> !vec
  return %1 : !vec
}

// -----

!mat = !intarsia.tensor<[8, 8]xf32>

// A kernel that reads the argument at other places makes a new tensor.
// CHECK: func main(x: {{.*}} -> %[[X:[0-9]+]])
// CHECK-NEXT: %[[T:[0-9]+]] = alloc
// CHECK: launch 0 @transpose(%[[X]], %[[T]])
// CHECK: copy %[[T]] into %[[X]]
func.func @main(%x: !mat {intarsia.name = "x", intarsia.kind = "user"})
    -> (!mat {intarsia.output = "input_mutation", intarsia.target = "x"}) {
  %0 = intarsia.kernel(%x) ops ["aten::transpose"] decisions {symbol = "transpose", domain = 8 : i64} : (!mat) -> !mat {
  ^bb0(%a: tensor<8x8xf32>):
    %e = tensor.empty() : tensor<8x8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      linalg.yield %p : f32
    } -> tensor<8x8xf32>
    intarsia.yield %r : tensor<8x8xf32>
  }
  return %0 : !mat
}

// -----

!vec = !intarsia.tensor<[8]xf32>
!one = !intarsia.tensor<[1]xf32>
#id = affine_map<(d0) -> (d0)>

// A kernel stores the new values of several arguments. What the caller may have
// given twice is compared when it is launched.
// CHECK: func main(x: {{.*}} -> %[[X:[0-9]+]], y: {{.*}} -> %[[Y:[0-9]+]], z: {{.*}} -> %[[Z:[0-9]+]], w: {{.*}} -> %[[W:[0-9]+]])
// CHECK-NEXT: launch 0 @step(%[[X]], %[[Y]], %[[Z]], %[[W]], %[[X]], %[[Y]])
// CHECK-SAME: apart %[[X]] from or same as %[[Y]]
// CHECK-SAME: apart %[[X]] from %[[Z]]
// CHECK-SAME: apart %[[Y]] from or same as %[[X]]
// CHECK-SAME: apart %[[Y]] from %[[Z]]
// CHECK-SAME: apart %[[Y]] from %[[X]]{{$|  //}}
// CHECK: return %[[X]] into "x", %[[Y]] into "y"
func.func @main(%x: !vec {intarsia.name = "x", intarsia.kind = "user"}, %y: !vec {intarsia.name = "y", intarsia.kind = "user"},
                %z: !one {intarsia.name = "z", intarsia.kind = "user"}, %w: !one {intarsia.name = "w", intarsia.kind = "parameter"})
    -> (!vec {intarsia.output = "input_mutation", intarsia.target = "x"}, !vec {intarsia.output = "input_mutation", intarsia.target = "y"}) {
  %0:2 = intarsia.kernel(%x, %y, %z, %w) ops ["aten::add.Tensor"] decisions {symbol = "step", domain = 8 : i64}
      : (!vec, !vec, !one, !one) -> (!vec, !vec) {
  ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<1xf32>, %d: tensor<1xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %r:2 = linalg.generic {indexing_maps = [#id, #id, affine_map<(d0) -> (0)>, affine_map<(d0) -> (0)>, #id, #id], iterator_types = ["parallel"]}
        ins(%a, %b, %c, %d : tensor<8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) outs(%e, %e : tensor<8xf32>, tensor<8xf32>) {
    ^bb0(%p: f32, %q: f32, %t: f32, %v: f32, %o: f32, %u: f32):
      %s = arith.addf %p, %q : f32
      %g = arith.addf %s, %t : f32
      %h = arith.addf %g, %v : f32
      linalg.yield %s, %h : f32, f32
    } -> (tensor<8xf32>, tensor<8xf32>)
    intarsia.yield %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
  }
  return %0#0, %0#1 : !vec, !vec
}

// -----

// A result takes over what an operator of PyTorch's returned and the kernel is the
// last to read: not what a custom operator returned, may know again and keep, not
// what is read later or returned, and not what is read at another place.

!vec = !intarsia.tensor<[8]xf32>

#id = affine_map<(d0) -> (d0)>

// CHECK: func main
// CHECK-NEXT: %[[LAST:[0-9]+]] = call aten::sort
// CHECK-NEXT: = alloc f32[8] strides [1] over %[[LAST]]
// CHECK-NOT: over %
// CHECK: return
func.func @main(%x: !vec {intarsia.name = "x", intarsia.kind = "user"}) -> (!vec, !vec, !vec, !vec, !vec) {
  %last = intarsia.call "aten::sort"(self = %x) : (!vec) -> !vec
  %0 = intarsia.kernel(%last) ops ["aten::neg"] decisions {symbol = "k", domain = 8 : i64} : (!vec) -> !vec {
  ^bb0(%a: tensor<8xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.negf %p : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    intarsia.yield %r : tensor<8xf32>
  }
  %returned = intarsia.call "aten::sort"(self = %x) : (!vec) -> !vec
  %1 = intarsia.kernel(%returned) ops ["aten::neg"] decisions {symbol = "k", domain = 8 : i64} : (!vec) -> !vec {
  ^bb0(%a: tensor<8xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.negf %p : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    intarsia.yield %r : tensor<8xf32>
  }
  %custom = intarsia.call "my::make"(self = %x) : (!vec) -> !vec
  %2 = intarsia.kernel(%custom) ops ["aten::neg"] decisions {symbol = "k", domain = 8 : i64} : (!vec) -> !vec {
  ^bb0(%a: tensor<8xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.negf %p : f32
      linalg.yield %s : f32
    } -> tensor<8xf32>
    intarsia.yield %r : tensor<8xf32>
  }
  %turned = intarsia.call "aten::sort"(self = %x) : (!vec) -> !vec
  %3 = intarsia.kernel(%turned) ops ["aten::flip"] decisions {symbol = "k", domain = 8 : i64} : (!vec) -> !vec {
  ^bb0(%a: tensor<8xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (7 - d0)>, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      linalg.yield %p : f32
    } -> tensor<8xf32>
    intarsia.yield %r : tensor<8xf32>
  }
  return %0, %1, %2, %3, %returned : !vec, !vec, !vec, !vec, !vec
}

// -----

// A view of it is as good: not where another part of it is read later.

!vec = !intarsia.tensor<[8]xf32>
!rows = !intarsia.tensor<[2, 4]xf32>

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK: func main
// CHECK: %[[MADE:[0-9]+]] = call aten::sort
// CHECK: %[[VIEW:[0-9]+]] = view %[[MADE]]
// CHECK: = alloc f32[2, 4] strides [4, 1] over %[[VIEW]]
// CHECK-NOT: over %
// CHECK: return
func.func @main(%x: !vec {intarsia.name = "x", intarsia.kind = "user"}) -> (!rows, !rows, !vec) {
  %made = intarsia.call "aten::sort"(self = %x) : (!vec) -> !vec
  %view = intarsia.call "aten::view"(self = %made, size = [2, 4]) {views = array<i64: 0>} : (!vec) -> !rows
  %0 = intarsia.kernel(%view) ops ["aten::neg"] decisions {symbol = "k", domain = 8 : i64} : (!rows) -> !rows {
  ^bb0(%a: tensor<2x4xf32>):
    %e = tensor.empty() : tensor<2x4xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.negf %p : f32
      linalg.yield %s : f32
    } -> tensor<2x4xf32>
    intarsia.yield %r : tensor<2x4xf32>
  }
  %again = intarsia.call "aten::sort"(self = %x) : (!vec) -> !vec
  %other = intarsia.call "aten::view"(self = %again, size = [2, 4]) {views = array<i64: 0>} : (!vec) -> !rows
  %1 = intarsia.kernel(%other) ops ["aten::neg"] decisions {symbol = "k", domain = 8 : i64} : (!rows) -> !rows {
  ^bb0(%a: tensor<2x4xf32>):
    %e = tensor.empty() : tensor<2x4xf32>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.negf %p : f32
      linalg.yield %s : f32
    } -> tensor<2x4xf32>
    intarsia.yield %r : tensor<2x4xf32>
  }
  return %0, %1, %again : !rows, !rows, !vec
}
