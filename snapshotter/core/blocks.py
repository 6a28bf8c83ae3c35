"""Sealed blocks: how a long history is laid out, and when blocks are merged.

A short session is one document. Beyond `Sizes.inline` its settled messages are sealed into blocks, each
written once, and the document names them. A *span* is a block as one session holds it: where its messages
stand, whether they were read, whether one of them has changed since (then it is sealed anew).

Merging keeps the list short and each byte cheap. Blocks have three tiers by size: what one checkpoint seals,
from `small` on, from `large` on. As soon as the newest blocks below a tier's size hold that much together,
they become one block of that tier. So a byte is written at most once a tier, and a list holds few blocks of
each of the lower two; those of the highest tier are never touched again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

KB = 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """Thresholds, in bytes of encoded JSON. `inline`: a snapshot up to this is one plain document.
    `tail`: so much log behind the stored snapshot makes the next checkpoint due, in a session with blocks;
    so do `turns` turns. `small` and `large`: where the second and the third tier of blocks begin. `value`: a
    larger message or chunk is stored apart."""

    inline: int = 32 * KB
    tail: int = 24 * KB
    turns: int = 16
    small: int = 384 * KB
    large: int = 4096 * KB
    value: int = 32 * KB


DEFAULT = Sizes()


@dataclass(frozen=True, slots=True)
class Block:
    """A sealed run of settled messages: its name, how many messages, and bytes of JSON before compression.
    `open`: one of them holds an unsettled call, so that a window has to read it, too."""

    key: str
    count: int
    bytes: int
    open: bool = False

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"key": self.key, "count": self.count, "bytes": self.bytes}
        return {**found, "open": True} if self.open else found

    @classmethod
    def of(cls, row: dict[str, Any]) -> Block:
        """From a snapshot's row, whose shape was checked."""
        return cls(row["key"], row["count"], row["bytes"], row.get("open") is True)


@dataclass(slots=True)
class Span:
    """A block in a chain. `count`: how many messages of it stand there now. `loaded`: they were read.
    `dirty`: they are not what the block holds any more. `ids`: what the messages' ids are among, where that
    is known of a block that was not read."""

    block: Block
    count: int
    loaded: bool = True
    dirty: bool = False
    ids: Container[str] | None = None

    def may_hold(self, message_id: str) -> bool:
        """Whether one of its messages may bear the id."""
        return self.ids is None or message_id in self.ids


@dataclass(frozen=True, slots=True)
class Piece:
    """What a checkpoint can seal, or leave as it is: bytes, and whether a block holds just that."""

    bytes: int
    kept: bool = False


def plan(pieces: Sequence[Piece], sizes: Sizes) -> list[tuple[int, int]]:
    """Which of the pieces, oldest first, go together: ranges [start, end) that cover them all. A range of
    one kept piece stays as it is; every other is sealed as one block."""
    groups = [(index, index + 1, piece.bytes) for index, piece in enumerate(pieces)]
    for tier in (sizes.small, sizes.large):
        first = len(groups)
        while first and groups[first - 1][2] < tier:
            first -= 1
        run = groups[first:]
        total = sum(size for _, _, size in run)
        if len(run) > 1 and total >= tier:
            groups[first:] = [(run[0][0], run[-1][1], total)]
    return [(start, end) for start, end, _ in groups]


def split(sizes_of: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Ranges of items of these sizes, each of at most `limit` bytes together, or of one item."""
    found: list[tuple[int, int]] = []
    start = total = 0
    for index, size in enumerate(sizes_of):
        if index > start and total + size > limit:
            found.append((start, index))
            start, total = index, 0
        total += size
    return [*found, (start, len(sizes_of))] if len(sizes_of) > start else found


def newest(blocks: Sequence[Block], recent: int, window: int | None) -> list[Block]:
    """Which blocks a window of so many messages needs, `recent` of which stand in the snapshot itself: the
    newest ones, and all that hold an unsettled call. None: all."""
    if window is None:
        return list(blocks)
    found: list[Block] = []
    for block in reversed(blocks):
        if recent < window or block.open:
            found.append(block)
        recent += block.count
    return list(reversed(found))
