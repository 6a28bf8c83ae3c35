"""Redaction: one message, or what one large value holds of it, is erased from everything that is stored.

    1  what there is of blocks, values and checkpoints is listed
    2  the log is taken over, and a `history put` says what the message is now; the snapshot is saved. From
       here on nobody shows the content, and a worker that still holds it in memory is fenced
    3  segments that hold some of it are rewritten in place, each under its condition: ids, nonces and frames
       stay, so the log is the same chain
    4  of what was listed, whatever the new snapshot does not name is overwritten by an empty object: old
       blocks, old checkpoints (the newest is made a copy of the snapshot), the message's own large values
    5  so is every large value that is an hour old and that nothing names any more: a redaction that was
       broken off may have left it

The law holds afterwards, since the log says what happened. A redaction that was broken off is run again. It
cannot reach what the bucket's own versioning keeps, other sessions (a fork has its own copy), exports, and
what other messages, a compacted context or the session's state repeat of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshotter import values
from snapshotter.checkpoints import cursor_of, leftovers
from snapshotter.core.budget import Limits
from snapshotter.core.fold import Fold
from snapshotter.core.inputs import InputLog
from snapshotter.spans import maintained
from streams import keys
from streams.buckets.base import Blob, Entry
from streams.codec import decode_segment, encode_segment
from streams.errors import InvalidValue, PreconditionFailed, Refused, Unreachable, Unsupported
from streams.keys import Log
from streams.log import MINIMUM_AGE_MS, Place, Vanished
from streams.records import Record, Segment

from .bench import WINDOW, Bench, Done, restarting
from .blanking import Blanker, blank, calls_in
from .copying import put_copy
from .rules import Rules
from .sweeping import unnamed_values

if TYPE_CHECKING:
    from snapshotter.database import Database
    from snapshotter.session import Session

_Read = tuple[Place, Blob, Segment]
_TRIES = 8


@maintained("redact")
def redact(
    db: Database,
    session_id: str,
    message_id: str | None = None,
    *,
    value: str | None = None,
    takeover: bool = False,
    dry_run: bool = False,
) -> Done:
    """Erase the message with this id, or the one that the large value of this name belongs to.

    A worker that is at work is waited for, as a boot does (`takeover`: not). Raises Busy then, Refused where
    there is no such message, while a turn is open, or where a hydrate hook has the history (nothing was
    written then), Unsupported where the store does not replace under If-Match (nor then), Corrupt and
    NewerVersion where what may name a value cannot be read, and what requests raise; run it again then.
    """
    if (message_id is None) == (value is None):
        raise InvalidValue("give either the id of a message or the name of a value", path="message_id")
    return restarting(
        lambda: _redact(Bench(db, session_id, "redact", None, dry_run), message_id, value, takeover)
    )


def _redact(bench: Bench, message_id: str | None, value: str | None, takeover: bool) -> Done:
    if bench.etags() == "none":
        raise Unsupported(
            f"{bench.db.url} does not replace an object under If-Match, so nothing can be redacted there:"
            " delete the session instead"
        )
    if bench.db._hydrate is not None:
        raise Refused(
            f"the history of session {bench.done.session!r} belongs to a hydrate hook: redact the message"
            " there, then trim what the logs hold of it; nothing was written"
        )
    listed = _kept(bench)
    with bench.db.wait_for(bench.done.session, takeover=takeover, limits=Limits(max_backoff=0.0)) as session:
        if session.fold.open is not None or session.fold.deleted:
            raise Refused(f"a turn of session {session.id!r} is open, or it is deleted: nothing was redacted")
        target = _holder(bench, session, str(value)) if message_id is None else message_id
        found = [message for message in session.fold.chain.messages if message.get("id") == target]
        calls = {call for message in found for call in calls_in(message)}
        apart = {ref["key"] for m in found if (ref := session.fold.chain.apart.ref_of(m)) is not None}
        blanker, changed = _rewritten(bench, target, calls)
        if not found and not changed and not blanker.inputs:
            raise Refused(f"there is no message {target!r} in session {session.id!r}")
        said = bool(found) and not changed and all(message == blank(message) for message in found)
        if said and _is_saved(bench, session):
            bench.done.why = "it is redacted already"
        elif not bench.done.dry_run:
            _say(session, target, len(found), blanker.inputs)
            _check_saved(bench, session)
    while _rewrite(bench, target, calls):
        pass  # a compaction may have put back, merged, what it had read before
    _forget(bench, listed, blanker.values | apart)
    if not bench.done.dry_run:
        rules = Rules(minimum_age=MINIMUM_AGE_MS / 1000)
        _blank(bench, unnamed_values(Bench(bench.db, bench.done.session, "redact", rules, dry_run=False)))
    return bench.done


def _kept(bench: Bench) -> list[Entry]:
    """Blocks, values and checkpoints that hold something."""
    prefixes = (keys.blocks_prefix, keys.values_prefix, keys.checkpoints_prefix)
    return [e for prefix in prefixes for e in bench.shelf(prefix(bench.sid)).entries if e.size]


def _holder(bench: Bench, session: Session, name: str) -> str:
    """The id of the message that a large value belongs to. Raises Refused."""
    apart = session.fold.chain.apart
    for message in session.fold.chain.messages:
        ref = apart.ref_of(message)
        if ref is not None and ref["key"] == name:
            return str(message.get("id"))
    fold, inputs, outs = _logs(bench)
    for _, _, segment in inputs:
        for record in values.fill(bench.store, bench.sid, segment.records, lenient=True):
            fold.feed(record)
            if record.get("ref", {}).get("key") == name and "message" in record:
                return str(record["message"].get("id"))
    for _, _, segment in outs:
        for record in values.fill(bench.store, bench.sid, segment.records, lenient=True):
            fold.apply(record)
            if record.get("ref", {}).get("key") == name:
                held = record.get("message")
                own = fold.open.message_id if fold.open is not None else ""
                return str(held.get("id")) if isinstance(held, dict) else own
    raise Refused(f"nothing in session {session.id!r} names the value {name!r}")


def _check_saved(bench: Bench, session: Session) -> None:
    """Raise Unreachable where no snapshot says what the message is now: nothing may be forgotten then."""
    if not _is_saved(bench, session):
        raise Unreachable(f"the snapshot of session {session.id!r} was not saved: run the redaction again")


def _is_saved(bench: Bench, session: Session) -> bool:
    """Whether the stored snapshot stands no lower than this session."""
    stored = bench.snapshot()
    return stored is not None and cursor_of(stored[1]) >= session.fold.cursor


def _say(session: Session, target: str, count: int, inputs: set[int]) -> None:
    """Take the log over and say what the message is now."""
    session.fold.inputs.forget(inputs)
    session.fold.chain.changed = True  # a checkpoint is due, however short the log behind the last one is
    messages = session.fold.chain.messages
    if count > 1:  # namesakes from long ago: only the newest can be named
        session.edit_history("replace", messages=[blank(m) if m.get("id") == target else m for m in messages])
    elif count == 1:
        (message,) = (m for m in messages if m.get("id") == target)
        session.edit_history("put", message=blank(message))
    else:
        session.set_state()


# -- the logs -----------------------------------------------------------------------------------------


def _logs(bench: Bench) -> tuple[Fold, list[_Read], list[_Read]]:
    """Both logs as read, and a fold that stands before them. Out first: it names no input then that came
    after the in log was read."""
    outs, inputs = _segments(bench, "out"), _segments(bench, "in")
    fold = Fold()
    if outs:
        fold.cursor = outs[0][2].header.first - 1
    fold.inputs = InputLog(inputs[0][2].header.first - 1 if inputs else 0)
    return fold, inputs, outs


def _segments(bench: Bench, which: Log) -> list[_Read]:
    """The live segments of a log, oldest first."""
    places, _ = bench.places(which)
    places = [place for place in places if place.size]
    if which == "out":
        places = places[leftovers(bench.store, bench.sid, places) :]
    found: list[_Read] = []
    for place, blob in bench.read(places):
        segment = decode_segment(blob.data, key=place.key)
        if segment is not None and (not found or segment.header.first > found[-1][2].header.last):
            found.append((place, blob, segment))
    return found


def _rewritten(
    bench: Bench, target: str, calls: set[str]
) -> tuple[Blanker, list[tuple[_Read, list[Record]]]]:
    """The segments that hold some of the message, and their records without it."""
    fold, inputs, outs = _logs(bench)
    blanker = Blanker(target, calls, fold)
    changed = [(read, new) for read in inputs if (new := _blanked(bench, read, blanker.input)) is not None]
    changed += [(read, new) for read in outs if (new := _blanked(bench, read, blanker.out)) is not None]
    return blanker, changed


def _blanked(bench: Bench, read: _Read, one: Callable[[Record], Record]) -> list[Record] | None:
    """A segment's records without the message; None where nothing changes."""
    stored = read[2].records
    filled = values.fill(bench.store, bench.sid, stored, lenient=True)
    made = [(old, full, one(full)) for old, full in zip(stored, filled, strict=True)]
    if all(new is full or new == full for _, full, new in made):
        return None
    return [old if new is full else new for old, full, new in made]


