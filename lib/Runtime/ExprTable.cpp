//===- ExprTable.cpp - Compiling size expressions
//-----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Turns the expressions of a plan into the stack programs of ExprTable.h. Types
// follow Python: an integer and a float make a float; a bool counts as 0 or 1.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/ExprTable.h"

#include <map>

using namespace intarsia;
using namespace intarsia::runtime;

class ExprTable::Builder {
public:
  Builder(const plan::Function &function, std::vector<Instruction> &code)
      : function(function), code(code) {
    for (size_t i = 0; i < function.symbols.size(); ++i)
      names[function.symbols[i].name] = int32_t(i);
  }

  int32_t find(const std::string &name) const {
    auto it = names.find(name);
    if (it == names.end())
      throw Error(ErrorKind::Internal,
                  "plan function '" + function.name +
                      "' has an expression over the unknown symbol '" + name +
                      "'");
    return it->second;
  }

  Type symbolType(int32_t index) const {
    return function.symbols[index].isFloat ? Type::Float : Type::Int;
  }

  /// The type that `expr` will have, without emitting anything.
  Type typeOf(const SymExpr &expr) const {
    using Kind = SymExpr::Kind;
    const auto &operands = expr.operands();
    switch (expr.kind()) {
    case Kind::Integer:
      return Type::Int;
    case Kind::Float:
    case Kind::TrueDiv:
    case Kind::ToFloat:
    case Kind::RoundDecimal:
      return Type::Float;
    case Kind::Bool:
    case Kind::Eq:
    case Kind::Ne:
    case Kind::Lt:
    case Kind::Le:
    case Kind::And:
    case Kind::Or:
    case Kind::Not:
      return Type::Bool;
    case Kind::Symbol:
      return symbolType(find(expr.name()));
    case Kind::Trunc:
    case Kind::Floor:
    case Kind::Ceil:
    case Kind::Round:
      return Type::Int;
    case Kind::Select:
      return common(operands, 1);
    case Kind::Add:
    case Kind::Mul:
    case Kind::Pow:
    case Kind::FloorDiv:
    case Kind::Mod:
    case Kind::Min:
    case Kind::Max:
    case Kind::Abs:
      return common(operands, 0) == Type::Float ? Type::Float : Type::Int;
    case Kind::BitAnd:
    case Kind::BitOr:
    case Kind::BitXor:
      return Type::Int;
    default:
      return Type::Float; // a function of a float
    }
  }

  Type emit(const SymExpr &expr) {
    using Kind = SymExpr::Kind;
    const auto &operands = expr.operands();
    switch (expr.kind()) {
    case Kind::Integer:
      push(*expr.asInteger());
      return Type::Int;
    case Kind::Float:
      push(std::bit_cast<int64_t>(*expr.asReal()));
      return Type::Float;
    case Kind::Bool:
      push(*expr.asBool());
      return Type::Bool;
    case Kind::Symbol: {
      int32_t index = find(expr.name());
      grow();
      code.push_back({Code::Load, index});
      return symbolType(index);
    }
    case Kind::Add:
      return fold(operands, Code::Add, Code::AddReal);
    case Kind::Mul:
      return fold(operands, Code::Mul, Code::MulReal);
    case Kind::Pow:
      return fold(operands, Code::Pow, Code::PowReal);
    case Kind::FloorDiv:
      return fold(operands, Code::FloorDiv, Code::FloorDivReal);
    case Kind::Mod:
      return fold(operands, Code::Mod, Code::ModReal);
    case Kind::Min:
      return fold(operands, Code::Min, Code::MinReal);
    case Kind::Max:
      return fold(operands, Code::Max, Code::MaxReal);
    case Kind::Eq:
      return compare(operands, Code::Eq, Code::EqReal);
    case Kind::Ne:
      return compare(operands, Code::Ne, Code::NeReal);
    case Kind::Lt:
      return compare(operands, Code::Lt, Code::LtReal);
    case Kind::Le:
      return compare(operands, Code::Le, Code::LeReal);
    case Kind::Abs: {
      Type type = emit(operands[0]);
      code.push_back({type == Type::Float ? Code::AbsReal : Code::Abs, 0});
      return type == Type::Float ? Type::Float : Type::Int;
    }
    case Kind::TrueDiv:
      emitReal(operands[0]);
      emitReal(operands[1]);
      binary(Code::TrueDiv);
      return Type::Float;
    case Kind::ToFloat:
      emitReal(operands[0]);
      return Type::Float;
    case Kind::RoundDecimal:
      emitReal(operands[0]);
      emit(operands[1]);
      code.push_back({Code::RoundDecimal,
                      reinterpret_cast<int64_t>(&SymExpr::roundDecimal)});
      --depth;
      return Type::Float;
    case Kind::BitAnd:
      return bitwise(operands, Code::BitAnd);
    case Kind::BitOr:
      return bitwise(operands, Code::BitOr);
    case Kind::BitXor:
      return bitwise(operands, Code::BitXor);
    case Kind::Trunc:
      return toInteger(operands[0], Code::Trunc);
    case Kind::Floor:
      return toInteger(operands[0], Code::Floor);
    case Kind::Ceil:
      return toInteger(operands[0], Code::Ceil);
    case Kind::Round:
      return toInteger(operands[0], Code::Round);
    case Kind::And:
      return shortCircuit(operands, Code::JumpIfFalse, false);
    case Kind::Or:
      return shortCircuit(operands, Code::JumpIfTrue, true);
    case Kind::Not:
      emit(operands[0]);
      code.push_back({Code::Not, 0});
      return Type::Bool;
    case Kind::Select: {
      // Only the branch that is taken is evaluated: the other may divide by 0.
      Type type = common(operands, 1);
      emit(operands[0]);
      --depth;
      size_t toElse = jump(Code::JumpIfFalse);
      emitAs(operands[1], type);
      --depth;
      size_t toEnd = jump(Code::Jump);
      code[toElse].operand = int64_t(code.size());
      emitAs(operands[2], type);
      code[toEnd].operand = int64_t(code.size());
      return type;
    }
    default:
      emitReal(operands[0]);
      code.push_back(
          {Code::RealFunction, reinterpret_cast<int64_t>(
                                   SymExpr::realFunction(expr.kind())->apply)});
      return Type::Float;
    }
  }

