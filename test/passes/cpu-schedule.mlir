// RUN: intarsia-opt --lower-calls --fuse --cpu-schedule %s | FileCheck %s
// RUN: intarsia-opt --lower-calls --fuse --cpu-schedule=vector-bits=128 %s | FileCheck --check-prefix=NARROW %s

// How kernels become loops: which dimensions are one loop, along which lanes run,
// what threads divide (`domain`) and into how large pieces (`grain`).

!mat = !intarsia.tensor<[s0, 1024]xf32>
!tam = !intarsia.tensor<[64, 32]xf32, strides = [1, 64]>
!bat = !intarsia.tensor<[4, s0, 64]xf32>

// Everything lies one after the other: one loop, lanes along it, the threads'
// loop too.
// CHECK-LABEL: func.func @flat
// CHECK: decisions {domain = #intarsia.expr<"1024*s0">, flat, grain = #intarsia.expr<"32768">, lanes = 64 : i64, loops = [array<i64: 0, 1>], row_loops = 0 : i64
// CHECK-SAME: tail_lanes = 16 : i64
// NARROW-LABEL: func.func @flat
// NARROW: lanes = 16 : i64
// NARROW-SAME: tail_lanes = 4 : i64
func.func @flat(%x: !mat, %y: !mat) -> !mat {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %y, alpha = 1) : (!mat, !mat) -> !mat
  return %0 : !mat
}

// Loops in the order of the result's memory, apart where an input lies otherwise.
// CHECK-LABEL: func.func @strided
// CHECK: decisions {domain = #intarsia.expr<"32">, {{.*}} loops = [array<i64: 1>, array<i64: 0>], packs = #intarsia.expr<"64">, row_loops = 1 : i64
// CHECK-SAME: vector_roots
func.func @strided(%x: !tam, %y: !intarsia.tensor<[64, 32]xf32>) -> !tam {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %y, alpha = 1) : (!tam, !intarsia.tensor<[64, 32]xf32>) -> !tam
  return %0 : !tam
}

// A thread has rows, lanes run along a row. What several passes over a row need
// and costs much is kept.
// CHECK-LABEL: func.func @rows
// CHECK: decisions {domain = #intarsia.expr<"s0">, grain = #intarsia.expr<"10">, {{.*}} loops = [array<i64: 0>, array<i64: 1>], row_loops = 1 : i64
// CHECK: attrs =  {intarsia.cached}
// CHECK: math.exp
func.func @rows(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = 1, half_to_float = false) : (!mat) -> !mat
  return %0 : !mat
}

// Rows side by side: lanes run across them, and the loop over a row is inside.
// CHECK-LABEL: func.func @columns
// CHECK: decisions {columns, domain = #intarsia.expr<"1024">, flat, grain = #intarsia.expr<"max(1, floordiv(10922, max(1, s0)))">, {{.*}} loops = [array<i64: 1>, array<i64: 0>], order = array<i64: 1, 0>, row_loops = 0 : i64
// CHECK-NOT: intarsia.cached
func.func @columns(%x: !mat) -> !mat {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = 0, half_to_float = false) : (!mat) -> !mat
  return %0 : !mat
}

// The same for each of several blocks, which threads divide.
// CHECK-LABEL: func.func @middle
// CHECK: decisions {columns, domain = #intarsia.expr<"4">, {{.*}} loops = [array<i64: 0>, array<i64: 2>, array<i64: 1>], order = array<i64: 0, 2, 1>, row_loops = 1 : i64
func.func @middle(%x: !bat) -> !intarsia.tensor<[4, 64]xf32> {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [1], keepdim = false, dtype = none) : (!bat) -> !intarsia.tensor<[4, 64]xf32>
  return %0 : !intarsia.tensor<[4, 64]xf32>
}

// No more lanes than there are elements. Nothing is stored along a row here.
// CHECK-LABEL: func.func @small
// CHECK: lanes = 8 : i64
// CHECK-SAME: tail_lanes = 8 : i64
// CHECK-NOT: vector_roots
func.func @small(%x: !intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[s0]xf32> {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [1], keepdim = false, dtype = none) : (!intarsia.tensor<[s0, 5]xf32>) -> !intarsia.tensor<[s0]xf32>
  return %0 : !intarsia.tensor<[s0]xf32>
}

// Nothing to run along.
// CHECK-LABEL: func.func @scalar
// CHECK: decisions {domain = #intarsia.expr<"1">, {{.*}} loops = [], row_loops = 0 : i64
func.func @scalar(%x: !intarsia.tensor<[]xf32>) -> !intarsia.tensor<[]xf32> {
  %0 = intarsia.call "aten::neg"(self = %x) : (!intarsia.tensor<[]xf32>) -> !intarsia.tensor<[]xf32>
  return %0 : !intarsia.tensor<[]xf32>
}

