// RUN: intarsia-opt --gpu-to-simt --split-input-file --verify-diagnostics %s | FileCheck %s
// RUN: intarsia-opt --gpu-to-simt=traces --split-input-file --verify-diagnostics %s | FileCheck %s --check-prefix=TRACES

// A kernel whose threads wait for nobody: a function of one thread, called for each.

!t = !intarsia.tensor<[s0, 8]xf32>

// TRACES: llvm.mlir.global external @intarsia_simt_trace

// CHECK-LABEL: func.func @alone
// CHECK: checks = [{text = "emulated kernel k accesses memory outside its buffers"}
// CHECK-SAME: scratch = #intarsia.expr<"{{[0-9]+}}">
// CHECK: module @kernels
// CHECK: func.func private @k_thread(%[[CTX:.+]]: !llvm.ptr, %[[THREAD:.+]]: i64) attributes {llvm.linkage = #llvm.linkage<internal>}
// CHECK-NOT: gpu.
// CHECK: %[[AT:.+]] = llvm.getelementptr
// CHECK: %[[SAFE:.+]] = call @simt_access(%[[CTX]], %[[THREAD]], %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}})
// CHECK: llvm.load %[[SAFE]] {alignment = 4 : i64}
// CHECK: call @simt_access
// CHECK: llvm.store
// CHECK: func.func @k(%{{.+}}: !llvm.ptr, %{{.+}}: !llvm.ptr, %{{.+}}: i64, %{{.+}}: i64, %{{.+}}: !llvm.ptr) -> i64
// CHECK-NOT: @intarsia_simt_trace
// CHECK: call @simt_run(
func.func @alone(%x: !t) -> !t attributes {intarsia.symbols = {s0 = [2, unit]}} {
  %r = intarsia.kernel(%x) symbols [s0] ops ["aten::neg"] decisions {symbol = "k",
      threads = 64, grid = #intarsia.expr<"floordiv(8*s0 + 63, 64)">, domain = #intarsia.expr<"8*s0">} : (!t) -> !t {
  ^bb0(%a: tensor<?x8xf32>, %n: index):
    intarsia.yield %a : tensor<?x8xf32>
  }
  return %r : !t
}
gpu.module @kernels {
  gpu.func @k(%in: !llvm.ptr, %out: !llvm.ptr, %s0: i64, %end: i64, %status: !llvm.ptr) kernel {
    %t = gpu.thread_id x
    %i = arith.index_cast %t : index to i64
    %from = llvm.getelementptr %in[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %v = llvm.load %from {alignment = 4 : i64} : !llvm.ptr -> f32
    %to = llvm.getelementptr %out[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %v, %to {alignment = 4 : i64} : f32, !llvm.ptr
    gpu.return
  }
}

// -----

// Threads that wait for each other are coroutines.

!t = !intarsia.tensor<[64]xi32>

// CHECK-LABEL: func.func @together
// CHECK: func.func private @k_thread(%{{.+}}: !llvm.ptr, %{{.+}}: i64) -> !llvm.ptr attributes {{{.*}}passthrough = ["presplitcoroutine"]}
// CHECK: llvm.intr.coro.id
// CHECK: call @simt_access
// CHECK: llvm.intr.coro.suspend
// CHECK: cf.switch
// CHECK: llvm.intr.coro.suspend
// CHECK: cf.switch
// CHECK: call @simt_access
// CHECK: llvm.store
// CHECK: llvm.intr.coro.begin
// CHECK: llvm.intr.coro.end
// CHECK: call @simt_run_coroutines(
func.func @together(%x: !t) -> !t {
  %r = intarsia.kernel(%x) ops ["aten::neg"] decisions {symbol = "k", threads = 64,
      grid = #intarsia.expr<"1">, domain = #intarsia.expr<"1">} : (!t) -> !t {
  ^bb0(%a: tensor<64xi32>):
    intarsia.yield %a : tensor<64xi32>
  }
  return %r : !t
}
gpu.module @kernels {
  gpu.func @k(%in: !llvm.ptr, %out: !llvm.ptr, %end: i64, %status: !llvm.ptr)
      workgroup(%shared: memref<64xi32, #gpu.address_space<workgroup>>) kernel {
    %t = gpu.thread_id x
    %i = arith.index_cast %t : index to i64
    %from = llvm.getelementptr %in[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
    %v = llvm.load %from {alignment = 4 : i64} : !llvm.ptr -> i32
    memref.store %v, %shared[%t] : memref<64xi32, #gpu.address_space<workgroup>>
    gpu.barrier
    %w = memref.load %shared[%t] : memref<64xi32, #gpu.address_space<workgroup>>
    %one = arith.constant 1 : i32
    %warp = arith.constant 32 : i32
    %s, %valid = gpu.shuffle xor %w, %one, %warp : i32
    %to = llvm.getelementptr %out[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
    llvm.store %s, %to {alignment = 4 : i64} : i32, !llvm.ptr
    gpu.return
  }
}

// -----

!t = !intarsia.tensor<[64]xi32>

func.func @other(%x: !t) -> !t {
  %r = intarsia.kernel(%x) ops ["aten::neg"] decisions {symbol = "k", threads = 64,
      grid = #intarsia.expr<"1">, domain = #intarsia.expr<"1">} : (!t) -> !t {
  ^bb0(%a: tensor<64xi32>):
    intarsia.yield %a : tensor<64xi32>
  }
  return %r : !t
}
gpu.module @kernels {
  gpu.func @k(%in: !llvm.ptr, %out: !llvm.ptr, %end: i64, %status: !llvm.ptr) kernel {
    %v = arith.constant 1 : i32
    %warp = arith.constant 16 : i32
    // expected-error @below {{cannot be emulated: only shuffles of i32 in whole warps, by xor and by index, can}}
    %s, %valid = gpu.shuffle xor %v, %v, %warp : i32
    gpu.return
  }
}
