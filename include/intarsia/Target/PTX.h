//===- PTX.h - PTX for a module of CUDA kernels -----------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The last step of the path for CUDA. LLVM's own code generator writes the
// text: no CUDA toolkit is needed, and no libdevice linked.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TARGET_PTX_H
#define INTARSIA_TARGET_PTX_H

#include "intarsia/Target/Target.h"

#include <string>

namespace intarsia {

/// Compiles the `gpu.module` in `module`, in which only the LLVM and NVVM
/// dialects are left, to PTX that `ptxas -arch=<arch>` takes. `arch` is a name
/// such as "sm_80" or "sm_90a". Multiplications and additions are not
/// contracted, and denormals are kept, as in eager. The module is not changed.
///
/// Throws TargetError if there is no such module, for an unknown architecture,
/// and if the PTX would call a function from elsewhere. Any thread may call it.
std::string emitPTX(mlir::ModuleOp module, const std::string &arch);

} // namespace intarsia

#endif // INTARSIA_TARGET_PTX_H
