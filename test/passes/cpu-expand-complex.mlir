// RUN: intarsia-opt %s --cpu-expand-complex | FileCheck %s

// The parts of numbers in a vector lie alternately; what was put together is not
// taken apart again.
// CHECK-LABEL: @conjugate
// CHECK:       %[[FLOATS:.+]] = vector.bitcast %{{.+}} : vector<8xi64> to vector<16xf32>
// CHECK:       %[[RE:.+]], %[[IM:.+]] = vector.deinterleave %[[FLOATS]]
// CHECK-NOT:   arith.trunci
// CHECK-NOT:   arith.shrui
// CHECK:       %[[NEG:.+]] = arith.negf %[[IM]]
// CHECK-NOT:   arith.ori
// CHECK:       %[[BOTH:.+]] = vector.interleave %[[RE]], %[[NEG]]
// CHECK:       %[[NUMBER:.+]] = vector.bitcast %[[BOTH]] : vector<16xf32> to vector<8xi64>
// CHECK-NOT:   deinterleave
// CHECK:       return %[[NUMBER]], %[[NEG]]
func.func @conjugate(%x: vector<8xi64>) -> (vector<8xi64>, vector<8xf32>) {
  %by = arith.constant 32 : i64
  %half = vector.broadcast %by : i64 to vector<8xi64>
  %low = arith.trunci %x : vector<8xi64> to vector<8xi32>
  %real = arith.bitcast %low : vector<8xi32> to vector<8xf32>
  %shifted = arith.shrui %x, %half : vector<8xi64>
  %high = arith.trunci %shifted : vector<8xi64> to vector<8xi32>
  %imaginary = arith.bitcast %high : vector<8xi32> to vector<8xf32>
  %negative = arith.negf %imaginary : vector<8xf32>
  %re = arith.bitcast %real : vector<8xf32> to vector<8xi32>
  %low2 = arith.extui %re : vector<8xi32> to vector<8xi64>
  %im = arith.bitcast %negative : vector<8xf32> to vector<8xi32>
  %wide = arith.extui %im : vector<8xi32> to vector<8xi64>
  %high2 = arith.shli %wide, %half : vector<8xi64>
  %y = arith.ori %low2, %high2 : vector<8xi64>
  %again = arith.shrui %y, %half : vector<8xi64>
  %bits = arith.trunci %again : vector<8xi64> to vector<8xi32>
  %part = arith.bitcast %bits : vector<8xi32> to vector<8xf32>
  return %y, %part : vector<8xi64>, vector<8xf32>
}

