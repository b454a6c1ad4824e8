//===- Safetensors.cpp - Tensors by name in one file ----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Safetensors.h.
//
//===----------------------------------------------------------------------===//

#include "Safetensors.h"
#include "intarsia/Runtime/Npy.h"

#include <nlohmann/json.hpp>

#include <cstring>
#include <fstream>

using namespace intarsia;
using namespace intarsia::runtime;
using Json = nlohmann::ordered_json;

namespace {
constexpr std::pair<const char *, DType> names[] = {
    {"F64", DType::F64},        {"F32", DType::F32},
    {"F16", DType::F16},        {"BF16", DType::BF16},
    {"I64", DType::I64},        {"I32", DType::I32},
    {"I16", DType::I16},        {"I8", DType::I8},
    {"U8", DType::U8},          {"U16", DType::U16},
    {"U32", DType::U32},        {"U64", DType::U64},
    {"BOOL", DType::Bool},      {"F8_E4M3", DType::F8E4M3FN},
    {"F8_E5M2", DType::F8E5M2}, {"C64", DType::C64},
};
/// The longest header that the format allows.
constexpr uint64_t headerLimit = 100'000'000;
} // namespace

std::map<std::string, Tensor> tool::readSafetensors(const std::string &path) {
  auto fail = [&](const std::string &what) -> NpyError {
    return NpyError("'" + path + "': " + what);
  };
  checkRegularFile(path);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file)
    throw fail("cannot be opened");
  uint64_t fileSize = uint64_t(file.tellg()), length = 0;
  file.seekg(0);
  file.read(reinterpret_cast<char *>(&length), 8);
  if (!file || length > headerLimit || length > fileSize - 8)
    throw fail("is no safetensors file");
  std::string text(length, '\0');
  file.read(text.data(), std::streamsize(length));
  std::map<std::string, Tensor> tensors;
  try {
    uint64_t data = fileSize - 8 - length;
    const Json header = Json::parse(text);
    for (const auto &[name, entry] : header.items()) {
      if (name == "__metadata__")
        continue;
      std::string dtypeText = entry.at("dtype");
      const DType *dtype = nullptr;
      for (const auto &[known, value] : names)
        if (dtypeText == known)
          dtype = &value;
      if (!dtype)
        throw fail("tensor \"" + name + "\" has the dtype " + dtypeText +
                   ", which is not supported");
      std::vector<int64_t> sizes = entry.at("shape");
      std::vector<uint64_t> place = entry.at("data_offsets");
      uint64_t bytes = uint64_t(dtypeSize(*dtype));
      bool valid =
          place.size() == 2 && place[0] <= place[1] && place[1] <= data;
      for (int64_t size : sizes)
        valid = valid && size >= 0 &&
                !__builtin_mul_overflow(bytes, uint64_t(size), &bytes);
      if (!valid || place[1] - place[0] != bytes)
        throw fail("tensor \"" + name +
                   "\" does not fit its place in the file");
      Tensor tensor = Tensor::empty(*dtype, sizes);
      file.seekg(std::streamoff(8 + length + place[0]));
      file.read(static_cast<char *>(tensor.data()), std::streamsize(bytes));
      if (!file)
        throw fail("cannot be read");
      tensors.emplace(name, std::move(tensor));
    }
  } catch (const nlohmann::json::exception &error) {
    throw fail(std::string("has a damaged header: ") + error.what());
  }
  return tensors;
}

void tool::writeSafetensors(const std::string &path,
                            const std::map<std::string, Tensor> &tensors) {
  Json header = Json::object();
  std::vector<Tensor> plain;
  uint64_t offset = 0;
  for (const auto &[name, tensor] : tensors) {
    plain.push_back(tensor.contiguousOnCpu());
    const char *dtype = nullptr;
    for (const auto &[known, value] : names)
      if (value == plain.back().dtype())
        dtype = known;
    if (!dtype)
      throw NpyError("'" + path + "': the format has no dtype " +
                     std::string(dtypeTorchName(plain.back().dtype())));
    uint64_t bytes = uint64_t(plain.back().elementCount()) *
                     uint64_t(dtypeSize(plain.back().dtype()));
    header[name] = {{"dtype", dtype},
                    {"shape", plain.back().sizes()},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  uint64_t length = text.size();
  file.write(reinterpret_cast<const char *>(&length), 8);
  file << text;
  for (const Tensor &tensor : plain)
    file.write(static_cast<const char *>(tensor.data()),
               tensor.elementCount() * dtypeSize(tensor.dtype()));
  file.flush();
  if (!file)
    throw NpyError("'" + path + "' cannot be written");
}
