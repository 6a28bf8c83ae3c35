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

from streams.buckets.base import Blob, Bucket, Head, Page, Written
from streams.clock import Clock
from streams.errors import Unreachable

T = TypeVar("T")
Verb = Literal["get", "head", "put", "list", "delete"]
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


class FaultyBucket:
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
        self.inner = inner
        self.plan = list(plan)
        self.hook = hook
        self.calls: list[Call] = []
        self._clock = clock
        self._lock = threading.Lock()
        self._late: list[Callable[[], object]] = []
        self.url = inner.url
        self.room = inner.room
        self.trusted = inner.trusted if trusted is None else trusted

    def get(self, key: str) -> Blob | None:
        return self._do("get", key, lambda: self.inner.get(key))

    def head(self, key: str) -> Head | None:
        return self._do("head", key, lambda: self.inner.head(key))

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        return self._do(
            "put",
            key,
            lambda: self.inner.put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce),
        )

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        return self._do("list", prefix, lambda: self.inner.list(prefix, after=after, limit=limit))

    def delete(self, key: str) -> None:
        return self._do("delete", key, lambda: self.inner.delete(key))

    def close(self) -> None:
        self.inner.close()

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

    def _do(self, verb: Verb, key: str, effect: Callable[[], T]) -> T:
        with self._lock:
            call = Call(len(self.calls) + 1, verb, key)
            self.calls.append(call)
            # Every fault counts, also those behind the one that strikes.
            fault = next((f for f in [f for f in self.plan if f.strikes(call)]), None)
        if self.hook:
            self.hook(call, "before")
        if fault and fault.seconds and self._clock:
            self._clock.sleep(fault.seconds)
        if fault and fault.when == "before":
            raise fault.error()
        if fault and fault.when == "late":
            with self._lock:
                self._late.append(effect)
            raise fault.error()
        result = effect()
        if self.hook:
            self.hook(call, "after")
        if fault:
            raise fault.error()
        return result
