//===- Npy.h - Tensors in NumPy's .npy files ----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reading and writing .npy files (format versions 1 to 3) of the dtypes that
// NumPy and PyTorch share. NumPy has no bfloat16: as with the ml_dtypes
// package, `np.save` of such an array gives elements of type "V2" (two bytes
// without meaning), and "V2" is read and written here as bfloat16:
//
//   np.load("output_0.npy").view(ml_dtypes.bfloat16)
//
// float8 results are written as "V1" in the same way; "V1" is not read, because
// nothing says which float8 it is.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_NPY_H
#define INTARSIA_RUNTIME_NPY_H

#include "intarsia/Runtime/Model.h"

#include <stdexcept>
#include <string>

namespace intarsia::runtime {

class NpyError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Throws NpyError unless the path is a regular file: a pipe would wait, and a
/// device never end.
void checkRegularFile(const std::string &path);

/// A tensor on the CPU. Arrays in Fortran order keep it, as strides. Throws
/// NpyError naming the file and the fault.
Tensor readNpy(const std::string &path);

/// Writes a tensor of any strides and device in C order, little-endian. The
/// file is complete when this returns; it is not made to appear atomically (see
/// intarsia-run). Throws NpyError.
void writeNpy(const std::string &path, const Tensor &tensor);

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_NPY_H
