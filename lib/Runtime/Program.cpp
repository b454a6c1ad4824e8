//===- Program.cpp - Making a plan ready to run
//-------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// `Program::create`: compiles the expressions of a plan, verifies it, loads its
// kernels, resolves its operators and takes over its weights. All that can be
// found wrong before the first call is found here.
//
//===----------------------------------------------------------------------===//

#include "CudaCode.h"
#include "LoadTorch.h"
#include "ProgramImpl.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace intarsia;
using namespace intarsia::runtime;

void intarsia::runtime::release(Value &value) {
  if (value.kind == Value::Kind::Tensor)
    torchApi().release(value.tensor);
  else if (value.kind == Value::Kind::Boxed)
    torchApi().releaseBoxed(value.boxed);
  value = Value();
}

Value intarsia::runtime::retain(const Value &value) {
  if (value.kind == Value::Kind::Tensor)
    torchApi().retain(value.tensor);
  else if (value.kind == Value::Kind::Boxed)
    return Value::of(torchApi().copyBoxed(value.boxed));
  return value;
}

Program::Impl::~Impl() {
  for (PreparedCall *call : calls)
    torch->destroyCall(call);
  for (Value &weight : weights)
    release(weight);
  if (kernels)
    dlclose(kernels);
}

Program::Program() : impl(std::make_unique<Impl>()) {}
Program::~Program() = default;

namespace {

/// Resolves one function of the plan.
class FunctionBuilder {
public:
  FunctionBuilder(Program::Impl &impl, FunctionPlan &out)
      : impl(impl), torch(*impl.torch), out(out), function(*out.function) {}

  /// Everything that verification needs.
  void buildInputs() {
    out.exprs = ExprTable(function);
    std::vector<bool> bound(function.symbols.size(), false);
    bool isEntry = &function == &impl.plan.functions[0];
    for (size_t i = 0; i < function.inputs.size(); ++i) {
      const plan::Input &input = function.inputs[i];
      InputPlan plan;
      plan.input = &input;
      if (input.spec) {
        plan.spec = spec(*input.spec);
        for (uint32_t d = 0; d < plan.spec->dim; ++d)
          bindExtent(out.extents[plan.spec->first + d],
                     {-1, i, int32_t(d), false}, bound);
      }
      if (input.symbol >= 0) {
        if (size_t(input.symbol) >= bound.size())
          malformed("input '" + input.name + "' binds no symbol");
        if (bound[size_t(input.symbol)])
          plan.rebinds = true;
        else
          out.binders.push_back({input.symbol, i, -1, false});
        bound[size_t(input.symbol)] = true;
      }
      if (isEntry && !input.weight.empty()) {
        for (size_t w = 0; w < impl.plan.weights.size(); ++w)
          if (impl.plan.weights[w].name == input.weight)
            plan.weight = int64_t(w);
        if (plan.weight < 0)
          malformed("there is no weight '" + input.weight + "'");
        // What is packed has no strides, and nobody gives it.
        if (!impl.plan.weights[size_t(plan.weight)].packedFrom.empty())
          plan.spec.reset();
      }
      out.inputs.push_back(std::move(plan));
    }
    // Sizes bind before strides: the usual stride is an expression over sizes.
    for (size_t i = 0; i < out.inputs.size(); ++i)
      if (const std::optional<SpecPlan> &spec = out.inputs[i].spec)
        for (uint32_t d = 0; d < spec->dim; ++d)
          bindExtent(out.extents[spec->first + spec->dim + d],
                     {-1, i, int32_t(d), true}, bound);
  }

