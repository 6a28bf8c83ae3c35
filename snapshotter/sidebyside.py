"""Sessions side by side: one call for each of them, in threads, for what is nearly all waiting.

What comes back comes in the order of the sessions, to the caller's thread. So that one slow session does not
stop the others, some are begun ahead of it, and so that 100,000 of them are not 100,000 futures, no more than
some.

A call that raises ends the run: what was not begun is not. So does a caller who has enough, as with Ctrl-C;
he need not wait until each session is done with: a thread cannot be interrupted, but each of its requests
goes by `breakable`, and the next one is not made. What that leaves is what a process leaves that was killed
between two requests.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import ContextVar, copy_context
from itertools import islice
from typing import TypeVar

from streams.buckets.base import Bucket
from streams.buckets.through import Through, Verb
from streams.errors import InvalidValue

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 8  # items begun or done ahead of the one that is waited for, for each thread

_OVER: ContextVar[threading.Event | None] = ContextVar("over", default=None)


class BrokenOff(BaseException):
    """Whoever asked for the run wants no more of it. No Exception: nothing that goes wrong in a session."""


def side_by_side(call: Callable[[T], R], items: Iterable[T], jobs: int) -> Generator[R]:
    """The results of the calls in the order of the items, so many calls at once; with 1 in the caller's
    thread. Close it (`contextlib.closing`) where it may be left before its end: it waits for the requests
    under way.

    Raises InvalidValue for `jobs` that are none, and the first error that a call raises.
    """
    if type(jobs) is not int or jobs < 1:
        raise InvalidValue("jobs is a number of threads, 1 or more", path="jobs")
    return (call(item) for item in items) if jobs == 1 else _threaded(call, iter(items), jobs)


def _threaded(call: Callable[[T], R], items: Iterator[T], jobs: int) -> Generator[R]:
    over = threading.Event()
    context = copy_context()  # what is traced in the caller's goes on in the threads
    context.run(_OVER.set, over)
    begun: deque[Future[R]] = deque()
    failed: Future[R] = Future()
    with ThreadPoolExecutor(jobs, thread_name_prefix="session") as pool:
        try:
            while True:
                for item in islice(items, _AHEAD * jobs - len(begun)):
                    future = pool.submit(context.copy().run, call, item)
                    future.add_done_callback(lambda done: _pass_on(done, failed))
                    begun.append(future)
                if not begun:
                    return
                # What ends the run is not to wait behind a session that takes long.
                wait((begun[0], failed), return_when=FIRST_COMPLETED)
                yield (begun.popleft() if begun[0].done() else failed).result()
        finally:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _pass_on(done: Future[R], failed: Future[R]) -> None:
    """The first error of any call becomes that of the run."""
    error = None if done.cancelled() else done.exception()
    if error is not None:
        with suppress(InvalidStateError):  # another was first
            failed.set_exception(error)


def breakable(bucket: Bucket) -> Bucket:
    """The same bucket; in a thread of a run it raises BrokenOff once the run is over."""
    over = _OVER.get()
    return bucket if over is None else _Breakable(bucket, over)


class _Breakable(Through):
    """See `breakable`. A request is never cut off, only the next one not made."""

    def __init__(self, inner: Bucket, over: threading.Event) -> None:
        super().__init__(inner)
        self._over = over

    def _through(self, verb: Verb, key: str, call: Callable[[], T], sent: int | None = None) -> T:  # noqa: ARG002
        if self._over.is_set():
            raise BrokenOff
        return call()
