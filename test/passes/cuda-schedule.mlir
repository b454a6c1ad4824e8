// RUN: intarsia-opt --lower=devices=cuda --fuse --cuda-schedule --split-input-file %s | FileCheck %s

!t = !intarsia.tensor<[s0, 8]xf32, device = "cuda:0">
!transposed = !intarsia.tensor<[8, s0]xf32, strides = [1, 8], device = "cuda:0">
!h = !intarsia.tensor<[s0, 8]xbf16, device = "cuda:0">
!large = !intarsia.tensor<[65536, 65536]xf32, device = "cuda:0">
!small = !intarsia.tensor<[4, 8]xf32, device = "cuda:0">
!across = !intarsia.tensor<[s0, 8]xf32, strides = [1, s0], device = "cuda:0">

// One loop over all dimensions, in the order of the result, 16 bytes at a time.

// CHECK-LABEL: func.func @pointwise
// CHECK: intarsia.kernel
// CHECK-SAME: domain = #intarsia.expr<"8*s0">
// CHECK-SAME: flat
// CHECK-SAME: grid = #intarsia.expr<"floordiv(s0 + 127, 128)">
// CHECK-SAME: lanes = 4
// CHECK-SAME: loops = [array<i64: 0, 1>]
// CHECK-SAME: narrow
// CHECK-SAME: row_loops = 0
// CHECK-SAME: threads = 256
// CHECK-SAME: wide = {extent = #intarsia.expr<"{{.*}}16777216{{.*}}">}
func.func @pointwise(%x: !t) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::exp"(self = %x) : (!t) -> !t
  return %0 : !t
}

// CHECK-LABEL: func.func @halves
// CHECK: lanes = 8
func.func @halves(%x: !h) -> !h attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::exp"(self = %x) : (!h) -> !h
  return %0 : !h
}

// Few elements are spread over more threads.

// CHECK-LABEL: func.func @few
// CHECK: grid = #intarsia.expr<"1">
// CHECK-SAME: lanes = 1
// CHECK-SAME: narrow
// CHECK-NOT: wide
// CHECK: return
func.func @few(%x: !small) -> !small {
  %0 = intarsia.call "aten::exp"(self = %x) : (!small) -> !small
  return %0 : !small
}

// CHECK-LABEL: func.func @large
// CHECK: lanes = 4
// CHECK-NOT: narrow
// CHECK-NOT: wide
// CHECK: return
func.func @large(%x: !large) -> !large {
  %0 = intarsia.call "aten::exp"(self = %x) : (!large) -> !large
  return %0 : !large
}

// CHECK-LABEL: func.func @order
// CHECK: lanes = 4
// CHECK-SAME: loops = [array<i64: 1, 0>]
func.func @order(%x: !transposed) -> !transposed attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::exp"(self = %x) : (!transposed) -> !transposed
  return %0 : !transposed
}

// -----

// Tensors that do not all lie along the same dimension: squares, whose rows are along the
// dimension that the others lie along. Dimensions that all have as one are one.

!x = !intarsia.tensor<[1024, s0]xf32, device = "cuda:0">
!view = !intarsia.tensor<[s0, 1024]xf32, strides = [1, s0], device = "cuda:0">
!t = !intarsia.tensor<[s0, 1024]xf32, device = "cuda:0">
!image = !intarsia.tensor<[s0, 96, 14, 15]xbf16, device = "cuda:0">
!last = !intarsia.tensor<[s0, 14, 15, 96]xbf16, strides = [20160, 15, 1, 210], device = "cuda:0">
!channels = !intarsia.tensor<[s0, 14, 15, 96]xbf16, device = "cuda:0">
!rgb = !intarsia.tensor<[s0, 3, 14, 15]xbf16, device = "cuda:0">
!lastRgb = !intarsia.tensor<[s0, 14, 15, 3]xbf16, strides = [630, 15, 1, 210], device = "cuda:0">
!colours = !intarsia.tensor<[s0, 14, 15, 3]xbf16, device = "cuda:0">

// CHECK-LABEL: func.func @transposed
// CHECK: intarsia.kernel
// CHECK-SAME: domain = #intarsia.expr<"32*floordiv(s0 + 31, 32)">
// CHECK-NOT: flat
// CHECK-SAME: grid = #intarsia.expr<"32*floordiv(s0 + 31, 32)">
// CHECK-SAME: lanes = 1
// CHECK-SAME: loops = [array<i64: 0>, array<i64: 1>]
// CHECK-SAME: square = 32
// CHECK-SAME: threads = 256
func.func @transposed(%x: !x, %y: !t) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::t"(self = %x) {views = array<i64: 0>} : (!x) -> !view
  %1 = intarsia.call "aten::add.Tensor"(self = %0, other = %y, alpha = 1) : (!view, !t) -> !t
  return %1 : !t
}

// CHECK-LABEL: func.func @images
// CHECK: domain = #intarsia.expr<"21*s0">
// CHECK-SAME: loops = [array<i64: 0>, array<i64: 1, 2>, array<i64: 3>]
// CHECK-SAME: square = 32
func.func @images(%x: !image) -> !channels attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::permute"(self = %x, dims = [0, 2, 3, 1]) {views = array<i64: 0>} : (!image) -> !last
  %1 = intarsia.call "aten::clone"(self = %0, memory_format = #intarsia.memory_format<"contiguous">) : (!last) -> !channels
  return %1 : !channels
}

