"""Exit statuses of intarsia-compile: check_status.py OPERATORS FOLDER.

A failure leaves no file behind.
"""

import os
import subprocess
import sys
from pathlib import Path

operators, folder = sys.argv[1], Path(sys.argv[2])
library = folder / "notalibrary.so"


def status(*arguments: object) -> int:
    return subprocess.run(
        ["intarsia-compile", *map(str, arguments)], capture_output=True
    ).returncode


model, output = folder / "model.pt2", folder / "bad.pt2"
assert status(model, "-o", output) == 1  # an operator is not registered
assert status(model) == 2
assert status("--nonsense") == 2
for wrong in (
    ["--numerics", "fast"],
    ["--cpu", "zen99"],
    ["--cpu", "x86-64,x86-64"],
    ["--target", "tpu"],
    ["--target", "cuda", "--arch", "sm_1"],
    ["--retarget", "cpu"],
    ["--emit", "plans"],
):
    assert status(model, "-o", output, "--op-library", operators, *wrong) == 2, wrong
assert status(folder / "short.pt2", "-o", output) == 3
os.environ["INTARSIA_PYTHON"] = "/nowhere/python"
for option in (["--dtype", "float16"], ["--import", "os"]):
    assert status(model, "-o", output, *option) == 4
assert status(model, "-o", output, "--op-library", library) == 4
assert status(model, "-o", folder / "nofolder" / "out.pt2", "--op-library", operators) == 5
assert not output.exists()
left = [path.name for path in folder.iterdir() if "tmp" in path.name or path.name.startswith(".")]
assert not left, left
