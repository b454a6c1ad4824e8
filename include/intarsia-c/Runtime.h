//===- Runtime.h - Running compiled artifacts from C --------------*- C -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// intarsia/Runtime/Model.h for C. Every function that can fail returns a
// status; intarsiaErrorMessage has the text. Results are written only on
// success. Objects that a function returns through a pointer to a pointer
// belong to the caller, who ends them with the *Destroy function; null may be
// destroyed. Models may be used from several threads at once (except runs of a
// model that writes its own weights), tensors as PyTorch's.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_C_RUNTIME_H
#define INTARSIA_C_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct IntarsiaModel IntarsiaModel;
/** A reference on a PyTorch tensor. */
typedef struct IntarsiaTensor IntarsiaTensor;

typedef enum IntarsiaStatus {
  INTARSIA_SUCCESS = 0,
  /** An operator did not return what its fake implementation promised. */
  INTARSIA_CONTRACT_ERROR,
  /** An argument or input does not fit. */
  INTARSIA_GUARD_ERROR,
  /** An operator raised. */
  INTARSIA_OPERATOR_ERROR,
  /** An index in the data is out of range. */
  INTARSIA_INDEX_ERROR,
  /** An artifact, operator or library cannot be loaded. */
  INTARSIA_LOAD_ERROR,
  /** A fault of Intarsia, or memory ran out. */
  INTARSIA_INTERNAL_ERROR
} IntarsiaStatus;

/** Of the last call on this thread that failed; valid until the next one. Never
 *  null. */
const char *intarsiaErrorMessage(void);

/*===-- Tensors -----------------------------------------------------------===*/

/** Element types, by c10::ScalarType's numbers. Others are passed through. */
typedef int32_t IntarsiaDType;
enum {
  INTARSIA_UINT8 = 0,
  INTARSIA_INT8 = 1,
  INTARSIA_INT16 = 2,
  INTARSIA_INT32 = 3,
  INTARSIA_INT64 = 4,
  INTARSIA_FLOAT16 = 5,
  INTARSIA_FLOAT32 = 6,
  INTARSIA_FLOAT64 = 7,
  INTARSIA_COMPLEX64 = 9,
  INTARSIA_COMPLEX128 = 10,
  INTARSIA_BOOL = 11,
  INTARSIA_BFLOAT16 = 15
};

/** An uninitialised, contiguous tensor on the CPU. `sizes` has `rank` numbers
 *  and may be null when that is 0. */
IntarsiaStatus intarsiaTensorCreate(IntarsiaDType dtype, size_t rank,
                                    const int64_t *sizes, IntarsiaTensor **out);
void intarsiaTensorDestroy(IntarsiaTensor *tensor);
IntarsiaStatus intarsiaTensorDType(const IntarsiaTensor *tensor,
                                   IntarsiaDType *out);
IntarsiaStatus intarsiaTensorRank(const IntarsiaTensor *tensor, size_t *out);
/** Writes `rank` numbers each; strides are in elements. Either may be null. */
IntarsiaStatus intarsiaTensorShape(const IntarsiaTensor *tensor, int64_t *sizes,
                                   int64_t *strides);
/** The first element, in the memory of the tensor's device. */
IntarsiaStatus intarsiaTensorData(const IntarsiaTensor *tensor, void **out);
/** The tensor on the CPU and contiguous: another reference on it, or a copy. */
IntarsiaStatus intarsiaTensorContiguous(const IntarsiaTensor *tensor,
                                        IntarsiaTensor **out);

/*===-- Models ------------------------------------------------------------===*/

/** Loads what intarsia-compile wrote. `operatorLibraries` are loaded first and
 *  may be null when `libraryCount` is 0. */
IntarsiaStatus intarsiaModelLoad(const char *path,
                                 const char *const *operatorLibraries,
                                 size_t libraryCount, IntarsiaModel **out);
/** Another model on the same artifact, with the weights `names` replaced: see
 *  Model::instance. */
IntarsiaStatus intarsiaModelInstance(const IntarsiaModel *model,
                                     const char *const *names,
                                     const IntarsiaTensor *const *weights,
                                     size_t weightCount, IntarsiaModel **out);
void intarsiaModelDestroy(IntarsiaModel *model);

size_t intarsiaModelInputCount(const IntarsiaModel *model);
size_t intarsiaModelOutputCount(const IntarsiaModel *model);
/** The name of a tensor that `intarsiaModelRun` takes; null for an index out of
 *  range. Lives as long as the model. */
const char *intarsiaModelInputName(const IntarsiaModel *model, size_t index);

/** Runs the model. `inputs` are its tensor inputs in the exported program's
 * flat order; `outputs` has room for intarsiaModelOutputCount tensors. A number
 * among the outputs is a tensor without dimensions, None is null. */
IntarsiaStatus intarsiaModelRun(const IntarsiaModel *model,
                                const IntarsiaTensor *const *inputs,
                                size_t inputCount, IntarsiaTensor **outputs,
                                size_t outputCount);

#ifdef __cplusplus
}
#endif

#endif /* INTARSIA_C_RUNTIME_H */
