//===- TorchPython.h - Python objects <-> runtime values ----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The part of the shim that needs libtorch_python, for the Python extension
// only: libIntarsiaTorchPython.so. A process without Python never loads it.
// All functions need the GIL. On failure they return null (or non-zero) with a
// Python exception set.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_TORCHPYTHON_H
#define INTARSIA_RUNTIME_TORCHPYTHON_H

#include "intarsia/Runtime/Torch.h"

#include <memory>
#include <string>
#include <vector>

typedef struct _object PyObject;

namespace intarsia::runtime {

class OperatorWatch {
public:
  virtual ~OperatorWatch() = default;
  /// Those of its operators that were called so far, sorted.
  virtual std::vector<std::string> called() const = 0;
};

struct TorchPythonApi {
  int32_t abiVersion;
  /// Whether `object` is a torch.Tensor (or a subclass).
  bool (*isTensor)(PyObject *object);
  /// A new reference on the tensor's implementation.
  TensorImpl *(*tensorFromPython)(PyObject *object);
  /// A new reference on the Python object; steals `tensor`.
  PyObject *(*tensorToPython)(TensorImpl *tensor);
  /// Any value: tensors, int, float, bool, None; else boxed by its inferred
  /// type. The result is owned. Returns 0 on success.
  int (*valueFromPython)(PyObject *object, Value *out);
  /// Steals `value`.
  PyObject *(*valueToPython)(Value value);
  /// Boxes `object` as a `const c10::TypePtr *type` (see CallSite::boxObject).
  Boxed *(*box)(PyObject *object, const void *type);
  /// Sets the Python exception that PyTorch itself would raise for `cause`
  /// (a python_error keeps its type, value and traceback).
  void (*setException)(const std::exception_ptr &cause);
  /// Notes, until it is deleted, which operators of `names` ("ns::op") anybody
  /// in this process calls through the dispatcher. Does not need the GIL.
  std::unique_ptr<OperatorWatch> (*watchOperators)(
      const std::vector<std::string> &names);
};

extern "C" {
typedef const TorchPythonApi *(*TorchPythonApiEntry)(int32_t abiVersion);
const TorchPythonApi *intarsia_torch_python_api(int32_t abiVersion);
}

/// libIntarsiaTorchPython.so beside the runtime library. Throws Error(Load).
/// torch must have been imported.
const TorchPythonApi &torchPythonApi();

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_TORCHPYTHON_H
