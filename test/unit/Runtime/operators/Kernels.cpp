//===- Kernels.cpp - Hand-written kernels of the compiler's form
//--------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Functions of the type in Runtime/KernelABI.h, for plans made by hand.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Runtime/KernelABI.h"

extern "C" {

/// buffers: x, out; symbols: elements of a row. out = x + 1, one row an
/// iteration.
int64_t add_one_rows(void *const *buffers, const int64_t *symbols,
                     int64_t begin, int64_t end, void *) {
  const float *x = static_cast<const float *>(buffers[0]);
  float *out = static_cast<float *>(buffers[1]);
  int64_t columns = symbols[0];
  for (int64_t i = begin * columns; i < end * columns; ++i)
    out[i] = x[i] + 1;
  return 0;
}

/// As above, through scratch memory of a row.
int64_t double_rows(void *const *buffers, const int64_t *symbols, int64_t begin,
                    int64_t end, void *scratch) {
  const float *x = static_cast<const float *>(buffers[0]);
  float *out = static_cast<float *>(buffers[1]);
  float *row = static_cast<float *>(scratch);
  int64_t columns = symbols[0];
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      row[c] = 2 * x[r * columns + c];
    for (int64_t c = 0; c < columns; ++c)
      out[r * columns + c] = row[c];
  }
  return 0;
}

/// Its second check fails.
int64_t failing_check(void *const *, const int64_t *, int64_t, int64_t,
                      void *) {
  return 2;
}
}
