//===- KernelEmitter.cpp - From a kernel's body to loops ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements KernelEmitter.h.
//
// Values are scalars (they do not vary along the lanes being emitted) or
// vectors of `width` lanes. Positions are symbolic expressions over loop
// variables, which are bound to i64 values while their loop is emitted. Memory
// is addressed by one linear offset, an expression too: its step along the
// lanes decides between a scalar load, a vector load and a gather.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernel/KernelEmitter.h"
#include "passes/Kernel/ExprValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include <numeric>

using namespace mlir;
using namespace intarsia;
using namespace intarsia::kernel;
using Kind = SymExpr::Kind;

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

/// Values made while it lives dominate only what is emitted while it lives.
struct KernelEmitter::ScopeGuard {
  explicit ScopeGuard(KernelEmitter &emitter) : emitter(emitter) {
    emitter.scopes.emplace_back();
  }
  ~ScopeGuard() { emitter.scopes.pop_back(); }
  KernelEmitter &emitter;
};

/// Sets the lanes being emitted and restores the former ones.
struct KernelEmitter::LaneGuard {
  LaneGuard(KernelEmitter &e, const std::string &symbol, int64_t width,
            Value mask)
      : e(e), symbol(e.laneSymbol), width(e.width), mask(e.mask),
        guarded(e.guarded) {
    e.laneSymbol = symbol;
    e.width = width;
    e.mask = mask;
    e.guarded = false;
  }
  ~LaneGuard() {
    e.laneSymbol = symbol;
    e.width = width;
    e.mask = mask;
    e.guarded = guarded;
  }
  KernelEmitter &e;
  std::string symbol;
  int64_t width;
  Value mask;
  bool guarded;
};

Schedule Schedule::fromDecisions(graph::KernelOp kernel) {
  DictionaryAttr decisions = kernel.getDecisionsAttr();
  auto integer = [&](StringRef name) {
    return cast<IntegerAttr>(decisions.get(name)).getInt();
  };
  ArrayRef<Attribute> space =
      cast<ArrayAttr>(decisions.get("space")).getValue();
  Schedule schedule;
  for (Attribute loop : cast<ArrayAttr>(decisions.get("loops"))) {
    SmallVector<int64_t> dims(cast<DenseI64ArrayAttr>(loop).asArrayRef());
    SymExpr size(1);
    for (int64_t dim : dims)
      size = size * cast<graph::ExprAttr>(space[dim]).getExpr();
    schedule.loops.push_back(size);
    schedule.dims.push_back(dims);
  }
  schedule.rowLoops = integer("row_loops");
  schedule.flat = decisions.contains("flat");
  schedule.columns = decisions.contains("columns");
  schedule.tiles = decisions.contains("tiles");
  schedule.vectorRoots = decisions.contains("vector_roots");
  if (auto rows = decisions.getAs<graph::ExprAttr>("packs"))
    schedule.packs = rows.getExpr();
  schedule.lanes = integer("lanes");
  schedule.tailLanes = integer("tail_lanes");
  schedule.threads = decisions.contains("threads");
  if (decisions.contains("team"))
    schedule.team = integer("team");
  schedule.across = decisions.contains("across");
  if (decisions.contains("square"))
    schedule.square = integer("square");
  schedule.narrow = decisions.contains("narrow");
  if (auto streams = decisions.getAs<DenseI64ArrayAttr>("streams"))
    schedule.streams.assign(streams.asArrayRef().begin(),
                            streams.asArrayRef().end());
  return schedule;
}

KernelEmitter::KernelEmitter(graph::KernelOp kernelOp, const Schedule &schedule)
    : kernelOp(kernelOp), body(kernelOp.getBody().front()), schedule(schedule),
      loc(kernelOp.getLoc()) {
  // The schedule was made for it.
  space = *Space::of(kernelOp);
  for (auto generic : body.getOps<linalg::GenericOp>())
    if (runs(generic))
      running.push_back(generic);
}

void KernelEmitter::fail(Operation *op, const Twine &why) {
  if (!failed)
    op->emitError() << "the code generator cannot compile this: " << why;
  failed = true;
}

//===----------------------------------------------------------------------===//
// Expressions as values
//===----------------------------------------------------------------------===//

Type KernelEmitter::indexType() const {
  return b->getIntegerType(schedule.narrow ? 32 : 64);
}

Value KernelEmitter::constant(int64_t value) {
  return arith::ConstantOp::create(*b, loc,
                                   b->getIntegerAttr(indexType(), value));
}

Value KernelEmitter::dataOf(const SymExpr &expr) {
  bool varies = variesAlongLanes(expr);
  if (!schedule.narrow)
    return varies ? vectorOf(expr) : scalarOf(expr);
  auto extended = [&](Value value) -> Value {
    Type type = b->getI64Type();
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      type = vector.clone(type);
    return arith::ExtSIOp::create(*b, loc, type, value);
  };
  // A product of positions may have more bits than they have.
  if (varies && expr.isSymbol())
    return extended(vectorOf(expr));
  if (varies) {
    Value result;
    for (const SymExpr &operand : expr.operands()) {
      Value value = broadcast(dataOf(operand));
      result =
          result ? emitInteger(*b, loc, expr.kind(), result, value) : value;
      if (!result)
        break;
    }
    if (!result)
      fail(kernelOp, "position " + expr.str());
    return result ? result : broadcast(constant(0));
  }
  Value value = emitExpr(*b, loc, expr, [&](const SymExpr &part) -> Value {
    if (Value known = wideSymbols.lookup(part.str()))
      return known;
    return part.isSymbol() ? extended(scalarOf(part)) : Value();
  });
  if (!value)
    fail(kernelOp, "size expression " + expr.str());
  return value ? value : constant(0);
}

Type KernelEmitter::laned(Type scalar) const {
  return VectorType::get({width}, scalar);
}

Value KernelEmitter::broadcast(Value value) {
  if (width == 0 || isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(*b, loc, laned(value.getType()), value);
}

bool KernelEmitter::variesAlongLanes(const SymExpr &expr) const {
  if (width == 0)
    return false;
  std::set<std::string> names;
  expr.collectSymbols(names);
  return llvm::any_of(names, [&](const std::string &name) {
    return name == laneSymbol || vectorSymbols.count(name);
  });
}

bool KernelEmitter::variesAlongLanes(const Index &index) const {
  return llvm::any_of(
      index, [&](const SymExpr &expr) { return variesAlongLanes(expr); });
}

bool KernelEmitter::isAvailable(const SymExpr &expr) const {
  std::set<std::string> names;
  expr.collectSymbols(names);
  return llvm::all_of(names, [&](const std::string &name) {
    return symbolValues.count(name) && !vectorSymbols.count(name);
  });
}

SymExpr KernelEmitter::opaque(Value value) {
  if (schedule.narrow) {
    Type type = indexType();
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      type = vector.clone(type);
    value = arith::TruncIOp::create(*b, loc, type, value);
  }
  std::string name = "x" + std::to_string(nextSymbol++);
  if (isa<VectorType>(value.getType()))
    vectorSymbols[name] = value;
  else
    symbolValues[name] = value;
  return SymExpr::symbol(name);
}

/// The value with the lane symbol at the first lane.
Value KernelEmitter::scalarOf(const SymExpr &expr) {
  if (std::optional<int64_t> value = expr.asInteger())
    return constant(*value);
  if (expr.isSymbol()) {
    auto found = symbolValues.find(expr.name());
    if (found != symbolValues.end())
      return found->second;
    fail(kernelOp, "unbound symbol " + expr.name());
    return constant(0);
  }
  std::string text = expr.str();
  for (Scope &scope : llvm::reverse(scopes))
    if (auto found = scope.scalars.find(text); found != scope.scalars.end())
      return found->second;
  Value result;
  for (const SymExpr &operand : expr.operands()) {
    Value value = scalarOf(operand);
    result = result ? emitInteger(*b, loc, expr.kind(), result, value) : value;
    if (!result) {
      fail(kernelOp, "size expression " + text);
      return constant(0);
    }
  }
  scopes.back().scalars[text] = result;
  return result;
}

Value KernelEmitter::stepVector() {
  SmallVector<Attribute> steps;
  for (int64_t step = 0; step < width; ++step)
    steps.push_back(b->getIntegerAttr(indexType(), step));
  return arith::ConstantOp::create(
      *b, loc,
      DenseElementsAttr::get(cast<ShapedType>(laned(indexType())), steps));
}

Value KernelEmitter::vectorOf(const SymExpr &expr) {
  if (!variesAlongLanes(expr))
    return broadcast(scalarOf(expr));
  if (expr.isSymbol())
    if (auto found = vectorSymbols.find(expr.name());
        found != vectorSymbols.end())
      return found->second;
  std::string text = expr.str();
  for (Scope &scope : llvm::reverse(scopes))
    if (auto found = scope.vectors.find(text); found != scope.vectors.end())
      return found->second;
  Value result;
  bool hasVectors = false;
  std::set<std::string> names;
  expr.collectSymbols(names);
  for (const std::string &name : names)
    hasVectors |= vectorSymbols.count(name) != 0;
  std::optional<SymExpr> stride;
  if (!hasVectors)
    stride = laneStride(expr);
  if (stride) {
    Value steps = stepVector();
    if (!stride->isInteger(1))
      steps =
          arith::MulIOp::create(*b, loc, steps, broadcast(scalarOf(*stride)));
    result = arith::AddIOp::create(*b, loc, broadcast(scalarOf(expr)), steps);
  } else {
    for (const SymExpr &operand : expr.operands()) {
      Value value = vectorOf(operand);
      result =
          result ? emitInteger(*b, loc, expr.kind(), result, value) : value;
      if (!result) {
        fail(kernelOp, "position " + text);
        return broadcast(constant(0));
      }
    }
  }
  scopes.back().vectors[text] = result;
  return result;
}

std::optional<SymExpr> KernelEmitter::laneStride(const SymExpr &expr) const {
  if (!schedule.threads)
    return strideAlong(expr, laneSymbol);
  if (!dependsOn(expr, laneSymbol))
    return SymExpr(0);
  if (expr.isSymbol())
    return SymExpr(1);
  SymExpr stride;
  switch (expr.kind()) {
  case Kind::Add:
    for (const SymExpr &operand : expr.operands()) {
      std::optional<SymExpr> part = laneStride(operand);
      if (!part)
        return std::nullopt;
      stride = stride + *part;
    }
    return stride;
  case Kind::Mul: {
    SymExpr factor(1);
    std::optional<SymExpr> varying;
    for (const SymExpr &operand : expr.operands()) {
      if (!dependsOn(operand, laneSymbol)) {
        factor = factor * operand;
        continue;
      }
      if (varying)
        return std::nullopt;
      varying = laneStride(operand);
      if (!varying)
        return std::nullopt;
    }
    return factor * *varying;
  }
  case Kind::FloorDiv: {
    // Lanes that begin at a multiple of their number stay in one part.
    const SymExpr &divided = *expr.operands().begin();
    std::optional<int64_t> size = (*(expr.operands().begin() + 1)).asInteger();
    std::optional<SymExpr> part = laneStride(divided);
    if (size && *size % width == 0 && part && part->isInteger(1) &&
        startsAligned(divided))
      return SymExpr(0);
    return std::nullopt;
  }
  default:
    return std::nullopt;
  }
}

bool KernelEmitter::startsAligned(const SymExpr &expr) const {
  if (std::optional<int64_t> value = expr.asInteger())
    return *value % width == 0;
  if (expr.isSymbol())
    return expr.name() == laneSymbol;
  auto aligned = [&](const SymExpr &part) { return startsAligned(part); };
  if (expr.kind() == Kind::Add)
    return llvm::all_of(expr.operands(), aligned);
  if (expr.kind() == Kind::Mul)
    return llvm::any_of(expr.operands(), aligned);
  return false;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static unsigned bytesOf(Type element) {
  return std::max(1u, element.getIntOrFloatBitWidth() / 8);
}

/// A complex number in f64 may be in memory as its parts may.
static unsigned alignmentOf(Type element) {
  return std::min(8u, bytesOf(element));
}

static Value elementPointer(OpBuilder &b, Location loc, Value base,
                            Type element, Value offset) {
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  if (auto type = dyn_cast<VectorType>(offset.getType()))
    pointer = VectorType::get(type.getShape(), pointer);
  return LLVM::GEPOp::create(b, loc, pointer, element, base,
                             ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(offset)});
}

/// The bytes that memory moves at once; a store past the caches must fill
/// whole ones.
static constexpr int64_t cacheLine = 64;

/// Columns of a tile, and how many rows ahead memory is read.
static constexpr int64_t tileColumns = 1024, tileRowsAhead = 2;

/// Asks for the lines that `count` elements at the pointer lie in.
static void fetchLines(OpBuilder &b, Location loc, Value pointer, Type element,
                       int64_t count) {
  int64_t perLine = cacheLine / bytesOf(element);
  for (int64_t at = 0; at < count; at += perLine) {
    Value line = LLVM::GEPOp::create(
        b, loc, pointer.getType(), element, pointer,
        ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(static_cast<int32_t>(at))});
    LLVM::Prefetch::create(b, loc, line, /*rw=*/0, /*hint=*/3, /*cache=*/1);
  }
}

/// While a later pass over a row computes on what the first one read, memory
/// would idle: it fetches what the first pass will read of the next row. In a
/// tile, rows are pieces of longer ones, which no processor fetches ahead.
void KernelEmitter::fetchNextRow(unsigned buffer, Value pointer, Type type,
                                 const SymExpr &offset) {
  Type element = getElementTypeOrSelf(type);
  std::optional<SymExpr> stride = strideAlong(offset, rowSymbol());
  if (!stride || stride->isInteger(0))
    return;
  if (tile) {
    Value ahead = scalarOf(*stride * SymExpr(tileRowsAhead));
    return fetchLines(*b, loc, elementPointer(*b, loc, pointer, element, ahead),
                      element, width);
  }
  if (!anyStream)
    return;
  std::string id =
      std::to_string(buffer) + "|" +
      offset.substitute({{laneSymbol, SymExpr::symbol("v")}}).str();
  auto [reader, isFirst] = readers.try_emplace(id, currentLaneLoop);
  if (isFirst || reader->second == currentLaneLoop || reader->second < 0)
    return;
  reader->second = -1;
  Value next = elementPointer(*b, loc, pointer, element, scalarOf(*stride));
  auto branch = scf::IfOp::create(*b, loc, anyStream, /*withElseRegion=*/false);
  OpBuilder then = branch.getThenBodyBuilder();
  fetchLines(then, loc, next, element, width);
}

/// A table of so many bytes is out of the caches. Its rows are asked for so
/// many rows before they are read, and so many bytes of each: what comes after
/// these the processor fetches by itself.
static constexpr int64_t tableBytes = int64_t(1) << 20, tableRowsAhead = 8,
                         tableRowBytes = int64_t(2) << 10;

