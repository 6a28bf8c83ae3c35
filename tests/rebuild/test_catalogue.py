"""Which sessions there are, when they changed, and how few listings that takes."""

from __future__ import annotations

import pytest
from chat_samples import SID, Place, user
from roots import forget, turns

from snapshotter.catalogue import all_sessions, changes
from streams.buckets.base import Page
from streams.errors import WrongEndpoint


def test_small_sessions_share_a_listing() -> None:
    place = Place()
    for number in range(40):
        place.db.send(f"s{number}", user("u1"))
    before = place.db.store.stats.snapshot().lists
    assert len(list(all_sessions(place.db))) == 40
    assert place.db.store.stats.snapshot().lists - before == 3  # the catalogue, in, out


def test_a_long_log_takes_one_listing_as_well() -> None:
    place = Place()
    for number in range(1200):
        place.db.store.put(f"in/a/{9999999999999999 - 1 - number:016d}-{number + 1}.jsonl", b"x")
    place.db.send("b", user("u1"))
    before = place.db.store.stats.snapshot().lists
    assert list(all_sessions(place.db)) == ["a", "b"]
    assert place.db.store.stats.snapshot().lists - before == 4


def test_the_newest_object_dates_a_session() -> None:
    place = Place()
    turns(place.db, SID, 1)
    place.clock.advance(60)
    turns(place.db, "other", 1)
    saved = changes(place.db)
    assert saved[SID] is not None
    assert saved["other"] is not None
    assert saved[SID] + 60_000 <= saved["other"]
    place.clock.advance(60)
    place.send("u2")  # no snapshot is written for that
    assert (changes(place.db)[SID] or 0) >= saved["other"] + 60_000
    forget(place.db, "other")
    assert changes(place.db)["other"] is not None


def test_a_listing_that_stands_still_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()

    def still(prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        return Page((), prefix != "sessions/", after, 0)

    monkeypatch.setattr(place.db.store, "list", still)
    with pytest.raises(WrongEndpoint, match="stands still"):
        list(all_sessions(place.db))
