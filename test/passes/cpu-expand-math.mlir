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

// -----

// The normal distribution function needs no small relative error of erf: it is
// read from its own table, and nothing of what it was made of stays.
// CHECK-LABEL:   @normal
// AVX512-LABEL:  @normal
// AVX512-SAME:   (%[[X:.+]]: vector<16xf32>)
// AVX512:        math.absf %[[X]]
// AVX512-COUNT-6: llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"
// AVX512-NOT:    arith.mulf
// AVX512:        %[[P:.+]] = math.copysign {{.*}}, %[[X]]
// AVX512:        arith.addf %[[P]], {{.*}}
// AVX512-NEXT:   return
func.func @normal(%x: vector<16xf32>) -> vector<16xf32> {
  %scale = arith.constant dense<0.707106769> : vector<16xf32>
  %a = arith.mulf %x, %scale : vector<16xf32>
  %b = math.erf %a : vector<16xf32>
  %one = arith.constant dense<1.0> : vector<16xf32>
  %c = arith.addf %b, %one : vector<16xf32>
  %scalar = arith.constant 0.5 : f32
  %half = vector.broadcast %scalar : f32 to vector<16xf32>
  %r = arith.mulf %half, %c : vector<16xf32>
  return %r : vector<16xf32>
}

// -----

// Another use of the erf keeps it.
// AVX512-LABEL:  @used
// AVX512:        arith.mulf
// AVX512-COUNT-6: llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"
// AVX512:        %[[SUM:.+]] = arith.addf
// AVX512:        arith.mulf %[[SUM]]
func.func @used(%x: vector<16xf32>) -> (vector<16xf32>, vector<16xf32>) {
  %scale = arith.constant dense<0.707106769> : vector<16xf32>
  %a = arith.mulf %x, %scale : vector<16xf32>
  %b = math.erf %a : vector<16xf32>
  %one = arith.constant dense<1.0> : vector<16xf32>
  %c = arith.addf %b, %one : vector<16xf32>
  %half = arith.constant dense<0.5> : vector<16xf32>
  %r = arith.mulf %c, %half : vector<16xf32>
  return %b, %r : vector<16xf32>, vector<16xf32>
}

// -----

// A size that is a power of two is multiplied by its reciprocal; what changes
// in the loop is not a size.
// CHECK-LABEL: @mean
// CHECK-SAME:  %[[N:[a-z0-9]+]]: i64
// CHECK:       %[[F:.+]] = arith.sitofp %[[N]]
// CHECK:       scf.for
// CHECK:         %[[R:.+]] = arith.divf %{{.*}}, %[[F]] : f32
// CHECK:         scf.if
// CHECK:           arith.mulf %{{.*}}, %[[R]]
// CHECK:         } else {
// CHECK:           arith.divf %{{.*}}, %[[F]]
// CHECK:         arith.sitofp
// CHECK-NEXT:    arith.divf
// CHECK-NOT:     scf.if
// CHECK:         return
func.func @mean(%x: f32, %size: i64, %rows: index) -> f32 {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.sitofp %size : i64 to f32
  %y = scf.for %i = %zero to %rows step %one iter_args(%a = %x) -> (f32) {
    %mean = arith.divf %a, %n : f32
    %position = arith.index_cast %i : index to i64
    %p = arith.sitofp %position : i64 to f32
    %b = arith.divf %mean, %p : f32
    scf.yield %b : f32
  }
  return %y : f32
}