  /// After verification.
  void buildSteps() {
    std::map<plan::Slot, int32_t> arenaAllocs;
    for (const plan::Step &step : function.steps) {
      StepPlan plan;
      plan.step = &step;
      switch (step.kind) {
      case plan::Step::Kind::Call:
        plan.call = prepare(step);
        break;
      case plan::Step::Kind::Launch:
        resolve(impl.plan.kernels[size_t(step.kernel)], plan);
        plan.recordName =
            "intarsia::" + impl.plan.kernels[size_t(step.kernel)].symbol;
        for (plan::Slot slot : step.buffers) {
          auto found = arenaAllocs.find(slot);
          plan.arenaAllocs.push_back(
              found == arenaAllocs.end() ? -1 : found->second);
        }
        break;
      case plan::Step::Kind::LaunchForeign: {
        const plan::Kernel &kernel = impl.plan.kernels[size_t(step.kernel)];
        plan.recordName = kernel.symbol;
        resolveForeign(kernel, plan);
        for (const plan::Arg &arg : step.args)
          if (arg.kind == plan::Arg::Kind::Slot)
            plan.tensors.push_back(arg.slot);
        break;
      }
      case plan::Step::Kind::Alloc:
        if (step.offset >= 0)
          arenaAllocs[step.slot] = int32_t(out.instructions.size());
        break;
      case plan::Step::Kind::SetGrad:
        out.setsGrad = true;
        break;
      case plan::Step::Kind::Autocast: {
        int8_t index = 0;
        if (impl.torch->parseDevice(step.text.c_str(), &plan.autocastDevice,
                                    &index))
          throw Error(ErrorKind::Load, "autocast of the device type '" +
                                           step.text + "', which is unknown");
        break;
      }
      case plan::Step::Kind::Python:
        if (!impl.options.python)
          throw Error(
              ErrorKind::Load,
              stepName(impl.plan, step) +
                  " needs Python, which this process does not run" +
                  (step.location.empty() ? "" : " (" + step.location + ")"));
        break;
      default:
        break;
      }
      for (const std::string &name : step.functions)
        plan.functions.push_back(impl.byName.at(name));
      if (step.kind != plan::Step::Kind::Call)
        for (const plan::Result &result : step.results)
          collect(result, plan.results);
      addInstruction(plan);
      out.steps.push_back(std::move(plan));
    }
  }

private:
  [[noreturn]] void malformed(const std::string &what) const {
    throw Error(ErrorKind::Internal,
                "malformed plan: function '" + function.name + "': " + what);
  }

  /// For the step that will be the next one.
  void addInstruction(const StepPlan &plan) {
    using Kind = plan::Step::Kind;
    const plan::Step &step = *plan.step;
    if (step.kind == Kind::Free && !out.instructions.empty() &&
        out.instructions.back().step + 1 == out.steps.size()) {
      Instruction &before = out.instructions.back();
      before.freeCount = uint32_t(step.slots.size());
      before.firstFreed = uint32_t(out.freed.size());
      out.freed.insert(out.freed.end(), step.slots.begin(), step.slots.end());
      return;
    }
    Instruction &instruction = out.instructions.emplace_back();
    instruction.call = plan.call;
    instruction.kind = step.kind;
    instruction.step = uint32_t(out.steps.size());
    if (step.kind == Kind::Alloc || step.kind == Kind::View) {
      instruction.slot = step.slot;
      instruction.source = step.source;
      instruction.spec = spec(*step.spec);
      if (step.offset >= 0)
        instruction.offset = extent(step.offset);
      instruction.isInArena = step.kind == Kind::Alloc && step.offset >= 0;
    }
  }

  Extent extent(plan::ExprId id) const {
    if (id < 0 || size_t(id) >= out.exprs.size())
      malformed("there is no expression " + std::to_string(id));
    Extent extent;
    if (out.exprs.isConstant(id))
      extent.constant = out.exprs.integer(id, nullptr);
    else
      extent.expr = id;
    return extent;
  }

  SpecPlan spec(const plan::TensorSpec &spec) {
    SpecPlan plan;
    plan.dim = uint32_t(spec.sizes.size());
    plan.first = uint32_t(out.extents.size());
    plan.dtype = int16_t(spec.dtype);
    if (torch.parseDevice(spec.device.c_str(), &plan.deviceType,
                          &plan.deviceIndex))
      throwShimError();
    for (plan::ExprId id : spec.sizes)
      out.extents.push_back(extent(id));
    for (plan::ExprId id : spec.strides)
      out.extents.push_back(extent(id));
    return plan;
  }

