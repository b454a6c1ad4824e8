// RUN: intarsia-opt --split-input-file --plan-inplace --plan-print --verify-diagnostics %s

// expected-error @+1 {{symbol 's9' is determined by no input and no result}}
func.func @main(%x: !intarsia.tensor<["s9*s9"]xf32>) -> !intarsia.tensor<[s9]xf32> {
  %0 = intarsia.call "my::root"(x = %x) : (!intarsia.tensor<["s9*s9"]xf32>) -> !intarsia.tensor<[s9]xf32>
  return %0 : !intarsia.tensor<[s9]xf32>
}

// -----

func.func @main(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  // expected-error @+1 {{the kernel has no code: `decisions` lacks a `symbol`}}
  %0 = intarsia.kernel(%x) ops ["aten::exp"]
      : (!intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  ^bb0(%t: tensor<8xf32>):
    intarsia.yield %t : tensor<8xf32>
  }
  return %0 : !intarsia.tensor<[8]xf32>
}

// -----

func.func @main(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  // expected-error @+1 {{higher-order operator higher_order::flex_attention is not supported here: it needs the Python front door (torch.compile); decompose it before exporting}}
  %0 = intarsia.call "higher_order::flex_attention"(arg0 = %x) : (!intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32>
  return %0 : !intarsia.tensor<[8]xf32>
}

// -----

func.func @main(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  // expected-error @+1 {{make an operator of the kernel before exporting (torch.library.triton_op)}}
  %0 = intarsia.call "higher_order::triton_kernel_wrapper_functional"(arg0 = %x) : (!intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32>
  return %0 : !intarsia.tensor<[8]xf32>
}

// -----

// expected-error @+1 {{expected @main or exactly one public function}}
module {
func.func @a(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  return %x : !intarsia.tensor<[8]xf32>
}
func.func @b(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  return %x : !intarsia.tensor<[8]xf32>
}
}

// -----

module {
func.func @main(%x: !intarsia.tensor<[8]xf32>) -> !intarsia.tensor<[8]xf32> {
  // expected-error @+1 {{the module carries no weight of this name}}
  %0 = intarsia.weight "w" : !intarsia.tensor<[8]xf32>
  return %0 : !intarsia.tensor<[8]xf32>
}
}

// -----

// expected-error @+1 {{malformed guard 'eq(s0'}}
func.func @main(%x: !intarsia.tensor<[s0]xf32>) -> !intarsia.tensor<[s0]xf32> attributes {intarsia.guards = ["eq(s0"]} {
  return %x : !intarsia.tensor<[s0]xf32>
}
