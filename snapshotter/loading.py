"""Reading a session: snapshot and log tails into a fold, in as few round trips as it takes.

    1   GET snapshot ∥ LIST the newest of out ∥ LIST the newest of in (or GET the receipt's input)
    2   only if there is a tail: GET its segments ∥ GET the inputs that are not applied
    3   only with a receipt whose session has inputs that were not read yet: GET those

Inputs hold one record a segment and their ids have no holes, so their keys are known from the newest id:
nothing is listed to read them. Found, absent and unreadable are never confused: a snapshot that is
unreadable, or was not taken of this log, makes the boot read the whole log instead, is reported, and is not
overwritten.

The readings are not one instant. Whenever one lacks what another speaks of, it is made again: the in log
where the out log or the snapshot names a newer input, the out log where the snapshot stands at a later
place; a listed object that is gone starts the boot again. A log that does not reach down to the snapshot
may have been trimmed: the newest checkpoint above it takes its place. What is not there then is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from streams import keys, log, probe
from streams.buckets.base import Blob
from streams.clock import Clock
from streams.codec import decode_segment
from streams.errors import Corrupt, Damaged, Gap, NewerVersion
from streams.log import Listing, Tail, Vanished
from streams.records import Cursor, Record
from streams.store import Store

from . import checkpoints
from .agreeing import Ends, InputGone, Stored, check_newest, check_receipt, misfit, newest_inputs, receipt_gap
from .core.budget import Incident
from .core.calls import Message
from .core.fold import Fold
from .core.snapshot import decode, restore
from .hosting.hydrating import Hydration

SLACK = 7  # seconds past its lease after which a writer counts as gone
_ATTEMPTS = 3
_WINDOW = 1000  # inputs that are fetched together

Hydrator = Callable[[], list[Message]]


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that may be alive: its run, the age in seconds of its last word, and when to come back. With
    an `incident` it is dead, and the next attempt has to wait."""

    run: str
    age: float
    retry_after: float
    incident: Incident | None = None


class Watched:
    """How long one boot has itself seen the log end at the same place, by its own clock. Where the store's
    clock was set back its dates lie: a segment is of the future then, and would not grow old."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: Cursor | None = None
        self._since = 0.0

    def seconds(self, end: Cursor) -> float:
        """The log has just been seen to end here."""
        if end != self._seen:
            self._seen, self._since = end, self._clock.monotonic()
        return self._clock.monotonic() - self._since


@dataclass(slots=True)
class Loaded:
    """A session as read. `etag` is the stored snapshot's, None where there is none; `readable` is false
    for one that could not be read and must not be overwritten. `hydrated`: somebody else owns the history;
    `held`: they hold all of it, so that the cursor may move up to here. `watched`: seconds for which the
    reader has seen the log end here."""

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
        date = now_ms if self.date_ms is None else self.date_ms
        told = 0.0 if self.modified_ms is None else (date - self.modified_ms) / 1000
        return max(told, self.watched)


@dataclass(slots=True)
class _First:
    """What the first round trip brought."""

    snapshot: Blob | None
    out: Listing
    ends_in: Ends
    inputs: list[Record]
    capabilities: probe.Capabilities | None


def load(
    store: Store,
    sid: str,
    *,
    receipt: int | None = None,
    capabilities: bool = False,
    hydrate: Hydrator | None = None,
) -> Loaded:
    """Read a session. `receipt`: the id of an input that is known to be there. `capabilities`: also read
    what the probe found, in the same round trip. `hydrate` returns the history, where somebody else owns it.

    Raises Gap (also for a receipt that names an input which is not there), Corrupt, NewerVersion, and what
    requests raise.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _load(store, sid, receipt, capabilities, hydrate)
        except InputGone as gone:
            if attempt == _ATTEMPTS:
                raise gone.gap() from gone
        except Vanished:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _load(
    store: Store, sid: str, receipt: int | None, capabilities: bool, hydrate: Hydrator | None
) -> Loaded:
    first = _first_trip(store, sid, receipt, capabilities)
    document, problem = _document(sid, first.snapshot, hydrated=hydrate is not None)
    if document is not None and (not first.out.entries or misfit(sid, document, first.out)):
        # The listing may be older than the snapshot.
        first.out = log.newest(store, "out", sid)
        problem = misfit(sid, document, first.out)
        document = document if problem is None else None
    given = hydrate() if hydrate is not None else None
    stored = Stored(document, problem)
    try:
        return _loaded(store, sid, receipt, first, stored, _hydration(given, document))
    except (Gap, InputGone) as gap:
        found = checkpoints.above(store, sid, stored.cursor.id, hydrated=hydrate is not None)
        if found is None:
            _check_same(store, sid, first.snapshot)
            if problem is None:
                raise
            # With the logs whole it would not matter; as they are not, the snapshot is what is wrong.
            raise problem from gap
        reason = problem or (gap if isinstance(gap, Gap) else gap.gap())
        return _from_checkpoint(store, sid, receipt, first, stored, found, given, reason)


def _hydration(given: list[Message] | None, document: dict[str, Any] | None) -> Hydration | None:
    return None if given is None else Hydration(given, document)


