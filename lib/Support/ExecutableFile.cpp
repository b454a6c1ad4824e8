//===- ExecutableFile.cpp - May code be mapped from a file? ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements ExecutableFile.h by asking the kernel.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Support/ExecutableFile.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

bool intarsia::isExecutable(const std::string &path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  void *page = mmap(nullptr, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
  close(file);
  if (page == MAP_FAILED)
    return false;
  munmap(page, 1);
  return true;
}
