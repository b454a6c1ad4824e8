"""Exit statuses of intarsia-compile, and that failures leave nothing: check_status.py FOLDER."""

import subprocess
import sys
from pathlib import Path

folder = Path(sys.argv[1])
library = folder / "notalibrary.so"


def status(*arguments: object) -> int:
    return subprocess.run(["intarsia-compile", *map(str, arguments)], capture_output=True).returncode


model, output = folder / "model.pt2", folder / "bad.pt2"
assert status(model, "-o", output) == 1  # an operator is not registered
assert status(model) == 2
assert status("--nonsense") == 2
assert status(folder / "short.pt2", "-o", output) == 3
assert status(model, "-o", output, "--op-library", library) == 4
assert status(folder / "fused.pt2", "-o", folder / "nofolder" / "out.pt2") in (1, 5)
assert not output.exists()
left = [path.name for path in folder.iterdir() if "tmp" in path.name or path.name.startswith(".")]
assert not left, left