def _from_checkpoint(
    store: Store,
    sid: str,
    receipt: int | None,
    first: _First,
    stored: Stored,
    found: dict[str, Any],
    given: list[Message] | None,
    reason: Damaged,
) -> Loaded:
    """Go on from a checkpoint in place of a snapshot that the trimmed logs no longer reach. Raises the
    reason for it where there is a hole above the checkpoint, too."""
    try:
        loaded = _loaded(store, sid, receipt, first, Stored(found, None), _hydration(given, found))
    except (Gap, InputGone) as gap:
        raise reason from gap
    loaded.readable, loaded.stored_cursor = stored.problem is None, stored.cursor.id
    code = "checkpoint-used" if loaded.readable else "snapshot-unreadable"
    loaded.notes.append({"code": code, "id": 0, "detail": str(reason)})
    return loaded


def _check_same(store: Store, sid: str, snapshot: Blob | None) -> None:
    """Raise Vanished where the snapshot was replaced while the logs were read: a deletion, or another
    checkpoint of a long log, may have come between."""
    now = store.get(keys.snapshot(sid))
    if (now and now.etag) != (snapshot and snapshot.etag):
        raise Vanished(f"{keys.snapshot(sid)} was replaced while the session was read")


def _loaded(
    store: Store,
    sid: str,
    receipt: int | None,
    first: _First,
    snapshot: Stored,
    hydration: Hydration | None,
) -> Loaded:
    cursor = snapshot.cursor
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
    calls.append(partial(_read_wanted, store, sid, snapshot, newest, first.inputs))
    if wants_tail:
        calls.append(partial(_read_tail, store, sid, cursor, first.out, snapshot.problem))
        if not listed_in:
            calls.append(partial(newest_inputs, store, sid))
    if missing or wants_tail:
        found = store.gather(calls)
        first.inputs += found[0]
        tail = found[1] if wants_tail else tail
        if wants_tail and not listed_in:
            newest = check_newest(store, sid, snapshot, found[2])
            first.inputs += _read_wanted(store, sid, snapshot, newest, first.inputs)
    fold = _fold(store, sid, snapshot, first.inputs, tail, hydration)
    return _described(first, snapshot, tail, fold, hydration)


def _described(
    first: _First, snapshot: Stored, tail: Tail, fold: Fold, hydration: Hydration | None
) -> Loaded:
    loaded = Loaded(
        fold=fold,
        position=tail.last,
        etag=first.snapshot.etag if first.snapshot is not None else None,
        readable=snapshot.problem is None,
        stored_cursor=snapshot.cursor.id,
        capabilities=first.capabilities,
        date_ms=first.out.date_ms,
    )
    if hydration is not None:
        loaded.hydrated, loaded.held = True, hydration.finish(fold)
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
        partial(newest_inputs, store, sid) if receipt is None else partial(_named_input, store, sid, receipt),
    ]
    if capabilities:
        calls.append(partial(probe.load, store))
    found = store.gather(calls)
    inputs: list[Record] = []
    ends = found[2]
    if receipt is not None:
        inputs, ends = found[2], (receipt, receipt - 1)
        if not inputs:
            ends = newest_inputs(store, sid)
    return _First(found[0], found[1], ends, inputs, found[3] if capabilities else None)


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


def _read_tail(store: Store, sid: str, cursor: Cursor, listing: Listing, problem: Corrupt | None) -> Tail:
    """The out log above the cursor; behind a snapshot that cannot be read it has to be whole."""
    tail = log.read_after(store, "out", sid, cursor, listing)
    if problem is not None and (not tail.segments or tail.segments[0].header.first != 1):
        raise problem
    return tail


def newest_input(store: Store, sid: str) -> int:
    """The newest id of the in log, 0 where it is empty."""
    return newest_inputs(store, sid)[0]


def _named_input(store: Store, sid: str, number: int) -> list[Record]:
    record = next_input(store, sid, number)
    return [] if record is None else [record]


def _read_wanted(store: Store, sid: str, snapshot: Stored, newest: int, have: list[Record]) -> list[Record]:
    return read_inputs(store, sid, snapshot.wants(newest, (record["id"] for record in have)))


def read_inputs(store: Store, sid: str, numbers: Iterable[int]) -> list[Record]:
    """The in records with these ids, fetched by name. Raises InputGone at the first that is not there, so a
    wrong newest id costs no more than one window of requests."""
    records: list[Record] = []
    rest = iter(numbers)
    while window := list(islice(rest, _WINDOW)):
        found = store.gather([partial(next_input, store, sid, number) for number in window])
        for number, record in zip(window, found, strict=True):
            if record is None:
                raise InputGone(sid, number)
            records.append(record)
    return records


def next_input(store: Store, sid: str, number: int) -> Record | None:
    """The in record with this id; None while it is not there."""
    key = keys.segment("in", sid, number)
    blob = store.get(key)
    segment = decode_segment(blob.data, key=key, modified_ms=blob.modified_ms) if blob is not None else None
    return segment.records[0] if segment is not None else None


def _fold(
    store: Store,
    sid: str,
    snapshot: Stored,
    inputs: list[Record],
    tail: Tail,
    hydration: Hydration | None,
) -> Fold:
    for attempt in range(1, _ATTEMPTS + 1):
        fold = restore(snapshot.document) if snapshot.document is not None else Fold()
        if hydration is not None:
            hydration.seed(fold, inputs, tail.records)
        try:
            for record in sorted(inputs, key=lambda r: r["id"]):
                fold.feed(record)
            fold.replay(tail.records)
        except Gap as gap:
            if gap.log != "in" or attempt == _ATTEMPTS:
                raise
            newest = check_newest(store, sid, snapshot, newest_inputs(store, sid))
            inputs += _read_wanted(store, sid, snapshot, newest, inputs)
        else:
            return fold
    raise AssertionError("unreachable")
