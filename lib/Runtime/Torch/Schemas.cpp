//===- Schemas.cpp - What the dispatcher knows of an operator
//-----------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads a registered operator's schema and tags into the JSON that Torch.h
// documents. The importer works from it, so it links no torch.
//
//===----------------------------------------------------------------------===//

#include "Shim.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/function_schema.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <sstream>

using namespace intarsia::runtime;
using namespace intarsia::runtime::shim;

namespace {

void writeString(std::ostream &out, const std::string &text) {
  out << '"';
  for (unsigned char c : text) {
    if (c == '"' || c == '\\')
      out << '\\' << c;
    else if (c == '\n')
      out << "\\n";
    else if (c < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out << escape;
    } else
      out << c;
  }
  out << '"';
}

void writeReal(std::ostream &out, double value) {
  if (std::isnan(value))
    out << "\"nan\"";
  else if (std::isinf(value))
    out << (value > 0 ? "\"inf\"" : "\"-inf\"");
  else {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    out << text;
    // An integer literal would be read as an int.
    if (!std::strpbrk(text, ".e"))
      out << ".0";
  }
}

std::string layoutName(c10::Layout layout) {
  switch (layout) {
  case c10::Layout::Strided:
    return "strided";
  case c10::Layout::Sparse:
    return "sparse_coo";
  case c10::Layout::SparseCsr:
    return "sparse_csr";
  case c10::Layout::SparseCsc:
    return "sparse_csc";
  case c10::Layout::SparseBsr:
    return "sparse_bsr";
  case c10::Layout::SparseBsc:
    return "sparse_bsc";
  case c10::Layout::Mkldnn:
    return "_mkldnn";
  case c10::Layout::Jagged:
    return "jagged";
  default:
    return "unknown";
  }
}

std::string memoryFormatName(c10::MemoryFormat format) {
  switch (format) {
  case c10::MemoryFormat::Contiguous:
    return "contiguous_format";
  case c10::MemoryFormat::Preserve:
    return "preserve_format";
  case c10::MemoryFormat::ChannelsLast:
    return "channels_last";
  case c10::MemoryFormat::ChannelsLast3d:
    return "channels_last_3d";
  default:
    return "unknown";
  }
}

/// The element type of lists and optionals.
c10::TypePtr inner(const c10::TypePtr &type) {
  if (auto optional = type->cast<c10::OptionalType>())
    return inner(optional->getElementType());
  if (auto list = type->cast<c10::ListType>())
    return inner(list->getElementType());
  return type;
}

/// A default value as the importer's Argument. `type` tells a dtype from an
/// int.
void writeDefault(std::ostream &out, const c10::IValue &value,
                  const c10::TypePtr &type) {
  auto kind = [&](const char *name) -> std::ostream & {
    return out << "{\"kind\": \"" << name << "\", \"value\": ";
  };
  if (value.isNone()) {
    out << "{\"kind\": \"none\"}";
    return;
  }
  if (value.isList()) {
    kind("list") << '[';
    bool first = true;
    for (const c10::IValue &member : value.toListRef()) {
      if (!first)
        out << ", ";
      first = false;
      writeDefault(out, member, type);
    }
    out << "]}";
    return;
  }
  switch (inner(type)->kind()) {
  case c10::TypeKind::ScalarTypeType:
    kind("dtype");
    writeString(out,
                std::string(c10::getDtypeNames(value.toScalarType()).first));
    break;
  case c10::TypeKind::LayoutType:
    kind("layout");
    writeString(out, layoutName(value.toLayout()));
    break;
  case c10::TypeKind::MemoryFormatType:
    kind("memoryformat");
    writeString(out, memoryFormatName(value.toMemoryFormat()));
    break;
  default:
    if (value.isBool())
      kind("bool") << (value.toBool() ? "true" : "false");
    else if (value.isInt())
      kind("int") << value.toInt();
    else if (value.isDouble()) {
      kind("float");
      writeReal(out, value.toDouble());
    } else if (value.isString()) {
      kind("string");
      writeString(out, value.toStringRef());
    } else if (value.isComplexDouble()) {
      kind("complex") << '[';
      writeReal(out, value.toComplexDouble().real());
      out << ", ";
      writeReal(out, value.toComplexDouble().imag());
      out << ']';
    } else if (value.isDevice()) {
      kind("device");
      writeString(out, value.toDevice().str());
    } else
      throw std::runtime_error("a default value of kind " + value.tagKind() +
                               " is not supported");
  }
  out << '}';
}

/// As PyTorch prints the type in a schema, without alias annotations.
std::string typeText(const c10::Argument &argument) {
  c10::TypePtr type = argument.real_type();
  bool optional = type->kind() == c10::TypeKind::OptionalType;
  c10::TypePtr plain =
      optional ? type->castRaw<c10::OptionalType>()->getElementType() : type;
  std::string text;
  if (auto list = plain->cast<c10::ListType>()) {
    text = list->getElementType()->str() + "[" +
           (argument.N() ? std::to_string(*argument.N()) : "") + "]";
  } else {
    text = plain->str();
  }
  return optional ? text + "?" : text;
}

void collectAliases(const c10::AliasInfo &alias,
                    std::vector<std::string> &names, bool &isWrite) {
  for (const c10::Symbol &set : alias.beforeSets()) {
    std::string name = set.toUnqualString();
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  isWrite |= alias.isWrite();
  for (const c10::AliasInfo &contained : alias.containedTypes())
    collectAliases(contained, names, isWrite);
}

void writeArgument(std::ostream &out, const c10::Argument &argument,
                   bool isReturn) {
  out << "{\"name\": ";
  writeString(out, argument.name());
  out << ", \"type\": ";
  writeString(out, typeText(argument));
  if (!isReturn)
    out << ", \"kwarg_only\": " << (argument.kwarg_only() ? "true" : "false");
  std::vector<std::string> names;
  bool isWrite = false;
  if (argument.alias_info())
    collectAliases(*argument.alias_info(), names, isWrite);
  std::sort(names.begin(), names.end());
  out << ", \"alias_set\": [";
  for (size_t i = 0; i < names.size(); ++i) {
    out << (i ? ", " : "");
    writeString(out, names[i]);
  }
  out << "], \"is_write\": " << (isWrite ? "true" : "false");
  if (!isReturn && argument.default_value()) {
    out << ", \"default\": ";
    c10::IValue value = *argument.default_value();
    writeDefault(out, value, argument.real_type());
  }
  out << '}';
}

/// Tags that PyTorch 2.11, the oldest that this builds for, does not have.
template <typename Tag>
const char *laterTagName(Tag tag) {
  if constexpr (requires { Tag::inplace; })
    if (tag == Tag::inplace)
      return "inplace";
  if constexpr (requires { Tag::out; })
    if (tag == Tag::out)
      return "out";
  return "unknown";
}

const char *tagName(at::Tag tag) {
  switch (tag) {
  case at::Tag::core:
    return "core";
  case at::Tag::cudagraph_unsafe:
    return "cudagraph_unsafe";
  case at::Tag::data_dependent_output:
    return "data_dependent_output";
  case at::Tag::dynamic_output_shape:
    return "dynamic_output_shape";
  case at::Tag::flexible_layout:
    return "flexible_layout";
  case at::Tag::generated:
    return "generated";
  case at::Tag::inplace_view:
    return "inplace_view";
  case at::Tag::maybe_aliasing_or_mutating:
    return "maybe_aliasing_or_mutating";
  case at::Tag::needs_contiguous_strides:
    return "needs_contiguous_strides";
  case at::Tag::needs_exact_strides:
    return "needs_exact_strides";
  case at::Tag::needs_fixed_stride_order:
    return "needs_fixed_stride_order";
  case at::Tag::nondeterministic_bitwise:
    return "nondeterministic_bitwise";
  case at::Tag::nondeterministic_seeded:
    return "nondeterministic_seeded";
  case at::Tag::out_variant:
    return "out_variant";
  case at::Tag::pointwise:
    return "pointwise";
  case at::Tag::pt2_compliant_tag:
    return "pt2_compliant_tag";
  case at::Tag::reduction:
    return "reduction";
  case at::Tag::view_copy:
    return "view_copy";
  default:
    return laterTagName(tag);
  }
}

bool hasKernel(const c10::OperatorHandle &op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key) ||
         op.hasKernelForDispatchKey(
             c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(
             c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.hasKernelForDispatchKey(
             c10::DispatchKey::CompositeImplicitAutograd);
}

/// Where a Meta kernel written in C++ was registered; "" when there is none.
/// PyTorch tells it in the text of its dispatch table only. A Python one is
/// registered by PyTorch's own library.py, which is no answer.
std::string metaKernelLocation(const c10::OperatorHandle &op) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Meta))
    return "";
  std::string table = op.dumpState();
  const std::string start = "\nMeta: registered at ", end = " :: (";
  size_t from = table.find(start);
  if (from == std::string::npos)
    return "";
  from += start.size();
  size_t to = table.find(end, from), line = table.find('\n', from);
  if (to == std::string::npos || to > line ||
      table.compare(to, 11, " :: (none) ") == 0)
    return "";
  return table.substr(from, to - from);
}

