//===- SymExprParser.cpp - Texts of symbolic expressions ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements the two parsers of intarsia/Support/SymExpr.h, both by
// recursive descent with bounded depth: the canonical text, and the text that
// sympy's `srepr` prints, in which a `.pt2` file writes its sizes.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Support/SymExpr.h"

#include <cctype>
#include <charconv>
#include <limits>

using namespace intarsia;
using Kind = SymExpr::Kind;

namespace {
constexpr unsigned maxDepth = 200;

/// What both parsers share: the text, the place in it and the first error.
class Scanner {
public:
  explicit Scanner(std::string_view text) : text(text) {}

  std::string error;

  bool fail(const std::string &message) {
    if (error.empty())
      error = message + " at offset " + std::to_string(pos) + " of \"" +
              std::string(text.substr(0, 200)) +
              (text.size() > 200 ? "...\"" : "\"");
    return false;
  }

  bool atEnd() {
    skipSpace();
    return pos == text.size();
  }

protected:
  void skipSpace() {
    while (pos < text.size() &&
           std::isspace(static_cast<unsigned char>(text[pos])))
      ++pos;
  }
  char peek() {
    skipSpace();
    return pos < text.size() ? text[pos] : '\0';
  }
  bool consume(std::string_view token) {
    skipSpace();
    if (!text.substr(pos).starts_with(token))
      return false;
    pos += token.size();
    return true;
  }
  bool expect(std::string_view token) {
    return consume(token) || fail("expected '" + std::string(token) + "'");
  }
  static bool isDigit(char c) { return c >= '0' && c <= '9'; }
  static bool startsName(char c) {
    return c == '_' || std::isalpha(static_cast<unsigned char>(c));
  }
  /// Empty when there is none.
  std::string_view name() {
    skipSpace();
    size_t begin = pos;
    if (pos < text.size() && startsName(text[pos]))
      while (pos < text.size() &&
             (startsName(text[pos]) || isDigit(text[pos]) || text[pos] == '.'))
        ++pos;
    return text.substr(begin, pos - begin);
  }
  /// An unsigned or, with `negative`, negated integer or float.
  bool number(bool negative, SymExpr &result) {
    skipSpace();
    size_t begin = pos;
    bool isReal = false;
    while (pos < text.size() && isDigit(text[pos]))
      ++pos;
    if (pos < text.size() && text[pos] == '.') {
      isReal = true;
      ++pos;
      while (pos < text.size() && isDigit(text[pos]))
        ++pos;
    }
    if (pos < text.size() && (text[pos] == 'e' || text[pos] == 'E')) {
      isReal = true;
      ++pos;
      if (pos < text.size() && (text[pos] == '+' || text[pos] == '-'))
        ++pos;
      while (pos < text.size() && isDigit(text[pos]))
        ++pos;
    }
    return numberFrom(text.substr(begin, pos - begin), isReal, negative,
                      result);
  }
  bool numberFrom(std::string_view digits, bool isReal, bool negative,
                  SymExpr &result) {
    const char *end = digits.data() + digits.size();
    if (isReal) {
      double value = 0;
      auto [at, code] = std::from_chars(digits.data(), end, value);
      if (code == std::errc::invalid_argument || at != end)
        return fail("malformed number '" + std::string(digits) + "'");
      if (code == std::errc::result_out_of_range)
        return fail("number out of range: '" + std::string(digits) + "'");
      result = SymExpr::real(negative ? -value : value);
      return true;
    }
    uint64_t value = 0;
    auto [at, code] = std::from_chars(digits.data(), end, value);
    if (digits.empty() || code == std::errc::invalid_argument || at != end)
      return fail("expected a number");
    uint64_t limit = uint64_t(std::numeric_limits<int64_t>::max()) + negative;
    if (code == std::errc::result_out_of_range || value > limit)
      return fail("integer '" + std::string(digits) + "' exceeds 64 bits");
    result = SymExpr(static_cast<int64_t>(negative ? 0 - value : value));
    return true;
  }

