//===- ForeignKernels.cpp - Launches of other compilers' kernels ----------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The steps of `intarsia::launch_kernel` (include/intarsia/Import/ImportGraph.h
// has the form): a kernel of the user's that Triton compiled.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/FunctionPlanner.h"

#include "intarsia/Import/ImportGraph.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

using namespace mlir;

namespace intarsia {

namespace {
struct Description {
  plan::Kernel kernel;
  std::vector<std::string> order;
};
} // namespace

static bool fromJSON(const llvm::json::Value &value,
                     plan::Kernel::Variant &variant, llvm::json::Path path) {
  llvm::json::ObjectMapper map(value, path);
  return map && map.map("module", variant.module) &&
         map.map("symbol", variant.symbol) &&
         map.map("threads", variant.threads) &&
         map.map("parameters", variant.parameters) &&
         map.map("scratch", variant.scratch);
}

static bool fromJSON(const llvm::json::Value &value, Description &description,
                     llvm::json::Path path) {
  llvm::json::ObjectMapper map(value, path);
  plan::Kernel &kernel = description.kernel;
  kernel.target = "cuda";
  std::vector<plan::Kernel::Variant> variants;
  if (!map || !map.map("name", kernel.symbol) ||
      !map.map("source", kernel.summary) ||
      !map.map("order", description.order))
    return false;
  const llvm::json::Array *list = value.getAsObject()->getArray("variants");
  if (!list || list->empty()) {
    path.field("variants").report("expected a variant");
    return false;
  }
  for (auto [index, entry] : llvm::enumerate(*list))
    if (!fromJSON(entry, kernel.variants.emplace_back(),
                  path.field("variants").index(index)))
      return false;
  return true;
}

LogicalResult FunctionPlanner::planForeignLaunch(graph::CallOp call) {
  Description description;
  llvm::json::Path::Root root("kernel");
  llvm::Expected<llvm::json::Value> json =
      llvm::json::parse(call.stringArg("kernel").value_or(""));
  if (!json || !fromJSON(*json, description, root)) {
    std::string reason =
        llvm::toString(json ? root.getError() : json.takeError());
    return call.emitError("the description of a kernel is malformed: ")
           << reason;
  }

  llvm::DenseMap<int64_t, plan::Slot> replaced;
  plan::Step step = newStep(Kind::LaunchForeign, call.getLoc());
  prepareLayouts(call, replaced);
  prepareMutation(call, step, replaced);
  auto members = [&](StringRef name) {
    auto list = dyn_cast_or_null<ArrayAttr>(call.arg(name));
    return list ? list.getValue() : ArrayRef<Attribute>();
  };
  std::optional<SmallVector<SymExpr>> grid = call.sizesArg("grid");
  if (!grid || grid->size() != 3)
    return call.emitError("the grid of a kernel has three numbers");
  for (const SymExpr &blocks : *grid)
    step.symbols.push_back(expr(blocks));
  for (StringRef place : description.order) {
    auto [name, number] = place.split(':');
    ArrayRef<Attribute> list = members(name);
    size_t index = 0;
    if (number.getAsInteger(10, index) || index >= list.size())
      return call.emitError("there is no argument ") << place;
    step.args.push_back(argument(call, list[index], replaced));
  }
  step.kernel = planner.foreignKernel(std::move(description.kernel));
  results(call, step);
  out.steps.push_back(std::move(step));
  return success();
}

} // namespace intarsia
