"""Which sessions there are, when they changed, and how few listings that takes."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import SID, Place, user
from roots import forget, turns

from snapshotter.catalogue import all_ids, all_sessions, changes, checked, selected
from streams import keys
from streams.buckets.base import Page
from streams.errors import InvalidValue, WrongEndpoint


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


def test_a_prefix_is_listed_and_not_looked_for() -> None:
    place = Place()
    for name in ("a-1", "a-2", "a ä", "b"):
        place.db.send(name, user("u1"))
    place.db.store.put(keys.value("a-3", "0" * 64 + "-n"), b"left by one who died")
    turns(place.db, "a-2", 1)
    place.bucket.calls.clear()
    assert sorted(all_sessions(place.db, "a-")) == ["a-1", "a-2"]
    assert {call.key for call in place.bucket.calls} == {"sessions/a-", "in/a-", "out/a-"}
    assert sorted(all_ids(place.db, "a-")) == ["a-1", "a-2", "a-3"]
    assert list(all_sessions(place.db, "a ")) == ["a ä"]
    assert set(changes(place.db, "a-")) == {"a-1", "a-2"}


def test_what_is_asked_for_is_found_once() -> None:
    place = Place()
    for name in ("a-1", "a-2", "b"):
        place.db.send(name, user("u1"))
        place.clock.advance(60)
    at = changes(place.db)["a-2"]
    assert list(selected(place.db)) == ["a-1", "a-2", "b"]
    assert list(selected(place.db, ["b", "nosuch", "b"])) == ["b", "nosuch"]
    assert list(selected(place.db, prefix="a-", since=at)) == ["a-2"]
    assert list(selected(place.db, ["a-1", "b", "nosuch"], since=at)) == ["b", "nosuch"]


@pytest.mark.parametrize("sessions", ["s-0", b"s-0", 5, [5], ["s-0", None]])
def test_what_is_no_list_of_ids_is_refused(sessions: Any) -> None:
    with pytest.raises(InvalidValue, match="sessions is a list of ids"):
        checked(sessions)


def test_a_list_of_ids_is_each_once() -> None:
    assert checked(name for name in ("b", "a", "b")) == ["b", "a"]
