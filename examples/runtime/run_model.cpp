//===- run_model.cpp - A compiled model in a C++ program ------------------===//
//
// Runs a model with one float32 input: run_model MODEL.pt2 SIZE...
//
//===----------------------------------------------------------------------===//

#include <intarsia/Runtime/Model.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

using namespace intarsia;

int main(int argc, char **argv) try {
  if (argc < 2)
    throw std::runtime_error("usage: run_model MODEL.pt2 SIZE...");
  std::unique_ptr<runtime::Model> model = runtime::Model::load(argv[1], {});
  std::vector<int64_t> sizes;
  for (int i = 2; i < argc; ++i)
    sizes.push_back(std::atoll(argv[i]));
  runtime::Tensor input = runtime::Tensor::empty(DType::F32, sizes);
  for (int64_t i = 0; i < input.elementCount(); ++i)
    static_cast<float *>(input.data())[i] = float(i);
  for (const runtime::Tensor &output : model->run({input})) {
    runtime::Tensor plain = output.contiguousOnCpu();
    std::printf("%s:", std::string(dtypeTorchName(plain.dtype())).c_str());
    for (int64_t i = 0; plain.dtype() == DType::F32 && i < plain.elementCount();
         ++i)
      std::printf(" %g", static_cast<float *>(plain.data())[i]);
    std::printf("\n");
  }
} catch (const std::exception &error) {
  std::fprintf(stderr, "run_model: %s\n", error.what());
  return 1;
}
