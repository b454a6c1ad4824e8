//===- FunctionPlanner.h - The plan of one function ---------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Private to the plan builder: what is shared by the translation of ordinary
// operations (FunctionPlanner.cpp), of higher-order calls (ControlFlow.cpp) and
// of memory (Memory.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_PLAN_FUNCTIONPLANNER_H
#define INTARSIA_PASSES_PLAN_FUNCTIONPLANNER_H

#include "dialects/Graph/Graph.h"
#include "passes/Plan/PlanBuilder.h"
#include "passes/Plan/Storage.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <set>

namespace intarsia {

/// A function that higher-order calls refer to.
struct NestedFunction {
  int32_t index = -1; // in Plan::functions
  /// Constants that a caller passes after the function's own arguments.
  std::vector<std::string> weights;
  bool used = false; // by a step that is finished
};

/// The state of the whole translation.
class ModulePlanner {
public:
  ModulePlanner(mlir::ModuleOp module, const PlanOptions &options)
      : module(module), options(options) {}

  mlir::FailureOr<plan::Plan> run();

  /// The plan of a function that `user` refers to, made when it is first
  /// needed.
  mlir::FailureOr<NestedFunction *> nested(mlir::FlatSymbolRefAttr name,
                                           mlir::Operation *user);
  int32_t kernel(llvm::StringRef symbol, graph::KernelOp op);
  int32_t foreignKernel(plan::Kernel kernel);
  void useOperator(llvm::StringRef name, llvm::StringRef schema);
  /// The type of a constant that the module carries; null when it has none of
  /// the name.
  graph::TensorType weightType(llvm::StringRef name) const {
    return weightTypes.lookup(name);
  }

  mlir::ModuleOp module;
  const PlanOptions &options;
  plan::Plan plan;

private:
  mlir::func::FuncOp findEntry();
  mlir::LogicalResult addWeights(mlir::func::FuncOp main);

  llvm::StringMap<graph::TensorType> weightTypes;
  llvm::StringMap<NestedFunction> functions;
  llvm::StringSet<> inProgress;
  llvm::StringMap<int32_t> kernels;
  llvm::StringSet<> operators;
};

/// Translates one function.
class FunctionPlanner {
public:
  FunctionPlanner(ModulePlanner &planner, mlir::func::FuncOp function,
                  bool isEntry);

  mlir::FailureOr<plan::Function> run();
  /// The constants among the inputs that `run` appended.
  const std::vector<std::string> &weightInputs() const { return weightNames; }

private:
  using Kind = plan::Step::Kind;

  // --- FunctionPlanner.cpp: values and expressions ---
  plan::ExprId expr(const SymExpr &expression);
  int32_t symbol(const std::string &name);
  plan::TensorSpec spec(graph::TensorType type);
  plan::Slot newSlot() { return out.slotCount++; }
  /// The slot of a tensor or object. A view is made when it is first asked for.
  plan::Slot slotOf(mlir::Value value);
  plan::Arg argOf(mlir::Value value);
  plan::Arg constant(mlir::Attribute attribute);
  plan::Step newStep(Kind kind, mlir::Location location);

  // --- FunctionPlanner.cpp: operations ---
  mlir::LogicalResult planInputs();
  mlir::LogicalResult planInput(mlir::BlockArgument argument);
  mlir::LogicalResult planOperation(mlir::Operation &op);
  mlir::LogicalResult planCall(graph::CallOp call);
  bool planView(graph::CallOp call);
  void planUpdate(graph::CallOp call);
  bool planCopyOfPart(graph::CallOp call);
  void planCopy(mlir::Location location, mlir::Value base, mlir::Value source,
                llvm::ArrayRef<SymExpr> sizes, llvm::ArrayRef<SymExpr> strides,
                const SymExpr &offset);
  mlir::LogicalResult planKernel(graph::KernelOp kernel);
  mlir::LogicalResult planReturn(mlir::func::ReturnOp op);
  mlir::LogicalResult planGuards();
  /// Clones the bases that may not be written in place and fills `mutates`;
  /// `replaced` maps operand numbers to the slots that take their place.
  void prepareMutation(graph::CallOp call, plan::Step &planned,
                       llvm::DenseMap<int64_t, plan::Slot> &replaced);
  /// Copies operands into the layout that the operator's tags demand.
  void prepareLayouts(graph::CallOp call,
                      llvm::DenseMap<int64_t, plan::Slot> &replaced);
  plan::Arg argument(graph::CallOp call, mlir::Attribute attribute,
                     const llvm::DenseMap<int64_t, plan::Slot> &replaced);
  void results(graph::CallOp call, plan::Step &planned);
  plan::Result result(graph::CallOp call, mlir::Attribute attribute);
  plan::Slot copyInto(plan::Slot source, plan::TensorSpec spec,
                      mlir::Location location);
  /// The slot of a constant that the program carries: one more input.
  plan::Slot weightInput(const std::string &name);

  // --- ForeignKernels.cpp ---
  mlir::LogicalResult planForeignLaunch(graph::CallOp call);

  // --- ControlFlow.cpp ---
  mlir::LogicalResult planHigherOrder(graph::CallOp call);
  mlir::LogicalResult
  useFunctions(graph::CallOp call,
               llvm::ArrayRef<mlir::FlatSymbolRefAttr> names, plan::Step &step);
  plan::Function &bodyOf(mlir::FlatSymbolRefAttr name);
  mlir::LogicalResult setAutocast(graph::CallOp call,
                                  mlir::FlatSymbolRefAttr name,
                                  llvm::ArrayRef<plan::Arg> arguments);
  mlir::LogicalResult setGradMode(graph::CallOp call,
                                  mlir::FlatSymbolRefAttr name, bool enabled);

  // --- Symbols.cpp ---
  /// Binds what is used and not bound, by solving an input's size for it.
  mlir::LogicalResult bindSymbols();
  bool solve(std::string name, bool anyFactor);
  bool solveProduct();

  // --- Memory.cpp ---
  /// Whether a kernel's result is seen by kernels alone.
  bool belongsInArena(mlir::Value value);
  void planArena();
  void insertFrees();

  ModulePlanner &planner;
  mlir::func::FuncOp function;
  bool isEntry;
  Storage storage;
  plan::Function out;

  llvm::DenseMap<mlir::Value, plan::Slot> slots;
  /// Views that the plan makes, as views of what is none.
  struct PendingView {
    mlir::Value source;
    SymExpr offset; // in elements, from the source's first
  };
  llvm::DenseMap<mlir::Value, PendingView> viewsOf;
  /// Numbers, as the argument that stands for them.
  llvm::DenseMap<mlir::Value, plan::Arg> numbers;
  std::map<std::string, plan::ExprId> exprIds; // by canonical text
  std::map<std::string, int32_t> symbolIds;
  std::set<std::string> boundSymbols;
  /// Dimensions of inputs, to solve for symbols.
  struct InputSize {
    size_t input;
    size_t dimension;
    SymExpr size;
  };
  std::vector<InputSize> inputSizes;
  std::map<std::string, plan::Slot> weightSlots;
  std::vector<std::string> weightNames; // in the order of their inputs
  llvm::DenseMap<plan::Slot, graph::TensorType> arenaSlots;
};

} // namespace intarsia

#endif // INTARSIA_PASSES_PLAN_FUNCTIONPLANNER_H
