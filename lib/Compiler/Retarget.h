//===- Retarget.h - A program on another device -------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A program that was exported on one device becomes the one that would have
// been exported on another.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_COMPILER_RETARGET_H
#define INTARSIA_LIB_COMPILER_RETARGET_H

#include "intarsia/Import/ImportGraph.h"
#include "intarsia/Import/Schema.h"

#include <string>

namespace intarsia {

/// `devices` is "cpu=cuda:0". Tensors, weights, the devices that operators are
/// given or take by default, and autocast regions move. Throws CompileError if
/// it has another form, or nothing of the program is on the first device.
void retarget(importer::Program &program, const std::string &devices,
              const importer::SchemaProvider &schemas);

} // namespace intarsia

#endif // INTARSIA_LIB_COMPILER_RETARGET_H
