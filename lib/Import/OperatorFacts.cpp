//===- OperatorFacts.cpp - What a call of an operator does
//-----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Puts together what schemas, tags and OperatorFacts.def say of one call.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Import/OperatorFacts.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <variant>

using namespace intarsia::importer;
using llvm::StringRef;

namespace {

struct MutatesRule {
  StringRef op, argument, condition;
};
struct AliasesRule {
  StringRef op, argument;
};
struct QuietRule {
  StringRef op, argument;
  std::variant<bool, double> value;
};

constexpr MutatesRule kMutates[] = {
#define MUTATES(OPERATOR, ARGUMENT, CONDITION) {OPERATOR, ARGUMENT, CONDITION},
#include "OperatorFacts.def"
};
constexpr AliasesRule kAliases[] = {
#define ALIASES(OPERATOR, ARGUMENT) {OPERATOR, ARGUMENT},
#include "OperatorFacts.def"
};
constexpr AliasesRule kReturns[] = {
#define RETURNS(OPERATOR, ARGUMENT) {OPERATOR, ARGUMENT},
#include "OperatorFacts.def"
};
const QuietRule kQuiet[] = {
#define QUIET(OPERATOR, ARGUMENT, VALUE) {OPERATOR, ARGUMENT, VALUE},
#include "OperatorFacts.def"
};
constexpr StringRef kRandom[] = {
    "", // not empty even without entries
#define RANDOM(OPERATOR) OPERATOR,
#include "OperatorFacts.def"
};
constexpr StringRef kEffects[] = {
#define EFFECT(OPERATOR) OPERATOR,
#include "OperatorFacts.def"
};

/// Operators of which this file says all that PyTorch's tag
/// maybe_aliasing_or_mutating hints at.
constexpr StringRef kKnown[] = {
#define MUTATES(OPERATOR, ARGUMENT, CONDITION) OPERATOR,
#define ALIASES(OPERATOR, ARGUMENT) OPERATOR,
#define RETURNS(OPERATOR, ARGUMENT) OPERATOR,
#include "OperatorFacts.def"
};

/// Namespaces whose every operator is an effect: collective communication.
constexpr StringRef kEffectNamespaces[] = {
    "_c10d_functional", "c10d_functional", "c10d", "_dtensor", "symm_mem"};

} // namespace

static bool overlap(const std::vector<std::string> &a,
                    const std::vector<std::string> &b) {
  return llvm::any_of(a, [&](const std::string &name) {
    return name == "*" || llvm::is_contained(b, name) ||
           llvm::is_contained(b, "*");
  });
}

/// Whether the argument is this constant for certain.
static bool isConstant(const std::vector<Argument> &arguments, size_t index,
                       const std::variant<bool, double> &value) {
  if (index >= arguments.size())
    return false;
  const Argument &argument = arguments[index];
  if (const bool *boolean = std::get_if<bool>(&value))
    return argument.kind == Argument::Kind::Bool &&
           argument.boolean == *boolean;
  double number = std::get<double>(value);
  if (argument.kind == Argument::Kind::Int)
    return static_cast<double>(argument.integer) == number;
  return argument.kind == Argument::Kind::Float && argument.real == number;
}

OperatorFacts
intarsia::importer::operatorFacts(const OperatorSchema &schema,
                                  const std::vector<Argument> &arguments) {
  OperatorFacts facts;
  StringRef name = schema.name;
  StringRef base = name.substr(0, name.find('.', name.find("::")));
  auto argumentIndex = [&](StringRef wanted) -> std::optional<size_t> {
    for (auto [index, argument] : llvm::enumerate(schema.arguments))
      if (argument.name == wanted)
        return index;
    return std::nullopt;
  };

  // Mutation.
  for (auto [index, argument] : llvm::enumerate(schema.arguments))
    if (argument.isWrite)
      facts.mutated.push_back(index);
  for (const MutatesRule &rule : kMutates) {
    std::optional<size_t> index;
    if (rule.op != base || !(index = argumentIndex(rule.argument)) ||
        llvm::is_contained(facts.mutated, *index) ||
        (*index < arguments.size() &&
         arguments[*index].kind == Argument::Kind::None))
      continue;
    std::optional<size_t> condition = argumentIndex(rule.condition);
    if (!condition || !isConstant(arguments, *condition, false))
      facts.mutated.push_back(*index);
  }

  // Aliasing.
  facts.returns.resize(schema.returns.size());
  for (auto [schemaReturn, fact] :
       llvm::zip_equal(schema.returns, facts.returns)) {
    for (auto [index, argument] : llvm::enumerate(schema.arguments)) {
      if (schemaReturn.aliasSet.empty() ||
          !overlap(schemaReturn.aliasSet, argument.aliasSet))
        continue;
      // "Tensor(a!) -> Tensor(a!)" returns the argument itself.
      if (argument.isWrite && schemaReturn.isWrite)
        fact.tied = index;
      else
        fact.views.push_back(index);
    }
    auto mayAlias = [&](size_t index) {
      if (StringRef(schemaReturn.type).starts_with("Tensor") && !fact.tied &&
          !llvm::is_contained(fact.views, index))
        fact.views.push_back(index);
    };
    for (const AliasesRule &rule : kAliases)
      if (rule.op == base)
        if (std::optional<size_t> index = argumentIndex(rule.argument))
          mayAlias(*index);
    for (const AliasesRule &rule : kReturns)
      if (rule.op == base)
        if (std::optional<size_t> index = argumentIndex(rule.argument)) {
          mayAlias(*index);
          fact.isSame = true;
        }
    // An operator of which PyTorch says so, and this file does not say what.
    if (llvm::is_contained(schema.tags, "maybe_aliasing_or_mutating") &&
        fact.views.empty() && !llvm::is_contained(kKnown, base))
      for (auto [index, argument] : llvm::enumerate(schema.arguments))
        if (StringRef(argument.type).starts_with("Tensor"))
          mayAlias(index);
  }

  // Randomness.
  facts.random = llvm::is_contained(schema.tags, "nondeterministic_seeded") ||
                 llvm::is_contained(kRandom, base);
  for (const QuietRule &rule : kQuiet)
    if (std::optional<size_t> index; facts.random && rule.op == base &&
                                     (index = argumentIndex(rule.argument)) &&
                                     isConstant(arguments, *index, rule.value))
      facts.random = false;

  // What returns nothing and writes nothing is called for its effect (checks,
  // prints, communication). So is what only has a name of PyTorch's.
  facts.effectful =
      schema.isForeign || (schema.returns.empty() && facts.mutated.empty()) ||
      llvm::is_contained(kEffects, base) ||
      llvm::is_contained(kEffectNamespaces, base.split("::").first);
  // Script objects have state of their own.
  for (const SchemaArgument &argument : schema.arguments)
    facts.effectful |= StringRef(argument.type).starts_with("__torch__.");
  return facts;
}
