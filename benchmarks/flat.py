"""Flat cost: what a turn writes, and what a boot reads, at turn 10 and at turn 10,000.

The turn is the 6.1 kB one (a question, a tool call, a result of 4,000 bytes, an answer of 1,000), with hex
digits for content, which compress to 57 % and no further. All counts are exact: the store is in memory, the
clock virtual, the digits come from a fixed seed.

A worker answers every turn; what it and the sender wrote, up to each length and in all, is divided by the
number of turns: blocks, merges and snapshots included. Then the session is booted cold: whole, and with a
window.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import snapshotter
from benchmarks.common import Table
from benchmarks.metered import SID, MeteredBucket, copied
from benchmarks.samples import peers_turn, question
from benchmarks.virtual import VirtualClock
from streams.buckets.memory import Space

LENGTHS = (10, 100, 500, 10_000)
WINDOW = 64
TURN = 6_100  # bytes
PAUSE = 150  # seconds between two turns: a sender looks at what came in the last two minutes


def _hex(seed: str, length: int) -> str:
    """Hex digits that follow from the seed and do not compress beyond their entropy."""
    found = ""
    while len(found) < length:
        found += hashlib.sha512(f"{seed}/{len(found)}".encode()).hexdigest()
    return found[:length]


def _turn(number: int) -> Iterator[dict[str, Any]]:
    """`peers_turn` with hex digits for its result and its text."""
    for chunk in peers_turn(number):
        if chunk["type"] == "tool-output-available":
            yield {**chunk, "output": {"text": _hex(f"result {number}", 4000)}}
        elif chunk["type"] == "text-delta":
            yield {**chunk, "delta": _hex(f"text {number}", 1000)}
        else:
            yield chunk


def _question(number: int) -> dict[str, Any]:
    return {**question(number), "parts": [{"type": "text", "text": _hex(f"question {number}", 1000)}]}


class Growth:
    """One session, answered turn by turn. `written` and `puts` by what was written: in, out, blocks …"""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.space = Space()
        self.bucket = MeteredBucket(self.space, self.clock, on_put=self._wrote)
        self.db = snapshotter.Database(self.bucket, self.clock)
        self.written: Counter[str] = Counter()
        self.puts: Counter[str] = Counter()
        self.turns = 0

    def _wrote(self, key: str, data: bytes) -> None:
        kind = key.split("/")[0]
        self.written[kind] += len(data)
        self.puts[kind] += 1

    def grow(self, length: int) -> None:
        """Answer turns until there are so many. Each worker answers a hundred."""
        while self.turns < length:
            end = min(length, self.turns + 100)
            self.db.send(SID, _question(self.turns + 1))
            with self.db.boot(SID, window=WINDOW) as session:
                for turn in session.turns():
                    with turn:
                        for chunk in _turn(turn.number):
                            turn.write(chunk)
                        turn.complete()
                        self.turns += 1
                        self.clock.sleep(PAUSE)
                        if self.turns < end:
                            self.db.send(SID, _question(self.turns + 1))
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
        total, bill = sum(growth.written.values()), growth.bucket.bill
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
