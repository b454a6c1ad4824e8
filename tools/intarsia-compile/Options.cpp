//===- Options.cpp - The command line of intarsia-compile -----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// LLVM's command line library with this tool's options alone: those that LLVM's
// own libraries register are hidden.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace intarsia;
using llvm::StringRef;
namespace cl = llvm::cl;

static cl::OptionCategory category("intarsia-compile options");

static cl::opt<std::string> input(cl::Positional, cl::Required,
                                  cl::desc("MODEL.pt2"), cl::cat(category));
static cl::opt<std::string> output("o", cl::value_desc("file"),
                                   cl::cat(category),
                                   cl::desc("Write the artifact here"));
static cl::list<std::string>
    libraries("op-library", cl::value_desc("lib.so"),
              cl::desc("Load this library of operators first (repeatable)"),
              cl::cat(category));
static cl::opt<bool> noFuse("no-fuse",
                            cl::desc("Make every node a call: no kernels"),
                            cl::cat(category));
static cl::opt<std::string>
    numerics("numerics", cl::init("eager"), cl::value_desc("eager|fused"),
             cl::desc("Round low precision where eager does (eager), or keep "
                      "f32 between implicit casts (fused)"),
             cl::cat(category));
static cl::opt<std::string> products(
    "products", cl::init("auto"), cl::value_desc("auto|eager|onednn"),
    cl::desc("Whose library computes products of float32 matrices on the CPU: "
             "the faster one where the program runs (auto), eager's, or "
             "oneDNN"),
    cl::cat(category));
static cl::list<std::string>
    modules("import", cl::value_desc("module"),
            cl::desc("Python module that registers operators (repeatable); a "
                     "Python process describes them. The artifact runs where "
                     "they are registered: in Python"),
            cl::cat(category));
static cl::opt<bool>
    bundle("bundle-op-libraries",
           cl::desc("Put the operator libraries into the artifact; they are "
                    "loaded from there where an operator is missing"),
           cl::cat(category));
static cl::opt<bool>
    codeOnly("code-only",
             cl::desc("Write a small file without the weights, which stay in "
                      "MODEL.pt2, in the same folder"),
             cl::cat(category));
static cl::list<std::string>
    cpus("cpu", cl::value_desc("name"), cl::CommaSeparated,
         cl::desc("LLVM's name of the processor, such as x86-64-v3; default: "
                  "this machine's. With several, the runtime takes the best "
                  "that the machine is"),
         cl::cat(category));
static cl::opt<std::string> target(
    "target", cl::init("cpu"), cl::value_desc("cpu|cuda"),
    cl::desc("What kernels are made for; cuda: for tensors on CUDA, too"),
    cl::cat(category));
static cl::list<std::string>
    archs("arch", cl::value_desc("name"), cl::CommaSeparated,
          cl::desc("GPUs for --target cuda: sm_80 (default), sm_90, ...; the "
                   "runtime takes the best that a device is. No GPU is needed; "
                   "where ptxas is found, each gets machine code"),
          cl::cat(category));
static cl::opt<std::string>
    retarget("retarget", cl::value_desc("from=to"),
             cl::desc("Move the program to another device first: cpu=cuda:0"),
             cl::cat(category));
static cl::opt<bool>
    freeze("freeze",
           cl::desc("Compute once, now, what depends on weights alone, and put "
                    "it into the artifact. Replacing such a weight computes it "
                    "again"),
           cl::cat(category));
static cl::opt<bool> noFreeze("no-freeze",
                              cl::desc("Compute it in every run (default)"),
                              cl::cat(category));
static cl::opt<std::string>
    dtype("dtype", cl::value_desc("float32|bfloat16|float16"),
          cl::desc("Convert the program first, as module.to(dtype) would: "
                   "floating-point weights, inputs and what is computed of "
                   "them. A Python process does it (INTARSIA_PYTHON)"),
          cl::cat(category));
static cl::opt<bool>
    strict("strict",
           cl::desc("A result whose strides differ from its fake's is an error "
                    "at run time, not a warning"),
           cl::cat(category));
static cl::opt<std::string>
    emit("emit", cl::value_desc("stage"),
         cl::desc("Print the program after a stage, then -o is optional: "
                  "imported, lowered (calls made kernels), fused, plan (the "
                  "host program), kernels (as MLIR), llvm, asm, or ptx (into "
                  "the file of -o, if given)"),
         cl::cat(category));
