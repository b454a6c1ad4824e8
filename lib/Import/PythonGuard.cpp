//===- PythonGuard.cpp - Guards as Python text
//-----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A recursive-descent parser for the Python that PyTorch's guard printers emit:
// chained comparisons, and/or/not, arithmetic, a few functions, and sizes,
// strides and storage offsets of inputs.
//
//===----------------------------------------------------------------------===//

#include "PythonGuard.h"
#include "JsonReading.h"

#include <charconv>

using namespace intarsia;
using namespace intarsia::importer;
using Kind = SymExpr::Kind;

namespace {

struct GuardError {
  std::string message;
};

class GuardParser {
public:
  using Resolve = std::function<const ValueMeta *(std::string_view)>;
  GuardParser(std::string_view text, const Resolve &resolve)
      : text(text), resolve(resolve) {}

  SymExpr parse() {
    SymExpr expr = parseOr();
    skipSpace();
    if (position != text.size())
      fail("unexpected '" + std::string(text.substr(position, 12)) + "'");
    return expr;
  }

private:
  /// Guards have been seen to nest a few dozen levels.
  static constexpr int kMaximalDepth = 200;

  [[noreturn]] void fail(std::string message) const {
    throw GuardError{std::move(message)};
  }
  void skipSpace() {
    while (position < text.size() &&
           std::isspace(static_cast<unsigned char>(text[position])))
      ++position;
  }
  bool startsWith(std::string_view token) {
    skipSpace();
    return text.substr(position).starts_with(token);
  }
  bool consume(std::string_view token) {
    if (!startsWith(token))
      return false;
    position += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!consume(token))
      fail("'" + std::string(token) + "' is missing");
  }
  static bool isNamePart(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  }
  bool consumeWord(std::string_view word) {
    if (!startsWith(word))
      return false;
    size_t end = position + word.size();
    if (end < text.size() && isNamePart(text[end]))
      return false;
    position = end;
    return true;
  }

  SymExpr parseOr() {
    std::vector<SymExpr> terms{parseAnd()};
    while (consumeWord("or"))
      terms.push_back(parseAnd());
    return terms.size() == 1 ? terms[0] : SymExpr::make(Kind::Or, terms);
  }
  SymExpr parseAnd() {
    std::vector<SymExpr> terms{parseNot()};
    while (consumeWord("and"))
      terms.push_back(parseNot());
    return terms.size() == 1 ? terms[0] : SymExpr::make(Kind::And, terms);
  }
  SymExpr parseNot() {
    Nesting nesting(*this);
    if (consumeWord("not"))
      return SymExpr::make(Kind::Not, {parseNot()});
    return parseComparison();
  }

  static SymExpr compare(std::string_view op, const SymExpr &a,
                         const SymExpr &b) {
    if (op == "==")
      return SymExpr::make(Kind::Eq, {a, b});
    if (op == "!=")
      return SymExpr::make(Kind::Ne, {a, b});
    if (op == "<=")
      return SymExpr::make(Kind::Le, {a, b});
    if (op == ">=")
      return SymExpr::make(Kind::Le, {b, a});
    if (op == "<")
      return SymExpr::make(Kind::Lt, {a, b});
    return SymExpr::make(Kind::Lt, {b, a});
  }
  SymExpr parseComparison() {
    SymExpr left = parseSum();
    std::vector<SymExpr> terms;
    while (true) {
      std::string_view found;
      for (std::string_view op : {"==", "!=", "<=", ">=", "<", ">"})
        if (consume(op)) {
          found = op;
          break;
        }
      if (found.empty())
        break;
      SymExpr right = parseSum();
      terms.push_back(compare(found, left, right));
      left = right;
    }
    if (terms.empty())
      return left;
    return terms.size() == 1 ? terms[0] : SymExpr::make(Kind::And, terms);
  }

