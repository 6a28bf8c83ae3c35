"""A deletion as a beginning: the state of a session whose log begins with the fence of its deletion.

What was before is gone by intent; ids, epoch and the inputs that are spent go on from there. All of it stands
in the segment that deletes (fence why=delete, session-deleted), so a log that begins with one is whole: it is
folded from the tombstone that the deletion put in the snapshot's place, made again from that segment.
"""

from __future__ import annotations

from typing import Any

from streams import keys, log
from streams.records import Cursor, Record, Segment
from streams.store import Store

from .core.fold import Fold
from .core.inputs import InputLog
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
            return _made(sid, segment, found)
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


def _made(sid: str, segment: Segment, found: tuple[Record, Record]) -> dict[str, Any]:
    fence, deleted = found
    header, fold = segment.header, Fold()
    fold.epoch, fold.run, fold.turn = _int(fence, "epoch"), str(fence.get("run") or ""), _int(fence, "turn")
    last = deleted["id"] == header.last
    # Merged with what came later, it ends elsewhere, and no nonce is known of the place.
    end = Cursor(deleted["id"], header.nonce if last else "", header.first)
    data = tombstone(sid, end, fold, spent=_int(fence, "for"), date_ms=_int(deleted, "ts"))
    return decode(data, key=keys.snapshot(sid), session=sid, hydrated=True)


def _int(record: Record, name: str) -> int:
    """A number of a record; 0 where it is none."""
    value = record.get(name)
    return value if type(value) is int else 0
