//===- ExprTable.h - Compiled size expressions --------------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The expressions of one function of a plan in the form in which they are
// evaluated at each call: a constant, a symbol, or a short program for a stack
// machine. Constants and bare symbols, nearly all there are, cost a load.
// Header-only evaluation, so that the shim uses it without linking the runtime.
//
// Immutable once built; evaluation is thread-safe.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_EXPRTABLE_H
#define INTARSIA_LIB_RUNTIME_EXPRTABLE_H

#include "intarsia/Plan/Plan.h"
#include "intarsia/Runtime/Error.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace intarsia::runtime {

class ExprTable {
public:
  enum class Type : uint8_t { Int, Float, Bool };

  ExprTable() = default;
  /// Throws Error(Internal) for an expression over an unknown symbol.
  explicit ExprTable(const plan::Function &function);

  size_t size() const { return entries.size(); }
  Type type(plan::ExprId id) const { return entries[id].type; }
  bool isConstant(plan::ExprId id) const {
    return entries[id].form == Form::Constant;
  }
  /// The symbol's index when the expression is a bare symbol, else -1.
  int32_t bareSymbol(plan::ExprId id) const {
    return entries[id].form == Form::Symbol ? int32_t(entries[id].value) : -1;
  }
  const std::vector<int32_t> &symbolsOf(plan::ExprId id) const {
    return symbols[id];
  }
  const std::string &text(plan::ExprId id) const { return texts[id]; }

  /// The value; a float's bits. Throws Error(Guard) for a division by zero or
  /// an overflow.
  int64_t bits(plan::ExprId id, const int64_t *values) const {
    const Entry &entry = entries[id];
    if (entry.form == Form::Constant) [[likely]]
      return entry.value;
    if (entry.form == Form::Symbol) [[likely]]
      return values[entry.value];
    return interpret(id, values);
  }
  int64_t integer(plan::ExprId id, const int64_t *values) const {
    return bits(id, values);
  }
  double real(plan::ExprId id, const int64_t *values) const {
    int64_t value = bits(id, values);
    return entries[id].type == Type::Float ? std::bit_cast<double>(value)
                                           : double(value);
  }

private:
  enum class Form : uint8_t { Constant, Symbol, Code };
  struct Entry {
    Form form;
    Type type;
    int64_t value; // Constant: bits; Symbol: index; Code: first instruction
  };
  enum class Code : uint8_t {
    Push,   // operand: bits
    Load,   // operand: symbol
    ToReal, // int on top -> float
    Add,
    Mul,
    Pow,
    FloorDiv,
    Mod,
    Min,
    Max,
    Abs,
    Eq,
    Ne,
    Lt,
    Le,
    AddReal,
    MulReal,
    PowReal,
    FloorDivReal,
    ModReal,
    MinReal,
    MaxReal,
    AbsReal,
    EqReal,
    NeReal,
    LtReal,
    LeReal,
    TrueDiv,
    Trunc, // float -> int
    Floor,
    Ceil,
    Round,
    // The operand is the function: this header is also used where the library
    // of expressions is not linked.
    RoundDecimal,
    RealFunction,
    BitAnd,
    BitOr,
    BitXor,
    Not,
    JumpIfFalse, // pops; operand: instruction
    JumpIfTrue,
    Jump,
    End,
  };
  struct Instruction {
    Code code;
    int64_t operand;
  };
  class Builder;

  [[noreturn]] void fail(plan::ExprId id, const char *what) const {
    throw Error(ErrorKind::Guard, "the size expression '" + texts[id] + "' " +
                                      what + " for these inputs");
  }

  int64_t toInteger(plan::ExprId id, double value) const {
    // Exactly the doubles in [-2^63, 2^63).
    if (!(value >= -0x1p63 && value < 0x1p63))
      fail(id, "does not fit 64 bits");
    return int64_t(value);
  }

