"""Reading a session: snapshot and log tails into a fold, in as few round trips as it takes.

    1   GET snapshot ∥ LIST the newest of out ∥ LIST the newest of in (or GET the receipt's input)
    2   only if there is a tail, or blocks: GET the tail's segments ∥ GET the inputs that are not applied
        ∥ GET the blocks of the history
    3   only with a receipt whose session has inputs that were not read yet: GET those; only where chunks or
        messages are stored apart: GET their values

With a `window` only the newest blocks are read. What shows only then to lie in an older one (what an input or
a record of the tail names) makes the window larger, and the fold is made again; it comes out the same.

Inputs hold one record a segment and their ids have no holes, so their keys are known from the newest id:
nothing is listed to read them. Found, absent and unreadable are never confused: a snapshot that is
unreadable, or was not taken of this log, makes the boot read the whole log instead, is reported, and is not
overwritten.

The readings are not one instant. Whenever one lacks what another speaks of, it is made again: the in log
where the out log or the snapshot names a newer input, the out log where the snapshot stands at a later
place; a listed object that is gone, or a value that went with what named it, starts the boot again, and so
does, once, an input that a deletion took away meanwhile. A log that does not reach down to the
snapshot may have been trimmed: the newest checkpoint above it takes its place. What is not there then is
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from streams import keys, log, probe
from streams.buckets.base import Blob, Head
from streams.errors import Corrupt, Damaged, Gap, Missing, NewerVersion
from streams.log import Listing, Tail, Vanished
from streams.records import Cursor, Record
from streams.store import Store

from . import checkpoints, values
from .agreeing import (
    Ends,
    InputGone,
    Stored,
    check_newest,
    check_receipt,
    is_emptied,
    misfit,
    newest_inputs,
    receipt_gap,
)
from .core import reach
from .core.calls import Message
from .core.chain import Unloaded
from .core.fold import Fold
from .core.revive import revive
from .core.snapshot import decode, restore
from .holding import SLACK, Holder, told_age
from .hosting.hydrating import Hydration
from .incoming import named_input, read_wanted
from .shelf import PartLost, Shelf, inline

_ATTEMPTS = 3

Hydrator = Callable[[], list[Message]]


@dataclass(slots=True)
class Loaded:
    """A session as read. `etag` is the stored snapshot's, None where there is none; `readable` is false
    for one that could not be read and must not be overwritten. `hydrated`: somebody else owns the history;
    `held`: they hold all of it, so that the cursor may move up to here. `watched`: seconds for which the
    reader has seen the log end here. `stored_turn`: the last turn of the stored snapshot; `behind`: bytes of
    out log, and of values, that stand behind it. `listed`: the in log was, so nothing stands behind what was
    read of it; `just_sent`: else, that the receipt's input came a moment ago. `emptied`: a deletion has
    emptied an input, and the log as it was read says nothing of that deletion."""

    fold: Fold
    position: Cursor
    etag: str | None
    readable: bool
    stored_cursor: int
    lease: int = 0
    run: str = ""
    modified_ms: int | None = None
    date_ms: int | None = None
    capabilities: probe.Capabilities | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)
    hydrated: bool = False
    held: bool = False
    watched: float = 0.0
    stored_turn: int = 0
    behind: int = 0
    listed: bool = True
    just_sent: bool = False
    emptied: bool = False

    def holder(self, now_ms: int) -> Holder | None:
        """Who holds the session, judged by the store's own clock; None where nobody can be alive."""
        turn = self.fold.open
        held = (turn is not None and turn.released is None) or self.fold.claim is not None
        if not held or not self.lease:
            return None
        age = self.age(now_ms)
        left = self.lease + SLACK - age
        return Holder(self.run, age, left) if left > 0 else None

    def age(self, now_ms: int) -> float:
        """Seconds since the log's last word, by the store's own clock, or by the reader's patience."""
        return max(told_age(self.date_ms, self.modified_ms, now_ms), self.watched)

    def is_ahead(self, now_ms: int) -> bool:
        """Whether the log's last word is of the future, so that no date says how long ago it was."""
        return told_age(self.date_ms, self.modified_ms, now_ms) < -SLACK


@dataclass(frozen=True, slots=True)
class _Asked:
    """What `load` was asked for, and from where."""

    store: Store
    sid: str
    receipt: int | None
    capabilities: bool
    hydrate: Hydrator | None
    window: int | None
    leave: values.Leave = ()


@dataclass(slots=True)
class _First:
    """What the first round trip brought."""

    snapshot: Blob | None
    out: Listing
    ends_in: Ends
    inputs: list[Record]
    just_sent: bool
    capabilities: probe.Capabilities | None


