"""Reading a log, following it, and the many writers' append to the in log.

A log is a prefix full of segments whose keys count down, so one listing shows the newest first. Reading
what comes after a cursor is: list (20, then pages of 1,000 only if the tail is longer), get every
segment above the cursor in parallel, and link them up:

    begins at or below an id already read     dead, skipped whole: compaction and sleepers leave such
    begins right behind, continues our nonce  the next part of the log
    begins right behind, another's nonce      Gap: it continues another log, never ours
    begins further on                         Gap, unless a merged segment covers the place

A log with a hole is never returned as whole. A listed object that is gone by the time it is read means
that someone tidied up in between: `Vanished`, and the reader starts again with a new listing.

Ids are contiguous, so the next key is known by name. A follower asks for it by name, and lists now and
then, since a merged segment may cover the place it waits for. A sender (`append_input`) races for it:
the store lets exactly one create win, and the loser looks again and takes the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from streams import claims, keys
from streams.codec import decode_segment, encode_segment
from streams.errors import Corrupt, Gap, PreconditionFailed, Refused, Retryable, Unreachable, WrongEndpoint
from streams.keys import Log
from streams.packing import unpack, unpack_after
from streams.records import Cursor, Record, Segment
from streams.store import Store

MINIMUM_AGE_MS = 3600 * 1000
"""Nothing younger than this is ever tidied away; who tidies may wait longer, never shorter. A request lands
within it or never: stores refuse a signature older than 15 minutes."""

HALF_AGE_MS = MINIMUM_AGE_MS // 2
"""Who waited longer than this looks at the log again before anything counts as written. Half of the lowest
age that may be chosen, so that no writer has to know which one is."""

RECENT_INPUTS = 32
RECENT_MS = 120_000
"""How far back a sender looks for the same input: this many, and no older than this."""

_PAGE = 1000
_COVERING = 3  # how many segments below a gap are asked whether they cover it
_RESTARTS = 3
_LOOK_EVERY = 10  # every so many polls a follower lists


class Vanished(Retryable):
    """A listed object was gone when it was read: someone tidied up. List again and start over."""


@dataclass(frozen=True, slots=True)
class Place:
    """A segment as listed. `modified_ms` is the store's date of it, None where it does not tell."""

    first: int
    key: str
    size: int
    etag: str
    modified_ms: int | None

    @property
    def vacant(self) -> bool:
        """Whether no segment is there: the object is empty, or a claim."""
        return self.size < claims.LEAST


