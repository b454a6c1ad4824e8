//===- TargetMachine.h - LLVM's target for ours -------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the files of this folder share about LLVM's targets.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_TARGET_TARGETMACHINE_H
#define INTARSIA_LIB_TARGET_TARGETMACHINE_H

#include "intarsia/Target/Target.h"

namespace llvm {
class Target;
} // namespace llvm

namespace intarsia {

/// LLVM's target, initialised. Throws TargetError if this LLVM lacks it.
const llvm::Target &lookupTarget(const std::string &triple);

} // namespace intarsia

#endif // INTARSIA_LIB_TARGET_TARGETMACHINE_H
