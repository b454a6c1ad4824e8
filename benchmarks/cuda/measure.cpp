//===- measure.cpp - Running compiled files on a GPU ----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
//   measure FOLDER ROUNDS NAME...
//
// For each NAME: loads FOLDER/NAME.pt2, runs it on FOLDER/NAME.inputs.pt,
// writes what it returns to FOLDER/NAME.outputs.pt and prints a line of JSON:
// "load" and "run" in seconds (the median, each run waited for), or "problem".
// In one process, because PyTorch takes seconds to begin with CUDA.
//
//===----------------------------------------------------------------------===//

#include <intarsia/Runtime/Model.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

using namespace intarsia;
using namespace intarsia::runtime;

static double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

static void check(int status) {
  if (status)
    throw Error(torchApi().lastError()->kind, torchApi().lastError()->message);
}

/// The tensors of a file, on the devices that the program wants them on.
static std::vector<Tensor> readInputs(const std::string &path,
                                      const Program &program) {
  std::vector<Tensor> tensors;
  auto take = [](void *context, const char *, TensorImpl *tensor) {
    static_cast<std::vector<Tensor> *>(context)->emplace_back(tensor);
  };
  check(torchApi().readPickle(path.c_str(), take, &tensors));
  size_t next = 0;
  for (size_t i = 0; i < program.inputCount(); ++i) {
    const plan::Input &input = program.input(i);
    if (input.kind != plan::Input::Kind::Tensor || next == tensors.size())
      continue;
    int8_t type, index;
    TensorImpl *moved = nullptr;
    check(torchApi().parseDevice(input.spec->device.c_str(), &type, &index));
    check(torchApi().toDevice(tensors[next].get(), type, index, &moved));
    tensors[next++] = Tensor(moved);
  }
  return tensors;
}

static std::string measure(const std::string &stem, int rounds) {
  double begin = now();
  std::unique_ptr<Model> model = Model::load(stem + ".pt2", {});
  double load = now() - begin;
  std::vector<Tensor> inputs =
      readInputs(stem + ".inputs.pt", model->program());
  std::vector<Tensor> outputs = model->run(inputs);
  std::vector<TensorImpl *> members;
  for (Tensor &output : outputs) {
    if (output)
      output = output.contiguousOnCpu();
    members.push_back(output.get());
  }
  check(torchApi().writePickle((stem + ".outputs.pt").c_str(), nullptr,
                               members.data(), int64_t(members.size())));
  std::vector<double> times;
  for (int i = 0; i < 10 + rounds; ++i) {
    begin = now();
    model->run(inputs);
    check(torchApi().synchronize(/*CUDA*/ 1, 0));
    if (i >= 10)
      times.push_back(now() - begin);
  }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2),
                   times.end());
  return "\"load\": " + std::to_string(load) +
         ", \"run\": " + std::to_string(times[times.size() / 2]);
}

static std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (char c : text)
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else
      result += c < ' ' && c >= 0 ? ' ' : c;
  return result + "\"";
}

int main(int argc, char **argv) {
  if (argc < 4)
    return 2;
  std::string folder = argv[1];
  for (int i = 3; i < argc; ++i) {
    std::string result;
    try {
      result = measure(folder + "/" + argv[i], std::stoi(argv[2]));
    } catch (const std::exception &error) {
      result = "\"problem\": " + quoted(error.what());
    }
    std::printf("{\"name\": %s, %s}\n", quoted(argv[i]).c_str(),
                result.c_str());
    std::fflush(stdout);
  }
}
