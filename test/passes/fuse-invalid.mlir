// RUN: intarsia-opt --fuse-decide --split-input-file --verify-diagnostics %s
// RUN: intarsia-opt --cpu-schedule --split-input-file --verify-diagnostics %s

// Each stage says which one it needs before it.

func.func @no_space(%x: !intarsia.tensor<[3]xf32>) -> !intarsia.tensor<[3]xf32> {
  // expected-error @+1 {{has no iteration space: run fuse-analyse first}}
  %0 = intarsia.kernel(%x) ops ["my::f"] : (!intarsia.tensor<[3]xf32>) -> !intarsia.tensor<[3]xf32> {
  ^bb0(%a: tensor<3xf32>):
    intarsia.yield %a : tensor<3xf32>
  }
  return %0 : !intarsia.tensor<[3]xf32>
}
