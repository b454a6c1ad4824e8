//===- Plan.h - The host program as data --------------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the compiler emits for the host: a list of steps over numbered value
// slots and symbols, that the runtime executes. It is plain data: it can be
// printed (`print`), shipped (`toJson`) and profiled step by step. Neither
// MLIR nor torch is needed to read it.
//
// A *slot* holds a tensor (reference-counted, PyTorch's own), a number, a list
// or nothing. A *symbol* holds the int64 value of a symbolic size (or the
// double of a symbolic float). An expression is an index into
// `Function::exprs`.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PLAN_PLAN_H
#define INTARSIA_PLAN_PLAN_H

#include "intarsia/Support/DType.h"
#include "intarsia/Support/SymExpr.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::plan {

using Slot = int32_t;   // -1: none
using ExprId = int32_t; // index into Function::exprs; -1: none

/// What a tensor is promised to be. Expression ids.
struct TensorSpec {
  DType dtype = DType::F32;
  std::string device = "cpu";
  std::vector<ExprId> sizes;
  std::vector<ExprId> strides;
};

/// An argument of a call: a constant, a slot, an expression or a list.
struct Arg {
  enum class Kind {
    None,
    Slot,
    Expr, // a symbolic number: its value is boxed as int, float or bool
    Int,
    Float,
    Bool,
    String,
    Complex,
    DType,
    Device,
    Layout,
    MemoryFormat,
    List,
    Object,   // index in the program's side table of boxed values
    View,     // a view of `slot`: sizes, strides and offset by expression
    Function, // a nested plan, by name (control flow)
  };
  Kind kind = Kind::None;
  Slot slot = -1;
  ExprId expr = -1;
  int64_t integer = 0;
  double real = 0, imaginary = 0;
  bool boolean = false;
  std::string text;
  DType dtype = DType::F32;
  std::vector<Arg> list;
  std::vector<ExprId> sizes, strides; // View
  ExprId offset = -1; // View: in elements, from `slot`'s first element
};

/// Where one return value of a call goes, and what it is promised to be.
struct Result {
  enum class Kind {
    Ignore, // not used by anybody; still checked when `spec` is set
    Tensor, // into `slot`; checked against `spec`
    Number, // int, float or bool into `slot`
    List,   // `list`, one a member; the length is checked
    None,   // the fake returned None
    Tied,   // the operator returns an argument that it mutated: dropped
  };
  Kind kind = Kind::Ignore;
  Slot slot = -1;
  std::optional<TensorSpec> spec;
  std::vector<Result> list;
  /// An unbacked symbol that this result defines: a number's value, a tensor's
  /// storage offset.
  int32_t bindsSymbol = -1;
  /// A number: what the fake said it is, which the program was traced with;
  /// checked.
  ExprId expect = -1;
  /// Unbacked symbols that the size (or stride) of a dimension defines:
  /// (symbol, dimension).
  std::vector<std::pair<int32_t, int32_t>> bindsSize, bindsStride;
};

struct Step {
  enum class Kind {
    Call,   // `op` with `args` into `results`
    Alloc,  // a new tensor by `spec` into `slot`; or `source`'s, if nobody else
            // holds it and it has these sizes and strides
    Launch, // kernel `kernel` over `buffers`
    LaunchForeign, // the user's own compiled kernel `kernel` with `args`
    View,   // `slot` = as_strided(`source`, spec.sizes, spec.strides, offset)
    Clone,  // `slot` = a copy of `source`, with the same strides and storage
            // offset
    Copy,   // copy `source`'s elements into `slot`'s tensor (copy_)
    Move,   // `slot` = `source` (another reference)
    Free,   // drop the references in `slots`
    Cond,   // results = pred ? functions[0](args) : functions[1](args)
    While,  // carried values; functions[0] = condition, functions[1] = body
    Invoke, // functions[0](args)
    Map,  // functions[0] over the leading dimension of the first `carried` args
    Scan, // functions[0] with `carried` initial values, then `scanned` inputs
          // (one slice of the leading dimension each), then the rest whole;
          // results: the carried values, then the stacked others
    Python,   // a side-table callable with `args` (never in an artifact)
    SetGrad,  // grad mode := `flag`, until this function returns
    Autocast, // autocast of device type `text` := `flag`, with the dtype
              // `args[0]` (none: the device's own), until this function returns
    Assert,   // expression `expr` must be true, else error `text`: of kind
              // Guard, or Index if `flag`
  };
  Kind kind = Kind::Call;

