# ===- op_db.py - PyTorch's operator database, compiled ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Samples of PyTorch's operator database: fused, unfused and eager.

A unit is one operator with one dtype; a check is one of its samples, with static or
with symbolic sizes, forward and, where there is one, backward. AOTAutograd traces the
sample once. The graphs that it makes are compiled twice, with kernels and with every
node a call, so that both run the same plan; results, gradients, the state of the
inputs, strides and the random stream are compared with eager's.

AOTAutograd is called on the operator itself. Dynamo, which is not on trial here, would
only write the same call down, and takes most of the time.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: The most valuable first: the order of a sweep.
DTYPES = (
    *("float32", "int64", "bool", "bfloat16", "float16"),
    *("float64", "int32", "uint8", "int16", "complex64"),
)
#: Those that are checked with symbolic sizes too.
DYNAMIC = ("float32", "int64")
SAMPLES = 3

# Their results are uninitialised memory: only the metadata can be compared.
UNINITIALISED = {
    *("empty", "empty_like", "empty_permuted", "empty_strided"),
    *("new_empty", "new_empty_strided"),
}

# Their fake implementations promise what their kernels do not keep; through Dynamo the
# graph itself asserts it. masked_select: no more elements than `self` has before it is
# broadcast to the mask.
WRONG_FAKES = {"masked_select"}

# The same of strides: the fake implementation of a half-precision product converts an
# expanded operand to float32 first, and then takes it for dense.
WRONG_STRIDES = {("tensordot", "bfloat16"), ("tensordot", "float16")}


def enlarge() -> None:
    """Makes the sizes that the database builds its samples from longer than a vector.

    Its own are at most 20. For a process of its own.
    """
    import torch.testing._internal.common_methods_invocations  # noqa: F401

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal."):
            for size, old, new in (("S", 5, 17), ("M", 10, 34), ("L", 20, 70)):
                if getattr(module, size, None) == old:
                    setattr(module, size, new)


@functools.cache
def operators() -> dict[str, Any]:
    """The entries of the database, by name and variant."""
    from torch.testing._internal import common_methods_invocations

    # Random operators are wrapped in code that sets the seed and restores it, which
    # a traced program would do once. Every run here sets the seed itself.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    infos = {}
    for info in common_methods_invocations.op_db:
        variant = f".{info.variant_test_name}" if info.variant_test_name else ""
        infos[info.name + variant] = info
    return infos


def units(dtypes: Sequence[str] = DTYPES) -> list[tuple[str, str]]:
    """Every (operator, dtype) that the database has for the CPU, dtype by dtype."""
    infos = operators()
    return [
        (name, dtype)
        for dtype in dtypes
        for name in sorted(infos)
        if getattr(torch, dtype) in infos[name].supported_dtypes("cpu")
    ]


# --- One sample -------------------------------------------------------------------


@dataclass
class Sample:
    """A call of an operator: a function of its tensors alone.

    Attributes
    ----------
    function : callable
        From the list of tensors to a tuple: the operator's result and, when it is
        something else, what of it has gradients.
    tensors : list of torch.Tensor
    """

    function: Callable[..., Any]
    tensors: list[torch.Tensor]


def samples(info: Any, dtype: torch.dtype, count: int) -> Iterator[Sample]:
    """The first samples of a unit, the same in every process."""
    differentiable = dtype in info.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    made = info.sample_inputs("cpu", dtype, requires_grad=differentiable)
    for _, sample in zip(range(count), made, strict=False):
        # While the generator waits, others draw random numbers.
        state = torch.get_rng_state()
        yield _as_function(info, sample)
        torch.set_rng_state(state)


