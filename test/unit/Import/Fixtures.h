//===- Fixtures.h - Programs and schemas for importer tests -------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A handful of operator schemas, in the JSON that the shim writes, and the
// model.json of a small exported program. Neither PyTorch nor Python is needed.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_TEST_UNIT_IMPORT_FIXTURES_H
#define INTARSIA_TEST_UNIT_IMPORT_FIXTURES_H

#include "intarsia/Artifact/Archive.h"
#include "intarsia/Import/Import.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <map>

namespace intarsia::importer::test {

inline const std::map<std::string, std::string> &schemaTable() {
  static const std::map<std::string, std::string> kTable = {
      {"aten::add.Tensor", R"json({"name": "aten::add.Tensor",
        "schema": "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "arguments": [{"name": "self", "type": "Tensor"}, {"name": "other", "type": "Tensor"},
          {"name": "alpha", "type": "Scalar", "kwarg_only": true, "default": {"kind": "int", "value": 1}}],
        "returns": [{"name": "", "type": "Tensor"}], "tags": ["pointwise"]})json"},
      {"aten::split_with_sizes",
       R"json({"name": "aten::split_with_sizes", "schema": "aten::split_with_sizes(...)",
        "arguments": [{"name": "self", "type": "Tensor", "alias_set": ["a"]},
          {"name": "split_sizes", "type": "SymInt[]"},
          {"name": "dim", "type": "int", "default": {"kind": "int", "value": 0}}],
        "returns": [{"name": "", "type": "Tensor[]", "alias_set": ["a"]}]})json"},
      {"aten::avg_pool",
       R"json({"name": "aten::avg_pool", "schema": "aten::avg_pool(...)",
        "arguments": [{"name": "self", "type": "Tensor"}, {"name": "kernel", "type": "int[2]"},
          {"name": "scale", "type": "float", "default": {"kind": "int", "value": 2}},
          {"name": "dtype", "type": "ScalarType?", "default": {"kind": "int", "value": 15}}],
        "returns": [{"name": "", "type": "Tensor"}]})json"},
      {"aten::copy_",
       R"json({"name": "aten::copy_", "schema": "aten::copy_(...)",
        "arguments": [{"name": "self", "type": "Tensor", "alias_set": ["a"], "is_write": true},
          {"name": "src", "type": "Tensor"},
          {"name": "non_blocking", "type": "bool", "default": {"kind": "bool", "value": false}}],
        "returns": [{"name": "", "type": "Tensor", "alias_set": ["a"], "is_write": true}]})json"},
      {"aten::add_.Tensor",
       R"json({"name": "aten::add_.Tensor", "schema": "aten::add_.Tensor(...)",
        "arguments": [{"name": "self", "type": "Tensor", "alias_set": ["a"], "is_write": true},
          {"name": "other", "type": "Tensor"}],
        "returns": [{"name": "", "type": "Tensor", "alias_set": ["a"], "is_write": true}]})json"},
      {"aten::view", R"json({"name": "aten::view", "schema": "aten::view(...)",
        "arguments": [{"name": "self", "type": "Tensor", "alias_set": ["a"]}, {"name": "size", "type": "SymInt[]"}],
        "returns": [{"name": "", "type": "Tensor", "alias_set": ["a"]}]})json"},
      {"aten::batch_norm",
       R"json({"name": "aten::batch_norm", "schema": "aten::batch_norm(...)",
        "arguments": [{"name": "input", "type": "Tensor"}, {"name": "running_mean", "type": "Tensor?"},
          {"name": "running_var", "type": "Tensor?"}, {"name": "training", "type": "bool"}],
        "returns": [{"name": "", "type": "Tensor"}]})json"},
      {"aten::dropout",
       R"json({"name": "aten::dropout", "schema": "aten::dropout(...)",
        "arguments": [{"name": "input", "type": "Tensor"}, {"name": "p", "type": "float"}, {"name": "train", "type": "bool"}],
        "returns": [{"name": "", "type": "Tensor"}], "tags": ["nondeterministic_seeded"]})json"},
      {"aten::as_strided",
       R"json({"name": "aten::as_strided", "schema": "aten::as_strided(...)",
        "arguments": [{"name": "self", "type": "Tensor", "alias_set": ["a"]}, {"name": "size", "type": "SymInt[]"},
          {"name": "stride", "type": "SymInt[]"}, {"name": "storage_offset", "type": "SymInt?", "default": {"kind": "none"}}],
        "returns": [{"name": "", "type": "Tensor", "alias_set": ["a"]}]})json"},
      {"aten::empty_strided",
       R"json({"name": "aten::empty_strided", "schema": "aten::empty_strided(...)",
        "arguments": [{"name": "size", "type": "SymInt[]"}, {"name": "stride", "type": "SymInt[]"},
          {"name": "dtype", "type": "ScalarType?", "default": {"kind": "none"}},
          {"name": "device", "type": "Device?", "default": {"kind": "none"}}],
        "returns": [{"name": "", "type": "Tensor"}]})json"},
      {"mylib::acc_",
       R"json({"name": "mylib::acc_", "schema": "mylib::acc_(Tensor(a!) x, Tensor y) -> ()",
        "arguments": [{"name": "x", "type": "Tensor", "alias_set": ["a"], "is_write": true}, {"name": "y", "type": "Tensor"}],
        "returns": []})json"},
      {"mylib::inc_",
       R"json({"name": "mylib::inc_", "schema": "mylib::inc_(Tensor(a!) x) -> Tensor(a!)",
        "arguments": [{"name": "x", "type": "Tensor", "alias_set": ["a"], "is_write": true}],
        "returns": [{"name": "", "type": "Tensor", "alias_set": ["a"], "is_write": true}], "tags": ["inplace"]})json"},
      {"mylib::out",
       R"json({"name": "mylib::out", "schema": "mylib::out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
        "arguments": [{"name": "x", "type": "Tensor"},
          {"name": "out", "type": "Tensor", "kwarg_only": true, "alias_set": ["a"], "is_write": true}],
        "returns": [{"name": "", "type": "Tensor", "alias_set": ["a"], "is_write": true}], "tags": ["out"]})json"},
      {"mylib::nz",
       R"json({"name": "mylib::nz", "schema": "mylib::nz(Tensor x) -> Tensor",
        "arguments": [{"name": "x", "type": "Tensor"}], "returns": [{"name": "", "type": "Tensor"}]})json"},
      {"mylib::print",
       R"json({"name": "mylib::print", "schema": "mylib::print(Tensor x) -> ()",
        "arguments": [{"name": "x", "type": "Tensor"}], "returns": []})json"},
  };
  return kTable;
}

