//===- BuildModule.cpp - The import graph as a module
//----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Builds the main function and the subgraphs that it uses, and the attributes
// of the module.
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace intarsia;
using namespace intarsia::importer;

ModuleBuilder::ModuleBuilder(const Program &program, MLIRContext *context,
                             const SchemaProvider &schemas)
    : program(program), context(context), schemas(schemas) {}

/// As a mutating operator: its results are the new values.
static OperatorSchema launchKernelSchema() {
  OperatorSchema schema;
  schema.name = launchKernelOperator;
  schema.schema = "intarsia::launch_kernel(str kernel, SymInt[] grid, "
                  "Tensor(a!)[] written, Tensor[] read, SymInt[] integers, "
                  "float[] floats) -> ()";
  schema.tags = {"needs_exact_strides"};
  for (auto [name, type] :
       {std::pair("kernel", "str"), std::pair("grid", "SymInt[]"),
        std::pair("written", "Tensor[]"), std::pair("read", "Tensor[]"),
        std::pair("integers", "SymInt[]"), std::pair("floats", "float[]")}) {
    SchemaArgument &argument = schema.arguments.emplace_back();
    argument.name = name;
    argument.type = type;
    argument.isWrite = argument.name == "written";
    if (argument.isWrite)
      argument.aliasSet = {"a"};
  }
  return schema;
}

const OperatorSchema &ModuleBuilder::schema(const std::string &name) {
  auto [entry, isNew] = schemaCache.try_emplace(name);
  if (isNew)
    entry->second =
        name == launchKernelOperator ? launchKernelSchema() : schemas(name);
  if (!entry->second)
    throw BuildError("'" + name +
                     "' is not registered in this process. Load the library "
                     "that defines it (--op-library), or import the Python "
                     "module that registers it (--import)");
  return *entry->second;
}

// --- Subgraphs ---------------------------------------------------------------

namespace {

/// Finds the symbols that a graph uses without defining them.
class CaptureFinder {
public:
  CaptureFinder(const Program &program, const SymbolSet &outerScope)
      : program(program), outerScope(outerScope) {}

  void visit(const Graph &graph, int depth = 0) {
    if (depth > 64)
      throw BuildError(
          "subgraphs are nested too deeply, or contain themselves");
    SymbolSet own;
    auto bare = [&](const SymExpr &expr) {
      if (expr.isSymbol())
        own.insert(expr.name());
    };
    for (const std::string &name : graph.inputs) {
      auto found = graph.values.find(name);
      if (found == graph.values.end())
        continue;
      const ValueMeta &meta = found->second;
      if (meta.kind == ValueMeta::Kind::Tensor)
        llvm::for_each(meta.tensor.sizes, bare);
      else
        bare(meta.expr);
    }
    SymbolSet used;
    auto use = [&](const SymExpr &expr) { expr.collectSymbols(used); };
    for (const auto &[name, meta] : graph.values) {
      llvm::for_each(meta.tensor.sizes, use);
      llvm::for_each(meta.tensor.strides, use);
      use(meta.expr);
    }
    std::function<void(const Argument &)> walk = [&](const Argument &argument) {
      use(argument.expr);
      llvm::for_each(argument.list, walk);
      if (argument.kind != Argument::Kind::Graph)
        return;
      auto found = program.graphs.find(argument.text);
      if (found != program.graphs.end()) {
        CaptureFinder inner(program, outerScope);
        inner.visit(found->second, depth + 1);
        used.insert(inner.captured.begin(), inner.captured.end());
      }
    };
    for (const Node &node : graph.nodes)
      for (const auto &[name, argument] : node.args)
        walk(argument);
    llvm::for_each(graph.outputs, walk);
    // A symbol that the outside does not know is one that a node defines.
    for (const std::string &name : used)
      if (!own.count(name) && outerScope.count(name))
        captured.insert(name);
  }

  const Program &program;
  const SymbolSet &outerScope;
  SymbolSet captured;
};

} // namespace

static const Graph &findGraph(const Program &program, const std::string &name) {
  auto found = program.graphs.find(name);
  if (found == program.graphs.end())
    throw BuildError("uses the subgraph '" + name +
                     "', which the program does not have");
  return found->second;
}

