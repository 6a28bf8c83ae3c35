"""Redaction: one message, or what one large value holds of it, is erased from everything that is stored.

    1  when the session was read, what there is of blocks, values and checkpoints is listed
    2  the in log says which inputs are to be written anew, and whose duplicate each is (`redaction`): what
       comes behind is compared with none of them, so nothing hangs on whether they were by then
    3  the log is taken over, and says what the message is now: a `history redact` that names its inputs, and
       a `history put`; the snapshot is saved. From here on nobody shows the content, and a worker that still
       holds it in memory is fenced, and reads again
    4  segments that hold some of it are rewritten in place, each under its condition (`rewriting`)
    5  the newest checkpoint becomes a copy of the snapshot; what was listed, and neither this nor the logs
       name now, is overwritten by an empty object: old blocks, old checkpoints, the message's own values. A
       value that holds another message is left to gc: its sender may be about to name it
    6  it is looked once more: a worker may have sealed a block before it was fenced, which nobody names now;
       then all this is done again, three times

The law holds at any moment, since the log says what happens before it does. A redaction that was broken off
is run again, and leaves nothing then, whatever the first one came to. It cannot reach what the bucket's own
versioning keeps, other sessions (a fork has its own copy), exports, and what other messages, a compacted
context or the session's state repeat of it.

A dry run does all of it to a copy of the session in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from snapshotter import blocks
from snapshotter.checkpoints import cursor_of
from snapshotter.core.budget import Limits
from snapshotter.core.calls import Message
from snapshotter.core.redacted import blank
from snapshotter.core.shapes import is_ref, turn_of
from snapshotter.incoming import read_inputs
from snapshotter.spans import maintained
from snapshotter.values import UNREADABLE
from snapshotter.windows import WINDOW
from streams import keys, log
from streams.buckets.base import Blob, Entry
from streams.errors import Fenced, InvalidValue, PreconditionFailed, Refused, Unreachable, Unsupported
from streams.log import Vanished
from streams.records import Record
from streams.store import Store

from .bench import Bench, Done, restarting
from .blanking import Own, blank_turn, own_of
from .copying import put_copy
from .moving import read_whole
from .rewriting import Changes, bereft, read_logs, without
from .sweeping import named_in, names

if TYPE_CHECKING:
    from snapshotter.database import Database
    from snapshotter.session import Session

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

    A worker that is at work is waited for, as a boot does (not with `takeover` or `dry_run`). Raises Busy
    then, Refused where there is no such message, while a turn is open, or where a hydrate hook has the
    history (nothing was written then), Unsupported where the store does not replace under If-Match (nor
    then), Corrupt and NewerVersion where what may name a value cannot be read, and what requests raise; run
    it again then.
    """
    if (message_id is None) == (value is None):
        raise InvalidValue("give either the id of a message or the name of a value", path="message_id")
    if dry_run:
        return _rehearsed(Bench(db, session_id, "redact", None, True), message_id, value, takeover)
    begun: list[bool] = []
    erased: set[bytes] = set()

    def run() -> Done:
        bench = Bench(db, session_id, "redact", None, False)
        try:
            return _redact(bench, message_id, value, takeover, erased)
        finally:
            begun.append(bench.done.written > 0)

    try:
        return restarting(run)
    except Refused as error:
        if any(begun):  # before a worker was faster
            raise Unreachable(f"{error}; it is half done: run it again") from error
        raise


def _redact(
    bench: Bench, message_id: str | None, value: str | None, takeover: bool, erased: set[bytes]
) -> Done:
    """`erased`: the names of values that stood in what was rewritten; more are added."""
    _check(bench)
    with _resting(bench, takeover) as session:
        listed = _kept(bench)
        targets = [message_id] if message_id is not None else _holders(bench, session, str(value))
        owns = {target: _say(bench, session, target, listed, erased) for target in targets}
    for target in targets:
        while (changes := without(bench, target, owns[target])).segments:
            erased |= changes.write(bench)  # and again: a compaction may have put back what it had read
    _forget(bench, listed, targets, erased)
    left = bench.db.peek(bench.done.session).messages
    if any(_is_one_of(message, targets) for message in left):
        raise Vanished(f"session {bench.done.session!r}: a worker brought the message back")
    return bench.done