void KernelEmitter::noteGather(unsigned buffer, Value pointer, Type element,
                               const SymExpr &offset) {
  std::set<std::string> names;
  offset.collectSymbols(names);
  auto type = cast<graph::TensorType>(kernelOp.getInputs()[buffer].getType());
  int64_t least = tableBytes / bytesOf(element);
  if (type.getNumElements().asInteger().value_or(least) < least ||
      llvm::none_of(names,
                    [&](const std::string &name) {
                      return StringRef(name).starts_with("x");
                    }) ||
      llvm::any_of(gathers,
                   [&](const Gather &seen) { return seen.buffer == buffer; }))
    return;
  gathers.push_back({buffer, pointer, element, laneSymbol});
}

/// The value with what `mapping` says instead, emitted at the builder's place;
/// null where more than data that is read once a row leads to it.
static Value cloneAhead(OpBuilder &b, Value value, Operation *rowLoop,
                        IRMapping &mapping) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  if (!rowLoop->isProperAncestor(value.getParentBlock()->getParentOp()) &&
      value.getParentBlock()->getParentOp() != rowLoop)
    return value;
  if (!op || op->getNumRegions() > 0 ||
      !(isMemoryEffectFree(op) || isa<LLVM::LoadOp>(op)))
    return {};
  // What is read under a condition may not be there.
  for (Operation *around = op->getParentOp(); around != rowLoop;
       around = around->getParentOp())
    if (!isa<scf::ForOp>(around))
      return {};
  for (Value operand : op->getOperands())
    if (!cloneAhead(b, operand, rowLoop, mapping))
      return {};
  b.clone(*op, mapping);
  return mapping.lookup(value);
}

/// Where data says what a row reads no processor knows it ahead: the index of a
/// later row is read, and the first lines that it leads to are asked for.
void KernelEmitter::fetchGathered(Value row, Value end) {
  Block *body = row.getParentBlock();
  OpBuilder::InsertionGuard guard(*b);
  for (Gather &gather : gathers) {
    b->setInsertionPointToStart(body);
    Value last = arith::SubIOp::create(*b, loc, end, constant(1));
    Value ahead = arith::AddIOp::create(*b, loc, row, constant(tableRowsAhead));
    IRMapping mapping;
    mapping.map(row, arith::MinSIOp::create(*b, loc, ahead, last).getResult());
    // The pointer is that of the loop along lanes at its beginning.
    auto lanes =
        dyn_cast<scf::ForOp>(gather.pointer.getParentBlock()->getParentOp());
    if (!lanes)
      continue;
    mapping.map(lanes.getInductionVar(), constant(0));
    Value pointer =
        cloneAhead(*b, gather.pointer, body->getParentOp(), mapping);
    if (!pointer)
      continue;
    int64_t count = tableRowBytes / bytesOf(gather.element);
    count = std::min(count, ranges.at(gather.lane).asInteger().value_or(count));
    fetchLines(*b, loc, pointer, gather.element, count);
  }
}

Value KernelEmitter::loadAt(Value base, Type element, const SymExpr &offset,
                            std::optional<unsigned> buffer) {
  unsigned alignment = alignmentOf(element);
  if (!variesAlongLanes(offset) && !(guarded && width)) {
    Value pointer = elementPointer(*b, loc, base, element, scalarOf(offset));
    return LLVM::LoadOp::create(*b, loc, element, pointer, alignment);
  }
  if (schedule.threads)
    return loadLanes(base, element, offset);
  Type type = laned(element);
  Value zero = arith::ConstantOp::create(*b, loc, b->getZeroAttr(type));
  std::set<std::string> names;
  offset.collectSymbols(names);
  bool hasVectors = llvm::any_of(names, [&](const std::string &name) {
    return vectorSymbols.count(name) != 0;
  });
  std::optional<SymExpr> stride;
  if (!hasVectors)
    stride = strideAlong(offset, laneSymbol);
  if (stride && stride->isInteger(1)) {
    Value pointer = elementPointer(*b, loc, base, element, scalarOf(offset));
    if (!mask) {
      if (buffer) {
        fetchNextRow(*buffer, pointer, type, offset);
        noteGather(*buffer, pointer, element, offset);
      }
      return LLVM::LoadOp::create(*b, loc, type, pointer, alignment);
    }
    return LLVM::MaskedLoadOp::create(*b, loc, type, pointer, mask, zero,
                                      b->getI32IntegerAttr(alignment),
                                      UnitAttr());
  }
  // A gather would go to each element alone.
  if (stride && stride->isInteger(-1)) {
    SmallVector<int64_t> backwards(width);
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    auto reversed = [&](Value lanes) -> Value {
      return vector::ShuffleOp::create(*b, loc, lanes, lanes, backwards);
    };
    Value pointer = elementPointer(*b, loc, base, element,
                                   scalarOf(offset - SymExpr(width - 1)));
    if (!mask)
      return reversed(LLVM::LoadOp::create(*b, loc, type, pointer, alignment));
    return reversed(LLVM::MaskedLoadOp::create(
        *b, loc, type, pointer, reversed(mask), zero,
        b->getI32IntegerAttr(alignment), UnitAttr()));
  }
  Value pointers = elementPointer(*b, loc, base, element, vectorOf(offset));
  Value lanes = mask;
  if (!lanes)
    lanes = arith::ConstantOp::create(
        *b, loc,
        DenseElementsAttr::get(cast<ShapedType>(laned(b->getI1Type())), true));
  return LLVM::masked_gather::create(*b, loc, type, pointers, lanes,
                                     ValueRange{zero},
                                     b->getI32IntegerAttr(alignment));
}

/// Stores whole cache lines, past the caches where `stream` holds and the
/// address allows it.
static void storeStreamed(OpBuilder &b, Location loc, Value value,
                          Value pointer, unsigned alignment, Value stream) {
  Type i64 = b.getI64Type();
  auto integer = [&](int64_t number) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(number));
  };
  Value address = LLVM::PtrToIntOp::create(b, loc, i64, pointer);
  Value misaligned =
      arith::AndIOp::create(b, loc, address, integer(cacheLine - 1));
  Value aligned = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                        misaligned, integer(0));
  Value streamed = arith::AndIOp::create(b, loc, stream, aligned);
  auto branch = scf::IfOp::create(b, loc, streamed, /*withElseRegion=*/true);
  OpBuilder then = branch.getThenBodyBuilder();
  LLVM::StoreOp::create(then, loc, value, pointer, cacheLine,
                        /*isVolatile=*/false, /*isNonTemporal=*/true);
  OpBuilder otherwise = branch.getElseBodyBuilder();
  LLVM::StoreOp::create(otherwise, loc, value, pointer, alignment);
}

void KernelEmitter::storeAt(Value base, Value value, const SymExpr &offset,
                            Value stream) {
  Type element = getElementTypeOrSelf(value.getType());
  unsigned alignment = alignmentOf(element);
  if (width == 0) {
    Value pointer = elementPointer(*b, loc, base, element, scalarOf(offset));
    LLVM::StoreOp::create(*b, loc, value, pointer, alignment);
    return;
  }
  value = broadcast(value);
  if (schedule.threads)
    return storeLanes(base, value, offset);
  std::optional<SymExpr> stride = strideAlong(offset, laneSymbol);
  if (stride && stride->isInteger(1)) {
    Value pointer = elementPointer(*b, loc, base, element, scalarOf(offset));
    if (mask)
      LLVM::MaskedStoreOp::create(*b, loc, value, pointer, mask,
                                  b->getI32IntegerAttr(alignment));
    else if (stream && width * alignment % cacheLine == 0)
      storeStreamed(*b, loc, value, pointer, alignment, stream);
    else
      LLVM::StoreOp::create(*b, loc, value, pointer, alignment);
    return;
  }
  Value pointers = elementPointer(*b, loc, base, element, vectorOf(offset));
  Value lanes = mask;
  if (!lanes)
    lanes = arith::ConstantOp::create(
        *b, loc,
        DenseElementsAttr::get(cast<ShapedType>(laned(b->getI1Type())), true));
  LLVM::masked_scatter::create(*b, loc, value, pointers, lanes,
                               b->getI32IntegerAttr(alignment));
}

/// A thread has no masked moves: those of a vector that lies in memory as it
/// is, else one by one.
Value KernelEmitter::loadLanes(Value base, Type element,
                               const SymExpr &offset) {
  auto type = cast<VectorType>(laned(element));
  unsigned alignment = alignmentOf(element);
  std::set<std::string> names;
  offset.collectSymbols(names);
  std::optional<SymExpr> stride;
  if (llvm::none_of(names, [&](const std::string &name) {
        return vectorSymbols.count(name) != 0;
      }))
    stride = laneStride(offset);
  if (!mask && stride && stride->isInteger(0)) {
    Value pointer = elementPointer(*b, loc, base, element, scalarOf(offset));
    return broadcast(
        LLVM::LoadOp::create(*b, loc, element, pointer, alignment).getResult());
  }
  if (!mask && stride && stride->isInteger(1) && startsAligned(offset)) {
    vectorBases[base] = std::max(vectorBases[base], alignment * width);
    Value pointer = elementPointer(*b, loc, base, element, scalarOf(offset));
    return LLVM::LoadOp::create(*b, loc, type, pointer, alignment * width);
  }
  Value offsets = vectorOf(offset);
  Value result = arith::ConstantOp::create(*b, loc, b->getZeroAttr(type));
  for (int64_t lane = 0; lane < width; ++lane) {
    auto loadOne = [&]() -> Value {
      Value at = vector::ExtractOp::create(*b, loc, offsets, lane);
      Value pointer = elementPointer(*b, loc, base, element, at);
      return LLVM::LoadOp::create(*b, loc, element, pointer, alignment);
    };
    Value value;
    if (mask) {
      Value active = vector::ExtractOp::create(*b, loc, mask, lane);
      auto branch = scf::IfOp::create(*b, loc, element, active,
                                      /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(*b);
      b->setInsertionPointToEnd(branch.thenBlock());
      scf::YieldOp::create(*b, loc, loadOne());
      b->setInsertionPointToEnd(branch.elseBlock());
      Value zero = arith::ConstantOp::create(*b, loc, b->getZeroAttr(element));
      scf::YieldOp::create(*b, loc, zero);
      value = branch.getResult(0);
    } else {
      value = loadOne();
    }
    result = vector::InsertOp::create(*b, loc, value, result, lane);
  }
  return result;
}

void KernelEmitter::storeLanes(Value base, Value value, const SymExpr &offset) {
  Type element = getElementTypeOrSelf(value.getType());
  unsigned alignment = alignmentOf(element);
  std::optional<SymExpr> stride = laneStride(offset);
  if (stride && stride->isInteger(1) && startsAligned(offset)) {
    vectorBases[base] = std::max(vectorBases[base], alignment * width);
    Value pointer = elementPointer(*b, loc, base, element, scalarOf(offset));
    LLVM::StoreOp::create(*b, loc, value, pointer, alignment * width);
    return;
  }
  Value offsets = vectorOf(offset);
  for (int64_t lane = 0; lane < width; ++lane) {
    Value at = vector::ExtractOp::create(*b, loc, offsets, lane);
    Value pointer = elementPointer(*b, loc, base, element, at);
    Value part = vector::ExtractOp::create(*b, loc, value, lane);
    LLVM::StoreOp::create(*b, loc, part, pointer, alignment);
  }
}

static SymExpr offsetIn(graph::TensorType type, ArrayRef<SymExpr> index) {
  SymExpr offset;
  for (auto [position, stride] : llvm::zip_equal(index, type.getStrideExprs()))
    offset = offset + position * stride;
  return offset;
}

Value KernelEmitter::load(unsigned buffer, Type element,
                          const SymExpr &offset) {
  observed.offsets.push_back(offset);
  if (Value rows = packed(buffer, element, offset))
    return loadAt(rows, element, SymExpr::symbol(laneSymbol));
  if (Value shared = fromSquare(buffer, element, offset))
    return shared;
  return loadAt(buffers[buffer], element, offset, buffer);
}

/// A loop whose body sees `symbol` as its variable.
static SmallVector<Value>
emitLoop(OpBuilder &b, Location loc, Value begin, Value end, Value step,
         ArrayRef<Value> initial,
         llvm::function_ref<SmallVector<Value>(Value, ValueRange)> makeBody) {
  auto loop = scf::ForOp::create(b, loc, begin, end, step, initial);
  OpBuilder::InsertionGuard guard(b);
  Block *block = loop.getBody();
  if (initial.empty())
    b.setInsertionPoint(block->getTerminator());
  else
    b.setInsertionPointToEnd(block);
  SmallVector<Value> results =
      makeBody(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!initial.empty())
    scf::YieldOp::create(b, loc, results);
  return SmallVector<Value>(loop.getResults());
}

//===----------------------------------------------------------------------===//
// Operands that lie across the rows
//===----------------------------------------------------------------------===//

/// The side of the squares in which a block is transposed: a line of four bytes
/// each.
static int64_t squareSide(Type element) {
  return bytesOf(element) > 4 ? 8 : 16;
}

void KernelEmitter::blockLoop(
    Value begin, Value end,
    llvm::function_ref<void(ArrayRef<SymExpr>)> emitRow) {
  // "row" is the position in the innermost loop over rows, along which operands
  // lie; "outer" that in the others.
  ArrayRef<SymExpr> sizes =
      ArrayRef(schedule.loops).take_front(schedule.rowLoops);
  ArrayRef<SymExpr> outerSizes = sizes.drop_back();
  ranges["row"] = sizes.back();
  ranges["outer"] = productOf(outerSizes);
  rowSymbols.insert("row");
  rowSymbols.insert("outer");
  auto blocks = [&](Value first, Value last) {
    Value rows = scalarOf(*schedule.packs);
    emitLoop(*b, loc, first, last, rows, {}, [&](Value start, ValueRange) {
      ScopeGuard scope(*this);
      Value stop = arith::AddIOp::create(*b, loc, start, rows);
      stop = arith::MinSIOp::create(*b, loc, stop, last);
      openBlock(start, stop);
      scalarLoop("row", start, stop, constant(1), {}, [&](ValueRange) {
        block->before = b->getInsertionBlock()->getParentOp();
        SmallVector<SymExpr> index =
            delinearize(SymExpr::symbol("outer"), outerSizes, ranges);
        index.push_back(SymExpr::symbol("row"));
        emitRow(index);
        return SmallVector<Value>();
      });
      block.reset();
      return SmallVector<Value>();
    });
  };
  if (outerSizes.empty())
    return blocks(begin, end);
  Value extent =
      arith::MaxSIOp::create(*b, loc, scalarOf(sizes.back()), constant(1));
  Value first = arith::DivSIOp::create(*b, loc, begin, extent);
  Value last = arith::AddIOp::create(
      *b, loc, end, arith::SubIOp::create(*b, loc, extent, constant(1)));
  last = arith::DivSIOp::create(*b, loc, last, extent);
  scalarLoop("outer", first, last, constant(1), {}, [&](ValueRange) {
    Value base = arith::MulIOp::create(*b, loc, symbolValues["outer"], extent);
    auto within = [&](Value position) -> Value {
      Value at = arith::SubIOp::create(*b, loc, position, base);
      at = arith::MaxSIOp::create(*b, loc, at, constant(0));
      return arith::MinSIOp::create(*b, loc, at, extent);
    };
    blocks(within(begin), within(end));
    return SmallVector<Value>();
  });
}

void KernelEmitter::openBlock(Value begin, Value end) {
  block.emplace();
  block->begin = begin;
  block->end = end;
  block->scopes = scopes.size();
  for (const auto &known : symbolValues)
    block->symbols.insert(known.getKey());
}

Value KernelEmitter::packed(unsigned buffer, Type element,
                            const SymExpr &offset) {
  if (!block || width == 0 || guarded || piece || branchDepth > 0)
    return {};
  std::optional<SymExpr> across = strideAlong(offset, rowSymbol());
  std::optional<SymExpr> along = strideAlong(offset, laneSymbol);
  if (!across || !across->isInteger(1) || !along || along->isInteger(0) ||
      along->isInteger(1))
    return {};
  std::set<std::string> names;
  offset.collectSymbols(names);
  for (const std::string &name : names)
    if (name != rowSymbol() && name != laneSymbol &&
        !block->symbols.contains(name))
      return {};

  SymExpr size(static_cast<int64_t>(bytesOf(element)));
  SymExpr line(cacheLine);
  SymExpr columns = tile ? SymExpr(tileColumns) : ranges.at(laneSymbol);
  // A line more, lest the rows' beginnings share a set of the cache.
  SymExpr pitch =
      line *
      (SymExpr::make(Kind::FloorDiv, {columns * size, line}) + SymExpr(2));
  std::string id = std::to_string(buffer) + "|" +
                   offset
                       .substitute({{laneSymbol, SymExpr::symbol("v")},
                                    {rowSymbol(), SymExpr::symbol("row")}})
                       .str();
  auto [start, isNew] = block->packs.try_emplace(id, scratchSize);
  if (isNew) {
    scratchSize = scratchSize + pitch * *schedule.packs;
    emitPack(buffer, element, offset, start->second, pitch);
  }
  Value row =
      arith::SubIOp::create(*b, loc, symbolValues[rowSymbol()], block->begin);
  Value at = arith::MulIOp::create(*b, loc, row, scalarOf(pitch));
  SymExpr before = tile ? SymExpr::symbol("tile") * size : SymExpr();
  at = arith::AddIOp::create(*b, loc, at, scalarOf(start->second - before));
  return elementPointer(*b, loc, scratch, b->getI8Type(), at);
}

/// A square of vectors, transposed: each step exchanges one bit of the number
/// of a vector with the same bit of the number of a lane.
static void transpose(OpBuilder &b, Location loc,
                      MutableArrayRef<Value> vectors) {
  int64_t count = vectors.size();
  for (int64_t bit = 1; bit < count; bit *= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t lane = 0; lane < count; ++lane) {
      low.push_back(lane & bit ? count + (lane ^ bit) : lane);
      high.push_back(lane & bit ? count + lane : lane ^ bit);
    }
    for (int64_t number = 0; number < count; ++number) {
      if (number & bit)
        continue;
      Value &first = vectors[number], &second = vectors[number | bit];
      Value exchanged = vector::ShuffleOp::create(b, loc, first, second, low);
      second = vector::ShuffleOp::create(b, loc, first, second, high);
      first = exchanged;
    }
  }
}