const std::vector<std::string> &
ModuleBuilder::capturedSymbols(const std::string &name,
                               const SymbolSet &outerScope) {
  auto found = captured.find(name);
  if (found != captured.end())
    return found->second;
  CaptureFinder finder(program, outerScope);
  finder.visit(findGraph(program, name));
  return captured[name] = {finder.captured.begin(), finder.captured.end()};
}

void ModuleBuilder::setCapturedSymbols(const std::string &name,
                                       std::vector<std::string> symbols) {
  if (isBuilt(name) && captured[name] != symbols)
    throw BuildError("the subgraph '" + name +
                     "' is used in two places that give it different symbols");
  captured[name] = std::move(symbols);
}

FlatSymbolRefAttr ModuleBuilder::subgraph(const std::string &name,
                                          const SymbolSet &outerScope) {
  auto found = functions.find(name);
  if (found == functions.end()) {
    const Graph &graph = findGraph(program, name);
    std::vector<std::string> symbols = capturedSymbols(name, outerScope);
    if (!beingBuilt.insert(name).second)
      throw BuildError("the subgraph '" + name + "' contains itself");
    OpBuilder builder(module->getBodyRegion());
    builder.setInsertionPointToEnd(module->getBody());
    FunctionBuilder function(*this, graph, /*isMain=*/false, symbols);
    found = functions.emplace(name, function.build(name, builder)).first;
    beingBuilt.erase(name);
  }
  return FlatSymbolRefAttr::get(found->second);
}

// --- The module --------------------------------------------------------------

OwningOpRef<ModuleOp> ModuleBuilder::build() {
  Builder builder(context);
  module = ModuleOp::create(UnknownLoc::get(context));
  OpBuilder moduleBuilder(module->getBodyRegion());
  FunctionBuilder main(*this, program.graph, /*isMain=*/true, {});
  main.build("main", moduleBuilder);

  auto setText = [&](StringRef name, const std::string &text) {
    if (!text.empty())
      (*module)->setAttr(name, builder.getStringAttr(text));
  };
  setText("intarsia.in_spec", program.inSpec);
  setText("intarsia.out_spec", program.outSpec);
  SmallVector<Attribute> weights;
  for (const Weight &weight : program.weights) {
    NamedAttrList fields;
    fields.append("name", builder.getStringAttr(weight.target));
    fields.append("type", TypeAttr::get(graph::TensorType::get(
                              context, weight.meta.sizes, weight.meta.strides,
                              weight.meta.dtype, weight.meta.device)));
    fields.append("offset",
                  builder.getI64IntegerAttr(
                      weight.meta.storageOffset.asInteger().value_or(0)));
    if (!weight.record.empty())
      fields.append("record", builder.getStringAttr(weight.record));
    if (weight.object >= 0)
      fields.append("object", builder.getI64IntegerAttr(weight.object));
    if (weight.isParameter)
      fields.append("parameter", builder.getUnitAttr());
    weights.push_back(fields.getDictionary(context));
  }
  if (!weights.empty())
    (*module)->setAttr("intarsia.weights", builder.getArrayAttr(weights));
  return std::move(module);
}

llvm::Expected<OwningOpRef<ModuleOp>>
importer::buildModule(const Program &program, MLIRContext *context,
                      const SchemaProvider &schemas) {
  context->loadDialect<graph::GraphDialect, func::FuncDialect>();
  try {
    OwningOpRef<ModuleOp> module =
        ModuleBuilder(program, context, schemas).build();
    // What the readers accepted and the dialect does not is a fault of the
    // program (or ours); either way it has a message.
    std::string message;
    ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
      std::string place = describeLocation(diagnostic.getLocation());
      message += (message.empty() ? "" : "\n") + diagnostic.str() +
                 (place.empty() ? "" : " (" + place + ")");
      return success();
    });
    if (failed(verify(*module)))
      return llvm::createStringError("the imported program is malformed: " +
                                     message);
    return module;
  } catch (const std::exception &error) {
    return llvm::createStringError(error.what());
  }
}
