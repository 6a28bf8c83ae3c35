"""A whole log as listed: held in numbers or as it was listed, it is the same log."""

from __future__ import annotations

import random

import pytest

from streams import keys, places
from streams.buckets.memory import MemoryBucket
from streams.log import Place
from streams.store import Store
from streams.testing.clocks import FakeClock


@pytest.fixture
def store() -> Store:
    """A log of 300 segments, some of them emptied, beside another one."""
    clock, choose, first = FakeClock(), random.Random(1), 1
    store = Store(MemoryBucket(clock), clock)
    for _ in range(300):
        data = b"x" * choose.choice([0, 60, 900])
        store.put(keys.segment("out", "s", first), data)
        first += choose.randrange(1, 9)
        clock.advance(1)
    store.put(keys.segment("out", "t", 5), b"x")
    return store


def both(store: Store, patch: pytest.MonkeyPatch) -> tuple[list[Place], places.Packed]:
    listed, date = places.whole(store, "out", "s")
    patch.setattr(places, "SHORT", 7)
    packed, again = places.whole(store, "out", "s")
    assert (type(listed), date) == (list, again)
    assert isinstance(packed, places.Packed)
    return [Place(p.first, p.key, p.size, "", p.modified_ms) for p in listed], packed


def test_a_long_log_is_the_same_but_for_its_etags(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, packed = both(store, monkeypatch)
    assert len(packed) == len(listed) == 300
    assert list(packed) == listed == sorted(listed, key=lambda place: place.first)
    assert list(reversed(packed)) == listed[::-1]
    assert [packed[0], packed[17], packed[-1]] == [listed[0], listed[17], listed[-1]]
    assert list(packed[3:-200]) == listed[3:-200]
    assert list(packed[-3:][-2:]) == listed[-2:]
    assert not packed[:0]


def test_empty_ones_are_left_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, packed = both(store, monkeypatch)
    kept = places.filled(packed)
    assert list(kept) == places.filled(listed)
    assert 0 < len(kept) < 300
    assert list(places.filled(kept)) == list(kept)


def test_it_is_split_at_an_id(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, packed = both(store, monkeypatch)
    for first in (0, 1, listed[40].first, listed[40].first - 1, listed[-1].first, keys.MAX):
        below, above = places.split(packed, first)
        assert (list(below), list(above)) == places.split(listed, first)
        assert [*below, *above] == listed
        assert all(place.first <= first for place in below)
        assert all(place.first > first for place in above)


def test_a_store_that_tells_no_date(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SHORT", 1)
    packer = places.Packer("in", "s")
    packer.add([Place(n, keys.segment("in", "s", n), 9, "e", None) for n in (3, 2)])
    packer.add([Place(1, keys.segment("in", "s", 1), 9, "e", 0)])
    found = packer.places()
    assert [(place.first, place.modified_ms) for place in found] == [(1, 0), (2, None), (3, None)]