def _is_one_of(message: Any, targets: list[str]) -> bool:
    """Whether this is one of these messages, and not what is left of it."""
    return isinstance(message, dict) and message.get("id") in targets and message != blank(message)


def _check(bench: Bench) -> None:
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


def _resting(bench: Bench, takeover: bool) -> Session:
    """The session, which nobody holds and in which no turn is open. Raises Busy, Refused."""
    session = bench.db.wait_for(
        bench.done.session,
        takeover=takeover,
        limits=Limits(max_backoff=0.0),
        stable_timeout=0.0 if bench.done.dry_run else None,
    )
    fold, name = session.fold, session.id
    why = ""
    if fold.deleted:
        why = f"session {name!r} is deleted: its content is gone already"
    elif fold.open is not None:
        why = (
            f"a turn of session {name!r} is open: let a worker end it (`boot`, or `snapshotter record`), and"
            " redact then; or delete the session"
        )
    elif not (fold.cursor or fold.inputs.last):
        why = f"there is no session {name!r} at {bench.db.url}"
    if why:
        session.close()
        raise Refused(why)
    return session


def _rehearsed(bench: Bench, message_id: str | None, value: str | None, takeover: bool) -> Done:
    """What a redaction would do, done to a copy in memory."""
    from snapshotter.database import Database
    from streams.buckets.memory import MemoryBucket

    _check(bench)
    _resting(bench, takeover).close()
    db = bench.db
    copy = Database(MemoryBucket(db.clock), db.clock, sizes=db._sizes)
    for key, data in restarting(lambda: read_whole(bench, bench.done.session)).stored():
        copy.store.put(key, data)
    done = _redact(Bench(copy, bench.done.session, "redact", None, False), message_id, value, True, set())
    done.dry_run = True
    return done


def _kept(bench: Bench) -> list[Entry]:
    """Blocks, values and checkpoints that hold something."""
    prefixes = (keys.blocks_prefix, keys.values_prefix, keys.checkpoints_prefix)
    found = [e for prefix in prefixes for e in bench.shelf(prefix(bench.sid)).entries if e.size]
    return [e for e in found if keys.parse_content(e.key) or keys.parse_checkpoint(e.key)]


def _holders(bench: Bench, session: Session, name: str) -> list[str]:
    """The id of the message that a large value belongs to. Where nothing names it any more, and it is there,
    a redaction was broken off: all that were redacted before are gone through again. Raises Refused."""
    apart = session.fold.chain.apart
    for message in session.fold.chain.messages:
        ref = apart.ref_of(message)
        if ref is not None and ref["key"] == name:
            return [str(message.get("id"))]
    logs = read_logs(bench)
    fold = logs.fold()
    for read in logs.inputs:
        for record in read.records:
            fold.feed(record)
            held = record.get("message")
            if _refers(record, name) and isinstance(held, dict):
                return [str(held.get("id"))]
    for read in logs.outs:
        for record in read.records:
            fold.apply(record)
            if _refers(record, name):
                held = record.get("message")
                own = fold.open.message_id if fold.open is not None else ""
                return [str(held.get("id")) if isinstance(held, dict) else own]
    head = bench.store.head(keys.value(bench.sid, name))
    if head is None or not head.size:
        raise Refused(f"nothing in session {session.id!r} names the value {name!r}")
    return [str(m.get("id")) for m in session.fold.chain.messages if m == blank(m)]


def _refers(record: Record, name: str) -> bool:
    """Whether a record names this value."""
    ref: Any = record.get("ref")
    return is_ref(ref) and ref["key"] == name


