//===- profiler.cpp - Adds up what compiled programs spend ----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An observer of PyTorch's profiling hook that adds up instead of keeping
// events: a step of a compiled program may be shorter than what recording one
// takes.
//
//===----------------------------------------------------------------------===//

#include <ATen/record_function.h>

#include <chrono>
#include <optional>
#include <string_view>

using Clock = std::chrono::steady_clock;

static int64_t since(Clock::time_point start) {
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

/// This thread's program, between `enter` and `leave`, and the outermost event
/// in it: an operator that calls others is one.
static thread_local bool inside = false;
static thread_local int depth = 0;
static thread_local Clock::time_point begun;
static std::optional<at::CallbackHandle> observer;

extern "C" {
/// Nanoseconds since the caller set them to zero.
struct Spent {
  int64_t calls;   // of operators
  int64_t kernels; // that were compiled
  int64_t events;  // of both, a number
} spent;

void enter() {
  inside = true;
  depth = 0;
}

void leave() { inside = false; }

/// Begins or ends to observe what runs between `enter` and `leave`.
void observe(bool on) {
  if (observer)
    at::removeCallback(*observer);
  observer.reset();
  if (!on)
    return;
  auto begin =
      [](const at::RecordFunction &) -> std::unique_ptr<at::ObserverContext> {
    if (inside && depth++ == 0)
      begun = Clock::now();
    return nullptr;
  };
  auto end = [](const at::RecordFunction &event, at::ObserverContext *) {
    if (!inside || --depth != 0)
      return;
    int64_t time = since(begun);
    std::string_view name = event.name();
    bool isKernel = name.substr(0, 10) == "intarsia::" || // as it reports them
                    name.find("cpp_fused") != name.npos;  // Inductor's
    (isKernel ? spent.kernels : spent.calls) += time;
    ++spent.events;
  };
  observer = at::addGlobalCallback(at::RecordFunctionCallback(begin, end)
                                       .scopes({at::RecordScope::FUNCTION}));
}

/// Nanoseconds that observing an event takes beside the time it is said to have
/// taken. Counts as events what it tries.
double overhead() {
  constexpr int count = 10000;
  observe(true);
  enter();
  int64_t counted = spent.calls;
  auto start = Clock::now();
  for (int i = 0; i < count; ++i) {
    at::RecordFunction event(at::RecordScope::FUNCTION);
    event.before("empty");
  }
  auto total = double(since(start));
  leave();
  observe(false);
  return (total - double(spent.calls - counted)) / count;
}
}
