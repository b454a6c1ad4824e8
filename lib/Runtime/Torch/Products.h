//===- Products.h - The library of a matrix product -------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// PyTorch has two libraries for products of float32 matrices on the CPU: the
// operators of `aten` call its BLAS, `mkldnn::_linear_pointwise` calls oneDNN.
// Which is faster is a fact of the processor
// (docs/decisions/0009-whose-library-computes-a-product.md).
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_TORCH_PRODUCTS_H
#define INTARSIA_LIB_RUNTIME_TORCH_PRODUCTS_H

#include "intarsia/Plan/Plan.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

namespace intarsia::runtime::shim {

/// A call of `aten::mm`, `addmm`, `linear` or `matmul` that oneDNN may compute.
/// Immutable: threads may share it.
class Product {
public:
  /// None for another operator, and where the program wants eager's library or
  /// PyTorch has no oneDNN. `sizesAreKnown`: every run has the same sizes.
  static std::optional<Product> of(const std::string &op,
                                   plan::Products products, bool sizesAreKnown);

  /// Makes the arguments on `stack` those of `library()`, if oneDNN is to
  /// compute these; else leaves them alone. They are plain tensors: no lazy
  /// bits, no subclasses.
  bool moveToLibrary(torch::jit::Stack &stack) const;
  const c10::OperatorHandle &library() const { return oneDNN; }

private:
  enum class Form { MM, AddMM, Linear, MatMul };
  Product(Form form, c10::OperatorHandle oneDNN, bool always,
          bool sizesAreKnown)
      : form(form), oneDNN(std::move(oneDNN)), always(always),
        sizesAreKnown(sizesAreKnown) {}

  Form form;
  c10::OperatorHandle oneDNN;
  bool always, sizesAreKnown;
};

} // namespace intarsia::runtime::shim

#endif // INTARSIA_LIB_RUNTIME_TORCH_PRODUCTS_H
