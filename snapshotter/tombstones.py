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

from .core.controls import control_of
from .core.fold import Fold
from .core.inputs import InputLog
from .core.snapshot import decode, encode

_WINDOW = 64  # segments that are read together: what bounds the memory


def tombstone(sid: str, fence: Cursor, fold: Fold, *, spent: int, date_ms: int) -> bytes:
    """The snapshot of a deleted session. `fence`: the end of the segment that deletes; `fold`: whose epoch,
    run and turn go on; `spent`: the newest input without effect; `date_ms` (epoch ms): its date."""
    grave = Fold()
    grave.cursor, grave.timestamp, grave.inputs = fence.id, date_ms, InputLog(spent)
    grave.epoch, grave.run, grave.turn = fold.epoch, fold.run, fold.turn
    grave.closed = grave.deleted = True
    return encode(grave, fence.nonce, date_ms, session=sid, first=fence.first)


def after_deletion(store: Store, sid: str) -> dict[str, Any] | None:
    """The tombstone of the newest deletion in the out log, which begins there, whatever is left below it;
    None where there is none. Read only where a log is not whole without it: the newest segments first.

    Raises Corrupt, Vanished where an object was gone, or had been emptied, when it was read, and what
    requests raise.
    """
    places = [place for place in log.tail_keys(store, "out", sid, 0).entries if not place.vacant]
    read = 0
    for start in range(0, len(places), _WINDOW):
        segments = log.fetch(store, [place.key for place in places[start : start + _WINDOW]])
        read += len(segments)
        for segment in reversed(segments):
            found = in_segment(sid, segment)
            if found is not None:
                return found
    if read < len(places):
        raise log.Vanished(f"a later deletion emptied the out log of {sid} while it was read")
    return None


def deletes(segment: Segment) -> bool:
    """Whether a segment of the out log deletes the session."""
    return any(control_of(record).get("control") == "session-deleted" for record in segment.records)


def in_segment(sid: str, segment: Segment) -> dict[str, Any] | None:
    """The tombstone of the newest deletion that this segment of the out log holds; None where it has none."""
    fence: Record = {}
    found = None
    for record in map(control_of, segment.records):
        if record.get("control") == "fence" and record.get("why") == "delete":
            fence = record
        elif record.get("control") == "session-deleted" and fence:
            found = fence, record
    return None if found is None else _made(sid, segment, *found)


def _made(sid: str, segment: Segment, fence: Record, deleted: Record) -> dict[str, Any]:
    header, fold = segment.header, Fold()
    fold.epoch, fold.run, fold.turn = fence.get("epoch", 0), fence.get("run", ""), fence.get("turn", 0)
    last = deleted["id"] == header.last
    # Merged with what came later, it ends elsewhere, and no nonce is known of the place.
    end = Cursor(deleted["id"], header.nonce if last else "", header.first)
    data = tombstone(sid, end, fold, spent=fence.get("for", 0), date_ms=deleted.get("ts", 0))
    return decode(data, key=keys.snapshot(sid), session=sid, hydrated=True)
