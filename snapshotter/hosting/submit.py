"""What happens to a message that is sent while an answer is under way.

    queue      it is answered in its turn
    latest     only the newest of those that came meanwhile is answered; the others stand in the history
    merge      those that came meanwhile are answered together, by one turn
    debounce   as latest, once nobody has sent anything for a while
    drop       it is refused

A message that is not dropped is an input, durable before anything is decided about who answers it: being
*superseded* only means that a later one's turn stands for both. Later is what the log says: a submit whose
input was refused, or never became durable, stands for nobody. With nothing under way every policy is the
same. These are decisions alone; `overlap` in `boot` is what makes one turn take several messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from snapshotter.errors import Refused

POLICIES = ("queue", "latest", "merge", "debounce", "drop")
DEBOUNCE_MS = 750


@dataclass(frozen=True, slots=True)
class Debounce:
    """The policy `debounce` with a time of its own, in milliseconds; None or nonsense means the default."""

    ms: float | None = None


Policy = str | Debounce


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a submit. `policy` is None where nothing overlaps; `sequence` numbers the submits that
    can supersede each other, None for one that cannot; `until_ms` is when a debounced one may go on."""

    action: str
    policy: str | None = None
    sequence: int | None = None
    until_ms: float | None = None


class Submits:
    """The submits of one session in this process. Pure: the caller says what time it is. Not safe to share
    between threads without a lock."""

    def __init__(self, debounce_ms: float = DEBOUNCE_MS) -> None:
        self._debounce_ms = debounce_ms
        self._sequence = 0
        self._newest = 0
        self._epoch = 0
        self.pending = 0

    def decide(self, policy: Policy, queued: int, now_ms: float, *, submit: bool = True) -> Decision:
        """Decide about a request. `queued`: turns that run or wait; `submit`: it brings a new message (any
        other request is just run). Raises Refused for an unknown policy."""
        name = "debounce" if isinstance(policy, Debounce) else policy
        if name not in POLICIES:
            raise Refused(f"unknown policy {policy!r}: {', '.join(POLICIES)}")
        if not submit or queued + self.pending == 0:
            return Decision("execute")
        if name in ("drop", "queue"):
            return Decision("drop" if name == "drop" else "execute", name)
        self._sequence += 1
        until = now_ms + self._debounce_of(policy) if name == "debounce" else None
        return Decision("execute", name, self._sequence, until)

    def _debounce_of(self, policy: Policy) -> float:
        ms = policy.ms if isinstance(policy, Debounce) else None
        return ms if ms is not None and math.isfinite(ms) and ms >= 0 else self._debounce_ms

    def stored(self, place: int) -> None:
        """A submit that can supersede others is durable, as the input with this id."""
        self._newest = max(self._newest, place)

    def superseded(self, place: int | None) -> bool:
        """True when a submit that was stored later stands for the one whose input this is; None for one that
        nobody supersedes."""
        return place is not None and place < self._newest

    def begin(self) -> Callable[[], None]:
        """Count a submit that was accepted and is not in the queue yet. Returns what ends that; called again,
        or after a reset, it does nothing."""
        self.pending += 1
        epoch, counted = self._epoch, True

        def release() -> None:
            nonlocal counted
            if counted and epoch == self._epoch:
                self.pending -= 1
            counted = False

        return release

    def reset(self) -> None:
        """Forget what was accepted and is not in the queue: the session was cleared."""
        self._epoch += 1
        self.pending = 0
