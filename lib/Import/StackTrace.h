//===- StackTrace.h - Python stack traces as text -----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// PyTorch keeps a node's source as the text of a Python traceback.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_IMPORT_STACKTRACE_H
#define INTARSIA_LIB_IMPORT_STACKTRACE_H

#include "intarsia/Import/ImportGraph.h"
#include "llvm/ADT/StringRef.h"

namespace intarsia::importer {

/// Frames in the traceback's order: innermost last. Lines that are no frame are
/// passed over.
std::vector<SourceLocation> parseStackTrace(llvm::StringRef text);

/// The innermost frame of the user's code: not PyTorch's own, and not generated
/// code. The innermost of all when there is no other; null when there is none.
const SourceLocation *userFrame(const std::vector<SourceLocation> &stack);

} // namespace intarsia::importer

#endif // INTARSIA_LIB_IMPORT_STACKTRACE_H
