"""One session's logs, read in windows, the next one while the last is folded.

    opened    GET snapshot, then LIST out, then LIST the newest of in: each later reading holds whatever an
              earlier one speaks of
    parcels   64 segments of the out log at a time, or 8 MiB, with the inputs that their records name; at the
              end the inputs that nothing names yet

So what is held of the records is three windows, whatever the session's size: one that is folded, one that
is ready, one that is read. (The fold holds the newest messages, and of the inputs those that still matter; of
all segments what their names tell is held, since a listing shows the newest first.)

The cut-off: of the out log what the listing showed when the session was opened, and of that no more than up
to the newest segment that the store dates at or before the run's cut-off. A merged segment is dated by its
merge, and only turns with another behind them are merged, past the minimum age: a run that lasts longer than
that may see a session some turns short, at a place where it has stood all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from snapshotter import values
from snapshotter.agreeing import Stored, newest_inputs
from snapshotter.checkpoints import cursor_of
from snapshotter.core.snapshot import decode
from snapshotter.incoming import newest_named, read_inputs
from snapshotter.windows import is_one, windows
from streams import keys, log
from streams.buckets.base import Blob
from streams.errors import Corrupt, Damaged, NewerVersion
from streams.log import Listing, Place
from streams.places import filled, split, whole
from streams.records import Record, Segment
from streams.store import Store

_INPUTS = 256
_BELOW = 3  # segments below a cursor that may cover it

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Opened:
    """A session as it is found. `document` is the stored snapshot's, or `problem` says why it cannot be read;
    neither where there is none. `places`: the out log, oldest first, without what a deletion emptied.
    `newest`: the newest input."""

    snapshot: Blob | None
    document: Document | None
    problem: Damaged | None
    places: Sequence[Place]
    newest: int

    @property
    def cursor(self) -> int:
        """Where the stored snapshot stands; 0 where there is none that can be read."""
        return cursor_of(self.document or {})

    @property
    def is_short(self) -> bool:
        """Whether its out log is read in one window."""
        return is_one(self.places)

    @property
    def left(self) -> str | None:
        """Why the session is left as it is; None where it is not."""
        document = self.document or {}
        if document.get("deleted"):
            return "deleted"
        if document.get("hydrated"):
            return "hydrated"
        return "absent" if self.snapshot is None and not self.places and not self.newest else None

    def end(self, until_ms: int | None) -> int:
        """The first id of the newest segment that counts, 0 where none does."""
        for place in reversed(self.places):
            if until_ms is None or place.modified_ms is None or place.modified_ms <= until_ms:
                return place.first
        return 0


@dataclass(frozen=True, slots=True)
class Parcel:
    """Inputs to feed, then segments to apply, both in the order of their ids, values in their places."""

    inputs: list[Record]
    segments: list[Segment]


def opened(store: Store, sid: str) -> Opened:
    """Read what a session has. Raises NewerVersion, Corrupt for a log whose newest segment is empty, and what
    requests raise."""
    key = keys.snapshot(sid)
    blob = store.get(key)
    document, problem = None, None
    if blob is not None:
        try:
            document = decode(blob.data, key=key, session=sid, hydrated=True)
        except NewerVersion:
            raise
        except Corrupt as error:
            problem = error
    places, date_ms = whole(store, "out", sid)
    log.check_newest(Listing(tuple(places[-1:]), False, date_ms))
    return Opened(blob, document, problem, filled(places), newest_inputs(store, sid)[0])


def parcels(
    store: Store, sid: str, found: Opened, base: Document | None, end: int, leave: values.Leave = ()
) -> Iterator[Parcel]:
    """The logs behind `base` (None: from their first record), of the out log the segments that begin at `end`
    or below. `leave` as in `read_inputs`.

    Raises Gap, Corrupt, Missing, Vanished (InputGone, where an input is not there), and what requests raise.
    """
    stored = Stored(base, None)
    cursor, applied = stored.cursor, (base or {}).get("inApplied") or ()
    wanted = _Wanted(stored.wants(found.newest, ()))
    covered, above = split(found.places, cursor.id)
    below = covered[-_BELOW:]
    for window in windows(split(above, end)[0]):
        listed = Listing((*reversed(window), *reversed(below)), False, None)
        tail = log.read_after(store, "out", sid, cursor, listed)
        cursor, below = tail.last, ()
        segments = tail.segments
        # Nearly all records hold a chunk: those name no input, and nothing of theirs is stored apart.
        others = [record for segment in segments for record in segment.records if "chunk" not in record]
        named = newest_named(others)
        if any(map(values.refers, others)):
            segments = _filled(store, sid, segments)
        yield Parcel(read_inputs(store, sid, wanted.upto(named), applied, leave), segments)
    while due := list(islice(wanted.upto(found.newest), _INPUTS)):
        yield Parcel(read_inputs(store, sid, due, applied, leave), [])


def read_in_turn(
    store: Store, sid: str, numbers: Iterable[int], applied: Collection[int], leave: values.Leave
) -> Iterator[Record]:
    """As `read_inputs`, of which some are held at a time."""
    rest = iter(numbers)
    while due := list(islice(rest, _INPUTS)):
        yield from read_inputs(store, sid, due, applied, leave)


class _Wanted:
    """Ids of inputs, taken as they are read. A stray key may be the newest, 10**15 above the others: what is
    wanted is never held, and ends at the first input that is not there."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._rest = iter(numbers)
        self._next = next(self._rest, None)

    def upto(self, newest: int) -> Iterator[int]:
        """Take those up to this one."""
        while self._next is not None and self._next <= newest:
            number, self._next = self._next, next(self._rest, None)
            yield number


def _filled(store: Store, sid: str, segments: list[Segment]) -> list[Segment]:
    records = values.fill(store, sid, [record for segment in segments for record in segment.records])
    found, start = [], 0
    for segment in segments:
        end = start + len(segment.records)
        found.append(Segment(segment.header, records[start:end], segment.key))
        start = end
    return found
