//===- Torch.h - The shim's C interface ---------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// All that touches PyTorch's C++ API, behind C functions: schemas, calls,
// tensors, parallel loops. libIntarsiaTorch.so implements it and is the only
// library that is rebuilt for each PyTorch version. The executor calls it
// through the table that `intarsia_torch_api` returns, so that the runtime
// library needs no torch symbol to load.
//
// A `TensorImpl *` is a reference on PyTorch's object of that name. Arguments
// are borrowed; results (through an out pointer) are owned by the caller.
// Functions that can fail return 0 on success and never throw; on failure
// `lastError` describes it (valid until the calling thread's next failure).
// Everything here is thread-safe.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_RUNTIME_TORCH_H
#define INTARSIA_RUNTIME_TORCH_H

#include "intarsia/Plan/Plan.h"
#include "intarsia/Runtime/Error.h"

#include <cstdint>
#include <exception>
#include <string>

namespace intarsia::runtime {

struct TensorImpl;   // PyTorch's c10::TensorImpl, opaque here
struct Boxed;        // an owned c10::IValue
struct PreparedCall; // a resolved operator with its boxed constants
class ExprTable;     // compiled expressions: lib/Runtime/ExprTable.h

/// What a slot holds. Trivially copyable; who owns the reference is said where
/// one is passed.
struct Value {
  enum class Kind : uint8_t {
    None,
    Tensor,
    Int,
    Float,
    Bool,
    Boxed,
    Pointer, // memory of the arena; never leaves a program
  };
  Kind kind = Kind::None;
  union {
    TensorImpl *tensor;
    int64_t integer = 0;
    double real;
    bool boolean;
    Boxed *boxed;
    void *pointer;
  };

  static Value of(TensorImpl *tensor) {
    Value value;
    value.kind = Kind::Tensor;
    value.tensor = tensor;
    return value;
  }
  static Value of(int64_t integer) {
    Value value;
    value.kind = Kind::Int;
    value.integer = integer;
    return value;
  }
  static Value of(double real) {
    Value value;
    value.kind = Kind::Float;
    value.real = real;
    return value;
  }
  static Value of(bool boolean) {
    Value value;
    value.kind = Kind::Bool;
    value.integer = 0;
    value.boolean = boolean;
    return value;
  }
  static Value of(Boxed *boxed) {
    Value value;
    value.kind = Kind::Boxed;
    value.boxed = boxed;
    return value;
  }
};

/// The state of one call of one function: read and written by the executor and
/// by the shim. A float symbol holds its bits.
struct Frame {
  Value *slots;
  int64_t *symbols;
};

/// A tensor's metadata. The pointers live as long as the tensor is unchanged.
struct TensorInfo {
  int64_t dim;
  const int64_t *sizes;
  const int64_t *strides; // null when the layout is not strided
  int64_t storageOffset;
  int16_t dtype; // c10::ScalarType's number
  int8_t deviceType;
  int8_t deviceIndex;
  bool strided;  // a plain strided tensor with storage
  bool subclass; // dispatches to Python
  bool lazyBits; // conjugated, negated or zero lazily: the memory is not the
                 // value
};

/// Autocast of one type of device.
struct AutocastState {
  bool enabled = false;
  int16_t dtype = -1;
  bool cache = false;
};

/// Why the last function failed.
struct ShimError {
  ErrorKind kind;
  std::string message;
  std::exception_ptr cause;
};

/// All that `prepareCall` needs to know; borrowed during the call, except
/// `exprs` and `step`, which must outlive the prepared call.
struct CallSite {
  const plan::Step *step;
  /// The operator's record in the plan (schema at compile time); may be null.
  const plan::Operator *record;
  const ExprTable *exprs;
  const std::vector<plan::Symbol> *symbols; // of the function
  bool strict;
  plan::Products products;
  /// Boxes object `index` of the side table as the IValue of the type that the
  /// schema wants (`type`: a `const c10::TypePtr *`). Returns null on failure,
  /// with the reason in *error. May be null when there are no objects.
  Boxed *(*boxObject)(void *context, int64_t index, const void *type,
                      std::string *error);
  void *boxContext;
};

/// Raised with every change of the structures above or of TorchApi.
inline constexpr int32_t torchApiVersion = 12;

struct TorchApi {
  int32_t abiVersion;
  const char *torchVersion; // "2.15.0": what the shim was built for
  /// Null, or why the libtorch of this process cannot be used.
  const char *mismatch;

