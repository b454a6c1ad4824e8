//===- SymExprTest.cpp - Tests of symbolic size expressions ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The normal form, both parsers and evaluation. A rewriting is tested twice:
// by the text it gives, and by evaluating both sides (NormalFormKeepsTheValue).
//
//===----------------------------------------------------------------------===//

#include "intarsia/Support/SymExpr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

using namespace intarsia;
using Kind = SymExpr::Kind;

namespace {
SymExpr expr(const std::string &text) {
  std::string error;
  auto result = SymExpr::parse(text, &error);
  EXPECT_TRUE(result) << text << ": " << error;
  return result.value_or(SymExpr(-12345));
}

std::string sympy(const std::string &text) {
  std::string error;
  auto result = SymExpr::parseSympy(text, &error);
  return result ? result->str() : "error: " + error;
}

std::optional<SymValue> evaluate(const SymExpr &e,
                                 std::map<std::string, SymValue> values = {}) {
  return e.evaluate([&](const std::string &name) -> std::optional<SymValue> {
    auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  });
}

constexpr int64_t maxInt = std::numeric_limits<int64_t>::max();
constexpr int64_t minInt = std::numeric_limits<int64_t>::min();
} // namespace

TEST(SymExprTest, CanonicalText) {
  // what is written, and the one text that it has
  const std::pair<const char *, const char *> cases[] = {
      {"12", "12"},
      {"-3", "-3"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"s0*12 + 1", "12*s0 + 1"},
      {"1 + s1 + s0", "s0 + s1 + 1"},
      {"s10 + s2", "s2 + s10"},
      {"s0 + s0", "2*s0"},
      {"s0 - s0", "0"},
      {"-s0", "-s0"},
      {"s1 - s0*3 - 4", "-3*s0 + s1 - 4"},
      {"(s0 + 1)*(s0 - 1)", "s0*s0 - 1"},
      {"2*(s0 + s1) - s0", "s0 + 2*s1"},
      {"pow(s0, 3)", "s0*s0*s0"},
      {"pow(2, s0)", "pow(2, s0)"},
      {"pow(2, 10)", "1024"},
      {"s0*s1 + s0 + s1*s0", "2*s0*s1 + s0"},
      {"0*s0", "0"},
      {"max(s0, 1)", "max(1, s0)"},
      {"max(s0, max(s1, s0))", "max(s0, s1)"},
      {"max(s0 + 1, s0)", "s0 + 1"},
      {"min(s0 + 1, s0, 3, 5)", "min(3, s0)"},
      {"floordiv(s0*6, 3)", "2*s0"},
      {"floordiv(s0*s1, s1)", "s0"},
      {"floordiv(s0, s0)", "1"},
      {"floordiv(7, 2)", "3"},
      {"floordiv(-7, 2)", "-4"},
      {"floordiv(4*s0 + s1 + 9, 4)", "s0 + floordiv(s1 + 1, 4) + 2"},
      {"floordiv(s0 - 1, 2) + 1", "floordiv(s0 + 1, 2)"},
      {"floordiv(2*s0 + 3, 4)", "floordiv(s0 + 1, 2)"},
      {"floordiv(floordiv(s0, 2), 3)", "floordiv(s0, 6)"},
      {"floordiv(s0, 1)", "s0"},
      {"floordiv(s0, -1)", "-s0"},
      {"floordiv(s0, 0)", "floordiv(s0, 0)"},
      {"s0//2", "floordiv(s0, 2)"},
      {"mod(s0*6, 3)", "0"},
      {"mod(s0*s1, s1)", "0"},
      {"mod(-7, 3)", "2"},
      {"mod(7, -3)", "-2"},
      {"mod(5*s0 + 9, 4)", "mod(s0 + 1, 4)"},
      {"mod(-s0, 8)", "mod(-s0, 8)"},
      {"mod(7*s0, 8)", "mod(-s0, 8)"},
      {"mod(2*s0 + 5, 4)", "2*mod(s0, 2) + 1"},
      {"mod(mod(s0, 8) + s1, 4)", "mod(s0 + s1, 4)"},
      {"s0 % 4", "mod(s0, 4)"},
      {"abs(-3)", "3"},
      {"abs(s0)", "abs(s0)"},
      {"eq(s0 + 1, 5)", "eq(s0, 4)"},
      {"eq(5, s0)", "eq(s0, 5)"},
      {"eq(2*s0, 2*s1)", "eq(s0, s1)"},
      {"eq(s0 - s1, 1)", "eq(s0, s1 + 1)"},
      {"eq(s0, s0)", "true"},
      {"ne(s0, s0 + 1)", "true"},
      {"ge(u0, 1)", "le(1, u0)"},
      {"lt(2*s0 + 2, 8)", "lt(s0, 3)"},
      {"gt(3, 2)", "true"},
      {"not(lt(s0, 4))", "le(4, s0)"},
      {"not(not(eq(s0, 4)))", "eq(s0, 4)"},
      {"not(lt(zf0, 4))", "not(lt(zf0, 4))"},
      {"and(true, lt(s0, 4), lt(s0, 4))", "lt(s0, 4)"},
      {"or(lt(s0, 4), true)", "true"},
      {"and(lt(s1, 2), lt(s0, 4))", "and(lt(s0, 4), lt(s1, 2))"},
      {"eq(lt(s0, 4), true)", "lt(s0, 4)"},
      {"select(lt(s0, 4), 1, 2)", "select(lt(s0, 4), 1, 2)"},
      {"select(true, s0, s1)", "s0"},
      {"select(lt(s0, 4), s1, s1)", "s1"},
      {"1.5*s0 + 1", "1.5*s0 + 1"},
      {"1.5 + 1", "2.5"},
      {"2.0", "2.0"},
      {"1e20", "1e+20"},
      {"-inf", "-inf"},
      {"nan", "nan"},
      {"truediv(s0, 2)", "truediv(s0, 2)"},
      {"truediv(1, 4)", "0.25"},
      {"float(3)", "3.0"},
      {"trunc(-1.5)", "-1"},
      {"floor(-1.5)", "-2"},
      {"ceil(1.25)", "2"},
      {"round(2.5)", "2"},
      {"round(3.5)", "4"},
      {"trunc(float(s0))", "s0"},
      {"sqrt(4)", "2.0"},
      {"sqrt(s0)", "sqrt(s0)"},
      {"cos(0)", "1.0"},
      {"log(zf0)", "log(zf0)"},
      {"log(-1)", "log(-1)"},
      {"bitand(6, 3)", "2"},
      {"bitxor(s0, 3)", "bitxor(s0, 3)"},
      {"rounddecimal(2.675, 2)", "2.67"},
      {"rounddecimal(2.5, 0)", "2.0"},
      {"rounddecimal(-1234.5, -2)", "-1200.0"},
      {"rounddecimal(50, -2)", "0.0"},
      {"rounddecimal(150, -2)", "200.0"},
      {"rounddecimal(50.001, -2)", "100.0"},
      {"rounddecimal(4, -1)", "0.0"},
      {"rounddecimal(1e300, -301)", "0.0"},
      {"rounddecimal(zf0, 1)", "rounddecimal(zf0, 1)"},
  };
  for (auto [text, canonical] : cases) {
    SymExpr e = expr(text);
    EXPECT_EQ(e.str(), canonical) << text;
    EXPECT_EQ(expr(e.str()), e) << text;
    EXPECT_EQ(expr(e.str()).str(), e.str()) << text;
  }
}

