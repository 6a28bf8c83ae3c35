"""A log that was shortened, or begins with a deletion, is whole from there, to everybody who reads it: also
where the snapshot is older than that, or lost, where whoever shortened it died, and while somebody does."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, Literal

import pytest
from blocky import TINY
from blocky import session as long_session
from chat_samples import SID, Place, user
from upkeep import HOURS, Killed, again, check, fresh, interrupted, names, session_of

from snapshotter import Database, Gap, Refused
from snapshotter.core.blocks import Sizes
from snapshotter.maintenance import Keep, compact, delete, export, fork, gc, import_, maintain, redact, trim
from snapshotter.rebuilding.results import Mode, Options
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.codec import encode_segment
from streams.testing.faults import Call, FaultyBucket

SNAPSHOT = keys.snapshot(SID)
Hook = Callable[[Call, str], None]


def hooked(place: Place, hook: Hook) -> Database:
    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    return Database(bucket, place.clock, sizes=place.db._sizes)


def trimmed(place: Place, turns: int = 3, more: int = 2) -> Place:
    """So many turns, trimmed to the last; then more of them, and a day."""
    session_of(place, turns)
    trim(place.db, SID, keep=Keep(turns=1))
    for number in range(turns + 1, turns + more + 1):
        place.db.send(SID, user(f"u{number}"))
        place.answer("more", takeover=True)
    place.clock.advance(24 * HOURS)
    return place


def test_a_deletion_that_died_behind_its_tombstone_stops_no_upkeep() -> None:
    """gc takes what is old below the tombstone and leaves what a compaction has just merged: there is a hole
    then, and what stands below it hangs together."""
    place = Place()
    session_of(place, 4)
    compact(place.db, SID)

    def dies(call: Call, when: str) -> None:
        if when == "before" and call.verb == "put" and call.key.startswith("in/"):
            raise Killed

    with pytest.raises(Killed):
        delete(hooked(place, dies), SID)
    gc(fresh(place), SID)
    assert len(names(place.stored("out/"))) > 2
    compact(fresh(place), SID)
    for _ in range(3):
        assert [kept.error for kept in maintain(fresh(place), [SID])] == [None]
        check(place)
        place.clock.advance(24 * HOURS)
    assert len(names(place.stored("out/"))) == 1


def test_a_deletion_that_slept_fills_no_place_that_another_has_emptied() -> None:
    """Seen by a tester: no message of the session's next life could be redacted."""
    place = Place()
    session_of(place, 4)

    def meanwhile() -> None:
        other = fresh(place)
        for late in ("l1", "l2", "l3"):
            other.send(SID, user(late))
        delete(other, SID)
        other.create(SID)

    delete(interrupted(place, "get", f"in/{SID}/", 1, meanwhile), SID)
    place.db.send(SID, user("secret", "SECRET"))
    place.answer("told")
    redact(place.db, SID, "secret", takeover=True)
    assert not [key for key, data in place.stored("").items() if b"SECRET" in data]
    check(place)


@pytest.mark.parametrize("dies", [True, False])
def test_a_redaction_beside_an_edit_leaves_the_checkpoint_that_a_trim_rests_on(dies: bool) -> None:
    place = Place()
    session_of(place, 4)
    trim(place.db, SID, keep=Keep(turns=1))
    puts: list[str] = []

    def beside(call: Call, when: str) -> None:
        if not call.key.startswith("checkpoints/") or call.verb != "put":
            return
        if when == "before":
            puts.append(call.key)
        if when == "before" and len(puts) == 1:
            with fresh(place).boot(SID, takeover=True) as session:
                session.edit_history("put", message=user("u4", "edited"))
        elif when == "after" and len(puts) == 2 and dies:
            raise Killed

    if dies:
        with pytest.raises(Killed):
            redact(hooked(place, beside), SID, "u1", takeover=True)
    else:
        redact(hooked(place, beside), SID, "u1", takeover=True)
    assert all(place.stored("checkpoints/").values())
    (result,) = rebuild_in(fresh(place), Options(), [SID])
    assert result.status == "same"
    place.bucket.inner.delete(SNAPSHOT)
    assert len(fresh(place).history(SID)) == 8