def load(
    store: Store,
    sid: str,
    *,
    receipt: int | None = None,
    capabilities: bool = False,
    hydrate: Hydrator | None = None,
    window: int | None = None,
) -> Loaded:
    """Read a session. `receipt`: the id of an input that is known to be there. `capabilities`: also read
    what the probe found, in the same round trip. `hydrate` returns the history, where somebody else owns it.
    `window`: read no more of a long history than so many of the newest messages, and what else is needed.

    Raises Gap (also for a receipt that names an input which is not there), Corrupt, Missing, NewerVersion,
    and what requests raise.
    """
    asked = _Asked(store, sid, receipt, capabilities, hydrate, window)
    for attempt in range(1, _ATTEMPTS + 1):
        if attempt == _ATTEMPTS:
            # Nobody will bring it: an input whose message is not there stays owed, and keeps no other.
            asked = replace(asked, leave=values.ABSENT)
        try:
            loaded = _load(asked)
            if attempt > 1 or not loaded.emptied:
                return loaded
        except InputGone as gone:
            if attempt == _ATTEMPTS:
                raise gone.gap() from gone
        except (Vanished, Missing):
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _load(asked: _Asked) -> Loaded:
    store, sid, hydrate = asked.store, asked.sid, asked.hydrate
    first = _first_trip(store, sid, asked.receipt, asked.capabilities)
    problem: Damaged | None
    document, problem = _document(sid, first.snapshot, hydrated=hydrate is not None)
    if document is not None and (not first.out.entries or misfit(sid, document, first.out)):
        # The listing may be older than the snapshot.
        first.out = log.newest(store, "out", sid)
        problem = misfit(sid, document, first.out)
        document = document if problem is None else None
    given = hydrate() if hydrate is not None else None
    if given is not None and document is not None:
        document = inline(store, sid, document)
    stored = Stored(document, problem)
    try:
        try:
            return _loaded(asked, first, stored, _hydration(given, document))
        except PartLost as lost:
            check_same(store, sid, first.snapshot)
            stored, problem = Stored(None, lost.problem), lost.problem
            return _loaded(asked, first, stored, _hydration(given, None))
    except (Gap, InputGone) as gap:
        reason = problem or (gap if isinstance(gap, Gap) else gap.gap())
        for found in checkpoints.bases(store, sid, stored.cursor.id, hydrated=hydrate is not None):
            try:
                return _from_base(asked, first, stored, found, given, reason)
            except (Gap, InputGone, PartLost):
                continue  # there is a hole above it, too
        check_same(store, sid, first.snapshot)
        if problem is None:
            raise
        # With the logs whole it would not matter; as they are not, the snapshot is what is wrong.
        raise problem from gap


def _hydration(given: list[Message] | None, document: dict[str, Any] | None) -> Hydration | None:
    return None if given is None else Hydration(given, document)


def _from_base(
    asked: _Asked,
    first: _First,
    stored: Stored,
    found: dict[str, Any],
    given: list[Message] | None,
    reason: Damaged,
) -> Loaded:
    """Go on from a checkpoint, or a deletion, in place of a snapshot that the logs no longer reach. Raises
    Gap, InputGone or PartLost where there is a hole above it."""
    if given is not None:
        found = inline(asked.store, asked.sid, found)
    loaded = _loaded(asked, first, Stored(found, None), _hydration(given, found))
    loaded.fold.chain.changed = True  # what is stored is another: the next checkpoint is due
    loaded.readable, loaded.stored_cursor = stored.problem is None, stored.cursor.id
    if stored.document is not None or stored.problem is not None or not found.get("deleted"):
        code = "checkpoint-used" if loaded.readable else "snapshot-unreadable"
        loaded.notes.append({"code": code, "id": 0, "detail": str(reason)})
    return loaded


def check_same(store: Store, sid: str, snapshot: Blob | Head | None) -> None:
    """Raise Vanished where the snapshot was replaced while the logs were read: a deletion, or another
    checkpoint of a long log, may have come between."""
    now = store.get(keys.snapshot(sid))
    if (now and now.etag) != (snapshot and snapshot.etag):
        raise Vanished(f"{keys.snapshot(sid)} was replaced while the session was read")


def _loaded(asked: _Asked, first: _First, snapshot: Stored, hydration: Hydration | None) -> Loaded:
    store, sid, receipt = asked.store, asked.sid, asked.receipt
    cursor = snapshot.cursor
    shelf = Shelf(store, sid, snapshot.document, asked.window)
    listed_in = receipt is None or not first.inputs
    if listed_in:
        newest = check_newest(store, sid, snapshot, first.ends_in)
    else:
        newest = first.ends_in[0]
        check_receipt(snapshot, first.inputs[0])
    if receipt is not None and receipt > max(snapshot.applied, newest):
        raise receipt_gap(store, receipt, max(snapshot.applied, newest))
    tail = Tail([], cursor, first.out)
    wants_tail = bool(first.out.above(cursor.id)) or snapshot.problem is not None
    calls: list[Callable[[], Any]] = []
    missing = list(islice(snapshot.wants(newest, (r["id"] for r in first.inputs)), 1))
    calls.append(partial(read_wanted, store, sid, snapshot, newest, first.inputs, asked.leave))
    if wants_tail:
        calls.append(partial(_read_tail, store, sid, cursor, first.out, snapshot.problem))
        if not listed_in:
            calls.append(partial(newest_inputs, store, sid))
    if shelf.lacks():
        calls.append(shelf.fetch)
    if missing or wants_tail or shelf.lacks():
        found = store.gather(calls)
        first.inputs += found[0]
        tail = found[1] if wants_tail else tail
        if wants_tail and not listed_in:
            newest = check_newest(store, sid, snapshot, found[2])
            first.inputs += read_wanted(store, sid, snapshot, newest, first.inputs, asked.leave)
    with values.folding(sid):
        fold = _fold(asked, snapshot, shelf, first.inputs, tail, hydration)
    loaded = _described(first, snapshot, tail, fold, hydration)
    loaded.listed, loaded.just_sent = listed_in or wants_tail, first.just_sent
    apart = [r for r in (*tail.records, *first.inputs) if "kind" not in r or r["id"] > snapshot.applied]
    loaded.behind = sum(place.size for place in tail.listing.above(cursor.id))
    loaded.behind += sum(map(values.size_of, apart))
    loaded.emptied = not fold.deleted and is_emptied(first.inputs, snapshot.applied)
    return loaded


