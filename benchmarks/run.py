# ===- run.py - Time and compile time beside eager and Inductor --------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Measures Intarsia beside eager PyTorch and Inductor, interleaved in one process.

Every figure is a median over rounds in which the candidates take turns (A B C C B A
...), so that a machine whose speed drifts slows all of them; quote the ratios. A turn
is six calls, of which the last three count: a call finds the caches as the ones before
it left them, and a candidate that leaves 16 MiB of modified lines behind would make the
next one wait until they are written to memory. Where a call takes longer than that
could matter, a turn is two calls and the last counts. Beside the kernels stands a copy
of their input, which moves as many bytes: no kernel that is limited by memory can be
much faster. The process starts itself again with
malloc settings under which large results are not paid for in page faults by whoever
comes first.

    ./dev bench                      everything, one thread
    ./dev bench kernels --threads 2
    ./dev bench encoder compile --json out.json --svg out.svg
    ./dev bench call                 one opaque call, see calls.py
    ./dev bench growth               compile time of ten times as many operators
    ./dev bench offline              compiled files beside AOTInductor's
    ./dev bench suite --with-peers   whole programs, their floors, other compilers
    ./dev bench micro                kernels at several sizes and layouts
    ./dev bench share                what part of public models ends up in kernels
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from calls import bench_call
from chart import console, draw
from offline import bench_offline
from peers import PEERS
from rich.table import Table
from share import bench_share
from suite import bench_micro, bench_suite
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {
    # Compile times are those of empty caches.
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "600000000",
}
LONG_CALL = 0.03  # seconds
Candidate = Callable[..., torch.Tensor]


