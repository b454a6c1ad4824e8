//===- HigherOrder.cpp - Arguments of higher-order operators
//---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The one table of higher-order operators whose arguments have a meaning to
// later stages. Any other one keeps its arguments as "arg0", "arg1", ...
//
//===----------------------------------------------------------------------===//

#include "HigherOrder.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

using namespace intarsia::importer;
using llvm::StringRef;

namespace {

struct Signature {
  StringRef op;
  std::vector<StringRef> fixed;
  /// The list of what follows the fixed ones; "" when there is none.
  StringRef rest;
  /// The list that all subgraphs receive.
  StringRef forwarded;
};

} // namespace

static const Signature *findSignature(StringRef target) {
  static const Signature kSignatures[] = {
      {"cond", {"pred", "true_fn", "false_fn", "operands"}, "", "operands"},
      {"while_loop",
       {"cond_fn", "body_fn", "carried_inputs", "additional_inputs"},
       "",
       "additional_inputs"},
      {"map_impl", {"f", "xs", "pos_args"}, "", "pos_args"},
      {"scan",
       {"combine_fn", "init", "xs", "additional_inputs"},
       "",
       "additional_inputs"},
      {"associative_scan",
       {"combine_fn", "xs", "additional_inputs"},
       "",
       "additional_inputs"},
      {"invoke_subgraph", {"subgraph", "identifier"}, "operands", "operands"},
      {"wrap_with_set_grad_enabled",
       {"enable_grad", "subgraph"},
       "operands",
       "operands"},
      {"wrap_with_autocast",
       {"device_type", "dtype", "enabled", "cache_enabled", "subgraph"},
       "operands",
       "operands"},
      {"wrap", {"subgraph"}, "operands", "operands"},
      {"tag_activation_checkpoint", {"subgraph"}, "operands", "operands"},
      {"wrap_activation_checkpoint", {"subgraph"}, "operands", "operands"},
  };
  if (!target.consume_front("higher_order::"))
    return nullptr;
  for (const Signature &signature : kSignatures)
    if (signature.op == target)
      return &signature;
  return nullptr;
}

static Argument emptyList() {
  Argument list;
  list.kind = Argument::Kind::List;
  return list;
}

HigherOrderCall
intarsia::importer::nameHigherOrderArguments(const Node &node,
                                             const std::string &target,
                                             const NamedArguments &arguments) {
  HigherOrderCall call;
  const Signature *signature = findSignature(target);
  // In Python: reader B passes a callable and what it takes.
  bool isPython = !arguments.empty() && arguments[0].first == "callable";
  if (signature && !isPython) {
    Argument rest = emptyList();
    for (const auto &[name, argument] : arguments) {
      size_t place = call.arguments.size();
      if (!name.empty()) {
        call.arguments.emplace_back(name, argument);
      } else if (place < signature->fixed.size()) {
        call.arguments.emplace_back(signature->fixed[place].str(), argument);
      } else {
        rest.list.push_back(argument);
      }
    }
    if (!signature->rest.empty())
      call.arguments.emplace_back(signature->rest.str(), rest);
    for (size_t i = 0; i < call.arguments.size(); ++i)
      if (call.arguments[i].first == signature->forwarded &&
          call.arguments[i].second.kind == Argument::Kind::List) {
        call.symbolsFor = i;
        return call;
      }
    call.symbolsFor = call.arguments.size();
    call.arguments.emplace_back(signature->forwarded.str(), emptyList());
    return call;
  }
  for (const auto &[name, argument] : arguments)
    call.arguments.emplace_back(
        name.empty() ? "arg" + std::to_string(call.arguments.size()) : name,
        argument);
  call.symbolsFor = call.arguments.size();
  return call;
}