void KernelEmitter::emitBefore(Operation *before, size_t depth,
                               llvm::function_ref<void()> make) {
  OpBuilder::InsertionGuard insertion(*b);
  b->setInsertionPoint(before);
  SmallVector<Scope, 8> inner(std::make_move_iterator(scopes.begin() + depth),
                              std::make_move_iterator(scopes.end()));
  scopes.truncate(depth);
  {
    LaneGuard none(*this, "", 0, {});
    ScopeGuard scope(*this);
    make();
  }
  scopes.append(std::make_move_iterator(inner.begin()),
                std::make_move_iterator(inner.end()));
}

void KernelEmitter::emitPack(unsigned buffer, Type element,
                             const SymExpr &offset, const SymExpr &start,
                             const SymExpr &pitch) {
  std::string lane = laneSymbol;
  Value outerRow = symbolValues[rowSymbol()], outerLane = symbolValues[lane];
  SymExpr stride = *strideAlong(offset, lane);
  int64_t count = squareSide(element);
  int64_t alignment = alignmentOf(element);
  emitBefore(block->before, block->scopes, [&] {
    Value base =
        elementPointer(*b, loc, scratch, b->getI8Type(), scalarOf(start));
    // Where row `row` of the block has its column `column`.
    auto target = [&](Value row, Value column) {
      Value at = arith::MulIOp::create(*b, loc, row, scalarOf(pitch));
      Value first = elementPointer(*b, loc, base, b->getI8Type(), at);
      return elementPointer(*b, loc, first, element, column);
    };
    auto source = [&](Value row, Value column) {
      if (tile)
        column =
            arith::AddIOp::create(*b, loc, symbolValues.lookup("tile"), column);
      symbolValues[rowSymbol()] = row;
      symbolValues[lane] = column;
      return elementPointer(*b, loc, buffers[buffer], element,
                            scalarOf(offset));
    };
    Value columns = tile ? tile->columns : scalarOf(ranges.at(lane));
    Value zero = constant(0), one = constant(1);
    Value rows = arith::SubIOp::create(*b, loc, block->end, block->begin);
    Value squareRows = arith::AndIOp::create(*b, loc, rows, constant(-count));
    Value squareColumns =
        arith::AndIOp::create(*b, loc, columns, constant(-count));
    auto loop = [&](Value from, Value to, Value step,
                    llvm::function_ref<void(Value)> makeBody) {
      emitLoop(*b, loc, from, to, step, {}, [&](Value at, ValueRange) {
        ScopeGuard scope(*this);
        makeBody(at);
        return SmallVector<Value>();
      });
    };
    auto single = [&](Value row, Value column) {
      Value at = arith::AddIOp::create(*b, loc, block->begin, row);
      Value value =
          LLVM::LoadOp::create(*b, loc, element, source(at, column), alignment);
      LLVM::StoreOp::create(*b, loc, value, target(row, column), alignment);
    };
    Value step = constant(count);
    // Columns outside: where their step is long, each is on a page of its own.
    loop(zero, squareColumns, step, [&](Value column) {
      loop(zero, squareRows, step, [&](Value row) {
        Value at = arith::AddIOp::create(*b, loc, block->begin, row);
        auto type = VectorType::get({count}, element);
        Value pointer = source(at, column);
        Value next = scalarOf(stride);
        SmallVector<Value> square;
        for (int64_t number = 0; number < count; ++number) {
          if (number)
            pointer = elementPointer(*b, loc, pointer, element, next);
          square.push_back(
              LLVM::LoadOp::create(*b, loc, type, pointer, alignment));
        }
        transpose(*b, loc, square);
        for (int64_t number = 0; number < count; ++number) {
          Value inner = arith::AddIOp::create(*b, loc, row, constant(number));
          LLVM::StoreOp::create(*b, loc, square[number], target(inner, column),
                                alignment);
        }
      });
      Value last = arith::AddIOp::create(*b, loc, column, step);
      loop(column, last, one, [&](Value column) {
        loop(squareRows, rows, one, [&](Value row) { single(row, column); });
      });
    });
    loop(squareColumns, columns, one, [&](Value column) {
      loop(zero, rows, one, [&](Value row) { single(row, column); });
    });
  });
  symbolValues[rowSymbol()] = outerRow;
  symbolValues[lane] = outerLane;
}

//===----------------------------------------------------------------------===//
// Squares of elements
//===----------------------------------------------------------------------===//
//
// Where tensors of one kernel lie along different dimensions, a warp reads or
// writes some of them an element here and an element there. So a block takes
// squares of elements, as wide as a warp. What lies along the rows' dimension
// is read with a thread of the warp for each row, put into an array that the
// block shares, and taken from there with a thread for each column; what is
// stored goes the other way.

/// Shared memory that a kernel has without asking for it.
static constexpr int64_t sharedLimit = int64_t(48) << 10;

/// As an integer that memory has, and back.
static Value asInteger(OpBuilder &b, Location loc, Value value) {
  unsigned bits = value.getType().getIntOrFloatBitWidth();
  if (isa<FloatType>(value.getType()))
    return arith::BitcastOp::create(b, loc, b.getIntegerType(bits), value);
  if (bits < 8)
    return arith::ExtUIOp::create(b, loc, b.getI8Type(), value);
  return value;
}

static Value fromInteger(OpBuilder &b, Location loc, Value value, Type type) {
  if (isa<FloatType>(type))
    return arith::BitcastOp::create(b, loc, type, value);
  if (value.getType() != type)
    return arith::TruncIOp::create(b, loc, type, value);
  return value;
}

bool KernelEmitter::liesAcross(const SymExpr &offset) const {
  std::optional<SymExpr> across = strideAlong(offset, "row");
  std::optional<SymExpr> along = strideAlong(offset, "v");
  if (!across || !across->isInteger(1) || !along || along->isInteger(0) ||
      along->isInteger(1))
    return false;
  std::set<std::string> names;
  offset.collectSymbols(names);
  return llvm::all_of(names, [&](const std::string &name) {
    return name == "row" || name == "v" || square->symbols.contains(name);
  });
}

Value KernelEmitter::squareArray(Type element) {
  // A column more, lest a column's elements share a bank of the memory.
  int64_t count = schedule.square * (schedule.square + 1);
  int64_t bytes = count * bytesOf(element);
  if (square->bytes + bytes > sharedLimit)
    return {};
  square->bytes += bytes;
  Type type = b->getIntegerType(8 * bytesOf(element));
  return shell->sharedArray(*b, loc, entry, type, count);
}

/// The rows of a square, or its columns, that are a warp's.
void KernelEmitter::emitSquareLoop(llvm::function_ref<void(Value)> makeBody) {
  emitLoop(*b, loc, constant(0), constant(schedule.square),
           constant(squareWarps), {}, [&](Value number, ValueRange) {
             ScopeGuard scope(*this);
             makeBody(arith::AddIOp::create(*b, loc, entry.member, number));
             return SmallVector<Value>();
           });
}

/// The place of an element in an array: its column's, then its row's.
static Value squarePlace(OpBuilder &b, Location loc, Value column, Value row,
                         Value pitch) {
  Value place = arith::MulIOp::create(b, loc, column, pitch);
  place = arith::AddIOp::create(b, loc, place, row);
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), place);
}

Value KernelEmitter::fromSquare(unsigned buffer, Type element,
                                const SymExpr &offset) {
  if (!square || branchDepth > 0 || !liesAcross(offset))
    return {};
  std::string id = std::to_string(buffer) + "|" + offset.str();
  auto [array, isNew] = square->arrays.try_emplace(id);
  if (isNew && (array->second = squareArray(element))) {
    Value outerRow = symbolValues["row"], outerColumn = symbolValues["v"];
    emitBefore(square->before, square->scopes, [&] {
      Value row = arith::AddIOp::create(*b, loc, square->firstRow, entry.lane);
      auto within = [&](Value at, const SymExpr &extent) -> Value {
        return arith::MinSIOp::create(*b, loc, at,
                                      scalarOf(extent - SymExpr(1)));
      };
      // Threads beyond the edge read the last again: nobody asks for theirs.
      row = within(row, ranges.at("row"));
      emitSquareLoop([&](Value number) {
        Value column =
            arith::AddIOp::create(*b, loc, square->firstColumn, number);
        symbolValues["row"] = row;
        symbolValues["v"] = within(column, ranges.at("v"));
        Value value =
            asInteger(*b, loc, loadAt(buffers[buffer], element, offset));
        Value place = squarePlace(*b, loc, number, entry.lane,
                                  constant(schedule.square + 1));
        memref::StoreOp::create(*b, loc, value, array->second, place);
      });
    });
    symbolValues["row"] = outerRow;
    symbolValues["v"] = outerColumn;
  }
  if (!array->second)
    return {};
  Value place = squarePlace(*b, loc, entry.lane, square->row,
                            constant(schedule.square + 1));
  Value value = memref::LoadOp::create(*b, loc, array->second, place);
  return fromInteger(*b, loc, value, element);
}

bool KernelEmitter::toSquare(unsigned buffer, Value value,
                             const SymExpr &offset) {
  if (!square || !liesAcross(offset))
    return false;
  Value array = squareArray(value.getType());
  if (!array)
    return false;
  Value place = squarePlace(*b, loc, entry.lane, square->row,
                            constant(schedule.square + 1));
  memref::StoreOp::create(*b, loc, asInteger(*b, loc, value), array, place);
  square->stored.push_back({buffer, offset, value.getType(), array});
  return true;
}

