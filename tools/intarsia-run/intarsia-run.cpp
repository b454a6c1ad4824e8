//===- intarsia-run.cpp - Run a compiled model --------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Loads an artifact, runs it on .npy files and writes .npy files: a small user of
// the C++ API in include/intarsia/Runtime, without Python.
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "Report.h"
#include "intarsia/Runtime/Model.h"
#include "intarsia/Runtime/Npy.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

using namespace intarsia;
using namespace intarsia::runtime;
using namespace intarsia::tool;
namespace fs = std::filesystem;

namespace {

/// Values for Program::run and the tensors that they borrow.
struct Inputs {
  std::vector<Tensor> tensors;
  std::vector<Value> values;
  ~Inputs() {
    for (Value &value : values)
      if (value.kind == Value::Kind::Boxed)
        release(value);
  }
};

class WriteError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

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
    throw NpyError("inputs are missing: " + missing + "; the model takes: " +
                   (names.empty() ? "none" : names));
  if (next < inOrder.size())
    throw NpyError("too many inputs: '" + inOrder[next] +
                   "' is not used; the model takes: " +
                   (names.empty() ? "none" : names));
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

Inputs readInputs(const Program &program, const Options &options) {
  std::vector<std::string> files = assignFiles(program, options.inputs);
  Inputs inputs;
  for (size_t i = 0; i < program.inputCount(); ++i) {
    const plan::Input &input = program.input(i);
    inputs.values.push_back(isAsked(input) ? readInput(input, files[i], inputs)
                                           : constantValue(input.constant));
  }
  return inputs;
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

/// All files under temporary names first, then renamed: a failure leaves none.
void writeOutputs(const std::string &folder, const std::vector<Tensor> &outputs) {
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
      files.push_back({fs::path(folder) / ("." + name + ".part"),
                       fs::path(folder) / name});
      writeNpy(files.back().temporary.string(), outputs[i]);
    }
    for (const File &file : files)
      fs::rename(file.temporary, file.path);
  } catch (const std::exception &error) {
    removeAll();
    throw WriteError(error.what());
  }
}

int run(const Options &options) {
  Model::Options modelOptions;
  modelOptions.operatorLibraries = options.operatorLibraries;
  modelOptions.target = options.target;
  if (!fs::exists(options.model))
    throw NpyError("'" + options.model + "' does not exist");
  std::unique_ptr<Model> model = Model::load(options.model, modelOptions);
  const Program &program = model->program();
  if (options.printPlan) {
    std::fputs(plan::print(program.plan()).c_str(), stdout);
    return Success;
  }
  if (options.threads)
    torchApi().setThreadCount(options.threads);

  Inputs inputs = readInputs(program, options);
  std::vector<Value> values(program.outputCount());
  program.run(inputs.values.data(), inputs.values.size(), values.data(),
              values.size());
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < values.size(); ++i)
    outputs.push_back(outputTensor(values[i], i));
  if (!options.outputDirectory.empty())
    writeOutputs(options.outputDirectory, outputs);
  if (options.benchmark)
    benchmark(program, inputs.values, options.benchmark);
  if (options.profile)
    profile(program, inputs.values, std::max(options.benchmark, 1));
  return Success;
}

} // namespace

int main(int argc, char **argv) {
  auto report = [](const char *what, int code) {
    std::fprintf(stderr, "intarsia-run: error: %s\n", what);
    return code;
  };
  try {
    Options options = parseOptions(argc, argv);
    if (options.help) {
      std::fputs(helpText, stdout);
      return Success;
    }
    return run(options);
  } catch (const UsageError &error) {
    return report((std::string(error.what()) + "; see intarsia-run --help")
                      .c_str(),
                  Usage);
  } catch (const NpyError &error) {
    return report(error.what(), InputError);
  } catch (const WriteError &error) {
    return report(error.what(), OutputError);
  } catch (const Error &error) {
    switch (error.kind) {
    case ErrorKind::Guard:
      return report(error.what(), InputError);
    case ErrorKind::Load:
      return report(error.what(), LibraryError);
    default:
      return report(error.what(), RunFailed);
    }
  } catch (const std::exception &error) {
    return report(error.what(), RunFailed);
  }
}
