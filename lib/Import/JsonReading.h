//===- JsonReading.h - Checked access to untrusted JSON -----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The readers' view of a JsonTape: every access says what it expects, and a
// value of another kind is a `ReadError` that names the field. Private to the
// importer; the readers turn a ReadError into an llvm::Error at their boundary.
// Values, objects and arrays are views: the tape and its text outlive them.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_IMPORT_JSONREADING_H
#define INTARSIA_LIB_IMPORT_JSONREADING_H

#include "intarsia/Import/ImportGraph.h"
#include "lib/Support/JsonTape.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/ADT/iterator.h"

#include <stdexcept>
#include <utility>

namespace intarsia::importer {

class ReadError : public std::runtime_error {
public:
  explicit ReadError(const llvm::Twine &message)
      : std::runtime_error(message.str()) {}
};

namespace json {

using Value = JsonTape::Value;

/// The elements of an array, in order.
class Array {
public:
  class iterator
      : public llvm::iterator_facade_base<iterator, std::forward_iterator_tag,
                                          const Value> {
  public:
    explicit iterator(const Value *at = nullptr) : at(at) {}
    bool operator==(const iterator &other) const { return at == other.at; }
    const Value &operator*() const { return *at; }
    iterator &operator++() {
      at = at->next();
      return *this;
    }

  private:
    const Value *at;
  };

  explicit Array(const Value &value) : value(&value) {}
  iterator begin() const { return iterator(value->members()); }
  iterator end() const { return iterator(value->next()); }
  /// Walks over all of them.
  size_t size() const { return std::distance(begin(), end()); }

private:
  const Value *value;
};

/// The members of an object, in the order in which they are written.
class Object {
public:
  using Member = std::pair<llvm::StringRef, const Value &>;
  class iterator
      : public llvm::iterator_facade_base<iterator, std::forward_iterator_tag,
                                          Member, std::ptrdiff_t, void,
                                          Member> {
  public:
    explicit iterator(const Value *key) : key(key) {}
    bool operator==(const iterator &other) const { return key == other.key; }
    Member operator*() const { return {key->text, key[1]}; }
    iterator &operator++() {
      key = key[1].next();
      return *this;
    }

  private:
    const Value *key;
  };

  explicit Object(const Value &value) : value(&value) {}
  iterator begin() const { return iterator(value->members()); }
  iterator end() const { return iterator(value->next()); }
  /// Null when there is no member of this name.
  const Value *get(llvm::StringRef name) const { return value->find(name); }
  bool operator==(const Object &other) const { return *value == *other.value; }

private:
  const Value *value;
};

} // namespace json

/// Parses the text, which must outlive the result; `what` names it in errors.
JsonTape parseJson(llvm::StringRef text, llvm::StringRef what);

/// The value as the named kind; `what` is the field's name, for the error.
json::Object asObject(const json::Value &value, llvm::StringRef what);
json::Array asArray(const json::Value &value, llvm::StringRef what);
std::string asString(const json::Value &value, llvm::StringRef what);
int64_t asInteger(const json::Value &value, llvm::StringRef what);
bool asBoolean(const json::Value &value, llvm::StringRef what);
/// A number, or one of the texts "inf", "Infinity", "-inf", "-Infinity", "nan",
/// "NaN" that stand for what JSON cannot hold.
double asReal(const json::Value &value, llvm::StringRef what);

/// A field that must be there.
const json::Value &field(json::Object object, llvm::StringRef name);
/// Null when the field is absent or null.
const json::Value *optionalField(json::Object object, llvm::StringRef name);
/// The one member of a union: {"as_int": 3} is ("as_int", 3). Members that are
/// null are passed over.
json::Object::Member unionMember(const json::Value &value,
                                 llvm::StringRef what);

/// sympy srepr text, or a JSON integer or boolean.
SymExpr asExpr(const json::Value &value, llvm::StringRef what);
/// `expr`, which must not be a float: a symbolic integer's.
SymExpr asIntegerExpr(SymExpr expr, llvm::StringRef what);
/// `expr`, which must be neither a float nor a condition: a tensor's size,
/// stride or offset.
SymExpr asExtent(SymExpr expr, llvm::StringRef what);

/// An Argument in the form of ImportGraph.h: {"kind": ..., "value": ...}.
Argument readArgument(const json::Value &value, llvm::StringRef what);

/// "torch.ops.aten.add.Tensor" or "aten.add.Tensor" -> "aten::add.Tensor";
/// "torch.ops.higher_order.cond" -> "higher_order::cond";
/// "_operator.mul" -> "_operator::mul". A default overload has no suffix.
std::string operatorName(llvm::StringRef target);

} // namespace intarsia::importer

#endif // INTARSIA_LIB_IMPORT_JSONREADING_H
