//===- Location.cpp - The user's source lines
//------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A node's location is its file and line, fused with a dictionary that holds
// what MLIR's locations have no place for: the function, the text of the line,
// the module, the node's name.
//
//===----------------------------------------------------------------------===//

#include "Location.h"
#include "StackTrace.h"
#include "intarsia/Import/Import.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Location.h"

using namespace mlir;

Location intarsia::importer::nodeLocation(const Node &node,
                                          MLIRContext *context) {
  Builder builder(context);
  const SourceLocation *frame = userFrame(node.stack);
  NamedAttrList details;
  auto add = [&](StringRef name, StringRef text) {
    if (!text.empty())
      details.append(name, builder.getStringAttr(text));
  };
  if (frame) {
    add("code", frame->code);
    add("function", frame->function);
  }
  add("module", node.module);
  add("node", node.name);
  Location place =
      frame && !frame->file.empty()
          ? Location(FileLineColLoc::get(context, frame->file,
                                         static_cast<unsigned>(frame->line), 0))
          : UnknownLoc::get(context);
  return FusedLoc::get({place}, details.getDictionary(context), context);
}

std::string intarsia::importer::describeLocation(Location location) {
  if (auto file = dyn_cast<FileLineColLoc>(location))
    return (file.getFilename().getValue() + ":" + Twine(file.getLine())).str();
  if (auto fused = dyn_cast<FusedLoc>(location)) {
    std::string text;
    for (Location part : fused.getLocations())
      if (text = describeLocation(part); !text.empty())
        break;
    auto details = dyn_cast_or_null<DictionaryAttr>(fused.getMetadata());
    auto detail = [&](StringRef name) {
      auto value = details ? details.getAs<StringAttr>(name) : StringAttr();
      return value ? value.getValue() : StringRef();
    };
    if (text.empty())
      return text;
    if (StringRef function = detail("function"); !function.empty())
      text += " in " + function.str();
    if (StringRef code = detail("code"); !code.empty())
      text += ": " + code.str();
    return text;
  }
  if (auto named = dyn_cast<NameLoc>(location))
    return describeLocation(named.getChildLoc());
  if (auto call = dyn_cast<CallSiteLoc>(location))
    return describeLocation(call.getCallee());
  return "";
}