  SymExpr parseSum() {
    SymExpr left = parseProduct();
    while (true) {
      if (consume("+"))
        left = left + parseProduct();
      else if (consume("-"))
        left = left - parseProduct();
      else
        return left;
    }
  }
  SymExpr parseProduct() {
    SymExpr left = parseUnary();
    while (true) {
      if (consume("//"))
        left = SymExpr::make(Kind::FloorDiv, {left, parseUnary()});
      else if (startsWith("**"))
        return left;
      else if (consume("*"))
        left = left * parseUnary();
      else if (consume("%"))
        left = SymExpr::make(Kind::Mod, {left, parseUnary()});
      else if (consume("/"))
        left = SymExpr::make(Kind::TrueDiv, {left, parseUnary()});
      else
        return left;
    }
  }
  SymExpr parseUnary() {
    Nesting nesting(*this);
    if (consume("-"))
      return SymExpr(0) - parseUnary();
    if (consume("+"))
      return parseUnary();
    SymExpr base = parseAtom();
    if (consume("**"))
      return SymExpr::make(Kind::Pow, {base, parseUnary()});
    return base;
  }

  SymExpr parseAtom() {
    if (consume("(")) {
      SymExpr inner = parseOr();
      expect(")");
      return inner;
    }
    if (startsWith("L["))
      return parseInput();
    skipSpace();
    size_t start = position;
    if (position < text.size() &&
        std::isdigit(static_cast<unsigned char>(text[position])))
      return parseNumber();
    while (position < text.size() && isNamePart(text[position]))
      ++position;
    std::string_view name = text.substr(start, position - start);
    if (name.empty())
      fail(position == text.size()
               ? "it ends too early"
               : "unexpected '" + std::string(text.substr(position, 12)) + "'");
    if (name == "True" || name == "False")
      return SymExpr::boolean(name == "True");
    if (consume("("))
      return parseCall(name);
    if (name.find('.') != name.npos)
      fail("'" + std::string(name) + "' is not known");
    return SymExpr::symbol(name);
  }

  SymExpr parseNumber() {
    const char *begin = text.data() + position,
               *end = text.data() + text.size();
    int64_t integer = 0;
    auto [integerEnd, integerError] = std::from_chars(begin, end, integer);
    double real = 0;
    auto [realEnd, realError] = std::from_chars(begin, end, real);
    if (realEnd > integerEnd && realError == std::errc()) {
      position += realEnd - begin;
      return SymExpr::real(real);
    }
    if (integerError != std::errc())
      fail("a number is too large");
    position += integerEnd - begin;
    return SymExpr::integer(integer);
  }

  SymExpr parseCall(std::string_view name) {
    std::vector<SymExpr> arguments;
    if (!consume(")")) {
      do
        arguments.push_back(parseOr());
      while (consume(","));
      expect(")");
    }
    auto need = [&](size_t count) {
      if (arguments.size() != count)
        fail(std::string(name) + " has " + std::to_string(arguments.size()) +
             " arguments");
    };
    auto binary = [&](Kind kind) {
      need(2);
      return SymExpr::make(kind, arguments);
    };
    auto unary = [&](Kind kind) {
      need(1);
      return SymExpr::make(kind, arguments);
    };
    if (name == "Eq")
      return binary(Kind::Eq);
    if (name == "Ne")
      return binary(Kind::Ne);
    if (name == "Lt")
      return binary(Kind::Lt);
    if (name == "Le")
      return binary(Kind::Le);
    if (name == "Gt" || name == "Ge") {
      need(2);
      return compare(name == "Gt" ? ">" : ">=", arguments[0], arguments[1]);
    }
    if (name == "And")
      return SymExpr::make(Kind::And, arguments);
    if (name == "Or")
      return SymExpr::make(Kind::Or, arguments);
    if (name == "Not")
      return unary(Kind::Not);
    if (name == "Mod" || name == "PythonMod")
      return binary(Kind::Mod);
    if (name == "FloorDiv" || name == "CleanDiv")
      return binary(Kind::FloorDiv);
    if (name == "IntTrueDiv" || name == "FloatTrueDiv")
      return binary(Kind::TrueDiv);
    if (name == "PowByNatural")
      return binary(Kind::Pow);
    if (name == "Max" || name == "max")
      return SymExpr::make(Kind::Max, arguments);
    if (name == "Min" || name == "min")
      return SymExpr::make(Kind::Min, arguments);
    if (name == "abs" || name == "Abs")
      return unary(Kind::Abs);
    if (name == "math.floor" || name == "FloorToInt")
      return unary(Kind::Floor);
    if (name == "math.ceil" || name == "CeilToInt")
      return unary(Kind::Ceil);
    if (name == "math.trunc" || name == "TruncToInt" || name == "int")
      return unary(Kind::Trunc);
    if (name.starts_with("math."))
      if (const auto *function = SymExpr::realFunction(name.substr(5)))
        return unary(function->kind);
    if (name == "float" || name == "ToFloat")
      return unary(Kind::ToFloat);
    fail("the function '" + std::string(name) + "' is not known");
  }

