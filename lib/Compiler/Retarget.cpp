//===- Retarget.cpp - A program on another device -------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements Retarget.h on the imported graph, before it is built: there a
// device is a word in few places.
//
//===----------------------------------------------------------------------===//

#include "Retarget.h"
#include "intarsia/Compiler/Compiler.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <set>

using namespace intarsia;
using importer::Argument;
using importer::Graph;
using importer::Node;
using llvm::StringRef;

namespace {

class Retargeter {
public:
  Retargeter(const std::string &devices,
             const importer::SchemaProvider &schemas)
      : schemas(schemas) {
    auto [first, second] = StringRef(devices).split('=');
    from = device(first, devices);
    to = device(second, devices);
  }

  void run(importer::Program &program) {
    visit(program.graph);
    for (auto &[name, graph] : program.graphs)
      visit(graph);
    for (importer::Weight &weight : program.weights)
      move(weight.meta.device);
    if (moved)
      return;
    std::string list;
    for (const std::string &name : seen)
      list += (list.empty() ? "" : ", ") + name;
    throw CompileError("--retarget: no tensor of the program is on " + from +
                       "; it has tensors on " +
                       (list.empty() ? "no device" : list));
  }

private:
  /// With its index, as tensors have it.
  static std::string device(StringRef name, const std::string &devices) {
    auto [type, index] = name.split(':');
    int64_t number = 0;
    bool known = type == "cpu" ? name == "cpu" : type == "cuda";
    if (!known || (name.contains(':') && index.getAsInteger(10, number)))
      throw CompileError("--retarget is FROM=TO with cpu, cuda:0, cuda:1, ..., "
                         "such as cpu=cuda:0, not '" +
                         devices + "'");
    return name == "cuda" ? "cuda:0" : name.str();
  }

  static StringRef typeOf(StringRef device) { return device.split(':').first; }

  /// Whether a device that the program names is the one to leave: "cuda" is
  /// the current one, 0 for an exporter that says nothing else.
  bool isFrom(const std::string &name) const {
    return name == from || (name == "cuda" && from == "cuda:0");
  }

  void move(std::string &name) {
    seen.insert(name);
    if (!isFrom(name))
      return;
    name = to;
    moved = true;
  }

  void visit(Argument &argument) {
    if (argument.kind == Argument::Kind::Device && isFrom(argument.text))
      argument.text = to;
    for (Argument &member : argument.list)
      visit(member);
  }

  static bool hasTensors(const Graph &graph, const Argument &argument) {
    if (argument.kind == Argument::Kind::List)
      return llvm::any_of(argument.list, [&](const Argument &member) {
        return hasTensors(graph, member);
      });
    if (argument.kind != Argument::Kind::Value)
      return false;
    auto value = graph.values.find(argument.text);
    return value != graph.values.end() &&
           value->second.kind == importer::ValueMeta::Kind::Tensor;
  }

  /// An operator that makes a tensor of none does so on the CPU unless it is
  /// told where.
  void placeFactory(const Graph &graph, Node &node) {
    if (from != "cpu" || llvm::any_of(node.args, [&](const auto &entry) {
          return entry.first == "device" || hasTensors(graph, entry.second);
        }))
      return;
    std::optional<importer::OperatorSchema> schema = schemas(node.target);
    if (!schema || llvm::none_of(schema->arguments, [](const auto &argument) {
          return argument.name == "device" && argument.kwargOnly;
        }))
      return;
    Argument device;
    device.kind = Argument::Kind::Device;
    device.text = to;
    node.args.emplace_back("device", device);
  }

  /// "cpu=bf16,cuda=f16" acts where the operators are.
  void moveAutocast(std::string &autocast) {
    llvm::SmallVector<StringRef> parts;
    StringRef(autocast).split(parts, ',', -1, /*KeepEmpty=*/false);
    std::string result;
    for (StringRef part : parts) {
      auto [type, dtype] = part.split('=');
      result += (result.empty() ? "" : ",") +
                (type == typeOf(from) ? typeOf(to) : type).str() + "=" +
                dtype.str();
    }
    autocast = result;
  }

  void visit(Graph &graph) {
    for (auto &[name, value] : graph.values)
      if (value.kind == importer::ValueMeta::Kind::Tensor)
        move(value.tensor.device);
    for (Node &node : graph.nodes) {
      // Of the regions' arguments the first is the type of device.
      if (node.target == "higher_order::wrap_with_autocast" &&
          !node.args.empty() &&
          node.args[0].second.kind == Argument::Kind::String &&
          node.args[0].second.text == typeOf(from))
        node.args[0].second.text = typeOf(to).str();
      for (auto &[name, argument] : node.args)
        visit(argument);
      placeFactory(graph, node);
      if (!node.autocast.empty())
        moveAutocast(node.autocast);
    }
    for (Argument &output : graph.outputs)
      visit(output);
  }

  const importer::SchemaProvider &schemas;
  std::string from, to;
  bool moved = false;
  std::set<std::string> seen;
};

} // namespace

void intarsia::retarget(importer::Program &program, const std::string &devices,
                        const importer::SchemaProvider &schemas) {
  Retargeter(devices, schemas).run(program);
}
