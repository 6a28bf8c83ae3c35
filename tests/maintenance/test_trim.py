"""Trimming: the logs lose their beginning, the session loses nothing, whoever else is at work."""

from __future__ import annotations

import json
from itertools import count
from typing import Any, Literal

import pytest
from chat_samples import SID, Place, call, first_turn, saying, user, write_all
from upkeep import HOURS, check, fresh, killed_at, names, picture, session_of, watched

from snapshotter import Corrupt, Gap, InvalidValue, Refused
from snapshotter.checkpoints import above
from snapshotter.maintenance import Keep, Rules, compact, maintain, trim
from snapshotter.verify import verify
from streams import keys
from streams.log import Vanished
from streams.testing.faults import Fault

SNAPSHOT = keys.snapshot(SID)


@pytest.fixture
def place() -> Place:
    return Place()


def snapshots(place: Place, turns: int) -> list[bytes]:
    """A session of so many turns, and its snapshot as it was after each of them."""
    found = []
    for number in range(1, turns + 1):
        place.send(f"u{number}")
        place.answer(f"answer {number}")
        found.append(place.stored(SNAPSHOT)[SNAPSHOT])
    place.clock.advance(24 * HOURS)
    return found


def put(place: Place, data: bytes) -> None:
    """Put an old snapshot back, as a slow writer does where a store cannot replace under a condition."""
    place.bucket.inner.put(SNAPSHOT, data)


def remove(place: Place, key: str) -> None:
    place.bucket.inner.delete(key)


def test_what_the_snapshot_covers_goes_and_the_newest_turn_stays_whole(place: Place) -> None:
    session_of(place, 4)
    seen = picture(place)
    start = place.controls("turn-start")[-1]["id"]
    done = trim(place.db, SID, keep=Keep(turns=1))
    assert names(place.stored("out/"))[0] == start
    assert names(place.stored("in/")) == [4]
    assert list(place.stored("checkpoints/")) == [keys.checkpoint(SID, 4)]
    assert place.stored("checkpoints/")[keys.checkpoint(SID, 4)] == place.stored(SNAPSHOT)[SNAPSHOT]
    assert done.written == 1
    assert done.freed > 1000
    assert picture(place) == seen
    check(place)
    verdict = verify(place.db, SID)
    assert not verdict.rebuildable
    assert {note.code for note in verdict.notes} == {"not-rebuildable"}


def test_a_trimmed_session_works_on(place: Place) -> None:
    session_of(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    assert place.send("u4").id == 4
    place.answer("four")
    assert [m["id"] for m in fresh(place).history(SID) if m["role"] == "user"] == ["u1", "u2", "u3", "u4"]
    check(place)
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    assert names(place.stored("in/")) == [4]
    check(place)


def test_a_receipt_of_an_input_that_was_trimmed_is_answered(place: Place) -> None:
    receipt = place.send("u1")
    place.answer("one")
    session_of(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    with place.db.boot(receipt=receipt) as session:
        assert list(session.turns()) == []


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (Keep(turns=2), 2),
        (Keep(turns=9), 5),
        (Keep(seconds=30 * HOURS), 5),
        (Keep(seconds=10 * HOURS), 1),
        (Keep(bytes=10**6), 5),
        (Keep(turns=2, bytes=1), 2),
    ],
)
def test_what_is_kept(place: Place, keep: Keep, left: int) -> None:
    session_of(place, 5)
    trim(place.db, SID, keep=keep)
    assert len(place.controls("turn-start")) == left
    assert place.records()[0]["control"] == "turn-start"
    assert len(place.stored("in/")) == left
    check(place)


@pytest.mark.parametrize("wrong", [{"turns": -1}, {"turns": True}, {"seconds": -1}, {"bytes": "1"}])
def test_what_cannot_be_kept_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=r"keep\."):
        Keep(**wrong)


def test_what_is_no_keep_is_refused_before_anything_is_read(place: Place) -> None:
    session_of(place, 3)
    wrong: Any = 5
    for asked in (lambda: trim(place.db, SID, keep=wrong), lambda: maintain(place.db, keep=wrong)):
        with pytest.raises(InvalidValue, match=r"Keep\(turns=10\)"):
            asked()


def test_nothing_younger_than_the_minimum_age_goes(place: Place) -> None:
    session_of(place, 3)
    before = place.stored("")
    assert trim(place.db, SID, rules=Rules(minimum_age=48 * HOURS), keep=Keep(turns=1)).deleted == 0
    assert place.stored("") == before


