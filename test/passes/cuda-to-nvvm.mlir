// RUN: intarsia-opt --pass-pipeline='builtin.module(gpu.module(cuda-to-nvvm))' --split-input-file --verify-diagnostics %s | FileCheck %s

gpu.module @kernels {
  // CHECK-LABEL: llvm.func @k(%{{.+}}: !llvm.ptr, %{{.+}}: i64)
  // CHECK-SAME: nvvm.kernel
  // CHECK-SAME: nvvm.maxntid = array<i32: 256, 1, 1>
  // CHECK: nvvm.read.ptx.sreg.tid.x
  // CHECK: llvm.intr.fma
  // CHECK: llvm.intr.sqrt
  // CHECK-NOT: {{scf|gpu|cf}}.
  // CHECK-NOT: __nv
  gpu.func @k(%p: !llvm.ptr, %end: i64) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %t = gpu.thread_id x
    %begin = arith.index_cast %t : index to i64
    %step = arith.constant 256 : i64
    scf.for %i = %begin to %end step %step : i64 {
      %j = arith.floordivsi %i, %step : i64
      %at = llvm.getelementptr %p[%j] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %x = llvm.load %at : !llvm.ptr -> f32
      %y = math.fma %x, %x, %x : f32
      %z = math.sqrt %y : f32
      llvm.store %z, %at : f32, !llvm.ptr
    }
    gpu.return
  }
}

// -----

// Nothing may be left over; threads have no vectors.

gpu.module @kernels {
  gpu.func @k(%x: f32) kernel {
    // expected-error @below {{failed to legalize operation 'vector.broadcast'}}
    %v = vector.broadcast %x : f32 to vector<4xf32>
    gpu.return
  }
}
