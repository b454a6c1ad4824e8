// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// CHECK-LABEL: func.func @cat
// CHECK: arith.extf {{.+}} : bf16 to f32
// CHECK: tensor.concat dim(0) %{{.+}}, %{{.+}} : (tensor<?x3xf32>, tensor<2x3xf32>) -> tensor<?x3xf32>
func.func @cat(%x: !intarsia.tensor<[s0, 3]xf32>, %y: !intarsia.tensor<[2, 3]xbf16>) -> !intarsia.tensor<["s0 + 2", 3]xf32> {
  %0 = intarsia.call "aten::cat"(tensors = [%x, %y], dim = -2)
    : (!intarsia.tensor<[s0, 3]xf32>, !intarsia.tensor<[2, 3]xbf16>) -> !intarsia.tensor<["s0 + 2", 3]xf32>
  return %0 : !intarsia.tensor<["s0 + 2", 3]xf32>
}

// CHECK-LABEL: func.func @pad
// CHECK: tensor.pad %{{.+}} low[0, 1] high[0, 2]
// CHECK: tensor.yield %{{.+}} : f32
func.func @pad(%x: !intarsia.tensor<[s0, 3]xf32>) -> !intarsia.tensor<[s0, 6]xf32> {
  %0 = intarsia.call "aten::constant_pad_nd"(self = %x, pad = [1, 2], value = 0.5)
    : (!intarsia.tensor<[s0, 3]xf32>) -> !intarsia.tensor<[s0, 6]xf32>
  return %0 : !intarsia.tensor<[s0, 6]xf32>
}

// CHECK-LABEL: func.func @triangle
// CHECK: arith.cmpi sle
// CHECK: arith.select
func.func @triangle(%x: !intarsia.tensor<[s0, s0]xf32>) -> !intarsia.tensor<[s0, s0]xf32> {
  %0 = intarsia.call "aten::tril"(self = %x, diagonal = -1)
    : (!intarsia.tensor<[s0, s0]xf32>) -> !intarsia.tensor<[s0, s0]xf32>
  return %0 : !intarsia.tensor<[s0, s0]xf32>
}

// A repetition is a broadcast and a reshape.

// CHECK-LABEL: func.func @repeat
// CHECK: outs(%{{.+}} : tensor<2x?x3xf32>)
// CHECK: tensor.collapse_shape %{{.+}} {{\[}}[0, 1], [2]] : tensor<2x?x3xf32> into tensor<?x3xf32>
func.func @repeat(%x: !intarsia.tensor<[s0, 3]xf32>) -> !intarsia.tensor<["2*s0", 3]xf32> {
  %0 = intarsia.call "aten::repeat"(self = %x, repeats = [2, 1])
    : (!intarsia.tensor<[s0, 3]xf32>) -> !intarsia.tensor<["2*s0", 3]xf32>
  return %0 : !intarsia.tensor<["2*s0", 3]xf32>
}

// CHECK-LABEL: func.func @scatter
// CHECK: tensor.extract_slice %{{.+}}[0, 0] [1, %{{.+}}] [1, 1]
// CHECK: tensor.extract_slice %{{.+}}[3, 0] [2, %{{.+}}] [1, 1]
// CHECK: tensor.concat dim(0)
func.func @scatter(%x: !intarsia.tensor<[5, s0]xf32>, %y: !intarsia.tensor<[2, s0]xf32>) -> !intarsia.tensor<[5, s0]xf32> {
  %0 = intarsia.call "aten::slice_scatter"(self = %x, src = %y, dim = 0, start = 1, end = 3, step = 1)
    : (!intarsia.tensor<[5, s0]xf32>, !intarsia.tensor<[2, s0]xf32>) -> !intarsia.tensor<[5, s0]xf32>
  return %0 : !intarsia.tensor<[5, s0]xf32>
}

// What rolls over is two pieces, of sizes that are symbols, too.

// CHECK-LABEL: func.func @roll
// CHECK: tensor.extract_slice %{{.+}}[0, 6] [%{{.+}}, 3] [1, 1]
// CHECK: tensor.extract_slice %{{.+}}[0, 0] [%{{.+}}, 6] [1, 1]
// CHECK: tensor.concat dim(1)
// CHECK: tensor.concat dim(0)
func.func @roll(%x: !intarsia.tensor<[s0, 9]xf32>) -> !intarsia.tensor<[s0, 9]xf32> {
  %0 = intarsia.call "aten::roll"(self = %x, shifts = [12, 2], dims = [1, 0])
    : (!intarsia.tensor<[s0, 9]xf32>) -> !intarsia.tensor<[s0, 9]xf32>
  return %0 : !intarsia.tensor<[s0, 9]xf32>
}

// A mirror is arithmetic on positions, in pieces along the last dimension.

// CHECK-LABEL: func.func @reflection_pad
// CHECK-COUNT-3: tensor.extract %
// CHECK: tensor.concat dim(1)
func.func @reflection_pad(%x: !intarsia.tensor<[s0, 9]xf32>) -> !intarsia.tensor<[s0, 14]xf32> {
  %0 = intarsia.call "aten::reflection_pad1d"(self = %x, padding = [3, 2])
    : (!intarsia.tensor<[s0, 9]xf32>) -> !intarsia.tensor<[s0, 14]xf32>
  return %0 : !intarsia.tensor<[s0, 14]xf32>
}

// The gradient of a slice is padded with zeros.

// CHECK-LABEL: func.func @slice_backward
// CHECK: tensor.pad %{{.+}} low[0, 2] high[0, 4]
func.func @slice_backward(%g: !intarsia.tensor<[s0, 3]xf32>) -> !intarsia.tensor<[s0, 9]xf32> {
  %n = intarsia.size s0 : index
  %0 = intarsia.call "aten::slice_backward"(grad_output = %g, input_sizes = [%n, 9], dim = 1, start = 2, end = 5, step = 1)
    : (!intarsia.tensor<[s0, 3]xf32>, index) -> !intarsia.tensor<[s0, 9]xf32>
  return %0 : !intarsia.tensor<[s0, 9]xf32>
}
