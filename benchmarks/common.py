"""What every benchmark uses: tables, and times that mean something on a shared machine.

A benchmark is a module with `run() -> list[Table]`. Its input is made up, but always the same. Times are
medians of several runs after a warm-up. Things that are compared are run in turn (a, b, a, b, …) and the
ratio is the median of the ratios within a round, so a machine that is slow for a while slows both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Table:
    """Rows under named columns. `note` says what a reader has to know to read them right."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    note: str = ""

    def markdown(self) -> str:
        cells = [list(self.columns), *([_cell(value) for value in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [_line(cells[0], widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
        lines += [_line(row, widths) for row in cells[1:]]
        return "\n".join([f"## {self.title}", "", *lines, *(["", self.note] if self.note else [])])

    def plain(self) -> dict[str, Any]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "note": self.note}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def rounds(
    calls: Mapping[str, Callable[[], object]],
    times: int = 9,
    timer: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each call in each round, after one round of warm-up."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(times + 1):
        for name, call in calls.items():
            began = timer()
            call()
            if number:
                taken[name].append(timer() - began)
    return taken


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ratio(taken: Mapping[str, Sequence[float]], over: str, under: str) -> float:
    """The median of `over` / `under` within each round."""
    return median([a / b for a, b in zip(taken[over], taken[under], strict=True)])


def environment() -> dict[str, str]:
    """That of a process that finds this project, and, from its second run on, bytecode: as if installed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    bytecode = Path(tempfile.gettempdir()) / f"benchmarks-bytecode-{os.getuid()}"
    return {**env, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(bytecode)}


def fresh(code: str, *arguments: str) -> Any:
    """What a fresh Python process prints for this code, as JSON. It has bytecode (`environment`)."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
    )
    return json.loads(done.stdout.splitlines()[-1])
