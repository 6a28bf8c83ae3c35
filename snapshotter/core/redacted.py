"""What is left of a message that is redacted.

The message keeps its id and its role, so that everything that names it still finds it. Its text, calls, files
and metadata are one part that says `[redacted]`.

One that is owed stands in an input. There the log says first that it is redacted (`history`, op `redact`),
and from that place on every reader takes what is left in its stead, whatever the input still holds; then the
input itself is written anew, which changes nothing any more.
"""

from __future__ import annotations

from typing import Any

from .calls import Message

Record = dict[str, Any]

REDACTED = "[redacted]"


def blank(message: Message) -> Message:
    """What stands in the message's place."""
    parts = [{"type": "text", "text": REDACTED, "state": "done"}]
    return {"id": message.get("id"), "role": message.get("role"), "parts": parts}


def blank_input(record: Record, first: int | None = None) -> Record:
    """An in record without the message that it brought; one that brings none as it is. `first`: whose
    duplicate it is, or its own id: by this the record is compared from then on, in place of its body."""
    message = record.get("message")
    if not isinstance(message, dict):
        return record
    told = {} if first is None else {"redacted": record.get("redacted", first)}
    return {**without(record, "ref", "metadata", "body", "redacted"), "message": blank(message), **told}


def without(record: Record, *names: str) -> Record:
    """The record without these fields."""
    return {name: value for name, value in record.items() if name not in names}
