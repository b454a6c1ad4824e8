//===- OperatorFactsTest.cpp - What a call does
//-----------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Facts from schemas, from tags and from our own table.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Import/OperatorFacts.h"
#include "Fixtures.h"

using namespace intarsia::importer;
using namespace intarsia::importer::test;

static Argument boolean(bool value) {
  Argument argument;
  argument.kind = Argument::Kind::Bool;
  argument.boolean = value;
  return argument;
}

static Argument tensor() {
  Argument argument;
  argument.kind = Argument::Kind::Value;
  return argument;
}

TEST(OperatorFacts, FromTheSchema) {
  OperatorFacts facts = operatorFacts(*testSchemas("aten::copy_"), {});
  EXPECT_EQ(facts.mutated, std::vector<size_t>{0});
  EXPECT_EQ(facts.returns[0].tied, 0u);
  facts = operatorFacts(*testSchemas("aten::view"), {});
  EXPECT_EQ(facts.returns[0].views, std::vector<size_t>{0});
  EXPECT_FALSE(facts.effectful);
  facts = operatorFacts(*testSchemas("mylib::print"), {});
  EXPECT_TRUE(facts.effectful);
  facts = operatorFacts(*testSchemas("mylib::acc_"), {});
  EXPECT_FALSE(facts.effectful);
}

TEST(OperatorFacts, UndeclaredMutationDependsOnTheMode) {
  OperatorSchema schema = *testSchemas("aten::batch_norm");
  Argument none;
  EXPECT_EQ(operatorFacts(schema, {tensor(), tensor(), tensor(), boolean(true)})
                .mutated,
            (std::vector<size_t>{1, 2}));
  EXPECT_TRUE(
      operatorFacts(schema, {tensor(), tensor(), tensor(), boolean(false)})
          .mutated.empty());
  EXPECT_TRUE(operatorFacts(schema, {tensor(), none, none, boolean(true)})
                  .mutated.empty());
  // Not known counts as the worst.
  EXPECT_EQ(operatorFacts(schema, {}).mutated.size(), 2u);
}

TEST(OperatorFacts, DropoutOutsideTraining) {
  OperatorSchema schema = *testSchemas("aten::dropout");
  Argument p;
  p.kind = Argument::Kind::Float;
  p.real = 0.5;
  OperatorFacts facts = operatorFacts(schema, {tensor(), p, boolean(false)});
  EXPECT_FALSE(facts.random);
  EXPECT_EQ(facts.returns[0].views, std::vector<size_t>{0});
  EXPECT_TRUE(facts.returns[0].isSame);
  EXPECT_TRUE(operatorFacts(schema, {tensor(), p, boolean(true)}).random);
}

TEST(OperatorFacts, SchemasThatAreNoJson) {
  EXPECT_FALSE(parseOperatorSchema(""));
  EXPECT_FALSE(parseOperatorSchema("{}"));
  EXPECT_FALSE(parseOperatorSchema(
      R"({"name": 1, "schema": "", "arguments": [], "returns": []})"));
}
