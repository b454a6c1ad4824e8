//===- Options.cpp - The command line of intarsia-run
//-------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A hand-written parser: the tool links neither LLVM nor anything else for it.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <utility>

using namespace intarsia::tool;

const char *const intarsia::tool::helpText =
    R"(usage: intarsia-run MODEL.pt2 [OPTION...]

Runs a model that intarsia-compile wrote, in a process without Python.

  --input FILE...        the model's inputs: .npy files in the order of its
                         arguments, or NAME=FILE to give one by its name; a
                         number is an array without dimensions. A .pt file of
                         torch.save gives one tensor, or a list or tuple of
                         them in order, or a dictionary of inputs by name; so
                         does a .safetensors file
  --random               make up the inputs that are not given, always the same:
                         sizes in the ranges that were exported, integers 0 or 1
  --output-dir DIR       write output_0.npy, output_1.npy, ... there; the folder
                         is made when it is missing. No file is written unless
                         all can be
  --output FILE          write all outputs into one .safetensors file (with the
                         names output_0, ...) or .pt file (a tuple)
  --op-library LIB.so    load a library that registers operators (repeatable)
  --verify               compare the checksums of the weights, too, which reads
                         the whole file
  --target NAME          which of the model's targets to run: cpu or cuda
  --threads N            threads that operators and kernels may use
  --benchmark N          run N more times and print the time of a run
  --profile              print the time of each step (with --benchmark: means)
  --check-against eager  run the exported program in Python on the same inputs,
                         and compare; exit code 1 when the outputs differ. Needs
                         INTARSIA_PYTHON below. Random operators differ
  --print-plan           print the program's steps and stop
  --help                 print this text

.npy files hold what NumPy knows; bfloat16 is read and written as 'V2', as the
ml_dtypes package does: np.load(f).view(ml_dtypes.bfloat16).

exit codes:
  0  success
  1  the program failed: an operator raised, or broke its contract
  2  the command line is wrong
  3  an input cannot be read or does not fit the model
  4  the model, PyTorch, an operator or an operator library cannot be loaded
  5  an output cannot be written

environment:
  INTARSIA_PYTHON          the Python interpreter for --check-against; default:
                           python3
  INTARSIA_CACHE_DIR       where the model's kernels are unpacked
  INTARSIA_TORCH_LIBRARY   path of libIntarsiaTorch.so, when it does not lie
                           beside the runtime library
)";

static int number(const std::string &option, const std::string &text) {
  char *end = nullptr;
  long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end || value < 1 || value > 1000000000)
    throw UsageError(option + " needs a positive number, not '" + text + "'");
  return int(value);
}

static size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// Of the options that the help names.
static std::string nearestOption(const std::string &word) {
  std::string nearest;
  size_t least = 4;
  std::string_view text = helpText;
  for (size_t at = 0; (at = text.find("--", at)) != text.npos;) {
    size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    std::string_view option = text.substr(at, end - at);
    at = end;
    if (size_t distance = editDistance(word, option); distance < least) {
      least = distance;
      nearest = option;
    }
  }
  return nearest.empty() ? "" : " (did you mean " + nearest + "?)";
}

Options intarsia::tool::parseOptions(int argc, char **argv) {
  Options options;
  std::vector<std::string> words(argv + 1, argv + argc);
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i], value;
    bool hasValue = false;
    if (word.rfind("--", 0) == 0)
      if (size_t equals = word.find('='); equals != std::string::npos) {
        value = word.substr(equals + 1);
        word.resize(equals);
        hasValue = true;
      }
    auto next = [&]() -> std::string {
      if (hasValue)
        return value;
      if (i + 1 >= words.size())
        throw UsageError(word + " needs a value");
      return words[++i];
    };
    bool isFlag = false;
    if (word == "--input" || word == "-i") {
      options.inputs.push_back(next());
      while (!hasValue && i + 1 < words.size() &&
             words[i + 1].rfind('-', 0) != 0)
        options.inputs.push_back(words[++i]);
    } else if (word == "--output-dir" || word == "-o") {
      options.outputDirectory = next();
      if (options.outputDirectory.empty())
        throw UsageError("--output-dir needs a folder");
    } else if (word == "--output") {
      options.outputFile = next();
      std::string extension =
          std::filesystem::path(options.outputFile).extension();
      if (extension != ".safetensors" && extension != ".pt" &&
          extension != ".pth")
        throw UsageError("--output takes a .safetensors or .pt file, not '" +
                         options.outputFile + "'");
    } else if (word == "--verify") {
      options.verify = isFlag = true;
    } else if (word == "--random") {
      options.random = isFlag = true;
    } else if (word == "--check-against") {
      if (next() != "eager")
        throw UsageError("--check-against takes eager");
      options.checkAgainstEager = true;
    } else if (word == "--op-library") {
      options.operatorLibraries.push_back(next());
    } else if (word == "--target") {
      options.target = next();
    } else if (word == "--threads") {
      options.threads = number(word, next());
    } else if (word == "--benchmark") {
      options.benchmark = number(word, next());
    } else if (word == "--profile") {
      options.profile = isFlag = true;
    } else if (word == "--print-plan") {
      options.printPlan = isFlag = true;
    } else if (word == "--help" || word == "-h") {
      options.help = isFlag = true;
    } else if (word.rfind('-', 0) == 0 && word.size() > 1) {
      throw UsageError("unknown option " + word + nearestOption(word));
    } else if (options.model.empty()) {
      options.model = word;
    } else {
      throw UsageError("there is a model already ('" + options.model +
                       "'); give '" + word + "' with --input");
    }
    if (isFlag && hasValue)
      throw UsageError(word + " takes no value");
  }
  if (!options.help && options.model.empty())
    throw UsageError("no model is given");
  return options;
}
