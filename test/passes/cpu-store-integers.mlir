// RUN: intarsia-opt %s --cpu-expand-conversions="integers" | FileCheck %s
// RUN: intarsia-opt %s --cpu-expand-conversions="integers f16c=false" | FileCheck %s --check-prefix=INTEGER

// Nothing of type bf16 is left, and of f16 nothing without its instructions.
// CHECK-LABEL: @select
// CHECK-NOT:   bf16
// CHECK:       arith.constant dense<16256> : vector<8xi16>
// CHECK:       arith.select {{.*}} : vector<8xi16>
// CHECK:       scf.for {{.*}} -> (vector<8xi16>)
// CHECK:       llvm.load {{.*}} -> vector<8xi16>
// CHECK:       llvm.store {{.*}} : vector<8xi16>, !llvm.ptr
// CHECK-LABEL: @half
// CHECK:       arith.constant 1.000000e+00 : f16
// CHECK:       arith.select {{.*}} : f16
// INTEGER-LABEL: @half
// INTEGER:       arith.constant 15360 : i16
// INTEGER-NOT:   f16
// INTEGER:       arith.select {{.*}} : i16
// INTEGER:       llvm.store {{.*}} : i16, !llvm.ptr
func.func @select(%p: !llvm.ptr, %x: vector<8xf32>, %c: i1, %n: index) {
  %zero = arith.constant 0 : index
  %step = arith.constant 1 : index
  %one = arith.constant dense<1.0> : vector<8xbf16>
  %y = arith.truncf %x : vector<8xf32> to vector<8xbf16>
  %z = arith.select %c, %y, %one : vector<8xbf16>
  %last = scf.for %i = %zero to %n step %step iter_args(%a = %z) -> (vector<8xbf16>) {
    %b = llvm.load %p : !llvm.ptr -> vector<8xbf16>
    scf.yield %b : vector<8xbf16>
  }
  llvm.store %last, %p : vector<8xbf16>, !llvm.ptr
  return
}

func.func @half(%p: !llvm.ptr, %x: f32, %c: i1) {
  %one = arith.constant 1.0 : f16
  %y = arith.truncf %x : f32 to f16
  %z = arith.select %c, %y, %one : f16
  llvm.store %z, %p : f16, !llvm.ptr
  return
}

// A comparison and a sign are of f32.
// CHECK-LABEL: @exact
// CHECK:       arith.cmpf une, {{.*}} : f32
// CHECK:       arith.negf {{.*}} : f32
// CHECK:       llvm.store {{.*}} : i16, !llvm.ptr
func.func @exact(%p: !llvm.ptr) -> i1 {
  %x = llvm.load %p : !llvm.ptr -> bf16
  %zero = arith.constant 0.0 : bf16
  %c = arith.cmpf une, %x, %zero : bf16
  %n = arith.negf %x : bf16
  llvm.store %n, %p : bf16, !llvm.ptr
  return %c : i1
}