  /// Counts the nesting while it lives.
  struct Nested {
    explicit Nested(unsigned &depth) : depth(depth) { ++depth; }
    ~Nested() { --depth; }
    unsigned &depth;
  };
  unsigned depth = 0;
  std::string_view text;
  size_t pos = 0;
};

//===----------------------------------------------------------------------===//
// The canonical text
//===----------------------------------------------------------------------===//

struct Function {
  std::string_view name;
  Kind kind;
  size_t arity; // 0: one or more
  bool exchanged = false;
};

constexpr Function functions[] = {
    {"pow", Kind::Pow, 2},
    {"floordiv", Kind::FloorDiv, 2},
    {"mod", Kind::Mod, 2},
    {"min", Kind::Min, 0},
    {"max", Kind::Max, 0},
    {"abs", Kind::Abs, 1},
    {"truediv", Kind::TrueDiv, 2},
    {"float", Kind::ToFloat, 1},
    {"trunc", Kind::Trunc, 1},
    {"floor", Kind::Floor, 1},
    {"ceil", Kind::Ceil, 1},
    {"round", Kind::Round, 1},
    {"rounddecimal", Kind::RoundDecimal, 2},
    {"bitand", Kind::BitAnd, 2},
    {"bitor", Kind::BitOr, 2},
    {"bitxor", Kind::BitXor, 2},
    {"eq", Kind::Eq, 2},
    {"ne", Kind::Ne, 2},
    {"lt", Kind::Lt, 2},
    {"le", Kind::Le, 2},
    {"gt", Kind::Lt, 2, true},
    {"ge", Kind::Le, 2, true},
    {"and", Kind::And, 0},
    {"or", Kind::Or, 0},
    {"not", Kind::Not, 1},
    {"select", Kind::Select, 3},
};

class CanonicalParser : public Scanner {
public:
  using Scanner::Scanner;

  bool sum(SymExpr &result) {
    Nested nested(depth);
    if (depth > maxDepth)
      return fail("nested too deeply");
    std::vector<SymExpr> terms(1);
    if (!product(terms.back()))
      return false;
    while (char c = peek()) {
      if (c != '+' && c != '-')
        break;
      ++pos;
      terms.emplace_back();
      if (!product(terms.back()))
        return false;
      if (c == '-')
        terms.back() = SymExpr::make(Kind::Mul, {-1, terms.back()});
    }
    result = terms.size() == 1 ? terms[0]
                               : SymExpr::make(Kind::Add, std::move(terms));
    return true;
  }

private:
  /// All factors are multiplied at once, as the printer wrote them: whether
  /// sums among them are multiplied out depends on all.
  bool product(SymExpr &result) {
    std::vector<SymExpr> factors;
    if (!unary(factors))
      return false;
    while (true) {
      Kind kind;
      if (consume("//"))
        kind = Kind::FloorDiv;
      else if (consume("%"))
        kind = Kind::Mod;
      else if (consume("*")) {
        if (!unary(factors))
          return false;
        continue;
      } else {
        break;
      }
      SymExpr left = multiply(std::move(factors));
      factors.clear();
      if (!unary(factors))
        return false;
      SymExpr right = multiply(std::move(factors));
      factors = {SymExpr::make(kind, {left, right})};
    }
    result = multiply(std::move(factors));
    return true;
  }
  static SymExpr multiply(std::vector<SymExpr> factors) {
    return factors.size() == 1 ? factors[0]
                               : SymExpr::make(Kind::Mul, std::move(factors));
  }

  bool unary(std::vector<SymExpr> &factors) {
    bool negative = false;
    while (consume("-"))
      negative = !negative;
    char c = peek();
    SymExpr value;
    if (isDigit(c) || c == '.') {
      if (!number(negative, value))
        return false;
      factors.push_back(value);
      return true;
    }
    if (negative)
      factors.push_back(-1);
    if (!primary(value))
      return false;
    factors.push_back(value);
    return true;
  }

