//===- EmitObject.cpp - LLVM dialect to ELF objects -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Generates machine code for the CPU. A kernel is self-contained: what LLVM
// would otherwise call (libm, memcpy, compiler-rt) is expanded or refused here,
// because the shared object that ships with an artifact must depend on nothing.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/LLVMModule.h"
#include "lib/Target/TargetMachine.h"

#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/LowerMemIntrinsics.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

using namespace llvm;
using intarsia::checkModule;
using intarsia::generateCode;
using intarsia::optimize;
using intarsia::ResolvedTarget;
using intarsia::TargetError;
using intarsia::TextForm;
using intarsia::translate;

/// Copies and fills of a known size up to this are a few vector moves, which
/// code generation writes in place on every x86-64.
static constexpr uint64_t inlineCopyBytes = 64;

/// How many LLVM instructions make a part worth an object of its own.
static constexpr size_t instructionsPerObject = 1500;

static std::unique_ptr<TargetMachine>
createTargetMachine(const ResolvedTarget &target) {
  llvm::TargetOptions options;
  // Only an explicit llvm.fma becomes a fused multiply-add.
  options.AllowFPOpFusion = FPOpFusion::Strict;
  std::unique_ptr<TargetMachine> machine(
      intarsia::lookupTarget(target.triple)
          .createTargetMachine(Triple(target.triple), target.cpu,
                               target.features, options, Reloc::PIC_,
                               CodeModel::Small, CodeGenOptLevel::Aggressive));
  if (!machine)
    throw TargetError("LLVM can't create a target machine for " +
                      target.triple);
  return machine;
}

/// Sets on each function what must hold for the code in it.
static void setFunctionAttributes(llvm::Module &module,
                                  const ResolvedTarget &target) {
  for (llvm::Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    function.addFnAttr("tune-cpu", target.tuneCpu);
    function.addFnAttr("prefer-vector-width", llvm::utostr(target.vectorBits));
    // perf and debuggers walk the stack by it; it costs one register.
    function.addFnAttr("frame-pointer", "all");
    // A loop must not be turned into a call of memset or memcpy.
    function.addFnAttr("no-builtins");
    function.addFnAttr(Attribute::NoUnwind);
    function.removeFnAttr(Attribute::UWTable);
  }
}

/// Expands what would become a call of memcpy, memmove or memset into loops,
/// which the optimiser vectorises.
static void expandMemoryIntrinsics(llvm::Module &module,
                                   TargetMachine &machine) {
  for (llvm::Function &function : module) {
    SmallVector<MemIntrinsic *> found;
    for (Instruction &instruction : instructions(function)) {
      auto *call = dyn_cast<MemIntrinsic>(&instruction);
      if (!call || call->getIntrinsicID() == Intrinsic::memcpy_inline ||
          call->getIntrinsicID() == Intrinsic::memset_inline)
        continue;
      auto *length = dyn_cast<ConstantInt>(call->getLength());
      if (!length || length->getValue().ugt(inlineCopyBytes))
        found.push_back(call);
    }
    if (found.empty())
      continue;
    TargetTransformInfo costs = machine.getTargetTransformInfo(function);
    for (MemIntrinsic *call : found) {
      if (auto *copy = dyn_cast<MemCpyInst>(call))
        expandMemCpyAsLoop(copy, costs);
      else if (auto *move = dyn_cast<MemMoveInst>(call))
        expandMemMoveAsLoop(move, costs);
      else
        expandMemSetAsLoop(cast<MemSetInst>(call));
      call->eraseFromParent();
    }
  }
}

/// All between translation and code generation.
static void prepare(llvm::Module &module, const ResolvedTarget &target,
                    TargetMachine &machine) {
  module.setTargetTriple(Triple(target.triple));
  module.setDataLayout(machine.createDataLayout());
  setFunctionAttributes(module, target);
  checkModule(module);
  expandMemoryIntrinsics(module, machine);
  optimize(module, machine);
  // The optimiser may have made new ones of loads and stores.
  expandMemoryIntrinsics(module, machine);
}

