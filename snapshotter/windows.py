"""Objects that are read together: as many as keep requests in flight, and no more than memory is meant
for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

WINDOW = 64
"""Most objects of a window."""

BYTES = 8 * 1024 * 1024
"""Most bytes of a window; a larger object is one by itself."""


class Sized(Protocol):
    """An object as listed: its size in bytes."""

    @property
    def size(self) -> int: ...


K = TypeVar("K", bound=Sized)


def is_one(listed: Sequence[Sized]) -> bool:
    """Whether all of them are one window."""
    return len(listed) <= WINDOW and sum(entry.size for entry in listed) <= BYTES


def windows(listed: Iterable[K]) -> Iterator[list[K]]:
    """The objects in runs that are read together, in their order."""
    window: list[K] = []
    size = 0
    for entry in listed:
        if window and (len(window) == WINDOW or size + entry.size > BYTES):
            yield window
            window, size = [], 0
        window.append(entry)
        size += entry.size
    if window:
        yield window