def interleaved(
    candidates: dict[str, Candidate], inputs: tuple, rounds: int, grad: bool = False
) -> dict[str, float]:
    """Median seconds of each candidate on the inputs, recorded for gradients or not."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    with torch.set_grad_enabled(grad):
        for number in range(rounds):
            turns = list(candidates.items())
            for name, run in reversed(turns) if number % 2 else turns:
                turn: list[float] = []
                while len(turn) < (2 if turn and turn[0] > LONG_CALL else 6):
                    start = time.perf_counter()
                    run(*inputs)
                    turn.append(time.perf_counter() - start)
                times[name] += turn[len(turn) // 2 :]
    return {name: statistics.median(values) for name, values in times.items()}


def compiled(
    function: Candidate, dynamic: bool, peers: bool, **options: object
) -> dict[str, Candidate]:
    """The function by every candidate that is asked for."""
    result = {
        "eager": function,
        "intarsia": torch.compile(
            function, backend="intarsia", dynamic=dynamic, options=options or None
        ),
    }
    if peers:
        result["inductor"] = torch.compile(function, dynamic=dynamic)
    return result


def report(title: str, rows: list[dict], candidates: list[str], unit: str = "ms") -> None:
    table = Table(title=title)
    table.add_column("case")
    for name in candidates:
        table.add_column(f"{name} ({unit})", justify="right")
    for name in candidates:
        if name != "intarsia":
            table.add_column(f"{name} / intarsia", justify="right")
    for row in rows:
        seconds = row["seconds"]
        cells = [row["case"], *(f"{seconds[name] * 1e3:.3f}" for name in candidates)]
        others = [name for name in candidates if name != "intarsia"]
        cells += [f"{seconds[name] / seconds['intarsia']:.2f}" for name in others]
        table.add_row(*cells)
    console.print(table)


# --- Kernels ------------------------------------------------------------------


def softmax_chain(x, a, b):
    return torch.softmax(torch.tanh(x * a + b), -1)


def layer_norm(x, a, b):
    return nn.functional.layer_norm(x, x.shape[-1:], a, b)


def gelu_chain(x, a, b):
    return nn.functional.gelu(x * a + b) * x


KERNELS = {
    "softmax(tanh(x*a+b))": softmax_chain,
    "layer norm": layer_norm,
    "gelu(x*a+b)*x": gelu_chain,
}


def bench_kernels(arguments: argparse.Namespace) -> list[dict]:
    all_rows, dynamic_rows = [], []
    for dtype in (torch.float32, torch.bfloat16):
        rows = []
        inputs = tuple(t.to(dtype) for t in (torch.randn(4096, 1024), *torch.randn(2, 1024)))
        for name, function in KERNELS.items():
            case = f"{name}, {str(dtype)[6:]}, 4096x1024"
            torch._dynamo.reset()
            candidates = compiled(function, False, not arguments.no_inductor)
            candidates["copy"] = lambda x, a, b: x.clone()
            if dtype != torch.float32:
                candidates['numerics="fused"'] = torch.compile(
                    _fresh(function),
                    backend="intarsia",
                    dynamic=False,
                    options={"numerics": "fused"},
                )
            seconds = interleaved(candidates, inputs, arguments.rounds)
            rows.append({"case": case, "seconds": seconds})

            # Dynamic sizes beside static ones: compiled for any, run on the same.
            torch._dynamo.reset()
            candidates = {
                "intarsia": torch.compile(function, backend="intarsia", dynamic=False),
                "dynamic": torch.compile(_fresh(function), backend="intarsia", dynamic=True),
            }
            seconds = interleaved(candidates, inputs, arguments.rounds)
            dynamic_rows.append({"case": case, "seconds": seconds})
        report("Kernels, time per call", rows, _names(rows))
        all_rows += rows
    report("Kernels for dynamic sizes beside static", dynamic_rows, ["intarsia", "dynamic"])
    return [{"group": "kernels", **row} for row in all_rows] + [
        {"group": "dynamic", **row} for row in dynamic_rows
    ]


def _fresh(function: Candidate) -> Candidate:
    """The same function as another object: Dynamo keeps its code apart."""
    return type(function)(
        function.__code__.replace(co_name=function.__name__ + "_again"), function.__globals__
    )


def _names(rows: list[dict]) -> list[str]:
    return list(rows[0]["seconds"])


# --- The sentence encoder -----------------------------------------------------


def encoder() -> nn.Module:
    sys.path.insert(0, str(ROOT / "examples" / "demo"))
    import encoder as model
    import operators

    operators.load()
    return model.SentenceEncoder.pretrained().eval()


def batch(count: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(1000, 30000, (count, tokens))
    mask = torch.ones(count, tokens, dtype=torch.long)
    mask[:, tokens * 3 // 4 :] = 0
    return ids, mask


def library_share(model: Candidate, inputs: tuple, rounds: int) -> float:
    """The part of the time that operators called through the dispatcher take."""
    from torch._dynamo.backends.common import aot_autograd

    from intarsia import backend
    from intarsia.options import Options

    seen: dict[str, object] = {}

    def keep(graph, example_inputs):
        program = backend._compile_graph(
            graph,
            example_inputs,
            kind="inference",
            stem="share",
            settings=Options.resolve(None, None),
            user_names=[],
        )

        def run(arguments: list) -> object:
            seen.update(program=program, arguments=list(arguments))
            return program(arguments)

        run._boxed_call = True
        return run

    torch._dynamo.reset()
    torch.compile(model, backend=aot_autograd(fw_compiler=keep), dynamic=True)(*inputs)
    shares = []
    for _ in range(rounds):
        _, steps = seen["program"].profile(list(seen["arguments"]))
        total = sum(step[-1] for step in steps)
        shares.append(sum(step[-1] for step in steps if "::" in step[2]) / total)
    return statistics.median(shares)


def bench_encoder(arguments: argparse.Namespace) -> list[dict]:
    model = encoder()
    torch._dynamo.reset()
    candidates = compiled(model, True, not arguments.no_inductor)
    rows = []
    with torch.no_grad():
        for count, tokens in ((1, 16), (32, 64)):
            inputs = batch(count, tokens)
            expected = model(*inputs)
            for name, f in candidates.items():
                difference = (f(*inputs) - expected).abs().max().item()
                if difference > 1e-5:
                    raise SystemExit(f"{name} differs from eager by {difference}")
            rounds = arguments.rounds * (5 if count == 1 else 1)
            rows.append(
                {
                    "case": f"encoder {count} x {tokens}",
                    "seconds": interleaved(candidates, inputs, rounds),
                }
            )
            rows[-1]["library_share"] = library_share(model, inputs, arguments.rounds)
    for row in rows:
        console.print(f"{row['case']}: library calls take {row['library_share']:.1%} of the time")
    report("Sentence encoder, time per batch", rows, _names(rows))
    return [{"group": "encoder", **row} for row in rows]


# --- Compile time -------------------------------------------------------------


def backend_seconds(model: Candidate, inputs: tuple, backend: str, dynamic: bool = True) -> float:
    """Seconds from AOTAutograd's graph to a callable, with empty caches."""
    import intarsia

    torch._dynamo.reset()
    with tempfile.TemporaryDirectory() as cache, torch.no_grad():
        if backend == "intarsia":
            os.environ["INTARSIA_CACHE_DIR"] = cache
            with intarsia.record_compilations() as compilations:
                torch.compile(model, backend="intarsia", dynamic=dynamic)(*inputs)
            return sum(compilation.seconds for compilation in compilations)

        from torch._dynamo.backends.common import aot_autograd
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.decomposition import select_decomp_table

        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        spent = []

        def timed(graph, example_inputs):
            start = time.perf_counter()
            with config.patch(force_disable_caches=True):
                result = compile_fx_inner(graph, example_inputs)
            spent.append(time.perf_counter() - start)
            return result

        compiler = aot_autograd(fw_compiler=timed, decompositions=select_decomp_table())
        torch.compile(model, backend=compiler, dynamic=dynamic)(*inputs)
        return sum(spent)


