//===- JsonReading.h - Checked access to untrusted JSON -----------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The readers' view of `llvm::json`: every access says what it expects, and a
// value of another kind is a `ReadError` that names the field. Private to the
// importer; the readers turn a ReadError into an llvm::Error at their boundary.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_IMPORT_JSONREADING_H
#define INTARSIA_LIB_IMPORT_JSONREADING_H

#include "intarsia/Import/ImportGraph.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"

#include <map>
#include <stdexcept>
#include <utility>

namespace intarsia::importer {

class ReadError : public std::runtime_error {
public:
  explicit ReadError(const llvm::Twine &message)
      : std::runtime_error(message.str()) {}
};

/// Parses, with bounded nesting. `what` names the text in errors.
llvm::json::Value parseJson(llvm::StringRef text, llvm::StringRef what);

/// The value as the named kind; `what` is the field's name, for the error.
const llvm::json::Object &asObject(const llvm::json::Value &value,
                                   llvm::StringRef what);
const llvm::json::Array &asArray(const llvm::json::Value &value,
                                 llvm::StringRef what);
std::string asString(const llvm::json::Value &value, llvm::StringRef what);
int64_t asInteger(const llvm::json::Value &value, llvm::StringRef what);
bool asBoolean(const llvm::json::Value &value, llvm::StringRef what);
/// A number, or one of the texts "inf", "Infinity", "-inf", "-Infinity", "nan",
/// "NaN" that stand for what JSON cannot hold.
double asReal(const llvm::json::Value &value, llvm::StringRef what);

/// A field that must be there.
const llvm::json::Value &field(const llvm::json::Object &object,
                               llvm::StringRef name);
/// Null when the field is absent or null.
const llvm::json::Value *optionalField(const llvm::json::Object &object,
                                       llvm::StringRef name);
/// The one member of a union: {"as_int": 3} is ("as_int", 3). Members that are
/// null are passed over.
std::pair<llvm::StringRef, const llvm::json::Value *>
unionMember(const llvm::json::Value &value, llvm::StringRef what);

/// The keys of each object that is a member of this name anywhere in the text,
/// in the order in which they are written, by the keys in alphabetical order.
/// JSON objects keep no order, and dictionaries of Python have one. Throws
/// ReadError where the same keys come in two orders.
std::map<std::vector<std::string>, std::vector<std::string>>
keyOrders(const std::string &text, const std::string &member);

/// sympy srepr text, or a JSON integer or boolean.
SymExpr asExpr(const llvm::json::Value &value, llvm::StringRef what);
/// `expr`, which must not be a float: a symbolic integer's.
SymExpr asIntegerExpr(SymExpr expr, llvm::StringRef what);
/// `expr`, which must be neither a float nor a condition: a tensor's size,
/// stride or offset.
SymExpr asExtent(SymExpr expr, llvm::StringRef what);

/// An Argument in the form of ImportGraph.h: {"kind": ..., "value": ...}.
Argument readArgument(const llvm::json::Value &value, llvm::StringRef what);

/// "torch.ops.aten.add.Tensor" or "aten.add.Tensor" -> "aten::add.Tensor";
/// "torch.ops.higher_order.cond" -> "higher_order::cond";
/// "_operator.mul" -> "_operator::mul". A default overload has no suffix.
std::string operatorName(llvm::StringRef target);

} // namespace intarsia::importer

#endif // INTARSIA_LIB_IMPORT_JSONREADING_H
