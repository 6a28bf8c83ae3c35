"""Who holds a session, and how long a boot waits for them.

A lease is judged by the store's own clock: its date of the answer less its date of the log's last word. Where
that clock was set back its dates lie, and what a boot has itself seen counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.clock import Clock
from streams.records import Cursor

from .core.budget import Incident

LOOK_EVERY = 1.0
"""Seconds between two looks at a session that somebody holds."""

SLACK = 7
"""Seconds past its lease after which a writer counts as gone."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that may be alive: its run, the age in seconds of its last word, and when to come back. With
    an `incident` it is dead, and the next attempt has to wait."""

    run: str
    age: float
    retry_after: float
    incident: Incident | None = None


class Silence:
    """How long one boot has itself seen the log end at the same place, by its own clock. Where the store's
    clock was set back its dates lie: a segment is of the future then, and would not grow old."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: Cursor | None = None
        self._since = 0.0

    def seconds(self, end: Cursor) -> float:
        """The log has just been seen to end here."""
        if end != self._seen:
            self._seen, self._since = end, self._clock.monotonic()
        return self._clock.monotonic() - self._since


class Wait:
    """How long one boot waits, by its own clock. `patience`: seconds, and at most where no date tells whether
    the holder lives."""

    def __init__(self, clock: Clock, patience: tuple[float, float]) -> None:
        self._clock = clock
        self._end, self._latest = (clock.monotonic() + seconds for seconds in patience)

    @property
    def left(self) -> float:
        """Seconds; 0 or less where it is over."""
        return self._end - self._clock.monotonic()

    def lengthen(self, seconds: float) -> None:
        """No date tells whether the holder lives; in so many seconds it has said nothing for its whole lease.
        The wait lasts until then, and a look longer, but never behind the latest. Once: a holder that lives,
        and whose dates lie, is not waited for for ever."""
        if self._latest > self._end:
            until = self._clock.monotonic() + seconds + LOOK_EVERY
            self._end = self._latest = min(self._latest, max(self._end, until))


def told_age(date_ms: int | None, modified_ms: int | None, now_ms: int) -> float:
    """Seconds since an object was written, by the store's clock, or the reader's where the store tells no
    date. Negative where that clock was set back since; 0 where nothing is known."""
    return 0.0 if modified_ms is None else ((now_ms if date_ms is None else date_ms) - modified_ms) / 1000
