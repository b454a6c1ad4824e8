//===- PlanPrint.cpp - A readable listing of a plan
//---------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One line a step, expressions written out where they are used:
//
//   func forward(x: f32[s0, 64] -> %0) {
//     %1 = call aten::mul.Scalar(%0, 1.5) : f32[s0, 64]    // model.py:12 ...
//     free %0
//     return %1
//   }
//
//===----------------------------------------------------------------------===//

#include "intarsia/Plan/Plan.h"

#include <cstdio>
#include <sstream>

using namespace intarsia;
using namespace intarsia::plan;

namespace {

class Printer {
public:
  explicit Printer(const Plan &plan) : plan(plan) {}

  std::string run() {
    for (size_t i = 0; i < plan.weights.size(); ++i) {
      const Weight &weight = plan.weights[i];
      function = plan.functions.empty() ? nullptr : &plan.functions[0];
      out << "weight \"" << weight.name << "\": ";
      print(weight.spec);
      if (!weight.record.empty())
        out << " record \"" << weight.record << "\"";
      if (weight.object >= 0)
        out << " object " << weight.object;
      if (weight.mutated)
        out << " mutated";
      if (!weight.packedFrom.empty())
        out << " packed from \"" << weight.packedFrom << "\" for "
            << weight.packedRows << " rows";
      out << "\n";
    }
    for (size_t i = 0; i < plan.kernels.size(); ++i) {
      const Kernel &kernel = plan.kernels[i];
      out << "kernel " << i << " @" << kernel.symbol << " (" << kernel.target
          << ")";
      if (!kernel.wideSymbol.empty())
        out << " or @" << kernel.wideSymbol;
      if (!kernel.summary.empty())
        out << ": " << kernel.summary;
      out << "\n";
      for (const Check &check : kernel.checks)
        out << "  check" << (check.isIndex ? " index" : "") << " \""
            << check.text << "\"\n";
      for (const Kernel::Variant &variant : kernel.variants) {
        out << "  variant " << variant.module << " @" << variant.symbol << "(";
        list(variant.parameters, [&](const std::string &parameter) {
          out << (parameter.empty() ? "_" : parameter);
        });
        out << ") threads " << variant.threads;
        if (variant.scratch)
          out << " scratch " << variant.scratch;
        out << "\n";
      }
    }
    for (const Function &f : plan.functions)
      print(f);
    return out.str();
  }

private:
  void slot(Slot value) {
    if (value < 0)
      out << "_";
    else
      out << "%" << value;
  }

  void expr(ExprId id) {
    if (id < 0)
      out << "_";
    else if (!function || size_t(id) >= function->exprs.size())
      out << "<bad expression " << id << ">";
    else
      out << function->exprs[id].str();
  }

  template <typename T, typename Print>
  void list(const std::vector<T> &values, Print print) {
    bool first = true;
    for (const T &value : values) {
      if (!first)
        out << ", ";
      first = false;
      print(value);
    }
  }

  void exprList(const std::vector<ExprId> &ids) {
    out << "[";
    list(ids, [&](ExprId id) { expr(id); });
    out << "]";
  }

  void quoted(const std::string &text) {
    out << '"';
    for (char c : text) {
      if (c == '"' || c == '\\')
        out << '\\' << c;
      else if (c == '\n')
        out << "\\n";
      else
        out << c;
    }
    out << '"';
  }

  void real(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    out << text;
  }

  void print(const TensorSpec &spec) {
    out << dtypeName(spec.dtype);
    exprList(spec.sizes);
    out << " strides ";
    exprList(spec.strides);
    if (spec.device != "cpu")
      out << " on " << spec.device;
  }

  void print(const Arg &arg) {
    switch (arg.kind) {
    case Arg::Kind::None:
      out << "none";
      return;
    case Arg::Kind::Slot:
      return slot(arg.slot);
    case Arg::Kind::Expr:
      return expr(arg.expr);
    case Arg::Kind::Int:
      out << arg.integer;
      return;
    case Arg::Kind::Float:
      return real(arg.real);
    case Arg::Kind::Bool:
      out << (arg.boolean ? "true" : "false");
      return;
    case Arg::Kind::String:
      return quoted(arg.text);
    case Arg::Kind::Complex:
      out << "(";
      real(arg.real);
      out << ", ";
      real(arg.imaginary);
      out << "i)";
      return;
    case Arg::Kind::DType:
      out << dtypeName(arg.dtype);
      return;
    case Arg::Kind::Device:
      out << "device(" << arg.text << ")";
      return;
    case Arg::Kind::Layout:
    case Arg::Kind::MemoryFormat:
      out << arg.text;
      return;
    case Arg::Kind::List:
      out << "[";
      list(arg.list, [&](const Arg &member) { print(member); });
      out << "]";
      return;
    case Arg::Kind::Object:
      out << "object " << arg.integer;
      return;
    case Arg::Kind::View:
      out << "view(";
      slot(arg.slot);
      out << ", ";
      exprList(arg.sizes);
      out << ", ";
      exprList(arg.strides);
      out << ", ";
      expr(arg.offset);
      out << ")";
      return;
    case Arg::Kind::Function:
      out << "@" << arg.text;
      return;
    }
  }

