//===- NpyTest.cpp - .npy files
//-----------------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Every dtype there and back, the forms that only NumPy writes, and files that
// must be refused.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Runtime/Npy.h"
#include "PlanFixture.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace intarsia;
using namespace intarsia::test;
namespace fs = std::filesystem;

namespace {

class NpyTest : public ::testing::Test {
protected:
  void SetUp() override {
    folder = fs::temp_directory_path() /
             ("intarsia-npy-" + std::to_string(getpid()));
    fs::create_directories(folder);
    path = (folder / "a.npy").string();
  }
  void TearDown() override { fs::remove_all(folder); }

  void write(const std::string &header, const std::string &data,
             char version = 1) {
    std::ofstream file(path, std::ios::binary);
    std::string length(version == 1 ? 2 : 4, '\0');
    length[0] = char(header.size() & 0xff);
    length[1] = char(header.size() >> 8);
    file << "\x93NUMPY" << version << '\0' << length << header << data;
  }
  std::string fault() {
    try {
      readNpy(path);
    } catch (const NpyError &error) {
      EXPECT_CONTAINS(error.what(), path);
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  fs::path folder;
  std::string path;
};

TEST_F(NpyTest, EveryDtypeRoundTrips) {
  for (DType dtype :
       {DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F16,
        DType::F32, DType::F64, DType::C64, DType::C128, DType::Bool,
        DType::BF16, DType::U16, DType::U32, DType::U64}) {
    for (std::vector<int64_t> sizes :
         {std::vector<int64_t>{}, {3}, {2, 3}, {0, 4}, {2, 1, 3}}) {
      Tensor tensor = Tensor::empty(dtype, sizes);
      size_t bytes = size_t(tensor.elementCount() * dtypeSize(dtype));
      for (size_t i = 0; i < bytes; ++i)
        static_cast<unsigned char *>(tensor.data())[i] =
            dtype == DType::Bool ? i % 2 : (unsigned char)(i * 7 + 1);
      writeNpy(path, tensor);
      EXPECT_EQ(fs::file_size(path) % 64, bytes % 64);
      Tensor back = readNpy(path);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.sizes(), sizes);
      if (bytes) {
        EXPECT_EQ(std::memcmp(back.data(), tensor.data(), bytes), 0);
      }
    }
  }
}

TEST_F(NpyTest, FortranOrder) {
  float values[] = {0, 3, 1, 4, 2, 5};
  write("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
        std::string(reinterpret_cast<char *>(values), sizeof values));
  Tensor tensor = readNpy(path);
  EXPECT_EQ(tensor.strides(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(contents(tensor), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  writeNpy(path, tensor); // in C order
  EXPECT_EQ(readNpy(path).strides(), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(contents(readNpy(path)), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST_F(NpyTest, BigEndianAndVersionTwo) {
  write("{'shape': (1,), 'fortran_order': False, 'descr': '>f4'}",
        std::string("\x3f\xc0\0\0", 4), 2);
  EXPECT_EQ(contents(readNpy(path)), (std::vector<float>{1.5}));
}

TEST_F(NpyTest, FilesThatAreRefused) {
  EXPECT_CONTAINS(fault(), "cannot be opened");
  std::ofstream(path) << "hello, this is text";
  EXPECT_CONTAINS(fault(), "is not a .npy file");
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234567");
  EXPECT_CONTAINS(fault(), "is cut short: its header promises 8 bytes");
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
        "123456789");
  EXPECT_CONTAINS(fault(), "is too long");
  write("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "12345678");
  EXPECT_CONTAINS(fault(), "'|O'");
  write("{'descr': '<f4', 'fortran_order': False, }", "");
  EXPECT_CONTAINS(fault(), "a key is missing");
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "");
  EXPECT_CONTAINS(fault(), "a size is expected");
  write("{'descr': '<f8', 'fortran_order': False, 'shape': "
        "(4611686018427387904, 4), }",
        "");
  EXPECT_CONTAINS(fault(), "too large");
  write("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", "\x02");
  EXPECT_CONTAINS(fault(), "neither 0 nor 1");
  write("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        "1234");
  EXPECT_CONTAINS(fault(), "structured arrays");
}

} // namespace
