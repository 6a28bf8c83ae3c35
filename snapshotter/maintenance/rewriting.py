"""Segments of a log that are written anew, in place, without one message: ids, nonces and frames stay.

A compaction may be under way beside it, which has read a turn's segments and is about to put them, merged,
into the place of the first, under its ETag. So with each segment that is rewritten those are, too, that stand
before it in its turn, the oldest first, and each gets another ETag by a field of its header that nobody reads
(`rewritten`). Whoever had read the turn before is refused then; and who listed before and read some of it
afterwards finds it young, and leaves it alone (`compacting`).

What is dead (below a log's beginning, or at ids that another segment holds) may hold anything of anybody, and
is read by none: its records become some that say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from snapshotter import values
from snapshotter.checkpoints import bases, leftovers, spent_inputs
from snapshotter.core.calls import Message
from snapshotter.core.controls import mended
from snapshotter.core.fold import Fold
from snapshotter.core.inputs import REDACTION, InputLog
from snapshotter.core.redacted import blank_input, marked
from snapshotter.core.shapes import is_ref
from snapshotter.core.snapshot import known_inputs
from snapshotter.core.tally import Tally
from streams.buckets.base import Blob
from streams.codec import decode_segment, encode_segment
from streams.keys import Log
from streams.log import Place
from streams.records import Record, Segment

from .bench import Bench
from .blanking import Blanker, Own
from .sweeping import names


@dataclass(frozen=True, slots=True)
class Read:
    """A segment as it was read; `records` with their large values put back in."""

    place: Place
    blob: Blob
    segment: Segment
    records: list[Record]


@dataclass(slots=True)
class Logs:
    """The live segments of both logs, oldest first, and the dead ones."""

    inputs: list[Read]
    outs: list[Read]
    dead: list[Read]

    def fold(self) -> Fold:
        """One that stands before them."""
        fold = Fold()
        if self.outs:
            fold.cursor = self.outs[0].segment.header.first - 1
        fold.inputs = InputLog(self.inputs[0].segment.header.first - 1 if self.inputs else 0)
        return fold

    def known(self, bench: Bench) -> InputLog | None:
        """The inputs as a boot knows them that goes on from what stands below the log's beginning; None for a
        log that is whole."""
        begins = self.outs[0].segment.header.first - 1 if self.outs else 0
        base = next(bases(bench.store, bench.sid, begins, hydrated=True), None) if begins else None
        return None if base is None else known_inputs(base)


@dataclass(slots=True)
class Changes:
    """What is to be written: segments and their records without the message. `brought`: the ids of the inputs
    in which it was sent; `inputs`: those among the segments, and whose duplicate each is, or its own id.
    `turns`: those whose error texts go."""

    segments: list[tuple[Read, list[Record]]] = field(default_factory=list)
    brought: set[int] = field(default_factory=set)
    inputs: dict[int, int] = field(default_factory=dict)
    turns: set[int] = field(default_factory=set)

    def announced(self, number: int) -> Record:
        """The in record that says which inputs are written anew."""
        return {
            "id": number,
            "kind": REDACTION,
            "inputs": [list(pair) for pair in sorted(self.inputs.items())],
        }

    def write(self, bench: Bench) -> set[bytes]:
        """Write them; returns the names of blocks and values that stand there no more. Raises Vanished where
        one was replaced meanwhile."""
        gone: set[bytes] = set()
        for read, records in self.segments:
            header = read.segment.header
            data = encode_segment(
                header.log,
                records,
                nonce=header.nonce,
                epoch=header.epoch,
                run=header.run,
                prev=header.prev,
                lease=header.lease,
                rewritten=bench.store.clock.token(),
            )
            bench.rewrite(read.place.key, data, read.blob.etag)
            gone |= names([read.blob.data]) - names([data])
        return gone


def read_logs(bench: Bench) -> Logs:
    """Out first: it names no input then that came after the in log was read."""
    places = _places(bench, "out")
    outs, dead = _read(bench, places, leftovers(bench.store, bench.sid, places))
    places = _places(bench, "in")
    shortened = bool(outs) and outs[0].segment.header.first > 1
    inputs, spent = _read(bench, places, spent_inputs(bench.store, bench.sid, places) if shortened else 0)
    return Logs(inputs, outs, dead + spent)


def without(bench: Bench, message_id: str, own: Own) -> Changes:
    """How both logs are written without a message; `own`: what the history tells of it."""
    logs = read_logs(bench)
    blanker = Blanker(message_id, own, logs.fold(), logs.known(bench))
    for read in logs.inputs:
        for record in read.records:
            blanker.feed(record)
    outs = [(read, _changed(read, [blanker.out(record) for record in read.records])) for read in logs.outs]
    # Whose calls they answer the out log has told by now.
    inputs = [(read, _changed(read, [blanker.input(r) for r in read.records])) for read in logs.inputs]
    changed = {read.segment.header.first for read, records in inputs if records is not None}
    firsts = {number: blanker.firsts[number] for number in sorted(changed)}
    found = Changes(brought=blanker.inputs, inputs=firsts, turns=blanker.turns)
    # Copies first: for as long as its first is as it was sent everybody knows one.
    found.segments += [(read, records) for read, records in reversed(inputs) if records is not None]
    found.segments += _with_those_before(outs)
    found.segments += _hollowed(logs.dead)
    return found


def bereft(bench: Bench, held: dict[str, Message]) -> Changes:
    """The inputs that name one of these values, each of which is emptied by now and held this message: who
    sent them had stored the value before, and named it since."""
    found = Changes()
    for read in _read(bench, _places(bench, "in"))[0]:
        record = read.records[0]
        ref: Any = record.get("ref")
        message = held.get(ref["key"]) if is_ref(ref) else None
        if message is not None:
            found.segments.append((read, [marked(blank_input({**record, "message": message}), record["id"])]))
    return found


def _places(bench: Bench, which: Log) -> list[Place]:
    """The segments of a log that hold something, oldest first."""
    return [place for place in bench.places(which)[0] if place.size]


def _read(bench: Bench, places: list[Place], begins: int = 0) -> tuple[list[Read], list[Read]]:
    """The live segments of a log and the dead ones; so many of the oldest are."""
    live: list[Read] = []
    dead: list[Read] = []
    for number, (place, blob) in enumerate(bench.read(places)):
        segment = decode_segment(blob.data, key=place.key)
        if segment is None:
            continue
        if number < begins or (live and segment.header.first <= live[-1].segment.header.last):
            dead.append(Read(place, blob, segment, segment.records))
        else:
            filled = values.fill(bench.store, bench.sid, segment.records, leave=values.UNREADABLE)
            live.append(Read(place, blob, segment, filled))
    return live, dead


def _changed(read: Read, blanked: list[Record]) -> list[Record] | None:
    """A segment's records without the message; None where nothing changes."""
    made = list(zip(read.segment.records, read.records, blanked, strict=True))
    if all(new is full or new == full for _, full, new in made):
        return None
    return [old if new is full else new for old, full, new in made]


def _with_those_before(
    outs: Iterable[tuple[Read, list[Record] | None]],
) -> Iterator[tuple[Read, list[Record]]]:
    """Of the out log what has changed, and what stands before it in its turn, which a compaction may merge
    with it; oldest first."""
    waiting: list[tuple[Read, list[Record]]] = []
    tally = Tally()
    for read, changed in outs:
        waiting.append((read, read.segment.records if changed is None else changed))
        for record in read.segment.records:
            tally.apply(record)
        if changed is not None:
            yield from waiting
            waiting.clear()
        if tally.open is None and not tally.ledger.claims:
            waiting.clear()


def _hollowed(dead: Iterable[Read]) -> Iterator[tuple[Read, list[Record]]]:
    """The dead segments that hold more than records which say nothing, with nothing else."""
    for read in dead:
        header = read.segment.header
        nothing = {"control": "heartbeat"} if header.log == "out" else {"kind": REDACTION, "inputs": []}
        if any(record.get(name) != nothing[name] for record in read.records for name in nothing):
            ids, ts = range(header.first, header.last + 1), mended(read.records[0])[0].get("ts", 0)
            yield read, [{"id": n, "ts": ts, **nothing} for n in ids]