  void print(const Result &result) {
    switch (result.kind) {
    case Result::Kind::Ignore:
      out << "_";
      if (result.expect >= 0) {
        out << " = ";
        expr(result.expect);
      }
      break;
    case Result::Kind::Tensor:
    case Result::Kind::Number:
      slot(result.slot);
      if (result.bindsSymbol >= 0)
        out << " binds " << symbol(result.bindsSymbol)
            << (result.kind == Result::Kind::Tensor ? "=offset" : "");
      for (auto [id, dim] : result.bindsSize)
        out << " binds " << symbol(id) << "=size(" << dim << ")";
      for (auto [id, dim] : result.bindsStride)
        out << " binds " << symbol(id) << "=stride(" << dim << ")";
      break;
    case Result::Kind::List:
      out << "[";
      list(result.list, [&](const Result &member) { print(member); });
      out << "]";
      break;
    case Result::Kind::None:
      out << "none";
      break;
    case Result::Kind::Tied:
      out << "tied";
      break;
    }
  }

  /// The promises of the results, after the step's text.
  void printSpecs(const std::vector<Result> &results, bool &first) {
    for (const Result &result : results) {
      if (result.spec) {
        out << (first ? " : " : ", ");
        first = false;
        print(*result.spec);
      }
      printSpecs(result.list, first);
    }
  }

  std::string symbol(int32_t index) {
    if (function && index >= 0 && size_t(index) < function->symbols.size())
      return function->symbols[index].name;
    return "<bad symbol " + std::to_string(index) + ">";
  }

  void printArguments(const Step &step) {
    out << "(";
    list(step.args, [&](const Arg &arg) { print(arg); });
    out << ")";
    if (!step.mutates.empty()) {
      out << " mutates ";
      list(step.mutates, [&](Slot id) { slot(id); });
    }
  }

  void printCall(const Step &step, const char *name) {
    if (!step.results.empty()) {
      list(step.results, [&](const Result &result) { print(result); });
      out << " = ";
    }
    out << name;
    if (!step.op.empty())
      out << " " << step.op;
    for (const std::string &callee : step.functions)
      out << " @" << callee;
    if (step.object >= 0)
      out << " object " << step.object;
    if (step.carried)
      out << " carried " << step.carried;
    if (step.scanned)
      out << " scanned " << step.scanned;
    printArguments(step);
    if (step.checkAlias)
      out << " check-alias";
    if (!step.autocast.empty())
      out << " autocast " << step.autocast;
    bool first = true;
    printSpecs(step.results, first);
  }