inline std::optional<OperatorSchema> testSchemas(const std::string &name) {
  auto found = schemaTable().find(name);
  if (found == schemaTable().end())
    return std::nullopt;
  return parseOperatorSchema(found->second);
}

/// Builds and prints; an error's message is returned as "error: ...".
inline std::string importText(llvm::Expected<Program> program) {
  if (!program)
    return "error: " + llvm::toString(program.takeError());
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto module = buildModule(*program, &context, testSchemas);
  if (!module)
    return "error: " + llvm::toString(module.takeError());
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*module)->print(stream);
  return text;
}

/// A folder that is removed at the end of the test, and archives in it.
class ArchiveFolder : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern =
        std::filesystem::temp_directory_path() / "intarsia-import-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  using Records = std::map<std::string, std::string>;
  std::string write(const Records &records) {
    std::string path = folder / "m.pt2";
    artifact::ArchiveWriter writer(path, "m");
    for (const auto &[name, contents] : records)
      writer.add(name, contents);
    writer.finish();
    return path;
  }

  std::filesystem::path folder;
};

/// forward(x: f32[s0, 4]): buf := buf + x[0]...; returns x + c, the first half
/// of x, and the places of its nonzero elements.
inline const char *kModel = R"json({
 "graph_module": {"graph": {
  "inputs": [{"as_tensor": {"name": "b_buf"}}, {"as_tensor": {"name": "c_c"}},
             {"as_tensor": {"name": "x"}}, {"as_bool": true}],
  "outputs": [{"as_tensor": {"name": "getitem_1"}}, {"as_tensor": {"name": "add"}},
              {"as_tensor": {"name": "getitem_3"}}, {"as_tensor": {"name": "nz"}}, {"as_none": true}],
  "nodes": [
   {"target": "torch.ops.aten.sym_size.int", "name": "sym_size",
    "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, {"name": "dim", "arg": {"as_int": 0}, "kind": 1}],
    "outputs": [{"as_sym_int": {"as_name": "sym_size"}}], "metadata": {}},
   {"target": "torch.ops.aten.add.Tensor", "name": "add",
    "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, {"name": "other", "arg": {"as_tensor": {"name": "c_c"}}, "kind": 1}],
    "outputs": [{"as_tensor": {"name": "add"}}],
    "metadata": {"stack_trace": "  File \"/home/me/model.py\", line 12, in forward\n    return x + self.c\n  File \"/usr/lib/site-packages/torch/nn/modules/x.py\", line 3, in forward\n    inner()",
                 "nn_module_stack": "L__self__,,model.M;L__self___lin,lin,torch.nn.Linear"}},
   {"target": "torch.ops.higher_order.auto_functionalized_v2", "name": "auto",
    "inputs": [{"name": "", "arg": {"as_operator": "torch.ops.mylib.acc_.default"}, "kind": 1},
               {"name": "y", "arg": {"as_tensor": {"name": "x"}}, "kind": 2}, {"name": "_x_base_index", "arg": {"as_int": 0}, "kind": 2},
               {"name": "_all_bases", "arg": {"as_tensors": [{"name": "b_buf"}]}, "kind": 2}],
    "outputs": [{"as_none": true}, {"as_tensor": {"name": "getitem_1"}}], "metadata": {}, "is_hop_single_tensor_return": false},
   {"target": "torch.ops.aten.split_with_sizes.default", "name": "split",
    "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, {"name": "split_sizes", "arg": {"as_ints": [2, 2]}, "kind": 1},
               {"name": "dim", "arg": {"as_int": 1}, "kind": 1}],
    "outputs": [{"as_tensors": [{"name": "getitem_3"}, {"name": "split_unused_1"}]}], "metadata": {}},
   {"target": "torch.ops.mylib.nz.default", "name": "nz",
    "inputs": [{"name": "x", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}],
    "outputs": [{"as_tensor": {"name": "nz"}}], "metadata": {}},
   {"target": "_operator.ge", "name": "ge",
    "inputs": [{"name": "a", "arg": {"as_sym_int": {"as_name": "sym_size"}}, "kind": 1}, {"name": "b", "arg": {"as_int": 3}, "kind": 1}],
    "outputs": [{"as_sym_bool": {"as_name": "ge"}}], "metadata": {}},
   {"target": "torch.ops.aten._assert_scalar.default", "name": "assert",
    "inputs": [{"name": "self", "arg": {"as_sym_bool": {"as_name": "ge"}}, "kind": 1}, {"name": "assert_msg", "arg": {"as_string": "too few rows"}, "kind": 1}],
    "outputs": [], "metadata": {}}],
  "tensor_values": {
   "b_buf": {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7},
   "getitem_1": {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7},
   "c_c": {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7},
   "x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 5}}}, {"as_int": 4}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 4}, {"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7},
   "add": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 5}}}, {"as_int": 4}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 4}, {"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7},
   "getitem_3": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 5}}}, {"as_int": 2}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 4}, {"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7},
   "split_unused_1": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 5}}}, {"as_int": 2}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 4}, {"as_int": 1}], "storage_offset": {"as_int": 2}, "layout": 7},
   "nz": {"dtype": 5, "sizes": [{"as_expr": {"expr_str": "Symbol('u0', integer=True)", "hint": null}}, {"as_int": 2}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 2}, {"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}},
  "sym_int_values": {"sym_size": {"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 5}}}},
  "sym_bool_values": {"ge": {"as_expr": {"expr_str": "GreaterThan(Symbol('s0', positive=True, integer=True), Integer(3))", "hint": null}}}},
 "signature": {
  "input_specs": [{"buffer": {"arg": {"name": "b_buf"}, "buffer_name": "buf", "persistent": true}},
   {"tensor_constant": {"arg": {"name": "c_c"}, "tensor_constant_name": "c"}},
   {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
   {"constant_input": {"name": "flag", "value": {"as_bool": true}}}],
  "output_specs": [{"buffer_mutation": {"arg": {"name": "getitem_1"}, "buffer_name": "buf"}},
   {"user_output": {"arg": {"as_tensor": {"name": "add"}}}}, {"user_output": {"arg": {"as_tensor": {"name": "getitem_3"}}}},
   {"user_output": {"arg": {"as_tensor": {"name": "nz"}}}}, {"user_output": {"arg": {"as_none": true}}}]},
 "module_call_graph": [{"fqn": "", "signature": {"inputs": [], "outputs": [],
   "in_spec": "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": null, \"context\": null, \"children_spec\": []}, {\"type\": null, \"context\": null, \"children_spec\": []}]}, {\"type\": \"builtins.dict\", \"context\": \"[]\", \"children_spec\": []}]}]",
   "out_spec": "[1, {\"type\": null, \"context\": null, \"children_spec\": []}]", "forward_arg_names": ["x", "flag"]}}]},
 "range_constraints": {"s0": {"min_val": 2, "max_val": 64}, "u0": {"min_val": 0, "max_val": null}},
 "guards_code": ["(L['x'].size()[0] % 8) == 0"],
 "opset_version": {"aten": 10}, "schema_version": {"major": 8, "minor": 99},
 "verifiers": ["ATEN"], "torch_version": "2.15.0"})json";

inline const char *kWeights =
    R"({"config": {"buf": {"path_name": "weight_0", "is_param": false, "use_pickle": false,
  "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}}}})";
inline const char *kConstants =
    R"({"config": {"c": {"path_name": "tensor_0", "is_param": false, "use_pickle": false,
  "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}}}})";

inline std::map<std::string, std::string> modelRecords() {
  return {{"models/model.json", kModel},
          {"data/weights/model_weights_config.json", kWeights},
          {"data/weights/weight_0", std::string(16, '\0')},
          {"data/constants/model_constants_config.json", kConstants},
          {"data/constants/tensor_0", std::string(16, '\0')}};
}

} // namespace intarsia::importer::test

#endif // INTARSIA_TEST_UNIT_IMPORT_FIXTURES_H
