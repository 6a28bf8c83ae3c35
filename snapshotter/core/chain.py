"""The settled history: a list of messages with an index, and the operations on it.

Messages are values and the list holds references, so a copy of the chain is cheap and a view of it
stays as it was. Two indexes are kept and rebuilt only after structural changes: the newest position of
each id, and the positions of messages that hold an unsettled call (those alone can still change).

An id that one of the newest 64 messages holds is never given to another; operations that name an id
mean the newest message that bears it. So nothing ever needs more than a window of the history.

In a long session the older messages stand in blocks (see `blocks`), and a chain may hold some of these
blocks only: the newest, without a hole (its *window*, of 64 messages or more), and older ones that hold an
unsettled call. Positions are those in `messages`. What would need a block that was not read, or leave fewer
than 64 messages in the window, raises Unloaded and changes nothing; whoever reads reads more then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .apart import Apart
from .blocks import Span
from .calls import Message, any_unsettled

ID_WINDOW = 64


class Unloaded(LookupError):
    """The answer may lie in a part of the history that was not read."""


class Chain:
    """The settled messages, oldest first. `spans`: the blocks that the first of them stand in. `changed`:
    messages were removed, or moved, since the last checkpoint. `apart`: which messages are stored apart."""

    def __init__(
        self, messages: Iterable[Message] = (), spans: Sequence[Span] = (), apart: Apart | None = None
    ) -> None:
        self.messages: list[Message] = list(messages)
        self.spans = list(spans)
        self.apart = apart or Apart()
        self.changed = False
        self.partial = not all(span.loaded for span in spans)
        self._positions: dict[str, int] = {}
        self._unsettled: set[int] = set()
        self._window = 0
        self._stale = True

    def __len__(self) -> int:
        return len(self.messages)

    def _refresh(self) -> None:
        if self._stale:
            self._positions = {id_of(message): position for position, message in enumerate(self.messages)}
            self._unsettled = {at for at in self._unsure() if any_unsettled(self.messages[at])}
            self._window = self.window_start()
            self._stale = False

    def _unsure(self) -> Iterator[int]:
        """Positions of messages that may hold an unsettled call. A block that is as it was sealed says so; in
        a long history, to look again takes longer than all else that a boot does with what it read."""
        for span, start in self.places():
            if span.block.open or span.dirty:
                yield from range(start, start + span.count)
        yield from range(self.sealed, len(self.messages))

    def _note(self, position: int, message: Message) -> None:
        self._positions[id_of(message)] = position
        if any_unsettled(message):
            self._unsettled.add(position)
        else:
            self._unsettled.discard(position)

    def find(self, message_id: Any) -> int | None:
        """Position of the newest message with this id. Raises Unloaded."""
        if not isinstance(message_id, str) or not message_id:
            return None
        self._refresh()
        found = self._positions.get(message_id)
        if self.partial and (found is None or found < self._window) and self._elsewhere(message_id):
            raise Unloaded(message_id)
        return found

    def _elsewhere(self, message_id: str) -> bool:
        """Whether a message that was not read may bear the id."""
        return any(not span.loaded and span.may_hold(message_id) for span in self.spans)

    def holds(self, message_id: str) -> bool:
        """True when one of the newest 64 messages bears the id."""
        self._refresh()
        position = self._positions.get(message_id)
        return position is not None and position >= len(self.messages) - ID_WINDOW

    def unsettled(self) -> list[int]:
        """Positions of the messages that hold an unsettled call, newest first."""
        self._refresh()
        return sorted(self._unsettled, reverse=True)

    def append(self, message: Message) -> None:
        self.messages.append(message)
        if not self._stale:
            self._note(len(self.messages) - 1, message)

    def set(self, position: int, message: Message) -> None:
        """Replace one message; its id may change."""
        old = self.messages[position]
        self.messages[position] = message
        for span, start in self.places():
            if start <= position < start + span.count:
                span.dirty = True
        if self._stale or id_of(old) != id_of(message):
            self._stale = True
        else:
            # `_note` would move an older namesake's position: only the newest one is indexed.
            newest = self._positions[id_of(message)]
            self._note(position, message)
            self._positions[id_of(message)] = max(newest, position)

    def splice(self, start: int, end: int, messages: Iterable[Message] = ()) -> None:
        """Replace messages[start:end]. Raises Unloaded."""
        self.reach(start)
        new = list(messages)
        self._resize(start, end, len(new))
        self.messages[start:end] = new
        self._stale = True

    def cut(self, length: int) -> None:
        """Keep the first `length` messages. Raises Unloaded."""
        if length < len(self.messages):
            self.splice(length, len(self.messages))

    def clear(self) -> None:
        """Remove all messages, also those that were not read."""
        self.changed = self.changed or bool(self.messages or self.spans)
        self.messages, self.spans, self.partial = [], [], False
        self._stale = True

    # -- blocks and windows ---------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many messages there are, also those that were not read."""
        return len(self.messages) + sum(span.count for span in self.spans if not span.loaded)

    @property
    def sealed(self) -> int:
        """How many of the messages stand in blocks."""
        return sum(span.count for span in self.spans if span.loaded)

    def window_start(self) -> int:
        """Position from which on no message is missing."""
        start = position = 0
        for span in self.spans:
            if span.loaded:
                position += span.count
            else:
                start = position
        return start

    def reach(self, position: int) -> None:
        """Raise Unloaded where what stands from this position on cannot be changed with what was read."""
        if self.partial and position - self.window_start() < ID_WINDOW:
            raise Unloaded(f"position {position}")

    def asked_before(self, position: int) -> list[str]:
        """The ids of the user messages that stand together before this position, the newest first. Raises
        Unloaded."""
        unread = {start for span, start in self.places(loaded=False) if not span.loaded}
        found: list[str] = []
        for at in range(position, -1, -1):
            if at < position and self.messages[at].get("role") == "user":
                found.append(id_of(self.messages[at]))
            elif at < position and found:
                break
            if at in unread:
                raise Unloaded(f"what stands before position {at}")
        return found

    def fill(self, span: Span, messages: Sequence[Message]) -> int:
        """Put the messages of a block that was read only now in their place; returns where that is."""
        start = next(start for other, start in self.places(loaded=False) if other is span)
        self.messages[start:start] = messages
        span.loaded = True
        self.partial = not all(other.loaded for other in self.spans)
        self._stale = True
        return start

    def shed(self, spans: Sequence[Span], messages: Sequence[Message]) -> None:
        """Messages left memory: these blocks and messages stand for the same history."""
        self.spans, self.messages = list(spans), list(messages)
        self.partial = not all(span.loaded for span in spans)
        self._stale = True

    def seal(self, spans: Sequence[Span], also: Iterable[Message] = ()) -> None:
        """A checkpoint was stored: these are the blocks now. `also`: other messages that it holds."""
        self.spans, self.changed = list(spans), False
        self.apart.keep([*self.messages, *also])

    def places(self, *, loaded: bool = True) -> list[tuple[Span, int]]:
        """The spans with their positions; only those that were read, or all."""
        found, position = [], 0
        for span in self.spans:
            if span.loaded or not loaded:
                found.append((span, position))
            position += span.count if span.loaded else 0
        return found

    def _resize(self, start: int, end: int, new: int) -> None:
        """messages[start:end] become `new` ones, which belong to the block at `start`."""
        self.changed = True
        for span, first in self.places():
            behind = first + span.count
            gone = max(0, min(end, behind) - max(start, first))
            came = new if first <= start < behind else 0
            if gone or came:
                span.count += came - gone
                span.dirty = True
        self.spans = [span for span in self.spans if span.count]


def id_of(message: Message) -> str:
    """The message's id; "" where a foreign message has none."""
    found = message.get("id")
    return found if isinstance(found, str) else ""


def free_id(wanted: Any, derived: str, held: Callable[[str], bool]) -> str:
    """`wanted` where it is usable and free, else `derived`, `derived-2`, `derived-3` …"""
    if isinstance(wanted, str) and wanted and not held(wanted):
        return wanted
    candidate, n = derived, 1
    while held(candidate):
        n += 1
        candidate = f"{derived}-{n}"
    return candidate
