"""Start: what `import snapshotter` costs, and a cold process until its first session is booted."""

from __future__ import annotations

import tempfile
from pathlib import Path

import snapshotter
from benchmarks.common import Table, fresh, median, rounds
from benchmarks.metered import grow

TIMES = 11

_IMPORT = """
import json, sys, time
before = set(sys.modules)
began = time.perf_counter()
import snapshotter
took = time.perf_counter() - began
drivers = {"boto3", "botocore", "minio", "urllib3", "requests", "httpx", "pydantic", "click", "tenacity"}
new = set(sys.modules) - before
print(json.dumps([took * 1e3, len(new), sorted(drivers & {name.split(".")[0] for name in new})]))
"""

_BOOT = """
import json, sys, time
began = time.perf_counter()
import snapshotter
imported = time.perf_counter()
with snapshotter.open(sys.argv[1]) as db, db.boot("s") as session:
    booted = time.perf_counter()
    count = len(session.messages)
print(json.dumps([(imported - began) * 1e3, (booted - imported) * 1e3, count]))
"""


def run() -> list[Table]:
    return [_imports(), _boots()]


def _imports() -> Table:
    fresh(_IMPORT)  # writes the bytecode
    runs = [fresh(_IMPORT) for _ in range(TIMES)]
    table = Table(
        "import snapshotter, fresh process", ("median ms", "fastest ms", "modules", "drivers loaded")
    )
    times = [took for took, _, _ in runs]
    table.rows.append((median(times), min(times), runs[0][1], ", ".join(runs[0][2]) or "none"))
    return table


def _boots() -> Table:
    table = Table(
        "A cold process boots a session of 100 turns (0.6 MB) from a folder",
        ("import ms", "open and boot ms", "whole process ms", "`python -c pass` ms"),
    )
    with tempfile.TemporaryDirectory() as folder:
        url = f"file://{Path(folder).resolve()}"
        with snapshotter.open(url) as db:
            grow(db, 1, 100)
        inner: list[list[float]] = []
        taken = rounds(
            {"boot": lambda: inner.append(fresh(_BOOT, url)), "pass": lambda: fresh("print(0)")}, TIMES
        )
    table.rows.append(
        (
            median([row[0] for row in inner]),
            median([row[1] for row in inner]),
            median(taken["boot"]) * 1e3,
            median(taken["pass"]) * 1e3,
        )
    )
    return table