@pytest.mark.parametrize("mode", ["compare", "write"])
@pytest.mark.parametrize("act", ["trim", "redact"])
def test_a_rebuild_of_a_trimmed_session_beside_one_act_of_upkeep(act: str, mode: Mode) -> None:
    acts: dict[str, Callable[[Database], Any]] = {
        "trim": lambda db: trim(db, SID, keep=Keep(turns=1)),
        "redact": lambda db: redact(db, SID, "u1", takeover=True),
    }
    happened, number = True, 0
    while happened:
        number, happened, place = number + 1, False, trimmed(Place())

        def now(place: Place = place) -> None:
            nonlocal happened
            happened = True
            acts[act](fresh(place))

        (result,) = rebuild_in(interrupted(place, "", "", number, now), Options(mode=mode), [SID])
        assert result.status in ("same", "newer", "unchecked", "written"), (number, result)
        check(place)
    assert number > 20


def test_a_rebuild_of_what_is_lost_says_so() -> None:
    """Nobody is at work: it is read again, and is a gap all the same."""
    place = trimmed(Place())
    lost = names(place.stored("out/"))[-2]
    place.bucket.inner.delete(keys.segment("out", SID, lost))
    (result,) = rebuild_in(fresh(place), Options(), [SID])
    assert (result.status, result.error) == ("failed", "Gap")


def test_a_fork_of_a_turn_between_two_trims_is_refused() -> None:
    place = trimmed(Place())
    trim(place.db, SID, keep=Keep(turns=1))
    assert len(place.stored("checkpoints/")) == 2
    for turn in (1, 2, 3, 4):
        with pytest.raises(Refused, match="from turn 5 on"):
            fork(place.db, SID, f"t{turn}", turn=turn)
    fork(place.db, SID, "t5", turn=5)
    assert place.db.history("t5") == place.db.history(SID)


@pytest.mark.parametrize("how", ["stale", "lost"])
def test_a_snapshot_from_before_a_trim_or_none_is_no_gap_to_anybody(how: Literal["stale", "lost"]) -> None:
    place = Place()
    session_of(place, 2)
    old = place.stored(SNAPSHOT)[SNAPSHOT]
    for name in ("v3", "v4"):
        place.db.send(SID, user(name))
        place.answer("more", takeover=True)
    place.clock.advance(24 * HOURS)
    trim(place.db, SID, keep=Keep(turns=1))
    whole = place.db.history(SID)
    if how == "stale":
        place.bucket.inner.put(SNAPSHOT, old)
    else:
        place.bucket.inner.delete(SNAPSHOT)
    verdict = verify(fresh(place), SID)
    assert verdict.ok, verdict.problems
    assert {note.code for note in verdict.notes} == {"not-rebuildable", "stale-snapshot"}
    for turn in (None, 4):
        fork(place.db, SID, f"t{turn}", turn=turn)
        assert place.db.history(f"t{turn}") == whole
    file = io.BytesIO()
    assert export(place.db, SID, file).why == ""
    file.seek(0)
    other = Place()
    import_(other.db, file)
    assert other.db.history(SID) == whole
    assert [kept.error for kept in maintain(fresh(place), [SID], keep=Keep(turns=1))] == [None]
    check(place)


@pytest.mark.parametrize("turn", [None, 1, 2, 3])
def test_a_fork_beside_a_trim_is_a_fork_or_refused(turn: int | None) -> None:
    happened, number = True, 0
    while happened:
        number, happened, place = number + 1, False, Place()
        session_of(place, 3)

        def now(place: Place = place) -> None:
            nonlocal happened
            happened = True
            trim(fresh(place), SID, keep=Keep(turns=1))

        with suppress(Refused) if turn in (1, 2) else nullcontext():
            fork(interrupted(place, "", "", number, now), SID, "t", turn=turn)
            assert len(place.db.history("t")) == 2 * (turn or 3), number
    assert number > 10


@pytest.mark.parametrize("by", ["delete", "gc"])
def test_a_large_message_whose_sender_died_is_no_damage(by: str) -> None:
    """Its value went before the record that names it was there: it stays owed, and is told of."""
    place = Place(sizes=Sizes(value=600))
    session_of(place, 2)

    def dies(call: Call, when: str) -> None:
        if call.verb != "put" or not call.key.startswith("in/"):
            return
        if when == "after":
            raise Killed
        if by == "delete":
            delete(fresh(place), SID)
        else:
            place.clock.advance(7 * HOURS)
            gc(fresh(place), SID)

    with pytest.raises(Killed):
        hooked(place, dies).send(SID, user("big", "large " * 300))
    told = [problem.code for problem in verify(fresh(place), SID).problems]
    assert told == ([] if by == "delete" else ["message-missing"])
    file = io.BytesIO()
    assert export(place.db, SID, file).why == ""
    file.seek(0)
    import_(Place().db, file)
    place.clock.advance(24 * HOURS)
    assert [kept.error for kept in maintain(fresh(place), [SID], keep=Keep(turns=1))] == [None]