void KernelEmitter::emitSquares() {
  size_t outer = schedule.loops.size() - 2;
  SymExpr side(schedule.square);
  SmallVector<SymExpr> counts(ArrayRef(schedule.loops).take_front(outer));
  for (const SymExpr &size : ArrayRef(schedule.loops).drop_front(outer))
    counts.push_back(
        SymExpr::make(Kind::FloorDiv, {size + side - SymExpr(1), side}));
  ranges["square"] = productOf(counts);
  ranges["row"] = schedule.loops[outer];
  ranges["v"] = schedule.loops[outer + 1];
  SmallVector<SymExpr> loopIndex;
  for (size_t loop = 0; loop < outer; ++loop) {
    std::string symbol = "i" + std::to_string(loop);
    ranges[symbol] = schedule.loops[loop];
    loopIndex.push_back(SymExpr::symbol(symbol));
  }
  loopIndex.push_back(SymExpr::symbol("row"));
  loopIndex.push_back(SymExpr::symbol("v"));
  Index full = spaceIndex(loopIndex);
  SmallVector<std::pair<unsigned, Index>> roots;
  for (unsigned result = 0; result < kernelOp.getNumResults(); ++result)
    roots.emplace_back(result, resultIndex(result, full));

  /// What a thread does with an element, where there is one.
  auto inside = [&](Value row, Value column, llvm::function_ref<void()> make) {
    Value below = arith::CmpIOp::create(*b, loc, arith::CmpIPredicate::slt, row,
                                        scalarOf(ranges.at("row")));
    Value left = arith::CmpIOp::create(*b, loc, arith::CmpIPredicate::slt,
                                       column, scalarOf(ranges.at("v")));
    Value both = arith::AndIOp::create(*b, loc, below, left);
    auto branch = scf::IfOp::create(*b, loc, both, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(*b);
    b->setInsertionPointToStart(branch.thenBlock());
    ScopeGuard scope(*this);
    symbolValues["row"] = row;
    symbolValues["v"] = column;
    make();
    symbolValues.erase("row");
    symbolValues.erase("v");
  };
  scalarLoop("square", entry.begin, entry.end, entry.step, {}, [&](ValueRange) {
    SmallVector<SymExpr> at =
        delinearize(SymExpr::symbol("square"), counts, ranges);
    for (size_t loop = 0; loop < outer; ++loop)
      symbolValues[loopIndex[loop].name()] = scalarOf(at[loop]);
    square.emplace();
    square->firstRow = scalarOf(at[outer] * side);
    square->firstColumn = scalarOf(at[outer + 1] * side);
    square->scopes = scopes.size();
    for (const auto &known : symbolValues)
      square->symbols.insert(known.getKey());
    // Between what is put into arrays and what takes it from there.
    square->before = shell->barrier(*b, loc);
    emitSquareLoop([&](Value number) {
      square->row = number;
      inside(arith::AddIOp::create(*b, loc, square->firstRow, number),
             arith::AddIOp::create(*b, loc, square->firstColumn, entry.lane),
             [&] { storeRoots(roots); });
    });
    if (!square->stored.empty())
      shell->barrier(*b, loc);
    for (const Square::Stored &stored : square->stored)
      emitSquareLoop([&](Value number) {
        inside(arith::AddIOp::create(*b, loc, square->firstRow, entry.lane),
               arith::AddIOp::create(*b, loc, square->firstColumn, number),
               [&] {
                 Value place = squarePlace(*b, loc, number, entry.lane,
                                           constant(schedule.square + 1));
                 Value value =
                     memref::LoadOp::create(*b, loc, stored.array, place);
                 storeAt(buffers[stored.buffer],
                         fromInteger(*b, loc, value, stored.element),
                         stored.offset);
               });
      });
    // The next square comes to the same arrays.
    shell->barrier(*b, loc);
    square.reset();
    for (size_t loop = 0; loop < outer; ++loop)
      symbolValues.erase(loopIndex[loop].name());
    return SmallVector<Value>();
  });
}

void KernelEmitter::store(unsigned buffer, Value value, const SymExpr &offset) {
  observed.offsets.push_back(offset);
  if (toSquare(buffer, value, offset))
    return;
  size_t inputs = kernelOp.getInputs().size();
  storeAt(buffers[buffer], value, offset, streams[buffer - inputs]);
}

void KernelEmitter::decideStreams() {
  streams.assign(kernelOp.getNumResults(), Value());
  size_t inputs = kernelOp.getInputs().size();
  for (int64_t result : schedule.streams) {
    auto type = cast<graph::TensorType>(kernelOp.getResult(result).getType());
    SymExpr bytes = type.getNumElements() * SymExpr(dtypeSize(type.getDtype()));
    Value &stream = streams[result];
    stream = arith::CmpIOp::create(*b, loc, arith::CmpIPredicate::sge,
                                   scalarOf(bytes), constant(streamBytes));
    // What the kernel writes where it read is in the caches.
    for (size_t input = 0; input < inputs; ++input) {
      if (kernelOp.getInputs()[input].getType() != type)
        continue;
      Value apart =
          LLVM::ICmpOp::create(*b, loc, LLVM::ICmpPredicate::ne, buffers[input],
                               buffers[inputs + result]);
      stream = arith::AndIOp::create(*b, loc, stream, apart);
    }
    anyStream =
        anyStream ? arith::OrIOp::create(*b, loc, anyStream, stream).getResult()
                  : stream;
  }
}

/// Stores past the caches are in no order with others: whoever is told that
/// this call is done must see them.
void KernelEmitter::fenceStreams() {
  if (!anyStream)
    return;
  auto branch = scf::IfOp::create(*b, loc, anyStream, /*withElseRegion=*/false);
  OpBuilder then = branch.getThenBodyBuilder();
  LLVM::FenceOp::create(then, loc, LLVM::AtomicOrdering::seq_cst);
}

//===----------------------------------------------------------------------===//
// Values at positions
//===----------------------------------------------------------------------===//

std::string KernelEmitter::key(Value tensor, const Index &index) const {
  std::string text =
      std::to_string(reinterpret_cast<uintptr_t>(tensor.getAsOpaquePointer()));
  for (const SymExpr &expr : index)
    text += "|" + expr.str();
  return text;
}

Value KernelEmitter::eval(Value tensor, const Index &index) {
  std::string id = key(tensor, index);
  if (width == 0)
    id += "|scalar";
  for (Scope &scope : llvm::reverse(scopes))
    if (auto found = scope.values.find(id); found != scope.values.end())
      return found->second;
  Value value = evalUncached(tensor, index);
  scopes.back().values[id] = value;
  return value;
}

Value KernelEmitter::evalUncached(Value tensor, const Index &index) {
  Type element = cast<RankedTensorType>(tensor.getType()).getElementType();
  if (auto argument = dyn_cast<BlockArgument>(tensor)) {
    unsigned input = argument.getArgNumber();
    auto type = cast<graph::TensorType>(kernelOp.getInputs()[input].getType());
    return load(input, element, offsetIn(type, index));
  }
  Operation *op = tensor.getDefiningOp();
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    if (runs(generic))
      return evalRunning(generic, cast<OpResult>(tensor).getResultNumber(),
                         index);
    if (generic.getNumReductionLoops() > 0)
      return evalReduction(generic, cast<OpResult>(tensor).getResultNumber(),
                           index);
    return evalPointwise(generic, index);
  }
  if (std::optional<SmallVector<SymExpr>> source =
          sourceIndex(op, index, ranges))
    return eval(op->getOperand(0), *source);
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return outerScalar(fill.getInputs()[0]);
  if (isa<tensor::EmptyOp>(op))
    return arith::ConstantOp::create(*b, loc, b->getZeroAttr(element));
  if (auto constantOp = dyn_cast<arith::ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constantOp.getValue());
    if (dense && dense.isSplat())
      return arith::ConstantOp::create(*b, loc,
                                       dense.getSplatValue<TypedAttr>());
  }
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    int64_t dim = concat.getDim();
    // Loops over it stay apart even where their pieces decide.
    if (concat.getInputs().size() > 1)
      observed.conditions.push_back(index[dim]);
    Index within(index);
    for (Value input : concat.getInputs()) {
      SymExpr size = sizesOf(input)[dim];
      if (isInside(within[dim], size).value_or(false))
        return eval(input, within);
      within[dim] = within[dim] - size;
    }
    // One input after the other: inside its range, else what comes after it.
    std::function<Value(unsigned, SymExpr)> from = [&](unsigned number,
                                                       SymExpr start) -> Value {
      Value input = concat.getInputs()[number];
      SymExpr size = sizesOf(input)[dim];
      Index shifted(index);
      shifted[dim] = index[dim] - start;
      if (number + 1 == concat.getInputs().size())
        return evalGuarded(
            {}, element, [&] { return eval(input, shifted); }, nullptr);
      return evalGuarded(
          {{shifted[dim], size}}, element, [&] { return eval(input, shifted); },
          [&] { return from(number + 1, start + size); });
    };
    return from(0, SymExpr(0));
  }
  if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    Value padding = pad.getConstantPaddingValue();
    if (!padding) {
      fail(op, "padding that is not a constant");
      return {};
    }
    SmallVector<SymExpr> sizes = sizesOf(pad.getSource());
    Index source(index);
    SmallVector<std::pair<SymExpr, SymExpr>> conditions;
    for (auto [dim, low, high] :
         llvm::enumerate(pad.getMixedLowPad(), pad.getMixedHighPad())) {
      SymExpr lowPad = exprOfFold(low), highPad = exprOfFold(high);
      source[dim] = index[dim] - lowPad;
      if (!lowPad.isInteger(0) || !highPad.isInteger(0))
        conditions.emplace_back(source[dim], sizes[dim]);
    }
    return evalGuarded(
        conditions, element, [&] { return eval(pad.getSource(), source); },
        [&] { return outerScalar(padding); });
  }
  fail(op, "an operation outside the kernel language");
  return arith::ConstantOp::create(*b, loc, b->getZeroAttr(element));
}

/// `inside()` where every expression is within [0, bound), else `outside()`.
/// Memory is read only where the condition holds.
Value KernelEmitter::evalGuarded(ArrayRef<std::pair<SymExpr, SymExpr>> inRange,
                                 Type element,
                                 llvm::function_ref<Value()> inside,
                                 llvm::function_ref<Value()> outside) {
  SmallVector<std::pair<SymExpr, SymExpr>> open;
  for (auto &[position, bound] : inRange) {
    observed.conditions.push_back(position);
    std::optional<bool> known = isInside(position, bound);
    if (!known)
      open.emplace_back(position, bound);
    else if (!*known)
      return outside();
  }
  inRange = open;
  if (inRange.empty())
    return inside();
  Value uniform, perLane;
  for (auto &[position, bound] : inRange) {
    bool varies = variesAlongLanes(position) || variesAlongLanes(bound);
    Value at = varies ? vectorOf(position) : scalarOf(position);
    Value limit = varies ? vectorOf(bound) : scalarOf(bound);
    // Unsigned: a negative position is above every bound.
    Value holds =
        arith::CmpIOp::create(*b, loc, arith::CmpIPredicate::ult, at, limit);
    Value &all = varies ? perLane : uniform;
    all = all ? arith::AndIOp::create(*b, loc, all, holds).getResult() : holds;
  }

  // A value that is computed in the lanes of `active` alone.
  auto inLanes = [&](Value active, llvm::function_ref<Value()> make) -> Value {
    ScopeGuard scope(*this);
    Value outerMask = mask;
    bool outerGuarded = guarded;
    mask = mask ? arith::AndIOp::create(*b, loc, mask, active).getResult()
                : active;
    guarded = true;
    Value value = broadcast(make());
    mask = outerMask;
    guarded = outerGuarded;
    return value;
  };
  auto lanesInside = [&]() -> Value {
    if (!perLane)
      return inside();
    Value inner = inLanes(perLane, inside);
    Value ones =
        arith::ConstantOp::create(*b, loc, b->getOneAttr(perLane.getType()));
    Value others = arith::XOrIOp::create(*b, loc, perLane, ones);
    Value outer = inLanes(others, outside);
    return arith::SelectOp::create(*b, loc, perLane, inner, outer);
  };
  if (!uniform)
    return lanesInside();

  Type type = width ? laned(element) : element;
  auto branch = scf::IfOp::create(*b, loc, type, uniform, /*else=*/true);
  auto fill = [&](Block *block, llvm::function_ref<Value()> make) {
    OpBuilder::InsertionGuard guard(*b);
    ScopeGuard scope(*this);
    b->setInsertionPointToEnd(block);
    ++branchDepth;
    Value value = make();
    --branchDepth;
    scf::YieldOp::create(*b, loc, broadcast(value));
  };
  fill(branch.thenBlock(), lanesInside);
  fill(branch.elseBlock(), outside);
  return branch.getResult(0);
}

Value KernelEmitter::evalPointwise(linalg::GenericOp op, const Index &index) {
  bool dear = llvm::any_of(op.getBody()->without_terminator(),
                           [](Operation &inner) { return isDear(&inner); });
  if (dear)
    ++observed.dearOps;

  // A dear value along a whole row may be kept for the row's next pass.
  std::string cacheKey;
  if (dear && width && !guarded && branchDepth == 0 && !schedule.flat &&
      currentLaneLoop >= 0 && variesAlongLanes(index)) {
    std::set<std::string> names;
    for (const SymExpr &expr : index)
      expr.collectSymbols(names);
    bool ofRow = llvm::all_of(names, [&](const std::string &name) {
      return name == laneSymbol || rowSymbols.contains(name) ||
             (!ranges.count(name) && !StringRef(name).starts_with("x"));
    });
    if (ofRow) {
      Index generic(index);
      for (SymExpr &expr : generic)
        expr = expr.substitute({{laneSymbol, SymExpr::symbol("@")}});
      cacheKey =
          key(op.getResult(0), generic) + "|" + ranges.at(laneSymbol).str();
      Observations::DearValue &seen = observed.dearValues[cacheKey];
      seen.op = op;
      if (seen.loops.empty() || seen.loops.back() != currentLaneLoop)
        seen.loops.push_back(currentLaneLoop);
    }
  }
  bool cached = !cacheKey.empty() && op->hasAttr(cachedAttrName);
  Type element = getElementTypeOrSelf(op.getResult(0).getType());
  if (cached && llvm::any_of(scopes, [&](const Scope &scope) {
        return scope.cacheFilled.contains(cacheKey);
      })) {
    Value base =
        LLVM::GEPOp::create(*b, loc, scratch.getType(), b->getI8Type(), scratch,
                            ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(
                                scalarOf(cacheOffsets.lookup(cacheKey)))});
    return loadAt(base, element, SymExpr::symbol(laneSymbol));
  }

  SmallVector<Value> arguments;
  for (OpOperand *input : op.getDpsInputOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(input);
    if (argument.use_empty()) {
      arguments.push_back({});
      continue;
    }
    if (!isa<RankedTensorType>(input->get().getType())) {
      arguments.push_back(outerScalar(input->get()));
      continue;
    }
    arguments.push_back(
        eval(input->get(), applyMap(op.getMatchingIndexingMap(input), index)));
  }
  arguments.resize(op.getBody()->getNumArguments());
  SmallVector<Value> results = emitScalars(*op.getBody(), arguments, &index);

  if (cached) {
    if (!cacheOffsets.count(cacheKey)) {
      // Whole cache lines for each value.
      cacheOffsets[cacheKey] = scratchSize;
      SymExpr bytes = ranges.at(laneSymbol) *
                          SymExpr(static_cast<int64_t>(bytesOf(element))) +
                      SymExpr(63);
      scratchSize =
          scratchSize +
          SymExpr(64) * SymExpr::make(Kind::FloorDiv, {bytes, SymExpr(64)});
    }
    Value base =
        LLVM::GEPOp::create(*b, loc, scratch.getType(), b->getI8Type(), scratch,
                            ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(
                                scalarOf(cacheOffsets.lookup(cacheKey)))});
    storeAt(base, results[0], SymExpr::symbol(laneSymbol));
    cachePending.insert(cacheKey);
  }
  return results[0];
}

//===----------------------------------------------------------------------===//
// Scalar bodies
//===----------------------------------------------------------------------===//

/// A scalar of the kernel's body outside any generic.
Value KernelEmitter::outerScalar(Value value) {
  if (isa<IndexType>(value.getType())) {
    FailureOr<SymExpr> expr = exprOfIndex(value);
    if (succeeded(expr))
      return dataOf(*expr);
  }
  std::string id =
      "scalar " +
      std::to_string(reinterpret_cast<uintptr_t>(value.getAsOpaquePointer()));
  for (Scope &scope : llvm::reverse(scopes))
    if (auto found = scope.values.find(id); found != scope.values.end())
      return found->second;
  Operation *op = value.getDefiningOp();
  if (!op) {
    fail(kernelOp, "a scalar that is not computed in the kernel");
    return constant(0);
  }
  Value result;
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    Index position;
    for (Value at : extract.getIndices()) {
      FailureOr<SymExpr> expr = exprOfIndex(at);
      position.push_back(succeeded(expr) ? *expr : opaque(outerScalar(at)));
    }
    result = eval(extract.getTensor(), position);
  } else if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op)) {
    result = outerScalar(op->getOperand(0));
    unsigned from = result.getType().getIntOrFloatBitWidth();
    unsigned to = isa<IndexType>(value.getType())
                      ? 64
                      : value.getType().getIntOrFloatBitWidth();
    Type type = b->getIntegerType(to);
    if (from < to)
      result = arith::ExtSIOp::create(*b, loc, type, result);
    else if (from > to)
      result = arith::TruncIOp::create(*b, loc, type, result);
  } else {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, outerScalar(operand));
    Operation *clone = b->clone(*op, mapping);
    for (Value made : clone->getResults())
      if (isa<IndexType>(made.getType()))
        made.setType(b->getI64Type());
    result = clone->getResult(cast<OpResult>(value).getResultNumber());
  }
  scopes.back().values[id] = result;
  return result;
}

