// RUN: intarsia-opt --pass-pipeline='builtin.module(gpu.module(cuda-pack-arithmetic))' %s | FileCheck %s

gpu.module @kernels {
  // What one operation rounds is the operand of the next. A number that the format has is
  // one of it, and so is what all lanes have.
  // CHECK-LABEL: func.func @chain
  // CHECK-SAME: (%[[X:.+]]: vector<8xbf16>, %[[S:.+]]: bf16)
  // CHECK: %[[HALF:.+]] = arith.constant dense<5.000000e-01> : vector<8xbf16>
  // CHECK: %[[A:.+]] = arith.mulf %[[X]], %[[HALF]] : vector<8xbf16>
  // CHECK: %[[ALL:.+]] = vector.broadcast %[[S]] : bf16 to vector<8xbf16>
  // CHECK: %[[B:.+]] = arith.subf %[[A]], %[[ALL]] : vector<8xbf16>
  // CHECK: %[[C:.+]] = arith.addf %[[B]], %[[X]] : vector<8xbf16>
  // CHECK: return %[[C]]
  func.func @chain(%x: vector<8xbf16>, %s: bf16) -> vector<8xbf16> {
    %half = arith.constant dense<0.5> : vector<8xf32>
    %0 = arith.extf %x : vector<8xbf16> to vector<8xf32>
    %1 = arith.mulf %0, %half : vector<8xf32>
    %2 = arith.truncf %1 : vector<8xf32> to vector<8xbf16>
    %3 = arith.extf %2 : vector<8xbf16> to vector<8xf32>
    %4 = arith.extf %s : bf16 to f32
    %5 = vector.broadcast %4 : f32 to vector<8xf32>
    %6 = arith.subf %3, %5 : vector<8xf32>
    %7 = arith.truncf %6 : vector<8xf32> to vector<8xbf16>
    %8 = arith.extf %7 : vector<8xbf16> to vector<8xf32>
    %9 = arith.addf %8, %0 : vector<8xf32>
    %10 = arith.truncf %9 : vector<8xf32> to vector<8xbf16>
    return %10 : vector<8xbf16>
  }

  // Not a number that the format lacks, what is not rounded after each operation, a
  // quotient, numbers of another format, one number.
  // CHECK-LABEL: func.func @others
  // CHECK-NOT: : vector<4xf16>{{$}}
  // CHECK: return
  func.func @others(%x: vector<4xf16>, %y: vector<4xbf16>, %z: f16)
      -> (vector<4xf16>, vector<4xf16>, vector<4xf16>, vector<4xf16>, f16) {
    %tenth = arith.constant dense<0.1> : vector<4xf32>
    %0 = arith.extf %x : vector<4xf16> to vector<4xf32>
    %1 = arith.mulf %0, %tenth : vector<4xf32>
    %2 = arith.truncf %1 : vector<4xf32> to vector<4xf16>
    %3 = arith.addf %1, %0 : vector<4xf32>
    %4 = arith.truncf %3 : vector<4xf32> to vector<4xf16>
    %5 = arith.divf %0, %0 : vector<4xf32>
    %6 = arith.truncf %5 : vector<4xf32> to vector<4xf16>
    %7 = arith.extf %y : vector<4xbf16> to vector<4xf32>
    %8 = arith.addf %0, %7 : vector<4xf32>
    %9 = arith.truncf %8 : vector<4xf32> to vector<4xf16>
    %10 = arith.extf %z : f16 to f32
    %11 = arith.addf %10, %10 : f32
    %12 = arith.truncf %11 : f32 to f16
    return %2, %4, %6, %9, %12 : vector<4xf16>, vector<4xf16>, vector<4xf16>, vector<4xf16>, f16
  }
}