TEST(SymExprTest, EqualExactlyIfEqualTexts) {
  EXPECT_EQ(expr("(s0 + s1)*(s0 + s1)"), expr("s0*s0 + 2*s1*s0 + s1*s1"));
  EXPECT_EQ(expr("s0*2").hash(), expr("s0 + s0").hash());
  EXPECT_NE(expr("s0"), expr("s1"));
  EXPECT_NE(SymExpr(1), SymExpr::real(1.0));
  EXPECT_NE(SymExpr::real(0.0), SymExpr::real(-0.0));
  EXPECT_EQ(SymExpr::real(std::nan("")), SymExpr::real(-std::nan("7")));
  EXPECT_EQ(SymExpr(), SymExpr(0));
}

TEST(SymExprTest, OrderIsTotal) {
  std::vector<SymExpr> all = {
      expr("0"),         expr("s0"),        expr("s1"),   expr("s0 + 1"),
      expr("2*s0"),      expr("1.5"),       expr("true"), expr("s0*s1"),
      expr("eq(s0, 1)"), expr("mod(s0, 2)")};
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < all.size(); ++j)
      EXPECT_EQ((all[i] < all[j]) + (all[j] < all[i]), i != j);
}

TEST(SymExprTest, LargeProductsStayProducts) {
  std::string sum = "(a0";
  for (int i = 1; i < 20; ++i)
    sum += " + a" + std::to_string(i);
  sum += ")";
  std::string other = sum;
  for (char &c : other)
    if (c == 'a')
      c = 'b';
  SymExpr e = expr(sum + "*" + other);
  EXPECT_EQ(e.kind(), Kind::Mul);
  EXPECT_EQ(e, expr(other + "*" + sum));
  EXPECT_EQ(e - e, SymExpr(0));
  for (const SymExpr &each :
       {e, e * SymExpr(-2), e * expr("c0"), e + expr("1")})
    EXPECT_EQ(expr(each.str()), each) << each.str();
}

