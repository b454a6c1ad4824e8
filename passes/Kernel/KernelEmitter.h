//===- KernelEmitter.h - From a kernel's body to loops ------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Emits one function of scf, arith, math and vector operations (and LLVM loads
// and stores) for one `intarsia.kernel`. Emission is demand-driven: a result at
// a symbolic position asks for its operands at theirs, views change positions
// only, and a reduction that is needed at a position that does not vary along
// the lanes is computed by a loop of its own, once, where the position is
// known. Whether a schedule is good is a matter of speed alone: any schedule
// gives the right values.
//
// Each target has a shell: the function around the loops. A schedule with one
// lane has scalar loops only, which is what a GPU's thread runs.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_KERNEL_KERNELEMITTER_H
#define INTARSIA_PASSES_KERNEL_KERNELEMITTER_H

#include "dialects/Graph/Graph.h"
#include "mlir/IR/Builders.h"
#include "passes/Kernel/Body.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace intarsia::kernel {

/// How the iteration space of a kernel becomes loops.
struct Schedule {
  /// Sizes of the loops, outermost first.
  llvm::SmallVector<SymExpr> loops;
  /// For each loop, the dimensions of the space that it runs over, as one.
  llvm::SmallVector<llvm::SmallVector<int64_t>> dims;
  /// The leading loops, whose product is the parallel loop.
  int64_t rowLoops = 0;
  /// The first loop is the parallel loop, run along lanes from begin to end.
  bool flat = false;
  /// Lanes run along the last loop over rows (`flat`: the first loop), and the
  /// loops inside a row are inside that: for rows that lie side by side.
  bool columns = false;
  /// Lanes of columns come in tiles, and the rows of their reductions in
  /// blocks.
  bool tiles = false;
  /// Results of the whole space are stored along lanes of the last loop.
  bool vectorRoots = true;
  /// Elements a vector iteration handles, and those of the remainder loop. With
  /// one lane there are no vectors, masks or remainder loops.
  int64_t lanes = 1, tailLanes = 1;
  /// The code is that of one thread of many, whose iterations of the parallel
  /// loop are apart. So many threads share a row: it is theirs alone, or 32 or
  /// all of a block share one, or, `across`, 32 rows that lie side by side are
  /// shared by a block, each by those threads whose numbers have the same rest.
  bool threads = false;
  int64_t team = 1;
  bool across = false;
  /// A block has a square of so many elements along each of the last two loops
  /// at a time. What lies in memory along the first of them goes through memory
  /// that its threads share. 0: there are no squares.
  int64_t square = 0;
  /// Positions in memory have 32 bits; what is computed with has 64.
  bool narrow = false;
  /// Rows, or, with tiles, those of a reduction in a tile, come in blocks of so
  /// many: what is read across them is transposed into scratch memory first.
  /// Nothing: it is read as it lies.
  std::optional<SymExpr> packs;
  /// Results that are stored past the caches once they reach `streamBytes`.
  llvm::SmallVector<int64_t> streams;
  /// Emit for the sake of the observations only: the row loops' variables are
  /// left open.
  bool trial = false;

  /// Reads what the schedule pass decided.
  static Schedule fromDecisions(graph::KernelOp kernel);
};

/// A result of so many bytes is out of the caches before anybody reads it; a
/// store past them saves reading the lines that it overwrites.
inline constexpr int64_t streamBytes = int64_t(8) << 20;

/// The fewest rows of a reduction of columns that is worth tiles.
inline constexpr int64_t tiledRows = 128;

/// On a `linalg.generic`: a dear value that several passes over a row need is
/// kept in scratch memory.
inline constexpr llvm::StringLiteral cachedAttrName = "intarsia.cached";

/// On a reduction: the loops that are one with the reduction loop before them.
inline constexpr llvm::StringLiteral mergedAttrName = "intarsia.merged";

