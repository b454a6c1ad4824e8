# ===- test_op_db.py - A sample of PyTorch's operator database ---------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""A fixed part of what ``./dev conformance op_db`` checks, and the check itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

import op_db

# One operator and dtype in PARTS, one sample each.
PARTS = 30
GROUPS = 6


@pytest.mark.parametrize("group", range(GROUPS))
def test_operators(group):
    problems = []
    statuses = []
    with op_db.quiet():
        for name, dtype in op_db.fixed_sample(PARTS)[group::GROUPS]:
            info = op_db.operators()[name]
            for sample in op_db.samples(info, getattr(torch, dtype), 1):
                for mode in op_db.modes(dtype):
                    status, detail = op_db.check(name, dtype, sample, mode == "dynamic")
                    statuses.append(status)
                    if status == "failed":
                        problems.append(f"{op_db.label((name, dtype, 0, mode))}: {detail}")
    assert not problems, "\n".join(problems)
    assert statuses.count("passed") > 0.8 * len(statuses)


def one_check(function, tensor, dynamic=False):
    """The check of a made-up sample, under the name of an operator without tolerances."""
    sample = op_db.Sample(lambda *tensors: (function(*tensors), None), [tensor])
    return op_db.check("sin", str(tensor.dtype).removeprefix("torch."), sample, dynamic)


@pytest.mark.parametrize("wrong_when", ["fused", "unfused", "backward"])
def test_the_check_sees_wrong_values(monkeypatch, wrong_when):
    from intarsia import backend

    compile_graph = backend._compile_graph

    def wrong(gm, inputs, *, kind, settings, **kwargs):
        program = compile_graph(gm, inputs, kind=kind, settings=settings, **kwargs)
        broken = {
            "fused": settings.fuse and kind == "forward",
            "unfused": not settings.fuse and kind == "forward",
            "backward": settings.fuse and kind == "backward",
        }[wrong_when]

        def off(arguments):
            return [x if x is None else x * 1.001 for x in program(arguments)]

        return off if broken else program

    monkeypatch.setattr(backend, "_compile_graph", wrong)
    status, detail = one_check(lambda x: x.sin() * 2, torch.ones(5, requires_grad=True))
    what = "gradients" if wrong_when == "backward" else "result"
    assert status == "failed"
    assert detail.startswith(f"{'unfused' if wrong_when == 'unfused' else 'fused'}: {what}: ")


def test_the_check_tells_what_is_not_ours():
    def refused(x):
        return x * (2 if bool((x > 0).all()) else 3)

    def skipped(x):
        raise ValueError("not in eager")

    assert one_check(refused, torch.ones(3))[0] == "refused"
    assert one_check(skipped, torch.ones(3)) == (
        "skipped",
        "eager: ValueError: not in eager",
    )
    assert one_check(lambda x: x.softmax(0), torch.ones(3, requires_grad=True)) == ("passed", "")
    assert one_check(lambda x: x.softmax(0), torch.ones(3, requires_grad=True), True)[0] == "passed"


def test_sums_that_cancel_are_judged_by_the_exact_value():
    x = torch.tensor([1e7, 0.1, -1e7, 0.2, 3e6, -3e6, 0.3] * 50)
    assert one_check(lambda x: (x * 1.1).sum(), x)[0] == "passed"


def test_a_guard_with_a_symbol_that_became_a_number():
    # That two quotients are equal is older than that the width is 5.
    sample = list(op_db.samples(op_db.operators()["view"], torch.float32, 3))[2]
    assert op_db.check("view", "float32", sample, True) == ("passed", "")


def test_a_sweep_survives_the_death_of_a_worker(monkeypatch, tmp_path):
    # The second unit's samples kill the process; the state says so and goes on.
    (tmp_path / "worker.py").write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    name, dtype, count, known = json.loads(line)\n"
        "    for i in range(count):\n"
        "        if [name, dtype, i, 'static'] in known: continue\n"
        "        print(json.dumps(['begin', [name, dtype, i, 'static']]), flush=True)\n"
        "        if name == 'b' and i == 1: os.abort()\n"
        "        print(json.dumps(['end', 'passed', '']), flush=True)\n"
        "    print(json.dumps(['done']), flush=True)\n"
    )
    monkeypatch.setattr(op_db, "__file__", str(tmp_path / "worker.py"))
    units = [("a", "float32"), ("b", "float32"), ("c", "float32")]
    path = tmp_path / "state.jsonl"
    op_db.sweep(units, op_db.State(path), count=3, jobs=1, timeout=60)
    state = op_db.State(path)
    assert state.finished == set(units)
    failures = {
        key: detail for key, (status, detail) in state.results.items() if status != "passed"
    }
    assert failures == {("b", "float32", 1, "static"): "the process died of SIGABRT"}
    assert len(state.results) == 9
    state.forget(set(units), ["failed"])
    assert ("b", "float32") not in state.finished and len(state.results) == 8


# --- What sweeps have found -----------------------------------------------------------


def test_rows_kept_in_scratch_memory_by_a_loop_that_may_not_run(compile_with):
    def function(x):
        top = torch.slice_scatter(x, x.exp(), 0, 0, 2)
        return torch.slice_scatter(top, top * top.sum(1)[:, None], 0, 0, 2)

    for size in (4, 40, 400):  # less than a vector; vectors and a rest
        x = torch.randn(2, size)
        torch._dynamo.reset()
        torch._dynamo.mark_dynamic(x, 1)
        torch.testing.assert_close(compile_with(function)(x), function(x))


def test_symbolic_padding_that_cuts_keeps_the_order_of_strides(check):
    def function(x, low, high):
        return F.pad(x.transpose(1, 2), (low, high, 0, low)), x.relu()

    x = torch.randn(5, 7, 6)
    check(function, (x, -2, 0), (x, 0, -3), (x, 2, 0), (x, 2, -1), dynamic=True)


def test_scalars_of_half_precision_with_a_sign_of_double_precision(check):
    def function(x, y, a, b):
        signed = torch.copysign(a, b)
        return torch.atan2(x, y), signed.half(), signed.float().half(), torch.atan2(a, b).half()

    x, y = (torch.tensor(v, dtype=torch.float16) for v in (0.5, -2.0))
    check(function, (x, y, torch.tensor(0.3).double(), torch.tensor(-1.0).double()))


def test_operators_that_conjugate_lazily_inside_are_right_at_the_first_call(check):
    # PyTorch's own check of a first call runs in a mode, in which they are wrong.
    x = torch.randn(4, 4, dtype=torch.complex64)
    check(lambda x: torch.linalg.pinv(x) @ x, (x,), (x + 1,))


def test_sums_of_bags_in_bfloat16(check):
    # PyTorch's fake implementation promises another size of a result that only the
    # gradient sees.
    def function(weight, indices, offsets):
        return F.embedding_bag(indices, weight, offsets, mode="sum")

    weight = torch.randn(10, 5, dtype=torch.bfloat16, requires_grad=True)
    check(
        function,
        (weight, torch.tensor([5, 1, 6, 5, 6]), torch.tensor([0, 3])),
        training=True,
    )
