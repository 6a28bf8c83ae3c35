"""A deletion as a beginning: the state of a session whose log begins with the fence of its deletion.

What was before is gone by intent; ids, epoch and the inputs that are spent go on from there. All of it stands
in the segment that deletes (fence why=delete, session-deleted), so a log that begins with one is whole: it is
folded from the tombstone that the deletion put in the snapshot's place, made again from that segment.

Inputs that were sent to a deleted session are owed until a deletion that is run again empties them, too; only
the tombstone says so. What is left shows it: below the `create` that opened the session an input that is
empty, or gone, or says `deleted`, is spent, and so is all below it.
"""

from __future__ import annotations

from typing import Any

from streams import keys, log
from streams.codec import decode_segment
from streams.log import Place
from streams.records import Cursor, Record, Segment
from streams.store import Store

from .core.fold import Fold
from .core.inputs import GONE, InputLog
from .core.snapshot import decode, encode

_OLDEST = 3  # segments that are looked at: writers that slept may have left some below the fence


def tombstone(sid: str, fence: Cursor, fold: Fold, *, spent: int, date_ms: int) -> bytes:
    """The snapshot of a deleted session. `fence`: the end of the segment that deletes; `fold`: whose epoch,
    run and turn go on; `spent`: the newest input without effect; `date_ms` (epoch ms): its date."""
    grave = Fold()
    grave.cursor, grave.timestamp, grave.inputs = fence.id, date_ms, InputLog(spent)
    grave.epoch, grave.run, grave.turn = fold.epoch, fold.run, fold.turn
    grave.closed = grave.deleted = True
    return encode(grave, fence.nonce, date_ms, session=sid, first=fence.first)


def after_deletion(store: Store, sid: str) -> dict[str, Any] | None:
    """The tombstone of the deletion that the out log begins with; None where it begins otherwise.

    Raises Corrupt, Vanished where an object was gone when it was read, and what requests raise.
    """
    listed = log.tail_keys(store, "out", sid, 0).entries
    places = [place for place in reversed(listed) if place.size]
    for segment in reversed(log.fetch(store, [place.key for place in places[:_OLDEST]])):
        found = _deletion(segment)
        if found is not None:
            later = [place for place in places if place.first >= segment.header.first]
            return _made(store, sid, segment, found, later)
    return None


def _deletion(segment: Segment) -> tuple[Record, Record] | None:
    """The fence and the record that delete, where this segment holds them."""
    fence: Record = {}
    for record in segment.records:
        if record.get("control") == "fence" and record.get("why") == "delete":
            fence = record
        elif record.get("control") == "session-deleted" and fence:
            return fence, record
    return None


def _made(
    store: Store, sid: str, segment: Segment, found: tuple[Record, Record], later: list[Place]
) -> dict[str, Any]:
    fence, deleted = found
    header, fold = segment.header, Fold()
    fold.epoch, fold.run, fold.turn = _int(fence, "epoch"), str(fence.get("run") or ""), _int(fence, "turn")
    last = deleted["id"] == header.last
    # Merged with what came later, it ends elsewhere, and no nonce is known of the place.
    end = Cursor(deleted["id"], header.nonce if last else "", header.first)
    spent = _spent(store, sid, _int(fence, "for"), later, deleted["id"])
    data = tombstone(sid, end, fold, spent=spent, date_ms=_int(deleted, "ts"))
    return decode(data, key=keys.snapshot(sid), session=sid, hydrated=True)


def _spent(store: Store, sid: str, told: int, later: list[Place], deleted: int) -> int:
    """The newest input that this deletion, run again perhaps, has spent; `told` by its fence at first."""
    listed = [p for p in log.tail_keys(store, "in", sid, told).entries if p.first > told]
    there = {place.first: place for place in listed}
    newest = max(there, default=told)
    gone = [n for n in range(told + 1, newest) if n not in there or not there[n].size]
    if gone or _is_gone(store, there.get(told + 1)):
        opened = _opened_at(store, later, deleted)
        newest = newest if opened is None else min(newest, opened)
        told = max([told, *(n for n in gone if n <= newest)])
        # The newest one of then keeps its frame.
        return told + 1 if told < newest and _is_gone(store, there.get(told + 1)) else told
    return told


def _is_gone(store: Store, place: Place | None) -> bool:
    """Whether this is what a deletion leaves of the newest input."""
    blob = None if place is None or not place.size else store.get(place.key)
    segment = None if place is None or blob is None else decode_segment(blob.data, key=place.key)
    return segment is not None and segment.records[0].get("kind") == GONE


def _opened_at(store: Store, later: list[Place], deleted: int) -> int | None:
    """The newest input when the session was created again; None where it was not."""
    for place in later:
        blob = store.get(place.key)
        segment = None if blob is None else decode_segment(blob.data, key=place.key)
        for record in segment.records if segment is not None else ():
            if record["id"] > deleted and record.get("why") == "create":
                return _int(record, "for")
    return None


def _int(record: Record, name: str) -> int:
    """A number of a record; 0 where it is none."""
    value = record.get(name)
    return value if type(value) is int else 0
