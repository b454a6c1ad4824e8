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

/// What the modules register of the named operators: JSON texts by name.
static std::map<std::string, std::string>
describe(const std::vector<std::string> &modules,
         const llvm::StringSet<> &names) {
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
    llvm::json::Array requested, imported;
    for (const auto &entry : names)
      requested.push_back(entry.getKey());
    for (const std::string &module : modules)
      imported.push_back(module);
    std::error_code error;
    llvm::raw_fd_ostream stream(in, error);
    stream << llvm::json::Value(llvm::json::Object{
        {"modules", std::move(imported)}, {"operators", std::move(requested)}});
    if (error)
      throw PythonError("cannot write " + in.str().str());
  }
  runPython("intarsia._describe", {in.str().str(), out.str().str()},
            "cannot import the modules");
  llvm::Expected<llvm::json::Value> answer = llvm::json::parse(contentOf(out));
  const llvm::json::Object *object = nullptr;
  if (answer)
    object = answer->getAsObject();
  else
    llvm::consumeError(answer.takeError());
  if (!object)
    throw PythonError("the Python process gave no answer");
  std::map<std::string, std::string> schemas;
  for (const auto &[name, text] : *object)
    if (std::optional<llvm::StringRef> schema = text.getAsString())
      schemas[name.str()] = schema->str();
  return schemas;
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
