"""Redaction where an id was used several times: with the same words, with others, edited, stopped, sent anew.
The law holds afterwards, no other message changes, and wherever the redaction died, it can be run again."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import pytest
from chat_samples import AT_ONCE, SID, Place, ask, call, user, write_all
from test_redact_beside import copies, left
from upkeep import HOURS, check, fresh, interrupted, killed_at, names, picture

from snapshotter import Closed, Conflict, Database, Refused
from snapshotter.maintenance import Keep, redact, trim
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, FaultyBucket

FIRST, OTHER, EDITED = "the first words", "the other words", "what was meant"


def _asks(place: Place) -> None:
    with place.db.boot(SID, takeover=True) as booted:
        for turn in booted.turns():
            with turn:
                write_all(turn, [{"type": "start"}, call("c1"), ask("c1")])


def _dies(number: int) -> Callable[[Place], object]:
    return lambda place: killed_at(place, number, "after", lambda db: redact(db, SID, "u1", takeover=True))


ACTS: dict[str, Callable[[Place], object]] = {
    "first": lambda place: place.db.send(SID, user("u1", FIRST)),
    "other": lambda place: place.db.send(SID, user("u1", OTHER)),
    "edit": lambda place: place.db.edit(SID, "u1", user("e1", EDITED)),
    "mend": lambda place: place.db.edit(SID, "u1", user("u1", EDITED)),
    "stop": lambda place: place.db.stop(SID, "u1"),
    "answer": lambda place: place.answer(takeover=True),
    "asks": _asks,
    "redact": lambda place: redact(fresh(place), SID, "u1", takeover=True),
    "redact the second": lambda place: redact(fresh(place), SID, "msg-in2", takeover=True),
    **{f"redact, dying at {number}": _dies(number) for number in (8, 12, 16, 20, 24, 28)},
}


def after(*acts: str) -> Place:
    """A session in which this happened, each three minutes after the one before: whoever sends compares with
    the last two alone."""
    place = Place()
    for act in acts:
        place.clock.advance(180)
        with suppress(Refused, Conflict, Closed):
            ACTS[act](place)
    return place


def from_the_logs(place: Place) -> str:
    """The session as both logs tell it, without the snapshot."""
    alone = copies(place)()
    alone.bucket.inner.delete(keys.snapshot(SID))
    return picture(alone)


@pytest.mark.parametrize(
    ("acts", "gone", "stays"),
    [
        (("first", "stop", "other", "answer"), [FIRST], [OTHER]),
        (("first", "first", "edit", "answer"), [FIRST], [EDITED]),
        (("first", "edit", "first", "answer"), [FIRST], [EDITED]),
        (("first", "edit", "answer", "first"), [FIRST], [EDITED]),
        (("first", "mend", "other"), [FIRST, EDITED], [OTHER]),
        (("first", "answer", "other", "other"), [FIRST], [OTHER]),
        (("first", "answer", "first", "first"), [FIRST], []),
        (("other", "asks", "first", "first"), [OTHER], [FIRST]),
        (("first", "other"), [FIRST], [OTHER]),
        (("first", "other", "answer", "redact the second"), [FIRST, OTHER], []),
    ],
)
def test_what_bore_the_id_goes_and_nothing_else(
    acts: tuple[str, ...], gone: list[str], stays: list[str]
) -> None:
    place = after(*acts)
    owed = [item.ids for item in fresh(place).peek(SID).pending]
    ACTS["redact"](place)
    check(place)
    assert picture(place) == from_the_logs(place)
    assert [item.ids for item in fresh(place).peek(SID).pending] == owed
    assert [mark for mark in (FIRST, OTHER, EDITED) if left(place, mark)] == stays
    assert not [mark for mark in gone if left(place, mark)]
    place.answer(takeover=True)
    place.db.send(SID, user("u9", "and then?"))
    place.answer(takeover=True)
    check(place)
    assert picture(place) == from_the_logs(place)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "acts", [("first", "answer"), ("first", "first"), ("first", "edit"), ("first", "other")]
)
def test_killed_at_any_request_and_the_message_is_sent_again(
    acts: tuple[str, ...], when: Literal["before", "after"]
) -> None:
    made = copies(after(*acts))
    for number in range(1, 200):
        place = made()
        if not killed_at(place, number, when, lambda db: redact(db, SID, "u1", takeover=True)):
            break
        place.clock.advance(180)
        ACTS["first"](place)
        check(place)
        assert picture(place) == from_the_logs(place), number
        place.answer(takeover=True)
        check(place)
        ACTS["redact"](place)
        check(place)
        assert picture(place) == from_the_logs(place), number
        words = [part["text"] for m in fresh(place).history(SID) for part in m["parts"] if "text" in part]
        assert bool(left(place, FIRST)) == (FIRST in words), number
    assert 20 < number < 200


def test_a_copy_that_is_sent_before_any_request_is_a_copy_or_another_message() -> None:
    made = copies(after("first", "answer"))
    kinds: set[int] = set()
    for number in range(1, 200):
        place = made()
        sent: list[int] = []

        def send(place: Place = place, sent: list[int] = sent) -> None:
            place.clock.advance(180)
            sent.append(place.db.send(SID, user("u1", FIRST)).id)

        redact(interrupted(place, "", "", number, send), SID, "u1", takeover=True)
        if not sent:
            break
        check(place)
        assert picture(place) == from_the_logs(place), number
        owed = [item.ids for item in fresh(place).peek(SID).pending]
        assert owed in ([], [tuple(sent)]), number
        assert bool(left(place, FIRST)) == bool(owed), number
        kinds.add(len(owed))
    assert kinds == {0, 1}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happened_the_law_holds(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        acts = [chance.choice(["first", "other"]), *chance.choices([*ACTS, "answer", "redact"], k=7)]
        place = after(*acts)
        check(place)
        assert picture(place) == from_the_logs(place), acts


@pytest.mark.parametrize("before", ["a redaction", "a trim"])
def test_a_copy_whose_first_was_trimmed_away_is_never_answered(before: str) -> None:
    """Also by who has read an older snapshot, which knows the first's key, and the log behind it."""
    place = Place()
    for number in (1, 2, 3):
        place.send(f"u{number}")
        place.answer()
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=2))
    assert names(place.stored("in/"))[0] == 2
    happened: list[str] = []

    def meanwhile(asked: Call, when: str) -> None:
        if when == "before" or not asked.key.startswith("sessions/") or happened:
            return
        happened.append(asked.key)
        place.clock.advance(180)
        place.send("u1")
        if before == "a trim":
            place.send("u4")
            place.answer()
            place.clock.advance(24 * HOURS)
            trim(fresh(place), SID, keep=Keep(turns=2))
        else:
            redact(fresh(place), SID, "u2")
        redact(fresh(place), SID, "u1")

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=meanwhile)
    with Database(bucket, place.clock, recovery=AT_ONCE).boot(SID) as booted:
        assert happened
        assert [item.ids for item in booted.pending] == []
    check(place)
