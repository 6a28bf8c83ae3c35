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
from typing import Any, TypeVar

from benchmarks.metered import Bill
from streams.buckets.base import Blob, Bucket, Head, Page, Written
from streams.errors import StreamError

T = TypeVar("T")


class Dead(StreamError):
    """A request of a worker that is dead. Nothing is repeated for it."""


class Handle:
    """A bucket over another one, which it does not close. Safe between threads.

    `bill`: what was asked and answered. `unsent`: requests that the dead still wanted to make.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._dead: set[str] = set()
        self.trusted = bucket.trusted
        self.url = bucket.url
        self.room = bucket.room
        self.bill = Bill()
        self.unsent = 0

    def cut(self, sid: str) -> None:
        """From here on whoever works by this handle on the session with this encoded id is dead."""
        self._dead.add(sid)

    def get(self, key: str) -> Blob | None:
        blob = self._ask(key, lambda: self._bucket.get(key))
        self._count("get", read=len(blob.data) if blob is not None else 0)
        return blob

    def head(self, key: str) -> Head | None:
        found = self._ask(key, lambda: self._bucket.head(key))
        self._count("head")
        return found

    def put(self, key: str, data: bytes, **condition: Any) -> Written:
        written = self._ask(key, lambda: self._bucket.put(key, data, **condition))
        self._count("put", written=len(data))
        return written

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        page = self._ask(prefix, lambda: self._bucket.list(prefix, after=after, limit=limit))
        self._count("list")
        return page

    def delete(self, key: str) -> None:
        self._ask(key, lambda: self._bucket.delete(key))

    def close(self) -> None:
        """The bucket belongs to whoever opened it."""

    def _ask(self, key: str, call: Callable[[], T]) -> T:
        if self._is_dead(key):
            with self._lock:
                self.unsent += 1
            raise Dead(f"{key}: whoever asks for this is dead")
        found = call()
        if self._is_dead(key):
            raise Dead(f"{key}: whoever asked for this has died meanwhile")
        return found

    def _is_dead(self, key: str) -> bool:
        return any(sid in self._dead for sid in key.split("/")[1:2])

    def _count(self, kind: str, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.bill += Bill(**{kind: 1}, read=read, written=written)