TEST(SymExprTest, OverflowIsKeptAndSaid) {
  SymExpr e = SymExpr(maxInt) * SymExpr(2);
  EXPECT_EQ(e.str(), "2*9223372036854775807");
  EXPECT_EQ(expr(e.str()), e);
  EXPECT_EQ(evaluate(e), std::nullopt);
  EXPECT_EQ(evaluate(SymExpr(maxInt) + SymExpr(1)), std::nullopt);
  EXPECT_EQ(
      evaluate(expr("floordiv(s0, s1)"), {{"s0", minInt}, {"s1", int64_t(-1)}}),
      std::nullopt);
  EXPECT_EQ(evaluate(expr("s0*s0"), {{"s0", int64_t(1) << 40}}), std::nullopt);
  EXPECT_EQ(evaluate(expr("pow(3, s0)"), {{"s0", int64_t(100)}}), std::nullopt);
  EXPECT_EQ(evaluate(expr("abs(s0)"), {{"s0", minInt}}), std::nullopt);
  EXPECT_EQ(evaluate(expr("trunc(zf0)"), {{"zf0", 1e300}}), std::nullopt);
}

TEST(SymExprTest, Evaluate) {
  const std::map<std::string, SymValue> values = {
      {"s0", int64_t(7)}, {"s1", int64_t(-2)}, {"zf0", 2.5}, {"b", true}};
  const std::pair<const char *, SymValue> cases[] = {
      {"12*s0 + 1", int64_t(85)},
      {"floordiv(s0, s1)", int64_t(-4)},
      {"mod(s0, s1)", int64_t(-1)},
      {"truediv(s0, s1)", -3.5},
      {"zf0*s0", 17.5},
      {"floordiv(zf0, s1)", -2.0},
      {"mod(zf0, s1)", -1.5},
      {"max(s0, s1, 3)", int64_t(7)},
      {"min(s0, zf0)", 2.5},
      {"round(zf0)", int64_t(2)},
      {"ceil(zf0)", int64_t(3)},
      {"float(s0)", 7.0},
      {"pow(s0, s1)", 1.0 / 49},
      {"lt(s0, zf0)", false},
      {"and(lt(s1, s0), b)", true},
      {"not(b)", false},
      {"select(lt(s0, 0), floordiv(s0, 0), s0 + b)", int64_t(8)},
  };
  for (auto [text, value] : cases)
    EXPECT_EQ(evaluate(expr(text), values), value) << text;
  EXPECT_EQ(evaluate(expr("s9"), values), std::nullopt);
  EXPECT_EQ(evaluate(expr("mod(s0, s0 - 7)"), values), std::nullopt);
  // Every int64 has its own double-wide comparison.
  EXPECT_EQ(
      evaluate(expr("lt(a, b)"), {{"a", maxInt}, {"b", 9223372036854775808.0}}),
      SymValue(true));
}

TEST(SymExprTest, Substitute) {
  SymExpr e = expr("floordiv(4*s0 + s1, 4)");
  EXPECT_EQ(e.substitute({{"s1", expr("4*u0")}}).str(), "s0 + u0");
  EXPECT_EQ(e.substitute({{"s0", 3}, {"s1", 2}}), SymExpr(3));
  std::set<std::string> names;
  e.collectSymbols(names);
  EXPECT_EQ(names, (std::set<std::string>{"s0", "s1"}));
}

TEST(SymExprTest, MalformedTextIsAnError) {
  for (const char *text :
       {"", "s0 +", "(s0", "s0)", "floordiv(s0)", "unknown(s0)", "max()",
        "1..2", "99999999999999999999", "s0 s1", "*s0", "select(true, 1)",
        "1e999", "$"}) {
    std::string error;
    EXPECT_EQ(SymExpr::parse(text, &error), std::nullopt) << text;
    EXPECT_FALSE(error.empty()) << text;
  }
  // No text makes the parsers recurse without bound.
  std::string deep(100000, '(');
  EXPECT_EQ(SymExpr::parse(deep), std::nullopt);
  std::string nested;
  for (int i = 0; i < 100000; ++i)
    nested += "Add(";
  EXPECT_EQ(SymExpr::parseSympy(nested), std::nullopt);
}

