# ===- test_who_refuses.py - Kind by door by who refuses ---------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""``docs/who-refuses.md``, made from `opaque_kinds.KINDS`.

``python test/python/test_who_refuses.py`` writes it again; that each entry is true is
tested in ``test_opaque_kinds.py``.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from opaque_kinds import COMPUTED, DOORS, DROPPED, KINDS, WORKS, WRONG, Kind

from intarsia._refusals import refusal_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "who-refuses.md"

HEAD = """\
# Who refuses what

<!-- Written by test/python/test_who_refuses.py; edit that, or the kinds it reads. -->

What eager runs, Intarsia runs, unless PyTorch refuses it before a backend is called.
This table says, for each kind of custom operator and each door, whether it works and
who refuses it if not. The doors:

{doors}

An empty cell: the door makes no difference, or no sense, for the kind. Where a number
stands, the error is explained below. Under `backend="intarsia"`,
`intarsia.export` and `intarsia.aot_compile` it carries the same explanation as a note.
An operator without a fake implementation is refused at every door; the note then has
one to paste. An operator of `torch.library.triton_op` compiles at every door, and is an
error at its launch where there is no GPU.
"""

DESCRIPTIONS = {
    "compile": '`torch.compile(backend="intarsia", fullgraph=True)`, under `no_grad`',
    "training": "the same with a backward",
    "export": "`torch.export.export`, saved and compiled to a file",
    "functional": "the same after `run_decompositions({})`",
}

# Nobody says anything there: PyTorch's graph is another program.
SILENT = {
    DROPPED: "An operator whose result nobody uses is dropped as dead code while the program "
    "is decomposed. Save it without `run_decompositions()`, or register the operator as "
    "effectful (`register_effect(EffectType.ORDERED)`).",
    COMPUTED: "What the fake implementation returns is an expression of the sizes of the inputs, "
    "and stands where the result was used; the operator is not called. Return a tensor beside "
    "the number, or a number of new_dynamic_size().",
    WRONG: "The program that PyTorch writes is not the one that it traced. Save it without "
    "`run_decompositions()`.",
}


def _cell(kind: Kind, door: str, notes: dict[str, tuple[str, str]]) -> str:
    outcome = kind.doors.get(door)
    if outcome is None:
        return ""
    if outcome == WORKS:
        return "works"
    if outcome in SILENT:
        key, who, text = outcome, outcome, SILENT[outcome]
    else:
        who, pattern = kind.refusal(door)
        if who == "intarsia":
            key, text = f"{who}: {pattern}", f"Its message has `{pattern}`, and what to do."
        else:
            refusal = refusal_of(pattern)
            assert refusal is not None, f"{kind}: nothing is said about {who}'s {pattern!r}"
            assert refusal.who == who, f"{kind}: {who} or {refusal.who}?"
            advice = refusal.advice
            key, text = refusal.pattern, f"{advice[:1].upper()}{advice[1:]}"
    number = list(notes).index(key) + 1 if key in notes else len(notes) + 1
    notes.setdefault(key, (who, text))
    return f"{who} [{number}]"


def render() -> str:
    lines = [HEAD.format(doors="\n".join(f"- **{d}**: {DESCRIPTIONS[d]}" for d in DOORS))]
    notes: dict[str, tuple[str, str]] = {}
    for group, kinds in itertools.groupby(KINDS, lambda kind: kind.group):
        lines += [f"## {group.capitalize()}", "", f"| kind | {' | '.join(DOORS)} |"]
        lines.append("|---" * (len(DOORS) + 1) + "|")
        for kind in kinds:
            cells = " | ".join(_cell(kind, door, notes) for door in DOORS)
            name = kind.name.replace("|", "\\|")
            lines.append(f"| {name} | {cells} |")
        lines.append("")
    lines += ["## The refusals", ""]
    lines += [f"{i}. **{who}.** {text}" for i, (who, text) in enumerate(notes.values(), 1)]
    return "\n".join(lines) + "\n"


def test_document_is_current():
    assert DOCUMENT.read_text() == render(), (
        f"{DOCUMENT.name} is not what the kinds say; python {__file__} writes it"
    )


def test_the_note_is_on_the_error():
    """One refusal of Dynamo's, one of AOTAutograd's."""
    library = torch.library.Library("refused", "FRAGMENT")
    for schema, kernel, fake in (
        ("number(Tensor x) -> int", lambda x: 3, lambda x: 3),
        ("same(Tensor(a) x) -> Tensor(a)", lambda x: x, torch.empty_like),
    ):
        name = schema.partition("(")[0]
        library.define(schema)
        library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"refused::{name}", fake, lib=library)
    for function, words in (
        (lambda x: x + torch.ops.refused.number(x), "(Tensor, SymInt)"),
        (lambda x: torch.ops.refused.same(x * 2) + 1, "torch.Tag.inplace"),
    ):
        with pytest.raises(Exception) as caught:
            torch.compile(function, backend="intarsia", fullgraph=True)(torch.ones(3))
        (note,) = caught.value.__notes__
        assert words in note and note.startswith("intarsia: ")


def test_the_note_is_on_the_serialisers_error(tmp_path):
    import intarsia

    @torch.library.custom_op("refused::pair", mutates_args=())
    def pair(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x.clone(), x.shape[0]

    @pair.register_fake
    def _(x):
        return torch.empty_like(x), torch.library.get_ctx().new_dynamic_size()

    class M(torch.nn.Module):
        def forward(self, x):
            y, n = pair(x)
            return y * n

    program = intarsia.export(M(), (torch.ones(3),))
    with pytest.raises(Exception, match="serializing") as caught:
        intarsia.aot_compile(program, tmp_path / "m.pt2")
    assert "without dimensions" in "\n".join(caught.value.__notes__)


if __name__ == "__main__":
    DOCUMENT.write_text(render())
