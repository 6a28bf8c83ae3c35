"""What is left of a message that is redacted.

The message keeps its id and its role, so that everything that names it still finds it. Its text, calls, files
and metadata are one part that says `[redacted]`.

It stands in an input, too, and may be owed. So the log says first that it is redacted (`history`, op
`redact`), and from that place on every reader takes what is left in its stead, whatever the input still
holds; then the input itself is written anew, which changes nothing any more.
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


def blank_input(record: Record) -> Record:
    """An in record without the message that it brought; one that brings none as it is."""
    message = record.get("message")
    if not isinstance(message, dict):
        return record
    return {**without(record, "ref", "metadata", "body"), "message": blank(message)}


def marked(record: Record, first: int) -> Record:
    """An in record that is written anew: it is compared with no other any more, and says whose duplicate it
    was (`first`; or its own id)."""
    return {**record, "redacted": record.get("redacted", first)}


def without(record: Record, *names: str) -> Record:
    """The record without these fields."""
    return {name: value for name, value in record.items() if name not in names}
