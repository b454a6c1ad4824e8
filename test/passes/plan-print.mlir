// RUN: intarsia-opt --plan-inplace --plan-print %s -o /dev/null | FileCheck %s
// RUN: intarsia-opt --plan-inplace --plan-print=strided-views=false %s -o /dev/null | FileCheck --check-prefix=CALLS %s

// The plan of a whole module: what intarsia-run executes.

!mat = !intarsia.tensor<[4, s0]xf32>
!vec = !intarsia.tensor<[s0]xf32>

// CHECK: weight "c": f32[2] strides [1] record "data/constants/c"
// CHECK-NEXT: weight "cache": f32[4, 8] strides [8, 1] record "data/weights/cache" mutated
module attributes {intarsia.weights = [
    {name = "c", type = !intarsia.tensor<[2]xf32>, record = "data/constants/c", offset = 0},
    {name = "cache", type = !intarsia.tensor<[4, 8]xf32>, record = "data/weights/cache", offset = 0}]} {

// A lifted constant is one more input. Symbols are bound by sizes; a buffer is
// written in place and returned as its own new value.
// CHECK-NEXT: func main(x: f32[4, s0] strides [s0, 1] -> %[[X:[0-9]+]],
// CHECK-SAME: n: symint binds s1
// CHECK-SAME: b_cache: f32[4, 8] strides [8, 1] weight "cache" -> %[[CACHE:[0-9]+]],
// CHECK-SAME: c: f32[2] strides [1] weight "c" -> %[[C:[0-9]+]])
func.func @main(%x: !mat {intarsia.name = "x", intarsia.kind = "user"},
                %n: index {intarsia.name = "n", intarsia.kind = "user", intarsia.expr = #intarsia.expr<"s1">},
                %cache: !intarsia.tensor<[4, 8]xf32> {intarsia.name = "b_cache", intarsia.kind = "buffer",
                                                      intarsia.target = "cache"})
    -> (!intarsia.tensor<[4, 8]xf32> {intarsia.output = "buffer_mutation", intarsia.target = "cache"}, !vec, index)
    attributes {intarsia.symbols = {s0 = [2, 64], s1 = [unit, unit]},
                intarsia.guards = ["eq(mod(s0, 2), 0)"], intarsia.guard_texts = ["s0 % 2 == 0"],
                intarsia.returns = [#intarsia.operand<0>, #intarsia.none, #intarsia.operand<1>, #intarsia.operand<2>]} {
  // CHECK-NEXT: range s0 in [2, 64]
  // CHECK-NEXT: guard eq(mod(s0, 2), 0)  // s0 % 2 == 0
  // CHECK: assert le(1, s1)
  intarsia.assert "le(1, s1)", "n must be positive"
  %c = intarsia.weight "c" : !intarsia.tensor<[2]xf32>
  %m = intarsia.size "s0*4" : index
  // Constants, symbolic numbers and lists; memory goes at the last use.
  // CHECK: %[[A:[0-9]+]] = call my::make(%[[X]], 4*s0, s1, 1.5, "text", none, [1, %[[C]]], true) check-alias : f32[4, s0] strides [s0, 1]
  // CHECK-NEXT: free %[[X]]
  %a = intarsia.call "my::make"(x = %x, m = %m, n = %n, f = 1.5, t = "text", o = none, l = [1, %c], b = true)
    : (!mat, index, index, !intarsia.tensor<[2]xf32>) -> !mat
  // CALLS: call aten::select.int({{.*}}, 0, 2) : f32[s0] strides [1]
  %row = intarsia.call "aten::select.int"(self = %a, dim = 0, index = 2) {views = array<i64: 0>} : (!mat) -> !vec
  // The old value is read later: the operator gets a copy, and the copy's row
  // for the row.
  // CHECK: %[[B:[0-9]+]] = clone %[[A]]
  // CHECK: %[[BROW:[0-9]+]] = view %[[B]] : f32[s0] strides [1] offset 2*s0
  // CHECK: call my::put_(%[[B]], %[[BROW]], %[[B]]) mutates %[[B]]
  %b = intarsia.call "my::put_"(dst = %a, src = %row, also = %a) mutates(%a) : (!mat, !vec) -> !mat
  // The kernel runs under the autocast that eager had on.
  // CHECK: call my::cast({{.*}}) check-alias autocast cpu=bf16
  %cast = intarsia.call "my::cast"(x = %b) {intarsia.autocast = "cpu=bf16"} : (!mat) -> !mat
  intarsia.call "my::use"(x = %cast) {effectful} : (!mat) -> ()
  // A view is made where it is first needed.
  // CHECK: %[[ROW:[0-9]+]] = view %[[A]] : f32[s0] strides [1] offset 2*s0
  // CHECK: %[[K:[0-9]+]] = call my::count(%[[ROW]], %[[B]])
  %k = intarsia.call "my::count"(x = %row, y = %b) : (!vec, !mat) -> index
  // CHECK: call my::store_(view(%[[CACHE]], [8], [1], 16), %[[K]]) mutates %[[CACHE]]
  %new = intarsia.call "my::store_"(dst = view<%cache, [8], [1], 16>, k = %k) mutates(%cache)
    : (!intarsia.tensor<[4, 8]xf32>, index) -> !intarsia.tensor<[4, 8]xf32>
  // CHECK: return %[[CACHE]] into "cache", none, %[[ROW]], %[[K]]
  return %new, %row, %k : !intarsia.tensor<[4, 8]xf32>, !vec, index
}
}