  /// L['x'][0].size()[1]
  SymExpr parseInput() {
    expect("L");
    size_t start = position;
    // No space inside a path, and none of what follows it.
    while (position < text.size() &&
           (text[position] == '[' || isFieldAccess())) {
      if (text[position] == '.') {
        ++position;
        while (position < text.size() && isNamePart(text[position]) &&
               text[position] != '.')
          ++position;
      } else {
        skipSubscript();
      }
    }
    std::string path(text.substr(start, position - start));
    const ValueMeta *meta = resolve(path);
    if (!meta)
      fail("there is no input L" + path);
    if (consume(".storage_offset()"))
      return tensor(*meta, path).storageOffset;
    bool isSize = consume(".size()");
    if (!isSize && !consume(".stride()")) {
      if (startsWith("."))
        fail("'" + std::string(text.substr(position, 16)) + "' is not known");
      if (meta->kind != ValueMeta::Kind::SymInt &&
          meta->kind != ValueMeta::Kind::SymFloat &&
          meta->kind != ValueMeta::Kind::SymBool)
        fail("the input L" + path + " is no number");
      return meta->expr;
    }
    const std::vector<SymExpr> &values =
        isSize ? tensor(*meta, path).sizes : tensor(*meta, path).strides;
    expect("[");
    SymExpr index = parseNumber();
    expect("]");
    std::optional<int64_t> dimension = index.asInteger();
    if (!dimension || *dimension >= static_cast<int64_t>(values.size()))
      fail("the input L" + path + " has only " + std::to_string(values.size()) +
           " dimensions");
    return values[*dimension];
  }
  const TensorMeta &tensor(const ValueMeta &meta, const std::string &path) {
    if (meta.kind != ValueMeta::Kind::Tensor)
      fail("the input L" + path + " is no tensor");
    return meta.tensor;
  }
  /// A field of a data class, not a method of a tensor.
  bool isFieldAccess() {
    return text[position] == '.' && !startsWith(".size()") &&
           !startsWith(".stride()") && !startsWith(".storage_offset()");
  }
  /// ['name'] or [0]; quotes in names are not escaped by PyTorch's printers in
  /// any form but a backslash.
  void skipSubscript() {
    expect("[");
    if (position < text.size() &&
        (text[position] == '\'' || text[position] == '"')) {
      char quote = text[position++];
      while (position < text.size() && text[position] != quote)
        position += text[position] == '\\' ? 2 : 1;
      ++position;
    } else {
      while (position < text.size() && text[position] != ']')
        ++position;
    }
    if (position >= text.size())
      fail("it ends too early");
    expect("]");
  }

  struct Nesting {
    explicit Nesting(GuardParser &parser) : parser(parser) {
      if (++parser.depth > kMaximalDepth)
        parser.fail("it is nested too deeply");
    }
    ~Nesting() { --parser.depth; }
    GuardParser &parser;
  };

