"""A clock for runs that last ten minutes and take none: time passes only while everybody waits.

Its threads are real, and one runs at a time. Whoever sleeps or waits hands over to the one whose time
comes next, and the clock jumps there. So a run is exact and repeats: same order, same times, and never
a real second. A `Condition` needs no lock here, as nobody runs beside the one who holds it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Callable
from typing import Any

from streams.clock import Task, Waiter


class _Sleeper:
    """Somebody who waits to run on."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.notified = False
        self.awake = False


class VirtualClock:
    """Implements `streams.clock.Clock`. The thread that makes it is the one that runs first."""

    def __init__(self, start_ms: int = 1_750_000_000_000) -> None:
        self._start_ms = start_ms
        self._now = 0.0
        self._order = itertools.count()
        self._queue: list[tuple[float, int, _Sleeper]] = []
        self._tokens = itertools.count(1)

    def now_ms(self) -> int:
        return self._start_ms + round(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.block(_Sleeper(), self._now + seconds)

    def token(self) -> str:
        return f"{next(self._tokens):024x}"

    def jitter(self) -> float:
        return 0.5

    def waiter(self) -> Waiter:
        return _Waiter(self)

    def spawn(self, target: Callable[[], None], name: str) -> Task:
        return _Task(self, target, name)

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        found: list[Any] = [None] * len(calls)

        def run(at: int) -> None:
            found[at] = calls[at]()

        tasks = [self.spawn(lambda at=at: run(at), f"gather-{at}") for at in range(len(calls))]  # type: ignore[misc]
        for task in tasks:
            task.join()
        return found

    def wake(self, sleeper: _Sleeper, at: float) -> None:
        """Let it run on at this time, unless something wakes it before."""
        heapq.heappush(self._queue, (at, next(self._order), sleeper))

    def block(self, sleeper: _Sleeper, until: float) -> None:
        """The running thread waits: until then, or until it is woken."""
        if until < math.inf:
            self.wake(sleeper, until)
        self.hand_over()
        sleeper.go.wait()

    def hand_over(self) -> None:
        """Let the next one run."""
        while True:
            if not self._queue:
                raise RuntimeError("everybody waits, and nobody will ever be woken")
            at, _, sleeper = heapq.heappop(self._queue)
            if not sleeper.awake:
                self._now = max(self._now, at)
                sleeper.awake = True
                sleeper.go.set()
                return


class _Task:
    def __init__(self, clock: VirtualClock, target: Callable[[], None], name: str) -> None:
        self._clock = clock
        self._target = target
        self._done = False
        self._start = _Sleeper()
        self._joining: list[_Sleeper] = []
        threading.Thread(target=self._run, name=name, daemon=True).start()
        clock.wake(self._start, clock.monotonic())

    def _run(self) -> None:
        self._start.go.wait()
        try:
            self._target()
        finally:
            self._done = True
            for sleeper in self._joining:
                self._clock.wake(sleeper, self._clock.monotonic())
            self._clock.hand_over()

    def join(self, timeout: float | None = None) -> None:
        if not self._done:
            sleeper = _Sleeper()
            self._joining.append(sleeper)
            self._clock.block(sleeper, math.inf if timeout is None else self._clock.monotonic() + timeout)

    def is_alive(self) -> bool:
        return not self._done


class _Waiter:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._sleepers: list[_Sleeper] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *exc: object) -> None:
        """Nothing to let go of."""

    def wait(self, timeout: float | None = None) -> bool:
        sleeper = _Sleeper()
        self._sleepers.append(sleeper)
        self._clock.block(sleeper, math.inf if timeout is None else self._clock.monotonic() + timeout)
        if sleeper in self._sleepers:
            self._sleepers.remove(sleeper)
        return sleeper.notified

    def notify_all(self) -> None:
        for sleeper in self._sleepers:
            sleeper.notified = True
            self._clock.wake(sleeper, self._clock.monotonic())
        self._sleepers.clear()
