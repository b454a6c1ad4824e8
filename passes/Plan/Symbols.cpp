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

/// The factors of a product that have a symbol without a value.
static SmallVector<SymExpr> openFactors(const SymExpr &expr,
                                        const std::set<std::string> &bound) {
  SmallVector<SymExpr> factors{expr}, open;
  if (expr.kind() == SymExpr::Kind::Mul)
    factors.assign(expr.operands().begin(), expr.operands().end());
  for (const SymExpr &factor : factors) {
    std::set<std::string> names;
    factor.collectSymbols(names);
    if (!llvm::all_of(names,
                      [&](const std::string &n) { return bound.count(n); }))
      open.push_back(factor);
  }
  return open;
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
  for (const InputSize &known : inputSizes) {
    SmallVector<SymExpr> open = openFactors(known.size, boundSymbols);
    if (open.empty())
      continue;
    SymExpr factor(1);
    if (known.size.kind() == SymExpr::Kind::Mul)
      for (const SymExpr &other : known.size.operands())
        if (!llvm::is_contained(open, other))
          factor = factor * other;
    std::set<std::string> names;
    for (const SymExpr &expr : open)
      expr.collectSymbols(names);
    for (const std::string &name : boundSymbols)
      names.erase(name);
    std::string product = "product";
    for (const std::string &name : names)
      product += "_" + name;
    while (symbolIds.count(product))
      product += "_";
    SymExpr symbol = SymExpr::symbol(product);
    for (SymExpr &expression : out.exprs)
      expression = replaceProduct(expression, open, symbol);
    for (InputSize &size : inputSizes)
      size.size = replaceProduct(size.size, open, symbol);
    // What is now known of their product alone can't be checked alone.
    std::set<std::string> used;
    for (const SymExpr &expression : out.exprs)
      expression.collectSymbols(used);
    for (const std::string &name : names)
      if (auto known = symbolIds.find(name);
          known != symbolIds.end() && !used.count(name)) {
        plan::Symbol &old = out.symbols[known->second];
        old.min.reset();
        old.max.reset();
      }
    symbolIds[product] = out.symbols.size();
    out.symbols.emplace_back().name = product;
    if (factor.isInteger(1))
      boundSymbols.insert(product);
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
    std::set<std::string> used;
    for (const SymExpr &expression : out.exprs)
      expression.collectSymbols(used);
    for (const plan::Symbol &symbol : out.symbols) {
      if (boundSymbols.count(symbol.name) || !used.count(symbol.name))
        continue;
      if (solve(symbol.name)) {
        progress = true;
        break;
      }
      missing = symbol.name;
    }
    if (!progress && !missing.empty())
      progress = solveProduct();
  }
  if (missing.empty())
    return success();
  return function.emitError("symbol '")
         << missing << "' is determined by no input and no result";
}

} // namespace intarsia
