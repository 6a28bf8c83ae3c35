"""A whole log as listed. A long one is held in numbers: of a segment its first id, size and date, 24 bytes.

A listing shows the newest segments first, and who reads a whole log begins with the oldest, so all names have
to be known before. They follow from the first ids. (A `Place` with its key and ETag takes 16 times as much:
of the log of 100,000 turns more than all else that is held to read it.)
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from streams import keys, log
from streams.keys import Log
from streams.log import Listing, Place
from streams.store import Store

SHORT = 1_000
"""A log of no more segments is held as it was listed."""

_UNKNOWN = -1


class Packed(Sequence[Place]):
    """Places of one log, oldest first, without their ETags."""

    def __init__(self, which: Log, sid: str, rows: Iterable[array[int]]) -> None:
        self._which: Log = which
        self._sid = sid
        self.firsts, self._sizes, self._dates = rows

    def __len__(self) -> int:
        return len(self.firsts)

    @overload
    def __getitem__(self, at: int) -> Place: ...
    @overload
    def __getitem__(self, at: slice) -> Packed: ...
    def __getitem__(self, at: int | slice) -> Place | Packed:
        if isinstance(at, slice):
            return Packed(self._which, self._sid, [row[at] for row in self._rows])
        return self._place(*(row[at] for row in self._rows))

    def __iter__(self) -> Iterator[Place]:
        return map(self._place, *self._rows)

    def __reversed__(self) -> Iterator[Place]:
        return map(self._place, *map(reversed, self._rows))

    def filled(self) -> Packed:
        """Without the empty ones."""
        if 0 not in self._sizes:
            return self
        kept = [at for at, size in enumerate(self._sizes) if size]
        return Packed(self._which, self._sid, [array("q", [row[at] for at in kept]) for row in self._rows])

    @property
    def _rows(self) -> tuple[array[int], array[int], array[int]]:
        return self.firsts, self._sizes, self._dates

    def _place(self, first: int, size: int, date: int) -> Place:
        key = keys.segment(self._which, self._sid, first)
        return Place(first, key, size, "", None if date == _UNKNOWN else date)


class Packer:
    """Takes a log's places as a listing shows them, the newest first."""

    def __init__(self, which: Log, sid: str) -> None:
        self._which: Log = which
        self._sid = sid
        self._found: list[Place] = []
        self._rows = [array("q"), array("q"), array("q")]

    def add(self, places: Iterable[Place]) -> None:
        self._found += places
        if len(self._found) > SHORT:
            self._pack()

    def places(self) -> Sequence[Place]:
        """All that were taken, the oldest first. The packer is spent."""
        if not self._rows[0]:
            return self._found[::-1]
        self._pack()
        for row in self._rows:
            row.reverse()
        return Packed(self._which, self._sid, self._rows)

    def _pack(self) -> None:
        for place in self._found:
            date = _UNKNOWN if place.modified_ms is None else place.modified_ms
            for row, number in zip(self._rows, (place.first, place.size, date), strict=True):
                row.append(number)
        self._found.clear()


def whole(store: Store, which: Log, sid: str) -> tuple[Sequence[Place], int | None]:
    """A whole log, oldest first, and the store's date of the listing's first page. Raises what a listing
    raises."""
    packer = Packer(which, sid)
    listing = log.newest(store, which, sid)
    packer.add(listing.entries)
    while listing.more:
        rest = Listing((), True, listing.date_ms, listing.resume)
        listing = log.tail_keys(store, which, sid, keys.MAX, rest)
        packer.add(listing.entries)
    return packer.places(), listing.date_ms


def filled(places: Sequence[Place]) -> Sequence[Place]:
    """Those that are not empty: what a deletion leaves is absent."""
    return places.filled() if isinstance(places, Packed) else [place for place in places if place.size]


def split(places: Sequence[Place], first: int) -> tuple[Sequence[Place], Sequence[Place]]:
    """Those that begin at this id or below, and those above it."""
    firsts = places.firsts if isinstance(places, Packed) else [place.first for place in places]
    at = bisect_right(firsts, first)
    return places[:at], places[at:]