  std::string op;        // Call: "aten::add.Tensor"
  std::vector<Arg> args; // Call, Cond, While, Invoke, Map, Scan, Python,
                         // Autocast
  std::vector<Result> results;
  /// Call: slots whose tensor the operator writes (version counters are bumped
  /// when nobody else does it).
  std::vector<Slot> mutates;
  /// Call: outputs are checked for undeclared aliases of inputs.
  bool checkAlias = false;
  /// Call: the autocast that the kernel runs under, "cpu=bf16,cuda=f16", as it
  /// was on at this place of the traced program; "": none.
  std::string autocast;
  /// Call: a result whose strides differ from its spec is copied into the
  /// promised layout; `strict` programs make it an error.
  bool fixStrides = true;

  Slot slot = -1, source = -1;
  std::optional<TensorSpec> spec; // Alloc, View
  ExprId offset = -1; // View: in elements from `source`'s first element;
                      // Alloc: byte offset in the arena, -1: a real tensor

  int32_t kernel = -1;         // Launch: index into Plan::kernels
  std::vector<Slot> buffers;   // Launch: kernel arguments in order
  std::vector<ExprId> symbols; // Launch: the kernel's `index` arguments in
                               // order; LaunchForeign: blocks along x, y and z
  ExprId domain = -1;          // Launch: iterations of the parallel loop
  ExprId grain = -1;           // Launch: fewest iterations worth a thread
  ExprId scratch = -1;         // Launch: bytes of scratch memory a thread needs
  /// Launch on a GPU: threads of a block, blocks (-1: as many as `domain`
  /// needs, one iteration a thread) and bytes of dynamic shared memory a block.
  ExprId threads = -1, blocks = -1, shared = -1;
  /// Launch on a GPU: above 2147483647, the kernel's entry for wide positions
  /// is launched in the place of the other.
  ExprId extent = -1;
  /// Launch: positions in `buffers`. The kernel must not write `written` where
  /// its memory overlaps that of `other`, which the caller decides: then it
  /// writes a new tensor, which is copied afterwards. `orSame`: it may where
  /// both begin at the same address.
  struct Apart {
    int32_t written = -1, other = -1;
    bool orSame = false;
  };
  std::vector<Apart> apart;

  std::vector<Slot> slots;            // Free
  std::vector<std::string> functions; // Cond, While, Invoke, Map, Scan
  int32_t carried = 0;                // While, Map, Scan
  int32_t scanned = 0;                // Scan
  int64_t object = -1;                // Python
  bool flag = false; // SetGrad, Autocast; Call: autocast acts on it
  ExprId expr = -1;  // Assert
  std::string text;  // Assert, Autocast
  /// The user's source line, "file.py:12 in forward: y = f(x)"; "" when
  /// unknown.
  std::string location;
};

inline bool isLaunch(const Step &step) {
  return step.kind == Step::Kind::Launch ||
         step.kind == Step::Kind::LaunchForeign;
}

struct Input {
  std::string name; // as the user or the exporter calls it
  Slot slot = -1;
  enum class Kind {
    Tensor,
    SymInt,
    SymFloat,
    SymBool,
    Constant,
    Object,
    None
  } kind = Kind::Tensor;
  std::optional<TensorSpec>
      spec; // Tensor: checked; a size that is a bare, unbound symbol binds it
  int32_t symbol =
      -1; // SymInt, SymFloat: the symbol it binds, -1: checked against `expr`
  ExprId expr = -1;
  Arg constant; // Constant: what export fixed; another value is an error
  /// Offline: a parameter, buffer or constant by name; the user does not pass
  /// it.
  std::string weight;
  /// Strides are part of the guard (reader B); else an input with other
  /// strides is copied into the expected layout.
  bool checkStrides = false;
  /// The program writes it, so a copy into the expected layout is copied back.
  bool mutated = false;
};

