// RUN: intarsia-opt --cpu-to-llvm --split-input-file --verify-diagnostics %s

// An operation that has no counterpart is an error, not a left-over.

func.func @tensors() {
  // expected-error @+1 {{failed to legalize operation 'tensor.empty'}}
  %0 = tensor.empty() : tensor<4xf32>
  return
}
