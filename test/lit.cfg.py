"""The lit suite: IR in, IR out, and the command line tools.

``--param roundtrip=1`` runs every ``intarsia-opt`` line with ``--verify-roundtrip``
as well: what is printed must parse to the same module, as text and as bytecode.
"""

import importlib.util
import os
import shutil
import subprocess

import lit.formats

config.name = "intarsia"
config.suffixes = [".mlir", ".py", ".test"]
config.test_format = lit.formats.ShTest(execute_external=False)
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.intarsia_build_dir, "test")
config.excludes = ["lit.cfg.py", "summary.py", "unit", "python", "conformance", "Inputs"]

roundtrip = lit_config.params.get("roundtrip", "0") == "1"
if roundtrip:
    config.name = "intarsia (round trip)"
    config.suffixes = [".mlir"]
    config.test_exec_root = os.path.join(config.intarsia_build_dir, "test-roundtrip")
    config.available_features.add("roundtrip")

bin_dir = os.path.join(config.intarsia_build_dir, "bin")
config.environment["PATH"] = os.pathsep.join(
    [
        bin_dir,
        config.llvm_tools_dir,
        os.path.dirname(config.python_executable),
        os.environ.get("PATH", ""),
    ]
)
config.environment["PYTHONPATH"] = os.path.join(config.intarsia_build_dir, "python")
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --dump-input-filter=error"
for name in ("HOME", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "TMPDIR"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

opt = os.path.join(bin_dir, "intarsia-opt")
config.substitutions.append(
    (r"(?<![\w/-])intarsia-opt(?![\w-])", f"{opt} --verify-roundtrip" if roundtrip else opt)
)
config.substitutions.append(("%python", config.python_executable))
config.substitutions.append(("%source_dir", config.intarsia_source_dir))
config.substitutions.append(("%build_dir", config.intarsia_build_dir))
config.substitutions.append(("%torch_lib", config.torch_library_dir))


def has_cuda() -> bool:
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout != b""
    except OSError:
        return False


if has_cuda():
    config.available_features.add("cuda")
# The assembler of a CUDA toolkit; it needs no GPU.
if shutil.which("ptxas"):
    config.available_features.add("ptxas")
if importlib.util.find_spec("triton"):
    config.available_features.add("triton")
