//===- Model.cpp - Loading and running a compiled artifact
//--------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads what intarsia-compile wrote: metadata first, so that a file for another
// version or machine is refused with its reason; then the plan, the weights
// (mapped, not read) and the kernels, which are written out for dlopen.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Runtime/Model.h"
#include "ChooseTarget.h"
#include "CudaCode.h"
#include "KernelFile.h"
#include "LoadTorch.h"
#include "Weights.h"
#include "intarsia/Artifact/Archive.h"
#include "intarsia/Plan/Metadata.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

using namespace intarsia;
using namespace intarsia::runtime;
using artifact::Archive;
using artifact::ArchiveError;

//===----------------------------------------------------------------------===//
// Model
//===----------------------------------------------------------------------===//

/// What the instances of one loaded artifact have in common.
struct Model::Shared {
  std::string path;
  std::unique_ptr<Archive> archive;
  /// Of a sidecar: the archive that has the weights; else null.
  std::unique_ptr<Archive> weightArchive;
  KernelFile kernels; // outlives the programs, which have it mapped
  plan::Plan plan;
  /// Computes again what was frozen, when a weight is replaced.
  std::optional<plan::Plan> frozen;
  Program::Options options;
  std::mutex mutex;
  MappedRecords records; // guarded by `mutex`

  std::unique_ptr<Program>
  instantiate(const std::map<std::string, Tensor> &replaced);
};

struct Model::Impl {
  std::shared_ptr<Shared> shared;
  /// Weights that are not the artifact's; not those that the program writes,
  /// which are its own.
  std::map<std::string, Tensor> replaced;
  std::unique_ptr<Program> program;
};

Model::Model() : impl(std::make_unique<Impl>()) {}
Model::~Model() = default;

namespace {

bool areRegistered(const std::vector<plan::Operator> &operators) {
  return std::all_of(
      operators.begin(), operators.end(), [](const plan::Operator &op) {
        return torchApi().operatorSchema(op.name.c_str()) != nullptr;
      });
}

/// What an operator needs that is not registered: its library, or Python.
std::string remedy(bool fromLibrary, bool fromPython,
                   const plan::Metadata &metadata) {
  std::string text;
  if (fromLibrary)
    text += "\nGive the library that registers " +
            std::string(fromPython ? "the others" : "them") +
            ": --op-library libX.so (Model::Options::operatorLibraries in C++, "
            "intarsiaModelLoad's operatorLibraries in C; in Python, "
            "op_libraries= or import the module that loads it).";
  if (!fromPython)
    return text;
  std::string modules;
  for (const std::string &module : metadata.modules)
    modules += (modules.empty() ? "" : ", ") + module;
  return text +
         "\nAn operator that is registered from Python runs in Python "
         "alone: import " +
         (modules.empty() ? "the module that registers it" : modules) +
         " and call intarsia.load. A program without Python needs it in C++ "
         "(TORCH_LIBRARY).";
}

/// One error for all operators that are missing.
void checkOperators(const std::vector<plan::Operator> &operators,
                    const plan::Metadata &metadata, const std::string &path) {
  const TorchApi &torch = torchApi();
  std::string missing;
  const plan::Operator *first = nullptr;
  bool fromLibrary = false, fromPython = false;
  for (const plan::Operator &op : operators) {
    if (torch.operatorSchema(op.name.c_str()))
      continue;
    first = first ? first : &op;
    (op.fromPython ? fromPython : fromLibrary) = true;
    missing += "\n  " + op.name;
    if (!op.schema.empty())
      missing += "   compiled for: " + op.schema;
    if (op.fromPython)
      missing += "   registered from Python";
    std::string overloads = torch.operatorOverloads(op.name.c_str());
    if (!overloads.empty())
      missing += "   registered: " + overloads;
  }
  if (!first)
    return;
  Error error(ErrorKind::Load,
              "'" + path +
                  "' calls operators that are not registered in this process:" +
                  missing + remedy(fromLibrary, fromPython, metadata));
  error.op = first->name;
  throw error;
}

/// Operators keep their schemas, which are checked one by one, and may still
/// mean something else in another version.
void checkTorch(const plan::Metadata &metadata, const std::string &path) {
  std::string loaded = torchApi().torchVersion;
  if (metadata.torchMin.empty() ||
      (!plan::versionLess(loaded, metadata.torchMin) &&
       plan::versionLess(loaded, metadata.torchEnd)))
    return;
  throw Error(ErrorKind::Load,
              "'" + path + "' runs with PyTorch from " + metadata.torchMin +
                  " up to, but not including, " + metadata.torchEnd +
                  "; this process has " + loaded +
                  ". Compile the model again with that version.");
}

} // namespace

