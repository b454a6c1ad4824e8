//===- Compiler.cpp - The compiler as a library ---------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs the stages one after the other: import, lower, fuse, kernels, plan.
// With `fuse` off, nothing but import and the plan happens. Every compilation
// has a context of its own and no threads but the caller's, so that many can
// run at once.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Compiler/Compiler.h"

#include "dialects/Graph/Graph.h"
#include "intarsia/Import/Import.h"
#include "intarsia/Target/Cubin.h"
#include "intarsia/Target/Kernels.h"
#include "intarsia/Target/PTX.h"
#include "passes/Passes.h"
#include "passes/Plan/PlanBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Base64.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace mlir;

namespace intarsia {

const char *version() { return INTARSIA_VERSION; }

std::string_view stageName(Stage stage) {
  switch (stage) {
  case Stage::Imported:
    return "imported";
  case Stage::Lowered:
    return "lowered";
  case Stage::Fused:
    return "fused";
  case Stage::Plan:
    return "plan";
  case Stage::Kernels:
    return "kernels";
  case Stage::LLVM:
    return "llvm";
  case Stage::Assembly:
    return "asm";
  case Stage::PTX:
    return "ptx";
  }
  return "";
}

namespace {

/// The file of a stage in `dumpDir`; assembly is made on demand only.
StringRef dumpFile(Stage stage) {
  switch (stage) {
  case Stage::Imported:
    return "imported.mlir";
  case Stage::Lowered:
    return "lowered.mlir";
  case Stage::Fused:
    return "fused.mlir";
  case Stage::Plan:
    return "plan.txt";
  case Stage::Kernels:
    return "kernels.mlir";
  case Stage::LLVM:
    return "llvm.ll";
  case Stage::Assembly:
    return "";
  case Stage::PTX:
    return "kernels.ptx";
  }
  return "";
}

/// One compilation.
class Compilation {
public:
  Compilation(const importer::Program &program, const CompileOptions &options,
              const importer::SchemaProvider &schemas)
      : program(program), options(options), schemas(schemas),
        context(MLIRContext::Threading::DISABLED),
        handler(&context, [this](Diagnostic &diagnostic) {
          collect(diagnostic);
          return success();
        }) {
    context.loadDialect<graph::GraphDialect, func::FuncDialect>();
    // Users know their source's lines, not our operations.
    context.printOpOnDiagnostic(false);
    targetOptions.cpu = options.cpu;
    targetOptions.features = options.features;
  }

  CompiledProgram run() {
    extractImages();
    if (options.numerics != "eager" && options.numerics != "fused")
      throw CompileError("numerics is \"eager\" or \"fused\", not \"" +
                         options.numerics + "\"");
    if (!plan::productsFromName(options.products))
      throw CompileError(
          "products is \"auto\", \"eager\" or \"onednn\", not \"" +
          options.products + "\"");
    if (options.target != "cpu" && options.target != "cuda")
      throw CompileError("the target is \"cpu\" or \"cuda\", not \"" +
                         options.target + "\"");
    if (!options.emulate.empty() && options.emulate != "cuda")
      throw CompileError("what is emulated is \"cuda\", not \"" +
                         options.emulate + "\"");
    if (options.freeze && !options.fuse)
      throw CompileError("with `fuse` off every node is a call: nothing is "
                         "frozen");
    if (options.target == "cuda" && !options.fuse)
      throw CompileError("with `fuse` off every node is a call: there are no "
                         "kernels to make for CUDA");
    if (options.target == "cuda" && !isOnCUDA())
      throw CompileError(
          "no tensor of the program is on CUDA, so there is nothing to make "
          "kernels of: export it with tensors on cuda:0 (those of a "
          "FakeTensorMode need no GPU), or move it with --retarget cpu=cuda:0");
    importProgram();
    if (options.fuse)
      makeKernels();
    makePlan();
    return std::move(result);
  }

private:
  /// Takes the code of other compilers' kernels out of the program.
  void extractImages() {
    auto launches = [](const importer::Graph &graph) {
      return llvm::any_of(graph.nodes, [](const importer::Node &node) {
        return node.target == importer::launchKernelOperator;
      });
    };
    if (!launches(program.graph) &&
        llvm::none_of(program.graphs, [&](const auto &entry) {
          return launches(entry.second);
        }))
      return;
    stripped = program;
    extractImages(stripped->graph);
    for (auto &[name, graph] : stripped->graphs)
      extractImages(graph);
  }