def _as_function(info: Any, sample: Any) -> Sample:
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    process = sample.output_process_fn_grad

    def function(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        arguments, keywords = pytree.tree_unflatten(filled, spec)
        result = info.op(*arguments, **keywords)
        processed = process(result)
        return (result, None) if processed is result else (result, processed)

    return Sample(function, [leaves[place] for place in places])


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fresh leaves with the same strides, sharing what the originals share."""
    memo: dict[int, Any] = {}
    copied: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        if id(tensor) not in copied:
            own = copy.deepcopy(tensor.detach(), memo)
            copied[id(tensor)] = own.requires_grad_(tensor.requires_grad)
    return [copied[id(tensor)] for tensor in tensors]


@dataclass
class Outcome:
    """What a run leaves behind."""

    result: Any
    gradients: list[torch.Tensor | None]
    inputs: list[torch.Tensor]
    random_state: torch.Tensor


def run(
    function: Callable[..., Any],
    sample: Sample,
    backward: bool,
    precision: dict[torch.dtype, torch.dtype] | None = None,
) -> Outcome:
    """Calls it on copies of the sample's tensors.

    `precision`: the dtypes that a sample of higher precision stands for; its
    cotangents are those of the original.
    """
    inputs = _copies(sample.tensors)
    wanting = [x for x in dict.fromkeys(inputs) if x.requires_grad] if backward else []
    torch.manual_seed(0)
    with contextlib.nullcontext() if wanting else torch.no_grad():
        result, processed = function(*inputs)
    gradients: list[torch.Tensor | None] = []
    leaves = pytree.tree_leaves(result if processed is None else processed)
    roots = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    if wanting and roots:
        generator = torch.Generator().manual_seed(1)
        cotangents = [
            torch.randn(
                x.shape, dtype=(precision or {}).get(x.dtype, x.dtype), generator=generator
            ).to(x.dtype)
            if x.layout is torch.strided
            else torch.ones_like(x)
            for x in roots
        ]
        gradients = list(torch.autograd.grad(roots, wanting, cotangents, allow_unused=True))
    return Outcome(result, gradients, inputs, torch.get_rng_state())


# --- Comparison -------------------------------------------------------------------


@functools.cache
def tolerances(name: str, dtype: torch.dtype) -> dict[torch.dtype, tuple[float, float]]:
    """(rtol, atol) that the database allows the operator beyond torch.testing's own."""
    from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
    from torch.testing._internal.opinfo.core import DecorateInfo

    found: dict[torch.dtype, tuple[float, float]] = {}

    def allow(kind: torch.dtype, rtol: float, atol: float) -> None:
        old = found.get(kind, torch.testing._comparison.default_tolerances(kind))
        found[kind] = (max(rtol, old[0]), max(atol, old[1]))

    for decorator in operators()[name].decorators:
        if not isinstance(decorator, DecorateInfo):
            continue
        if decorator.device_type not in (None, "cpu"):
            continue
        if decorator.dtypes is not None and dtype not in decorator.dtypes:
            continue
        for override in decorator.decorators:
            if isinstance(override, toleranceOverride):
                for kind, allowed in override.d.items():
                    allow(kind, allowed.rtol, allowed.atol)
            elif isinstance(override, precisionOverride):
                for kind, allowed in override.d.items():
                    allow(kind, 0, allowed)
    return found


def difference(
    got: Outcome, want: Outcome, allowed: dict[torch.dtype, tuple[float, float]], values: bool
) -> str | None:
    """What differs first, in words."""
    for what in ("result", "gradients", "inputs"):
        problem = _difference(getattr(got, what), getattr(want, what), allowed, values)
        if problem is not None:
            return f"{what}: {problem}"
    if not torch.equal(got.random_state, want.random_state):
        return "the random stream is elsewhere"
    return None


def _difference(got: Any, want: Any, allowed: Any, values: bool) -> str | None:
    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    if got_spec != want_spec:
        return f"structure {got_spec} instead of {want_spec}"
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            if type(a) is not type(b) or (a != b and not (a != a and b != b)):
                return f"{a!r} instead of {b!r}"
            continue
        described = [
            (x.dtype, tuple(x.shape), x.layout, x.requires_grad, x.is_conj(), x.is_neg())
            for x in (a, b)
        ]
        if described[0] != described[1]:
            return f"{described[0]} instead of {described[1]}"
        if b.layout is torch.strided and b.numel() > 1:
            strides = [
                [s for s, n in zip(x.stride(), x.shape, strict=True) if n != 1] for x in (a, b)
            ]
            if strides[0] != strides[1]:
                return f"strides {a.stride()} instead of {b.stride()} of {tuple(b.shape)}"
        if values:
            rtol, atol = allowed.get(b.dtype, (None, None))
            try:
                torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError as error:
                return " ".join(str(error).split())
    return None


#: What to compute in, to see who is right.
_HIGHER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def is_as_accurate(
    outcomes: Sequence[Outcome], want: Outcome, name: str, dtype: torch.dtype, sample: Sample
) -> bool:
    """Whether the outcomes, which differ from eager's, are as near to the exact values.

    The order of additions is free. Where terms cancel, PyTorch's tolerances don't
    allow for it.
    """
    if dtype not in _HIGHER:
        return False
    higher = Sample(
        sample.function,
        [
            x.detach().to(_HIGHER.get(x.dtype, x.dtype)).requires_grad_(x.requires_grad)
            for x in sample.tensors
        ],
    )
    allowed = tolerances(name, dtype)
    backward = bool(want.gradients)
    try:
        exact = run(higher.function, higher, backward, {_HIGHER[dtype]: dtype})
        # What eager makes of inputs that differ by a rounding error.
        near = [
            run(x.function, x, backward)
            for x in (_nudged(sample, dtype, seed) for seed in range(4))
        ]
    except Exception:
        return False
    for outcome in outcomes:
        for what in ("result", "gradients"):
            leaves = zip(
                *(pytree.tree_leaves(getattr(x, what)) for x in (outcome, exact, want, *near)),
                strict=True,
            )
            for got, goal, *eager in leaves:
                if isinstance(goal, torch.Tensor) and not _is_nearer(got, goal, eager, allowed):
                    return False
    return True


def _nudged(sample: Sample, dtype: torch.dtype, seed: int) -> Sample:
    """The sample with other roundings of its inputs; as it is for lower precisions, in
    which that would hide errors."""
    if dtype not in (torch.float32, torch.complex64):
        return sample
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for x in sample.tensors:
        if x.dtype is dtype:
            factor = torch.rand(x.shape, generator=generator).sub(0.5).mul(2.0**-22).add(1)
            x = (x.detach() * factor).requires_grad_(x.requires_grad)
        tensors.append(x)
    return Sample(sample.function, tensors)


def _is_nearer(
    got: torch.Tensor, exact: torch.Tensor, eager: Sequence[torch.Tensor], allowed: Any
) -> bool:
    want = eager[0]
    if want.dtype not in _HIGHER or exact.dtype is not _HIGHER[want.dtype]:
        return torch.equal(got, want)
    defined = got.isfinite() & want.isfinite() & exact.isfinite()
    if not torch.equal(got[~defined].nan_to_num(0.5), want[~defined].nan_to_num(0.5)):
        return False
    dtype = want.dtype
    got, exact, *eager = (x[defined].to(exact.dtype) for x in (got, exact, *eager))
    if not got.numel():
        return True
    rtol, atol = allowed.get(dtype, torch.testing._comparison.default_tolerances(dtype))
    errors = [(x - exact).abs().max() for x in eager if bool(x.isfinite().all())]
    bound = (atol + rtol * exact.abs()).clamp(min=2 * max(errors))
    return bool(((got - exact).abs() <= bound).all())


# --- Compilation ------------------------------------------------------------------


class _Program(torch.nn.Module):
    """What AOTAutograd is given in the place of Dynamo's graph."""

    def __init__(self, function: Callable[..., Any], sizes: int) -> None:
        super().__init__()
        self.function = function
        self.sizes = sizes
        self.spec: Any = None

    def forward(self, *arguments: Any) -> tuple[Any, ...]:
        leaves, self.spec = pytree.tree_flatten(self.function(*arguments[self.sizes :]))
        return tuple(leaves)


def trace(
    sample: Sample, compiler: Callable[..., Any], dynamic: bool, backward: bool, **kwargs: Any
) -> Callable[..., Any]:
    """The sample's function through AOTAutograd; `compiler` takes a kind and a graph."""
    from torch._dynamo.source import ConstantSource
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    fakes: dict[int, torch.Tensor] = {}
    # As Dynamo does, each symbol is an input of its own: (argument, dimension) by symbol.
    symbols: dict[Any, tuple[int, int]] = {}
    for i, tensor in enumerate(sample.tensors):
        if id(tensor) not in fakes:
            own = tensor.detach().requires_grad_(tensor.requires_grad and backward)
            source = ConstantSource(f"input{i}")
            fake = mode.from_tensor(own, static_shapes=not dynamic, source=source)
            fakes[id(tensor)] = fake
            for dim, size in enumerate(fake.shape):
                if isinstance(size, torch.SymInt):
                    symbols.setdefault(size.node.expr, (i, dim))
    arguments = [fakes[id(tensor)] for tensor in sample.tensors]
    sizes = [arguments[i].shape[dim] for i, dim in symbols.values()]
    module = _Program(sample.function, len(sizes))
    kinds = {
        f"{short}_compiler": functools.partial(compiler, kind)
        for short, kind in (("fw", "forward"), ("bw", "backward"), ("inference", "inference"))
    }
    grad_mode = contextlib.nullcontext() if backward else torch.no_grad()
    with tracing(TracingContext(mode)), grad_mode:
        flat = aot_module_simplified(module, [*sizes, *arguments], **kinds, **kwargs)

    def call(*tensors: torch.Tensor) -> Any:
        actual = [tensors[i].shape[dim] for i, dim in symbols.values()]
        return pytree.tree_unflatten(flat(*actual, *tensors), module.spec)

    return call


class Twin:
    """One traced sample, whose graphs are each compiled with kernels and without."""

    def __init__(self, sample: Sample, dynamic: bool, backward: bool) -> None:
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        from intarsia import decompositions

        self.fused = False
        self.call = trace(
            sample,
            self._compile,
            dynamic,
            backward,
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
            decompositions=decompositions.table(),
        )

    def _compile(self, kind: str, gm: Any, example_inputs: Any) -> Any:
        from intarsia import backend
        from intarsia.options import Options

        programs = [
            backend._compile_graph(
                gm,
                example_inputs,
                kind=kind,
                stem="sample",
                settings=Options(fuse=fuse),
                user_names=(),
            )
            for fuse in (False, True)
        ]

        def call(arguments: list[Any]) -> Any:
            return programs[self.fused](arguments)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def with_kernels(self, fused: bool) -> Callable[..., Any]:
        def function(*tensors: torch.Tensor) -> Any:
            self.fused = fused
            return self.call(*tensors)

        return function


def _uncompiled(kind: str, gm: Any, example_inputs: Any) -> Any:
    from torch._functorch.aot_autograd import boxed_nop_preserve_node_meta

    return boxed_nop_preserve_node_meta(gm, example_inputs)


def check(name: str, dtype: str, sample: Sample, dynamic: bool) -> tuple[str, str]:
    """One check.

    Returns
    -------
    status : {"passed", "failed", "refused", "skipped"}
        Skipped is what eager itself does not run; refused, what does not come through
        AOTAutograd as eager runs it, whatever the backend.
    detail : str
        For one that passed, what should be known all the same.
    """
    allowed = tolerances(name, getattr(torch, dtype))
    values = name not in UNINITIALISED
    backward = any(x.requires_grad for x in sample.tensors)
    note = ""
    try:
        want = run(sample.function, sample, backward)
    except Exception as error:
        if not backward:
            return "skipped", f"eager: {_text(error)}"
        backward = False
        note = f"forward only; eager: {_text(error)}"
        try:
            want = run(sample.function, sample, backward)
        except Exception:
            return "skipped", note
    got: list[Outcome] = []
    problem = None
    try:
        twin = Twin(sample, dynamic, backward)
        for fused in (False, True):
            got.append(run(twin.with_kernels(fused), sample, backward))
            found = difference(got[-1], want, allowed, values)
            if found is None and fused:
                found = difference(got[1], got[0], allowed, values)
                found = found and f"against unfused: {found}"
            if found is not None and problem is None:
                problem = f"{'fused' if fused else 'unfused'}: {found}"
    except Exception as error:
        problem = _text(error)
        got = []
    if problem is not None and got and not any(difference(x, want, {}, False) for x in got):
        if is_as_accurate(got, want, name, getattr(torch, dtype), sample):
            problem, note = None, f"as accurate as eager: {problem}"
    if problem is None:
        return "passed", note
    if name in WRONG_FAKES and problem.startswith(("ContractError", "GuardError")):
        return "refused", problem
    if (name, dtype) in WRONG_STRIDES and "gradients: strides" in problem:
        return "refused", problem
    # Would another backend get as far?
    try:
        plain = trace(sample, _uncompiled, dynamic, backward)
        reference = run(plain, sample, backward)
    except Exception as error:
        return "refused", _text(error)
    if difference(reference, want, allowed, values) is not None and got:
        if not any(difference(x, reference, allowed, values) for x in got):
            return "refused", f"as aot_eager: {problem}"
    return "failed", problem


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:800]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without PyTorch's warnings about its samples, and with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        torch.set_num_threads(threads)


