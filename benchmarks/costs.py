"""What an answer costs at the store, and how soon it is safe, for each durability preset.

A worker receives one message in the eleventh turn of a session, with its receipt: send, boot, answer,
snapshot, the last look at the in log. It runs on virtual time (`virtual.py`) against a store that takes
25 ms a request, so a tool of ten minutes takes no time and every number is exact. Looks for a stop and
heartbeats are in it.

A delta is safe when the segment that holds it is durable. What is *lost at worst* is the most deltas,
and the oldest one's age, that a kill could have taken at any time during the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

import snapshotter
from benchmarks.common import Table, median
from benchmarks.metered import SID, Bill, MeteredBucket, copied, grown
from benchmarks.samples import block, call, peers_turn, question
from benchmarks.virtual import VirtualClock
from streams.buckets.memory import Space

PRESETS = ("steps", "stream", "live")
LATENCY = 0.025
PER_SECOND = 50

Timed = Iterator[tuple[float, dict[str, Any]]]
"""Chunks, each with the seconds that pass before it."""


def _spoken(seconds: int) -> Timed:
    """One step of text at 50 tokens a second."""
    yield 0.0, {"type": "start"}
    yield 0.0, {"type": "start-step"}
    for chunk in block("text", "t", seconds * PER_SECOND):
        yield (1 / PER_SECOND if chunk["type"] == "text-delta" else 0.0), chunk
    yield 0.0, {"type": "finish-step"}
    yield 0.0, {"type": "finish", "finishReason": "stop"}


def _tool(seconds: int) -> Timed:
    """A tool call that takes so long, then two seconds of text."""
    yield 0.0, {"type": "start"}
    yield 0.0, {"type": "start-step"}
    for chunk in call("call-1", "x" * 4000):
        yield (seconds if chunk["type"] == "tool-output-available" else 1 / PER_SECOND), chunk
    yield 0.0, {"type": "finish-step"}
    for wait, chunk in _spoken(2):
        if chunk["type"] != "start":
            yield wait, chunk


def _at_once(chunks: Iterable[dict[str, Any]]) -> Timed:
    for chunk in chunks:
        yield 0.0, chunk


ANSWERS: dict[str, Callable[[], Timed]] = {
    "10 s of text": lambda: _spoken(10),
    "60 s of text": lambda: _spoken(60),
    "10-minute tool": lambda: _tool(600),
}


@dataclass
class _Watermark:
    """When each delta was written, and when it was safe."""

    clock: VirtualClock
    waiting: list[tuple[int, float]] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    lost: int = 0
    oldest: float = 0.0

    def wrote(self, number: int) -> None:
        self.waiting.append((number, self.clock.monotonic()))
        self._look()

    def _look(self) -> None:
        self.lost = max(self.lost, len(self.waiting))
        if self.waiting:
            self.oldest = max(self.oldest, self.clock.monotonic() - self.waiting[0][1])

    def put(self, key: str, data: bytes) -> None:
        if key.startswith("out/"):
            self._look()
            last = orjson.loads(data[: data.index(b"\n")])["last"]
            now = self.clock.monotonic()
            self.lags += [now - at for number, at in self.waiting if number <= last]
            self.waiting = [entry for entry in self.waiting if entry[0] > last]


def answered(space: Space, preset: str, answer: Timed) -> tuple[Bill, _Watermark]:
    """Send a message, boot, answer it; what it cost, and how the deltas fared."""
    clock = VirtualClock()
    mark = _Watermark(clock)
    bucket = MeteredBucket(space, clock, LATENCY, mark.put)
    db = snapshotter.Database(bucket, clock, durability=preset)
    receipt = db.send(SID, question(0, 1000))
    with db.boot(SID, receipt=receipt) as session:
        for turn in session.turns():
            with turn:
                for wait, chunk in answer:
                    if wait:
                        clock.sleep(wait)
                    turn.write(chunk)
                    if chunk["type"] == "text-delta":
                        mark.wrote(session.writer.next_id - 1)
        assert not session.report
    return bucket.bill, mark


def run() -> list[Table]:
    spaces = grown((10, 100, 500))
    return [_presets(spaces[10]), _peers(spaces)]


def _presets(space: Space) -> Table:
    table = Table(
        "One answer, from send to snapshot, by durability preset",
        (
            "answer",
            "preset",
            "PUT",
            "GET",
            "LIST",
            "HEAD",
            "kB written",
            "kB read",
            "$ per 1000",
            "safe after s (median)",
            "safe after s (worst)",
            "lost at worst: deltas",
        ),
        note="50 tokens a second; virtual time, exact; $: requests at $5/M PUT and LIST, $0.40/M GET.",
    )
    for name, make in ANSWERS.items():
        for preset in PRESETS:
            bill, mark = answered(copied(space), preset, make())
            row = (bill.put, bill.get, bill.list, bill.head, bill.written / 1e3, bill.read / 1e3)
            lags = (median(mark.lags), max(mark.lags))
            table.rows.append((name, preset, *row, bill.dollars * 1000, *lags, mark.lost))
    return table


def _peers(spaces: dict[int, Space]) -> Table:
    table = Table(
        "The 6.1 kB turn (no time between chunks), cold: send, boot, answer, snapshot",
        ("turns before", "PUT", "GET", "LIST", "HEAD", "kB written", "kB read", "$ per 1000"),
        note="Preset stream. A user message of 1000 B, a tool call, a result of 4000 B, an answer of 1000 B.",
    )
    for turns, space in spaces.items():
        bill, _ = answered(copied(space), "stream", _at_once(peers_turn(turns + 1)))
        row = (bill.put, bill.get, bill.list, bill.head, bill.written / 1e3, bill.read / 1e3)
        table.rows.append((turns, *row, bill.dollars * 1000))
    return table
