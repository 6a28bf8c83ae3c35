"""Forking: a session of its own, from any turn of another."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any, Literal

import pytest
from blocky import LARGE, session, tiny
from chat_samples import AT_ONCE, SID, Place, call, first_turn, user, write_all
from lying import NO_CREATES_BY_COPY, Remote
from upkeep import HOURS, Killed, check, fresh, interrupted, killed_at, picture, session_of

from snapshotter import Corrupt, Gap, InvalidValue, Refused
from snapshotter.database import Database
from snapshotter.maintenance import Keep, compact, delete, fork, gc, maintain, redact, trim
from snapshotter.rebuilding.results import Options
from snapshotter.rebuilding.working import rebuild_in
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, Fault, FaultyBucket

NEW = "fork"


@pytest.fixture(autouse=True, params=[True, False], ids=["by-the-store", "through-here"])
def inside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the store copies by itself."""
    monkeypatch.setattr(MemoryBucket, "copies", request.param)
    return bool(request.param)


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


def test_what_is_sealed_is_created_and_never_overwritten(inside: bool) -> None:
    place = tiny()
    session(place, 7)
    fork(place.db, SID, NEW)
    for key in place.stored(""):
        kind, sid, _ = key.split("/")
        if sid == NEW and kind in ("blocks", "values"):
            source = key.replace(f"/{NEW}/", f"/{SID}/")
            assert place.stored("").get(source) in (None, place.stored("")[key])
    copied = [key for key in place.stored(f"blocks/{NEW}/") if key.replace(NEW, SID) in place.stored("")]
    assert copied
    place.bucket.inner.put(copied[0], b"")
    assert not place.db.store.copy(copied[0].replace(NEW, SID), copied[0], inside=inside)
    assert place.stored(copied[0]) == {copied[0]: b""}


def test_a_copy_that_lands_when_the_source_was_deleted_changes_nothing() -> None:
    place = tiny()
    session(place, 4)
    late = [
        Fault(verb=verb, key=f"{kind}/{NEW}/", when="late", seconds=5)
        for verb in ("put", "copy")
        for kind in ("blocks", "values")
    ]
    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), late, clock=place.clock)
    fork(Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes), SID, NEW)
    delete(fresh(place), SID)
    seen = place.stored("")
    assert len(bucket.land()) >= 2
    assert place.stored("") == seen
    assert len(fresh(place).history(NEW)) == 8
    check(place, NEW)


def test_blocks_and_values_take_the_way_that_the_store_offers(inside: bool) -> None:
    place = tiny()
    session(place, 4)
    before = len(place.bucket.calls)
    fork(place.db, SID, NEW)
    asked = place.bucket.calls[before:]
    sealed = [call.verb for call in asked if call.key.startswith((f"blocks/{NEW}/", f"values/{NEW}/"))]
    assert len(sealed) >= 3
    assert set(sealed) == {"copy" if inside else "put"}
    assert ("head" in {call.verb for call in asked if call.key.startswith(f"values/{SID}/")}) is inside


@pytest.mark.parametrize("kind", [Remote, *NO_CREATES_BY_COPY])
def test_a_store_that_is_not_known_copies_where_the_probe_has_found_that_it_creates(
    kind: type[Remote], inside: bool
) -> None:
    place = tiny()
    session(place, 4)
    bucket = FaultyBucket(kind(place.clock, space=place.space), clock=place.clock)
    fork(Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes), SID, NEW)
    by_the_store = [call.key for call in bucket.calls if call.verb == "copy" and f"/{NEW}/" in call.key]
    assert bool(by_the_store) is (inside and kind is Remote)
    assert fresh(place).history(NEW) == fresh(place).history(SID)
    check(place, NEW)


