//===- DType.cpp - The table of element types -----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements intarsia/Support/DType.h: one table with a row for each
// element type, and look-ups in it. Every stage from the importer to the
// runtime names types through it.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Support/DType.h"

using namespace intarsia;

namespace {
enum class Class : uint8_t { Unsigned, Signed, Float, Complex, Bool };

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view torchName;
  /// The number in `torch._export.serde.schema.ScalarType`: the C++ number plus
  /// one for the old types; later ones have an order of their own. -1: none.
  int8_t exportNumber;
  int8_t size;
  Class cls;
};

constexpr Row table[] = {
    {DType::U8, "u8", "uint8", 1, 1, Class::Unsigned},
    {DType::I8, "i8", "int8", 2, 1, Class::Signed},
    {DType::I16, "i16", "int16", 3, 2, Class::Signed},
    {DType::I32, "i32", "int32", 4, 4, Class::Signed},
    {DType::I64, "i64", "int64", 5, 8, Class::Signed},
    {DType::F16, "f16", "float16", 6, 2, Class::Float},
    {DType::F32, "f32", "float32", 7, 4, Class::Float},
    {DType::F64, "f64", "float64", 8, 8, Class::Float},
    {DType::C32, "c32", "complex32", 9, 4, Class::Complex},
    {DType::C64, "c64", "complex64", 10, 8, Class::Complex},
    {DType::C128, "c128", "complex128", 11, 16, Class::Complex},
    {DType::Bool, "bool", "bool", 12, 1, Class::Bool},
    {DType::BF16, "bf16", "bfloat16", 13, 2, Class::Float},
    {DType::F8E5M2, "f8e5m2", "float8_e5m2", 30, 1, Class::Float},
    {DType::F8E4M3FN, "f8e4m3fn", "float8_e4m3fn", 29, 1, Class::Float},
    {DType::F8E5M2FNUZ, "f8e5m2fnuz", "float8_e5m2fnuz", 32, 1, Class::Float},
    {DType::F8E4M3FNUZ, "f8e4m3fnuz", "float8_e4m3fnuz", 31, 1, Class::Float},
    {DType::U16, "u16", "uint16", 28, 2, Class::Unsigned},
    {DType::U32, "u32", "uint32", 34, 4, Class::Unsigned},
    {DType::U64, "u64", "uint64", 35, 8, Class::Unsigned},
    {DType::F8E8M0FNU, "f8e8m0fnu", "float8_e8m0fnu", 33, 1, Class::Float},
    {DType::F4E2M1X2, "f4e2m1x2", "float4_e2m1fn_x2", -1, 1, Class::Float},
};

/// A value outside the enumeration (a cast gone wrong) is "unknown", of size 0.
const Row &row(DType dtype) {
  for (const Row &r : table)
    if (r.dtype == dtype)
      return r;
  static constexpr Row unknown{DType::F32, "unknown", "unknown",
                               -1,         0,         Class::Float};
  return unknown;
}

template <typename Predicate>
std::optional<DType> find(Predicate predicate) {
  for (const Row &r : table)
    if (predicate(r))
      return r.dtype;
  return std::nullopt;
}
} // namespace

std::string_view intarsia::dtypeName(DType dtype) { return row(dtype).name; }

std::optional<DType> intarsia::dtypeFromName(std::string_view name) {
  return find([&](const Row &r) { return r.name == name; });
}

std::string_view intarsia::dtypeTorchName(DType dtype) {
  return row(dtype).torchName;
}

std::optional<DType> intarsia::dtypeFromTorchName(std::string_view name) {
  return find([&](const Row &r) { return r.torchName == name; });
}

std::optional<DType> intarsia::dtypeFromExport(int64_t number) {
  return find([&](const Row &r) {
    return r.exportNumber >= 0 && r.exportNumber == number;
  });
}

std::optional<DType> intarsia::dtypeFromScalarType(int64_t number) {
  return find(
      [&](const Row &r) { return static_cast<int64_t>(r.dtype) == number; });
}

int64_t intarsia::dtypeSize(DType dtype) { return row(dtype).size; }

bool intarsia::isFloatingPoint(DType dtype) {
  return row(dtype).cls == Class::Float;
}

bool intarsia::isComplex(DType dtype) {
  return row(dtype).cls == Class::Complex;
}

DType intarsia::realDType(DType dtype) {
  switch (dtype) {
  case DType::C32:
    return DType::F16;
  case DType::C64:
    return DType::F32;
  case DType::C128:
    return DType::F64;
  default:
    return dtype;
  }
}

DType intarsia::complexDType(DType dtype) {
  switch (dtype) {
  case DType::F16:
    return DType::C32;
  case DType::F64:
    return DType::C128;
  default:
    return DType::C64;
  }
}

bool intarsia::isSignedInteger(DType dtype) {
  return row(dtype).cls == Class::Signed;
}

bool intarsia::isInteger(DType dtype) {
  return row(dtype).cls == Class::Signed || row(dtype).cls == Class::Unsigned;
}