struct Symbol {
  std::string name;
  bool isFloat = false;
  std::optional<int64_t> min, max; // enforced at entry
};

/// A condition on the inputs, enforced at entry.
struct Guard {
  ExprId expr = -1;
  std::string text; // as the exporter wrote it
};

struct Function {
  std::string name;
  std::vector<SymExpr> exprs;
  std::vector<Symbol> symbols; // a SymExpr names its symbol; the index is here
  std::vector<Input> inputs;
  std::vector<Guard> guards;
  std::vector<Step> steps;
  std::vector<Arg> outputs; // Slot, Expr, None or constants
  int32_t slotCount = 0;
  ExprId arenaSize = -1; // bytes; -1: no arena
};

/// Something that a kernel finds out of the values that it reads.
struct Check {
  /// "aten::index: index {index} is out of bounds for dimension 0 with size
  /// {size}"
  std::string text;
  /// An IndexError; any other is a RuntimeError in eager, too.
  bool isIndex = false;
};

struct Kernel {
  std::string symbol; // the C name in the shared object
  /// The operators that were fused into it, for profiles: "aten::add.Tensor,
  /// ...".
  std::string summary;
  std::string target; // "cpu" or "cuda"
  /// The kernel's run-time checks, in the order of their numbers.
  std::vector<Check> checks;
  /// On a GPU: the same with positions of 64 bits; "" when `symbol` is right
  /// for all sizes.
  std::string wideSymbol = {};
  /// A kernel that is not ours, for LaunchForeign: what its compiler made of it
  /// for different arguments. The first one that fits those of a launch runs.
  struct Variant {
    std::string module; // which images have its code (CudaImage::module)
    std::string symbol;
    int64_t threads = 0; // of a block
    /// What it takes for each argument. A pointer "*", a number "i8" to "i64",
    /// "u1" to "u64", "f32" or "f64"; "/16": only multiples of 16; "": not
    /// passed, the code has this argument's value.
    std::vector<std::string> parameters;
    int64_t scratch = 0; // null pointers after the parameters
  };
  std::vector<Variant> variants = {};
};

/// An operator that the plan calls, with its schema at compile time.
struct Operator {
  std::string name;   // "mylib::op.overload"
  std::string schema; // as PyTorch prints it
  /// From where the fake implementation comes, "file.py:10"; "" when unknown.
  std::string fakeLocation;
  /// Registered by Python code: it exists in Python processes alone.
  bool fromPython = false;
  /// In PyTorch's own namespace, but the operator, or a kernel of it, was
  /// somebody else's when the plan was made.
  bool isForeign = false;
};

struct Weight {
  std::string name; // fully qualified name
  TensorSpec spec;  // expressions of the main function; constant
  std::string record;
  int64_t object = -1;
  int64_t storageOffset = 0; // elements
  bool mutated = false;      // each instance gets a private copy
  /// Another weight, which stands before it and which oneDNN lays out for this
  /// one when the file is loaded, for products of `packedRows` rows; "": none.
  std::string packedFrom;
  int64_t packedRows = 0;
};

struct OutputInfo {
  enum class Kind { User, BufferMutation, InputMutation } kind = Kind::User;
  std::string target; // buffer or input name
};

/// Whose library computes products of float32 matrices on the CPU: the faster
/// one of the processor that runs the program, eager's, or oneDNN wherever that
/// can be.
enum class Products { Auto, Eager, OneDNN };
/// "auto", "eager" or "onednn"; none for another name.
std::optional<Products> productsFromName(std::string_view name);

struct Plan {
  std::vector<Function> functions; // functions[0] is the entry
  std::vector<Kernel> kernels;
  std::vector<Operator> operators;
  std::vector<Weight> weights;
  std::vector<OutputInfo> outputs; // parallel to functions[0].outputs
  std::string inSpec, outSpec;
  bool strict = false;
  Products products = Products::Auto;
};

/// Throws std::runtime_error with a message naming the field on malformed text.
std::string toJson(const Plan &plan);
Plan fromJson(const std::string &json);
/// A readable listing, one line a step.
std::string print(const Plan &plan);

} // namespace intarsia::plan

#endif // INTARSIA_PLAN_PLAN_H
