//===- TorchPython.cpp - Python objects <-> runtime values
//--------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// libIntarsiaTorchPython.so: the conversions that need libtorch_python, behind
// the table of Runtime/TorchPython.h.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Runtime/TorchPython.h"
#include "lib/Runtime/Torch/Shim.h"

#include <ATen/record_function.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <set>
#include <unordered_set>

using namespace intarsia::runtime;
using namespace intarsia::runtime::shim;

namespace {

/// Turns an exception of `body` into a Python one and returns `failure`.
template <typename Result, typename Body>
Result translated(Result failure, Body body) noexcept {
  try {
    return body();
  } catch (py::error_already_set &error) {
    error.restore();
  } catch (const py::builtin_exception &error) {
    error.set_error();
  } catch (const std::exception &) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown C++ exception");
  }
  return failure;
}

bool isTensor(PyObject *object) { return THPVariable_Check(object); }

TensorImpl *tensorFromPython(PyObject *object) {
  if (!THPVariable_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected a torch.Tensor, got %s",
                 Py_TYPE(object)->tp_name);
    return nullptr;
  }
  at::Tensor tensor = THPVariable_Unpack(object);
  return give(std::move(tensor));
}

PyObject *tensorToPython(TensorImpl *tensor) {
  at::Tensor owned(
      c10::intrusive_ptr<c10::TensorImpl>::reclaim(unwrap(tensor)));
  return translated<PyObject *>(
      nullptr, [&] { return THPVariable_Wrap(std::move(owned)); });
}

/// Any object as an IValue: of the type that TorchScript infers, else as the
/// Python object that it is (a device mesh, an opaque class).
c10::IValue inferred(PyObject *object) {
  try {
    // As "any type", libtorch_python infers the type itself; the function that
    // does so is not exported.
    return torch::jit::toIValue(object, c10::AnyType::get());
  } catch (const std::exception &) {
    return torch::jit::toIValue(object, c10::PyObjectType::get());
  }
}

/// The name of a nested tensor's ragged size, which is no number.
bool isNestedInt(PyObject *object) {
  if (!torch::is_symint(object))
    return false;
  auto value = py::cast<c10::SymInt>(object);
  return value.is_heap_allocated() &&
         value.toSymNodeImplUnowned()->is_nested_int();
}

int valueFromPython(PyObject *object, Value *out) {
  if (THPVariable_Check(object)) {
    *out = Value::of(tensorFromPython(object));
    return 0;
  }
  if (object == Py_None) {
    *out = Value();
    return 0;
  }
  if (PyBool_Check(object)) {
    *out = Value::of(object == Py_True);
    return 0;
  }
  if (PyLong_Check(object)) {
    int64_t value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred())
      return 1;
    *out = Value::of(value);
    return 0;
  }
  if (PyFloat_Check(object)) {
    *out = Value::of(PyFloat_AS_DOUBLE(object));
    return 0;
  }
  return translated(1, [&] {
    // SymInt and SymFloat come with a hint when a caller traces us; a program
    // runs on numbers.
    if (isNestedInt(object))
      *out = Value::of(
          shim::box(torch::jit::toIValue(object, c10::PyObjectType::get())));
    else if (torch::is_symint(object))
      *out = Value::of(
          py::cast<c10::SymInt>(object).guard_int(__FILE__, __LINE__));
    else if (torch::is_symfloat(object))
      *out = Value::of(
          py::cast<c10::SymFloat>(object).guard_float(__FILE__, __LINE__));
    else if (torch::is_symbool(object))
      *out = Value::of(
          py::cast<c10::SymBool>(object).guard_bool(__FILE__, __LINE__));
    else
      *out = Value::of(shim::box(inferred(object)));
    return 0;
  });
}

PyObject *valueToPython(Value value) {
  switch (value.kind) {
  case Value::Kind::None:
    Py_RETURN_NONE;
  case Value::Kind::Tensor:
    return tensorToPython(value.tensor);
  case Value::Kind::Int:
    return PyLong_FromLongLong(value.integer);
  case Value::Kind::Float:
    return PyFloat_FromDouble(value.real);
  case Value::Kind::Bool:
    return PyBool_FromLong(value.boolean);
  case Value::Kind::Boxed: {
    std::unique_ptr<c10::IValue> boxed(unwrap(value.boxed));
    return translated<PyObject *>(nullptr, [&] {
      return torch::jit::toPyObject(std::move(*boxed)).release().ptr();
    });
  }
  case Value::Kind::Pointer:
    break;
  }
  PyErr_SetString(PyExc_RuntimeError, "memory of the arena left its program");
  return nullptr;
}

Boxed *boxObject(PyObject *object, const void *type) {
  return translated<Boxed *>(nullptr, [&] {
    return shim::box(
        torch::jit::toIValue(object, *static_cast<const c10::TypePtr *>(type)));
  });
}

void setException(const std::exception_ptr &cause) {
  try {
    std::rethrow_exception(cause);
  } catch (python_error &error) {
    // Thrown but not persisted: the exception is still this thread's.
    if (!error.type)
      return;
    // restore() would take the exception away from others who hold it.
    Py_XINCREF(error.type);
    Py_XINCREF(error.value);
    Py_XINCREF(error.traceback);
    PyErr_Restore(error.type, error.value, error.traceback);
  } catch (py::error_already_set &error) {
    Py_XINCREF(error.type().ptr());
    Py_XINCREF(error.value().ptr());
    Py_XINCREF(error.trace().ptr());
    PyErr_Restore(error.type().ptr(), error.value().ptr(), error.trace().ptr());
  } catch (const std::exception &) {
    torch::translate_exception_to_python(cause);
  } catch (...) {
    // As pybind11 says it, through which eager raises.
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

/// Called operators as PyTorch's observers see them: all that go through the
/// dispatcher, in every thread.
class Watch final : public OperatorWatch {
public:
  explicit Watch(const std::vector<std::string> &names)
      : names(names.begin(), names.end()) {
    std::lock_guard lock(mutex());
    if (active().empty())
      handle() = at::addGlobalCallback(
          at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}));
    active().push_back(this);
  }

  ~Watch() override {
    std::lock_guard lock(mutex());
    std::erase(active(), this);
    if (active().empty())
      at::removeCallback(handle());
  }

  std::vector<std::string> called() const override {
    std::lock_guard lock(mutex());
    return {seen.begin(), seen.end()};
  }

private:
  static std::unique_ptr<at::ObserverContext>
  note(const at::RecordFunction &record) {
    std::string name = record.name();
    std::lock_guard lock(mutex());
    for (Watch *watch : active())
      if (watch->names.count(name))
        watch->seen.insert(name);
    return nullptr;
  }

  static std::mutex &mutex() {
    static std::mutex instance;
    return instance;
  }
  static std::vector<Watch *> &active() {
    static std::vector<Watch *> instance;
    return instance;
  }
  static at::CallbackHandle &handle() {
    static at::CallbackHandle instance;
    return instance;
  }

  std::unordered_set<std::string> names;
  std::set<std::string> seen;
};

std::unique_ptr<OperatorWatch>
watchOperators(const std::vector<std::string> &names) {
  return std::make_unique<Watch>(names);
}

} // namespace

extern "C" __attribute__((visibility("default"))) const TorchPythonApi *
intarsia::runtime::intarsia_torch_python_api(int32_t abiVersion) {
  static const TorchPythonApi api = {
      torchApiVersion, isTensor,        tensorFromPython,
      tensorToPython,  valueFromPython, valueToPython,
      boxObject,       setException,    watchOperators};
  return abiVersion == torchApiVersion ? &api : nullptr;
}
