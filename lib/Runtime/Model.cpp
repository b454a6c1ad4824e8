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
#include "KernelFile.h"
#include "intarsia/Artifact/Archive.h"
#include "intarsia/Plan/Metadata.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

using namespace intarsia;
using namespace intarsia::runtime;
using artifact::Archive;
using artifact::ArchiveError;
using artifact::Record;

//===----------------------------------------------------------------------===//
// Tensor
//===----------------------------------------------------------------------===//

Tensor::Tensor(const Tensor &other) : impl(other.impl) {
  if (impl)
    torchApi().retain(impl);
}

Tensor::~Tensor() {
  if (impl)
    torchApi().release(impl);
}

[[noreturn]] static void failed() {
  ShimError &error = *torchApi().lastError();
  Error failure(error.kind, error.message);
  failure.cause = std::move(error.cause);
  throw failure;
}

static TensorInfo describe(TensorImpl *tensor) {
  TensorInfo info;
  if (!tensor)
    throw Error(ErrorKind::Guard, "an empty Tensor is used");
  if (torchApi().describe(tensor, &info))
    failed();
  return info;
}

static std::vector<int64_t>
contiguousStrides(const std::vector<int64_t> &sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return strides;
}

Tensor Tensor::empty(DType dtype, const std::vector<int64_t> &sizes) {
  std::vector<int64_t> strides = contiguousStrides(sizes);
  TensorImpl *out = nullptr;
  if (torchApi().emptyStrided(int16_t(dtype), 0, -1, int64_t(sizes.size()),
                              sizes.data(), strides.data(), &out))
    failed();
  return Tensor(out);
}

std::vector<int64_t> Tensor::sizes() const {
  TensorInfo info = describe(impl);
  return {info.sizes, info.sizes + info.dim};
}

std::vector<int64_t> Tensor::strides() const {
  TensorInfo info = describe(impl);
  if (!info.strides)
    return {};
  return {info.strides, info.strides + info.dim};
}

int64_t Tensor::elementCount() const {
  int64_t count = 1;
  for (int64_t size : sizes())
    count *= size;
  return count;
}

DType Tensor::dtype() const {
  TensorInfo info = describe(impl);
  if (auto dtype = dtypeFromScalarType(info.dtype))
    return *dtype;
  throw Error(ErrorKind::Guard, "a tensor has a dtype that Intarsia does not "
                                "know (number " +
                                    std::to_string(info.dtype) + ")");
}

std::string Tensor::device() const {
  TensorInfo info = describe(impl);
  return torchApi().deviceName(info.deviceType, info.deviceIndex);
}

void *Tensor::data() const {
  void *data = nullptr;
  describe(impl);
  if (torchApi().dataPointer(&impl, &data))
    failed();
  return data;
}

Tensor Tensor::contiguousOnCpu() const {
  const TorchApi &torch = torchApi();
  TensorImpl *local = nullptr;
  if (torch.toDevice(impl, 0, -1, &local))
    failed();
  Tensor result(local);
  TensorInfo info = describe(local);
  std::vector<int64_t> shape(info.sizes, info.sizes + info.dim);
  bool same = info.strides && !info.lazyBits;
  std::vector<int64_t> strides = contiguousStrides(shape);
  for (size_t i = 0; same && i < shape.size(); ++i)
    same = info.strides[i] == strides[i] || shape[i] <= 1;
  if (same)
    return result;
  Tensor copy = empty(result.dtype(), shape);
  if (torch.copy(copy.get(), result.get()))
    failed();
  return copy;
}

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
  Program::Options options;
  std::mutex mutex;
  /// Record name -> a tensor on the whole record, which no program writes.
  /// Guarded by `mutex`.
  std::map<std::string, Tensor> records;

  std::unique_ptr<Program>
  instantiate(const std::map<std::string, Tensor> &replaced);
};

struct Model::Impl {
  std::shared_ptr<Shared> shared;
  std::unique_ptr<Program> program;
};

