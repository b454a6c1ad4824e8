//===- FakeCuda.h - A GPU that is none ----------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the tests see of FakeCuda.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TEST_UNIT_RUNTIME_OPERATORS_FAKECUDA_H
#define INTARSIA_TEST_UNIT_RUNTIME_OPERATORS_FAKECUDA_H

#include <map>
#include <string>
#include <vector>

struct FakeCuda {
  /// Compute capabilities of the devices.
  std::vector<int> devices = {80, 90, 75, 86, 100};
  /// What was called, one line each.
  std::vector<std::string> log;
  /// Function -> the CUresult that it returns instead of doing anything.
  std::map<std::string, int> errors;
  /// The current stream of each device.
  std::map<int, void *> streams;
  /// Parameters of the last launch, as numbers.
  std::vector<long long> parameters;
};

#endif // INTARSIA_TEST_UNIT_RUNTIME_OPERATORS_FAKECUDA_H
