"""The shape of a snapshot document: what each field may be. Fields left out, and null, count as empty.

Checked is what the reducer relies on. A message may lack an id, and what stands inside it may be anything, as
in a log: those who read it look for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from streams.keys import MAX

LONGEST = 64 * 1024 * 1024
"""Bytes of JSON that a block or a value may say it has: what reading one may cost in memory."""

_DIGITS = 16
_NAME = re.compile(r"[0-9a-f]{64}-[A-Za-z0-9_-]{1,64}")


def turn_of(document: dict[str, Any]) -> int:
    """The turn at which a snapshot document stands; 0 before the first one's end."""
    return max(0, document.get("turn") or 0)


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return type(value) is bool


def _number(value: Any) -> bool:
    return type(value) is int and abs(value) <= MAX


def _id(value: Any) -> bool:
    """The id of a record, as a number: from 1."""
    return type(value) is int and 1 <= value <= MAX


def _cursor(value: Any) -> bool:
    """A record id, or 0, as text of decimal digits (or, from another writer, as a number)."""
    if type(value) is not str:
        return type(value) is int and 0 <= value <= MAX
    return not value or (len(value) <= _DIGITS and value.isascii() and value.isdigit())


def _object(value: Any) -> bool:
    return type(value) is dict


def is_message(value: Any) -> bool:
    """What the reducer relies on in a message, or in what stands for one."""
    return type(value) is dict and type(value.get("id")) in (str, type(None))


def is_ref(value: Any) -> bool:
    """What names a value, or a block: {"key", "bytes"}."""
    name = value.get("key") if type(value) is dict else None
    size = value.get("bytes") if type(value) is dict else None
    return type(name) is str and bool(_NAME.fullmatch(name)) and type(size) is int and 0 < size <= LONGEST


def _block(value: Any) -> bool:
    """A row of `blocks`: {"key", "count", "bytes", "open"?}."""
    return is_ref(value) and _id(value.get("count")) and type(value.get("open", False)) is bool


def _row(value: Any) -> bool:
    """A row of `keys`: [id, key, hash]."""
    return type(value) is list and list(map(type, value)) == [int, str, str] and _id(value[0])


def _list_of(one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(map(one, value))


def _context(value: Any) -> bool:
    return _object(value) and _text(value.get("upto")) and type(value.get("messages")) is list


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "savedAt": _number,
    "lastOutEventId": _cursor,
    "lastOutNonce": _text,
    "lastOutFirst": _cursor,
    "lastInEventId": _cursor,
    "lastOutTimestamp": _number,
    "inApplied": _list_of(_id),
    "epoch": _number,
    "turn": _number,
    "run": _text,
    "session": _text,
    "messages": _list_of(is_message),
    "blocks": _list_of(_block),
    "keys": _list_of(_row),
    "lastTurn": _object,
    "unfinished": _list_of(_text),
    "state": _object,
    "context": _context,
    "closed": _flag,
    "deleted": _flag,
    "redacted": _list_of(_id),
    "hydrated": _flag,
}


def problem_of(document: dict[str, Any]) -> str | None:
    """What is wrong with a snapshot document, in words; None where all fields have their shape."""
    for name, value in document.items():
        if value is not None and name in _FIELDS and not _FIELDS[name](value):
            break
    else:
        return None
    wrong = [
        name for name, fits in _FIELDS.items() if document.get(name) is not None and not fits(document[name])
    ]
    return f"field {wrong[0]!r}"