Model::Model() : impl(std::make_unique<Impl>()) {}
Model::~Model() = default;

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

/// The instruction sets that vector code depends on: the others either cannot
/// be asked for in /proc/cpuinfo or make no difference to our kernels.
bool matters(const std::string &feature) {
  if (feature.rfind("avx10", 0) == 0)
    return false; // a version number; its AVX-512 parts are listed by name
  for (const char *prefix : {"avx", "sse", "fma", "f16c", "bmi", "amx", "lzcnt",
                             "popcnt", "neon", "sve"})
    if (feature.rfind(prefix, 0) == 0)
      return true;
  return false;
}

/// The features that a target needs and this machine lacks, "" when none; a
/// machine that lists nothing is trusted.
std::string missingFeatures(const plan::Metadata::Target &target) {
  static const std::set<std::string> have = machineFeatures();
  std::string missing;
  if (target.name != "cpu" || have.empty())
    return missing;
  for (const std::string &feature : target.features) {
    std::string name = feature[0] == '+' ? feature.substr(1) : feature;
    if (feature[0] != '-' && matters(name) && !have.count(kernelName(name)))
      missing += (missing.empty() ? "" : ", ") + name;
  }
  return missing;
}

const plan::Metadata::Target &chooseTarget(const plan::Metadata &metadata,
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

bool areRegistered(const std::vector<plan::Operator> &operators) {
  return std::all_of(
      operators.begin(), operators.end(), [](const plan::Operator &op) {
        return torchApi().operatorSchema(op.name.c_str()) != nullptr;
      });
}

/// One error for all operators that are missing.
void checkOperators(const std::vector<plan::Operator> &operators,
                    const std::string &path) {
  const TorchApi &torch = torchApi();
  std::string missing;
  const plan::Operator *first = nullptr;
  for (const plan::Operator &op : operators) {
    if (torch.operatorSchema(op.name.c_str()))
      continue;
    first = first ? first : &op;
    missing += "\n  " + op.name;
    if (!op.schema.empty())
      missing += "   compiled for: " + op.schema;
    std::string overloads = torch.operatorOverloads(op.name.c_str());
    if (!overloads.empty())
      missing += "   registered: " + overloads;
  }
  if (!first)
    return;
  Error error(
      ErrorKind::Load,
      "'" + path +
          "' calls operators that are not registered in this process:" +
          missing +
          "\nGive the library that registers them: --op-library libX.so "
          "(Model::Options::operatorLibraries in C++; in Python, import "
          "the module that registers them before loading).");
  error.op = first->name;
  throw error;
}

/// Makes the tensors of the weights on the archive's mapping.
class WeightReader {
public:
  WeightReader(const Archive &archive, const plan::Plan &plan,
               std::map<std::string, Tensor> &records)
      : archive(archive), exprs(plan.functions[0].exprs), records(records) {
    for (const plan::Weight &weight : plan.weights)
      if (weight.mutated)
        written.insert(weight.record);
  }

  Value read(const plan::Weight &weight) {
    std::vector<int64_t> sizes = constants(weight, weight.spec.sizes);
    std::vector<int64_t> strides = constants(weight, weight.spec.strides);
    const Tensor &base = record(weight);
    int64_t bytes = torchApi().storageBytes(base.get());
    int64_t itemSize = dtypeSize(weight.spec.dtype);
    int64_t last = 0;
    bool empty = false, valid = weight.storageOffset >= 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t step = 0;
      valid &= sizes[i] >= 0 && strides[i] >= 0;
      empty |= sizes[i] == 0;
      if (valid && sizes[i] > 0)
        valid &= !__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) &&
                 !__builtin_add_overflow(last, step, &last);
    }
    int64_t end = 0;
    valid &= !__builtin_add_overflow(last, weight.storageOffset, &end) &&
             !__builtin_add_overflow(end, int64_t(1), &end) &&
             !__builtin_mul_overflow(end, itemSize, &end);
    if (!valid || (!empty && end > bytes))
      fail(weight, "does not fit its record '" + weight.record + "' of " +
                       std::to_string(bytes) + " bytes");
    TensorImpl *tensor = nullptr;
    if (torchApi().onStorage(base.get(), int16_t(weight.spec.dtype),
                             int64_t(sizes.size()), sizes.data(),
                             strides.data(), weight.storageOffset, &tensor))
      failed();
    int8_t type, index;
    if (torchApi().parseDevice(weight.spec.device.c_str(), &type, &index))
      failed();
    if (type == 0)
      return Value::of(tensor);
    Tensor local(tensor);
    if (torchApi().toDevice(local.get(), type, index, &tensor))
      failed();
    return Value::of(tensor);
  }

  /// A user's tensor for the weight: itself, or a copy with the strides that
  /// the program was compiled for.
  Value checked(const plan::Weight &weight, const Tensor &given) {
    std::vector<int64_t> sizes = constants(weight, weight.spec.sizes);
    std::vector<int64_t> strides = constants(weight, weight.spec.strides);
    if (!given || given.dtype() != weight.spec.dtype ||
        given.sizes() != sizes || given.device() != weight.spec.device)
      throw Error(ErrorKind::Guard,
                  "weight '" + weight.name + "' is a tensor of " +
                      std::string(dtypeTorchName(weight.spec.dtype)) + " " +
                      shapeText(sizes) + " on " + weight.spec.device +
                      (given ? ", not of " +
                                   std::string(dtypeTorchName(given.dtype())) +
                                   " " + shapeText(given.sizes()) + " on " +
                                   given.device()
                             : ", not an empty Tensor"));
    if (given.strides() == strides)
      return retain(Value::of(given.get()));
    int8_t type, index;
    TensorImpl *copy = nullptr;
    if (torchApi().parseDevice(weight.spec.device.c_str(), &type, &index) ||
        torchApi().emptyStrided(int16_t(weight.spec.dtype), type, index,
                                int64_t(sizes.size()), sizes.data(),
                                strides.data(), &copy))
      failed();
    Tensor owned(copy);
    if (torchApi().copy(copy, given.get()))
      failed();
    return Value::of(owned.take());
  }

