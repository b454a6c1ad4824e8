//===- CPUExpandComplex.cpp - The pass cpu-expand-complex -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The lowering of operators takes complex numbers apart, and puts them
// together, by shifts of an integer that holds both parts. That is right for
// one number. In a vector of them, parts lie alternately: taking them apart is
// a shuffle of floats. As integers, those of 64 bits would take several
// instructions, and those of 128 bits, which no vector register knows, would
// leave the vector one by one.
//
//===----------------------------------------------------------------------===//

#include "passes/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/Pass.h"

#include <optional>

namespace intarsia {
#define GEN_PASS_DEF_CPUEXPANDCOMPLEX
#include "passes/Passes.h.inc"
} // namespace intarsia

using namespace mlir;
using namespace intarsia;

namespace {

struct Parts {
  Value real, imaginary;
};

/// The type of the parts of numbers of this type; null if those are none.
FloatType partType(Type number) {
  if (number.isInteger(64))
    return Float32Type::get(number.getContext());
  if (number.isInteger(128))
    return Float64Type::get(number.getContext());
  return {};
}

/// Vectors of these are taken apart.
VectorType numbersIn(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  bool isOne = vector && vector.getRank() == 1 && !vector.isScalable();
  return isOne && partType(vector.getElementType()) ? vector : VectorType();
}

/// Those that the CPU can't even move.
bool isWide(Type type) {
  VectorType numbers = numbersIn(type);
  return numbers && numbers.getElementType().isInteger(128);
}

bool isHalf(Value shift, Type number) {
  if (auto broadcast = shift.getDefiningOp<vector::BroadcastOp>())
    shift = broadcast.getSource();
  APInt by;
  return matchPattern(shift, m_ConstantInt(&by)) &&
         by == number.getIntOrFloatBitWidth() / 2;
}

struct Part {
  Value number;
  bool isImaginary;
};

/// Of which number a float is a part.
std::optional<Part> matchPart(arith::BitcastOp part) {
  auto half = part.getIn().getDefiningOp<arith::TruncIOp>();
  VectorType numbers = half ? numbersIn(half.getIn().getType()) : VectorType();
  if (!numbers || getElementTypeOrSelf(part.getType()) !=
                      partType(numbers.getElementType()))
    return std::nullopt;
  auto shift = half.getIn().getDefiningOp<arith::ShRUIOp>();
  if (shift && isHalf(shift.getRhs(), numbers.getElementType()))
    return Part{shift.getLhs(), true};
  return Part{half.getIn(), false};
}

/// The parts of which a number is made.
std::optional<Parts> matchNumber(Operation *op) {
  auto number = dyn_cast_if_present<arith::OrIOp>(op);
  VectorType numbers = number ? numbersIn(number.getType()) : VectorType();
  auto high = numbers ? number.getRhs().getDefiningOp<arith::ShLIOp>()
                      : arith::ShLIOp();
  if (!high || !isHalf(high.getRhs(), numbers.getElementType()))
    return std::nullopt;
  auto part = [&](Value bits) -> Value {
    auto widened = bits.getDefiningOp<arith::ExtUIOp>();
    auto cast = widened ? widened.getIn().getDefiningOp<arith::BitcastOp>()
                        : arith::BitcastOp();
    bool isPart = cast && getElementTypeOrSelf(cast.getIn().getType()) ==
                              partType(numbers.getElementType());
    return isPart ? cast.getIn() : Value();
  };
  Parts parts{part(number.getLhs()), part(high.getLhs())};
  if (!parts.real || !parts.imaginary)
    return std::nullopt;
  return parts;
}

/// As many floats as numbers have parts.
VectorType floatsOf(VectorType numbers) {
  return VectorType::get(2 * numbers.getNumElements(),
                         partType(numbers.getElementType()));
}

Value together(OpBuilder &b, Location loc, Parts parts, Type numbers) {
  Value floats =
      vector::InterleaveOp::create(b, loc, parts.real, parts.imaginary);
  return vector::BitCastOp::create(b, loc, cast<VectorType>(numbers), floats);
}

class ExpandComplex final
    : public intarsia::impl::CPUExpandComplexBase<ExpandComplex> {
  void runOnOperation() override {
    apart.clear();
    partOf.clear();
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) { ops.push_back(op); });
    llvm::SmallPtrSet<Operation *, 16> replaced;
    for (Operation *op : ops)
      if (Value value = expand(op)) {
        op->getResult(0).replaceAllUsesWith(value);
        replaced.insert(op);
      }
    for (Operation *op : llvm::reverse(ops)) {
      bool isStore = isa<LLVM::MaskedStoreOp, LLVM::masked_scatter>(op);
      if (isStore && isWide(op->getOperand(0).getType()))
        expandStore(op);
      else if (replaced.contains(op) ||
               (op->getNumRegions() == 0 && isOpTriviallyDead(op)))
        op->erase();
    }
  }

  /// What is in the place of an operation's result; null if that stays.
  Value expand(Operation *op);
  void expandStore(Operation *op);
  Parts partsOf(Value number);

  /// A sum of two numbers is one of all their floats as they lie.
  Value expandSum(Operation *op, Parts parts);
  void know(Value number, Parts parts);

  /// Numbers that were taken apart, or put together; and whose parts they are.
  llvm::DenseMap<Value, Parts> apart;
  llvm::DenseMap<Value, Part> partOf;
};

} // namespace

