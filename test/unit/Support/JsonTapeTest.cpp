//===- JsonTapeTest.cpp - Tests of JSON for reading -----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/JsonTape.h"

#include "gtest/gtest.h"

using namespace intarsia;

namespace {

std::string faultOf(const std::string &text) {
  try {
    JsonTape tape(text);
  } catch (const std::runtime_error &error) {
    return error.what();
  }
  return "";
}

std::string textOf(const std::string &text) {
  JsonTape tape(text);
  return std::string(tape.root().text);
}

TEST(JsonTapeTest, MembersFollowTheirValue) {
  std::string text =
      R"({"a": [1, [2.5, {}], "x"], "b": {"c": null}, "a": true, "d": 1e3})";
  JsonTape tape(text);
  using Kind = JsonTape::Value::Kind;
  const JsonTape::Value &root = tape.root();
  const JsonTape::Value *a = root.find("a");
  ASSERT_TRUE(a);
  ASSERT_EQ(a->kind, Kind::Array);
  const JsonTape::Value *element = a->members();
  EXPECT_EQ(element->integer, 1);
  element = element->next();
  EXPECT_EQ(element->members()->real, 2.5);
  element = element->next();
  EXPECT_EQ(element->text, "x");
  EXPECT_EQ(element->next(), a->next());
  EXPECT_EQ(root.find("b")->find("c")->kind, Kind::Null);
  EXPECT_EQ(root.find("c"), nullptr);
  EXPECT_EQ(root.find("d")->kind, Kind::Real);
}

TEST(JsonTapeTest, EqualValues) {
  std::string text =
      R"([{"a": [1, "x"]}, {"a": [1, "x"]}, {"a": [1], "x": 0}, {"a": [2, "x"]}])";
  JsonTape tape(text);
  const JsonTape::Value *first = tape.root().members();
  const JsonTape::Value *second = first->next();
  EXPECT_TRUE(*first == *second);
  EXPECT_FALSE(*first == *second->next());
  EXPECT_FALSE(*first == *second->next()->next());
}

TEST(JsonTapeTest, Escapes) {
  EXPECT_EQ(textOf(R"("a\n\"\u00e9\ud83d\ude00")"), "a\n\"\u00e9\U0001F600");
  // Python writes a file's name whose bytes are not UTF-8 in this way.
  EXPECT_EQ(textOf(R"("caf\udce9.py")"), "caf\ufffd.py");
  EXPECT_EQ(textOf(R"("\ud83d")"), "\ufffd");
  EXPECT_EQ(textOf(R"("\ud83d\u0041\ud83d\ud83d\ude00")"),
            "\ufffdA\ufffd\U0001F600");
}

TEST(JsonTapeTest, Faults) {
  EXPECT_EQ(faultOf(std::string(300, '[')),
            "values are nested too deeply at byte 257");
  EXPECT_EQ(faultOf("\"\xe9\""), "bytes that are not UTF-8 at byte 1");
  EXPECT_EQ(faultOf("[1, ]"), "no value at byte 4");
  EXPECT_EQ(faultOf("[NaN]"), "no value at byte 1");
  EXPECT_EQ(faultOf("{\"a\" 1}"), "':' is expected at byte 5");
  EXPECT_EQ(faultOf("\"\\ud8"),
            "four hexadecimal digits are expected at byte 3");
}

} // namespace
