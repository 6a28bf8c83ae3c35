"""A real clock that runs some times faster, the same for every process of a drill.

A lease of 15 s then runs out within seconds, and so do its heartbeats, its writer's patience and a boot's
wait: the engine is as it is, the world around it is slower. An S3 server's dates stay real, so there a
silent holder is found out by whoever watches it for a whole lease; a folder's dates come from this clock.
"""

from __future__ import annotations

import time
from threading import Condition
from typing import Any

from streams.clock import SystemClock, Waiter


class FastClock(SystemClock):
    """`speed` times as fast as the real one since `began` (real seconds, epoch)."""

    def __init__(self, speed: float, began: float) -> None:
        super().__init__()
        self._speed, self._began = speed, began

    def now_ms(self) -> int:
        return int((self._began + (time.time() - self._began) * self._speed) * 1000)

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._speed)

    def waiter(self) -> Waiter:
        return _FastWaiter(self._speed)


class _FastWaiter:
    def __init__(self, speed: float) -> None:
        self._speed, self._condition = speed, Condition()

    def __enter__(self) -> bool:
        return self._condition.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._condition.__exit__(*exc)

    def wait(self, timeout: float | None = None) -> bool:
        return self._condition.wait(None if timeout is None else timeout / self._speed)

    def notify_all(self) -> None:
        self._condition.notify_all()