@dataclass(frozen=True, slots=True)
class Listing:
    """The newest segments of a log, newest first. `more`: there are older ones, after `resume`."""

    entries: tuple[Place, ...]
    more: bool
    date_ms: int | None
    resume: str = ""

    def above(self, cursor_id: int) -> list[Place]:
        """Those that begin above this id, oldest first."""
        return [place for place in reversed(self.entries) if place.first > cursor_id]


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands after a cursor: the live segments, oldest first, and where they end.

    Where a merged segment covers the cursor, the first segment holds only its records above the cursor.
    """

    segments: list[Segment]
    last: Cursor
    listing: Listing

    @property
    def records(self) -> list[Record]:
        """The records as stored (runs stay packed), in the order of ids."""
        return [record for segment in self.segments for record in segment.records]


def newest(store: Store, log: Log, sid: str, limit: int = 20) -> Listing:
    """The newest `limit` segments of a log. Raises what a listing raises."""
    return _list_on(store, log, sid, Listing((), True, None), lambda found: len(found) >= limit, limit)


def tail_keys(store: Store, log: Log, sid: str, after: int, listing: Listing | None = None) -> Listing:
    """A listing that reaches down to the id `after`, or to the log's beginning.

    `listing` is what `newest` showed; more is asked for only where that does not reach.
    """
    listing = listing or newest(store, log, sid)
    return _list_on(store, log, sid, listing, lambda found: bool(found) and found[-1].first <= after, _PAGE)


def check_newest(listing: Listing) -> None:
    """Raise Corrupt where the newest object is no segment: a deletion leaves empty ones, but never the newest
    one, and behind a claim an import was broken off."""
    if listing.entries and listing.entries[0].vacant:
        key, size = listing.entries[0].key, listing.entries[0].size
        what = f"no segment, with {size} bytes (an import was broken off?)" if size else "empty"
        raise Corrupt(f"{key} is {what}, and it is the newest of its log", key=key, offset=0)


def fetch(store: Store, segment_keys: Sequence[str]) -> list[Segment]:
    """The segments of these keys, in parallel, in the order of their ids. Emptied ones are left out.

    Raises Vanished where one is gone, Corrupt where one cannot be decoded.
    """
    found = store.gather([partial(_fetch_one, store, key) for key in segment_keys])
    return sorted((segment for segment in found if segment is not None), key=lambda s: s.header.first)


def read_after(store: Store, log: Log, sid: str, cursor: Cursor, listing: Listing | None = None) -> Tail:
    """Everything after the cursor. `listing`: one that the caller has made already.

    Raises Gap where records are missing or the chain is broken, Vanished, Corrupt (also for a newest segment
    that is empty), and what requests raise.
    """
    listing = tail_keys(store, log, sid, cursor.id, listing)
    places = listing.above(cursor.id)
    if places:
        check_newest(listing)
    segments = fetch(store, [place.key for place in places])
    if len(segments) < sum(not place.vacant for place in places):
        raise Vanished(f"a deletion emptied the {log} log of {sid} while it was read")
    covering = _covering(store, cursor, listing, segments)
    if covering is None:
        live, last = link(log, sid, cursor, segments)
        return Tail(live, last, listing)
    header = covering.header
    records = [r for record in covering.records for r in unpack_after(record, cursor.id)]
    live, last = link(log, sid, Cursor(header.last, header.nonce, header.first), segments)
    return Tail([covering._replace(records=records), *live], last, listing)


def read_all(store: Store, log: Log, sid: str) -> Tail:
    """The whole log. Raises as `read_after`; a log that was trimmed has a Gap at its beginning."""
    return read_after(store, log, sid, Cursor())


def holding(store: Store, log: Log, sid: str, number: int) -> list[Segment]:
    """The live segment that holds this id; the one that ends before it where the log has not got there yet.

    The newest that begins at or below the id, as a rule. But one that was written long after its successor is
    a merged one, or what a sleeper left in a place that a merge had freed: then of those that reach up to the
    id the one that begins first is alive. Raises as `fetch`.
    """
    listing = tail_keys(store, log, sid, number)
    below = [place for place in listing.entries if place.first <= number]
    above = [place for place in listing.entries if place.first > number]
    if not (below and above and _is_late(below[0], above[-1])):
        return fetch(store, [place.key for place in below[:1]])
    found = fetch(store, [place.key for place in below[:_COVERING]])
    return [segment for segment in found if segment.header.last >= number][:1]


def _is_late(place: Place, successor: Place) -> bool:
    if place.modified_ms is None or successor.modified_ms is None:
        return False
    return place.modified_ms - successor.modified_ms > HALF_AGE_MS


def link(log: Log, sid: str, cursor: Cursor, segments: list[Segment]) -> tuple[list[Segment], Cursor]:
    """Those of the segments (oldest first) that go on from the cursor, and where they end.

    Raises Gap at the first hole and at the first segment that continues another log.
    """
    live: list[Segment] = []
    last, nonce, begins = cursor.id, cursor.nonce, cursor.first
    for segment in segments:
        header = segment.header
        first = header.first
        if first <= last:
            continue
        if first > last + 1:
            raise _gap(log, sid, last + 1, first - 1, "are missing")
        known = nonce or last == 0
        if log == "out" and known and (header.prev or "") != nonce:
            raise _gap(log, sid, first, header.last, f"continue another log (in {segment.key})")
        live.append(segment)
        last, nonce, begins = header.last, header.nonce, first
    return live, Cursor(last, nonce, begins)


def follow(
    store: Store,
    log: Log,
    sid: str,
    after: Cursor | None = None,
    *,
    timeout: float | None = None,
    poll: float = 0.5,
) -> Iterator[Record]:
    """Records after the cursor, unpacked, each as soon as it is durable.

    Ends when `timeout` seconds have passed without a new one (None: never). Asks every `poll` seconds.
    Raises as `read_after`; Vanished only when it comes three times in a row.
    """
    clock = store.clock
    cursor = after or Cursor()
    news_at = clock.monotonic()
    polls = vanished = 0
    while True:
        try:
            segments, cursor = look(store, log, sid, cursor, by_name=polls % _LOOK_EVERY > 0)
            vanished = 0
        except Vanished:
            vanished += 1
            if vanished >= _RESTARTS:
                raise
            segments = []
        for segment in segments:
            for record in segment.records:
                yield from unpack(record)
        if segments:
            news_at = clock.monotonic()
            polls = 1
            continue
        left = poll if timeout is None else news_at + timeout - clock.monotonic()
        if left <= 0:
            return
        clock.sleep(min(poll, left))
        polls = 0 if vanished else polls + 1


def append_input(
    store: Store,
    sid: str,
    build: Callable[[int], Record],
    *,
    check: Callable[[list[Record]], int | None] | None = None,
    deadline: float = 60.0,
) -> int:
    """Append one record to the in log, among any number of senders; returns its id.

    `build(id)` makes the record (`id`, and `ts` if it has none, are put in) and is called again when the
    place is lost. `check` is called before each attempt with the newest records (at most 32, none older than
    two minutes, oldest first): it returns the id of an earlier input that this one repeats, or None; what
    it raises passes on.

    Raises TooLarge or InvalidValue before anything is written, Refused while an import brings the session,
    Gap where a stray key takes the last place, Unknown when the create was never answered, Unreachable when
    the place was lost again and again until the deadline (seconds), Vanished when what was listed was gone
    three times.
    """
    clock = store.clock
    end = clock.monotonic() + deadline
    dead: set[int] = set()
    vanished = 0
    while True:
        asked_ms = clock.now_ms()
        listing = newest(store, "in", sid, RECENT_INPUTS if check else 1)
        try:
            known = check([r for r in _recent(store, listing) if r["id"] not in dead]) if check else None
        except Vanished:
            vanished += 1
            if vanished == _RESTARTS:
                raise
            continue  # tidied up since it was listed
        if known is not None:
            return known
        if clock.now_ms() - asked_ms > HALF_AGE_MS:
            continue  # we slept: what was read may be gone, and its place free
        _check_open(sid, listing)
        first = listing.entries[0].first + 1 if listing.entries else 1
        if first > keys.MAX:  # a stray key; no log gets that long
            what = (
                f"cannot all be there, and no place is left behind the newest, {listing.entries[0].key}:"
                " where that is a stray key delete it, or go on under another session id"
            )
            raise _gap("in", sid, 1, keys.MAX - 1, what)
        nonce = clock.token()
        record = {"id": first, "ts": asked_ms, **build(first)}
        record["id"] = first
        data = encode_segment("in", [record], nonce=nonce)
        key = keys.segment("in", sid, first)
        left = end - clock.monotonic()
        try:
            written = store.put_once(key, data, if_absent=True, nonce=nonce, deadline=max(left, 0.0))
        except PreconditionFailed:
            if left <= 0:
                raise Unreachable(
                    f"other senders took every place of the in log for {deadline:g} s"
                ) from None
            clock.sleep(0.02 * clock.jitter())
            continue
        passed = clock.now_ms() - asked_ms
        if written.date_ms is not None and listing.date_ms is not None:
            passed = written.date_ms - listing.date_ms
        if abs(passed) <= HALF_AGE_MS or is_newest(store, "in", sid, first):
            return first
        dead.add(first)  # we slept, and the log went on without this place


def _check_open(sid: str, listing: Listing) -> None:
    """Raise Refused where the newest object is a claim, or empty. An input behind the claim would take the
    place of one that the import brings, and count as answered."""
    if listing.entries and listing.entries[0].vacant:
        raise Refused(
            f"in log of {sid}: an import is bringing this session, and nobody sends to it yet; one that was"
            " broken off has to be run again with the same file"
        )


def is_newest(store: Store, log: Log, sid: str, first: int) -> bool:
    """Whether the log's newest segment begins at `first`: what a writer that slept has to ask."""
    entries = newest(store, log, sid, 1).entries
    return bool(entries) and entries[0].first == first