  void extractImages(importer::Graph &graph) {
    for (importer::Node &node : graph.nodes) {
      if (node.target != importer::launchKernelOperator || node.args.empty())
        continue;
      std::string &text = node.args[0].second.text;
      llvm::Expected<llvm::json::Value> json = llvm::json::parse(text);
      if (!json)
        throw CompileError("the description of a kernel is malformed: " +
                           llvm::toString(json.takeError()));
      if (llvm::json::Object *object = json->getAsObject())
        if (llvm::json::Array *variants = object->getArray("variants"))
          for (llvm::json::Value &variant : *variants)
            if (llvm::json::Object *fields = variant.getAsObject())
              extractImages(*fields);
      text = llvm::formatv("{0}", *json).str();
    }
  }

  void extractImages(llvm::json::Object &variant) {
    std::string module = variant.getString("module").value_or("").str();
    const llvm::json::Array *images = variant.getArray("images");
    bool isNew =
        llvm::none_of(result.cudaImages, [&](const runtime::CudaImage &image) {
          return image.module == module;
        });
    if (images && isNew)
      for (const llvm::json::Value &value : *images) {
        const llvm::json::Object *entry = value.getAsObject();
        std::optional<StringRef> arch, code;
        if (entry) {
          arch = entry->getString("arch");
          code = entry->getString("code");
        }
        std::vector<char> bytes;
        if (!arch || !code ||
            llvm::errorToBool(llvm::decodeBase64(*code, bytes)))
          throw CompileError("the code of kernel " + module + " is malformed");
        runtime::CudaImage image{
            arch->str(), entry->getBoolean("ptx").value_or(false),
            std::string(bytes.begin(), bytes.end()), module,
            entry->getInteger("shared").value_or(0)};
        if (image.code.empty()) {
          auto known = llvm::find_if(
              options.foreignImages, [&](const runtime::CudaImage &other) {
                return std::tie(other.module, other.arch, other.isPtx) ==
                       std::tie(image.module, image.arch, image.isPtx);
              });
          if (known == options.foreignImages.end())
            throw CompileError("the code of kernel " + module + " for " +
                               image.arch + " is not in the file");
          image.code = known->code;
        }
        result.cudaImages.push_back(std::move(image));
      }
    variant.erase("images");
  }

  void importProgram() {
    timed("import", [&] {
      llvm::Expected<OwningOpRef<ModuleOp>> built = importer::buildModule(
          stripped ? *stripped : program, &context, schemas);
      if (!built)
        throw CompileError(llvm::toString(built.takeError()));
      module = std::move(*built);
      if (failed(verify(*module)))
        fail("the imported program is malformed");
    });
    show(Stage::Imported, [&] { return text(*module); });
  }

  /// Takes what depends on weights alone out of the program.
  void freeze() {
    timed("freeze", [&] {
      runPasses("freezing", [&](OpPassManager &manager) {
        manager.addPass(createFreezeWeights());
        if (options.target == "cpu" && options.products != "eager")
          manager.addPass(createPackWeights());
      });
      auto frozen = module->lookupSymbol<ModuleOp>("frozen");
      if (!frozen)
        return;
      // Each node is a call there: the results are eager's.
      frozen->remove();
      OwningOpRef<ModuleOp> owned(frozen);
      PassManager manager(&context);
      buildPlanPipeline(manager, /*reuse=*/false);
      if (failed(manager.run(frozen)))
        fail("planning of the frozen part failed");
      PlanOptions planOptions;
      planOptions.stridedViews = planOptions.arena = false;
      planOptions.products = plan::Products::Eager;
      FailureOr<plan::Plan> built = buildPlan(frozen, planOptions);
      if (failed(built))
        fail("planning of the frozen part failed");
      result.frozen = std::move(*built);
    });
  }

  void lowerAndFuse(const PipelineOptions &pipeline) {
    timed("normalise", [&] {
      runPasses("normalisation", [&](OpPassManager &manager) {
        buildNormalisePipeline(manager);
      });
    });
    if (options.freeze)
      freeze();
    timed("lower", [&] {
      runPasses("lowering", [&](OpPassManager &manager) {
        buildLowerPipeline(manager, pipeline);
      });
    });
    show(Stage::Lowered, [&] { return text(*module); });
    timed("fuse", [&] {
      runPasses("fusion", [&](OpPassManager &manager) {
        buildFusePipeline(manager, pipeline);
      });
    });
    show(Stage::Fused, [&] { return text(*module); });
  }

