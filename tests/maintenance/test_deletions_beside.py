"""Copies of a snapshot that are written beside a deletion or a redaction are taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from blocky import LARGE, tiny
from chat_samples import SID, Place, user
from upkeep import HOURS, check, fresh, interrupted, killed_at

from snapshotter.core.blocks import Sizes
from snapshotter.maintenance import Keep, delete, gc, redact, trim
from streams.errors import Refused, StreamError


def filled(place: Place, turns: int = 3) -> Place:
    for number in range(1, turns + 1):
        place.db.send(SID, user(f"u{number}", f"SECRET{number}"))
        place.answer()
        place.clock.advance(24 * HOURS)
    return place


def left(place: Place, word: bytes) -> set[str]:
    return {key.partition("/")[0] for key, data in place.stored("").items() if word in data}


def everywhere(outer: Callable[[Any], Any], inner: Callable[[Any], Any], word: bytes) -> int:
    """`inner` happens before each request of `outer` in turn; when both are through nothing is left."""
    for number in range(1, 400):
        place = filled(Place())
        happened: list[int] = []

        def now(place: Place = place, happened: list[int] = happened) -> None:
            happened.append(1)
            inner(fresh(place))

        with suppress(StreamError):  # it lost, and says so
            outer(interrupted(place, "", "", number, now))
        if not happened:
            return number
        assert not left(place, word), f"before request {number}"
    raise AssertionError("it never ends")


def test_a_trim_beside_a_deletion_leaves_no_checkpoint() -> None:
    assert (
        everywhere(lambda db: trim(db, SID, keep=Keep(turns=1)), lambda db: delete(db, SID), b"SECRET") > 10
    )


def test_a_redaction_beside_a_deletion_leaves_no_checkpoint() -> None:
    redacts = lambda db: redact(db, SID, "u3", takeover=True)  # noqa: E731
    assert everywhere(redacts, lambda db: delete(db, SID), b"SECRET") > 10


def test_of_two_redactions_neither_brings_back_what_the_other_took_away() -> None:
    first = lambda db: redact(db, SID, "u1", takeover=True)  # noqa: E731
    second = lambda db: redact(db, SID, "u2", takeover=True)  # noqa: E731
    assert everywhere(second, first, b"SECRET1") > 10


def test_a_trim_beside_a_redaction_makes_no_checkpoint_of_what_was_redacted() -> None:
    redacts = lambda db: redact(db, SID, "u1", takeover=True)  # noqa: E731
    assert everywhere(lambda db: trim(db, SID, keep=Keep(turns=1)), redacts, b"SECRET1") > 10


def test_what_is_sent_once_the_session_is_open_again_is_answered_wherever_the_deletion_stands() -> None:
    """Also a message that the deletion is about to take away, and that is sent once more."""
    for number in range(1, 60):
        place = filled(Place(), 1)
        place.send("again")
        opened: list[int] = []

        def now(place: Place = place, opened: list[int] = opened) -> None:
            other = fresh(place)
            with suppress(Refused):  # not deleted yet
                other.create(SID)
                opened.append(other.send(SID, user("again")).id)

        with suppress(StreamError):  # it lost, and says so
            delete(interrupted(place, "", "", number, now), SID)
        if opened:
            assert [item.ids for item in fresh(place).peek(SID).pending] == [tuple(opened)], number
            place.answer()
            assert [m["id"] for m in fresh(place).history(SID)][:1] == ["again"], number
            check(place)
            place.clock.advance(24 * HOURS)
        elif number > 20:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("opened", [False, True])
def test_a_checkpoint_that_a_killed_trim_left_of_a_deleted_session_is_garbage(opened: bool) -> None:
    place = filled(tiny())
    trim(place.db, SID, keep=Keep(turns=1))
    (key,) = place.stored("checkpoints/")
    data = place.stored(key)[key]
    delete(place.db, SID)
    place.bucket.inner.put(key, data)  # durable before the trim could look at the log again
    if opened:
        place.db.create(SID)
        place.db.send(SID, user("u9"))
        place.answer()
    place.clock.advance(24 * HOURS)
    for _ in range(3):
        gc(place.db, SID)
        place.clock.advance(24 * HOURS)
    assert not left(place, b"SECRET")
    check(place)


def test_a_redaction_that_is_run_again_finds_the_values_that_it_left() -> None:
    """Wherever it was killed: the records that named them may say nothing of them any more."""
    number, killed = 1, True
    while killed:
        place = Place(sizes=Sizes(value=600))
        for turn in (1, 2):
            place.db.send(SID, user(f"u{turn}", f"SECRET{turn} {LARGE}"))
            place.answer()
        place.clock.advance(24 * HOURS)
        killed = killed_at(place, number, "after", lambda db: redact(db, SID, "u1", takeover=True))
        redact(fresh(place), SID, "u1", takeover=True)
        assert not left(place, b"SECRET1"), number
        check(place)
        number += 1
    assert number > 20
