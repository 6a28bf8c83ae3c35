"""A watchdog for streams that fall silent: a model's connection hangs, and nobody would ever know.

Inside a turn `tee` has one already (`ChatRecovery.stall_timeout`). `watch` is the same for any iterator:

    for chunk in watch(model(messages), 60.0):
        ...

A gap of more than `timeout` seconds between two chunks closes the source, calls `on_stall` once and raises
Stalled. A timeout of 0 passes the source through as it is. While `at_work()` says so (a tool runs) no gap
counts. The source is closed in any case, also when the consumer leaves early.

A plain iterator is read in a thread of its own, one chunk at a time and only when one is asked for. A source
that hangs cannot be closed from outside in Python unless its `close` can be called then; it is closed as
soon as it comes back, and nobody waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import suppress
from typing import Any, TypeVar, overload

from streams.clock import Clock, SystemClock

from .errors import Stalled

T = TypeVar("T")

GRACE = 5.0  # seconds that a source is given to end once it was told to
_END = object()


def _idle() -> bool:
    return False


def stalled(timeout: float) -> Stalled:
    """The error for a source that said nothing for so long."""
    return Stalled(f"the model's stream was silent for more than {timeout:g} s; it was closed")


@overload
def watch(
    chunks: AsyncIterable[T],
    timeout: float,
    *,
    on_stall: Callable[[], object] | None = None,
    at_work: Callable[[], bool] = _idle,
    clock: Clock | None = None,
) -> AsyncIterator[T]: ...
@overload
def watch(
    chunks: Iterable[T],
    timeout: float,
    *,
    on_stall: Callable[[], object] | None = None,
    at_work: Callable[[], bool] = _idle,
    clock: Clock | None = None,
) -> Iterable[T]: ...
def watch(
    chunks: Any,
    timeout: float,
    *,
    on_stall: Callable[[], object] | None = None,
    at_work: Callable[[], bool] = _idle,
    clock: Clock | None = None,
) -> Any:
    """The same chunks, until there is a gap of more than `timeout` seconds: then Stalled is raised. `clock`
    is for plain iterators; an async one goes by its event loop's time."""
    if timeout <= 0:
        return chunks
    if isinstance(chunks, AsyncIterable):
        return _watch_async(chunks, timeout, on_stall, at_work)
    return _watch(chunks, timeout, on_stall, at_work, clock or SystemClock())


def close_quietly(source: Any) -> None:
    """Close a source that may be running in another thread: a generator says no then, a connection ends."""
    close = getattr(source, "close", None)
    if close is not None:
        with suppress(Exception):
            close()


class _Reader:
    """Reads a source in a thread of its own, one item each time it is asked."""

    def __init__(self, source: Iterable[Any], clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._cond = clock.waiter()
        self._asked = self._left = False
        self._found: list[tuple[Any, BaseException | None]] = []
        clock.spawn(self._run, "watchdog")

    def _run(self) -> None:
        iterator: Iterator[Any] | None = None
        while True:
            with self._cond:
                while not self._asked and not self._left:
                    self._cond.wait()
                if self._left:
                    break
                self._asked = False
            item, error = _END, None
            try:
                iterator = iter(self._source) if iterator is None else iterator
                item = next(iterator, _END)
            except BaseException as raised:  # noqa: BLE001 - it is the consumer's
                error = raised
            with self._cond:
                self._found.append((item, error))
                self._cond.notify_all()
        close_quietly(self._source)

    def next(self, timeout: float, at_work: Callable[[], bool]) -> Any:
        """The next item, or _END. Raises what the source raises, and Stalled."""
        with self._cond:
            self._asked = True
            self._cond.notify_all()
            end = self._clock.monotonic() + timeout
            while not self._found:
                left = end - self._clock.monotonic()
                if left > 0:
                    self._cond.wait(left)
                elif at_work():
                    end = self._clock.monotonic() + timeout
                else:
                    raise stalled(timeout)
            item, error = self._found.pop()
        if error is not None:
            raise error
        return item

    def leave(self) -> None:
        """Read no more; the source is closed by its thread."""
        with self._cond:
            self._left = True
            self._cond.notify_all()


def _watch(
    chunks: Iterable[T],
    timeout: float,
    on_stall: Callable[[], object] | None,
    at_work: Callable[[], bool],
    clock: Clock,
) -> Generator[T, None, None]:
    reader = _Reader(chunks, clock)
    try:
        while (item := reader.next(timeout, at_work)) is not _END:
            yield item
    except Stalled:
        close_quietly(chunks)
        if on_stall is not None:
            on_stall()
        raise
    finally:
        reader.leave()


async def _watch_async(
    chunks: AsyncIterable[T],
    timeout: float,
    on_stall: Callable[[], object] | None,
    at_work: Callable[[], bool],
) -> AsyncGenerator[T, None]:
    iterator = aiter(chunks)
    try:
        while True:
            task = asyncio.ensure_future(_next(iterator))
            try:
                done: set[Any] = set()
                while not done:
                    done, _ = await asyncio.wait({task}, timeout=timeout)
                    if not done and not at_work():
                        raise stalled(timeout)
            finally:
                if not task.done():
                    task.cancel()
                    await _in_time(task)
            item = task.result()
            if item is _END:
                return
            yield item
    except Stalled:
        if on_stall is not None:
            on_stall()
        raise
    finally:
        await close_in_time(chunks)


async def close_in_time(source: Any) -> None:
    """Close an async source; one that takes long goes on closing beside the caller, and one that still runs,
    since it resists its cancellation, is left alone."""
    close = getattr(source, "aclose", None)
    if close is not None and not getattr(source, "ag_running", False):
        task = asyncio.ensure_future(close())
        if await _in_time(task):
            task.result()


async def _in_time(task: asyncio.Future[Any]) -> bool:
    """Wait for a task that should be over soon; False when it is not, and then nobody looks at it again."""
    done, _ = await asyncio.wait({task}, timeout=GRACE)
    if not done:
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
    return bool(done)


async def _next(iterator: AsyncIterator[Any]) -> Any:
    return await anext(iterator, _END)