def _say(bench: Bench, session: Session, target: str, listed: list[Entry], erased: set[bytes]) -> Own:
    """Have the log say what the message is now, and the snapshot; returns what the history tells of it. Where
    both do already nothing is written, unless something of what is listed is to be emptied: that somebody who
    is at work has just sealed it, and will name it, is ruled out by taking the log over alone. Raises Refused
    where there is no such message, Unreachable where no snapshot was saved: nothing may be forgotten then."""
    found = [message for message in session.fold.chain.messages if message.get("id") == target]
    own = own_of(session.fold, target)
    changes = without(bench, target, own)
    last = session.fold.last_turn or {}
    known = bool(found) or last.get("messageId") == target  # one that was left empty: its turn is told of
    if not known and not changes.brought and not changes.segments:
        raise Refused(f"there is no message {target!r} in session {session.id!r}")
    left = last != blank_turn(last) and last.get("messageId") == target
    left = left or bool(changes.segments) or any(message != blank(message) for message in found)
    said = known and not left
    stored = bench.snapshot() if said else None
    if stored is not None and cursor_of(stored[1]) >= session.fold.cursor:
        contents = [entry for entry in listed if keys.parse_content(entry.key) is not None]
        if not contents or not _doomed(bench, _unnamed(bench, contents, *stored), [target], erased)[0]:
            bench.done.why = "it is redacted already"
            return own
    try:
        _take_over(bench, session, target, len(found), changes)
    except Fenced as lost:
        raise Vanished(f"session {session.id!r}: a worker was faster") from lost
    stored = bench.snapshot()
    if stored is None or cursor_of(stored[1]) < session.fold.cursor:
        raise Unreachable(f"the snapshot of session {session.id!r} was not saved: run the redaction again")
    return own


def _take_over(bench: Bench, session: Session, target: str, count: int, changes: Changes) -> None:
    """Take the log over, and say what the message is now that stands in the history so many times."""
    behind = [_announce(bench, session, changes)] if changes.inputs else []
    last = session.fold.last_turn
    if last is not None and (last.get("turn") in changes.turns or last.get("messageId") == target):
        session.fold.last_turn = blank_turn(last)
    session.fold.chain.changed = True  # a checkpoint is due, however short the log behind the last one is
    messages = session.fold.chain.messages
    named = [*sorted(changes.brought), *behind]
    if count > 1:  # namesakes from long ago: only the newest can be named
        every = [blank(m) if m.get("id") == target else m for m in messages]
        session.redact(named, "replace", messages=every)
    elif count == 1:
        (message,) = (m for m in messages if m.get("id") == target)
        session.redact(named, "put", message=blank(message))
    else:
        session.redact(named)


def _announce(bench: Bench, session: Session, changes: Changes) -> int:
    """Have the in log say which inputs are written anew, and whose duplicate each is; returns where. A copy
    that was sent in between is one of them: then it says so again."""
    fold = session.fold
    while True:
        number = log.append_input(bench.store, bench.sid, changes.announced)
        between = range(fold.inputs.last + 1, number)
        copies: dict[int, int] = {}
        for found in read_inputs(bench.store, bench.sid, between, leave=UNREADABLE):
            fold.feed(found)
            entry = fold.inputs.get(found["id"])
            if entry is not None and entry.duplicate_of in changes.inputs:
                copies[entry.id] = entry.duplicate_of
        fold.feed(changes.announced(number))
        if not copies:
            return number
        changes.inputs |= copies
        changes.brought |= {copy for copy, first in copies.items() if first in changes.brought}


# -- what stands beside the logs ----------------------------------------------------------------------


