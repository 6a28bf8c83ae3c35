"""Many sessions streaming at once in one process; each is killed in the middle of its answer, and resumed.

Two messages are sent to each. Its first worker boots, streams, and dies in the middle of the first answer
(`handle` says how); the words that were durable by then are noted. Right after that another one takes the
session over by a boot of its own, finds those words, answers anew, and answers the second message. So the
sessions stay as many as they are from the first boot to the last snapshot.

Afterwards each session is looked at as a reader does: `verify`, both messages answered once, by the whole
answer, and, in the log, one end for each of its turns and no word of the dead worker's leaving.

By threads it is one thread a session, by tasks one event loop for all. The model speaks at a steady pace.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import snapshotter
from benchmarks.load import gauge
from benchmarks.load.handle import Handle
from benchmarks.samples import Chunk, block, question, tokens
from snapshotter import aio
from snapshotter.verify import verify
from streams.buckets.base import Bucket
from streams.buckets.url import open_bucket

MESSAGES = 2
_FLUSH = 25  # every so many chunks the worker waits until all is durable, as a tool call makes it do
_VERIFIERS = 8
_HEAD = 3  # chunks before the first delta


@dataclass
class Scene:
    """One run: whose sessions, how long the answers, and what was seen. `pause` is the model's, in seconds
    between two chunks. `boots`, `takeovers` and `flushes`: seconds of each."""

    bucket: Bucket
    sessions: int
    chunks: int
    pause: float
    boots: list[float] = field(default_factory=list)
    takeovers: list[float] = field(default_factory=list)
    flushes: list[float] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.doomed, self.heirs = Handle(self.bucket), Handle(self.bucket)
        # The pause before a further attempt is no part of what a boot costs.
        recovery = snapshotter.ChatRecovery(max_backoff=0)
        self.first = snapshotter.Database(self.doomed, recovery=recovery)
        self.second = snapshotter.Database(self.heirs, recovery=recovery)
        self.names = [f"crowd-{number:04d}" for number in range(self.sessions)]

    def answer(self) -> Iterator[Chunk]:
        yield {"type": "start"}
        yield {"type": "start-step"}
        yield from block("text", "t", self.chunks)
        yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": "stop"}

    def text(self, chunks: int) -> str:
        """What stands there after so many chunks of an answer."""
        return "".join(islice(tokens(self.chunks), max(0, chunks - _HEAD)))

    def last_words(self, number: int) -> Iterator[Chunk]:
        """The chunks of an answer up to its worker's death: between its first third and its second."""
        third = self.chunks // 3
        return islice(self.answer(), _HEAD + third + number * 37 % max(1, third))

    def die(self, name: str, written: list[int], durable: int) -> None:
        """The session's first worker is gone. `written`: the log's newest id after each of its chunks."""
        self.doomed.cut(name)
        self.kept[name] = self.text(sum(number <= durable for number in written))

    def check_found(self, name: str, partial: dict[str, Any] | None) -> None:
        """The heir has to find at least what was durable when its predecessor died."""
        parts = [] if partial is None else partial["parts"]
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        assert text.startswith(self.kept[name]), f"{name}: words are lost"
        assert self.text(self.chunks + _HEAD).startswith(text), f"{name}: words that nobody said"


class timed:  # noqa: N801 - reads as a function
    """Adds the seconds of its block to a list."""

    def __init__(self, into: list[float]) -> None:
        self._into = into

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        self._into.append(time.perf_counter() - self._began)


# -- by threads ---------------------------------------------------------------------------------------


def _live(scene: Scene, number: int) -> None:
    name = scene.names[number]
    for message in range(MESSAGES):
        scene.first.send(name, question(message))
    _live_and_die(scene, name, number)
    with timed(scene.takeovers):
        session = scene.second.boot(name, takeover=True)
    scene.check_found(name, session.partial)
    with session:
        for turn in session.turns():
            with turn:
                for at, chunk in enumerate(scene.answer(), 1):
                    turn.write(chunk)
                    if at % _FLUSH == 0:
                        with timed(scene.flushes):
                            turn.flush()
                    time.sleep(scene.pause)


def _live_and_die(scene: Scene, name: str, number: int) -> None:
    with timed(scene.boots):
        session = scene.first.boot(name)
    turn, written = next(session.turns()), []
    for at, chunk in enumerate(scene.last_words(number), 1):
        turn.write(chunk)
        written.append(session.writer.next_id - 1)
        if at % _FLUSH == 0:
            with timed(scene.flushes):
                turn.flush()
        time.sleep(scene.pause)
    scene.die(name, written, turn.durable_id)
    session.close()  # of which the store hears nothing: it ends the threads that a real death takes along


