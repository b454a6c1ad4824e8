# ===- _describe.py - Operators of Python modules, for the offline compiler ---===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``python -m intarsia._describe REQUEST ANSWER``: what ``--import`` starts.

REQUEST is a JSON file with the ``modules`` to import, the ``libraries`` to load, and the
names of ``operators``, or a ``program``, a file. ANSWER becomes a JSON object: the schemas
of those operators that are registered then, or what the program's operators return that
return a number alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from intarsia import _complete
from intarsia._extension import extension
from intarsia._process import run


def answer(request: dict[str, Any]) -> None:
    if "program" in request:
        told: Any = _complete.numbers(request["program"])
    else:
        schemas = {name: extension().operator_schema(name) for name in request["operators"]}
        told = {name: schema for name, schema in schemas.items() if schema}
    Path(sys.argv[2]).write_text(json.dumps(told))


if __name__ == "__main__":
    request = json.loads(Path(sys.argv[1]).read_text())
    run([*request["modules"], *request.get("libraries", ())], lambda: answer(request))