def bench_compile(arguments: argparse.Namespace) -> list[dict]:
    model = encoder()
    inputs = batch(2, 16)
    backend_seconds(
        softmax_chain, (torch.randn(8, 16), torch.randn(16), torch.randn(16)), "intarsia"
    )
    seconds = {
        "intarsia": statistics.median(backend_seconds(model, inputs, "intarsia") for _ in range(3))
    }
    if not arguments.no_inductor:
        seconds["inductor"] = backend_seconds(model, inputs, "inductor")
    rows = [{"case": "encoder, graph to callable, empty caches", "seconds": seconds}]
    report("Backend compile time", rows, _names(rows))
    return [{"group": "compile", **row} for row in rows]


def chain(links: int) -> Candidate:
    """Ten operators a link, no two links alike, and a call of a library after ten links."""

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for i in range(links):
            x = torch.tanh(x * (1 + i / 1000) + y) - x.sum(1, keepdim=True) * 0.01
            x = torch.sigmoid(x) * y + i
            if i % 10 == 9:
                x = torch.mm(y, x)
        return x

    return run


def bench_growth(arguments: argparse.Namespace) -> list[dict]:
    inputs = (torch.randn(16, 16), torch.randn(16, 16) + 16 * torch.eye(16))
    rows = []
    for links, rounds in ((100, 5), (1000, 1)):
        model = chain(links)
        spent = [backend_seconds(model, inputs, "intarsia", False) for _ in range(rounds)]
        rows.append(
            {"case": f"{10 * links} operators", "seconds": {"intarsia": statistics.median(spent)}}
        )
    report("Backend compile time", rows, _names(rows))
    few, many = (row["seconds"]["intarsia"] for row in rows)
    console.print(f"ten times as many: {many / few:.2f} times as long")
    return [{"group": "growth", **row} for row in rows]


TIMED = {
    "kernels": bench_kernels,
    "encoder": bench_encoder,
    "compile": bench_compile,
    "call": bench_call,
}
BENCHES = {
    **TIMED,
    "growth": bench_growth,
    "offline": bench_offline,
    "share": bench_share,
    "suite": lambda arguments: bench_suite(arguments, interleaved),
    "micro": lambda arguments: bench_micro(arguments, interleaved),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument(
        "what", nargs="*", help=f"some of: {', '.join(BENCHES)} (default: {', '.join(TIMED)})"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads (default: 1)")
    parser.add_argument("--rounds", type=int, default=21, help="counted rounds (default: 21)")
    parser.add_argument("--no-inductor", action="store_true", help="leave Inductor out")
    parser.add_argument(
        "--dynamic", action="store_true", help="suite, micro: programs for all sizes"
    )
    parser.add_argument(
        "--max-autotune", action="store_true", help="suite, micro: that mode of both too"
    )
    parser.add_argument("--with-peers", action="store_true", help="suite, micro: other compilers")
    parser.add_argument(
        "--without", action="append", default=[], choices=PEERS, help="leave this one out"
    )
    parser.add_argument(
        "--only", metavar="TEXT", help="suite, micro, offline: programs whose name has this"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--svg", type=Path, help="draw the times in this file")
    arguments = parser.parse_args()
    unknown = set(arguments.what) - set(BENCHES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ENVIRONMENT})

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    console.print(f"torch {torch.__version__}, {arguments.threads} thread(s)")
    rows = []
    for name in arguments.what or TIMED:
        rows += BENCHES[name](arguments)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"threads": arguments.threads, "rows": rows}, indent=1)
        )
    if arguments.svg:
        draw(rows, arguments.threads, arguments.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
