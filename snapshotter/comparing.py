"""Two folds of one session laid side by side, also where parts of their histories are not in memory.

What `sameness` says of two folds is said here of two *sides*: a fold, and where the blocks of its chain are
read that were not read. All but the history is small. The messages are compared one after the other, so
that of each side one block is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from typing import Any, TypeVar

from streams.store import Store

from . import blocks, sameness
from .core import chain
from .core.blocks import Span
from .core.calls import Message
from .core.chain import Unloaded
from .core.fold import Fold
from .core.snapshot import restore
from .keeping import fill, more
from .sameness import ABSENT, Difference
from .shelf import Shelf
from .spilling import Spill
from .values import Shelved

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Side:
    """A fold. `read` returns the messages of a block of its chain that was not read, `fetch` reads blocks
    into it."""

    fold: Fold
    read: Callable[[Span], Sequence[Message]]
    fetch: Callable[[Iterable[Span]], None]

    def ask(self, question: Callable[[Fold], T]) -> T:
        """What a function says of the fold, once as much of its history was read as it takes."""
        while True:
            try:
                return question(self.fold)
            except Unloaded:
                self.fetch(more(self.fold))

    def messages(self, shown: Sequence[Message]) -> Iterator[Message]:
        """The whole history: `shown`, as a plan has it, with what was not read in its places."""
        own = self.fold.chain
        for span, start in own.places(loaded=False):
            yield from shown[start : start + span.count] if span.loaded else self.read(span)
        yield from islice(shown, own.sealed, None)


def spilled(fold: Fold, spill: Spill) -> Side:
    """The side of a fold over a log."""
    return Side(fold, lambda span: [message for message, _ in spill.pairs(span)], partial(spill.fetch, fold))


def stored(store: Store, sid: str, fold: Fold) -> Side:
    """The side of a fold that began with a stored snapshot. Its functions raise Missing, Corrupt, and what
    requests raise."""

    def read(span: Span) -> Sequence[Message]:
        return Shelved(store, sid).lists(blocks.read(store, sid, [span.block]))[0]

    return Side(fold, read, lambda spans: fill(store, sid, fold, list(spans)))


def restored(store: Store, sid: str, document: dict[str, Any]) -> Side:
    """The side of a stored snapshot, as it stands: the newest messages are read, and what is unsettled.
    Raises Missing, Corrupt, and what requests raise."""
    parts = Shelf(store, sid, document, chain.ID_WINDOW).complete()
    return stored(store, sid, restore(document, parts=parts))


def differences(one: Side, other: Side) -> Iterator[tuple[str, Iterator[Difference]]]:
    """Of each of the facts its name, and where the two differ in it. Raises what the sides do."""
    ours, theirs = one.ask(sameness.facts), other.ask(sameness.facts)
    partial_ = one.fold.chain.partial or other.fold.chain.partial
    for name in ours:
        if name == "messages" and partial_:
            yield name, _between(one.messages(ours[name]), other.messages(theirs[name]))
        else:
            yield name, sameness.differences(ours[name], theirs[name], name)


def _between(one: Iterator[Message], other: Iterator[Message]) -> Iterator[Difference]:
    for at, (a, b) in enumerate(zip_longest(one, other, fillvalue=ABSENT)):
        path = f"messages[{at}]"
        if a is ABSENT or b is ABSENT:
            yield Difference(path, a, b)
        else:
            yield from sameness.differences(a, b, path)
