//===- PythonSchemas.cpp - Schemas of operators from Python ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Implements PythonSchemas.h with `python -m intarsia._describe`.
//
//===----------------------------------------------------------------------===//

#include "PythonSchemas.h"
#include "PythonProcess.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <mutex>

using namespace intarsia;

static std::string contentOf(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// What a Python module of ours answers to a request, a JSON object.
static llvm::json::Object ask(const std::string &module,
                              llvm::json::Object request) {
  llvm::SmallString<128> in, out;
  llvm::scope_exit remove([&] {
    for (llvm::StringRef path : {in.str(), out.str()})
      if (!path.empty())
        llvm::sys::fs::remove(path);
  });
  for (auto *path : {&in, &out})
    if (llvm::sys::fs::createTemporaryFile("intarsia-operators", "txt", *path))
      throw PythonError("a temporary file cannot be made");
  {
    std::error_code error;
    llvm::raw_fd_ostream stream(in, error);
    stream << llvm::json::Value(std::move(request));
    if (error)
      throw PythonError("cannot write " + in.str().str());
  }
  runPython(module, {in.str().str(), out.str().str()},
            "cannot import the modules");
  llvm::Expected<llvm::json::Value> answer = llvm::json::parse(contentOf(out));
  if (answer && answer->getAsObject())
    return std::move(*answer->getAsObject());
  llvm::consumeError(answer.takeError());
  throw PythonError("the Python process gave no answer");
}

static llvm::json::Array namesOf(const std::vector<std::string> &modules) {
  llvm::json::Array names;
  for (const std::string &module : modules)
    names.push_back(module);
  return names;
}

/// What the modules register of the named operators: JSON texts by name.
static std::map<std::string, std::string>
describe(const std::vector<std::string> &modules,
         const llvm::StringSet<> &names) {
  llvm::json::Array requested;
  for (const auto &entry : names)
    requested.push_back(entry.getKey());
  std::map<std::string, std::string> schemas;
  for (const auto &[name, text] :
       ask("intarsia._describe",
           llvm::json::Object{{"modules", namesOf(modules)},
                              {"operators", std::move(requested)}}))
    if (std::optional<llvm::StringRef> schema = text.getAsString())
      schemas[name.str()] = schema->str();
  return schemas;
}

static importer::ValueMeta numberOf(const llvm::json::Value &json) {
  using Kind = importer::ValueMeta::Kind;
  importer::ValueMeta meta;
  double real = 0;
  if (std::optional<bool> value = json.getAsBoolean()) {
    meta.kind = Kind::SymBool;
    meta.expr = SymExpr::boolean(*value);
  } else if (std::optional<int64_t> value = json.getAsInteger()) {
    meta.kind = Kind::SymInt;
    meta.expr = SymExpr::integer(*value);
  } else if (std::optional<llvm::StringRef> text = json.getAsString();
             text && !text->getAsDouble(real)) {
    meta.kind = Kind::SymFloat;
    meta.expr = SymExpr::real(real);
  }
  return meta;
}

PromisedNumbers intarsia::readPromisedNumbers(const std::string &json) {
  PromisedNumbers numbers;
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(json);
  if (!value) {
    llvm::consumeError(value.takeError());
    return numbers;
  }
  const llvm::json::Object none, *graphs = value->getAsObject();
  for (const auto &[graph, operators] : graphs ? *graphs : none)
    if (const llvm::json::Object *lists = operators.getAsObject())
      for (const auto &[name, list] : *lists)
        if (const llvm::json::Array *calls = list.getAsArray())
          for (const llvm::json::Value &call : *calls)
            numbers[graph.str()][name.str()].push_back(numberOf(call));
  return numbers;
}

PromisedNumbers
intarsia::numbersOfPython(const std::string &program,
                          const std::vector<std::string> &modules,
                          const std::vector<std::string> &libraries) {
  llvm::json::Object answer =
      ask("intarsia._describe",
          llvm::json::Object{{"modules", namesOf(modules)},
                             {"libraries", namesOf(libraries)},
                             {"program", program}});
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(answer));
  return readPromisedNumbers(text);
}

importer::SchemaProvider
intarsia::withPythonModules(importer::SchemaProvider schemas,
                            const std::vector<std::string> &modules,
                            const importer::Program &program) {
  if (modules.empty())
    return schemas;
  struct State {
    std::mutex mutex;
    llvm::StringSet<> targets;
    std::optional<std::map<std::string, std::string>> known;
  };
  auto state = std::make_shared<State>();
  auto collect = [&](const importer::Graph &graph) {
    for (const importer::Node &node : graph.nodes)
      state->targets.insert(node.target);
  };
  collect(program.graph);
  for (const auto &[name, graph] : program.graphs)
    collect(graph);
  return
      [state, schemas = std::move(schemas), modules](
          const std::string &name) -> std::optional<importer::OperatorSchema> {
        if (auto schema = schemas(name))
          return schema;
        std::lock_guard<std::mutex> lock(state->mutex);
        if (!state->known) {
          state->targets.insert(name);
          state->known = describe(modules, state->targets);
        }
        auto it = state->known->find(name);
        if (it == state->known->end())
          return std::nullopt;
        return importer::parseOperatorSchema(it->second);
      };
}
