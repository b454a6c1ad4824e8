//===- Files.h - Inputs and outputs in files --------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Between the command line's file names and the values of a program.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TOOLS_INTARSIA_RUN_FILES_H
#define INTARSIA_TOOLS_INTARSIA_RUN_FILES_H

#include "intarsia/Runtime/Model.h"

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace intarsia::tool {

class WriteError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Values for Program::run and the tensors that they borrow.
struct Inputs {
  Inputs() = default;
  Inputs(Inputs &&) = default;
  ~Inputs();
  std::vector<runtime::Tensor> tensors;
  std::vector<runtime::Value> values;
  /// What was given or made up, numbers as tensors too.
  std::map<std::string, runtime::Tensor> byName;
};

/// `given`: .npy and .pt files in the order of the program's inputs, or
/// "name=file", or files with names: .safetensors, and .pt with a dictionary.
/// `random` makes up what is missing. Throws NpyError.
Inputs readInputs(const runtime::Program &program,
                  const std::vector<std::string> &given, bool random);

/// Takes over the values; what is no tensor or number becomes an empty Tensor,
/// a number a tensor without dimensions.
std::vector<runtime::Tensor> takeOutputs(std::vector<runtime::Value> &values);

/// Writes output_0.npy, ... : all under temporary names first, then renamed, so
/// that a failure leaves none. An empty Tensor has no file. Throws WriteError.
void writeOutputs(const std::string &folder,
                  const std::vector<runtime::Tensor> &outputs);

/// Writes all outputs into one file, which appears complete: output_0, ... of a
/// .safetensors file, or a tuple in a .pt file. Throws WriteError.
void writeOutputFile(const std::string &path,
                     const std::vector<runtime::Tensor> &outputs);

} // namespace intarsia::tool

#endif // INTARSIA_TOOLS_INTARSIA_RUN_FILES_H
