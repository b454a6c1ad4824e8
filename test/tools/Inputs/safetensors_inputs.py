"""Files for intarsia-run.test in the safetensors format, written and read by hand."""

import json
import struct
import sys
from pathlib import Path

import numpy as np


def write(path, tensors, length=None):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": place}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


if sys.argv[1] == "--check":
    data = Path(sys.argv[2]).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header["output_0"]["dtype"] == "F32" and length % 8 == 0, header
    assert len(data) == 8 + length + max(x["data_offsets"][1] for x in header.values())
elif sys.argv[1] == "--damage":
    folder = Path(sys.argv[2])
    x = np.ones(6, np.float32)
    write(folder / "short.safetensors", {"x": ("F32", x)}, length=1 << 40)
    write(folder / "header.safetensors", {"x": ("F32", x)}, length=20)
    text = json.dumps({"x": {"dtype": "F32", "shape": [1 << 62, 8], "data_offsets": [0, 4]}})
    data = struct.pack("<Q", len(text)) + text.encode() + bytes(4)
    (folder / "huge.safetensors").write_bytes(data)
else:
    write(
        Path(sys.argv[1]),
        {
            "rows": ("I64", np.array([1, 3, 5, 7, 0])),
            "x": ("F32", np.arange(20, dtype=np.float32).reshape(5, 4)),
        },
    )
