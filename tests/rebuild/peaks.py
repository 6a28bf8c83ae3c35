"""What one process takes to read a session of so many turns: made, measured, and told as JSON.

The measures of what is held (windows, runs, blocks) are a fraction of what they are in life, so that a
session that outgrows them many times is made in a second.
"""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapshotter import maintenance, spilling, windows
from snapshotter.core.blocks import Sizes
from snapshotter.core.chunks import delta_of
from snapshotter.database import Database
from snapshotter.rebuilding import Options
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys, places
from streams.buckets.url import open_bucket
from streams.clock import SystemClock
from streams.codec import encode_segment, frame
from streams.packing import Packer

SID = "long"
TEXT = "all that is said " * 60  # 1 kB
KB = 1024
SIZES = Sizes(small=16 * KB, large=64 * KB)
_DAYS = 2 * 86_400


def make(root: Path, turns: int) -> None:
    """A session of so many turns, each a question and an answer, in one segment each."""
    for kind in ("in", "out"):
        (root / kind / SID).mkdir(parents=True)
    first = 1
    for number in range(1, turns + 1):
        asked = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": f"{number} {TEXT}"}]}
        record = {"id": number, "ts": number, "kind": "message", "message": asked}
        put(root, keys.segment("in", SID, number), encode_segment("in", [record], nonce=f"i{number}"))
        packer = Packer(first, delta_of)
        for body in bodies(number):
            packer.add(number, body)
        end, prev = packer.next - 1, f"n{number - 1}" if number > 1 else None
        data = frame("out", first, end, packer.lines(), nonce=f"n{number}", epoch=1, run="r", prev=prev)
        put(root, keys.segment("out", SID, first), data)
        first = packer.next


def bodies(number: int) -> list[dict[str, Any]]:
    start = {
        "control": "turn-start",
        "turn": number,
        "attempt": 1,
        "epoch": 1,
        "run": "r",
        "inputs": [number],
    }
    chunks = (
        {"type": "start", "messageId": f"a{number}"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": f"{number} {TEXT}"},
        {"type": "text-end", "id": "t"},
        {"type": "finish", "finishReason": "stop"},
    )
    end = {"control": "turn-complete", "turn": number, "status": "completed"}
    return [{**start, "inputs": [number]}, *({"chunk": chunk} for chunk in chunks), end]


def put(root: Path, key: str, data: bytes) -> None:
    """An object of two days ago."""
    path = root / key
    path.write_bytes(data)
    then = time.time() - _DAYS
    os.utime(path, (then, then))


def measured(call: Callable[[], Any]) -> int:
    """The most that a call takes, in bytes."""
    tracemalloc.start()
    try:
        assert call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main(folder: str, turns: str) -> str:
    """What each takes, as JSON."""
    spilling.LIMIT, spilling._RUN, windows.BYTES, places.SHORT = 256 * KB, 32 * KB, 256 * KB, 100
    root = Path(folder)
    make(root, int(turns))
    db = Database(open_bucket(root.as_uri()), SystemClock(1))

    def rebuilt(mode: Any, wanted: str) -> bool:
        options = Options(mode, sizes=SIZES, dest="memory://rows" if mode == "export" else "")
        return rebuild_in(db, options, [SID])[0].status == wanted

    def trimmed() -> bool:
        return maintenance.trim(db, SID, keep=maintenance.Keep(turns=3)).deleted > int(turns)

    verify(db, "nobody")  # what is imported, and made once, is not counted
    calls: dict[str, Callable[[], bool]] = {
        "write": lambda: rebuilt("write", "written"),
        "compare": lambda: rebuilt("compare", "same"),
        "verify": lambda: verify(db, SID).ok,
        "compact": lambda: maintenance.compact(db, SID).written == 1,
        "gc": lambda: maintenance.gc(db, SID).deleted == 0,
        "trim": trimmed,
        "from the checkpoint": lambda: rebuilt("compare", "same"),
        "verify what is left": lambda: verify(db, SID).ok,
    }
    return json.dumps({name: measured(call) for name, call in calls.items()})
