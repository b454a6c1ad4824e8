// RUN: intarsia-opt --cpu-to-llvm %s | FileCheck %s

// The last step: everything is the LLVM dialect, and nothing else is left.

// CHECK-LABEL: llvm.func @loop
// CHECK-NOT: {{scf|arith|vector|cf|builtin}}.
// CHECK: llvm.icmp "slt"
// CHECK: llvm.cond_br
// CHECK: llvm.fadd {{.*}} : vector<16xf32>
// CHECK: llvm.br
// CHECK: llvm.intr.vector.reduce.fadd
// CHECK: llvm.return
func.func @loop(%n: i64, %x: vector<16xf32>) -> f32 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %r = scf.for %i = %zero to %n step %one iter_args(%s = %x) -> (vector<16xf32>) : i64 {
    %t = arith.addf %s, %x : vector<16xf32>
    scf.yield %t : vector<16xf32>
  }
  %f = vector.reduction <add>, %r : vector<16xf32> into f32
  return %f : f32
}

// Division that rounds down, of positions.
// CHECK-LABEL: llvm.func @floor
// CHECK: llvm.sdiv
// CHECK: llvm.select
// CHECK: llvm.return
func.func @floor(%a: i64, %b: i64) -> i64 {
  %q = arith.floordivsi %a, %b : i64
  return %q : i64
}
