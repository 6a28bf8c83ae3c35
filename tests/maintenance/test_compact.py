"""Compaction: one object a turn, the same log, whatever happens meanwhile."""

from __future__ import annotations

from itertools import count
from typing import Any, Literal

import pytest
from chat_samples import SID, Place, call, die, first_turn, saying, user, write_all
from upkeep import HOURS, check, fresh, killed_at, names, out_records, overtaken, picture, session_of, watched

from snapshotter import Fenced, InvalidValue, Unsupported
from snapshotter.maintenance import Rules, compact
from snapshotter.maintenance.bench import Bench
from snapshotter.maintenance.compacting import settled
from streams import keys, log
from streams.buckets.memory import MemoryBucket
from streams.errors import Gap
from streams.log import Vanished
from streams.records import Cursor
from streams.store import Store
from streams.testing.faults import Call, FaultyBucket
from streams.writer import Flush


@pytest.fixture
def place() -> Place:
    return Place()


def out(place: Place) -> list[int]:
    return names(place.stored("out/"))


def test_each_closed_turn_becomes_one_object(place: Place) -> None:
    session_of(place, 4)
    before, seen, records = len(out(place)), picture(place), out_records(place)
    done = compact(place.db, SID)
    starts = [r["id"] for r in place.controls("turn-start")]
    assert starts == [s[0]["id"] for s in place.segments() if s[0].get("control") == "turn-start"]
    ends = [segment[-1].get("control") for segment in place.segments()]
    assert ends[:3] == ["turn-complete"] * 3
    assert len(out(place)) == before - done.deleted
    assert done.written == 3
    assert done.freed > 0
    assert (picture(place), out_records(place)) == (seen, records)
    check(place)


def test_the_newest_turn_is_left_alone(place: Place) -> None:
    session_of(place, 1)
    before = place.stored("out/")
    assert compact(place.db, SID).written == 0
    assert place.stored("out/") == before


def test_the_newest_turn_is_left_too_where_edits_stand_behind_it(place: Place) -> None:
    session_of(place, 2)
    for number in range(3):
        with place.db.boot(SID) as session:
            session.set_state({"a": number})
    place.clock.advance(24 * HOURS)
    newest = place.controls("turn-start")[-1]["id"]
    before = [segment for segment in place.segments() if segment[0]["id"] >= newest]
    assert compact(place.db, SID).written == 1
    assert place.segments()[1:] == before
    check(place)


def test_nothing_younger_than_the_minimum_age_is_touched(place: Place) -> None:
    session_of(place, 2)
    before = place.stored("out/")
    assert compact(place.db, SID, rules=Rules(minimum_age=25 * HOURS)).written == 0
    assert place.stored("out/") == before
    place.clock.advance(2 * HOURS)
    assert compact(place.db, SID, rules=Rules(minimum_age=25 * HOURS)).written == 1


def test_a_store_that_tells_no_date_has_nothing_old(place: Place) -> None:
    assert not Rules().is_old(None, 10**15)
    assert not Rules().is_old(0, None)
    assert Rules().is_old(0, 6 * 3600 * 1000)


@pytest.mark.parametrize("age", [3599.9, 0, -1, float("nan"), "6h"])
def test_a_minimum_age_below_an_hour_is_refused(age: Any) -> None:
    with pytest.raises(InvalidValue, match="minimum age"):
        Rules(minimum_age=age)


def test_it_is_idempotent(place: Place) -> None:
    session_of(place, 3)
    compact(place.db, SID)
    before = place.stored("out/")
    place.clock.advance(24 * HOURS)
    done = compact(place.db, SID)
    assert (done.written, done.deleted) == (0, 0)
    assert place.stored("out/") == before


