// RUN: intarsia-opt --cpu-to-llvm --split-input-file --verify-diagnostics %s

// An operation that has no counterpart is an error, not a left-over.

func.func @tensors(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{failed to legalize operation 'linalg.copy'}}
  %0 = linalg.copy ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
