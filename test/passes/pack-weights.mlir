// RUN: intarsia-opt --pack-weights --split-input-file %s | FileCheck %s

!w = !intarsia.tensor<[256, 128]xf32>
!wt = !intarsia.tensor<[128, 256]xf32, strides = [1, 128]>
!v = !intarsia.tensor<[128, 256]xf32>
!x = !intarsia.tensor<[4, 16, 128]xf32>
!y = !intarsia.tensor<[4, 16, 256]xf32>
!rows = !intarsia.tensor<[64, 128]xf32>
!out = !intarsia.tensor<[64, 256]xf32>
!b = !intarsia.tensor<[256]xf32>

// A linear layer, a product with a transposed weight and one with a weight as it is;
// the first two share what is packed. The view that only the product read is gone.
// CHECK: intarsia.weights = [{name = "w"
// CHECK-SAME: {name = "v"
// CHECK-SAME: {name = "packed:0", packed_from = "w", packed_rows = 64 : i64, type = !intarsia.tensor<[256, 128]xf32>}
// CHECK-SAME: {name = "packed:1", packed_from = "v", packed_rows = 64 : i64, type = !intarsia.tensor<[256, 128]xf32, strides = [1, 256]>}]
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[W:.+]] = intarsia.weight "packed:0"
// CHECK-NEXT: %[[A:.+]] = intarsia.call "mkldnn::_linear_pointwise"(X = %arg0, W = %[[W]], B = %arg4, attr = "none", scalars = [], algorithm = "")
// CHECK-NEXT: %[[SAME:.+]] = intarsia.weight "packed:0"
// CHECK-NEXT: %[[B:.+]] = intarsia.call "mkldnn::_linear_pointwise"(X = %arg1, W = %[[SAME]], B = %arg4,
// CHECK-NEXT: %[[V:.+]] = intarsia.weight "packed:1"
// CHECK-NEXT: %[[C:.+]] = intarsia.call "mkldnn::_linear_pointwise"(X = %arg1, W = %[[V]], B = none,
// CHECK-NEXT: return %[[A]], %[[B]], %[[C]]
module attributes {intarsia.weights = [
    {name = "w", offset = 0 : i64, record = "data/weights/weight_0", type = !w},
    {name = "v", offset = 0 : i64, record = "data/weights/weight_1", type = !v}]} {
  func.func @main(%x: !x {intarsia.kind = "user"}, %rows: !rows {intarsia.kind = "user"},
                  %w: !w {intarsia.kind = "parameter", intarsia.target = "w"},
                  %v: !v {intarsia.kind = "parameter", intarsia.target = "v"},
                  %b: !b {intarsia.kind = "user"}) -> (!y, !out, !out) {
    %0 = intarsia.call "aten::linear"(input = %x, weight = %w, bias = %b) : (!x, !w, !b) -> !y
    %1 = intarsia.call "aten::t"(self = %w) {views = array<i64: 0>} : (!w) -> !wt
    %2 = intarsia.call "aten::addmm"(self = %b, mat1 = %rows, mat2 = %1, beta = 1, alpha = 1) : (!b, !rows, !wt) -> !out
    %3 = intarsia.call "aten::matmul"(self = %rows, other = %v) : (!rows, !v) -> !out
    return %0, %2, %3 : !y, !out, !out
  }
}

// -----

!w = !intarsia.tensor<[128, 256]xf32>
!d = !intarsia.tensor<[128, 256]xf64>
!rows = !intarsia.tensor<[64, 128]xf32>
!few = !intarsia.tensor<[16, 128]xf32>
!any = !intarsia.tensor<[s0, 128]xf32>
!double = !intarsia.tensor<[64, 128]xf64>
!out = !intarsia.tensor<[64, 256]xf32>
!row = !intarsia.tensor<[16, 256]xf32>
!some = !intarsia.tensor<[s0, 256]xf32>
!dout = !intarsia.tensor<[64, 256]xf64>
!gaps = !intarsia.tensor<[256]xf32, strides = [2]>

// Not: few rows, an unknown number, another type, a scaled sum, a weight that the
// program writes, a matrix that is no weight, a bias with gaps.
// CHECK-LABEL: func.func @main
// CHECK-NOT: packed
// CHECK-NOT: mkldnn
// CHECK: return
module attributes {intarsia.weights = [
    {name = "w", offset = 0 : i64, record = "data/weights/weight_0", type = !w},
    {name = "d", offset = 0 : i64, record = "data/weights/weight_1", type = !d},
    {name = "z", offset = 0 : i64, record = "data/weights/weight_2", type = !w}]} {
  func.func @main(%x: !rows {intarsia.kind = "user"}, %few: !few {intarsia.kind = "user"},
                  %gaps: !gaps {intarsia.kind = "user"},
                  %any: !any {intarsia.kind = "user"}, %double: !double {intarsia.kind = "user"},
                  %w: !w {intarsia.kind = "parameter", intarsia.target = "w"},
                  %d: !d {intarsia.kind = "parameter", intarsia.target = "d"},
                  %z: !w {intarsia.kind = "buffer", intarsia.target = "z", intarsia.mutated})
      -> (!row, !some, !dout, !out, !out, !out, !out)
      attributes {intarsia.symbols = {s0 = [2, unit]}} {
    %0 = intarsia.call "aten::mm"(self = %few, mat2 = %w) : (!few, !w) -> !row
    %1 = intarsia.call "aten::mm"(self = %any, mat2 = %w) : (!any, !w) -> !some
    %2 = intarsia.call "aten::mm"(self = %double, mat2 = %d) : (!double, !d) -> !dout
    %3 = intarsia.call "aten::mm"(self = %x, mat2 = %z) : (!rows, !w) -> !out
    %4 = intarsia.call "aten::addmm"(self = %3, mat1 = %x, mat2 = %w, beta = 1, alpha = 2) : (!out, !rows, !w) -> !out
    %5 = intarsia.call "aten::neg"(self = %w) : (!w) -> !w
    %6 = intarsia.call "aten::mm"(self = %x, mat2 = %5) : (!rows, !w) -> !out
    %7 = intarsia.call "aten::addmm"(self = %gaps, mat1 = %x, mat2 = %w, beta = 1, alpha = 1) : (!gaps, !rows, !w) -> !out
    return %0, %1, %2, %3, %4, %6, %7 : !row, !some, !dout, !out, !out, !out, !out
  }
}
