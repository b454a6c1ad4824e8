//===- ReadPt2Test.cpp - Reader A
//-------------------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What an exported program becomes, and what is said of files that are no
// exported programs.
//
//===----------------------------------------------------------------------===//

#include "Fixtures.h"

using namespace intarsia;
using namespace intarsia::importer;
using namespace intarsia::importer::test;

namespace {

class ReadPt2 : public ArchiveFolder {
protected:
  std::string errorFor(const Records &records) {
    llvm::Expected<Program> program = readPt2(write(records));
    if (program)
      return importText(std::move(program));
    return llvm::toString(program.takeError());
  }
  /// The model with one piece of its text replaced.
  std::string errorWith(const std::string &from, const std::string &to) {
    Records records = modelRecords();
    for (auto &[name, contents] : records)
      if (size_t at = contents.find(from); at != contents.npos)
        contents.replace(at, from.size(), to);
    return errorFor(records);
  }
};

} // namespace

#define EXPECT_CONTAINS(text, part)                                            \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(ReadPt2, Program) {
  llvm::Expected<Program> program = readPt2(write(modelRecords()));
  ASSERT_TRUE(static_cast<bool>(program))
      << llvm::toString(program.takeError());
  const Graph &graph = program->graph;
  EXPECT_EQ(graph.inputs,
            (std::vector<std::string>{"b_buf", "c_c", "x", "flag"}));
  EXPECT_EQ(program->inputs[0].target, "buf");
  EXPECT_EQ(program->inputs[3].kind, InputSpec::Kind::ConstantInput);
  EXPECT_TRUE(program->inputs[3].constant.boolean);
  EXPECT_EQ(program->outputs[0].kind, OutputSpec::Kind::BufferMutation);
  EXPECT_TRUE(program->functional);

  const Node &add = graph.nodes[1];
  EXPECT_EQ(add.target, "aten::add.Tensor");
  EXPECT_EQ(add.module, "lin");
  ASSERT_EQ(add.stack.size(), 2u);
  EXPECT_EQ(add.stack[0].code, "return x + self.c");
  const Node &split = graph.nodes[3];
  ASSERT_EQ(split.outputs.size(), 1u);
  EXPECT_EQ(split.outputs[0].list[1].name, "split_unused_1");
  EXPECT_EQ(graph.values.at("nz").tensor.dtype, DType::I64);
  EXPECT_EQ(graph.values.at("ge").expr.str(), "le(3, s0)");

  ASSERT_EQ(program->weights.size(), 2u);
  EXPECT_EQ(program->weights[0].record, "data/weights/weight_0");
  // 2 is where PyTorch begins to trace; a program may run with less.
  ASSERT_FALSE(program->ranges.empty());
  EXPECT_FALSE(program->ranges[0].min);
  EXPECT_EQ(program->ranges[0].max, 64);
}

TEST_F(ReadPt2, Subgraphs) {
  std::string graph =
      R"({"inputs": [{"as_tensor": {"name": "a"}}, {"as_int": 3}], "outputs": [{"as_tensor": {"name": "a"}}], "nodes": [],
          "tensor_values": {"a": {"dtype": 7, "sizes": [], "requires_grad": false, "device": {"type": "cuda", "index": 1}, "strides": [], "storage_offset": {"as_int": 0}, "layout": 7}},
          "sym_int_values": {}, "sym_bool_values": {}})";
  std::string node =
      R"({"target": "torch.ops.higher_order.invoke_subgraph", "name": "n", "inputs": [{"name": "", "arg": {"as_graph": {"name": "sub", "graph": )" +
      graph + R"(}}, "kind": 1}], "outputs": [], "metadata": {}},)";
  Records records = modelRecords();
  std::string &model = records["models/model.json"];
  size_t at = model.find("{\"target\": \"torch.ops.mylib.nz");
  model.insert(at, node + node); // used twice, written twice
  llvm::Expected<Program> program = readPt2(write(records));
  ASSERT_TRUE(static_cast<bool>(program))
      << llvm::toString(program.takeError());
  ASSERT_EQ(program->graphs.size(), 1u);
  const Graph &sub = program->graphs.at("sub");
  EXPECT_EQ(sub.values.at("a").tensor.device, "cuda:1");
  EXPECT_EQ(sub.values.at(sub.inputs[1]).expr.asInteger(), 3);
}

TEST_F(ReadPt2, DictionariesKeepTheirOrders) {
  auto node = [](const std::string &entries) {
    return R"({"target": "torch.ops.mylib.d", "name": "d", "inputs": [{"name": "", "arg": {"as_string_to_argument": {)" +
           entries + R"(}}, "kind": 1}], "outputs": [], "metadata": {}},)";
  };
  std::string a = R"("a": {"as_int": 1})", b = R"("b": {"as_int": 2})";
  Records records = modelRecords();
  std::string &model = records["models/model.json"];
  model.insert(model.find("{\"target\": \"torch.ops.mylib.nz"),
               node(b + "," + a) + node(a + "," + b));
  llvm::Expected<Program> program = readPt2(write(records));
  ASSERT_TRUE(static_cast<bool>(program))
      << llvm::toString(program.takeError());
  std::string order;
  for (const Node &node : program->graph.nodes)
    if (node.name == "d")
      for (const Argument &member : node.args[0].second.list)
        order += member.text;
  EXPECT_EQ(order, "baab");
}

