//===- intarsia-run.cpp - Run a compiled model
//--------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Loads an artifact, runs it on tensors from files and writes files: a small
// user of the C++ API in include/intarsia/Runtime, without Python.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "Files.h"
#include "Options.h"
#include "Report.h"
#include "intarsia/Runtime/Model.h"
#include "intarsia/Runtime/Npy.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

using namespace intarsia;
using namespace intarsia::runtime;
using namespace intarsia::tool;

static int run(const Options &options) {
  Model::Options modelOptions;
  modelOptions.operatorLibraries = options.operatorLibraries;
  modelOptions.verify = options.verify;
  modelOptions.target = options.target;
  std::unique_ptr<Model> model = Model::load(options.model, modelOptions);
  const Program &program = model->program();
  if (options.printPlan) {
    std::fputs(plan::print(program.plan()).c_str(), stdout);
    return Success;
  }
  if (options.threads)
    torchApi().setThreadCount(options.threads);

  Inputs inputs = readInputs(program, options.inputs, options.random);
  std::vector<Value> values(program.outputCount());
  program.run(inputs.values.data(), inputs.values.size(), values.data(),
              values.size());
  std::vector<Tensor> outputs = takeOutputs(values);
  if (!options.outputDirectory.empty())
    writeOutputs(options.outputDirectory, outputs);
  if (!options.outputFile.empty())
    writeOutputFile(options.outputFile, outputs);
  if (options.benchmark)
    benchmark(program, inputs.values, options.benchmark);
  if (options.profile)
    profile(program, inputs.values, std::max(options.benchmark, 1));
  if (options.checkAgainstEager &&
      !checkAgainstEager(options, inputs.byName, outputs))
    return RunFailed;
  return Success;
}

int main(int argc, char **argv) {
  // A file that grows too large is an error of the write, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  auto report = [](const char *what, int code) {
    std::fprintf(stderr, "intarsia-run: error: %s\n", what);
    return code;
  };
  try {
    Options options = parseOptions(argc, argv);
    if (options.help) {
      std::fputs(helpText, stdout);
      return Success;
    }
    return run(options);
  } catch (const UsageError &error) {
    return report(
        (std::string(error.what()) + "; see intarsia-run --help").c_str(),
        Usage);
  } catch (const NpyError &error) {
    return report(error.what(), InputError);
  } catch (const WriteError &error) {
    return report(error.what(), OutputError);
  } catch (const Error &error) {
    switch (error.kind) {
    case ErrorKind::Guard:
      return report(error.what(), InputError);
    case ErrorKind::Load:
      return report(error.what(), LibraryError);
    default:
      return report(error.what(), RunFailed);
    }
  } catch (const std::exception &error) {
    return report(error.what(), RunFailed);
  }
}
