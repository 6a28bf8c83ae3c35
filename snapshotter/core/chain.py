"""The settled history: a list of messages with an index, and the operations on it.

Messages are values and the list holds references, so a copy of the chain is cheap and a view of it
stays as it was. Two indexes are kept and rebuilt only after structural changes: the newest position of
each id, and the positions of messages that hold an unsettled call (those alone can still change).

An id that one of the newest 64 messages holds is never given to another; operations that name an id
mean the newest message that bears it. So nothing ever needs more than a window of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .calls import Message, any_unsettled

ID_WINDOW = 64


class Chain:
    """The settled messages, oldest first."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        self._positions: dict[str, int] = {}
        self._unsettled: set[int] = set()
        self._stale = True

    def __len__(self) -> int:
        return len(self.messages)

    def _refresh(self) -> None:
        if self._stale:
            self._positions.clear()
            self._unsettled.clear()
            for position, message in enumerate(self.messages):
                self._note(position, message)
            self._stale = False

    def _note(self, position: int, message: Message) -> None:
        self._positions[id_of(message)] = position
        if any_unsettled(message):
            self._unsettled.add(position)
        else:
            self._unsettled.discard(position)

    def find(self, message_id: Any) -> int | None:
        """Position of the newest message with this id."""
        self._refresh()
        return self._positions.get(message_id) if isinstance(message_id, str) and message_id else None

    def holds(self, message_id: str) -> bool:
        """True when one of the newest 64 messages bears the id."""
        position = self.find(message_id)
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
        if self._stale or id_of(old) != id_of(message):
            self._stale = True
        else:
            # `_note` would move an older namesake's position: only the newest one is indexed.
            newest = self._positions[id_of(message)]
            self._note(position, message)
            self._positions[id_of(message)] = max(newest, position)

    def splice(self, start: int, end: int, messages: Iterable[Message] = ()) -> None:
        """Replace messages[start:end]."""
        self.messages[start:end] = list(messages)
        self._stale = True

    def cut(self, length: int) -> None:
        """Keep the first `length` messages."""
        if length < len(self.messages):
            del self.messages[length:]
            self._stale = True


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
