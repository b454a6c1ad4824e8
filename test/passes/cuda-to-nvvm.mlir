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
  // CHECK: llvm.return
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

// Shared memory and vectors.

gpu.module @kernels {
  // CHECK: llvm.mlir.global internal @{{.+}}() {addr_space = 3 : i32} : !llvm.array<8 x i32>
  // CHECK-LABEL: llvm.func @k(
  // CHECK: llvm.store %{{.+}} : i32, !llvm.ptr<3>
  // CHECK: nvvm.barrier
  // CHECK: nvvm.shfl.sync bfly
  // CHECK: llvm.store %{{.+}} : vector<4xi32>, !llvm.ptr
  gpu.func @k(%p: !llvm.ptr, %x: i32) workgroup(%shared: memref<8xi32, #gpu.address_space<workgroup>>) kernel {
    %t = gpu.thread_id x
    memref.store %x, %shared[%t] : memref<8xi32, #gpu.address_space<workgroup>>
    gpu.barrier
    %one = arith.constant 1 : i32
    %warp = arith.constant 32 : i32
    %y, %valid = gpu.shuffle xor %x, %one, %warp : i32
    %v = vector.broadcast %y : i32 to vector<4xi32>
    llvm.store %v, %p {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr
    gpu.return
  }
}

// -----

// Nothing may be left over.

gpu.module @kernels {
  gpu.func @k(%x: index) kernel {
    %c1 = arith.constant 1 : index
    // expected-error @below {{failed to legalize operation 'gpu.launch'}}
    gpu.launch blocks(%a, %b, %c) in (%d = %c1, %e = %c1, %f = %c1) threads(%g, %h, %i) in (%j = %c1, %k = %c1, %l = %c1) {
      gpu.terminator
    }
    gpu.return
  }
}