  bool tooDeep() const { return deepest > maxDepth; }

private:
  void grow() { deepest = std::max(deepest, ++depth); }
  void push(int64_t bits) {
    grow();
    code.push_back({Code::Push, bits});
  }
  void binary(Code operation) {
    code.push_back({operation, 0});
    --depth;
  }
  size_t jump(Code operation) {
    code.push_back({operation, 0});
    return code.size() - 1;
  }

  Type common(const std::vector<SymExpr> &operands, size_t first) const {
    Type type = typeOf(operands[first]);
    for (size_t i = first + 1; i < operands.size(); ++i) {
      Type other = typeOf(operands[i]);
      if (other == Type::Float || type == Type::Float)
        type = Type::Float;
      else if (other != type)
        type = Type::Int;
    }
    return type;
  }

  void emitAs(const SymExpr &expr, Type type) {
    Type own = emit(expr);
    if (type == Type::Float && own != Type::Float)
      code.push_back({Code::ToReal, 0});
  }
  void emitReal(const SymExpr &expr) { emitAs(expr, Type::Float); }

  Type operate(const std::vector<SymExpr> &operands, Code integer, Code real) {
    Type type = common(operands, 0);
    emitAs(operands[0], type);
    for (size_t i = 1; i < operands.size(); ++i) {
      emitAs(operands[i], type);
      binary(type == Type::Float ? real : integer);
    }
    return type == Type::Float ? Type::Float : Type::Int;
  }
  Type fold(const std::vector<SymExpr> &operands, Code integer, Code real) {
    return operate(operands, integer, real);
  }
  Type compare(const std::vector<SymExpr> &operands, Code integer, Code real) {
    operate(operands, integer, real);
    return Type::Bool;
  }
  Type bitwise(const std::vector<SymExpr> &operands, Code operation) {
    emit(operands[0]);
    emit(operands[1]);
    binary(operation);
    return Type::Int;
  }
  Type toInteger(const SymExpr &operand, Code operation) {
    if (emit(operand) == Type::Float)
      code.push_back({operation, 0});
    return Type::Int;
  }

  Type shortCircuit(const std::vector<SymExpr> &operands, Code leave,
                    bool result) {
    std::vector<size_t> exits;
    for (const SymExpr &operand : operands) {
      emit(operand);
      --depth;
      exits.push_back(jump(leave));
    }
    push(!result);
    --depth;
    size_t toEnd = jump(Code::Jump);
    for (size_t exit : exits)
      code[exit].operand = int64_t(code.size());
    push(result);
    code[toEnd].operand = int64_t(code.size());
    return Type::Bool;
  }

  const plan::Function &function;
  std::vector<Instruction> &code;
  std::map<std::string, int32_t> names;
  int depth = 0, deepest = 0;
};

ExprTable::ExprTable(const plan::Function &function) {
  for (const SymExpr &expr : function.exprs) {
    Builder builder(function, instructions);
    std::set<std::string> names;
    expr.collectSymbols(names);
    std::vector<int32_t> used;
    for (const std::string &name : names)
      used.push_back(builder.find(name));
    symbols.push_back(used);
    texts.push_back(expr.str());

    Entry entry;
    entry.type = builder.typeOf(expr);
    if (expr.isSymbol()) {
      entry.form = Form::Symbol;
      entry.value = used[0];
    } else if (auto integer = expr.asInteger()) {
      entry.form = Form::Constant;
      entry.value = *integer;
    } else if (auto real = expr.asReal()) {
      entry.form = Form::Constant;
      entry.value = std::bit_cast<int64_t>(*real);
    } else if (auto boolean = expr.asBool()) {
      entry.form = Form::Constant;
      entry.value = *boolean;
    } else {
      entry.form = Form::Code;
      entry.value = int64_t(instructions.size());
      builder.emit(expr);
      instructions.push_back({Code::End, 0});
      if (builder.tooDeep())
        throw Error(ErrorKind::Internal, "the size expression '" +
                                             texts.back() +
                                             "' is nested too deeply");
    }
    entries.push_back(entry);
  }
}
