"""Time, randomness and threads: the only place where they are real.

Everything else takes a `Clock`. A test or a simulation passes its own and thereby decides what time
it is, which nonce comes next and which thread runs. `SystemClock` is the real one.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Protocol


class Task(Protocol):
    """A running background task."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Waiter(Protocol):
    """The part of `threading.Condition` that the engine uses."""

    def __enter__(self) -> bool: ...
    def __exit__(self, *exc: Any) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class Clock(Protocol):
    """What the engine asks of the world, apart from the store."""

    def now_ms(self) -> int:
        """Wall clock, epoch milliseconds. Carried in records, never used to order them."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back. For intervals within this process."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def token(self) -> str:
        """A fresh unguessable id (nonces, run ids), 24 characters of hex."""
        ...

    def jitter(self) -> float:
        """A uniform number in [0, 1)."""
        ...

    def waiter(self) -> Waiter:
        """A new condition variable."""
        ...

    def spawn(self, target: Callable[[], None], name: str) -> Task:
        """Run `target` beside the caller; never keeps the process alive."""
        ...

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        """Run the calls in parallel; results in order. The first exception, in order, is raised."""
        ...


class SystemClock:
    """The real clock. One instance may be shared by any number of threads. `parallel`: how many calls run at
    once; no more than the drivers keep connections, so the parts of a long history are one round trip."""

    def __init__(self, parallel: int = 32) -> None:
        self._parallel = parallel

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def token(self) -> str:
        return secrets.token_hex(12)

    def jitter(self) -> float:
        return secrets.randbelow(1 << 30) / (1 << 30)

    def waiter(self) -> Waiter:
        return threading.Condition()

    def spawn(self, target: Callable[[], None], name: str) -> Task:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        if len(calls) < 2:
            return [call() for call in calls]
        # Imported late: a sender that makes one request never pays for it.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=min(self._parallel, len(calls))) as pool:
            # Each in the caller's context: what is traced there goes on here.
            futures = [pool.submit(copy_context().run, call) for call in calls]
            return [future.result() for future in futures]
