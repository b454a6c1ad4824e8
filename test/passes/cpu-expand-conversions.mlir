// RUN: intarsia-opt %s --cpu-expand-conversions | FileCheck %s
// RUN: intarsia-opt %s --cpu-expand-conversions="f16c=false" | FileCheck %s --check-prefix=INTEGER

// CHECK-LABEL: @to_bf16
// CHECK-SAME:  (%[[X:.+]]: vector<8xf32>)
// CHECK:       %[[I:.+]] = arith.bitcast %[[X]] : vector<8xf32> to vector<8xi32>
// CHECK:       %[[ODD:.+]] = arith.andi
// CHECK:       %[[BIAS:.+]] = arith.addi %[[ODD]]
// CHECK:       arith.addi %[[I]], %[[BIAS]]
// CHECK:       %[[NAN:.+]] = arith.cmpf uno, %[[X]], %[[X]]
// CHECK:       arith.select %[[NAN]]
// CHECK:       arith.trunci {{.*}} : vector<8xi32> to vector<8xi16>
// CHECK-NOT:   arith.truncf
func.func @to_bf16(%x: vector<8xf32>) -> vector<8xbf16> {
  %y = arith.truncf %x : vector<8xf32> to vector<8xbf16>
  return %y : vector<8xbf16>
}

// CHECK-LABEL: @from_bf16
// CHECK:       arith.extui {{.*}} : i16 to i32
// CHECK:       arith.shli
// CHECK-NOT:   arith.extf
func.func @from_bf16(%x: bf16) -> f32 {
  %y = arith.extf %x : bf16 to f32
  return %y : f32
}

// Eager rounds twice, and so do we.
// CHECK-LABEL: @f64_to_f16
// CHECK:       %[[Y:.+]] = arith.truncf {{.*}} : f64 to f32
// CHECK:       %[[FENCED:.+]] = llvm.call_intrinsic "llvm.arithmetic.fence"(%[[Y]])
// CHECK:       arith.truncf %[[FENCED]] : f32 to f16
func.func @f64_to_f16(%x: f64) -> f16 {
  %y = arith.truncf %x : f64 to f16
  return %y : f16
}

// An instruction does it, and LLVM is to leave it where it is.
// CHECK-LABEL: @f32_to_f16
// CHECK:       %[[FENCED:.+]] = llvm.call_intrinsic "llvm.arithmetic.fence"
// CHECK:       arith.truncf %[[FENCED]] : f32 to f16
// CHECK-NOT:   arith.truncf
// INTEGER-LABEL: @f32_to_f16
// INTEGER-NOT:   arith.truncf
// INTEGER:       arith.bitcast {{.*}} : i16 to f16
func.func @f32_to_f16(%x: f32) -> f16 {
  %y = arith.truncf %x : f32 to f16
  return %y : f16
}
