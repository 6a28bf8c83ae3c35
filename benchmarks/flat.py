"""Flat cost: what a turn writes, and what a boot reads, at turn 10 and at turn 10,000.

The turn is the 6.1 kB one (a question, a tool call, a result of 4,000 bytes, an answer of 1,000; `texts`).
All counts are exact: the store is in memory, the clock virtual.

A worker answers every turn; what it and the sender wrote, up to each length and in all, is divided by the
number of turns: blocks, merges and snapshots included. Then the session is booted cold: whole, and with a
window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import snapshotter
from benchmarks.common import Table
from benchmarks.metered import SID, Bill, MeteredBucket, copied
from benchmarks.samples import Chunk, peers_turn, question
from benchmarks.texts import QUESTION, TURN
from benchmarks.virtual import VirtualClock
from streams.buckets.memory import Space

LENGTHS = (10, 100, 500, 10_000)
WINDOW = 64
PAUSE = 150  # seconds between two turns: a sender looks at what came in the last two minutes


class Growth:
    """One session, answered turn by turn. `written`: bytes by what was written: in, out, blocks …; `sender`
    and `worker`: what each of the two has asked of the store. `chunks` makes the answer to a turn. `onward`:
    a growth that this one begins as a copy of, on the same clock. `asked`: bytes of each question."""

    def __init__(
        self,
        chunks: Callable[[int], Iterator[Chunk]] = peers_turn,
        onward: Growth | None = None,
        asked: int = QUESTION,
    ) -> None:
        self.clock: VirtualClock = VirtualClock() if onward is None else onward.clock
        self.space: Space = Space() if onward is None else copied(onward.space)
        self.written: Counter[str] = Counter()
        self.turns: int = 0 if onward is None else onward.turns
        self._chunks = chunks
        self._asked = asked
        self._sending, self._sender = self._opened()
        self._working, self._worker = self._opened()

    def _opened(self) -> tuple[MeteredBucket, snapshotter.Database]:
        bucket = MeteredBucket(self.space, self.clock, on_put=self._wrote)
        return bucket, snapshotter.Database(bucket, self.clock)

    def _wrote(self, key: str, data: bytes) -> None:
        self.written[key.partition("/")[0]] += len(data)

    @property
    def sender(self) -> Bill:
        return self._sending.bill

    @property
    def worker(self) -> Bill:
        return self._working.bill

    def _send(self) -> None:
        self._sender.send(SID, question(self.turns + 1, self._asked))

    def queued(self, turns: int) -> Bill:
        """What so many further turns ask of the store, each by a worker of its own, behind its boot: it got a
        receipt from a queue, answers, looks once more, and ends."""
        found = Bill()
        for _ in range(turns):
            receipt = self._sender.send(SID, question(self.turns + 1, self._asked))
            with self._worker.boot(SID, window=WINDOW, receipt=receipt) as session:
                booted = self.worker.copy()
                for turn in session.turns():
                    with turn:
                        for chunk in self._chunks(turn.number):
                            turn.write(chunk)
            found += self.worker - booted
            self.turns += 1
            self.clock.sleep(PAUSE)
        return found

    def grow(self, length: int) -> None:
        """Answer turns until there are so many. Each worker answers a hundred."""
        while self.turns < length:
            end = min(length, self.turns + 100)
            self._send()
            with self._worker.boot(SID, window=WINDOW) as session:
                for turn in session.turns():
                    with turn:
                        for chunk in self._chunks(turn.number):
                            turn.write(chunk)
                        turn.complete()
                        self.turns += 1
                        self.clock.sleep(PAUSE)
                        if self.turns < end:
                            self._send()
                assert not session.report


def run() -> list[Table]:
    kinds = ("out", "in", "blocks", "sessions")
    writing = Table(
        "What a turn writes, on average up to this length",
        ("turns", *(f"{kind} kB" for kind in kinds), "kB", "times its own", "PUT", "GET", "LIST"),
        note=f"Its own: {TURN} bytes. All that sender and worker wrote, merges and snapshots included.",
    )
    booting = Table(
        "What a cold boot reads",
        ("turns", "window", "messages", "round trips", "objects", "kB read", "snapshot kB", "blocks"),
        note="Nothing is owed. The receipt is not given, so the in log is listed.",
    )
    growth = Growth()
    for length in LENGTHS:
        growth.grow(length)
        kbs = [growth.written[kind] / length / 1e3 for kind in kinds]
        total, bill = sum(growth.written.values()), growth.sender + growth.worker
        requests = (bill.put / length, bill.get / length, bill.list / length)
        writing.rows.append((length, *kbs, total / length / 1e3, total / length / TURN, *requests))
        for window in (None, WINDOW):
            booting.rows.append((length, window or "whole", *_booted(growth.space, window)))
    return [writing, booting]


def _booted(space: Space, window: int | None) -> tuple[Any, ...]:
    clock = VirtualClock(VirtualClock().now_ms() + 3_600_000)
    db = snapshotter.Database(MeteredBucket(copied(space), clock), clock)
    with db.boot(SID, window=window) as session:
        cost = session.booted
        snapshot = space.objects[f"sessions/{SID}/snapshot.json"].data
        spans = session.fold.chain.spans
        row = (len(session.messages), cost.round_trips, cost.gets, cost.bytes_read / 1e3)
        return (*row, len(snapshot) / 1e3, len(spans))
