"""Ready-made records and segments, and a wait for what another thread is bound to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from streams import keys
from streams.clock import Waiter
from streams.codec import encode_segment
from streams.store import Store
from streams.testing.clocks import FakeClock


def delta_of(chunk: dict[str, Any]) -> tuple[tuple[str, str], str] | None:
    """Text deltas and tool input deltas with no further field."""
    if len(chunk) != 3:
        return None
    if chunk.get("type") == "text-delta":
        return ("text", chunk["id"]), "delta"
    if chunk.get("type") == "tool-input-delta":
        return ("tool", chunk["toolCallId"]), "inputTextDelta"
    return None


def text(part: str, delta: str) -> dict[str, Any]:
    """The body of a text delta's record."""
    return {"chunk": {"type": "text-delta", "id": part, "delta": delta}}


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that another thread is bound to do; fail, with `what`, if it never does."""
    pause = threading.Event()
    for _ in range(10_000):
        if holds():
            return
        pause.wait(0.001)
    pytest.fail(f"it never came: {what}")


class Chain:
    """Writes segments of an out log straight into a store, each chained to the one before."""

    def __init__(self, store: Store, sid: str = "s") -> None:
        self.store = store
        self.sid = sid
        self.last = 0
        self.nonce: str | None = None

    def put(self, count: int, *, first: int = 0, nonce: str = "", prev: str | None = None) -> str:
        """A segment of `count` records right behind the last one, or where and how the arguments say."""
        first = first or self.last + 1
        nonce = nonce or f"n{first}"
        records = [
            {"id": i, "ts": i, "control": "heartbeat", "by": nonce} for i in range(first, first + count)
        ]
        data = encode_segment(
            "out", records, nonce=nonce, prev=prev or self.nonce, epoch=1, run="r", lease=45
        )
        key = keys.segment("out", self.sid, first)
        self.store.put(key, data, nonce=nonce)
        self.last, self.nonce = first + count - 1, nonce
        return key


class PatientClock(FakeClock):
    """A fake clock that remembers: `waits` lists the seconds that anyone was ready to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def waiter(self) -> Waiter:
        return _Counting(super().waiter(), self.waits)


class _Counting:
    """A waiter that notes the time-outs it was given."""

    def __init__(self, inner: Waiter, waits: list[float]) -> None:
        self._inner = inner
        self._waits = waits

    def __enter__(self) -> bool:
        return self._inner.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._inner.__exit__(*exc)

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            self._waits.append(timeout)
        return self._inner.wait(timeout)

    def notify_all(self) -> None:
        self._inner.notify_all()