def _forget(bench: Bench, listed: list[Entry], targets: list[str], erased: set[bytes]) -> None:
    """Empty what was listed, and what neither the snapshot, as it stands by now, nor the logs name, and look
    whether a sender has named one of these values meanwhile. Raises Vanished where something that was sealed
    since, and that somebody may be about to name, holds one of the messages: after another takeover it can be
    emptied, too."""
    kept, blob, document = _copied(bench)
    unnamed = [e for e in _unnamed(bench, listed, blob, document) if e.key != kept]
    doomed, held = _doomed(bench, unnamed, targets, erased)
    bench.done.deleted += len(doomed)
    bench.done.freed += sum(entry.size for entry in doomed)
    _blank(bench.store, doomed)
    if held:
        bereft(bench, held).write(bench)
    before = {entry.key for entry in listed}
    since = [entry for entry in _kept(bench) if entry.key not in before]
    for entry, found in bench.read(_unnamed(bench, since, blob, document) if since else ()):
        if any(_is_one_of(message, targets) for message in _messages(entry.key, found.data)):
            raise Vanished(f"{entry.key} was sealed by a worker that had not read the log")


def _unnamed(bench: Bench, entries: list[Entry], blob: Blob, document: dict[str, Any]) -> list[Entry]:
    """Those that neither this snapshot nor the logs name."""
    named = names([blob.data]) | named_in(bench, [document])
    contents = [(entry, keys.parse_content(entry.key)) for entry in entries]
    return [entry for entry, content in contents if content is None or content[2].encode() not in named]


def _doomed(
    bench: Bench, unnamed: list[Entry], targets: list[str], erased: set[bytes]
) -> tuple[list[Entry], dict[str, Message]]:
    """What is emptied of what nobody names, and of the values among it the messages that they hold.

    Blocks, checkpoints and chunks are a worker's, which is fenced by now. A message may have been stored by a
    sender who is about to name it: it goes where something that was rewritten named it, or where it bears the
    id of one of the messages."""
    doomed: list[Entry] = []
    unsure: list[tuple[Entry, str]] = []
    for entry in unnamed:
        content = keys.parse_content(entry.key)
        if content is None or content[0] != "values" or content[2].encode() in erased:
            doomed.append(entry)
        else:
            unsure.append((entry, content[2]))
    held: dict[str, Message] = {}
    for (entry, name), (_, blob) in zip(unsure, bench.read(e for e, _ in unsure), strict=True):
        for value in _messages(entry.key, blob.data):
            if _is_one_of(value, targets):
                held[name] = value
            if name in held or (isinstance(value, dict) and "role" not in value):
                doomed.append(entry)
    return doomed, held


def _messages(key: str, data: bytes) -> list[Any]:
    """The messages that a block, or a value, holds by itself."""
    content = keys.parse_content(key)
    if content is None:
        return []  # a checkpoint, whose writer looks again
    if content[0] == "blocks":
        return blocks.glance(data)
    with suppress(orjson.JSONDecodeError):
        return [orjson.loads(data)]
    return []


def _blank(store: Store, doomed: Sequence[Entry]) -> None:
    for start in range(0, len(doomed), WINDOW):
        window = doomed[start : start + WINDOW]
        store.gather([partial(store.put, entry.key, b"") for entry in window], writes=True)


def _copied(bench: Bench) -> tuple[str, Blob, dict[str, Any]]:
    """Make the newest checkpoint a copy of the snapshot (before the first turn's end it is number 0, a
    fork's); returns its key, and the snapshot as stored. What stands there is read before the snapshot, and
    replaced under its condition: of two redactions neither brings back what the other one took away."""
    key: str | None = None
    for _ in range(_TRIES):
        stands = None if key is None else bench.store.get(key)
        stored = bench.snapshot()
        if stored is None or stored[1].get("deleted"):
            raise Vanished(f"session {bench.done.session!r} was deleted while it was redacted")
        blob, document = stored
        own = keys.checkpoint(bench.sid, turn_of(document))
        if own != key:
            key = own
            continue
        try:
            written = put_copy(bench, key, blob.data, document, stands)
        except PreconditionFailed:
            continue
        if written is None:
            raise Vanished(f"session {bench.done.session!r} was changed while it was redacted")
        return key, blob, document
    raise Unreachable(f"{key} changes each time it is looked at: run the redaction again")
