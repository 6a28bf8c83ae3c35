"""Upkeep of a whole root."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from chat_samples import Place, user
from upkeep import check, session_of

from snapshotter import BucketMissing, Database, InvalidValue, Refused, Unsupported
from snapshotter.maintenance import Keep, Kept, compact, each, gc, maintain, trim
from snapshotter.maintenance.upkeep import compact_where_possible
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Fault, FaultyBucket

STEPS = (compact, gc, partial(trim, keep=Keep(turns=1)))


@pytest.fixture
def place() -> Place:
    made = Place()
    for name in ("a", "b", "c"):
        session_of(made, 3, name)
    return made


def test_each_session_gets_what_is_due(place: Place) -> None:
    told: list[Kept] = []
    found = maintain(place.db, keep=Keep(turns=2), progress=told.append)
    assert told == found
    assert [kept.session for kept in found] == ["a", "b", "c"]
    for kept in found:
        assert [done.operation for done in kept.done] == ["trim", "compact", "gc"]
        assert [bool(done.written) for done in kept.done] == [True, True, False]
        assert kept.error is None
        check(place, kept.session)


def test_it_is_idempotent_and_nothing_is_trimmed_unasked(place: Place) -> None:
    maintain(place.db)
    assert not place.stored("checkpoints/")
    after = place.stored("")
    place.clock.advance(24 * 3600)
    assert not any(done.written or done.deleted for kept in maintain(place.db) for done in kept.done)
    assert place.stored("") == after


def test_a_dry_run_writes_nothing(place: Place) -> None:
    before = place.stored("")
    dry = maintain(place.db, keep=Keep(turns=1), dry_run=True)
    assert place.stored("") == before
    assert all(kept.done[0].deleted for kept in dry)


def test_only_the_named_ones(place: Place) -> None:
    assert [kept.session for kept in maintain(place.db, ["b"])] == ["b"]


@pytest.mark.parametrize("error", [ValueError("a defect"), None])
def test_one_bad_session_is_reported_and_never_the_end(place: Place, error: Exception | None) -> None:
    if error is None:
        place.bucket.inner.put(keys.segment("out", "b", 1), b"broken")
    else:
        place.bucket.plan.append(Fault(key="out/b/", times=0, error=lambda: error))
    found = maintain(place.db)
    assert [kept.error is not None for kept in found] == [False, True, False]
    told = found[1].to_json()
    assert (told["error"], bool(told["message"])) == (type(found[1].error).__name__, True)
    assert found[2].done[0].written == 2


def test_what_concerns_the_whole_store_ends_it(place: Place) -> None:
    place.bucket.plan.append(Fault(nth=10, times=0, error=lambda: BucketMissing("gone")))
    with pytest.raises(BucketMissing):
        maintain(place.db)


def test_a_store_that_cannot_replace_gets_the_rest(place: Place) -> None:
    class NoMatch(MemoryBucket):
        def put(self, key: str, data: bytes, **options: Any) -> Any:
            if options.pop("if_match", None) is not None:
                raise Unsupported("no If-Match here")
            return super().put(key, data, **options)

    bucket = FaultyBucket(NoMatch(place.clock, space=place.space), clock=place.clock, trusted=False)
    db = type(place.db)(bucket, place.clock)
    found = maintain(db, ["a"], keep=Keep(turns=2))
    trimmed, compacted, _ = found[0].done
    assert trimmed.deleted > 3
    assert "does not replace an object under If-Match" in compacted.why
    assert compact_where_possible(db, "b").written == 0
    check(place, "a")


@pytest.mark.parametrize("sessions", ["a", ["a", 5], 5])
def test_sessions_are_a_list_of_ids(place: Place, sessions: Any) -> None:
    place.bucket.calls.clear()
    with pytest.raises(InvalidValue, match="sessions is a list of ids"):
        maintain(place.db, sessions)
    assert not place.bucket.calls


def test_an_iterator_of_ids_is_taken_and_each_session_once(place: Place) -> None:
    assert [kept.session for kept in maintain(place.db, iter(["b", "a", "b"]))] == ["b", "a"]


@pytest.mark.parametrize("step", STEPS)
def test_a_session_that_is_not_there_is_refused(place: Place, step: Any) -> None:
    with pytest.raises(Refused, match="there is no session 'nope' at memory:"):
        step(place.db, "nope")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "key", [keys.segment("in", "x", 1), keys.value("x", f"{'0' * 64}-n"), keys.checkpoint("x", 1)]
)
def test_one_of_which_anything_is_stored_is_there(step: Any, key: str) -> None:
    place = Place()
    place.bucket.inner.put(key, b"")
    assert step(place.db, "x").session == "x"


def test_a_session_that_is_there_is_not_looked_for(place: Place) -> None:
    place.bucket.calls.clear()
    for step in STEPS:
        step(place.db, "a", dry_run=True)
    assert not [call for call in place.bucket.calls if call.verb == "head"]


def test_one_that_is_gone_by_now_is_no_error_unless_it_was_named(place: Place) -> None:
    gone, named = each(place.db, ["nope"], [gc], named=False), each(place.db, ["nope"], [gc])
    assert (gone[0].error, gone[0].done) == (None, [])
    assert isinstance(named[0].error, Refused)


def test_side_by_side_comes_to_the_same(place: Place) -> None:
    alone = Place()
    for name in ("a", "b", "c"):
        session_of(alone, 3, name)
    told: list[tuple[str, threading.Thread]] = []

    def progress(kept: Kept) -> None:
        told.append((kept.session, threading.current_thread()))

    found = maintain(place.db, keep=Keep(turns=2), jobs=3, progress=progress)
    assert [kept.to_json() for kept in found] == [k.to_json() for k in maintain(alone.db, keep=Keep(turns=2))]
    assert told == [(name, threading.current_thread()) for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        check(place, name)


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_bucket_that_is_gone_ends_it_however_many_are_at_work(place: Place, jobs: int) -> None:
    place.bucket.plan.append(Fault(key="out/b/", times=0, error=lambda: BucketMissing("gone")))
    with pytest.raises(BucketMissing):
        maintain(place.db, jobs=jobs)


@pytest.mark.parametrize("jobs", [0, 1.5, True, None])
def test_jobs_are_a_number_of_threads(place: Place, jobs: Any) -> None:
    with pytest.raises(InvalidValue, match="jobs is a number of threads"):
        maintain(place.db, jobs=jobs)


def test_who_ends_the_run_waits_for_no_session(place: Place) -> None:
    """The caller is interrupted while another session is between two requests: its next is not made."""
    never, waiting = threading.Event(), threading.Event()

    ended: list[str] = []

    def step(db: Database, session_id: str, **_: Any) -> Any:
        if session_id == "a":
            assert waiting.wait(60)
            return gc(db, session_id)
        store = db._own_store()
        store.head("before")
        waiting.set()
        for _ in range(60_000):  # until the run is over: else for a minute
            store.head("while")
            never.wait(0.001)
        ended.append(session_id)
        return gc(db, session_id)

    def progress(_: Kept) -> None:
        assert not ended
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each(place.db, ["a", "b"], [step], jobs=2, progress=progress)
    assert not ended
    place.db.send("a", user("later"))  # who asked may go on with the same database


def test_a_store_that_is_not_known_is_asked_once_for_all(place: Place) -> None:
    another = threading.Event()
    asked: list[str] = []

    class Asked(MemoryBucket):
        def get(self, key: str) -> Any:
            if key == "capabilities.json":
                asked.append(key)
                another.wait(0.2) if len(asked) == 1 else another.set()
            return super().get(key)

    bucket = FaultyBucket(Asked(place.clock, space=place.space), clock=place.clock, trusted=False)
    db = Database(bucket, place.clock)
    threads = [threading.Thread(target=db._ensure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1
    assert len([call for call in bucket.calls if (call.verb, call.key) == ("put", "capabilities.json")]) == 1
