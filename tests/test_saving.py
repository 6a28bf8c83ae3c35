"""Saving the snapshot: forward only, and never over what was not read."""

from __future__ import annotations

import json

import orjson
import pytest
from chat_samples import SID, Place, first_turn, saying, write_all

from snapshotter import Corrupt, Database, NewerVersion, Unreachable, saving
from streams.store import Store
from streams.testing.faults import Fault, FaultyBucket

KEY = f"sessions/{SID}/snapshot.json"


@pytest.fixture
def place() -> Place:
    return Place()


def save(
    store: Store, sid: str, data: bytes, cursor: int, etag: str | None, form: str = "as-given"
) -> str | None:
    """The new ETag."""
    written = saving.save(store, sid, data, cursor, etag, form)
    return None if written is None else written.etag


def document(cursor: int, **more: object) -> bytes:
    return orjson.dumps({"version": 1, "lastOutEventId": str(cursor), **more})


def stored(place: Place) -> bytes:
    return place.stored(KEY)[KEY]


def test_the_first_and_the_next(place: Place) -> None:
    store = Store(place.bucket, place.clock)
    etag = save(store, SID, document(3), 3, None)
    assert etag is not None
    assert save(store, SID, document(5), 5, etag) not in (None, etag)
    assert stored(place) == document(5)


def test_an_older_one_is_replaced_and_a_newer_one_left(place: Place) -> None:
    store = Store(place.bucket, place.clock)
    stale = save(store, SID, document(1), 1, None)
    save(store, SID, document(5), 5, stale)
    assert save(store, SID, document(4), 4, stale) is None
    assert save(store, SID, document(5, other=1), 5, None) is None
    assert stored(place) == document(5)
    assert save(store, SID, document(6), 6, stale) is not None
    assert stored(place) == document(6)


def test_one_that_is_gone_is_written_anew(place: Place) -> None:
    store = Store(place.bucket, place.clock)
    etag = save(store, SID, document(1), 1, None)
    place.bucket.inner.delete(KEY)
    assert save(store, SID, document(2), 2, etag) is not None
    assert stored(place) == document(2)


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":2}'])
def test_what_cannot_be_read_is_not_overwritten(place: Place, data: bytes) -> None:
    place.bucket.inner.put(KEY, data)
    with pytest.raises(Corrupt) as caught:
        save(Store(place.bucket, place.clock), SID, document(9), 9, '"an etag of before"')
    assert isinstance(caught.value, NewerVersion) is (data[:2] == b'{"' and data != b"{")
    assert stored(place) == data


def test_a_reply_that_was_lost_is_our_own_write(place: Place) -> None:
    store = Store(place.bucket, place.clock)
    etag = save(store, SID, document(1), 1, None)
    place.bucket.plan.append(Fault("put", when="after", seconds=5.0))
    assert save(store, SID, document(2), 2, etag) is not None
    assert stored(place) == document(2)


def test_one_that_changes_each_time_is_given_up(place: Place) -> None:
    store = Store(place.bucket, place.clock)
    save(store, SID, document(1), 1, None)
    count = iter(range(2, 100))

    def change(asked: object, when: str) -> None:
        place.bucket.inner.put(KEY, document(1, n=next(count)))

    place.bucket.hook = change
    with pytest.raises(Unreachable):
        save(store, SID, document(99), 99, '"x"')
    assert json.loads(stored(place))["lastOutEventId"] == "1"


@pytest.mark.parametrize("form", ["unquoted", "none"])
def test_stores_that_want_another_form_of_etag(place: Place, form: str) -> None:
    seen: list[object] = []

    class Picky(FaultyBucket):
        def put(self, key: str, data: bytes, **options: object) -> object:  # type: ignore[override]
            seen.append(options.get("if_match"))
            return super().put(key, data, nonce=str(options.get("nonce", "")))

    store = Store(Picky(place.bucket.inner), place.clock)  # type: ignore[arg-type]
    etag = save(store, SID, document(1), 1, None, form)
    assert save(store, SID, document(2), 2, etag, form) is not None
    assert seen[-1] == (None if form == "none" else (etag or "").strip('"'))
    assert stored(place) == document(2)


@pytest.mark.parametrize("data", [b'{"version":2,"by":"a newer release"}', b"{", document(7)])
def test_without_conditions_what_stands_there_is_looked_at_first(place: Place, data: bytes) -> None:
    """What is newer is left alone, what cannot be read is not overwritten."""
    store = Store(place.bucket, place.clock)
    place.bucket.inner.put(KEY, data)
    if data == document(7):
        assert save(store, SID, document(6), 6, None, "none") is None
        assert stored(place) == data
        assert save(store, SID, document(8), 8, None, "none") is not None
        assert stored(place) == document(8)
    else:
        with pytest.raises(Corrupt):
            save(store, SID, document(9), 9, None, "none")
        assert stored(place) == data


def test_a_zombies_snapshot_never_rolls_back(place: Place) -> None:
    """It stalls right before its PUT; another worker stores two turns more; it wakes."""
    place.send("u1")
    other = Database(place.bucket.inner, place.clock)
    struck: list[int] = []

    def stall(asked: object, when: str) -> None:
        key = getattr(asked, "key", "")
        if key == KEY and getattr(asked, "verb", "") == "put" and when == "before" and not struck:
            struck.append(1)
            for name in ("u2", "u3"):
                other.send(SID, {"id": name, "role": "user", "parts": []})
                with other.boot(SID) as session:
                    for turn in session.turns():
                        with turn:
                            write_all(turn, saying("by the other"))

    place.bucket.hook = stall
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("by the first"))
        assert json.loads(stored(place))["turn"] == 3
        assert session.report == []
        assert list(session.turns()) == []  # nothing is owed; it reads again before it would write
    assert len(place.db.history(SID)) == 6


def test_no_two_snapshots_of_a_session_are_the_same_bytes(place: Place) -> None:
    """So no content-derived ETag ever comes again, also where the history goes back to what it was."""
    kept = []
    for n in (1, 2, 1):
        with place.db.boot(SID) as session:
            session.set_state({"n": n})
        kept.append(stored(place))
    assert len(set(kept)) == 3
