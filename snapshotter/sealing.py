"""What a checkpoint writes: the snapshot, and of a long history the blocks and values that it names.

A history whose document stays below `Sizes.inline` is one plain document. Beyond it

    1   messages above `Sizes.value` go apart, each as one value
    2   what is not sealed yet, but for a last message whose calls still wait, goes into blocks, together
        with blocks that have changed, and with those that `blocks.plan` says are due to be merged
    3   the document names the blocks, and holds what is left

1 and 2 are one round trip, 3 another; a death in between leaves objects that nobody names. Nothing of it
takes effect in the chain before the document is stored, so whatever fails is tried anew from the start, under
new names: a document names nothing but what was sealed for it, or what the one that it replaces names.

A process may be frozen between 2 and 3, for so long that what it sealed was tidied away. The store's own
dates tell; then all of it is done once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streams.buckets.base import Written
from streams.errors import Refused, TooLarge
from streams.log import HALF_AGE_MS
from streams.records import Cursor
from streams.store import Store

from . import blocks, saving, values
from .core.apart import Ref
from .core.blocks import Block, Piece, Sizes, Span, plan, split
from .core.calls import Message, any_unsettled
from .core.fold import Fold
from .core.shapes import LONGEST
from .core.snapshot import Layout, encode

Fetch = Callable[[Sequence[Span]], None]


@dataclass(frozen=True, slots=True)
class Ahead:
    """Names of blocks and values that were sealed for a checkpoint before it begins, what they name that
    others had stored, and the store's earliest date of it; None where nothing was, or the store does not
    tell."""

    names: Collection[str] = ()
    taken_over: Collection[str] = ()
    date_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where to save what: one session's fold, at this place of its out log. `fetch` reads blocks of the chain
    that were not read, for a merge. `ahead`: what was sealed for it just now (`longsealing`)."""

    store: Store
    sid: str
    fold: Fold
    at: Cursor
    sizes: Sizes
    fetch: Fetch
    ahead: Ahead = Ahead()

    def save(self, etag: str | None, etags: str) -> Written | None:
        """Save it in the place of the snapshot with this ETag; None when a newer one stands there. Raises
        InvalidValue for a history that JSON cannot hold, and what `saving.save` and requests raise."""
        if self._may_be_small():
            data = self._encode(None)
            if len(data) <= self.sizes.inline:
                written = saving.save(self.store, self.sid, data, self.at.id, etag, etags)
                if written is not None:
                    self.fold.chain.seal(())
                return written
        for _ in range(1 if self.ahead.names else 2):
            work = _Work(self, taken_over=set(self.ahead.taken_over))
            work.arrange()
            since = work.write()
            data = self._encode(work.layout)
            written = saving.save(self.store, self.sid, data, self.at.id, etag, etags, work.taken_over)
            if written is None:
                # What was sealed is left to gc: this document may have landed after all, unanswered, and
                # what stands there now, or a checkpoint, may have taken it over.
                return None
            if since is None or written.date_ms is None or written.date_ms - since <= HALF_AGE_MS:
                work.done()
                return written
            etag = written.etag
        raise Refused("the process was frozen in the middle of a checkpoint, and again; the next one saves")

    def document(self) -> bytes:
        """What is to be saved, its blocks and values stored: for a session that is not there yet, of which
        nothing is tidied away. Raises as `save`."""
        if self._may_be_small() and len(data := self._encode(None)) <= self.sizes.inline:
            return data
        work = _Work(self)
        work.arrange()
        work.write()
        return self._encode(work.layout)

    def _may_be_small(self) -> bool:
        """Whether all of it may fit into one plain document: as it begins, and after removals."""
        chain = self.fold.chain
        rest = sum(span.block.bytes for span in chain.spans if not span.dirty)
        return not chain.spans or (chain.changed and not chain.partial and rest <= self.sizes.inline)

    def _encode(self, layout: Layout | None) -> bytes:
        now = self.store.clock.now_ms()
        return encode(self.fold, self.at.nonce, now, session=self.sid, first=self.at.first, layout=layout)


@dataclass(slots=True)
class _Group:
    """Pieces that become one block: positions of messages, and the span that stays, where one does."""

    start: int
    end: int
    kept: Span | None = None


