//===- _C.cpp - The Python extension --------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What Python needs of the compiler and the runtime: compile a graph that
// reader B wrote, load an artifact, call either. Calls follow AOTAutograd's
// boxed convention (one mutable list that the callee empties) and run without
// the GIL.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Compiler/OfflineCompiler.h"
#include "intarsia/Import/Import.h"
#include "intarsia/Import/OperatorFacts.h"
#include "intarsia/Plan/Plan.h"
#include "intarsia/Runtime/Error.h"
#include "intarsia/Runtime/Model.h"
#include "intarsia/Runtime/Program.h"
#include "intarsia/Runtime/TorchPython.h"
#include "intarsia/Target/Kernels.h"
#include "lib/Runtime/Overlap.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <tuple>
#include <vector>

namespace nb = nanobind;
using namespace intarsia;
using runtime::ErrorKind;
using runtime::Value;

namespace {

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

/// Sets an exception of `intarsia.errors` and throws it.
[[noreturn]] void raise(const char *type, const std::string &message) {
  nb::object cls = nb::module_::import_("intarsia.errors").attr(type);
  // A damaged file's names need not be UTF-8.
  nb::object text = nb::steal(PyUnicode_DecodeUTF8(
      message.data(), Py_ssize_t(message.size()), "backslashreplace"));
  PyErr_SetObject(cls.ptr(), text.ptr());
  throw nb::python_error();
}

const char *exceptionName(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::Contract:
    return "ContractError";
  case ErrorKind::Guard:
    return "GuardError";
  case ErrorKind::Load:
    return "LoadError";
  case ErrorKind::Index:
    return "IndexOutOfRangeError";
  case ErrorKind::Operator:
  case ErrorKind::Internal:
    break;
  }
  return "IntarsiaError";
}

/// Adds a note (PEP 678) to the Python exception that is set.
void addNote(const std::string &note) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value) {
    if (traceback)
      PyException_SetTraceback(value, traceback);
    PyObject *result =
        PyObject_CallMethod(value, "add_note", "s", note.c_str());
    // An exception that cannot take a note is still the right exception.
    if (!result)
      PyErr_Clear();
    Py_XDECREF(result);
  }
  PyErr_Restore(type, value, traceback);
}

/// Throws the exception of a run as a Python exception: what a kernel raised
/// keeps its type and text. Needs the GIL.
[[noreturn]] void rethrow(const std::exception_ptr &failure) {
  try {
    std::rethrow_exception(failure);
  } catch (runtime::Error &error) {
    if (!error.cause)
      raise(exceptionName(error.kind), error.what());
    try {
      std::rethrow_exception(error.cause);
    } catch (nb::python_error &cause) {
      cause.restore();
    } catch (...) {
      runtime::torchPythonApi().setException(error.cause);
    }
    // PyTorch may not know the exception either.
    if (!PyErr_Occurred())
      raise(exceptionName(error.kind), error.what());
    std::string note = "in operator " + error.op;
    if (!error.location.empty())
      note += ", called at " + error.location;
    addNote(note);
    throw nb::python_error();
  }
}

