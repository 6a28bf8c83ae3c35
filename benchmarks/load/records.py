"""Logs of very many records, read without a snapshot: a boot, a verification, a rebuild of the log alone.

The session is written by the engine into a folder: turns of so many deltas each, one record a delta. The
model speaks at a steady pace on virtual time, so the segments are cut as in life. Then snapshot and blocks
are removed, and each reader does its work in a process of its own; its seconds are the processor's, and
memory is what it takes on top of what the process held before. One more session has a single turn, still
open, of very many deltas: its worker has died.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import snapshotter
from benchmarks.common import median
from benchmarks.load.gauge import Held
from benchmarks.load.handle import Handle
from benchmarks.metered import SID, Bill
from benchmarks.samples import Chunk, block, question
from benchmarks.virtual import VirtualClock
from snapshotter.rebuilding import Options, rebuild_some
from snapshotter.verify import verify
from streams.buckets.url import open_bucket

PACE = 50
"""Deltas a second."""
_TIMES = 3


def _answer(deltas: int) -> Iterator[Chunk]:
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield from block("text", "t", deltas)
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def made(url: str, turns: int, deltas: int) -> dict[str, Any]:
    """Write the session, and remove its snapshot: its records, their objects and bytes, and the seconds."""
    began, clock = time.perf_counter(), VirtualClock()
    db = snapshotter.Database(open_bucket(url, clock=clock), clock)
    for number in range(turns):
        db.send(SID, question(number))
    with db.boot(SID, window=0) as session:
        for turn in session.turns():
            with turn:
                _speak(clock, turn, deltas)
        records = session.cursor["out"]
    seconds = time.perf_counter() - began
    root = Path(urlsplit(url).path)
    for kind in ("sessions", "blocks"):
        shutil.rmtree(root / kind, ignore_errors=True)
    sizes = [path.stat().st_size for path in (root / "out").rglob("*.jsonl")]
    return {"records": records, "objects": len(sizes), "bytes": sum(sizes), "seconds": seconds}


def _speak(clock: VirtualClock, turn: snapshotter.Turn, deltas: int) -> None:
    for chunk in _answer(deltas):
        clock.sleep(1 / PACE)
        turn.write(chunk)


def opened(url: str, name: str, deltas: int) -> dict[str, Any]:
    """A session with one turn of so many deltas, which is open when its worker dies; the seconds to write
    it."""
    clock = VirtualClock()
    handle = Handle(open_bucket(url, clock=clock))
    db = snapshotter.Database(handle, clock)
    db.send(name, question(0))
    session = db.boot(name)
    turn = next(session.turns())
    began = time.process_time()
    _speak(clock, turn, deltas)
    turn.flush()
    seconds = time.process_time() - began
    handle.cut(name)
    session.close()
    return {"seconds": seconds, "puts": handle.bill.put}


def _measured(url: str, call: Callable[[snapshotter.Database], int], times: int) -> dict[str, Any]:
    bucket = open_bucket(url)
    handle = Handle(bucket)
    db = snapshotter.Database(handle)
    with Held() as held:
        began = time.process_time()
        found = call(db)
        seconds = [time.process_time() - began]
    bill = handle.bill.copy()
    for _ in range(times - 1):
        began = time.process_time()
        assert call(db) == found
        seconds.append(time.process_time() - began)
    return {**_costs(bill), "memory": held.bytes, "seconds": median(seconds), "found": found}


def _costs(bill: Bill) -> dict[str, Any]:
    return {"requests": bill.requests, "read": bill.read}


def booted(url: str, name: str = SID, window: int | None = None) -> dict[str, Any]:
    """A boot; `found`: how long the texts of the history are in all."""

    def boot(db: snapshotter.Database) -> int:
        with db.boot(name, window=window, takeover=True) as session:
            return sum(len(part.get("text", "")) for message in session.messages for part in message["parts"])

    return _measured(url, boot, _TIMES)


def verified(url: str) -> dict[str, Any]:
    """A verification; `found`: records of both logs."""

    def check(db: snapshotter.Database) -> int:
        verdict = verify(db, SID)
        assert verdict.ok, verdict.problems
        return verdict.records

    return _measured(url, check, 1)


def followed(url: str) -> dict[str, Any]:
    """The whole out log as a reader follows it; `found`: records."""
    return _measured(url, lambda db: sum(1 for _ in db.records(SID, "out")), 1)


def rebuilt(url: str) -> dict[str, Any]:
    """A rebuild of the session that writes its snapshot back; `found`: out records. Its requests are not
    those of a handle: it opens the store itself."""
    with Held() as held:
        began = time.process_time()
        (result,) = rebuild_some(url, Options(mode="write"), [SID])
        seconds = time.process_time() - began
    assert result.status == "written", result
    return {"memory": held.bytes, "seconds": seconds, "found": result.cursor, "requests": result.requests}
