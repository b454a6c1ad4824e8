"""Long conformance runs; not part of ``./dev test``.

``./dev conformance op_db``
    PyTorch's operator database (op_db.py): the first samples of every operator in ten
    dtypes, forward and backward, with static and symbolic sizes, compiled with kernels
    and without, against eager. Results are written as they come; a second run takes up
    where the first stopped. ``--shard I/N`` runs a part.

``./dev conformance cases FOLDER [CASE...]``
    A folder of cases with a ``harness.py`` that takes a backend's name and, with
    ``--aot``, a module with ``aot_compile`` and ``aot_load``.

``./dev conformance fusion``
    Random programs (test/python/fusion_programs.py), fused and unfused, against eager.
    ``--seed N`` starts elsewhere; what fails is shrunk and printed as a script.

``./dev conformance pytorch CHECKOUT [TEST...]``
    PyTorch's own tests, from a checkout of its sources, with this backend in the place of
    theirs (pytorch_tests.py): ``--suite`` chooses, ``--shard I/N`` runs a part. A second
    run takes up where the first stopped; every exclusion is printed with its reason.

``./dev conformance programs [ARGUMENT...]``
    Training and inference with transformers, timm, torch_geometric, torchvision,
    bitsandbytes and torchao, eager and compiled. What programs/requirements.txt names is
    installed into the build folder at first; arguments are pytest's.

``./dev conformance math``
    The accuracy of every math function of the CPU kernels, densely over all
    exponents (minutes); ``--cpu x86-64-v2`` for a CPU without FMA.

``./dev conformance ptx FOLDER``
    The kernels of all graphs that ``INTARSIA_DEBUG=FOLDER`` left there, made for CUDA:
    PTX and ptxas for each architecture, with registers, shared memory and spills (ptx.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("INTARSIA_BUILD_DIR", ROOT / "build"))


def compile_everything() -> None:
    """Nothing that an earlier run left in PyTorch's cache. Before torch is imported."""
    os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"


def run_op_db(arguments: argparse.Namespace) -> int:
    compile_everything()
    import op_db

    if arguments.results is None:
        name = "op_db-larger" if arguments.larger else "op_db"
        arguments.results = BUILD / "conformance" / f"{name}.jsonl"
    state = op_db.State(arguments.results)
    chosen = op_db.units(arguments.dtype or op_db.DTYPES)
    if arguments.only:
        chosen = [
            unit
            for unit in chosen
            if any(unit[0] == o or unit[0].startswith(o + ".") for o in arguments.only)
        ]
        if not chosen:
            raise SystemExit(f"the database has no {' '.join(arguments.only)}")
    index, count = (int(part) for part in arguments.shard.split("/"))
    chosen = chosen[index::count]
    if arguments.restart or arguments.only:
        state.forget(set(chosen), op_db.STATUSES)
    elif arguments.retry_failed:
        state.forget(set(chosen), ["failed"])
    if not arguments.report:
        op_db.sweep(
            chosen,
            state,
            count=arguments.samples,
            jobs=arguments.jobs,
            timeout=arguments.timeout,
            flags=["--larger"] if arguments.larger else [],
        )
    if arguments.verbose:
        for key, (status, detail) in state.results.items():
            if key[:2] in set(chosen) and status != "failed" and detail:
                print(f"{status} {op_db.label(key)}: {detail[:200]}")
    failures = op_db.report(chosen, state, arguments.by_operator)
    print(f"results: {os.path.relpath(arguments.results)}")
    return 1 if failures else 0


def run_cases(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    harness = arguments.harness or folder / "harness.py"
    if not harness.exists():
        raise SystemExit(f"there is no {harness}")
    search = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
    command = [sys.executable, str(harness), "intarsia", *(arguments.case or ["all"])]
    return subprocess.call([*command, "--aot", "aot_adapter"], env=environment)


def run_pytorch(arguments: argparse.Namespace) -> int:
    import pytorch_tests

    arguments.checkout = arguments.checkout.resolve()
    unknown = [s for s in arguments.suite or () if s not in pytorch_tests.SUITES]
    if unknown:
        raise SystemExit(f"suites are {', '.join(pytorch_tests.SUITES)}, not {unknown[0]}")
    if arguments.results is None:
        arguments.results = BUILD / "conformance" / "pytorch.jsonl"
    return pytorch_tests.run(arguments)


def run_programs(arguments: list[str]) -> int:
    """Installs the libraries, where the tests alone see them, and runs pytest."""
    wanted = HERE / "programs" / "requirements.txt"
    folder = BUILD / "conformance" / "programs"
    installed = folder / "requirements.txt"
    if not installed.exists() or installed.read_text() != wanted.read_text():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade"]
        subprocess.run([*install, "--target", folder, "-r", wanted], check=True)
        shutil.copyfile(wanted, installed)
    environment = dict(os.environ)
    environment["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(folder), *filter(None, [environment.get("PYTHONPATH")])]
    )
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--show-capture=no",
        HERE / "programs",
        *arguments,
    ]
    return subprocess.run(tests, env=environment).returncode