def _list_on(
    store: Store, log: Log, sid: str, listing: Listing, enough: Callable[[list[Place]], bool], limit: int
) -> Listing:
    """Go on listing until it is enough, or all. What is no segment of this log is passed over."""
    found = list(listing.entries)
    more, resume, date_ms = listing.more, listing.resume, listing.date_ms
    while more and not enough(found):
        page = store.list(keys.log_prefix(log, sid), after=resume, limit=min(limit, _PAGE))
        if page.more and page.resume == resume:
            raise WrongEndpoint(f"the listing of the {log} log at {store.url} stands still at {resume!r}")
        for entry in page.entries:
            place = keys.parse_segment(entry.key)
            if place is not None:
                found.append(Place(place[2], entry.key, entry.size, entry.etag, entry.modified_ms))
        more, resume = page.more, page.resume
        # The first page's date: what was asked earlier can only be older.
        date_ms = page.date_ms if date_ms is None else date_ms
    return Listing(tuple(found), more, date_ms, resume)


def _fetch_one(store: Store, key: str) -> Segment | None:
    blob = store.get(key)
    if blob is None:
        raise Vanished(f"{key} was listed and then gone")
    return decode_segment(blob.data, key=key, modified_ms=blob.modified_ms)


def _covering(store: Store, cursor: Cursor, listing: Listing, segments: list[Segment]) -> Segment | None:
    """The merged segment that holds the records right behind the cursor, if there is one.

    It begins at or below the cursor, so it looks dead. It is alive if what is listed above goes on from it.
    """
    if not segments or segments[0].header.first <= cursor.id + 1:
        return None
    below = [place.key for place in listing.entries if place.first <= cursor.id]
    for key in below[:_COVERING]:
        for candidate in fetch(store, [key]):
            header = candidate.header
            heirs = [s.header for s in segments if s.header.first == header.last + 1]
            if header.last > cursor.id and heirs and heirs[0].prev == header.nonce:
                return candidate
    return None


def look(store: Store, log: Log, sid: str, cursor: Cursor, *, by_name: bool) -> tuple[list[Segment], Cursor]:
    """What is new behind the cursor: the next segment by name, or everything by a listing."""
    if not by_name or cursor.id >= keys.MAX:
        tail = read_after(store, log, sid, cursor)
        return tail.segments, tail.last
    key = keys.segment(log, sid, cursor.id + 1)
    blob = store.get(key)
    segment = decode_segment(blob.data, key=key, modified_ms=blob.modified_ms) if blob else None
    return link(log, sid, cursor, [segment] if segment else [])


def _recent(store: Store, listing: Listing) -> list[Record]:
    """The records of the listed segments that are not older than RECENT_MS, oldest first."""
    recent = [
        place.key
        for place in listing.entries[:RECENT_INPUTS]
        if listing.date_ms is None
        or place.modified_ms is None
        or listing.date_ms - place.modified_ms <= RECENT_MS
    ]
    return [record for segment in fetch(store, recent) for record in segment.records]


def _gap(log: Log, sid: str, first: int, last: int, what: str) -> Gap:
    return Gap(f"{log} log of {sid}: records {first} to {last} {what}", log=log, missing=(first, last))
