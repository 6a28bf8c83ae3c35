"""The ground that a database stands on: its bucket, the clock, and what is known of what the store keeps.

A store of an endpoint that is not known by its name is asked before the first write (`streams.probe`), once
for all who share its root; what was found decides how snapshots are replaced, and whether the store copies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from streams import keys, probe
from streams.buckets.base import Bucket
from streams.clock import Clock, SystemClock
from streams.store import Retries, Store

from .sidebyside import breakable
from .telemetry import Telemetry
from .watched import watched_store

G = TypeVar("G", bound="Ground")


class Ground:
    """The part of `Database` that belongs to no session."""

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock | None,
        *,
        allow_unfenced: bool,
        retries: Retries | None,
        telemetry: Telemetry | None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.telemetry = telemetry
        self._bucket = bucket
        self._retries = retries
        self.store = self._own_store()
        self._allow_unfenced = allow_unfenced
        self._capabilities: probe.Capabilities | None = None
        self._known = bucket.trusted
        self._lock = threading.Lock()
        self._asking = self.clock.waiter()

    @property
    def url(self) -> str:
        """The root's URL, without secrets."""
        return self.store.url

    def __repr__(self) -> str:
        return f"<snapshotter.{type(self).__name__} {self.url}>"

    def sid(self, session_id: str) -> str:
        """The session id as one path segment. Raises InvalidId."""
        return keys.encode_sid(session_id, self.store.room)

    def _own_store(self) -> Store:
        """Counters and a trace of its own for each session, over the same bucket."""
        return watched_store(breakable(self._bucket), self.clock, self._retries, self.telemetry)

    def _learner(self) -> Callable[[probe.Capabilities], None] | None:
        """Who takes what the probe found, None where that is known."""
        return None if self._known else self._learn

    def _learn(self, capabilities: probe.Capabilities) -> None:
        with self._lock:
            self._capabilities, self._known = capabilities, True

    def _etags(self) -> str:
        """How a snapshot may be replaced here: with its ETag `as-given`, `unquoted`, or (`none`) only
        without a condition."""
        known = self._capabilities
        return "as-given" if known is None else known.etag if known.replace else "none"

    def _copies(self) -> bool:
        """Whether the store may copy by itself: it is known, or was found, to take that as a create."""
        known = self._capabilities
        return self._bucket.copies and (self._bucket.trusted if known is None else known.copy)

    def _ensure(self) -> None:
        """Before the first write: the store keeps what the engine needs, or Unsupported is raised."""
        if not self._known:
            with self._asking:  # one thread asks, and the others wait for what it finds
                if not self._known:
                    found = probe.ensure(self.store, allow_unfenced=self._allow_unfenced)
                    if found is not None:
                        self._learn(found)
                    return
        if self._capabilities is not None:
            probe.require(self._capabilities, allow_unfenced=self._allow_unfenced)

    def close(self) -> None:
        """Close the driver's connections."""
        self.store.close()

    def __enter__(self: G) -> G:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