@dataclass(slots=True)
class _Work:
    """One attempt. `forms`: the bytes that stand for each message, by its position."""

    to: Checkpoint
    forms: dict[int, bytes] = field(default_factory=dict)
    refs: dict[int, tuple[Message, Ref]] = field(default_factory=dict)
    apart: dict[int, bytes] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    upto: int = 0
    recent: list[Message] = field(default_factory=list)
    context: dict[str, Any] | None = None
    taken_over: set[str] = field(default_factory=set)

    # -- what to write ------------------------------------------------------------------------------

    def arrange(self) -> None:
        """Decide what is sealed anew. Blocks that a merge needs and that were not read are read."""
        chain = self.to.fold.chain
        while True:
            pieces, groups = self._pieces()
            ranges = plan(pieces, self.to.sizes)
            lacking = [
                span
                for start, end in ranges
                for group in groups[start:end]
                if end - start > 1 and (span := group.kept) is not None and not span.loaded
            ]
            if not lacking:
                break
            self.to.fetch(lacking)
            self.forms.clear()  # positions have moved
        for start, end in ranges:
            if end - start == 1 and pieces[start].kept:
                self.groups.append(groups[start])
            else:
                self.groups.append(_Group(groups[start].start, groups[end - 1].end))
        self.recent = [self._stored(message) for message in chain.messages[self.upto :]]
        context = self.to.fold.context
        if context is not None:
            self.context = {**context, "messages": [self._stored(m) for m in context["messages"]]}

    def _pieces(self) -> tuple[list[Piece], list[_Group]]:
        """What there is to seal or to leave, oldest first."""
        chain = self.to.fold.chain
        pieces, groups, position = [], [], 0
        for span in chain.spans:
            end = position + (span.count if span.loaded else 0)
            groups.append(_Group(position, end, None if span.dirty else span))
            size = span.block.bytes if not span.dirty else self._size(position, end)
            pieces.append(Piece(size, kept=not span.dirty))
            position = end
        self.upto = len(chain)
        while self.upto > position and any_unsettled(chain.messages[self.upto - 1]):
            self.upto -= 1
        lengths = [len(self._form(at)) + 1 for at in range(position, self.upto)]
        # Twice: what was split must not be due to be merged again.
        for start, end in split(lengths, 2 * self.to.sizes.large):
            groups.append(_Group(position + start, position + end))
            pieces.append(Piece(sum(lengths[start:end])))
        return pieces, groups

    def _size(self, start: int, end: int) -> int:
        return sum(len(self._form(at)) + 1 for at in range(start, end))

    def _form(self, position: int) -> bytes:
        """The bytes that stand for a message in a list."""
        if position not in self.forms:
            data = values.encoded(self._stored(self.to.fold.chain.messages[position]))
            self.forms[position] = bytes(memoryview(data))  # what orjson returns holds a buffer of kilobytes
        return self.forms[position]

    def _stored(self, message: Message) -> Message:
        """The message, or the reference that stands for it."""
        ref = self._ref(message)
        return message if ref is None else {"ref": ref}

    def _ref(self, message: Message) -> Ref | None:
        if id(message) in self.refs:
            return self.refs[id(message)][1]
        known = self.to.fold.chain.apart.ref_of(message)
        if known is not None:
            self._take_over(known["key"])
            return known
        data = values.encoded(message)
        if len(data) <= self.to.sizes.value or len(data) > LONGEST:
            return None
        ref = {"key": values.name_of(data, self.to.store.clock.token()), "bytes": len(data)}
        self.refs[id(message)], self.apart[id(message)] = (message, ref), data
        return ref

    # -- writing ------------------------------------------------------------------------------------

    def write(self) -> int | None:
        """Store values and blocks, all at once; returns the store's earliest date of it, None where nothing
        was written or the store does not tell."""
        to, chain = self.to, self.to.fold.chain
        calls: list[Callable[[], Any]] = [
            partial(values.put_named, to.store, to.sid, self.refs[own][1], data)
            for own, data in self.apart.items()
        ]
        sealed: list[tuple[_Group, int]] = []
        for group in self.groups:
            if group.kept is None:
                data = blocks.pack([self._form(at) for at in range(group.start, group.end)])
                if len(data) > LONGEST:
                    raise TooLarge(
                        f"a block takes {len(data)} bytes, the limit is {LONGEST}",
                        size=len(data),
                        limit=LONGEST,
                    )
                calls.append(partial(blocks.put, to.store, to.sid, data))
                sealed.append((group, len(data)))
        found = to.store.gather(calls, writes=True) if calls else []
        written: list[Written] = [*found[: len(self.apart)], *(put for _, put in found[len(self.apart) :])]
        names = iter(name for name, _ in found[len(self.apart) :])
        sizes = {id(group): size for group, size in sealed}
        for group in self.groups:
            if group.kept is not None:
                self.spans.append(group.kept)
                self._take_over(group.kept.block.key)
                continue
            messages = chain.messages[group.start : group.end]
            unsettled = any(map(any_unsettled, messages))
            block = Block(next(names), len(messages), sizes[id(group)], unsettled)
            self.spans.append(Span(block, len(messages)))
        dates = [to.ahead.date_ms, *(put.date_ms for put in written)]
        return min((date for date in dates if date is not None), default=None)

    def _take_over(self, name: str) -> None:
        """Another snapshot names this block, or value."""
        if name not in self.to.ahead.names:
            self.taken_over.add(name)

    @property
    def layout(self) -> Layout:
        return Layout([span.block for span in self.spans], self.recent, self.context)

    def done(self) -> None:
        """The document is stored: what it says is what the chain stands in."""
        chain = self.to.fold.chain
        for message, ref in self.refs.values():
            chain.apart.note(message, ref)
        chain.seal(self.spans, (self.to.fold.context or {}).get("messages", ()))
