"""A watchdog for streams that fall silent: a model's connection hangs, and nobody would ever know.

Inside a turn `tee` has one already (`ChatRecovery.stall_timeout`). `watch` is the same for any iterator:

    for chunk in watch(model(messages), 60.0):
        ...

A gap of more than `timeout` seconds between two chunks closes the source, calls `on_stall` once and raises
Stalled. A timeout of 0 passes the source through as it is. While `at_work()` says so (a tool runs) no gap
counts. The source is closed in any case, also when the consumer leaves early.

A plain iterator is read in a thread of its own, one chunk at a time and only when one is asked for. A source
that hangs cannot be closed from outside in Python unless its `close` can be called then; it is closed as
soon as it comes back, and nobody waits for that: its thread (a daemon) stays until then. What is watched so
can be left from any thread (`Watched.close`), which is how `until_aborted` of `snapshotter.hosting`, a stall
and a deadline free whoever waits for a source that hangs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
)
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from typing import Any, TypeVar, cast, overload

from streams.clock import Clock, SystemClock

from .errors import Stalled

T = TypeVar("T")
Answer = asyncio.Future[tuple[Any, BaseException | None]]

GRACE = 5.0  # seconds that a source is given to end once it was told to
END = object()


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
        return watch_async(chunks, timeout, on_stall=on_stall, at_work=at_work)
    return Watched(chunks, timeout, on_stall=on_stall, at_work=at_work, clock=clock)


def close_quietly(source: Any) -> None:
    """Close a source that may be running in another thread: a generator says no then, a connection ends."""
    close = getattr(source, "close", None)
    if close is not None:
        with suppress(Exception):
            close()


class _Reader:
    """Reads a source in a thread of its own, one item each time it is asked. It has the caller's context
    variables."""

    def __init__(self, source: Iterable[Any], clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._cond = clock.waiter()
        self._asked = self._left = False
        self._found: list[tuple[Any, BaseException | None]] = []
        clock.spawn(partial(copy_context().run, self._run), "watchdog")

    def _run(self) -> None:
        iterator: Iterator[Any] | None = None
        while self._wait():
            item, error = END, None
            try:
                iterator = iter(self._source) if iterator is None else iterator
                item = next(iterator, END)
            except BaseException as raised:  # noqa: BLE001 - it is the consumer's
                error = raised
            with self._cond:
                self._found.append((item, error))
                self._cond.notify_all()
        close_quietly(self._source)  # again: one that was busy when the consumer left it could not be closed

    def _wait(self) -> bool:
        """Wait to be asked; False when the consumer has left."""
        with self._cond:
            while not self._asked and not self._left:
                self._cond.wait()
            self._asked = False
            return not self._left

    def next(self, timeout: float | None, at_work: Callable[[], bool]) -> Any:
        """The next item; END also when `leave` was called. Raises what the source raises, and Stalled."""
        with self._cond:
            self._asked = True
            self._cond.notify_all()
            end = inf if timeout is None else self._clock.monotonic() + timeout
            while not self._found and not self._left:
                left = end - self._clock.monotonic()
                if left > 0:
                    self._cond.wait(None if timeout is None else left)
                elif timeout is not None and at_work():
                    end = self._clock.monotonic() + timeout
                else:
                    raise stalled(timeout or 0)
            item, error = self._found.pop() if self._found else (END, None)
        if error is not None:
            raise error
        return item

    def leave(self) -> None:
        """Read no more, and close the source. One that hangs closes when it can be closed from outside, as a
        connection can; a generator cannot, and is closed by its thread when it comes back."""
        with self._cond:
            self._left = True
            self._cond.notify_all()
        close_quietly(self._source)


class Watched(Iterator[T]):
    """A plain iterable, read in a thread beside its consumer. `close` may be called by anybody, at any time:
    whoever waits for the next item is sent away. `on_close` is called once, when it ends in any way."""

    def __init__(
        self,
        chunks: Iterable[T],
        timeout: float | None = None,
        *,
        on_stall: Callable[[], object] | None = None,
        on_close: Callable[[], object] = lambda: None,
        at_work: Callable[[], bool] = _idle,
        clock: Clock | None = None,
    ) -> None:
        self._chunks, self._timeout, self._at_work = chunks, timeout, at_work
        self._on_stall, self.on_close = on_stall, on_close
        self._clock = clock or SystemClock()
        self._reader: _Reader | None = None
        self._lock = threading.Lock()
        self._over = False

    def __next__(self) -> T:
        with self._lock:
            if self._over:
                raise StopIteration
            self._reader = reader = self._reader or _Reader(self._chunks, self._clock)
        try:
            item = reader.next(self._timeout, self._at_work)
        except BaseException as error:
            self.close()
            if isinstance(error, Stalled) and self._on_stall is not None:
                self._on_stall()
            raise
        if item is END:
            self.close()
            raise StopIteration
        return cast(T, item)

    def close(self) -> None:
        """End it; safe to call again, and from any thread."""
        with self._lock:
            if self._over:
                return
            self._over, reader = True, self._reader
        if reader is None:
            close_quietly(self._chunks)
        else:
            reader.leave()
        self.on_close()

    def __del__(self) -> None:
        self.close()


class AsyncReader:
    """Reads an async source in a task of its own, one item each time it is asked. The source begins, goes on
    and is closed in this one task and its context, as scopes of asyncio and anyio need it; and one that
    resists its end, or takes long over it, holds nobody for more than `GRACE` seconds."""

    def __init__(self, source: AsyncIterable[Any]) -> None:
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._answer: Answer | None = None
        self._reading = self._left = False

    def ask(self) -> Answer:
        """Read one item; `said` takes what comes of it."""
        self._answer = asyncio.get_running_loop().create_future()
        self._asked.set()
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        return self._answer

    async def _run(self) -> None:
        iterator: AsyncIterator[Any] | None = None
        try:
            while await self._asked.wait() and not self._left:
                self._asked.clear()
                item, error, self._reading = END, None, True
                try:
                    iterator = aiter(self._source) if iterator is None else iterator
                    item = await anext(iterator, END)
                except BaseException as raised:  # noqa: BLE001 - it is the consumer's
                    error = raised
                self._reading = False
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result((item, error))
                if item is END:
                    return
        finally:
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()

    async def leave(self) -> None:
        """Read no more, and close the source. Returns when that is done, or has taken long enough: it goes on
        by itself then. Raises what closing raises."""
        self._left = True
        self._asked.set()
        if self._task is not None:
            if self._reading:
                self._task.cancel()
            self._task.add_done_callback(lambda late: late.cancelled() or late.exception())
            done, _ = await asyncio.wait({self._task}, timeout=GRACE)
            if done:
                self._task.result()


def said(answer: Answer) -> Any:
    """What a reader found: the item, or END. Raises what the source raised."""
    item, error = answer.result()
    if error is not None:
        raise error
    return item


async def watch_async(
    chunks: AsyncIterable[T],
    timeout: float | None = None,
    *,
    on_stall: Callable[[], object] | None = None,
    at_work: Callable[[], bool] = _idle,
    until: asyncio.Future[Any] | None = None,
) -> AsyncGenerator[T, None]:
    """As `watch`, of an async iterable; it ends when `until` is done, also while the source is silent."""
    reader = AsyncReader(chunks)
    try:
        while True:
            answer = reader.ask()
            ends: set[asyncio.Future[Any]] = {answer} if until is None else {answer, until}
            while not answer.done():
                done, _ = await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if until is not None and until.done():
                    return
                if not done and not at_work():
                    raise stalled(timeout or 0)
            item = said(answer)
            if item is END:
                return
            yield item
    except Stalled:
        if on_stall is not None:
            on_stall()
        raise
    finally:
        await reader.leave()
