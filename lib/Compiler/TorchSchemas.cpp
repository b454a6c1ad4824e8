//===- TorchSchemas.cpp - Schemas from PyTorch's dispatcher ---------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The schema provider of a process that has PyTorch: it asks the shim.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Compiler/Compiler.h"
#include "intarsia/Runtime/Torch.h"

namespace intarsia {

importer::SchemaProvider torchSchemas() {
  const runtime::TorchApi &torch = runtime::torchApi();
  return
      [&torch](
          const std::string &name) -> std::optional<importer::OperatorSchema> {
        const char *json = torch.operatorSchema(name.c_str());
        if (!json)
          return std::nullopt;
        return importer::parseOperatorSchema(json);
      };
}

} // namespace intarsia
