//===- CallOp.cpp - The call of a registered operator ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// This file implements `intarsia.call`: how lowerings read its arguments by
// name, what generic passes may do with it, and its verifier. CallAssembly.cpp
// prints and parses it.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Graph.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::graph;

//===----------------------------------------------------------------------===//
// Arguments by name
//===----------------------------------------------------------------------===//

Attribute CallOp::arg(StringRef name) {
  for (auto [argName, value] : llvm::zip(getArgNames(), getArgs()))
    if (cast<StringAttr>(argName).getValue() == name)
      return value;
  return {};
}

Value CallOp::operand(StringRef name) {
  if (auto operand = dyn_cast_if_present<OperandAttr>(arg(name)))
    return getInputs()[operand.getIndex()];
  return {};
}

std::optional<int64_t> CallOp::intArg(StringRef name) {
  Attribute value = arg(name);
  if (auto boolean = dyn_cast_if_present<BoolAttr>(value))
    return std::nullopt;
  if (auto integer = dyn_cast_if_present<IntegerAttr>(value))
    return integer.getInt();
  return std::nullopt;
}

std::optional<double> CallOp::floatArg(StringRef name) {
  if (auto real = dyn_cast_if_present<FloatAttr>(arg(name)))
    return real.getValueAsDouble();
  if (std::optional<int64_t> integer = intArg(name))
    return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<bool> CallOp::boolArg(StringRef name) {
  if (auto boolean = dyn_cast_if_present<BoolAttr>(arg(name)))
    return boolean.getValue();
  return std::nullopt;
}

std::optional<DType> CallOp::dtypeArg(StringRef name) {
  if (auto dtype = dyn_cast_if_present<DTypeAttr>(arg(name)))
    return dtype.getValue();
  return std::nullopt;
}

std::optional<StringRef> CallOp::stringArg(StringRef name) {
  if (auto string = dyn_cast_if_present<StringAttr>(arg(name)))
    return string.getValue();
  return std::nullopt;
}

bool CallOp::isNone(StringRef name) {
  Attribute value = arg(name);
  return !value || isa<NoneAttr>(value);
}

static std::optional<SymExpr> sizeOf(CallOp op, Attribute value) {
  if (auto operand = dyn_cast_if_present<OperandAttr>(value))
    return symbolicValue(op.getInputs()[operand.getIndex()]);
  if (isa_and_present<BoolAttr>(value))
    return std::nullopt;
  if (auto integer = dyn_cast_if_present<IntegerAttr>(value))
    return SymExpr(integer.getInt());
  return std::nullopt;
}

std::optional<SymExpr> CallOp::sizeArg(StringRef name) {
  return sizeOf(*this, arg(name));
}

std::optional<SmallVector<SymExpr>> CallOp::sizesArg(StringRef name) {
  auto list = dyn_cast_if_present<ArrayAttr>(arg(name));
  if (!list)
    return std::nullopt;
  SmallVector<SymExpr> sizes;
  for (Attribute element : list) {
    std::optional<SymExpr> size = sizeOf(*this, element);
    if (!size)
      return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

SmallVector<Value> CallOp::operandList(StringRef name) {
  SmallVector<Value> values;
  auto append = [&](Attribute element) {
    auto operand = dyn_cast<OperandAttr>(element);
    values.push_back(operand ? getInputs()[operand.getIndex()] : Value());
  };
  Attribute value = arg(name);
  if (auto list = dyn_cast_if_present<ArrayAttr>(value))
    llvm::for_each(list, append);
  else if (value)
    append(value);
  return values;
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

bool CallOp::isPure() {
  return getMutates().empty() && !getEffectful() && !getRandom() &&
         !getAliasing() && (!getBinds() || getBinds()->empty());
}

bool CallOp::isObservable() {
  StringRef space = getCallee().split("::").first;
  return !isPure() || (space != "aten" && space != "prims");
}

void CallOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  // One resource for all: such calls keep their order among each other. That a
  // call may raise an error is why it is not ConditionallySpeculatable.
  if (!isObservable())
    return;
  effects.emplace_back(MemoryEffects::Read::get());
  effects.emplace_back(MemoryEffects::Write::get());
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

/// "ns::name" or "ns::name.overload".
static bool isOperatorName(StringRef name) {
  auto [space, rest] = name.split("::");
  auto [base, overload] = rest.split('.');
  return !space.empty() && !base.empty() &&
         (base.size() == rest.size() || !overload.empty());
}

/// Constraints 2 and 5 for one argument; notes which operands it names.
static LogicalResult verifyArgument(CallOp op, StringRef name, Attribute value,
                                    llvm::SmallBitVector &used) {
  auto use = [&](int64_t index) -> LogicalResult {
    if (index < 0 || index >= static_cast<int64_t>(used.size()))
      return op.emitOpError() << "argument '" << name << "' names operand "
                              << index << ", but there are " << used.size();
    used.set(index);
    return success();
  };
  if (auto list = dyn_cast<ArrayAttr>(value)) {
    for (Attribute element : list)
      if (failed(verifyArgument(op, name, element, used)))
        return failure();
    return success();
  }
  if (auto operand = dyn_cast<OperandAttr>(value))
    return use(operand.getIndex());
  if (auto view = dyn_cast<ViewAttr>(value)) {
    if (failed(use(view.getIndex())))
      return failure();
    if (!isa<graph::TensorType>(op.getInputs()[view.getIndex()].getType()))
      return op.emitOpError()
             << "argument '" << name << "' is a view of operand "
             << view.getIndex() << ", which is not a tensor";
    return success();
  }
  if (isa<NoneAttr, StringAttr, BoolAttr, ComplexAttr, DTypeAttr, DeviceAttr,
          LayoutAttr, MemoryFormatAttr, ObjectAttr, FlatSymbolRefAttr>(value))
    return success();
  if (auto integer = dyn_cast<IntegerAttr>(value);
      integer && integer.getType().isSignlessInteger(64))
    return success();
  if (auto real = dyn_cast<FloatAttr>(value); real && real.getType().isF64())
    return success();
  return op.emitOpError() << "argument '" << name
                          << "' has no known form: " << value
                          << " (integers are i64, floats f64 attributes)";
}

/// Constraint 4: counts the outputs that `returns` names.
static LogicalResult verifyReturn(CallOp op, Attribute value, bool nested,
                                  llvm::SmallBitVector &used) {
  if (auto list = dyn_cast<ArrayAttr>(value); list && !nested) {
    for (Attribute element : list)
      if (failed(verifyReturn(op, element, /*nested=*/true, used)))
        return failure();
    return success();
  }
  if (auto result = dyn_cast<OperandAttr>(value)) {
    int64_t index = result.getIndex();
    if (index < 0 || index >= static_cast<int64_t>(used.size()))
      return op.emitOpError()
             << "returns output " << index << ", but there are " << used.size();
    if (used.test(index))
      return op.emitOpError() << "returns output " << index << " twice";
    used.set(index);
    return success();
  }
  if (isa<NoneAttr>(value) || (isa<UnitAttr>(value) && !nested))
    return success();
  return op.emitOpError() << "a return is an output's number, a list of these, "
                             "none or tied, not "
                          << value;
}

LogicalResult CallOp::verify() {
  // 6.
  if (!isOperatorName(getCallee()))
    return emitOpError() << "the callee is \"namespace::name\" or "
                            "\"namespace::name.overload\", not \""
                         << getCallee() << "\"";
  // 3.
  if (getArgNames().size() != getArgs().size())
    return emitOpError() << "has " << getArgs().size() << " arguments, but "
                         << getArgNames().size() << " argument names";
  llvm::StringSet<> names;
  for (Attribute name : getArgNames()) {
    auto string = dyn_cast<StringAttr>(name);
    if (!string)
      return emitOpError() << "an argument's name is a string, not " << name;
    if (!names.insert(string.getValue()).second)
      return emitOpError() << "has two arguments '" << string.getValue() << "'";
  }
  // 2. 5.
  llvm::SmallBitVector used(getInputs().size());
  for (auto [name, value] : llvm::zip(getArgNames(), getArgs()))
    if (failed(verifyArgument(*this, cast<StringAttr>(name).getValue(), value,
                              used)))
      return failure();
  if (!used.all())
    return emitOpError() << "no argument names operand "
                         << used.find_first_unset();
  // 4.
  llvm::SmallBitVector returned(getOutputs().size());
  for (Attribute value : getReturns())
    if (failed(verifyReturn(*this, value, /*nested=*/false, returned)))
      return failure();
  if (!returned.all())
    return emitOpError() << "no return names output "
                         << returned.find_first_unset();
  // 7.
  llvm::SmallBitVector mutated(getInputs().size());
  for (int64_t index : getMutates()) {
    if (index < 0 || index >= static_cast<int64_t>(getInputs().size()))
      return emitOpError() << "mutates operand " << index << ", but there are "
                           << getInputs().size();
    if (mutated.test(index))
      return emitOpError() << "mutates operand " << index << " twice";
    mutated.set(index);
    Type type = getInputs()[index].getType();
    if (!isa<graph::TensorType, ObjectType>(type))
      return emitOpError() << "mutates operand " << index
                           << ", which is a number: " << type;
  }
  // 1.
  if (getUpdated().size() != getMutates().size())
    return emitOpError() << "mutates " << getMutates().size()
                         << " operands, but has " << getUpdated().size()
                         << " updated results";
  for (auto [index, value] : llvm::zip(getMutates(), getUpdated()))
    if (value.getType() != getInputs()[index].getType())
      return emitOpError() << "updates operand " << index << " of type "
                           << getInputs()[index].getType()
                           << " with a value of type " << value.getType();
  // 8.
  if (std::optional<ArrayAttr> binds = getBinds())
    for (Attribute attribute : *binds) {
      auto bind = dyn_cast<BindAttr>(attribute);
      if (!bind)
        return emitOpError()
               << "binds holds #intarsia.bind attributes, not " << attribute;
      if (bind.getResult() >= static_cast<int64_t>(getOutputs().size()))
        return emitOpError()
               << "binds '" << bind.getSymbol() << "' to output "
               << bind.getResult() << ", but there are " << getOutputs().size();
      Type type = getOutputs()[bind.getResult()].getType();
      auto tensor = dyn_cast<graph::TensorType>(type);
      if ((bind.getPath() == "value") != !tensor)
        return emitOpError()
               << "binds '" << bind.getSymbol() << "' to the " << bind.getPath()
               << " of output " << bind.getResult() << ", which is a " << type;
      StringRef dimension = bind.getPath().split(':').second;
      int64_t number;
      if (tensor && !dimension.getAsInteger(10, number) &&
          number >= tensor.getRank())
        return emitOpError()
               << "binds '" << bind.getSymbol() << "' to dimension " << number
               << " of output " << bind.getResult() << ", which has "
               << tensor.getRank();
    }
  // 9.
  if (std::optional<ArrayRef<int64_t>> views = getViews()) {
    if (views->size() != getOutputs().size())
      return emitOpError() << "views has " << views->size()
                           << " entries, but there are " << getOutputs().size()
                           << " outputs";
    for (int64_t index : *views)
      if (index < -1 || index >= static_cast<int64_t>(getInputs().size()))
        return emitOpError() << "an output is a view of operand " << index
                             << ", but there are " << getInputs().size();
  }
  return success();
}

LogicalResult CallOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  // 10.
  std::function<LogicalResult(Attribute)> verify = [&](Attribute value) {
    if (auto list = dyn_cast<ArrayAttr>(value)) {
      for (Attribute element : list)
        if (failed(verify(element)))
          return LogicalResult::failure();
      return success();
    }
    auto symbol = dyn_cast<FlatSymbolRefAttr>(value);
    if (symbol && !symbolTable.lookupNearestSymbolFrom<FunctionOpInterface>(
                      *this, symbol))
      return LogicalResult(emitOpError()
                           << "calls the subgraph " << symbol
                           << ", which is no function of the module");
    return success();
  };
  return verify(getArgs());
}
