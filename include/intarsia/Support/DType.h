//===- DType.h - Element types, devices, layouts ------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// PyTorch's element types by our names, with the numbers that PyTorch's C++
// side (c10::ScalarType) and its export schema give them. No torch header is
// needed to use them.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_SUPPORT_DTYPE_H
#define INTARSIA_SUPPORT_DTYPE_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace intarsia {

/// The enumerators' values are c10::ScalarType's; the export schema's number
/// for the same type is in the table of DType.cpp.
enum class DType : int8_t {
  U8 = 0,
  I8 = 1,
  I16 = 2,
  I32 = 3,
  I64 = 4,
  F16 = 5,
  F32 = 6,
  F64 = 7,
  C32 = 8,
  C64 = 9,
  C128 = 10,
  Bool = 11,
  BF16 = 15,
  F8E5M2 = 23,
  F8E4M3FN = 24,
  F8E5M2FNUZ = 25,
  F8E4M3FNUZ = 26,
  U16 = 27,
  U32 = 28,
  U64 = 29,
  F8E8M0FNU = 44,
  F4E2M1X2 = 45,
};

/// "f32", "i64", "u8", "bool", "bf16", "c64" (two f32), "f8e4m3fn", ...
std::string_view dtypeName(DType dtype);
std::optional<DType> dtypeFromName(std::string_view name);
/// "float32", "int64", ... as PyTorch prints them after "torch.".
std::string_view dtypeTorchName(DType dtype);
std::optional<DType> dtypeFromTorchName(std::string_view name);
/// From the export schema's enumeration (FLOAT = 7).
std::optional<DType> dtypeFromExport(int64_t number);
/// From c10::ScalarType's number; nullopt for a type that is not ours.
std::optional<DType> dtypeFromScalarType(int64_t number);
/// Bytes of one element.
int64_t dtypeSize(DType dtype);
bool isFloatingPoint(DType dtype);
bool isComplex(DType dtype);
/// The dtype of a complex number's two parts; a dtype that is not complex
/// itself.
DType realDType(DType dtype);
/// The complex dtype with parts of a floating-point dtype, as PyTorch promotes
/// them: of f32 for bf16.
DType complexDType(DType dtype);
bool isSignedInteger(DType dtype);
/// Integers of either sign; bool is not one.
bool isInteger(DType dtype);

} // namespace intarsia

#endif // INTARSIA_SUPPORT_DTYPE_H
