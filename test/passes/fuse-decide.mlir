// RUN: intarsia-opt --lower-calls --fuse-analyse --fuse-decide %s | FileCheck %s
// RUN: intarsia-opt --lower-calls --fuse-analyse --fuse-decide=max-ops=3 %s | FileCheck --check-prefix=SMALL %s

// The clauses of the rule, each with a case that fuses and one that does not.
// Kernels that become one have the same number `intarsia.group`.

!vec = !intarsia.tensor<[8]xf32>
!mat = !intarsia.tensor<[4, 8]xf32>
!col = !intarsia.tensor<[4, 1]xf32>
!tam = !intarsia.tensor<[8, 4]xf32>
!tamView = !intarsia.tensor<[8, 4]xf32, strides = [1, 8]>
!square = !intarsia.tensor<[8, 8]xf32>
!squareView = !intarsia.tensor<[8, 8]xf32, strides = [1, 8]>
!idx = !intarsia.tensor<[3]xi64>

// Element by element, of one size. With small kernels only: not.
// CHECK-LABEL: func.func @elements
// CHECK: ops ["aten::exp"] {{.*}}intarsia.group = 0
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group = 0
// SMALL-LABEL: func.func @elements
// SMALL-NOT: intarsia.group
// SMALL: return
func.func @elements(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::neg"(self = %0) : (!mat) -> !mat
  return %1 : !mat
}

// What is computed is stored as well when somebody else needs it: a call.
// CHECK-LABEL: func.func @needed_by_a_call
// CHECK: ops ["aten::exp"] {{.*}}intarsia.group = 0
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group = 0
func.func @needed_by_a_call(%x: !mat) -> (!mat, !mat) {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::neg"(self = %0) : (!mat) -> !mat
  %2 = intarsia.call "my::see"(x = %0) : (!mat) -> !mat
  return %1, %2 : !mat, !mat
}

// A path that leaves the group and comes back.
// CHECK-LABEL: func.func @call_between
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @call_between(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "my::see"(x = %0) : (!mat) -> !mat
  %2 = intarsia.call "aten::add.Tensor"(self = %0, other = %1, alpha = 1) : (!mat, !mat) -> !mat
  return %2 : !mat
}

// As one kernel, they would come between two calls that are in the other order.
// CHECK-LABEL: func.func @calls_in_order
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @calls_in_order(%x: !mat) -> (!mat, !mat) {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "my::first"(x = %0) : (!mat) -> !mat
  %2 = intarsia.call "my::second"(x = %x) : (!mat) -> !mat
  %3 = intarsia.call "aten::add.Tensor"(self = %0, other = %2, alpha = 1) : (!mat, !mat) -> !mat
  return %1, %3 : !mat, !mat
}

// The same through another group: exp and add can't be one, since what is
// between them is one with neither.
// CHECK-LABEL: func.func @group_between
// CHECK: ops ["aten::exp"] {{.*}}intarsia.group = [[G:[0-9]+]]
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group = [[G]]
// CHECK: ops ["aten::add.Tensor"]
// CHECK-NOT: intarsia.group = [[G]]
// CHECK: return
func.func @group_between(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::neg"(self = %0) : (!mat) -> !mat
  %2 = intarsia.call "my::see"(x = %1) : (!mat) -> !mat
  %3 = intarsia.call "aten::add.Tensor"(self = %0, other = %2, alpha = 1) : (!mat, !mat) -> !mat
  return %3 : !mat
}

// A write to what the first reads has to come between the two.
// CHECK-LABEL: func.func @write_between
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @write_between(%x: !mat) -> (!mat, !mat) {
  %0 = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::exp"(self = %0) : (!mat) -> !mat
  %2 = intarsia.call "my::put_"(dst = %0) mutates(%0) : (!mat) -> !mat
  %3 = intarsia.call "aten::add.Tensor"(self = %1, other = %2, alpha = 1) : (!mat, !mat) -> !mat
  return %3, %2 : !mat, !mat
}

