//===- Npy.cpp - Tensors in NumPy's .npy files
//--------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The format: "\x93NUMPY", two version bytes, the header's length, a Python
// dictionary literal with exactly the keys 'descr', 'fortran_order' and
// 'shape', and the elements. Anything else, a byte too few or too many
// included, is refused: a wrong tensor is worse than none.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Runtime/Npy.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sys/stat.h>

using namespace intarsia;
using namespace intarsia::runtime;

namespace {

constexpr char magic[] = "\x93NUMPY";
constexpr size_t magicSize = 6;

struct Header {
  std::string descr;
  bool fortranOrder = false;
  std::vector<int64_t> shape;
};

/// The dictionary literal; only the forms that NumPy writes.
class HeaderParser {
public:
  HeaderParser(const std::string &text, const std::string &path)
      : text(text), path(path) {}

  Header parse() {
    Header header;
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      std::string key = string();
      expect(':');
      int index = key == "descr"           ? 0
                  : key == "fortran_order" ? 1
                  : key == "shape"         ? 2
                                           : -1;
      if (index < 0)
        fail("unknown key '" + key + "'");
      if (seen[index])
        fail("key '" + key + "' appears twice");
      seen[index] = true;
      if (index == 0) {
        skipSpace();
        if (at < text.size() && text[at] == '[')
          fail("structured arrays are not supported");
        header.descr = string();
      } else if (index == 1) {
        header.fortranOrder = boolean();
      } else {
        header.shape = tuple();
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skipSpace();
    if (at != text.size())
      fail("text after the dictionary");
    if (!seen[0] || !seen[1] || !seen[2])
      fail("a key is missing");
    return header;
  }

private:
  [[noreturn]] void fail(const std::string &what) {
    throw NpyError("'" + path + "': malformed .npy header: " + what);
  }
  void skipSpace() {
    while (at < text.size() &&
           std::isspace(static_cast<unsigned char>(text[at])))
      ++at;
  }
  bool accept(char c) {
    skipSpace();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(std::string("'") + c + "' is expected");
  }
  std::string string() {
    skipSpace();
    if (at >= text.size() || (text[at] != '\'' && text[at] != '"'))
      fail("a string is expected");
    char quote = text[at++];
    size_t end = text.find(quote, at);
    if (end == std::string::npos)
      fail("a string does not end");
    std::string value = text.substr(at, end - at);
    at = end + 1;
    return value;
  }
  bool boolean() {
    skipSpace();
    for (const char *word : {"True", "False"})
      if (text.compare(at, std::strlen(word), word) == 0) {
        at += std::strlen(word);
        return word[0] == 'T';
      }
    fail("True or False is expected");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!accept(')')) {
      skipSpace();
      int64_t value = 0;
      size_t start = at;
      while (at < text.size() &&
             std::isdigit(static_cast<unsigned char>(text[at]))) {
        if (__builtin_mul_overflow(value, int64_t(10), &value) ||
            __builtin_add_overflow(value, int64_t(text[at] - '0'), &value))
          fail("a size is too large");
        ++at;
      }
      if (at == start)
        fail("a size is expected");
      values.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  const std::string &text;
  const std::string &path;
  size_t at = 0;
};

struct TypeName {
  const char *code; // without byte order
  DType dtype;
};
constexpr TypeName typeNames[] = {
    {"b1", DType::Bool}, {"i1", DType::I8},    {"u1", DType::U8},
    {"i2", DType::I16},  {"u2", DType::U16},   {"i4", DType::I32},
    {"u4", DType::U32},  {"i8", DType::I64},   {"u8", DType::U64},
    {"f2", DType::F16},  {"f4", DType::F32},   {"f8", DType::F64},
    {"c8", DType::C64},  {"c16", DType::C128}, {"V2", DType::BF16},
};

std::optional<DType> dtypeOf(const std::string &code) {
  for (const TypeName &type : typeNames)
    if (code == type.code)
      return type.dtype;
  return std::nullopt;
}

/// The units in which byte order matters: half of a complex number.
size_t swapUnit(DType dtype) {
  return size_t(isComplex(dtype) ? dtypeSize(dtype) / 2 : dtypeSize(dtype));
}

} // namespace

void intarsia::runtime::checkRegularFile(const std::string &path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0)
    throw NpyError("'" + path + "' cannot be opened: " + std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    throw NpyError("'" + path + "' is not a regular file");
}

Tensor intarsia::runtime::readNpy(const std::string &path) {
  checkRegularFile(path);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw NpyError("'" + path + "' cannot be opened: " + std::strerror(errno));
  file.seekg(0, std::ios::end);
  std::streamoff end = file.tellg();
  if (!file || end < 0)
    throw NpyError("'" + path + "' cannot be read");
  uint64_t fileSize = uint64_t(end);
  file.seekg(0);

  auto need = [&](void *data, size_t count, const char *what) {
    if (!file.read(static_cast<char *>(data), std::streamsize(count)))
      throw NpyError("'" + path + "' is cut short: " + what + " is missing");
  };
  unsigned char start[magicSize + 2];
  need(start, sizeof start, "the start of the file");
  if (std::memcmp(start, magic, magicSize) != 0)
    throw NpyError("'" + path + "' is not a .npy file");
  int version = start[magicSize];
  if (version < 1 || version > 3 || start[magicSize + 1] != 0)
    throw NpyError("'" + path + "' has .npy version " +
                   std::to_string(version) + "." +
                   std::to_string(start[magicSize + 1]) +
                   "; versions 1.0 to 3.0 are read");
  unsigned char length[4] = {};
  size_t lengthSize = version == 1 ? 2 : 4;
  need(length, lengthSize, "the header's length");
  uint64_t headerSize = 0;
  for (size_t i = 0; i < lengthSize; ++i)
    headerSize |= uint64_t(length[i]) << (8 * i);
  uint64_t dataStart = magicSize + 2 + lengthSize + headerSize;
  if (dataStart > fileSize)
    throw NpyError("'" + path + "' is cut short: its header is missing");
  std::string text(headerSize, '\0');
  need(text.data(), text.size(), "its header");
  Header header = HeaderParser(text, path).parse();

  if (header.descr.size() < 2 || !std::strchr("<>|=", header.descr[0]))
    throw NpyError("'" + path + "' has elements of type '" + header.descr +
                   "', which is not supported");
  char order = header.descr[0];
  std::optional<DType> dtype = dtypeOf(header.descr.substr(1));
  if (!dtype)
    throw NpyError("'" + path + "' has elements of type '" + header.descr +
                   "', which PyTorch does not have");

  int64_t bytes = dtypeSize(*dtype);
  for (int64_t size : header.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      throw NpyError("'" + path + "': the array's size is too large");
  uint64_t present = fileSize - dataStart;
  if (present != uint64_t(bytes))
    throw NpyError(
        "'" + path + "' " +
        (present < uint64_t(bytes) ? "is cut short" : "is too long") +
        ": its header promises " + std::to_string(bytes) +
        " bytes of elements, it has " + std::to_string(present));

  std::vector<int64_t> stored = header.shape;
  if (header.fortranOrder)
    std::reverse(stored.begin(), stored.end());
  Tensor tensor = Tensor::empty(*dtype, stored);
  if (bytes > 0) {
    char *data = static_cast<char *>(tensor.data());
    need(data, size_t(bytes), "a part of its elements");
    size_t unit = swapUnit(*dtype);
    if (order == '>' && unit > 1)
      for (int64_t i = 0; i < bytes; i += int64_t(unit))
        std::reverse(data + i, data + i + unit);
    if (*dtype == DType::Bool)
      for (int64_t i = 0; i < bytes; ++i)
        if (data[i] != 0 && data[i] != 1)
          throw NpyError("'" + path + "': a bool is neither 0 nor 1");
  }
  if (!header.fortranOrder)
    return tensor;
  std::vector<int64_t> strides = tensor.strides();
  std::reverse(strides.begin(), strides.end());
  TensorImpl *view = nullptr;
  if (torchApi().asStrided(tensor.get(), int64_t(header.shape.size()),
                           header.shape.data(), strides.data(), 0, &view))
    throw NpyError("'" + path + "': " + torchApi().lastError()->message);
  return Tensor(view);
}

void intarsia::runtime::writeNpy(const std::string &path,
                                 const Tensor &tensor) {
  DType dtype = tensor.dtype();
  std::string code;
  for (const TypeName &type : typeNames)
    if (type.dtype == dtype)
      code = type.code;
  if (code.empty() && dtypeSize(dtype) == 1)
    code = "V1";
  if (code.empty())
    throw NpyError("'" + path + "': dtype " +
                   std::string(dtypeTorchName(dtype)) +
                   " cannot be written to a .npy file");
  Tensor local = tensor.contiguousOnCpu();
  std::string shape;
  std::vector<int64_t> sizes = local.sizes();
  for (int64_t size : sizes)
    shape += std::to_string(size) + ", ";
  if (sizes.size() > 1)
    shape.resize(shape.size() - 2);
  else if (sizes.size() == 1)
    shape.resize(shape.size() - 1);
  char order = dtypeSize(dtype) == 1 ? '|' : '<';
  std::string header = std::string("{'descr': '") + order + code +
                       "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The elements start at a multiple of 64.
  size_t prefix = magicSize + 4;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';
  std::string start(magic, magicSize);
  start += '\1';
  start += '\0';
  start += char(header.size() & 0xff);
  start += char(header.size() >> 8);

  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  int64_t bytes = local.elementCount() * dtypeSize(dtype);
  file << start << header;
  if (bytes > 0)
    file.write(static_cast<const char *>(local.data()), bytes);
  file.close();
  if (!file)
    throw NpyError("'" + path + "' cannot be written: " + std::strerror(errno));
}
