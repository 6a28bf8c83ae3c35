"""Packing: consecutive deltas of one part as one record, without losing anything.

A model streams a text as hundreds of tiny deltas. Stored as one record each they are mostly envelope:

    {"id":43,"ts":…,"chunk":{"type":"text-delta","id":"t1","delta":"Hel"}}
    {"id":44,"ts":…,"chunk":{"type":"text-delta","id":"t1","delta":"lo"}}

A *run* holds them as one, with `cuts`, the running lengths in code points at which each delta ended:

    {"id":43,"ts":…,"chunk":{"type":"text-delta","id":"t1","delta":"Hello"},"cuts":[3,5]}

It covers the ids 43 and 44, and `unpack` gives back the same ids and chunks, also from the middle. The
one thing that is not kept is each delta's own `ts`; so a run spans less than a second.

Which chunks are deltas is handed in (`DeltaOf`): nothing here knows of chat, but for the two names that
the text of a delta may have (`TEXT_FIELDS`), which FORMAT.md fixes.

`Carry` mends what JSON cannot hold: a character outside the first plane that a producer has cut into
surrogate halves. The first half is taken off its delta and put before that part's next one. So pairs are
whole, no delta waits for another, and the ids stay as they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from itertools import accumulate
from typing import Any

import orjson

from streams.errors import Corrupt, InvalidValue, TooLarge
from streams.records import LIMIT, MAX_BATCH, Record

TEXT_FIELDS = ("delta", "inputTextDelta")
"""The names that the text of a delta has in a chunk."""

DeltaOf = Callable[[Record], tuple[Hashable, str] | None]
"""For a chunk that may be packed: its part's key (type and id) and the name of its text. Else None.

