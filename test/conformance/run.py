"""Long conformance runs; not part of ``./dev test``.

``./dev conformance op_db``
    Every operator of PyTorch's operator database, first float32 samples, through
    ``torch.compile(backend="intarsia")`` with every node a call (``--fuse`` for
    kernels), compared with eager. Results are written as they come; a second run
    takes up where the first stopped. An operator that PyTorch refuses before any
    backend is called (``aot_eager`` refuses it too) counts as refused.

``./dev conformance cases FOLDER [CASE...]``
    A folder of cases with a ``harness.py`` that takes a backend's name and, with
    ``--aot``, a module with ``aot_compile`` and ``aot_load``.

``./dev conformance fusion``
    Random programs (test/python/fusion_programs.py), fused and unfused, against eager.
    ``--seed N`` starts elsewhere; what fails is shrunk and printed as a script.

``./dev conformance math``
    The accuracy of every math function of the CPU kernels, densely over all
    exponents (minutes); ``--cpu x86-64-v2`` for a CPU without FMA.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("INTARSIA_BUILD_DIR", ROOT / "build"))

# Their results are uninitialised memory: only the metadata can be compared.
UNINITIALISED = {
    *("empty", "empty_like", "empty_permuted", "empty_strided"),
    *("new_empty", "new_empty_strided"),
}


# --- One operator (in a worker process) -------------------------------------------


def compare(got: Any, want: Any, values: bool) -> str | None:
    import torch
    from torch.utils import _pytree as pytree

    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    if got_spec != want_spec:
        return f"structure {got_spec}, eager {want_spec}"
    for a, b in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b and not (a != a and b != b):
                return f"{a!r}, eager {b!r}"
            continue
        if (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
            return f"{a.dtype} {list(a.shape)}, eager {b.dtype} {list(b.shape)}"
        if b.layout is torch.strided and b.numel() > 1:
            keep = [n != 1 for n in b.shape]
            if [s for s, k in zip(a.stride(), keep, strict=False) if k] != [
                s for s, k in zip(b.stride(), keep, strict=False) if k
            ]:
                return f"strides {a.stride()}, eager {b.stride()}"
        if values:
            try:
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)
            except AssertionError as error:
                return " ".join(str(error).split())
    return None


def test_operator(info: Any, samples: int, fuse: bool) -> tuple[str, str]:
    """("passed" | "failed" | "refused" | "skipped", detail)."""
    import copy

    import torch

    name = info.name
    if torch.float32 not in info.supported_dtypes("cpu"):
        return "skipped", "no float32"
    tested = 0
    for sample in info.sample_inputs("cpu", torch.float32, requires_grad=False):
        if tested == samples:
            break
        arguments = (sample.input, *sample.args)

        def function(arguments: Any, kwargs: Any, op: Any = info.op) -> Any:
            return op(*arguments, **kwargs)

        def run(f: Any, arguments: Any = arguments, sample: Any = sample) -> Any:
            own = copy.deepcopy((arguments, sample.kwargs))
            torch.manual_seed(0)
            return f(*own), own

        try:
            want = run(function)
        except Exception as error:
            return "skipped", f"eager: {error}"
        torch._dynamo.reset()
        compiled = torch.compile(
            function, backend="intarsia", fullgraph=True, options={"fuse": fuse}
        )
        try:
            problem = compare(run(compiled), want, name not in UNINITIALISED)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            # Would it have come to any backend?
            torch._dynamo.reset()
            reference = torch.compile(function, backend="aot_eager", fullgraph=True)
            try:
                if compare(run(reference), want, name not in UNINITIALISED) is not None:
                    return "refused", problem[:600]
            except Exception:
                return "refused", problem[:600]
            return "failed", problem[:600]
        tested += 1
    return ("passed", "") if tested else ("skipped", "no samples")


def operator_infos() -> dict[str, Any]:
    from torch.testing._internal import common_methods_invocations

    # Random operators are wrapped in code that Dynamo does not trace; the wrapper
    # only sets the seed, which every run here does itself.
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    infos = {}
    for info in common_methods_invocations.op_db:
        variant = f".{info.variant_test_name}" if info.variant_test_name else ""
        infos[info.name + variant] = info
    return infos


def worker(arguments: argparse.Namespace) -> None:
    """Reads operator names from standard input, one a line; answers in JSON lines."""
    import logging
    import warnings

    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    infos = operator_infos()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print is not an answer
    for line in sys.stdin:
        name = line.strip()
        try:
            status, detail = test_operator(infos[name], arguments.samples, arguments.fuse)
        except Exception as error:
            status, detail = "failed", f"{type(error).__name__}: {error}"[:600]
        print(json.dumps([name, status, detail]), file=answers, flush=True)


# --- All operators ----------------------------------------------------------------


class Worker:
    """A child process; a new one when it dies."""

    def __init__(self, flags: list[str], timeout: float) -> None:
        self.flags = flags
        self.timeout = timeout
        self.process: subprocess.Popen[str] | None = None

    def ask(self, name: str) -> list[str]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), "worker", *self.flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        process = self.process
        timer = threading.Timer(self.timeout, process.kill)
        timer.start()
        try:
            process.stdin.write(name + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if answer:
            return json.loads(answer)
        return [name, "failed", f"the process died with status {process.wait()}"]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


def read_results(path: Path) -> dict[str, tuple[str, str]]:
    results = {}
    if path.exists():
        for line in path.read_text().splitlines():
            name, status, detail = json.loads(line)
            results[name] = (status, detail)
    return results


def run_op_db(arguments: argparse.Namespace) -> int:
    path: Path = arguments.results
    path.parent.mkdir(parents=True, exist_ok=True)
    if arguments.restart:
        path.unlink(missing_ok=True)
    results = read_results(path)
    names = sorted(operator_infos())
    if arguments.only:
        names = [n for n in names if any(n == o or n.startswith(o + ".") for o in arguments.only)]
        for name in names:
            results.pop(name, None)
    index, count = (int(part) for part in arguments.shard.split("/"))
    names = names[index::count]
    if arguments.retry_failed:
        results = {n: r for n, r in results.items() if r[0] != "failed"}
    todo: Iterator[str] = iter([n for n in names if n not in results])
    lock = threading.Lock()
    flags = ["--samples", str(arguments.samples), *(["--fuse"] if arguments.fuse else [])]
    start, done, total = time.time(), 0, sum(n not in results for n in names)

    def work() -> None:
        nonlocal done
        child = Worker(flags, arguments.timeout)
        while True:
            with lock:
                name = next(todo, None)
            if name is None:
                break
            answer = child.ask(name)
            with lock:
                results[name] = (answer[1], answer[2])
                with path.open("a") as file:
                    file.write(json.dumps(answer) + "\n")
                done += 1
                if answer[1] == "failed":
                    print(f"FAILED {name}: {answer[2][:300]}", flush=True)
                elif done % 50 == 0:
                    print(f"{done} of {total} in {time.time() - start:.0f} s", flush=True)
        child.close()

    threads = [threading.Thread(target=work) for _ in range(arguments.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    by_status: dict[str, list[str]] = {}
    for name in names:
        by_status.setdefault(results[name][0], []).append(name)
    if arguments.verbose:
        for status in ("refused", "skipped"):
            for name in by_status.get(status, []):
                print(f"{status} {name}: {results[name][1][:200]}")
    print(
        ", ".join(
            f"{len(by_status.get(s, []))} {s}" for s in ("passed", "failed", "refused", "skipped")
        )
    )
    print(f"results: {os.path.relpath(path)}")
    return 1 if by_status.get("failed") else 0


def run_cases(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    harness = arguments.harness or folder / "harness.py"
    if not harness.exists():
        raise SystemExit(f"there is no {harness}")
    search = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
    command = [sys.executable, str(harness), "intarsia", *(arguments.case or ["all"])]
    return subprocess.call([*command, "--aot", "aot_adapter"], env=environment)


def run_math(arguments: argparse.Namespace) -> int:
    environment = dict(os.environ)
    environment.update(INTARSIA_MATH_SWEEP="full", INTARSIA_MATH_CPU=arguments.cpu)
    tests = [BUILD / "test" / "unit" / "TargetTests", "--gtest_filter=*MathAccuracy*"]
    return subprocess.run([*tests, "--gtest_brief=1"], env=environment).returncode


def run_fusion(arguments: argparse.Namespace) -> int:
    """Checks programs by number; shrinks and prints those that fail."""
    import logging
    import warnings

    import torch

    sys.path.insert(0, str(HERE.parent / "python"))
    import fusion_programs as programs

    # Imported here once, so that the process of each program has it.
    import intarsia.backend  # noqa: F401

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    passed = refused = failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        program = programs.from_seed(seed, arguments.statements)
        try:
            problem = programs.fails(program)
        except programs.Discarded:
            refused += 1
            continue
        if problem is None:
            passed += 1
        else:
            failed += 1
            print(f"program {seed}: {problem}", flush=True)
            smaller = programs.shrink(program)
            print(f"{smaller.reproducer()}\n# {programs.fails(smaller)}\n", flush=True)
        if (seed + 1 - arguments.seed) % 100 == 0:
            print(f"{passed} passed, {failed} failed, {refused} refused", flush=True)
    print(f"{passed} passed, {failed} failed, {refused} refused by PyTorch itself")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    op_db = commands.add_parser("op_db", help="PyTorch's operator database")
    op_db.add_argument("only", nargs="*", metavar="OPERATOR", help="these alone, anew")
    op_db.add_argument("--fuse", action="store_true", help="with kernels")
    op_db.add_argument("--samples", type=int, default=1, help="samples an operator")
    op_db.add_argument("--shard", default="0/1", help="I/N: this part of the operators")
    op_db.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    op_db.add_argument("--timeout", type=float, default=180, help="seconds an operator")
    op_db.add_argument("--results", type=Path, default=None, help="the file of results")
    op_db.add_argument("--restart", action="store_true", help="forget earlier results")
    op_db.add_argument("--retry-failed", action="store_true", help="run what failed again")
    op_db.add_argument("-v", "--verbose", action="store_true", help="list what is not tested")

    cases = commands.add_parser("cases", help="a folder of cases")
    cases.add_argument("folder", type=Path)
    cases.add_argument("case", nargs="*", help="names; default: all")
    cases.add_argument("--harness", type=Path, help="default: FOLDER/harness.py")

    fusion = commands.add_parser("fusion", help="random programs, fused and not")
    fusion.add_argument("--seed", type=int, default=0, help="the first program's number")
    fusion.add_argument("--count", type=int, default=2000, help="programs")
    fusion.add_argument("--statements", type=int, default=16, help="of a program, at most")

    math = commands.add_parser("math", help="the accuracy of the math functions")
    math.add_argument("--cpu", default="native", help="an LLVM CPU name")

    child = commands.add_parser("worker")
    child.add_argument("--samples", type=int, default=1)
    child.add_argument("--fuse", action="store_true")

    arguments = parser.parse_args()
    if arguments.command == "worker":
        worker(arguments)
        return 0
    if arguments.command == "cases":
        return run_cases(arguments)
    if arguments.command == "fusion":
        return run_fusion(arguments)
    if arguments.command == "math":
        return run_math(arguments)
    if arguments.results is None:
        mode = "fused" if arguments.fuse else "unfused"
        arguments.results = BUILD / "conformance" / f"op_db-{mode}.jsonl"
    return run_op_db(arguments)


if __name__ == "__main__":
    sys.exit(main())
