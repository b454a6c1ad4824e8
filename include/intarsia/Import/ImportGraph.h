//===- ImportGraph.h - What both readers make ---------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The plain data between the two readers (A: `.pt2` archives, B: AOTAutograd
// fx graphs, handed over by the Python front door as JSON) and the one builder
// that turns it into the intarsia dialect. No MLIR and no torch here.
//
// Reader B's JSON has one object a struct, with the field names below
// (lowerCamelCase), enums as their lower-case names, absent optionals left
// out, SymExpr as sympy srepr text (or a JSON integer), and an Argument as
// {"kind": ..., "value": ...}. A float that JSON cannot hold is the string
// "inf", "-inf" or "nan".
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_IMPORT_IMPORTGRAPH_H
#define INTARSIA_IMPORT_IMPORTGRAPH_H

#include "intarsia/Support/DType.h"
#include "intarsia/Support/SymExpr.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace intarsia::importer {

/// A launch of a kernel that another compiler made, as the Python front end
/// writes it (python/intarsia/_triton.py):
///
///   intarsia::launch_kernel(str kernel, SymInt[] grid, Tensor[] written,
///       Tensor[] read, SymInt[] integers, float[] floats) -> Tensor[]
///
/// It returns the new values of `written`. `kernel` is JSON: {"name", "source",
/// "order": for each argument of the kernel the list it is in and its place
/// there, "written:0"; "variants": [{"module", "symbol", "threads",
/// "parameters", "scratch" as plan::Kernel::Variant has them, "images":
/// [{"arch", "shared", "ptx": whether it is, "code": in base64}]}]}.
inline constexpr const char *launchKernelOperator = "intarsia::launch_kernel";

struct TensorMeta {
  DType dtype = DType::F32;
  std::string device = "cpu"; // "cpu", "cuda:0", "meta"
  std::vector<SymExpr> sizes;
  std::vector<SymExpr> strides; // in elements
  SymExpr storageOffset;
  bool requiresGrad = false;
};

/// What one value is: exactly one of a tensor, a symbolic number or nothing.
struct ValueMeta {
  enum class Kind { Tensor, SymInt, SymFloat, SymBool, Object, None };
  Kind kind = Kind::None;
  TensorMeta tensor;   // Tensor
  SymExpr expr;        // SymInt, SymFloat, SymBool
  int64_t object = -1; // Object: index in the side table
};

struct Argument {
  enum class Kind {
    None,
    Value,  // a value of the graph, by name
    SymInt, // an inline symbolic number: `expr`
    SymFloat,
    SymBool,
    Int,
    Float,
    Bool,
    String,
    Complex,
    DType,
    Device,
    Layout,       // "strided", "sparse_coo", ... in `text`
    MemoryFormat, // "contiguous_format", "channels_last", ... in `text`
    List,
    Graph,    // a subgraph, by its name in Program::graphs
    Operator, // "ns::name.overload"
    Object,   // what cannot be data: index in the side table (Generator, ...)
  };
  Kind kind = Kind::None;
  std::string
      text; // Value, String, Device, Layout, MemoryFormat, Graph, Operator
  SymExpr expr;
  int64_t integer = 0; // Int, Object
  double real = 0;     // Float; real part of Complex
  double imaginary = 0;
  bool boolean = false;
  DType dtype = DType::F32;
  std::vector<Argument> list;
};

/// One result of a node as the operator's schema returns it.
struct Output {
  enum class Kind { Value, List, None };
  Kind kind = Kind::None;
  std::string name;         // Value; may be unused in the graph
  std::vector<Output> list; // List
};

struct SourceLocation {
  std::string file;
  int64_t line = 0;
  std::string function;
  std::string code; // the text of the line, when known
};

struct Node {
  std::string name;
  /// "aten::add.Tensor", "mylib::op" (the default overload has no suffix),
  /// "higher_order::cond", "_operator::mul" (Python arithmetic on SymInts).
  std::string target;
  /// Positional arguments have an empty name until the schema names them.
  std::vector<std::pair<std::string, Argument>> args;
  std::vector<Output> outputs;
  /// The strides that the traced program had for each tensor argument
  /// (`eager_input_vals`), by the tensor's place among the flattened tensor
  /// arguments; empty when unknown.
  std::vector<std::vector<SymExpr>> eagerStrides;
  /// Of a custom operator: the autocast that eager had on around it,
  /// "cpu=bf16,cuda=f16"; "" when none. Its own casts are in the graph already;
  /// what its kernel calls is cast at run time.
  std::string autocast;
  /// symbol -> where it is bound: output index, then a path such as
  /// "size:0", "stride:1", "offset" or "value".
  std::vector<std::tuple<std::string, int64_t, std::string>> unbackedBindings;
  std::vector<SourceLocation> stack; // innermost last
  std::string module; // innermost nn.Module path, "" when unknown
};

struct Graph {
  std::string name;
  std::vector<std::string> inputs;
  std::vector<Node> nodes;
  std::vector<Argument> outputs;
  std::map<std::string, ValueMeta> values;
};

struct InputSpec {
  enum class Kind {
    UserInput,
    Parameter,
    Buffer,
    Constant,
    Object,
    Token,
    ConstantInput
  };
  Kind kind = Kind::UserInput;
  std::string name;   // the graph input's name
  std::string target; // fully qualified name of a parameter, buffer, constant
  bool persistent = true;
  bool isStatic =
      false;         // reader B: a parameter or buffer that keeps its address
  Argument constant; // ConstantInput: the value export fixed
};

struct OutputSpec {
  enum class Kind {
    UserOutput,
    BufferMutation,
    InputMutation,
    ParameterMutation,
    Token,
    Loss,
    Gradient
  };
  Kind kind = Kind::UserOutput;
  std::string target; // the input or buffer that is mutated
  /// Reader B: its strides are visible to the user.
  bool userVisible = true;
};

/// The bytes of a parameter, buffer or lifted constant.
struct Weight {
  std::string target; // as InputSpec::target
  TensorMeta meta;
  std::string record;  // the archive's record (reader A), "" for reader B
  int64_t object = -1; // reader B: side table index
  bool isParameter = false;
};

struct RangeConstraint {
  std::string symbol;
  std::optional<int64_t> min, max;
};

struct Program {
  Graph graph;
  std::map<std::string, Graph> graphs; // subgraphs, by name
  std::vector<InputSpec> inputs;       // parallel to graph.inputs
  std::vector<OutputSpec> outputs;     // parallel to graph.outputs
  std::vector<Weight> weights;
  std::vector<RangeConstraint> ranges;
  std::vector<std::string> guards; // Python texts (reader A)
  /// Training IR: views and in-place operators are still in the graph and mean
  /// what they mean in eager.
  bool functional = true;
  std::string inSpec, outSpec; // pytree specs as export writes them
  /// The names of forward's arguments, in the order of inSpec's (reader A): by
  /// them guards refer to inputs.
  std::vector<std::string> argumentNames;
  std::string torchVersion;
};

} // namespace intarsia::importer

#endif // INTARSIA_IMPORT_IMPORTGRAPH_H