  bool primary(SymExpr &result) {
    if (consume("("))
      return sum(result) && expect(")");
    std::string_view id = name();
    if (id.empty())
      return fail(atEnd() ? "unexpected end" : "expected an expression");
    if (peek() == '(')
      return call(id, result);
    if (id == "true" || id == "false")
      result = SymExpr::boolean(id == "true");
    else if (id == "inf")
      result = SymExpr::real(std::numeric_limits<double>::infinity());
    else if (id == "nan")
      result = SymExpr::real(std::numeric_limits<double>::quiet_NaN());
    else
      result = SymExpr::symbol(id);
    return true;
  }

  bool call(std::string_view id, SymExpr &result) {
    std::optional<Function> function;
    for (const Function &f : functions)
      if (f.name == id)
        function = f;
    if (const SymExpr::RealFunction *real = SymExpr::realFunction(id))
      function = {real->name, real->kind, 1};
    if (!function)
      return fail("unknown function '" + std::string(id) + "'");
    std::vector<SymExpr> operands;
    expect("(");
    do {
      operands.emplace_back();
      if (!sum(operands.back()))
        return false;
    } while (consume(","));
    if (!expect(")"))
      return false;
    if (function->arity && operands.size() != function->arity)
      return fail("'" + std::string(id) + "' takes " +
                  std::to_string(function->arity) + " operands, not " +
                  std::to_string(operands.size()));
    if (function->exchanged)
      std::swap(operands[0], operands[1]);
    result = SymExpr::make(function->kind, std::move(operands));
    return true;
  }
};

//===----------------------------------------------------------------------===//
// sympy's srepr
//===----------------------------------------------------------------------===//

/// sympy divides exactly: `Mul(Rational(1, 2), Symbol('s0'))`. Fractions are
/// carried as such until something needs an integer.
struct Fraction {
  SymExpr numerator;
  SymExpr denominator = SymExpr(1);

  bool isWhole() const { return denominator.isInteger(1); }
  bool hasPositiveDenominator() const {
    auto value = denominator.asInteger();
    return value && *value > 0;
  }
  /// The value as one expression. A fraction of integers that is left at the
  /// end is one that PyTorch knows to divide evenly.
  SymExpr expr() const {
    if (isWhole())
      return numerator;
    auto a = numerator.asInteger(), b = denominator.asInteger();
    if (numerator.mayBeReal() || denominator.mayBeReal() ||
        (a && b && *b != 0 && *a % *b != 0))
      return SymExpr::make(Kind::TrueDiv, {numerator, denominator});
    return SymExpr::make(Kind::FloorDiv, {numerator, denominator});
  }
};

class SympyParser : public Scanner {
public:
  using Scanner::Scanner;

  bool value(Fraction &result) {
    Nested nested(depth);
    if (depth > maxDepth)
      return fail("nested too deeply");
    char c = peek();
    if (isDigit(c) || c == '-') {
      bool negative = consume("-");
      return number(negative, result.numerator);
    }
    std::string_view id = name();
    if (id.empty())
      return fail(atEnd() ? "unexpected end" : "expected an expression");
    if (id.starts_with("sympy."))
      id.remove_prefix(6);
    if (!consume("("))
      return constant(id, result);
    if (id == "Symbol" || id == "Dummy") {
      std::string symbol;
      if (!quoted(symbol) || !keywords())
        return false;
      result.numerator = SymExpr::symbol(symbol);
      return true;
    }
    if (id == "Float") {
      std::string digits;
      bool negative;
      if (peek() == '\'' || peek() == '"') {
        if (!quoted(digits))
          return false;
        negative = digits.starts_with("-");
        if (!numberFrom(std::string_view(digits).substr(negative), true,
                        negative, result.numerator))
          return false;
      } else {
        negative = consume("-");
        if (!number(negative, result.numerator))
          return false;
        result.numerator = SymExpr::make(Kind::ToFloat, {result.numerator});
      }
      return keywords();
    }
    if (id == "Piecewise")
      return piecewise(result);
    std::vector<Fraction> args;
    if (!arguments(args))
      return false;
    return call(id, args, result);
  }

private:
  bool constant(std::string_view id, Fraction &result) {
    if (id == "true" || id == "True" || id == "false" || id == "False")
      result.numerator = SymExpr::boolean(id == "true" || id == "True");
    else if (id == "oo")
      result.numerator = SymExpr::real(std::numeric_limits<double>::infinity());
    else if (id == "nan")
      result.numerator =
          SymExpr::real(std::numeric_limits<double>::quiet_NaN());
    else
      return fail("unknown sympy constant '" + std::string(id) + "'");
    return true;
  }