def _rewrite(bench: Bench, target: str, calls: set[str]) -> bool:
    """Put the segments without the message in their places; True where there were any. Raises Vanished where
    one was replaced meanwhile."""
    _, changed = _rewritten(bench, target, calls)
    for (place, blob, segment), records in changed:
        header = segment.header
        data = encode_segment(
            header.log,
            records,
            nonce=header.nonce,
            epoch=header.epoch,
            run=header.run,
            prev=header.prev,
            lease=header.lease,
        )
        bench.rewrite(place.key, data, blob.etag)
    return bool(changed) and not bench.done.dry_run


# -- what stands beside them --------------------------------------------------------------------------


def _forget(bench: Bench, listed: list[Entry], own: set[str]) -> None:
    """Empty what the new snapshot does not name, and the message's own values."""
    key = keys.snapshot(bench.sid)
    # Also where none was listed: a trim that is under way must not make one of what it has read.
    kept, text = (None, _text(bench.store.get(key))) if bench.done.dry_run else _copied(bench)
    doomed = []
    for entry in listed:
        content = keys.parse_content(entry.key)
        if content is None or (content[0] == "values" and content[2] not in own):
            continue
        if content[0] == "values" or content[2].encode() not in text:
            doomed.append(entry)
    bench.done.deleted += len(doomed)
    bench.done.freed += sum(entry.size for entry in doomed)
    if bench.done.dry_run:
        return
    checkpoints = [entry for entry in listed if keys.parse_checkpoint(entry.key) is not None]
    if kept is not None:
        doomed += [entry for entry in checkpoints if entry.key != kept]
    _blank(bench, doomed)


