"""A process frozen at any of its requests for two days; others work meanwhile, and maintain the session."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Literal

import pytest
from blocky import tiny
from chat_samples import AT_ONCE, SID, Place, call, result, saying, user
from upkeep import HOURS, check, fresh

from snapshotter import Closed, Gap, Retryable
from snapshotter.database import Database
from snapshotter.maintenance import Keep, compact, delete, gc, trim
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, FaultyBucket

When = Literal["before", "after"]


def shorten(db: Database, session: str) -> None:
    trim(db, session, keep=Keep(turns=1))


def frozen(
    place: Place, number: int, when: When, meanwhile: Callable[[], None]
) -> tuple[Database, list[bool]]:
    """A process's door; `meanwhile` happens around its number-th request."""
    happened: list[bool] = []

    def hook(asked: Call, at: str) -> None:
        if asked.number == number and at == when and not happened:
            happened.append(True)
            meanwhile()

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    return Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes), happened


def answer(db: Database, text: str) -> None:
    with db.boot(SID, takeover=True) as session:
        for turn in session.turns():
            with turn:
                start, step, *rest = saying(text)
                for chunk in (start, step, call(), result(), *rest):
                    turn.write(chunk)
                    turn.flush()


def two_days(place: Place) -> None:
    """Others go on; then all that is due is done."""
    place.clock.advance(24 * HOURS)
    answer(fresh(place), "by another")
    for name in ("u2", "u3"):
        fresh(place).send(SID, user(name))
        answer(fresh(place), f"to {name}")
    place.clock.advance(24 * HOURS)
    for act in (compact, shorten, gc):
        act(fresh(place), SID)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("make", [Place, tiny])
def test_a_worker_that_wakes_anywhere_harms_nothing(make: Callable[[], Place], when: When) -> None:
    for number in count(1):
        place = make()
        place.send("u1")
        zombie, happened = frozen(place, number, when, lambda place=place: two_days(place))  # type: ignore[misc]
        done = True
        try:
            answer(zombie, "by the zombie")
        except Retryable:
            done = False
        if not happened:
            assert number > 15
            break
        check(place)
        history = fresh(place).history(SID)
        assert [m["id"] for m in history if m["role"] == "user"] == ["u1", "u2", "u3"], number
        assert [m["role"] for m in history] == ["user", "assistant"] * 3, number
        assert "to u2" in str(history[3])
        if done and number > 3:
            assert "by the zombie" in str(history) or "by another" in str(history), number
        place.clock.advance(24 * HOURS)
        for act in (compact, shorten, gc):
            act(fresh(place), SID)
        assert fresh(place).history(SID) == history
        check(place)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_sender_that_wakes_anywhere_is_heard_once(when: When) -> None:
    for number in count(1):
        place = Place()
        place.send("u1")
        zombie, happened = frozen(place, number, when, lambda place=place: two_days(place))  # type: ignore[misc]
        try:
            zombie.send(SID, user("late", "too late?"))
        except Retryable:
            zombie.send(SID, user("late", "too late?"))  # as whoever gets such an error does
        if not happened:
            assert number > 1
            break
        answer(fresh(place), "to the sleeper")
        users = [m["id"] for m in fresh(place).history(SID) if m["role"] == "user"]
        assert sorted(users) == ["late", "u1", "u2", "u3"], number
        check(place)


@pytest.mark.parametrize("when", ["before", "after"])
def test_upkeep_that_wakes_anywhere_harms_nothing(when: When) -> None:
    for number in count(1):
        place = tiny()
        place.send("u1")
        answer(fresh(place), "to u1")
        place.send("u0")
        answer(fresh(place), "to u0")
        place.clock.advance(24 * HOURS)
        zombie, happened = frozen(place, number, when, lambda place=place: two_days(place))  # type: ignore[misc]
        try:
            for act in (compact, shorten, gc):
                act(zombie, SID)
        except Retryable:
            pass
        history = fresh(place).history(SID)
        if not happened:
            assert number > 30
            break
        assert [m["id"] for m in history if m["role"] == "user"] == ["u1", "u0", "u2", "u3"], number
        check(place)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_wakes_over_a_deleted_session_brings_nothing_back(when: When) -> None:
    def gone(place: Place) -> None:
        place.clock.advance(24 * HOURS)
        delete(fresh(place), SID)
        place.clock.advance(24 * HOURS)
        gc(fresh(place), SID)

    for number in count(1):
        place = Place()
        place.send("u1")
        zombie, happened = frozen(place, number, when, lambda place=place: gone(place))  # type: ignore[misc]
        try:
            answer(zombie, "by the zombie")
        except (Retryable, Closed, Gap):
            pass
        if not happened:
            assert number > 15
            break
        assert fresh(place).history(SID) == [], number
        place.clock.advance(24 * HOURS)
        gc(fresh(place), SID)
        assert "by the zombie" not in str(place.stored("")), number
        fresh(place).create(SID)
        assert fresh(place).history(SID) == [], number
