//===- ResolveTarget.cpp - Which instructions may be used -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Turns a user's CPU and feature strings into LLVM's, and lists what a machine
// must have in order to run the code.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/TargetMachine.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <mutex>

using namespace intarsia;
using namespace llvm;

/// The x86 features of which LLVM selects instructions by itself. A host has
/// many more (system instructions, cryptography); code never needs those, so an
/// artifact must not ask for them.
static constexpr StringRef x86Features[] = {
    "avx",          "avx2",       "avx512bf16",
    "avx512bitalg", "avx512bw",   "avx512cd",
    "avx512dq",     "avx512f",    "avx512fp16",
    "avx512ifma",   "avx512vbmi", "avx512vbmi2",
    "avx512vl",     "avx512vnni", "avx512vpopcntdq",
    "avxvnni",      "bmi",        "bmi2",
    "f16c",         "fma",        "gfni",
    "lzcnt",        "movbe",      "popcnt",
    "sse3",         "sse4.1",     "sse4.2",
    "ssse3",
};

bool ResolvedTarget::has(StringRef feature) const {
  return is_contained(requiredFeatures, feature);
}

const Target &intarsia::lookupTarget(const std::string &triple) {
  static std::once_flag once;
  std::call_once(once, [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
    InitializeNativeTargetAsmParser();
  });
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(Triple(triple), error);
  if (!target)
    throw TargetError("this LLVM can't generate code for " + triple + ": " +
                      error);
  return *target;
}

/// " (did you mean ...?)", when a name of LLVM's, of CPUs or features, is close
/// enough; `sign`: what is before it.
template <typename Entry>
static std::string didYouMean(ArrayRef<Entry> known, StringRef wanted,
                              StringRef sign = "") {
  StringRef nearest;
  unsigned least = 3;
  for (const Entry &entry : known)
    if (unsigned distance = wanted.edit_distance(entry.Key, true, least);
        distance < least) {
      least = distance;
      nearest = entry.Key;
    }
  return nearest.empty() ? ""
                         : (" (did you mean '" + sign + nearest + "'?)").str();
}

ResolvedTarget intarsia::resolveTarget(const intarsia::TargetOptions &options) {
  ResolvedTarget result;
  result.triple = sys::getDefaultTargetTriple();
  Triple triple(result.triple);
  const Target &target = lookupTarget(result.triple);

  bool native = options.cpu == "native" || options.cpu.empty();
  SmallVector<std::string> features;
  if (native && triple.isX86()) {
    // Only what code can use, so that the list of what it needs is exact.
    StringMap<bool, MallocAllocator> host = sys::getHostCPUFeatures();
    for (StringRef feature : x86Features)
      if (host.lookup(feature))
        features.push_back(("+" + feature).str());
    result.cpu = "x86-64";
    result.tuneCpu = sys::getHostCPUName();
  } else if (native) {
    for (const auto &entry : sys::getHostCPUFeatures())
      features.push_back(((entry.second ? "+" : "-") + entry.first()).str());
    llvm::sort(features);
    result.cpu = result.tuneCpu = sys::getHostCPUName();
  } else {
    result.cpu = result.tuneCpu = options.cpu;
  }

  std::unique_ptr<MCSubtargetInfo> subtarget(
      target.createMCSubtargetInfo(triple, "", ""));
  if (!native && !subtarget->isCPUStringValid(result.cpu))
    throw TargetError(
        "unknown CPU '" + options.cpu + "' for " + triple.getArchName().str() +
        didYouMean(subtarget->getAllProcessorDescriptions(), options.cpu) +
        "; 'native' is this machine" +
        (triple.isX86() ? ", x86-64-v2, x86-64-v3 and x86-64-v4 "
                          "are levels that many machines have"
                        : "") +
        ", and other names are Clang's (-march, -mcpu)");
  SmallVector<StringRef> given;
  StringRef(options.features).split(given, ',', -1, /*KeepEmpty=*/false);
  for (StringRef feature : given) {
    StringRef name = feature.trim();
    bool hasSign = name.starts_with("+") || name.starts_with("-");
    StringRef sign = hasSign ? name.take_front() : "+";
    StringRef bare = hasSign ? name.drop_front() : name;
    ArrayRef<SubtargetFeatureKV> all = subtarget->getAllProcessorFeatures();
    bool known = hasSign && any_of(all, [&](const SubtargetFeatureKV &entry) {
                   return entry.Key == bare;
                 });
    if (!known)
      throw TargetError("unknown CPU feature '" + name.str() + "' for " +
                        triple.getArchName().str() +
                        didYouMean(all, bare, sign) +
                        "; write +name or -name, separated by commas");
    features.push_back(name.str());
  }
  result.features = join(features, ",");

  subtarget.reset(
      target.createMCSubtargetInfo(triple, result.cpu, result.features));
  if (triple.isX86()) {
    for (StringRef feature : x86Features)
      if (subtarget->checkFeatures(("+" + feature).str()))
        result.requiredFeatures.push_back(feature.str());
    if (!result.has("sse4.1"))
      throw TargetError("kernels need SSE4.1, which '" + result.cpu +
                        "' does not have; the lowest level is x86-64-v2");
    result.vectorBits = result.has("avx512f") ? 512
                        : result.has("avx")   ? 256
                                              : 128;
  } else {
    for (const SubtargetFeatureKV &entry :
         subtarget->getEnabledProcessorFeatures())
      result.requiredFeatures.push_back(entry.Key);
    llvm::sort(result.requiredFeatures);
  }
  return result;
}
