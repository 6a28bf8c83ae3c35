"""Large messages that are stored apart, and what stands for them.

In a `messages` list `{"ref":{"key","bytes"}}` stands for a message, in a record `ref` for `chunk` or
`message`. Readers put the value back in its place before anything else sees it. A message that is not
changed keeps its reference, so that nothing large is ever written twice: `Apart` remembers which reference
a message object came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streams.errors import Refused

from .calls import Message
from .shapes import is_ref

Ref = dict[str, Any]


def ref_in(value: Any) -> Ref | None:
    """The reference that stands for a message in a list; None for a message."""
    if type(value) is not dict or value.keys() != {"ref"}:
        return None
    ref = value["ref"]
    return ref if type(ref) is dict else None


def held_apart(record: dict[str, Any]) -> str | None:
    """What a record's `ref` stands for: `chunk` or `message`; None for a record without one, and where it
    means something else (to a later release: its kinds and controls are skipped here)."""
    if "ref" not in record:
        return None
    if "control" in record:
        return "message" if record["control"] == "history" else None
    if "kind" in record:
        return "message" if record["kind"] in ("message", "edit") else None
    return "chunk"


class Unread(Refused):
    """What a record stands for is needed, and was not put back: its value is not there, or there is no store
    to read it from, as in a fold over plain files. `key` is the value's name."""

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__(
            f"what record {record['id']} holds is stored apart, as a value: it can be read in its store only"
        )
        ref = record.get("ref")
        self.key = str(ref.get("key")) if type(ref) is dict else ""


def is_unread(record: dict[str, Any]) -> bool:
    """Whether what the record stands for was not put back."""
    held = held_apart(record)
    return held is not None and held not in record


class Apart:
    """References by message object. The object is held, so that its identity stays its own."""

    def __init__(self) -> None:
        self._refs: dict[int, tuple[Message, Ref]] = {}

    def note(self, message: Message, ref: Ref) -> None:
        """This very object is what the reference stands for. A record that has both may have come with them,
        and with anything for a reference."""
        if is_ref(ref):
            self._refs[id(message)] = (message, ref)

    def ref_of(self, message: Message) -> Ref | None:
        found = self._refs.get(id(message))
        return None if found is None else found[1]

    def keep(self, messages: Iterable[Message]) -> None:
        """Forget all but these."""
        if self._refs:
            alive = {id(message) for message in messages}
            self._refs = {own: pair for own, pair in self._refs.items() if own in alive}