private:
  static std::string shapeText(const std::vector<int64_t> &sizes) {
    std::string text;
    for (int64_t size : sizes)
      text += (text.empty() ? "" : ", ") + std::to_string(size);
    return "[" + text + "]";
  }

  [[noreturn]] void fail(const plan::Weight &weight, const std::string &what) {
    throw Error(ErrorKind::Load, "'" + archive.path() + "': weight '" +
                                     weight.name + "' " + what);
  }

  std::vector<int64_t> constants(const plan::Weight &weight,
                                 const std::vector<plan::ExprId> &ids) {
    std::vector<int64_t> values;
    for (plan::ExprId id : ids) {
      std::optional<int64_t> value;
      if (id >= 0 && size_t(id) < exprs.size())
        value = exprs[size_t(id)].asInteger();
      if (!value)
        fail(weight, "has a size that is not a constant");
      values.push_back(*value);
    }
    return values;
  }

  /// The tensor on a weight's record: this instance's own copy where the
  /// program writes a weight that lies in it, so that weights that share memory
  /// still do.
  const Tensor &record(const plan::Weight &weight) {
    if (!written.count(weight.record))
      return mapped(weight);
    Tensor &copy = copies[weight.record];
    if (!copy) {
      TensorImpl *tensor = nullptr;
      if (torchApi().clonePreservingStrides(mapped(weight).get(), &tensor))
        failed();
      copy = Tensor(tensor);
    }
    return copy;
  }

  const Tensor &mapped(const plan::Weight &weight) {
    auto it = records.find(weight.record);
    if (it != records.end())
      return it->second;
    const Record *entry = archive.find(weight.record);
    if (!entry)
      fail(weight, "has no record '" + weight.record + "' in the archive");
    // What the tensor keeps alive: the mapping, or the inflated bytes.
    struct Owner {
      std::shared_ptr<void> mapping;
      std::string inflated;
    };
    auto owner = std::make_unique<Owner>();
    void *data = nullptr;
    if (entry->deflated) {
      owner->inflated = archive.read(weight.record);
      data = owner->inflated.data();
    } else {
      owner->mapping = archive.mapping();
      data = archive.bytes(*entry).data();
    }
    int64_t size = int64_t(entry->size), stride = 1;
    TensorImpl *tensor = nullptr;
    if (torchApi().fromBlob(
            data, size, int16_t(DType::U8), 1, &size, &stride,
            [](void *context) { delete static_cast<Owner *>(context); },
            owner.get(), &tensor))
      failed();
    owner.release();
    return records.emplace(weight.record, Tensor(tensor)).first->second;
  }

  const Archive &archive;
  const std::vector<SymExpr> &exprs;
  std::map<std::string, Tensor> &records;
  std::set<std::string> written; // records that the program writes
  std::map<std::string, Tensor> copies;
};

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
        archive.read("data/intarsia/libraries/" + library.name), library.hash,
        cacheDirectory);
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
  } catch (const Error &) {
    throw;
  } catch (const std::runtime_error &error) {
    throw Error(ErrorKind::Load, "'" + path + "': " + error.what());
  }
}

