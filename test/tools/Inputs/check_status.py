"""Exit statuses of the tools: check_status.py OPERATORS FOLDER.

A failure leaves no file behind.
"""

import os
import subprocess
import sys
from pathlib import Path

operators, folder = sys.argv[1], Path(sys.argv[2])
library = folder / "notalibrary.so"


def status(*arguments: object, tool: str = "intarsia-compile") -> int:
    return subprocess.run([tool, *map(str, arguments)], capture_output=True).returncode


model, output = folder / "model.pt2", folder / "bad.pt2"
assert status(model, "-o", output) == 1  # an operator is not registered
assert status(model) == 2
assert status("--nonsense") == 2
for wrong in (
    ["--numerics", "fast"],
    ["--products", "fastest"],
    ["--cpu", "zen99"],
    ["--cpu", "x86-64,x86-64"],
    ["--target", "tpu"],
    ["--target", "cuda", "--arch", "sm_1"],
    ["--arch", "sm_90"],
    ["--retarget", "cpu"],
    ["--emit", "plans"],
):
    assert status(model, "-o", output, "--op-library", operators, *wrong) == 2, wrong
assert status(folder / "short.pt2", "-o", output) == 3
os.environ["INTARSIA_PYTHON"] = "/nowhere/python"
for option in (["--dtype", "float16"], ["--import", "os"]):
    assert status(model, "-o", output, *option) == 4
assert status(model, "-o", output, "--op-library", library) == 4
# Its registration throws, which ends the process.
source, throws = folder / "throws.cpp", folder / "throws.so"
source.write_text("struct Throws { Throws() { throw 42; } } throws;")
subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", source, "-o", throws], check=True)
assert status(model, "-o", output, "--op-library", throws) == 4
# What is shown is an output, too.
unwritable = ["--dump-dir", "/dev/null/dump", "--op-library", operators]
assert status(model, "-o", output, *unwritable) == 5
assert status(model, "-o", folder / "nofolder" / "out.pt2", "--op-library", operators) == 5
assert not output.exists()
left = [path.name for path in folder.iterdir() if "tmp" in path.name or path.name.startswith(".")]
assert not left, left

# intarsia-run, whose comparison with eager needs Python with PyTorch.
good = folder / "good.pt2"
assert status(model, "-o", good, "--op-library", operators) == 0
against = [good, "--random", "--op-library", operators, "--check-against", "eager"]
for python in ("/nowhere/python", "/bin/false"):
    os.environ["INTARSIA_PYTHON"] = python
    assert status(*against, tool="intarsia-run") == 4
assert status(good, "--random", "--op-library", throws, tool="intarsia-run") == 4
