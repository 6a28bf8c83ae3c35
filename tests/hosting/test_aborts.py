"""Aborting requests by name, and from outside."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

import pytest

from snapshotter.hosting.aborts import Aborts, Signal, until_aborted, until_aborted_async


def test_a_signal_is_made_when_it_is_asked_for_and_aborts_once() -> None:
    registry = Aborts()
    assert registry.existing("a") is None
    assert not registry.cancel("a")
    signal = registry.signal("a")
    assert registry.signal("a") is signal
    assert registry.cancel("a", "why")
    registry.cancel("a", "again")
    assert (signal.aborted, signal.reason) == (True, "why")
    registry.remove("a")
    assert "a" not in registry
    assert not registry.signal("a").aborted


def test_all_are_aborted_and_forgotten() -> None:
    registry = Aborts()
    signals = [registry.signal(name) for name in "abc"]
    assert len(registry) == 3
    registry.cancel_all("cleared")
    assert [s.reason for s in signals] == ["cleared"] * 3
    assert len(registry) == 0


def test_an_outside_signal_aborts_what_is_linked_with_its_reason() -> None:
    registry, outside = Aborts(), Signal()
    registry.link("a", outside)
    detach = registry.link("b", outside)
    assert outside.listeners() == 2
    detach()
    assert outside.listeners() == 1
    outside.abort("parent")
    assert registry.signal("a").reason == "parent"
    assert not registry.signal("b").aborted
    registry.link("c", outside)()
    assert registry.signal("c").aborted
    assert registry.link("d", None)() is None
    assert "d" not in registry


def test_a_listener_that_fails_keeps_nobody_from_hearing(caplog: object) -> None:
    signal, heard = Signal(), []

    def broken(_reason: object) -> None:
        raise ValueError("broken")

    signal.on_abort(broken)
    signal.on_abort(heard.append)
    signal.abort(1)
    signal.on_abort(heard.append)
    assert heard == [1, 1]


def test_waiting_for_an_abort_from_another_thread() -> None:
    signal = Signal()
    assert not signal.wait(0)
    thread = threading.Thread(target=signal.abort, args=("now",))
    thread.start()
    assert signal.wait(30)
    thread.join()


def test_chunks_end_at_the_abort_and_the_source_is_closed() -> None:
    signal, closed = Signal(), []

    def source() -> object:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    seen = []
    for number in until_aborted(source(), signal):  # type: ignore[arg-type, var-annotated]
        seen.append(number)
        if number == 2:
            signal.abort()
    assert seen == [0, 1, 2]
    assert closed == [True]
    assert list(until_aborted([1, 2], Signal())) == [1, 2]


class Silent:
    """A source that says one thing and then waits, for good or until it is closed."""

    def __init__(self) -> None:
        self.waits, self.end, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[int]:
        try:
            yield 1
            self.waits.set()
            self.end.wait()
        finally:
            self.closed.set()


@pytest.fixture
def silent() -> Iterator[Silent]:
    source = Silent()
    yield source
    source.end.set()


def test_an_abort_leaves_a_source_that_hangs(silent: Silent) -> None:
    signal, source = Signal(), iter(silent)

    def abort() -> None:
        silent.waits.wait(20)
        signal.abort("enough")

    aborting = threading.Thread(target=abort)
    aborting.start()
    assert list(until_aborted(source, signal)) == [1]
    aborting.join()
    assert not silent.closed.is_set()  # it hangs on, in a thread of its own
    silent.end.set()
    assert silent.closed.wait(20)  # and is closed when it comes back
    assert signal.listeners() == 0


def test_what_is_left_unread_hangs_on_no_signal() -> None:
    signal, closed = Signal(), threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.set()

    assert next(until_aborted(source(), signal)) == 0  # and nobody holds it any more
    gc.collect()
    assert closed.wait(20)
    assert signal.listeners() == 0


def test_a_signal_that_aborted_before_lets_nothing_through() -> None:
    signal, source = Signal(), iter(range(3))
    signal.abort()
    assert list(until_aborted(source, signal)) == []
    assert next(source) == 0  # nothing was asked of it


def test_chunks_are_read_with_the_context_of_who_asks() -> None:
    name = ContextVar("name", default="nobody")
    name.set("me")
    assert list(until_aborted((name.get() for _ in range(2)), Signal())) == ["me", "me"]


def test_an_abort_cancels_an_async_source_that_waits() -> None:
    ended = []

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> list[int]:
        signal, seen = Signal(), []
        async for number in until_aborted_async(source(), signal):
            seen.append(number)
            threading.Timer(0, signal.abort).start()
        assert signal.listeners() == 0
        return seen

    assert asyncio.run(main()) == [1]
    assert ended == [True]


def test_async_chunks_end_at_the_abort_and_the_source_is_closed() -> None:
    closed = []

    async def source() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            closed.append(True)

    async def main() -> list[int]:
        signal, seen = Signal(), []
        async for number in until_aborted_async(source(), signal):
            seen.append(number)
            if number == 2:
                signal.abort()
        return seen

    assert asyncio.run(main()) == [0, 1, 2]
    assert closed == [True]
