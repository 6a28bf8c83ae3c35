"""What this process holds: memory, threads, open files, connections, objects. Read from `/proc`, so Linux
alone.

A thread's or a connection's end takes a moment after the call that asks for it has returned; so what is left
behind is read until nothing shrinks any more (`settled`). The most that was held is told by the kernel for
memory, exactly, and by looking ten times a second for the rest (`Peaks`).
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, environment

_PROC = Path("/proc/self")
_LISTENS = "0A"
_LOOK = 0.1
_SETTLES = 5.0
_SAME = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """`memory` and `objects`: resident bytes, and what the garbage collector tracks; 0 where not looked
    at."""

    memory: int
    threads: int
    files: int
    connections: int
    objects: int = 0

    def plain(self) -> dict[str, int]:
        return asdict(self)


def _status(name: str) -> int:
    return int((_PROC / "status").read_text().partition(f"{name}:")[2].split(None, 1)[0])


def memory() -> int:
    """Bytes that are resident now."""
    return _status("VmRSS") * 1024


def peak() -> int:
    """The most bytes that were resident since `reset_peak`."""
    return _status("VmHWM") * 1024


def reset_peak() -> None:
    (_PROC / "clear_refs").write_text("5")


def _descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir(_PROC / "fd"):  # noqa: PTH208 - `iterdir` makes paths of what is gone by then
        try:
            found[name] = os.readlink(_PROC / "fd" / name)  # noqa: PTH115 - no path: `socket:[1234]`
        except FileNotFoundError:
            continue  # the one that the listing itself had open
    return found


def _connections(links: Sequence[str]) -> int:
    """How many of these descriptors are TCP connections, in whatever state."""
    own = {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in (_PROC / "net" / name).read_text().splitlines()[1:]
    ]
    return sum(row[3] != _LISTENS and row[9] in own for row in rows)


def now(*, objects: bool = False) -> Reading:
    """What is held at this moment; with `objects` after a garbage collection."""
    tracked = 0
    if objects:
        while gc.collect():  # what a finalizer lets go of is garbage the next time
            pass
        tracked = len(gc.get_objects())
    links = _descriptors()
    return Reading(memory(), _status("Threads"), len(links), _connections(list(links.values())), tracked)


def settled(before: Reading) -> Reading:
    """What is held once nothing ends any more: as soon as it is no more than `before`, or after it has stayed
    the same for half a second, or after five."""
    end, same, last = time.monotonic() + _SETTLES, 0, (0, 0)
    while True:
        found = now(objects=True)
        held = (found.threads, found.files)
        same = same + 1 if held == last else 0
        last = held
        is_left = found.threads > before.threads or found.files > before.files
        if not is_left or same >= _SAME or time.monotonic() > end:
            return found
        time.sleep(_LOOK)


class Peaks:
    """The most of each that was held inside its block, in `most`; `objects` are not looked at."""

    def __init__(self) -> None:
        self.most = Reading(0, 0, 0, 0)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="peaks", daemon=True)

    def _look_on(self) -> None:
        while True:
            found = now()
            values = {name: max(value, getattr(found, name)) for name, value in self.most.plain().items()}
            self.most = Reading(**values)
            if self._end.wait(_LOOK):
                return

    def __enter__(self) -> Peaks:
        reset_peak()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()
        # Without the thread that looked.
        self.most = Reading(peak(), self.most.threads - 1, self.most.files, self.most.connections)


class Held:
    """The memory that a block takes on top of what was held at its start, at most: `bytes`."""

    bytes = 0

    def __enter__(self) -> Held:
        gc.collect()
        self._before = memory()
        reset_peak()
        return self

    def __exit__(self, *exc: object) -> None:
        self.bytes = max(0, peak() - self._before)


def isolated(part: str, call: str, **given: Any) -> Any:
    """What `benchmarks.load.<part>.<call>(**given)` returns in a fresh process. Given and returned is
    JSON."""
    code = (
        "import json, logging, sys; from importlib import import_module; "
        "logging.getLogger('snapshotter').setLevel(logging.ERROR); "  # the dead say that they cannot write
        "found = getattr(import_module('benchmarks.load.' + sys.argv[1]), sys.argv[2]); "
        "print(json.dumps(found(**json.loads(sys.argv[3]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, part, call, json.dumps(given)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
    )
    return json.loads(done.stdout.splitlines()[-1])


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
