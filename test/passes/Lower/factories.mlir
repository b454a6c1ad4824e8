// RUN: intarsia-opt --lower-calls %s | FileCheck %s

// CHECK-LABEL: func.func @full
// CHECK: intarsia.kernel() symbols [s0] ops ["aten::full"]
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<?x2xi64>)
// CHECK: arith.constant 3 : i64
func.func @full(%n: index {intarsia.expr = #intarsia.expr<"s0">}) -> !intarsia.tensor<[s0, 2]xi64> {
  %0 = intarsia.call "aten::full"(size = [%n, 2], fill_value = 3, dtype = none, layout = none, device = none, pin_memory = none)
    : (index) -> !intarsia.tensor<[s0, 2]xi64>
  return %0 : !intarsia.tensor<[s0, 2]xi64>
}

// CHECK-LABEL: func.func @range
// CHECK: %[[I:.+]] = linalg.index 0 : index
// CHECK: arith.index_cast %[[I]] : index to i64
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: arith.sitofp {{.+}} : i64 to f32
// CHECK: intarsia.call "aten::arange.start_step"
func.func @range() -> (!intarsia.tensor<[4]xf32>, !intarsia.tensor<[10]xf32>) {
  %0 = intarsia.call "aten::arange.start_step"(start = 1, end = 9, step = 2, dtype = dtype<f32>, layout = none, device = none, pin_memory = none)
    : () -> !intarsia.tensor<[4]xf32>
  %1 = intarsia.call "aten::arange.start_step"(start = 0, end = 1, step = 0.1, dtype = dtype<f32>, layout = none, device = none, pin_memory = none)
    : () -> !intarsia.tensor<[10]xf32>
  return %0, %1 : !intarsia.tensor<[4]xf32>, !intarsia.tensor<[10]xf32>
}
