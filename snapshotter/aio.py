"""The async door: the same engine, every call awaitable, the event loop never blocked by a driver.

    from snapshotter import aio

    async with aio.open("s3://bucket/agents") as db:
        async with await db.boot("chat-42") as session:
            async for turn in session.turns():
                async with turn:
                    async for chunk in turn.tee(model(turn.messages)):
                        ...

There is one engine, and it is synchronous. A call that may talk to the store runs in a thread of the
database's own pool; a chunk that is only buffered is written on the spot. Waiting (for a model, for what
comes next in a log, for further inputs) holds no thread, and a cancellation ends it at once. What has to be
finished once it was begun (a claim, a turn's end) is finished even when the task is cancelled: the turn is
released then, and the cancellation goes on, never swallowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from .chunkwriter import Chunk
from .database import Database
from .database import open as open_sync
from .following import Follower
from .passing import Stream
from .session import Session
from .turn import Turn
from .watchdog import END, Answer, AsyncReader, said

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

_THREADS = 64
_END = object()


class _Pool:
    """Threads for calls that may block."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="snapshotter")

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call, in the task's context. When the task is cancelled, the call goes on and its result is
        dropped."""
        carried = partial(copy_context().run, call)
        return await asyncio.get_running_loop().run_in_executor(self._threads, carried)

    async def finish(self, call: Callable[[], T]) -> T:
        """Run the call to its end in any case; a cancellation is raised after it."""
        task = asyncio.ensure_future(self.run(call))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                cancelled = error
            except Exception:  # noqa: BLE001 - it is the task's own, and raised below
                break
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # looked at, so that it is not reported as lost
            raise cancelled
        return task.result()

    async def boot(self, call: Callable[[], Session]) -> Session:
        """As `run`. A session that nobody waits for any more is closed: its claim, if any, is taken back."""
        future = self._threads.submit(copy_context().run, call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_unseen)
            raise

    async def follow(self, make: Callable[[], Follower[T]]) -> AsyncGenerator[T, None]:
        """A follower's items. Between two looks nothing but a timer of the event loop waits."""
        follower = make()
        pause: float | None = 0.0
        while pause is not None:
            found, pause = await self.run(follower.step)
            for item in found:
                yield item
            if pause:
                await asyncio.sleep(pause)

    async def iterate(self, make: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """A blocking iterator, one step at a time."""
        iterator = make()
        while (item := await self.run(partial(next, iterator, _END))) is not _END:
            yield cast(T, item)

    def close(self) -> None:
        self._threads.shutdown(wait=False)


def _close_unseen(future: Future[Session]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


class _Door:
    """What all three doors have: the object behind them, and the pool."""

    _pool: _Pool
    _inner: Any

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"


def _read(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method as a coroutine; cancelling it abandons the call."""

    async def call(self: _Door, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._pool.run(partial(method, self._inner, *args, **kwargs))

    update_wrapper(call, method)
    return call


def _write(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method as a coroutine; once begun it is finished, also when the task is cancelled."""

    async def call(self: _Door, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._pool.finish(partial(method, self._inner, *args, **kwargs))

    update_wrapper(call, method)
    return call


def _iterate(
    method: Callable[Concatenate[S, P], Iterator[T]],
) -> Callable[Concatenate[Any, P], AsyncGenerator[T, None]]:
    """The method's iterator as an async one."""

    def call(self: _Door, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        return self._pool.iterate(partial(method, self._inner, *args, **kwargs))

    update_wrapper(call, method)
    return call


def _follow(
    method: Callable[Concatenate[S, P], Follower[T]],
) -> Callable[Concatenate[Any, P], AsyncGenerator[T, None]]:
    """The method's follower as an async iterator."""

    def call(self: _Door, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        return self._pool.follow(partial(method, self._inner, *args, **kwargs))

    update_wrapper(call, method)
    return call


def _session(
    method: Callable[Concatenate[Database, P], Session],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, AsyncSession]]:
    """The method, its session behind the async door."""

    async def call(self: _Door, /, *args: P.args, **kwargs: P.kwargs) -> AsyncSession:
        return AsyncSession(await self._pool.boot(partial(method, self._inner, *args, **kwargs)), self._pool)

    update_wrapper(call, method)
    return call


def _opened(opener: Callable[P, Database]) -> Callable[P, AsyncDatabase]:
    def call(*args: P.args, **kwargs: P.kwargs) -> AsyncDatabase:
        return AsyncDatabase(opener(*args, **kwargs))

    update_wrapper(call, opener)
    return call


open = _opened(open_sync)  # noqa: A001 - reads like the built-in on purpose


class AsyncDatabase(_Door):
    """`Database`, awaitable. Safe to share between tasks of one event loop."""

    def __init__(self, db: Database) -> None:
        self.db = self._inner = db
        self._pool = _Pool()

    send = _write(Database.send)
    edit = _write(Database.edit)
    approve = _write(Database.approve)
    tool_result = _write(Database.tool_result)
    stop = _write(Database.stop)
    regenerate = _write(Database.regenerate)
    action = _write(Database.action)
    close_session = _write(Database.close_session)
    create = _write(Database.create)
    history = _read(Database.history)
    outcome = _read(Database.outcome)
    recovering = _read(Database.recovering)
    clear = _write(Database.clear)

    follow = _follow(Database.follow)
    records = _follow(Database.records)
    sessions = _iterate(Database.sessions)
    boot = _session(Database.boot)
    peek = _session(Database.peek)

    async def close(self) -> None:
        """Close the driver's connections and let the threads end."""
        await self._pool.run(self.db.close)
        self._pool.close()

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncSession(_Door):
    """`Session`, awaitable. What it found is read from `found`, the session itself."""

    def __init__(self, session: Session, pool: _Pool) -> None:
        self.found = self._inner = session
        self._pool = pool

    set_state = _write(Session.set_state)
    set_context = _write(Session.set_context)

    async def edit_history(self, op: str, **fields: Any) -> None:
        """As `Session.edit_history`."""
        await self._pool.finish(partial(self.found.edit_history, op, **fields))

    clear = _write(Session.clear)
    close = _write(Session.close)

    def __getattr__(self, name: str) -> Any:
        """What the boot found: `messages`, `pending`, `resume`, `state`, `report`, `stats` …"""
        return getattr(self.found, name)

    async def turns(self, wait: float = 0.0) -> AsyncGenerator[AsyncTurn, None]:
        """As `Session.turns`."""
        steps = self.found.steps(wait)
        looks = False
        try:
            while True:
                run = self._pool.run if looks else self._pool.finish  # a look may be abandoned, a claim not
                step = await run(partial(next, steps, _END))
                if step is _END:
                    return
                looks = isinstance(step, float)
                if isinstance(step, float):
                    await asyncio.sleep(step)
                elif isinstance(step, Turn):
                    yield AsyncTurn(step, self._pool)
        finally:
            # A cancellation may have come while a turn was being claimed: nobody will ever see that turn.
            if self.found.current is not None:
                await self._pool.finish(self.found.close)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.finish(self.found.close)


class AsyncTurn(_Door):
    """`Turn`, awaitable."""

    def __init__(self, turn: Turn, pool: _Pool) -> None:
        self.turn = self._inner = turn
        self._pool = pool

    flush = _write(Turn.flush)
    stash = _write(Turn.stash)
    set_state = _write(Turn.set_state)
    set_context = _write(Turn.set_context)

    async def edit_history(self, op: str, **fields: Any) -> None:
        """As `Turn.edit_history`."""
        await self._pool.finish(partial(self.turn.edit_history, op, **fields))

    complete = _write(Turn.complete)
    fail = _write(Turn.fail)
    abort = _write(Turn.abort)
    release = _write(Turn.release)

    def __getattr__(self, name: str) -> Any:
        """`messages`, `message_id`, `stopped`, `durable_id`, `recovery_data` … of the turn itself."""
        return getattr(self.turn, name)

    async def write(self, chunk: Any) -> Chunk | None:
        """As `Turn.write`. A chunk that is only buffered is written without leaving the event loop."""
        return await self._put(self.turn.write_nowait, chunk)

    async def _put(self, write: Callable[[Any], tuple[Chunk | None, bool]], chunk: Any) -> Chunk | None:
        if self.turn.may_block(chunk):
            out, barrier = await self._pool.finish(partial(write, chunk))
        else:
            out, barrier = write(chunk)
        if barrier:
            await self._pool.run(self.turn.flush)
        return out

    def tee(self, chunks: AsyncIterable[Any] | Iterable[Any]) -> AsyncGenerator[Chunk, None]:
        """As `Turn.tee`, of an async or a plain iterable; the source is closed in any case. A stop or the
        deadline ends it within about a second, also while an async source is silent."""
        return self._tee(chunks, self.turn.new_stream())

    async def _tee(
        self, chunks: AsyncIterable[Any] | Iterable[Any], stream: Stream
    ) -> AsyncGenerator[Chunk, None]:
        reader = AsyncReader(chunks if isinstance(chunks, AsyncIterable) else _as_async(chunks))
        with stream:
            try:
                while (chunk := await self._pull(reader)) is not END and not self.turn.stopped:
                    out = await self._put(self.turn.pass_on, chunk)
                    if out is not None:
                        yield out
            finally:
                await reader.leave()

    async def _pull(self, reader: AsyncReader) -> Any:
        """The source's next chunk, or END, also when the turn is stopped, under the eye of the turn's
        watcher. Raises Stalled, Deadline."""
        answer = reader.ask()
        end = partial(asyncio.get_running_loop().call_soon_threadsafe, _end, answer)
        try:
            self.turn.begin_pull(end, on_stop=True)
            if self.turn.stopped:
                return END
            await answer
            return said(answer)
        finally:
            self.turn.end_pull()

    async def __aenter__(self) -> AsyncTurn:
        self.turn.span.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.turn.span.leave()
        await self._pool.finish(partial(self.turn.__exit__, kind, error, trace))


def _end(answer: Answer) -> None:
    """End a wait for the model, if it still waits: it is stopped; what else interrupts is raised then."""
    if not answer.done():
        answer.set_result((END, None))


async def _as_async(chunks: Iterable[T]) -> AsyncGenerator[T, None]:
    try:
        for chunk in chunks:
            yield chunk
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