  /// Whoever throws it takes `cause` out of it: a Python exception must not
  /// stay in a thread's memory until after the interpreter has ended.
  ShimError *(*lastError)();
  /// As `setWarningHandler` of Error.h, for warnings that the shim makes.
  void (*setWarningSink)(void (*warn)(const std::string &message));

  // --- Operators -------------------------------------------------------------

  /// The schema of operator `name` ("ns::op" or "ns::op.overload") as JSON,
  /// null when it is not registered; valid until the calling thread's next
  /// call.
  ///   {"name": "mylib::op.overload",
  ///    "schema": "mylib::op.overload(Tensor x, ...) -> Tensor",
  ///    "arguments": [{"name", "type", "kwarg_only", "alias_set": [..],
  ///                   "is_write", "default": <Argument, absent: none>}],
  ///    "returns":   [{"name", "type", "alias_set", "is_write"}],
  ///    "tags": ["pt2_compliant_tag", ...],
  ///    "debug": "registered at file.cpp:12",
  ///    "defined": "others",       by whose code; or "pytorch", or "anybody":
  ///                               through torch.library
  ///    "fake": "file.cpp:30",     of a C++ Meta kernel; absent: none known
  ///    "has_cpu_kernel": true, "has_cuda_kernel": false,
  ///    "has_meta_kernel": true, "is_composite_implicit": false,
  ///    "foreign": true}           absent: false; of PyTorch's namespace, but
  ///                               the operator, or a kernel, is not PyTorch's
  /// "type" is written without alias annotations, with SymInt where the schema
  /// has it; a default is an Argument of include/intarsia/Import/ImportGraph.h.
  const char *(*operatorSchema)(const char *name);
  /// Overloads of "ns::op", for messages: "ns::op.a, ns::op.b"; "" when none.
  const char *(*operatorOverloads)(const char *qualifiedName);

  /// Resolves the operator, checks its schema against the recorded one, boxes
  /// the constants.
  int (*prepareCall)(const CallSite *site, PreparedCall **out);
  void (*destroyCall)(PreparedCall *call);
  /// Boxes the arguments, calls, checks the results and stores them into the
  /// frame's slots (which must be empty) and symbols.
  int (*runCall)(PreparedCall *call, Frame *frame);
  /// The same with the operator's fake implementation, its kernel for the
  /// device "meta", whatever the devices of its arguments; it is an error if it
  /// has none.
  int (*runFake)(PreparedCall *call, Frame *frame);

  // --- Tensors ---------------------------------------------------------------

  void (*retain)(TensorImpl *tensor);
  void (*release)(TensorImpl *tensor);
  int (*describe)(TensorImpl *tensor, TensorInfo *info);
  /// The first element's address, storage offset included (a copy-on-write
  /// storage is made private first). Null with an error for a tensor without
  /// plain memory; null without one for an empty tensor. Of a lazily conjugated
  /// or negated tensor it is the memory of a copy with the bit resolved, which
  /// the caller owns: *resolved, else null.
  int (*dataPointer)(TensorImpl *tensor, void **out, TensorImpl **resolved);
  /// Identity of the storage, null when it has none.
  const void *(*storage)(TensorImpl *tensor);
  int64_t (*storageUseCount)(TensorImpl *tensor);
  /// Whether the caller's reference is the only one to the tensor and its
  /// storage, and the tensor has these sizes and strides, no lazy bits, and all
  /// of the storage.
  bool (*isHeldOnce)(TensorImpl *tensor, int64_t dim, const int64_t *sizes,
                     const int64_t *strides);
  int64_t (*storageBytes)(TensorImpl *tensor);
  void (*bumpVersion)(TensorImpl *tensor);

  int (*parseDevice)(const char *text, int8_t *type, int8_t *index);
  /// "cuda:0"; valid until the calling thread's next call.
  const char *(*deviceName)(int8_t type, int8_t index);

