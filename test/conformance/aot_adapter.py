"""Intarsia under the names that a harness of cases expects of an AOT compiler."""

from __future__ import annotations

from typing import Any

import intarsia


def aot_compile(pt2_path: str, out_path: str) -> None:
    intarsia.aot_compile(pt2_path, out_path)


def aot_load(out_path: str) -> Any:
    return intarsia.load(out_path)
