"""Records as they become durable, for readers that show a session live.

A follower looks, and says how long to wait until the next look; it never sleeps by itself. So the plain door
sleeps in its own thread, and the async one awaits: a viewer of an idle session holds no thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from streams import log
from streams.errors import Gap, InvalidValue, Missing
from streams.keys import Log
from streams.log import Vanished
from streams.packing import unpack_after
from streams.records import Cursor, Record, Segment
from streams.store import Store

from . import values
from .core.inputs import GONE
from .tombstones import deletes

T = TypeVar("T")

_RESTARTS = 3
_BATCH = 1000
_LIST_EVERY = 10  # every so many looks the log is listed: a merged segment may cover the next place


@dataclass(frozen=True, slots=True)
class Event:
    """One durable record: of which log, its id, and the record itself, unpacked."""

    log: Log
    id: int
    record: dict[str, Any]


class _Reader:
    """One log from any id on, also from the middle of a segment."""

    def __init__(self, store: Store, sid: str, which: Log, after: int) -> None:
        self._store = store
        self._sid = sid
        self.which: Log = which
        self._after = after
        self._cursor: Cursor | None = None
        self._before: Cursor | None = None  # where the last look began
        self._looks = 0
        self._unpacked: Iterator[Record] = iter(())

    def fresh(self) -> list[Record]:
        """What is new since the last call, a thousand records at most: a packed run of a few bytes may stand
        for many. Raises Gap, Corrupt, and Missing or Vanished when it comes three times: what a record names
        may have gone with it, and is looked for again from the last record that was handed out."""
        for attempt in range(1, _RESTARTS + 1):
            try:
                found = list(islice(self._unpacked, _BATCH)) or self._look()
                break
            except (Vanished, Missing):
                if attempt == _RESTARTS:
                    raise
                self._cursor, self._unpacked, self._looks = self._before, iter(()), 0
        if found:
            self._after = found[-1]["id"]
        return found

    def _look(self) -> list[Record]:
        self._before = self._cursor
        segments = self._segments()
        self._looks = 1 if segments else self._looks + 1
        records = [record for segment in segments for record in segment.records]
        # Only runs, which hold no references, may begin at or below `after` and go on above it.
        stored = self._filled([r for r in records if r["id"] > self._after or "cuts" in r])
        self._unpacked = (r for record in stored for r in unpack_after(record, self._after))
        return list(islice(self._unpacked, _BATCH))

    def _filled(self, records: list[Record]) -> Iterator[Record]:
        """With what is stored apart in its place, the values of some records at a time. Raises Missing,
        Corrupt."""
        for start in range(0, len(records), _BATCH):
            batch = values.fill(self._store, self._sid, records[start : start + _BATCH])
            yield from map(values.without_refs, batch)

    def _segments(self) -> list[Segment]:
        head: list[Segment] = []
        if self._cursor is None:
            head = self._enter()
            self._cursor = Cursor(head[0].header.last, head[0].header.nonce) if head else Cursor()
        by_name = self._looks % _LIST_EVERY > 0
        try:
            found, self._cursor = log.look(self._store, self.which, self._sid, self._cursor, by_name=by_name)
        except Gap:
            begin = None if self._after or self._cursor.id else self._deletion()
            if begin is None:
                raise
            found, self._cursor = log.look(self._store, self.which, self._sid, begin, by_name=False)
        return [*head, *found]

    def _deletion(self) -> Cursor | None:
        """Where a log begins that begins with what a deletion wrote: it is whole from there."""
        places = [p for p in log.tail_keys(self._store, self.which, self._sid, 0).entries if not p.vacant]
        oldest = log.fetch(self._store, [place.key for place in places[-1:]])
        gone = any(record.get("kind") == GONE or deletes(s) for s in oldest for record in s.records)
        return Cursor(oldest[0].header.first - 1) if gone else None

    def _enter(self) -> list[Segment]:
        """The segment that holds the id `after`."""
        return log.holding(self._store, self.which, self._sid, self._after) if self._after else []


class Follower(Iterator[T]):
    """What is new in some logs, look by look. Iterating sleeps between two looks; whoever may not sleep calls
    `step` and waits in a way of their own. Belongs to one caller at a time."""

    def __init__(
        self,
        store: Store,
        readers: list[_Reader],
        timeout: float | None,
        poll: float,
        pick: Callable[[Event], T],
    ) -> None:
        self._store = store
        self._readers = readers
        self._timeout = timeout
        self._poll = poll
        self._pick = pick
        self._ready: deque[T] = deque()
        self._pause: float | None = 0.0
        self._news = True
        self._news_at = 0.0

    def step(self) -> tuple[list[T], float | None]:
        """Look once, without sleeping: what is new, and the seconds until the next look; None where the
        silence has lasted for `timeout`. Raises what `_Reader.fresh` and requests raise."""
        clock = self._store.clock
        if self._news:  # the silence begins when the caller is through with what there was
            self._news_at = clock.monotonic()
        found = [
            self._pick(Event(reader.which, record["id"], record))
            for reader in self._readers
            for record in reader.fresh()
        ]
        self._news = bool(found)
        if found:
            return found, 0.0
        left = self._poll if self._timeout is None else self._news_at + self._timeout - clock.monotonic()
        return [], min(self._poll, left) if left > 0 else None

    def __next__(self) -> T:
        while not self._ready:
            if self._pause is None:
                raise StopIteration
            if self._pause:
                self._store.clock.sleep(self._pause)
            found, self._pause = self.step()
            self._ready.extend(found)
        return self._ready.popleft()


def records(
    store: Store, sid: str, which: Log, after: int, timeout: float | None, poll: float
) -> Follower[Record]:
    """The records of one log above `after`; ends after `timeout` seconds without a new one (None: never)."""
    return Follower(store, [_Reader(store, sid, which, after)], timeout, poll, lambda event: event.record)


def follow(
    store: Store, sid: str, after: int | Mapping[str, int], timeout: float | None, poll: float
) -> Follower[Event]:
    """Both logs, each in its order; what is there already comes first. Raises InvalidValue."""
    start = {"out": after} if not isinstance(after, Mapping) else dict(after)
    if set(start) - {"in", "out"} or any(type(n) is not int or n < 0 for n in start.values()):
        raise InvalidValue('after is an out id, or {"out": n, "in": m}', path="after")
    readers = [_Reader(store, sid, "in", start.get("in", 0)), _Reader(store, sid, "out", start.get("out", 0))]
    return Follower(store, readers, timeout, poll, lambda event: event)
