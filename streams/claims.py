"""A claim: what an import puts into the first place of both logs before it writes anything else.

    {"import":"<16 hex digits>","last":<newest id of this log in the file>}

It is no segment: shorter than any, which a listing shows, and to whoever reads it no records, like an empty
object. It names its file, so its ETag is its own: what replaces it under that can replace nothing else, at
no time. And it says up to where the file may still bring something, to a deletion that has to stand above.
"""

from __future__ import annotations

import re

LEAST = 57
"""Bytes: no segment is shorter, and no claim as long."""

_CLAIM = re.compile(rb'\{"import":"([0-9a-f]{16})","last":(\d{1,16})\}')


def encode(mark: str, last: int) -> bytes:
    """A claim. `mark`: 16 hex digits that name the file; `last`: the newest id that it has of this log."""
    return b'{"import":"%b","last":%d}' % (mark.encode(), last)


def last_of(data: bytes) -> int | None:
    """The newest id that a claim's file has of this log; None where this is no claim."""
    found = _CLAIM.fullmatch(data)
    return None if found is None else int(found[2])
