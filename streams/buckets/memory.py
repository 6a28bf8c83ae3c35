"""The reference bucket: what every backend must do, in the plainest way.

One lock makes each call atomic. Keys are kept sorted, so that a listing is a slice. The ETag is the
quoted MD5 of the content, as S3 has it, with S3's weakness: the same bytes give the same ETag again.
Nothing outlives the process.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

from streams.buckets.base import Blob, Entry, Head, Page, Written
from streams.buckets.names import KEY_BYTES, check_listing, check_path, check_prefix, root_of
from streams.clock import Clock, SystemClock
from streams.errors import PreconditionFailed


@dataclass(slots=True)
class Space:
    """What one memory store holds; several buckets (prefixes, threads) may share it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, Blob] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)


_named: dict[str, Space] = {}
_named_lock = threading.Lock()


def named_space(name: str) -> Space:
    """The process's one space of this name: `memory://name` opened twice is the same store."""
    with _named_lock:
        return _named.setdefault(name, Space())


class MemoryBucket:
    """A bucket in this process's memory.

    `room` is the longest key it admits to taking, in bytes; tests set a small one.
    """

    trusted = True
    copies = True

    def __init__(
        self,
        clock: Clock | None = None,
        room: int | None = None,
        *,
        name: str = "",
        prefix: str = "",
        space: Space | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._root = root_of(check_prefix(prefix))
        self._space = space or (named_space(name) if name else Space())
        self.url = f"memory://{name}/{prefix}".rstrip("/") if name else "memory:"
        self.room = KEY_BYTES - len(self._root) if room is None else room

    def get(self, key: str) -> Blob | None:
        with self._space.lock:
            blob = self._space.objects.get(self._full(key))
        if blob is None:
            return None
        return Blob(blob.data, blob.etag, blob.nonce, blob.modified_ms, self._clock.now_ms())

    def head(self, key: str) -> Head | None:
        blob = self.get(key)
        if blob is None:
            return None
        return Head(len(blob.data), blob.etag, blob.nonce, blob.modified_ms, blob.date_ms)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        full = self._full(key)
        now = self._clock.now_ms()
        etag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        with self._space.lock:
            found = self._space.objects.get(full)
            if if_absent and found is not None:
                raise PreconditionFailed(f"{key} exists")
            if if_match is not None and (found is None or found.etag != if_match):
                raise PreconditionFailed(f"{key} is not the version {if_match}")
            if found is None:
                insort(self._space.order, full)
            self._space.objects[full] = Blob(bytes(data), etag, nonce or None, now, None)
        return Written(etag, now)

    def copy(self, source: str, key: str, etag: str) -> bool:
        # A version's bytes never change, so that the look and the create need not be one.
        blob = self.get(source)
        if blob is None:
            return False
        if blob.etag != etag:
            raise PreconditionFailed(f"{source} is not the version {etag}")
        self.put(key, blob.data, if_absent=True, nonce=blob.nonce or "")
        return True

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        full = self._root + check_listing(prefix)
        with self._space.lock:
            order = self._space.order
            start = bisect_left(order, full)
            if after:
                start = max(start, bisect_right(order, self._root + after))
            # Keys are ASCII, so no key with this prefix is above it and the highest character.
            keys = order[start : min(start + limit + 1, bisect_left(order, full + "\U0010ffff"))]
            found = [(key, self._space.objects[key]) for key in keys[:limit]]
        entries = tuple(
            Entry(key[len(self._root) :], len(blob.data), blob.etag, blob.modified_ms) for key, blob in found
        )
        resume = entries[-1].key if entries else after
        return Page(entries, len(keys) > limit, resume, self._clock.now_ms())

    def delete(self, key: str) -> None:
        full = self._full(key)
        with self._space.lock:
            if self._space.objects.pop(full, None) is not None:
                del self._space.order[bisect_left(self._space.order, full)]

    def close(self) -> None:
        """Nothing to let go of."""

    def _full(self, key: str) -> str:
        return self._root + check_path(key, "the key")
