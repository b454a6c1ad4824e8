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
// "load" and "run" in seconds (the median, each run waited for), or "problem";
// and "graph", the time of a replay of the run as a CUDA graph, whose results
// are in FOLDER/NAME.graph.pt, or "no graph", why there is none.
// In one process, because PyTorch takes seconds to begin with CUDA.
//
//===----------------------------------------------------------------------===//

#include <intarsia/Runtime/Model.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <dlfcn.h>
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

static double median(std::vector<double> times) {
  auto middle = times.begin() + long(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

static void write(const std::string &path, std::vector<Tensor> tensors) {
  std::vector<TensorImpl *> members;
  for (Tensor &tensor : tensors) {
    if (tensor)
      tensor = tensor.contiguousOnCpu();
    members.push_back(tensor.get());
  }
  check(torchApi().writePickle(path.c_str(), nullptr, members.data(),
                               int64_t(members.size())));
}

/// A function of a library that PyTorch has loaded.
template <typename... Parameters>
static auto function(const char *library, const char *name) {
  void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  void *found = handle ? dlsym(handle, name) : nullptr;
  if (!found)
    throw Error(ErrorKind::Load,
                std::string(library) + " has no function " + name);
  return reinterpret_cast<int (*)(Parameters...)>(found);
}

template <typename... Parameters>
static void call(const char *library, const char *name,
                 Parameters... arguments) {
  if (int status = function<Parameters...>(library, name)(arguments...))
    throw Error(ErrorKind::Operator,
                std::string(name) + " returns " + std::to_string(status));
}

static constexpr const char *driver = "libcuda.so.1",
                            *torchCuda = "libtorch_cuda.so";

/// PyTorch's current stream while it lives.
class OwnStream {
public:
  OwnStream() {
    call(driver, "cuStreamCreate", &stream, 1u); // not with the default one
    call(torchCuda, "aoti_torch_create_cuda_stream_guard", stream, int32_t(0),
         &guard);
  }
  ~OwnStream() {
    function<void *>(torchCuda, "aoti_torch_delete_cuda_stream_guard")(guard);
  }
  OwnStream(const OwnStream &) = delete;
  OwnStream &operator=(const OwnStream &) = delete;

  void wait() const { call(driver, "cuStreamSynchronize", stream); }
  operator void *() const { return stream; }

private:
  void *stream = nullptr, *guard = nullptr;
};

/// Captures a run and replays it.
static double measureGraph(Model &model, const std::vector<Tensor> &inputs,
                           int rounds, const std::string &path) {
  OwnStream stream;
  // Memory is there when it is captured.
  for (int i = 0; i < 2; ++i)
    model.run(inputs);
  stream.wait();
  void *graph = nullptr, *executable = nullptr;
  call(driver, "cuStreamBeginCapture_v2", static_cast<void *>(stream),
       2u /* allocations are allowed */);
  std::vector<Tensor> outputs;
  try {
    outputs = model.run(inputs);
  } catch (...) {
    function<void *, void **>(driver, "cuStreamEndCapture")(stream, &graph);
    throw;
  }
  call(driver, "cuStreamEndCapture", static_cast<void *>(stream), &graph);
  call(driver, "cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  std::vector<double> times;
  for (int i = 0; i < 10 + rounds; ++i) {
    double begin = now();
    call(driver, "cuGraphLaunch", executable, static_cast<void *>(stream));
    stream.wait();
    if (i >= 10)
      times.push_back(now() - begin);
  }
  write(path, outputs);
  return median(times);
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

static std::string measure(const std::string &stem, int rounds) {
  double begin = now();
  std::unique_ptr<Model> model = Model::load(stem + ".pt2", {});
  double load = now() - begin;
  std::vector<Tensor> inputs =
      readInputs(stem + ".inputs.pt", model->program());
  write(stem + ".outputs.pt", model->run(inputs));
  std::vector<double> times;
  for (int i = 0; i < 10 + rounds; ++i) {
    begin = now();
    model->run(inputs);
    check(torchApi().synchronize(/*CUDA*/ 1, 0));
    if (i >= 10)
      times.push_back(now() - begin);
  }
  std::string result = "\"load\": " + std::to_string(load) +
                       ", \"run\": " + std::to_string(median(times));
  try {
    double graph = measureGraph(*model, inputs, rounds, stem + ".graph.pt");
    return result + ", \"graph\": " + std::to_string(graph);
  } catch (const std::exception &error) {
    return result + ", \"no graph\": " + quoted(error.what());
  }
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
