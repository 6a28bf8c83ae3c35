"""Proving grounds: a fresh part of somebody's bucket, where checks do as they like, and that is left clean.

Every check gets a place of its own below `probe/deep-<token>/`. What it writes is remembered by name, since a
listing is one of the things that are on trial, and deleted when the check is over, however it ends. Then the
listing is asked, too, for what nobody remembers. What could not be removed is told by name.

Requests go to the bucket as they are: no retries, which would hide what is tried. They are counted with those
of the store that cleans up.
"""

from __future__ import annotations

import builtins
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from urllib.parse import unquote, urlsplit

from snapshotter.errors import AccessDenied, CredentialsExpired, InvalidId, StreamError
from snapshotter.saving import match_of
from snapshotter.signals import Terminated
from streams.buckets.base import Blob, Bucket, Entry, Head, Page, Written
from streams.store import Store

Connect = Callable[[], Bucket]


class _Stopped(Exception):
    """Somebody asked to stop; nothing more is written."""


class Grounds:
    """See the module. `store` is open on the root, `connect` opens another bucket on it, and `etags` is how
    that store takes an ETag (`snapshotter.saving.match_of`)."""

    def __init__(self, store: Store, connect: Connect, etags: str) -> None:
        self.prefix = f"probe/deep-{store.clock.token()}/"
        self.store = store
        self.etags = etags
        self.left: list[str] = []
        self._connect = connect
        self._opened: list[Bucket] = []
        self._keys: set[str] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @contextmanager
    def place(self, name: str, connect: Connect | None = None) -> Iterator[Connect]:
        """A place for one check, and cleanliness behind it. `connect`: how to open the root for it."""

        def opened() -> Bucket:
            bucket = (connect or self._connect)()
            self._opened.append(bucket)
            return _Part(bucket, f"{self.prefix}{name}/", self)

        try:
            yield opened
        finally:
            try:
                self._clean()
            finally:
                while self._opened:
                    self._opened.pop().close()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """While the block runs, Ctrl-C and SIGTERM first stop what writes in other threads. For the main
        thread; elsewhere no signal arrives."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _frame: FrameType | None) -> None:
            self._stopped.set()
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def writes(self, key: str) -> None:
        """Remember that this key may exist from now on. Raises where writing has to stop."""
        if self._stopped.is_set():
            raise _Stopped
        with self._lock:
            self._keys.add(key)

    def never(self, key: str) -> None:
        """The write of this key was refused as such; where others of it were not, the listing shows it."""
        with self._lock:
            self._keys.discard(key)

    def close(self) -> None:
        """Remove what a folder keeps of emptied folders."""
        parts = urlsplit(self.store.url)
        if parts.scheme == "file":
            base = Path(unquote(parts.path)) / self.prefix
            for folder in sorted((*base.rglob("*"), base), key=lambda path: -len(path.parts)):
                with suppress(OSError):  # one that is not empty is told by the names in it
                    folder.rmdir()

    def _clean(self) -> None:
        try:
            self._delete(sorted(self._keys))
            with suppress(StreamError):
                if strays := self._listed():
                    self._delete(strays)
                    self._keys.update(self._listed())  # not deleted, whatever was answered
        finally:
            self.left = sorted({*self.left, *self._keys})
            self._keys.clear()

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete them; those of which it was not answered stay remembered."""

        def delete(key: str) -> None:
            with suppress(StreamError):
                self.store.delete(key)
                self._keys.discard(key)

        self.store.gather([partial(delete, key) for key in keys])

    def _listed(self) -> builtins.list[str]:
        """What a listing shows of the grounds; and it may show anything, so nothing else is taken from it."""
        page = self.store.list(self.prefix)
        return [entry.key for entry in page.entries if entry.key.startswith(self.prefix)]


class _Part:
    """A bucket in a part of another; its requests are counted, its keys remembered."""

    def __init__(self, inner: Bucket, root: str, grounds: Grounds) -> None:
        self._inner = inner
        self._root = root
        self._grounds = grounds
        self._count = grounds.store.stats.add
        self.url = inner.url
        self.room = inner.room - len(root)
        self.trusted = inner.trusted
        self.copies = inner.copies

    def get(self, key: str) -> Blob | None:
        self._count("gets")
        return self._inner.get(self._root + key)

    def head(self, key: str) -> Head | None:
        self._count("heads")
        return self._inner.head(self._root + key)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        self._grounds.writes(self._root + key)
        self._count("puts")
        match = None if if_match is None else match_of(if_match, self._grounds.etags)
        try:
            return self._inner.put(self._root + key, data, if_absent=if_absent, if_match=match, nonce=nonce)
        except (InvalidId, AccessDenied, CredentialsExpired):
            self._grounds.never(self._root + key)
            raise

    def copy(self, source: str, key: str, etag: str) -> bool:
        self._grounds.writes(self._root + key)
        self._count("puts")
        return self._inner.copy(self._root + source, self._root + key, etag)

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        self._count("lists")
        page = self._inner.list(self._root + prefix, after=self._root + after if after else "", limit=limit)
        cut = len(self._root)
        entries = tuple(Entry(e.key[cut:], e.size, e.etag, e.modified_ms) for e in page.entries)
        return Page(entries, page.more, page.resume[cut:], page.date_ms)

    def delete(self, key: str) -> None:
        self._count("deletes")
        self._inner.delete(self._root + key)

    def close(self) -> None:
        """The grounds close what they opened."""