/// What a trial emission saw; what schedules are decided on.
struct Observations {
  struct ReductionLoop {
    int64_t loop; // of the generic
    std::string symbol;
    SymExpr extent;
  };
  /// Offsets of loads and stores, in elements, and positions that are needed as
  /// values (in conditions and scalar bodies).
  llvm::SmallVector<SymExpr> offsets, conditions;
  struct DearValue {
    mlir::Operation *op = nullptr;
    llvm::SmallVector<int64_t> loops; // lane loops that need it
  };
  /// Dear values evaluated along lanes, by operation and position.
  llvm::StringMap<DearValue> dearValues;
  /// Transcendental operations in the code.
  int64_t dearOps = 0;
  /// The loops of each reduction, once for each time that it was emitted.
  llvm::SmallVector<
      std::pair<mlir::Operation *, llvm::SmallVector<ReductionLoop>>>
      reductions;
};

/// Threads that run in step.
inline constexpr int64_t warpThreads = 32;

/// What a kernel's loops see of the function around them.
struct KernelEntry {
  mlir::Operation *function = nullptr;
  /// The first element of each input, then of each result: pointers.
  llvm::SmallVector<mlir::Value> buffers;
  /// The values of the kernel's symbols, in i64.
  llvm::SmallVector<mlir::Value> symbols;
  /// The iterations of the parallel loop that are this call's or thread's. The
  /// step is 1 where the loop has lanes.
  mlir::Value begin, end, step;
  /// The thread's number in its team, and, `across`, its row's from `begin`; of
  /// a square, the rows and the column that it begins at. Null in a team of
  /// one.
  mlir::Value member, lane;
  /// Scratch memory; null when the schedule asks for none.
  mlir::Value scratch;
  /// Where a check that fails stores its number, the index, and the size: three
  /// i64. Null without checks.
  mlir::Value status;
};

/// Writes the function around a kernel's loops.
class KernelShell {
public:
  virtual ~KernelShell() = default;
  /// The bytes at the beginning of the scratch memory that are the shell's.
  virtual int64_t scratchBytes(graph::KernelOp kernel) const { return 0; }
  /// Creates the function at the builder's insertion point, and moves that to
  /// where the loops belong.
  virtual KernelEntry open(mlir::OpBuilder &builder, graph::KernelOp kernel,
                           llvm::StringRef name) = 0;
  /// Ends the function; the builder stands after the loops.
  virtual void close(mlir::OpBuilder &builder, mlir::Location loc,
                     const KernelEntry &entry) = 0;

  using Combine = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      llvm::ArrayRef<mlir::Value>, mlir::ValueRange)>;
  /// The values of all threads of a team as one, the same bits in each thread.
  /// All of a block's threads come here. For shells whose schedules have teams.
  virtual llvm::SmallVector<mlir::Value>
  reduceTeam(mlir::OpBuilder &builder, mlir::Location loc,
             const KernelEntry &entry, llvm::ArrayRef<mlir::Value> values,
             Combine combine) {
    llvm_unreachable("a team without a shell for it");
  }

  /// Of the values of a warp's threads, for each thread what those up to it
  /// make, combined from the first to the last; and for all of them what the
  /// last one has. For shells whose schedules have teams of a warp.
  virtual llvm::SmallVector<mlir::Value>
  scanTeam(mlir::OpBuilder &builder, mlir::Location loc,
           llvm::ArrayRef<mlir::Value> values, Combine combine) {
    llvm_unreachable("a team without a shell for it");
  }
  virtual llvm::SmallVector<mlir::Value>
  lastOfTeam(mlir::OpBuilder &builder, mlir::Location loc,
             llvm::ArrayRef<mlir::Value> values) {
    llvm_unreachable("a team without a shell for it");
  }

  /// An array that the threads of a block share, and a place that all of them
  /// come to before one goes on. For shells whose schedules have squares.
  virtual mlir::Value sharedArray(mlir::OpBuilder &builder, mlir::Location loc,
                                  const KernelEntry &entry, mlir::Type element,
                                  int64_t count) {
    llvm_unreachable("a square without a shell for it");
  }
  virtual mlir::Operation *barrier(mlir::OpBuilder &builder,
                                   mlir::Location loc) {
    llvm_unreachable("a square without a shell for it");
  }
};