  void print(const Step &step) {
    switch (step.kind) {
    case Step::Kind::Call:
      printCall(step, "call");
      break;
    case Step::Kind::Cond:
      printCall(step, "cond");
      break;
    case Step::Kind::While:
      printCall(step, "while");
      break;
    case Step::Kind::Invoke:
      printCall(step, "invoke");
      break;
    case Step::Kind::Map:
      printCall(step, "map");
      break;
    case Step::Kind::Scan:
      printCall(step, "scan");
      break;
    case Step::Kind::Python:
      printCall(step, "python");
      break;
    case Step::Kind::Alloc:
      slot(step.slot);
      out << " = alloc ";
      if (step.spec)
        print(*step.spec);
      if (step.offset >= 0) {
        out << " in arena at ";
        expr(step.offset);
      }
      if (step.source >= 0) {
        out << " over ";
        slot(step.source);
      }
      break;
    case Step::Kind::Launch:
      out << "launch " << step.kernel;
      if (step.kernel >= 0 && size_t(step.kernel) < plan.kernels.size())
        out << " @" << plan.kernels[step.kernel].symbol;
      out << "(";
      list(step.buffers, [&](Slot id) { slot(id); });
      out << ") symbols ";
      exprList(step.symbols);
      out << " domain ";
      expr(step.domain);
      if (step.grain >= 0) {
        out << " grain ";
        expr(step.grain);
      }
      if (step.scratch >= 0) {
        out << " scratch ";
        expr(step.scratch);
      }
      if (step.threads >= 0) {
        out << " threads ";
        expr(step.threads);
      }
      if (step.blocks >= 0) {
        out << " blocks ";
        expr(step.blocks);
      }
      if (step.shared >= 0) {
        out << " shared ";
        expr(step.shared);
      }
      if (step.extent >= 0) {
        out << " extent ";
        expr(step.extent);
      }
      for (const Step::Apart &pair : step.apart) {
        out << " apart ";
        slot(step.buffers[size_t(pair.written)]);
        out << (pair.orSame ? " from or same as " : " from ");
        slot(step.buffers[size_t(pair.other)]);
      }
      break;
    case Step::Kind::LaunchForeign:
      out << "launch_foreign " << step.kernel;
      if (step.kernel >= 0 && size_t(step.kernel) < plan.kernels.size())
        out << " @" << plan.kernels[step.kernel].symbol;
      printArguments(step);
      out << " blocks ";
      exprList(step.symbols);
      break;
    case Step::Kind::View:
      slot(step.slot);
      out << " = view ";
      slot(step.source);
      if (step.spec) {
        out << " : ";
        print(*step.spec);
      }
      out << " offset ";
      expr(step.offset);
      break;
    case Step::Kind::Clone:
      slot(step.slot);
      out << " = clone ";
      slot(step.source);
      break;
    case Step::Kind::Copy:
      out << "copy ";
      slot(step.source);
      out << " into ";
      slot(step.slot);
      break;
    case Step::Kind::Move:
      slot(step.slot);
      out << " = ";
      slot(step.source);
      break;
    case Step::Kind::Free:
      out << "free ";
      list(step.slots, [&](Slot id) { slot(id); });
      break;
    case Step::Kind::SetGrad:
      out << "set_grad " << (step.flag ? "true" : "false");
      break;
    case Step::Kind::Autocast:
      out << "autocast ";
      quoted(step.text);
      out << (step.flag ? " true" : " false");
      if (step.flag) {
        out << " ";
        list(step.args, [&](const Arg &value) { print(value); });
      }
      break;
    case Step::Kind::Assert:
      out << "assert ";
      expr(step.expr);
      out << " ";
      quoted(step.text);
      if (step.flag)
        out << " index_error";
      break;
    }
    if (!step.location.empty())
      out << "  // " << step.location;
  }

  void print(const Input &input) {
    out << input.name << ": ";
    switch (input.kind) {
    case Input::Kind::Tensor:
      if (input.spec)
        print(*input.spec);
      else
        out << "tensor";
      break;
    case Input::Kind::SymInt:
      out << "symint";
      break;
    case Input::Kind::SymFloat:
      out << "symfloat";
      break;
    case Input::Kind::SymBool:
      out << "symbool";
      break;
    case Input::Kind::Constant:
      out << "constant ";
      print(input.constant);
      break;
    case Input::Kind::Object:
      out << "object";
      break;
    case Input::Kind::None:
      out << "none";
      break;
    }
    if (input.symbol >= 0)
      out << " binds " << symbol(input.symbol);
    else if (input.expr >= 0) {
      out << " = ";
      expr(input.expr);
    }
    if (!input.weight.empty()) {
      out << " weight ";
      quoted(input.weight);
    }
    if (input.slot >= 0) {
      out << " -> ";
      slot(input.slot);
    }
  }

  void print(const Function &f) {
    function = &f;
    out << "func " << f.name << "(";
    list(f.inputs, [&](const Input &input) { print(input); });
    out << ") {\n";
    for (const Symbol &s : f.symbols) {
      if (!s.min && !s.max)
        continue;
      out << "  range " << s.name << " in [";
      if (s.min)
        out << *s.min;
      out << ", ";
      if (s.max)
        out << *s.max;
      out << "]\n";
    }
    for (const Guard &guard : f.guards) {
      out << "  guard ";
      expr(guard.expr);
      if (!guard.text.empty())
        out << "  // " << guard.text;
      out << "\n";
    }
    if (f.arenaSize >= 0) {
      out << "  arena ";
      expr(f.arenaSize);
      out << " bytes\n";
    }
    for (const Step &step : f.steps) {
      out << "  ";
      print(step);
      out << "\n";
    }
    out << "  return ";
    bool isEntry = !plan.functions.empty() && &f == &plan.functions[0];
    for (size_t i = 0; i < f.outputs.size(); ++i) {
      if (i)
        out << ", ";
      print(f.outputs[i]);
      if (isEntry && i < plan.outputs.size() &&
          plan.outputs[i].kind != OutputInfo::Kind::User)
        out << " into \"" << plan.outputs[i].target << "\"";
    }
    out << "\n}\n";
  }

  const Plan &plan;
  const Function *function = nullptr;
  std::ostringstream out;
};

} // namespace

std::string plan::print(const Plan &plan) { return Printer(plan).run(); }
