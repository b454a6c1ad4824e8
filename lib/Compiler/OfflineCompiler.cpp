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

#include "PromisedNumbers.h"
#include "PythonProcess.h"
#include "PythonSchemas.h"
#include "Retarget.h"
#include "intarsia/Artifact/Archive.h"
#include "intarsia/Import/Import.h"
#include "intarsia/Plan/Metadata.h"
#include "intarsia/Runtime/Frozen.h"
#include "intarsia/Runtime/Torch.h"
#include "intarsia/Target/Cubin.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <set>

namespace intarsia {

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

namespace {
/// What a Python process makes of the program, in a folder that goes with it.
class DerivedProgram {
public:
  /// `module` is given the paths of the program and of the new one, and
  /// `words`, then what registers operators.
  DerivedProgram(const OfflineOptions &options, const std::string &module,
                 const std::vector<std::string> &words,
                 const std::string &purpose) {
    if (llvm::sys::fs::createUniqueDirectory("intarsia-program", folder))
      throw OfflineError{OfflineStatus::LibraryError,
                         "a temporary folder cannot be made"};
    llvm::SmallString<128> file(folder);
    llvm::sys::path::append(file, llvm::sys::path::filename(options.input));
    path = file.str();
    std::vector<std::string> all = {options.input, path};
    for (auto *list :
         {&words, &options.pythonModules, &options.operatorLibraries})
      all.insert(all.end(), list->begin(), list->end());
    try {
      runPython(module, all, purpose);
    } catch (const PythonError &error) {
      llvm::sys::fs::remove_directories(folder);
      if (error.isMissing)
        throw OfflineError{OfflineStatus::LibraryError,
                           purpose + ": " + error.what()};
      throw OfflineError{OfflineStatus::CompileError, error.what()};
    }
  }
  ~DerivedProgram() { llvm::sys::fs::remove_directories(folder); }
  DerivedProgram(const DerivedProgram &) = delete;
  DerivedProgram &operator=(const DerivedProgram &) = delete;

