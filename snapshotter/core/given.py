"""What callers hand to the pure functions, looked at before it is worked on.

A history comes from a caller's own database, a client, a test: often nearly right. What is no list of message
objects is refused with its place, so that no AttributeError deep inside has to tell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streams.errors import InvalidValue

from .calls import Message


def messages_in(value: Any, path: str = "messages") -> Sequence[Message]:
    """The same messages. Raises InvalidValue, with the place as its path, for what is no list of objects."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        own = getattr(value, "messages", None)
        hint = "; pass its `.messages`" if isinstance(own, list) else ""
        raise InvalidValue(f"{path}: a list of messages is needed, not {_kind(value)}{hint}", path=path)
    for at, message in enumerate(value):
        message_in(message, f"{path}[{at}]")
    return value


def message_in(value: Any, path: str = "message") -> Message:
    """The same message. Raises InvalidValue for what is no object."""
    if not isinstance(value, dict):
        raise InvalidValue(f"{path}: a message is a dict, not {_kind(value)}", path=path)
    return value


def names_in(value: Any, path: str = "client_tools") -> Collection[str]:
    """The same names. Raises InvalidValue for what is no list of texts; one text alone is none."""
    listed = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    if not listed or not all(isinstance(name, str) for name in value):
        raise InvalidValue(f"{path}: a list of names is needed, not {value!r:.80}", path=path)
    return value  # type: ignore[no-any-return]  # a Collection of what was just looked at


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
