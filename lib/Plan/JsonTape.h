//===- JsonTape.h - JSON for reading only -----------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A JSON text parsed into one array: a value is followed by its members, and
// knows where the next one stands. Loading an artifact is mostly reading its
// plan, and a tree of maps and strings takes ten times as long to build.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_PLAN_JSONTAPE_H
#define INTARSIA_LIB_PLAN_JSONTAPE_H

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::plan {

class JsonTape {
public:
  struct Value {
    enum class Kind : uint8_t {
      Null,
      Boolean,
      Integer, // fits int64_t
      Real,    // any other number
      String,
      Array,
      Object // its members alternate: key, value
    };
    Kind kind = Kind::Null;
    bool boolean = false;
    uint32_t end = 0; // the index after this value and its members
    int64_t integer = 0;
    double real = 0; // of an Integer too
    std::string_view text;
  };

  /// `text` must outlive the tape. Throws std::runtime_error naming the byte of
  /// the fault. Nesting deeper than 64 is one, and bytes that are not UTF-8.
  explicit JsonTape(std::string_view text);

  const Value &operator[](uint32_t index) const { return values[index]; }
  /// The value of a member of the object at `index`; 0 when it has none (the
  /// value at 0 is nobody's member). Of equal keys the first counts.
  uint32_t find(uint32_t index, std::string_view key) const;

private:
  friend class JsonParser;
  std::vector<Value> values;
  std::deque<std::string> unescaped; // what values' texts point to
};

} // namespace intarsia::plan

#endif // INTARSIA_LIB_PLAN_JSONTAPE_H
