//===- Overlap.h - Whether tensors have elements in common --------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Two views of one storage may lie apart although the ranges of their addresses
// cross: columns of a matrix, parts of a fused projection.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_RUNTIME_OVERLAP_H
#define INTARSIA_LIB_RUNTIME_OVERLAP_H

#include "intarsia/Runtime/Torch.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace intarsia::runtime {

namespace detail {
/// i of the one is j of the other where the sum of (i - j) * stride over the
/// dimensions is the distance of their beginnings.
struct Meeting {
  struct Dim {
    int64_t stride, least, most; // of i - j
  };
  std::vector<Dim> dims; // the largest stride first
  int budget = 64;       // parts of a tensor need few steps

  bool possible(size_t first, int64_t distance) {
    if (first == dims.size())
      return distance == 0;
    if (--budget < 0)
      return true;
    int64_t least = 0, most = 0; // what the dimensions after this one reach
    for (size_t i = first + 1; i < dims.size(); ++i) {
      least += dims[i].least * dims[i].stride;
      most += dims[i].most * dims[i].stride;
    }
    auto [stride, from, to] = dims[first];
    if (stride == 0)
      return possible(first + 1, distance);
    from = std::max(from, -floorDivide(most - distance, stride));
    to = std::min(to, floorDivide(distance - least, stride));
    for (int64_t i = from; i <= to; ++i)
      if (possible(first + 1, distance - i * stride))
        return true;
    return false;
  }

private:
  static int64_t floorDivide(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
  }
};

/// One past the last element, counted from the storage's first.
inline int64_t endOf(const TensorInfo &info) {
  int64_t end = info.storageOffset + 1;
  for (int64_t d = 0; d < info.dim; ++d) {
    if (info.sizes[d] == 0)
      return info.storageOffset;
    end += (info.sizes[d] - 1) * info.strides[d];
  }
  return end;
}
} // namespace detail

/// Whether two strided tensors of one storage may have an element in common;
/// where that takes long to tell, they may.
inline bool mayOverlap(const TensorInfo &a, const TensorInfo &b) {
  if (a.dtype != b.dtype)
    return true;
  int64_t endOfA = detail::endOf(a), endOfB = detail::endOf(b);
  if (endOfA == a.storageOffset || endOfB == b.storageOffset ||
      endOfA <= b.storageOffset || endOfB <= a.storageOffset)
    return false;
  if (a.dim != b.dim)
    return true;
  detail::Meeting meeting;
  for (int64_t d = 0; d < a.dim; ++d) {
    int64_t stride = a.sizes[d] > 1 ? a.strides[d] : b.strides[d];
    if (b.sizes[d] > 1 && b.strides[d] != stride)
      return true;
    meeting.dims.push_back({stride, 1 - b.sizes[d], a.sizes[d] - 1});
  }
  std::sort(meeting.dims.begin(), meeting.dims.end(),
            [](const auto &x, const auto &y) { return x.stride > y.stride; });
  return meeting.possible(0, b.storageOffset - a.storageOffset);
}

} // namespace intarsia::runtime

#endif // INTARSIA_LIB_RUNTIME_OVERLAP_H
