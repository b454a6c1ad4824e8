//===- Report.cpp - Times of a program
//----------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Benchmarks and profiles through the public interface of Program.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace intarsia;
using namespace intarsia::runtime;

static void runOnce(const Program &program, std::vector<Value> inputs,
                    Profile *profile) {
  std::vector<Value> outputs(program.outputCount());
  program.run(inputs.data(), inputs.size(), outputs.data(), outputs.size(),
              Program::None, profile);
  // A CUDA program has only been launched when `run` returns.
  for (const Value &output : outputs) {
    TensorInfo info;
    if (output.kind == Value::Kind::Tensor &&
        torchApi().describe(output.tensor, &info) == 0)
      torchApi().synchronize(info.deviceType, info.deviceIndex);
  }
  for (Value &output : outputs)
    release(output);
}

void tool::benchmark(const Program &program, const std::vector<Value> &inputs,
                     int count) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    auto start = std::chrono::steady_clock::now();
    runOnce(program, inputs, nullptr);
    times.push_back(std::chrono::duration<double, std::micro>(
                        std::chrono::steady_clock::now() - start)
                        .count());
  }
  std::sort(times.begin(), times.end());
  std::printf("time of a run over %d runs: minimum %.2f us, median %.2f us, "
              "maximum %.2f us\n",
              count, times.front(), times[times.size() / 2], times.back());
}

/// The kind and name of a step, as the plan's listing has it.
static std::string nameOf(const plan::Plan &plan, const plan::Step &step) {
  switch (step.kind) {
  case plan::Step::Kind::Call:
    return "call " + step.op;
  case plan::Step::Kind::Launch:
  case plan::Step::Kind::LaunchForeign: {
    const plan::Kernel &kernel = plan.kernels[size_t(step.kernel)];
    return "launch " + kernel.symbol +
           (kernel.summary.empty() ? "" : " (" + kernel.summary + ")");
  }
  case plan::Step::Kind::Alloc:
    return "alloc";
  case plan::Step::Kind::Free:
    return "free";
  case plan::Step::Kind::View:
    return "view";
  case plan::Step::Kind::Copy:
  case plan::Step::Kind::Clone:
    return "copy";
  case plan::Step::Kind::Cond:
    return "cond";
  case plan::Step::Kind::While:
    return "while";
  case plan::Step::Kind::Invoke:
  case plan::Step::Kind::Map:
  case plan::Step::Kind::Scan:
    return step.functions.empty() ? "invoke" : "invoke " + step.functions[0];
  default:
    return "other";
  }
}

void tool::profile(const Program &program, const std::vector<Value> &inputs,
                   int count) {
  Profile profile;
  for (int i = 0; i < count; ++i)
    runOnce(program, inputs, &profile);
  struct Line {
    double time;
    int64_t count;
    size_t step;
    std::string function, name, location;
  };
  const plan::Plan &plan = program.plan();
  std::vector<Line> lines;
  double total = double(profile.total.nanoseconds) / count / 1e3;
  for (size_t f = 0; f < plan.functions.size(); ++f)
    for (size_t s = 0; s < plan.functions[f].steps.size(); ++s) {
      const Profile::Entry &entry = profile.steps[f][s];
      const plan::Step &step = plan.functions[f].steps[s];
      if (entry.count)
        lines.push_back({double(entry.nanoseconds) / count / 1e3, entry.count,
                         s, plan.functions[f].name, nameOf(plan, step),
                         step.location});
    }
  std::stable_sort(
      lines.begin(), lines.end(),
      [](const Line &a, const Line &b) { return a.time > b.time; });
  std::printf("mean of %d runs: %.2f us\n", count, total);
  std::printf("%10s %6s %8s  %s\n", "us", "%", "times", "step");
  for (const Line &line : lines)
    std::printf("%10.2f %6.1f %8.1f  %s[%zu] %s%s%s\n", line.time,
                total > 0 ? 100 * line.time / total : 0,
                double(line.count) / count, line.function.c_str(), line.step,
                line.name.c_str(), line.location.empty() ? "" : "  // ",
                line.location.c_str());
}