static cl::opt<std::string>
    dumpDir("dump-dir", cl::value_desc("folder"),
            cl::desc("Write the program after each stage into this folder"),
            cl::cat(category));
static cl::opt<bool> printTiming("print-timing",
                                 cl::desc("Print the time of each stage"),
                                 cl::cat(category));
static cl::opt<bool> force("force", cl::desc("Allow -o to replace the input"),
                           cl::cat(category));

static constexpr Stage stages[] = {
    Stage::Imported, Stage::Lowered, Stage::Fused,    Stage::Plan,
    Stage::Kernels,  Stage::LLVM,    Stage::Assembly, Stage::PTX};

static std::optional<Stage> stageNamed(std::string_view name) {
  for (Stage stage : stages)
    if (name == stageName(stage))
      return stage;
  return std::nullopt;
}

static std::string stageNames() {
  std::string names;
  for (Stage stage : stages)
    names += (names.empty() ? "" : ", ") + std::string(stageName(stage));
  return names;
}

/// Whether a word of the command line is no option; LLVM would guess what was
/// meant among the options of one letter.
static bool isUnknown(StringRef word) {
  if (!word.starts_with("-") || word == "-")
    return false;
  StringRef name = word.ltrim('-').split('=').first;
  StringRef nearest;
  unsigned least = 4;
  for (const auto &[option, about] : cl::getRegisteredOptions()) {
    if (option == name)
      return false;
    if (!llvm::is_contained(about->Categories, &category))
      continue;
    unsigned distance = name.edit_distance(option, true, least);
    if (distance < std::min<size_t>(least, name.size())) {
      least = distance;
      nearest = option;
    }
  }
  llvm::errs() << "intarsia-compile: error: unknown option "
               << word.split('=').first;
  if (!nearest.empty())
    llvm::errs() << " (did you mean " << (nearest.size() > 1 ? "--" : "-")
                 << nearest << "?)";
  llvm::errs() << "; see intarsia-compile --help\n";
  return true;
}

std::optional<OfflineOptions> tool::parseOptions(int argc, char **argv) {
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter([](llvm::raw_ostream &out) {
    out << "intarsia-compile " << version() << "\n";
  });
  for (int i = 1; i < argc && StringRef(argv[i]) != "--"; ++i)
    if (isUnknown(argv[i]))
      return std::nullopt;
  bool parsed = cl::ParseCommandLineOptions(
      argc, argv,
      "Compiles a program that torch.export.save wrote to an artifact that\n"
      "intarsia-run, the C++ API and intarsia.load run.\n\n"
      "exit status: 0 done; 1 the program cannot be compiled; 2 wrong usage;\n"
      "3 the input cannot be read; 4 PyTorch or an operator library cannot be\n"
      "loaded; 5 the output cannot be written (and was not touched)\n",
      &llvm::errs());
  if (!parsed)
    return std::nullopt;
  if (output.empty() && !emit.getNumOccurrences()) {
    llvm::errs() << "intarsia-compile: error: give -o FILE or --emit=STAGE\n";
    return std::nullopt;
  }
  if (freeze && noFreeze) {
    llvm::errs() << "intarsia-compile: error: --freeze and --no-freeze\n";
    return std::nullopt;
  }
  OfflineOptions options;
  if (emit.getNumOccurrences()) {
    options.emit = stageNamed(emit.getValue());
    if (!options.emit) {
      llvm::errs() << "intarsia-compile: error: --emit has no stage '" << emit
                   << "'; stages are " << stageNames() << "\n";
      return std::nullopt;
    }
  }
  options.compile.freeze = freeze;
  options.dtype = dtype;
  options.input = input;
  options.output = output;
  options.operatorLibraries = {libraries.begin(), libraries.end()};
  options.compile.fuse = !noFuse;
  options.compile.numerics = numerics;
  options.compile.products = products;
  options.cpus = {cpus.begin(), cpus.end()};
  options.bundleLibraries = bundle;
  options.pythonModules = {modules.begin(), modules.end()};
  options.codeOnly = codeOnly;
  options.compile.target = target;
  options.archs = {archs.begin(), archs.end()};
  options.retarget = retarget;
  options.compile.strict = strict;
  options.compile.dumpDir = dumpDir;
  options.printTiming = printTiming;
  options.force = force;
  return options;
}
