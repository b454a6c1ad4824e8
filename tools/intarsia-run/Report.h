//===- Report.h - Times of a program ------------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What intarsia-run prints for --benchmark and --profile.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TOOLS_INTARSIA_RUN_REPORT_H
#define INTARSIA_TOOLS_INTARSIA_RUN_REPORT_H

#include "intarsia/Runtime/Program.h"

namespace intarsia::tool {

/// Runs `count` times; prints minimum, median and maximum of a run's time.
void benchmark(const runtime::Program &program,
               const std::vector<runtime::Value> &inputs, int count);

/// Runs `count` times; prints the mean time of each step, slowest first.
void profile(const runtime::Program &program,
             const std::vector<runtime::Value> &inputs, int count);

} // namespace intarsia::tool

#endif // INTARSIA_TOOLS_INTARSIA_RUN_REPORT_H
