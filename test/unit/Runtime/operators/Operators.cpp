//===- Operators.cpp - Custom operators for the runtime's tests
//---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An operator library as a user writes it: TORCH_LIBRARY in a plain shared
// library. Some of its operators deliberately do what a fake implementation
// would not promise.
//
//===----------------------------------------------------------------------===//

#include <ATen/ATen.h>
#include <torch/library.h>

#include <tuple>

static at::Tensor same(const at::Tensor &x) { return at::empty_like(x); }

static at::Tensor scale(const at::Tensor &x, double factor) {
  return x * factor;
}

static at::Tensor fail(const at::Tensor &x) {
  TORCH_CHECK_VALUE(false, "the kernel refuses ", x.sizes());
}

/// A fake of `limit` promises 3.
static int64_t limit(const at::Tensor &x, at::IntArrayRef sizes) {
  return x.is_meta() ? 3 : 4;
}

static at::Tensor identity(const at::Tensor &x) { return x; }

static at::Tensor transposed(const at::Tensor &x) {
  return x.t().contiguous().t();
}

static void addOne(at::Tensor &x) { x.add_(1); }

/// What a boxed kernel sees of each kind of argument, as text in the error.
static std::string
kinds(const at::Tensor &x, std::optional<at::Tensor> y, at::TensorList list,
      at::IntArrayRef ints, const c10::List<std::optional<at::Tensor>> &indices,
      double real, bool flag, c10::string_view text, const at::Scalar &scalar,
      std::optional<at::ScalarType> dtype, at::Device device, at::Layout layout,
      std::optional<at::MemoryFormat> format, at::ArrayRef<double> reals) {
  std::ostringstream out;
  out << x.sizes() << ' ' << y.has_value() << ' ' << list.size() << ' ' << ints
      << ' ' << indices.size() << ' ' << real << ' ' << flag << ' ' << text
      << ' ' << scalar << ' ' << (dtype ? c10::toString(*dtype) : "none") << ' '
      << device << ' ' << layout << ' ';
  if (format)
    out << *format;
  else
    out << "none";
  out << ' ' << reals;
  return out.str();
}

static std::tuple<at::Tensor, int64_t> nonzeroCount(const at::Tensor &x) {
  at::Tensor indices = x.nonzero();
  return {indices, indices.size(0)};
}

static std::vector<at::Tensor> halves(const at::Tensor &x) {
  std::vector<at::Tensor> out;
  for (const at::Tensor &part : x.chunk(2, 0))
    out.push_back(part.clone());
  return out;
}

static std::tuple<at::Tensor, std::optional<at::Tensor>>
maybe(const at::Tensor &x, bool give) {
  return {x.clone(),
          give ? std::optional<at::Tensor>(x.clone()) : std::nullopt};
}

/// A kernel that uses autograd inside, as a force field does.
static at::Tensor gradientOfSquare(const at::Tensor &x) {
  at::AutoGradMode enable(true);
  at::Tensor leaf = x.detach().clone().set_requires_grad(true);
  at::Tensor loss = (leaf * leaf).sum();
  loss.backward();
  return leaf.grad().clone();
}

static bool gradMode(const at::Tensor &x) { return at::GradMode::is_enabled(); }

TORCH_LIBRARY(rt, m) {
  m.def("same(Tensor x) -> Tensor", &same);
  m.def("scale(Tensor x, float factor) -> Tensor", &scale);
  m.def("fail(Tensor x) -> Tensor", &fail);
  m.def("identity(Tensor x) -> Tensor", &identity);
  m.def("transposed(Tensor x) -> Tensor", &transposed);
  m.def("add_one(Tensor(a!) x) -> ()", &addOne);
  m.def(
      "kinds(Tensor x, Tensor? y, Tensor[] list, int[2] ints, "
      "Tensor?[] indices, float real, bool flag, str text, Scalar scalar, "
      "ScalarType? dtype, Device device, Layout layout, MemoryFormat? format, "
      "float[] reals) -> str",
      &kinds);
  m.def("nonzero_count(Tensor x) -> (Tensor, int)", &nonzeroCount);
  m.def("halves(Tensor x) -> Tensor[]", &halves);
  m.def("maybe(Tensor x, bool give) -> (Tensor, Tensor?)", &maybe);
  m.def("gradient_of_square(Tensor x) -> Tensor", &gradientOfSquare);
  m.def("grad_mode(Tensor x) -> bool", &gradMode);
  m.def(
      "defaults(Tensor x, int n=3, float f=2.0, str s='a\"b', "
      "int[2] size=1, ScalarType? dtype=None, bool? b=None, *, "
      "Tensor(a!)? out=None, MemoryFormat format=contiguous_format) -> Tensor");
}

// For the CPU alone: PyTorch exports it as a call, with a fake from Python.
TORCH_LIBRARY_FRAGMENT(rt, m) {
  m.def("scaled(Tensor x, float factor) -> Tensor");
  m.def("limit(Tensor x, int[] sizes=[1, 2]) -> int");
}
TORCH_LIBRARY_IMPL(rt, CPU, m) {
  m.impl("scaled", &scale);
  m.impl("limit", &limit);
}
TORCH_LIBRARY_IMPL(rt, Meta, m) { m.impl("limit", &limit); }
