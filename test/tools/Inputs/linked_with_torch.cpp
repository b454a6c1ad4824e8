//===- linked_with_torch.cpp - Operators linked with -ltorch --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A library of operators that names libtorch.so among what it needs.
//
//===----------------------------------------------------------------------===//

#include <torch/library.h>

TORCH_LIBRARY(linked_with_torch, m) {
  m.def("nothing() -> ()", [] {});
}
