//===- ChooseTarget.h - Which code of an artifact fits ----------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An artifact holds code for one or more processors; what they must have is in
// its metadata.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_CHOOSETARGET_H
#define INTARSIA_LIB_RUNTIME_CHOOSETARGET_H

#include "intarsia/Plan/Metadata.h"

namespace intarsia::runtime {

/// Of the targets that this machine can run, the one that uses most of it.
/// `wanted`: "cpu", "cuda" or "" (the only kind there is, else cpu). Throws
/// Error(Load) listing what each target needs and the machine lacks.
const plan::Metadata::Target &chooseTarget(const plan::Metadata &metadata,
                                           const std::string &wanted,
                                           const std::string &path);

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_CHOOSETARGET_H