def test_the_records_of_a_log_that_begins_with_a_deletion_begin_there() -> None:
    place = Place()
    again(place)
    db = fresh(place)
    assert [record["kind"] for record in db.records(SID, "in")] == ["deleted", "message"]
    out = list(db.records(SID, "out"))
    assert out[0]["why"] == "delete"
    assert [event.record for event in db.follow(SID, timeout=0.0) if event.log == "out"] == out
    with pytest.raises(Gap):
        list(db.records(SID, "out", after=1))
    trim(db, SID, keep=Keep(turns=1))


def test_an_export_that_slept_over_a_trim_reads_again() -> None:
    """The values that the segments named which it had read by then were swept."""
    place = Place(sizes=Sizes(value=600))
    for number in range(1, 5):
        place.db.send(SID, user(f"u{number}", f"{number} " * 400))
        place.answer("told " * 400)
    place.db.edit(SID, "u2", user("e2", "again"))
    place.answer("anew", takeover=True)
    place.clock.advance(24 * HOURS)

    def meanwhile() -> None:
        trim(fresh(place), SID, keep=Keep(turns=1))
        gc(fresh(place), SID)

    file = io.BytesIO()
    assert export(interrupted(place, "list", f"values/{SID}", 1, meanwhile), SID, file).why == ""
    file.seek(0)
    other = Place(sizes=Sizes(value=600))
    import_(other.db, file)
    assert other.db.history(SID) == place.db.history(SID)


def test_a_dead_segment_may_name_what_is_gone() -> None:
    """A worker that slept wrote it, when a compaction had merged its turn and gc had taken its value."""
    place = Place(sizes=Sizes(value=600))
    session_of(place, 3)
    compact(place.db, SID)
    ref = {"key": f"{'0' * 64}-gone", "bytes": 700}
    late = encode_segment(
        "out", [{"id": 3, "ts": 1, "ref": ref}], nonce="late", epoch=1, run="r", prev="x", lease=0
    )
    place.bucket.inner.put(keys.segment("out", SID, 3), late)
    verdict = verify(fresh(place), SID)
    assert verdict.ok, verdict.problems
    assert "dead-segment" in {note.code for note in verdict.notes}


def test_a_trim_beside_a_compaction_leaves_the_newest_covered_turn_whole() -> None:
    """Claims of workers that died stand before it; merged with them it takes the place of the first one."""
    happened, number = True, 0
    while happened:
        number, happened, place = number + 1, False, Place()
        session_of(place, 1)
        place.db.send(SID, user("v2"))
        for _ in range(3):
            writer = place.db.boot(SID, claim=True, takeover=True)._writer
            assert writer is not None
            writer.beating = False  # it died
            place.clock.advance(HOURS)
        place.answer("second", takeover=True)
        place.clock.advance(24 * HOURS)
        place.db.send(SID, user("v3"))
        place.answer("third", takeover=True)

        def now(place: Place = place) -> None:
            nonlocal happened
            happened = True
            compact(fresh(place), SID)

        trim(interrupted(place, "", "", number, now), SID, keep=Keep(turns=2))
        out = b"".join(place.stored("out/").values())
        assert b'"control":"turn-start","turn":2,' in out, number
        check(place)
    assert number > 20


def test_a_rebuild_that_writes_where_an_older_snapshot_slips_in_reads_again() -> None:
    """It does not name the blocks that were to be taken over from the checkpoint."""
    place = Place(sizes=TINY)
    long_session(place, 3)
    old = place.stored(SNAPSHOT)[SNAPSHOT]
    long_session(place, 6, name="v")
    trim(place.db, SID, keep=Keep(turns=1))
    whole = place.db.history(SID)
    place.bucket.inner.delete(SNAPSHOT)
    db = interrupted(place, "put", SNAPSHOT, 1, lambda: place.bucket.inner.put(SNAPSHOT, old))
    (result,) = rebuild_in(db, Options(mode="write", sizes=TINY), [SID])
    assert result.status == "written", result
    assert place.db.history(SID) == whole
    check(place)