TEST(SymExprTest, Sympy) {
  const std::string s0 = "Symbol('s0', positive=True, integer=True)";
  const std::string u0 = "Symbol('u0', integer=True)";
  const std::pair<std::string, const char *> cases[] = {
      {"Symbol('s77', positive=True, integer=True)", "s77"},
      {"Integer(3)", "3"},
      {"Integer(-1)", "-1"},
      {"5", "5"},
      {"Float('2.5', precision=53)", "2.5"},
      {"Float('-3', precision=53)", "-3.0"},
      {"Add(Mul(Integer(12), " + s0 + "), Integer(1))", "12*s0 + 1"},
      {"Mul(Integer(-1), " + s0 + ")", "-s0"},
      {"Pow(" + s0 + ", Integer(2))", "s0*s0"},
      {"PowByNatural(Integer(2), " + s0 + ")", "pow(2, s0)"},
      {"FloorDiv(" + s0 + ", Integer(2))", "floordiv(s0, 2)"},
      {"CleanDiv(" + s0 + ", Integer(2))", "floordiv(s0, 2)"},
      {"CeilDiv(" + s0 + ", Integer(2))", "-floordiv(-s0, 2)"},
      {"Mod(" + s0 + ", Integer(2))", "mod(s0, 2)"},
      {"PythonMod(" + s0 + ", Integer(2))", "mod(s0, 2)"},
      {"ModularIndexing(" + s0 + ", Integer(2), Integer(3))",
       "mod(floordiv(s0, 2), 3)"},
      {"Max(Integer(1), " + u0 + ")", "max(1, u0)"},
      {"Min(" + u0 + ", Integer(4))", "min(4, u0)"},
      {"IntTrueDiv(" + s0 + ", Integer(2))", "truediv(s0, 2)"},
      {"TruncToInt(IntTrueDiv(" + s0 + ", Integer(2)))",
       "trunc(truediv(s0, 2))"},
      {"CeilToInt(Mul(Float('1.5', precision=53), ToFloat(" + s0 + ")))",
       "ceil(1.5*float(s0))"},
      {"FloorToInt(Float('1.5', precision=53))", "1"},
      {"RoundToInt(Float('1.5', precision=53))", "2"},
      {"Where(StrictLessThan(" + s0 + ", Integer(4)), Integer(1), Integer(2))",
       "select(lt(s0, 4), 1, 2)"},
      {"Piecewise(ExprCondPair(Integer(1), StrictLessThan(" + s0 +
           ", Integer(4))), ExprCondPair(Integer(2), true))",
       "select(lt(s0, 4), 1, 2)"},
      {"StrictGreaterThan(" + s0 + ", Integer(3))", "lt(3, s0)"},
      {"GreaterThan(" + u0 + ", Integer(0))", "le(0, u0)"},
      {"LessThan(" + u0 + ", Integer(5))", "le(u0, 5)"},
      {"Equality(" + u0 + ", Integer(5))", "eq(u0, 5)"},
      {"Eq(Mod(" + s0 + ", Integer(8)), Integer(0))", "eq(mod(s0, 8), 0)"},
      {"Unequality(" + u0 + ", Integer(5))", "ne(u0, 5)"},
      {"And(GreaterThan(" + u0 + ", Integer(0)), Not(Equality(" + u0 +
           ", Integer(3))))",
       "and(ne(u0, 3), le(0, u0))"},
      {"Or(BooleanTrue(), false)", "true"},
      {"true", "true"},
      {"Identity(" + s0 + ")", "s0"},
      {"LShift(" + s0 + ", Integer(3))", "8*s0"},
      {"OpaqueUnaryFn_sqrt(" + s0 + ")", "sqrt(s0)"},
      {"OpaqueUnaryFn_asinh(" + s0 + ")", "asinh(s0)"},
      {"BitwiseFn_bitwise_or(" + s0 + ", Integer(1))", "bitor(s0, 1)"},
      {"RoundDecimal(IntTrueDiv(" + s0 + ", Integer(2)), Integer(-1))",
       "rounddecimal(truediv(s0, 2), -1)"},
      // sympy divides exactly.
      {"Mul(Rational(1, 2), " + s0 + ")", "floordiv(s0, 2)"},
      {"Add(Mul(Rational(1, 2), " + s0 + "), Rational(1, 2))",
       "floordiv(s0 + 1, 2)"},
      {"Equality(Mul(Rational(1, 2), " + s0 + "), Integer(3))", "eq(s0, 6)"},
      {"StrictLessThan(" + s0 + ", Rational(7, 2))", "lt(2*s0, 7)"},
      {"Rational(1, 2)", "0.5"},
      {"Mul(" + s0 + ", Pow(" + u0 + ", Integer(-1)))", "floordiv(s0, u0)"},
      {"ceiling(Mul(Rational(1, 2), " + s0 + "))", "-floordiv(-s0, 2)"},
  };
  for (auto [text, canonical] : cases)
    EXPECT_EQ(sympy(text), canonical) << text;
}

