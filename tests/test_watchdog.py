"""A stream that falls silent: closed, released, and never mistaken for a tool at work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from chat_samples import SID, Place, call, first_turn, result

from snapshotter import ChatRecovery, Stalled, aio, watch
from streams.testing.clocks import FakeClock


class Hanging:
    """A stream that says something, and then nothing more until it is closed."""

    def __init__(self, clock: FakeClock, *chunks: Any, silence: float = 301.0) -> None:
        self._clock = clock
        self._chunks = iter(chunks)
        self._silence = silence
        self._end = threading.Event()
        self.closed = 0

    def __iter__(self) -> Hanging:
        return self

    def __next__(self) -> Any:
        for chunk in self._chunks:
            return chunk
        self._clock.advance(self._silence)
        assert self._end.wait(20), "nobody closed the stream"
        raise StopIteration

    def close(self) -> None:
        self.closed += 1
        self._end.set()


# -- any iterator -----------------------------------------------------------------------------------------


def test_a_silent_source_is_closed_and_told_of_once() -> None:
    clock = FakeClock()
    source, told = Hanging(clock, 1, 2), []
    seen = []
    with pytest.raises(Stalled, match="300 s"):
        for item in watch(source, 300.0, on_stall=lambda: told.append(True), clock=clock):
            seen.append(item)
    assert (seen, told) == ([1, 2], [True])
    assert source.closed >= 1


def test_a_timeout_of_0_passes_the_source_through() -> None:
    source = iter([1, 2])
    assert watch(source, 0) is source


def test_a_source_that_speaks_in_time_is_passed_on_whole() -> None:
    assert list(watch(range(100), 5.0)) == list(range(100))


def test_what_the_source_raises_comes_through() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    with pytest.raises(KeyError):
        list(watch(source(), 5.0))


def test_no_gap_counts_while_a_tool_is_at_work() -> None:
    clock = FakeClock()
    work = [True, True, False]
    source, over = Hanging(clock, 1), threading.Event()

    def time_passes() -> None:
        while not over.wait(0.001):
            clock.advance(100.0)

    passing = threading.Thread(target=time_passes)
    passing.start()
    with pytest.raises(Stalled):
        list(watch(source, 300.0, at_work=lambda: work.pop(0), clock=clock))
    over.set()
    passing.join()
    assert work == []


def test_a_consumer_that_leaves_early_closes_the_source() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.set()

    watched = watch(source(), 5.0)
    assert next(iter(watched)) == 0
    watched.close()  # type: ignore[attr-defined]
    assert closed.wait(20)


def test_a_silent_async_source_is_closed() -> None:
    ended = []

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def test() -> list[int]:
        seen = []
        with pytest.raises(Stalled):
            async for item in watch(source(), 0.001, on_stall=lambda: ended.append(False)):
                seen.append(item)
        return seen

    assert asyncio.run(test()) == [1]
    assert sorted(ended) == [False, True]


def test_an_async_source_that_speaks_is_passed_on_whole() -> None:
    async def source() -> AsyncIterator[int]:
        for number in range(50):
            yield number

    async def test() -> list[int]:
        return [item async for item in watch(source(), 20.0)]

    assert asyncio.run(test()) == list(range(50))


# -- in a turn --------------------------------------------------------------------------------------------

SAID = ({"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "Hel"})


def test_a_stall_in_a_turn_releases_it_and_the_next_worker_goes_on() -> None:
    place = Place()
    place.send("u1")
    source = Hanging(place.clock, *SAID)
    session = place.db.boot(SID)
    with pytest.raises(Stalled), first_turn(session) as turn:
        list(turn.tee(source))
    assert source.closed >= 1
    (released,) = place.controls("turn-release")
    assert released["why"] == "stall"
    assert released["error"].startswith("Stalled: the model's stream was silent for more than")
    with pytest.raises(Stalled):
        turn.write(SAID[1])
    found = place.db.peek(SID)
    assert (found.incident.interruptions, found.incident.strikes) == (1, 0)
    place.answer()
    assert place.db.peek(SID).resume.kind == "none"


def test_a_tool_at_work_is_no_stall() -> None:
    place = Place()
    place.send("u1")
    source = Hanging(place.clock, call("c1"))

    def stop_later() -> None:
        place.clock.advance(100.0)
        source.close()

    session = place.db.boot(SID)
    with first_turn(session) as turn:
        timer = threading.Timer(0.0, stop_later)
        timer.start()
        assert [chunk["type"] for chunk in turn.tee(source)] == ["tool-input-available"]
        timer.join()
        turn.write(result("c1"))
    assert place.controls("turn-release") == []


@pytest.mark.parametrize("timeout", [0.0, 1_000.0])
def test_the_limit_is_the_configurations(timeout: float) -> None:
    place = Place(recovery=ChatRecovery(max_backoff=0, stall_timeout=timeout))
    place.send("u1")
    source = Hanging(place.clock, *SAID, {"type": "text-end", "id": "t"})
    session = place.db.boot(SID)
    with first_turn(session) as turn:
        timer = threading.Timer(0.0, source.close)
        timer.start()
        list(turn.tee(source))
        timer.join()
    assert turn.status == "completed"


def test_a_stall_of_an_async_model() -> None:
    place = Place()
    place.send("u1")
    closed = []

    async def model() -> AsyncIterator[Any]:
        try:
            for chunk in SAID:
                yield chunk
            place.clock.advance(301.0)
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def work() -> None:
        async with aio.AsyncDatabase(place.db) as db, await db.boot(SID) as session:
            async for turn in session.turns():
                async with turn:
                    async for _ in turn.tee(model()):
                        pass

    with pytest.raises(Stalled):
        asyncio.run(work())
    assert closed == [True]
    (released,) = place.controls("turn-release")
    assert released["why"] == "stall"
    assert released["error"].startswith("Stalled: the model's stream was silent for more than")


def test_an_error_of_the_source_s_beginning_is_told() -> None:
    class Refusing:
        def __iter__(self) -> Iterator[int]:
            raise ConnectionError("model refused")

    with pytest.raises(ConnectionError, match="model refused"):
        list(watch(Refusing(), 30.0))


def test_an_async_source_that_resists_does_not_hold_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshotter.watchdog.GRACE", 0.05)

    async def test() -> None:
        free = asyncio.Event()

        async def stubborn() -> AsyncIterator[int]:
            yield 1
            while not free.is_set():
                with suppress(asyncio.CancelledError):
                    await free.wait()

        seen = []
        with pytest.raises(Stalled):
            async for item in watch(stubborn(), 0.05):
                seen.append(item)
        assert seen == [1]
        free.set()
        await asyncio.sleep(0)

    asyncio.run(test())