// Numbers are added as they lie; a number and the conjugate of another are not.
// CHECK-LABEL: @sum
// CHECK:       arith.subf
// CHECK:       %[[X:.+]] = vector.bitcast %arg0 : vector<8xi64> to vector<16xf32>
// CHECK-NEXT:  %[[Y:.+]] = vector.bitcast %arg1 : vector<8xi64> to vector<16xf32>
// CHECK-NEXT:  %[[SUM:.+]] = arith.addf %[[X]], %[[Y]] : vector<16xf32>
// CHECK-NOT:   vector.interleave
// CHECK:       %[[NUMBER:.+]] = vector.bitcast %[[SUM]] : vector<16xf32> to vector<8xi64>
// CHECK:       vector.interleave
// CHECK:       return %[[NUMBER]]
func.func @sum(%x: vector<8xi64>, %y: vector<8xi64>) -> (vector<8xi64>, vector<8xi64>) {
  %by = arith.constant 32 : i64
  %half = vector.broadcast %by : i64 to vector<8xi64>
  %xLow = arith.trunci %x : vector<8xi64> to vector<8xi32>
  %xReal = arith.bitcast %xLow : vector<8xi32> to vector<8xf32>
  %xShifted = arith.shrui %x, %half : vector<8xi64>
  %xHigh = arith.trunci %xShifted : vector<8xi64> to vector<8xi32>
  %xImaginary = arith.bitcast %xHigh : vector<8xi32> to vector<8xf32>
  %yLow = arith.trunci %y : vector<8xi64> to vector<8xi32>
  %yReal = arith.bitcast %yLow : vector<8xi32> to vector<8xf32>
  %yShifted = arith.shrui %y, %half : vector<8xi64>
  %yHigh = arith.trunci %yShifted : vector<8xi64> to vector<8xi32>
  %yImaginary = arith.bitcast %yHigh : vector<8xi32> to vector<8xf32>
  %re = arith.addf %xReal, %yReal : vector<8xf32>
  %im = arith.addf %xImaginary, %yImaginary : vector<8xf32>
  %other = arith.subf %xImaginary, %yImaginary : vector<8xf32>
  %reBits = arith.bitcast %re : vector<8xf32> to vector<8xi32>
  %low = arith.extui %reBits : vector<8xi32> to vector<8xi64>
  %imBits = arith.bitcast %im : vector<8xf32> to vector<8xi32>
  %wide = arith.extui %imBits : vector<8xi32> to vector<8xi64>
  %high = arith.shli %wide, %half : vector<8xi64>
  %sum = arith.ori %low, %high : vector<8xi64>
  %otherBits = arith.bitcast %other : vector<8xf32> to vector<8xi32>
  %otherWide = arith.extui %otherBits : vector<8xi32> to vector<8xi64>
  %otherHigh = arith.shli %otherWide, %half : vector<8xi64>
  %conjugate = arith.ori %low, %otherHigh : vector<8xi64>
  return %sum, %conjugate : vector<8xi64>, vector<8xi64>
}

// Integers are none of these, whatever is done with them.
// CHECK-LABEL: @integers
// CHECK-NEXT:  arith.trunci
// CHECK-NEXT:  return
func.func @integers(%x: vector<8xi64>) -> vector<8xi32> {
  %low = arith.trunci %x : vector<8xi64> to vector<8xi32>
  return %low : vector<8xi32>
}

// No register holds i128.
// CHECK-LABEL: @wide
// CHECK:       %[[MASK:.+]] = vector.interleave %{{.+}}, %{{.+}} : vector<4xi1> -> vector<8xi1>
// CHECK:       llvm.intr.masked.load %{{.+}}, %[[MASK]], {{.*}} -> vector<8xf64>
// CHECK:       llvm.intr.masked.gather {{.*}} -> vector<4xf64>
// CHECK:       llvm.getelementptr %{{.+}}[1] : {{.*}} f64
// CHECK:       llvm.intr.masked.gather {{.*}} -> vector<4xf64>
// CHECK-COUNT-2: arith.select {{.*}} vector<4xf64>
// CHECK:       llvm.intr.masked.store {{.*}} : vector<8xf64>, vector<8xi1>
// CHECK-COUNT-2: llvm.intr.masked.scatter {{.*}} : vector<4xf64>
// CHECK-NOT:   llvm.intr
func.func @wide(%p: !llvm.ptr, %q: vector<4x!llvm.ptr>, %mask: vector<4xi1>) {
  %zero = arith.constant dense<0> : vector<4xi128>
  %x = llvm.intr.masked.load %p, %mask, %zero {alignment = 8 : i32} : (!llvm.ptr, vector<4xi1>, vector<4xi128>) -> vector<4xi128>
  %y = llvm.intr.masked.gather %q, %mask, %zero {alignment = 8 : i32} : (vector<4x!llvm.ptr>, vector<4xi1>, vector<4xi128>) -> vector<4xi128>
  %z = arith.select %mask, %x, %y : vector<4xi1>, vector<4xi128>
  llvm.intr.masked.store %z, %p, %mask {alignment = 8 : i32} : vector<4xi128>, vector<4xi1> into !llvm.ptr
  llvm.intr.masked.scatter %z, %q, %mask {alignment = 8 : i32} : vector<4xi128>, vector<4xi1> into vector<4x!llvm.ptr>
  return
}
