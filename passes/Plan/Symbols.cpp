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

/// Solves the first input size that is affine in `name` and known otherwise;
/// with `anyFactor` also where the factor is no constant. Where that is 0, the
/// size does not tell the symbol, and 0 is as good as any.
bool FunctionPlanner::solve(std::string name, bool anyFactor) {
  for (const InputSize &known : inputSizes) {
    std::set<std::string> names;
    known.size.collectSymbols(names);
    if (!names.erase(name) || !llvm::all_of(names, [&](const std::string &n) {
          return boundSymbols.count(n);
        }))
      continue;
    SymExpr rest = known.size.substitute({{name, SymExpr(0)}});
    SymExpr factor = known.size.substitute({{name, SymExpr(1)}}) - rest;
    if (factor.isInteger(0) || (!anyFactor && !factor.asInteger()) ||
        known.size != factor * SymExpr::symbol(name) + rest)
      continue;

    std::string sizeName = name + "_size";
    while (symbolIds.count(sizeName))
      sizeName += "_";
    SymExpr size = SymExpr::symbol(sizeName);
    SymExpr divisor = factor.asInteger() ? factor
                                         : SymExpr::make(SymExpr::Kind::Max,
                                                         {factor, SymExpr(1)});
    SymExpr solution =
        SymExpr::make(SymExpr::Kind::FloorDiv, {size - rest, divisor});
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
    guard(SymExpr::make(SymExpr::Kind::Eq, {factor * solution + rest, size}),
          input + " == " + known.size.str() + " for an integer " + name);
    // A symbol that the size does not tell has no range to keep.
    if (!factor.asInteger())
      old.min = old.max = std::nullopt;
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

static ArrayRef<SymExpr> operandsOf(const SymExpr &expr, SymExpr::Kind kind) {
  if (expr.kind() == kind)
    return expr.operands();
  return expr;
}

/// What to take as one number in a size that can't be solved: the factors of
/// its only term with an open symbol, or the whole size.
static SmallVector<SymExpr>
unknownProduct(const SymExpr &size,
               llvm::function_ref<bool(const SymExpr &)> isOpen) {
  SmallVector<SymExpr> open(
      llvm::make_filter_range(operandsOf(size, SymExpr::Kind::Add), isOpen));
  SmallVector<SymExpr> factors;
  for (const SymExpr &factor :
       operandsOf(open.size() == 1 ? open.front() : size, SymExpr::Kind::Mul))
    if (!factor.asInteger())
      factors.push_back(factor);
  return factors;
}

static SymExpr productOf(ArrayRef<SymExpr> factors) {
  SymExpr result(1);
  for (const SymExpr &factor : factors)
    result = result * factor;
  return result;
}

/// `expr` with `value` wherever it has the product of `factors`.
static SymExpr replaceProduct(const SymExpr &expr, ArrayRef<SymExpr> factors,
                              const SymExpr &value) {
  std::vector<SymExpr> operands;
  bool changed = false;
  for (const SymExpr &operand : expr.operands()) {
    operands.push_back(replaceProduct(operand, factors, value));
    changed |= operands.back() != operand;
  }
  if (expr.kind() == SymExpr::Kind::Mul || factors.size() == 1) {
    SmallVector<SymExpr> rest{expr};
    if (expr.kind() == SymExpr::Kind::Mul)
      rest.assign(expr.operands().begin(), expr.operands().end());
    bool isThere = llvm::all_of(factors, [&](const SymExpr &factor) {
      auto *found = llvm::find(rest, factor);
      if (found == rest.end())
        return false;
      rest.erase(found);
      return true;
    });
    if (isThere)
      return replaceProduct(productOf(rest), factors, value) * value;
  }
  return changed ? SymExpr::make(expr.kind(), operands) : expr;
}

/// Where symbols matter only as a product that an input's size has (a batch and
/// a length that were made one dimension), that product is the symbol.
bool FunctionPlanner::solveProduct() {
  auto openSymbols = [&](const SymExpr &expr) {
    std::set<std::string> names;
    expr.collectSymbols(names);
    for (const std::string &name : boundSymbols)
      names.erase(name);
    return names;
  };
  auto isOpen = [&](const SymExpr &expr) { return !openSymbols(expr).empty(); };
  for (const InputSize &known : inputSizes) {
    if (!isOpen(known.size))
      continue;
    SmallVector<SymExpr> factors = unknownProduct(known.size, isOpen);
    std::set<std::string> names = openSymbols(productOf(factors));
    std::string product = "product";
    for (const std::string &name : names)
      product += "_" + name;
    while (symbolIds.count(product))
      product += "_";
    SymExpr symbol = SymExpr::symbol(product);
    std::vector<SymExpr> expressions;
    std::set<std::string> used;
    for (const SymExpr &expression : out.exprs) {
      expressions.push_back(replaceProduct(expression, factors, symbol));
      expressions.back().collectSymbols(used);
    }
    // It must be one unknown less.
    if (llvm::all_of(names,
                     [&](const std::string &n) { return used.count(n); }))
      continue;
    out.exprs = std::move(expressions);
    bool isWhole = productOf(factors) == known.size;
    for (InputSize &size : inputSizes)
      size.size = replaceProduct(size.size, factors, symbol);
    // What is now known of their product alone can't be checked alone.
    for (const std::string &name : names)
      if (auto old = symbolIds.find(name);
          old != symbolIds.end() && !used.count(name)) {
        out.symbols[old->second].min.reset();
        out.symbols[old->second].max.reset();
      }
    symbolIds[product] = out.symbols.size();
    out.symbols.emplace_back().name = product;
    if (isWhole)
      boundSymbols.insert(product);
    return true;
  }
  return false;
}

LogicalResult FunctionPlanner::bindSymbols() {
  // A solution may make the next one possible. What is exact comes first.
  bool progress = true;
  std::string missing;
  while (progress) {
    progress = false;
    missing.clear();
    std::set<std::string> used;
    for (const SymExpr &expression : out.exprs)
      expression.collectSymbols(used);
    for (const plan::Symbol &symbol : out.symbols) {
      if (boundSymbols.count(symbol.name) || !used.count(symbol.name))
        continue;
      if (solve(symbol.name, /*anyFactor=*/false)) {
        progress = true;
        break;
      }
      missing = symbol.name;
    }
    if (!progress && !missing.empty())
      progress = solveProduct() || solve(missing, /*anyFactor=*/true);
  }
  if (missing.empty())
    return success();
  return function.emitError("symbol '")
         << missing << "' is determined by no input and no result";
}

} // namespace intarsia
