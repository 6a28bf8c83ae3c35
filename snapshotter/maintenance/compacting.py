"""Compaction: the segments of a closed turn become one object, in the place of the first.

A turn that streamed for a minute is dozens of segments, and every rebuild pays a request for each. Nothing
but the frame changes: records, ids, the chain of nonces and every place at which a snapshot may stand are
kept.

    seg 40   seg 44   seg 51   │ seg 60 …          a turn, and a later one behind it
    [40 ………………………… 59]        │ seg 60 …          `prev` of the first, `nonce` of the last

The merged segment replaces the first one under its ETag; then the rest is deleted in the order of ids. From
the first step on the rest is dead to readers (it begins at ids already read), so at any moment they see the
same log; one that had listed what is gone starts again. A broken run leaves dead segments, and the next one
removes them, as it does those of writers that slept.

Only what a later turn stands behind is touched, never the newest turn: so a writer that slept, and that
creates a freed place, finds that it is not the newest. Only what is past the minimum age.

What is compact is not read again. A merged segment says `compact` in its header where all below it has been
gone through, and the next run begins at the newest one that says so. The listing tells where to look: it
was written after the object above it. Where something below is younger than it (a redaction wrote there, or
a sleeper) it is not believed. So a mark that is lost costs a longer reading, and one that is wrong leaves
turns in pieces, which every reader reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import TYPE_CHECKING

import orjson

from snapshotter import checkpoints
from snapshotter.core.controls import control_of
from snapshotter.core.tally import Tally
from snapshotter.spans import maintained
from snapshotter.tombstones import deletes
from snapshotter.windows import WINDOW
from streams import log
from streams.buckets.base import Blob
from streams.codec import decode_segment, frame
from streams.errors import Gap
from streams.log import Place, Vanished
from streams.places import split
from streams.records import Cursor, Segment

from .bench import Bench, Done, restarting
from .rules import Rules

if TYPE_CHECKING:
    from snapshotter.database import Database

MERGED = 16 * 1024 * 1024
"""Most bytes of a merged segment. A longer turn becomes several."""

_LOOKS = 16
"""Objects that are read to find a mark."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A live segment and what is stored of it."""

    place: Place
    blob: Blob
    segment: Segment


@dataclass(slots=True)
class Stretch:
    """Live segments from one place of rest to the next, and the dead ones among them. `starts`: a turn begins
    here. `ended`: the session was closed when it began."""

    parts: list[_Part] = field(default_factory=list)
    dead: list[Place] = field(default_factory=list)
    starts: bool = False
    ended: bool = False

    @property
    def may_begin(self) -> bool:
        """Whether a reading that begins here takes all behind it as one that began further down."""
        return self.starts and not self.ended


@maintained("compact")
def compact(db: Database, session_id: str, *, rules: Rules | None = None, dry_run: bool = False) -> Done:
    """Merge the segments of each closed turn of one session that is past the minimum age.

    Raises Refused where there is no such session, Unsupported where the store does not replace under If-Match
    (nothing was written then), Gap and Corrupt for a log that is not whole, Vanished where others tidied up
    three times, and what requests raise.
    """
    return restarting(lambda: _compact(Bench(db, session_id, "compact", rules, dry_run)))


def _compact(bench: Bench) -> Done:
    places, date_ms = bench.places("out")
    if not places:
        bench.check_there()
    above = places
    while True:
        try:
            return _compact_listed(bench, above, date_ms)
        except Gap as gap:
            now, _ = bench.places("out")
            if [(p.first, p.modified_ms) for p in now] != [(p.first, p.modified_ms) for p in places]:
                raise Vanished(f"the out log of {bench.sid} became another while it was read") from gap
            first, begin = checkpoints.behind_hole(above, gap), above[0].first
            if first <= begin or not checkpoints.is_covered(bench.store, bench.sid, first):
                raise
            above = [place for place in above if place.first >= first]  # `leftovers` looks at the first alone


def _compact_listed(bench: Bench, places: Sequence[Place], date_ms: int | None) -> Done:
    emptied = max((place.first for place in places if not place.size), default=0)  # what is below goes, too
    places = split(places, emptied)[1]
    places = places[checkpoints.leftovers(bench.store, bench.sid, places) :]
    marks = _Marks(bench)
    for stretch in settled(bench, places[_known(bench, places) :]):
        dead = [place for place in stretch.dead if bench.rules.is_old(place.modified_ms, date_ms)]
        runs = list(_runs(stretch.parts))
        # By what was read: what a redaction has rewritten since the listing is left alone (`rewriting`).
        old = all(bench.rules.is_old(part.blob.modified_ms, date_ms) for part in stretch.parts)
        left = len(dead) < len(stretch.dead) or (len(runs) < len(stretch.parts) and not old)
        if old:
            for run in runs:
                dead += _merge(bench, run, marks.here(stretch) if run is runs[0] else None)
        dead.sort(key=lambda place: place.first)
        bench.delete(dead)
        marks.passed(stretch, rewritten=old and len(runs[0]) > 1, old=old, left=left)
    marks.finish()
    return bench.explain([(places, date_ms)])


