//===- Files.cpp - Inputs and outputs in files ----------------------------===//
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
#include "Safetensors.h"
#include "TorchFile.h"
#include "intarsia/Runtime/Npy.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

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

bool isTorchFile(const fs::path &path) {
  return path.extension() == ".pt" || path.extension() == ".pth";
}

/// The tensors of a file of any kind; those without a name have "".
std::vector<std::pair<std::string, Tensor>> readFile(const std::string &path) {
  if (isTorchFile(path))
    return readTorchFile(path);
  if (fs::path(path).extension() != ".safetensors")
    return {{"", readNpy(path)}};
  std::map<std::string, Tensor> tensors = readSafetensors(path);
  return {tensors.begin(), tensors.end()};
}

/// The tensors that files give, by the inputs' names.
std::map<std::string, Tensor> readFiles(const Program &program,
                                        const std::vector<std::string> &files,
                                        bool mayMiss) {
  std::vector<std::string> asked;
  std::string names;
  for (size_t i = 0; i < program.inputCount(); ++i)
    if (isAsked(program.input(i))) {
      asked.push_back(program.input(i).name);
      names += (names.empty() ? "" : ", ") + asked.back();
    }
  std::map<std::string, Tensor> found;
  auto give = [&](const std::string &name, const Tensor &tensor) {
    if (std::find(asked.begin(), asked.end(), name) == asked.end())
      throw NpyError("the model has no input \"" + name +
                     "\"; its inputs are: " + names);
    if (!found.emplace(name, tensor).second)
      throw NpyError("input \"" + name + "\" is given twice");
  };
  // Tensors without a name, and where each comes from.
  std::vector<std::pair<Tensor, std::string>> inOrder;
  for (const std::string &file : files) {
    size_t equals = file.find('=');
    bool isNamed = equals != std::string::npos && !fs::exists(file);
    std::string path = isNamed ? file.substr(equals + 1) : file;
    std::vector<std::pair<std::string, Tensor>> tensors = readFile(path);
    if (isNamed && tensors.size() != 1)
      throw NpyError("'" + path + "' holds " + std::to_string(tensors.size()) +
                     " tensors, one is needed for \"" + file.substr(0, equals) +
                     "\"");
    for (const auto &[name, tensor] : tensors)
      if (isNamed)
        give(file.substr(0, equals), tensor);
      else if (!name.empty())
        give(name, tensor);
      else
        inOrder.emplace_back(tensor, path);
  }
  size_t next = 0;
  std::string missing;
  for (const std::string &name : asked) {
    if (found.count(name))
      continue;
    if (next < inOrder.size())
      found.emplace(name, inOrder[next++].first);
    else
      missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty() && !mayMiss)
    throw NpyError("inputs are missing: " + missing +
                   "; the model takes: " + (names.empty() ? "none" : names));
  if (next < inOrder.size())
    throw NpyError(
        "too many inputs: a tensor of '" + inOrder[next].second +
        "' is not used; the model takes: " + (names.empty() ? "none" : names));
  return found;
}

/// Makes up inputs: a symbol has one value wherever it stands, that of the
/// given inputs if they have it.
class RandomInputs {
public:
  RandomInputs(const Program &program,
               const std::map<std::string, Tensor> &given)
      : function(program.plan().functions[0]) {
    for (size_t i = 0; i < program.inputCount(); ++i)
      if (auto it = given.find(program.input(i).name); it != given.end())
        bind(program.input(i), it->second);
  }

  Tensor make(const plan::Input &input) {
    if (input.kind != plan::Input::Kind::Tensor) {
      bool isFloat = input.kind == plan::Input::Kind::SymFloat;
      Tensor tensor = Tensor::empty(isFloat ? DType::F64 : DType::I64, {});
      int64_t value = input.expr >= 0 ? evaluate(input, input.expr)
                      : input.symbol >= 0
                          ? valueOf(function.symbols[size_t(input.symbol)].name)
                          : 1;
      if (isFloat)
        *static_cast<double *>(tensor.data()) = double(value);
      else
        *static_cast<int64_t *>(tensor.data()) = value;
      return tensor;
    }
    std::vector<int64_t> sizes;
    for (plan::ExprId size : input.spec->sizes)
      sizes.push_back(evaluate(input, size));
    DType dtype = input.spec->dtype;
    int64_t count = 1;
    for (int64_t size : sizes)
      count *= size;
    if (isInteger(dtype) || dtype == DType::Bool) {
      Tensor tensor = Tensor::empty(dtype, sizes);
      auto *bytes = static_cast<unsigned char *>(tensor.data());
      int64_t width = dtypeSize(dtype);
      std::fill_n(bytes, count * width, 0);
      for (int64_t i = 0; i < count; ++i)
        bytes[i * width] = uniform() < 0.5;
      return tensor;
    }
    Tensor tensor = Tensor::empty(DType::F64, sizes);
    for (int64_t i = 0; i < count; ++i)
      static_cast<double *>(tensor.data())[i] = 2 * uniform() - 1;
    Tensor converted = Tensor::empty(dtype, sizes);
    if (torchApi().copy(converted.get(), tensor.get()))
      throw NpyError("input \"" + input.name + "\" cannot be made up: " +
                     torchApi().lastError()->message);
    return converted;
  }

private:
  /// The same on every machine, in (0, 1); std's distributions are not.
  double uniform() { return (double(generator()) + 0.5) / 4294967296.0; }

