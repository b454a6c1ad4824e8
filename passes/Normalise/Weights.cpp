//===- Weights.cpp - The weights of a program -----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Weights.h.
//
//===----------------------------------------------------------------------===//

#include "passes/Normalise/Weights.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace intarsia {

static constexpr llvm::StringLiteral listName = "intarsia.weights";

llvm::StringMap<DictionaryAttr> findUnwrittenWeights(ModuleOp module,
                                                     func::FuncOp main) {
  llvm::StringSet<> written;
  for (unsigned i = 0, e = main.getNumArguments(); i != e; ++i)
    if (auto target = main.getArgAttrOfType<StringAttr>(i, "intarsia.target");
        target && main.getArgAttr(i, "intarsia.mutated"))
      written.insert(target.getValue());
  for (unsigned i = 0, e = main.getNumResults(); i != e; ++i)
    if (auto target =
            main.getResultAttrOfType<StringAttr>(i, "intarsia.target"))
      written.insert(target.getValue());
  // Of two weights in one record, a write may reach both.
  llvm::StringSet<> writtenRecords;
  llvm::StringMap<DictionaryAttr> entries;
  auto list = module->getAttrOfType<ArrayAttr>(listName);
  for (Attribute attribute : list ? list.getValue() : ArrayRef<Attribute>()) {
    auto entry = dyn_cast<DictionaryAttr>(attribute);
    auto name = entry ? entry.getAs<StringAttr>("name") : StringAttr();
    auto record = entry ? entry.getAs<StringAttr>("record") : StringAttr();
    if (!name || !record)
      continue;
    entries[name.getValue()] = entry;
    if (written.contains(name.getValue()))
      writtenRecords.insert(record.getValue());
  }
  for (auto it = entries.begin(); it != entries.end();) {
    auto current = it++;
    if (writtenRecords.contains(
            current->second.getAs<StringAttr>("record").getValue()))
      entries.erase(current);
  }
  return entries;
}

StringRef weightName(Value value, func::FuncOp main) {
  if (auto weight = value.getDefiningOp<graph::WeightOp>())
    return weight.getName();
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != &main.getBody().front())
    return "";
  unsigned number = argument.getArgNumber();
  auto kind = main.getArgAttrOfType<StringAttr>(number, "intarsia.kind");
  auto target = main.getArgAttrOfType<StringAttr>(number, "intarsia.target");
  return kind && target && kind.getValue() != "user" ? target.getValue() : "";
}

void addWeights(ModuleOp module, ArrayRef<Attribute> entries) {
  auto list = module->getAttrOfType<ArrayAttr>(listName);
  SmallVector<Attribute> all(list.begin(), list.end());
  llvm::append_range(all, entries);
  module->setAttr(listName, ArrayAttr::get(module.getContext(), all));
}

} // namespace intarsia