void ExpandComplex::know(Value number, Parts parts) {
  apart[number] = parts;
  partOf[parts.real] = {number, false};
  partOf[parts.imaginary] = {number, true};
}

Value ExpandComplex::expandSum(Operation *op, Parts parts) {
  Operation *real = parts.real.getDefiningOp();
  Operation *imaginary = parts.imaginary.getDefiningOp();
  if (!isa_and_present<arith::AddFOp, arith::SubFOp>(real) || !imaginary ||
      real->getName() != imaginary->getName() ||
      real->getAttrDictionary() != imaginary->getAttrDictionary())
    return {};
  OpBuilder b(op);
  auto numbers = cast<VectorType>(op->getResult(0).getType());
  SmallVector<Value> floats;
  for (auto [x, y] :
       llvm::zip_equal(real->getOperands(), imaginary->getOperands())) {
    auto first = partOf.find(x), second = partOf.find(y);
    if (first == partOf.end() || second == partOf.end() ||
        first->second.isImaginary || !second->second.isImaginary ||
        first->second.number != second->second.number ||
        first->second.number.getType() != numbers)
      return {};
    floats.push_back(vector::BitCastOp::create(
        b, op->getLoc(), floatsOf(numbers), first->second.number));
  }
  OperationState state(op->getLoc(), real->getName(), floats, floatsOf(numbers),
                       real->getAttrs());
  Value sum = b.create(state)->getResult(0);
  return vector::BitCastOp::create(b, op->getLoc(), numbers, sum);
}

Parts ExpandComplex::partsOf(Value number) {
  if (auto known = apart.find(number); known != apart.end())
    return known->second;
  OpBuilder b(number.getContext());
  b.setInsertionPointAfterValue(number);
  Location loc = number.getLoc();
  auto numbers = cast<VectorType>(number.getType());
  Parts parts;
  auto broadcast = number.getDefiningOp<vector::BroadcastOp>();
  if (broadcast && broadcast.getSource().getType().isInteger()) {
    Value two = vector::BroadcastOp::create(
        b, loc, VectorType::get(1, numbers.getElementType()),
        broadcast.getSource());
    two = vector::BitCastOp::create(
        b, loc, VectorType::get(2, partType(numbers.getElementType())), two);
    auto part = [&](int64_t index) -> Value {
      Value one = vector::ExtractOp::create(b, loc, two, index);
      return vector::BroadcastOp::create(
          b, loc,
          cast<VectorType>(numbers.clone(partType(numbers.getElementType()))),
          one);
    };
    parts = {part(0), part(1)};
  } else {
    Value floats = vector::BitCastOp::create(b, loc, floatsOf(numbers), number);
    auto both = vector::DeinterleaveOp::create(b, loc, floats);
    parts = {both.getRes1(), both.getRes2()};
  }
  know(number, parts);
  return parts;
}

