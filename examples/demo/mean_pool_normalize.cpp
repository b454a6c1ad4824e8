//===- mean_pool_normalize.cpp - The demo's own operator
//-------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// demo::mean_pool_normalize(hidden, mask): the mean over the tokens that `mask`
// marks, scaled to length 1. [batch, tokens, width] f32 and [batch, tokens] i64
// give [batch, width] f32.
//
// It includes torch/library.h, not torch/extension.h: the latter needs Python's
// symbols, and then a process without Python cannot load the library. The fake
// implementation and the gradient are registered from Python, in operators.py.
//
//===----------------------------------------------------------------------===//

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

at::Tensor meanPoolNormalize(const at::Tensor &hiddenArg,
                             const at::Tensor &maskArg) {
  TORCH_CHECK(hiddenArg.dim() == 3 && hiddenArg.scalar_type() == at::kFloat,
              "hidden must be a float32 tensor of 3 dimensions");
  TORCH_CHECK(maskArg.dim() == 2 && maskArg.scalar_type() == at::kLong,
              "mask must be an int64 tensor of 2 dimensions");
  TORCH_CHECK(maskArg.size(0) == hiddenArg.size(0) &&
                  maskArg.size(1) == hiddenArg.size(1),
              "mask ", maskArg.sizes(), " does not fit hidden ",
              hiddenArg.sizes());
  at::Tensor hidden = hiddenArg.contiguous(), mask = maskArg.contiguous();
  int64_t batch = hidden.size(0), tokens = hidden.size(1),
          width = hidden.size(2);
  at::Tensor result = at::empty({batch, width}, hidden.options());
  const float *in = hidden.const_data_ptr<float>();
  const int64_t *marks = mask.const_data_ptr<int64_t>();
  float *out = result.mutable_data_ptr<float>();

  at::parallel_for(0, batch, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(width);
    for (int64_t b = begin; b < end; ++b) {
      std::fill(sum.begin(), sum.end(), 0.0);
      int64_t count = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        if (!marks[b * tokens + t])
          continue;
        ++count;
        const float *row = in + (b * tokens + t) * width;
        for (int64_t i = 0; i < width; ++i)
          sum[i] += row[i];
      }
      double square = 0;
      for (double &value : sum) {
        value /= double(std::max<int64_t>(count, 1));
        square += value * value;
      }
      double scale = 1 / std::max(std::sqrt(square), 1e-12);
      for (int64_t i = 0; i < width; ++i)
        out[b * width + i] = float(sum[i] * scale);
    }
  });
  return result;
}

} // namespace

TORCH_LIBRARY(demo, library) {
  library.def("mean_pool_normalize(Tensor hidden, Tensor mask) -> Tensor");
}

TORCH_LIBRARY_IMPL(demo, CPU, library) {
  library.impl("mean_pool_normalize", &meanPoolNormalize);
}
