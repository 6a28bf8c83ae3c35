"""Sessions side by side: the order, how many are begun, and how a run ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from chat_samples import SID, Place

from snapshotter.sidebyside import BrokenOff, breakable, side_by_side
from snapshotter.verify import verify
from streams.buckets.memory import MemoryBucket
from streams.testing.clocks import FakeClock


def test_results_come_in_the_order_of_the_items_whoever_is_first() -> None:
    second = threading.Event()

    def call(number: int) -> int:
        if number == 0:
            assert second.wait(60)  # the first is done after the second
        if number == 1:
            second.set()
        return number

    with closing(side_by_side(call, range(50), 2)) as coming:
        assert list(coming) == list(range(50))


def test_no_more_are_taken_than_are_begun_ahead() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(100_000):
            taken += 1
            yield number

    with closing(side_by_side(str, items(), 2)) as coming:
        assert [next(coming) for _ in range(100)] == [str(number) for number in range(100)]
    assert taken < 200


def test_an_error_ends_the_run_and_does_not_wait_behind_a_slow_one() -> None:
    never = threading.Event()
    begun: list[int] = []
    bucket = MemoryBucket(FakeClock())

    def call(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise LookupError("1")
        mine = breakable(bucket)
        for _ in range(60_000):  # until the run is over: else for a minute
            mine.head("x")
            never.wait(0.001)

    with closing(side_by_side(call, range(100), 2)) as coming, pytest.raises(LookupError):
        next(coming)
    assert begun[:2] in ([0, 1], [1, 0])
    assert len(begun) < 10


def test_a_check_of_a_session_is_broken_off_as_well() -> None:
    place = Place()
    place.send("u1")
    place.answer()
    begun, never = threading.Event(), threading.Event()
    ended: list[int] = []

    def call(number: int) -> None:
        if number == 0:
            assert begun.wait(60)
            return
        for _ in range(6_000):  # until the run is over: else for a minute
            assert verify(place.db, SID).ok
            begun.set()
            never.wait(0.01)
        ended.append(number)

    with closing(side_by_side(call, range(2), 2)) as coming:
        next(coming)
    assert not ended


def test_only_the_threads_of_a_run_are_broken_off() -> None:
    bucket = MemoryBucket(FakeClock())
    with closing(side_by_side(lambda _: breakable(bucket), range(2), 2)) as coming:
        of_the_run, _ = coming
    with pytest.raises(BrokenOff):
        of_the_run.head("x")
    assert breakable(bucket) is bucket