/// The folder of the torch package, with the slash; of an installation without
/// Python the one that holds lib.
const std::string &torchFolder() {
  static const std::string folder = [] {
    Dl_info info;
    auto *here = reinterpret_cast<void *>(&at::globalContext);
    std::string path = dladdr(here, &info) ? info.dli_fname : "";
    size_t end = path.rfind("/lib/");
    return end == std::string::npos ? "" : path.substr(0, end + 1);
  }();
  return folder;
}

/// Whose a registration is, of which the text of a dispatch table has the path
/// of the source file. That of torch.library, or none, may be anybody's.
enum class Origin : uint8_t { PyTorch, Others, Anybody };

Origin originOf(const std::string &place) {
  auto has = [&](const std::string &part) {
    return !part.empty() && place.find(part) != std::string::npos;
  };
  if (!has("registered at ") || has("/torch/library.py") ||
      has("/torch/_library/"))
    return Origin::Anybody;
  bool isPyTorchs = has("aten/src/ATen/") || has("/torch/csrc/") ||
                    has("/native_aot/") || has(torchFolder());
  return isPyTorchs ? Origin::PyTorch : Origin::Others;
}

const char *nameOf(Origin origin) {
  if (origin == Origin::PyTorch)
    return "pytorch";
  return origin == Origin::Others ? "others" : "anybody";
}