/// The libraries that the artifact brings along, until no operator is missing:
/// a process that has the operators would register them twice.
static void loadBundled(const Archive &archive, const plan::Metadata &metadata,
                        const std::vector<plan::Operator> &operators,
                        const std::string &cacheDirectory) {
  for (const plan::Metadata::Library &library : metadata.libraries) {
    if (areRegistered(operators))
      return;
    KernelFile file = KernelFile::create(
        archive.read(std::string(plan::libraryRecords) + library.name),
        library.hash, cacheDirectory);
    loadOperatorLibrary(file.path());
    file.loaded();
  }
}

/// What `load` reports of exceptions that are not its own.
template <typename Function>
static auto reporting(const std::string &path, Function function) {
  try {
    return function();
  } catch (const ArchiveError &error) {
    throw Error(ErrorKind::Load, error.what());
  } catch (const Error &error) {
    // A plan that does not verify is a damaged file's, and so is what PyTorch
    // does not know.
    if (error.kind == ErrorKind::Internal ||
        (error.kind == ErrorKind::Load && error.cause))
      throw Error(ErrorKind::Load, "'" + path + "': " + error.what());
    throw;
  } catch (const std::runtime_error &error) {
    throw Error(ErrorKind::Load, "'" + path + "': " + error.what());
  }
}

static plan::Metadata readMetadata(const Archive &archive) {
  const std::string &path = archive.path();
  if (!archive.find(plan::metadataRecord)) {
    std::string writer = archive.otherWriter();
    throw Error(
        ErrorKind::Load,
        writer.empty()
            ? "'" + path + "' is not a compiled artifact: it has no record " +
                  std::string(plan::metadataRecord) +
                  ". Run intarsia-compile on it first."
            : "'" + path + "' is not a compiled artifact, but a file of " +
                  writer +
                  ". Export the module (torch.export.save), and run "
                  "intarsia-compile on that.");
  }
  plan::Metadata metadata =
      plan::metadataFromJson(archive.read(plan::metadataRecord));
  if (metadata.format != plan::artifactFormat)
    throw Error(ErrorKind::Load,
                "'" + path + "' has format " + std::to_string(metadata.format) +
                    (metadata.intarsiaVersion.empty()
                         ? ""
                         : " (Intarsia " + metadata.intarsiaVersion + ")") +
                    ", this runtime reads format " +
                    std::to_string(plan::artifactFormat) +
                    ". Compile the model again with the Intarsia that runs "
                    "it.");
  if (archive.digest(plan::isCodeRecord) != metadata.codeDigest)
    throw Error(ErrorKind::Load,
                "'" + path + "' was changed after it was compiled: its " +
                    std::string(plan::metadataRecord) +
                    " was written with other records beside it. Compile the "
                    "model again.");
  return metadata;
}

static void verifyAll(const Archive &archive) {
  for (const artifact::Record &record : archive.records())
    archive.verify(record);
}

static std::string folderOf(const plan::Metadata::Target &target) {
  return std::string(plan::ourRecords) + target.folder + "/";
}

