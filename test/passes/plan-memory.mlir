// RUN: intarsia-opt --split-input-file --plan-inplace --plan-print %s -o /dev/null | FileCheck %s

!vec = !intarsia.tensor<[8]xf32>

// Two buffers exchange their values: both old values are saved before either
// buffer is overwritten.
// CHECK: func main(a: {{.*}} -> %[[A:[0-9]+]], b: {{.*}} -> %[[B:[0-9]+]])
// CHECK-NEXT: %[[OLDB:[0-9]+]] = clone %[[B]]
// CHECK-NEXT: %[[OLDA:[0-9]+]] = clone %[[A]]
// CHECK-NEXT: copy %[[OLDB]] into %[[A]]
// CHECK: copy %[[OLDA]] into %[[B]]
// CHECK: return %[[A]] into "a", %[[B]] into "b"
func.func @main(%a: !vec {intarsia.name = "a", intarsia.kind = "buffer", intarsia.target = "a"},
                %b: !vec {intarsia.name = "b", intarsia.kind = "buffer", intarsia.target = "b"})
    -> (!vec {intarsia.output = "buffer_mutation", intarsia.target = "a"},
        !vec {intarsia.output = "buffer_mutation", intarsia.target = "b"}) {
  return %b, %a : !vec, !vec
}

// -----

!vec = !intarsia.tensor<[8]xf32>

// The caller gets the old value, of an input that is overwritten (AOTAutograd:
// it was saved for the backward pass).
// CHECK: func main(x: {{.*}} -> %[[X:[0-9]+]])
// CHECK: %[[NEW:[0-9]+]] = call my::next(%[[X]])
// CHECK: %[[OLD:[0-9]+]] = clone %[[X]]
// CHECK-NEXT: copy %[[NEW]] into %[[X]]
// CHECK: return %[[OLD]], %[[X]] into "x"
func.func @main(%x: !vec {intarsia.name = "x", intarsia.kind = "user"})
    -> (!vec {intarsia.output = "user"}, !vec {intarsia.output = "input_mutation", intarsia.target = "x"}) {
  %0 = intarsia.call "my::next"(x = %x) : (!vec) -> !vec
  %1 = intarsia.call "aten::copy_"(self = %x, src = %0, non_blocking = false) mutates(%x) returns(tied) : (!vec, !vec) -> !vec
  return %x, %1 : !vec, !vec
}

// -----

