"""Leaving in good order when the platform says SIGTERM.

    with snapshotter.release_on_sigterm():
        with db.boot(...) as session: ...

The signal becomes a `Terminated` exception in the main thread, wherever it waits, so the open turn is
left by an exception: what was written is flushed and the turn is released for the next worker. A signal
that comes while the engine is inside one of its own steps is raised when that step is over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(SystemExit):
    """SIGTERM came. A SystemExit with code 143, so a worker that does nothing about it just ends."""

    def __init__(self) -> None:
        super().__init__(143)


class _Guard(threading.local):
    """How deep this thread is inside the engine, and whether a signal waits for it to come out."""

    depth = 0
    pending = False

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1
        if self.pending and self.depth == 0:
            self.pending = False
            raise Terminated


_guard = _Guard()


def guarded() -> _Guard:
    """`with guarded():` a step of the engine that a signal must not cut in two."""
    return _guard


@contextmanager
def release_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into Terminated while the block runs. Only in the main thread, as signals are.

    Raises ValueError elsewhere.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        if _guard.depth:
            _guard.pending = True
        else:
            raise Terminated

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