/// The archive of a sidecar's weights.
static std::unique_ptr<Archive> openProgram(const std::string &path,
                                            const plan::Metadata &metadata) {
  // A name, not a path: an artifact reads no other folder's files.
  std::filesystem::path name = metadata.program;
  if (name != name.filename())
    throw Error(ErrorKind::Load, "'" + path + "' names its program '" +
                                     metadata.program +
                                     "', which is no file name");
  std::string program =
      (std::filesystem::path(path).parent_path() / name).string();
  if (!std::filesystem::exists(program))
    throw Error(ErrorKind::Load,
                "'" + path + "' is code alone: its weights are in '" + program +
                    "', which must lie beside it, and is not there");
  auto archive = std::make_unique<Archive>(program);
  if (archive->digest(plan::isProgramRecord) != metadata.programDigest)
    throw Error(ErrorKind::Load,
                "'" + path + "' is the code of another '" + program +
                    "': that file has changed. Compile it again.");
  return archive;
}

/// The target's kernels for CUDA, loaded on the plan's devices: what is wrong
/// with them is known now.
static std::shared_ptr<const CudaCode>
readCudaCode(const Archive &archive, const plan::Metadata::Target &target,
             const plan::Plan &plan) {
  std::vector<CudaImage> images;
  for (const plan::Metadata::Image &image : target.images)
    images.push_back({image.arch,
                      std::filesystem::path(image.file).extension() == ".ptx",
                      archive.read(folderOf(target) + image.file), image.module,
                      image.shared});
  auto code = std::make_shared<const CudaCode>(std::move(images),
                                               "'" + archive.path() + "'");
  for (int device : cudaDevices(plan))
    code->load(device);
  return code;
}

std::unique_ptr<Model> Model::load(const std::string &path,
                                   const Options &options) {
  return reporting(path, [&] {
    auto shared = std::make_shared<Shared>();
    shared->path = path;
    shared->archive = std::make_unique<Archive>(path);
    const Archive &archive = *shared->archive;
    plan::Metadata metadata = readMetadata(archive);
    const plan::Metadata::Target &target =
        chooseTarget(metadata, options.target, path);
    std::string folder = folderOf(target);
    shared->plan = plan::fromJson(archive.read(folder + "plan.json"));
    if (archive.find(plan::frozenPlan))
      shared->frozen = plan::fromJson(archive.read(plan::frozenPlan));
    checkTorch(metadata, path);
    if (!metadata.program.empty())
      shared->weightArchive = openProgram(path, metadata);
    if (options.verify) {
      verifyAll(archive);
      if (shared->weightArchive)
        verifyAll(*shared->weightArchive);
    }

    for (const std::string &library : options.operatorLibraries)
      loadOperatorLibrary(library);
    loadBundled(archive, metadata, shared->plan.operators,
                options.cacheDirectory);
    checkOperators(shared->plan.operators, metadata, path);

    shared->options = options.program;
    shared->options.ownAutocast = true;
    if (!target.images.empty())
      shared->options.cuda = readCudaCode(archive, target, shared->plan);
    if (std::any_of(
            shared->plan.kernels.begin(), shared->plan.kernels.end(),
            [](const auto &kernel) { return kernel.target == "cpu"; })) {
      shared->kernels =
          KernelFile::create(archive.read(folder + "kernels.so"),
                             target.kernelsHash, options.cacheDirectory);
      shared->options.kernelLibrary = shared->kernels.path();
    }
    std::unique_ptr<Model> model(new Model());
    model->impl->program = shared->instantiate({});
    shared->kernels.loaded();
    model->impl->shared = std::move(shared);
    return model;
  });
}

std::unique_ptr<Program>
Model::Shared::instantiate(const std::map<std::string, Tensor> &replaced) {
  std::lock_guard<std::mutex> lock(mutex);
  WeightValues weights(*archive, weightArchive ? *weightArchive : *archive,
                       plan, frozen ? &*frozen : nullptr, records, replaced,
                       options.weight);
  Program::Options own = options;
  own.weight = [&weights](size_t i) { return weights.take(i); };
  return Program::create(plan, std::move(own));
}

