//===- JsonTape.cpp - JSON for reading only -------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A recursive-descent parser of RFC 8259. Files come from anywhere: depth is
// bounded, and every byte is checked.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/JsonTape.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>

namespace intarsia {

using Value = JsonTape::Value;

class JsonParser {
public:
  JsonParser(std::string_view text, JsonTape &tape)
      : begin(text.data()), at(begin), end(begin + text.size()), tape(tape) {
    if (text.size() >= std::numeric_limits<uint32_t>::max())
      fail("a text of 4 GB or more");
    tape.values.reserve(text.size() / 6 + 4);
  }

  void run() {
    value(0);
    skipSpace();
    if (at != end)
      fail("more text after the value");
  }

private:
  static constexpr int maxDepth = 256;

  [[noreturn]] void fail(const std::string &what) const {
    throw std::runtime_error(what + " at byte " + std::to_string(at - begin));
  }

  void skipSpace() {
    while (at != end &&
           (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
      ++at;
  }

  bool take(char c) {
    skipSpace();
    if (at == end || *at != c)
      return false;
    ++at;
    return true;
  }

  void expect(char c) {
    if (!take(c))
      fail(std::string("'") + c + "' is expected" +
           (at == end ? ", the text ends" : ""));
  }

  void word(std::string_view spelling) {
    if (std::string_view(at, size_t(end - at)).substr(0, spelling.size()) !=
        spelling)
      fail("no value");
    at += spelling.size();
  }

  void value(int depth) {
    if (depth > maxDepth)
      fail("values are nested too deeply");
    skipSpace();
    if (at == end)
      fail("a value is expected, the text ends");
    size_t index = tape.values.size();
    tape.values.emplace_back();
    auto set = [&](Value::Kind kind) -> Value & {
      tape.values[index].kind = kind;
      return tape.values[index];
    };
    switch (*at) {
    case '{':
      ++at;
      set(Value::Kind::Object);
      if (!take('}')) {
        do {
          skipSpace();
          if (at == end || *at != '"')
            fail("a member's name is expected");
          value(depth + 1);
          expect(':');
          value(depth + 1);
        } while (take(','));
        expect('}');
      }
      break;
    case '[':
      ++at;
      set(Value::Kind::Array);
      if (!take(']')) {
        do
          value(depth + 1);
        while (take(','));
        expect(']');
      }
      break;
    case '"':
      set(Value::Kind::String).text = string();
      break;
    case 't':
      word("true");
      set(Value::Kind::Boolean).boolean = true;
      break;
    case 'f':
      word("false");
      set(Value::Kind::Boolean);
      break;
    case 'n':
      word("null");
      break;
    default:
      number(tape.values[index]);
    }
    tape.values[index].count = uint32_t(tape.values.size() - index);
  }

  static bool isDigit(char c) { return c >= '0' && c <= '9'; }

  void digits() {
    if (at == end || !isDigit(*at))
      fail("a digit is expected");
    while (at != end && isDigit(*at))
      ++at;
  }

  void number(Value &out) {
    const char *start = at;
    if (*at == '-')
      ++at;
    if (at != end && *at == '0')
      ++at;
    else if (at != end && isDigit(*at))
      digits();
    else
      fail("no value");
    bool isInteger = true;
    if (at != end && *at == '.') {
      isInteger = false;
      ++at;
      digits();
    }
    if (at != end && (*at == 'e' || *at == 'E')) {
      isInteger = false;
      ++at;
      if (at != end && (*at == '+' || *at == '-'))
        ++at;
      digits();
    }
    if (isInteger &&
        std::from_chars(start, at, out.integer).ec == std::errc()) {
      out.kind = Value::Kind::Integer;
      out.real = double(out.integer);
      return;
    }
    out.kind = Value::Kind::Real;
    if (std::from_chars(start, at, out.real).ec != std::errc())
      fail("a number out of range");
  }

  unsigned hexadecimal() {
    unsigned code = 0;
    if (end - at < 4 || std::from_chars(at, at + 4, code, 16).ptr != at + 4)
      fail("four hexadecimal digits are expected");
    at += 4;
    return code;
  }

  static void appendUtf8(std::string &out, unsigned code) {
    auto more = [&](unsigned shift) {
      out += char(0x80 | ((code >> shift) & 0x3f));
    };
    if (code < 0x80) {
      out += char(code);
    } else if (code < 0x800) {
      out += char(0xc0 | (code >> 6));
      more(0);
    } else if (code < 0x10000) {
      out += char(0xe0 | (code >> 12));
      more(6);
      more(0);
    } else {
      out += char(0xf0 | (code >> 18));
      more(12);
      more(6);
      more(0);
    }
  }

  void escape(std::string &out) {
    if (at == end)
      fail("a string does not end");
    switch (char c = *at++) {
    case '"':
    case '\\':
    case '/':
      out += c;
      return;
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'u': {
      unsigned code = hexadecimal();
      if (code >= 0xd800 && code < 0xdc00 && end - at >= 2 && at[0] == '\\' &&
          at[1] == 'u') {
        const char *second = at;
        at += 2;
        unsigned low = hexadecimal();
        if (low >= 0xdc00 && low < 0xe000)
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        else
          at = second;
      }
      // Python writes a byte of a file's name that is not UTF-8 as half a pair.
      bool isHalf = code >= 0xd800 && code < 0xe000;
      appendUtf8(out, isHalf ? 0xfffd : code);
      return;
    }
    default:
      fail("an unknown escape sequence");
    }
  }

  /// Skips one character beyond ASCII: shortest forms only, no surrogates.
  void skipUtf8() {
    auto lead = static_cast<unsigned char>(*at);
    int count = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || end - at <= count)
      fail("bytes that are not UTF-8");
    unsigned code = lead & (0x3f >> count);
    for (int i = 1; i <= count; ++i) {
      auto next = static_cast<unsigned char>(at[i]);
      if ((next & 0xc0) != 0x80)
        fail("bytes that are not UTF-8");
      code = code << 6 | (next & 0x3f);
    }
    bool isShortest = code >= (count == 1   ? 0x80u
                               : count == 2 ? 0x800u
                                            : 0x10000u);
    if (!isShortest || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      fail("bytes that are not UTF-8");
    at += count + 1;
  }

  std::string_view string() {
    ++at;
    const char *start = at;
    std::string *copy = nullptr;
    while (true) {
      if (at == end)
        fail("a string does not end");
      auto c = static_cast<unsigned char>(*at);
      if (c == '"' || c == '\\') {
        if (copy)
          copy->append(start, at);
        else if (c == '\\')
          copy = &tape.unescaped.emplace_back(start, at);
        std::string_view plain(start, size_t(at - start));
        ++at;
        if (c == '"')
          return copy ? std::string_view(*copy) : plain;
        escape(*copy);
        start = at;
      } else if (c < 0x20) {
        fail("a control character in a string");
      } else if (c < 0x80) {
        ++at;
      } else {
        skipUtf8();
      }
    }
  }

  const char *begin, *at, *end;
  JsonTape &tape;
};

JsonTape::JsonTape(std::string_view text) { JsonParser(text, *this).run(); }

const Value *Value::find(std::string_view key) const {
  for (const Value *at = members(); at != next(); at = at[1].next())
    if (at->text == key)
      return at + 1;
  return nullptr;
}

bool Value::operator==(const Value &other) const {
  return std::equal(this, next(), &other, other.next(),
                    [](const Value &a, const Value &b) {
                      return a.kind == b.kind && a.count == b.count &&
                             a.boolean == b.boolean && a.integer == b.integer &&
                             a.real == b.real && a.text == b.text;
                    });
}

} // namespace intarsia
