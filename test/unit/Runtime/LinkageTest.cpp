//===- LinkageTest.cpp - Who links what
//---------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The runtime library must load without torch, MLIR and LLVM, and only the shim
// may use PyTorch's C++ symbols: read off the ELF files by nm and readelf.
//
//===----------------------------------------------------------------------===//

#include "PlanFixture.h"

#include <array>
#include <cstdio>

using namespace intarsia::test;

namespace {

std::string outputOf(const std::string &command) {
  std::string text;
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe)
    return text;
  std::array<char, 4096> buffer;
  while (size_t count = fread(buffer.data(), 1, buffer.size(), pipe))
    text.append(buffer.data(), count);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

TEST(LinkageTest, RuntimeNeedsNeitherTorchNorMlir) {
  std::string needed = outputOf("readelf -d " INTARSIA_RUNTIME_LIBRARY);
  for (const char *library : {"torch", "libc10", "MLIR", "LLVM", "python"})
    EXPECT_EQ(needed.find(library), std::string::npos) << library << " in:\n"
                                                       << needed;
  std::string symbols =
      outputOf("nm -DC --undefined-only " INTARSIA_RUNTIME_LIBRARY);
  for (const char *name : {"c10::", "at::", "torch::", "mlir::", "llvm::"})
    EXPECT_EQ(symbols.find(std::string(" ") + name), std::string::npos) << name;
}

TEST(LinkageTest, ShimNeedsNoPython) {
  std::string needed = outputOf("readelf -d " INTARSIA_TORCH_LIBRARY_FILE);
  EXPECT_NE(needed.find("libtorch_cpu"), std::string::npos);
  for (const char *library : {"torch_python", "libpython", "MLIR", "LLVM"})
    EXPECT_EQ(needed.find(library), std::string::npos) << library;
}

TEST(LinkageTest, ToolNeedsNeitherPythonNorLlvm) {
  std::string needed = outputOf("ldd " INTARSIA_RUN_TOOL);
  EXPECT_NE(needed.find("libIntarsiaRuntime"), std::string::npos);
  for (const char *library : {"python", "torch", "MLIR", "LLVM"})
    EXPECT_EQ(needed.find(library), std::string::npos) << library;
}

TEST(LinkageTest, OperatorLibraryThatNeedsPythonIsExplained) {
  std::string text = errorOf(ErrorKind::Load, [] {
    loadOperatorLibrary(RUNTIME_TEST_PYTHON_OPERATORS);
  });
  EXPECT_CONTAINS(text, "needs Python's symbols");
  EXPECT_CONTAINS(text, "Include torch/library.h instead of torch/extension.h");
}

TEST(LinkageTest, OperatorLibraryThatDoesNotExist) {
  EXPECT_CONTAINS(
      errorOf(ErrorKind::Load, [] { loadOperatorLibrary("/nowhere/libx.so"); }),
      "operator library '/nowhere/libx.so' does not exist");
}

} // namespace
