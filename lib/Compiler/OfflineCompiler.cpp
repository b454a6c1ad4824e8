//===- OfflineCompiler.cpp - From a .pt2 file to an artifact --------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads an exported program, compiles it and writes the artifact: the same
// archive with plan, kernels and metadata beside the exporter's records.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Compiler/OfflineCompiler.h"

#include "intarsia/Artifact/Archive.h"
#include "intarsia/Import/Import.h"
#include "intarsia/Plan/Metadata.h"
#include "intarsia/Runtime/Torch.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

namespace intarsia {

static constexpr llvm::StringLiteral ourFolder = "data/intarsia/";

namespace {
/// An error with the status that the program exits with.
struct OfflineError {
  OfflineStatus status;
  std::string message;
};
} // namespace

static void loadLibraries(const OfflineOptions &options) {
  try {
    // PyTorch first: the libraries register with it.
    runtime::torchApi();
    for (const std::string &library : options.operatorLibraries)
      runtime::loadOperatorLibrary(library);
  } catch (const runtime::Error &error) {
    throw OfflineError{OfflineStatus::LibraryError, error.what()};
  }
}

static importer::Program readProgram(const std::string &path) {
  llvm::Expected<importer::Program> program = importer::readPt2(path);
  if (!program)
    throw OfflineError{OfflineStatus::InputError,
                       llvm::toString(program.takeError())};
  return std::move(*program);
}

static plan::Metadata metadataOf(const CompiledProgram &compiled,
                                 const importer::Program &program) {
  plan::Metadata metadata;
  metadata.intarsiaVersion = version();
  metadata.torchVersion = program.torchVersion;
  metadata.operators = compiled.plan.operators;
  plan::Metadata::Target target;
  target.name = "cpu";
  target.cpu = compiled.cpu;
  target.features = compiled.cpuFeatures;
  if (!compiled.sharedObject.empty()) {
    llvm::SHA256 hash;
    hash.update(compiled.sharedObject);
    target.kernelsHash = llvm::toHex(hash.final(), /*LowerCase=*/true);
  }
  metadata.targets.push_back(std::move(target));
  return metadata;
}

static void writeArtifact(const OfflineOptions &options,
                          const CompiledProgram &compiled,
                          const plan::Metadata &metadata) {
  artifact::Archive input(options.input);
  try {
    artifact::ArchiveWriter output(options.output,
                                   llvm::sys::path::stem(options.output).str());
    for (const artifact::Record &record : input.records())
      if (!llvm::StringRef(record.name).starts_with(ourFolder))
        output.copy(input, record);
    const std::string folder = (ourFolder + "cpu/").str();
    output.add(folder + "plan.json", plan::toJson(compiled.plan));
    if (!compiled.sharedObject.empty())
      output.add(folder + "kernels.so", compiled.sharedObject);
    output.add((ourFolder + "metadata.json").str(), plan::toJson(metadata));
    output.finish();
  } catch (const artifact::ArchiveError &error) {
    throw OfflineError{error.path() == input.path()
                           ? OfflineStatus::InputError
                           : OfflineStatus::OutputError,
                       error.what()};
  }
}

static void writeText(const std::string &path, const std::string &text) {
  llvm::Error error = llvm::writeToOutput(path, [&](llvm::raw_ostream &out) {
    out << text;
    return llvm::Error::success();
  });
  if (error)
    throw OfflineError{OfflineStatus::OutputError,
                       "cannot write " + path + ": " +
                           llvm::toString(std::move(error))};
}

static void compileOrThrow(const OfflineOptions &options, std::ostream &out) {
  if (!options.output.empty() && !options.force) {
    bool same = false;
    if (!llvm::sys::fs::equivalent(options.input, options.output, same) && same)
      throw OfflineError{OfflineStatus::Usage,
                         options.output +
                             " is the input; name another output, or pass "
                             "--force to replace it"};
  }
  bool forCUDA = options.compile.target == "cuda";
  if (options.emit == Stage::PTX && !forCUDA)
    throw OfflineError{OfflineStatus::Usage, "--emit=ptx needs --target cuda"};
  if (forCUDA && options.emit != Stage::PTX &&
      (!options.emit || !options.output.empty()))
    throw OfflineError{OfflineStatus::Usage,
                       "this runtime cannot launch CUDA kernels yet, so there "
                       "is no artifact of them; --emit=ptx gives their code"};
  if (forCUDA && llvm::is_contained({Stage::Plan, Stage::LLVM, Stage::Assembly},
                                    *options.emit))
    throw OfflineError{OfflineStatus::Usage,
                       "--target cuda has no stage '" +
                           std::string(stageName(*options.emit)) + "'"};
  importer::Program program = readProgram(options.input);
  loadLibraries(options);

  CompileOptions compileOptions = options.compile;
  std::string emitted;
  if (options.emit) {
    compileOptions.observedStage = options.emit;
    compileOptions.observer = [&](const std::string &text) { emitted = text; };
  }
  CompiledProgram compiled;
  try {
    compiled = compile(program, compileOptions, torchSchemas());
  } catch (const CompileError &error) {
    throw OfflineError{OfflineStatus::CompileError,
                       options.input + ": " + error.what()};
  }
  bool emitsFile = options.emit == Stage::PTX && !options.output.empty();
  if (emitsFile) {
    writeText(options.output, emitted);
    emitted.clear();
  } else if (!options.output.empty() && !forCUDA) {
    if (compiled.memoryKernels && compiled.sharedObject.empty())
      throw OfflineError{OfflineStatus::CompileError,
                         "the kernels could not be linked to a shared object"};
    writeArtifact(options, compiled, metadataOf(compiled, program));
  }

  out << emitted;
  if (options.printTiming) {
    double total = 0;
    auto line = [&](const std::string &stage, double seconds) {
      char text[64];
      snprintf(text, sizeof(text), "%-8s %9.3f ms\n", stage.c_str(),
               seconds * 1e3);
      out << text;
    };
    for (const auto &[stage, seconds] : compiled.timings) {
      line(stage, seconds);
      total += seconds;
    }
    line("total", total);
  }
  if (!options.emit && !options.output.empty())
    out << options.output << ": " << compiled.callCount << " calls, "
        << compiled.kernelCount << " kernel launches, "
        << compiled.plan.kernels.size() << " kernels\n";
}

OfflineStatus compileOffline(const OfflineOptions &options, std::ostream &out,
                             std::ostream &errors) {
  auto report = [&](OfflineStatus status, const std::string &message) {
    errors << "intarsia-compile: error: " << message << "\n";
    return status;
  };
  try {
    compileOrThrow(options, out);
    return OfflineStatus::Success;
  } catch (const OfflineError &error) {
    return report(error.status, error.message);
  } catch (const artifact::ArchiveError &error) {
    return report(OfflineStatus::InputError, error.what());
  } catch (const std::exception &error) {
    return report(OfflineStatus::CompileError, error.what());
  }
}

} // namespace intarsia
