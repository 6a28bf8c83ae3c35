"""gc: what nobody names goes, what somebody names or may still name stays."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Literal

import pytest
from blocky import LARGE, session, tiny
from chat_samples import SID, Place, die, first_turn, user
from upkeep import HOURS, check, fresh, killed_at, names, picture, session_of, watched

from snapshotter import Corrupt, Fenced
from snapshotter.maintenance import Keep, Rules, delete, gc, maintain, trim
from streams import keys
from streams.testing.faults import Call

SNAPSHOT = keys.snapshot(SID)
NAME = "0" * 64 + "-abc123abc123"


@pytest.fixture
def place() -> Place:
    return Place()


def litter(place: Place, name: str = NAME) -> tuple[str, str]:
    """A block and a value that nobody names."""
    made = keys.block(SID, name), keys.value(SID, name)
    for key in made:
        place.bucket.inner.put(key, b"[]")
    return made


def test_what_nobody_names_goes_once_it_is_old(place: Place) -> None:
    session_of(place, 2)
    made = litter(place)
    assert gc(place.db, SID).deleted == 0
    place.clock.advance(5 * HOURS)
    assert gc(place.db, SID).deleted == 0
    place.clock.advance(2 * HOURS)
    assert gc(place.db, SID, rules=Rules(8 * HOURS)).deleted == 0
    dry = gc(place.db, SID, dry_run=True)
    assert set(made) <= set(place.stored(""))
    done = gc(place.db, SID)
    assert (done.deleted, done.freed) == (dry.deleted, dry.freed) == (2, 4)
    assert not set(made) & set(place.stored(""))
    check(place)


@pytest.mark.parametrize("where", ["in", "out"])
def test_a_value_that_a_record_names_stays(place: Place, where: str) -> None:
    if where == "in":
        place.db.action(SID, "look", {"at": NAME})
    session_of(place, 2)
    with place.db.boot(SID) as session:
        session.set_state({"seen": NAME} if where == "out" else {})
        session.set_state({"seen": None})
    block, value = litter(place)
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    assert value in place.stored("")
    assert block not in place.stored(""), "records name no blocks"


def test_what_a_checkpoint_names_stays(place: Place) -> None:
    session_of(place, 2)
    with place.db.boot(SID) as session:
        session.set_state({"seen": NAME})
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    with place.db.boot(SID) as session:
        session.set_state(unset=["seen"])
    made = litter(place)
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    assert set(made) <= set(place.stored(""))


def test_it_lists_before_it_reads(place: Place) -> None:
    """What is sealed and named after the listing is not even looked at."""
    session_of(place, 2)
    litter(place)
    place.clock.advance(24 * HOURS)
    late = keys.block(SID, "1" * 64 + "-abc")

    def hook(asked: Call, when: str) -> None:
        if asked.verb == "get" and when == "before":
            place.bucket.inner.put(late, b"[]")
            place.clock.advance(24 * HOURS)  # and however long it takes

    place.bucket.hook = hook
    gc(place.db, SID)
    place.bucket.hook = None
    assert late in place.stored("")
    assert keys.block(SID, NAME) not in place.stored("")


def test_a_session_that_lost_its_snapshot_keeps_everything(place: Place) -> None:
    session_of(place, 2)
    made = litter(place)
    place.bucket.inner.delete(SNAPSHOT)
    place.clock.advance(24 * HOURS)
    assert gc(place.db, SID).deleted == 0
    assert set(made) <= set(place.stored(""))


@pytest.mark.parametrize("broken", [SNAPSHOT, keys.segment("out", SID, 1), keys.segment("in", SID, 1)])
def test_what_cannot_be_read_ends_it(place: Place, broken: str) -> None:
    session_of(place, 2)
    litter(place)
    place.bucket.inner.put(broken, b"broken")
    place.clock.advance(24 * HOURS)
    before = place.stored("")
    with pytest.raises(Corrupt):
        gc(place.db, SID)
    assert place.stored("") == before


def test_old_checkpoints_go_and_the_newest_stays(place: Place) -> None:
    for turns in (2, 4, 6):
        session_of(place, turns)
        trim(place.db, SID, keep=Keep(turns=1))
    newest = keys.checkpoint(SID, place.db.peek(SID).fold.turn)
    assert len(place.stored("checkpoints/")) == 3
    seen = picture(place)
    place.clock.advance(24 * HOURS)
    assert gc(place.db, SID).deleted == 2
    assert list(place.stored("checkpoints/")) == [newest]
    place.bucket.inner.delete(SNAPSHOT)
    assert picture(place) == seen


def test_after_a_deletion_only_the_fence_the_tombstone_and_the_newest_input_stay(place: Place) -> None:
    session_of(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    session_of(place, 5)
    litter(place)
    delete(place.db, SID)
    assert gc(place.db, SID).deleted == 0, "too young"
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    left = place.stored("")
    fence = names(k for k in left if k.startswith("out/"))
    inputs = names(k for k in left if k.startswith("in/"))
    assert (len(left), len(fence), len(inputs)) == (3, 1, 1)
    assert place.send("u9").id == inputs[0] + 1
    place.db.create(SID, messages=[user("a", "again")])
    assert [m["id"] for m in place.db.history(SID)] == ["a"]
    place.send("u10")
    place.answer("ten")
    check(place)


def test_what_a_writer_that_slept_left_below_a_tombstone_goes(place: Place) -> None:
    session_of(place, 2)
    place.send("u9")
    zombie = place.db.boot(SID)
    turn = first_turn(zombie)
    turn.write({"type": "start"})
    turn.flush()
    delete(fresh(place), SID)
    place.clock.advance(24 * HOURS)
    gc(fresh(place), SID)
    turn.write({"type": "text-start", "id": "t"})
    with pytest.raises(Fenced):
        turn.flush()
    die(zombie)
    gc(fresh(place), SID)
    before = len(place.stored("out/"))
    place.clock.advance(24 * HOURS)
    gc(fresh(place), SID)
    assert (before, len(place.stored("out/"))) == (1, 1), "its place was the fence's"


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_any_request_it_is_run_again(when: Literal["before", "after"]) -> None:
    for number in count(1):
        place = Place()
        session_of(place, 2)
        trim(place.db, SID, keep=Keep(turns=1))
        session_of(place, 1)
        seen = picture(place)
        litter(place)
        place.clock.advance(24 * HOURS)
        killed = killed_at(place, number, when, lambda db: gc(db, SID))
        assert picture(place) == seen
        check(place)
        gc(place.db, SID)
        assert not place.stored("blocks/")
        assert picture(place) == seen
        if not killed:
            assert number > 8
            break


def test_merged_blocks_and_forgotten_values_go() -> None:
    place = tiny()
    session(place, 9)
    seen = picture(place)
    named = place.stored(SNAPSHOT)[SNAPSHOT].decode()
    blocks, values = place.stored("blocks/"), place.stored("values/")
    live = {key for key in blocks if keys.parse_content(key)[2] in named}
    assert 0 < len(live) < len(blocks), "merges leave blocks behind"
    gc(place.db, SID)
    assert set(place.stored("blocks/")) == live
    assert place.stored("values/") == values, "the log names them all"
    assert picture(place) == seen
    check(place)
    trim(place.db, SID, keep=Keep(turns=1))
    with place.db.boot(SID) as booted:
        booted.edit_history("remove", message_id="u3")
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    place.send("u10")
    place.answer("ten")
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    gc(place.db, SID)  # removes the checkpoint that names it
    gc(place.db, SID)
    assert 0 < len(place.stored("values/")) < len(values)
    check(place)


def test_a_block_that_cannot_be_read_ends_it() -> None:
    place = tiny()
    session(place, 6)
    litter(place)
    place.clock.advance(24 * HOURS)
    named = place.stored(SNAPSHOT)[SNAPSHOT].decode()
    key = next(key for key in place.stored("blocks/") if keys.parse_content(key)[2] in named)
    place.bucket.inner.put(key, b"broken")
    place.clock.advance(24 * HOURS)
    before = place.stored("")
    with pytest.raises(Corrupt, match="is not what its name says"):
        gc(place.db, SID)
    assert place.stored("") == before


@pytest.mark.parametrize("how", ["another", "longer", "cut"])
def test_a_block_that_is_not_what_its_name_says_ends_it(how: str) -> None:
    """As a boot reads it, so does the sweep: what the right one names would be taken for garbage."""
    place = tiny()
    session(place, 6)
    litter(place)
    place.clock.advance(24 * HOURS)
    named = place.stored(SNAPSHOT)[SNAPSHOT].decode()
    key = next(key for key in place.stored("blocks/") if keys.parse_content(key)[2] in named)
    other = next(data for name, data in place.stored("blocks/").items() if name != key)
    right = place.stored(key)[key]
    wrong = {"another": other, "longer": right + b"x", "cut": right[:-9]}
    place.bucket.inner.put(key, wrong[how])
    place.clock.advance(24 * HOURS)
    before = place.stored("")
    with pytest.raises(Corrupt, match="is not what its name says"):
        gc(place.db, SID)
    assert place.stored("") == before


@pytest.mark.parametrize(("which", "number"), [("in", 2), ("in", -1), ("out", 3), ("out", -1)])
def test_an_empty_segment_of_a_session_that_nobody_deleted_ends_it(which: str, number: int) -> None:
    place = tiny()
    session(place, 6)
    litter(place)
    place.db.send(SID, user("u9", LARGE))
    place.clock.advance(24 * HOURS)
    place.bucket.inner.put(sorted(place.stored(f"{which}/"), reverse=True)[number], b"")
    place.clock.advance(24 * HOURS)
    before = place.stored("")
    with pytest.raises(Corrupt, match="is empty, and no deletion accounts for it"):
        gc(place.db, SID)
    assert place.stored("") == before


def test_what_a_deletion_emptied_is_swept_also_when_the_session_was_opened_again() -> None:
    place = tiny()
    session(place, 4)
    delete(place.db, SID)
    place.send("late")
    delete(place.db, SID)
    place.db.create(SID)
    place.db.send(SID, user("u9", LARGE))
    place.answer()
    place.clock.advance(24 * HOURS)
    assert gc(place.db, SID).deleted
    assert all(place.stored("").values())
    check(place)


def test_deletion_takes_blocks_and_values_too() -> None:
    place = tiny()
    session(place, 6)
    delete(place.db, SID)
    assert not any(place.stored("blocks/").values())
    assert not any(place.stored("values/").values())
    assert LARGE not in b"".join(place.stored("").values()).decode()
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    assert not place.stored("blocks/") | place.stored("values/")
    place.db.create(SID)
    session(place, 3, name="v")
    assert len(place.db.history(SID)) == 6
    check(place)


def test_upkeep_of_a_long_session_with_blocks_keeps_everything_readable() -> None:
    place = tiny()
    for number in range(4):
        session(place, 7, name=f"n{number}-")
        seen = picture(place)
        for kept in maintain(place.db, keep=Keep(turns=2)):
            assert kept.error is None, kept.error
        assert picture(place) == seen
        check(place)
    assert len(place.db.history(SID)) == 56
    place.bucket.inner.delete(SNAPSHOT)
    assert picture(place) == seen, "the checkpoint's blocks are all there"


def test_what_a_deletion_emptied_late_stands_no_longer_in_the_way_behind_a_trim() -> None:
    """Opened again, the session was trimmed above the deletion; what that emptied last is too young to go."""
    place = Place()
    session_of(place, 3)
    delete(watched(place, lambda: place.clock.advance(0.2 * HOURS)), SID)
    place.db.create(SID)
    for number in (8, 9):
        place.db.send(SID, user(f"u{number}"))
        place.answer()
    rules = Rules(minimum_age=1 * HOURS)
    emptied = [key for key, data in place.stored("in/").items() if not data]
    for _ in range(40):
        trim(place.db, SID, keep=Keep(turns=1), rules=rules)
        if any(not data for data in place.stored("in/").values()) and not _tells(place, "session-deleted"):
            break
        place.clock.advance(0.1 * HOURS)
    else:
        raise AssertionError("the trim took the deletion and what it emptied at the same time")
    assert emptied
    gc(place.db, SID, rules=rules)
    place.clock.advance(24 * HOURS)
    gc(place.db, SID, rules=rules)
    assert all(place.stored("in/").values())
    check(place)


def _tells(place: Place, word: str) -> bool:
    return any(word.encode() in data for data in place.stored("out/").values())


@pytest.mark.parametrize("room", ["blocks", "values", "checkpoints"])
def test_what_is_no_object_of_ours_is_left_alone_and_told(room: str) -> None:
    place = tiny()
    session(place, 6)
    litter(place)
    place.bucket.inner.put(f"{room}/{SID}/notes.txt", b"mine")
    place.clock.advance(24 * HOURS)
    done = gc(place.db, SID)
    assert done.deleted
    assert done.why == f"left alone, since no such object is ours: {room}/{SID}/notes.txt"
    assert place.stored(f"{room}/{SID}/notes.txt")
    check(place)


def test_content_of_an_id_that_never_became_a_session_is_swept_when_it_is_old() -> None:
    place = Place()
    for number in count(1):
        assert killed_at(place, number, "before", lambda db: db.send(SID, user("u", "x" * 50_000)))
        if place.stored("values/"):
            break
    assert not place.stored("in/")
    maintain(fresh(place))
    assert place.stored("values/"), "a sender may be about to name it"
    place.clock.advance(24 * HOURS)
    (dry,) = maintain(fresh(place), [SID], dry_run=True)
    (kept,) = maintain(fresh(place))
    assert (kept.session, kept.error, kept.done) == (
        SID,
        None,
        [replace(one, dry_run=False) for one in dry.done],
    )
    assert not place.stored("")
