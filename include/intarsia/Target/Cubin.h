//===- Cubin.h - Machine code for a GPU ---------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// PTX to cubin with ptxas of the CUDA toolkit, where there is one: a driver
// that loads a cubin has nothing to compile.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TARGET_CUBIN_H
#define INTARSIA_TARGET_CUBIN_H

#include "intarsia/Target/Target.h"

#include <string>

namespace intarsia {

/// The program: of the PATH, or in bin of the folder that CUDA_HOME names; ""
/// when there is none.
std::string findPtxas();

/// Assembles PTX for a GPU, "sm_90". Equal text gives equal bytes. Throws
/// TargetError with what ptxas says.
std::string assembleCubin(const std::string &ptxas, const std::string &ptx,
                          const std::string &arch);

/// Throws a TargetError unless kernels can be made for it: a name such as
/// "sm_80" or "sm_90a", of sm_70 or later.
void checkArch(llvm::StringRef arch);
/// 90 of "sm_90" and of "sm_90a"; 0 for what is no such name.
int archNumber(llvm::StringRef arch);
/// Whether code for it runs on no GPU that came later: "sm_90a", "sm_100f".
bool isSpecificArch(llvm::StringRef arch);

} // namespace intarsia

#endif // INTARSIA_TARGET_CUBIN_H
