// RUN: intarsia-opt %s | intarsia-opt | FileCheck %s

// CHECK-LABEL: func.func private @sizes
// CHECK-SAME: !intarsia.tensor<[]xi64>
// CHECK-SAME: !intarsia.tensor<[2, 0]xf32>
// CHECK-SAME: !intarsia.tensor<[s0, u1]xf32>
func.func private @sizes(!intarsia.tensor<[]xi64>, !intarsia.tensor<[2, 0]xf32>,
                         !intarsia.tensor<["s0", u1]xf32>)

// Expressions are brought into one normal form.
// CHECK-LABEL: func.func private @expressions
// CHECK-SAME: !intarsia.tensor<["12*s0 + 1", "floordiv(s0 + 1, 2)", "max(1, u0)"]xf32>
func.func private @expressions(
    !intarsia.tensor<["1 + s0*12", "(s0 - 1)//2 + 1", "max(u0, 1)"]xf32>)

// Strides are printed when they are not those of a contiguous tensor.
// CHECK-LABEL: func.func private @strides
// CHECK-SAME: !intarsia.tensor<[s0, 64]xf32>
// CHECK-SAME: !intarsia.tensor<[s0, 64]xf32, strides = [1, s0]>
// CHECK-SAME: !intarsia.tensor<[s0, 64]xf32, strides = [0, 1]>
// CHECK-SAME: !intarsia.tensor<[4, 0]xf32>
func.func private @strides(!intarsia.tensor<[s0, 64]xf32, strides = [64, 1]>,
                           !intarsia.tensor<[s0, 64]xf32, strides = [1, s0]>,
                           !intarsia.tensor<[s0, 64]xf32, strides = [0, 1]>,
                           !intarsia.tensor<[4, 0]xf32, strides = [1, 1]>)

// CHECK-LABEL: func.func private @device
// CHECK-SAME: !intarsia.tensor<[4]xf32>
// CHECK-SAME: !intarsia.tensor<[4]xf32, device = "cuda:0">
// CHECK-SAME: !intarsia.tensor<[4]xf32, strides = [2], device = "meta">
func.func private @device(!intarsia.tensor<[4]xf32, device = "cpu">,
                          !intarsia.tensor<[4]xf32, device = "cuda:0">,
                          !intarsia.tensor<[4]xf32, device = "meta", strides = [2]>)

// CHECK-LABEL: func.func private @dtypes
// CHECK-SAME: [1]xu8>, {{.*}}[1]xi8>, {{.*}}[1]xi16>, {{.*}}[1]xi32>, {{.*}}[1]xi64>
// CHECK-SAME: [1]xu16>, {{.*}}[1]xu32>, {{.*}}[1]xu64>, {{.*}}[1]xbool>
// CHECK-SAME: [1]xf16>, {{.*}}[1]xbf16>, {{.*}}[1]xf32>, {{.*}}[1]xf64>
// CHECK-SAME: [1]xc32>, {{.*}}[1]xc64>, {{.*}}[1]xc128>
// CHECK-SAME: [1]xf8e5m2>, {{.*}}[1]xf8e4m3fn>, {{.*}}[1]xf8e5m2fnuz>, {{.*}}[1]xf8e4m3fnuz>
// CHECK-SAME: [1]xf8e8m0fnu>, {{.*}}[1]xf4e2m1x2>
func.func private @dtypes(
    !intarsia.tensor<[1]xu8>, !intarsia.tensor<[1]xi8>, !intarsia.tensor<[1]xi16>,
    !intarsia.tensor<[1]xi32>, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1]xu16>,
    !intarsia.tensor<[1]xu32>, !intarsia.tensor<[1]xu64>, !intarsia.tensor<[1]xbool>,
    !intarsia.tensor<[1]xf16>, !intarsia.tensor<[1]xbf16>, !intarsia.tensor<[1]xf32>,
    !intarsia.tensor<[1]xf64>, !intarsia.tensor<[1]xc32>, !intarsia.tensor<[1]xc64>,
    !intarsia.tensor<[1]xc128>, !intarsia.tensor<[1]xf8e5m2>, !intarsia.tensor<[1]xf8e4m3fn>,
    !intarsia.tensor<[1]xf8e5m2fnuz>, !intarsia.tensor<[1]xf8e4m3fnuz>,
    !intarsia.tensor<[1]xf8e8m0fnu>, !intarsia.tensor<[1]xf4e2m1x2>)

// CHECK-LABEL: func.func private @object
// CHECK-SAME: !intarsia.object
func.func private @object(!intarsia.object)