TEST(SymExprTest, MalformedSympyIsAnErrorThatNamesIt) {
  const std::pair<const char *, const char *> cases[] = {
      {"", "unexpected end"},
      {"Symbol('s0'", "expected ')'"},
      {"Symbol(s0)", "expected a quoted name"},
      {"Symbol('s0", "unterminated string"},
      {"Gamma(Integer(1))", "unknown sympy function 'Gamma'"},
      {"Mod(Integer(1))", "'Mod' takes 2 operands, not 1"},
      {"int_oo", "unknown sympy constant 'int_oo'"},
      {"Integer(99999999999999999999)", "exceeds 64 bits"},
      {"Integer(1) Integer(2)", "unexpected text"},
      {"Rational(1, 0)", "malformed Rational"},
  };
  for (auto [text, message] : cases)
    EXPECT_NE(sympy(text).find(message), std::string::npos)
        << text << " gave " << sympy(text);
}

// Random expressions: what `make` returns has the value of the operation
// applied to the operands' values.
TEST(SymExprTest, NormalFormKeepsTheValue) {
  std::mt19937 random(7);
  auto pick = [&](int bound) { return int(random() % unsigned(bound)); };
  const std::map<std::string, SymValue> environments[] = {
      {{"s0", int64_t(5)}, {"s1", int64_t(8)}, {"u0", int64_t(3)}},
      {{"s0", int64_t(16)}, {"s1", int64_t(2)}, {"u0", int64_t(-7)}},
      {{"s0", int64_t(1)}, {"s1", int64_t(12)}, {"u0", int64_t(0)}},
  };
  const Kind kinds[] = {Kind::Add, Kind::Mul, Kind::FloorDiv, Kind::Mod,
                        Kind::Min, Kind::Max, Kind::Add,      Kind::Mul};
  const Kind comparisons[] = {Kind::Eq, Kind::Ne, Kind::Lt, Kind::Le};
  std::vector<SymExpr> pool = {expr("s0"), expr("s1"), expr("u0"), SymExpr(1),
                               SymExpr(2), SymExpr(3), SymExpr(4), SymExpr(-6)};
  for (int round = 0; round < 20000; ++round) {
    bool compares = pick(6) == 0;
    Kind kind = compares ? comparisons[pick(4)] : kinds[pick(8)];
    SymExpr a = pool[size_t(pick(int(pool.size())))];
    SymExpr b = pool[size_t(pick(int(pool.size())))];
    SymExpr made = SymExpr::make(kind, {a, b});
    SymExpr written = SymExpr::raw(kind, {a, b});
    for (const auto &values : environments) {
      auto expected = evaluate(written, values);
      // A division by zero may have been simplified away.
      if (expected) {
        ASSERT_EQ(evaluate(made, values), expected)
            << written.str() << " became " << made.str();
      }
    }
    ASSERT_EQ(expr(made.str()), made) << made.str();
    SymExpr negated = SymExpr::make(Kind::Not, {made});
    if (compares) {
      for (const auto &values : environments)
        if (auto value = evaluate(made, values)) {
          ASSERT_EQ(evaluate(negated, values),
                    SymValue(!std::get<bool>(*value)));
        }
      continue;
    }
    if (made.str().size() < 120)
      pool.push_back(made);
    if (pool.size() > 200)
      pool.erase(pool.begin() + 8, pool.begin() + 100);
  }
}

TEST(SymExprTest, MakeRefusesWrongOperands) {
  EXPECT_THROW(SymExpr::make(Kind::FloorDiv, {SymExpr(1)}),
               std::invalid_argument);
  EXPECT_THROW(SymExpr::make(Kind::Symbol, {}), std::invalid_argument);
  EXPECT_THROW(SymExpr::make(Kind::Max, {}), std::invalid_argument);
}
