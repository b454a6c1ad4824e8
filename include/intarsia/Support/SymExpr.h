//===- SymExpr.h - Symbolic size expressions ----------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A symbolic integer (or, for SymBool and SymFloat, boolean or floating-point)
// expression over named symbols, kept in one normal form: two expressions are
// structurally equal exactly if their canonical texts are equal. It is the
// vocabulary of sizes, strides, guards and launch geometry in every stage from
// the importer to the runtime, so it depends on nothing (no MLIR, no torch).
//
// Immutable and cheap to copy; safe to share among threads.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_SUPPORT_SYMEXPR_H
#define INTARSIA_SUPPORT_SYMEXPR_H

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace intarsia {

/// The value of an expression: an integer (SymInt), a float (SymFloat) or a
/// boolean (SymBool).
using SymValue = std::variant<int64_t, double, bool>;

class SymExpr {
public:
  enum class Kind : uint8_t {
    // Leaves.
    Integer,
    Float,
    Bool,
    Symbol,
    // Integer arithmetic. Add and Mul are n-ary, flattened, sorted, with like
    // terms collected and one constant at most (printed last in a sum, first
    // in a product).
    Add,
    Mul,
    Pow,      // (base, exponent)
    FloorDiv, // (a, b): rounds towards minus infinity, as Python's //
    Mod,      // (a, b): sign of the divisor, as Python's %
    Min,      // n-ary, sorted
    Max,      // n-ary, sorted
    Abs,
    // Float arithmetic.
    TrueDiv, // (a, b)
    ToFloat,
    Trunc, // float -> int, towards zero
    Floor, // float -> int
    Ceil,  // float -> int
    Round, // float -> int, half to even
    Sqrt,
    // Booleans.
    Eq,
    Ne,
    Lt,
    Le, // Gt and Ge are written with their operands exchanged.
    And,
    Or,
    Not,
    Select, // (condition, a, b)
    // Functions of floats, as Sqrt.
    Exp,
    Log,
    Log2,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    RoundDecimal, // (float, int): float with so many decimal digits
    // Bits of integers.
    BitAnd, // (a, b)
    BitOr,
    BitXor,
  };

  /// A function of one float that Python's math module has.
  struct RealFunction {
    Kind kind;
    std::string_view name;
    double (*apply)(double);
    /// Nothing where Python's raises: a wrong argument, a result out of range.
    std::optional<double> operator()(double x) const;
  };
  static std::span<const RealFunction> realFunctions();
  /// Null when it is none.
  static const RealFunction *realFunction(Kind kind);
  static const RealFunction *realFunction(std::string_view name);
  /// Python's round(x, digits).
  static double roundDecimal(double x, int64_t digits);

  /// The integer 0.
  SymExpr();
  /*implicit*/ SymExpr(int64_t value);

  static SymExpr integer(int64_t value);
  static SymExpr real(double value);
  static SymExpr boolean(bool value);
  static SymExpr symbol(std::string_view name);
  /// Builds a node and brings it into normal form. Throws std::invalid_argument
  /// for a leaf's kind or a wrong number of operands.
  static SymExpr make(Kind kind, std::vector<SymExpr> operands);
  /// A node as given, in no normal form: for the implementation of `make`.
  static SymExpr raw(Kind kind, std::vector<SymExpr> operands);

  /// Parses the canonical text form that `str()` prints, e.g. `12*s0 + 1`,
  /// `floordiv(s0, 2)`, `max(1, s0)`, `select(lt(s0, 4), 1, 2)`; `ge`, `gt`,
  /// `//` and `%` are read too. Returns nullopt and sets `error` (when given)
  /// on malformed text. Never throws, bounded recursion.
  static std::optional<SymExpr> parse(std::string_view text,
                                      std::string *error = nullptr);
  /// Parses the text that sympy's `srepr` prints, which is what a `.pt2` file
  /// holds for sizes, including PyTorch's own functions (FloorDiv, Mod,
  /// PythonMod, CleanDiv, Max, Min, PowByNatural, IntTrueDiv, ToFloat,
  /// TruncToInt, CeilToInt, FloorToInt, RoundToInt, RoundDecimal, Where,
  /// Piecewise, OpaqueUnaryFn_sin, BitwiseFn_bitwise_and, ...).
  static std::optional<SymExpr> parseSympy(std::string_view text,
                                           std::string *error = nullptr);

  Kind kind() const;
  const std::vector<SymExpr> &operands() const;
  /// Only for Symbol.
  const std::string &name() const;

  std::optional<int64_t> asInteger() const;
  std::optional<double> asReal() const;
  std::optional<bool> asBool() const;
  bool isInteger(int64_t value) const;
  bool isSymbol() const { return kind() == Kind::Symbol; }
  bool isConstant() const;
  /// A condition: true, false, a comparison, and, or, not, or a choice of
  /// these.
  bool isBoolean() const;
  /// Its value may be a float: it holds a float constant or operation that no
  /// rounding takes back, or a symbol with PyTorch's prefix of float symbols
  /// (`zf`, `zuf`).
  bool mayBeReal() const;

  /// The canonical text.
  std::string str() const;
  void collectSymbols(std::set<std::string> &names) const;
  SymExpr substitute(const std::map<std::string, SymExpr> &values) const;
  /// Evaluates with `lookup` giving the value of each symbol. Returns nullopt
  /// for an unknown symbol, a division by zero or an overflow.
  std::optional<SymValue> evaluate(
      const std::function<std::optional<SymValue>(const std::string &)> &lookup)
      const;

  friend SymExpr operator+(const SymExpr &a, const SymExpr &b);
  friend SymExpr operator-(const SymExpr &a, const SymExpr &b);
  friend SymExpr operator*(const SymExpr &a, const SymExpr &b);
  bool operator==(const SymExpr &other) const;
  bool operator!=(const SymExpr &other) const { return !(*this == other); }
  /// A total order by canonical structure, for containers.
  bool operator<(const SymExpr &other) const;
  /// Equal for equal expressions, in one process.
  size_t hash() const;

private:
  struct Node;
  explicit SymExpr(std::shared_ptr<const Node> node);
  std::shared_ptr<const Node> node;
};

} // namespace intarsia

#endif // INTARSIA_SUPPORT_SYMEXPR_H