def run_math(arguments: argparse.Namespace) -> int:
    environment = dict(os.environ)
    environment.update(INTARSIA_MATH_SWEEP="full", INTARSIA_MATH_CPU=arguments.cpu)
    tests = [BUILD / "test" / "unit" / "TargetTests", "--gtest_filter=*MathAccuracy*"]
    return subprocess.run([*tests, "--gtest_brief=1"], env=environment).returncode


def run_fusion(arguments: argparse.Namespace) -> int:
    """Checks programs by number; shrinks and prints those that fail."""
    compile_everything()
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
    op_db.add_argument("--dtype", action="append", help="this dtype (repeatable); default: ten")
    op_db.add_argument("--samples", type=int, default=3, help="of an operator and dtype")
    op_db.add_argument("--shard", default="0/1", help="I/N: this part of the work")
    op_db.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    op_db.add_argument("--timeout", type=float, default=180, help="seconds a sample")
    op_db.add_argument(
        "--larger", action="store_true", help="samples of sizes longer than a vector"
    )
    op_db.add_argument(
        "--results", type=Path, help="the file of results, which a later run continues"
    )
    op_db.add_argument("--restart", action="store_true", help="repeat everything")
    op_db.add_argument("--retry-failed", action="store_true", help="run what failed again")
    op_db.add_argument("--report", action="store_true", help="print results, run nothing")
    op_db.add_argument("--by-operator", action="store_true", help="a row for each operator")
    op_db.add_argument("-v", "--verbose", action="store_true", help="list what is not tested")

    cases = commands.add_parser("cases", help="a folder of cases")
    cases.add_argument("folder", type=Path)
    cases.add_argument("case", nargs="*", help="names; default: all")
    cases.add_argument("--harness", type=Path, help="default: FOLDER/harness.py")

    fusion = commands.add_parser("fusion", help="random programs, fused and not")
    fusion.add_argument("--seed", type=int, default=0, help="the first program's number")
    fusion.add_argument("--count", type=int, default=2000, help="programs")
    fusion.add_argument("--statements", type=int, default=16, help="of a program, at most")

    pytorch = commands.add_parser("pytorch", help="PyTorch's own tests")
    pytorch.add_argument("checkout", type=Path, help="a checkout of PyTorch's sources")
    pytorch.add_argument("only", nargs="*", metavar="TEST", help="parts of names: these, anew")
    pytorch.add_argument("--suite", action="append", help="this one (repeatable); default: all")
    pytorch.add_argument("--shard", default="0/1", help="I/N: this part of the work")
    pytorch.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    pytorch.add_argument("--timeout", type=float, default=300, help="seconds a test")
    pytorch.add_argument("--results", type=Path, help="the file that a later run continues")
    pytorch.add_argument("--retry-failed", action="store_true", help="run what failed again")
    pytorch.add_argument("--report", action="store_true", help="print results, run nothing")
    pytorch.add_argument("-v", "--verbose", action="store_true", help="show what tests print")

    math = commands.add_parser("math", help="the accuracy of the math functions")
    math.add_argument("--cpu", default="native", help="an LLVM CPU name")

    ptx = commands.add_parser("ptx", help="the kernels of dumped graphs, through ptxas")
    ptx.add_argument("folder", type=Path, help="what INTARSIA_DEBUG named")
    ptx.add_argument("--arch", action="append", help="this one (repeatable); default: eight")
    ptx.add_argument("--jobs", type=int, default=os.cpu_count() or 1)

    commands.add_parser("programs", help="programs with public libraries", add_help=False)

    arguments, others = parser.parse_known_args()
    if arguments.command == "programs":
        return run_programs(others)
    if others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if arguments.command == "cases":
        return run_cases(arguments)
    if arguments.command == "pytorch":
        return run_pytorch(arguments)
    if arguments.command == "fusion":
        return run_fusion(arguments)
    if arguments.command == "math":
        return run_math(arguments)
    if arguments.command == "ptx":
        import ptx as sweeps

        chosen = tuple(arguments.arch or sweeps.ARCHITECTURES)
        return 1 if sweeps.sweep(arguments.folder, chosen, arguments.jobs) else 0
    return run_op_db(arguments)


if __name__ == "__main__":
    sys.exit(main())
