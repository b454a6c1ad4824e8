// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// CHECK-DAG: #[[$COLUMN:.+]] = affine_map<(d0, d1) -> (d0, 0)>
// CHECK-DAG: #[[$ROW:.+]] = affine_map<(d0, d1) -> (d1)>

// A Python number multiplies without rounding first; one addition, one rounding.

// CHECK-LABEL: func.func @half_precision
// CHECK: intarsia.kernel(%{{.*}}) symbols [s0] ops ["aten::mul.Tensor"]
// CHECK-NEXT: ^bb0(%[[X:.+]]: tensor<?x5xbf16>, %[[N:.+]]: index):
// CHECK: tensor.empty(%[[N]]) : tensor<?x5xbf16>
// CHECK: linalg.generic {indexing_maps = [#[[ID:.+]], #[[ID]]], iterator_types = ["parallel", "parallel"]}
// CHECK: ^bb0(%[[E:.+]]: bf16, %{{.+}}: bf16):
// CHECK-DAG: %[[WIDE:.+]] = arith.extf %[[E]] : bf16 to f32
// CHECK-DAG: %[[C:.+]] = arith.constant 1.300000e+00 : f32
// CHECK: %[[P:.+]] = arith.mulf %[[WIDE]], %[[C]] : f32
// CHECK: %[[R:.+]] = arith.truncf %[[P]] : f32 to bf16
// CHECK: linalg.yield %[[R]] : bf16
// CHECK: intarsia.kernel
// CHECK-SAME: ops ["aten::add.Tensor"]
// CHECK: %[[C2:.+]] = arith.constant {{.+}} : bf16
// CHECK: arith.extf %[[C2]] : bf16 to f32
// CHECK: arith.addf {{.+}} : f32
func.func @half_precision(%x: !intarsia.tensor<[s0, 5]xbf16>) -> !intarsia.tensor<[s0, 5]xbf16> {
  %0 = intarsia.call "aten::mul.Tensor"(self = %x, other = 1.3)
    : (!intarsia.tensor<[s0, 5]xbf16>) -> !intarsia.tensor<[s0, 5]xbf16>
  %1 = intarsia.call "aten::add.Tensor"(self = %0, other = 1.3, alpha = 1)
    : (!intarsia.tensor<[s0, 5]xbf16>) -> !intarsia.tensor<[s0, 5]xbf16>
  return %1 : !intarsia.tensor<[s0, 5]xbf16>
}

// Broadcasting is a map: from the right, constant 0 where a 1 is stretched.

// CHECK-LABEL: func.func @broadcast
// CHECK: linalg.generic {indexing_maps = [#[[$COLUMN]], #[[$ROW]], #{{.+}}]
// CHECK-SAME: ins(%{{.+}}, %{{.+}} : tensor<?x1xf32>, tensor<7xf32>) outs(%{{.+}} : tensor<?x7xf32>)
func.func @broadcast(%a: !intarsia.tensor<[s0, 1]xf32>, %b: !intarsia.tensor<[7]xf32>) -> !intarsia.tensor<[s0, 7]xf32> {
  %0 = intarsia.call "aten::sub.Tensor"(self = %a, other = %b, alpha = 1)
    : (!intarsia.tensor<[s0, 1]xf32>, !intarsia.tensor<[7]xf32>) -> !intarsia.tensor<[s0, 7]xf32>
  return %0 : !intarsia.tensor<[s0, 7]xf32>
}

// bool is stored as i8 and computed as i1. Comparisons promote: bf16 with f32.

