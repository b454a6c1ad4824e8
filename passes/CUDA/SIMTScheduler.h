//===- SIMTScheduler.h - What runs an emulated kernel's threads ---*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The part of an emulated kernel that is the same for all: functions that
// `gpu-to-simt` copies into the module, so that a kernel depends on nothing.
//
// Threads find what they share in a block of memory, `ctx`: words of 64 bits,
// at the places below. A thread's state is 0 once it has returned, odd while it
// waits for the other 31 of its warp (a shuffle), even while it waits for the
// block (a barrier); each place in the code has a number of its own.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_CUDA_SIMTSCHEDULER_H
#define INTARSIA_PASSES_CUDA_SIMTSCHEDULER_H

#include "llvm/ADT/StringRef.h"

namespace intarsia::simt {

enum Word : int32_t {
  BlockId = 0,
  Threads, // of a block
  Blocks,
  Fault, // 0, or one of Faults
  Arena, // where the next coroutine's frame goes
  ArenaBegin,
  ArenaEnd,
  Buffers,
  Symbols,
  Domain,
  States = Domain + 2, // an array, as the three below
  Exchange,
  Delivered, // what a warp's threads had in Exchange when all had arrived
  Handles,
  Shared,
  SharedBytes,
  Sink,   // where accesses out of bounds go
  Bounds, // pairs of pointers: the first byte, and the one after the last
  Trace,  // null, or what simt_access writes to
  Status, // three: the number of a check that failed, the index, the size
  words = 32
};

enum Faults : int64_t { OutOfBounds = 1, Misaligned = 2, Diverged = 3, faults };

inline constexpr llvm::StringLiteral schedulerText = R"mlir(
// A pointer that may be accessed: the one given, or the sink, with a fault.
func.func private @simt_access(%ctx: !llvm.ptr, %thread: i64, %pointer: !llvm.ptr,
    %buffer: i64, %bytes: i64, %alignment: i64, %access: i64) -> !llvm.ptr
    attributes {llvm.linkage = #llvm.linkage<internal>} {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %boundsAt = llvm.getelementptr %ctx[18] : (!llvm.ptr) -> !llvm.ptr, i64
  %bounds = llvm.load %boundsAt : !llvm.ptr -> !llvm.ptr
  %pair = arith.muli %buffer, %two : i64
  %after = arith.addi %pair, %one : i64
  %beginAt = llvm.getelementptr %bounds[%pair] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %endAt = llvm.getelementptr %bounds[%after] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %begin = llvm.load %beginAt : !llvm.ptr -> i64
  %end = llvm.load %endAt : !llvm.ptr -> i64
  %address = llvm.ptrtoint %pointer : !llvm.ptr to i64
  %last = arith.addi %address, %bytes : i64
  %notBefore = arith.cmpi uge, %address, %begin : i64
  %notAfter = arith.cmpi ule, %last, %end : i64
  %inside = arith.andi %notBefore, %notAfter : i1
  %rest = arith.remui %address, %alignment : i64
  %aligned = arith.cmpi eq, %rest, %zero : i64
  %good = arith.andi %inside, %aligned : i1
  %traceAt = llvm.getelementptr %ctx[19] : (!llvm.ptr) -> !llvm.ptr, i64
  %trace = llvm.load %traceAt : !llvm.ptr -> !llvm.ptr
  %records = llvm.icmp "ne" %trace, %null : !llvm.ptr
  scf.if %records {
    // The number of records, how many there is place for, the records.
    %number = llvm.load %trace : !llvm.ptr -> i64
    %capacityAt = llvm.getelementptr %trace[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %capacity = llvm.load %capacityAt : !llvm.ptr -> i64
    %more = arith.addi %number, %one : i64
    llvm.store %more, %trace : i64, !llvm.ptr
    %fits = arith.cmpi slt, %number, %capacity : i64
    scf.if %fits {
      %record = llvm.getelementptr %capacityAt[%number] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.array<4 x i64>
      %blockAt = llvm.getelementptr %ctx[0] : (!llvm.ptr) -> !llvm.ptr, i64
      %block = llvm.load %blockAt : !llvm.ptr -> i64
      %threadsAt = llvm.getelementptr %ctx[1] : (!llvm.ptr) -> !llvm.ptr, i64
      %threads = llvm.load %threadsAt : !llvm.ptr -> i64
      %before = arith.muli %block, %threads : i64
      %global = arith.addi %before, %thread : i64
      %at0 = llvm.getelementptr %record[1] : (!llvm.ptr) -> !llvm.ptr, i64
      %at1 = llvm.getelementptr %record[2] : (!llvm.ptr) -> !llvm.ptr, i64
      %at2 = llvm.getelementptr %record[3] : (!llvm.ptr) -> !llvm.ptr, i64
      %at3 = llvm.getelementptr %record[4] : (!llvm.ptr) -> !llvm.ptr, i64
      llvm.store %global, %at0 : i64, !llvm.ptr
      llvm.store %access, %at1 : i64, !llvm.ptr
      llvm.store %address, %at2 : i64, !llvm.ptr
      llvm.store %bytes, %at3 : i64, !llvm.ptr
    }
  }
  %sinkAt = llvm.getelementptr %ctx[17] : (!llvm.ptr) -> !llvm.ptr, i64
  %sink = llvm.load %sinkAt : !llvm.ptr -> !llvm.ptr
  %true = arith.constant true
  %bad = arith.xori %good, %true : i1
  scf.if %bad {
    %faultAt = llvm.getelementptr %ctx[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %fault = arith.select %inside, %two, %one : i64
    llvm.store %fault, %faultAt : i64, !llvm.ptr
  }
  %safe = arith.select %good, %pointer, %sink : !llvm.ptr
  return %safe : !llvm.ptr
}

// What a block's threads see of the one before is not theirs: not a number.
func.func private @simt_begin_block(%ctx: !llvm.ptr, %block: i64)
    attributes {llvm.linkage = #llvm.linkage<internal>} {
  %zero = arith.constant 0 : i64
  %eight = arith.constant 8 : i64
  %ones = arith.constant -1 : i64
  %blockAt = llvm.getelementptr %ctx[0] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %block, %blockAt : i64, !llvm.ptr
  %beginAt = llvm.getelementptr %ctx[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %begin = llvm.load %beginAt : !llvm.ptr -> i64
  %arenaAt = llvm.getelementptr %ctx[4] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %begin, %arenaAt : i64, !llvm.ptr
  %sharedAt = llvm.getelementptr %ctx[15] : (!llvm.ptr) -> !llvm.ptr, i64
  %shared = llvm.load %sharedAt : !llvm.ptr -> !llvm.ptr
  %bytesAt = llvm.getelementptr %ctx[16] : (!llvm.ptr) -> !llvm.ptr, i64
  %bytes = llvm.load %bytesAt : !llvm.ptr -> i64
  scf.for %i = %zero to %bytes step %eight : i64 {
    %at = llvm.getelementptr %shared[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
    llvm.store %ones, %at : i64, !llvm.ptr
  }
  return
}

// Threads that wait for nobody run one after the other.
func.func private @simt_run(%ctx: !llvm.ptr, %body: (!llvm.ptr, i64) -> ())
    attributes {llvm.linkage = #llvm.linkage<internal>} {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %threadsAt = llvm.getelementptr %ctx[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %threads = llvm.load %threadsAt : !llvm.ptr -> i64
  %blocksAt = llvm.getelementptr %ctx[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %blocks = llvm.load %blocksAt : !llvm.ptr -> i64
  scf.for %block = %zero to %blocks step %one : i64 {
    func.call @simt_begin_block(%ctx, %block) : (!llvm.ptr, i64) -> ()
    scf.for %thread = %zero to %threads step %one : i64 {
      func.call_indirect %body(%ctx, %thread) : (!llvm.ptr, i64) -> ()
    }
  }
  return
}

// Whether the threads [first, last) have the same state; a fault if not.
func.func private @simt_together(%ctx: !llvm.ptr, %first: i64, %last: i64) -> i1
    attributes {llvm.linkage = #llvm.linkage<internal>} {
  %one = arith.constant 1 : i64
  %three = arith.constant 3 : i64
  %true = arith.constant true
  %statesAt = llvm.getelementptr %ctx[11] : (!llvm.ptr) -> !llvm.ptr, i64
  %states = llvm.load %statesAt : !llvm.ptr -> !llvm.ptr
  %firstAt = llvm.getelementptr %states[%first] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %state = llvm.load %firstAt : !llvm.ptr -> i64
  %together = scf.for %thread = %first to %last step %one iter_args(%so = %true) -> (i1) : i64 {
    %at = llvm.getelementptr %states[%thread] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %own = llvm.load %at : !llvm.ptr -> i64
    %same = arith.cmpi eq, %own, %state : i64
    %both = arith.andi %so, %same : i1
    scf.yield %both : i1
  }
  %apart = arith.xori %together, %true : i1
  scf.if %apart {
    %faultAt = llvm.getelementptr %ctx[3] : (!llvm.ptr) -> !llvm.ptr, i64
    llvm.store %three, %faultAt : i64, !llvm.ptr
  }
  return %together : i1
}

// Runs the threads [first, last) to where they wait next.
func.func private @simt_resume(%ctx: !llvm.ptr, %first: i64, %last: i64)
    attributes {llvm.linkage = #llvm.linkage<internal>} {
  %one = arith.constant 1 : i64
  %handlesAt = llvm.getelementptr %ctx[14] : (!llvm.ptr) -> !llvm.ptr, i64
  %handles = llvm.load %handlesAt : !llvm.ptr -> !llvm.ptr
  scf.for %thread = %first to %last step %one : i64 {
    %at = llvm.getelementptr %handles[%thread] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %handle = llvm.load %at : !llvm.ptr -> !llvm.ptr
    llvm.intr.coro.resume %handle : !llvm.ptr
  }
  return
}

// Threads that wait for each other are coroutines. A block is given up once its
// threads wait at different places.
func.func private @simt_run_coroutines(%ctx: !llvm.ptr, %body: (!llvm.ptr, i64) -> !llvm.ptr)
    attributes {llvm.linkage = #llvm.linkage<internal>} {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %warp = arith.constant 32 : i64
  %true = arith.constant true
  %threadsAt = llvm.getelementptr %ctx[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %threads = llvm.load %threadsAt : !llvm.ptr -> i64
  %blocksAt = llvm.getelementptr %ctx[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %blocks = llvm.load %blocksAt : !llvm.ptr -> i64
  %statesAt = llvm.getelementptr %ctx[11] : (!llvm.ptr) -> !llvm.ptr, i64
  %states = llvm.load %statesAt : !llvm.ptr -> !llvm.ptr
  %exchangeAt = llvm.getelementptr %ctx[12] : (!llvm.ptr) -> !llvm.ptr, i64
  %exchange = llvm.load %exchangeAt : !llvm.ptr -> !llvm.ptr
  %deliveredAt = llvm.getelementptr %ctx[13] : (!llvm.ptr) -> !llvm.ptr, i64
  %delivered = llvm.load %deliveredAt : !llvm.ptr -> !llvm.ptr
  %handlesAt = llvm.getelementptr %ctx[14] : (!llvm.ptr) -> !llvm.ptr, i64
  %handles = llvm.load %handlesAt : !llvm.ptr -> !llvm.ptr
  scf.for %block = %zero to %blocks step %one : i64 {
    func.call @simt_begin_block(%ctx, %block) : (!llvm.ptr, i64) -> ()
    scf.for %thread = %zero to %threads step %one : i64 {
      %at = llvm.getelementptr %handles[%thread] : (!llvm.ptr, i64) -> !llvm.ptr, i64
      %handle = func.call_indirect %body(%ctx, %thread) : (!llvm.ptr, i64) -> !llvm.ptr
      llvm.store %handle, %at : !llvm.ptr, !llvm.ptr
    }
    scf.while : () -> () {
      // Each warp runs until all of its threads wait for the block.
      %whole = scf.for %first = %zero to %threads step %warp iter_args(%so = %true) -> (i1) : i64 {
        %last = arith.addi %first, %warp : i64
        %leader = llvm.getelementptr %states[%first] : (!llvm.ptr, i64) -> !llvm.ptr, i64
        scf.while : () -> () {
          %state = llvm.load %leader : !llvm.ptr -> i64
          %kind = arith.andi %state, %one : i64
          %shuffles = arith.cmpi eq, %kind, %one : i64
          %together = func.call @simt_together(%ctx, %first, %last) : (!llvm.ptr, i64, i64) -> i1
          %both = arith.andi %shuffles, %together : i1
          scf.condition(%both)
        } do {
          scf.for %thread = %first to %last step %one : i64 {
            %from = llvm.getelementptr %exchange[%thread] : (!llvm.ptr, i64) -> !llvm.ptr, i64
            %to = llvm.getelementptr %delivered[%thread] : (!llvm.ptr, i64) -> !llvm.ptr, i64
            %value = llvm.load %from : !llvm.ptr -> i64
            llvm.store %value, %to : i64, !llvm.ptr
          }
          func.call @simt_resume(%ctx, %first, %last) : (!llvm.ptr, i64, i64) -> ()
          scf.yield
        }
        %together = func.call @simt_together(%ctx, %first, %last) : (!llvm.ptr, i64, i64) -> i1
        %both = arith.andi %so, %together : i1
        scf.yield %both : i1
      }
      %together = func.call @simt_together(%ctx, %zero, %threads) : (!llvm.ptr, i64, i64) -> i1
      %state = llvm.load %states : !llvm.ptr -> i64
      %waits = arith.cmpi ne, %state, %zero : i64
      %good = arith.andi %whole, %together : i1
      %goesOn = arith.andi %good, %waits : i1
      scf.condition(%goesOn)
    } do {
      func.call @simt_resume(%ctx, %zero, %threads) : (!llvm.ptr, i64, i64) -> ()
      scf.yield
    }
  }
  return
}
)mlir";

} // namespace intarsia::simt

#endif // INTARSIA_PASSES_CUDA_SIMTSCHEDULER_H
