"""A clock that a test owns: time moves only when someone sleeps or calls `advance`.

Tokens and jitter are sequences, so a run repeats exactly. Threads that `spawn` starts are real, but
what they wait for is fake time: `waiter().wait(5)` returns when it is notified or when five fake
seconds have passed, however long that takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from streams.clock import Task, Waiter

_POLL = 0.002  # real seconds between two looks at the fake time; no result depends on it


class FakeClock:
    """Implements `streams.clock.Clock`. `gather` runs in order, or in real threads with `threads=True`.

    `now_ms` starts at `start_ms`; `monotonic` starts at 0. `slept` lists the seconds of every sleep.
    """

    def __init__(self, start_ms: int = 1_750_000_000_000, *, seed: int = 0, threads: bool = False) -> None:
        self._lock = threading.Lock()
        self._start_ms = start_ms
        self._seconds = 0.0
        self._seed = seed
        self._tokens = 0
        self._jitters = seed
        self._threads = threads
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self._start_ms + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        with self._lock:
            return self._seconds

    def advance(self, seconds: float) -> None:
        """Let time pass; every waiter whose time has come wakes up."""
        with self._lock:
            self._seconds += seconds

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
        self.advance(seconds)

    def token(self) -> str:
        with self._lock:
            self._tokens += 1
            return f"{self._seed & 0xFFFFFF:06x}{self._tokens:018x}"

    def jitter(self) -> float:
        # Multiples of the golden ratio spread evenly over [0, 1).
        with self._lock:
            self._jitters += 1
            return self._jitters * 0.6180339887498949 % 1.0

    def waiter(self) -> Waiter:
        return _FakeWaiter(self)

    def spawn(self, target: Callable[[], None], name: str) -> Task:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        """Every call runs, also after one has failed, as in the real clock."""
        results: list[Any] = [None] * len(calls)
        errors: list[BaseException | None] = [None] * len(calls)

        def run(index: int) -> None:
            try:
                results[index] = calls[index]()
            except BaseException as error:  # noqa: BLE001 - it is raised again below, in order
                errors[index] = error

        if self._threads:
            tasks = [self.spawn(lambda i=i: run(i), f"gather-{i}") for i in range(len(calls))]  # type: ignore[misc]
            for task in tasks:
                task.join()
        else:
            for index in range(len(calls)):
                run(index)
        for error in errors:
            if error is not None:
                raise error
        return results


class _FakeWaiter:
    """A condition variable whose time-outs are fake time. It counts notifications, so that none is missed
    between two looks at the time."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._notified = 0

    def __enter__(self) -> bool:
        return self._condition.acquire()

    def __exit__(self, *exc: object) -> None:
        self._condition.release()

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else self._clock.monotonic() + timeout
        before = self._notified
        while self._notified == before:
            if end is not None and self._clock.monotonic() >= end:
                return False
            self._condition.wait(_POLL)
        return True

    def notify_all(self) -> None:
        self._notified += 1
        self._condition.notify_all()