  bool quoted(std::string &result) {
    char quote = peek();
    if (quote != '\'' && quote != '"')
      return fail("expected a quoted name");
    size_t end = text.find(quote, pos + 1);
    if (end == std::string_view::npos)
      return fail("unterminated string");
    result = std::string(text.substr(pos + 1, end - pos - 1));
    pos = end + 1;
    if (result.empty())
      return fail("empty name");
    return true;
  }

  /// `, positive=True, integer=True)`: assumptions carry nothing for us.
  bool keywords() {
    while (consume(",")) {
      if (consume(")"))
        return true;
      if (name().empty() || !expect("="))
        return fail("expected an assumption");
      std::string ignored;
      if (peek() == '\'' || peek() == '"') {
        if (!quoted(ignored))
          return false;
      } else if (name().empty()) {
        SymExpr value;
        bool negative = consume("-");
        if (!number(negative, value))
          return false;
      }
    }
    return expect(")");
  }

  bool arguments(std::vector<Fraction> &args) {
    if (consume(")"))
      return true;
    do {
      if (peek() == ')') // a trailing comma
        break;
      args.emplace_back();
      if (!value(args.back()))
        return false;
    } while (consume(","));
    return expect(")");
  }

  /// `ExprCondPair(e, c), ...`: the first whose condition holds.
  bool piecewise(Fraction &result) {
    std::vector<std::pair<SymExpr, SymExpr>> pairs;
    do {
      std::string_view id = name();
      std::vector<Fraction> pair;
      if ((id != "ExprCondPair" && id != "Tuple" && !id.empty()) ||
          !expect("(") || !arguments(pair))
        return fail("expected a pair of Piecewise");
      if (pair.size() != 2)
        return fail("a pair of Piecewise has two members");
      pairs.emplace_back(pair[0].expr(), pair[1].expr());
    } while (consume(","));
    if (!expect(")"))
      return false;
    // sympy requires the last condition to cover the rest.
    result.numerator = pairs.back().first;
    for (size_t i = pairs.size() - 1; i-- > 0;)
      result.numerator = SymExpr::make(
          Kind::Select, {pairs[i].second, pairs[i].first, result.numerator});
    return true;
  }

  static Fraction add(const Fraction &a, const Fraction &b) {
    if (a.denominator == b.denominator)
      return {a.numerator + b.numerator, a.denominator};
    return {a.numerator * b.denominator + b.numerator * a.denominator,
            a.denominator * b.denominator};
  }

  bool power(const Fraction &base, const Fraction &exponent, Fraction &result) {
    auto n = exponent.isWhole() ? exponent.numerator.asInteger()
                                : std::optional<int64_t>();
    if (n && *n != std::numeric_limits<int64_t>::min()) {
      SymExpr magnitude(*n < 0 ? -*n : *n);
      SymExpr up = SymExpr::make(Kind::Pow, {base.numerator, magnitude});
      SymExpr down = SymExpr::make(Kind::Pow, {base.denominator, magnitude});
      result = *n < 0 ? Fraction{down, up} : Fraction{up, down};
      return true;
    }
    if (exponent.numerator.isInteger(1) && exponent.denominator.isInteger(2))
      result.numerator = SymExpr::make(Kind::Sqrt, {base.expr()});
    else
      result.numerator =
          SymExpr::make(Kind::Pow, {base.expr(), exponent.expr()});
    return true;
  }

  /// Compares fractions exactly where the sign of the denominators is known.
  static SymExpr comparison(Kind kind, const Fraction &a, const Fraction &b) {
    if (a.hasPositiveDenominator() && b.hasPositiveDenominator())
      return SymExpr::make(
          kind, {a.numerator * b.denominator, b.numerator * a.denominator});
    auto real = [](const Fraction &f) {
      return f.isWhole()
                 ? f.numerator
                 : SymExpr::make(Kind::TrueDiv, {f.numerator, f.denominator});
    };
    return SymExpr::make(kind, {real(a), real(b)});
  }

