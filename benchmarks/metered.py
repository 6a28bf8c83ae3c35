"""A bucket that counts and takes its time, and sessions that have grown to some length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import snapshotter
from benchmarks.samples import peers_turn, question
from benchmarks.virtual import VirtualClock
from streams.buckets.base import Blob, Head, Page, Written
from streams.buckets.memory import MemoryBucket, Space
from streams.clock import Clock

SID = "s"


@dataclass
class Bill:
    """Requests and bytes. Prices are S3's list prices: $5 a million PUT and LIST, $0.40 GET and HEAD."""

    put: int = 0
    get: int = 0
    head: int = 0
    list: int = 0
    written: int = 0
    read: int = 0

    @property
    def requests(self) -> int:
        return self.put + self.get + self.head + self.list

    @property
    def dollars(self) -> float:
        """Of the requests alone."""
        return ((self.put + self.list) * 5.0 + (self.get + self.head) * 0.4) / 1e6

    def __add__(self, other: Bill) -> Bill:
        return Bill(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, earlier: Bill) -> Bill:
        return Bill(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))

    def copy(self) -> Bill:
        return self - Bill()


class MeteredBucket:
    """A bucket in memory. Each request takes `seconds` of `clock`, and is billed when it is answered.

    `on_put(key, data)` is told of every write that is durable.
    """

    trusted = True
    copies = False

    def __init__(
        self,
        space: Space,
        clock: Clock,
        seconds: float = 0.0,
        on_put: Callable[[str, bytes], None] = lambda _key, _data: None,
    ) -> None:
        self._bucket = MemoryBucket(clock, space=space)
        self._clock = clock
        self._seconds = seconds
        self._on_put = on_put
        self.url = self._bucket.url
        self.room = self._bucket.room
        self.bill = Bill()

    def _wait(self) -> None:
        if self._seconds:
            self._clock.sleep(self._seconds)

    def get(self, key: str) -> Blob | None:
        self._wait()
        blob = self._bucket.get(key)
        self.bill.get += 1
        self.bill.read += len(blob.data) if blob is not None else 0
        return blob

    def head(self, key: str) -> Head | None:
        self._wait()
        self.bill.head += 1
        return self._bucket.head(key)

    def put(self, key: str, data: bytes, **condition: Any) -> Written:
        self._wait()
        self.bill.put += 1
        self.bill.written += len(data)
        written = self._bucket.put(key, data, **condition)
        self._on_put(key, data)
        return written

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        self._wait()
        self.bill.list += 1
        return self._bucket.list(prefix, after=after, limit=limit)

    def delete(self, key: str) -> None:
        self._wait()
        self._bucket.delete(key)

    def close(self) -> None:
        """Nothing to let go of."""


def copied(space: Space) -> Space:
    """The same objects in a store of its own."""
    return Space(objects=dict(space.objects), order=list(space.order))


def grow(db: snapshotter.Database, first: int, last: int) -> None:
    """Send these questions, and answer them with `peers_turn`s."""
    for number in range(first, last + 1):
        db.send(SID, question(number, 1000))
    with db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                for chunk in peers_turn(turn.number):
                    turn.write(chunk)


def grown(sizes: Iterable[int]) -> dict[int, Space]:
    """One session of `peers_turn`s, as it was after each of these numbers of turns; an hour ago at least,
    by a new VirtualClock."""
    space, kept = Space(), {}
    clock = VirtualClock(VirtualClock().now_ms() - 3_600_000)
    db = snapshotter.Database(MemoryBucket(clock, space=space), clock)
    last = 0
    for size in sorted(sizes):
        grow(db, last + 1, size)
        last = size
        kept[size] = copied(space)
    return kept
