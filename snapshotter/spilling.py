"""Settled messages that leave memory while a long log is folded.

A fold over a whole log has the whole history in the end. So that no more of it is held than what can still
matter, the older messages go into a temporary file: runs of about a megabyte, each of which stands in the
chain as a block that was not read (`core.chain`). All that a window of a history keeps, then holds here:
what a record acts on is looked for before it is applied (`core.reach`), and what turns out to lie in a run
is read back. In memory stay the newest messages, those with a call that is not settled, and those behind
the end of a compacted context. Of the ids in each run a small filter is kept, so that an id that never was
costs no reading.

A session that was read in less than `LIMIT` bytes never comes here. What was read back counts like what was
read anew, so a log that looks far back each time costs memory rather than time. The file has no name where
the system allows it, and is gone with the process; it is compressed, and not encrypted.
"""

from __future__ import annotations

import io
import marshal
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import IO, Any

from streams.errors import Retryable
from streams.records import Record
from streams.store import Store

from . import blocks
from .core import chain, reach
from .core.apart import Ref
from .core.blocks import Block, Span
from .core.calls import Message, any_unsettled
from .core.chain import Unloaded, id_of
from .core.controls import mended
from .core.fold import Fold
from .core.snapshot import restore
from .keeping import more, put_back
from .shelf import Shelf
from .values import Shelved

LIMIT = 8 * 1024 * 1024
"""Bytes that are read between two looks at what may leave memory."""

_RUN = 1024 * 1024
_TOGETHER = 16  # messages that are written, and read, as one value: the names of their fields are shared
_BITS = 32  # of a filter, for each id: one in some 40,000 that are not there seems to be
_PROBES = 6

Pair = tuple[Message, Ref | None]


