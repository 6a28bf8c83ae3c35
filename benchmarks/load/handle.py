"""A bucket that is metered, and in which the worker of one session can die while others go on.

A process that is killed takes all of its workers with it. To have one worker of many die, in one process, its
death is made where the world sees it: from that moment on no request for its session is sent by this handle,
and none that is under way is heard of, though it may still land. So whatever the dying worker's threads do
after it (they flush, release, save), the store gets nothing of it, as if they were gone. Who takes the
session over does so by a handle of its own on the same bucket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from benchmarks.metered import Bill
from streams.buckets.base import Blob, Bucket
from streams.buckets.through import Through, Verb
from streams.errors import StreamError

T = TypeVar("T")


class Dead(StreamError):
    """A request of a worker that is dead. Nothing is repeated for it."""


class Handle(Through):
    """A bucket over another one, which it does not close. Safe between threads.

    `bill`: what was asked and answered. `unsent`: requests that the dead still wanted to make.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self._lock = threading.Lock()
        self._dead: set[str] = set()
        self.bill = Bill()
        self.unsent = 0

    def cut(self, sid: str) -> None:
        """From here on whoever works by this handle on the session with this encoded id is dead."""
        self._dead.add(sid)

    def close(self) -> None:
        """The bucket belongs to whoever opened it."""

    def _through(self, verb: Verb, key: str, call: Callable[[], T], sent: int | None = None) -> T:
        if self._is_dead(key):
            with self._lock:
                self.unsent += 1
            raise Dead(f"{key}: whoever asks for this is dead")
        found = call()
        if self._is_dead(key):
            raise Dead(f"{key}: whoever asked for this has died meanwhile")
        if verb != "delete":
            read = len(found.data) if isinstance(found, Blob) else 0
            with self._lock:
                self.bill += Bill(**{verb: 1}, read=read, written=sent or 0)
        return found

    def _is_dead(self, key: str) -> bool:
        return any(sid in self._dead for sid in key.split("/")[1:2])