// What may be too large for the caches is stored past them; what is known to be
// small is not.
// CHECK-LABEL: func.func @large
// CHECK: streams = array<i64: 0>
func.func @large(%x: !intarsia.tensor<[2048, 1024]xf32>) -> !intarsia.tensor<[2048, 1024]xf32> {
  %0 = intarsia.call "aten::neg"(self = %x) : (!intarsia.tensor<[2048, 1024]xf32>) -> !intarsia.tensor<[2048, 1024]xf32>
  return %0 : !intarsia.tensor<[2048, 1024]xf32>
}

// CHECK-LABEL: func.func @not_large
// CHECK-NOT: streams
func.func @not_large(%x: !intarsia.tensor<[2047, 1024]xf32>) -> !intarsia.tensor<[2047, 1024]xf32> {
  %0 = intarsia.call "aten::neg"(self = %x) : (!intarsia.tensor<[2047, 1024]xf32>) -> !intarsia.tensor<[2047, 1024]xf32>
  return %0 : !intarsia.tensor<[2047, 1024]xf32>
}

// A reduction over dimensions that lie one after the other is one loop; rows that
// are apart in memory, with a part of each summed, are not.
// CHECK-LABEL: func.func @several
// CHECK: intarsia.merged = array<i64: 2>
// CHECK-LABEL: func.func @apart
// CHECK-NOT: intarsia.merged
// CHECK: return
func.func @several(%x: !bat) -> !intarsia.tensor<[4]xf32> {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [1, 2], keepdim = false, dtype = none) : (!bat) -> !intarsia.tensor<[4]xf32>
  return %0 : !intarsia.tensor<[4]xf32>
}
func.func @apart(%x: !bat) -> !intarsia.tensor<[s0]xf32> {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [0, 2], keepdim = false, dtype = none) : (!bat) -> !intarsia.tensor<[s0]xf32>
  return %0 : !intarsia.tensor<[s0]xf32>
}

// What one element hands to the next: lanes run along rows that lie side by
// side; where a row lies in one piece, there are none.
// That is different for what is dear.
// CHECK-LABEL: func.func @running
// CHECK: decisions {columns, domain = #intarsia.expr<"1024">, flat, {{.*}} loops = [array<i64: 1>, array<i64: 0>], order = array<i64: 1, 0>, row_loops = 0 : i64, rows = 1 : i64
// CHECK-NOT: vector_roots
// CHECK: decisions {domain = #intarsia.expr<"s0">, {{.*}} loops = [array<i64: 0>, array<i64: 1>], row_loops = 1 : i64, rows = 1 : i64
// CHECK-NOT: vector_roots
// CHECK: decisions {columns, domain = #intarsia.expr<"s0">, flat, {{.*}} loops = [array<i64: 0>, array<i64: 1>]
// CHECK: return
func.func @running(%x: !mat) -> (!mat, !mat, !mat) {
  %0 = intarsia.call "aten::cumsum"(self = %x, dim = 0, dtype = none) : (!mat) -> !mat
  %1 = intarsia.call "aten::cumsum"(self = %x, dim = 1, dtype = none) : (!mat) -> !mat
  %2 = intarsia.call "aten::logcumsumexp"(self = %x, dim = 1) : (!mat) -> !mat
  return %0, %1, %2 : !mat, !mat, !mat
}

// An operand that lies across the rows is transposed a block of rows at a time;
// one that only has gaps is not.
// Lanes stay along the result; 16 rows are worth a thread.
// CHECK-LABEL: func.func @across
// CHECK: grain = #intarsia.expr<"1024">
// CHECK-SAME: packs = #intarsia.expr<"64">
// CHECK-LABEL: func.func @with_gaps
// CHECK-NOT: packs
// CHECK: return
!gaps = !intarsia.tensor<[64, 32]xf32, strides = [2, 128]>
!dense = !intarsia.tensor<[64, 32]xf32>
func.func @across(%x: !tam, %y: !dense) -> !dense {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %y, alpha = 1) : (!tam, !dense) -> !dense
  return %0 : !dense
}
func.func @with_gaps(%x: !gaps, %y: !dense) -> !dense {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %y, alpha = 1) : (!gaps, !dense) -> !dense
  return %0 : !dense
}