// Also when the first reads a piece of it.
// CHECK-LABEL: func.func @write_between_pieces
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @write_between_pieces(%x: !mat) -> (!intarsia.tensor<[2, 8]xf32>, !mat) {
  %0 = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %p:2 = intarsia.call "aten::split.Tensor"(self = %0, split_size = 2, dim = 0) returns([0, 1]) {views = array<i64: 0, 0>} : (!mat) -> (!intarsia.tensor<[2, 8]xf32>, !intarsia.tensor<[2, 8]xf32>)
  %1 = intarsia.call "aten::exp"(self = %p#1) : (!intarsia.tensor<[2, 8]xf32>) -> !intarsia.tensor<[2, 8]xf32>
  %2 = intarsia.call "my::put_"(dst = %0) mutates(%0) : (!mat) -> !mat
  %q = intarsia.call "my::first"(x = %2) : (!mat) -> !intarsia.tensor<[2, 8]xf32>
  %3 = intarsia.call "aten::add.Tensor"(self = %1, other = %q, alpha = 1) : (!intarsia.tensor<[2, 8]xf32>, !intarsia.tensor<[2, 8]xf32>) -> !intarsia.tensor<[2, 8]xf32>
  return %3, %2 : !intarsia.tensor<[2, 8]xf32>, !mat
}

// Somebody else needs it, and it is read in another order.
// CHECK-LABEL: func.func @needed_and_transposed
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @needed_and_transposed(%x: !mat) -> (!mat, !tam) {
  %0 = intarsia.call "aten::neg"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::t"(self = %0) {views = array<i64: 0>} : (!mat) -> !tamView
  %2 = intarsia.call "aten::abs"(self = %1) : (!tamView) -> !tam
  return %0, %2 : !mat, !tam
}

// A reduction and readers of its row, at the row's place.
// CHECK-LABEL: func.func @rows
// CHECK: ops ["aten::mean.dim"] {{.*}}intarsia.group = [[G:[0-9]+]]
// CHECK: ops ["aten::sub.Tensor"] {{.*}}intarsia.group = [[G]]
// CHECK: ops ["aten::sum.dim_IntList"] {{.*}}intarsia.group = [[G]]
func.func @rows(%x: !mat) -> (!mat, !col) {
  %0 = intarsia.call "aten::mean.dim"(self = %x, dim = [1], keepdim = true, dtype = none) : (!mat) -> !col
  %1 = intarsia.call "aten::sub.Tensor"(self = %x, other = %0, alpha = 1) : (!mat, !col) -> !mat
  %2 = intarsia.call "aten::sum.dim_IntList"(self = %1, dim = [1], keepdim = true, dtype = none) : (!mat) -> !col
  return %1, %2 : !mat, !col
}

// Its readers lie otherwise: transposed, in other rows.
// CHECK-LABEL: func.func @transposed_reader
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @transposed_reader(%x: !mat) -> !tam {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = -1, half_to_float = false) : (!mat) -> !mat
  %1 = intarsia.call "aten::t"(self = %0) {views = array<i64: 0>} : (!mat) -> !tamView
  %2 = intarsia.call "aten::neg"(self = %1) : (!tamView) -> !tam
  return %2 : !tam
}

// Rows of one tensor along different dimensions.
// CHECK-LABEL: func.func @rows_and_columns
// CHECK: ops ["aten::_softmax"]
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @rows_and_columns(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = 0, half_to_float = false) : (!mat) -> !mat
  %1 = intarsia.call "aten::_softmax"(self = %0, dim = 1, half_to_float = false) : (!mat) -> !mat
  return %1 : !mat
}

// Columns of one tensor, and what is read element by element.
// CHECK-LABEL: func.func @columns
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group = [[G:[0-9]+]]
// CHECK: ops ["aten::_softmax"] {{.*}}intarsia.group = [[G]]
// CHECK: ops ["aten::sum.dim_IntList"] {{.*}}intarsia.group = [[G]]
func.func @columns(%x: !mat) -> !vec {
  %0 = intarsia.call "aten::neg"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::_softmax"(self = %0, dim = 0, half_to_float = false) : (!mat) -> !mat
  %2 = intarsia.call "aten::sum.dim_IntList"(self = %1, dim = [0], keepdim = false, dtype = none) : (!mat) -> !vec
  return %2 : !vec
}

// Read at positions that data decides.
// CHECK-LABEL: func.func @gathered
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @gathered(%x: !mat, %i: !idx) -> !intarsia.tensor<[3, 8]xf32> {
  %0 = intarsia.call "aten::neg"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::index_select"(self = %0, dim = 0, index = %i) : (!mat, !idx) -> !intarsia.tensor<[3, 8]xf32>
  return %1 : !intarsia.tensor<[3, 8]xf32>
}