static plan::Metadata readMetadata(const Archive &archive) {
  const std::string &path = archive.path();
  if (!archive.find("data/intarsia/metadata.json"))
    throw Error(ErrorKind::Load,
                "'" + path +
                    "' is not a compiled artifact: it has no record "
                    "data/intarsia/metadata.json. Run intarsia-compile on it "
                    "first.");
  plan::Metadata metadata =
      plan::metadataFromJson(archive.read("data/intarsia/metadata.json"));
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
  return metadata;
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
  auto archive = std::make_unique<Archive>(program);
  if (archive->digest("data/intarsia/") != metadata.programDigest)
    throw Error(ErrorKind::Load,
                "'" + path + "' is the code of another '" + program +
                    "': that file has changed. Compile it again.");
  return archive;
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
    std::string folder = "data/intarsia/" + target.folder + "/";
    shared->plan = plan::fromJson(archive.read(folder + "plan.json"));
    if (!metadata.program.empty())
      shared->weightArchive = openProgram(path, metadata);

    for (const std::string &library : options.operatorLibraries)
      loadOperatorLibrary(library);
    loadBundled(archive, metadata, shared->plan.operators,
                options.cacheDirectory);
    checkOperators(shared->plan.operators, path);

    shared->options = options.program;
    shared->options.ownAutocast = true;
    if (!shared->plan.kernels.empty()) {
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

/// Tied weights have several names and one place.
static std::string placeOf(const plan::Weight &weight) {
  std::string place = weight.record.empty() ? weight.name : weight.record;
  place += " " + std::to_string(weight.storageOffset) + " " +
           std::string(dtypeName(weight.spec.dtype));
  for (const auto *list : {&weight.spec.sizes, &weight.spec.strides}) {
    place += ";";
    for (plan::ExprId id : *list)
      place += " " + std::to_string(id);
  }
  return place;
}

std::unique_ptr<Program>
Model::Shared::instantiate(const std::map<std::string, Tensor> &replaced) {
  std::vector<Value> weights;
  struct Release {
    std::vector<Value> &values;
    ~Release() {
      for (Value &value : values)
        release(value);
    }
  } guard{weights};
  {
    std::lock_guard<std::mutex> lock(mutex);
    WeightReader reader(weightArchive ? *weightArchive : *archive, plan,
                        records);
    std::map<std::string, std::pair<std::string, Tensor>> byPlace;
    for (const plan::Weight &weight : plan.weights)
      if (auto given = replaced.find(weight.name); given != replaced.end()) {
        auto [entry, isNew] = byPlace.try_emplace(placeOf(weight), *given);
        if (!isNew && entry->second.second.data() != given->second.data())
          throw Error(ErrorKind::Guard,
                      "weights '" + entry->second.first + "' and '" +
                          weight.name +
                          "' are one tensor: replace them by one");
      }
    for (size_t i = 0; i < plan.weights.size(); ++i) {
      const plan::Weight &weight = plan.weights[i];
      if (auto given = byPlace.find(placeOf(weight)); given != byPlace.end())
        weights.push_back(reader.checked(weight, given->second.second));
      else if (!weight.record.empty())
        weights.push_back(reader.read(weight));
      else if (options.weight)
        weights.push_back(options.weight(i));
      else
        throw Error(ErrorKind::Load, "'" + path + "': weight '" + weight.name +
                                         "' has no record in the archive");
    }
  }
  Program::Options own = options;
  own.weight = [&weights](size_t i) {
    return std::exchange(weights[i], Value());
  };
  return Program::create(plan, std::move(own));
}

std::unique_ptr<Model>
Model::instance(const std::map<std::string, Tensor> &weights) const {
  Shared &shared = *impl->shared;
  return reporting(shared.path, [&] {
    for (const auto &[name, tensor] : weights)
      weight(name); // throws for one that does not exist
    std::unique_ptr<Model> model(new Model());
    model->impl->program = shared.instantiate(weights);
    model->impl->shared = impl->shared;
    return model;
  });
}

std::vector<std::string> Model::weightNames() const {
  std::vector<std::string> names;
  for (const plan::Weight &weight : impl->shared->plan.weights)
    names.push_back(weight.name);
  return names;
}

Tensor Model::weight(const std::string &name) const {
  std::vector<std::string> names = weightNames();
  auto it = std::find(names.begin(), names.end(), name);
  std::string list;
  for (const std::string &known : names)
    list += (list.empty() ? "" : ", ") + known;
  if (it == names.end())
    throw Error(ErrorKind::Guard,
                "the program has no weight '" + name + "'; it has: " + list);
  Value value = retain(program().weight(size_t(it - names.begin())));
  return Tensor(value.tensor);
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
    case plan::Input::Kind::Constant: {
      // Fixed at export: there is one value that they can have.
      const plan::Arg &constant = input.constant;
      if (constant.kind == plan::Arg::Kind::Int)
        values.push_back(Value::of(constant.integer));
      else if (constant.kind == plan::Arg::Kind::Float)
        values.push_back(Value::of(constant.real));
      else if (constant.kind == plan::Arg::Kind::Bool)
        values.push_back(Value::of(constant.boolean));
      else if (constant.kind == plan::Arg::Kind::String)
        values.push_back(Value::of(torchApi().boxString(constant.text)));
      else
        values.push_back(Value());
      break;
    }
    default:
      throw Error(ErrorKind::Guard,
                  "input \"" + input.name +
                      "\" is a number; call program().run to pass it");
    }
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].kind == Value::Kind::Tensor && !values[i].tensor)
      throw Error(ErrorKind::Guard,
                  "input \"" + program.input(i).name + "\": an empty Tensor");
  std::vector<Value> outputs(program.outputCount());
  program.run(values.data(), values.size(), outputs.data(), outputs.size());
  std::vector<Tensor> tensors;
  for (Value &value : outputs) {
    if (value.kind == Value::Kind::Tensor) {
      tensors.emplace_back(value.tensor);
      continue;
    }
    // A number, as a tensor without dimensions; None as an empty Tensor.
    Tensor scalar;
    if (value.kind == Value::Kind::Int) {
      scalar = Tensor::empty(DType::I64, {});
      *static_cast<int64_t *>(scalar.data()) = value.integer;
    } else if (value.kind == Value::Kind::Float) {
      scalar = Tensor::empty(DType::F64, {});
      *static_cast<double *>(scalar.data()) = value.real;
    } else if (value.kind == Value::Kind::Bool) {
      scalar = Tensor::empty(DType::Bool, {});
      *static_cast<bool *>(scalar.data()) = value.boolean;
    }
    release(value);
    tensors.push_back(std::move(scalar));
  }
  return tensors;
}
