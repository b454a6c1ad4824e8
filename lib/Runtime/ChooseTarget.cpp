//===- ChooseTarget.cpp - Which code of an artifact fits ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements ChooseTarget.h for processors with what Linux tells of them.
//
//===----------------------------------------------------------------------===//

#include "ChooseTarget.h"
#include "intarsia/Runtime/Error.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

using namespace intarsia;
using namespace intarsia::runtime;

namespace {

/// Processor features of this machine, as Linux calls them, without '_' and '.'
/// (avx512_bf16 there is avx512bf16 to LLVM).
std::set<std::string> machineFeatures() {
  std::set<std::string> features;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0)
      continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) {
      word.erase(std::remove_if(word.begin(), word.end(),
                                [](char c) { return c == '_' || c == '.'; }),
                 word.end());
      features.insert(word);
    }
    break;
  }
  return features;
}

/// LLVM's name of a feature as machineFeatures has it; "" for one that the
/// kernel does not list, or that changes no instruction we emit.
std::string kernelName(std::string feature) {
  static const std::map<std::string, std::string> different = {
      {"sse3", "pni"},  {"sse4.1", "sse41"},         {"sse4.2", "sse42"},
      {"lzcnt", "abm"}, {"pclmul", "pclmulqdq"},     {"rdrnd", "rdrand"},
      {"cx16", "cx16"}, {"sahf", "lahflm"},          {"64bit", "lm"},
      {"x87", "fpu"},   {"prfchw", "3dnowprefetch"}, {"bmi", "bmi1"},
      {"sha", "shani"}, {"crc32", "sse42"},          {"cmov", "cmov"},
  };
  auto it = different.find(feature);
  if (it != different.end())
    return it->second;
  feature.erase(
      std::remove_if(feature.begin(), feature.end(),
                     [](char c) { return c == '_' || c == '.' || c == '-'; }),
      feature.end());
  return feature;
}

/// Whether a feature that /proc/cpuinfo does not list is missing. For x86 the
/// compiler names instruction sets alone, all of which are listed there: one
/// that nobody here knows is missing. Elsewhere LLVM's lists also have what is
/// no instruction set.
bool matters(const std::string &feature) {
#if defined(__x86_64__)
  return !feature.empty();
#else
  for (const char *prefix : {"neon", "sve"})
    if (feature.rfind(prefix, 0) == 0)
      return true;
  return false;
#endif
}

/// The features that a target needs and this machine lacks, "" when none; a
/// machine that lists nothing is trusted.
std::string missingFeatures(const plan::Metadata::Target &target) {
  static const std::set<std::string> have = machineFeatures();
  std::string missing;
  if (have.empty())
    return missing;
  for (const std::string &feature : target.features) {
    std::string name = feature[0] == '+' ? feature.substr(1) : feature;
    if (feature[0] != '-' && matters(name) && !have.count(kernelName(name)))
      missing += (missing.empty() ? "" : ", ") + name;
  }
  return missing;
}

} // namespace

const plan::Metadata::Target &
intarsia::runtime::chooseTarget(const plan::Metadata &metadata,
                                const std::string &wanted,
                                const std::string &path) {
  std::string kind = wanted.empty() ? "cpu" : wanted;
  std::string names, unfit;
  const plan::Metadata::Target *best = nullptr;
  bool isOnly = wanted.empty() && metadata.targets.size() == 1;
  for (const auto &target : metadata.targets) {
    names += (names.empty() ? "" : ", ") + target.name;
    if (target.name != kind && !isOnly)
      continue;
    std::string missing = missingFeatures(target);
    if (!missing.empty())
      unfit += "\n  " + (target.cpu.empty() ? target.name : target.cpu) +
               " needs " + missing;
    else if (!best || target.features.size() > best->features.size())
      best = &target;
  }
  if (best)
    return *best;
  if (!unfit.empty())
    throw Error(ErrorKind::Load,
                "'" + path +
                    "' was not compiled for this machine, which lacks what the "
                    "processors in it have:" +
                    unfit +
                    "\nCompile it for this machine, or with a lower --cpu "
                    "beside the others.");
  throw Error(ErrorKind::Load,
              "'" + path + "' is not compiled for target '" + kind +
                  "'; it has: " + (names.empty() ? "none" : names));
}