/// Warnings of the runtime become Python warnings; one that a filter turns into
/// an error leaves the run as an exception.
void warnInPython(const char *message) {
  if (!Py_IsInitialized())
    return;
  nb::gil_scoped_acquire gil;
  nb::module_::import_("intarsia._warnings").attr("warn")(message);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Owned values of one call; released unless taken.
class ValueArray {
public:
  explicit ValueArray(size_t count) : count(count) {
    if (count > inlined.size())
      heap.resize(count);
  }
  ~ValueArray() {
    for (size_t i = 0; i < count; ++i)
      runtime::release(data()[i]);
  }
  ValueArray(const ValueArray &) = delete;
  ValueArray &operator=(const ValueArray &) = delete;

  Value *data() { return heap.empty() ? inlined.data() : heap.data(); }
  Value &operator[](size_t index) { return data()[index]; }
  /// Gives the reference to the caller.
  Value take(size_t index) { return std::exchange(data()[index], Value()); }

private:
  size_t count;
  std::array<Value, 32> inlined{};
  std::vector<Value> heap;
};

void fromPython(PyObject *object, Value &out) {
  const runtime::TorchPythonApi &api = runtime::torchPythonApi();
  if (object == Py_None)
    return;
  if (api.isTensor(object)) {
    runtime::TensorImpl *tensor = api.tensorFromPython(object);
    if (!tensor)
      throw nb::python_error();
    out = Value::of(tensor);
    return;
  }
  if (api.valueFromPython(object, &out) != 0)
    throw nb::python_error();
}

nb::object toPython(Value value) {
  PyObject *object = runtime::torchPythonApi().valueToPython(value);
  if (!object)
    throw nb::python_error();
  return nb::steal(object);
}

//===----------------------------------------------------------------------===//
// Program
//===----------------------------------------------------------------------===//

/// Python objects that a program refers to by index. Destroyed with the GIL.
class SideTable {
public:
  explicit SideTable(const nb::list &list) {
    for (nb::handle object : list)
      objects.push_back(nb::borrow(object));
  }
  ~SideTable() {
    if (!Py_IsInitialized()) {
      for (nb::object &object : objects)
        object.release();
      return;
    }
    nb::gil_scoped_acquire gil;
    objects.clear();
  }

  PyObject *at(int64_t index) const {
    if (index < 0 || size_t(index) >= objects.size())
      raise("IntarsiaError", "the program refers to object " +
                                 std::to_string(index) +
                                 ", which its side table does not have");
    return objects[index].ptr();
  }

  runtime::Boxed *box(int64_t index, const void *type,
                      std::string *error) const {
    nb::gil_scoped_acquire gil;
    try {
      runtime::Boxed *boxed = runtime::torchPythonApi().box(at(index), type);
      if (!boxed)
        throw nb::python_error();
      return boxed;
    } catch (const std::exception &failure) {
      *error = failure.what();
      return nullptr;
    }
  }

  Value value(int64_t index) const {
    nb::gil_scoped_acquire gil;
    Value value;
    fromPython(at(index), value);
    return value;
  }

  /// Executes one Python step.
  void call(const runtime::PythonCall &call) const {
    nb::gil_scoped_acquire gil;
    nb::list args;
    for (size_t i = 0; i < call.argCount; ++i)
      args.append(toPython(runtime::retain(call.args[i])));
    PyObject *raw =
        PyObject_CallObject(at(call.step.object), nb::tuple(args).ptr());
    if (!raw)
      throw nb::python_error();
    nb::object results = nb::steal(raw);
    if (nb::len(results) != call.resultCount)
      raise("ContractError",
            "operator " + call.step.op + " returned " +
                std::to_string(nb::len(results)) + " values where " +
                std::to_string(call.resultCount) + " were traced");
    for (size_t i = 0; i < call.resultCount; ++i)
      fromPython(nb::object(results[i]).ptr(), call.results[i]);
  }

  nb::list list() const {
    nb::list result;
    for (const nb::object &object : objects)
      result.append(object);
    return result;
  }

private:
  std::vector<nb::object> objects;
};

/// Turns grad mode on, if that is wanted, and back at the end of the scope.
class GradMode {
public:
  explicit GradMode(bool on)
      : changes(on && !runtime::torchApi().gradEnabled()) {
    if (changes)
      runtime::torchApi().setGradEnabled(true);
  }
  ~GradMode() {
    if (changes)
      runtime::torchApi().setGradEnabled(false);
  }
  GradMode(const GradMode &) = delete;
  GradMode &operator=(const GradMode &) = delete;

private:
  bool changes;
};

/// Inputs of which two must lie apart if one is written: their indices, whether
/// the program writes them, and what the user calls them.
using Apart = std::vector<std::tuple<size_t, bool, std::string>>;

/// Raises an OverlapError where a written input has an element of another.
void checkApart(ValueArray &inputs, const Apart &apart) {
  const runtime::TorchApi &torch = runtime::torchApi();
  struct Place {
    const void *storage;
    size_t input;
    bool written;
    const std::string *name;
  };
  std::vector<Place> places;
  places.reserve(apart.size());
  for (const auto &[input, written, name] : apart)
    if (const Value &value = inputs[input]; value.kind == Value::Kind::Tensor)
      places.push_back({torch.storage(value.tensor), input, written, &name});
  std::sort(places.begin(), places.end(), [](const Place &a, const Place &b) {
    return std::tie(a.storage, a.input) < std::tie(b.storage, b.input);
  });
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t j = i + 1; j < places.size(); ++j) {
      const Place &a = places[i], &b = places[j];
      if (!a.storage || a.storage != b.storage)
        break;
      runtime::TensorInfo first, second;
      if (!(a.written || b.written) ||
          torch.describe(inputs[a.input].tensor, &first) ||
          torch.describe(inputs[b.input].tensor, &second) ||
          (first.strides && second.strides &&
           !runtime::mayOverlap(first, second)))
        continue;
      raise("OverlapError", "inputs " + *a.name + " and " + *b.name +
                                " share memory, one of them is written, and "
                                "the program was compiled for inputs that "
                                "lie apart");
    }
}

