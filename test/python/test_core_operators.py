# ===- test_core_operators.py - Nothing is undecided -------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""docs/operators.md is what the code does, and leaves out no core operator."""

from __future__ import annotations

from pathlib import Path

import core_operators
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


@pytest.fixture(scope="module")
def table() -> core_operators.Table:
    return core_operators.lowering_table()


@pytest.fixture(scope="module")
def tested() -> dict:
    return core_operators.tested_dtypes()


def test_every_core_operator_has_a_place(table: core_operators.Table, tested: dict) -> None:
    undecided = [name for name, what in core_operators.rows(table, tested) if not what]
    assert not undecided, "neither a kernel, a view nor a call on purpose"


def test_every_kernel_of_a_core_operator_is_compared_with_eager(
    table: core_operators.Table, tested: dict
) -> None:
    core = core_operators.core_operators()
    kernels = [
        name
        for name, op in core.items()
        if name in table.kernels
        and name.startswith("aten::")
        # A composite is never called as such, but may be in a file.
        and not core_operators.is_composite(op)
    ]
    assert [name for name in kernels if name not in tested] == []


def test_what_has_two_places_says_so(table: core_operators.Table, tested: dict) -> None:
    """A write where a mask is true is a kernel; one where indices say, a call."""
    assert not table.calls.keys() & table.views.keys()
    both = table.calls.keys() & table.kernels.keys()
    assert both == {"aten::index_put"}
    assert "; some a call: " in dict(core_operators.rows(table, tested))["aten::index_put"]


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == core_operators.page(), (
        "run ./dev exec python test/python/core_operators.py > docs/operators.md"
    )