// A square of three columns would be empty.

// CHECK-LABEL: func.func @colours
// CHECK: flat
// CHECK-NOT: square
func.func @colours(%x: !rgb) -> !colours attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %0 = intarsia.call "aten::permute"(self = %x, dims = [0, 2, 3, 1]) {views = array<i64: 0>} : (!rgb) -> !lastRgb
  %1 = intarsia.call "aten::clone"(self = %0, memory_format = #intarsia.memory_format<"contiguous">) : (!lastRgb) -> !colours
  return %1 : !colours
}

// -----

// Rows: of one thread, of a warp, of a block.

!four = !intarsia.tensor<[s0, 4]xf32, device = "cuda:0">
!many = !intarsia.tensor<[s0, 1024]xf32, device = "cuda:0">
!long = !intarsia.tensor<[s0, 1025]xf32, device = "cuda:0">
!any = !intarsia.tensor<[s0, s1]xf32, device = "cuda:0">
!few = !intarsia.tensor<[100, s1]xf32, device = "cuda:0">
!row = !intarsia.tensor<[s0]xf32, device = "cuda:0">
!column = !intarsia.tensor<[s1]xf32, device = "cuda:0">
!stat = !intarsia.tensor<[100]xf32, device = "cuda:0">
!box = !intarsia.tensor<[s0, 100, s1]xf32, device = "cuda:0">
!rows = !intarsia.tensor<[1024, 2048]xf32, device = "cuda:0">
!middle = !intarsia.tensor<[100]xf32, device = "cuda:0">

// CHECK-LABEL: func.func @rows
func.func @rows(%a: !four, %b: !many, %c: !long, %d: !any, %e: !few)
    -> (!row, !many, !row, !row, !stat) attributes {intarsia.symbols = {s0 = [2, unit], s1 = [2, unit]}} {
  // CHECK: ops ["aten::sum.dim_IntList"] decisions {domain = #intarsia.expr<"s0">, grid = #intarsia.expr<"floordiv(s0 + 63, 64)">
  // CHECK-NOT: team
  // CHECK-SAME: threads = 64
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %a, dim = [1], keepdim = false, dtype = none) : (!four) -> !row
  // CHECK: ops ["aten::_softmax"] decisions {domain = #intarsia.expr<"s0">, grid = #intarsia.expr<"floordiv(s0 + 7, 8)">
  // CHECK-SAME: team = 32 : i64, threads = 256
  %1 = intarsia.call "aten::_softmax"(self = %b, dim = -1, half_to_float = false) : (!many) -> !many
  // CHECK: grid = #intarsia.expr<"s0">
  // CHECK-SAME: team = 256 : i64, threads = 256
  %2 = intarsia.call "aten::sum.dim_IntList"(self = %c, dim = [1], keepdim = false, dtype = none) : (!long) -> !row
  // CHECK: team = 256
  %3 = intarsia.call "aten::sum.dim_IntList"(self = %d, dim = [1], keepdim = false, dtype = none) : (!any) -> !row
  // CHECK: grid = #intarsia.expr<"100">
  // CHECK-SAME: team = 512 : i64, threads = 512
  %4 = intarsia.call "aten::sum.dim_IntList"(self = %e, dim = [1], keepdim = false, dtype = none) : (!few) -> !stat
  return %0, %1, %2, %3, %4 : !row, !many, !row, !row, !stat
}

// Memory runs across the rows.

// CHECK-LABEL: func.func @columns
// CHECK: across, domain = #intarsia.expr<"s1">, grid = #intarsia.expr<"floordiv(s1 + 31, 32)">
// CHECK-SAME: team = 8 : i64, threads = 256
func.func @columns(%d: !any) -> !column attributes {intarsia.symbols = {s0 = [2, unit], s1 = [2, unit]}} {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %d, dim = [0], keepdim = false, dtype = none) : (!any) -> !column
  return %0 : !column
}

// Two dimensions around the rows' are one loop for the team.

// CHECK-LABEL: func.func @around
// CHECK: team = 512
// CHECK: linalg.generic
// CHECK-SAME: intarsia.merged
func.func @around(%d: !box) -> !middle attributes {intarsia.symbols = {s0 = [2, unit], s1 = [2, unit]}} {
  %0 = intarsia.call "aten::sum.dim_IntList"(self = %d, dim = [0, 2], keepdim = false, dtype = none) : (!box) -> !middle
  return %0 : !middle
}

// A running sum: along a row within a warp, across the rows by a thread for each column.

// CHECK-LABEL: func.func @running
// CHECK: team = 32 : i64, threads = 256
// CHECK: ops ["aten::cumsum"]
// CHECK-NOT: team
// CHECK: return
func.func @running(%d: !rows) -> (!rows, !rows) {
  %0 = intarsia.call "aten::cumsum"(self = %d, dim = 1, dtype = none) : (!rows) -> !rows
  %1 = intarsia.call "aten::cumsum"(self = %0, dim = 0, dtype = none) : (!rows) -> !rows
  return %0, %1 : !rows, !rows
}