/// A program from `compile` or an artifact from `load`.
struct PyProgram {
  // The program refers to the table: it is destroyed first.
  std::shared_ptr<SideTable> objects;
  std::unique_ptr<runtime::Program> compiled;
  std::unique_ptr<runtime::Model> loaded;
  std::vector<std::pair<std::string, double>> timings;
  int64_t callCount = 0, kernelCount = 0;
  /// Where the kernels' shared object lies; empty if there are none.
  std::string kernelFile;
  bool kernelsInMemory = false;
  std::shared_ptr<const runtime::CudaCode> cuda;
  /// Runs with grad mode on, whoever turned it off: eager's kernels saw it on.
  bool gradEnabled = false;
  /// Makes the context manager of the first call; void afterwards.
  nb::object firstContext;
  Apart apart;
  /// Inputs that eager shows to kernels without their gradient.
  std::vector<size_t> detached;

  const runtime::Program &program() const {
    return compiled ? *compiled : loaded->program();
  }

  /// Why CUDA cannot capture what runs; "" if it can. All of it has to be work
  /// of this type of device, with no wait on the host.
  std::string captureObstacle(const std::string &device) const {
    const plan::Plan &plan = program().plan();
    if (plan.functions.size() != 1)
      return "it has control flow";
    for (const plan::Kernel &kernel : plan.kernels) {
      if (kernel.target != device)
        return "kernel " + kernel.symbol + " runs on the " + kernel.target;
      if (!kernel.checks.empty())
        return "kernel " + kernel.symbol +
               " checks what it reads: " + kernel.checks.front().text;
    }
    for (const plan::Step &step : plan.functions[0].steps)
      if (step.kind == plan::Step::Kind::Python)
        return step.op + " runs in Python";
    return "";
  }

  void countSteps(const plan::Plan &plan) {
    for (const plan::Function &function : plan.functions)
      for (const plan::Step &step : function.steps) {
        callCount += step.kind == plan::Step::Kind::Call;
        kernelCount += plan::isLaunch(step);
      }
  }

  nb::object call(nb::list args) {
    if (!firstContext.is_valid()) [[likely]]
      return run(args, runtime::Program::StealInputs, nullptr);
    nb::object make = std::exchange(firstContext, nb::object());
    nb::object context = make();
    context.attr("__enter__")();
    auto leave = [&] {
      context.attr("__exit__")(nb::none(), nb::none(), nb::none());
    };
    try {
      nb::object result = run(args, runtime::Program::StealInputs, nullptr);
      leave();
      return result;
    } catch (nb::python_error &) {
      leave();
      throw;
    }
  }

