// RUN: intarsia-opt %s --cpu-check-math --split-input-file --verify-diagnostics

// What is one instruction, or a few, passes.
func.func @instructions(%x: vector<8xf32>) -> vector<8xf32> {
  %a = math.absf %x : vector<8xf32>
  %b = math.floor %a : vector<8xf32>
  %c = math.sqrt %b : vector<8xf32>
  %d = math.roundeven %c : vector<8xf32>
  %e = math.copysign %d, %x : vector<8xf32>
  return %e : vector<8xf32>
}

// -----

func.func @function(%x: vector<8xf64>) -> vector<8xf64> {
  // expected-error @below {{no vector code is known for 'math.acosh' on 'vector<8xf64>'; its operator must stay an opaque call}}
  %y = math.acosh %x : vector<8xf64>
  return %y : vector<8xf64>
}