  int (*emptyStrided)(int16_t dtype, int8_t deviceType, int8_t deviceIndex,
                      int64_t dim, const int64_t *sizes, const int64_t *strides,
                      TensorImpl **out);
  /// A view, without autograd history. Offset in elements.
  int (*asStrided)(TensorImpl *source, int64_t dim, const int64_t *sizes,
                   const int64_t *strides, int64_t offset, TensorImpl **out);
  /// A copy with the same strides (overlapping ones included) and storage
  /// offset.
  int (*clonePreservingStrides)(TensorImpl *source, TensorImpl **out);
  /// Copies elements as `target.copy_(source)`, below autograd, and bumps the
  /// target's version.
  int (*copy)(TensorImpl *target, TensorImpl *source);
  /// `weight` (f32, 2-d, on the CPU) as oneDNN wants it in products of `rows`
  /// rows: a tensor whose layout is opaque.
  int (*packWeight)(TensorImpl *weight, int64_t rows, TensorImpl **out);
  /// torch.stack(tensors, 0).
  int (*stack)(TensorImpl *const *tensors, int64_t count, TensorImpl **out);
  /// The Python number of a one-element tensor.
  int (*item)(TensorImpl *tensor, Value *out);
  /// A tensor over foreign memory; `deleter(context)` runs when it is released.
  int (*fromBlob)(void *data, int64_t bytes, int16_t dtype, int64_t dim,
                  const int64_t *sizes, const int64_t *strides,
                  void (*deleter)(void *context), void *context,
                  TensorImpl **out);
  /// A tensor of `dtype` on `base`'s storage; offset in elements of `dtype`.
  int (*onStorage)(TensorImpl *base, int16_t dtype, int64_t dim,
                   const int64_t *sizes, const int64_t *strides, int64_t offset,
                   TensorImpl **out);
  /// A copy on `device`, or the tensor itself when it is there.
  int (*toDevice)(TensorImpl *tensor, int8_t deviceType, int8_t deviceIndex,
                  TensorImpl **out);

  // --- Boxed values ----------------------------------------------------------

  /// A new reference on the same value.
  Boxed *(*copyBoxed)(const Boxed *boxed);
  void (*releaseBoxed)(Boxed *boxed);
  Boxed *(*boxString)(const std::string &text);
  /// The text of a boxed string, valid as long as it; null for anything else.
  const std::string *(*boxedText)(const Boxed *boxed);

  // --- Threads and modes -----------------------------------------------------

  /// `at::parallel_for` of libtorch's own thread pool. An exception in `body`
  /// is not allowed.
  int (*parallelFor)(int64_t begin, int64_t end, int64_t grain,
                     void (*body)(int64_t begin, int64_t end, void *context),
                     void *context);
  int32_t (*threadCount)();
  void (*setThreadCount)(int32_t count);
  /// Autocast of one type of device, in the calling thread. A dtype of -1 is
  /// the device's own.
  AutocastState (*autocastState)(int8_t deviceType);
  void (*setAutocast)(int8_t deviceType, AutocastState state);
  bool (*gradEnabled)();
  void (*setGradEnabled)(bool enabled);
  /// Shows a range of this name to PyTorch's profilers until `endRecord`. Null,
  /// at no cost, when none is listening. `arguments` fills `count` values,
  /// which it gives away; it is called when a profiler wants to see them.
  void *(*beginRecord)(const char *name, size_t count,
                       void (*arguments)(void *context, Value *out),
                       void *context);
  void (*endRecord)(void *record);
  /// The version counter of a tensor, which counts in-place writes; -1 for an
  /// inference tensor.
  int64_t (*version)(TensorImpl *tensor);
  /// Synchronises the device of `type` when it works asynchronously.
  int (*synchronize)(int8_t deviceType, int8_t deviceIndex);

  // --- Files of torch.save ---------------------------------------------------

  /// Calls `take`, which must not throw, with each tensor of a file, owned: a
  /// tensor or number alone, the members of a list or tuple (name ""), or the
  /// values of a dictionary.
  int (*readPickle)(const char *path,
                    void (*take)(void *context, const char *name,
                                 TensorImpl *tensor),
                    void *context);
  /// Writes a tuple of `count` tensors (null: None) or, if `names` is not null,
  /// of pairs of name and tensor.
  int (*writePickle)(const char *path, const char *const *names,
                     TensorImpl *const *tensors, int64_t count);
};

extern "C" {
/// Null when the shim does not implement `abiVersion`.
typedef const TorchApi *(*TorchApiEntry)(int32_t abiVersion);
const TorchApi *intarsia_torch_api(int32_t abiVersion);
}

/// The table: the shim already in the process, or libIntarsiaTorch.so beside
/// the runtime library (or named by INTARSIA_TORCH_LIBRARY), which brings
/// libtorch with it when that is not loaded yet. Throws Error(Load).
/// Thread-safe, cached.
const TorchApi &torchApi();

/// Loads a library of operators. `path` as the user wrote it. Throws
/// Error(Load) with what to do. Loading one twice is harmless.
void loadOperatorLibrary(const std::string &path);

} // namespace intarsia::runtime

#endif // INTARSIA_RUNTIME_TORCH_H
