"""Deletion: the content is gone, nobody brings it back, and only an explicit create opens the session."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count, islice
from typing import Any, Literal

import pytest
from blocky import session as long_session
from blocky import tiny
from chat_samples import SID, Place, call, die, first_turn, saying, user, write_all
from upkeep import HOURS, check, fresh, interrupted, killed_at, names, session_of, watched

from snapshotter import Closed, Corrupt, Fenced, NewerVersion, Refused, Unreachable, saving
from snapshotter.database import Database
from snapshotter.maintenance import Keep, compact, delete, fork, trim
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, Fault, FaultyBucket

SNAPSHOT = keys.snapshot(SID)


@pytest.fixture
def place() -> Place:
    return Place()


def words(place: Place) -> str:
    """Everything that is stored, as one text."""
    return b"\n".join(place.stored("").values()).decode()


def is_gone(place: Place) -> None:
    """Nothing of what was said is stored, and the session is deleted to whoever asks."""
    stored = words(place)
    assert "answer" not in stored
    assert "u1" not in stored
    assert "hi" not in [p["text"] for r in place.records("in") for p in r.get("message", {}).get("parts", [])]
    db = fresh(place)
    assert db.history(SID) == []
    with pytest.raises(Closed, match="deleted"), db.boot(SID) as session:
        list(session.turns())


def test_the_content_is_gone_and_the_keys_stay(place: Place) -> None:
    session_of(place, 3)
    before = place.stored("")
    done = delete(place.db, SID)
    is_gone(place)
    after = place.stored("")
    assert set(before) < set(after)
    full = [key for key, data in after.items() if data and key != SNAPSHOT]
    assert names(key for key in full if key.startswith("in/")) == [3]
    assert place.records("in") == [{"id": 3, "ts": place.clock.now_ms(), "kind": "deleted"}]
    assert [r["control"] for r in place.records()] == ["fence", "session-deleted"]
    tombstone = json.loads(after[SNAPSHOT])
    assert (tombstone["deleted"], tombstone["messages"], tombstone["keys"]) == (True, [], [])
    assert tombstone["lastOutEventId"] == str(place.records()[-1]["id"])
    assert done.written == 2
    assert done.freed > 1000


def test_checkpoints_go_too(place: Place) -> None:
    session_of(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    delete(place.db, SID)
    is_gone(place)
    assert list(place.stored("checkpoints/").values()) == [b""]


def test_only_create_opens_it_again_and_ids_go_on(place: Place) -> None:
    session_of(place, 2)
    last = place.records()[-1]["id"]
    epoch = place.db.peek(SID).fold.epoch
    delete(place.db, SID)
    is_gone(place)
    assert place.db.send(SID, user("late", "too late")).id == 3
    assert fresh(place).peek(SID).pending == []
    assert fresh(place).history(SID) == [], "nobody will ever answer it"
    tombstone = place.stored(SNAPSHOT)[SNAPSHOT]
    place.db.create(SID, messages=[user("a", "new life")])
    saved = place.stored(SNAPSHOT)[SNAPSHOT]
    place.bucket.inner.put(SNAPSHOT, tombstone)  # as after a snapshot that failed
    session = fresh(place).peek(SID)
    assert session.fold.epoch == epoch + 3, "what was sent in between goes by a deletion, too"
    assert session.fold.cursor > last
    assert [m["id"] for m in session.messages] == ["a"]
    assert session.pending == []
    assert "too late" not in words(place)
    place.bucket.inner.put(SNAPSHOT, saved)
    assert place.send("u1").id == 4, "the same id again is a new message: nothing of the old life counts"
    assert place.db.send(SID, user("late", "too late")).id == 5, "nor of what was sent to the deleted session"
    place.answer("anew")
    assert [m["id"] for m in fresh(place).history(SID)][:2] == ["a", "u1"]
    assert [m["id"] for m in fresh(place).history(SID)][3:4] == ["late"]
    assert len(fresh(place).history(SID)) == 5
    check(place)


@pytest.mark.parametrize("wait", [0.0, 200.0, 4000.0])
def test_what_was_sent_to_a_deleted_session_and_is_sent_again_is_answered(place: Place, wait: float) -> None:
    session_of(place, 1)
    delete(place.db, SID)
    receipt = place.send("u2")
    with pytest.raises(Closed), fresh(place).boot(receipt=receipt) as session:
        list(session.turns())
    fresh(place).create(SID)
    place.clock.advance(wait)
    assert fresh(place).send(SID, user("u2")).id == receipt.id + 1
    place.answer("here")
    assert [m["id"] for m in fresh(place).history(SID)][:1] == ["u2"]
    check(place)


def test_a_create_goes_on_from_no_reading_that_another_deletion_made_old(place: Place) -> None:
    """Wherever the first deletion was broken off, and wherever in the create the second one ends it."""
    for killed in range(2, 30):
        for number in range(1, 30):
            place = Place()
            session_of(place, 1)
            if not killed_at(place, killed, "after", lambda db: delete(db, SID)):
                return
            if not fresh(place).peek(SID).fold.deleted:
                break
            happened: list[int] = []

            def now(place: Place = place, happened: list[int] = happened) -> None:
                happened.append(1)
                delete(fresh(place), SID)

            with suppress(Refused):
                interrupted(place, "", "", number, now).create(SID)
            if not happened:
                break
            if not fresh(place).peek(SID).fold.deleted:
                place.send("u1")
                place.answer("anew")
                assert [m["id"] for m in fresh(place).history(SID)][:1] == ["u1"], (killed, number)
                check(place)
    raise AssertionError("it never ends")


def test_a_living_worker_is_fenced(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call("c1")])
    turn.flush()
    delete(fresh(place), SID)
    turn.write({"type": "text-start", "id": "t"})
    with pytest.raises(Fenced):
        turn.flush()
    die(session)
    is_gone(place)


@pytest.mark.parametrize("swept", [False, True])
def test_a_worker_that_slept_brings_nothing_back(place: Place, swept: bool) -> None:
    session_of(place, 2)
    place.db.send(SID, user("u9"))
    zombie = place.db.boot(SID)
    turn = first_turn(zombie)
    turn.write({"type": "start"})
    turn.flush()
    delete(fresh(place), SID)
    place.clock.advance(24 * HOURS)
    if swept:
        for key, data in place.stored("").items():
            if not data:
                place.bucket.inner.delete(key)
    turn.write({"type": "text-start", "id": "t"})
    with pytest.raises(Fenced):
        turn.flush()
    die(zombie)
    is_gone(place)


def test_a_snapshot_that_was_under_way_does_not_replace_the_tombstone(place: Place) -> None:
    session_of(place, 2)
    old, etag = place.stored(SNAPSHOT)[SNAPSHOT], place.db.load(SID).etag
    delete(fresh(place), SID)
    assert saving.save(place.db.store, SID, old, int(json.loads(old)["lastOutEventId"]), etag) is None
    is_gone(place)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_any_request_it_is_run_again(when: Literal["before", "after"]) -> None:
    for number in count(1):
        place = Place()
        session_of(place, 2)
        killed = killed_at(place, number, when, lambda db: delete(db, SID))
        found = fresh(place).peek(SID)
        assert len(found.messages) == (0 if found.fold.deleted else 4), number
        if not killed:
            assert number > 25
            break
        delete(place.db, SID)
        is_gone(place)
        assert [r["control"] for r in place.records()] == ["fence", "session-deleted"], number


def test_it_is_idempotent_and_a_dry_run_writes_nothing(place: Place) -> None:
    session_of(place, 2)
    before = place.stored("")
    dry = delete(place.db, SID, dry_run=True)
    assert place.stored("") == before
    done = delete(place.db, SID)
    assert (dry.deleted, dry.freed) == (done.deleted, done.freed)
    after = place.stored("")
    again = delete(place.db, SID)
    assert (again.written, again.deleted) == (0, 0)
    assert place.stored("") == after


def test_inputs_that_came_afterwards_go_when_it_is_run_again(place: Place) -> None:
    session_of(place, 2)
    delete(place.db, SID)
    place.send("late")
    delete(place.db, SID)
    assert "late" not in words(place)
    assert place.db.peek(SID).pending == []
    place.send("later")
    place.db.create(SID)
    assert place.db.history(SID) == []
    place.send("now")
    place.answer("hello")
    assert len(place.db.history(SID)) == 2


def test_readers_at_any_moment_see_all_of_it_or_nothing(place: Place) -> None:
    session_of(place, 2)
    seen: list[int] = []

    def look() -> None:
        seen.append(len(fresh(place).history(SID)))

    delete(watched(place, look), SID)
    assert set(seen) == {4, 0}
    assert seen == sorted(seen, reverse=True)


def test_a_boot_under_way_starts_again(place: Place) -> None:
    """The snapshot is read before the deletion, the log after it."""
    session_of(place, 3)
    other = fresh(place)
    gone: list[Any] = []

    def hook(asked: Call, when: str) -> None:
        if asked.key == SNAPSHOT and when == "after" and not gone:
            gone.append(delete(other, SID))

    db = Database(FaultyBucket(MemoryBucket(place.clock, space=place.space), hook=hook), place.clock)
    assert db.history(SID) == []


def test_a_store_that_fails_in_between(place: Place) -> None:
    session_of(place, 2)
    place.bucket.plan.append(Fault("put", nth=5, times=0))
    with pytest.raises(Unreachable):
        delete(place.db, SID)
    place.bucket.plan.clear()
    delete(place.db, SID)
    is_gone(place)


def test_a_session_opened_again_in_between_keeps_its_new_life(place: Place) -> None:
    session_of(place, 2)
    other = fresh(place)
    opened: list[bool] = []

    def meanwhile() -> None:
        if not opened and other.peek(SID).fold.deleted:
            opened.append(True)
            other.create(SID, messages=[user("a", "new life")])
            other.send(SID, user("b", "and more"))

    delete(watched(place, meanwhile), SID)
    assert [m["id"] for m in fresh(place).history(SID)] == ["a", "b"]
    place.answer("yes")
    assert len(fresh(place).history(SID)) == 3
    assert "answer 1" not in words(place)
    check(place)


def test_a_session_of_inputs_alone(place: Place) -> None:
    place.send("u1")
    delete(place.db, SID)
    is_gone(place)


def test_a_damaged_session_can_be_deleted(place: Place) -> None:
    session_of(place, 2)
    inner = place.bucket.inner
    inner.put(SNAPSHOT, b"{")
    inner.put(keys.segment("out", SID, 1), b"no segment")
    with pytest.raises(Corrupt):
        place.db.history(SID)
    delete(place.db, SID)
    is_gone(place)
    place.db.create(SID)
    place.send("u3")
    place.answer("back")
    assert len(place.db.history(SID)) == 2


def test_a_session_whose_history_a_host_owns_is_deleted_without_the_host() -> None:
    held: list[Any] = []
    place = Place(hydrate=lambda _: list(held))
    place.send("u1")
    place.answer("one")
    held += place.db.history(SID)
    place.send("u2")
    place.answer("two")
    with pytest.raises(Refused, match="hydrate"):
        fresh(place).history(SID)
    place.clock.advance(24 * HOURS)
    delete(fresh(place), SID)
    assert json.loads(place.stored(SNAPSHOT)[SNAPSHOT])["deleted"] is True
    with pytest.raises(Closed), fresh(place).boot(SID) as session:
        list(session.turns())


def test_what_a_newer_release_wrote_is_left(place: Place) -> None:
    session_of(place, 2)
    document = {**json.loads(place.stored(SNAPSHOT)[SNAPSHOT]), "version": 2}
    place.bucket.inner.put(SNAPSHOT, json.dumps(document).encode())
    before = place.stored("")
    with pytest.raises(NewerVersion):
        delete(place.db, SID)
    assert place.stored("") == before


def test_a_session_that_is_not_there(place: Place) -> None:
    with pytest.raises(Refused, match="no session"):
        delete(place.db, "nobody")
    assert place.stored("") == {}


def test_beside_a_worker_that_is_faster(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    chunks = iter(list(saying("x"))[:3])

    def meanwhile() -> None:
        chunk = next(chunks, None)
        if chunk is not None:
            turn.write(chunk)
            turn.flush()

    raced = {"put": 0}

    def hook(asked: Call, when: str) -> None:
        if asked.verb == "put" and asked.key.startswith("out/") and when == "before":
            raced["put"] += 1
            meanwhile()

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    delete(Database(bucket, place.clock), SID)
    assert raced["put"] > 3
    die(session)
    is_gone(place)


def test_a_create_under_way_leaves_nothing_owed_that_a_second_deletion_empties() -> None:
    """It was read before the input came, and wants to write once the deletion has spent it."""
    for number in count(1):
        place, happened = Place(), []
        session_of(place, 1)
        delete(place.db, SID)

        def meanwhile(place: Place = place, happened: list[bool] = happened) -> None:
            happened.append(place.db.peek(SID).fold.deleted)
            fresh(place).send(SID, user("late"))
            delete(fresh(place), SID)

        interrupted(place, "", "", number, meanwhile).create(SID)
        assert number < 40
        if happened == [False] or not happened:  # it had come back before, and was deleted once more
            assert number > 3
            return
        found = fresh(place).peek(SID)
        assert (found.fold.deleted, found.pending) == (False, [])
        check(place)


def test_a_receipt_from_before_boots_a_session_that_was_created_while_its_deletion_went_on(
    place: Place,
) -> None:
    """The session is opened again behind the fence, and read before its last input is emptied."""
    session_of(place, 1)
    receipt = place.db.send(SID, user("u9", "never answered"))
    other = fresh(place)
    opened: list[bool] = []

    def meanwhile() -> None:
        if not opened and other.peek(SID).fold.deleted:
            opened.append(True)
            other.create(SID)

    delete(watched(place, meanwhile), SID)
    assert opened
    with fresh(place).boot(receipt=receipt) as session:
        assert (session.messages, session.pending) == ([], [])
    check(place)


def test_content_of_an_id_that_never_became_a_session_goes() -> None:
    place = Place()
    place.bucket.inner.put(keys.value(SID, f"{'0' * 64}-nonce"), b"SECRET")
    assert delete(place.db, SID).deleted == 1
    assert not [data for data in place.stored("").values() if b"SECRET" in data]
    assert fresh(place).history(SID) == []
    check(place)


def test_a_fork_that_was_broken_off_is_deleted_wherever_it_was() -> None:
    for number in count(1):
        place = tiny()
        long_session(place, 4)
        if not killed_at(place, number, "before", lambda db: fork(db, SID, "new")):
            break
        if not [key for key in place.stored("") if "/new/" in key]:
            continue
        delete(place.db, "new")
        assert fresh(place).history("new") == [], number
        check(place, "new")
        with pytest.raises(Refused, match="was deleted"):
            fork(place.db, SID, "new")
        place.db.create("new", messages=[user("x")])
        assert len(fresh(place).history("new")) == 1
    assert number > 20


def test_a_compaction_behind_a_deletion_that_was_killed_puts_nothing_into_its_segment() -> None:
    """It had fenced an open turn, and emptied nothing yet, when the session was created again."""
    place = Place()
    session_of(place, 1)
    place.db.send(SID, user("u2"))
    session = place.db.boot(SID)
    turn = next(session.turns())
    for chunk in islice(saying("half an answer"), 4):
        turn.write(chunk)
        turn.flush()
    die(session)
    for number in count(1):
        killed_at(place, number, "before", lambda db: delete(db, SID))
        if fresh(place).peek(SID).fold.deleted:
            break
    place.db.create(SID)
    for name in ("u3", "u4"):
        place.db.send(SID, user(name))
        place.answer()
    place.clock.advance(24 * HOURS)
    compact(place.db, SID)
    (fence,) = (data for data in place.stored("out/").values() if b"session-deleted" in data)
    assert [json.loads(line).get("control") for line in fence.splitlines()[1:]] == [
        "fence",
        "session-deleted",
    ]
    check(place)


def test_turns_go_on_where_the_newest_segment_tells_none(place: Place) -> None:
    """A checkpoint's name has its turn, and the deletion leaves the name taken."""
    session_of(place, 3)
    trim(place.db, SID, keep=Keep(turns=1))
    with place.db.boot(SID, claim=True, takeover=True):
        pass  # the newest segment is a fence, and says nothing of turns
    for key in (SNAPSHOT, *place.stored("checkpoints/")):
        place.bucket.inner.put(key, b"{")
    delete(place.db, SID)
    place.db.create(SID)
    place.send("u4")
    place.answer("back")
    assert fresh(place).peek(SID).fold.turn == 4
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    assert len([key for key, data in place.stored("checkpoints/").items() if data]) == 1
    check(place)