def test_a_dry_run_says_the_same_and_does_nothing(place: Place) -> None:
    session_of(place, 3)
    before = place.stored("")
    dry = compact(place.db, SID, dry_run=True)
    assert place.stored("") == before
    done = compact(place.db, SID)
    assert (dry.written, dry.deleted, dry.freed) == (done.written, done.deleted, done.freed)
    assert dry.dry_run


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_any_request_it_is_run_again(when: Literal["before", "after"]) -> None:
    for number in count(1):
        place = Place()
        session_of(place, 3)
        seen, records = picture(place), out_records(place)
        killed = killed_at(place, number, when, lambda db: compact(db, SID))
        assert (picture(place), out_records(place)) == (seen, records), number
        check(place)
        if not killed:
            assert number > 20
            break
        place.clock.advance(24 * HOURS)
        compact(place.db, SID)
        assert [s[0].get("control") for s in place.segments()][:2] == ["turn-start"] * 2, number
        assert (picture(place), out_records(place)) == (seen, records), number
        check(place)


def test_readers_at_any_moment_see_the_same_log(place: Place) -> None:
    session_of(place, 3)
    seen, records = picture(place), out_records(place)
    cursors = _ends(place)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        assert picture(place) == seen
        assert out_records(place) == records
        for cursor in cursors:  # also from the middle of what is merged
            store = Store(MemoryBucket(place.clock, space=place.space), place.clock)
            tail = log.read_after(store, "out", SID, cursor)
            assert tail.records == [r for r in records if r["id"] > cursor.id]

    compact(watched(place, look), SID)
    assert looks > 20


def _ends(place: Place) -> list[Cursor]:
    store = Store(MemoryBucket(place.clock, space=place.space), place.clock)
    return [Cursor(s.header.last, s.header.nonce) for s in log.read_all(store, "out", SID).segments]


def test_a_reader_that_had_listed_what_is_gone_starts_again(place: Place) -> None:
    session_of(place, 3)
    store = Store(MemoryBucket(place.clock, space=place.space), place.clock)
    listing = log.tail_keys(store, "out", SID, 0)
    compact(place.db, SID)
    with pytest.raises(Vanished):
        log.read_after(store, "out", SID, Cursor(), listing)


def test_a_follower_in_the_middle_of_what_is_merged_goes_on(place: Place) -> None:
    place.send("u1")
    follower = fresh(place).records(SID, "out", follow=True, timeout=30)
    with place.db.boot(SID) as session, first_turn(session) as turn:
        for number, chunk in enumerate(saying("one")):
            turn.write(chunk)
            turn.flush()
            if number == 2:
                seen, _ = follower.step()
    place.send("u2")
    place.answer("two")
    place.clock.advance(24 * HOURS)
    assert compact(place.db, SID).deleted > 4
    assert keys.segment("out", SID, seen[-1]["id"] + 1) not in place.stored("out/")
    assert [*seen, *follower] == out_records(place)


def test_beside_a_running_worker(place: Place) -> None:
    session_of(place, 3)
    place.db.send(SID, user("u4"))
    session = place.db.boot(SID)
    turn = first_turn(session)
    turn.write({"type": "start"})
    turn.flush()
    compact(fresh(place), SID)
    write_all(turn, list(saying("four"))[1:])
    turn.complete()
    session.close()
    assert [m["role"] for m in fresh(place).history(SID)] == ["user", "assistant"] * 4
    check(place)


def test_a_zombie_that_wakes_over_a_freed_place_is_fenced_and_nobody_sees_its_words(place: Place) -> None:
    zombie = overtaken(place)
    position = zombie.writer.position
    place.clock.advance(HOURS)
    place.send("u2")
    place.answer("second")
    place.clock.advance(24 * HOURS)
    compact(place.db, SID)
    seen, records = picture(place), out_records(place)
    assert keys.segment("out", SID, position.id + 1) not in place.stored("out/"), "the place is free"
    words = [{"chunk": {"type": "text-start", "id": part}} for part in ("t1", "t2", "t3")]
    with pytest.raises(Fenced, match="slept"):
        zombie.writer.append_batch(words, flush=Flush.NOW)
    die(zombie)
    assert keys.segment("out", SID, position.id + 1) in place.stored("out/")
    for after in range(len(records)):
        shown = list(fresh(place).records(SID, "out", after=after))
        assert shown == [r for r in records if r["id"] > after], after
    assert (picture(place), out_records(place)) == (seen, records)
    check(place)
    place.clock.advance(24 * HOURS)
    assert compact(place.db, SID).deleted == 1, "and what it left is removed"
    assert keys.segment("out", SID, position.id + 1) not in place.stored("out/")


