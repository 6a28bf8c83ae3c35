"""Logs that begin with a deletion: whole from there, for a rebuild, a boot, a fork and another root."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_samples import SID, Place, user
from roots import documents, forget, one, turns

from snapshotter import Closed, maintenance
from snapshotter.database import Database
from snapshotter.rebuilding import Options
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call

DAY = 24 * 3600.0


@pytest.fixture
def place() -> Place:
    return Place()


def reborn(place: Place, again: bool = False, turn: bool = True) -> None:
    """A session that was deleted, perhaps twice, created again, and used; what was before it is swept."""
    turns(place.db, SID, 2)
    maintenance.delete(place.db, SID)
    place.db.send(SID, user("late"))
    if again:
        place.db.send(SID, user("later"))
        maintenance.delete(place.db, SID)
    place.db.send(SID, user("last"))
    place.db.create(SID, messages=[user("given")], state={"a": 1})
    if turn:
        turns(place.db, SID, 1, start=7)
    place.clock.advance(DAY)
    maintenance.gc(place.db, SID)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("turn", [False, True])
def test_a_log_that_begins_with_a_deletion_is_whole(place: Place, again: bool, turn: bool) -> None:
    reborn(place, again, turn)
    before = documents(place.db)
    result = one(place.db)
    assert (result.status, result.base, result.turns) == ("same", "deletion", 3 if turn else 2)
    assert result.messages == (3 if turn else 1)
    shown = place.db.history(SID)
    assert [m["id"] for m in shown[:2]] == ["given", "u7"][: 2 if turn else 1]
    forget(place.db, SID)
    booted = place.db.peek(SID)
    assert booted.messages == shown
    assert (booted.fold.state, booted.fold.epoch) == ({"a": 1}, int(before[SID]["epoch"]))
    assert booted.pending == []
    assert "checkpoint-used" not in {note["code"] for note in booted.report}
    assert one(place.db, Options("write")).status == "written"
    assert documents(place.db) == before
    assert verify(place.db, SID).ok


def test_a_deleted_session_that_lost_its_tombstone_is_deleted(place: Place) -> None:
    turns(place.db, SID, 2)
    maintenance.delete(place.db, SID)
    before = documents(place.db)
    forget(place.db, SID)
    assert place.db.peek(SID).fold.deleted
    assert one(place.db, Options("write")).status == "written"
    assert documents(place.db) == before


def test_a_snapshot_from_before_the_deletion_does_not_bring_it_back(place: Place) -> None:
    turns(place.db, SID, 2)
    old = place.stored(keys.snapshot(SID))[keys.snapshot(SID)]
    maintenance.delete(place.db, SID)
    place.db.create(SID, messages=[user("given")])
    place.db.store.put(keys.snapshot(SID), old, nonce="n")
    assert [message["id"] for message in place.db.history(SID)] == ["given"]
    assert (one(place.db).status, one(place.db, Options("write")).status) == ("unchecked", "written")
    assert one(place.db).status == "same"


def test_an_input_that_was_lost_behind_a_deletion_is_a_gap(place: Place) -> None:
    reborn(place)
    turns(place.db, SID, 1, start=8)
    newest = sorted(place.stored("in/"))
    place.db.store.delete(newest[1])
    forget(place.db, SID)
    result = one(place.db)
    assert (result.status, result.error) == ("failed", "Gap")


def test_a_session_that_was_created_again_moves_to_another_root(place: Place, tmp_path: Path) -> None:
    reborn(place)
    maintenance.export(place.db, SID, tmp_path / "s.zip")
    other = Database(MemoryBucket(place.clock), place.clock)
    maintenance.import_(other, tmp_path / "s.zip")
    assert one(other).status == "same"
    forget(other, SID)
    assert one(other, Options("write")).status == "written"
    assert documents(other) == documents(place.db)


def test_a_fork_takes_a_turn_of_a_session_that_was_created_again(place: Place) -> None:
    reborn(place)
    turns(place.db, SID, 1, start=8)
    maintenance.fork(place.db, SID, "copy", turn=3)
    assert place.db.history("copy") == place.db.history(SID)[:3]


def test_a_deletion_that_was_broken_off_is_no_place_for_another_tombstone(place: Place) -> None:
    """What stands behind the record that deletes is nobody's; a snapshot there would not be the tombstone."""
    turns(place.db, SID, 2)

    def dies(asked: Call, _when: str) -> None:
        if asked.verb == "put" and asked.key == keys.snapshot(SID):
            raise KeyboardInterrupt

    place.bucket.hook = dies
    with pytest.raises(KeyboardInterrupt):
        maintenance.delete(place.db, SID)
    place.bucket.hook = None
    assert place.db.peek(SID).fold.deleted
    with pytest.raises(Closed), place.db.boot(SID, claim=True, takeover=True) as session:
        list(session.turns())
    forget(place.db, SID)
    assert one(place.db, Options("write")).status == "written"
    (tombstone,) = documents(place.db).values()
    fence = next(r for r in place.records() if r.get("control") == "session-deleted")
    assert (int(tombstone["lastOutEventId"]), tombstone["keys"]) == (fence["id"], [])
    maintenance.delete(place.db, SID)
    assert documents(place.db)[SID]["lastOutEventId"] == tombstone["lastOutEventId"]