  std::string path;

private:
  llvm::SmallString<128> folder;
};
} // namespace

static importer::Program readProgram(const std::string &path) {
  llvm::Expected<importer::Program> program = importer::readPt2(path);
  if (!program)
    throw OfflineError{OfflineStatus::InputError,
                       llvm::toString(program.takeError())};
  return std::move(*program);
}

/// Whether it calls the Python functions with which torch.export records the
/// beginning and the end of torch.vmap.
static bool hasTransforms(const importer::Program &program) {
  auto isTransform = [](const importer::Node &node) {
    return llvm::StringRef(node.target).starts_with("torch._functorch.");
  };
  return llvm::any_of(program.graph.nodes, isTransform) ||
         llvm::any_of(program.graphs, [&](const auto &entry) {
           return llvm::any_of(entry.second.nodes, isTransform);
         });
}

static std::string digestOf(llvm::StringRef content) {
  llvm::SHA256 hash;
  hash.update(content);
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

namespace {
/// The artifact in the making.
struct Artifact {
  plan::Metadata metadata;
  std::optional<plan::Plan> frozen;
  std::vector<CompiledProgram> targets; // parallel to the metadata's
  std::vector<std::string> libraries;   // likewise, what is in them
};
} // namespace

static void addTarget(const OfflineOptions &options, Artifact &artifact,
                      const std::string &cpu, CompiledProgram compiled) {
  plan::Metadata::Target target;
  target.name = options.compile.target;
  // What "native" was may have a name that says little of its features.
  target.cpu = cpu == "native" ? "native (" + compiled.cpu + ")" : cpu;
  target.folder =
      artifact.targets.empty() ? target.name : target.name + "-" + cpu;
  if (options.compile.target == "cpu" || !compiled.sharedObject.empty())
    target.features = compiled.cpuFeatures;
  if (!compiled.sharedObject.empty())
    target.kernelsHash = digestOf(compiled.sharedObject);
  for (const runtime::CudaImage &image : compiled.cudaImages)
    target.images.push_back({image.arch,
                             (image.module.empty() ? "kernels" : image.module) +
                                 "." + image.arch +
                                 (image.isPtx ? ".ptx" : ".cubin"),
                             image.module, image.shared});
  if (artifact.targets.empty()) {
    artifact.metadata.operators = compiled.plan.operators;
    artifact.frozen = std::move(compiled.frozen);
  }
  artifact.metadata.targets.push_back(std::move(target));
  artifact.targets.push_back(std::move(compiled));
}

static bool isPtxFile(llvm::StringRef file) { return file.ends_with(".ptx"); }

/// The kernels of other compilers that are records of an artifact.
static std::vector<runtime::CudaImage> foreignImages(const std::string &input) {
  std::vector<runtime::CudaImage> images;
  try {
    artifact::Archive archive(input);
    if (!archive.find(plan::metadataRecord))
      return images;
    plan::Metadata metadata =
        plan::metadataFromJson(archive.read(plan::metadataRecord));
    for (const plan::Metadata::Target &target : metadata.targets)
      for (const plan::Metadata::Image &image : target.images)
        if (!image.module.empty())
          images.push_back({image.arch, isPtxFile(image.file),
                            archive.read(std::string(plan::ourRecords) +
                                         target.folder + "/" + image.file),
                            image.module, image.shared});
  } catch (const std::runtime_error &error) {
    throw OfflineError{OfflineStatus::InputError, input + ": " + error.what()};
  }
  return images;
}

/// A record of the program. What is a record of its own, the code of other
/// compilers' kernels, is not in their descriptions, too.
static void copyProgramRecord(const artifact::Archive &input,
                              const artifact::Record &record,
                              const std::vector<CompiledProgram> &targets,
                              artifact::ArchiveWriter &output) {
  std::vector<std::string> codes;
  if (llvm::StringRef(record.name).ends_with(".json"))
    for (const CompiledProgram &compiled : targets)
      for (const runtime::CudaImage &image : compiled.cudaImages)
        if (!image.module.empty())
          codes.push_back(llvm::encodeBase64(image.code));
  if (codes.empty())
    return output.copy(input, record);
  std::string text = input.read(record.name);
  for (const std::string &code : codes)
    for (size_t at = text.find(code); at != std::string::npos;
         at = text.find(code, at))
      text.erase(at, code.size());
  output.add(record.name, text);
}

/// The versions that the operators are known to mean the same in.
static void setTorchRange(plan::Metadata &metadata) {
  llvm::StringRef version = runtime::torchApi().torchVersion;
  auto [major, rest] = version.split('.');
  unsigned minor = 0;
  if (rest.split('.').first.getAsInteger(10, minor))
    return;
  metadata.torchMin = (major + "." + llvm::Twine(minor)).str();
  metadata.torchEnd = (major + "." + llvm::Twine(minor + 1)).str();
}

/// What depends on weights alone, each as soon as it is known.
static void writeFrozen(const artifact::Archive &input,
                        const plan::Plan &frozen,
                        artifact::ArchiveWriter &output) {
  output.add(plan::frozenPlan, plan::toJson(frozen));
  try {
    runtime::computeFrozen(
        input, frozen, [&](size_t index, const runtime::Tensor &value) {
          output.add(runtime::frozenRecord(index),
                     std::span(static_cast<const std::byte *>(value.data()),
                               size_t(value.elementCount() *
                                      dtypeSize(value.dtype()))));
        });
  } catch (const runtime::Error &error) {
    throw OfflineError{OfflineStatus::CompileError,
                       std::string("what --freeze computes of the weights "
                                   "fails: ") +
                           error.what() + "\nCompile with --no-freeze."};
  }
}

static void bundleLibraries(const OfflineOptions &options, Artifact &artifact) {
  for (const std::string &path : options.operatorLibraries) {
    auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                              /*RequiresNullTerminator=*/false);
    if (!buffer)
      throw OfflineError{OfflineStatus::LibraryError,
                         "cannot read operator library '" + path +
                             "': " + buffer.getError().message()};
    plan::Metadata::Library library;
    library.name = llvm::sys::path::filename(path).str();
    library.hash = digestOf((*buffer)->getBuffer());
    for (const plan::Metadata::Library &other : artifact.metadata.libraries)
      if (other.name == library.name)
        throw OfflineError{OfflineStatus::Usage,
                           "two operator libraries are called " + library.name +
                               "; bundled ones need names of their own"};
    artifact.metadata.libraries.push_back(std::move(library));
    artifact.libraries.push_back((*buffer)->getBuffer().str());
  }
}

static void writeArtifact(const OfflineOptions &options, Artifact &artifact) {
  artifact::Archive input(options.input);
  try {
    if (options.codeOnly) {
      artifact.metadata.program = llvm::sys::path::filename(options.input);
      artifact.metadata.programDigest = input.digest(plan::isProgramRecord);
    }
    // The folder in the archive has the same name whatever the file is called.
    artifact::ArchiveWriter output(options.output, "model");
    if (!options.codeOnly)
      for (const artifact::Record &record : input.records())
        if (plan::isProgramRecord(record.name))
          copyProgramRecord(input, record, artifact.targets, output);
    for (auto [target, compiled] :
         llvm::zip_equal(artifact.metadata.targets, artifact.targets)) {
      const std::string folder =
          std::string(plan::ourRecords) + target.folder + "/";
      output.add(folder + "plan.json", plan::toJson(compiled.plan));
      if (!compiled.sharedObject.empty())
        output.add(folder + "kernels.so", compiled.sharedObject);
      for (auto [image, code] :
           llvm::zip_equal(target.images, compiled.cudaImages))
        output.add(folder + image.file, code.code);
    }
    for (auto [library, content] :
         llvm::zip_equal(artifact.metadata.libraries, artifact.libraries))
      output.add(std::string(plan::libraryRecords) + library.name, content);
    if (artifact.frozen)
      writeFrozen(input, *artifact.frozen, output);
    artifact.metadata.codeDigest = output.digest(plan::isCodeRecord);
    output.add(plan::metadataRecord, plan::toJson(artifact.metadata));
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

/// Moves the program to another device.
static void retargetOrThrow(const OfflineOptions &options,
                            importer::Program &program) {
  try {
    retarget(program, options.retarget, torchSchemas());
  } catch (const CompileError &error) {
    throw OfflineError{OfflineStatus::Usage, error.what()};
  }
}

[[noreturn]] static void usageError(const std::string &message) {
  throw OfflineError{OfflineStatus::Usage, message};
}

/// Which of the values that may repeat is given twice; "" when none is.
static std::string repeated(const std::vector<std::string> &values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (llvm::is_contained(llvm::ArrayRef(values).take_front(i), values[i]))
      return values[i];
  return "";
}

static void checkTargets(const OfflineOptions &options) {
  const std::vector<std::string> &archs = options.archs;
  bool forCUDA = options.compile.target == "cuda";
  if (!forCUDA && options.compile.target != "cpu")
    usageError("the target is \"cpu\" or \"cuda\", not \"" +
               options.compile.target + "\"");
  if (llvm::is_contained(options.cpus, ""))
    usageError("--cpu has an empty name");
  if (std::string cpu = repeated(options.cpus); !cpu.empty())
    usageError("--cpu names " + cpu + " twice");
  if (!forCUDA && !archs.empty())
    usageError("--arch " + archs.front() + " needs --target cuda");
  if (std::string arch = repeated(archs); !arch.empty())
    usageError("--arch names " + arch + " twice");
  try {
    llvm::for_each(archs, checkArch);
    for (const std::string &cpu : options.cpus)
      resolveTarget({cpu, options.compile.features});
    resolveTarget({options.compile.cpu, options.compile.features});
  } catch (const TargetError &error) {
    usageError(error.what());
  }
  if (forCUDA && options.cpus.size() > 1)
    usageError("--target cuda takes one --cpu, for what of the program is on "
               "the CPU");
  if (forCUDA && !options.compile.fuse)
    usageError("with --no-fuse every node is a call: there are no kernels to "
               "make for --target cuda");
  if (options.emit == Stage::PTX && !forCUDA)
    usageError("--emit=ptx needs --target cuda");
  if (options.emit && options.cpus.size() > 1)
    usageError("--emit takes one --cpu");
  if (options.emit == Stage::PTX && archs.size() > 1 && !options.output.empty())
    usageError("--emit=ptx writes the module of one --arch to -o; without -o "
               "it prints those of several");
}

static void checkOptions(const OfflineOptions &options) {
  if (options.codeOnly && !options.dtype.empty())
    usageError("--code-only leaves the weights in " + options.input +
               ", which --dtype would have to convert");
  if (!llvm::is_contained({"", "float32", "bfloat16", "float16"},
                          options.dtype))
    usageError("--dtype is float32, bfloat16 or float16, not '" +
               options.dtype + "'");
  if (!llvm::is_contained({"eager", "fused"}, options.compile.numerics))
    usageError("numerics is \"eager\" or \"fused\", not \"" +
               options.compile.numerics + "\"");
  if (!plan::productsFromName(options.compile.products))
    usageError("products is \"auto\", \"eager\" or \"onednn\", not \"" +
               options.compile.products + "\"");
  if (options.output == "-" && options.emit != Stage::PTX)
    usageError("-o names a file, which appears when it is complete; it cannot "
               "be standard output (a file of this name is ./-)");
  if (!options.output.empty() && !options.force) {
    bool same = false;
    if (!llvm::sys::fs::equivalent(options.input, options.output, same) && same)
      usageError(options.output +
                 " is the input; name another output, or pass --force to "
                 "replace it");
  }
  if (options.bundleLibraries && options.operatorLibraries.empty())
    usageError("--bundle-op-libraries needs an --op-library");
  if (options.codeOnly && !options.output.empty() &&
      llvm::sys::path::parent_path(options.output) !=
          llvm::sys::path::parent_path(options.input))
    usageError("--code-only leaves the weights in " + options.input +
               ": -o must name a file in the same folder");
  checkTargets(options);
}

static void compileOrThrow(OfflineOptions options, std::ostream &out,
                           std::ostream &errors) {
  checkOptions(options);
  auto progress = [&](const std::string &stage) {
    if (options.compile.progress)
      options.compile.progress(stage);
  };
  progress("read");
  importer::Program program = readProgram(options.input);
  std::optional<DerivedProgram> decomposed, converted, launching;
  if (hasTransforms(program) && !options.codeOnly) {
    progress("decompose");
    decomposed.emplace(
        options, "intarsia._complete", std::vector<std::string>(),
        "cannot decompose what torch.vmap does in " + options.input +
            ", as intarsia.export or run_decompositions({}) "
            "before torch.export.save would");
    options.input = decomposed->path;
    program = readProgram(options.input);
  }
  if (!options.dtype.empty()) {
    progress("convert");
    converted.emplace(options, "intarsia._convert", std::vector{options.dtype},
                      "cannot convert " + options.input + " to " +
                          options.dtype);
    options.input = converted->path;
    program = readProgram(options.input);
  }
  std::vector<std::string> archs =
      options.archs.empty() ? options.compile.archs : options.archs;
  if (options.compile.target == "cuda" && !options.pythonModules.empty() &&
      !options.codeOnly) {
    progress("Triton");
    launching.emplace(
        options, "intarsia._triton", std::vector{llvm::join(archs, ",")},
        "cannot compile the kernels of Triton in " + options.input);
    if (auto notes = llvm::MemoryBuffer::getFile(launching->path + ".notes"))
      for (llvm::StringRef note : llvm::split((*notes)->getBuffer(), '\n'))
        errors << "intarsia-compile: warning: " << note.str() << "\n";
    if (llvm::sys::fs::exists(launching->path)) {
      options.input = launching->path;
      program = readProgram(options.input);
    }
  }
  loadLibraries(options);
  if (!options.retarget.empty())
    retargetOrThrow(options, program);

  CompileOptions compileOptions = options.compile;
  compileOptions.archs = archs;
  if (compileOptions.target == "cuda")
    compileOptions.foreignImages = foreignImages(options.input);
  std::string emitted;
  if (options.emit) {
    compileOptions.observedStage = options.emit;
    compileOptions.observer = [&](const std::string &text) { emitted += text; };
  }
  // What to compile for, one after the other.
  std::vector<std::string> variants = options.cpus;
  if (variants.empty())
    variants = {compileOptions.cpu};
  Artifact artifact;
  artifact.metadata.intarsiaVersion = version();
  artifact.metadata.torchVersion = program.torchVersion;
  artifact.metadata.modules = options.pythonModules;
  setTorchRange(artifact.metadata);
  // The importer reports every exception as the program's fault; this one is
  // not.
  std::string pythonFailure;
  importer::SchemaProvider schemas =
      [&, ask = withPythonModules(torchSchemas(), options.pythonModules,
                                  program)](const std::string &name) {
        try {
          return ask(name);
        } catch (const PythonError &error) {
          pythonFailure = error.what();
          throw;
        }
      };
  try {
    notePromisedNumbers(program, torchSchemas(), schemas, [&] {
      return options.pythonModules.empty()
                 ? readPromisedNumbers(options.promisedNumbers)
                 : numbersOfPython(options.input, options.pythonModules,
                                   options.operatorLibraries);
    });
  } catch (const PythonError &error) {
    throw OfflineError{OfflineStatus::LibraryError, error.what()};
  }
  for (const std::string &name : variants) {
    compileOptions.cpu = name;
    CompiledProgram compiled;
    try {
      compiled = compile(program, compileOptions, schemas);
    } catch (const DumpError &error) {
      throw OfflineError{OfflineStatus::OutputError, error.what()};
    } catch (const CompileError &error) {
      if (!pythonFailure.empty())
        throw OfflineError{OfflineStatus::LibraryError, pythonFailure};
      throw OfflineError{OfflineStatus::CompileError,
                         options.input + ": " + error.what()};
    }
    if (!options.output.empty() && compiled.memoryKernels &&
        compiled.sharedObject.empty())
      throw OfflineError{OfflineStatus::CompileError,
                         "the kernels could not be linked to a shared object"};
    addTarget(options, artifact, name, std::move(compiled));
  }
  // These stages have kernels alone.
  if (options.emit && emitted.empty())
    throw OfflineError{OfflineStatus::CompileError,
                       options.input +
                           ": the program has no kernels of which "
                           "--emit=" +
                           std::string(stageName(*options.emit)) +
                           " could show the code"};
  bool emitsFile = options.emit == Stage::PTX && !options.output.empty();
  if (emitsFile) {
    writeText(options.output, emitted);
    emitted.clear();
  } else if (!options.output.empty()) {
    if (options.bundleLibraries)
      bundleLibraries(options, artifact);
    progress("write");
    writeArtifact(options, artifact);
  }
  progress("");

  out << emitted;
  for (auto [target, compiled] :
       llvm::zip_equal(artifact.metadata.targets, artifact.targets)) {
    if (!options.printTiming)
      break;
    if (variants.size() > 1)
      out << target.cpu << "\n";
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
  if (!options.emit && !options.output.empty()) {
    const CompiledProgram &compiled = artifact.targets.front();
    out << options.output << ": " << compiled.callCount << " calls, "
        << compiled.kernelCount << " kernel launches, "
        << compiled.plan.kernels.size() << " kernels";
    if (variants.size() > 1)
      for (auto [index, target] : llvm::enumerate(artifact.metadata.targets))
        out << (index ? ", " : ", for ") << target.cpu;
    const char *separator = ", for ";
    for (const runtime::CudaImage &image : compiled.cudaImages)
      if (image.module.empty()) {
        out << separator << image.arch << (image.isPtx ? " as PTX" : "");
        separator = ", ";
      }
    std::set<std::string> foreign;
    for (const runtime::CudaImage &image : compiled.cudaImages)
      if (!image.module.empty())
        foreign.insert(image.module);
    if (!foreign.empty())
      out << ", " << foreign.size() << " modules of Triton";
    out << "\n";
  }
}

OfflineStatus compileOffline(const OfflineOptions &options, std::ostream &out,
                             std::ostream &errors) {
  auto report = [&](OfflineStatus status, const std::string &message) {
    if (options.compile.progress)
      options.compile.progress("");
    errors << "intarsia-compile: error: " << message << "\n";
    return status;
  };
  try {
    compileOrThrow(options, out, errors);
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