std::unique_ptr<Model>
Model::instance(const std::map<std::string, Tensor> &weights) const {
  Shared &shared = *impl->shared;
  return reporting(shared.path, [&] {
    for (const auto &[name, tensor] : weights)
      weight(name); // throws for one that does not exist
    std::map<std::string, Tensor> all = underAllNames(shared.plan, weights);
    all.insert(impl->replaced.begin(), impl->replaced.end());
    std::unique_ptr<Model> model(new Model());
    model->impl->program = shared.instantiate(all);
    model->impl->shared = impl->shared;
    for (const plan::Weight &weight : shared.plan.weights)
      if (weight.mutated)
        all.erase(weight.name);
    model->impl->replaced = std::move(all);
    return model;
  });
}

std::vector<std::string> Model::weightNames() const {
  std::vector<std::string> names;
  for (const plan::Weight &weight : impl->shared->plan.weights)
    if (!isDerived(weight))
      names.push_back(weight.name);
  return names;
}

Tensor Model::weight(const std::string &name) const {
  const std::vector<plan::Weight> &weights = impl->shared->plan.weights;
  std::string list;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (isDerived(weights[i]))
      continue;
    if (weights[i].name == name) {
      Value value = retain(program().weight(i));
      return Tensor(value.tensor);
    }
    list += (list.empty() ? "" : ", ") + weights[i].name;
  }
  throw Error(ErrorKind::Guard,
              "the program has no weight '" + name +
                  "'; it has: " + (list.empty() ? "none" : list));
}

const Program &Model::program() const { return *impl->program; }

std::vector<Tensor> Model::run(const std::vector<Tensor> &inputs) const {
  const Program &program = *impl->program;
  std::vector<Value> values;
  size_t next = 0, tensorCount = 0;
  struct Release {
    std::vector<Value> &values;
    ~Release() {
      for (Value &value : values)
        if (value.kind == Value::Kind::Boxed)
          release(value);
    }
  } guard{values};
  for (size_t i = 0; i < program.inputCount(); ++i)
    tensorCount += program.input(i).kind == plan::Input::Kind::Tensor;
  if (inputs.size() != tensorCount) {
    std::string names;
    for (size_t i = 0; i < program.inputCount(); ++i)
      if (program.input(i).kind == plan::Input::Kind::Tensor)
        names += (names.empty() ? "" : ", ") + program.input(i).name;
    throw Error(ErrorKind::Guard, "the program takes " +
                                      std::to_string(tensorCount) +
                                      " tensors (" + names + "), got " +
                                      std::to_string(inputs.size()));
  }
  for (size_t i = 0; i < program.inputCount(); ++i) {
    const plan::Input &input = program.input(i);
    switch (input.kind) {
    case plan::Input::Kind::Tensor:
      values.push_back(Value::of(inputs[next++].get()));
      break;
    case plan::Input::Kind::None:
      values.push_back(Value());
      break;
    case plan::Input::Kind::Constant:
      values.push_back(constantValue(input.constant));
      break;
    default:
      throw Error(ErrorKind::Guard, "input \"" + input.name + "\" is " +
                                        (input.kind == plan::Input::Kind::Object
                                             ? "a sparse tensor or an object"
                                             : "a number") +
                                        "; call program().run to pass it");
    }
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].kind == Value::Kind::Tensor && !values[i].tensor)
      throw Error(ErrorKind::Guard,
                  "input \"" + program.input(i).name + "\": an empty Tensor");
  std::vector<Value> outputs(program.outputCount());
  program.run(values.data(), values.size(), outputs.data(), outputs.size());
  std::vector<Tensor> tensors;
  for (Value &value : outputs)
    tensors.push_back(takeTensor(value));
  return tensors;
}
