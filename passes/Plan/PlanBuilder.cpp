//===- PlanBuilder.cpp - From the dialect to a plan -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements the translation of a module: what functions, kernels, operators
// and weights there are, and in which order they are numbered.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/PlanBuilder.h"
#include "passes/Plan/FunctionPlanner.h"

using namespace mlir;

namespace intarsia {

FailureOr<plan::Plan> buildPlan(ModuleOp module, const PlanOptions &options) {
  return ModulePlanner(module, options).run();
}

func::FuncOp ModulePlanner::findEntry() {
  if (auto main = module.lookupSymbol<func::FuncOp>("main"))
    return main;
  func::FuncOp entry;
  for (func::FuncOp function : module.getOps<func::FuncOp>()) {
    if (function.isPrivate())
      continue;
    if (entry) {
      module.emitError("expected @main or exactly one public function");
      return {};
    }
    entry = function;
  }
  if (!entry)
    module.emitError("there is no public function to run");
  return entry;
}

static plan::ExprId internConstant(plan::Function &function, int64_t value) {
  SymExpr expression(value);
  for (auto [id, known] : llvm::enumerate(function.exprs))
    if (known == expression)
      return id;
  function.exprs.push_back(expression);
  return function.exprs.size() - 1;
}

/// The module's `intarsia.weights`; sizes become expressions of the entry.
LogicalResult ModulePlanner::addWeights(func::FuncOp main) {
  llvm::StringSet<> written;
  for (unsigned i = 0, e = main.getNumArguments(); i != e; ++i)
    if (auto target = main.getArgAttrOfType<StringAttr>(i, "intarsia.target");
        target && main.getArgAttr(i, "intarsia.mutated"))
      written.insert(target.getValue());
  for (const plan::OutputInfo &output : plan.outputs)
    if (output.kind == plan::OutputInfo::Kind::BufferMutation)
      written.insert(output.target);

  auto list = module->getAttrOfType<ArrayAttr>("intarsia.weights");
  if (!list)
    return success();
  plan::Function &entry = plan.functions.front();
  for (Attribute attribute : list) {
    auto entryAttr = dyn_cast<DictionaryAttr>(attribute);
    auto name = entryAttr ? entryAttr.getAs<StringAttr>("name") : StringAttr();
    auto typeAttr = entryAttr ? entryAttr.getAs<TypeAttr>("type") : TypeAttr();
    auto type = typeAttr ? dyn_cast<graph::TensorType>(typeAttr.getValue())
                         : graph::TensorType();
    if (!name || !type)
      return module.emitError("malformed entry of intarsia.weights: ")
             << attribute;
    plan::Weight weight;
    weight.name = name.str();
    weight.spec.dtype = type.getDtype();
    weight.spec.device = type.getDevice().str();
    for (auto [from, to] :
         {std::pair(type.getSizeExprs(), &weight.spec.sizes),
          std::pair(type.getStrideExprs(), &weight.spec.strides)})
      for (const SymExpr &expression : from) {
        std::optional<int64_t> value = expression.asInteger();
        if (!value)
          return module.emitError("the size of weight '")
                 << name.getValue() << "' is not a constant";
        to->push_back(internConstant(entry, *value));
      }
    if (auto record = entryAttr.getAs<StringAttr>("record"))
      weight.record = record.str();
    if (auto object = entryAttr.getAs<IntegerAttr>("object"))
      weight.object = object.getInt();
    if (auto offset = entryAttr.getAs<IntegerAttr>("offset"))
      weight.storageOffset = offset.getInt();
    if (auto source = entryAttr.getAs<StringAttr>("packed_from"))
      weight.packedFrom = source.str();
    if (auto rows = entryAttr.getAs<IntegerAttr>("packed_rows"))
      weight.packedRows = rows.getInt();
    weight.mutated = written.contains(weight.name);
    plan.weights.push_back(std::move(weight));
  }
  return success();
}

FailureOr<plan::Plan> ModulePlanner::run() {
  if (auto list = module->getAttrOfType<ArrayAttr>("intarsia.weights"))
    for (Attribute attribute : list)
      if (auto entry = dyn_cast<DictionaryAttr>(attribute))
        if (auto name = entry.getAs<StringAttr>("name"))
          if (auto type = entry.getAs<TypeAttr>("type"))
            weightTypes[name.getValue()] =
                dyn_cast<graph::TensorType>(type.getValue());

  func::FuncOp entry = findEntry();
  if (!entry)
    return failure();
  plan.strict = options.strict;
  plan.products = options.products;
  if (auto text = module->getAttrOfType<StringAttr>("intarsia.in_spec"))
    plan.inSpec = text.str();
  if (auto text = module->getAttrOfType<StringAttr>("intarsia.out_spec"))
    plan.outSpec = text.str();

  plan.functions.emplace_back(); // the entry is the first
  FunctionPlanner planned(*this, entry, /*isEntry=*/true);
  FailureOr<plan::Function> function = planned.run();
  if (failed(function))
    return failure();
  plan.functions.front() = std::move(*function);
  if (failed(addWeights(entry)))
    return failure();
  return std::move(plan);
}

FailureOr<NestedFunction *> ModulePlanner::nested(FlatSymbolRefAttr name,
                                                  Operation *user) {
  auto known = functions.find(name.getValue());
  if (known != functions.end())
    return &known->second;
  auto function = module.lookupSymbol<func::FuncOp>(name.getValue());
  if (!function || function.isExternal())
    return user->emitError("there is no function ") << name;
  if (!inProgress.insert(name.getValue()).second)
    return user->emitError("function ") << name << " refers to itself";

  FunctionPlanner planned(*this, function, /*isEntry=*/false);
  FailureOr<plan::Function> result = planned.run();
  if (failed(result))
    return failure();
  NestedFunction &signature = functions[name.getValue()];
  signature.index = plan.functions.size();
  signature.weights = planned.weightInputs();
  plan.functions.push_back(std::move(*result));
  return &signature;
}

int32_t ModulePlanner::kernel(StringRef symbol, graph::KernelOp op) {
  auto type = cast<graph::TensorType>(op.getOutputs().front().getType());
  std::string target = type.getDevice().split(':').first.str();
  // Each target has its own names.
  auto [it, isNew] =
      kernels.try_emplace(target + " " + symbol.str(), plan.kernels.size());
  if (isNew) {
    plan::Kernel kernel;
    kernel.symbol = symbol.str();
    for (Attribute name : op.getOps())
      kernel.summary +=
          (kernel.summary.empty() ? "" : ", ") + cast<StringAttr>(name).str();
    kernel.target = target;
    if (auto wide = op.getDecisionsAttr().getAs<DictionaryAttr>("wide"))
      kernel.wideSymbol = wide.getAs<StringAttr>("symbol").str();
    if (auto checks = op.getDecisionsAttr().getAs<ArrayAttr>("checks"))
      for (auto check : checks.getAsRange<DictionaryAttr>())
        kernel.checks.push_back(
            {check.getAs<StringAttr>("text").str(), check.contains("index")});
    plan.kernels.push_back(std::move(kernel));
  }
  return it->second;
}

int32_t ModulePlanner::foreignKernel(plan::Kernel kernel) {
  auto [it, isNew] = kernels.try_emplace(
      "foreign " + kernel.variants.front().module, plan.kernels.size());
  if (isNew)
    plan.kernels.push_back(std::move(kernel));
  return it->second;
}

void ModulePlanner::useOperator(StringRef name, StringRef schema) {
  if (!operators.insert(name).second)
    return;
  plan::Operator used;
  used.name = name.str();
  used.schema = schema.str();
  plan.operators.push_back(std::move(used));
}

} // namespace intarsia