  std::string_view text;
  const Resolve &resolve;
  size_t position = 0;
  int depth = 0;
};

} // namespace

std::optional<SymExpr> importer::parsePythonGuard(
    std::string_view text,
    const std::function<const ValueMeta *(std::string_view path)> &resolve,
    std::string &error) {
  try {
    return GuardParser(text, resolve).parse();
  } catch (const GuardError &guardError) {
    error = guardError.message;
  } catch (const std::invalid_argument &wrongOperands) {
    error = wrongOperands.what();
  }
  return std::nullopt;
}

// --- Input paths -------------------------------------------------------------

/// Python's repr of a string.
static std::string quoted(llvm::StringRef text) {
  char quote = text.contains('\'') && !text.contains('"') ? '"' : '\'';
  std::string out(1, quote);
  for (char c : text) {
    if (c == quote || c == '\\')
      out.push_back('\\');
    out.push_back(c);
  }
  out.push_back(quote);
  return out;
}

/// Numbers the leaves below `spec`, which is reached by `path`.
static void collectPaths(const json::Value &spec, const std::string &path,
                         size_t &next, std::map<std::string, size_t> &paths) {
  json::Object object = asObject(spec, "in_spec");
  json::Array children =
      asArray(field(object, "children_spec"), "children_spec");
  const json::Value *type = optionalField(object, "type");
  if (!type) {
    paths.emplace(path, next++);
    return;
  }
  std::string typeName = asString(*type, "type");
  // A dictionary's keys are its context, as JSON text.
  std::vector<std::string> keys;
  bool isDict = typeName == "builtins.dict" ||
                typeName == "collections.OrderedDict" ||
                typeName == "collections.defaultdict";
  if (isDict && typeName != "collections.defaultdict") {
    std::string context = asString(field(object, "context"), "context");
    JsonTape list = parseJson(context, "context");
    for (const json::Value &key : asArray(list.root(), "context"))
      keys.push_back(key.kind == json::Value::Kind::String
                         ? quoted(asString(key, "context"))
                         : std::to_string(asInteger(key, "context")));
  }
  for (auto [i, child] : llvm::enumerate(children)) {
    std::string step = i < keys.size() ? keys[i] : std::to_string(i);
    collectPaths(child, path + "[" + step + "]", next, paths);
  }
}

std::map<std::string, size_t>
importer::inputPaths(const std::string &inSpec,
                     const std::vector<std::string> &argumentNames) {
  std::map<std::string, size_t> paths;
  if (inSpec.empty())
    return paths;
  try {
    // [version, {tuple: [{tuple: args}, {dict: kwargs}]}]
    JsonTape tape = parseJson(inSpec, "in_spec");
    json::Array versioned = asArray(tape.root(), "in_spec");
    if (versioned.size() != 2)
      return paths;
    const json::Value &arguments = *std::next(versioned.begin());
    json::Array parts =
        asArray(field(asObject(arguments, "in_spec"), "children_spec"),
                "children_spec");
    size_t next = 0, name = 0;
    for (const json::Value &part : parts)
      for (const json::Value &argument :
           asArray(field(asObject(part, "in_spec"), "children_spec"),
                   "children_spec")) {
        std::string argumentName =
            name < argumentNames.size() ? argumentNames[name] : "";
        ++name;
        size_t first = next;
        collectPaths(argument, "[" + quoted(argumentName) + "]", next, paths);
        // *args: export calls the first "args_0", guards say L['args'][0].
        auto [stem, number] = llvm::StringRef(argumentName).rsplit('_');
        unsigned index = 0;
        if (!number.empty() && !number.getAsInteger(10, index)) {
          size_t again = first;
          collectPaths(argument, "[" + quoted(stem) + "][" + number.str() + "]",
                       again, paths);
        }
      }
  } catch (const ReadError &) {
    paths.clear();
  }
  return paths;
}
