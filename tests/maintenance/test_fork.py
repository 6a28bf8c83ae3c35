"""Forking: a session of its own, from any turn of another."""

from __future__ import annotations

from itertools import count
from typing import Any, Literal

import pytest
from blocky import LARGE, session, tiny
from chat_samples import SID, Place, call, first_turn, user, write_all
from upkeep import HOURS, check, fresh, killed_at, picture, session_of

from snapshotter import Corrupt, Gap, InvalidValue, Refused
from snapshotter.database import Database
from snapshotter.maintenance import Keep, compact, delete, fork, gc, trim
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, FaultyBucket

NEW = "fork"


@pytest.fixture(params=["plain", "blocks"])
def place(request: pytest.FixtureRequest) -> Place:
    made = Place() if request.param == "plain" else tiny()
    session(made, 7)
    return made


def others(place: Place) -> dict[str, bytes]:
    return {key: data for key, data in place.stored("").items() if f"/{SID}/" in key}


def test_the_newest_state_is_taken_by_default(place: Place) -> None:
    with place.db.boot(SID) as booted:
        booted.set_state({"a": 1})
        booted.set_context("u4", [user("sum", f"all of it {LARGE}")])
    before = others(place)
    done = fork(place.db, SID, NEW)
    assert others(place) == before
    assert fresh(place).history(NEW) == fresh(place).history(SID)
    one, two = fresh(place).peek(NEW), fresh(place).peek(SID)
    assert (one.fold.state, one.fold.context) == (two.fold.state, two.fold.context)
    assert (one.fold.turn, one.pending) == (7, [])
    assert done.written >= 4
    check(place, NEW)


@pytest.mark.parametrize("turn", range(1, 8))
def test_any_turn(place: Place, turn: int) -> None:
    whole = fresh(place).history(SID)
    fork(place.db, SID, NEW, turn=turn)
    assert fresh(place).history(NEW) == whole[: 2 * turn]
    place.db.send(NEW, user("n1", "another way"))
    with place.db.boot(NEW) as booted, first_turn(booted) as one:
        assert one.number == turn + 1
        write_all(one, [{"type": "start"}, call("c")])
    check(place, NEW)
    assert fresh(place).history(SID) == whole
    place.bucket.inner.delete(keys.snapshot(NEW))
    assert len(fresh(place).history(NEW)) == 2 * turn + 2, "from its checkpoint"


def test_nothing_is_shared(place: Place) -> None:
    fork(place.db, SID, NEW)
    seen = picture(place, NEW)
    delete(place.db, SID)
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    gc(place.db, NEW)
    assert picture(place, NEW) == seen
    assert len(fresh(place).history(NEW)) == 14
    check(place, NEW)


def test_what_is_sealed_is_copied_by_the_store() -> None:
    place = tiny()
    session(place, 7)
    place.bucket.calls.clear()
    fork(place.db, SID, NEW)
    copied = {c.key for c in place.bucket.calls if c.verb == "copy"}
    written = {c.key for c in place.bucket.calls if c.verb == "put"}
    assert any(key.startswith(f"blocks/{NEW}/") for key in copied)
    assert any(key.startswith(f"values/{NEW}/") for key in copied)
    assert not any(key.startswith(("blocks/", "values/")) for key in written)


def test_an_open_turn_and_what_is_owed_stay_behind(place: Place) -> None:
    place.db.send(SID, user("u8"))
    place.db.send(SID, user("u9"))
    turn = first_turn(place.db.boot(SID))
    write_all(turn, [{"type": "start"}, call("c9")])
    turn.flush()
    fork(fresh(place), SID, NEW)
    assert len(fresh(place).history(NEW)) == 14
    assert fresh(place).peek(NEW).pending == []
    assert fresh(place).peek(NEW).resume.kind == "none"
    check(place, NEW)
    with pytest.raises(Refused, match="no turn 8 that has ended"):
        fork(fresh(place), SID, "other", turn=8)


def test_a_trimmed_source_has_the_turns_that_are_left(place: Place) -> None:
    trim(place.db, SID, keep=Keep(turns=2))
    fork(place.db, SID, NEW)
    assert fresh(place).history(NEW) == fresh(place).history(SID)
    with pytest.raises(Refused, match="no more"):
        fork(place.db, SID, "other", turn=2)
    assert not [key for key in place.stored("") if "/other/" in key]