class Spill:
    """The messages of one fold that left memory. Close it, or use it with `with`. Its methods raise Retryable
    where the file cannot be written or read, as on a full disk."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._runs: dict[str, tuple[int, int]] = {}
        self._grown = 0
        self._due = LIMIT

    def restore(self, store: Store, sid: str, document: dict[str, Any]) -> Fold:
        """A fold that stands where a snapshot was taken, as if its whole history had come from a log. Raises
        Missing, Corrupt, and what requests raise."""
        rest = {**document, "blocks": []}
        fold = restore(rest, parts=Shelf(store, sid, rest).complete())
        recent = list(fold.chain.messages)
        fold.chain.shed([], [])
        shelved = Shelved(store, sid, fold.chain.apart)
        for row in document.get("blocks") or ():
            for message in shelved.lists(blocks.read(store, sid, [Block.of(row)]))[0]:
                fold.chain.append(message)
            self.settle(fold, row["bytes"])
        for message in recent:
            fold.chain.append(message)
        return fold

    def settle(self, fold: Fold, read: int) -> None:
        """The fold has taken `read` bytes more: let go of what may go, where it is time."""
        self._grown += read
        if self._grown < self._due or (fold.open is not None and fold.open.slot is not None):
            return
        self._grown, self._due = 0, LIMIT
        spans, messages = self._shed(fold, _end(fold))
        fold.chain.shed(spans, messages)
        fold.chain.apart.keep(_alive(fold))

    def replay(self, fold: Fold, records: Iterable[Record]) -> None:
        """As the fold does; what a record acts on and is not in memory is read back. Raises Gap."""
        if not fold.chain.partial:
            fold.replay(records)
            return
        run: list[Record] = []
        for record in records:
            if "control" in record:
                fold.replay(run)
                self._reach(fold, record)
                run = []
            run.append(record)
        fold.replay(run)

    def fetch(self, fold: Fold, spans: Iterable[Span]) -> None:
        """Read runs back into the fold's history."""
        for span in spans:
            pairs = self.pairs(span)
            for message, ref in pairs:
                if ref is not None:
                    fold.chain.apart.note(message, ref)
            put_back(fold, span, [message for message, _ in pairs])
            self._due += span.block.bytes

    def pairs(self, span: Span) -> list[Pair]:
        """The messages of a run, each with the reference that it came from."""
        assert self._file is not None
        at, length = self._runs[span.block.key]
        with _told():
            self._file.seek(at)
            data = io.BytesIO(zlib.decompress(self._file.read(length)))
        found: list[Pair] = []
        while len(found) < span.count:
            found += marshal.load(data)  # noqa: S302 - written by this very process
        return found

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # what a full disk did not take is not needed any more
                self._file.close()

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reach(self, fold: Fold, record: Record) -> None:
        body = mended(record)[0]
        while fold.chain.partial:
            try:
                reach.check(fold, [body])
                return
            except Unloaded:
                self.fetch(fold, more(fold))

    # -- letting go ---------------------------------------------------------------------------------

    def _shed(self, fold: Fold, end: int) -> tuple[list[Span], list[Message]]:
        """The chain with all that stands before this position, and may go, in runs: its blocks and
        messages."""
        own = fold.chain
        spans: list[Span] = []
        held: list[Message] = []
        loose: list[Message] = []
        position = 0
        rest = list(own.spans)
        while rest and (not rest[0].loaded or position + rest[0].count <= end):
            span = rest.pop(0)
            messages = own.messages[position : position + span.count] if span.loaded else []
            position += len(messages)
            if not span.loaded or (span.block.key in self._runs and not span.dirty):
                self._sort(fold, loose, spans, held)
                loose = []
                span.loaded = False
                spans.append(span)
            else:
                loose += messages
        if not rest:
            loose += own.messages[position:end]
            position = max(position, end)
        self._sort(fold, loose, spans, held)
        return [*spans, *rest], [*held, *own.messages[position:]]

    def _sort(self, fold: Fold, loose: list[Message], spans: list[Span], held: list[Message]) -> None:
        """Messages that stand in no run: what is settled goes into new ones, the others stay."""
        for unsettled, group in groupby(loose, any_unsettled):
            messages = list(group)
            if unsettled:
                spans.append(Span(Block("", len(messages), 0, open=True), len(messages)))
                held += messages
            else:
                spans += self._written(fold, messages)

    def _written(self, fold: Fold, messages: list[Message]) -> Iterator[Span]:
        run: list[Message] = []
        data: list[bytes] = []
        for start in range(0, len(messages), _TOGETHER):
            some = messages[start : start + _TOGETHER]
            run += some
            data.append(marshal.dumps([(message, fold.chain.apart.ref_of(message)) for message in some]))
            if sum(map(len, data)) >= _RUN:
                yield self._put(run, data)
                run, data = [], []
        if run:
            yield self._put(run, data)

    def _put(self, messages: list[Message], data: list[bytes]) -> Span:
        whole = b"".join(data)
        packed = zlib.compress(whole, 1)
        key = str(len(self._runs))
        with _told():
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="snapshotter-")  # noqa: SIM115 - closed by `close`
            self._runs[key] = (self._file.seek(0, io.SEEK_END), len(packed))
            self._file.write(packed)
        ids = _Ids([id_of(message) for message in messages])
        return Span(Block(key, len(messages), len(whole)), len(messages), loaded=False, ids=ids)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong with the file, as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise Retryable(
            f"a temporary file, which a long session needs, cannot be written or read ({error}): make room in"
            " the folder for these, or name another one in TMPDIR"
        ) from error


class _Ids:
    """What some ids are among: a Bloom filter, a few bytes for each."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._bits = bytearray(len(ids) * _BITS // 8)
        for own in ids:
            for at in self._places(own):
                self._bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, own: object) -> bool:
        return all(self._bits[at >> 3] & 1 << (at & 7) for at in self._places(own))

    def _places(self, own: object) -> Iterator[int]:
        number, step = hash(own), hash((own,)) | 1
        return ((number + n * step) % (8 * len(self._bits)) for n in range(_PROBES))


def _end(fold: Fold) -> int:
    """The position before which messages may go. What a compacted context ends with is asked for often."""
    end = len(fold.chain) - 2 * chain.ID_WINDOW
    if fold.context is not None:
        try:
            upto = fold.chain.find(fold.context.get("upto"))
        except Unloaded:
            upto = None
        end = end if upto is None else min(end, upto)
    return max(end, 0)


def _alive(fold: Fold) -> Iterator[Message]:
    """The messages in memory that may come to stand in a checkpoint: the references of others are not
    needed."""
    yield from fold.chain.messages
    yield from (fold.context or {}).get("messages", ())
    yield from (entry.message for entry in fold.inputs.owed() if "message" in entry.record)
    if fold.open is not None:
        yield from (*fold.open.asked, *fold.open.done, *fold.open.waiting())