// An operator gets the strides that its fake implementation saw.
// CHECK: func main
// CHECK: %[[T:[0-9]+]] = alloc f32[4, 8] strides [1, 4]
// CHECK-NEXT: copy %[[X:[0-9]+]] into %[[T]]
// CHECK: call my::strided(%[[T]])
// CHECK: %[[CONTIGUOUS:[0-9]+]] = alloc f32[8, 4] strides [4, 1]
// CHECK: call my::contiguous(%[[CONTIGUOUS]])
// CHECK: call my::flexible(%{{[0-9]+}})
func.func @main(%x: !intarsia.tensor<[4, 8]xf32>, %y: !intarsia.tensor<[8, 4]xf32, strides = [1, 8]>)
    -> (!intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[8, 4]xf32>, !intarsia.tensor<[4, 8]xf32>) {
  %0 = intarsia.call "my::strided"(x = %x) {
      intarsia.eager_strides = [[#intarsia.expr<"1">, #intarsia.expr<"4">]]}
    : (!intarsia.tensor<[4, 8]xf32>) -> !intarsia.tensor<[4, 8]xf32>
  %1 = intarsia.call "my::contiguous"(x = %y) {tags = ["needs_contiguous_strides"]}
    : (!intarsia.tensor<[8, 4]xf32, strides = [1, 8]>) -> !intarsia.tensor<[8, 4]xf32>
  %2 = intarsia.call "my::flexible"(x = %x) {tags = ["flexible_layout"],
      intarsia.eager_strides = [[#intarsia.expr<"1">, #intarsia.expr<"4">]]}
    : (!intarsia.tensor<[4, 8]xf32>) -> !intarsia.tensor<[4, 8]xf32>
  return %0, %1, %2 : !intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[8, 4]xf32>, !intarsia.tensor<[4, 8]xf32>
}

// -----

// Updates of a buffer, in place.
// CHECK: func main(cache: {{.*}} -> %[[CACHE:[0-9]+]], i: {{.*}} -> %[[I:[0-9]+]], row: {{.*}} -> %[[ROW:[0-9]+]])
// CHECK-NEXT: tied = call aten::index_put_(%[[CACHE]], [%[[I]]], %[[ROW]], false) mutates %[[CACHE]]
// CHECK: %[[PART:[0-9]+]] = view %[[CACHE]] : f32[1, 8] strides [8, 1] offset 8
// CHECK-NEXT: copy %[[ROW]] into %[[PART]]
// CHECK: return %[[CACHE]] into "cache"
func.func @main(%cache: !intarsia.tensor<[4, 8]xf32> {intarsia.name = "cache", intarsia.kind = "buffer", intarsia.target = "cache"},
                %i: !intarsia.tensor<[1]xi64> {intarsia.name = "i"}, %row: !intarsia.tensor<[1, 8]xf32> {intarsia.name = "row"})
    -> (!intarsia.tensor<[4, 8]xf32> {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %0 = intarsia.call "aten::index_put"(self = %cache, indices = [%i], values = %row, accumulate = false)
    : (!intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1, 8]xf32>) -> !intarsia.tensor<[4, 8]xf32>
  %1 = intarsia.call "aten::slice_scatter"(self = %0, src = %row, dim = 0, start = 1, end = 2, step = 1)
    : (!intarsia.tensor<[4, 8]xf32>, !intarsia.tensor<[1, 8]xf32>) -> !intarsia.tensor<[4, 8]xf32>
  return %1 : !intarsia.tensor<[4, 8]xf32>
}

// -----

// A symbol that is nowhere bare is solved for; the division must be exact.
// CHECK: func main(x: f32[s0_size] strides [1] -> %{{[0-9]+}})
// CHECK-NEXT: guard eq(
// CHECK-SAME: // x.size(0) == 8*s0 + 1 for an integer s0
// CHECK-NEXT: guard le(4, floordiv(s0_size + 7, 8)) // x.size(0) == 8*s0 + 1 with s0 >= 3
// CHECK: call my::make({{.*}}, floordiv(s0_size + 7, 8) - 1)
func.func @main(%x: !intarsia.tensor<["8*s0 + 1"]xf32> {intarsia.name = "x"}) -> !intarsia.tensor<["s0"]xf32>
    attributes {intarsia.symbols = {s0 = [3, unit]}} {
  %n = intarsia.size "s0" : index
  %0 = intarsia.call "my::make"(x = %x, n = %n) : (!intarsia.tensor<["8*s0 + 1"]xf32>, index) -> !intarsia.tensor<["s0"]xf32>
  return %0 : !intarsia.tensor<["s0"]xf32>
}

// -----

// Of symbols that matter only as a product, the product is the symbol, also
// beside other terms and where one of the factors is known.
// CHECK: func main(x: {{.*}}, n: symint = product_s1_size + 1, y: f32[product_s1_size] strides
// CHECK: call my::make({{.*}}, product_s1_size + 1)
func.func @main(%x: !intarsia.tensor<[s0]xf32> {intarsia.name = "x"},
                %n: index {intarsia.name = "n", intarsia.kind = "user", intarsia.expr = #intarsia.expr<"s0*s1 + 2">},
                %y: !intarsia.tensor<["s0*s1 + 1"]xf32> {intarsia.name = "y"}) -> !intarsia.tensor<["s0*s1 + 2"]xf32>
    attributes {intarsia.symbols = {s0 = [0, unit], s1 = [2, unit]}} {
  %m = intarsia.size "s0*s1 + 2" : index
  %0 = intarsia.call "my::make"(x = %y, n = %m) : (!intarsia.tensor<["s0*s1 + 1"]xf32>, index) -> !intarsia.tensor<["s0*s1 + 2"]xf32>
  return %0 : !intarsia.tensor<["s0*s1 + 2"]xf32>
}

// -----

// A factor that is needed by itself is what the product leaves; any number is if
// the other factor is 0.
// CHECK: func main(x: f32[s0] strides [1] -> %{{[0-9]+}}, y: f32[s1_size] strides [1] -> %{{[0-9]+}})
// CHECK: guard eq(s0*floordiv(s1_size, max(1, s0)), s1_size) // y.size(0) == s0*s1 for an integer s1
// CHECK: call my::make({{.*}}, floordiv(s1_size, max(1, s0)))
func.func @main(%x: !intarsia.tensor<[s0]xf32> {intarsia.name = "x"},
                %y: !intarsia.tensor<["s0*s1"]xf32> {intarsia.name = "y"}) -> !intarsia.tensor<[s0]xf32>
    attributes {intarsia.symbols = {s0 = [0, unit], s1 = [2, unit]}} {
  %n = intarsia.size "s1" : index
  %0 = intarsia.call "my::make"(x = %y, n = %n) : (!intarsia.tensor<["s0*s1"]xf32>, index) -> !intarsia.tensor<[s0]xf32>
  return %0 : !intarsia.tensor<[s0]xf32>
}

// -----

// An unbacked size is bound by the result that defines it; results that nobody
// uses are still checked.
// CHECK: %[[N:[0-9]+]] binds u0=size(0), _ = call my::nonzero
// CHECK-SAME: i64[u0] strides [1], f32[2] strides [1]
// CHECK: call my::take(%[[N]], u0)
func.func @main(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[u0]xf32> {
  %0:2 = intarsia.call "my::nonzero"(x = %x) {binds = [#intarsia.bind<"u0" = 0, "size:0">]}
    : (!intarsia.tensor<[8]xf32>) -> (!intarsia.tensor<[u0]xi64>, !intarsia.tensor<[2]xf32>)
  %n = intarsia.size "u0" : index
  %1 = intarsia.call "my::take"(i = %0#0, n = %n) : (!intarsia.tensor<[u0]xi64>, index) -> !intarsia.tensor<[u0]xf32>
  return %1 : !intarsia.tensor<[u0]xf32>
}

// -----

// A chain of views is one step, made where it is needed. The reshape of a
// contiguous tensor is a view as well; that of another one is a call.
// CHECK: func main(x: {{.*}} -> %[[X:[0-9]+]])
// CHECK-NEXT: %[[R:[0-9]+]] = view %[[X]] : f32[2, 8] strides [8, 1] offset 16
// CHECK: call my::one(%[[R]])
// CHECK: %[[T:[0-9]+]] = view %[[X]] : f32[8, 2] strides [1, 8] offset 16
// CHECK: call aten::reshape(%[[T]], [16])
func.func @main(%x: !intarsia.tensor<[4, 8]xf32> {intarsia.name = "x"})
    -> (!intarsia.tensor<[2, 8]xf32>, !intarsia.tensor<[16]xf32>) {
  %0 = intarsia.call "aten::slice.Tensor"(self = %x, dim = 0, start = 2, end = 9223372036854775807, step = 1)
    {views = array<i64: 0>} : (!intarsia.tensor<[4, 8]xf32>) -> !intarsia.tensor<[2, 8]xf32>
  %1 = intarsia.call "aten::reshape"(self = %0, shape = [16]) {views = array<i64: 0>}
    : (!intarsia.tensor<[2, 8]xf32>) -> !intarsia.tensor<[16]xf32>
  %2 = intarsia.call "aten::view"(self = %1, size = [2, 8]) {views = array<i64: 0>}
    : (!intarsia.tensor<[16]xf32>) -> !intarsia.tensor<[2, 8]xf32>
  %3 = intarsia.call "my::one"(x = %2) : (!intarsia.tensor<[2, 8]xf32>) -> !intarsia.tensor<[2, 8]xf32>
  %4 = intarsia.call "aten::t"(self = %0) {views = array<i64: 0>}
    : (!intarsia.tensor<[2, 8]xf32>) -> !intarsia.tensor<[8, 2]xf32, strides = [1, 8]>
  %5 = intarsia.call "aten::reshape"(self = %4, shape = [16]) {views = array<i64: 0>}
    : (!intarsia.tensor<[8, 2]xf32, strides = [1, 8]>) -> !intarsia.tensor<[16]xf32>
  return %3, %5 : !intarsia.tensor<[2, 8]xf32>, !intarsia.tensor<[16]xf32>
}