/// Numbers the check, and stores the number where it fails; of an index, also
/// its value and the size.
void KernelEmitter::emitCheck(Operation *op, Value condition, Value index,
                              Value size) {
  NamedAttrList fields;
  if (auto checkIndex = dyn_cast<graph::CheckIndexOp>(op)) {
    fields.set("text", checkIndex.getMessageAttr());
    if (checkIndex.getIndexError())
      fields.set("index", b->getUnitAttr());
  } else {
    fields.set("text", cast<cf::AssertOp>(op).getMsgAttr());
  }
  Attribute check = fields.getDictionary(b->getContext());
  auto *known = llvm::find(knownChecks, check);
  int64_t number = known - knownChecks.begin() + 1;
  if (known == knownChecks.end())
    knownChecks.push_back(check);
  Value one =
      arith::ConstantOp::create(*b, loc, b->getOneAttr(condition.getType()));
  Value bad = arith::XOrIOp::create(*b, loc, condition, one), anyBad = bad;
  if (width && (mask || isa<VectorType>(bad.getType()))) {
    bad = broadcast(bad);
    if (mask)
      bad = arith::AndIOp::create(*b, loc, bad, mask);
    anyBad =
        vector::ReductionOp::create(*b, loc, vector::CombiningKind::OR, bad);
  }
  auto branch = scf::IfOp::create(*b, loc, anyBad, /*else=*/false);
  OpBuilder::InsertionGuard guard(*b);
  b->setInsertionPointToStart(branch.thenBlock());
  auto wide = [&](int64_t value) -> Value { // positions may have 32 bits
    return arith::ConstantOp::create(*b, loc, b->getI64IntegerAttr(value));
  };
  LLVM::StoreOp::create(*b, loc, wide(number), status, 8);
  // The greatest of the lanes that fail.
  auto store = [&](int32_t place, Value value) {
    if (auto type = dyn_cast<VectorType>(value.getType())) {
      Value least = broadcast(wide(std::numeric_limits<int64_t>::min()));
      value = arith::SelectOp::create(*b, loc, broadcast(bad), value, least);
      value = vector::ReductionOp::create(*b, loc, vector::CombiningKind::MAXSI,
                                          value);
    }
    Value at =
        LLVM::GEPOp::create(*b, loc, status.getType(), b->getI64Type(), status,
                            ArrayRef<LLVM::GEPArg>{LLVM::GEPArg(place)});
    LLVM::StoreOp::create(*b, loc, value, at, 8);
  };
  if (!index)
    return;
  store(1, index);
  store(2, size);
}

/// Emits the operations of a scalar body on scalars or vectors and returns what
/// it yields. Positions (`index`) stay expressions as long as they can.
SmallVector<Value> KernelEmitter::emitScalars(Block &scalarBody,
                                              ValueRange arguments,
                                              const Index *position) {
  DenseMap<Value, Value> values;
  DenseMap<Value, SymExpr> positions;
  for (auto [argument, value] : llvm::zip(scalarBody.getArguments(), arguments))
    if (value)
      values[argument] = value;

  auto get = [&](Value value) -> Value {
    if (auto found = values.find(value); found != values.end())
      return found->second;
    if (auto found = positions.find(value); found != positions.end()) {
      observed.conditions.push_back(found->second);
      return dataOf(found->second);
    }
    if (value.getParentBlock() == &scalarBody) {
      fail(kernelOp, "an accumulator that is read outside a reduction");
      return constant(0);
    }
    return outerScalar(value);
  };
  auto is64Bits = [](Type type) {
    return isa<IndexType>(type) || type.isInteger(64);
  };
  auto knownPosition = [&](Value value) -> std::optional<SymExpr> {
    if (auto found = positions.find(value); found != positions.end())
      return found->second;
    APInt number;
    if (matchPattern(value, m_ConstantInt(&number)))
      return SymExpr(number.getSExtValue());
    return std::nullopt;
  };
  auto positionOf = [&](Value value) -> SymExpr {
    if (auto found = positions.find(value); found != positions.end())
      return found->second;
    if (value.getParentBlock() != &scalarBody) {
      FailureOr<SymExpr> expr = exprOfIndex(value);
      if (succeeded(expr))
        return *expr;
    }
    SymExpr expr = opaque(get(value));
    positions[value] = expr;
    return expr;
  };

  for (Operation &op : scalarBody.without_terminator()) {
    if (auto indexOp = dyn_cast<linalg::IndexOp>(op)) {
      positions[indexOp.getResult()] = (*position)[indexOp.getDim()];
      continue;
    }
    if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      Index at;
      for (Value operand : extract.getIndices())
        at.push_back(positionOf(operand));
      // A clamped index is in range unless the tensor turns out to be empty.
      SmallVector<std::pair<SymExpr, SymExpr>> inRange;
      for (auto [index, size] :
           llvm::zip_equal(at, sizesOf(extract.getTensor())))
        if (!size.asInteger() || size.isInteger(0))
          inRange.emplace_back(index, size);
      Type element = extract.getType();
      values[extract.getResult()] = evalGuarded(
          inRange, element, [&] { return eval(extract.getTensor(), at); },
          [&]() -> Value {
            return arith::ConstantOp::create(*b, loc, b->getZeroAttr(element));
          });
      continue;
    }
    if (isa<cf::AssertOp>(op)) {
      emitCheck(&op, get(op.getOperand(0)), nullptr, nullptr);
      continue;
    }
    if (auto check = dyn_cast<graph::CheckIndexOp>(op)) {
      emitCheck(&op, get(check.getCondition()), get(check.getIndex()),
                get(check.getSize()));
      continue;
    }
    if (op.getNumResults() != 1 || op.getNumRegions() != 0) {
      fail(&op, "an operation outside the language of scalar bodies");
      continue;
    }
    Value result = op.getResult(0);
    if (isa<IndexType>(result.getType())) {
      if (auto constantOp = dyn_cast<arith::ConstantOp>(op)) {
        positions[result] =
            SymExpr(cast<IntegerAttr>(constantOp.getValue()).getInt());
        continue;
      }
      if (isa<arith::AddIOp, arith::MulIOp, arith::SubIOp>(op)) {
        SymExpr x = positionOf(op.getOperand(0));
        SymExpr y = positionOf(op.getOperand(1));
        positions[result] = isa<arith::AddIOp>(op)   ? x + y
                            : isa<arith::MulIOp>(op) ? x * y
                                                     : x - y;
        continue;
      }
    }
    // The user's integers, too, are positions while that says where they lead.
    if (isa<arith::IndexCastOp>(op) && is64Bits(result.getType()) &&
        is64Bits(op.getOperand(0).getType()))
      if (std::optional<SymExpr> expr = knownPosition(op.getOperand(0))) {
        positions[result] = *expr;
        continue;
      }
    if (isa<arith::AddIOp, arith::SubIOp>(op) &&
        result.getType().isInteger(64)) {
      std::optional<SymExpr> x = knownPosition(op.getOperand(0));
      std::optional<SymExpr> y = knownPosition(op.getOperand(1));
      if (x && y) {
        positions[result] = isa<arith::AddIOp>(op) ? *x + *y : *x - *y;
        continue;
      }
    }
    if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op)) {
      Value source = get(op.getOperand(0));
      unsigned from =
          getElementTypeOrSelf(source.getType()).getIntOrFloatBitWidth();
      unsigned to = isa<IndexType>(result.getType())
                        ? 64
                        : result.getType().getIntOrFloatBitWidth();
      Type type = b->getIntegerType(to);
      if (auto vectorType = dyn_cast<VectorType>(source.getType()))
        type = VectorType::get(vectorType.getShape(), type);
      if (from < to && isa<arith::IndexCastUIOp>(op))
        source = arith::ExtUIOp::create(*b, loc, type, source);
      else if (from < to)
        source = arith::ExtSIOp::create(*b, loc, type, source);
      else if (from > to)
        source = arith::TruncIOp::create(*b, loc, type, source);
      values[result] = source;
      continue;
    }

    // Anything else element by element.
    SmallVector<Value> operands;
    int64_t lanes = 0;
    for (Value operand : op.getOperands()) {
      Value value = get(operand);
      if (auto type = dyn_cast<VectorType>(value.getType()))
        lanes = type.getDimSize(0);
      operands.push_back(value);
    }
    Type type = result.getType();
    if (isa<IndexType>(type))
      type = b->getI64Type();
    if (lanes) {
      type = VectorType::get({lanes}, type);
      for (Value &operand : operands)
        if (!isa<VectorType>(operand.getType()))
          operand = vector::BroadcastOp::create(
              *b, loc, VectorType::get({lanes}, operand.getType()), operand);
    }
    OperationState state(op.getLoc(), op.getName(), operands, type,
                         op.getAttrDictionary().getValue());
    if (auto constantOp = dyn_cast<arith::ConstantOp>(op);
        constantOp && isa<IndexType>(result.getType()))
      values[result] = arith::ConstantOp::create(
          *b, loc,
          b->getI64IntegerAttr(
              cast<IntegerAttr>(constantOp.getValue()).getInt()));
    else
      values[result] = b->create(state)->getResult(0);
  }
  SmallVector<Value> results;
  for (Value yielded : scalarBody.getTerminator()->getOperands())
    results.push_back(get(yielded));
  return results;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

SmallVector<Value> KernelEmitter::scalarLoop(const std::string &symbol,
                                             Value begin, Value end, Value step,
                                             ArrayRef<Value> initial,
                                             LaneBody makeBody) {
  return emitLoop(*b, loc, begin, end, step, initial,
                  [&](Value variable, ValueRange values) {
                    ScopeGuard scope(*this);
                    symbolValues[symbol] = variable;
                    SmallVector<Value> results = makeBody(values);
                    symbolValues.erase(symbol);
                    return results;
                  });
}

/// Of floats, or of the parts of complex numbers.
static bool isAddition(Block &combiner) {
  auto operations = combiner.without_terminator();
  return llvm::any_of(operations, llvm::IsaPred<arith::AddFOp>) &&
         llvm::all_of(
             operations,
             llvm::IsaPred<arith::AddFOp, arith::BitcastOp, arith::ConstantOp,
                           arith::ExtUIOp, arith::OrIOp, arith::ShLIOp,
                           arith::ShRUIOp, arith::TruncIOp>);
}

static bool isSum(linalg::GenericOp reduction) {
  return reduction.getNumDpsInits() == 1 && isAddition(*reduction.getBody());
}

/// Iterations of a loop that are added one after the other.
static constexpr int64_t cascadeBlock = 64;