def modes(dtype: str) -> tuple[str, ...]:
    return ("static", "dynamic") if dtype in DYNAMIC else ("static",)


# --- The sweep --------------------------------------------------------------------

# A check of a state file: (operator, dtype, sample, "static" or "dynamic").
Key = tuple[str, str, int, str]


def worker() -> None:
    """Reads units from standard input, with the checks not to repeat, in JSON lines.

    Says what it begins, so that a death has a culprit, and what came of it.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print is not an answer

    def say(*answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    import intarsia  # noqa: F401

    if "--larger" in sys.argv:
        enlarge()
    with quiet():
        infos = operators()
        for line in sys.stdin:
            name, dtype, count, known = json.loads(line)
            known = {tuple(key) for key in known}
            say("begin", [name, dtype, -1, "samples"])
            try:
                for i, sample in enumerate(samples(infos[name], getattr(torch, dtype), count)):
                    for mode in modes(dtype):
                        if (name, dtype, i, mode) in known:
                            continue
                        say("begin", [name, dtype, i, mode])
                        say("end", *check(name, dtype, sample, mode == "dynamic"))
            except Exception as error:
                say("begin", [name, dtype, -1, "samples"])
                say("end", "skipped", f"no samples: {_text(error)}")
            say("done")


class Worker:
    """A child process; a new one when it dies."""

    def __init__(self, timeout: float, flags: Sequence[str] = ()) -> None:
        self.timeout = timeout
        self.flags = flags
        self.process: subprocess.Popen[str] | None = None

    def checks(
        self, unit: tuple[str, str], count: int, known: set[Key]
    ) -> Iterator[tuple[Key, str, str]]:
        """What came of each check of the unit, as it comes."""
        known = set(known)
        while True:
            process = self._started()
            key: Key = (*unit, -1, "samples")
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps([*unit, count, sorted(known)]) + "\n")
                process.stdin.flush()
            while answer := self._answer(process):
                if answer[0] == "done":
                    return
                if answer[0] == "begin":
                    key = tuple(answer[1])
                else:
                    known.add(key)
                    yield key, answer[1], answer[2]
            status = process.wait()
            cause = signal.Signals(-status).name if status < 0 else f"status {status}"
            if status == -signal.SIGKILL:
                cause = f"SIGKILL, or took more than {self.timeout:.0f} s"
            yield key, "failed", f"the process died of {cause}"
            if key[2] < 0:
                return
            known.add(key)

    def _started(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), *self.flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self.process

    def _answer(self, process: subprocess.Popen[str]) -> list[Any]:
        timer = threading.Timer(self.timeout, process.kill)
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        return json.loads(line) if line else []

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


class State:
    """The file of results: one JSON line a check, and one a finished unit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[Key, tuple[str, str]] = {}
        self.finished: set[tuple[str, str]] = set()
        self.lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            if len(entry) == 2:
                self.finished.add(tuple(entry))
            else:
                self.results[tuple(entry[:4])] = tuple(entry[4:])

    def forget(self, units: set[tuple[str, str]], statuses: Sequence[str]) -> None:
        """Makes the next run repeat these units' checks that ended so."""
        again = {
            key
            for key, (status, _) in self.results.items()
            if key[:2] in units and status in statuses
        }
        for key in again:
            del self.results[key]
            self.finished.discard(key[:2])

    def add(self, *entry: Any) -> None:
        with self.lock, self.path.open("a") as file:
            if len(entry) == 2:
                self.finished.add(entry)
            else:
                self.results[entry[:4]] = entry[4:]
            file.write(json.dumps(entry) + "\n")