def test_a_compacted_source(place: Place) -> None:
    compact(place.db, SID)
    fork(place.db, SID, NEW, turn=3)
    assert len(fresh(place).history(NEW)) == 6


@pytest.mark.parametrize("there", ["send", "create", "fork", "deleted"])
def test_a_target_that_exists_is_refused(place: Place, there: str) -> None:
    if there == "send":
        place.db.send(NEW, user("x"))
    else:
        place.db.create(NEW, messages=[user("x")])
    if there == "deleted":
        delete(place.db, NEW)
    if there == "fork":
        fork(place.db, SID, "third")
    target = "third" if there == "fork" else NEW
    before = place.stored("")
    with pytest.raises(Refused, match="exists"):
        fork(place.db, SID, target)
    assert place.stored("") == before


def test_no_source(place: Place) -> None:
    with pytest.raises(Refused, match="not there"):
        fork(place.db, "nobody", NEW)
    delete(place.db, SID)
    with pytest.raises(Refused, match="not there, or deleted"):
        fork(place.db, SID, NEW)


@pytest.mark.parametrize("turn", ["x", True, 2.0])
def test_a_turn_that_is_no_number_is_invalid(place: Place, turn: Any) -> None:
    with pytest.raises(InvalidValue, match="number"):
        fork(place.db, SID, NEW, turn=turn)
    assert not [key for key in place.stored("") if f"/{NEW}/" in key]


def test_a_dry_run_writes_nothing(place: Place) -> None:
    before = place.stored("")
    dry = fork(place.db, SID, NEW, dry_run=True)
    assert place.stored("") == before
    assert fork(place.db, SID, NEW).written == dry.written


def test_of_two_forks_at_once_one_wins(place: Place) -> None:
    other = fresh(place)
    ran: list[str] = []

    def hook(asked: Call, when: str) -> None:
        if asked.key == keys.segment("out", NEW, 1) and when == "after" and not ran:
            ran.append("begun")
            fork(other, SID, NEW, turn=2)
            ran.append("done")

    place.bucket.hook = hook
    with pytest.raises(Refused, match="exists"):
        fork(place.db, SID, NEW)
    place.bucket.hook = None
    assert ran == ["begun", "done"]
    assert len(fresh(place).history(NEW)) == 4
    check(place, NEW)


def test_a_create_that_was_first_is_kept(place: Place) -> None:
    other = fresh(place)
    ran: list[str] = []

    def hook(asked: Call, when: str) -> None:
        if asked.key == keys.segment("out", NEW, 1) and when == "before" and not ran:
            ran.append("begun")
            other.create(NEW, messages=[user("x")])

    place.bucket.hook = hook
    with pytest.raises(Refused, match="exists"):
        fork(place.db, SID, NEW)
    assert [m["id"] for m in other.history(NEW)] == ["x"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_any_request_it_is_run_again(when: Literal["before", "after"]) -> None:
    for number in count(1):
        place = tiny()
        session(place, 4)
        killed = killed_at(place, number, when, lambda db: fork(db, SID, NEW))
        try:
            shown = len(fresh(place).history(NEW))
        except (Gap, Corrupt):
            shown = 0
        assert shown in (0, 8), number
        if shown == 0:
            fork(place.db, SID, NEW)
        assert len(fresh(place).history(NEW)) == 8, number
        check(place, NEW)
        if not killed:
            assert number > 15
            break


def test_a_fork_that_slept_puts_back_what_was_tidied_away() -> None:
    place = tiny()
    session(place, 7)
    slept = iter([True])

    def hook(asked: Call, when: str) -> None:
        if (
            asked.key == keys.snapshot(NEW)
            and asked.verb == "put"
            and when == "before"
            and next(slept, False)
        ):
            place.clock.advance(24 * HOURS)
            for prefix in ("blocks", "values"):
                for key in place.stored(f"{prefix}/{NEW}/"):
                    place.bucket.inner.delete(key)

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    fork(Database(bucket, place.clock, sizes=place.db._sizes), SID, NEW)
    assert len(fresh(place).history(NEW)) == 14
    check(place, NEW)


def test_a_source_with_a_hole_is_no_source() -> None:
    place = Place()
    session_of(place, 3)
    place.bucket.inner.delete(keys.snapshot(SID))
    place.bucket.inner.delete(keys.segment("out", SID, 1))
    with pytest.raises(Gap):
        fork(place.db, SID, NEW)
    assert not [key for key in place.stored("") if f"/{NEW}/" in key]
