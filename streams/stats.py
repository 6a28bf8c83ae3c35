"""What requests were made: the counters of a store."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class RequestStats:
    """Requests made, every attempt counted. Parallel requests of one `gather` are one round trip."""

    gets: int = 0
    heads: int = 0
    puts: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    round_trips: int = 0

    def __sub__(self, earlier: RequestStats) -> RequestStats:
        return RequestStats(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)))

    @property
    def requests(self) -> int:
        return self.gets + self.heads + self.puts + self.lists + self.deletes


class Stats:
    """A store's running counters; safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {f.name: 0 for f in fields(RequestStats)}

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def count(self, name: str) -> int:
        """One of the counters now."""
        return self._counts[name]

    def snapshot(self) -> RequestStats:
        """The counters now. Subtract an earlier snapshot to see what one operation cost."""
        with self._lock:
            return RequestStats(**self._counts)
