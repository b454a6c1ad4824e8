//===- Metadata.h - What an artifact says of itself ---------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The record data/intarsia/metadata.json of a compiled .pt2 archive: written by
// intarsia-compile, checked by the runtime before anything else is read.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PLAN_METADATA_H
#define INTARSIA_PLAN_METADATA_H

#include "intarsia/Plan/Plan.h"

#include <string>
#include <string_view>
#include <vector>

namespace intarsia::plan {

/// Raised with every change of the plan's or the kernels' form that an older
/// runtime would misread.
inline constexpr int64_t artifactFormat = 5;

/// The folder of all records that are not the exporter's.
inline constexpr std::string_view ourRecords = "data/intarsia/";
inline constexpr std::string_view metadataRecord =
    "data/intarsia/metadata.json";

inline constexpr std::string_view libraryRecords = "data/intarsia/libraries/";

/// The folder of the records that hold what was computed of weights; number i
/// is output i of the plan in the record frozenPlan.
inline constexpr std::string_view frozenRecords = "data/intarsia/frozen/";
inline constexpr std::string_view frozenPlan = "data/intarsia/frozen.json";

/// What programDigest and codeDigest are of.
inline bool isProgramRecord(std::string_view name) {
  return !name.starts_with(ourRecords);
}
inline bool isCodeRecord(std::string_view name) {
  return name.starts_with(ourRecords) && name != metadataRecord;
}

struct Metadata {
  int64_t format = artifactFormat;
  std::string intarsiaVersion;
  std::string torchVersion; // of the exporter
  /// The versions of PyTorch that the file runs with: from `torchMin` to before
  /// `torchEnd`; "": any.
  std::string torchMin, torchEnd;
  /// A file of a target's folder with the kernels for one kind of GPU: what
  /// ptxas made for exactly this one (".cubin"), or PTX, which the driver
  /// compiles for this one and those after it (".ptx").
  struct Image {
    std::string arch; // "sm_90"
    std::string file;
    /// As CudaImage has them.
    std::string module = {};
    int64_t shared = 0;
  };
  struct Target {
    std::string name; // "cpu", "cuda"
    /// The folder of its plan and kernels below data/intarsia/. There is a
    /// target for each processor that the program was compiled for.
    std::string folder;
    std::string cpu; // LLVM's name of the processor, for messages
    /// Processor features that the kernels need, by LLVM's names ("avx512f").
    std::vector<std::string> features;
    /// SHA-256 of kernels.so in hexadecimal: its name in the cache; "" when
    /// there are no kernels.
    std::string kernelsHash;
    std::vector<Image> images = {}; // "cuda"
  };
  std::vector<Target> targets;
  /// Operator libraries that the archive brings along: the records
  /// <libraryRecords><name>, loaded in this order where an operator is
  /// missing.
  struct Library {
    std::string name;
    std::string hash; // SHA-256 in hexadecimal
  };
  std::vector<Library> libraries;
  /// Archive::digest of all that stands beside this record: a plan runs with
  /// the kernels that were made for it, and no others.
  std::string codeDigest;
  /// Python modules that registered operators when the file was compiled.
  std::vector<std::string> modules;
  /// A sidecar has no weights: they are records of this archive, in the
  /// sidecar's folder, with this digest (programDigest). "": no sidecar.
  std::string program, programDigest;
  /// All operators that any of the plans calls.
  std::vector<Operator> operators;
};

/// Of versions like "2.15.0+cpu" by their leading numbers; missing ones are 0.
bool versionLess(const std::string &a, const std::string &b);

std::string toJson(const Metadata &metadata);
/// Throws std::runtime_error naming the field on malformed text.
Metadata metadataFromJson(const std::string &json);

} // namespace intarsia::plan

#endif // INTARSIA_PLAN_METADATA_H
