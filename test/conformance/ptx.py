"""Every kernel of a folder of dumps as PTX, through ptxas.

``INTARSIA_DEBUG=FOLDER`` makes any program, or test, leave its graphs there, one folder
each. The fused kernels, whatever their device, become PTX for each architecture; ptxas
assembles it, and what it says of registers, shared memory and spills is counted. Equal
graphs count once.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")

#: Bytes of spilled registers that a kernel may have.
MOST_SPILLED = 0

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


def assemble(path: Path, architectures: tuple[str, ...]) -> tuple[list[Kernel], list[str]]:
    """The kernels of one graph, and what went wrong."""

    def run(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=stdin, capture_output=True, text=True)

    module = run("intarsia-opt", f"--pass-pipeline={PIPELINE}", str(path))
    if module.returncode:
        return [], [f"{path}: {module.stderr.strip()[:300]}"]
    if "gpu.module" not in module.stdout:
        return [], []
    kernels: list[Kernel] = []
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for arch in architectures:
            ptx = run(
                "intarsia-translate", "--kernels-to-ptx", f"--arch={arch}", stdin=module.stdout
            )
            (source := Path(folder) / "k.ptx").write_text(ptx.stdout)
            done = run("ptxas", "-v", "-Werror", f"-arch={arch}", str(source), "-o", f"{folder}/k")
            if ptx.returncode or done.returncode:
                problems.append(f"{path}: {arch}: {(ptx.stderr + done.stderr).strip()[:300]}")
                continue
            if ".extern .func" in ptx.stdout:
                problems.append(f"{path}: {arch}: a kernel calls a function")
            blocks = dict(
                re.findall(r"\.entry (\w+)\(.*?\.maxntid (\d+), 1, 1", ptx.stdout, flags=re.DOTALL)
            )
            found = read_report(done.stderr, arch)
            for kernel in found:
                kernel.threads = int(blocks.get(kernel.name, 0))
                if not kernel.threads:
                    problems.append(f"{path}: {arch}: {kernel.name} has no launch bounds")
                if kernel.spilled > MOST_SPILLED:
                    problems.append(
                        f"{path}: {arch}: {kernel.name} spills {kernel.spilled} bytes "
                        f"({kernel.registers} registers, {kernel.threads} threads)"
                    )
            kernels += found
    return kernels, problems


def sweep(folder: Path, architectures: tuple[str, ...], jobs: int) -> int:
    """Prints a table; returns how much went wrong."""
    found = graphs(folder)
    if not found:
        raise SystemExit(f"there is no fused.mlir with a kernel below {folder}")
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda path: assemble(path, architectures), found))
    kernels = [kernel for some, _ in results for kernel in some]
    problems = [problem for _, some in results for problem in some]
    print(f"{len(found)} graphs")
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
