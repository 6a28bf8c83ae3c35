"""Checkpoints: the immutable snapshots that trimming writes before it deletes.

A log that was trimmed has no beginning, and a snapshot that is older than the trim cannot be brought up to
date from what is left. Such a one may stand for a while: it was read before the trim, or a slow writer put
it back where a store cannot replace under a condition. Then the newest checkpoint takes its place: it was
durable before the first object was deleted, so what follows it is all there.

A writer that slept through a trim may take a freed place before it finds out that it is not the newest one.
What it leaves stands below the log's beginning, with a hole behind it that a checkpoint covers: `leftovers`,
and of the in log `spent_inputs`.

A log that begins with a session's deletion lacks nothing either: it goes on from the tombstone
(`tombstones`), and what still stands below that counts for nothing.

Their keys count down by turn, so one short listing shows the newest first. Deletion leaves empty objects,
which are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from streams import keys, log
from streams.buckets.base import Entry
from streams.errors import Gap
from streams.log import Place
from streams.records import Cursor
from streams.store import Store

from .core.snapshot import decode
from .tombstones import after_deletion

_LOOK_AT = 20


def listed(store: Store, sid: str) -> list[Entry]:
    """Every checkpoint of a session that holds something, newest first."""
    found = store.entries(keys.checkpoints_prefix(sid))
    return [entry for entry in found if entry.size and keys.parse_checkpoint(entry.key) is not None]


def above(store: Store, sid: str, cursor: int, *, hydrated: bool = False) -> dict[str, Any] | None:
    """The document of the newest checkpoint, where it stands above this out id; else None.

    Raises Corrupt, NewerVersion or Refused as `decode` does, and what requests raise.
    """
    page = store.list(keys.checkpoints_prefix(sid), limit=_LOOK_AT)
    newest = next((e.key for e in page.entries if e.size and keys.parse_checkpoint(e.key) is not None), None)
    blob = store.get(newest) if newest is not None else None
    if newest is None or blob is None or not blob.data:  # a deletion has emptied it since
        return None
    document = decode(blob.data, key=newest, session=sid, hydrated=hydrated)
    return document if cursor_of(document) > cursor else None


def bases(store: Store, sid: str, cursor: int, *, hydrated: bool = False) -> Iterator[dict[str, Any]]:
    """The documents above this out id that a fold may go on from where the log does not reach down to it: the
    newest checkpoint's, then the tombstone of the deletion that the log begins with. Raises as they do."""
    document = above(store, sid, cursor, hydrated=hydrated)
    if document is not None:
        yield document
    document = after_deletion(store, sid)
    if document is not None and cursor_of(document) > cursor:
        yield document


def leftovers(
    store: Store, sid: str, places: Sequence[Place], snapshot: Mapping[str, Any] | None = None
) -> int:
    """How many of these segments of the out log (oldest first, none of them empty) stand below its beginning:
    what writers that slept have left, or a deletion has not emptied yet. `snapshot`: the stored document,
    where it was read; below a tombstone's segment everything is left over, wherever the holes are. Raises as
    `bases`, Corrupt for a segment that cannot be read, and Vanished for one that is gone."""
    grave = int(snapshot.get("lastOutFirst") or 0) if snapshot and snapshot.get("deleted") else 0
    buried = sum(place.first < grave for place in places)
    for number, behind in enumerate(places[buried + 1 :], buried):
        if _goes_on(store, sid, places[number:]) or not is_covered(store, sid, behind.first):
            return number
    return max(len(places) - 1, buried)


def spent_inputs(store: Store, sid: str, places: Sequence[Place]) -> int:
    """Of a session whose out log was shortened: how many of these segments of the in log (oldest first, none
    of them empty) count for nothing. Behind them is a hole, and a checkpoint, or a deletion, has everything
    below its end: a sender that slept has put them into places that a trim had freed, and knows that it was
    not heard. Raises as `bases`."""
    pairs = enumerate(pairwise(places), 1)
    holes = [(number, behind.first) for number, (place, behind) in pairs if behind.first != place.first + 1]
    told = bases(store, sid, 0, hydrated=True) if holes else ()
    known = [int(base.get("lastInEventId") or 0) for base in told]
    return max((number for number, first in holes if first - 1 <= max(known, default=0)), default=0)


def is_covered(store: Store, sid: str, first: int) -> bool:
    """Whether what stands below this out id, where a segment begins, counts for nothing: a checkpoint, or a
    deletion, is there to go on from. Raises as `bases`."""
    return next(bases(store, sid, first - 2, hydrated=True), None) is not None


def behind_hole(places: Sequence[Place], gap: Gap) -> int:
    """The first id of the segment at which a gap was found: it does not continue what stands below."""
    begin, end = gap.missing
    return begin if any(place.first == begin for place in places) else end + 1


def _goes_on(store: Store, sid: str, places: Sequence[Place]) -> bool:
    """Whether the first of these segments is followed by the one that continues it."""
    (first,) = log.fetch(store, [places[0].key]) or (None,)
    if first is None:
        return True
    end = Cursor(first.header.last, first.header.nonce, first.header.first)
    behind = next((place for place in places if place.first > end.id), None)
    if behind is None:
        return True
    with suppress(Gap):
        if behind.first == end.id + 1:
            log.link("out", sid, end, log.fetch(store, [behind.key]))
            return True
    return False


def cursor_of(document: dict[str, Any]) -> int:
    """The out id at which a snapshot document stands."""
    return int(document.get("lastOutEventId") or 0)
