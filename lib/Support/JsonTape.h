//===- JsonTape.h - JSON for reading only -----------------------*- C++ -*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A JSON text parsed into one array: a value is followed by its members, and
// knows where the next one stands. Reading an artifact's plan, or the graph
// that Python hands over, is mostly reading JSON, and a tree of maps and
// strings takes many times as long to build.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_SUPPORT_JSONTAPE_H
#define INTARSIA_LIB_SUPPORT_JSONTAPE_H

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia {

class JsonTape {
public:
  /// A value in its tape, where its members follow it: no value can be copied
  /// out of it. Of an object's members, keys and values alternate.
  class Value {
  public:
    enum class Kind : uint8_t {
      Null,
      Boolean,
      Integer, // fits int64_t
      Real,    // any other number
      String,
      Array,
      Object
    };
    Kind kind = Kind::Null;
    bool boolean = false;
    int64_t integer = 0;
    double real = 0; // of an Integer too
    std::string_view text;

    Value() = default;
    Value(Value &&) = default;

    /// The first member, where there is one.
    const Value *members() const { return this + 1; }
    /// What comes after this value and its members.
    const Value *next() const { return this + count; }
    /// The value of a member of an object; null when it has none. Of equal keys
    /// the first counts.
    const Value *find(std::string_view key) const;
    /// The same values in the same order.
    bool operator==(const Value &other) const;

  private:
    friend class JsonParser;
    uint32_t count = 1; // of this value and all below it
  };

  /// `text` must outlive the tape. Throws std::runtime_error naming the byte of
  /// the fault. Nesting deeper than 256 is one, and bytes that are not UTF-8;
  /// half of a surrogate pair becomes U+FFFD.
  explicit JsonTape(std::string_view text);

  const Value &root() const { return values.front(); }

private:
  friend class JsonParser;
  std::vector<Value> values;
  std::deque<std::string> unescaped; // what values' texts point to
};

} // namespace intarsia

#endif // INTARSIA_LIB_SUPPORT_JSONTAPE_H
