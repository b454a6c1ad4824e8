// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// A divisor that is data is checked, and the machine is given neither zero nor
// -1, of which the least integer has no quotient.

// CHECK-LABEL: func.func @floor_divide
// CHECK: cf.assert %{{.+}}, "aten::floor_divide: ZeroDivisionError"
// CHECK: %[[SAFE:.+]] = arith.select %{{.+}}, %c1_i64, %{{.+}} : i64
// CHECK: %[[QUOTIENT:.+]] = arith.divsi %{{.+}}, %[[SAFE]] : i64
// CHECK: arith.remsi %{{.+}}, %[[SAFE]] : i64
func.func @floor_divide(%x: !intarsia.tensor<[s0]xi64>, %y: !intarsia.tensor<[s0]xi64>) -> !intarsia.tensor<[s0]xi64> {
  %0 = intarsia.call "aten::floor_divide"(self = %x, other = %y)
    : (!intarsia.tensor<[s0]xi64>, !intarsia.tensor<[s0]xi64>) -> !intarsia.tensor<[s0]xi64>
  return %0 : !intarsia.tensor<[s0]xi64>
}

// A constant needs no check.

// CHECK-LABEL: func.func @constant
// CHECK-NOT: cf.assert
// CHECK: arith.remsi
// CHECK-NOT: cf.assert
func.func @constant(%x: !intarsia.tensor<[s0]xi32>) -> !intarsia.tensor<[s0]xi32> {
  %0 = intarsia.call "aten::remainder.Scalar"(self = %x, other = 7)
    : (!intarsia.tensor<[s0]xi32>) -> !intarsia.tensor<[s0]xi32>
  return %0 : !intarsia.tensor<[s0]xi32>
}

// Zero is eager's to refuse.

// CHECK-LABEL: func.func @zero
// CHECK: intarsia.call "aten::remainder.Scalar"
func.func @zero(%x: !intarsia.tensor<[s0]xi32>) -> !intarsia.tensor<[s0]xi32> {
  %0 = intarsia.call "aten::remainder.Scalar"(self = %x, other = 0)
    : (!intarsia.tensor<[s0]xi32>) -> !intarsia.tensor<[s0]xi32>
  return %0 : !intarsia.tensor<[s0]xi32>
}

// The exact remainder is one operation until vectors are known.

// CHECK-LABEL: func.func @remainder
// CHECK: arith.remf %{{.+}}, %{{.+}} : f32
// CHECK: arith.remf %{{.+}}, %{{.+}} : f64
func.func @remainder(%x: !intarsia.tensor<[s0]xbf16>, %y: !intarsia.tensor<[s0]xf64>) -> (!intarsia.tensor<[s0]xbf16>, !intarsia.tensor<[s0]xf64>) {
  %0 = intarsia.call "aten::remainder.Tensor"(self = %x, other = %x)
    : (!intarsia.tensor<[s0]xbf16>) -> !intarsia.tensor<[s0]xbf16>
  %1 = intarsia.call "aten::remainder.Tensor"(self = %y, other = %y)
    : (!intarsia.tensor<[s0]xf64>) -> !intarsia.tensor<[s0]xf64>
  return %0, %1 : !intarsia.tensor<[s0]xbf16>, !intarsia.tensor<[s0]xf64>
}