// Of an image whose channels lie side by side, lanes run along those, whichever
// dimension they are.
// CHECK-LABEL: func.func @over_pixels
// CHECK: columns, {{.*}} loops = [array<i64: 0>, array<i64: 1>, array<i64: 2, 3>]
// CHECK-LABEL: func.func @over_channels
// CHECK-NOT: columns
// CHECK: vector_roots
!image = !intarsia.tensor<[2, 48, 9, 7]xf32, strides = [3024, 1, 336, 48]>
func.func @over_pixels(%x: !image) -> !intarsia.tensor<[2, 48]xf32> {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %x, dim = [2, 3], keepdim = false, dtype = none) : (!image) -> !intarsia.tensor<[2, 48]xf32>
  return %0 : !intarsia.tensor<[2, 48]xf32>
}
func.func @over_channels(%x: !image) -> !image {
  %0 = intarsia.call "aten::_softmax"(self = %x, dim = 1, half_to_float = false) : (!image) -> !image
  return %0 : !image
}

// Each piece of what is repeated has a loop of its own if that is worth it;
// short ones are gathered at positions of 32 bits.
// CHECK-LABEL: func.func @repeated
// CHECK-NOT: narrow
// CHECK: space = [#intarsia.expr<"8">, #intarsia.expr<"3">, #intarsia.expr<"100">]
// CHECK-LABEL: func.func @repeated_short
// CHECK: narrow
// CHECK-SAME: space = [#intarsia.expr<"8">, #intarsia.expr<"21">]
func.func @repeated(%x: !intarsia.tensor<[8, 100]xf32>) -> !intarsia.tensor<[8, 300]xf32> {
  %0 = intarsia.call "aten::repeat"(self = %x, repeats = [1, 3]) : (!intarsia.tensor<[8, 100]xf32>) -> !intarsia.tensor<[8, 300]xf32>
  return %0 : !intarsia.tensor<[8, 300]xf32>
}
func.func @repeated_short(%x: !intarsia.tensor<[8, 7]xf32>) -> !intarsia.tensor<[8, 21]xf32> {
  %0 = intarsia.call "aten::repeat"(self = %x, repeats = [1, 3]) : (!intarsia.tensor<[8, 7]xf32>) -> !intarsia.tensor<[8, 21]xf32>
  return %0 : !intarsia.tensor<[8, 21]xf32>
}

// Loops over what a concatenation is of stay apart, though it is all one memory.
// CHECK-LABEL: func.func @inserted
// CHECK: loops = [array<i64: 0>, array<i64: 1>]
func.func @inserted(%x: !dense, %y: !intarsia.tensor<[64, 8]xf32, strides = [32, 1]>) -> !dense {
  %0 = intarsia.call "aten::slice_scatter"(self = %x, src = %y, dim = 1, start = 4, end = 12, step = 1) : (!dense, !intarsia.tensor<[64, 8]xf32, strides = [32, 1]>) -> !dense
  return %0 : !dense
}

// Sums of columns, of which an operand's are contiguous: lanes run along them,
// and what lies side by side is packed, in smaller blocks where they are long.
// CHECK-LABEL: func.func @sums_across
// CHECK-NOT: columns
// CHECK: packs = #intarsia.expr<"32">
// CHECK-LABEL: func.func @sums_beside
// CHECK: columns
// CHECK-NOT: packs
// CHECK: return
!tall = !intarsia.tensor<[8192, 48]xf32>
!tall_across = !intarsia.tensor<[8192, 48]xf32, strides = [1, 8192]>
!sums = !intarsia.tensor<[48]xf32>
func.func @sums_across(%x: !tall_across, %y: !tall) -> !sums {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %y) : (!tall_across, !tall) -> !tall
  %1 = intarsia.call "aten::sum.dim_IntList"(self = %0, dim = [0], keepdim = false, dtype = none) : (!tall) -> !sums
  return %1 : !sums
}
func.func @sums_beside(%x: !tall, %y: !tall) -> !sums {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %y) : (!tall, !tall) -> !tall
  %1 = intarsia.call "aten::sum.dim_IntList"(self = %0, dim = [0], keepdim = false, dtype = none) : (!tall) -> !sums
  return %1 : !sums
}

// Of many rows far apart, lanes run along the result, and what lies across the
// rows is packed.
// CHECK-LABEL: func.func @wide_sums_across
// CHECK: columns
// CHECK-SAME: packs = #intarsia.expr<"64">
// CHECK-SAME: tiles
!wide = !intarsia.tensor<[4096, 1024]xf32>
!wide_across = !intarsia.tensor<[4096, 1024]xf32, strides = [1, 4096]>
!wide_sums = !intarsia.tensor<[1024]xf32>
func.func @wide_sums_across(%x: !wide_across, %y: !wide) -> !wide_sums {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = %y) : (!wide_across, !wide) -> !wide
  %1 = intarsia.call "aten::sum.dim_IntList"(self = %0, dim = [0], keepdim = false, dtype = none) : (!wide) -> !wide_sums
  return %1 : !wide_sums
}
