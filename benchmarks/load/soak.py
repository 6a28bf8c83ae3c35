"""Minutes of work in one process: what stays behind?

Round after round a few workers go through their sessions. A step is one message, answered, and then what
others do with a session: a page of the history, the log followed from its middle, a look at what the next
worker would get. Now and then a worker dies in the middle of its answer and another takes over; one is
fenced, goes on, and is told; one is left by an error; a follower is left in its middle; a whole database is
opened for one step, and closed, by its async door. A session gets a new name after so many turns, as it is
in a host that lives long.

Between two rounds nobody works. Then, after a garbage collection, this process is read: everything that is
more at the end than it was at the beginning was forgotten there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any

import snapshotter
from benchmarks.common import median
from benchmarks.load import gauge
from benchmarks.load.handle import Dead, Handle
from benchmarks.samples import Chunk, answer, question
from snapshotter import aio
from streams.buckets.url import open_bucket
from streams.errors import Fenced

TURNS = 12
"""Turns of a session before its place is taken by another one."""
_DELTAS = 60
_WARM = 2  # rounds at the beginning that do not count: caches fill, and the interpreter's memory


class _Broken(Exception):
    """What a worker's model raises."""


class Soak:
    """The sessions and who works on them. `did` counts what was done."""

    def __init__(self, url: str, sessions: int, workers: int) -> None:
        self.url = url
        self.bucket = open_bucket(url)
        self.recovery = snapshotter.ChatRecovery(max_backoff=0)
        self.db = snapshotter.Database(Handle(self.bucket), recovery=self.recovery)
        self.workers = workers
        self.turns = [0] * sessions
        self.did: Counter[str] = Counter()

    def name(self, place: int) -> str:
        return f"soak-{place}-{self.turns[place] // TURNS}"

    def run(self, seconds: float) -> None:
        """One round: every worker goes through its own sessions until the time is over."""
        end = time.monotonic() + seconds

        def work(first: int) -> None:
            while time.monotonic() < end:
                for place in range(first, len(self.turns), self.workers):
                    self.step(place)

        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(work, range(self.workers)))

    def step(self, place: int) -> None:
        """One message to the session at this place, and its answer, in one of several ways."""
        number, name = self.turns[place], self.name(place)
        receipt = self.db.send(name, question(number))
        kind, way = _WAYS[number % len(_WAYS)]
        way(self, name, number)
        outcome = self.db.outcome(name)
        assert outcome is not None, (name, kind)
        assert outcome.status == "completed", (name, kind)
        self.did["turns"] += 1
        self.did[kind] += 1
        self.turns[place] += 1
        self._read(name, receipt)

    def _read(self, name: str, receipt: snapshotter.Receipt) -> None:
        """What those do with a session who do not work on it."""
        assert self.db.history(name, limit=4)[-1]["role"] == "assistant"
        assert self.db.peek(name, receipt=receipt, window=8).busy is None
        end = self.db.peek(name).cursor["out"]
        assert sum(1 for _ in self.db.follow(name, after=max(0, end - 50), timeout=0.0)) >= 50
        left = self.db.follow(name, poll=0.0)  # a client that goes away
        assert next(left).id == 1

    # -- ways to answer ---------------------------------------------------------------------------

    def answered(self, name: str, number: int) -> None:
        with self.db.boot(name, window=64, takeover=True) as session:
            for turn in session.turns():
                with turn:
                    for _ in turn.tee(answer(number, _DELTAS)):
                        pass

    def killed(self, name: str, number: int) -> None:
        doomed = Handle(self.bucket)
        session = snapshotter.Database(doomed, recovery=self.recovery).boot(name)
        turn = next(session.turns())
        for chunk in islice(answer(number, _DELTAS), _DELTAS):
            turn.write(chunk)
        turn.flush()
        doomed.cut(name)
        with suppress(Dead):
            turn.write({"type": "data-progress", "data": number})
        session.close()  # of which the store hears nothing
        self.answered(name, number)

    def fenced(self, name: str, number: int) -> None:
        with self.db.boot(name) as session:
            turn = next(session.turns())
            for chunk in _begun(number):
                turn.write(chunk)
            turn.flush()
            self.answered(name, number)
            try:
                turn.write({"type": "data-progress", "data": number})
                turn.flush()
            except Fenced:
                return
        raise AssertionError(f"{name}: an older worker wrote on")

    def broken(self, name: str, number: int) -> None:
        def model() -> Iterator[Chunk]:
            yield from _begun(number)
            raise _Broken

        with suppress(_Broken), self.db.boot(name) as session:
            for turn in session.turns():
                with turn:
                    for _ in turn.tee(model()):
                        pass
        self.answered(name, number)

    def by_task(self, name: str, number: int) -> None:
        async def work() -> None:
            opened = aio.AsyncDatabase(snapshotter.open(self.url, recovery=self.recovery))
            async with opened as db, await db.boot(name) as session:
                async for turn in session.turns():
                    async with turn:
                        async for _ in turn.tee(answer(number, _DELTAS)):
                            pass

        asyncio.run(work())


def _begun(number: int) -> Iterator[Chunk]:
    """The first half of an answer."""
    return islice(answer(number, _DELTAS), _DELTAS // 2)


_WAYS: list[tuple[str, Callable[[Soak, str, int], None]]] = [
    ("answered", Soak.answered),
    ("killed", Soak.killed),
    ("fenced", Soak.fenced),
    ("broken off", Soak.broken),
    ("by a task", Soak.by_task),
]


def run(url: str, seconds: float, sessions: int, workers: int, every: float) -> dict[str, Any]:
    """Rounds of `every` seconds until the time is over; the medians of the first and of the last third of
    what was read between them."""
    soak = Soak(url, sessions, workers)
    readings: list[tuple[int, ...]] = []  # of numbers alone, which are not tracked: counting must not count
    quiet = gauge.now()
    rounds = max(6, int(seconds / every))
    with gauge.Peaks() as peaks:
        for _ in range(_WARM):
            soak.run(every)
        quiet = gauge.now()
        for _ in range(rounds):
            soak.run(every)
            readings.append(tuple(gauge.settled(quiet).plain().values()))
    soak.bucket.close()
    third = len(readings) // 3
    return {
        "did": dict(soak.did),
        "rounds": rounds,
        "first": _medians(readings[:third]),
        "last": _medians(readings[-third:]),
        "most": peaks.most.plain(),
    }


def _medians(readings: list[tuple[int, ...]]) -> dict[str, float]:
    names = gauge.now().plain()
    return {name: median(values) for name, values in zip(names, zip(*readings, strict=True), strict=True)}
