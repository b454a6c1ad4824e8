# ===- chart.py - Figures as bars ----------------------------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Shows figures: in tables, and how long each candidate takes for a case as bars,
Intarsia's time being 1."""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib import ticker
from matplotlib.figure import Figure
from rich.console import Console

#: For tables, which keep their columns where nobody looks on.
console = Console(width=None if sys.stdout.isatty() else 160)

THICKNESS = 0.18  # of a bar, in inches


def draw(rows: list[dict], threads: int, path: Path) -> None:
    """Writes the chart of the rows that hold seconds to `path`, in the format of its
    suffix."""
    rows = [row for row in rows if "intarsia" in row.get("seconds", {})]
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    bars = sum(len(row["seconds"]) + 1 for row in rows)
    figure = Figure(figsize=(9, 1.2 + THICKNESS * bars), layout="constrained")
    axes = figure.add_subplot()
    colours = {name: f"C{number}" for number, name in enumerate(names)}
    places, labelled, place = [], set(), 0
    for row in rows:
        first = place
        for name, seconds in row["seconds"].items():
            ratio = seconds / row["seconds"]["intarsia"]
            label = None if name in labelled else name
            labelled.add(name)
            axes.barh(place, ratio, color=colours[name], label=label)
            axes.text(ratio, place, f" {seconds * 1e3:.3g} ms", va="center", fontsize=7)
            place += 1
        places.append((first + place - 1) / 2)
        place += 1
    axes.set_yticks(places, [row["case"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.margins(x=0.15)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(f"time, of Intarsia's; {threads} thread(s); shorter is faster")
    axes.legend(fontsize=8)
    figure.savefig(path)