/// Threads of a square's block are rows of a warp each; so many rows there are.
inline constexpr int64_t squareWarps = 8;

/// Whether the kernel checks, at run time, indices that data decides.
bool hasChecks(graph::KernelOp kernel);

/// A loop that adds up floats adds blocks, and these in blocks, so that a sum
/// of many is as exact as PyTorch's.
struct Cascade {
  int64_t levels = 0;      // of blocks
  bool mayBeShort = false; // one block may be all there is
  llvm::SmallVector<mlir::Value> zeros;
  llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange,
                                                    mlir::ValueRange)>
      add;
};

class KernelEmitter {
public:
  KernelEmitter(graph::KernelOp kernelOp, const Schedule &schedule);

  /// Emits the function `name` at the builder's insertion point. Fails with a
  /// diagnostic on a body outside the language of passes/Lower/Lowering.h.
  mlir::LogicalResult emit(mlir::OpBuilder &builder, llvm::StringRef name,
                           KernelShell &shell);

  const Observations &observations() const { return observed; }
  /// Bytes of scratch memory; 0 when none.
  const SymExpr &scratchBytes() const { return scratchSize; }
  /// The run-time checks, in the order of their numbers from 1: dictionaries of
  /// `text` and, for an index, `index`.
  llvm::ArrayRef<mlir::Attribute> checks() const { return knownChecks; }

private:
  using Index = llvm::SmallVector<SymExpr>;

  mlir::Value eval(mlir::Value tensor, const Index &index);
  mlir::Value evalUncached(mlir::Value tensor, const Index &index);
  mlir::Value evalPointwise(mlir::linalg::GenericOp op, const Index &index);
  mlir::Value evalReduction(mlir::linalg::GenericOp op, unsigned result,
                            const Index &index);
  llvm::SmallVector<mlir::Value> startsOf(mlir::linalg::GenericOp op);

  /// A reduction of columns that is computed before the rest of its tile.
  struct TiledReduction {
    mlir::linalg::GenericOp op;
    Index index;
    SymExpr rows;
    /// Of its accumulators, and where they are in scratch memory, in bytes:
    /// those of the smallest block of rows first, of all rows last.
    llvm::SmallVector<mlir::Type> elements;
    llvm::SmallVector<llvm::SmallVector<SymExpr>> places;
  };
  /// A row of one, which is being added to the accumulators at `places`.
  struct TilePart {
    const TiledReduction &reduction;
    llvm::ArrayRef<SymExpr> places;
    mlir::Value row;
  };
  llvm::SmallVector<mlir::Value> reduce(mlir::linalg::GenericOp op,
                                        const Index &index,
                                        const TilePart *part = nullptr);
  void emitTiles(mlir::Value begin, mlir::Value end,
                 llvm::function_ref<void(mlir::Value, mlir::Value)> emitLanes);
  void reduceTile(mlir::Value begin, mlir::Value end);
  std::optional<size_t> tiledReduction(mlir::linalg::GenericOp op,
                                       const Index &index, const SymExpr &rows);
  llvm::SmallVector<mlir::Value> accumulators(const TiledReduction &reduction,
                                              llvm::ArrayRef<SymExpr> places);
  void setAccumulators(llvm::ArrayRef<SymExpr> places,
                       llvm::ArrayRef<mlir::Value> values);
  mlir::Value evalRunning(mlir::linalg::GenericOp op, unsigned result,
                          const Index &index);
  mlir::Value evalGuarded(llvm::ArrayRef<std::pair<SymExpr, SymExpr>> inRange,
                          mlir::Type element,
                          llvm::function_ref<mlir::Value()> inside,
                          llvm::function_ref<mlir::Value()> outside);
  llvm::SmallVector<mlir::Value> emitScalars(mlir::Block &body,
                                             mlir::ValueRange arguments,
                                             const Index *position);
  mlir::Value emitExtract(mlir::tensor::ExtractOp op, const Index &index);
  void emitCheck(mlir::Operation *op, mlir::Value condition, mlir::Value index,
                 mlir::Value size);

