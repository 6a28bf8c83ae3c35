"""One session of very many turns: what a turn writes, and what a boot reads and takes, as it grows.

The turn is a small one, 300 bytes asked and 700 answered. The session grows through the engine, in memory
and on virtual time (`flat.Growth`), so every count is exact; how it was at each length is put into a file.
What reads it does so in a process of its own each time, which holds that file as its store: the memory that
counts is what a boot takes on top of that. Times are the processor's: this store answers at once.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import snapshotter
from benchmarks.common import median
from benchmarks.flat import Growth
from benchmarks.load.gauge import Held
from benchmarks.metered import SID, MeteredBucket
from benchmarks.samples import Chunk
from benchmarks.texts import digits
from benchmarks.virtual import VirtualClock
from snapshotter import maintenance
from streams.buckets.memory import Space

ASKED, ANSWERED = 300, 700
PAGE = 50
WINDOW = 64
_TIMES = 3
_DAY_MS = 86_400_000


def _answer(number: int) -> Iterator[Chunk]:
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield {"type": "text-start", "id": "t"}
    yield {"type": "text-delta", "id": "t", "delta": digits(f"text {number}", ANSWERED)}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def grow(lengths: Sequence[int], folder: str) -> list[dict[str, Any]]:
    """Grow the session; at each of these numbers of turns it is put into a file of the folder. What all
    turns up to there wrote and asked, and the processor's seconds that they took."""
    growth = Growth(_answer, asked=ASKED)
    found = []
    began = time.process_time()
    taken = 0.0
    for length in sorted(lengths):
        growth.grow(length)
        taken += time.process_time() - began
        bill = growth.sender + growth.worker
        found.append(
            {
                "turns": length,
                "written": dict(growth.written),
                "bill": {**vars(bill), "requests": bill.requests},
                "cpu": taken,
                "objects": len(growth.space.objects),
            }
        )
        stored = (growth.space.objects, growth.space.order, growth.clock.now_ms())
        _file(folder, length).write_bytes(pickle.dumps(stored, protocol=5))
        began = time.process_time()
    return found


def _file(folder: str, length: int) -> Path:
    return Path(folder) / f"{length}.pickle"


class _Stored:
    """The session as it was at this length, a day later."""

    def __init__(self, folder: str, length: int) -> None:
        objects, order, now_ms = pickle.loads(_file(folder, length).read_bytes())
        self.space = Space(objects=objects, order=order)
        self.clock = VirtualClock(now_ms + _DAY_MS)
        self.turns = length

    def opened(self) -> tuple[MeteredBucket, snapshotter.Database]:
        bucket = MeteredBucket(self.space, self.clock)
        return bucket, snapshotter.Database(bucket, self.clock)

    def measured(self, call: Callable[[snapshotter.Database], int]) -> dict[str, Any]:
        """What a call costs. Its memory is that of the first time; `seconds`, of the processor, is a median.
        `found`: what it returns."""
        bucket, db = self.opened()
        with Held() as held:
            found = call(db)
        bill, seconds = bucket.bill.copy(), []
        for _ in range(_TIMES):
            began = time.process_time()
            call(db)
            seconds.append(time.process_time() - began)
        costs = {**vars(bill), "requests": bill.requests}
        return {"bill": costs, "memory": held.bytes, "seconds": median(seconds), "found": found}


def booted(folder: str, length: int, window: int | None) -> dict[str, Any]:
    """A cold boot; `found`: messages. `trips`: its round trips."""
    stored = _Stored(folder, length)
    trips = []

    def boot(db: snapshotter.Database) -> int:
        with db.boot(SID, window=window) as session:
            trips.append(session.booted.round_trips)
            return len(session.messages)

    return {**stored.measured(boot), "trips": trips[0]}


def paged(folder: str, length: int, before: int) -> dict[str, Any]:
    """A page of the history that ends before the question of this number; `found`: messages."""

    def page(db: snapshotter.Database) -> int:
        return len(db.history(SID, limit=PAGE, before=f"u{before}"))

    return _Stored(folder, length).measured(page)


def kept(folder: str, length: int, turns: int) -> dict[str, Any]:
    """A maintenance of all that is due; the logs keep so many turns. Objects by kind before and after it,
    what it asked of the store, and the boot behind it."""
    stored = _Stored(folder, length)
    bucket, db = stored.opened()
    before = Counter(key.partition("/")[0] for key in stored.space.objects)
    began = time.process_time()
    with Held() as held:
        (done,) = maintenance.maintain(db, [SID], keep=maintenance.Keep(turns=turns))
    seconds = time.process_time() - began
    assert done.error is None, done.error
    bill, after = bucket.bill.copy(), Counter(key.partition("/")[0] for key in stored.space.objects)
    with db.boot(SID) as session:
        messages = len(session.messages)
    return {
        "keeps": turns,
        "before": before,
        "after": after,
        "steps": [step.to_json() for step in done.done],
        "bill": {**vars(bill), "requests": bill.requests},
        "seconds": seconds,
        "memory": held.bytes,
        "messages": messages,
    }