def _blank(bench: Bench, doomed: Sequence[Entry]) -> None:
    for start in range(0, len(doomed), WINDOW):
        window: list[Any] = [*doomed[start : start + WINDOW]]
        bench.store.gather([partial(bench.store.put, entry.key, b"") for entry in window], writes=True)


def _text(blob: Blob | None) -> bytes:
    return b"" if blob is None else blob.data


def _copied(bench: Bench) -> tuple[str | None, bytes]:
    """Make the newest checkpoint a copy of the snapshot; returns its key, None before the first turn's end,
    and the snapshot as stored. What stands there is read before the snapshot is, and replaced under its
    condition: of two redactions neither brings back what the other one took away."""
    key: str | None = None
    for _ in range(_TRIES):
        stands = None if key is None else bench.store.get(key)
        stored = bench.snapshot()
        if stored is None or stored[1].get("deleted"):
            raise Vanished(f"session {bench.done.session!r} was deleted while it was redacted")
        blob, document = stored
        own = keys.checkpoint(bench.sid, document["turn"]) if document.get("turn") else None
        if own is None:
            return None, blob.data
        if own != key:
            key = own
            continue
        try:
            written = put_copy(bench, key, blob.data, document, stands)
        except PreconditionFailed:
            continue
        if written is None:
            raise Vanished(f"session {bench.done.session!r} was changed while it was redacted")
        return key, blob.data
    raise Unreachable(f"{key} changes each time it is looked at: run the redaction again")
