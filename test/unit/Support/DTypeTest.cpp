//===- DTypeTest.cpp - Tests of the table of element types ----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Names and numbers of element types, against those of torch 2.15.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Support/DType.h"

#include <gtest/gtest.h>

using namespace intarsia;

namespace {
struct Expected {
  DType dtype;
  const char *name, *torchName;
  int64_t exportNumber, scalarType, size;
};

// torch 2.15: torch._export.serde.schema.ScalarType and c10/core/ScalarType.h.
const Expected expectations[] = {
    {DType::U8, "u8", "uint8", 1, 0, 1},
    {DType::I8, "i8", "int8", 2, 1, 1},
    {DType::I16, "i16", "int16", 3, 2, 2},
    {DType::I32, "i32", "int32", 4, 3, 4},
    {DType::I64, "i64", "int64", 5, 4, 8},
    {DType::F16, "f16", "float16", 6, 5, 2},
    {DType::F32, "f32", "float32", 7, 6, 4},
    {DType::F64, "f64", "float64", 8, 7, 8},
    {DType::C32, "c32", "complex32", 9, 8, 4},
    {DType::C64, "c64", "complex64", 10, 9, 8},
    {DType::C128, "c128", "complex128", 11, 10, 16},
    {DType::Bool, "bool", "bool", 12, 11, 1},
    {DType::BF16, "bf16", "bfloat16", 13, 15, 2},
    {DType::F8E5M2, "f8e5m2", "float8_e5m2", 30, 23, 1},
    {DType::F8E4M3FN, "f8e4m3fn", "float8_e4m3fn", 29, 24, 1},
    {DType::F8E5M2FNUZ, "f8e5m2fnuz", "float8_e5m2fnuz", 32, 25, 1},
    {DType::F8E4M3FNUZ, "f8e4m3fnuz", "float8_e4m3fnuz", 31, 26, 1},
    {DType::U16, "u16", "uint16", 28, 27, 2},
    {DType::U32, "u32", "uint32", 34, 28, 4},
    {DType::U64, "u64", "uint64", 35, 29, 8},
    {DType::F8E8M0FNU, "f8e8m0fnu", "float8_e8m0fnu", 33, 44, 1},
};
} // namespace

TEST(DTypeTest, EveryNameAndNumberLeadsBack) {
  for (const Expected &e : expectations) {
    SCOPED_TRACE(e.name);
    EXPECT_EQ(dtypeName(e.dtype), e.name);
    EXPECT_EQ(dtypeTorchName(e.dtype), e.torchName);
    EXPECT_EQ(dtypeFromName(e.name), e.dtype);
    EXPECT_EQ(dtypeFromTorchName(e.torchName), e.dtype);
    EXPECT_EQ(dtypeFromExport(e.exportNumber), e.dtype);
    EXPECT_EQ(dtypeFromScalarType(e.scalarType), e.dtype);
    EXPECT_EQ(dtypeSize(e.dtype), e.size);
  }
}

TEST(DTypeTest, WhatIsNotOursIsNothing) {
  EXPECT_EQ(dtypeFromName("float32"), std::nullopt);
  EXPECT_EQ(dtypeFromTorchName("quint8"), std::nullopt);
  EXPECT_EQ(dtypeFromExport(0), std::nullopt);
  EXPECT_EQ(dtypeFromExport(-1), std::nullopt);
  EXPECT_EQ(dtypeFromScalarType(12), std::nullopt); // qint8
}

TEST(DTypeTest, Classes) {
  EXPECT_TRUE(isFloatingPoint(DType::BF16));
  EXPECT_FALSE(isFloatingPoint(DType::C64));
  EXPECT_TRUE(isComplex(DType::C32));
  EXPECT_TRUE(isSignedInteger(DType::I8));
  EXPECT_FALSE(isSignedInteger(DType::U8));
  EXPECT_TRUE(isInteger(DType::U8));
  EXPECT_FALSE(isInteger(DType::Bool));
  EXPECT_FALSE(isInteger(DType::F32));
}