@pytest.mark.parametrize("act", ["delete", "redact"])
def test_a_fork_that_slept_keeps_its_copies_whatever_became_of_the_source(act: str) -> None:
    place = tiny()
    session(place, 4)

    def asleep() -> None:
        place.clock.advance(2 * HOURS)
        if act == "delete":
            delete(fresh(place), SID)
        else:
            redact(fresh(place), SID, "u2")

    fork(interrupted(place, "put", keys.snapshot(NEW), 1, asleep), SID, NEW)
    assert len(fresh(place).history(NEW)) == 8
    check(place, NEW)


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
    with pytest.raises(Refused, match="from turn 7 on"):
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
    with pytest.raises(Refused, match="was deleted" if there == "deleted" else "exists"):
        fork(place.db, SID, target)
    assert place.stored("") == before


def test_no_source(place: Place) -> None:
    with pytest.raises(Refused, match="not there"):
        fork(place.db, "nobody", NEW)
    delete(place.db, SID)
    with pytest.raises(Refused, match="is deleted"):
        fork(place.db, SID, NEW)


@pytest.mark.parametrize("open_turn", [False, True])
def test_a_source_that_has_ended_no_turn_is_told_as_that(open_turn: bool) -> None:
    place = Place()
    place.send("u1")
    if open_turn:
        first_turn(place.db.boot(SID)).flush()
    with pytest.raises(Refused, match="has ended no turn yet"):
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
        if keys.snapshot(NEW) not in place.stored("sessions/"):
            fork(place.db, SID, NEW)
        assert len(fresh(place).history(NEW)) == 8, number
        check(place, NEW)
        if not killed:
            assert number > 15
            break


def test_of_a_fork_that_slept_nothing_is_tidied_away() -> None:
    for prefix in ("blocks/", "out/", "checkpoints/", "sessions/"):
        place = tiny()
        session(place, 7)

        def asleep(place: Place = place) -> None:
            place.clock.advance(24 * HOURS)
            with suppress(Corrupt):
                gc(fresh(place), NEW)

        fork(interrupted(place, "put", f"{prefix}{NEW}/", 2 if prefix == "out/" else 1, asleep), SID, NEW)
        assert len(fresh(place).history(NEW)) == 14
        check(place, NEW)


def test_what_is_sent_before_a_fork_is_run_again_is_owed() -> None:
    begun = 0
    for number in count(1):
        place = tiny()
        session(place, 4)
        if not killed_at(place, number, "before", lambda db: fork(db, SID, NEW)):
            break
        if not place.stored(f"out/{NEW}/"):
            continue  # nothing of a fork stands there yet
        begun += 1
        fresh(place).send(NEW, user("new"))
        if keys.snapshot(NEW) not in place.stored("sessions/"):
            fork(fresh(place), SID, NEW)
        assert [item.ids for item in fresh(place).peek(NEW).pending] == [(1,)], number
        with fresh(place).boot(NEW) as booted, first_turn(booted) as turn:
            write_all(turn, [{"type": "start"}, call("c")])
        assert len(fresh(place).history(NEW)) == 10, number
        check(place, NEW)
    assert begun > 5


def test_a_fork_that_was_broken_off_is_run_again_after_a_nightly_maintenance() -> None:
    for number in count(1):
        place = tiny()
        session(place, 4)
        killed = killed_at(place, number, "before", lambda db: fork(db, SID, NEW))
        place.clock.advance(24 * HOURS)
        maintain(fresh(place))
        if keys.snapshot(NEW) not in place.stored("sessions/"):
            fork(fresh(place), SID, NEW)
        assert len(fresh(place).history(NEW)) == 8, number
        check(place, NEW)
        if not killed:
            break


def test_a_fork_that_can_be_read_is_rebuilt_from_its_checkpoint() -> None:
    for number in count(1):
        place = tiny()
        session(place, 4)
        killed = killed_at(place, number, "before", lambda db: fork(db, SID, NEW))
        try:
            shown = len(fresh(place).history(NEW))
        except (Gap, Corrupt):
            continue
        if not shown:
            continue
        place.db.send(NEW, user("n1"))
        with fresh(place).boot(NEW) as booted, first_turn(booted) as turn:
            write_all(turn, [{"type": "start"}, call("c")])
        with pytest.raises(Refused, match="exists"):
            fork(fresh(place), SID, NEW)
        (found,) = rebuild_in(fresh(place), Options(), [NEW])
        assert (found.status, len(fresh(place).history(NEW))) == ("same", 10), (number, found)
        check(place, NEW)
        if not killed:
            break


