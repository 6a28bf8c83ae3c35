"""The blocks of a long history that came from its log alone: sealed one after the other, before the
checkpoint.

A checkpoint writes all that is not sealed at once, which for a live session is what a few turns have added.
After a fold over a whole log it is the whole history, most of which is not in memory (`spilling`). So that
goes first: message by message, cut into blocks where a checkpoint would cut it. What is left, less than a
block, is put back into the chain, and the checkpoint seals it with the rest. Until that is stored nobody
names what was sealed: a death in between leaves it to gc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from streams.buckets.base import Written
from streams.store import Store

from . import blocks, values
from .core.apart import Ref
from .core.blocks import Block, Sizes, Span
from .core.calls import Message, any_unsettled
from .core.chain import Chain
from .core.fold import Fold
from .core.shapes import LONGEST
from .sealing import Ahead
from .spilling import Pair, Spill


def seal_ahead(store: Store, sid: str, fold: Fold, spill: Spill, sizes: Sizes) -> Ahead:
    """Seal what has left memory, in whole blocks; afterwards nothing of the fold's chain stands in the spill.
    Raises InvalidValue for a history that JSON cannot hold, and what requests raise."""
    chain = fold.chain
    if not chain.spans:
        return Ahead()
    work = _Work(store, sid, sizes)
    for message, ref in _sealable(chain, spill):
        work.add(message, ref)
    made = Chain([*(message for message, _ in work.group), *chain.messages[chain.sealed :]], work.spans)
    for message, known in [*work.group, *((m, chain.apart.ref_of(m)) for m in chain.messages)]:
        if known is not None:
            made.apart.note(message, known)
    for message in (fold.context or {}).get("messages", ()):
        if (known := chain.apart.ref_of(message)) is not None:
            made.apart.note(message, known)
    made.changed = chain.changed
    fold.chain = made
    return Ahead(work.names, work.taken_over, min(work.dates, default=None))


def _sealable(chain: Chain, spill: Spill) -> Iterator[Pair]:
    """What stands in blocks of the chain, in its order."""
    for span, start in chain.places(loaded=False):
        if not span.loaded:
            yield from spill.pairs(span)
            continue
        for message in chain.messages[start : start + span.count]:
            yield message, chain.apart.ref_of(message)


@dataclass(slots=True)
class _Work:
    """`group`: the messages of the block that is being filled, `data` its JSON so far."""

    store: Store
    sid: str
    sizes: Sizes
    spans: list[Span] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    taken_over: set[str] = field(default_factory=set)
    dates: list[int] = field(default_factory=list)
    group: list[Pair] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)

    def add(self, message: Message, ref: Ref | None) -> None:
        """The next message. What would not fit into the block under way begins the next."""
        form = b"" if ref is not None else values.encoded(message)
        if ref is not None:
            self.taken_over.add(ref["key"])
        elif self.sizes.value < len(form) <= LONGEST:
            ref = self._apart(form)
        if ref is not None:
            form = values.encoded({"ref": ref})
        if self.group and len(self.data) + len(form) + 1 > 2 * self.sizes.large:
            self._seal()
        self.group.append((message, ref))
        self.data += b"," if self.data else b"["
        self.data += form

    def _apart(self, data: bytes) -> Ref:
        name = values.name_of(data, self.store.clock.token())
        ref: Ref = {"key": name, "bytes": len(data)}
        self._note(name, values.put_named(self.store, self.sid, ref, data))
        return ref

    def _seal(self) -> None:
        data = bytes(self.data + b"]")
        name, written = blocks.put(self.store, self.sid, data)
        self._note(name, written)
        unsettled = any(any_unsettled(message) for message, _ in self.group)
        block = Block(name, len(self.group), len(data), unsettled)
        self.spans.append(Span(block, block.count, loaded=False))
        self.group, self.data = [], bytearray()

    def _note(self, name: str, written: Written) -> None:
        self.names.add(name)
        if written.date_ms is not None:
            self.dates.append(written.date_ms)
