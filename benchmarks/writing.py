"""The write path: what one plain delta costs the worker before `write` returns.

Nothing is requested meanwhile: the preset `steps` writes only at tool calls and step ends, so this is
the price of buffering. The parts below it are timed by themselves, over the same deltas.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import snapshotter
from benchmarks.common import Table, median
from benchmarks.samples import tokens
from snapshotter import aio
from snapshotter.core.chunks import delta_of
from snapshotter.core.fold import Fold
from snapshotter.signals import guarded
from streams.buckets.memory import MemoryBucket
from streams.clock import SystemClock
from streams.codec import frame
from streams.packing import Carry, Packer
from streams.records import Cursor
from streams.store import Store
from streams.writer import STEPS, Writer

COUNT = 20_000
TIMES = 7

Chunk = dict[str, Any]
CHUNKS: list[Chunk] = [{"type": "text-delta", "id": "t", "delta": token} for token in tokens(COUNT)]
OPENING: list[Chunk] = [{"type": "start"}, {"type": "start-step"}, {"type": "text-start", "id": "t"}]


def _database(durability: str) -> snapshotter.Database:
    db = snapshotter.Database(MemoryBucket(), durability=durability)
    db.send("s", "hi")
    return db


def _turn(durability: str) -> float:
    with _database(durability) as db, db.boot("s") as session, next(session.turns()) as turn:
        for chunk in OPENING:
            turn.write(chunk)
        began = time.perf_counter()
        for chunk in CHUNKS:
            turn.write(chunk)
        return time.perf_counter() - began


def _async_turn() -> float:
    async def go() -> float:
        door: Any = aio.AsyncDatabase(_database("steps"))
        async with door as db, await db.boot("s") as session:
            async for turn in session.turns():
                async with turn:
                    for chunk in OPENING:
                        await turn.write(chunk)
                    began = time.perf_counter()
                    for chunk in CHUNKS:
                        await turn.write(chunk)
                    taken: float = time.perf_counter() - began
                    return taken
        raise AssertionError("no turn")

    return asyncio.run(go())


def _timed(make: Callable[[], Callable[[Chunk], object]]) -> Callable[[], float]:
    def run() -> float:
        call = make()
        began = time.perf_counter()
        for chunk in CHUNKS:
            call(chunk)
        return time.perf_counter() - began

    return run


def _fold() -> Callable[[Chunk], object]:
    fold = Fold(strict=True)
    fold.apply({"id": 1, "control": "turn-start", "turn": 1, "attempt": 1, "mode": "fresh", "messageId": "m"})
    for chunk in OPENING:
        fold.chunk(2, chunk)
    return lambda chunk: fold.chunk(0, chunk)


def _pack() -> Callable[[Chunk], object]:
    packer, clock = Packer(1, delta_of), SystemClock()
    return lambda chunk: packer.add(clock.now_ms(), {"chunk": chunk})


def _append() -> Callable[[Chunk], object]:
    store = Store(MemoryBucket(), SystemClock())
    writer = Writer(store, "s", position=Cursor(), epoch=1, run="r", delta_of=delta_of, policy=STEPS)
    return lambda chunk: writer.append({"chunk": chunk})


def _locks() -> Callable[[Chunk], object]:
    lock = threading.RLock()

    def call(_chunk: Chunk) -> None:
        with guarded(), lock:
            pass

    return call


def _carry() -> Callable[[Chunk], object]:
    carry = Carry()
    return lambda chunk: carry.delta((chunk["type"], chunk["id"]), chunk["delta"])


def _encode() -> float:
    """What the flusher does later, in its own thread: the bytes of the segment."""
    packer = Packer(1, delta_of)
    for at, chunk in enumerate(CHUNKS):
        packer.add(at * 20, {"chunk": chunk})
    began = time.perf_counter()
    frame("out", 1, packer.next - 1, packer.lines(), nonce="n")
    return time.perf_counter() - began


def run() -> list[Table]:
    measured: dict[str, Callable[[], float]] = {
        "Turn.write, preset steps": lambda: _turn("steps"),
        "Turn.write, preset stream": lambda: _turn("stream"),
        "aio: await turn.write, preset steps": _async_turn,
        "of it: locks and signal guard": _timed(_locks),
        "of it: surrogate halves (Carry.delta)": _timed(_carry),
        "of it: the message (Fold.chunk)": _timed(_fold),
        "of it: lock, id, packing (Writer.append)": _timed(_append),
        "of that: packing (Packer.add)": _timed(_pack),
        "later, by the flusher: the segment's bytes": _encode,
    }
    table = Table(
        f"Write path: {COUNT:,} plain deltas into a memory bucket",
        ("what", "µs per chunk"),
        note="The lines `of it` are timed alone, each with the cost of its loop and call.",
    )
    taken: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(TIMES + 1):
        for name, call in measured.items():
            seconds = call()
            if number:
                taken[name].append(seconds)
    table.rows = [(name, median(times) / COUNT * 1e6) for name, times in taken.items()]
    return [table]