def test_a_fork_of_a_session_without_a_turn_is_rebuilt() -> None:
    place = Place()
    place.db.create(SID, messages=[user("h1", "what came from elsewhere")])
    fork(place.db, SID, NEW)
    assert list(place.stored("checkpoints/")) == [keys.checkpoint(NEW, 0)]
    assert [found.status for found in rebuild_in(fresh(place), Options(), [NEW])] == ["same"]
    place.bucket.inner.delete(keys.snapshot(NEW))
    assert [message["id"] for message in fresh(place).history(NEW)] == ["h1"]


@pytest.mark.parametrize("turns", [0, 2])
def test_a_fork_that_is_redacted_can_still_be_rebuilt(turns: int) -> None:
    place = Place()
    place.db.create(SID, messages=[user("h1", "SECRET")])
    session(place, turns)
    fork(place.db, SID, NEW)
    place.bucket.inner.put(f"checkpoints/{NEW}/notes.txt", b"mine")
    redact(place.db, NEW, "h1")
    stored = place.stored("")
    assert not [key for key, data in stored.items() if f"/{NEW}/" in key and b"SECRET" in data]
    assert stored[f"checkpoints/{NEW}/notes.txt"] == b"mine"
    assert [found.status for found in rebuild_in(fresh(place), Options(), [NEW])] == ["same"]
    check(place, NEW)


def test_a_fork_of_another_session_is_not_taken_for_this_one() -> None:
    place = Place()
    session(place, 3)
    place.db.create("second", messages=[user("x")])

    def killed() -> None:
        raise Killed

    with pytest.raises(Killed):
        fork(interrupted(place, "put", keys.snapshot(NEW), 1, killed), SID, NEW)
    with pytest.raises(Refused, match="exists"):
        fork(fresh(place), "second", NEW)
    assert len(fresh(place).history(NEW)) == 6
    check(place, NEW)


def test_a_source_with_a_hole_is_no_source() -> None:
    place = Place()
    session_of(place, 3)
    place.bucket.inner.delete(keys.snapshot(SID))
    place.bucket.inner.delete(keys.segment("out", SID, 1))
    with pytest.raises(Gap):
        fork(place.db, SID, NEW)
    assert not [key for key in place.stored("") if f"/{NEW}/" in key]


def test_a_fork_that_slept_over_its_first_look_begins_anew() -> None:
    """What the snapshot named that it had read was merged and tidied away meanwhile; nothing is missing."""
    place = tiny()
    session(place, 6)

    def meanwhile() -> None:
        session(place, 30, name="v")
        place.clock.advance(24 * HOURS)
        assert gc(fresh(place), SID).deleted

    fork(interrupted(place, "get", "blocks/", 1, meanwhile), SID, "copy")
    assert fresh(place).history("copy") == fresh(place).history(SID)
    check(place, "copy")


def test_a_fork_that_was_broken_off_is_nobody_elses_to_go_on_with() -> None:
    """Killed around any request: another source, or turn, is refused, and it becomes what it was begun as."""
    for other in (("other", None), (SID, 1)):
        for number in range(1, 60):
            place = Place()
            session_of(place, 3)
            session_of(place, 2, "other")
            if not killed_at(place, number, "after", lambda db: fork(db, SID, "new")):
                break
            with suppress(Refused):
                fork(fresh(place), other[0], "new", turn=other[1])
                told = b"".join(place.stored("out/new/").values())
                assert (b"fork of other" if other[1] is None else b"after turn 1") in told, number
                continue  # nothing was begun yet, so it is the other's
            with suppress(Refused):  # it was through
                fork(fresh(place), SID, "new")
            assert fresh(place).history("new") == fresh(place).history(SID), number
        assert number > 5