  int64_t interpret(plan::ExprId id, const int64_t *values) const {
    int64_t stack[maxDepth];
    int64_t *top = stack - 1;
    auto real = [](int64_t bits) { return std::bit_cast<double>(bits); };
    auto put = [&](double value) { *top = std::bit_cast<int64_t>(value); };
    const Instruction *code = instructions.data();
    for (const Instruction *at = code + entries[id].value;; ++at) {
      switch (at->code) {
      case Code::Push:
        *++top = at->operand;
        break;
      case Code::Load:
        *++top = values[at->operand];
        break;
      case Code::ToReal:
        put(double(*top));
        break;
      case Code::Add:
        --top;
        if (__builtin_add_overflow(top[0], top[1], top))
          fail(id, "overflows");
        break;
      case Code::Mul:
        --top;
        if (__builtin_mul_overflow(top[0], top[1], top))
          fail(id, "overflows");
        break;
      case Code::Pow: {
        --top;
        int64_t base = top[0], exponent = top[1], result = 1;
        if (exponent < 0)
          fail(id, "has a negative exponent");
        while (exponent) {
          if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            fail(id, "overflows");
          exponent >>= 1;
          if (exponent && __builtin_mul_overflow(base, base, &base))
            fail(id, "overflows");
        }
        *top = result;
        break;
      }
      case Code::FloorDiv: {
        --top;
        int64_t a = top[0], b = top[1];
        if (b == 0)
          fail(id, "divides by zero");
        if (b == -1) {
          if (__builtin_sub_overflow(int64_t(0), a, top))
            fail(id, "overflows");
          break;
        }
        *top = a / b - (a % b != 0 && ((a < 0) != (b < 0)));
        break;
      }
      case Code::Mod: {
        --top;
        int64_t a = top[0], b = top[1];
        if (b == 0)
          fail(id, "divides by zero");
        int64_t rest = b == -1 ? 0 : a % b;
        *top = rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
        break;
      }
      case Code::Min:
        --top;
        *top = std::min(top[0], top[1]);
        break;
      case Code::Max:
        --top;
        *top = std::max(top[0], top[1]);
        break;
      case Code::Abs:
        if (*top == std::numeric_limits<int64_t>::min())
          fail(id, "overflows");
        *top = *top < 0 ? -*top : *top;
        break;
      case Code::Eq:
        --top;
        *top = top[0] == top[1];
        break;
      case Code::Ne:
        --top;
        *top = top[0] != top[1];
        break;
      case Code::Lt:
        --top;
        *top = top[0] < top[1];
        break;
      case Code::Le:
        --top;
        *top = top[0] <= top[1];
        break;
      case Code::AddReal:
        --top;
        put(real(top[0]) + real(top[1]));
        break;
      case Code::MulReal:
        --top;
        put(real(top[0]) * real(top[1]));
        break;
      case Code::PowReal:
        --top;
        put(std::pow(real(top[0]), real(top[1])));
        break;
      case Code::FloorDivReal:
        --top;
        if (real(top[1]) == 0)
          fail(id, "divides by zero");
        put(std::floor(real(top[0]) / real(top[1])));
        break;
      case Code::ModReal: {
        --top;
        double a = real(top[0]), b = real(top[1]);
        if (b == 0)
          fail(id, "divides by zero");
        double rest = std::fmod(a, b);
        put(rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest);
        break;
      }
      case Code::MinReal:
        --top;
        put(std::min(real(top[0]), real(top[1])));
        break;
      case Code::MaxReal:
        --top;
        put(std::max(real(top[0]), real(top[1])));
        break;
      case Code::AbsReal:
        put(std::fabs(real(*top)));
        break;
      case Code::EqReal:
        --top;
        *top = real(top[0]) == real(top[1]);
        break;
      case Code::NeReal:
        --top;
        *top = real(top[0]) != real(top[1]);
        break;
      case Code::LtReal:
        --top;
        *top = real(top[0]) < real(top[1]);
        break;
      case Code::LeReal:
        --top;
        *top = real(top[0]) <= real(top[1]);
        break;
      case Code::TrueDiv:
        --top;
        if (real(top[1]) == 0)
          fail(id, "divides by zero");
        put(real(top[0]) / real(top[1]));
        break;
      case Code::Trunc:
        *top = toInteger(id, std::trunc(real(*top)));
        break;
      case Code::Floor:
        *top = toInteger(id, std::floor(real(*top)));
        break;
      case Code::Ceil:
        *top = toInteger(id, std::ceil(real(*top)));
        break;
      case Code::Round: // the default rounding mode is half to even
        *top = toInteger(id, std::nearbyint(real(*top)));
        break;
      case Code::RoundDecimal:
        --top;
        put(reinterpret_cast<double (*)(double, int64_t)>(at->operand)(
            real(top[0]), top[1]));
        break;
      case Code::RealFunction: {
        double x = real(*top);
        double value = reinterpret_cast<double (*)(double)>(at->operand)(x);
        // Where Python's function raises.
        if ((std::isnan(value) && !std::isnan(x)) ||
            (std::isinf(value) && std::isfinite(x)))
          fail(id, "is not defined");
        put(value);
        break;
      }
      case Code::BitAnd:
        --top;
        *top = top[0] & top[1];
        break;
      case Code::BitOr:
        --top;
        *top = top[0] | top[1];
        break;
      case Code::BitXor:
        --top;
        *top = top[0] ^ top[1];
        break;
      case Code::Not:
        *top = !*top;
        break;
      case Code::JumpIfFalse:
        if (!*top--)
          at = code + at->operand - 1;
        break;
      case Code::JumpIfTrue:
        if (*top--)
          at = code + at->operand - 1;
        break;
      case Code::Jump:
        at = code + at->operand - 1;
        break;
      case Code::End:
        return *top;
      }
    }
  }

  static constexpr int maxDepth = 64;

  std::vector<Entry> entries;
  std::vector<Instruction> instructions;
  std::vector<std::vector<int32_t>> symbols;
  std::vector<std::string> texts;
};

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_EXPRTABLE_H
