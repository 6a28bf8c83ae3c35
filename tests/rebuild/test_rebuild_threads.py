"""The threads that read: in order, ahead, and never waiting for one another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from snapshotter.rebuilding.threads import PooledClock, Reader, is_at_hand


def test_calls_that_gather_themselves_finish() -> None:
    """As many of them as there are threads: with one pool for both they would wait for ever."""
    with PooledClock(2) as clock:

        def outer(number: int) -> list[int]:
            return clock.gather([lambda n=n: 10 * number + n for n in range(3)])  # type: ignore[misc]

        assert clock.gather([partial(outer, n) for n in range(8)]) == [
            [10 * n, 10 * n + 1, 10 * n + 2] for n in range(8)
        ]


def test_calls_run_beside_one_another_and_the_first_error_is_raised() -> None:
    meet = threading.Barrier(3, timeout=20)

    def fail(number: int) -> None:
        meet.wait()
        raise ValueError(number)

    with PooledClock(3) as clock, pytest.raises(ValueError, match="0"):
        clock.gather([partial(fail, n) for n in range(3)])


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_results_come_in_order(depth: int) -> None:
    with Reader(depth) as reader:
        assert list(reader.each(partial(int, n) for n in range(20))) == list(range(20))
        assert list(reader.ahead(iter(range(20)))) == list(range(20))
        assert list(reader.each([])) == []


def test_the_next_ones_are_begun_while_one_is_used() -> None:
    begun = [threading.Event() for _ in range(5)]
    with Reader(3) as reader:
        results = reader.each([event.set for event in begun])
        next(results)
        assert begun[1].wait(20)
        assert begun[2].wait(20)
        assert not begun[4].is_set()
        items = reader.ahead(_told(begun))
        next(items)
        assert begun[3].wait(20)


def _told(events: list[threading.Event]) -> Iterator[int]:
    for number, event in enumerate(events[2:]):
        event.set()
        yield number


def test_an_error_of_an_item_is_raised_where_it_is_used() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    for depth in (0, 2):
        with Reader(depth) as reader:
            read = reader.ahead(items())
            assert next(read) == 1
            with pytest.raises(ValueError, match="the second"):
                next(read)


def test_folders_are_at_hand_and_buckets_are_not() -> None:
    assert is_at_hand("file:///x")
    assert is_at_hand("memory://x")
    assert not is_at_hand("s3://x")
