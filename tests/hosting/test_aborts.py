"""Aborting requests by name, and from outside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

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
