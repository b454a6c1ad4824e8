//===- PythonOperators.cpp - An operator library that needs Python
//------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What including torch/extension.h amounts to for the loader: a symbol of
// Python's that a process without Python does not have.
//
//===----------------------------------------------------------------------===//

extern "C" int PyGILState_Check();

extern "C" int needsPython() { return PyGILState_Check(); }
int (*keep)() = &PyGILState_Check;