SmallVector<Value> KernelEmitter::cascadeLoop(Value begin, Value end,
                                              int64_t step,
                                              ArrayRef<Value> initial,
                                              const Cascade &cascade,
                                              LoopBody makeBody) {
  if (cascade.levels == 0)
    return emitLoop(*b, loc, begin, end, constant(step), initial, makeBody);
  auto cascadeOf = [&](int64_t levels) {
    Cascade part = cascade;
    part.levels = levels;
    part.mayBeShort = false;
    return part;
  };
  // One block needs no loops of blocks, which would cost each row several
  // branches and additions that wait for each other.
  if (cascade.mayBeShort) {
    Value isShort =
        arith::CmpIOp::create(*b, loc, arith::CmpIPredicate::sle,
                              arith::SubIOp::create(*b, loc, end, begin),
                              constant(step * cascadeBlock));
    auto branch =
        scf::IfOp::create(*b, loc, TypeRange(ValueRange(initial)), isShort,
                          /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(*b);
    // Both are the same loop to what comes after.
    llvm::StringMap<int64_t> readersBefore = readers;
    llvm::StringSet<> pendingBefore = cachePending;
    for (Block *block : {branch.thenBlock(), branch.elseBlock()}) {
      ScopeGuard scope(*this);
      readers = readersBefore;
      cachePending = pendingBefore;
      b->setInsertionPointToStart(block);
      int64_t levels = block == branch.thenBlock() ? 0 : cascade.levels;
      scf::YieldOp::create(
          *b, loc,
          cascadeLoop(begin, end, step, initial, cascadeOf(levels), makeBody));
    }
    return branch.getResults();
  }
  Cascade inner = cascadeOf(cascade.levels - 1);
  int64_t block = step;
  for (int64_t level = 0; level < cascade.levels; ++level)
    block *= cascadeBlock;
  return emitLoop(
      *b, loc, begin, end, constant(block), initial,
      [&](Value variable, ValueRange values) {
        ScopeGuard scope(*this);
        Value stop = arith::AddIOp::create(*b, loc, variable, constant(block));
        stop = arith::MinSIOp::create(*b, loc, stop, end);
        return cascade.add(
            cascadeLoop(variable, stop, step, cascade.zeros, inner, makeBody),
            values);
      });
}

SmallVector<Value> KernelEmitter::laneLoop(
    const std::string &symbol, Value begin, Value end,
    std::optional<int64_t> extent, ArrayRef<Value> initial, LaneBody makeBody,
    llvm::function_ref<SmallVector<Value>(ValueRange, int64_t)> narrow,
    const Cascade &cascade, ArrayRef<SymExpr> cuts) {
  int64_t lanes = schedule.lanes, tail = schedule.tailLanes;
  if (lanes == 1)
    return scalarLoop(symbol, begin, end, constant(1), initial, makeBody);
  int64_t savedLoop = currentLaneLoop;
  currentLaneLoop = laneLoopCount++;
  // A loop inside another one says nothing about what the other has filled, and
  // has pieces of its own.
  llvm::StringSet<> savedPending = std::exchange(cachePending, {});
  auto savedPiece = std::exchange(piece, std::nullopt);

  auto run = [&](Value from, Value to, int64_t step, ArrayRef<Value> carried,
                 bool masked, const Cascade &blocks) {
    return cascadeLoop(
        from, to, step, carried, blocks,
        [&](Value variable, ValueRange values) {
          ScopeGuard scope(*this);
          symbolValues[symbol] = variable;
          Value active;
          if (masked) {
            Value left = arith::SubIOp::create(*b, loc, to, variable);
            left = arith::MinSIOp::create(*b, loc, left, constant(step));
            if (!schedule.narrow)
              left = arith::TruncIOp::create(*b, loc, b->getI32Type(), left);
            auto type = VectorType::get({step}, b->getI32Type());
            SmallVector<int32_t> numbers(step);
            std::iota(numbers.begin(), numbers.end(), 0);
            Value lane = arith::ConstantOp::create(
                *b, loc,
                DenseElementsAttr::get(type, ArrayRef<int32_t>(numbers)));
            Value limit = vector::BroadcastOp::create(*b, loc, type, left);
            active = arith::CmpIOp::create(*b, loc, arith::CmpIPredicate::slt,
                                           lane, limit);
          }
          LaneGuard guard(*this, symbol, step, active);
          SmallVector<Value> results = makeBody(values);
          symbolValues.erase(symbol);
          return results;
        });
  };

  SmallVector<Value> carried(initial);
  // The loop may be a part of what the cuts divide.
  bool isPart = schedule.flat;
  auto runPiece = [&](Value begin, Value end, std::optional<int64_t> extent) {
    Value split;
    bool hasMain = !extent || *extent >= lanes;
    bool hasTail = !extent || *extent % lanes != 0;
    if (extent) {
      split = arith::AddIOp::create(*b, loc, begin,
                                    constant(*extent / lanes * lanes));
    } else {
      Value length = arith::SubIOp::create(*b, loc, end, begin);
      Value whole = arith::AndIOp::create(*b, loc, length, constant(-lanes));
      split = arith::AddIOp::create(*b, loc, begin, whole);
    }
    if (hasMain)
      carried = run(begin, split, lanes, carried, /*masked=*/false, cascade);
    if (narrow)
      carried = narrow(carried, tail);
    if (hasTail)
      carried = run(split, end, tail, carried,
                    /*masked=*/!extent || (*extent % lanes) % tail != 0, {});
  };
  if (cuts.empty()) {
    runPiece(begin, end, extent);
  } else {
    for (auto [first, last] : llvm::zip(cuts, cuts.drop_front())) {
      piece.emplace(first, last);
      Value from = scalarOf(first), to = scalarOf(last);
      if (!isPart) {
        runPiece(from, to, (last - first).asInteger());
        continue;
      }
      for (Value *limit : {&from, &to}) {
        *limit = arith::MaxSIOp::create(*b, loc, *limit, begin);
        *limit = arith::MinSIOp::create(*b, loc, *limit, end);
      }
      runPiece(from, to, std::nullopt);
    }
  }
  piece = savedPiece;
  for (const auto &entry : cachePending)
    scopes.back().cacheFilled.insert(entry.getKey());
  cachePending = std::move(savedPending);
  currentLaneLoop = savedLoop;
  return carried;
}

std::optional<bool> KernelEmitter::isInside(const SymExpr &position,
                                            const SymExpr &bound) const {
  if (!piece)
    return std::nullopt;
  std::optional<SymExpr> stride = strideAlong(position, laneSymbol);
  if (!stride || !stride->isInteger(1))
    return std::nullopt;
  SymExpr shift = position - SymExpr::symbol(laneSymbol);
  std::optional<int64_t> first = (piece->first + shift).asInteger();
  std::optional<int64_t> end = (piece->second + shift).asInteger();
  std::optional<int64_t> firstAbove =
      (piece->first + shift - bound).asInteger();
  std::optional<int64_t> endAbove = (piece->second + shift - bound).asInteger();
  if (first && *first >= 0 && endAbove && *endAbove <= 0)
    return true;
  if ((end && *end <= 0) || (firstAbove && *firstAbove >= 0))
    return false;
  return std::nullopt;
}

/// Each piece has code of its own.
static constexpr size_t maxLanePieces = 16;

SmallVector<SymExpr>
KernelEmitter::lanePieces(ArrayRef<std::pair<unsigned, Index>> roots,
                          const std::string &symbol,
                          const SymExpr &extent) const {
  std::vector<SmallVector<SymExpr>> found;
  llvm::StringSet<> seen;
  auto add = [&](const SymExpr &position, ArrayRef<SymExpr> bounds) {
    std::optional<SymExpr> stride = strideAlong(position, symbol);
    if (!stride || !stride->isInteger(1))
      return;
    SymExpr shift = position - SymExpr::symbol(symbol);
    std::set<std::string> names;
    shift.collectSymbols(names);
    if (llvm::any_of(names, [&](const std::string &name) {
          return ranges.count(name) || vectorSymbols.count(name);
        }))
      return;
    SmallVector<SymExpr> cuts;
    for (const SymExpr &bound : bounds)
      cuts.push_back(bound - shift);
    if (!llvm::is_contained(found, cuts))
      found.push_back(cuts);
  };
  std::function<void(Value, const Index &)> visit = [&](Value tensor,
                                                        const Index &index) {
    if (!seen.insert(key(tensor, index)).second)
      return;
    Operation *op = tensor.getDefiningOp();
    if (!op)
      return;
    if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
      if (generic.getNumReductionLoops() > 0)
        return;
      for (OpOperand *input : generic.getDpsInputOperands())
        if (isa<RankedTensorType>(input->get().getType()))
          visit(input->get(),
                applyMap(generic.getMatchingIndexingMap(input), index));
      return;
    }
    if (std::optional<SmallVector<SymExpr>> source =
            sourceIndex(op, index, ranges))
      return visit(op->getOperand(0), *source);
    if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
      int64_t dim = concat.getDim();
      SmallVector<SymExpr> bounds{SymExpr(0)};
      for (Value input : concat.getInputs()) {
        Index shifted(index);
        shifted[dim] = index[dim] - bounds.back();
        bounds.push_back(bounds.back() + sizesOf(input)[dim]);
        visit(input, shifted);
      }
      add(index[dim], bounds);
    } else if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      SmallVector<SymExpr> sizes = sizesOf(pad.getSource());
      Index source(index);
      for (auto [dim, low, high] :
           llvm::enumerate(pad.getMixedLowPad(), pad.getMixedHighPad())) {
        SymExpr first = exprOfFold(low), end = first + sizes[dim];
        source[dim] = index[dim] - first;
        if (first.asInteger() && exprOfFold(high).asInteger())
          add(index[dim], {SymExpr(0), first, end, end + exprOfFold(high)});
      }
      visit(pad.getSource(), source);
    }
  };
  for (const auto &[result, index] : roots)
    visit(body.getTerminator()->getOperand(result), index);

  // Several are brought into order by their integers.
  std::set<int64_t> positions;
  for (ArrayRef<SymExpr> cuts : found)
    for (const SymExpr &cut : cuts)
      if (std::optional<int64_t> position = cut.asInteger())
        positions.insert(*position);
  SmallVector<SymExpr> pieces;
  if (std::optional<int64_t> end = extent.asInteger()) {
    positions.insert({0, *end});
    for (int64_t position : positions)
      if (position >= 0 && position <= *end)
        pieces.push_back(position);
  } else if (found.size() == 1 && found[0].front().isInteger(0) &&
             found[0].back() == extent) {
    pieces = found[0]; // in order: no size is negative
  }
  if (pieces.size() < 3 || pieces.size() > maxLanePieces + 1)
    return {};
  return pieces;
}

void KernelEmitter::prefetch(Value tensor, const Index &index) {
  if (!contains(tensor, reduces))
    return;
  // Running values are known inside their loop only.
  if (!contains(tensor, runs) && llvm::all_of(index, [&](const SymExpr &expr) {
        return isAvailable(expr);
      })) {
    if (variesAlongLanes(index)) {
      eval(tensor, index);
      return;
    }
    LaneGuard none(*this, "", 0, {});
    Value value = eval(tensor, index);
    scopes.back().values[key(tensor, index)] = value;
    return;
  }
  Operation *op = tensor.getDefiningOp();
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    if (generic.getNumReductionLoops() == 0 || runs(generic))
      for (OpOperand *input : generic.getDpsInputOperands())
        if (isa<RankedTensorType>(input->get().getType()))
          prefetch(input->get(),
                   applyMap(generic.getMatchingIndexingMap(input), index));
    return;
  }
  if (std::optional<SmallVector<SymExpr>> source =
          sourceIndex(op, index, ranges)) {
    prefetch(op->getOperand(0), *source);
    return;
  }
  // Whether a position is inside an input is known at that position alone: what
  // depends on it stays where it is needed.
  auto unknown = [&](const SymExpr &range) {
    std::string symbol = "p" + std::to_string(nextSymbol++);
    ranges[symbol] = range;
    return SymExpr::symbol(symbol);
  };
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    int64_t dim = concat.getDim();
    bool isWhole = concat.getInputs().size() == 1;
    for (Value input : concat.getInputs()) {
      Index inner(index);
      if (!isWhole)
        inner[dim] = unknown(sizesOf(input)[dim]);
      prefetch(input, inner);
    }
  } else if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    SmallVector<SymExpr> sizes = sizesOf(pad.getSource());
    Index inner(index);
    for (auto [dim, low, high] :
         llvm::enumerate(pad.getMixedLowPad(), pad.getMixedHighPad()))
      if (!exprOfFold(low).isInteger(0) || !exprOfFold(high).isInteger(0))
        inner[dim] = unknown(sizes[dim]);
    prefetch(pad.getSource(), inner);
  }
}

/// What the accumulators of a reduction start from.
SmallVector<Value> KernelEmitter::startsOf(linalg::GenericOp op) {
  return llvm::map_to_vector(op.getDpsInits(), [&](Value init) -> Value {
    if (auto fill = init.getDefiningOp<linalg::FillOp>())
      return outerScalar(fill.getInputs()[0]);
    fail(op, "a reduction that does not start from a constant");
    return constant(0);
  });
}

/// The value that the loop being emitted carries: it has no other.
Value KernelEmitter::evalRunning(linalg::GenericOp op, unsigned result,
                                 const Index &index) {
  SmallVector<SymExpr> sizes = sizesOf(op.getResult(result));
  Value value = runningValues.lookup(op.getResult(result));
  if (value &&
      linearize(index, sizes) == linearize(runningPosition, space.sizes))
    return value;
  fail(op, "a running value is read away from its position");
  return arith::ConstantOp::create(
      *b, loc,
      b->getZeroAttr(getElementTypeOrSelf(op.getResult(result).getType())));
}

/// The loop along a row that carries the running values, with what is stored at
/// each of its positions.
void KernelEmitter::emitRunning(const SymExpr &along, const SymExpr &extent,
                                const Index &full,
                                ArrayRef<std::pair<unsigned, Index>> roots) {
  for (const auto &[result, index] : roots)
    prefetch(body.getTerminator()->getOperand(result), index);
  SmallVector<Value> starts;
  for (linalg::GenericOp op : running)
    for (Value start : startsOf(op))
      starts.push_back(broadcast(start));
  auto combine = [&](linalg::GenericOp op, ArrayRef<Value> elements,
                     ValueRange accumulators) {
    SmallVector<Value> arguments(elements);
    llvm::append_range(arguments, accumulators);
    return emitScalars(*op.getBody(), arguments, nullptr);
  };
  /// The values at the position, from those before it.
  auto run = [&](ValueRange carried) {
    SmallVector<Value> results;
    runningPosition = full;
    for (linalg::GenericOp op : running) {
      SmallVector<Value> elements;
      for (Value input : op.getDpsInputs())
        elements.push_back(broadcast(eval(input, full)));
      if (team)
        elements = shell->scanTeam(
            *b, loc, elements,
            [&](ArrayRef<Value> elements, ValueRange accumulators) {
              return combine(op, elements, accumulators);
            });
      for (auto [number, value] : llvm::enumerate(
               combine(op, elements,
                       carried.slice(results.size(), op.getNumDpsInits())))) {
        results.push_back(broadcast(value));
        runningValues[op.getResult(number)] = results.back();
      }
    }
    return results;
  };
  Value end = scalarOf(extent);
  if (!team) {
    scalarLoop(along.name(), constant(0), end, constant(1), starts,
               [&](ValueRange carried) {
                 SmallVector<Value> results = run(carried);
                 storeRoots(roots);
                 runningValues.clear();
                 return results;
               });
    return;
  }
  // A warp has as many positions at a time as it has threads.
  emitLoop(*b, loc, constant(0), end, constant(schedule.team), starts,
           [&](Value first, ValueRange carried) {
             ScopeGuard scope(*this);
             ++team->loops;
             Value at = arith::AddIOp::create(*b, loc, first, entry.member);
             Value inside = arith::CmpIOp::create(
                 *b, loc, arith::CmpIPredicate::slt, at, end);
             // Threads beyond the end have the last element again, and nobody
             // after them.
             Value last = arith::SubIOp::create(*b, loc, end, constant(1));
             symbolValues[along.name()] =
                 arith::MinSIOp::create(*b, loc, at, last);
             SmallVector<Value> results = run(carried);
             auto branch = scf::IfOp::create(*b, loc, inside,
                                             /*withElseRegion=*/false);
             {
               OpBuilder::InsertionGuard guard(*b);
               b->setInsertionPointToStart(branch.thenBlock());
               ScopeGuard inner(*this);
               storeRoots(roots);
             }
             runningValues.clear();
             symbolValues.erase(along.name());
             --team->loops;
             return shell->lastOfTeam(*b, loc, results);
           });
}

Value KernelEmitter::evalReduction(linalg::GenericOp op, unsigned resultNumber,
                                   const Index &index) {
  SmallVector<Value> results = reduce(op, index);
  // All results of the reduction are known at this position now.
  for (auto [number, value] : llvm::enumerate(results)) {
    std::string id = key(op.getResult(number), index);
    scopes.back().values[width ? id : id + "|scalar"] = value;
  }
  return results[resultNumber];
}