def by_threads(scene: Scene) -> None:
    with ThreadPoolExecutor(scene.sessions) as pool:
        list(pool.map(lambda number: _live(scene, number), range(scene.sessions)))


# -- by tasks -----------------------------------------------------------------------------------------


async def _live_on(scene: Scene, first: aio.AsyncDatabase, second: aio.AsyncDatabase, number: int) -> None:
    name = scene.names[number]
    for message in range(MESSAGES):
        await first.send(name, question(message))
    await _live_on_and_die(scene, first, name, number)
    with timed(scene.takeovers):
        session = await second.boot(name, takeover=True)
    scene.check_found(name, session.partial)
    async with session:
        async for turn in session.turns():
            async with turn:
                for at, chunk in enumerate(scene.answer(), 1):
                    await turn.write(chunk)
                    if at % _FLUSH == 0:
                        with timed(scene.flushes):
                            await turn.flush()
                    await asyncio.sleep(scene.pause)


async def _live_on_and_die(scene: Scene, db: aio.AsyncDatabase, name: str, number: int) -> None:
    with timed(scene.boots):
        session = await db.boot(name)
    turns = session.turns()
    turn, written = await anext(turns), []
    for at, chunk in enumerate(scene.last_words(number), 1):
        await turn.write(chunk)
        written.append(session.writer.next_id - 1)
        if at % _FLUSH == 0:
            with timed(scene.flushes):
                await turn.flush()
        await asyncio.sleep(scene.pause)
    scene.die(name, written, turn.durable_id)
    await session.close()  # as above
    await turns.aclose()


async def _all_on(scene: Scene) -> None:
    async with aio.AsyncDatabase(scene.first) as first, aio.AsyncDatabase(scene.second) as second:
        await asyncio.gather(*(_live_on(scene, first, second, number) for number in range(scene.sessions)))


def by_tasks(scene: Scene) -> None:
    asyncio.run(_all_on(scene))


HOW: dict[str, Callable[[Scene], None]] = {"threads": by_threads, "tasks": by_tasks}


# -- afterwards ---------------------------------------------------------------------------------------


def _check(scene: Scene, name: str) -> None:
    """The session is whole, and each of its messages answered once. Raises AssertionError."""
    db = scene.second
    verdict = verify(db, name)
    assert verdict.ok, f"{name}: {verdict.problems}"
    whole = scene.text(scene.chunks + _HEAD)
    said = [
        (message["role"], [part["text"] for part in message["parts"] if part["type"] == "text"])
        for message in db.history(name)
    ]
    asked = [("user", [question(message)["parts"][0]["text"]]) for message in range(MESSAGES)]
    assert said == [line for each in asked for line in (each, ("assistant", [whole]))], f"{name}: {said}"
    controls = [
        (r["control"], r["turn"]) for r in db.records(name, "out") if r.get("control", "").startswith("turn-")
    ]
    starts, ends = ("turn-start", "turn-complete")
    assert controls == [(starts, 1), (starts, 1), (ends, 1), (starts, 2), (ends, 2)], f"{name}: {controls}"


def run(url: str, how: str, sessions: int, chunks: int, pace: float) -> dict[str, Any]:
    """One run. `how`: one of HOW. `pace`: chunks a second of each model. What a process pays once is paid
    before the first reading."""
    warm = Scene(open_bucket(url), 1, 8, 0.0)
    warm.names = [f"warm-{how}"]
    HOW[how](warm)
    warm.bucket.close()
    gc.collect()
    before = gauge.now(objects=True)
    scene = Scene(open_bucket(url), sessions, chunks, 1 / pace)
    scene.names = [f"{how}-{name}" for name in scene.names]
    began = time.perf_counter()
    with gauge.Peaks() as peaks:
        HOW[how](scene)
    seconds = time.perf_counter() - began
    bill = scene.doomed.bill + scene.heirs.bill
    with ThreadPoolExecutor(_VERIFIERS) as pool:
        list(pool.map(partial(_check, scene), scene.names))
    scene.bucket.close()
    del warm
    after = gauge.settled(before)
    return {
        "seconds": seconds,
        "bill": {**vars(bill), "requests": bill.requests},
        "unsent": scene.doomed.unsent,
        "kept": sum(map(len, scene.kept.values())),
        "times": {
            "boot": _shares(scene.boots),
            "takeover": _shares(scene.takeovers),
            "flush": _shares(scene.flushes),
        },
        "held": {"before": before.plain(), "peak": peaks.most.plain(), "after": after.plain()},
    }


def _shares(taken: list[float]) -> list[float]:
    """Median and 99th percentile."""
    return [gauge.quantile(taken, share) for share in (0.5, 0.99)]
