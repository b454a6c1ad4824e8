//===- StackTrace.cpp - Python stack traces as text
//------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Parses `  File "model.py", line 12, in forward` and the source line below it.
//
//===----------------------------------------------------------------------===//

#include "StackTrace.h"

using namespace intarsia::importer;
using llvm::StringRef;

std::vector<SourceLocation>
intarsia::importer::parseStackTrace(StringRef text) {
  std::vector<SourceLocation> stack;
  bool expectsCode = false;
  while (!text.empty()) {
    StringRef line;
    std::tie(line, text) = text.split('\n');
    line = line.trim();
    SourceLocation frame;
    StringRef rest = line;
    if (rest.consume_front("File \"")) {
      auto [file, place] = rest.split("\", line ");
      auto [number, function] = place.split(", in ");
      if (!number.getAsInteger(10, frame.line)) {
        frame.file = file.str();
        frame.function = function.str();
        stack.push_back(std::move(frame));
        expectsCode = true;
        continue;
      }
    }
    // Below the code there may be a line of ^^^ markers.
    if (expectsCode && !line.empty())
      stack.back().code = line.str();
    expectsCode = false;
  }
  return stack;
}

const SourceLocation *
intarsia::importer::userFrame(const std::vector<SourceLocation> &stack) {
  for (auto frame = stack.rbegin(); frame != stack.rend(); ++frame) {
    StringRef file = frame->file;
    if (!file.starts_with("<") && !file.contains("/site-packages/torch/") &&
        !file.contains("/dist-packages/torch/"))
      return &*frame;
  }
  return stack.empty() ? nullptr : &stack.back();
}
