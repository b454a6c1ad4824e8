// RUN: intarsia-opt %s --cpu-expand-math --cpu-check-math --split-input-file | FileCheck %s
// RUN: intarsia-opt %s --cpu-expand-math="fma=false" --split-input-file | FileCheck %s --check-prefix=NOFMA
// RUN: intarsia-opt %s --cpu-expand-math="avx512" --split-input-file | FileCheck %s --check-prefix=AVX512

// Fused multiply-add in f32; without it, f64.
// CHECK-LABEL: @exp
// CHECK-NOT:   math.exp
// CHECK:       math.fma {{.*}} : vector<16xf32>
// CHECK-NOT:   vector<16xf64>
// NOFMA-LABEL: @exp
// NOFMA-NOT:   math.exp
// NOFMA-NOT:   math.fma
// NOFMA:       arith.extf {{.*}} : vector<16xf32> to vector<16xf64>
// NOFMA-NOT:   math.fma
// NOFMA:       arith.truncf {{.*}} : vector<16xf64> to vector<16xf32>
func.func @exp(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}

// -----

// Scalars are computed by the same operations.
// CHECK-LABEL: @tanh
// CHECK:       math.fma {{.*}} : f32
// CHECK-NOT:   math.tanh
func.func @tanh(%x: f32) -> f32 {
  %y = math.tanh %x : f32
  return %y : f32
}

// -----

// Low precision goes through f32.
// CHECK-LABEL: @bf16
// CHECK-SAME:  (%[[X:.+]]: vector<8xbf16>)
// CHECK:       arith.extf %[[X]] : vector<8xbf16> to vector<8xf32>
// CHECK:       %[[Y:.+]] = arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK:       return %[[Y]]
func.func @bf16(%x: vector<8xbf16>) -> vector<8xbf16> {
  %y = math.erf %x : vector<8xbf16>
  return %y : vector<8xbf16>
}

// -----

// The long reduction runs only if an element is large.
// CHECK-LABEL: @sin
// CHECK:       %[[ANY:.+]] = vector.reduction <or>, {{.*}} : vector<16xi1> into i1
// CHECK:       scf.if %[[ANY]]
// CHECK:         arith.muli
// CHECK:       } else {
// CHECK-NEXT:    scf.yield
func.func @sin(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.sin %x : vector<16xf32>
  return %y : vector<16xf32>
}

// -----

// The same for vectors of more dimensions.
// CHECK-LABEL: @cos
// CHECK:       vector.shape_cast {{.*}} : vector<2x8xi1> to vector<16xi1>
func.func @cos(%x: vector<2x8xf32>) -> vector<2x8xf32> {
  %y = math.cos %x : vector<2x8xf32>
  return %y : vector<2x8xf32>
}

// -----

// Instructions stay.
// CHECK-LABEL: @floor
// CHECK:       math.floor
func.func @floor(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.floor %x : vector<16xf32>
  return %y : vector<16xf32>
}

// -----

// With AVX-512, erf is one polynomial whose coefficients are looked up by the
// piece that a lane is in; 16 lanes at a time.
// CHECK-LABEL:   @pieces
// CHECK-NOT:     llvm.call_intrinsic
// AVX512-LABEL:  @pieces
// AVX512-COUNT-12: llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"({{.*}}) : (vector<16xf32>, vector<16xi32>) -> vector<16xf32>
// AVX512-NOT:    llvm.call_intrinsic
// AVX512:        return
func.func @pieces(%x: vector<32xf32>) -> vector<32xf32> {
  %y = math.erf %x : vector<32xf32>
  return %y : vector<32xf32>
}