/// Whether an operator of PyTorch's namespace, or a kernel of it that computes,
/// is not PyTorch's own. Of aten it makes nothing through torch.library, but
/// most of its primitives.
bool isForeign(const c10::OperatorHandle &op) {
  const std::string &name = op.operator_name().name;
  Origin origin = originOf(op.debug());
  if (name.rfind("prims::", 0) == 0)
    return origin == Origin::Others;
  if (name.rfind("aten::", 0) != 0)
    return false;
  if (origin != Origin::PyTorch)
    return true;
  std::istringstream table(op.dumpState());
  for (std::string line; std::getline(table, line);)
    for (const char *key : {"CPU: ", "CUDA: ", "Composite"})
      if (line.rfind(key, 0) == 0 &&
          line.find(": registered at ") != std::string::npos &&
          line.find(" (inactive)") == std::string::npos &&
          originOf(line) != Origin::PyTorch)
        return true;
  return false;
}

void writeSchema(std::ostream &out, const c10::OperatorHandle &op) {
  const c10::FunctionSchema &schema = op.schema();
  const c10::OperatorName &name = op.operator_name();
  out << "{\"name\": ";
  writeString(out, name.overload_name.empty()
                       ? name.name
                       : name.name + "." + name.overload_name);
  std::ostringstream text;
  text << schema;
  out << ", \"schema\": ";
  writeString(out, text.str());
  out << ", \"arguments\": [";
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    out << (i ? ", " : "");
    writeArgument(out, schema.arguments()[i], false);
  }
  out << "], \"returns\": [";
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    out << (i ? ", " : "");
    writeArgument(out, schema.returns()[i], true);
  }
  out << "], \"tags\": [";
  bool first = true;
  for (at::Tag tag : op.getTags()) {
    out << (first ? "" : ", ");
    first = false;
    writeString(out, tagName(tag));
  }
  out << "], \"debug\": ";
  writeString(out, op.debug());
  out << ", \"defined\": ";
  writeString(out, nameOf(originOf(op.debug())));
  // PyTorch's own operators are no business of the user's.
  if (name.name.rfind("aten::", 0) != 0)
    if (std::string fake = metaKernelLocation(op); !fake.empty()) {
      out << ", \"fake\": ";
      writeString(out, fake);
    }
  auto flag = [&](const char *key, bool value) {
    out << ", \"" << key << "\": " << (value ? "true" : "false");
  };
  flag("has_cpu_kernel", hasKernel(op, c10::DispatchKey::CPU));
  flag("has_cuda_kernel", hasKernel(op, c10::DispatchKey::CUDA));
  flag("has_meta_kernel", hasKernel(op, c10::DispatchKey::Meta));
  flag("is_composite_implicit",
       op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd));
  if (isForeign(op))
    flag("foreign", true);
  out << '}';
}

thread_local std::string text;

} // namespace

c10::OperatorName shim::splitName(const std::string &name) {
  size_t colons = name.find("::");
  size_t dot = name.find('.', colons == std::string::npos ? 0 : colons + 2);
  if (dot == std::string::npos)
    return c10::OperatorName(name, "");
  std::string overload = name.substr(dot + 1);
  if (overload == "default")
    overload.clear();
  return c10::OperatorName(name.substr(0, dot), overload);
}

const char *shim::operatorSchema(const char *name) {
  try {
    auto op = c10::Dispatcher::singleton().findSchema(splitName(name));
    if (!op)
      return nullptr;
    std::ostringstream out;
    writeSchema(out, *op);
    text = out.str();
    return text.c_str();
  } catch (...) {
    failWithCurrentException(ErrorKind::Load, std::string(name) + ": ");
    return nullptr;
  }
}

const char *shim::operatorOverloads(const char *qualifiedName) {
  try {
    std::string wanted = splitName(qualifiedName).name;
    std::vector<std::string> names;
    for (const c10::OperatorName &name :
         c10::Dispatcher::singleton().getAllOpNames())
      if (name.name == wanted)
        names.push_back(name.overload_name.empty()
                            ? name.name
                            : name.name + "." + name.overload_name);
    std::sort(names.begin(), names.end());
    text.clear();
    for (const std::string &name : names)
      text += (text.empty() ? "" : ", ") + name;
  } catch (...) {
    text.clear();
  }
  return text.c_str();
}