def _known(bench: Bench, places: Sequence[Place]) -> int:
    """Which of these segments the reading begins with: the newest that is marked, where nothing below is
    younger than it; else the first. Raises Vanished."""
    dates = [place.modified_ms or 0 for place in places]
    late = (at for at in range(len(dates) - 2, 0, -1) if dates[at] > dates[at + 1])
    youngest = list(accumulate(dates, max))
    for at in islice(late, _LOOKS):
        if youngest[at - 1] <= dates[at]:
            ((_, blob),) = bench.read([places[at]])
            if decode_segment(blob.data, key=places[at].key) is not None and _is_marked(blob):
                return at
    return 0


def _is_marked(blob: Blob) -> bool:
    """Whether a segment, which can be decoded, says that all below it is compact."""
    return orjson.loads(blob.data.partition(b"\n")[0]).get("compact") is True


@dataclass(slots=True)
class _Marks:
    """Where a run may say that all below is compact: up to the first stretch of which something is left for
    another run. A merge says so at no cost. Of turns that are one object each the last is written anew for
    it, once a window of them was read. `since`: segments read behind the last mark."""

    bench: Bench
    whole: bool = True
    since: int = 0
    last: _Part | None = None

    def here(self, stretch: Stretch) -> bool | None:
        """What a segment that this stretch begins with says."""
        return True if self.whole and stretch.may_begin else None

    def passed(self, stretch: Stretch, *, rewritten: bool, old: bool, left: bool) -> None:
        """The stretch was dealt with: `rewritten`, its first segment among it; something may be `left`."""
        self.since += len(stretch.parts)
        if self.here(stretch):
            first = stretch.parts[0]
            if rewritten or _is_marked(first.blob):
                self.since, self.last = 0, None
            elif old:
                self.last = first
        self.whole = self.whole and not left

    def finish(self) -> None:
        """Mark what was read."""
        if self.last is not None and self.since >= WINDOW:
            _rewrite(self.bench, [self.last], True)


def settled(bench: Bench, places: Sequence[Place]) -> Iterator[Stretch]:
    """The stretches of an out log that a later turn stands behind, oldest first."""
    waiting: list[Stretch] = []
    current = Stretch()
    tally = Tally()
    cursor = Cursor(places[0].first - 1) if places else Cursor()
    for place, blob in bench.read(places):
        segment = decode_segment(blob.data, key=place.key)
        if segment is None or segment.header.first <= cursor.id:
            (waiting[-1] if waiting and not current.parts else current).dead.append(place)
            continue
        _, cursor = log.link("out", bench.sid, cursor, [segment])
        current.parts.append(_Part(place, blob, segment))
        for record in segment.records:
            current.starts |= control_of(record).get("control") == "turn-start"
            tally.apply(record)
        if current.starts:
            yield from waiting
            waiting.clear()
        if deletes(segment):
            # A log begins with it from then on: in its segment nothing of what was deleted may stand.
            waiting.clear()
            current = Stretch(ended=True)
        elif tally.open is None and not tally.ledger.claims:
            waiting.append(current)
            current = Stretch(ended=tally.ended)


def _runs(parts: list[_Part]) -> Iterator[list[_Part]]:
    """Parts that become one segment each: all of them, unless that were too large."""
    run: list[_Part] = []
    size = 0
    for part in parts:
        if run and size + part.place.size > MERGED:
            yield run
            run, size = [], 0
        run.append(part)
        size += part.place.size
    if run:
        yield run


def _merge(bench: Bench, run: list[_Part], compact: bool | None) -> list[Place]:
    """Put a run into its first place; returns what is dead then. `compact`: what it says of all below."""
    if len(run) == 1:
        return []
    bench.done.freed += run[0].place.size - _rewrite(bench, run, compact)
    return [part.place for part in run[1:]]


def _rewrite(bench: Bench, run: list[_Part], compact: bool | None) -> int:
    """Replace a run's first segment by one of all its records; returns how many bytes that takes."""
    first, last = run[0].segment.header, run[-1].segment.header
    data = frame(
        "out",
        first.first,
        last.last,
        [part.blob.data.partition(b"\n")[2][:-1] for part in run],
        epoch=last.epoch,
        run=last.run,
        nonce=last.nonce,
        prev=first.prev,
        lease=last.lease,
        compact=compact,
    )
    bench.rewrite(run[0].place.key, data, run[0].blob.etag)
    return len(data)
