//===- intarsia-opt.cpp - Runs passes on .mlir files ----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The tool of the compiler engineer: reads a module, runs the passes and
// pipelines named on the command line, and prints it. It needs no torch; an
// operator is its name and what its call says of it.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Graph.h"
#include "passes/Lower/Lowering.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"

/// LLVM's libraries bring some thousand code generation options of their own,
/// registered before main. --help is about passes; --help-hidden shows all.
static void hideOptionsOfLLVM() {
  for (auto [name, option] : llvm::cl::getRegisteredOptions())
    if (!name.starts_with("help") && name != "version" &&
        option->getOptionHiddenFlag() == llvm::cl::NotHidden)
      option->setHiddenFlag(llvm::cl::Hidden);
}

int main(int argc, char **argv) {
  if (argc == 2 && llvm::StringRef(argv[1]) == "--list-lowerings") {
    intarsia::lower::printOperators(llvm::outs());
    return 0;
  }
  hideOptionsOfLLVM();
  mlir::DialectRegistry registry;
  registry.insert<intarsia::graph::GraphDialect, mlir::LLVM::LLVMDialect,
                  mlir::NVVM::NVVMDialect, mlir::affine::AffineDialect,
                  mlir::arith::ArithDialect,
                  mlir::bufferization::BufferizationDialect,
                  mlir::cf::ControlFlowDialect, mlir::func::FuncDialect,
                  mlir::gpu::GPUDialect, mlir::linalg::LinalgDialect,
                  mlir::math::MathDialect, mlir::memref::MemRefDialect,
                  mlir::scf::SCFDialect, mlir::tensor::TensorDialect,
                  mlir::vector::VectorDialect>();

  intarsia::registerIntarsiaPasses();
  intarsia::registerIntarsiaPipelines();
  // MLIR's own clean-ups, with which tests see what our operations allow.
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerSymbolDCEPass();
  mlir::registerStripDebugInfoPass();

  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv,
      "Intarsia's optimizer driver\n\n"
      "Reads an .mlir file (or standard input), runs passes on it, prints it.\n"
      "One pass:      intarsia-opt --PASS model.mlir\n"
      "A pipeline:    intarsia-opt --pass-pipeline='builtin.module(PASS,...)'\n"
      "The operators: intarsia-opt --list-lowerings\n"
      "Test a file:   intarsia-opt --verify-roundtrip --verify-diagnostics\n",
      registry));
}