Value ExpandComplex::expand(Operation *op) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  if (auto cast = dyn_cast<arith::BitcastOp>(op)) {
    std::optional<Part> part = matchPart(cast);
    if (!part)
      return {};
    Parts parts = partsOf(part->number);
    return part->isImaginary ? parts.imaginary : parts.real;
  }
  auto made = [&](Parts parts) {
    Value number = expandSum(op, parts);
    if (!number)
      number = together(b, loc, parts, op->getResult(0).getType());
    know(number, parts);
    return number;
  };
  if (std::optional<Parts> parts = matchNumber(op))
    return made(*parts);
  if (op->getNumResults() != 1 || !isWide(op->getResult(0).getType()))
    return {};
  VectorType numbers = numbersIn(op->getResult(0).getType());
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Parts yes = partsOf(select.getTrueValue());
    Parts no = partsOf(select.getFalseValue());
    auto chosen = [&](Value x, Value y) -> Value {
      return arith::SelectOp::create(b, loc, select.getCondition(), x, y);
    };
    return made(
        {chosen(yes.real, no.real), chosen(yes.imaginary, no.imaginary)});
  }
  if (auto load = dyn_cast<LLVM::MaskedLoadOp>(op)) {
    Value mask =
        vector::InterleaveOp::create(b, loc, load.getMask(), load.getMask());
    VectorType type = floatsOf(numbers);
    Value otherwise =
        vector::BitCastOp::create(b, loc, type, load.getPassThru());
    Value floats = LLVM::MaskedLoadOp::create(
        b, loc, type, load.getData(), mask, otherwise, load.getAlignmentAttr(),
        load.getNontemporalAttr());
    return vector::BitCastOp::create(b, loc, numbers, floats);
  }
  if (auto gather = dyn_cast<LLVM::masked_gather>(op)) {
    Parts otherwise = partsOf(gather.getPassThru().front());
    auto part = [&](int32_t index, Value zero) -> Value {
      Value pointers = LLVM::GEPOp::create(
          b, loc, gather.getPtrs().getType(),
          partType(numbers.getElementType()), gather.getPtrs(),
          ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(index)});
      return LLVM::masked_gather::create(b, loc, zero.getType(), pointers,
                                         gather.getMask(), ValueRange{zero},
                                         gather.getAlignmentAttr());
    };
    return made({part(0, otherwise.real), part(1, otherwise.imaginary)});
  }
  return {};
}

void ExpandComplex::expandStore(Operation *op) {
  Value number = op->getOperand(0);
  if (!isWide(number.getType()))
    return;
  VectorType numbers = numbersIn(number.getType());
  OpBuilder b(op);
  Location loc = op->getLoc();
  if (auto store = dyn_cast<LLVM::MaskedStoreOp>(op)) {
    Value mask =
        vector::InterleaveOp::create(b, loc, store.getMask(), store.getMask());
    Value floats = vector::BitCastOp::create(b, loc, floatsOf(numbers), number);
    LLVM::MaskedStoreOp::create(b, loc, floats, store.getData(), mask,
                                store.getAlignmentAttr());
  } else {
    auto scatter = cast<LLVM::masked_scatter>(op);
    Parts parts = partsOf(number);
    for (int32_t index : {0, 1}) {
      Value pointers = LLVM::GEPOp::create(
          b, loc, scatter.getPtrs().getType(),
          partType(numbers.getElementType()), scatter.getPtrs(),
          ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(index)});
      LLVM::masked_scatter::create(
          b, loc, index == 0 ? parts.real : parts.imaginary, pointers,
          scatter.getMask(), scatter.getAlignmentAttr());
    }
  }
  op->erase();
}