def test_it_is_idempotent_and_a_dry_run_says_the_same(place: Place) -> None:
    session_of(place, 3)
    before = place.stored("")
    dry = trim(place.db, SID, dry_run=True, keep=Keep(turns=1))
    assert place.stored("") == before
    done = trim(place.db, SID, keep=Keep(turns=1))
    assert (dry.written, dry.deleted, dry.freed) == (done.written, done.deleted, done.freed)
    after = place.stored("")
    assert trim(place.db, SID, keep=Keep(turns=1)).deleted == 0
    assert place.stored("") == after


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_any_request_it_is_run_again(when: Literal["before", "after"]) -> None:
    for number in count(1):
        place = Place()
        session_of(place, 3)
        seen = picture(place)
        killed = killed_at(place, number, when, lambda db: trim(db, SID, keep=Keep(turns=1)))
        assert picture(place) == seen, number
        check(place)
        if not killed:
            assert number > 30
            break
        trim(place.db, SID, keep=Keep(turns=1))
        assert names(place.stored("in/")) == [3], number
        assert place.records()[0]["control"] == "turn-start", number
        assert picture(place) == seen, number
        check(place)


def test_readers_at_any_moment_see_the_same_session(place: Place) -> None:
    session_of(place, 3)
    seen = picture(place)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        assert picture(place) == seen

    trim(watched(place, look), SID, keep=Keep(turns=1))
    assert looks > 30


def test_beside_a_running_worker(place: Place) -> None:
    session_of(place, 3)
    place.db.send(SID, user("u4"))
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call("c9")])
    turn.flush()
    trim(fresh(place), SID, keep=Keep(turns=1))
    write_all(turn, list(saying("four"))[1:])
    turn.complete()
    session.close()
    assert len(fresh(place).history(SID)) == 8
    check(place)


def test_an_interrupted_turn_survives(place: Place) -> None:
    session_of(place, 3)
    place.db.send(SID, user("u4"))
    turn = first_turn(place.db.boot(SID))
    write_all(turn, [{"type": "start"}, call("c9")])
    turn.flush()
    place.clock.advance(24 * HOURS)
    seen = picture(place)
    trim(fresh(place), SID, keep=Keep(turns=1))
    assert picture(place) == seen
    assert "c9" in seen
    check(place)


@pytest.mark.parametrize("old", [0, 1, 2, None])
def test_an_old_snapshot_over_a_trimmed_log_goes_on_from_the_checkpoint(
    place: Place, old: int | None
) -> None:
    stored = snapshots(place, 4)
    seen = picture(place)
    trim(place.db, SID, keep=Keep(turns=1))
    if old is None:
        remove(place, SNAPSHOT)
    else:
        put(place, stored[old])
    assert picture(place) == seen
    with place.db.boot(SID) as session:
        codes = [note["code"] for note in session.report]
        assert codes == ([] if old == 2 else ["checkpoint-used"]), "what follows turn 3 is still there"
    place.send("u5")
    place.answer("five")
    assert json.loads(place.stored(SNAPSHOT)[SNAPSHOT])["turn"] == 5, "and the next turn saves a whole one"
    check(place)


def test_a_damaged_snapshot_over_a_trimmed_log_is_read_from_the_checkpoint_and_left(place: Place) -> None:
    snapshots(place, 3)
    seen = picture(place)
    trim(place.db, SID, keep=Keep(turns=1))
    put(place, b"{")
    assert picture(place) == seen
    place.send("u4")
    with place.db.boot(SID) as session:
        assert [note["code"] for note in session.report] == ["snapshot-unreadable"]
    place.answer("four")
    assert place.stored(SNAPSHOT)[SNAPSHOT] == b"{"


