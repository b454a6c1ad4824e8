"""Every kernel of a folder of dumps as PTX, through ptxas.

``INTARSIA_DEBUG=FOLDER`` makes any program, or test, leave its graphs there, one folder
each (a folder a process: graphs are numbered). The fused kernels, whatever their device,
become PTX for each architecture; ptxas assembles it, and what it says of registers, shared
memory and spills is counted. Equal kernels count once.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")

#: Bytes of spilled registers that a thread may have, stores and loads together: some words
#: beside the slow path of a division, or beside the positions of symbolic sizes where a
#: block of 512 threads leaves each 128 registers.
MOST_SPILLED = 256

PIPELINE = (
    "builtin.module(cuda-schedule,cuda-emit-kernels{emulated=true},"
    "gpu.module(cpu-expand-math,cpu-check-math,cuda-pack-arithmetic,"
    "cpu-expand-conversions{bf16=true},cuda-to-nvvm))"
)


@dataclasses.dataclass
class Kernel:
    name: str
    arch: str
    registers: int = 0
    shared: int = 0
    spilled: int = 0
    threads: int = 0


def graphs(folder: Path) -> list[Path]:
    """The fused graphs with kernels, without repetition."""
    seen: dict[str, Path] = {}
    for path in sorted(folder.rglob("fused.mlir")):
        text = path.read_text()
        if "intarsia.kernel" in text:
            seen.setdefault(hashlib.sha256(text.encode()).hexdigest(), path)
    return list(seen.values())


@dataclasses.dataclass
class Source:
    """A kernel in the LLVM dialect, with the memory that its blocks share."""

    name: str
    text: str  # where its name is SYMBOL
    path: Path

    def named(self, name: str) -> str:
        return self.text.replace("SYMBOL", name)


def kernels_of(path: Path) -> tuple[list[Source], list[str]]:
    """The kernels of one graph, and what went wrong."""
    done = run("intarsia-opt", f"--pass-pipeline={PIPELINE}", str(path))
    if done.returncode:
        return [], [f"{path}: {done.stderr.strip()[:300]}"]
    _, _, code = done.stdout.partition("\n  gpu.module @kernels {\n")
    code = code.split("\n  }\n")[0]
    shared = {}
    for line in re.findall(r"^    llvm\.mlir\.global.*$", code, re.MULTILINE):
        shared[re.search(r"@(\w+)", line)[1]] = line  # type: ignore[index]
    sources = []
    for found in re.finditer(
        r"^    llvm\.func @(\w+)\(.*?\n    }$", code, re.DOTALL | re.MULTILINE
    ):
        name, text = found[1], found[0].replace(f"@{found[1]}(", "@SYMBOL(", 1)
        for number, other in enumerate(dict.fromkeys(re.findall(r"@(\w+)", text))):
            if other in shared:
                text = f"{shared[other]}\n{text}"
                text = re.sub(rf"@{other}\b", f"@SYMBOL_shared_{number}", text)
        sources.append(Source(name, text, path))
    count = code.count(" nvvm.kernel,")
    problem = f"{path}: {len(sources)} of {count} kernels were found"
    return sources, [problem] if len(sources) != count else []


def read_report(text: str, arch: str) -> list[Kernel]:
    """What ``ptxas -v`` says of each entry."""
    kernels: list[Kernel] = []
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            kernels.append(Kernel(found[1], arch))
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            kernels[-1].spilled = int(found[1]) + int(found[2])
        elif found := re.search(r"Used (\d+) registers", line):
            kernels[-1].registers = int(found[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                kernels[-1].shared = int(shared[1])
    return kernels


def run(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=stdin, capture_output=True, text=True)


def assemble(sources: list[Source], arch: str) -> tuple[list[Kernel], list[str]]:
    """As one module. Where it fails, halves of it, until the kernel at fault is known."""
    code = "\n".join(source.named(f"k{n}") for n, source in enumerate(sources))
    module = f"module {{\n  gpu.module @kernels {{\n{code}\n  }}\n}}\n"
    ptx = run("intarsia-translate", "--kernels-to-ptx", f"--arch={arch}", stdin=module)
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "k.ptx").write_text(ptx.stdout)
        done = run("ptxas", "-v", "-Werror", f"-arch={arch}", str(file), "-o", f"{folder}/k")
    if ptx.returncode or done.returncode:
        if len(sources) > 1:
            half = len(sources) // 2
            parts = [assemble(part, arch) for part in (sources[:half], sources[half:])]
            return [k for found, _ in parts for k in found], [p for _, some in parts for p in some]
        where = f"{sources[0].path}: {sources[0].name}: {arch}"
        return [], [f"{where}: {(ptx.stderr + done.stderr).strip()[:300]}"]
    blocks = dict(
        re.findall(r"\.entry (\w+)\(.*?\.maxntid (\d+), 1, 1", ptx.stdout, flags=re.DOTALL)
    )
    problems = []
    kernels = read_report(done.stderr, arch)
    for kernel in kernels:
        source = sources[int(kernel.name[1:])]
        where = f"{source.path}: {source.name}: {arch}"
        kernel.threads = int(blocks.get(kernel.name, 0))
        if not kernel.threads:
            problems.append(f"{where}: no launch bounds")
        if kernel.spilled > MOST_SPILLED:
            problems.append(
                f"{where}: spills {kernel.spilled} bytes "
                f"({kernel.registers} registers, {kernel.threads} threads)"
            )
    if len(kernels) != len(sources):
        problems.append(f"{arch}: {len(kernels)} of {len(sources)} kernels were assembled")
    return kernels, problems


def batches(sources: Iterable[Source], size: int = 64) -> list[list[Source]]:
    unique = list({source.text: source for source in reversed(list(sources))}.values())
    return [unique[start : start + size] for start in range(0, len(unique), size)]


def sweep(folder: Path, architectures: tuple[str, ...], jobs: int) -> int:
    """Prints a table; returns how much went wrong."""
    found = graphs(folder)
    if not found:
        raise SystemExit(f"there is no fused.mlir with a kernel below {folder}")
    with ThreadPoolExecutor(jobs) as pool:
        made = list(pool.map(kernels_of, found))
        parts = batches(source for sources, _ in made for source in sources)
        work = [(part, arch) for part in parts for arch in architectures]
        results = list(pool.map(lambda item: assemble(*item), work))
    kernels = [kernel for some, _ in results for kernel in some]
    problems = [problem for _, some in (*made, *results) for problem in some]
    total = sum(len(sources) for sources, _ in made)
    print(f"{len(found)} graphs, {total} kernels, {sum(map(len, parts))} without repetition")
    for arch in architectures:
        own = [kernel for kernel in kernels if kernel.arch == arch]
        if not own:
            continue
        registers = sorted(kernel.registers for kernel in own)
        threads = collections.Counter(kernel.threads for kernel in own)
        print(
            f"{arch}: {len(own)} kernels, registers median {registers[len(own) // 2]} "
            f"most {registers[-1]}, shared memory most {max(k.shared for k in own)} bytes, "
            f"{sum(k.spilled > 0 for k in own)} spill, most {max(k.spilled for k in own)} bytes, "
            f"threads {dict(sorted(threads.items()))}"
        )
    for problem in problems:
        print(problem)
    return len(problems)