  /// The outputs, and (function, index, operator or kernel, source line, calls,
  /// seconds) a step.
  nb::tuple profile(nb::list args) const {
    runtime::Profile profile;
    nb::object results = run(args, runtime::Program::None, &profile);
    nb::list steps;
    const plan::Plan &plan = program().plan();
    for (size_t f = 0; f < profile.steps.size(); ++f)
      for (size_t s = 0; s < profile.steps[f].size(); ++s) {
        const plan::Step &step = plan.functions[f].steps[s];
        const runtime::Profile::Entry &entry = profile.steps[f][s];
        if (entry.count == 0)
          continue;
        std::string name = step.op;
        if (plan::isLaunch(step))
          name = plan.kernels[step.kernel].symbol;
        steps.append(nb::make_tuple(plan.functions[f].name, int64_t(s), name,
                                    step.location, entry.count,
                                    double(entry.nanoseconds) * 1e-9));
      }
    return nb::make_tuple(results, steps);
  }

private:
  nb::object run(nb::list args, uint32_t flags,
                 runtime::Profile *profile) const {
    const runtime::Program &program = this->program();
    size_t count = args.size(), resultCount = program.outputCount();
    if (count != program.inputCount())
      raise("GuardError",
            "the program takes " + std::to_string(program.inputCount()) +
                " inputs, " + std::to_string(count) + " were given");
    ValueArray inputs(count), outputs(resultCount);
    for (size_t i : detached) {
      nb::object given = args[i];
      if (nb::cast<bool>(given.attr("requires_grad")))
        args[i] = given.attr("detach")();
    }
    for (size_t i = 0; i < count; ++i)
      fromPython(PyList_GET_ITEM(args.ptr(), Py_ssize_t(i)), inputs[i]);
    if (!apart.empty()) [[unlikely]]
      checkApart(inputs, apart);
    // The caller's list must not keep memory alive that the program could free
    // at its last use.
    if (PyList_SetSlice(args.ptr(), 0, PY_SSIZE_T_MAX, nullptr) != 0)
      throw nb::python_error();
    std::exception_ptr failure;
    {
      nb::gil_scoped_release release;
      GradMode mode(gradEnabled);
      try {
        program.run(inputs.data(), count, outputs.data(), resultCount, flags,
                    profile);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure)
      rethrow(failure);
    nb::object results = nb::steal(PyList_New(Py_ssize_t(resultCount)));
    for (size_t i = 0; i < resultCount; ++i)
      PyList_SET_ITEM(results.ptr(), Py_ssize_t(i),
                      toPython(outputs.take(i)).release().ptr());
    return results;
  }
};

void checkInputsApart(nb::list inputs, const Apart &apart) {
  ValueArray values(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    fromPython(PyList_GET_ITEM(inputs.ptr(), Py_ssize_t(i)), values[i]);
  checkApart(values, apart);
}

bool mayOverlap(nb::object a, nb::object b) {
  ValueArray values(2);
  runtime::TensorInfo infos[2];
  nb::object objects[] = {a, b};
  for (size_t i = 0; i < 2; ++i) {
    fromPython(objects[i].ptr(), values[i]);
    if (values[i].kind != Value::Kind::Tensor ||
        runtime::torchApi().describe(values[i].tensor, &infos[i]) ||
        !infos[i].strides)
      return true;
  }
  return runtime::mayOverlap(infos[0], infos[1]);
}

//===----------------------------------------------------------------------===//
// Compiling and loading
//===----------------------------------------------------------------------===//

CompileOptions readOptions(const nb::dict &dict) {
  CompileOptions options;
  options.fuse = nb::cast<bool>(dict["fuse"]);
  options.numerics = nb::cast<std::string>(dict["numerics"]);
  options.products = nb::cast<std::string>(dict["products"]);
  options.strict = nb::cast<bool>(dict["strict"]);
  options.emulate = nb::cast<std::string>(dict["emulate"]);
  options.cpu = nb::cast<std::string>(dict["cpu"]);
  options.features = nb::cast<std::string>(dict["features"]);
  if (dict.contains("archs")) {
    options.target = "cuda";
    options.archs = nb::cast<std::vector<std::string>>(dict["archs"]);
    // The driver compiles the PTX, and keeps the result.
    options.cubins = false;
  }
  options.dumpDir = nb::cast<std::string>(dict["dump_dir"]);
  options.fakeLocation = [](const std::string &op) {
    nb::gil_scoped_acquire gil;
    return nb::cast<std::string>(
        nb::module_::import_("intarsia._fakes").attr("fake_location")(op));
  };
  return options;
}

/// Runs `work` without the GIL; errors become Python exceptions.
template <typename Work>
auto withoutGil(Work work) {
  std::exception_ptr failure;
  std::string message;
  std::optional<decltype(work())> result;
  {
    nb::gil_scoped_release release;
    try {
      result.emplace(work());
    } catch (const CompileError &error) {
      message = error.what();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (result)
    return std::move(*result);
  if (failure)
    rethrow(failure);
  raise("CompileError", message);
}

/// Null for no kernels.
std::shared_ptr<const runtime::CudaCode>
makeCudaCode(std::vector<runtime::CudaImage> images) {
  if (images.empty())
    return nullptr;
  return std::make_shared<const runtime::CudaCode>(std::move(images),
                                                   "the compiled program");
}

/// A program around `plan`, whose objects and weights are in `table`.
std::unique_ptr<PyProgram> makeProgram(plan::Plan plan,
                                       std::shared_ptr<SideTable> table,
                                       std::string kernelFile,
                                       runtime::Program::Options options) {
  auto result = std::make_unique<PyProgram>();
  result->objects = table;
  result->kernelFile = kernelFile;
  result->kernelsInMemory = bool(options.kernel);
  result->cuda = options.cuda;
  result->countSteps(plan);
  std::vector<int64_t> weights;
  for (const plan::Weight &weight : plan.weights)
    weights.push_back(weight.object);
  options.kernelLibrary = std::move(kernelFile);
  options.boxObject = [table](int64_t index, const void *type,
                              std::string *error) {
    return table->box(index, type, error);
  };
  options.weight = [table, weights](size_t index) {
    return table->value(weights[index]);
  };
  options.python = [table](const runtime::PythonCall &call) {
    table->call(call);
  };
  result->compiled =
      runtime::Program::create(std::move(plan), std::move(options));
  return result;
}

std::unique_ptr<PyProgram> compileGraph(const std::string &json,
                                        const nb::list &objects,
                                        const nb::dict &optionDict) {
  CompileOptions options = readOptions(optionDict);
  auto table = std::make_shared<SideTable>(objects);
  return withoutGil([&] {
    llvm::Expected<importer::Program> graph = importer::readJson(json);
    if (!graph)
      throw CompileError(llvm::toString(graph.takeError()));
    CompiledProgram compiled = compile(*graph, options, torchSchemas());

    runtime::Program::Options run;
    if (compiled.memoryKernels)
      run.kernel = [kernels = compiled.memoryKernels](const std::string &name) {
        return lookupKernel(*kernels, name);
      };
    run.cuda = makeCudaCode(std::move(compiled.cudaImages));
    auto result =
        makeProgram(std::move(compiled.plan), table,
                    std::move(compiled.sharedObjectPath), std::move(run));
    result->timings = std::move(compiled.timings);
    return result;
  });
}

/// What `restore` takes: (plan, shared object of the kernels, objects, kernels
/// for CUDA as (arch, whether it is PTX, code, module, shared memory)).
nb::tuple programState(const PyProgram &self) {
  if (!self.compiled)
    raise("IntarsiaError", "an artifact is loaded from its file; it is not "
                           "pickled");
  std::string kernels;
  if (self.kernelsInMemory)
    raise("IntarsiaError", "kernels that are kept in memory are not pickled");
  if (!self.kernelFile.empty()) {
    auto buffer = llvm::MemoryBuffer::getFile(self.kernelFile);
    if (!buffer)
      raise("IntarsiaError", "cannot read the kernels in " + self.kernelFile +
                                 ": " + buffer.getError().message());
    kernels = (*buffer)->getBuffer().str();
  }
  nb::list images;
  if (self.cuda)
    for (const runtime::CudaImage &image : self.cuda->images())
      images.append(
          nb::make_tuple(image.arch, image.isPtx,
                         nb::bytes(image.code.data(), image.code.size()),
                         image.module, image.shared));
  return nb::make_tuple(plan::toJson(self.program().plan()),
                        nb::bytes(kernels.data(), kernels.size()),
                        self.objects->list(), images);
}

std::unique_ptr<PyProgram> restoreProgram(const std::string &planJson,
                                          const nb::bytes &kernels,
                                          const nb::list &objects,
                                          const nb::list &imageList) {
  std::string sharedObject(kernels.c_str(), kernels.size());
  std::vector<runtime::CudaImage> images;
  for (nb::handle entry : imageList) {
    auto code = nb::cast<nb::bytes>(entry[2]);
    images.push_back({nb::cast<std::string>(entry[0]), nb::cast<bool>(entry[1]),
                      std::string(code.c_str(), code.size()),
                      nb::cast<std::string>(entry[3]),
                      nb::cast<int64_t>(entry[4])});
  }
  auto table = std::make_shared<SideTable>(objects);
  return withoutGil([&] {
    std::string path;
    try {
      if (!sharedObject.empty())
        path = storeKernels(sharedObject);
    } catch (const TargetError &error) {
      throw CompileError(error.what());
    }
    runtime::Program::Options run;
    run.cuda = makeCudaCode(std::move(images));
    return makeProgram(plan::fromJson(planJson), table, std::move(path),
                       std::move(run));
  });
}

std::unique_ptr<PyProgram> loadArtifact(const std::string &path,
                                        std::vector<std::string> libraries,
                                        const std::string &target,
                                        bool verify) {
  return withoutGil([&] {
    runtime::Model::Options options;
    options.verify = verify;
    options.operatorLibraries = std::move(libraries);
    options.target = target;
    auto result = std::make_unique<PyProgram>();
    result->loaded = runtime::Model::load(path, options);
    result->countSteps(result->loaded->program().plan());
    return result;
  });
}

/// Another instance of a loaded artifact, with weights replaced by name.
std::unique_ptr<PyProgram> makeInstance(const PyProgram &self,
                                        const nb::dict &weights) {
  std::map<std::string, runtime::Tensor> replaced;
  for (auto [name, object] : weights) {
    Value value;
    fromPython(object.ptr(), value);
    if (value.kind != Value::Kind::Tensor) {
      runtime::release(value);
      PyErr_Format(PyExc_TypeError, "weight %R must be a Tensor, not %s",
                   name.ptr(), Py_TYPE(object.ptr())->tp_name);
      throw nb::python_error();
    }
    replaced[nb::cast<std::string>(name)] = runtime::Tensor(value.tensor);
  }
  return withoutGil([&] {
    auto result = std::make_unique<PyProgram>();
    result->loaded = self.loaded->instance(replaced);
    result->countSteps(result->loaded->program().plan());
    return result;
  });
}

nb::dict weightsOf(const PyProgram &self) {
  nb::dict weights;
  for (const std::string &name : self.loaded->weightNames())
    weights[name.c_str()] =
        toPython(Value::of(self.loaded->weight(name).take()));
  return weights;
}

/// Compiles a file to an artifact.
void compileFile(const std::string &input, const std::string &output,
                 std::vector<std::string> libraries, const nb::dict &options,
                 std::vector<std::string> cpus, bool bundleLibraries,
                 bool codeOnly, bool freeze, const std::string &target,
                 std::vector<std::string> archs, const std::string &retarget,
                 const std::string &promisedNumbers) {
  OfflineOptions offline;
  offline.cpus = std::move(cpus);
  offline.bundleLibraries = bundleLibraries;
  offline.codeOnly = codeOnly;
  offline.input = input;
  offline.output = output;
  offline.operatorLibraries = std::move(libraries);
  offline.compile = readOptions(options);
  offline.compile.freeze = freeze;
  offline.compile.target = target;
  offline.archs = std::move(archs);
  offline.retarget = retarget;
  offline.promisedNumbers = promisedNumbers;
  std::ostringstream out, errors;
  OfflineStatus status;
  {
    nb::gil_scoped_release release;
    status = compileOffline(offline, out, errors);
  }
  if (status == OfflineStatus::Success)
    return;
  std::string message = errors.str();
  llvm::StringRef text = llvm::StringRef(message).trim();
  text.consume_front("intarsia-compile: error: ");
  switch (status) {
  case OfflineStatus::InputError:
  case OfflineStatus::LibraryError:
    raise("LoadError", text.str());
  case OfflineStatus::OutputError:
    PyErr_SetString(PyExc_OSError, text.str().c_str());
    throw nb::python_error();
  default:
    raise("CompileError", text.str());
  }
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

std::optional<std::string> operatorSchema(const std::string &name) {
  const char *json = runtime::torchApi().operatorSchema(name.c_str());
  if (!json)
    return std::nullopt;
  return std::string(json);
}

nb::dict operatorFacts(const std::string &name) {
  std::optional<importer::OperatorSchema> schema = torchSchemas()(name);
  if (!schema)
    raise("LoadError", "operator " + name + " is not registered");
  importer::OperatorFacts facts = importer::operatorFacts(*schema, {});
  auto argumentName = [&](size_t index) {
    return schema->arguments[index].name;
  };
  nb::list mutated, returns;
  for (size_t index : facts.mutated)
    mutated.append(argumentName(index));
  for (const importer::OperatorFacts::Return &result : facts.returns) {
    nb::dict entry;
    nb::list views;
    for (size_t index : result.views)
      views.append(argumentName(index));
    entry["tied"] =
        result.tied ? nb::cast(argumentName(*result.tied)) : nb::none();
    entry["views"] = views;
    returns.append(entry);
  }
  nb::dict dict;
  dict["mutated"] = mutated;
  dict["returns"] = returns;
  dict["random"] = facts.random;
  dict["effectful"] = facts.effectful;
  return dict;
}

} // namespace

NB_MODULE(_C, m) {
  m.doc() = "The compiler and the runtime of Intarsia.";
  // A program that outlives the interpreter's last sweep is no leak of ours.
  nb::set_leak_warnings(false);
  // Fails early, and with a clear message, when the shim does not fit the torch
  // of this process.
  try {
    runtime::torchApi();
    runtime::torchPythonApi();
  } catch (const runtime::Error &error) {
    PyErr_SetString(PyExc_ImportError, error.what());
    throw nb::python_error();
  }
  runtime::setWarningHandler(warnInPython);

  // With a __dict__: Dynamo copies an instance's attributes to what it wraps
  // around it, and `_boxed_call` must be among them.
  nb::class_<PyProgram> program(
      m, "Program", nb::dynamic_attr(),
      "A compiled graph or a loaded artifact. Calling it takes one list of "
      "inputs, which it empties, and returns the list of outputs. Many threads "
      "may call it at once; the GIL is released.");
  program.def("__call__", &PyProgram::call, nb::arg("args"))
      .def("run", &PyProgram::call, nb::arg("args"))
      .def("profile", &PyProgram::profile, nb::arg("args"),
           "Runs once; returns (outputs, steps), a step being (function, "
           "index, operator or kernel, source line, calls, seconds).")
      .def_prop_ro(
          "plan_text",
          [](const PyProgram &self) {
            return plan::print(self.program().plan());
          },
          "The plan as a readable listing.")
      .def("capture_obstacle", &PyProgram::captureObstacle, nb::arg("device"),
           "Why CUDA cannot capture it, all of it being work of this type of "
           "device; empty if it can.")
      .def("instance", &makeInstance, nb::arg("weights"))
      .def("weights", &weightsOf)
      .def_prop_ro("plan_json",
                   [](const PyProgram &self) {
                     return plan::toJson(self.program().plan());
                   })
      .def_prop_ro(
          "timings",
          [](const PyProgram &self) {
            nb::dict dict;
            for (const auto &[stage, seconds] : self.timings)
              dict[stage.c_str()] = seconds;
            return dict;
          },
          "Seconds of each compilation stage, in order.")
      .def_ro("call_count", &PyProgram::callCount,
              "Calls of operators in the plan.")
      .def_ro("kernel_count", &PyProgram::kernelCount,
              "Launches of compiled kernels in the plan.")
      .def(
          "set_first_context",
          [](PyProgram &self, nb::object make) { self.firstContext = make; },
          nb::arg("make"),
          "The first call runs inside the context manager that `make` returns.")
      .def_rw("grad_enabled", &PyProgram::gradEnabled,
              "Whether runs turn grad mode on, as kernels saw it in eager.")
      .def_rw("apart", &PyProgram::apart,
              "Inputs that must lie apart: (index, is written, name).")
      .def_rw("detached", &PyProgram::detached,
              "Inputs that kernels see without their gradient.")
      .def_prop_ro("input_names",
                   [](const PyProgram &self) {
                     nb::list names;
                     for (size_t i = 0; i < self.program().inputCount(); ++i)
                       names.append(self.program().input(i).name);
                     return names;
                   })
      .def_prop_ro(
          "output_count",
          [](const PyProgram &self) { return self.program().outputCount(); })
      .def_prop_ro(
          "in_spec",
          [](const PyProgram &self) { return self.program().plan().inSpec; })
      .def_prop_ro("out_spec", [](const PyProgram &self) {
        return self.program().plan().outSpec;
      });
  m.def("compile", &compileGraph, nb::arg("json"), nb::arg("objects"),
        nb::arg("options"),
        "Compiles a program that intarsia._fx.read_graph made.");
  program.def("__reduce__", [](const PyProgram &self) {
    return nb::make_tuple(
        nb::module_::import_("intarsia._extension").attr("restore"),
        programState(self));
  });
  m.def("restore", &restoreProgram, nb::arg("plan"), nb::arg("kernels"),
        nb::arg("objects"), nb::arg("cuda"), "A program that was pickled.");
  m.def("host_description", &hostDescription,
        "The code generator's version, and the processor of this machine.");
  m.def("aot_compile", &compileFile, nb::arg("input"), nb::arg("output"),
        nb::arg("operator_libraries"), nb::arg("options"), nb::arg("cpus"),
        nb::arg("bundle_libraries"), nb::arg("code_only"), nb::arg("freeze"),
        nb::arg("target") = "cpu",
        nb::arg("archs") = std::vector<std::string>(), nb::arg("retarget") = "",
        nb::arg("promised_numbers") = "",
        "Compiles an exported program's file to an artifact.");
  m.def("load", &loadArtifact, nb::arg("path"),
        nb::arg("operator_libraries") = std::vector<std::string>(),
        nb::arg("target") = "", nb::arg("verify") = false,
        "Loads an artifact.");
  m.def("load_operator_library", &runtime::loadOperatorLibrary,
        nb::arg("path"));
  m.def("may_overlap", &mayOverlap, nb::arg("a"), nb::arg("b"),
        "Whether two strided tensors of one storage may have an element in "
        "common.");
  m.def(
      "check_apart", &checkInputsApart, nb::arg("inputs"), nb::arg("apart"),
      "Raises an OverlapError where inputs overlap that must lie apart, given "
      "as `Program.apart` is.");
  nb::class_<runtime::OperatorWatch>(
      m, "OperatorWatch",
      "Which operators are called, by anybody in this process, while it is "
      "there.")
      .def_prop_ro("called", &runtime::OperatorWatch::called);
  m.def(
      "watch_operators",
      [](const std::vector<std::string> &names) {
        return runtime::torchPythonApi().watchOperators(names);
      },
      nb::arg("names"));
  m.def("operator_schema", &operatorSchema, nb::arg("name"),
        "What PyTorch knows of an operator, as JSON; None: not registered.");
  m.def("operator_facts", &operatorFacts, nb::arg("name"),
        "What the compiler believes of an operator.");
}
