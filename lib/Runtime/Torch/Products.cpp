//===- Products.cpp - The library of a matrix product ---------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "Products.h"
#include "Shim.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>

using namespace intarsia::runtime::shim;
namespace plan = intarsia::plan;

/// Multiplications from which on oneDNN's call, some 12 us against 2, is paid
/// for; of a left side that it copies first; and where the sizes may be new,
/// for which it makes code, some 400 us.
static constexpr int64_t fewest = 1 << 21, fewestCopied = 1 << 23,
                         fewestOfNewSizes = 1 << 25;
/// One to three rows are a matrix times vectors, for which a BLAS has code of
/// its own; so are few columns. But a weight of so many elements that it comes
/// from memory, it reads once a row, and oneDNN once.
static constexpr int64_t fewestRows = 4, fewestColumns = 8,
                         fewestFromMemory = 1 << 23;
/// A processor that is so much faster with oneDNN has vectors that its BLAS
/// does not use. What is less differs between sizes, and is left to eager.
static constexpr double worthwhile = 1.25;

using Library = c10::OperatorHandle;

static void pushLinear(torch::jit::Stack &stack, c10::IValue left,
                       c10::IValue weight, c10::IValue bias) {
  stack.emplace_back(std::move(left));
  stack.emplace_back(std::move(weight));
  stack.emplace_back(std::move(bias));
  stack.emplace_back("none"); // no activation
  static const c10::List<std::optional<at::Scalar>> noScalars;
  stack.emplace_back(noScalars);
  stack.emplace_back("");
}

/// Times a product of middle size in both.
static bool measure(const Library &oneDNN) {
  auto ones = [](int64_t rows, int64_t columns) {
    at::Tensor result =
        makeEmpty(at::kFloat, at::kCPU, {rows, columns}, {columns, 1});
    std::fill_n(static_cast<float *>(result.mutable_data_ptr()), result.numel(),
                1.0f);
    return result;
  };
  constexpr int64_t rows = 128, inner = 512;
  at::Tensor left = ones(rows, inner), weight = ones(inner, inner);
  at::Tensor right =
      makeView(weight.unsafeGetTensorImpl(), {inner, inner}, {1, inner}, 0);
  Library blas = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");
  constexpr c10::DispatchKeySet onCPU(c10::DispatchKey::CPU);
  std::array<double, 2> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int round = 0; round < 5; ++round)
    for (size_t which : {0, 1}) {
      torch::jit::Stack stack;
      if (which == 0)
        stack = {left, right};
      else
        pushLinear(stack, left, weight, c10::IValue());
      auto start = std::chrono::steady_clock::now();
      (which == 0 ? blas : oneDNN).redispatchBoxed(onCPU, &stack);
      std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - start;
      if (round > 0) // the first makes what the library keeps
        best[which] = std::min(best[which], spent.count());
    }
  return best[0] > worthwhile * best[1];
}

/// Whether this processor is faster with oneDNN on as many threads as now;
/// measured once a process, in some 5 ms.
static bool isFasterHere(const Library &oneDNN) {
  struct Verdict {
    int threads = 0;
    bool isFaster = false;
  };
  thread_local Verdict last;
  int threads = at::get_num_threads();
  if (last.threads != threads) {
    static std::mutex mutex;
    static std::map<int, bool> verdicts;
    std::lock_guard lock(mutex);
    auto found = verdicts.find(threads);
    if (found == verdicts.end())
      found = verdicts.emplace(threads, measure(oneDNN)).first;
    last = {threads, found->second};
  }
  return last.isFaster;
}

/// Whether the user lets oneDNN compute, and in full precision.
static bool isAllowed() {
  const at::Context &context = at::globalContext();
  if (!context.userEnabledMkldnn())
    return false;
  at::Float32Precision precision = context.float32Precision(
      at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::NONE ||
         precision == at::Float32Precision::IEEE;
}

std::optional<Product> Product::of(const std::string &op,
                                   plan::Products products,
                                   bool sizesAreKnown) {
  if (products == plan::Products::Eager || !at::globalContext().hasMKLDNN())
    return std::nullopt;
  static const std::map<std::string, Form> forms = {
      {"aten::mm", Form::MM},
      {"aten::addmm", Form::AddMM},
      {"aten::linear", Form::Linear},
      {"aten::matmul", Form::MatMul}};
  auto form = forms.find(op);
  if (form == forms.end())
    return std::nullopt;
  auto oneDNN = c10::Dispatcher::singleton().findSchema(
      {"mkldnn::_linear_pointwise", ""});
  if (!oneDNN)
    return std::nullopt;
  return Product(form->second, *oneDNN, products == plan::Products::OneDNN,
                 sizesAreKnown);
}

bool Product::moveToLibrary(torch::jit::Stack &stack) const {
  auto tensor = [&](size_t i) { return stack[i].unsafeToTensorImpl(); };
  auto isMatrix = [](const c10::TensorImpl *t) {
    return t->dim() == 2 && t->dtype() == at::kFloat &&
           t->layout() == c10::Layout::Strided;
  };
  if (form == Form::AddMM &&
      !(stack[3].toScalar().equal(1) && stack[4].toScalar().equal(1)))
    return false;
  size_t first = form == Form::AddMM ? 1 : 0;
  const c10::TensorImpl *left = tensor(first), *right = tensor(first + 1);
  // Only `linear` and `matmul` take more dimensions, folded into rows.
  bool folds = form == Form::Linear || form == Form::MatMul;
  bool isContiguous = left->is_contiguous();
  if (!isMatrix(right) || left->dtype() != at::kFloat ||
      left->layout() != c10::Layout::Strided ||
      !(left->dim() == 2 || (folds && left->dim() > 2 && isContiguous)))
    return false;
  int64_t inner = left->size(-1);
  bool isTransposed = form == Form::Linear; // right is (columns, inner)
  int64_t columns = right->size(isTransposed ? 0 : 1);
  if (right->size(isTransposed ? 1 : 0) != inner || inner == 0)
    return false; // eager's error, and its zeros
  int64_t rows = left->numel() / inner;
  c10::IValue bias;
  if (form == Form::AddMM)
    bias = stack[0];
  else if (form == Form::Linear)
    bias = stack[2];
  if (bias.isTensor()) {
    const c10::TensorImpl *given = bias.unsafeToTensorImpl();
    // oneDNN does not look at a bias's stride.
    if (given->dtype() != at::kFloat || given->dim() != 1 ||
        given->size(0) != columns || !given->is_contiguous())
      return false;
  }
  if (rows == 0 || columns < fewestColumns)
    return false;
  auto isWorth = [&] {
    if (rows < fewestRows) // as it lies, a row of it for each column
      return right->stride(isTransposed ? 1 : 0) == 1 &&
             inner >= fewestFromMemory / columns;
    int64_t least = !sizesAreKnown  ? fewestOfNewSizes
                    : !isContiguous ? fewestCopied
                                    : fewest;
    return left->numel() >= least / columns;
  };
  if (!isWorth() || !isAllowed() || !(always || isFasterHere(oneDNN)))
    return false;

  c10::IValue weight = stack[first + 1];
  if (!isTransposed)
    weight =
        makeView(tensor(first + 1), {columns, inner},
                 {right->stride(1), right->stride(0)}, right->storage_offset());
  c10::IValue input = stack[first];
  stack.clear();
  pushLinear(stack, std::move(input), std::move(weight), std::move(bias));
  return true;
}
