//===- ForeignKernel.cpp - Kernels of other compilers ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements ForeignKernel.h.
//
//===----------------------------------------------------------------------===//

#include "ForeignKernel.h"

#include <algorithm>
#include <bit>
#include <string_view>

using namespace intarsia::runtime;

std::optional<ForeignParameter>
ForeignParameter::parse(const std::string &text) {
  ForeignParameter parameter;
  std::string_view rest = text;
  if (rest.empty())
    return parameter;
  if (rest.ends_with("/16")) {
    parameter.multipleOf16 = true;
    rest.remove_suffix(3);
  }
  if (rest == "*") {
    parameter.kind = Kind::Pointer;
    return parameter;
  }
  switch (rest.empty() ? '\0' : rest.front()) {
  case 'i':
    parameter.kind = Kind::Signed;
    break;
  case 'u':
    parameter.kind = Kind::Unsigned;
    break;
  case 'f':
    parameter.kind = Kind::Float;
    break;
  default:
    return std::nullopt;
  }
  rest.remove_prefix(1);
  bool isFloat = parameter.kind == Kind::Float;
  for (int width : {1, 8, 16, 32, 64})
    if (rest == std::to_string(width) && !(isFloat && width < 32)) {
      parameter.width = width;
      return isFloat && parameter.multipleOf16 ? std::nullopt
                                               : std::optional(parameter);
    }
  return std::nullopt;
}

bool ForeignParameter::takes(const Value &value) const {
  switch (kind) {
  case Kind::NotPassed:
    return true;
  case Kind::Float:
    return value.kind == Value::Kind::Float;
  case Kind::Pointer:
    return value.kind == Value::Kind::Pointer &&
           !(multipleOf16 && reinterpret_cast<uintptr_t>(value.pointer) % 16);
  case Kind::Signed:
  case Kind::Unsigned:
    break;
  }
  if (value.kind != Value::Kind::Int && value.kind != Value::Kind::Bool)
    return false;
  int64_t number =
      value.kind == Value::Kind::Bool ? value.boolean : value.integer;
  if (multipleOf16 && number % 16)
    return false;
  if (kind == Kind::Unsigned)
    return number >= 0 && (width == 64 || uint64_t(number) >> width == 0);
  int64_t limit = int64_t(uint64_t(1) << (width - 1)); // of 64: the least
  return width == 64 || (number >= -limit && number < limit);
}

uint64_t ForeignParameter::bytes(const Value &value) const {
  if (kind == Kind::Pointer)
    return reinterpret_cast<uintptr_t>(value.pointer);
  if (kind == Kind::Float)
    return width == 32 ? std::bit_cast<uint32_t>(float(value.real))
                       : std::bit_cast<uint64_t>(value.real);
  return value.kind == Value::Kind::Bool ? value.boolean
                                         : uint64_t(value.integer);
}

const ForeignVariant *
intarsia::runtime::chooseVariant(const std::vector<ForeignVariant> &variants,
                                 const Value *values) {
  auto fits = [&](const ForeignVariant &variant) {
    for (size_t i = 0; i < variant.parameters.size(); ++i)
      if (!variant.parameters[i].takes(values[i]))
        return false;
    return true;
  };
  auto found = std::find_if(variants.begin(), variants.end(), fits);
  return found == variants.end() ? nullptr : &*found;
}
