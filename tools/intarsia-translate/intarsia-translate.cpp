//===- intarsia-translate.cpp - Kernels to code, as text ------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The tool of the compiler engineer for the last step of the path: reads a
// module on which intarsia-opt has run the pipeline `cpu` or `cuda`, and prints
// the code of its kernels.
//
//===----------------------------------------------------------------------===//

#include "dialects/Graph/Graph.h"
#include "intarsia/Target/PTX.h"
#include "intarsia/Target/Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"

using namespace intarsia;

static llvm::cl::opt<std::string>
    arch("arch", llvm::cl::init("sm_80"), llvm::cl::value_desc("name"),
         llvm::cl::desc("The GPU to compile for: sm_80, sm_90, ..."));
static llvm::cl::opt<std::string>
    cpu("cpu", llvm::cl::init("native"), llvm::cl::value_desc("name"),
        llvm::cl::desc("The processor to compile for, by LLVM's name"));

static void registerDialects(mlir::DialectRegistry &registry) {
  // The program that the kernels came from stays in the module.
  registry.insert<graph::GraphDialect, mlir::arith::ArithDialect,
                  mlir::cf::ControlFlowDialect, mlir::func::FuncDialect,
                  mlir::gpu::GPUDialect, mlir::linalg::LinalgDialect,
                  mlir::LLVM::LLVMDialect, mlir::math::MathDialect,
                  mlir::NVVM::NVVMDialect, mlir::tensor::TensorDialect>();
}

/// Prints what `emit` makes of the module; its errors become diagnostics.
static mlir::LogicalResult
print(mlir::ModuleOp module, llvm::raw_ostream &os,
      llvm::function_ref<std::string(mlir::ModuleOp)> emit) {
  try {
    os << emit(module);
    return mlir::success();
  } catch (const TargetError &error) {
    return mlir::emitError(module.getLoc()) << error.what();
  }
}

int main(int argc, char **argv) {
  mlir::TranslateFromMLIRRegistration ptx(
      "kernels-to-ptx", "CUDA kernels to PTX",
      [](mlir::ModuleOp module, llvm::raw_ostream &os) {
        return print(module, os, [](mlir::ModuleOp module) {
          return emitPTX(module, arch);
        });
      },
      registerDialects);
  mlir::TranslateFromMLIRRegistration assembly(
      "kernels-to-asm", "CPU kernels to assembly",
      [](mlir::ModuleOp module, llvm::raw_ostream &os) {
        return print(module, os, [](mlir::ModuleOp module) {
          auto kernels = module.lookupSymbol<mlir::ModuleOp>("kernels");
          if (!kernels)
            throw TargetError("there is no module @kernels to compile");
          TargetOptions options;
          options.cpu = cpu;
          return emitText(kernels, options, TextForm::Assembly);
        });
      },
      registerDialects);
  return failed(mlir::mlirTranslateMain(
      argc, argv, "Intarsia's code printer: kernels to PTX or assembly\n"));
}
