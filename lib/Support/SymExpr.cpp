//===- SymExpr.cpp - Nodes of symbolic expressions ------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements the nodes of symbolic expressions, their order and their
// text. SymExprNormalForm.cpp makes them, SymExprEvaluate.cpp computes their
// values, SymExprParser.cpp reads texts.
//
//===----------------------------------------------------------------------===//

#include "SymExprArithmetic.h"

#include <algorithm>
#include <charconv>
#include <cstring>

using namespace intarsia;
using Kind = SymExpr::Kind;

struct SymExpr::Node {
  Kind kind;
  int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::string name;
  std::vector<SymExpr> operands;
  size_t hash = 0;
};

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

namespace {

template <typename T>
int order(const T &a, const T &b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

/// s2 before s10: by the text before the trailing number, then the number.
int orderNames(const std::string &a, const std::string &b) {
  auto stem = [](const std::string &s) {
    size_t end = s.size();
    while (end > 0 && s[end - 1] >= '0' && s[end - 1] <= '9')
      --end;
    return end;
  };
  size_t stemA = stem(a), stemB = stem(b);
  if (int o = a.compare(0, stemA, b, 0, stemB))
    return o;
  if (int o = order(a.size() - stemA, b.size() - stemB))
    return o;
  return a.compare(b);
}

uint64_t bits(double value) {
  uint64_t result;
  std::memcpy(&result, &value, sizeof(result));
  return result;
}

size_t combine(size_t seed, size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
}
} // namespace

int arithmetic::compare(const SymExpr &a, const SymExpr &b) {
  if (int o = order(a.kind(), b.kind()))
    return o;
  switch (a.kind()) {
  case Kind::Integer:
    return order(*a.asInteger(), *b.asInteger());
  case Kind::Float:
    return order(bits(*a.asReal()), bits(*b.asReal()));
  case Kind::Bool:
    return order(*a.asBool(), *b.asBool());
  case Kind::Symbol:
    return orderNames(a.name(), b.name());
  default:
    break;
  }
  const auto &x = a.operands(), &y = b.operands();
  if (int o = order(x.size(), y.size()))
    return o;
  for (size_t i = 0; i < x.size(); ++i)
    if (int o = compare(x[i], y[i]))
      return o;
  return 0;
}

bool SymExpr::operator==(const SymExpr &other) const {
  if (node == other.node)
    return true;
  return node->hash == other.node->hash &&
         arithmetic::compare(*this, other) == 0;
}

bool SymExpr::operator<(const SymExpr &other) const {
  return node != other.node && arithmetic::compare(*this, other) < 0;
}

//===----------------------------------------------------------------------===//
// Construction of nodes
//===----------------------------------------------------------------------===//

SymExpr::SymExpr(std::shared_ptr<const Node> node) : node(std::move(node)) {}

SymExpr::SymExpr() {
  static const std::shared_ptr<const Node> zero = SymExpr(int64_t(0)).node;
  node = zero;
}

SymExpr::SymExpr(int64_t value) {
  auto n = std::make_shared<Node>();
  n->kind = Kind::Integer;
  n->integer = value;
  n->hash = combine(size_t(n->kind), std::hash<int64_t>()(value));
  node = std::move(n);
}

SymExpr SymExpr::integer(int64_t value) { return SymExpr(value); }

SymExpr SymExpr::real(double value) {
  auto n = std::make_shared<Node>();
  n->kind = Kind::Float;
  // One NaN, so that equal texts are equal expressions.
  n->real =
      std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  n->hash = combine(size_t(n->kind), bits(n->real));
  return SymExpr(std::move(n));
}

SymExpr SymExpr::boolean(bool value) {
  auto n = std::make_shared<Node>();
  n->kind = Kind::Bool;
  n->boolean = value;
  n->hash = combine(size_t(n->kind), value);
  return SymExpr(std::move(n));
}

SymExpr SymExpr::symbol(std::string_view name) {
  auto n = std::make_shared<Node>();
  n->kind = Kind::Symbol;
  n->name = std::string(name);
  n->hash = combine(size_t(n->kind), std::hash<std::string>()(n->name));
  return SymExpr(std::move(n));
}

Kind SymExpr::kind() const { return node->kind; }
const std::vector<SymExpr> &SymExpr::operands() const { return node->operands; }
const std::string &SymExpr::name() const { return node->name; }
size_t SymExpr::hash() const { return node->hash; }

std::optional<int64_t> SymExpr::asInteger() const {
  return kind() == Kind::Integer ? std::optional(node->integer) : std::nullopt;
}
std::optional<double> SymExpr::asReal() const {
  return kind() == Kind::Float ? std::optional(node->real) : std::nullopt;
}
std::optional<bool> SymExpr::asBool() const {
  return kind() == Kind::Bool ? std::optional(node->boolean) : std::nullopt;
}
bool SymExpr::isInteger(int64_t value) const {
  return kind() == Kind::Integer && node->integer == value;
}
bool SymExpr::isConstant() const {
  return kind() == Kind::Integer || kind() == Kind::Float ||
         kind() == Kind::Bool;
}

bool SymExpr::isBoolean() const {
  switch (kind()) {
  case Kind::Bool:
  case Kind::Eq:
  case Kind::Ne:
  case Kind::Lt:
  case Kind::Le:
  case Kind::And:
  case Kind::Or:
  case Kind::Not:
    return true;
  case Kind::Select:
    return operands()[1].isBoolean() && operands()[2].isBoolean();
  default:
    return false;
  }
}

bool SymExpr::mayBeReal() const {
  switch (kind()) {
  case Kind::Float:
  case Kind::TrueDiv:
  case Kind::ToFloat:
  case Kind::RoundDecimal:
    return true;
  case Kind::Symbol:
    return name().starts_with("zf") || name().starts_with("zuf");
  case Kind::Trunc:
  case Kind::Floor:
  case Kind::Ceil:
  case Kind::Round:
    return false;
  case Kind::Select:
    return operands()[1].mayBeReal() || operands()[2].mayBeReal();
  default:
    if (realFunction(kind()))
      return true;
    // A condition is not a float, whatever it compares.
    return !isBoolean() &&
           std::any_of(operands().begin(), operands().end(),
                       [](const SymExpr &e) { return e.mayBeReal(); });
  }
}

SymExpr SymExpr::raw(Kind kind, std::vector<SymExpr> operands) {
  auto n = std::make_shared<Node>();
  n->kind = kind;
  n->hash = size_t(kind);
  for (const SymExpr &operand : operands)
    n->hash = combine(n->hash, operand.node->hash);
  n->operands = std::move(operands);
  return SymExpr(std::move(n));
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

namespace {
std::string_view functionName(Kind kind) {
  switch (kind) {
  case Kind::Pow:
    return "pow";
  case Kind::FloorDiv:
    return "floordiv";
  case Kind::Mod:
    return "mod";
  case Kind::Min:
    return "min";
  case Kind::Max:
    return "max";
  case Kind::Abs:
    return "abs";
  case Kind::TrueDiv:
    return "truediv";
  case Kind::ToFloat:
    return "float";
  case Kind::Trunc:
    return "trunc";
  case Kind::Floor:
    return "floor";
  case Kind::Ceil:
    return "ceil";
  case Kind::Round:
    return "round";
  case Kind::RoundDecimal:
    return "rounddecimal";
  case Kind::BitAnd:
    return "bitand";
  case Kind::BitOr:
    return "bitor";
  case Kind::BitXor:
    return "bitxor";
  case Kind::Eq:
    return "eq";
  case Kind::Ne:
    return "ne";
  case Kind::Lt:
    return "lt";
  case Kind::Le:
    return "le";
  case Kind::And:
    return "and";
  case Kind::Or:
    return "or";
  case Kind::Not:
    return "not";
  case Kind::Select:
    return "select";
  default:
    if (const SymExpr::RealFunction *function = SymExpr::realFunction(kind))
      return function->name;
    return "";
  }
}

void printReal(double value, std::string &out) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string_view text(buffer, size_t(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos)
    out += ".0";
}

void print(const SymExpr &e, std::string &out);

void printFactor(const SymExpr &e, std::string &out) {
  bool parenthesise = e.kind() == Kind::Add || e.kind() == Kind::Mul;
  if (parenthesise)
    out += '(';
  print(e, out);
  if (parenthesise)
    out += ')';
}

void printProduct(const SymExpr &e, std::string &out) {
  const auto &ops = e.operands();
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i == 0 && ops[0].isInteger(-1) && ops.size() > 1) {
      out += '-';
      continue;
    }
    if (i != 0 && !(i == 1 && ops[0].isInteger(-1)))
      out += '*';
    printFactor(ops[i], out);
  }
}

void print(const SymExpr &e, std::string &out) {
  const auto &ops = e.operands();
  switch (e.kind()) {
  case Kind::Integer:
    out += std::to_string(*e.asInteger());
    return;
  case Kind::Float:
    printReal(*e.asReal(), out);
    return;
  case Kind::Bool:
    out += *e.asBool() ? "true" : "false";
    return;
  case Kind::Symbol:
    out += e.name();
    return;
  case Kind::Mul:
    printProduct(e, out);
    return;
  case Kind::Add:
    for (size_t i = 0; i < ops.size(); ++i) {
      std::string term;
      if (ops[i].kind() == Kind::Add)
        printFactor(ops[i], term);
      else
        print(ops[i], term);
      if (i == 0)
        out += term;
      else if (term[0] == '-')
        (out += " - ") += std::string_view(term).substr(1);
      else
        (out += " + ") += term;
    }
    return;
  default:
    out += functionName(e.kind());
    out += '(';
    for (size_t i = 0; i < ops.size(); ++i) {
      if (i)
        out += ", ";
      print(ops[i], out);
    }
    out += ')';
  }
}
} // namespace

std::string SymExpr::str() const {
  std::string out;
  print(*this, out);
  return out;
}

//===----------------------------------------------------------------------===//
// Symbols, substitution
//===----------------------------------------------------------------------===//

void SymExpr::collectSymbols(std::set<std::string> &names) const {
  if (isSymbol())
    names.insert(name());
  for (const SymExpr &operand : operands())
    operand.collectSymbols(names);
}

SymExpr
SymExpr::substitute(const std::map<std::string, SymExpr> &values) const {
  if (isSymbol()) {
    auto it = values.find(name());
    return it == values.end() ? *this : it->second;
  }
  if (operands().empty())
    return *this;
  std::vector<SymExpr> replaced;
  bool changed = false;
  for (const SymExpr &operand : operands()) {
    replaced.push_back(operand.substitute(values));
    changed |= replaced.back().node != operand.node;
  }
  return changed ? make(kind(), std::move(replaced)) : *this;
}
