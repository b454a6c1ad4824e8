//===- ForeignKernel.h - Kernels of other compilers ---------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// How the arguments of a launch are passed to a kernel that another compiler
// made, Triton above all, and which of its variants takes them.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_FOREIGNKERNEL_H
#define INTARSIA_LIB_RUNTIME_FOREIGNKERNEL_H

#include "intarsia/Runtime/Torch.h"

#include <optional>
#include <string>
#include <vector>

namespace intarsia::runtime {

class CudaKernel;

/// The parsed form of one of plan::Kernel::Variant::parameters.
struct ForeignParameter {
  enum class Kind { NotPassed, Pointer, Signed, Unsigned, Float };
  Kind kind = Kind::NotPassed;
  int width = 64; // bits
  bool multipleOf16 = false;

  /// Nullopt: no such parameter.
  static std::optional<ForeignParameter> parse(const std::string &text);

  /// Whether a kernel that was compiled for this parameter may be given the
  /// value: a Pointer, Int, Bool or Float.
  bool takes(const Value &value) const;
  /// The value's bytes as the kernel reads them, from the lowest on.
  uint64_t bytes(const Value &value) const;
};

struct ForeignVariant {
  CudaKernel *kernel = nullptr;
  int64_t threads = 0, scratch = 0;
  std::vector<ForeignParameter> parameters;
};

/// The first variant that takes all values; null: none does.
const ForeignVariant *chooseVariant(const std::vector<ForeignVariant> &variants,
                                    const Value *values);

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_FOREIGNKERNEL_H
