"""The stored snapshot as one worker knows it: when it is saved again, and where blocks are read from.

A short session is saved after each turn. In one with blocks a checkpoint costs a block and a list of all
blocks, so it is due only when the log behind the stored one has grown (`Sizes.tail`, `Sizes.turns`), when
messages were removed or moved, or when the session has ended. Until then the next boot folds a short tail, in
the round trip that it needs for the blocks anyway: the log is the truth, and the law holds at every cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streams import keys
from streams.errors import Fenced, Missing
from streams.records import Cursor
from streams.store import Store

from . import blocks, saving
from .core import chain
from .core.blocks import Block, Sizes, Span, newest
from .core.calls import Message
from .core.fold import Fold
from .sealing import Checkpoint
from .values import Shelved

if TYPE_CHECKING:
    from .loading import Loaded


class Keeper:
    """One reading of a session, from its boot on. `behind`: bytes of log between the stored snapshot and the
    end that was read. Whoever writes tells how many bytes the log has got since."""

    def __init__(
        self, store: Store, sid: str, loaded: Loaded, sizes: Sizes, etags: Callable[[], str]
    ) -> None:
        self._store = store
        self._sid = sid
        self._fold: Fold = loaded.fold
        self._sizes = sizes
        self._etags = etags
        self._etag = loaded.etag
        self._behind = loaded.behind
        self._turn = loaded.stored_turn

    def is_due(self, written: int) -> bool:
        """Whether a checkpoint is due, `written` bytes after the end that was read."""
        fold = self._fold
        if not fold.chain.spans or fold.chain.changed or fold.closed or fold.deleted:
            return True
        return self._behind + written >= self._sizes.tail or fold.turn - self._turn >= self._sizes.turns

    def save(self, at: Cursor, written: int) -> None:
        """Save the fold, which stands at this place. Raises InvalidValue, and what requests raise."""
        work = Checkpoint(self._store, self._sid, self._fold, at, self._sizes, self.fetch)
        saved = work.save(self._etag, self._etags())
        if saved is not None:
            self._etag, self._turn, self._behind = saved.etag, self._fold.turn, -written

    def save_document(self, data: bytes, cursor: int) -> None:
        """Save a document that was made before. Raises what requests raise."""
        saved = saving.save(self._store, self._sid, data, cursor, self._etag, self._etags())
        if saved is not None:
            self._etag = saved.etag

    def fetch(self, spans: Sequence[Span]) -> None:
        """Read blocks that were not read. Raises Fenced where the snapshot that named them was replaced, and
        they are gone: whoever slept so long reads the session again. Raises Missing, Corrupt, and what
        requests raise."""
        try:
            fill(self._store, self._sid, self._fold, spans)
        except Missing as missing:
            now = self._store.get(keys.snapshot(self._sid))
            if (now and now.etag) == self._etag:
                raise
            raise Fenced(f"{missing.key} went with a snapshot that was replaced: boot again") from missing

    def widen(self) -> None:
        """Read more of the history: so many older messages as there are in the window now, or more."""
        self.fetch(more(self._fold))


def more(fold: Fold) -> list[Span]:
    """The blocks to read next where a fold needs more of its history: so many older messages as there are
    now, or more."""
    spans = [span for span in fold.chain.spans if not span.loaded]
    lacking: list[Block] = [span.block for span in spans]
    wanted = {block.key for block in newest(lacking, 0, max(len(fold.chain), chain.ID_WINDOW))}
    return [span for span in spans if span.block.key in wanted]


def fill(store: Store, sid: str, fold: Fold, spans: Sequence[Span]) -> None:
    """Read the blocks of these spans into the fold's history."""
    lists = blocks.read(store, sid, [span.block for span in spans])
    shelved = Shelved(store, sid, fold.chain.apart)
    for span, messages in zip(spans, shelved.lists(lists), strict=True):
        put_back(fold, span, messages)


def put_back(fold: Fold, span: Span, messages: Sequence[Message]) -> None:
    """The messages of a block that was not read, in their place."""
    start = fold.chain.fill(span, messages)
    if fold.open is not None and fold.open.slot is not None and start <= fold.open.slot:
        fold.open.slot += len(messages)