TEST_F(ReadPt2, ErrorsNameTheFileAndTheFault) {
  std::string missing = llvm::toString(readPt2("/nonexistent.pt2").takeError());
  EXPECT_CONTAINS(missing, "/nonexistent.pt2: cannot be opened");
  EXPECT_CONTAINS(errorFor({{"readme", "hello"}}),
                  "record 'models/model.json': is missing: this is no file");
  EXPECT_CONTAINS(errorWith("\"major\": 8", "\"major\": 9"),
                  "version 9.99 of PyTorch's export schema");
  EXPECT_CONTAINS(errorWith("\"verifiers\": [", "\"verifiers\": [,"),
                  "is not JSON");
  EXPECT_CONTAINS(errorWith("\"dtype\": 5", "\"dtype\": 99"),
                  "value 'nz': the export schema's dtype 99");
  EXPECT_CONTAINS(errorWith("\"layout\": 7", "\"layout\": 1"), "sparse_coo");
  for (const char *size : {"oo", "Float(2.5)", "true"})
    EXPECT_CONTAINS(errorWith("Symbol('u0', integer=True)", size),
                    "value 'nz': 'sizes' has ");
  EXPECT_CONTAINS(errorWith("\"as_operator\"", "\"as_spell\""),
                  "it has the kind 'as_spell', which is not supported");
  EXPECT_CONTAINS(
      errorWith(
          R"({"as_tensor": {"name": "c_c"}}, "kind": 1}])",
          R"({"as_custom_obj": {"name": "o", "class_fqn": "my.Cls"}}, "kind": 1}])"),
      "model.py:12: return x + self.c): argument 'other': takes a custom "
      "object of class my.Cls");
  // An object that is an input of the graph: its operator is named, too.
  Records records = modelRecords();
  std::string &model = records["models/model.json"];
  const std::string
      tensor = R"({"as_tensor": {"name": "c_c"}})",
      object = R"({"as_custom_obj": {"name": "c_c", "class_fqn": "C"}})";
  for (size_t at; (at = model.find(tensor)) != model.npos;)
    model.replace(at, tensor.size(), object);
  EXPECT_CONTAINS(errorFor(records),
                  "model.py:12: return x + self.c): argument 'other': takes a "
                  "custom object of class C: objects are not supported in .pt2 "
                  "files; make what the operator needs of it tensors, numbers "
                  "or strings");
  EXPECT_CONTAINS(errorWith("\"inputs\": [{", "\"inputs\": {} , \"z\": [{"),
                  "'inputs' is an object where an array is expected");
  EXPECT_CONTAINS(
      errorWith("\"path_name\": \"weight_0\"", "\"path_name\": \"weight_9\""),
      "weight 'buf': its record 'data/weights/weight_9' is missing");
  EXPECT_CONTAINS(errorWith("\"use_pickle\": false", "\"use_pickle\": true"),
                  "pickled");
  EXPECT_CONTAINS(errorWith("{\"config\": {\"buf\"", "{\"config\": {\"bof\""),
                  "no data for 'buf'");
}

TEST_F(ReadPt2, RefusesWeightsThatDoNotFit) {
  Records records = modelRecords();
  records["data/weights/weight_0"] = "short";
  EXPECT_CONTAINS(errorFor(records), "needs more bytes than its record");
  records["data/weights/weight_0"] = "";
  EXPECT_CONTAINS(errorFor(records), "fake weights");
  records = modelRecords();
  std::string &config = records["data/weights/model_weights_config.json"];
  config.replace(config.find("\"as_int\": 4"), 11,
                 "\"as_int\": 9000000000000000000");
  EXPECT_CONTAINS(errorFor(records), "weight 'buf'");
}

TEST_F(ReadPt2, ErrorsOfTheBuilderNameTheNode) {
  EXPECT_CONTAINS(
      errorWith(R"("other", "arg": {"as_tensor": {"name": "c_c"}})",
                R"("other", "arg": {"as_tensor": {"name": "later"}})"),
      "operator 'aten::add.Tensor' (node 'add', "
      "/home/me/model.py:12 in forward: return x + self.c): uses "
      "the value 'later'");
  EXPECT_CONTAINS(
      errorWith("torch.ops.mylib.nz.default", "torch.ops.theirs.op.default"),
      "'theirs::op' is not registered in this process. Load the "
      "library that defines it (--op-library)");
  EXPECT_CONTAINS(
      errorWith("(L['x'].size()[0] % 8) == 0", "L['z'].size()[0] == 2"),
      "guard 'L['z'].size()[0] == 2' is not understood");
  EXPECT_CONTAINS(errorWith("\"name\": \"other\"", "\"name\": \"another\""),
                  "has no argument 'another'");
  EXPECT_CONTAINS(errorWith("\"name\": \"nz\"}}]", "\"name\": \"add\"}}]"),
                  "the value 'add' is defined twice");
}

TEST_F(ReadPt2, SurvivesHostileText) {
  Records records = modelRecords();
  records["models/model.json"] = std::string(100000, '[');
  EXPECT_CONTAINS(errorFor(records), "nested too deeply");
  // Cut anywhere, the text is an error and never a crash.
  std::string model = kModel;
  for (size_t length = 0; length < model.size(); length += 311) {
    records["models/model.json"] = model.substr(0, length);
    EXPECT_CONTAINS(errorFor(records), "m.pt2");
  }
  // One character replaced: either still a program, or an error.
  for (size_t at = 0; at < model.size(); at += 67) {
    std::string changed = model;
    changed[at] = changed[at] == '7' ? '0' : '7';
    records["models/model.json"] = changed;
    EXPECT_FALSE(errorFor(records).empty());
  }
}