  void bindExtent(Extent &extent, Binder binder, std::vector<bool> &bound) {
    if (extent.expr < 0)
      return;
    int32_t symbol = out.exprs.bareSymbol(extent.expr);
    if (symbol < 0 || bound[size_t(symbol)])
      return;
    bound[size_t(symbol)] = true;
    extent.binds = symbol;
    binder.symbol = symbol;
    out.binders.push_back(binder);
  }

  void collect(const plan::Result &result,
               std::vector<StepPlan::Leaf> &leaves) {
    if (result.kind == plan::Result::Kind::List) {
      for (const plan::Result &member : result.list)
        collect(member, leaves);
      return;
    }
    StepPlan::Leaf leaf{&result, std::nullopt};
    if (result.spec)
      leaf.spec = spec(*result.spec);
    leaves.push_back(std::move(leaf));
  }

  PreparedCall *prepare(const plan::Step &step) {
    CallSite site{};
    site.step = &step;
    for (const plan::Operator &op : impl.plan.operators)
      if (op.name == step.op)
        site.record = &op;
    site.exprs = &out.exprs;
    site.symbols = &function.symbols;
    site.strict = impl.plan.strict;
    site.products = impl.plan.products;
    if (impl.options.boxObject) {
      site.boxContext = &impl.options.boxObject;
      site.boxObject = [](void *context, int64_t index, const void *type,
                          std::string *error) {
        using Box = decltype(Program::Options::boxObject);
        return (*static_cast<Box *>(context))(index, type, error);
      };
    }
    PreparedCall *call = nullptr;
    if (torch.prepareCall(&site, &call)) {
      Error failure(torch.lastError()->kind, torch.lastError()->message);
      failure.cause = std::move(torch.lastError()->cause);
      failure.op = step.op;
      failure.location = step.location;
      throw failure;
    }
    impl.calls.push_back(call);
    return call;
  }

  void resolve(const plan::Kernel &kernel, StepPlan &step) {
    if (kernel.target == "cpu") {
      step.kernel = cpuKernel(kernel);
      return;
    }
    if (kernel.target != "cuda")
      throw Error(ErrorKind::Load, "kernel " + kernel.symbol +
                                       " is for target '" + kernel.target +
                                       "', which this runtime cannot launch");
    step.cudaKernel = &cudaCode().kernel(kernel.symbol);
    if (!kernel.wideSymbol.empty())
      step.wideKernel = &cudaCode().kernel(kernel.wideSymbol);
    if (!kernel.checks.empty())
      step.status = out.statusCount++;
  }

  const CudaCode &cudaCode() const {
    if (!impl.options.cuda)
      throw Error(ErrorKind::Load, "the plan has kernels for CUDA, but their "
                                   "code was not given");
    return *impl.options.cuda;
  }

  void resolveForeign(const plan::Kernel &kernel, StepPlan &step) const {
    for (const plan::Kernel::Variant &variant : kernel.variants) {
      ForeignVariant &added = step.variants.emplace_back();
      added.kernel = &cudaCode().kernel(variant.symbol, variant.module);
      added.threads = variant.threads;
      added.scratch = variant.scratch;
      for (const std::string &text : variant.parameters)
        added.parameters.push_back(*ForeignParameter::parse(text));
    }
  }

  IntarsiaKernel cpuKernel(const plan::Kernel &kernel) {
    if (impl.options.kernel) {
      if (void *address = impl.options.kernel(kernel.symbol))
        return reinterpret_cast<IntarsiaKernel>(address);
      throw Error(ErrorKind::Load, "there is no code of kernel " +
                                       kernel.symbol +
                                       ": it belongs to another plan");
    }
    if (!impl.kernels) {
      const std::string &path = impl.options.kernelLibrary;
      if (path.empty())
        throw Error(ErrorKind::Load,
                    "the plan has compiled kernels, but no kernel library was "
                    "given");
      impl.kernels = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!impl.kernels) {
        const char *reason = dlerror();
        throw Error(ErrorKind::Load, "the compiled kernels cannot be loaded: " +
                                         std::string(reason ? reason : path));
      }
    }
    void *address = dlsym(impl.kernels, kernel.symbol.c_str());
    if (!address)
      throw Error(ErrorKind::Load, "the kernel library " +
                                       impl.options.kernelLibrary +
                                       " does not define " + kernel.symbol +
                                       ": it belongs to another plan");
    return reinterpret_cast<IntarsiaKernel>(address);
  }