/// A kernel calls nobody: an undefined symbol is an operation that LLVM could
/// only turn into a call of a library function.
static void checkNoUndefinedSymbol(StringRef code) {
  auto object =
      object::ObjectFile::createObjectFile(MemoryBufferRef(code, "kernels"));
  if (!object)
    throw TargetError("LLVM generated an unreadable object: " +
                      toString(object.takeError()));
  std::set<std::string> names;
  for (const object::SymbolRef &symbol : (*object)->symbols()) {
    uint32_t flags = cantFail(symbol.getFlags());
    if ((flags & object::SymbolRef::SF_Undefined) &&
        !(flags & object::SymbolRef::SF_FormatSpecific)) {
      std::string name = cantFail(symbol.getName()).str();
      if (!name.empty() && name != "_GLOBAL_OFFSET_TABLE_")
        names.insert("'" + name + "'");
    }
  }
  if (names.empty())
    return;
  throw TargetError(
      "the kernels would call " + llvm::join(names, ", ") +
      ", but a kernel must not depend on a library; an operation was left to "
      "LLVM that has no instruction on this CPU (for a function of libm, a "
      "math "
      "operation that cpu-expand-math doesn't know; for a name with two "
      "underscores, a conversion or division of a type that the CPU lacks)");
}

static std::string emitPart(llvm::Module &module,
                            const ResolvedTarget &target) {
  std::unique_ptr<TargetMachine> machine = createTargetMachine(target);
  prepare(module, target, *machine);
  SmallString<0> code =
      generateCode(module, *machine, CodeGenFileType::ObjectFile);
  checkNoUndefinedSymbol(code);
  return std::string(code);
}

/// Divides the externally visible functions into runs of about equal work.
static std::vector<std::set<std::string>> divide(const llvm::Module &module) {
  std::vector<std::set<std::string>> parts;
  size_t size = instructionsPerObject;
  for (const llvm::Function &function : module) {
    if (function.isDeclaration() || function.hasLocalLinkage())
      continue;
    if (size >= instructionsPerObject) {
      parts.emplace_back();
      size = 0;
    }
    parts.back().insert(function.getName().str());
    size += function.getInstructionCount();
  }
  return parts;
}

/// Reads a module of its own that defines only the functions of one part. What
/// is private to the module comes along with whoever uses it.
static std::unique_ptr<llvm::Module> readPart(StringRef bitcode,
                                              const std::set<std::string> &part,
                                              LLVMContext &context) {
  auto module =
      getLazyBitcodeModule(MemoryBufferRef(bitcode, "intarsia"), context);
  if (!module)
    throw TargetError("LLVM can't read its own bitcode: " +
                      toString(module.takeError()));
  for (llvm::Function &function : **module)
    if (!function.isDeclaration() && !function.hasLocalLinkage() &&
        !part.count(function.getName().str()))
      function.deleteBody();
  if (Error error = (*module)->materializeAll())
    throw TargetError("LLVM can't read its own bitcode: " +
                      toString(std::move(error)));
  return std::move(*module);
}

std::vector<std::string> intarsia::emitObjects(mlir::ModuleOp module,
                                               const ResolvedTarget &target) {
  auto context = std::make_unique<LLVMContext>();
  std::unique_ptr<llvm::Module> whole = translate(module, *context);
  std::vector<std::set<std::string>> parts = divide(*whole);
  if (parts.size() <= 1)
    return {emitPart(*whole, target)};

  // An LLVMContext belongs to one thread: each part is read into its own.
  SmallString<0> bitcode;
  {
    raw_svector_ostream stream(bitcode);
    WriteBitcodeToFile(*whole, stream);
  }
  whole.reset();
  context.reset();

  std::vector<std::string> objects(parts.size());
  std::vector<std::exception_ptr> failures(parts.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < parts.size();) {
      try {
        LLVMContext own;
        std::unique_ptr<llvm::Module> part = readPart(bitcode, parts[i], own);
        objects[i] = emitPart(*part, target);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  size_t count = std::min<size_t>(
      parts.size(), std::max(1u, std::thread::hardware_concurrency()));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < count; ++i)
      threads.emplace_back(work);
    work();
  }
  for (const std::exception_ptr &failure : failures)
    if (failure)
      std::rethrow_exception(failure);
  return objects;
}

std::string intarsia::emitObject(mlir::ModuleOp module,
                                 const intarsia::TargetOptions &options) {
  ResolvedTarget target = resolveTarget(options);
  LLVMContext context;
  std::unique_ptr<llvm::Module> translated = translate(module, context);
  return emitPart(*translated, target);
}

std::string intarsia::emitText(mlir::ModuleOp module,
                               const intarsia::TargetOptions &options,
                               TextForm form) {
  ResolvedTarget target = resolveTarget(options);
  LLVMContext context;
  std::unique_ptr<llvm::Module> translated = translate(module, context);
  std::unique_ptr<TargetMachine> machine = createTargetMachine(target);
  if (form != TextForm::LLVMIR)
    prepare(*translated, target, *machine);
  if (form == TextForm::Assembly)
    return std::string(
        generateCode(*translated, *machine, CodeGenFileType::AssemblyFile));
  std::string text;
  raw_string_ostream stream(text);
  translated->print(stream, nullptr);
  return text;
}
