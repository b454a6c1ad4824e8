# ===- _describe.py - Operators of Python modules, for the offline compiler ---===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``python -m intarsia._describe REQUEST ANSWER``: what ``--import`` starts.

REQUEST is a JSON file with the ``modules`` to import and the names of ``operators``;
ANSWER becomes a JSON object of the schemas of those that are registered then.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from intarsia._extension import extension

if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    request = json.loads(Path(sys.argv[1]).read_text())
    for module in request["modules"]:
        importlib.import_module(module)
    schemas = {name: extension().operator_schema(name) for name in request["operators"]}
    Path(sys.argv[2]).write_text(json.dumps({k: v for k, v in schemas.items() if v}))