  bool isOnCUDA() const {
    auto has = [](const importer::Graph &graph) {
      return llvm::any_of(graph.values, [](const auto &entry) {
        const importer::ValueMeta &meta = entry.second;
        return meta.kind == importer::ValueMeta::Kind::Tensor &&
               StringRef(meta.tensor.device).starts_with("cuda");
      });
    };
    return has(program.graph) ||
           llvm::any_of(program.graphs,
                        [&](const auto &entry) { return has(entry.second); });
  }

  /// After the CPU's kernels have left the module.
  void makeCUDAKernels(const PipelineOptions &pipeline) {
    timed("CUDA", [&] {
      runPasses("kernel generation", [&](OpPassManager &manager) {
        buildCUDAPipeline(manager, pipeline);
      });
    });
    auto kernels = module->lookupSymbol<gpu::GPUModuleOp>("kernels");
    if (!kernels) {
      if (options.observedStage == Stage::PTX)
        throw CompileError("the program has no kernels for CUDA: none of its "
                           "operators on CUDA has a lowering");
      return;
    }
    show(Stage::Kernels, [&] { return text(kernels); });
    try {
      emitCUDACode();
    } catch (const TargetError &error) {
      throw CompileError(std::string("code generation failed: ") +
                         error.what());
    }
    kernels.erase();
  }

  void emitCUDACode() {
    std::vector<std::string> texts;
    timed("PTX", [&] {
      for (const std::string &arch : options.archs)
        texts.push_back(emitPTX(*module, arch));
    });
    show(Stage::PTX, [&] { return llvm::join(texts, ""); });
    std::string ptxas = options.cubins ? findPtxas() : "";
    // For the GPUs that come later one text is enough.
    const std::string *latest = nullptr;
    for (const std::string &arch : options.archs)
      if (!isSpecificArch(arch) &&
          (!latest || archNumber(arch) > archNumber(*latest)))
        latest = &arch;
    timed("ptxas", [&] {
      for (auto [arch, ptx] : llvm::zip_equal(options.archs, texts)) {
        if (!ptxas.empty())
          result.cudaImages.push_back(
              {arch, /*isPtx=*/false, assembleCubin(ptxas, ptx, arch)});
        if (ptxas.empty() || &arch == latest)
          result.cudaImages.push_back({arch, /*isPtx=*/true, std::move(ptx)});
      }
    });
  }

  void makeKernels() {
    ResolvedTarget target;
    try {
      target = resolveTarget(targetOptions);
    } catch (const TargetError &error) {
      throw CompileError(error.what());
    }
    PipelineOptions pipeline;
    pipeline.numerics = options.numerics;
    pipeline.vectorBits = target.vectorBits;
    pipeline.fma = target.has("fma");
    pipeline.f16c = target.has("f16c");
    pipeline.avx512 = target.has("avx512f");
    pipeline.emulated = !options.emulate.empty();
    if (options.target == "cuda")
      pipeline.devices = {"cpu", "cuda"};
    lowerAndFuse(pipeline);
    makeCPUKernels(pipeline);
    if (options.target == "cuda")
      makeCUDAKernels(pipeline);
  }

  void makeCPUKernels(const PipelineOptions &pipeline) {
    timed("kernels", [&] {
      runPasses("kernel generation", [&](OpPassManager &manager) {
        if (options.emulate.empty())
          buildCPUPipeline(manager, pipeline);
        else
          buildSIMTPipeline(manager, pipeline);
      });
    });
    auto kernels = module->lookupSymbol<ModuleOp>("kernels");
    if (!kernels)
      return;
    show(Stage::Kernels, [&] { return text(kernels); });
    try {
      show(Stage::LLVM, [&] {
        return emitText(kernels, targetOptions, TextForm::OptimizedLLVMIR);
      });
      show(Stage::Assembly, [&] {
        return emitText(kernels, targetOptions, TextForm::Assembly);
      });
      timed("code", [&] {
        KernelCode code = compileKernels(kernels, targetOptions);
        result.sharedObject = std::move(code.sharedObject);
        result.sharedObjectPath = std::move(code.path);
        result.memoryKernels = std::move(code.memory);
        result.cpu = code.target.cpu;
        result.cpuFeatures = std::move(code.target.requiredFeatures);
      });
    } catch (const TargetError &error) {
      throw CompileError(std::string("code generation failed: ") +
                         error.what());
    }
    kernels.erase();
  }

