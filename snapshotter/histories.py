"""The history as a reader sees it, and pages of it.

A page of a long history begins with a window: the newest blocks, and the tail of the log. What stands
before it is read backwards, some blocks at a time, and those that turn out to stand behind the page are let
go of. So a page costs what stands between it and the end, once, and holds a few blocks, wherever it lies.
What was not read for the window is as it was sealed: what the tail changes, and what is owed, is always
read for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streams.errors import Corrupt, InvalidValue, Missing, Refused

from .core.blocks import Block, Span
from .core.calls import Message, answer_call
from .core.edits import owed_ids
from .core.fold import Fold
from .core.revive import revive

_TOGETHER = 16 * 1024 * 1024  # bytes of blocks, before compression, that are read in one round trip

Fetch = Callable[[list[Block]], list[list[Message]]]
"""Reads blocks, as stored, with what is apart in its place. Raises Missing, Corrupt."""


def shown(fold: Fold) -> list[Message]:
    """The messages with what is owed laid over them: what a person clicked, and wrote, is seen at once,
    though no worker has taken it yet. Owed user messages stand at the end, in order. A deleted session shows
    nothing: what is sent to it is never taken."""
    if fold.deleted:
        return []
    plan = revive(fold)
    messages = list(plan.messages)
    for item in plan.pending:
        if item.kind != "tool-answers":
            continue
        for position in range(len(messages) - 1, -1, -1):
            if messages[position].get("id") == item.message_id:
                messages[position] = item.messages[0]
                break
    taken = {number for item in plan.pending for number in item.ids}
    held = fold.open.inputs if fold.open is not None else ()
    for entry in fold.inputs.owed(held):
        if entry.role == "answer" and entry.id not in taken:
            _overlay(messages, entry.record, entry.message_id)
    ids = owed_ids(fold)
    owed = [entry for entry in fold.inputs.owed(held) if entry.role == "message"]
    return messages + [{**entry.message, "id": ids[entry.id]} for entry in owed]


def _overlay(messages: list[Message], record: dict[str, object], named: str | None) -> None:
    """Lay one half-answered message's answer over the newest message that it moves."""
    for position in range(len(messages) - 1, -1, -1):
        if named is not None and messages[position].get("id") != named:
            continue
        moved = answer_call(messages[position], record)
        if moved is not messages[position]:
            messages[position] = moved
            return


def read_page(
    read: Callable[[int | None], Fold], fetch: Fetch, limit: int | None, before: str | None
) -> list[Message]:
    """A page of what `shown` says, with no more of the history read than it takes: `read(n)` reads a window
    of n messages, None all. Raises as `page`."""
    fold = read(None if limit is None else check_limit(limit))
    messages = shown(fold)
    if limit is None or not fold.chain.partial:
        return page(messages, limit, before)
    # Older messages whose calls wait stand before the window, with a hole behind them.
    found, older = messages[fold.chain.window_start() :], _older(fold.chain.spans, messages, fetch)
    try:
        while (end := _end(found, before)) is None or end < limit:
            batch = next(older, None)
            if batch is None:
                break
            found = batch if end is None else batch + found[: end + 1]
    except (Missing, Corrupt):  # tidied up meanwhile, or damaged: a whole reading knows what to do
        return page(shown(read(None)), limit, before)
    return page(found, limit, before)


def _older(spans: Sequence[Span], messages: list[Message], fetch: Fetch) -> Iterator[list[Message]]:
    """What stands before the window, the newest first, some blocks at a time. `messages` are those that were
    read; blocks that were are not read again."""
    end = max(place for place, span in enumerate(spans) if not span.loaded) + 1
    position = sum(span.count for span in spans[:end] if span.loaded)
    while end:
        start = _together(spans, end)
        batch = spans[start:end]
        fetched = iter(fetch([span.block for span in batch if not span.loaded]))
        position -= sum(span.count for span in batch if span.loaded)
        found, at = [], position
        for span in batch:
            found += messages[at : at + span.count] if span.loaded else next(fetched)
            at += span.count if span.loaded else 0
        yield found
        end = start


def _together(spans: Sequence[Span], end: int) -> int:
    """Where the blocks begin that are read with the one before `end`."""
    start, size = end - 1, 0
    while start and (size := size + spans[start].block.bytes) + spans[start - 1].block.bytes <= _TOGETHER:
        start -= 1
    return start


def check_limit(limit: int) -> int:
    """Raises InvalidValue for what is no number of messages."""
    if type(limit) is not int or limit < 0:
        raise InvalidValue("limit is a number of messages, 0 or more", path="limit")
    return limit


def _end(messages: list[Message], before: str | None) -> int | None:
    """Where a page that ends before this message ends; None where the message is not there."""
    if before is None:
        return len(messages)
    found = [i for i, message in enumerate(messages) if message.get("id") == before]
    return found[-1] if found else None


def page(messages: list[Message], limit: int | None, before: str | None) -> list[Message]:
    """The last `limit` messages before the message `before`."""
    if limit is not None:
        check_limit(limit)
    end = _end(messages, before)
    if end is None:
        raise Refused(f"no message {before!r} in the history; it may have been edited away")
    return messages[0 if limit is None else max(0, end - limit) : end]
