//===- RuntimeC.cpp - The runtime for C -----------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements intarsia-c/Runtime.h on intarsia/Runtime/Model.h: no exception
// leaves a function.
//
//===----------------------------------------------------------------------===//

#include "intarsia-c/Runtime.h"
#include "intarsia/Runtime/Model.h"

#include <memory>

using namespace intarsia;
using namespace intarsia::runtime;

struct IntarsiaModel {
  std::unique_ptr<Model> model;
  std::vector<std::string> inputs; // names of the tensors
};
struct IntarsiaTensor {
  Tensor tensor;
};

static thread_local std::string lastError;

static IntarsiaStatus failed(IntarsiaStatus status, const char *message) {
  try {
    lastError = message;
  } catch (...) {
    lastError.clear();
  }
  return status;
}

template <typename Function>
static IntarsiaStatus guarded(Function function) {
  try {
    function();
    return INTARSIA_SUCCESS;
  } catch (const Error &error) {
    IntarsiaStatus status = INTARSIA_INTERNAL_ERROR;
    switch (error.kind) {
    case ErrorKind::Contract:
      status = INTARSIA_CONTRACT_ERROR;
      break;
    case ErrorKind::Guard:
      status = INTARSIA_GUARD_ERROR;
      break;
    case ErrorKind::Operator:
      status = INTARSIA_OPERATOR_ERROR;
      break;
    case ErrorKind::Index:
      status = INTARSIA_INDEX_ERROR;
      break;
    case ErrorKind::Load:
      status = INTARSIA_LOAD_ERROR;
      break;
    case ErrorKind::Internal:
      break;
    }
    return failed(status, error.what());
  } catch (const std::exception &error) {
    return failed(INTARSIA_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(INTARSIA_INTERNAL_ERROR, "an unknown exception");
  }
}

template <typename T>
static const T &given(const T *object, const char *what) {
  if (!object)
    throw Error(ErrorKind::Guard, std::string(what) + " is null");
  return *object;
}

static IntarsiaModel *wrap(std::unique_ptr<Model> model) {
  auto wrapped = std::make_unique<IntarsiaModel>();
  wrapped->model = std::move(model);
  const Program &program = wrapped->model->program();
  for (size_t i = 0; i < program.inputCount(); ++i)
    if (program.input(i).kind == plan::Input::Kind::Tensor)
      wrapped->inputs.push_back(program.input(i).name);
  return wrapped.release();
}

extern "C" {

const char *intarsiaErrorMessage(void) { return lastError.c_str(); }

IntarsiaStatus intarsiaTensorCreate(IntarsiaDType dtype, size_t rank,
                                    const int64_t *sizes,
                                    IntarsiaTensor **out) {
  return guarded([&] {
    std::optional<DType> known = dtypeFromScalarType(dtype);
    if (!known)
      throw Error(ErrorKind::Guard,
                  "there is no dtype of number " + std::to_string(dtype));
    if (rank)
      given(sizes, "sizes");
    std::vector<int64_t> shape(sizes, sizes + rank);
    for (int64_t size : shape)
      if (size < 0)
        throw Error(ErrorKind::Guard, "a size is negative");
    *out = new IntarsiaTensor{Tensor::empty(*known, shape)};
  });
}

void intarsiaTensorDestroy(IntarsiaTensor *tensor) { delete tensor; }

IntarsiaStatus intarsiaTensorDType(const IntarsiaTensor *tensor,
                                   IntarsiaDType *out) {
  return guarded([&] {
    *out = IntarsiaDType(given(tensor, "the tensor").tensor.dtype());
  });
}

IntarsiaStatus intarsiaTensorRank(const IntarsiaTensor *tensor, size_t *out) {
  return guarded(
      [&] { *out = given(tensor, "the tensor").tensor.sizes().size(); });
}

IntarsiaStatus intarsiaTensorShape(const IntarsiaTensor *tensor, int64_t *sizes,
                                   int64_t *strides) {
  return guarded([&] {
    const Tensor &value = given(tensor, "the tensor").tensor;
    std::vector<int64_t> allSizes = value.sizes(), allStrides = value.strides();
    if (sizes)
      std::copy(allSizes.begin(), allSizes.end(), sizes);
    if (strides)
      std::copy(allStrides.begin(), allStrides.end(), strides);
  });
}

IntarsiaStatus intarsiaTensorData(const IntarsiaTensor *tensor, void **out) {
  return guarded([&] { *out = given(tensor, "the tensor").tensor.data(); });
}

IntarsiaStatus intarsiaTensorContiguous(const IntarsiaTensor *tensor,
                                        IntarsiaTensor **out) {
  return guarded([&] {
    *out = new IntarsiaTensor{
        given(tensor, "the tensor").tensor.contiguousOnCpu()};
  });
}

IntarsiaStatus intarsiaModelLoad(const char *path,
                                 const char *const *operatorLibraries,
                                 size_t libraryCount, IntarsiaModel **out) {
  return guarded([&] {
    given(path, "the path");
    Model::Options options;
    if (libraryCount)
      given(operatorLibraries, "operatorLibraries");
    options.operatorLibraries.assign(operatorLibraries,
                                     operatorLibraries + libraryCount);
    *out = wrap(Model::load(path, options));
  });
}

IntarsiaStatus intarsiaModelInstance(const IntarsiaModel *model,
                                     const char *const *names,
                                     const IntarsiaTensor *const *weights,
                                     size_t weightCount, IntarsiaModel **out) {
  return guarded([&] {
    std::map<std::string, Tensor> replaced;
    for (size_t i = 0; i < weightCount; ++i)
      replaced[&given(names[i], "a weight's name")] =
          given(weights[i], "a weight").tensor;
    *out = wrap(given(model, "the model").model->instance(replaced));
  });
}

void intarsiaModelDestroy(IntarsiaModel *model) { delete model; }

size_t intarsiaModelInputCount(const IntarsiaModel *model) {
  return model ? model->inputs.size() : 0;
}

size_t intarsiaModelOutputCount(const IntarsiaModel *model) {
  return model ? model->model->program().outputCount() : 0;
}

const char *intarsiaModelInputName(const IntarsiaModel *model, size_t index) {
  return index < intarsiaModelInputCount(model) ? model->inputs[index].c_str()
                                                : nullptr;
}

IntarsiaStatus intarsiaModelRun(const IntarsiaModel *model,
                                const IntarsiaTensor *const *inputs,
                                size_t inputCount, IntarsiaTensor **outputs,
                                size_t outputCount) {
  return guarded([&] {
    const Model &runnable = *given(model, "the model").model;
    if (outputCount != runnable.program().outputCount())
      throw Error(ErrorKind::Guard,
                  "the program returns " +
                      std::to_string(runnable.program().outputCount()) +
                      " values, there is room for " +
                      std::to_string(outputCount));
    std::vector<Tensor> arguments;
    for (size_t i = 0; i < inputCount; ++i)
      arguments.push_back(given(inputs[i], "an input").tensor);
    std::vector<std::unique_ptr<IntarsiaTensor>> results;
    for (Tensor &result : runnable.run(arguments))
      results.push_back(
          result ? std::make_unique<IntarsiaTensor>(std::move(result))
                 : nullptr);
    for (size_t i = 0; i < results.size(); ++i)
      outputs[i] = results[i].release();
  });
}

} // extern "C"