  void makePlan() {
    timed("plan", [&] {
      runPasses("planning", [&](OpPassManager &manager) {
        buildPlanPipeline(manager, /*reuse=*/options.fuse);
      });
      PlanOptions planOptions;
      planOptions.stridedViews = options.fuse;
      planOptions.arena = options.fuse;
      planOptions.strict = options.strict;
      planOptions.products = *plan::productsFromName(options.products);
      FailureOr<plan::Plan> built = buildPlan(*module, planOptions);
      if (failed(built))
        fail("planning failed");
      result.plan = std::move(*built);
      describeOperators();
    });
    show(Stage::Plan, [&] { return plan::print(result.plan); });
    for (const plan::Function &function : result.plan.functions)
      for (const plan::Step &step : function.steps) {
        result.callCount += step.kind == plan::Step::Kind::Call;
        result.kernelCount += plan::isLaunch(step);
      }
  }

  /// Says where operators come from, and the fakes that the results of calls
  /// are held against.
  void describeOperators() {
    for (plan::Operator &op : result.plan.operators) {
      std::optional<importer::OperatorSchema> schema = schemas(op.name);
      op.isForeign = schema && schema->isForeign;
      StringRef name = op.name;
      if (name.starts_with("aten::") || name.starts_with("prims::"))
        continue;
      if (options.fakeLocation)
        op.fakeLocation = options.fakeLocation(op.name);
      if (!schema)
        continue;
      op.fromPython = schema->fromPython;
      if (op.fakeLocation.empty())
        op.fakeLocation = schema->fakeLocation;
    }
  }

  void runPasses(const char *what,
                 llvm::function_ref<void(OpPassManager &)> build) {
    PassManager manager(&context);
    build(manager);
    if (failed(manager.run(*module)))
      fail(std::string(what) + " failed");
  }

  void timed(const char *stage, llvm::function_ref<void()> work) {
    if (options.progress)
      options.progress(stage);
    auto start = std::chrono::steady_clock::now();
    work();
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    result.timings.emplace_back(stage, elapsed.count());
  }

  static std::string text(Operation *op) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    op->print(stream, OpPrintingFlags().useLocalScope());
    stream << "\n";
    return text;
  }

  /// Hands a stage's text to whoever asked for it.
  void show(Stage stage, llvm::function_ref<std::string()> make) {
    bool observed = options.observedStage == stage && options.observer;
    StringRef file = dumpFile(stage);
    bool dumped = !options.dumpDir.empty() && !file.empty();
    if (!observed && !dumped)
      return;
    std::string contents = make();
    if (observed)
      options.observer(contents);
    if (!dumped)
      return;
    std::error_code error = llvm::sys::fs::create_directories(options.dumpDir);
    SmallString<128> path(options.dumpDir);
    llvm::sys::path::append(path, file);
    if (!error) {
      llvm::raw_fd_ostream out(path, error);
      if (!error) {
        out << contents;
        out.close();
        error = out.error();
        out.clear_error();
      }
    }
    if (error)
      throw DumpError("cannot write " + path.str().str() + ": " +
                      error.message());
  }

  void collect(Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return;
    if (!errors.empty())
      errors += "\n";
    errors += diagnostic.str();
    std::string line = importer::describeLocation(diagnostic.getLocation());
    if (!line.empty())
      errors += "\n  at " + line;
    for (Diagnostic &note : diagnostic.getNotes())
      errors += "\n  note: " + note.str();
  }

  [[noreturn]] void fail(const std::string &otherwise) {
    throw CompileError(errors.empty() ? otherwise : errors);
  }

  const importer::Program &program;
  /// The same without the code of foreign kernels, where there are any.
  std::optional<importer::Program> stripped;
  const CompileOptions &options;
  const importer::SchemaProvider &schemas;
  MLIRContext context;
  std::string errors;
  ScopedDiagnosticHandler handler;
  TargetOptions targetOptions;
  OwningOpRef<ModuleOp> module;
  CompiledProgram result;
};

} // namespace

CompiledProgram compile(const importer::Program &program,
                        const CompileOptions &options,
                        const importer::SchemaProvider &schemas) {
  return Compilation(program, options, schemas).run();
}

void *lookupKernel(const MemoryKernels &kernels, const std::string &name) {
  return kernels.lookup(name);
}

} // namespace intarsia
