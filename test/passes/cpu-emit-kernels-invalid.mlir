// RUN: intarsia-opt --lower-calls --cpu-emit-kernels -split-input-file -verify-diagnostics %s

!vec = !intarsia.tensor<[s0]xf32>
func.func @unscheduled(%x: !vec) -> !vec {
  // expected-error @below {{has no loops: run cpu-schedule or cuda-schedule first}}
  %0 = intarsia.call "aten::exp"(self = %x) : (!vec) -> !vec
  return %0 : !vec
}

// -----

!vec = !intarsia.tensor<[s0]xf32>
func.func @twice(%x: !vec) -> !vec {
  %0 = intarsia.call "aten::exp"(self = %x) : (!vec) -> !vec
  return %0 : !vec
}
// expected-error @below {{is there already: kernels are emitted once}}
module @kernels {
}
