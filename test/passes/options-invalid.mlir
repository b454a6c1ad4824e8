// RUN: not intarsia-opt --lower-calls=devices=gpu %s 2>&1 | FileCheck --check-prefix=DEVICE %s
// RUN: not intarsia-opt --cpu-schedule=vector-bits=7 %s 2>&1 | FileCheck --check-prefix=BITS %s

// Options that no pass can act on are errors.
// DEVICE: error: lower-calls: the option devices has 'gpu'; kernels are made for cpu and cuda
// BITS: error: cpu-schedule: the option vector-bits is 7; a power of two from 32 to 2048 is a vector
func.func @main() {
  return
}
