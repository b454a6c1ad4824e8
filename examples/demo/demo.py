"""A real pretrained model with a custom C++ operator, three ways.

``./dev demo`` encodes every paragraph of the README with the MiniLM sentence encoder:
eagerly, through ``torch.compile(backend="intarsia")``, and exported, compiled to one
file by ``intarsia-compile`` and run by ``intarsia-run``, a program without Python.
Batch size and sequence length vary from batch to batch. The exit status is not 0 if
a result differs from eager's by more than 1e-5.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import encoder
import numpy as np
import operators
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import intarsia

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5

Batch = tuple[torch.Tensor, torch.Tensor]

console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def paragraphs(path: Path) -> list[str]:
    """The sentences of a Markdown file, without code, tables and headings."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    result = []
    for block in re.split(r"\n\s*\n", text):
        block = " ".join(line.strip("-*> ") for line in block.splitlines())
        if block.startswith(("#", "|", "<")) or len(block) < 20:
            continue
        block = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block).replace("`", "").replace("*", "")
        result += [s.strip() for s in re.split(r"(?<=[.!?:;])\s+", block) if len(s.strip()) > 20]
    return result


def make_batches(tokenize: encoder.Tokenizer, sentences: list[str], size: int) -> list[Batch]:
    """Batches of sentences of like length: every batch has its own shape."""
    order = sorted(sentences, key=len)
    pieces = [order[i : i + size] for i in range(0, len(order), size)]
    if len(pieces) > 1 and len(pieces[-1]) == 1:
        # Dynamo compiles a batch of one separately; it would be timed as another graph.
        pieces[-2] += pieces.pop()
    return [tokenize(piece) for piece in pieces]


@dataclass
class Way:
    """How one of the ways to run the model did."""

    name: str
    compile_seconds: float | None = None
    backend_seconds: float | None = None
    batch_seconds: float | None = None
    difference: float | None = None
    calls: int | None = None
    kernels: int | None = None


class Steps:
    """A progress bar for the steps of the demo, and for the long ones inside."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.task = progress.add_task("", total=total)

    def begin(self, text: str) -> None:
        self.progress.update(self.task, description=text)
        if not console.is_terminal:
            console.print(f"- {text}")

    def end(self) -> None:
        self.progress.advance(self.task)

    def over(self, items: list, text: str):
        task = self.progress.add_task(f"  {text}", total=len(items))
        for item in items:
            yield item
            self.progress.advance(task)
        self.progress.remove_task(task)


def difference(results: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    worst = 0.0
    for got, want in zip(results, reference, strict=True):
        if got.shape != want.shape or got.dtype != want.dtype:
            raise SystemExit(f"a result is {got.dtype} {list(got.shape)}, eager's {want.shape}")
        # NaN must count as different.
        worst = max(worst, float((got - want).abs().max().nan_to_num(nan=float("inf"))))
    return worst


def time_per_batch(run: Callable, batches: list[Batch], repeats: int) -> float:
    """Seconds: the mean over the batches of the best of some runs."""
    total = 0.0
    for batch in batches:
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            run(*batch)
            best = min(best, time.perf_counter() - start)
        total += best
    return total / len(batches)


def through_compile(
    way: Way, backend: str, model, batches: list[Batch], repeats: int, options: dict | None
) -> list[torch.Tensor]:
    """Compiles at the first batch, then times all of them."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, dynamic=True, fullgraph=True, options=options)
    start = time.perf_counter()
    compiled(*batches[0])
    way.compile_seconds = time.perf_counter() - start
    results = [compiled(*batch) for batch in batches]
    way.batch_seconds = time_per_batch(compiled, batches, repeats)
    return results


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise SystemExit(f"{name} is not on PATH: run this through ./dev demo")
    return path


