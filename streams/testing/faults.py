"""A bucket that fails on purpose, before or after the effect, and tells what was asked of it.

A plan is a list of `Fault`s. Each counts the calls it matches and strikes at the `nth` (and the next
`times - 1`):

    before    nothing reaches the store; the error is raised
    after     the store does it; then the error is raised: the reply was lost
    late      nothing reaches the store yet; the error is raised; `land()` does it later

A `hook` sees every call before and after its effect and may block, let another writer go first, or
raise: that is how a test builds an interleaving.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from streams.buckets.base import Bucket
from streams.buckets.through import Through, Verb
from streams.clock import Clock
from streams.errors import Unreachable

T = TypeVar("T")
When = Literal["before", "after", "late"]


def timeout() -> Exception:
    return Unreachable("injected: no answer in time")


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it was asked. `number` counts from 1 over all verbs; `key` is a list's prefix."""

    number: int
    verb: Verb
    key: str


@dataclass(slots=True)
class Fault:
    """Strike at the `nth` matching call and the `times - 1` after it (0: for ever).

    `verb` None matches every verb; `key` must be contained in the call's key. `error` makes what is raised.
    `seconds` pass on the bucket's clock first, as in a time-out.
    """

    verb: Verb | None = None
    nth: int = 1
    when: When = "before"
    error: Callable[[], Exception] = timeout
    key: str = ""
    times: int = 1
    seconds: float = 0.0
    _seen: int = field(default=0, init=False)

    def strikes(self, call: Call) -> bool:
        if self.verb not in (None, call.verb) or self.key not in call.key:
            return False
        self._seen += 1
        return self._seen >= self.nth and (self.times == 0 or self._seen < self.nth + self.times)


class FaultyBucket(Through):
    """Wraps a bucket. `calls` is everything that was asked, in order. Safe between threads."""

    def __init__(
        self,
        inner: Bucket,
        plan: Iterable[Fault] = (),
        *,
        clock: Clock | None = None,
        hook: Callable[[Call, Literal["before", "after"]], None] | None = None,
        trusted: bool | None = None,
    ) -> None:
        super().__init__(inner)
        self.plan = list(plan)
        self.hook = hook
        self.calls: list[Call] = []
        self._clock = clock
        self._lock = threading.Lock()
        self._late: list[Callable[[], object]] = []
        self._trusted = trusted

    @property
    def trusted(self) -> bool:
        return self.inner.trusted if self._trusted is None else self._trusted

    def verbs(self) -> builtins.list[Verb]:
        """The verbs asked for, in order."""
        return [call.verb for call in self.calls]

    def land(self) -> builtins.list[object]:
        """Do what `late` faults held back, in order. Returns each result, or the exception it raised."""
        with self._lock:
            late, self._late = self._late, []
        results: builtins.list[object] = []
        for effect in late:
            try:
                results.append(effect())
            except Exception as error:  # noqa: BLE001 - nobody waits for this reply; the test looks at it
                results.append(error)
        return results

    def _through(self, verb: Verb, key: str, call: Callable[[], T], sent: int | None = None) -> T:  # noqa: ARG002
        with self._lock:
            asked = Call(len(self.calls) + 1, verb, key)
            self.calls.append(asked)
            # Every fault counts, also those behind the one that strikes.
            fault = next((f for f in [f for f in self.plan if f.strikes(asked)]), None)
        if self.hook:
            self.hook(asked, "before")
        if fault and fault.seconds and self._clock:
            self._clock.sleep(fault.seconds)
        if fault and fault.when == "before":
            raise fault.error()
        if fault and fault.when == "late":
            with self._lock:
                self._late.append(call)
            raise fault.error()
        result = call()
        if self.hook:
            self.hook(asked, "after")
        if fault:
            raise fault.error()
        return result