def _described(
    first: _First, snapshot: Stored, tail: Tail, fold: Fold, hydration: Hydration | None
) -> Loaded:
    loaded = Loaded(
        fold=fold,
        position=tail.last,
        etag=first.snapshot.etag if first.snapshot is not None else None,
        readable=snapshot.problem is None,
        stored_cursor=snapshot.cursor.id,
        stored_turn=(snapshot.document or {}).get("turn") or 0,
        capabilities=first.capabilities,
        date_ms=first.out.date_ms,
    )
    if hydration is not None:
        loaded.hydrated, loaded.held = True, hydration.finish(fold)
        if hydration.behind:
            loaded.notes.append(hydration.note())
    if snapshot.problem is not None:
        loaded.notes.append({"code": "snapshot-unreadable", "id": 0, "detail": str(snapshot.problem)})
    elif snapshot.cursor.id and not first.out.entries:
        detail = f"the snapshot stands at out record {snapshot.cursor.id}, and the out log is empty"
        loaded.notes.append({"code": "out-log-missing", "id": 0, "detail": detail})
    if tail.segments:
        header = tail.segments[-1].header
        loaded.lease, loaded.run = header.lease or 0, header.run or ""
        loaded.modified_ms = first.out.entries[0].modified_ms or tail.segments[-1].modified_ms
    return loaded


def _first_trip(store: Store, sid: str, receipt: int | None, capabilities: bool) -> _First:
    calls: list[Callable[[], Any]] = [
        partial(store.get, keys.snapshot(sid)),
        partial(log.newest, store, "out", sid),
        partial(newest_inputs, store, sid) if receipt is None else partial(named_input, store, sid, receipt),
    ]
    if capabilities:
        calls.append(partial(probe.load, store))
    found = store.gather(calls)
    inputs: list[Record] = []
    ends, just_sent = found[2], False
    if receipt is not None:
        (inputs, just_sent), ends = found[2], (receipt, receipt - 1)
        if not inputs:
            ends = newest_inputs(store, sid)
    return _First(found[0], found[1], ends, inputs, just_sent, found[3] if capabilities else None)


def _document(sid: str, blob: Blob | None, *, hydrated: bool) -> tuple[dict[str, Any] | None, Corrupt | None]:
    """The snapshot's document; or why it cannot be read, which a whole log can make up for."""
    if blob is None:
        return None, None
    try:
        return decode(blob.data, key=keys.snapshot(sid), session=sid, hydrated=hydrated), None
    except NewerVersion:
        raise
    except Corrupt as problem:
        return None, problem


def _read_tail(store: Store, sid: str, cursor: Cursor, listing: Listing, problem: Damaged | None) -> Tail:
    """The out log above the cursor; behind a snapshot that cannot be read it has to be whole."""
    tail = log.read_after(store, "out", sid, cursor, listing)
    if problem is not None and (not tail.segments or tail.segments[0].header.first != 1):
        raise problem
    filled = {record["id"]: record for record in values.fill(store, sid, tail.records)}
    segments = [s._replace(records=[filled[r["id"]] for r in s.records]) for s in tail.segments]
    return replace(tail, segments=segments)


def _fold(
    asked: _Asked,
    snapshot: Stored,
    shelf: Shelf,
    inputs: list[Record],
    tail: Tail,
    hydration: Hydration | None,
) -> Fold:
    attempt = 1
    while True:
        fold = Fold() if snapshot.document is None else restore(snapshot.document, parts=shelf.parts())
        if hydration is not None:
            hydration.seed(fold, inputs, tail.records)
        try:
            for record in sorted(inputs, key=lambda r: r["id"]):
                fold.feed(record)
            fold.replay(tail.records)
            if fold.chain.partial:
                reach.check(fold)
                revive(fold)
            return fold
        except Unloaded:
            shelf.widen()
        except Gap as gap:
            if gap.log != "in" or attempt == _ATTEMPTS:
                raise
            attempt += 1
            store, sid = asked.store, asked.sid
            newest = check_newest(store, sid, snapshot, newest_inputs(store, sid))
            inputs += read_wanted(store, sid, snapshot, newest, inputs, asked.leave)
