//===- Symbols.cpp - Binding the symbols of a plan's function -------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// At run time a symbol gets its value from an input's size that *is* that
// symbol. Export also makes derived sizes (8*s6) whose symbol is nowhere bare:
// such a size becomes a symbol of its own, the old symbol an expression over
// it, and the division a guard.
//
//===----------------------------------------------------------------------===//

#include "passes/Plan/FunctionPlanner.h"

using namespace mlir;

namespace intarsia {

/// Solves the first input size that is affine in `name` and known otherwise.
bool FunctionPlanner::solve(std::string name) {
  for (const InputSize &known : inputSizes) {
    std::set<std::string> names;
    known.size.collectSymbols(names);
    if (!names.erase(name) || !llvm::all_of(names, [&](const std::string &n) {
          return boundSymbols.count(n);
        }))
      continue;
    SymExpr rest = known.size.substitute({{name, SymExpr(0)}});
    std::optional<int64_t> factor =
        (known.size.substitute({{name, SymExpr(1)}}) - rest).asInteger();
    if (!factor || *factor == 0 ||
        known.size != SymExpr(*factor) * SymExpr::symbol(name) + rest)
      continue;

    std::string sizeName = name + "_size";
    while (symbolIds.count(sizeName))
      sizeName += "_";
    SymExpr size = SymExpr::symbol(sizeName);
    SymExpr solution =
        SymExpr::make(SymExpr::Kind::FloorDiv, {size - rest, SymExpr(*factor)});
    for (SymExpr &expression : out.exprs)
      expression = expression.substitute({{name, solution}});

    // The symbol's place in the table is the new symbol's, its range a guard.
    int32_t id = symbolIds.at(name);
    plan::Symbol old = out.symbols[id];
    out.symbols[id] = plan::Symbol();
    out.symbols[id].name = sizeName;
    symbolIds.erase(name);
    symbolIds[sizeName] = id;
    boundSymbols.insert(sizeName);
    auto guard = [&](SymExpr condition, const std::string &text) {
      if (condition.asBool() == true)
        return;
      out.exprs.push_back(std::move(condition));
      out.guards.push_back({plan::ExprId(out.exprs.size() - 1), text});
    };
    std::string input = out.inputs[known.input].name + ".size(" +
                        std::to_string(known.dimension) + ")";
    guard(SymExpr::make(SymExpr::Kind::Eq,
                        {SymExpr(*factor) * solution + rest, size}),
          input + " == " + known.size.str() + " for an integer " + name);
    if (old.min)
      guard(SymExpr::make(SymExpr::Kind::Le, {SymExpr(*old.min), solution}),
            input + " == " + known.size.str() + " with " + name +
                " >= " + std::to_string(*old.min));
    if (old.max)
      guard(SymExpr::make(SymExpr::Kind::Le, {solution, SymExpr(*old.max)}),
            input + " == " + known.size.str() + " with " + name +
                " <= " + std::to_string(*old.max));
    out.exprs.push_back(size);
    out.inputs[known.input].spec->sizes[known.dimension] = out.exprs.size() - 1;
    return true;
  }
  return false;
}

LogicalResult FunctionPlanner::bindSymbols() {
  // A solution may make the next one possible.
  bool progress = true;
  std::string missing;
  while (progress) {
    progress = false;
    missing.clear();
    for (const plan::Symbol &symbol : out.symbols) {
      if (boundSymbols.count(symbol.name))
        continue;
      if (solve(symbol.name)) {
        progress = true;
        break;
      }
      missing = symbol.name;
    }
  }
  if (missing.empty())
    return success();
  return function.emitError("symbol '")
         << missing << "' is determined by no input and no result";
}

} // namespace intarsia