  /// Computes, before a loop, what does not vary along it and would cost a loop
  /// of its own inside.
  void prefetch(mlir::Value tensor, const Index &index);

  using LaneBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::ValueRange carried)>;
  using LoopBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value variable, mlir::ValueRange carried)>;
  llvm::SmallVector<mlir::Value>
  cascadeLoop(mlir::Value begin, mlir::Value end, int64_t step,
              llvm::ArrayRef<mlir::Value> initial, const Cascade &cascade,
              LoopBody body);
  /// Runs `body` along lanes of `symbol` in [begin, end); vector carried
  /// values are narrowed by `narrow` between the main and the remainder loop.
  /// With one lane: a scalar loop.
  llvm::SmallVector<mlir::Value>
  laneLoop(const std::string &symbol, mlir::Value begin, mlir::Value end,
           std::optional<int64_t> extent, llvm::ArrayRef<mlir::Value> initial,
           LaneBody body,
           llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange,
                                                             int64_t)>
               narrow,
           const Cascade &cascade = {}, llvm::ArrayRef<SymExpr> cuts = {});
  /// Where, along lanes of `symbol`, concatenations and paddings below the
  /// tensors go from one operand to the next: positions in order from 0 to
  /// `extent`, or none where their order is not known.
  llvm::SmallVector<SymExpr>
  lanePieces(llvm::ArrayRef<std::pair<unsigned, Index>> roots,
             const std::string &symbol, const SymExpr &extent) const;
  /// Whether a position is within [0, bound) in all lanes, or in none, of the
  /// piece that is being emitted.
  std::optional<bool> isInside(const SymExpr &position,
                               const SymExpr &bound) const;

  /// A loop whose body sees `symbol` as its variable.
  llvm::SmallVector<mlir::Value> scalarLoop(const std::string &symbol,
                                            mlir::Value begin, mlir::Value end,
                                            mlir::Value step,
                                            llvm::ArrayRef<mlir::Value> initial,
                                            LaneBody body);

  void storeRoots(llvm::ArrayRef<std::pair<unsigned, Index>> roots);
  void emitTeams();
  /// Whether all threads of the team, and of its block, are here.
  bool isTogether() const;
  void emitRow(llvm::ArrayRef<SymExpr> rowIndex);
  void emitColumns(llvm::ArrayRef<SymExpr> rowIndex, mlir::Value begin,
                   mlir::Value end);
  void emitRunning(const SymExpr &along, const SymExpr &extent,
                   const Index &full,
                   llvm::ArrayRef<std::pair<unsigned, Index>> roots);
  /// Where a result is at a position of the space.
  Index resultIndex(unsigned result, const Index &full);
  bool isFullResult(unsigned result);
  Index spaceIndex(llvm::ArrayRef<SymExpr> loopIndex);

  mlir::Value load(unsigned buffer, mlir::Type element, const SymExpr &offset);
  void store(unsigned buffer, mlir::Value value, const SymExpr &offset);
  mlir::Value loadAt(mlir::Value base, mlir::Type element,
                     const SymExpr &offset,
                     std::optional<unsigned> buffer = std::nullopt);
  void storeAt(mlir::Value base, mlir::Value value, const SymExpr &offset,
               mlir::Value stream = {});
  void decideStreams();
  void fenceStreams();
  /// The symbol of the position in the rows that come one after the other.
  std::string rowSymbol() const { return tile ? tile->row : "row"; }
  void noteGather(unsigned buffer, mlir::Value pointer, mlir::Type element,
                  const SymExpr &offset);
  void fetchGathered(mlir::Value row, mlir::Value end);
  void fetchNextRow(unsigned buffer, mlir::Value pointer, mlir::Type type,
                    const SymExpr &offset);

  /// Runs `emitRow` for the rows from begin to end, in blocks.
  void blockLoop(mlir::Value begin, mlir::Value end,
                 llvm::function_ref<void(llvm::ArrayRef<SymExpr>)> emitRow);
  void openBlock(mlir::Value begin, mlir::Value end);
  /// Where the block has what is at `offset` along lanes, if rows lie side by
  /// side there: the address for lane 0.
  mlir::Value packed(unsigned buffer, mlir::Type element,
                     const SymExpr &offset);
  void emitPack(unsigned buffer, mlir::Type element, const SymExpr &offset,
                const SymExpr &start, const SymExpr &pitch);

  /// Emits before an operation around us, where the first `depth` scopes are
  /// open and less is known than here.
  void emitBefore(mlir::Operation *before, size_t depth,
                  llvm::function_ref<void()> make);

  void emitSquares();
  void emitSquareLoop(llvm::function_ref<void(mlir::Value)> makeBody);
  /// Whether what is at `offset` lies along the rows of the square.
  bool liesAcross(const SymExpr &offset) const;
  /// An array for a square of elements; null where there is no memory left.
  mlir::Value squareArray(mlir::Type element);
  mlir::Value fromSquare(unsigned buffer, mlir::Type element,
                         const SymExpr &offset);
  bool toSquare(unsigned buffer, mlir::Value value, const SymExpr &offset);

  mlir::Value scalarOf(const SymExpr &expr);
  mlir::Value vectorOf(const SymExpr &expr);
  mlir::Type indexType() const;
  /// The value of an expression as the user's integers have it, in i64.
  mlir::Value dataOf(const SymExpr &expr);
  mlir::Value broadcast(mlir::Value value);
  mlir::Value constant(int64_t value);
  mlir::Value outerScalar(mlir::Value value);
  bool variesAlongLanes(const SymExpr &expr) const;
  bool variesAlongLanes(const Index &index) const;
  bool isAvailable(const SymExpr &expr) const;
  SymExpr opaque(mlir::Value value);
  std::string key(mlir::Value tensor, const Index &index) const;
  mlir::Type laned(mlir::Type scalar) const;
  mlir::Value stepVector();
  /// The step of an expression from lane to lane; nullopt where it differs.
  std::optional<SymExpr> laneStride(const SymExpr &expr) const;
  /// Whether it is a multiple of the number of lanes at the first one.
  bool startsAligned(const SymExpr &expr) const;
  mlir::Value loadLanes(mlir::Value base, mlir::Type element,
                        const SymExpr &offset);
  void storeLanes(mlir::Value base, mlir::Value value, const SymExpr &offset);
  void emitChunks(llvm::function_ref<void()> storeAll);
  void fail(mlir::Operation *op, const llvm::Twine &why);

  struct Scope {
    llvm::StringMap<mlir::Value> values;
    llvm::StringMap<mlir::Value> scalars, vectors;
    /// Keys whose scratch memory is filled wherever this scope is.
    llvm::StringSet<> cacheFilled;
  };
  struct ScopeGuard;
  struct LaneGuard;

  graph::KernelOp kernelOp;
  mlir::Block &body;
  const Schedule &schedule;
  Observations observed;
  mlir::OpBuilder *b = nullptr;
  mlir::Location loc;
  bool failed = false;

  Space space;
  kernel::Ranges ranges;

  /// The running reductions, which one loop along the row carries; their values
  /// at the position of that loop, while it is emitted.
  llvm::SmallVector<mlir::linalg::GenericOp> running;
  llvm::DenseMap<mlir::Value, mlir::Value> runningValues;
  Index runningPosition;

  llvm::SmallVector<Scope, 8> scopes;
  llvm::StringMap<mlir::Value> symbolValues; // scalars, by symbol
  llvm::StringMap<mlir::Value> vectorSymbols;
  llvm::StringMap<mlir::Value> wideSymbols; // the kernel's, in i64, if narrow
  llvm::StringSet<> rowSymbols;             // the position of the row
  llvm::SmallVector<mlir::Value> buffers;
  /// For each result whether it is stored past the caches; null: never.
  llvm::SmallVector<mlir::Value> streams;
  mlir::Value anyStream;
  /// By buffer and position, the lane loop that reads it from memory, or -1
  /// once a later one fetches the next row's.
  llvm::StringMap<int64_t> readers;
  /// What a row reads where data says, from the first lane on: its first
  /// reader's.
  struct Gather {
    unsigned buffer;
    mlir::Value pointer;
    mlir::Type element;
    std::string lane;
  };
  llvm::SmallVector<Gather> gathers;
  /// The block of rows that is being emitted.
  struct RowBlock {
    mlir::Value begin, end;         // values of the row's position
    mlir::Operation *before;        // where it is packed
    size_t scopes;                  // that are open there
    llvm::StringSet<> symbols;      // that are known there
    llvm::StringMap<SymExpr> packs; // in scratch memory, in bytes
  };
  std::optional<RowBlock> block;
  /// The square that is being emitted.
  struct Square {
    mlir::Value firstRow, firstColumn;
    mlir::Operation *before = nullptr; // where what is read is put into arrays
    size_t scopes = 0;                 // that are open there
    llvm::StringSet<> symbols;         // that are known there
    llvm::StringMap<mlir::Value> arrays;
    mlir::Value row; // of the thread's element, in the square
    struct Stored {
      unsigned buffer;
      SymExpr offset;
      mlir::Type element;
      mlir::Value array;
    };
    llvm::SmallVector<Stored> stored; // after the loop over the elements
    int64_t bytes = 0;
  };
  std::optional<Square> square;
  /// The tile of columns that is being emitted.
  struct Tile {
    mlir::Value columns;       // their number
    std::string row;           // the symbol of the row that is being added
    llvm::StringSet<> symbols; // that are known there
    llvm::SmallVector<TiledReduction> reductions;
    llvm::StringMap<size_t> numbers; // of them, by operation and position
  };
  std::optional<Tile> tile;
  mlir::Value scratch, status;
  int64_t nextSymbol = 0;

  /// Pointers that a thread's vectors are at, and the alignment that they need.
  llvm::MapVector<mlir::Value, int64_t> vectorBases;

  /// The threads that share the row being emitted.
  struct Team {
    mlir::Value active; // whether there is a row; null: there is
    mlir::Value writes; // whether this thread stores what the row has once
    int64_t loops = 0;  // of each thread's own that are open
  };
  std::optional<Team> team;
  KernelShell *shell = nullptr;
  KernelEntry entry;

  // The lanes that are being emitted; `width` 0: none.
  std::string laneSymbol;
  int64_t width = 0;
  std::optional<std::pair<SymExpr, SymExpr>> piece; // their first, their end
  mlir::Value mask;
  bool guarded = false;
  int64_t branchDepth = 0;
  int64_t laneLoopCount = 0, currentLaneLoop = -1;

  // Scratch memory for cached values.
  llvm::StringMap<SymExpr> cacheOffsets; // bytes
  /// Keys that the current lane loop fills.
  llvm::StringSet<> cachePending;
  SymExpr scratchSize;
  llvm::SmallVector<mlir::Attribute> knownChecks;
};

} // namespace intarsia::kernel

#endif // INTARSIA_PASSES_KERNEL_KERNELEMITTER_H
