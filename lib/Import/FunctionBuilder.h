//===- FunctionBuilder.h - A graph as a function ------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Private to the importer: what buildModule is made of. ModuleBuilder holds
// what the functions of a module share; FunctionBuilder turns one graph into
// one function, node by node.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_IMPORT_FUNCTIONBUILDER_H
#define INTARSIA_LIB_IMPORT_FUNCTIONBUILDER_H

#include "HigherOrder.h"
#include "dialects/Graph/Graph.h"
#include "intarsia/Import/Import.h"
#include "intarsia/Import/OperatorFacts.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

#include <set>
#include <stdexcept>

namespace intarsia::importer {

/// The message names the operator and the user's source line.
class BuildError : public std::runtime_error {
public:
  explicit BuildError(const llvm::Twine &message)
      : std::runtime_error(message.str()) {}
};

using SymbolSet = std::set<std::string>;

class ModuleBuilder {
public:
  ModuleBuilder(const Program &program, mlir::MLIRContext *context,
                const SchemaProvider &schemas);
  mlir::OwningOpRef<mlir::ModuleOp> build();

  /// The schema of a registered operator; throws BuildError with the remedy.
  const OperatorSchema &schema(const std::string &name);

  /// The private function of a subgraph, built at its first use. `outerScope`:
  /// the symbols of the function that uses it.
  mlir::FlatSymbolRefAttr subgraph(const std::string &name,
                                   const SymbolSet &outerScope);
  /// The symbols that a subgraph uses and none of its inputs or nodes defines.
  /// Its function takes them as trailing arguments.
  const std::vector<std::string> &capturedSymbols(const std::string &name,
                                                  const SymbolSet &outerScope);
  /// Fixes them before the function is built: all subgraphs of one call take
  /// the same.
  void setCapturedSymbols(const std::string &name,
                          std::vector<std::string> symbols);
  bool isBuilt(const std::string &name) const {
    return functions.count(name) != 0;
  }

  const Program &program;
  mlir::MLIRContext *context;

private:
  const SchemaProvider &schemas;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::map<std::string, std::optional<OperatorSchema>> schemaCache;
  std::map<std::string, mlir::func::FuncOp> functions;
  std::map<std::string, std::vector<std::string>> captured;
  std::set<std::string> beingBuilt;
};

class FunctionBuilder {
public:
  /// `symbols`: those captured from outside, as trailing arguments.
  FunctionBuilder(ModuleBuilder &module, const Graph &source, bool isMain,
                  std::vector<std::string> symbols);
  mlir::func::FuncOp build(llvm::StringRef name,
                           mlir::OpBuilder &moduleBuilder);

private:
  /// What a name of the graph means.
  struct Binding {
    mlir::Value value;           // tensors, objects, tokens
    std::optional<SymExpr> expr; // symbolic numbers
    ValueMeta::Kind kind = ValueMeta::Kind::None;
  };

  /// A call under construction.
  struct Call {
    std::string callee;
    const OperatorSchema *schema = nullptr; // null: higher-order
    OperatorFacts facts;
    llvm::SmallVector<mlir::Value> operands;
    llvm::DenseMap<mlir::Value, int64_t> operandIndex;
    llvm::SmallVector<mlir::Attribute> args, argNames;
    llvm::SmallVector<int64_t> mutates;
    /// What a higher-order call writes, which no schema says.
    llvm::SmallVector<mlir::Value> written;
    bool effectful = false;
  };

  /// What a mutating call leaves behind.
  struct CallResults {
    graph::CallOp op;
    /// Operand number -> its base's new value.
    llvm::DenseMap<int64_t, mlir::Value> updated;
  };

  // FunctionBuilder.cpp
  void addArguments();
  void buildNode(const Node &node);
  void buildReturn();
  void addArgumentAttributes();
  void addSymbolAttributes();
  void addGuards();

  // Preconditions.cpp
  void addPreconditions(graph::CallOp call);
  /// Asserts the condition at the inserter's place, unless it is true anyway.
  void demand(mlir::OpBuilder &inserter, mlir::Location place,
              const SymExpr &condition, const llvm::Twine &message,
              bool isIndexError);
  void demandLess(mlir::OpBuilder &inserter, mlir::Location place,
                  const SymExpr &lhs, const SymExpr &rhs,
                  const llvm::Twine &message, bool isIndexError);
  std::optional<int64_t> lowerBound(const SymExpr &expr) const;

