"""The history of a stored snapshot, as far as it is read: its blocks, or a window of them, and its values.

A block that is not there, or not what its name says, makes the snapshot unreadable (`PartLost`): with a whole
log the boot goes on from that.
"""

from __future__ import annotations

from typing import Any

from streams.errors import Corrupt, Damaged, Missing
from streams.store import Store

from . import blocks
from .core import chain
from .core.apart import Apart
from .core.blocks import Block, Span, newest
from .core.calls import Message
from .core.snapshot import Parts, is_whole_in_itself
from .values import Shelved

Document = dict[str, Any]


class PartLost(Exception):
    """A part of a snapshot's history is missing or corrupt."""

    def __init__(self, problem: Damaged) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Shelf:
    """See the module. `window`: how many of the newest messages are needed, None for all. No fewer than 64
    are read: ids are compared among so many."""

    def __init__(self, store: Store, sid: str, document: Document | None, window: int | None = None) -> None:
        self._store = store
        self._sid = sid
        self._window = None if window is None else max(window, chain.ID_WINDOW)
        self._document = document or {}
        self._blocks = [Block.of(row) for row in self._document.get("blocks") or ()]
        self._read: dict[str, list[Message]] = {}
        self._recent: list[Message] = self._document.get("messages") or []
        self._context: dict[str, Any] | None = self._document.get("context")
        self._apart = Apart()
        self._resolved = not self._document or is_whole_in_itself({**self._document, "blocks": None})

    def lacks(self) -> bool:
        """True while something that is needed was not read."""
        return bool(self._wanted()) or not self._resolved

    def fetch(self) -> None:
        """Read what is needed: blocks in one round trip, values in another. Raises PartLost, and what
        requests raise."""
        wanted = self._wanted()
        shelved = Shelved(self._store, self._sid, self._apart)
        try:
            lists = blocks.read(self._store, self._sid, wanted) if wanted else []
            context = (self._context or {}).get("messages", [])
            own = [] if self._resolved else [self._recent, context]
            filled = shelved.lists([*lists, *own])
        except (Missing, Corrupt) as problem:
            raise PartLost(problem) from problem
        if not self._resolved:
            self._recent, context = filled[-2:]
            self._context = None if self._context is None else {**self._context, "messages": context}
            self._resolved = True
        self._read.update(zip([block.key for block in wanted], filled, strict=False))

    def complete(self) -> Parts:
        """All parts, once what lacks was read; what cannot be is raised as what it is: Missing, Corrupt."""
        try:
            if self.lacks():
                self.fetch()
        except PartLost as lost:
            raise lost.problem from lost
        return self.parts()

    def widen(self) -> None:
        """Read more: the window becomes twice as large, and at least one block larger."""
        self._window = 2 * self._held()
        self.fetch()

    def parts(self) -> Parts:
        """What was read, for a fold to begin with."""
        spans = [Span(block, block.count, loaded=block.key in self._read) for block in self._blocks]
        messages = [message for block in self._blocks for message in self._read.get(block.key, ())]
        return Parts([*messages, *self._recent], spans, self._apart, self._context)

    def _wanted(self) -> list[Block]:
        needed = newest(self._blocks, len(self._recent), self._window)
        return [block for block in needed if block.key not in self._read]

    def _held(self) -> int:
        """How many messages the window holds, with one of the block before it."""
        held = len(self._recent)
        for block in reversed(self._blocks):
            held += block.count
            if block.key not in self._read:
                break
        return held


def inline(store: Store, sid: str, document: Document) -> Document:
    """The document with its whole history in itself. Raises Missing, Corrupt, and what requests raise."""
    if is_whole_in_itself(document):
        return document
    parts = Shelf(store, sid, document).complete()
    return {**document, "blocks": [], "messages": list(parts.messages), "context": parts.context}
