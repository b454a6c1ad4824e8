"""Whether two artifacts have the same code of Triton's kernels, and each has it once."""

import base64
import sys
import zipfile


def code(path):
    with zipfile.ZipFile(path) as archive:
        records = {r.filename: archive.read(r) for r in archive.infolist()}
    images = {n: c for n, c in records.items() if n.endswith((".cubin", ".ptx"))}
    program = next(c for n, c in records.items() if n.endswith("models/model.json"))
    assert not [name for name, code in images.items() if base64.b64encode(code) in program]
    return images


first, second = map(code, sys.argv[1:])
print(len(first), "records,", "equal" if first == second else "different")