def test_two_that_compact_at_once_leave_one_log(place: Place) -> None:
    session_of(place, 4)
    seen, records = picture(place), out_records(place)
    other = fresh(place)
    ran = iter(range(3))

    def meanwhile() -> None:
        if next(ran, None) == 2:
            compact(other, SID)

    compact(watched(place, meanwhile), SID)
    assert (picture(place), out_records(place)) == (seen, records)
    check(place)


def test_a_log_with_a_hole_is_left_as_it_is(place: Place) -> None:
    session_of(place, 3)
    second = place.segments()[1]
    del place.space.objects[keys.segment("out", SID, second[0]["id"])]
    place.space.order.remove(keys.segment("out", SID, second[0]["id"]))
    before = place.stored("")
    with pytest.raises(Gap):
        compact(place.db, SID)
    assert place.stored("") == before


def test_a_store_without_if_match_is_refused() -> None:
    place = Place()
    session_of(place, 3)
    before = place.stored("out/")

    class NoMatch(MemoryBucket):
        def put(self, key: str, data: bytes, **options: Any) -> Any:
            if options.get("if_match") is not None:
                options["if_match"] = None
            return super().put(key, data, **options)

    bucket = FaultyBucket(NoMatch(place.clock, space=place.space), clock=place.clock, trusted=False)
    db = type(place.db)(bucket, place.clock)
    with pytest.raises(Unsupported, match="does not replace an object under If-Match"):
        compact(db, SID)
    assert place.stored("out/") == before


def test_a_dry_run_does_not_even_ask_a_store_that_is_not_known(place: Place) -> None:
    session_of(place, 3)
    before = place.stored("")
    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), trusted=False)
    assert compact(type(place.db)(bucket, place.clock), SID, dry_run=True).written == 2
    assert place.stored("") == before
    assert compact(type(place.db)(bucket, place.clock), SID).written == 2
    assert "capabilities.json" in place.stored("")


def test_a_turn_too_large_for_one_object_becomes_several(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_of(place, 3)
    seen, records = picture(place), out_records(place)
    monkeypatch.setattr("snapshotter.maintenance.compacting.MERGED", 900)
    compact(place.db, SID)
    assert 3 < len(place.segments()) < len(records)
    assert (picture(place), out_records(place)) == (seen, records)
    check(place)


def test_maintenance_that_slept_looks_again(place: Place) -> None:
    session_of(place, 3)
    seen, records = picture(place), out_records(place)

    def nap(asked: Call, when: str) -> None:
        if asked.verb == "put" and when == "before":
            place.clock.advance(HOURS)

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), hook=nap)
    compact(type(place.db)(bucket, place.clock), SID)
    verbs = bucket.verbs()
    assert [verb for verb in verbs if verb in ("put", "list")] == ["list", "list", "put"] * 2 + [
        "list",
        "list",
    ]
    assert (picture(place), out_records(place)) == (seen, records)
    check(place)


def test_stretches_end_where_a_snapshot_may_stand(place: Place) -> None:
    session_of(place, 3)
    bench = Bench(place.db, SID, "compact", None, True)
    places, _ = bench.places("out")
    ends = [stretch.parts[-1].segment.header.last for stretch in settled(bench, places)]
    assert ends == [r["id"] for r in place.controls("turn-complete")][:2]


def test_the_snapshot_of_a_merged_turn_still_fits(place: Place) -> None:
    session_of(place, 1)
    place.send("u2")
    session = place.db.boot(SID)
    write_all(first_turn(session), [{"type": "start"}, call("c9")])
    die(session)
    place.clock.advance(24 * HOURS)
    seen = picture(place)
    assert compact(place.db, SID).written == 1
    assert picture(place) == seen
    check(place)