// CHECK-LABEL: func.func @comparison
// CHECK: outs(%{{.+}} : tensor<3xi8>)
// CHECK: %[[A:.+]] = arith.extf %{{.+}} : bf16 to f32
// CHECK: %[[LESS:.+]] = arith.cmpf olt, %[[A]], %{{.+}} : f32
// CHECK: %[[BYTE:.+]] = arith.extui %[[LESS]] : i1 to i8
// CHECK: linalg.yield %[[BYTE]] : i8
// CHECK: ops ["aten::where.self"]
// CHECK: arith.cmpi ne, %{{.+}}, %{{.+}} : i8
// CHECK: arith.select
func.func @comparison(%a: !intarsia.tensor<[3]xbf16>, %b: !intarsia.tensor<[3]xf32>) -> !intarsia.tensor<[3]xf32> {
  %0 = intarsia.call "aten::lt.Tensor"(self = %a, other = %b)
    : (!intarsia.tensor<[3]xbf16>, !intarsia.tensor<[3]xf32>) -> !intarsia.tensor<[3]xbool>
  %1 = intarsia.call "aten::where.self"(condition = %0, self = %a, other = %b)
    : (!intarsia.tensor<[3]xbool>, !intarsia.tensor<[3]xbf16>, !intarsia.tensor<[3]xf32>) -> !intarsia.tensor<[3]xf32>
  return %1 : !intarsia.tensor<[3]xf32>
}

// A symbolic number is an index argument of the kernel.

// CHECK-LABEL: func.func @symbol
// CHECK: intarsia.kernel(%{{.*}}) symbols [s0]
// CHECK: ^bb0(%{{.+}}: tensor<?xf32>, %[[N:.+]]: index):
// CHECK: %[[WIDE:.+]] = arith.index_cast %[[N]] : index to i64
// CHECK: %[[F:.+]] = arith.sitofp %[[WIDE]] : i64 to f32
// CHECK: arith.divf %{{.+}}, %[[F]] : f32
func.func @symbol(%x: !intarsia.tensor<[s0]xf32>) -> !intarsia.tensor<[s0]xf32> {
  %n = intarsia.size s0 : index
  %0 = intarsia.call "aten::div.Tensor"(self = %x, other = %n)
    : (!intarsia.tensor<[s0]xf32>, index) -> !intarsia.tensor<[s0]xf32>
  return %0 : !intarsia.tensor<[s0]xf32>
}

// PyTorch's kernel for alpha is a fused multiply-add; so is ours.

// CHECK-LABEL: func.func @alpha
// CHECK: math.fma
func.func @alpha(%x: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32> {
  %0 = intarsia.call "aten::add.Tensor"(self = %x, other = %x, alpha = 0.3)
    : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf32>
  return %0 : !intarsia.tensor<[4]xf32>
}

// Conversions of floats to narrow integers go by way of 32 or 64 bits.

// CHECK-LABEL: func.func @conversions
// CHECK: %[[WIDE:.+]] = arith.fptosi %{{.+}} : f32 to i64
// CHECK: arith.trunci %[[WIDE]] : i64 to i8
// CHECK: arith.uitofp %{{.+}} : i8 to f32
// CHECK: arith.truncf %{{.+}} : f32 to f16
func.func @conversions(%x: !intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xf16> {
  %0 = intarsia.call "aten::_to_copy"(self = %x, dtype = dtype<u8>, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none)
    : (!intarsia.tensor<[4]xf32>) -> !intarsia.tensor<[4]xu8>
  %1 = intarsia.call "prims::convert_element_type"(a = %0, dtype = dtype<f16>)
    : (!intarsia.tensor<[4]xu8>) -> !intarsia.tensor<[4]xf16>
  return %1 : !intarsia.tensor<[4]xf16>
}

// No emitter for this function in f64: it stays a call.

// CHECK-LABEL: func.func @no_emitter
// CHECK: intarsia.call "aten::erfc"
// CHECK: math.exp %{{.+}} : f64
func.func @no_emitter(%x: !intarsia.tensor<[4]xf64>) -> !intarsia.tensor<[4]xf64> {
  %0 = intarsia.call "aten::erfc"(self = %x) : (!intarsia.tensor<[4]xf64>) -> !intarsia.tensor<[4]xf64>
  %1 = intarsia.call "aten::exp"(self = %0) : (!intarsia.tensor<[4]xf64>) -> !intarsia.tensor<[4]xf64>
  return %1 : !intarsia.tensor<[4]xf64>
}
