"""Upkeep of a whole root."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import Place
from upkeep import check, session_of

from snapshotter import BucketMissing, Unsupported
from snapshotter.maintenance import Keep, Kept, maintain
from snapshotter.maintenance.upkeep import compact_where_possible
from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Fault, FaultyBucket


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