  void bind(const plan::Input &input, const Tensor &tensor) {
    if (!input.spec)
      return;
    std::vector<int64_t> sizes = tensor.sizes();
    for (size_t i = 0; i < sizes.size() && i < input.spec->sizes.size(); ++i) {
      const SymExpr &expr = function.exprs[size_t(input.spec->sizes[i])];
      if (expr.isSymbol())
        values.emplace(expr.name(), sizes[i]);
    }
  }

  int64_t valueOf(const std::string &name) {
    auto [it, isNew] = values.try_emplace(name, 4 + int64_t(values.size()));
    for (const plan::Symbol &symbol : function.symbols)
      if (isNew && symbol.name == name)
        it->second = std::min(std::max(it->second, symbol.min.value_or(0)),
                              symbol.max.value_or(INT64_MAX));
    return it->second;
  }

  int64_t evaluate(const plan::Input &input, plan::ExprId id) {
    std::optional<SymValue> value = function.exprs[size_t(id)].evaluate(
        [&](const std::string &name) -> std::optional<SymValue> {
          return valueOf(name);
        });
    if (const int64_t *integer =
            value ? std::get_if<int64_t>(&*value) : nullptr)
      return *integer;
    throw NpyError("input \"" + input.name +
                   "\" has a size that cannot be made up");
  }

  const plan::Function &function;
  std::map<std::string, int64_t> values;
  std::mt19937 generator;
};

/// A tensor on the input's device, or the number in an array of one element.
Value inputValue(const plan::Input &input, Tensor tensor, Inputs &inputs) {
  const TorchApi &torch = torchApi();
  if (input.kind != plan::Input::Kind::Tensor) {
    Value value;
    if (tensor.elementCount() != 1)
      throw NpyError("input \"" + input.name +
                     "\" is a number, but the array given for it has " +
                     std::to_string(tensor.elementCount()) + " elements");
    if (torch.item(tensor.get(), &value))
      throw NpyError("input \"" + input.name +
                     "\": " + torch.lastError()->message);
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

} // namespace

Inputs tool::readInputs(const Program &program,
                        const std::vector<std::string> &given, bool random) {
  Inputs inputs;
  inputs.byName = readFiles(program, given, random);
  RandomInputs made(program, inputs.byName);
  for (size_t i = 0; i < program.inputCount(); ++i) {
    const plan::Input &input = program.input(i);
    if (!isAsked(input)) {
      inputs.values.push_back(constantValue(input.constant));
      continue;
    }
    if (input.kind == plan::Input::Kind::Object)
      throw NpyError("input \"" + input.name +
                     "\" is a sparse tensor or an object, which no file gives: "
                     "run the model from Python or C++");
    auto found = inputs.byName.find(input.name);
    if (found == inputs.byName.end())
      found = inputs.byName.emplace(input.name, made.make(input)).first;
    inputs.values.push_back(inputValue(input, found->second, inputs));
  }
  return inputs;
}

std::vector<Tensor> tool::takeOutputs(std::vector<Value> &values) {
  std::vector<Tensor> outputs;
  for (Value &value : values)
    outputs.push_back(takeTensor(value));
  return outputs;
}

namespace {
/// A new folder in another one, for files that are not complete yet; what is
/// left in it goes with it.
class TemporaryFolder {
public:
  explicit TemporaryFolder(const fs::path &parent) {
    std::string name = (parent / ".intarsia-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw WriteError("cannot write into '" + parent.string() +
                       "': " + std::strerror(errno));
    folder = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  fs::path operator/(const std::string &name) const { return folder / name; }

private:
  fs::path folder;
};
} // namespace

void tool::writeOutputs(const std::string &folder,
                        const std::vector<Tensor> &outputs) {
  try {
    fs::create_directories(folder);
    TemporaryFolder temporary(folder);
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i])
        continue;
      names.push_back("output_" + std::to_string(i) + ".npy");
      writeNpy((temporary / names.back()).string(), outputs[i]);
    }
    for (const std::string &name : names)
      fs::rename(temporary / name, fs::path(folder) / name);
  } catch (const std::exception &error) {
    throw WriteError(error.what());
  }
}

void tool::writeOutputFile(const std::string &path,
                           const std::vector<Tensor> &outputs) {
  std::map<std::string, Tensor> tensors;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i])
      tensors["output_" + std::to_string(i)] = outputs[i];
  try {
    if (fs::exists(path) && !fs::is_regular_file(path))
      throw WriteError("'" + path + "' exists and is no regular file");
    fs::path parent = fs::path(path).parent_path();
    TemporaryFolder temporary(parent.empty() ? fs::path(".") : parent);
    std::string file = (temporary / "outputs").string();
    if (isTorchFile(path))
      writeTorchFile(file, outputs);
    else
      writeSafetensors(file, tensors);
    fs::rename(file, path);
  } catch (const std::exception &error) {
    throw WriteError(error.what());
  }
}
