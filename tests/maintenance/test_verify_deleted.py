"""A session that was deleted and created again is whole from its deletion on: what was below is no loss."""

from __future__ import annotations

import io
from functools import partial

import pytest
from chat_samples import AT_ONCE, SID, Place, user
from hypothesis import given, settings
from hypothesis import strategies as st
from test_redact_beside import copies
from upkeep import HOURS, Killed, check, fresh, killed_at, names, session_of

from snapshotter import Database
from snapshotter.core.blocks import Sizes
from snapshotter.maintenance import Keep, compact, delete, export, gc, trim
from snapshotter.rebuilding.results import Options
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, FaultyBucket


@pytest.fixture(params=["just now", "swept", "swept and compacted"])
def place(request: pytest.FixtureRequest) -> Place:
    """Three turns, deleted; then two more, the last of them just now."""
    made = Place()
    session_of(made, 3)
    delete(made.db, SID)
    made.db.create(SID, state={"born": 2})
    made.db.send(SID, user("u8"))
    made.answer("anew")
    made.clock.advance(24 * HOURS)
    made.db.send(SID, user("u9"))
    made.answer("again")
    if "swept" in request.param:
        gc(made.db, SID)
        assert names(made.stored("out/"))[0] > 1
    if "compacted" in request.param:
        compact(made.db, SID)
    return made


def test_the_log_alone_rebuilds_it(place: Place) -> None:
    verdict = verify(fresh(place), SID)
    assert verdict.ok, verdict.problems
    assert verdict.rebuildable
    assert not verdict.notes
    place.bucket.inner.delete(keys.snapshot(SID))
    alone = verify(fresh(place), SID)
    assert (alone.ok, alone.rebuildable) == (True, True), alone.problems
    assert len(fresh(place).history(SID)) == 4


def test_what_is_missing_above_the_deletion_is_a_gap(place: Place) -> None:
    *_, lost, _ = names(place.stored("out/"))
    place.bucket.inner.delete(keys.segment("out", SID, lost))
    assert "gap" in [problem.code for problem in verify(fresh(place), SID).problems]


def test_an_input_that_is_missing_above_the_deletion_is_a_gap(place: Place) -> None:
    place.bucket.inner.delete(keys.segment("in", SID, 4))
    place.bucket.inner.delete(keys.snapshot(SID))
    (gap,) = [p for p in verify(fresh(place), SID).problems if p.code == "gap"]
    assert "inputs 4 to 4" in gap.detail


def test_a_snapshot_that_says_something_else_breaks_the_law(place: Place) -> None:
    key = keys.snapshot(SID)
    data = place.stored(key)[key]
    without_crc = data[: data.rindex(b',"crc":')] + b"}"
    place.bucket.inner.put(key, without_crc.replace(b"anew", b"ever"))
    assert [problem.code for problem in verify(fresh(place), SID).problems] == ["law", "law"]


def test_a_tombstone_is_whole() -> None:
    place = Place()
    session_of(place, 2)
    delete(place.db, SID)
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    verdict = verify(fresh(place), SID)
    assert (verdict.ok, verdict.rebuildable, verdict.notes) == (True, True, [])


def test_a_deletion_that_was_broken_off_is_no_damage() -> None:
    """The fence stands, half of what is below is emptied, the snapshot is older than both, perhaps."""
    codes = set()
    for number in range(1, 100):
        place = Place()
        session_of(place, 2)
        if not killed_at(place, number, "after", lambda db: delete(db, SID)):
            break
        verdict = verify(fresh(place), SID)
        assert verdict.ok, (number, verdict.problems)
        codes |= {note.code for note in verdict.notes}
        delete(place.db, SID)
        assert verify(fresh(place), SID).ok
    assert 10 < number < 99


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_deletion_empties_in_any_order(data: st.DataObject) -> None:
    """Many are emptied at once, and the process dies: whatever is left of it is no damage, to anybody."""
    place = Place()
    session_of(place, 3)
    before = place.stored("")
    delete(place.db, SID)
    emptied = sorted(key for key, left in place.stored("").items() if not left and before.get(key))
    for key in data.draw(st.sets(st.sampled_from(emptied)), label="not emptied yet"):
        place.bucket.inner.put(key, before[key])
    verdict = verify(fresh(place), SID)
    assert verdict.ok, verdict.problems
    file = io.BytesIO()
    assert export(place.db, SID, file).why == ""
    for step in (compact, partial(trim, keep=Keep(turns=1)), gc):
        place.clock.advance(data.draw(st.sampled_from([0, 30])) * HOURS)
        step(fresh(place), SID)
        assert verify(fresh(place), SID).ok
    (compared,) = rebuild_in(fresh(place), Options(), [SID])
    assert compared.status == "deleted", compared
    assert fresh(place).history(SID) == []
    place.db.create(SID)
    assert verify(fresh(place), SID).ok


def test_a_snapshot_from_before_the_deletion_is_told() -> None:
    place = Place()
    session_of(place, 2)
    key = keys.snapshot(SID)
    before = place.stored(key)[key]
    delete(place.db, SID)
    place.bucket.inner.put(key, before)
    verdict = verify(fresh(place), SID)
    assert [note.code for note in verdict.notes] == ["stale-snapshot"]
    assert verdict.ok, verdict.problems


def test_trimmed_above_the_deletion_it_is_not_rebuildable_from_the_log_alone(place: Place) -> None:
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    assert not any(b"session-deleted" in data for data in place.stored("out/").values())
    verdict = verify(fresh(place), SID)
    assert verdict.ok, verdict.problems
    assert not verdict.rebuildable


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_large_message_that_was_sent_beside_a_deletion_which_died_is_not_missed(moment: int) -> None:
    """Its value is emptied before its input is."""
    made = Place(sizes=Sizes(value=600))
    session_of(made, 1)
    for last in range(moment + 1, 100):
        place = copies(made)()

        def hook(asked: Call, at: str, place: Place = place, last: int = last) -> None:
            if at == "before" and asked.number == moment:
                fresh(place).send(SID, user("u9", "large " * 200))
            if at == "after" and asked.number == last:
                raise Killed

        bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
        try:
            delete(Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes), SID)
        except Killed:
            check(place)
        else:
            assert last > 20
            break