def test_a_claim_over_a_trimmed_log_loads(place: Place) -> None:
    stored = snapshots(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    put(place, stored[0])
    place.send("u4")
    place.answer("four", claim=True)
    assert len(place.db.history(SID)) == 8


def test_a_hole_above_the_checkpoint_is_a_gap(place: Place) -> None:
    stored = snapshots(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    known = set(place.stored("out/"))
    for number in (4, 5):
        place.send(f"u{number}")
        place.answer("more")
    fourth = names(set(place.stored("out/")) - known)[0]
    put(place, stored[0])
    assert len(place.db.history(SID)) == 10
    remove(place, keys.segment("out", SID, fourth))
    with pytest.raises(Gap):
        place.db.history(SID)


def test_without_a_checkpoint_a_gap_is_a_gap(place: Place) -> None:
    snapshots(place, 3)
    remove(place, SNAPSHOT)
    remove(place, keys.segment("out", SID, 1))
    with pytest.raises(Gap, match="out log"):
        place.db.history(SID)
    assert above(place.db.store, SID, 0) is None


def test_a_snapshot_that_is_replaced_while_it_is_read_starts_the_boot_again(place: Place) -> None:
    stored = snapshots(place, 3)
    newest = place.stored(SNAPSHOT)[SNAPSHOT]
    remove(place, keys.segment("out", SID, 1))
    put(place, stored[0])
    second = next(n for n in names(place.stored("out/")) if n > int(json.loads(stored[0])["lastOutEventId"]))
    remove(place, keys.segment("out", SID, second))
    replaced = iter([True])

    def hook(asked: Any, when: str) -> None:
        if asked.key.startswith("checkpoints/") and next(replaced, False):
            put(place, newest)

    place.bucket.hook = hook
    assert len(place.db.history(SID)) == 6

    spaces = count(1)

    def flip(asked: Any, when: str) -> None:
        if asked.key.startswith("checkpoints/") and when == "after":
            put(place, stored[0] + b" " * next(spaces))

    put(place, stored[0])
    place.bucket.hook = flip
    with pytest.raises(Vanished):
        place.db.history(SID)


def test_a_session_that_does_not_verify_is_not_trimmed(place: Place) -> None:
    session_of(place, 3)
    document = json.loads(place.stored(SNAPSHOT)[SNAPSHOT])
    del document["crc"]
    document["messages"] = document["messages"][:2]
    put(place, json.dumps(document).encode())
    before = place.stored("")
    with pytest.raises(Refused, match="does not verify: law"):
        trim(place.db, SID, keep=Keep(turns=1))
    assert place.stored("") == before


def test_a_snapshot_that_cannot_be_read_is_not_rested_on(place: Place) -> None:
    session_of(place, 3)
    put(place, b"{")
    before = place.stored("")
    with pytest.raises(Corrupt):
        trim(place.db, SID, keep=Keep(turns=1))
    assert place.stored("") == before


def test_nothing_to_rest_on(place: Place) -> None:
    place.db.send("other", user("a"))
    assert trim(place.db, "other", keep=Keep(turns=1)).why == "there is no snapshot yet"
    place.db.create(SID, messages=[user("a")])
    place.clock.advance(24 * HOURS)
    assert trim(place.db, SID, keep=Keep(turns=1)).why == "no turn has ended yet"


def test_a_second_trim_at_the_same_turn_rests_on_the_checkpoint_that_is_there(place: Place) -> None:
    session_of(place, 2)
    place.bucket.plan.append(Fault("delete", times=0))
    with pytest.raises(Exception, match="injected"):
        trim(place.db, SID, keep=Keep(turns=1))
    place.bucket.plan.clear()
    kept = place.stored("checkpoints/")
    with place.db.boot(SID) as session:
        session.set_state({"a": 1})
    seen = picture(place)
    trim(place.db, SID, keep=Keep(turns=1))
    assert place.stored("checkpoints/") == kept
    assert picture(place) == seen
    check(place)


def test_a_snapshot_that_fell_behind_the_checkpoint_is_brought_up_before_anything_goes(place: Place) -> None:
    stored = snapshots(place, 4)

    def hook(asked: Any, when: str) -> None:
        if asked.verb == "put" and asked.key.startswith("checkpoints/") and when == "after":
            put(place, stored[1])

    place.bucket.hook = hook
    trim(place.db, SID, keep=Keep(turns=1))
    assert place.stored(SNAPSHOT)[SNAPSHOT] == stored[3]


def test_two_that_trim_at_once(place: Place) -> None:
    session_of(place, 4)
    seen = picture(place)
    other = fresh(place)
    deleted: list[int] = []

    def meanwhile() -> None:
        if not deleted and place.stored("checkpoints/"):
            deleted.append(trim(other, SID, keep=Keep(turns=1)).deleted)

    trim(watched(place, meanwhile), SID, keep=Keep(turns=1))
    assert deleted[0] > 10
    assert picture(place) == seen
    check(place)


def test_trimming_and_compaction_together(place: Place) -> None:
    for number in range(4):
        session_of(place, 3 + number)
        seen = picture(place)
        compact(place.db, SID)
        trim(place.db, SID, keep=Keep(turns=2))
        place.clock.advance(24 * HOURS)
        trim(place.db, SID, keep=Keep(turns=2))
        assert picture(place) == seen
        assert len(place.controls("turn-start")) == 2
        check(place)
