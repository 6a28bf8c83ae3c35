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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from snapshotter import checkpoints
from snapshotter.core.tally import Tally
from snapshotter.spans import maintained
from streams import log
from streams.buckets.base import Blob
from streams.codec import decode_segment, frame
from streams.log import Place
from streams.records import Cursor, Segment

from .bench import Bench, Done, restarting
from .rules import Rules

if TYPE_CHECKING:
    from snapshotter.database import Database

MERGED = 16 * 1024 * 1024
"""Most bytes of a merged segment. A longer turn becomes several."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A live segment and what is stored of it."""

    place: Place
    blob: Blob
    segment: Segment


@dataclass(slots=True)
class Stretch:
    """Live segments from one place of rest to the next, and the dead ones among them. `starts`: a turn begins
    here."""

    parts: list[_Part] = field(default_factory=list)
    dead: list[Place] = field(default_factory=list)
    starts: bool = False


@maintained("compact")
def compact(db: Database, session_id: str, *, rules: Rules | None = None, dry_run: bool = False) -> Done:
    """Merge the segments of each closed turn of one session that is past the minimum age.

    Raises Unsupported where the store does not replace under If-Match (nothing was written then), Gap and
    Corrupt for a log that is not whole, Vanished where others tidied up three times, and what requests raise.
    """
    return restarting(lambda: _compact(Bench(db, session_id, "compact", rules, dry_run)))


def _compact(bench: Bench) -> Done:
    places, date_ms = bench.places("out")
    emptied = max((place.first for place in places if not place.size), default=0)  # what is below goes, too
    places = [place for place in places if place.first > emptied]
    places = places[checkpoints.leftovers(bench.store, bench.sid, places) :]
    for stretch in settled(bench, places):
        dead = [place for place in stretch.dead if bench.rules.is_old(place.modified_ms, date_ms)]
        # By what was read: what a redaction has rewritten since the listing is left alone (`rewriting`).
        if all(bench.rules.is_old(part.blob.modified_ms, date_ms) for part in stretch.parts):
            for run in _runs(stretch.parts):
                dead += _merge(bench, run)
        dead.sort(key=lambda place: place.first)
        bench.delete(dead)
    return bench.explain([(places, date_ms)])


def settled(bench: Bench, places: list[Place]) -> Iterator[Stretch]:
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
            current.starts |= record.get("control") == "turn-start"
            tally.apply(record)
        if current.starts:
            yield from waiting
            waiting.clear()
        if any(record.get("control") == "session-deleted" for record in segment.records):
            # A log begins with it from then on: in its segment nothing of what was deleted may stand.
            waiting.clear()
            current = Stretch()
        elif tally.open is None and not tally.ledger.claims:
            waiting.append(current)
            current = Stretch()


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


def _merge(bench: Bench, run: list[_Part]) -> list[Place]:
    """Put a run into its first place; returns what is dead then."""
    if len(run) == 1:
        return []
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
    )
    bench.rewrite(run[0].place.key, data, run[0].blob.etag)
    bench.done.freed += run[0].place.size - len(data)
    return [part.place for part in run[1:]]
