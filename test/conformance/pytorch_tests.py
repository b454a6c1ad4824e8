# ===- pytorch_tests.py - PyTorch's own tests with this backend --------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Runs tests from a checkout of PyTorch, unmodified, with Intarsia as the backend.

What the tests call to compile (the backends' names in Dynamo's registry, Inductor's
``compile_fx``, functorch's ``nop``) is replaced from outside, before they are imported.
Each test runs in a child of a process that has imported them, so that none sees what
another left behind and a crash is one failure.

A test counts only if it says something about a backend. Excluded is, found by running:

- what compiles nothing through a backend that can be replaced;
- what PyTorch skips, with its reason;
- what reads Inductor's generated code, metrics or counters, or calls Inductor's own
  entry points: at that place the test ends. What it compared before counts;
- what fails at the same place with the backend ``aot_eager``, which calls the
  operators of the graph one by one;
- what fails as PyTorch wrote it, with the backend that it names;
- what expects a refusal of a program that this backend runs (`WIDER`, by name), or runs an
  operator whose results break its schema, which this backend refuses (`STRICTER`).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

#: By name: the file, below the checkout's ``test`` folder.
SUITES = {
    "inductor": "inductor/test_torchinductor.py",
    "inductor-dynamic": "inductor/test_torchinductor_dynamic_shapes.py",
    "backends": "dynamo/test_backends.py",
    "aot-autograd": "dynamo/test_aot_autograd.py",
    "aotdispatch": "functorch/test_aotdispatch.py",
    "custom-ops": "test_custom_ops.py",
}

#: Dynamo's backends in whose place Intarsia runs.
REPLACED = (
    *("inductor", "eager", "aot_eager"),
    *("aot_eager_decomp_partition", "aot_eager_default_partitioner"),
)

#: Tests that expect a refusal, and what runs instead.
WIDER = {
    "TestCustomOp.test_functionalize_error": "an operator that returns what it writes, or a view",
    "AotAutogradFallbackTests.test_donated_buffer_with_retain_or_create_graph4": (
        "a second backward, for which the saved tensors are kept"
    ),
}

#: Tests that run an operator which breaks its schema, and how.
STRICTER = dict.fromkeys(
    (
        "MiniOpTest.test_aot_dispatch_dynamic__test_incorrect_schema",
        "MiniOpTest.test_aot_dispatch_static__test_incorrect_schema",
        "TestGenerateOpcheckTests.test_opcheck_bad_op",
    ),
    "a view that the schema does not declare",
)

STATUSES = ("passed", "failed", "excluded")


# --- What the tests find in the place of PyTorch's compilers ------------------------


class Internals(Exception):
    """The test goes on to look at something that only Inductor has."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        # Some callers catch every exception.
        redirection.looked_at = redirection.looked_at or what


class GeneratedCode:
    """In the place of Inductor's code: can be handed on, and not looked at."""

    def __getitem__(self, index: Any) -> GeneratedCode:
        return self

    def __iter__(self) -> Iterator[GeneratedCode]:
        # As many as are unpacked are not known: mostly one.
        return iter([self])

    def _looked_at(self, *_: Any) -> Any:
        raise Internals("Inductor's generated code")

    __len__ = __contains__ = __eq__ = __bool__ = __str__ = __add__ = _looked_at
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Internals("Inductor's generated code")


class _Metrics(ModuleType):
    """`torch._inductor.metrics`, whose numbers nobody counts."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if isinstance(value, (int, list)) and redirection.active:
            raise Internals(f"Inductor's metrics.{name}")
        return value


class _InductorCounter(Counter):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        if redirection.active:
            raise Internals(f"Inductor's counters[{key!r}]")
        return super().__getitem__(key)


class Redirection:
    """Which backend the tests get.

    Attributes
    ----------
    backend : {"intarsia", "aot_eager", "as written"}
    compiled : int
        How many graphs the replaced backends were given.
    looked_at : str
        What only Inductor has, and the test wanted first.
    """

    def __init__(self) -> None:
        self.backend = "intarsia"
        self.compiled = 0
        self.looked_at = ""

    @property
    def active(self) -> bool:
        """Whether Inductor is replaced."""
        return self.backend != "as written"

    def compile(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.compiled += 1
        if self.backend == "as written":
            return original(*args, **kwargs)
        gm, inputs = args[:2]
        if self.backend == "aot_eager":
            return originals["aot_eager"](gm, inputs)
        from intarsia.backend import intarsia

        return intarsia(gm, inputs)

    def compile_graph(self, original: Callable[..., Any], gm: Any, inputs: Any) -> Any:
        """In the place of functorch's `nop`, a compiler of AOTAutograd's graphs."""
        self.compiled += 1
        if self.backend != "intarsia":
            return original(gm, inputs)
        from intarsia import backend
        from intarsia.options import Options

        return backend._compile_graph(
            gm, inputs, kind="graph", stem="test", settings=Options(), user_names=()
        )


redirection = Redirection()
originals: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Puts the replacements where the tests will look."""
    import functorch.compile
    import torch._dynamo.utils
    import torch._functorch.compilers
    import torch._inductor.compile_fx as compile_fx
    import torch._inductor.metrics as metrics
    import torch._inductor.utils as utils
    import torch.testing
    from torch._dynamo.backends import registry

    from intarsia import _hooks

    _hooks.install()
    for name in REPLACED:
        original = originals[name] = registry.lookup_backend(name)
        replacement = functools.partial(redirection.compile, original)
        functools.update_wrapper(replacement, original)
        registry._COMPILER_FNS[name] = replacement

    inside = compile_fx.compile_fx

    def from_outside(*args: Any, **kwargs: Any) -> Any:
        return redirection.compile(inside, *args, **kwargs)

    compile_fx.compile_fx = from_outside
    for module, name in (
        (compile_fx, "compile_fx_inner"),
        (compile_fx, "compile_fx_aot"),
        (utils, "run_and_get_graph_lowering"),
        (utils, "add_scheduler_init_hook"),
    ):
        _forbid(module, name)

    def with_code(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not redirection.active:
                return original(fn, *args, **kwargs)
            return fn(*args, **kwargs), GeneratedCode()

        return call

    def code_alone(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not redirection.active:
                return original(fn, *args, **kwargs)
            fn(*args, **kwargs)
            return GeneratedCode()

        return call

    def backward_too(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(fn: Callable[..., Any]) -> Any:
            result = fn()
            result.sum().backward()
            return result

        return lambda fn: with_code(original)(fn if not redirection.active else lambda: run(fn))

    for name in ("run_and_get_code", "run_and_get_cpp_code", "run_and_get_kernels"):
        setattr(utils, name, with_code(getattr(utils, name)))
    for name in ("get_code", "get_triton_code", "run_and_get_triton_code"):
        setattr(utils, name, code_alone(getattr(utils, name)))
    utils.run_fw_bw_and_get_code = backward_too(utils.run_fw_bw_and_get_code)

    metrics.__class__ = _Metrics
    _replace_counters(torch._dynamo.utils)

    file_check = torch.testing.FileCheck

    class FileCheck:
        def __init__(self) -> None:
            self.check_of = file_check()

        def __getattr__(self, name: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if any(isinstance(x, GeneratedCode) for x in args):
                    raise Internals("Inductor's generated code")
                result = getattr(self.check_of, name)(*args, **kwargs)
                return self if name != "run" else result

            return call

    torch.testing.FileCheck = FileCheck

    nop = torch._functorch.compilers.nop
    for module in (functorch.compile, torch._functorch.compilers):
        module.nop = functools.partial(redirection.compile_graph, nop)


def _forbid(module: ModuleType, name: str) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if redirection.active:
            raise Internals(f"Inductor's {name}")
        return original(*args, **kwargs)

    setattr(module, name, call)


def _replace_counters(utils: ModuleType) -> None:
    class Counters(dict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> Any:
            self[key] = _InductorCounter() if key == "inductor" else Counter()
            return self[key]

    old, new = utils.counters, Counters()
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("counters") is old:
            module.counters = new


# --- The tests ----------------------------------------------------------------------


def load(checkout: Path, suite: str) -> dict[str, type]:
    """The classes of tests in a suite's file, by name."""
    path = checkout / "test" / SUITES[suite]
    if not path.exists():
        raise SystemExit(f"the checkout has no test/{SUITES[suite]}")
    # As the file finds its neighbours; PyTorch's test library reads the command line.
    sys.path[:0] = [str(path.parent), str(checkout / "test")]
    sys.argv = [str(path)]
    if suite == "aotdispatch":
        _forget_absent_operators()
    module = _imported(path)
    if suite == "inductor":
        return {"CpuTests": _cpu_class(module, "CommonTemplate")}
    classes = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, unittest.TestCase)
        and value.__module__ == module.__name__
    }
    if suite == "inductor-dynamic":
        cpu = _cpu_class(module, "DynamicShapesCommonTemplate")
        own = {n: c for n, c in classes.items() if getattr(c, "device_type", "cpu") == "cpu"}
        own.pop("TestInductorDynamic", None)
        own.pop("DynamicShapesCpuTests", None)
        return {"DynamicShapesCpuTests": cpu, **own}
    return classes


def _forget_absent_operators() -> None:
    """PyTorch's lists of operators to skip may name some that the database no longer has."""
    import common_utils  # the checkout's test/functorch/common_utils.py

    original = common_utils.skipOps

    def skip_known(case: str, test: str, listed: Iterable[Any]) -> Callable[..., Any]:
        for entry in listed:
            with contextlib.suppress(AssertionError):
                original(case, test, [entry])
        return lambda function: function

    common_utils.skipOps = skip_known


class Missing:
    """What a test file imports from a PyTorch that no longer has it, or not yet.

    A test that needs it fails, with every backend; the others can be run.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if decorates else self


class MissingModule(ModuleType):
    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing()


def _imported(path: Path) -> ModuleType:
    while True:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("torch."):
                raise
            absent = sys.modules[error.name] = MissingModule(error.name)
            parent, _, child = error.name.rpartition(".")
            setattr(sys.modules[parent], child, absent)
            print(f"there is no {error.name}", file=sys.stderr)
        except ImportError as error:
            name = re.search(r"cannot import name '(\w+)'", str(error))
            if name is None or not str(error.name).startswith("torch"):
                raise
            setattr(sys.modules[error.name], name[1], Missing())
            print(f"{error.name} has no {name[1]}", file=sys.stderr)
        else:
            return module


def _cpu_class(module: ModuleType, template: str) -> type:
    """The template's tests on the CPU, those included that fail with Inductor."""
    cls = type(
        "CpuTests",
        (sys.modules[module.CommonTemplate.__module__].TestCase,),
        {"common": module.check_model, "device": "cpu"},
    )
    module.copy_tests(getattr(module, template), cls, "cpu")
    return cls


class _Result(unittest.TestResult):
    """Keeps the exception itself."""

    error: BaseException | None = None
    skipped_because = ""

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.error = self.error or err[1]

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.error = self.error or err[1]

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.error = self.error or err[1]

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.skipped_because = reason


def run_test(cls: type, name: str, checkout: str, backend: str) -> dict[str, Any]:
    """Runs one test in this process.

    Returns
    -------
    dict
        ``status``: passed, skipped, internals or failed; ``reason``; ``place``: the lines
        of the checkout on the way to the failure.
    """
    redirection.backend = backend
    test = cls(name)
    # PyTorch's lists of what its own backends fail are not ours.
    method = getattr(test, name)
    for holder in (test, getattr(method, "__func__", method)):
        if getattr(holder, "__unittest_expecting_failure__", False):
            holder.__unittest_expecting_failure__ = False
    result = _Result()
    test.run(result)
    answer = {"compiled": redirection.compiled, "place": [], "status": "passed", "reason": ""}
    if result.error is not None:
        answer.update(_failure(result.error, checkout))
    elif result.skipped:
        answer.update(status="skipped", reason=result.skipped_because)
    return answer


def _failure(error: BaseException, checkout: str) -> dict[str, Any]:
    if redirection.looked_at:
        return {"status": "internals", "reason": redirection.looked_at}
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if "GeneratedCode" in text:  # as a function written in C tells it
        return {"status": "internals", "reason": "Inductor's generated code"}
    frames = traceback.extract_tb(error.__traceback__)
    place = [
        f"{Path(f.filename).name}:{f.lineno}" for f in frames if f.filename.startswith(checkout)
    ]
    return {
        "status": "failed",
        "reason": text[:600],
        "place": [*place, type(error).__name__],
        "trace": "".join(traceback.format_exception(error))[-6000:],
    }


def in_child(function: Callable[..., dict[str, Any]], *args: Any, timeout: float) -> dict[str, Any]:
    """`function` in a fork of this process."""
    import torch

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            # PyTorch makes its pool of threads anew after a fork. Where the threads of
            # autograd's engine are the first to ask for it, they race and may abort.
            torch.set_num_threads(1)
            answer = function(*args)
        except BaseException as error:
            answer = {"status": "failed", "reason": f"outside: {error!r}", "place": []}
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writing)

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)

    timer = threading.Timer(timeout, stop)
    timer.start()
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    stop()
    if text:
        return json.loads(text)
    code = os.waitstatus_to_exitcode(status)
    cause = signal.Signals(-code).name if code < 0 else f"status {code}"
    if code == -signal.SIGKILL:
        cause = f"SIGKILL, or took more than {timeout:.0f} s"
    return {"status": "failed", "reason": f"the process died of {cause}", "place": [cause]}


def _stopped(answer: dict[str, Any]) -> bool:
    return "SIGKILL" in answer["reason"]


def check(cls: type, name: str, checkout: str, timeout: float) -> tuple[str, str, str]:
    """A test's status, the reason and the trace of a failure."""

    def run(backend: str) -> dict[str, Any]:
        return in_child(run_test, cls, name, checkout, backend, timeout=timeout)

    got = run("intarsia")
    status, reason = got["status"], got["reason"]
    if status == "passed":
        if not got["compiled"]:
            return "excluded", "compiles nothing with a backend that can be replaced", ""
        return "passed", "", ""
    if status == "skipped":
        return "excluded", f"skipped by PyTorch: {reason}", ""
    if status == "internals":
        return "excluded", f"looks at {reason}", ""
    runs = WIDER.get(f"{cls.__name__}.{name}")
    if runs is not None and "not raised" in reason:
        return "excluded", f"expects a refusal of {runs}, which runs", ""
    breaks = STRICTER.get(f"{cls.__name__}.{name}")
    if breaks is not None and "ContractError" in got.get("trace", ""):
        return "excluded", f"its operator returns {breaks}, which is refused", ""
    other = run("aot_eager")
    # What was stopped says nothing about the test.
    if other["status"] == "failed" and other["place"] == got["place"] and not _stopped(other):
        return "excluded", f"fails with aot_eager too: {other['reason']}", got.get("trace", "")
    written = run("as written")
    if written["status"] != "passed" and not _stopped(written):
        return "excluded", f"fails as written: {written['reason']}", got.get("trace", "")
    aot_eager = f" (with aot_eager: {other['status']} {other['reason'][:150]})"
    return "failed", f"{reason}{aot_eager}", got.get("trace", "")


def serve(checkout: str, suite: str, timeout: float) -> None:
    """Answers for the tests that are named on standard input, one line each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"
    import torch

    torch.set_num_threads(1)
    install()
    classes = load(Path(checkout), suite)
    names = [
        f"{label}.{name}"
        for label, cls in classes.items()
        for name in unittest.TestLoader().getTestCaseNames(cls)
    ]
    # What each child would import at its first compilation.
    for dynamic in (False, True):
        with torch.no_grad():
            torch.compile(lambda x: torch.tanh(x) + 1, backend="intarsia", dynamic=dynamic)(
                torch.randn(3, 4)
            )
    torch._dynamo.reset()
    print(json.dumps(names), file=answers, flush=True)
    for line in sys.stdin:
        label, name = json.loads(line).split(".", 1)
        answer = check(classes[label], name, checkout, timeout)
        print(json.dumps(answer), file=answers, flush=True)


# --- The sweep ------------------------------------------------------------------------


class Server:
    """A process that has imported a suite."""

    def __init__(self, checkout: Path, suite: str, timeout: float, verbose: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(checkout), suite, str(timeout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line:
            raise ImportError(f"the suite {suite} cannot be imported; --verbose shows why")
        self.tests: list[str] = json.loads(line)

    def check(self, test: str) -> list[str]:
        self.process.stdin.write(json.dumps(test) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class State:
    """The file of results: one JSON line a test, the last one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[tuple[str, str], list[str]] = {}
        self.lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text().splitlines() if path.exists() else ():
            suite, test, *rest = json.loads(line)
            self.results[suite, test] = rest

    def add(self, suite: str, test: str, answer: list[str]) -> None:
        with self.lock, self.path.open("a") as file:
            self.results[suite, test] = answer
            file.write(json.dumps([suite, test, *answer]) + "\n")


def sweep(arguments: argparse.Namespace, suite: str, state: State) -> list[str]:
    """Runs what the state has not; returns the names of the suite's tests."""
    index, count = (int(part) for part in arguments.shard.split("/"))
    first = Server(arguments.checkout, suite, arguments.timeout, arguments.verbose)
    chosen = first.tests[index::count]
    if arguments.only:
        chosen = [t for t in first.tests if any(o in t for o in arguments.only)]
    again = arguments.retry_failed
    todo = iter(
        [
            test
            for test in chosen
            if arguments.only
            or (suite, test) not in state.results
            or (again and state.results[suite, test][0] == "failed")
        ]
    )
    lock = threading.Lock()

    def work(server: Server) -> None:
        while True:
            with lock:
                test = next(todo, None)
            if test is None:
                break
            answer = server.check(test)
            state.add(suite, test, answer)
            if answer[0] == "failed" or arguments.only:
                print(f"{answer[0]} {suite} {test}: {answer[1][:300]}", flush=True)
                if arguments.only and answer[2]:
                    print(answer[2], flush=True)
        server.close()

    servers = [first]
    for _ in range(arguments.jobs - 1):
        servers.append(Server(arguments.checkout, suite, arguments.timeout, arguments.verbose))
    threads = [threading.Thread(target=work, args=[server]) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return chosen


def report(state: State, suites: Sequence[str]) -> int:
    """Prints what came of each suite, with the reason of every exclusion."""
    failures = 0
    for suite in suites:
        results = {test: r for (s, test), r in state.results.items() if s == suite}
        if not results:
            continue
        numbers = Counter(r[0] for r in results.values())
        failures += numbers["failed"]
        reasons = Counter(r[1][:110] for r in results.values() if r[0] == "excluded")
        for reason, number in reasons.most_common():
            print(f"{suite}: {number:4} excluded: {reason}")
        for test, answer in results.items():
            if answer[0] == "failed":
                print(f"FAILED {suite} {test}: {answer[1][:400]}")
        counted = numbers["passed"] + numbers["failed"]
        share = f", {100 * numbers['passed'] / counted:.1f} % of those counted" if counted else ""
        print(f"{suite}: " + ", ".join(f"{numbers[s]} {s}" for s in STATUSES) + share)
    return failures


def run(arguments: argparse.Namespace) -> int:
    state = State(arguments.results)
    suites = arguments.suite or [
        s for s, file in SUITES.items() if (arguments.checkout / "test" / file).exists()
    ]
    unusable: list[str] = []
    if not arguments.report:
        started = time.time()
        for suite in suites:
            try:
                sweep(arguments, suite, state)
            except ImportError as error:
                # Of another version of PyTorch than the installed one.
                unusable.append(str(error))
        print(f"{time.time() - started:.0f} s")
    failures = report(state, suites)
    for problem in unusable:
        print(problem)
    return 1 if failures or unusable else 0


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], float(sys.argv[3]))
