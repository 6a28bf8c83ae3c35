"""Which of the owed messages the next turn takes.

    queue    the first
    merge    all user messages that stand together at the front: one answer to all
    latest   the last of those; the others are spent and stand before it, unanswered

Everything else (edits, answers, actions) keeps its place and is an item of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from .queue import Item

OVERLAPS = ("queue", "merge", "latest")


def next_item(pending: Sequence[Item], overlap: str) -> tuple[Item, list[int]]:
    """The item for the next turn, and the inputs that are passed over for it."""
    together = list(takewhile(lambda item: item.kind == "message", pending))
    if overlap == "queue" or len(together) < 2:
        return pending[0], []
    if overlap == "latest":
        return together[-1], [number for item in together[:-1] for number in item.ids]
    return joined(together), []


def joined(items: Sequence[Item]) -> Item:
    """Several user messages as one item."""
    return Item(
        tuple(number for item in items for number in item.ids),
        "message",
        tuple(message for item in items for message in item.messages),
        None,
        tuple(record for item in items for record in item.inputs),
    )