A chunk qualifies only where it has no field but the type, the part's id and the text.
"""

SPAN_MS = 1000
"""A run ends before its second is over; see `ts` above."""

# Worst case of a run's record: 6 bytes a character (escapes), 6 a cut. Both below keep it under LIMIT.
_RUN_CHARS = 65_536
_RUN_CUTS = 32_768
_RUN_ENVELOPE = 65_536

_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


class Run:
    """Consecutive deltas of one part, from the record `first` on. Grows until something else comes."""

    __slots__ = ("_length", "body", "field", "first", "part", "pieces", "ts")

    def __init__(self, first: int, ts: int, part: Hashable, field: str, chunk: Record) -> None:
        self.first = first
        self.ts = ts
        self.part = part
        self.field = field
        self.body = dict(chunk)
        self.pieces: list[str] = [chunk[field]]
        self._length = len(chunk[field])

    def __len__(self) -> int:
        return len(self.pieces)

    def takes(self, part: Hashable, ts: int, text: str) -> bool:
        return (
            part == self.part
            and 0 <= ts - self.ts < SPAN_MS
            and self._length + len(text) <= _RUN_CHARS
            and len(self.pieces) < _RUN_CUTS
        )

    def add(self, text: str) -> None:
        self._length += len(text)
        # Last, and one step: an interrupt before it leaves the run as it was.
        self.pieces.append(text)

    def encode(self) -> bytes:
        record = {"id": self.first, "ts": self.ts, "chunk": self.body}
        if len(self.pieces) > 1:
            record["chunk"] = {**self.body, self.field: "".join(self.pieces)}
            record["cuts"] = list(accumulate(map(len, self.pieces)))
        return orjson.dumps(record)


class Line:
    """One record, encoded."""

    __slots__ = ("data", "first")

    def __init__(self, first: int, data: bytes) -> None:
        self.first = first
        self.data = data

    def __len__(self) -> int:
        return 1

    def encode(self) -> bytes:
        return self.data


class Packer:
    """The records of one segment to be, from the id `first` on. Not safe between threads.

    `next` always follows from what is held, and each addition takes effect in one step, so an interrupt
    at any point leaves a whole segment. `size` is about what it will take, in bytes.
    """

    __slots__ = ("_delta_of", "_entries", "first", "size")

    def __init__(self, first: int, delta_of: DeltaOf) -> None:
        self.first = first
        self.size = 0
        self._delta_of = delta_of
        self._entries: list[Run | Line] = []

    @property
    def next(self) -> int:
        """The id that the next record gets."""
        if not self._entries:
            return self.first
        entry = self._entries[-1]
        return entry.first + len(entry)

    def add(self, ts: int, body: Record) -> int:
        """Take one record; returns its id. Raises TooLarge or InvalidValue, and then nothing was taken."""
        delta = self._delta_of(body["chunk"]) if len(body) == 1 and "chunk" in body else None
        if delta is None:
            return self._append(Line(self.next, encode_record(self.next, ts, body)))
        part, field = delta
        text: str = body["chunk"][field]
        last = self._entries[-1] if self._entries else None
        if isinstance(last, Run) and last.takes(part, ts, text):
            self.size += _size(text) + 4
            last.add(text)
            return last.first + len(last.pieces) - 1
        line = encode_record(self.next, ts, body)
        if len(line) > _RUN_ENVELOPE:
            return self._append(Line(self.next, line))
        self.size += len(line)
        self._entries.append(Run(self.next, ts, part, field, body["chunk"]))
        return self._entries[-1].first

    def add_all(self, ts: int, bodies: list[Record]) -> int:
        """Take all of these records, or none; returns the last one's id. Raises as `add` does.

        TooLarge also where together they take more than MAX_BATCH: one segment has to hold them.
        """
        first = self.next
        lines = [Line(first + i, encode_record(first + i, ts, body)) for i, body in enumerate(bodies)]
        size = sum(len(line.data) + 1 for line in lines)
        if size > MAX_BATCH:
            raise TooLarge(
                f"records of one batch take {size} bytes together, the limit is {MAX_BATCH}: split it",
                size=size,
                limit=MAX_BATCH,
            )
        self.size += size
        self._entries.extend(lines)
        return self.next - 1

    def lines(self) -> list[bytes]:
        """The encoded records, in order."""
        return [entry.encode() for entry in self._entries]

    def __bool__(self) -> bool:
        return bool(self._entries)

    def _append(self, line: Line) -> int:
        self.size += len(line.data) + 1
        self._entries.append(line)
        return line.first


class Carry:
    """Keeps surrogate pairs whole across the deltas of a part. One per stream of chunks.

    Give each delta's text through `delta` and store what it returns, even when that is empty: a client
    has seen a chunk there. When a part ends, `end` gives the text of one more delta that must be stored
    before the end ("" means none): half a pair that never found its other half is U+FFFD. `parts` names
    those that hold one; whoever closes a turn with parts still open ends these first.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, str] = {}

    def delta(self, part: Hashable, text: str) -> str:
        """The text to store for this delta of this part: whole characters only."""
        if part not in self._held and (text.isascii() or not _SURROGATE.search(text)):
            return text
        text = self._held.pop(part, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._held[part] = text[-1]
            text = text[:-1]
        return mend(text)

    def end(self, part: Hashable) -> str:
        """What has to be stored as one more delta before this part's end: "" or U+FFFD."""
        return _REPLACEMENT if self._held.pop(part, "") else ""

    @property
    def parts(self) -> tuple[Hashable, ...]:
        """The parts that hold half a pair."""
        return tuple(self._held)


def mend(text: str) -> str:
    """Join surrogate pairs; what is left alone becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_record(first: int, ts: int, body: Record) -> bytes:
    """A body with its id and ts as one line; raises as `encode_line` does."""
    record = {"id": first, "ts": ts, **body}
    record["id"], record["ts"] = first, ts  # a body that has such fields cannot choose its place
    return encode_line(record)


def encode_line(record: Record) -> bytes:
    """One record as its line, without the line end.

    Raises TooLarge above LIMIT (measured on these bytes), InvalidValue for what JSON cannot hold.
    """
    try:
        data = orjson.dumps(record)
    except orjson.JSONEncodeError as error:
        raise InvalidValue(f"a record cannot be stored: {error}") from error
    if len(data) > LIMIT:
        raise TooLarge(
            f"a record takes {len(data)} bytes, the limit is {LIMIT}: store it elsewhere, its address here",
            size=len(data),
            limit=LIMIT,
        )
    return data


def count(record: Record) -> int:
    """How many ids the record covers."""
    cuts = record.get("cuts")
    return 1 if cuts is None else len(cuts)


def last_id(record: Record) -> int:
    """The last id that the record covers."""
    first: int = record["id"]
    return first + count(record) - 1


def text_field(chunk: Any) -> str | None:
    """The name of the text of a packed chunk, or None where it has none."""
    if type(chunk) is not dict:
        return None
    return next((name for name in TEXT_FIELDS if type(chunk.get(name)) is str), None)


def unpack(record: Record) -> Iterator[Record]:
    """The records that a stored one stands for, in order. The unpacked carry the run's `ts`."""
    return unpack_after(record, 0)


def unpack_after(record: Record, after: int) -> Iterator[Record]:
    """The records with ids above `after` that a stored one stands for. Raises Corrupt for false cuts."""
    cuts = record.get("cuts")
    first: int = record["id"]
    if cuts is None:
        if first > after:
            yield record
        return
    field = text_field(record["chunk"])
    if field is None or set(map(type, cuts)) != {int}:
        raise Corrupt(f"the cuts of record {first} do not fit its text")
    text = record["chunk"][field]
    start = 0
    for i, end in enumerate(cuts, first):
        if i > after:
            piece = {**record["chunk"], field: text[start:end]}
            yield {"id": i, "ts": record.get("ts", 0), "chunk": piece}
        start = end


def _size(text: str) -> int:
    """Bytes of the text. Refuses half a surrogate pair here, where the caller is still there to hear it."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue("a delta ends within a character: mend it with Carry", path="delta") from error