/// Of a part: nothing; its accumulators are stored.
SmallVector<Value> KernelEmitter::reduce(linalg::GenericOp op,
                                         const Index &index,
                                         const TilePart *part) {
  unsigned loops = op.getNumLoops();
  unsigned count = op.getNumDpsInits();
  SmallVector<OpOperand *> inputs = op.getDpsInputOperands();

  // The loop position: given for parallel loops, a loop variable for others.
  Index position(loops);
  AffineMap outMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  for (auto [expr, at] : llvm::zip_equal(outMap.getResults(), index))
    position[cast<AffineDimExpr>(expr).getPosition()] = at;
  SmallVector<Observations::ReductionLoop> reduction;
  SmallVector<SmallVector<int64_t>> parts; // the generic's loops in each
  SmallVector<SymExpr> sizes(loops, SymExpr(1));
  for (OpOperand *input : inputs)
    for (auto [size, expr] :
         llvm::zip_equal(sizesOf(input->get()),
                         op.getMatchingIndexingMap(input).getResults()))
      if (auto at = dyn_cast<AffineDimExpr>(expr))
        sizes[at.getPosition()] = size;
  ArrayRef<int64_t> merged;
  if (auto attr = op->getAttrOfType<DenseI64ArrayAttr>(mergedAttrName))
    merged = attr.asArrayRef();
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  for (unsigned loop = 0; loop < loops; ++loop) {
    if (iterators[loop] != utils::IteratorType::reduction)
      continue;
    if (!llvm::is_contained(merged, loop)) {
      reduction.push_back(
          {loop, "r" + std::to_string(nextSymbol++), SymExpr(1)});
      parts.emplace_back();
    }
    reduction.back().extent = reduction.back().extent * sizes[loop];
    parts.back().push_back(loop);
  }
  for (auto [loop, together] : llvm::zip_equal(reduction, parts)) {
    ranges[loop.symbol] = loop.extent;
    SmallVector<SymExpr> partSizes;
    for (int64_t part : together)
      partSizes.push_back(sizes[part]);
    for (auto [part, at] :
         llvm::zip_equal(together, delinearize(SymExpr::symbol(loop.symbol),
                                               partSizes, ranges)))
      position[part] = at;
  }
  if (schedule.trial)
    observed.reductions.emplace_back(op, reduction);
  if (part) {
    tile->row = reduction[0].symbol;
    symbolValues[tile->row] = part->row;
  }
  // One position for all results: their output maps are the same.
  bool alongLanes = variesAlongLanes(index);
  if (tile && !part && reduction.size() == 1)
    if (std::optional<size_t> number =
            tiledReduction(op, index, reduction[0].extent))
      return accumulators(tile->reductions[*number],
                          tile->reductions[*number].places.back());
  Block *combiner = op.getBody();

  SmallVector<Value> neutral = startsOf(op);
  auto splat = [&](Value scalar, int64_t lanes) -> Value {
    return vector::BroadcastOp::create(
        *b, loc, VectorType::get({lanes}, scalar.getType()), scalar);
  };
  auto combine = [&](ArrayRef<Value> elements, ValueRange accumulators) {
    SmallVector<Value> arguments(elements);
    llvm::append_range(arguments, accumulators);
    return emitScalars(*combiner, arguments, nullptr);
  };
  // The element at `position`, neutral in inactive lanes.
  auto step = [&](ValueRange accumulators) {
    SmallVector<Value> elements;
    for (auto [number, input] : llvm::enumerate(inputs)) {
      Value element = eval(
          input->get(), applyMap(op.getMatchingIndexingMap(input), position));
      if (width) {
        element = broadcast(element);
        if (mask && !alongLanes)
          element = arith::SelectOp::create(*b, loc, mask, element,
                                            broadcast(neutral[number]));
      }
      elements.push_back(element);
    }
    SmallVector<Value> results = combine(elements, accumulators);
    if (width)
      for (Value &result : results)
        result = broadcast(result);
    return results;
  };
  auto prefetchInputs = [&] {
    for (OpOperand *input : inputs)
      prefetch(input->get(),
               applyMap(op.getMatchingIndexingMap(input), position));
  };

  // The threads of a team divide the last loop among them.
  bool shared = !reduction.empty() && isTogether();
  // The lanes are our own unless they run along the results, or there are none.
  bool serial =
      alongLanes || reduction.empty() || (schedule.lanes == 1 && !shared);
  int64_t together = shared ? schedule.team : schedule.lanes;

  // Iterations of the loops from `level` on; nullopt when sizes decide.
  size_t scalarLoops = reduction.size() - (serial ? 0 : 1);
  auto iterations = [&](size_t level) -> std::optional<int64_t> {
    int64_t count = 1;
    for (size_t loop = level; loop < reduction.size(); ++loop) {
      std::optional<int64_t> extent = reduction[loop].extent.asInteger();
      if (!extent)
        return std::nullopt;
      count *=
          loop < scalarLoops ? *extent : llvm::divideCeil(*extent, together);
    }
    return count;
  };
  // Rounding errors grow with the number of additions one after the other.
  bool adds = isSum(op);
  auto add = [&](ValueRange blocks, ValueRange accumulators) {
    SmallVector<Value> sums;
    for (size_t part = 0; part < blocks.size(); part += count)
      llvm::append_range(sums,
                         combine(SmallVector<Value>(blocks.slice(part, count)),
                                 accumulators.slice(part, count)));
    return sums;
  };
  auto cascadeOf = [&](size_t level, ArrayRef<Value> zeros) {
    Cascade cascade;
    if (!adds)
      return cascade;
    cascade.zeros.assign(zeros.begin(), zeros.end());
    cascade.add = add;
    std::optional<int64_t> extent = reduction[level].extent.asInteger();
    if (!extent) {
      cascade.mayBeShort =
          level == scalarLoops && !schedule.threads && !schedule.trial;
      // A team of 256 adds a million then, in two levels of blocks.
      cascade.levels = shared && level >= scalarLoops ? 1 : 2;
      return cascade;
    }
    int64_t blocks = level < scalarLoops ? *extent : *extent / together;
    for (; blocks > cascadeBlock; blocks /= cascadeBlock)
      ++cascade.levels;
    return cascade;
  };

  // Scalar loops outside, the lane loop (if the lanes are ours) innermost. The
  // accumulators of the remainder loop are carried beside those of the main
  // one, so that lanes are combined once, at the end.
  SmallVector<Value> zeros;
  std::function<SmallVector<Value>(size_t, SmallVector<Value>)> nest =
      [&](size_t level, SmallVector<Value> carried) -> SmallVector<Value> {
    prefetchInputs();
    if (level < scalarLoops) {
      const Observations::ReductionLoop &loop = reduction[level];
      std::optional<int64_t> all = iterations(level);
      std::optional<int64_t> inside = iterations(level + 1);
      bool isLong = adds && (!all || *all > cascadeBlock);
      bool restarts =
          isLong && level + 1 < reduction.size() && (!inside || *inside >= 8);
      return cascadeLoop(constant(0), scalarOf(loop.extent), 1, carried,
                         isLong ? cascadeOf(level, zeros) : Cascade(),
                         [&](Value variable, ValueRange values) {
                           ScopeGuard scope(*this);
                           symbolValues[loop.symbol] = variable;
                           SmallVector<Value> results =
                               restarts ? add(nest(level + 1, zeros), values)
                                        : nest(level + 1,
                                               SmallVector<Value>(values));
                           symbolValues.erase(loop.symbol);
                           return results;
                         });
    }
    if (serial)
      return step(carried);
    const Observations::ReductionLoop &loop = reduction.back();
    if (shared)
      return cascadeLoop(entry.member, scalarOf(loop.extent), schedule.team,
                         carried, cascadeOf(level, zeros),
                         [&](Value variable, ValueRange values) {
                           ScopeGuard scope(*this);
                           ++team->loops;
                           symbolValues[loop.symbol] = variable;
                           SmallVector<Value> results = step(values);
                           symbolValues.erase(loop.symbol);
                           --team->loops;
                           return results;
                         });
    SmallVector<Value> wide(carried.begin(), carried.begin() + count);
    SmallVector<Value> narrowed(carried.begin() + count, carried.end());
    SmallVector<Value> wideResults;
    SmallVector<Value> narrowResults = laneLoop(
        loop.symbol, constant(0), scalarOf(loop.extent),
        loop.extent.asInteger(), wide,
        [&](ValueRange values) { return step(values); },
        [&](ValueRange values, int64_t) {
          wideResults.assign(values.begin(), values.end());
          return narrowed;
        },
        cascadeOf(level, ArrayRef(zeros).take_front(count)));
    llvm::append_range(wideResults, narrowResults);
    return wideResults;
  };

  if (part) {
    setAccumulators(part->places,
                    step(accumulators(part->reduction, part->places)));
    symbolValues.erase(tile->row);
    return {};
  }
  SmallVector<Value> results;
  if (serial || shared) {
    for (Value value : neutral)
      zeros.push_back(width ? broadcast(value) : value);
    results = nest(0, zeros);
    if (shared)
      results = shell->reduceTeam(*b, loc, entry, results, combine);
  } else {
    // The lanes are ours: no outer ones while the loops are emitted.
    LaneGuard none(*this, "", 0, {});
    for (Value value : neutral)
      zeros.push_back(splat(value, schedule.lanes));
    for (Value value : neutral)
      zeros.push_back(splat(value, schedule.tailLanes));
    SmallVector<Value> carried = nest(0, zeros);
    SmallVector<Value> wide(carried.begin(), carried.begin() + count);
    SmallVector<Value> narrowed(carried.begin() + count, carried.end());
    auto halve = [&](ArrayRef<Value> values, int64_t lanes) {
      SmallVector<Value> low, high;
      for (Value value : values) {
        SmallVector<int64_t> lower(lanes / 2), upper(lanes / 2);
        std::iota(lower.begin(), lower.end(), 0);
        std::iota(upper.begin(), upper.end(), lanes / 2);
        low.push_back(vector::ShuffleOp::create(*b, loc, value, value, lower));
        high.push_back(vector::ShuffleOp::create(*b, loc, value, value, upper));
      }
      return combine(low, high);
    };
    int64_t lanes = schedule.lanes;
    for (; lanes > schedule.tailLanes; lanes /= 2)
      wide = halve(wide, lanes);
    results = combine(wide, narrowed);
    for (; lanes > 1; lanes /= 2)
      results = halve(results, lanes);
    for (Value &result : results)
      result = vector::ExtractOp::create(*b, loc, result, int64_t(0));
  }
  return results;
}

//===----------------------------------------------------------------------===//
// Tiles of columns
//===----------------------------------------------------------------------===//
//
// A reduction whose lanes run across it would read a few lines of each row, in
// memory that no processor fetches ahead, and walk through the page tables of
// the whole tensor for each column of lanes. So columns come in tiles, and in
// each a row is read from one end to the other before the next one; the
// accumulators are in scratch memory. A sum has several sets of them, for
// blocks of rows and blocks of those, so that its rounding errors stay small.
// What lies across the rows is transposed into scratch memory, a block of them
// at a time.

/// Whether a reduction is needed for the value.
static bool needsReduction(Value value,
                           llvm::SmallPtrSetImpl<Operation *> &seen) {
  Operation *op = value.getDefiningOp();
  if (!op || !seen.insert(op).second)
    return false;
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    if (generic.getNumReductionLoops() > 0)
      return true;
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return needsReduction(operand, seen);
  });
}

/// The number of the reduction in the tile; nothing: it is no such one.
std::optional<size_t> KernelEmitter::tiledReduction(linalg::GenericOp op,
                                                    const Index &index,
                                                    const SymExpr &rows) {
  if (laneSymbol != "v" || !width || guarded || branchDepth > 0 ||
      !variesAlongLanes(index) ||
      rows.asInteger().value_or(tiledRows) < tiledRows)
    return std::nullopt;
  std::string id = key(op.getResult(0), index);
  if (auto found = tile->numbers.find(id); found != tile->numbers.end())
    return found->second;
  std::set<std::string> names;
  for (const SymExpr &position : index)
    position.collectSymbols(names);
  bool isKnown = llvm::all_of(names, [&](const std::string &name) {
    return name == "v" || tile->symbols.contains(name);
  });
  // Booleans have no form in memory here.
  bool isStored = llvm::all_of(op.getResultTypes(), [](Type type) {
    Type element = getElementTypeOrSelf(type);
    return element.isIntOrFloat() && element.getIntOrFloatBitWidth() >= 8;
  });
  llvm::SmallPtrSet<Operation *, 8> seen;
  if (!isKnown || !isStored ||
      llvm::any_of(op.getDpsInputs(),
                   [&](Value input) { return needsReduction(input, seen); }))
    return std::nullopt;
  TiledReduction reduction{op, index, rows, {}, {}};
  for (Type type : op.getResultTypes())
    reduction.elements.push_back(getElementTypeOrSelf(type));
  // As many levels as reach a million rows where their number isn't known.
  int64_t last = isSum(op) ? rows.asInteger().value_or(1 << 20) : 0;
  for (int64_t block = 1;; block *= cascadeBlock) {
    SmallVector<SymExpr> &places = reduction.places.emplace_back();
    for (Type element : reduction.elements) {
      places.push_back(scratchSize);
      scratchSize = scratchSize + SymExpr(tileColumns * bytesOf(element));
    }
    if (last <= block * cascadeBlock)
      break;
  }
  tile->reductions.push_back(std::move(reduction));
  return tile->numbers[id] = tile->reductions.size() - 1;
}

SmallVector<Value> KernelEmitter::accumulators(const TiledReduction &reduction,
                                               ArrayRef<SymExpr> places) {
  SmallVector<Value> values;
  for (auto [element, place] : llvm::zip_equal(reduction.elements, places))
    values.push_back(loadAt(
        elementPointer(*b, loc, scratch, b->getI8Type(), scalarOf(place)),
        element, SymExpr::symbol("v") - SymExpr::symbol("tile")));
  return values;
}

void KernelEmitter::setAccumulators(ArrayRef<SymExpr> places,
                                    ArrayRef<Value> values) {
  for (auto [place, value] : llvm::zip_equal(places, values))
    storeAt(elementPointer(*b, loc, scratch, b->getI8Type(), scalarOf(place)),
            broadcast(value), SymExpr::symbol("v") - SymExpr::symbol("tile"));
}

/// Fills the accumulators of the tile's reductions.
void KernelEmitter::reduceTile(Value begin, Value end) {
  auto alongLanes = [&](llvm::function_ref<void()> body) {
    laneLoop(
        "v", begin, end, std::nullopt, {},
        [&](ValueRange) {
          body();
          return SmallVector<Value>();
        },
        nullptr);
  };
  auto loop = [&](Value begin, Value end, int64_t step,
                  llvm::function_ref<void(Value)> body) {
    emitLoop(*b, loc, begin, end, constant(step), {},
             [&](Value at, ValueRange) {
               ScopeGuard scope(*this);
               body(at);
               return SmallVector<Value>();
             });
  };
  for (const TiledReduction &reduction : tile->reductions) {
    linalg::GenericOp op = reduction.op;
    SmallVector<Value> neutral = startsOf(op);
    auto addRows = [&](Value begin, Value end) {
      loop(begin, end, 1, [&](Value row) {
        TilePart part{reduction, reduction.places.front(), row};
        alongLanes([&] { reduce(op, reduction.index, &part); });
      });
    };
    std::function<void(size_t, Value, Value)> addTo =
        [&](size_t level, Value begin, Value end) {
          // Several of the smallest blocks are packed at once.
          if (schedule.packs && !block && level <= 1) {
            Value rows = scalarOf(*schedule.packs);
            emitLoop(*b, loc, begin, end, rows, {}, [&](Value at, ValueRange) {
              ScopeGuard outer(*this);
              Value stop = arith::AddIOp::create(*b, loc, at, rows);
              openBlock(at, arith::MinSIOp::create(*b, loc, stop, end));
              block->before = constant(0).getDefiningOp();
              ScopeGuard inner(*this);
              addTo(level, at, block->end);
              block.reset();
              return SmallVector<Value>();
            });
            return;
          }
          if (level == 0)
            return addRows(begin, end);
          int64_t block = 1;
          for (size_t i = 0; i < level; ++i)
            block *= cascadeBlock;
          ArrayRef<SymExpr> parts = reduction.places[level - 1],
                            sums = reduction.places[level];
          loop(begin, end, block, [&](Value at) {
            alongLanes([&] { setAccumulators(parts, neutral); });
            Value stop = arith::AddIOp::create(*b, loc, at, constant(block));
            addTo(level - 1, at, arith::MinSIOp::create(*b, loc, stop, end));
            alongLanes([&] {
              SmallVector<Value> terms = accumulators(reduction, parts);
              llvm::append_range(terms, accumulators(reduction, sums));
              setAccumulators(sums, emitScalars(*op.getBody(), terms,
                                                /*position=*/nullptr));
            });
          });
        };
    alongLanes([&] { setAccumulators(reduction.places.back(), neutral); });
    addTo(reduction.places.size() - 1, constant(0), scalarOf(reduction.rows));
  }
}

