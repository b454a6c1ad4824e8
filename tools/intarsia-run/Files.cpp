//===- Files.cpp - Inputs and outputs as .npy files
//---------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Which file is which input, numbers in arrays without dimensions, and outputs
// that appear together or not at all.
//
//===----------------------------------------------------------------------===//

#include "Files.h"
#include "intarsia/Runtime/Npy.h"

#include <filesystem>

using namespace intarsia;
using namespace intarsia::runtime;
using namespace intarsia::tool;
namespace fs = std::filesystem;

Inputs::~Inputs() {
  for (Value &value : values)
    if (value.kind == Value::Kind::Boxed)
      release(value);
}

namespace {

/// Whether the user has to give this input.
bool isAsked(const plan::Input &input) {
  return input.kind != plan::Input::Kind::Constant &&
         input.kind != plan::Input::Kind::None;
}

Value constantValue(const plan::Arg &constant) {
  switch (constant.kind) {
  case plan::Arg::Kind::Int:
    return Value::of(constant.integer);
  case plan::Arg::Kind::Float:
    return Value::of(constant.real);
  case plan::Arg::Kind::Bool:
    return Value::of(constant.boolean);
  case plan::Arg::Kind::String:
    return Value::of(torchApi().boxString(constant.text.c_str()));
  default:
    return Value();
  }
}

/// Which file each input of the program comes from.
std::vector<std::string> assignFiles(const Program &program,
                                     const std::vector<std::string> &files) {
  std::vector<std::string> assigned(program.inputCount());
  std::vector<std::string> inOrder;
  std::string names;
  for (size_t i = 0; i < program.inputCount(); ++i)
    if (isAsked(program.input(i)))
      names += (names.empty() ? "" : ", ") + program.input(i).name;
  for (const std::string &file : files) {
    size_t equals = file.find('=');
    bool found = false;
    if (equals != std::string::npos && !fs::exists(file)) {
      std::string name = file.substr(0, equals);
      for (size_t i = 0; i < program.inputCount() && !found; ++i)
        if (isAsked(program.input(i)) && program.input(i).name == name) {
          if (!assigned[i].empty())
            throw NpyError("input \"" + name + "\" is given twice");
          assigned[i] = file.substr(equals + 1);
          found = true;
        }
      if (!found)
        throw NpyError("the model has no input \"" + name +
                       "\"; its inputs are: " + names);
      continue;
    }
    inOrder.push_back(file);
  }
  size_t next = 0;
  std::string missing;
  for (size_t i = 0; i < program.inputCount(); ++i) {
    if (!isAsked(program.input(i)) || !assigned[i].empty())
      continue;
    if (next < inOrder.size())
      assigned[i] = inOrder[next++];
    else
      missing += (missing.empty() ? "" : ", ") + program.input(i).name;
  }
  if (!missing.empty())
    throw NpyError("inputs are missing: " + missing +
                   "; the model takes: " + (names.empty() ? "none" : names));
  if (next < inOrder.size())
    throw NpyError(
        "too many inputs: '" + inOrder[next] +
        "' is not used; the model takes: " + (names.empty() ? "none" : names));
  return assigned;
}

/// A tensor for the input's device, or the number in an array of one element.
Value readInput(const plan::Input &input, const std::string &file,
                Inputs &inputs) {
  Tensor tensor = readNpy(file);
  const TorchApi &torch = torchApi();
  if (input.kind != plan::Input::Kind::Tensor) {
    Value value;
    if (tensor.elementCount() != 1)
      throw NpyError("input \"" + input.name + "\" is a number, but '" + file +
                     "' has " + std::to_string(tensor.elementCount()) +
                     " elements");
    if (torch.item(tensor.get(), &value))
      throw NpyError("'" + file + "': " + torch.lastError()->message);
    return value;
  }
  if (input.spec && input.spec->device != "cpu") {
    int8_t type, index;
    TensorImpl *moved = nullptr;
    if (torch.parseDevice(input.spec->device.c_str(), &type, &index) ||
        torch.toDevice(tensor.get(), type, index, &moved))
      throw Error(ErrorKind::Load, torch.lastError()->message);
    tensor = Tensor(moved);
  }
  inputs.tensors.push_back(tensor);
  return Value::of(tensor.get());
}

Tensor outputTensor(Value &value, size_t index) {
  Tensor tensor;
  switch (value.kind) {
  case Value::Kind::Tensor:
    tensor = Tensor(value.tensor);
    value = Value();
    break;
  case Value::Kind::Int:
    tensor = Tensor::empty(DType::I64, {});
    *static_cast<int64_t *>(tensor.data()) = value.integer;
    break;
  case Value::Kind::Float:
    tensor = Tensor::empty(DType::F64, {});
    *static_cast<double *>(tensor.data()) = value.real;
    break;
  case Value::Kind::Bool:
    tensor = Tensor::empty(DType::Bool, {});
    *static_cast<bool *>(tensor.data()) = value.boolean;
    break;
  case Value::Kind::None:
    break; // no file: its number is left out
  default:
    release(value);
    throw WriteError("output " + std::to_string(index) +
                     " is an object that a .npy file cannot hold");
  }
  return tensor;
}

} // namespace

Inputs tool::readInputs(const Program &program,
                        const std::vector<std::string> &given) {
  std::vector<std::string> files = assignFiles(program, given);
  Inputs inputs;
  for (size_t i = 0; i < program.inputCount(); ++i) {
    const plan::Input &input = program.input(i);
    inputs.values.push_back(isAsked(input) ? readInput(input, files[i], inputs)
                                           : constantValue(input.constant));
  }
  return inputs;
}

std::vector<Tensor> tool::takeOutputs(std::vector<Value> &values) {
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < values.size(); ++i)
    outputs.push_back(outputTensor(values[i], i));
  return outputs;
}

void tool::writeOutputs(const std::string &folder,
                        const std::vector<Tensor> &outputs) {
  struct File {
    fs::path temporary, path;
  };
  std::vector<File> files;
  auto removeAll = [&] {
    std::error_code ignored;
    for (const File &file : files)
      fs::remove(file.temporary, ignored);
  };
  try {
    fs::create_directories(folder);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i])
        continue;
      std::string name = "output_" + std::to_string(i) + ".npy";
      files.push_back(
          {fs::path(folder) / ("." + name + ".part"), fs::path(folder) / name});
      writeNpy(files.back().temporary.string(), outputs[i]);
    }
    for (const File &file : files)
      fs::rename(file.temporary, file.path);
  } catch (const std::exception &error) {
    removeAll();
    throw WriteError(error.what());
  }
}
