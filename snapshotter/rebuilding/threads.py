"""Threads that read, beside the one that folds.

A session costs dozens of small requests. A pool that is made for each batch of them would cost more than they
do, so one worker has one pool for requests (`PooledClock`), and another on which sessions are opened and
windows are read ahead (`Reader`). Those wait for requests, and requests for nothing: no two of them can wait
for one another.

A folder, or a store in memory, is read without threads: its answers take microseconds, and a thread that
comes back from one has to wait for the interpreter until the fold lets go of it, which takes milliseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, TypeVar

from streams.clock import SystemClock

T = TypeVar("T")

REQUESTS = 32
"""Requests in flight at once, where the store is not at hand."""

SESSIONS = 8
"""Sessions that are opened ahead."""

_AT_HAND = ("file:", "memory:")


def is_at_hand(url: str) -> bool:
    """Whether a store answers at once."""
    return url.startswith(_AT_HAND)


class PooledClock(SystemClock):
    """The real clock, with one pool of threads for all that is gathered; with none where `parallel` is 1.
    Close it, or use it with `with`."""

    def __init__(self, parallel: int = REQUESTS) -> None:
        super().__init__(parallel)
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="rebuild-request")
        self._inside = threading.local()
        self._alone = parallel == 1

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        # A call that gathers itself holds one of the threads: more of them could never come free.
        if self._alone or len(calls) < 2 or getattr(self._inside, "now", False):
            return [call() for call in calls]
        futures = [self._pool.submit(self._run, call) for call in calls]
        wait(futures)
        return [future.result() for future in futures]

    def _run(self, call: Callable[[], Any]) -> Any:
        self._inside.now = True
        return call()

    def __enter__(self) -> PooledClock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)


class Reader:
    """Runs what reads, `depth` items ahead of whoever uses them; with 0 when they are used. Close it, or use
    it with `with`."""

    def __init__(self, depth: int = SESSIONS) -> None:
        self._depth = depth
        # One more, for the windows of the session that is being folded.
        self._pool = ThreadPoolExecutor(depth + 1, thread_name_prefix="rebuild-reader")

    def each(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """The results of the calls in their order, so many of them begun ahead."""
        if not self._depth:
            yield from (call() for call in calls)
            return
        rest = iter(calls)
        begun: deque[Future[T]] = deque()
        while True:
            while len(begun) < self._depth and (call := next(rest, None)) is not None:
                begun.append(self._pool.submit(call))
            if not begun:
                return
            yield begun.popleft().result()

    def ahead(self, items: Iterator[T]) -> Iterator[T]:
        """The items again, the next one being made while one is used."""
        if not self._depth:
            yield from items
            return
        done = object()
        coming: Future[Any] = self._pool.submit(next, items, done)
        while (item := coming.result()) is not done:
            coming = self._pool.submit(next, items, done)
            yield item

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
