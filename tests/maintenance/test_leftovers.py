"""What stands below a log's beginning counts for nothing: a sleeper left it, or a deletion will empty it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from blocky import LARGE, TINY
from chat_samples import SID, Place, user
from upkeep import HOURS, again, check, fresh, interrupted, names, session_of

from snapshotter import Gap
from snapshotter.checkpoints import leftovers
from snapshotter.maintenance import Keep, compact, delete, export, maintain, redact, trim
from snapshotter.rebuilding.results import Options
from snapshotter.rebuilding.working import rebuild_in
from snapshotter.verify import verify
from streams import keys, log
from streams.codec import encode_segment


def left(place: Place, first: int, last: int) -> None:
    """A writer that slept takes these places in one segment, in which nothing happens."""
    records: list[dict[str, Any]] = [
        {"id": number, "ts": 1, "control": "heartbeat"} for number in range(first, last + 1)
    ]
    data = encode_segment("out", records, nonce="late", epoch=1, run="r-late", prev="gone", lease=0)
    place.bucket.inner.put(keys.segment("out", SID, first), data)


def count(place: Place) -> int:
    """How many segments stand below the beginning."""
    store = fresh(place).store
    places = [p for p in reversed(log.tail_keys(store, "out", SID, 0).entries) if p.size]
    return leftovers(store, SID, places)


@pytest.mark.parametrize("places", [[1], [1, 3], [1, 3, 5, 7, 9, 11]])
def test_below_the_fence_of_a_deletion(places: list[int]) -> None:
    place = Place()
    again(place)
    for first in places:
        left(place, first, first)
    assert count(place) == len(places)
    compact(place.db, SID)
    trim(place.db, SID, keep=Keep(turns=1))
    check(place)
    assert len(fresh(place).history(SID)) == 2


def test_below_a_fence_that_nothing_follows() -> None:
    """As an export sees it that read while a deletion was emptying the rest."""
    place = Place()
    session_of(place, 3)
    before = place.stored("out/")
    first, _, third, *_ = names(before)
    delete(place.db, SID)
    for number in (first, third):
        key = keys.segment("out", SID, number)
        place.bucket.inner.put(key, before[key])
    assert count(place) == 2
    check(place)
    assert export(place.db, SID, io.BytesIO()).why == ""


def test_one_that_reaches_beyond_the_beginning_of_a_trimmed_log() -> None:
    place = Place()
    session_of(place, 5)
    trim(place.db, SID, keep=Keep(turns=1))
    start, *_ = names(place.stored("out/"))
    left(place, start - 2, start + 1)
    assert count(place) == 1
    check(place)


def test_one_that_ends_where_a_trimmed_log_begins_is_not_what_it_continues() -> None:
    place = Place()
    session_of(place, 5)
    trim(place.db, SID, keep=Keep(turns=1))
    start, *_ = names(place.stored("out/"))
    left(place, start - 2, start - 1)
    assert count(place) == 1
    check(place)


def test_a_hole_that_nothing_accounts_for_is_a_gap() -> None:
    place = Place()
    session_of(place, 3)
    lost = names(place.stored("out/"))[2]
    place.bucket.inner.delete(keys.segment("out", SID, lost))
    assert count(place) == 0
    assert [problem.code for problem in verify(fresh(place), SID).problems] == ["gap"]
    with pytest.raises(Gap):
        compact(place.db, SID)


@pytest.mark.parametrize("number", range(1, 9))
def test_a_compaction_that_slept_while_the_log_became_another_reads_it_again(number: int) -> None:
    """A trim has been there between two of its requests, and a writer that slept has taken a freed place."""
    place = Place()
    session_of(place, 5)

    def meanwhile() -> None:
        place.clock.advance(24 * HOURS)
        trim(place.db, SID, keep=Keep(turns=1))
        left(place, 1, 1)

    compact(interrupted(place, "", "out/", number, meanwhile), SID)
    check(place)


@pytest.mark.parametrize("message_id", ["late", "u1"])
@pytest.mark.parametrize("large", [False, True])
def test_an_input_that_lands_in_a_place_that_a_trim_freed(message_id: str, large: bool) -> None:
    """Its sender slept, and was acknowledged for another place."""
    place = Place(sizes=TINY)
    session_of(place, 3)
    late = f"LATE {LARGE if large else ''}"

    def sleep() -> None:
        for number in range(4):
            place.db.send(SID, user(f"m{number}"))
            place.answer()
        place.clock.advance(24 * HOURS)
        trim(place.db, SID, keep=Keep(turns=1))

    receipt = interrupted(place, "put", "in/", 1, sleep).send(SID, user(message_id, late))
    assert names(place.stored("in/")) == [4, 7, 8]
    assert receipt.id == 8
    check(place)
    assert [r.status for r in rebuild_in(fresh(place), Options(), [SID])] == ["same"]
    place.answer()
    redact(place.db, SID, "late" if message_id == "late" else "msg-in8")
    assert not [key for key, data in place.stored("").items() if b"LATE" in data]
    check(place)
    place.clock.advance(24 * HOURS)
    (done,) = maintain(place.db, [SID], keep=Keep(turns=1))
    assert done.error is None
    assert names(place.stored("in/"))[0] > 4
    check(place)


def test_a_hole_in_the_in_log_that_no_checkpoint_accounts_for_is_a_gap() -> None:
    place = Place()
    session_of(place, 3)
    place.bucket.inner.delete(keys.segment("in", SID, 2))
    assert [problem.code for problem in verify(place.db, SID).problems] == ["gap"]


def test_a_hole_in_the_in_log_is_a_gap_where_nothing_was_trimmed_though_there_is_a_checkpoint() -> None:
    place = Place()
    session_of(place, 5)
    redact(place.db, SID, "u5")
    assert place.stored("checkpoints/")
    place.bucket.inner.delete(keys.segment("in", SID, 3))
    assert [problem.code for problem in verify(place.db, SID).problems] == ["gap"]
