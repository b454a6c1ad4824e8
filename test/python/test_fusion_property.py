# ===- test_fusion_property.py - Random programs, fused and not, as in eager --===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Random programs against eager; `fusion_programs` says what they are made of.

A few dozen here; ``./dev conformance fusion`` runs thousands and shrinks what fails.
What those found is pinned below, one program a cause.
"""

from __future__ import annotations

import pytest
import torch
from fusion_programs import Discarded, Program, check, generate
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_random_programs(data) -> None:
    program = generate(lambda n: data.draw(st.integers(0, n - 1)))
    note(program.reproducer())
    try:
        check(program)
    except Discarded:
        assume(False)


M = "values((7, 5), 'float32', 1)"
V = "values((5,), 'float32', 2)"

PINNED = {
    # Columns in tiles of 1024, whole and not, their rows in blocks of 64 and 4096, whole
    # and not; operands that lie across them, packed 64 rows at a time.
    "columns_in_tiles": (
        [
            "values((1100, 1060), 'float32', 1)",
            "values((1100, 1060), 'int32', 2)",
            "values((1060, 1100), 'float32', 3)",
        ],
        [
            "y = (x0 * 2).sum(0)",
            "z = x1.sum(0) + 1",
            "w = x0[:, 3:].amax(0)",
            "v = (x0 - x0.mean(0)).abs().sum(0)",
            "u = x1[:, :70].argmax(0)",
            "t = (x0 > 1.5).any(0)",
            "s = (x0 - x2.t()).abs().sum(0)",
            "r = (x0[:, 7:77] * x2.t()[:, 7:77].double()).amax(0)",
            "q = x0.repeat(5, 1)[9:].sum(0)",
        ],
        ["y", "z", "w", "v", "u", "t", "s", "r", "q"],
    ),
    # Where the input begins in its storage is a symbol that no size has.
    "write_of_an_input_with_an_offset": (
        ["lay_out(values((1, 33), 'float32', 731), 'offset')", "values((33,), 'float32', 67)"],
        ["y = x1 + 1", "ops.double_(x0)"],
        ["y", "x0"],
    ),
    # A reduction inside the lanes of another that is not along the last dimension.
    "softmax_of_columns": ([M, V], ["y = torch.softmax(x0 * 2 + x1, 0)"], ["y"]),
    # The lanes of a row in pieces, where what is read changes: whole ones, masked ones,
    # one, none; below a reduction, nested, shifted.
    "pieces_of_rows": (
        ["values((9, 70), 'float32', 1)", "values((9, 33), 'float32', 2)"],
        [
            "y = torch.cat([torch.tanh(x0), x1, x0[:, :1], x1[:, 33:]], 1)",
            "z = torch.softmax(y * 2, 1)",
            "w = torch.cat([torch.nn.functional.pad(y, (3, 70)) + 1, x0], 1)",
            "v = torch.cat([-y[:, 52:], y[:, :52]], 1) * y",
            "u = torch.nn.functional.pad(x0, (-3, 2), value=0.5) * 2",
            "t = v.flip(1).roll(5, 1) + y",
        ],
        ["y", "z", "w", "v", "u", "t"],
    ),
    "pieces_of_gathered_rows": (
        ["values((9, 70), 'float32', 1)", "values((20,), 'int64', 2)"],
        [
            "i = x1.abs() % 9",
            "y = torch.cat([x0[i], x0[8 - i], i[:, None] * 0.5], 1)",
            "z = torch.cat([y.t(), y.t()[3:]], 0).exp()",
        ],
        ["y", "z"],
    ),
    # A table so large that its rows are asked for ahead, up to the last one.
    "rows_of_a_table": (
        ["values((3000, 100), 'float32', 1)", "values((40,), 'int64', 2)"],
        [
            "i = x1.abs() % 3000",
            "y = torch.nn.functional.layer_norm(x0[i] * 2, (100,))",
            "z = torch.nn.functional.embedding(i.view(8, 5), x0) + 1",
            "w = torch.cat([x0[i[3:]], x0[i[:3]]], 0)",
        ],
        ["y", "z", "w"],
    ),
    # Operands that lie across the rows: whole squares of 16, rests of both sides, rows
    # of several dimensions, several passes over a row, one operand both ways.
    "operands_across_rows": (
        ["values((70, 35), 'float32', 1)", "values((35, 70), 'float32', 2)"],
        [
            "y = torch.softmax(torch.tanh(x0.t() + x1), -1)",
            "z = (x0.t() * x1).sum(1)",
            "w = torch.nn.functional.layer_norm(x0.t(), (70,)) + x1",
            "v = (x0.t() * 2).to(torch.float64) - x1",
            "u = x0[:35, :35] + x0[:35, :35].t()",
        ],
        ["y", "z", "w", "v", "u"],
    ),
    "channels_across_rows": (
        ["values((2, 33, 5, 7), 'float32', 1)", "values((2, 5, 7, 33), 'float32', 2)"],
        [
            "y = torch.nn.functional.layer_norm(x0.permute(0, 2, 3, 1), (33,)) * x1",
            "z = torch.softmax(x0.permute(0, 2, 3, 1) + 1, -1)",
            "w = (x0.permute(0, 2, 3, 1).to(torch.bfloat16) + x1).sum(-1)",
        ],
        ["y", "z", "w"],
    ),
    "columns_read_transposed": (
        [M],
        ["y = torch.softmax(x0, 0)", "z = y.t() + 1"],
        ["z", "y"],
    ),
    "columns_and_rows": (
        [M],
        ["y = torch.log_softmax(x0, 0)", "z = y.sum(1, keepdim=True)", "w = y.sum(0)"],
        ["z", "w", "y"],
    ),
    "middle_dimension": (
        ["values((3, 17, 5), 'float32', 1)"],
        ["y = torch.softmax(x0 + 1, 1)", "z = y * x0", "w = z.sum(1)"],
        ["w", "y"],
    ),
    "outer_dimensions": (
        ["values((3, 5, 4), 'float32', 1)"],
        ["y = torch.var(x0, (0, 2), correction=0, keepdim=True)", "z = x0 * y"],
        ["z"],
    ),
    "flipped_columns": (
        ["values((7, 7), 'float32', 183)"],
        [
            "y = torch.flip(x0, [-2]) / (torch.argmax(x0, 1).abs() + 1)",
            "z = y.logsumexp(0)",
        ],
        ["z"],
    ),
    # Everything that a group computes is overwritten.
    "nobody_needs_it": (
        ["values((2,), 'float32', 477)"],
        [
            "y = torch.tanh(x0.mean(0)).unsqueeze(0)",
            "y[0].fill_(1)",
            "z = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1)",
        ],
        ["z"],
    ),
    # A view of an argument that does not start where its storage does, twice.
    "view_of_an_offset_argument": (
        ["lay_out(values((6,), 'float32', 16), 'strided')"],
        ["y = x0[1:6:2]", "ops.add_to_(y=y, x=y)", "z = x0 + 1"],
        ["z"],
    ),
    "an_argument_twice": ([M, "x0"], ["x1.mul_(2)", "y = x0 + x1"], ["y"]),
    "two_views_of_one_base": (
        [M, "x0[1:]", "x0[::2]"],
        ["x1.add_(1)", "y = x2 * 2", "x2.mul_(3)", "z = x0 + y.sum()"],
        ["z", "y"],
    ),
    # Reads of an old value next to a write.
    "write_after_read": (
        [M],
        ["y = x0.tanh()", "x0.mul_(2)", "z = y + x0", "w = x0[::2] * 2"],
        ["z", "w"],
    ),
    "write_to_a_piece": (
        [M],
        ["a, b = x0.split([3, 4])", "y = a.tanh()", "x0[:3].add_(1)", "z = y + a", "w = b * 2"],
        ["z", "w"],
    ),
    "empty": (
        ["values((0, 5), 'float32', 1)"],
        ["y = x0.sum(0)", "z = torch.softmax(x0, 0) + y", "w = torch.cat([x0, y.unsqueeze(0)])"],
        ["y", "z", "w"],
    ),
    # Every lane of a concatenation reads, and checks, its own input alone.
    "checks_in_a_concatenation": (
        ["values((2, 2), 'float32', 30)"],
        [
            "i = F.pad(torch.argmax(x0, 1), [2, 1])",
            "g = torch.gather(torch.sign(i), 0, i % 5)",
            "y = torch.cat([g, g, g > 0], 0)",
        ],
        ["y"],
    ),
    # A piece is written in place; the views lead back to the whole argument.
    "whole_through_views": (
        ["lay_out(values((1, 1), 'bfloat16', 250), 'strided')"],
        ["y = torch.cat([x0.abs(), x0], -2)", "x0.squeeze(-2)[:].zero_()"],
        ["y"],
    ),
    "unsigned_bytes": (
        ["values((9,), 'uint8', 1)"],
        ["y = x0 - 200", "z = y.to(torch.float32) / 2", "w = y.amax()", "v = y.to(torch.int64)"],
        ["y", "z", "w", "v"],
    ),
}


GRADIENTS = {
    # Two sizes that only their product is known of.
    "flattened": (
        ["values((3, 5, 4), 'float32', 1)"],
        ["y = torch.tanh(x0.reshape(-1, 4) * 2)", "z = torch.sin(y)"],
        ["z"],
    ),
    # A symbolic floating-point number.
    "variance": (
        ["values((33, 1, 2), 'float32', 284)"],
        ["y = torch.var(torch.cos(x0), None, correction=0)"],
        ["y"],
    ),
    "padded": (
        ["values((5, 3), 'float32', 1)"],
        ["y = F.pad(x0, [2, 1, 1, 2])", "z = torch.rsqrt((y - y.mean(0)).abs() + 0.5)"],
        ["z"],
    ),
    "column_softmax": (
        ["values((7, 5), 'float32', 1)"],
        ["y = torch.softmax(x0 * 2, 0) * x0", "z = F.layer_norm(y.t(), (7,))"],
        ["z"],
    ),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, dynamic) -> None:
    inputs, statements, outputs = GRADIENTS[name]
    check(Program(inputs, statements, outputs, gradients=True, dynamic=dynamic))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PINNED)
def test_pinned(name, dynamic) -> None:
    inputs, statements, outputs = PINNED[name]
    try:
        check(Program(inputs, statements, outputs, dynamic=dynamic))
    except Discarded as error:
        pytest.skip(f"refused before us: {error}")


def test_empty_maximum_is_refused(compile_with) -> None:
    """As eager does; also where only the run knows that there is nothing."""

    def f(x):
        return (x * 2).amax(0)

    compiled = compile_with(f, dynamic=True)
    x = torch.rand(3, 2)
    torch._dynamo.mark_dynamic(x, 0)
    torch.testing.assert_close(compiled(x), f(x))
    with pytest.raises((RuntimeError, IndexError)):
        compiled(torch.rand(0, 2))