// Of another size: cheap, and nobody else needs it.
// CHECK-LABEL: func.func @cheap_broadcast
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group = [[G:[0-9]+]]
// CHECK: ops ["aten::add.Tensor"] {{.*}}intarsia.group = [[G]]
func.func @cheap_broadcast(%x: !vec, %y: !mat) -> !mat {
  %0 = intarsia.call "aten::neg"(self = %x) : (!vec) -> !vec
  %1 = intarsia.call "aten::add.Tensor"(self = %y, other = %0, alpha = 1) : (!mat, !vec) -> !mat
  return %1 : !mat
}

// The same, but dear.
// CHECK-LABEL: func.func @dear_broadcast
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @dear_broadcast(%x: !vec, %y: !mat) -> !mat {
  %0 = intarsia.call "aten::exp"(self = %x) : (!vec) -> !vec
  %1 = intarsia.call "aten::add.Tensor"(self = %y, other = %0, alpha = 1) : (!mat, !vec) -> !mat
  return %1 : !mat
}

// The same, but somebody else needs it.
// CHECK-LABEL: func.func @needed_broadcast
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @needed_broadcast(%x: !vec, %y: !mat) -> (!mat, !vec) {
  %0 = intarsia.call "aten::neg"(self = %x) : (!vec) -> !vec
  %1 = intarsia.call "aten::add.Tensor"(self = %y, other = %0, alpha = 1) : (!mat, !vec) -> !mat
  return %1, %0 : !mat, !vec
}

// Dear, and read at two positions. Cheap: fine.
// CHECK-LABEL: func.func @twice
// CHECK: ops ["aten::exp"]
// CHECK-NOT: intarsia.group
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group
// CHECK: ops ["aten::add.Tensor"] {{.*}}intarsia.group
func.func @twice(%x: !square) -> (!square, !square) {
  %0 = intarsia.call "aten::exp"(self = %x) : (!square) -> !square
  %1 = intarsia.call "aten::t"(self = %0) {views = array<i64: 0>} : (!square) -> !squareView
  %2 = intarsia.call "aten::add.Tensor"(self = %0, other = %1, alpha = 1) : (!square, !squareView) -> !square
  %3 = intarsia.call "aten::neg"(self = %x) : (!square) -> !square
  %4 = intarsia.call "aten::t"(self = %3) {views = array<i64: 0>} : (!square) -> !squareView
  %5 = intarsia.call "aten::add.Tensor"(self = %3, other = %4, alpha = 1) : (!square, !squareView) -> !square
  return %2, %5 : !square, !square
}

// A running value is known at its own position, where others may read it.
// CHECK-LABEL: func.func @running
// CHECK: ops ["aten::exp"] {{.*}}intarsia.group = [[G:[0-9]+]]
// CHECK: ops ["aten::cumsum"] {{.*}}intarsia.group = [[G]]
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group = [[G]]
func.func @running(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::cumsum"(self = %0, dim = 0, dtype = none) : (!mat) -> !mat
  %2 = intarsia.call "aten::neg"(self = %1) : (!mat) -> !mat
  return %2 : !mat
}

// Not elsewhere, nor where other values are carried along.
// CHECK-LABEL: func.func @running_elsewhere
// CHECK-NOT: intarsia.group
// CHECK: return
func.func @running_elsewhere(%x: !mat) -> (!mat, !vec, !mat) {
  %0 = intarsia.call "aten::cumsum"(self = %x, dim = 0, dtype = none) : (!mat) -> !mat
  %1 = intarsia.call "aten::flip"(self = %0, dims = [0]) : (!mat) -> !mat
  %2 = intarsia.call "aten::sum.dim_IntList"(self = %0, dim = [0], keepdim = false, dtype = none) : (!mat) -> !vec
  %3 = intarsia.call "aten::cumsum"(self = %0, dim = 0, dtype = none) : (!mat) -> !mat
  return %1, %2, %3 : !mat, !vec, !mat
}

// Where the loop that carries it is the innermost, nothing dear joins it.
// CHECK-LABEL: func.func @running_innermost
// CHECK: ops ["aten::exp"]
// CHECK-NOT: intarsia.group
// CHECK: ops ["aten::cumsum"] {{.*}}intarsia.group = [[G:[0-9]+]]
// CHECK: ops ["aten::neg"] {{.*}}intarsia.group = [[G]]
func.func @running_innermost(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::exp"(self = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::cumsum"(self = %0, dim = 1, dtype = none) : (!mat) -> !mat
  %2 = intarsia.call "aten::neg"(self = %1) : (!mat) -> !mat
  return %2 : !mat
}