/// Emits lanes from begin to end in tiles, before each of which what it needs
/// of reductions is computed.
void KernelEmitter::emitTiles(
    Value begin, Value end, llvm::function_ref<void(Value, Value)> emitLanes) {
  ranges["tile"] = ranges.at("v");
  emitLoop(*b, loc, begin, end, constant(tileColumns), {},
           [&](Value start, ValueRange) {
             ScopeGuard scope(*this);
             Value stop =
                 arith::AddIOp::create(*b, loc, start, constant(tileColumns));
             stop = arith::MinSIOp::create(*b, loc, stop, end);
             tile.emplace();
             tile->columns = arith::SubIOp::create(*b, loc, stop, start);
             for (const auto &known : symbolValues)
               tile->symbols.insert(known.getKey());
             symbolValues["tile"] = start;
             {
               ScopeGuard rest(*this);
               emitLanes(start, stop);
             }
             OpBuilder::InsertionGuard guard(*b);
             b->setInsertionPointAfter(tile->columns.getDefiningOp());
             ScopeGuard before(*this);
             reduceTile(start, stop);
             symbolValues.erase("tile");
             tile.reset();
             return SmallVector<Value>();
           });
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// The position in the space, from those of the loops.
KernelEmitter::Index KernelEmitter::spaceIndex(ArrayRef<SymExpr> loopIndex) {
  Index index(space.rank());
  for (auto [position, dims] : llvm::zip_equal(loopIndex, schedule.dims)) {
    SmallVector<SymExpr> sizes;
    for (int64_t dim : dims)
      sizes.push_back(space.sizes[dim]);
    for (auto [dim, part] :
         llvm::zip_equal(dims, delinearize(position, sizes, ranges)))
      index[dim] = part;
  }
  return index;
}

/// Stores results at their positions. All are computed before the first store:
/// a kernel may write where it reads.
void KernelEmitter::storeRoots(ArrayRef<std::pair<unsigned, Index>> roots) {
  SmallVector<Value> values;
  for (const auto &[result, index] : roots)
    values.push_back(eval(body.getTerminator()->getOperand(result), index));
  // What there is once for all threads of a team is stored by one of them.
  OpBuilder::InsertionGuard guard(*b);
  if (team && team->loops == 0 && !roots.empty()) {
    auto branch =
        scf::IfOp::create(*b, loc, team->writes, /*withElseRegion=*/false);
    b->setInsertionPointToStart(branch.thenBlock());
  }
  std::optional<ScopeGuard> scope;
  if (team)
    scope.emplace(*this);
  for (auto [root, value] : llvm::zip_equal(roots, values)) {
    auto type =
        cast<graph::TensorType>(kernelOp.getResult(root.first).getType());
    store(kernelOp.getInputs().size() + root.first, value,
          offsetIn(type, root.second));
  }
}

bool KernelEmitter::isFullResult(unsigned result) {
  return cast<graph::TensorType>(kernelOp.getResult(result).getType())
             .getNumElements() == space.size();
}

KernelEmitter::Index KernelEmitter::resultIndex(unsigned result,
                                                const Index &full) {
  SmallVector<SymExpr> sizes =
      cast<graph::TensorType>(kernelOp.getResult(result).getType())
          .getSizeExprs();
  if (sizes == space.sizes)
    return full;
  return delinearize(isFullResult(result) ? linearize(full, space.sizes)
                                          : space.rowOf(full),
                     sizes, ranges);
}

void KernelEmitter::emitRow(ArrayRef<SymExpr> rowIndex) {
  SmallVector<SymExpr> loopIndex(rowIndex);
  size_t last = schedule.loops.size() - 1;
  bool hasLanes =
      schedule.vectorRoots && schedule.loops.size() > rowIndex.size();
  for (size_t loop = rowIndex.size(); loop < schedule.loops.size(); ++loop) {
    std::string symbol =
        hasLanes && loop == last ? "v" : "i" + std::to_string(loop);
    ranges[symbol] = schedule.loops[loop];
    loopIndex.push_back(SymExpr::symbol(symbol));
  }
  Index full = spaceIndex(loopIndex);

  SmallVector<std::pair<unsigned, Index>> fullRoots, rowRoots;
  for (unsigned result = 0; result < kernelOp.getNumResults(); ++result) {
    if ((hasLanes || !running.empty()) && isFullResult(result)) {
      Index index = resultIndex(result, full);
      fullRoots.emplace_back(result, index);
      prefetch(body.getTerminator()->getOperand(result), index);
      continue;
    }
    rowRoots.emplace_back(result, resultIndex(result, full));
  }
  storeRoots(rowRoots);
  if (fullRoots.empty())
    return;
  if (!running.empty())
    return emitRunning(loopIndex.back(), schedule.loops.back(), full,
                       fullRoots);

  std::function<void(size_t)> nest = [&](size_t loop) {
    for (auto &[result, index] : fullRoots)
      prefetch(body.getTerminator()->getOperand(result), index);
    Value extent = scalarOf(schedule.loops[loop]);
    if (loop < last) {
      scalarLoop(loopIndex[loop].name(), constant(0), extent, constant(1), {},
                 [&](ValueRange) {
                   nest(loop + 1);
                   return SmallVector<Value>();
                 });
      return;
    }
    if (team) {
      if (team->active)
        extent =
            arith::SelectOp::create(*b, loc, team->active, extent, constant(0));
      scalarLoop("v", entry.member, extent, constant(schedule.team), {},
                 [&](ValueRange) {
                   ++team->loops;
                   storeRoots(fullRoots);
                   --team->loops;
                   return SmallVector<Value>();
                 });
      return;
    }
    laneLoop(
        "v", constant(0), extent, schedule.loops[loop].asInteger(), {},
        [&](ValueRange) {
          storeRoots(fullRoots);
          return SmallVector<Value>();
        },
        nullptr, {}, lanePieces(fullRoots, "v", schedule.loops[loop]));
  };
  nest(rowIndex.size());
}

void KernelEmitter::emitColumns(ArrayRef<SymExpr> rowIndex, Value begin,
                                Value end) {
  SmallVector<SymExpr> loopIndex(rowIndex);
  size_t lanes = rowIndex.size();
  for (size_t loop = lanes; loop < schedule.loops.size(); ++loop) {
    std::string symbol = loop == lanes ? "v" : "i" + std::to_string(loop);
    ranges[symbol] = schedule.loops[loop];
    loopIndex.push_back(SymExpr::symbol(symbol));
  }
  Index full = spaceIndex(loopIndex);
  SmallVector<std::pair<unsigned, Index>> fullRoots;
  SmallVector<std::pair<unsigned, Index>> rowRoots;
  for (unsigned result = 0; result < kernelOp.getNumResults(); ++result)
    (isFullResult(result) ? fullRoots : rowRoots)
        .emplace_back(result, resultIndex(result, full));

  std::function<void(size_t)> nest = [&](size_t loop) {
    for (auto &[result, index] : fullRoots)
      prefetch(body.getTerminator()->getOperand(result), index);
    if (loop == schedule.loops.size()) {
      storeRoots(fullRoots);
      return;
    }
    scalarLoop(loopIndex[loop].name(), constant(0),
               scalarOf(schedule.loops[loop]), constant(1), {},
               [&](ValueRange) {
                 nest(loop + 1);
                 return SmallVector<Value>();
               });
  };
  for (auto &[result, index] : rowRoots)
    prefetch(body.getTerminator()->getOperand(result), index);
  std::optional<int64_t> extent;
  if (!schedule.flat)
    extent = schedule.loops[lanes].asInteger();
  auto emitLanes = [&](Value begin, Value end, std::optional<int64_t> extent) {
    laneLoop(
        "v", begin, end, extent, {},
        [&](ValueRange) {
          storeRoots(rowRoots);
          if (!running.empty())
            emitRunning(loopIndex.back(), schedule.loops.back(), full,
                        fullRoots);
          else if (!fullRoots.empty())
            nest(lanes + 1);
          return SmallVector<Value>();
        },
        nullptr);
  };
  if (schedule.tiles)
    return emitTiles(begin, end, [&](Value begin, Value end) {
      emitLanes(begin, end, std::nullopt);
    });
  emitLanes(begin, end, extent);
}

/// Elements by a vector for each thread and turn, if what is read and written
/// so begins at addresses for it; what is left, or else all, one by one.
void KernelEmitter::emitChunks(llvm::function_ref<void()> storeAll) {
  Value lanes = constant(schedule.lanes);
  // Which pointers that depends on is known once the code is there.
  auto aligned = arith::ConstantOp::create(*b, loc, b->getBoolAttr(true));
  Value chunks = arith::DivUIOp::create(*b, loc, entry.end, lanes);
  chunks = arith::SelectOp::create(*b, loc, aligned, chunks, constant(0));
  emitLoop(*b, loc, entry.begin, chunks, entry.step, {},
           [&](Value chunk, ValueRange) {
             ScopeGuard scope(*this);
             symbolValues["v"] = arith::MulIOp::create(*b, loc, chunk, lanes);
             LaneGuard guard(*this, "v", schedule.lanes, {});
             storeAll();
             symbolValues.erase("v");
             return SmallVector<Value>();
           });
  Value done = arith::MulIOp::create(*b, loc, chunks, lanes);
  Value first = arith::AddIOp::create(*b, loc, done, entry.begin);
  scalarLoop("v", first, entry.end, entry.step, {}, [&](ValueRange) {
    storeAll();
    return SmallVector<Value>();
  });

  OpBuilder::InsertionGuard guard(*b);
  b->setInsertionPointAfter(aligned);
  Value all;
  for (auto [base, alignment] : vectorBases) {
    Value address = LLVM::PtrToIntOp::create(*b, loc, b->getI64Type(), base);
    Value mask =
        arith::ConstantOp::create(*b, loc, b->getI64IntegerAttr(alignment - 1));
    Value rest = arith::AndIOp::create(*b, loc, address, mask);
    Value zero = arith::ConstantOp::create(*b, loc, b->getI64IntegerAttr(0));
    Value good =
        arith::CmpIOp::create(*b, loc, arith::CmpIPredicate::eq, rest, zero);
    all = all ? arith::AndIOp::create(*b, loc, all, good).getResult() : good;
  }
  if (all)
    aligned.getResult().replaceAllUsesWith(all);
}

bool KernelEmitter::isTogether() const {
  // A condition holds for a row: in a block that has several it may not hold
  // for all.
  return team && team->loops == 0 && !(schedule.across && branchDepth > 0);
}

/// The loop over rows that are shared by several threads. Threads of a block
/// wait for each other, so they leave the loop together: where there are rows
/// for some of them only, the others run along with the last.
void KernelEmitter::emitTeams() {
  ArrayRef<SymExpr> rowSizes =
      ArrayRef(schedule.loops).take_front(schedule.rowLoops);
  ranges["row"] = productOf(rowSizes);
  rowSymbols.insert("row");
  emitLoop(*b, loc, entry.begin, entry.end, entry.step, {},
           [&](Value first, ValueRange) {
             ScopeGuard scope(*this);
             team.emplace();
             Value row = first;
             team->writes = arith::CmpIOp::create(
                 *b, loc, arith::CmpIPredicate::eq, entry.member, constant(0));
             if (schedule.across) {
               row = arith::AddIOp::create(*b, loc, first, entry.lane);
               team->active = arith::CmpIOp::create(
                   *b, loc, arith::CmpIPredicate::slt, row, entry.end);
               team->writes =
                   arith::AndIOp::create(*b, loc, team->writes, team->active);
               Value last =
                   arith::SubIOp::create(*b, loc, entry.end, constant(1));
               row = arith::MinSIOp::create(*b, loc, row, last);
             }
             symbolValues["row"] = row;
             emitRow(delinearize(SymExpr::symbol("row"), rowSizes, ranges));
             symbolValues.erase("row");
             team.reset();
             return SmallVector<Value>();
           });
}

bool kernel::hasChecks(graph::KernelOp kernelOp) {
  return kernelOp
      .walk([](Operation *op) {
        return isa<cf::AssertOp, graph::CheckIndexOp>(op)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

LogicalResult KernelEmitter::emit(OpBuilder &builder, StringRef name,
                                  KernelShell &shell) {
  OpBuilder::InsertionGuard guard(builder);
  b = &builder;
  this->shell = &shell;
  entry = shell.open(builder, kernelOp, name);
  ScopeGuard scope(*this);
  buffers = entry.buffers;
  if (schedule.narrow) {
    for (auto [symbol, value] :
         llvm::zip_equal(kernelOp.getSymbols(), entry.symbols))
      wideSymbols[cast<graph::ExprAttr>(symbol).getExpr().str()] = value;
    auto narrowed = [&](Value &value) {
      if (value)
        value = arith::TruncIOp::create(*b, loc, indexType(), value);
    };
    llvm::for_each(entry.symbols, narrowed);
    for (Value *value :
         {&entry.begin, &entry.end, &entry.step, &entry.member, &entry.lane})
      narrowed(*value);
  }
  for (auto [symbol, value] :
       llvm::zip_equal(kernelOp.getSymbols(), entry.symbols)) {
    SymExpr expr = cast<graph::ExprAttr>(symbol).getExpr();
    if (expr.isSymbol())
      symbolValues[expr.name()] = value;
    else
      scopes.back().scalars[expr.str()] = value;
  }
  scratch = entry.scratch;
  scratchSize = SymExpr(shell.scratchBytes(kernelOp));
  status = entry.status;
  decideStreams();

  // The rows' loops are bound: what is inside them.
  auto emitInside = [&](ArrayRef<SymExpr> rowIndex) {
    if (schedule.columns)
      emitColumns(rowIndex, constant(0),
                  scalarOf(schedule.loops[rowIndex.size()]));
    else
      emitRow(rowIndex);
  };
  if (schedule.square) {
    emitSquares();
  } else if (schedule.flat && schedule.columns) {
    emitColumns({}, entry.begin, entry.end);
  } else if (schedule.flat) {
    ranges["v"] = schedule.loops[0];
    SmallVector<SymExpr> loopIndex{SymExpr::symbol("v")};
    Index full = spaceIndex(loopIndex);
    SmallVector<std::pair<unsigned, Index>> roots;
    for (unsigned result = 0; result < kernelOp.getNumResults(); ++result) {
      roots.emplace_back(result, resultIndex(result, full));
      prefetch(body.getTerminator()->getOperand(result), roots.back().second);
    }
    auto storeAll = [&](ValueRange) {
      storeRoots(roots);
      return SmallVector<Value>();
    };
    if (schedule.lanes == 1)
      scalarLoop("v", entry.begin, entry.end, entry.step, {}, storeAll);
    else if (schedule.threads)
      emitChunks([&] { storeRoots(roots); });
    else
      laneLoop("v", entry.begin, entry.end, std::nullopt, {}, storeAll, nullptr,
               {}, lanePieces(roots, "v", schedule.loops[0]));
  } else if (schedule.trial) {
    SmallVector<SymExpr> open;
    for (int64_t loop = 0; loop < schedule.rowLoops; ++loop) {
      std::string symbol = "i" + std::to_string(loop);
      ranges[symbol] = schedule.loops[loop];
      symbolValues[symbol] = entry.begin;
      rowSymbols.insert(symbol);
      open.push_back(SymExpr::symbol(symbol));
    }
    emitInside(open);
  } else if (schedule.team > 1) {
    emitTeams();
  } else if (schedule.packs && !schedule.tiles) {
    blockLoop(entry.begin, entry.end, emitInside);
  } else {
    ArrayRef<SymExpr> rowSizes =
        ArrayRef(schedule.loops).take_front(schedule.rowLoops);
    ranges["row"] = productOf(rowSizes);
    rowSymbols.insert("row");
    scalarLoop("row", entry.begin, entry.end, entry.step, {}, [&](ValueRange) {
      emitInside(delinearize(SymExpr::symbol("row"), rowSizes, ranges));
      fetchGathered(symbolValues["row"], entry.end);
      return SmallVector<Value>();
    });
  }

  fenceStreams();
  shell.close(builder, loc, entry);
  if (failed) {
    entry.function->erase();
    return failure();
  }
  return success();
}