  static SymExpr floorDivision(const Fraction &a, const Fraction &b) {
    return SymExpr::make(Kind::FloorDiv, {a.numerator * b.denominator,
                                          a.denominator * b.numerator});
  }

  bool call(std::string_view id, const std::vector<Fraction> &args,
            Fraction &result) {
    std::vector<SymExpr> exprs;
    for (const Fraction &arg : args)
      exprs.push_back(arg.expr());
    auto is = [&](std::initializer_list<std::string_view> names) {
      for (std::string_view candidate : names)
        if (candidate == id)
          return true;
      return false;
    };
    auto takes = [&](size_t count) {
      return args.size() == count ||
             fail("'" + std::string(id) + "' takes " + std::to_string(count) +
                  " operands, not " + std::to_string(args.size()));
    };
    auto build = [&](Kind kind, size_t count) {
      if (!takes(count))
        return false;
      result.numerator = SymExpr::make(kind, exprs);
      return true;
    };
    auto compare = [&](Kind kind, bool exchanged) {
      if (!takes(2))
        return false;
      result.numerator = comparison(kind, args[exchanged], args[!exchanged]);
      return true;
    };

    if (id == "Integer") {
      if (!takes(1))
        return false;
      if (!exprs[0].asInteger())
        return fail("Integer of something else");
      result.numerator = exprs[0];
      return true;
    }
    if (id == "Rational") {
      if (!takes(2))
        return false;
      auto p = exprs[0].asInteger(), q = exprs[1].asInteger();
      if (!p || !q || *q <= 0)
        return fail("malformed Rational");
      result = {exprs[0], exprs[1]};
      return true;
    }
    if (id == "Add") {
      for (const Fraction &arg : args)
        result = add(result, arg);
      return true;
    }
    if (id == "Mul") {
      result.numerator = 1;
      std::vector<SymExpr> up, down;
      for (const Fraction &arg : args) {
        up.push_back(arg.numerator);
        down.push_back(arg.denominator);
      }
      if (!args.empty())
        result = {SymExpr::make(Kind::Mul, std::move(up)),
                  SymExpr::make(Kind::Mul, std::move(down))};
      return true;
    }
    if (is({"Pow", "PowByNatural", "FloatPow"}))
      return takes(2) && power(args[0], args[1], result);
    if (is({"FloorDiv", "CleanDiv", "CeilDiv"})) {
      if (!takes(2))
        return false;
      if (id != "CeilDiv") {
        result.numerator = floorDivision(args[0], args[1]);
        return true;
      }
      Fraction negated{args[0].numerator * SymExpr(-1), args[0].denominator};
      result.numerator = floorDivision(negated, args[1]) * SymExpr(-1);
      return true;
    }
    if (is({"Mod", "PythonMod"}))
      return build(Kind::Mod, 2);
    if (id == "ModularIndexing") {
      if (!takes(3))
        return false;
      result.numerator =
          SymExpr::make(Kind::Mod, {floorDivision(args[0], args[1]), exprs[2]});
      return true;
    }
    if (is({"LShift", "RShift"})) {
      if (!takes(2))
        return false;
      SymExpr scale = SymExpr::make(Kind::Pow, {2, exprs[1]});
      result.numerator = SymExpr::make(
          id == "LShift" ? Kind::Mul : Kind::FloorDiv, {exprs[0], scale});
      return true;
    }
    if (is({"IntTrueDiv", "FloatTrueDiv"})) {
      if (!takes(2))
        return false;
      result.numerator = SymExpr::make(
          Kind::TrueDiv, {args[0].numerator * args[1].denominator,
                          args[0].denominator * args[1].numerator});
      return true;
    }
    if (id == "ToFloat") {
      if (!takes(1))
        return false;
      result.numerator =
          args[0].isWhole()
              ? SymExpr::make(Kind::ToFloat, {exprs[0]})
              : SymExpr::make(Kind::TrueDiv,
                              {args[0].numerator, args[0].denominator});
      return true;
    }
    if (is({"Max", "Min"})) {
      if (args.empty())
        return fail("'" + std::string(id) + "' of nothing");
      result.numerator =
          SymExpr::make(id == "Max" ? Kind::Max : Kind::Min, exprs);
      return true;
    }
    if (is({"floor", "FloorToInt", "ceiling", "CeilToInt"})) {
      if (!takes(1))
        return false;
      bool down = is({"floor", "FloorToInt"});
      const Fraction &arg = args[0];
      if (arg.isWhole() || arg.numerator.mayBeReal()) {
        result.numerator =
            SymExpr::make(down ? Kind::Floor : Kind::Ceil, {exprs[0]});
        return true;
      }
      SymExpr sign(down ? 1 : -1);
      result.numerator =
          sign * SymExpr::make(Kind::FloorDiv,
                               {sign * arg.numerator, arg.denominator});
      return true;
    }
    if (id == "TruncToInt")
      return build(Kind::Trunc, 1);
    if (id == "TruncToFloat") {
      if (!build(Kind::Trunc, 1))
        return false;
      result.numerator = SymExpr::make(Kind::ToFloat, {result.numerator});
      return true;
    }
    if (id == "RoundToInt")
      return build(Kind::Round, 1);
    if (is({"Abs", "Identity", "UnevaluatedExpr"}) && !takes(1))
      return false;
    if (id == "Abs")
      return build(Kind::Abs, 1);
    if (is({"Identity", "UnevaluatedExpr"})) {
      result = args[0];
      return true;
    }
    if (id == "RoundDecimal")
      return build(Kind::RoundDecimal, 2);
    if (id == "BitwiseFn_bitwise_and")
      return build(Kind::BitAnd, 2);
    if (id == "BitwiseFn_bitwise_or")
      return build(Kind::BitOr, 2);
    if (id == "BitwiseFn_bitwise_xor")
      return build(Kind::BitXor, 2);
    std::string_view name = id;
    if (name.starts_with("OpaqueUnaryFn_"))
      name.remove_prefix(std::string_view("OpaqueUnaryFn_").size());
    if (const SymExpr::RealFunction *function = SymExpr::realFunction(name))
      return build(function->kind, 1);
    if (id == "Where")
      return build(Kind::Select, 3);
    if (is({"Equality", "Eq"}))
      return compare(Kind::Eq, false);
    if (is({"Unequality", "Ne"}))
      return compare(Kind::Ne, false);
    if (is({"StrictLessThan", "Lt"}))
      return compare(Kind::Lt, false);
    if (is({"LessThan", "Le"}))
      return compare(Kind::Le, false);
    if (is({"StrictGreaterThan", "Gt"}))
      return compare(Kind::Lt, true);
    if (is({"GreaterThan", "Ge"}))
      return compare(Kind::Le, true);
    if (is({"And", "Or"})) {
      result.numerator =
          SymExpr::make(id == "And" ? Kind::And : Kind::Or, exprs);
      return true;
    }
    if (id == "Not")
      return build(Kind::Not, 1);
    if (is({"BooleanTrue", "BooleanFalse"})) {
      result.numerator = SymExpr::boolean(id == "BooleanTrue");
      return takes(0);
    }
    return fail("unknown sympy function '" + std::string(id) + "'");
  }
};
} // namespace

std::optional<SymExpr> SymExpr::parse(std::string_view text,
                                      std::string *error) {
  CanonicalParser parser(text);
  SymExpr result;
  if (parser.sum(result) && (parser.atEnd() || parser.fail("unexpected text")))
    return result;
  if (error)
    *error = parser.error;
  return std::nullopt;
}

std::optional<SymExpr> SymExpr::parseSympy(std::string_view text,
                                           std::string *error) {
  SympyParser parser(text);
  Fraction result;
  if (parser.value(result) &&
      (parser.atEnd() || parser.fail("unexpected text")))
    return result.expr();
  if (error)
    *error = parser.error;
  return std::nullopt;
}
