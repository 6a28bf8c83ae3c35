"""Threads that read, beside the one that folds.

A session costs dozens of small requests. A pool that is made for each batch of them would cost more than they
do, so one worker has one pool for requests (`PooledClock`), and another on which sessions are opened and
windows are read ahead (`Reader`). Those wait for requests, and requests for nothing: no two of them can wait
for one another.
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


class PooledClock(SystemClock):
    """The real clock, with one pool of threads for all that is gathered. Close it, or use it with `with`."""

    def __init__(self, parallel: int = 16) -> None:
        super().__init__(parallel)
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="rebuild-request")
        self._inside = threading.local()

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        # A call that gathers itself holds one of the threads: more of them could never come free.
        if len(calls) < 2 or getattr(self._inside, "now", False):
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
    """Runs what reads, a few items ahead of whoever uses them. Close it, or use it with `with`."""

    def __init__(self, depth: int = 4) -> None:
        self._depth = depth
        # One more, for the windows of the session that is being folded.
        self._pool = ThreadPoolExecutor(depth + 1, thread_name_prefix="rebuild-reader")

    def each(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """The results of the calls in their order, so many of them begun ahead."""
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