STATUSES = ("passed", "failed", "refused", "skipped")


def sweep(
    chosen: Sequence[tuple[str, str]],
    state: State,
    *,
    count: int,
    jobs: int,
    timeout: float,
    flags: Sequence[str] = (),
) -> None:
    """Runs what the state has not, unit by unit, in `jobs` processes.

    `flags`: the workers' own, ``--larger``.
    """
    todo = iter([unit for unit in chosen if unit not in state.finished])
    total = sum(unit not in state.finished for unit in chosen)
    start, done, lock = time.time(), 0, threading.Lock()

    def work() -> None:
        nonlocal done
        child = Worker(timeout, flags)
        while True:
            with lock:
                unit = next(todo, None)
            if unit is None:
                break
            known = {key for key in state.results if key[:2] == unit}
            for key, status, detail in child.checks(unit, count, known):
                state.add(*key, status, detail)
                if status == "failed":
                    print(f"FAILED {label(key)}: {detail[:300]}", flush=True)
            state.add(*unit)
            with lock:
                done += 1
                if done % 100 == 0:
                    print(f"{done} of {total} in {time.time() - start:.0f} s", flush=True)
        child.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def label(key: Key) -> str:
    name, dtype, sample, mode = key
    return f"{name} {dtype} sample {sample} {mode}"