  Program::Impl &impl;
  const TorchApi &torch;
  FunctionPlan &out;
  const plan::Function &function;
};

} // namespace

std::set<int> intarsia::runtime::cudaDevices(const plan::Plan &plan) {
  std::set<int> devices;
  auto use = [&](const std::optional<plan::TensorSpec> &spec) {
    if (!spec || spec->device.rfind("cuda", 0) != 0)
      return;
    size_t colon = spec->device.find(':');
    devices.insert(colon == std::string::npos
                       ? 0
                       : std::atoi(spec->device.c_str() + colon + 1));
  };
  for (const plan::Function &function : plan.functions) {
    for (const plan::Input &input : function.inputs)
      use(input.spec);
    for (const plan::Step &step : function.steps) {
      use(step.spec);
      for (const plan::Result &result : step.results)
        use(result.spec);
    }
  }
  return devices;
}

std::unique_ptr<Program> Program::create(plan::Plan plan, Options options) {
  std::unique_ptr<Program> program(new Program());
  Impl &impl = *program->impl;
  impl.plan = std::move(plan);
  impl.options = std::move(options);
  impl.torch = &torchApi();
  if (impl.plan.functions.empty())
    throw Error(ErrorKind::Internal, "malformed plan: there is no function");
  impl.cudaDevices = cudaDevices(impl.plan);
  if (!impl.cudaDevices.empty())
    loadTorchCuda();

  for (const plan::Function &function : impl.plan.functions) {
    FunctionPlan &out = impl.functions.emplace_back();
    out.function = &function;
    if (!impl.byName.emplace(function.name, &out).second)
      throw Error(ErrorKind::Internal,
                  "malformed plan: two functions '" + function.name + "'");
    FunctionBuilder(impl, out).buildInputs();
  }
  verify(impl.plan, impl.functions);
  for (FunctionPlan &function : impl.functions)
    FunctionBuilder(impl, function).buildSteps();

  for (size_t i = 0; i < impl.plan.weights.size(); ++i) {
    if (!impl.options.weight)
      throw Error(ErrorKind::Load, "the plan has weights, but none were given");
    impl.weights.push_back(impl.options.weight(i));
  }

  const FunctionPlan &entry = impl.functions[0];
  for (size_t i = 0; i < entry.inputs.size(); ++i)
    if (entry.inputs[i].weight < 0)
      impl.userInputs.push_back(i);
  for (size_t i = 0; i < entry.function->outputs.size(); ++i) {
    using Kind = plan::OutputInfo::Kind;
    if (impl.plan.outputs.empty() || impl.plan.outputs[i].kind == Kind::User) {
      impl.userOutputs.push_back(i);
      continue;
    }
    const plan::OutputInfo &info = impl.plan.outputs[i];
    bool found = false;
    for (size_t input = 0; input < entry.inputs.size() && !found; ++input) {
      const plan::Input &candidate = *entry.inputs[input].input;
      found = info.kind == Kind::BufferMutation
                  ? candidate.weight == info.target
                  : candidate.name == info.target;
      if (found)
        impl.copyBacks.push_back({i, input});
    }
    if (!found)
      throw Error(ErrorKind::Internal,
                  "malformed plan: output " + std::to_string(i) +
                      " is the new value of '" + info.target +
                      "', which is not an input");
  }
  return program;
}

const plan::Plan &Program::plan() const { return impl->plan; }
size_t Program::inputCount() const { return impl->userInputs.size(); }
size_t Program::outputCount() const { return impl->userOutputs.size(); }
const plan::Input &Program::input(size_t index) const {
  return *impl->functions[0].inputs[impl->userInputs[index]].input;
}
Value Program::weight(size_t index) const { return impl->weights[index]; }
