"""Copies of a snapshot that stand beside it name nothing that is gone, whoever tidies up meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from blocky import session as long_session
from blocky import tiny
from chat_samples import SID, Place, user
from upkeep import HOURS, check, fresh, interrupted, killed_at

from snapshotter import saving
from snapshotter.core.snapshot import decode
from snapshotter.database import Database
from snapshotter.maintenance import Keep, fork, gc, redact, trim
from snapshotter.maintenance.rules import Rules
from streams import keys
from streams.errors import StreamError

HOUR = Rules(minimum_age=HOURS)
TARGET = "other"
Act = Callable[[Database], Any]
ACTS: dict[str, Act] = {
    "trim": lambda db: trim(db, SID, rules=HOUR, keep=Keep(turns=1)),
    "redact": lambda db: redact(db, SID, "u2", takeover=True),
    "fork": lambda db: fork(db, SID, TARGET),
}


def old(turns: int = 3) -> Place:
    """A session with blocks, a day old, that was trimmed once."""
    place = tiny()
    long_session(place, 2)
    trim(place.db, SID, rules=HOUR, keep=Keep(turns=1))
    long_session(place, turns, name="v")
    return place


def merging(place: Place, session: str) -> None:
    """A worker merges the old blocks."""
    for number in range(6):
        fresh(place).send(session, user(f"more-{session}-{number}", "as long as a block " * 20))
        with suppress(StreamError), fresh(place).boot(session, takeover=True) as booted:
            for turn in booted.turns():
                with turn:
                    turn.write({"type": "start"})


def tidied(place: Place, session: str) -> None:
    """... and gc deletes them."""
    merging(place, session)
    gc(fresh(place), session, rules=HOUR)


def lacking(place: Place, session: str) -> list[str]:
    """What checkpoints name and is not there."""
    stored = place.stored("")
    found = []
    for key, data in stored.items():
        if key.startswith(f"checkpoints/{session}/") and data:
            names = saving.named(decode(data, key=key, session=session))
            there = {name for name in names for other in stored if name in other and stored[other]}
            found += [key] * (names != there)
    return found


@pytest.mark.parametrize("name", ACTS)
def test_beside_a_worker_that_merges_blocks_and_gc(name: str) -> None:
    session = TARGET if name == "fork" else SID
    copied = 0
    for number in range(1, 200):
        place = old()
        happened: list[int] = []

        def now(place: Place = place, happened: list[int] = happened) -> None:
            happened.append(1)
            if session in (SID, *fresh(place).sessions()):
                tidied(place, session)

        with suppress(StreamError):  # it lost, and says so
            ACTS[name](interrupted(place, "", "", number, now))
        if not happened:
            break
        assert not lacking(place, session), f"before request {number}"
        copied += any(place.stored(f"checkpoints/{session}/").values())
        check(place)
    assert 10 < number < 199
    assert copied


def test_gc_beside_a_trim_and_a_worker_that_merges_blocks_then() -> None:
    """What the trim's copy names is found in the snapshot, or in the copy."""
    for number in range(1, 100):
        place = old()
        happened: list[int] = []

        def now(place: Place = place, happened: list[int] = happened) -> None:
            happened.append(1)
            trim(fresh(place), SID, rules=HOUR, keep=Keep(turns=1))
            merging(place, SID)

        gc(interrupted(place, "", "", number, now), SID, rules=HOUR)
        if not happened:
            break
        assert not lacking(place, SID), f"before request {number}"
        check(place)
    assert 10 < number < 99


def killed_between() -> Place:
    """A trim that died behind its checkpoint; its blocks were merged before it could look again."""
    place = old()
    before = set(place.stored("checkpoints/"))
    for number in range(1, 200):
        assert killed_at(place, number, "after", lambda db: trim(db, SID, rules=HOUR, keep=Keep(turns=1)))
        left = set(place.stored("checkpoints/")) - before
        if left:
            break
    (key,) = left
    data = place.stored(key)[key]
    place.bucket.inner.delete(key)
    tidied(place, SID)
    place.bucket.inner.put(key, data)
    assert lacking(place, SID) == [key]
    return place


def test_a_checkpoint_whose_blocks_are_gone_is_garbage_and_the_one_before_it_stays() -> None:
    place = killed_between()
    older, younger = sorted(place.stored("checkpoints/"), reverse=True)
    gc(place.db, SID, rules=HOUR)
    assert set(place.stored("checkpoints/")) == {older, younger}, "too young to be touched"
    place.clock.advance(24 * HOURS)
    gc(place.db, SID, rules=HOUR)
    assert set(place.stored("checkpoints/")) == {older}
    check(place)
    history = fresh(place).history(SID)
    place.bucket.inner.delete(keys.snapshot(SID))
    assert fresh(place).history(SID) == history, "from the older checkpoint"


def test_a_trim_rests_on_no_checkpoint_whose_blocks_are_gone() -> None:
    place = killed_between()
    (key,) = lacking(place, SID)
    turn = keys.parse_checkpoint(key)
    assert turn is not None
    document = decode(place.stored(key)[key], key=key, session=SID)
    snapshot = keys.snapshot(SID)
    stands = decode(place.stored(snapshot)[snapshot], key=snapshot, session=SID)
    own = keys.checkpoint(SID, stands["turn"])
    place.bucket.inner.put(own, place.stored(key)[key])  # as if no turn had ended since
    assert document["turn"] != stands["turn"]
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1), rules=HOUR)
    assert own not in lacking(place, SID)
    assert place.stored(own)[own] == place.stored(snapshot)[snapshot]
    check(place)