def run_tool(*command: object) -> float:
    start = time.perf_counter()
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(
            f"{command[0]} failed with status {result.returncode}:\n{result.stdout}{result.stderr}"
        )
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, default=ROOT / "README.md", help="what to encode")
    parser.add_argument("--query", default="How are errors reported to the user?")
    parser.add_argument("--batch", type=int, default=8, help="sentences a batch")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs a batch")
    parser.add_argument("--no-fuse", action="store_true", help="every node a call")
    parser.add_argument("--no-inductor", action="store_true", help="skip the comparison")
    parser.add_argument("--output", type=Path, default=operators.BUILD, help="where files go")
    arguments = parser.parse_args()
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    fuse = not arguments.no_fuse
    eager, compiled, artifact = Way("eager"), Way("torch.compile, intarsia"), Way("intarsia-run")
    inductor = Way("torch.compile, Inductor")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with torch.no_grad(), Progress(*columns, console=console, transient=True) as progress:
        steps = Steps(progress, total=6 if arguments.no_inductor else 7)

        steps.begin("building the operator demo::mean_pool_normalize")
        library = operators.load()
        steps.end()

        steps.begin("loading the model")
        model = encoder.SentenceEncoder.pretrained()
        tokenize = encoder.Tokenizer()
        sentences = paragraphs(arguments.text)
        # The query is encoded like any other sentence.
        batches = make_batches(tokenize, [arguments.query, *sentences], arguments.batch)
        texts = sorted([arguments.query, *sentences], key=len)
        steps.end()

        steps.begin("eager")
        reference = [model(*batch) for batch in steps.over(batches, "batches")]
        eager.batch_seconds = time_per_batch(model, batches, arguments.repeats)
        steps.end()

        steps.begin("torch.compile with Intarsia")
        stages = output / "stages"
        shutil.rmtree(stages, ignore_errors=True)
        options = {"fuse": fuse, "dump_dir": str(stages / "compile")}
        with intarsia.record_compilations() as compilations:
            results = through_compile(
                compiled, "intarsia", model, batches, arguments.repeats, options
            )
        compiled.backend_seconds = sum(c.seconds for c in compilations)
        compiled.calls = sum(c.program.call_count for c in compilations)
        compiled.kernels = sum(c.program.kernel_count for c in compilations)
        compiled.difference = difference(results, reference)
        steps.end()

        if not arguments.no_inductor:
            steps.begin("torch.compile with Inductor (about a minute)")
            results = through_compile(inductor, "inductor", model, batches, arguments.repeats, None)
            inductor.difference = difference(results, reference)
            steps.end()

        steps.begin("export and intarsia-compile")
        exported, packaged = output / "model.pt2", output / "model.compiled.pt2"
        dynamic = {0: torch.export.Dim("batch", max=1024), 1: torch.export.Dim("tokens", max=512)}
        program = torch.export.export(
            model, batches[0], dynamic_shapes={"ids": dynamic, "mask": dynamic}
        )
        torch.export.save(program, exported)
        artifact.compile_seconds = run_tool(
            *(tool("intarsia-compile"), exported, "-o", packaged, "--op-library", library),
            *("--dump-dir", stages / "export"),
            *([] if fuse else ["--no-fuse"]),
        )
        steps.end()

        steps.begin("intarsia-run, without Python")
        results = []
        for i, batch in enumerate(steps.over(batches, "batches")):
            folder = output / "batches" / str(i)
            folder.mkdir(parents=True, exist_ok=True)
            paths = [folder / f"input_{j}.npy" for j in range(len(batch))]
            for path, tensor in zip(paths, batch, strict=True):
                np.save(path, tensor.numpy())
            run_tool(
                *(tool("intarsia-run"), packaged, "--op-library", library),
                *(argument for path in paths for argument in ("--input", path)),
                *("--output-dir", folder),
            )
            results.append(torch.from_numpy(np.load(folder / "output_0.npy")))
        artifact.difference = difference(results, reference)
        loaded = intarsia.load(packaged)
        artifact.batch_seconds = time_per_batch(loaded, batches, arguments.repeats)
        artifact.calls, artifact.kernels = loaded.call_count, loaded.kernel_count
        steps.end()

    report(arguments, texts, results, batches)
    ways = [eager, compiled, artifact] + ([] if arguments.no_inductor else [inductor])
    console.print(table(ways))
    console.print("The IR of each stage:")
    for path in sorted(stages.rglob("*.mlir")):
        console.print(f"  {os.path.relpath(path)}", soft_wrap=True)
    failed = [w for w in (compiled, artifact) if not w.difference <= TOLERANCE]
    for way in failed:
        console.print(
            f"[red]{way.name} differs from eager by {way.difference:.1e}, "
            f"more than {TOLERANCE:.0e}[/red]"
        )
    if not failed:
        console.print(f"Both ways agree with eager within {TOLERANCE:.0e}.")
    return 1 if failed else 0


def report(arguments, texts: list[str], results: list[torch.Tensor], batches: list[Batch]) -> None:
    vectors = torch.cat(results)
    query = texts.index(arguments.query)
    scores = vectors @ vectors[query]
    scores[query] = -1
    shapes = ", ".join(f"{b[0].shape[0]}x{b[0].shape[1]}" for b in batches)
    console.print(
        f"{len(texts)} sentences in {len(batches)} batches (sentences x tokens): {shapes}"
    )
    console.print(f"Nearest to [bold]{arguments.query}[/bold]")
    for score, index in zip(
        *(t.tolist() for t in scores.topk(min(3, len(texts) - 1))), strict=True
    ):
        console.print(f"  {score:.3f}  {texts[index]}", markup=False)


def table(ways: list[Way]) -> Table:
    def number(value: float | None, form: str) -> str:
        return "" if value is None else form.format(value)

    result = Table()
    for heading in (
        *("", "compile s", "of it backend s", "ms a batch", "difference", "calls", "kernels"),
    ):
        result.add_column(heading, justify="left" if heading == "" else "right", no_wrap=True)
    for way in ways:
        result.add_row(
            way.name,
            number(way.compile_seconds, "{:.2f}"),
            number(way.backend_seconds, "{:.3f}"),
            number(way.batch_seconds and way.batch_seconds * 1e3, "{:.2f}"),
            number(way.difference, "{:.1e}"),
            number(way.calls, "{}"),
            number(way.kernels, "{}"),
        )
    return result


if __name__ == "__main__":
    sys.exit(main())