def report(chosen: Sequence[tuple[str, str]], state: State, by_operator: bool) -> int:
    """Prints the table; returns the number of failures."""
    units = set(chosen)
    results = {key: value for key, value in state.results.items() if key[:2] in units}
    rows: dict[str, Counter[str]] = {}
    for key, (status, _) in results.items():
        names = [key[1], "all", *([f"{key[0]} {key[1]}"] if by_operator else [])]
        for name in names:
            rows.setdefault(name, Counter())[status] += 1
    failures = [key for key, (status, _) in results.items() if status == "failed"]
    for key in failures:
        print(f"FAILED {label(key)}: {results[key][1][:300]}")
    order = [*sorted(set(rows) - {*DTYPES, "all"}), *DTYPES, "all"]
    width = max(10, *map(len, rows)) if rows else 10
    print(" " * width + "".join(f"{status:>10}" for status in STATUSES))
    for name in order:
        if name in rows:
            print(f"{name:{width}}" + "".join(f"{rows[name][s]:10}" for s in STATUSES))
    missing = len([unit for unit in chosen if unit not in state.finished])
    if missing:
        print(f"{missing} of {len(chosen)} operators and dtypes are not finished")
    return len(failures)


def fixed_sample(parts: int) -> list[tuple[str, str]]:
    """One unit in `parts`, the same ones whatever is added to the database."""
    return [unit for unit in units() if zlib.crc32(" ".join(unit).encode()) % parts == 0]


if __name__ == "__main__":
    worker()