  // CallBuilder.cpp
  bool buildSpecial(const Node &node);
  void buildOperator(const Node &node);
  void buildHigherOrder(const Node &node, const std::string &target,
                        const NamedArguments &arguments,
                        llvm::ArrayRef<Output> outputs, bool effectful);
  void
  beginHigherOrder(Call &call, const Node &node, const std::string &target,
                   const NamedArguments &arguments,
                   const std::map<std::string, mlir::Attribute> &given = {});
  void buildWithEffects(const Node &node);
  /// Names the arguments by the schema, fills in defaults, converts them.
  /// `given`: arguments that are converted already.
  void beginCall(Call &call, const std::string &target,
                 const NamedArguments &arguments,
                 const std::map<std::string, mlir::Attribute> &given = {});
  void numberOperands(Call &call);
  /// Without `returnAttrs`, each output in turn is what the operator returns.
  graph::CallOp createCall(const Call &call, mlir::TypeRange outputTypes,
                           llvm::ArrayRef<mlir::Attribute> returnAttrs = {},
                           llvm::ArrayRef<int64_t> views = {},
                           llvm::ArrayRef<mlir::Attribute> binds = {});
  void addArgument(Call &call, llvm::StringRef name, mlir::Attribute value);
  void addNumbers(graph::CallOp op, llvm::ArrayRef<const Output *> outputs);
  /// Creates the call. `outputs` are bound to their names.
  CallResults finishCall(Call &call, const Node &node,
                         llvm::ArrayRef<Output> outputs);
  void bindSymbols(Call &call, const Node &node, llvm::ArrayRef<Output> outputs,
                   llvm::ArrayRef<const Output *> values,
                   llvm::SmallVectorImpl<mlir::Attribute> &binds);
  void forwardUpdates(CallResults &results);

  // AutoFunctionalized.cpp
  void buildAutoFunctionalized(const Node &node, bool isSecondVersion);
  void buildMutatingControlFlow(const Node &node, const std::string &target,
                                const NamedArguments &encoded);
  void bindBases(const Call &call, const CallResults &results,
                 llvm::ArrayRef<Output> news, llvm::ArrayRef<Argument> bases);
  mlir::Attribute viewOfBase(Call &call, const NamedArguments &arguments,
                             const std::string &prefix,
                             llvm::ArrayRef<Argument> bases);
  mlir::Value emptyStrided(const NamedArguments &arguments,
                           const std::string &name);

  // Values.cpp
  mlir::Attribute convert(Call &call, const Argument &argument,
                          llvm::StringRef type);
  mlir::Attribute operand(Call &call, mlir::Value value);
  mlir::Attribute number(Call &call, const SymExpr &expr, ValueMeta::Kind kind);
  mlir::Value sizeValue(const SymExpr &expr, ValueMeta::Kind kind);
  SymExpr exprOf(const Argument &argument);
  std::vector<SymExpr> exprsOf(const Argument &argument);
  mlir::Value valueOf(const Argument &argument);
  const Binding &lookup(const std::string &name);
  void bind(const std::string &name, Binding binding);
  /// The value after all in-place writes so far.
  mlir::Value latest(mlir::Value value) const;
  const ValueMeta &metaOf(const std::string &name) const;
  mlir::Type typeOf(const ValueMeta &meta);
  void useSymbols(const SymExpr &expr);

  ModuleBuilder &module;
  const Program &program;
  const Graph &source;
  bool isMain;
  std::vector<std::string> captured;
  mlir::OpBuilder builder;
  mlir::Location location;
  mlir::func::FuncOp function;

  std::map<std::string, Binding> bindings;
  /// Symbols that have a value here.
  SymbolSet scope;
  /// In-place writes: old value -> new value.
  llvm::DenseMap<mlir::Value, mlir::Value> updates;
  std::map<std::pair<std::string, int>, mlir::Value> sizes;
};

/// An attribute for a constant; null when the argument is none.
mlir::Attribute constantAttribute(const Argument &argument,
                                  llvm::StringRef type,
                                  mlir::MLIRContext *context);

} // namespace intarsia::importer

#endif // INTARSIA_LIB_IMPORT_FUNCTIONBUILDER_H
