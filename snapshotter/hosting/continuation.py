"""Going on by itself, once every answer that a message waits for is there.

A model asks for several tools at once, and their results and approvals come in any order, often within the
same instant. Going on at the first would run the model on half of them; going on at each would run it
several times. So: an answer arms a short timer (answers that come together are one batch); when it runs out
nobody may be streaming and nothing may be waiting, else the next answer, or the end of the stream, looks
again. There is no time limit: a batch of which one answer never comes goes on with the next message.

`Barrier` is the rule and reads no clock; `Continuations` is its door for threads, `AsyncContinuations` the
one for asyncio. Answers are applied one after another, so that no two of them write over each other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from streams.clock import Clock, SystemClock

T = TypeVar("T")

COALESCE = 0.05  # seconds


class Barrier:
    """When to go on. Times are seconds of whichever clock the caller has."""

    def __init__(self, coalesce: float = COALESCE) -> None:
        self._coalesce = coalesce
        self.pending = False
        self.deferred = False
        self.running = False
        self.due: float | None = None

    def answered(self, now: float, *, go_on: bool = True) -> None:
        """An answer was applied. One that does not ask to go on (`go_on` False) may still complete a batch of
        which another did. While a continuation runs, all that come are one more after it."""
        if self.running:
            self.deferred = self.deferred or go_on
        elif go_on or self.pending:
            self.pending = True
            self.due = now + self._coalesce

    def timer(self, now: float) -> bool:
        """True, once, when the timer has run out: then `fire` says whether to go on."""
        if self.due is None or now < self.due:
            return False
        self.due = None
        return self.pending

    def fire(self, *, streaming: bool, complete: bool) -> bool:
        """Whether to go on now; then it counts as running until `finished`."""
        if not self.pending or self.running or streaming or not complete:
            return False
        self.pending, self.running, self.due = False, True, None
        return True

    def finished(self) -> bool:
        """The continuation has ended; True when one more was asked for meanwhile: look with `fire`."""
        self.running = False
        self.pending, self.deferred = self.deferred, False
        return self.pending

    def reset(self) -> None:
        """Forget everything: the session was cleared."""
        self.pending = self.deferred = self.running = False
        self.due = None


class Continuations:
    """The barrier of one session, for threads.

    `complete()` says whether nothing waits any more, `streaming()` whether an answer is under way, `go_on()`
    runs the continuation; it is called in a thread of its own. What `go_on` raises is given to `on_error`.
    """

    def __init__(
        self,
        go_on: Callable[[], None],
        *,
        complete: Callable[[], bool],
        streaming: Callable[[], bool] = lambda: False,
        on_error: Callable[[Exception], None] = lambda _: None,
        clock: Clock | None = None,
        coalesce: float = COALESCE,
    ) -> None:
        self._go_on, self._complete, self._streaming, self._on_error = go_on, complete, streaming, on_error
        self._clock = clock or SystemClock()
        self._barrier = Barrier(coalesce)
        self._changed = self._clock.waiter()
        self._applying = self._clock.waiter()
        self._timing = False

    def apply(self, write: Callable[[], T], *, go_on: bool = True) -> T:
        """Apply one answer (`write` stores it), after those before it; then look whether to go on, soon."""
        with self._applying:
            result = write()
        with self._changed:
            self._barrier.answered(self._clock.monotonic(), go_on=go_on)
            if self._barrier.due is not None and not self._timing:
                self._timing = True
                self._clock.spawn(self._time, "continuation")
        return result

    def look(self) -> None:
        """Look again: a stream has ended, so what it asked for is known now."""
        self._try()

    @property
    def armed(self) -> bool:
        """True while it will look by itself."""
        with self._changed:
            return self._timing

    def reset(self) -> None:
        """Forget what was asked for: the session was cleared."""
        with self._changed:
            self._barrier.reset()
            self._changed.notify_all()

    def _time(self) -> None:
        while self._ran_out():
            self._try()

    def _ran_out(self) -> bool:
        """Wait for the timer to run out; False when there is nothing to wait for."""
        with self._changed:
            while (due := self._barrier.due) is not None:
                if self._barrier.timer(self._clock.monotonic()):
                    return True
                self._changed.wait(max(0.0, due - self._clock.monotonic()))
            self._timing = False
            return False

    def _try(self) -> None:
        """Go on as often as it is asked for."""
        while self._may_fire():
            try:
                self._go_on()
            except Exception as error:  # noqa: BLE001 - it is the host's, and handed to it
                self._on_error(error)
            with self._changed:
                if not self._barrier.finished():
                    return

    def _may_fire(self) -> bool:
        with self._applying:  # what has arrived already is applied before it is judged
            streaming = self._streaming()
            complete = not streaming and self._barrier.pending and self._complete()
            with self._changed:
                return self._barrier.fire(streaming=streaming, complete=complete)


class AsyncContinuations:
    """The barrier of one session, for the tasks of one event loop; see `Continuations`. `sleep` is how it
    waits for the timer."""

    def __init__(
        self,
        go_on: Callable[[], Awaitable[object]],
        *,
        complete: Callable[[], Awaitable[bool]],
        streaming: Callable[[], bool] = lambda: False,
        on_error: Callable[[Exception], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        coalesce: float = COALESCE,
    ) -> None:
        self._go_on, self._complete, self._streaming, self._on_error = go_on, complete, streaming, on_error
        self._sleep, self._coalesce = sleep, coalesce
        self._barrier = Barrier(coalesce)
        self._applying = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def apply(self, write: Callable[[], Awaitable[T]], *, go_on: bool = True) -> T:
        """As `Continuations.apply`."""
        async with self._applying:
            result = await write()
        self._barrier.answered(0.0, go_on=go_on)
        if self._barrier.due is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.create_task(self._time())
            self._tasks.add(self._timer)
            self._timer.add_done_callback(self._tasks.discard)
        return result

    async def look(self) -> None:
        """As `Continuations.look`."""
        while await self._may_fire():
            try:
                await self._go_on()
            except Exception as error:  # noqa: BLE001 - it is the host's, and handed to it
                self._on_error(error)
            finally:
                again = self._barrier.finished()
            if not again:
                return

    def reset(self) -> None:
        """Forget what was asked for: the session was cleared."""
        self._barrier.reset()
        if self._timer is not None:
            self._timer.cancel()

    async def _time(self) -> None:
        await self._sleep(self._coalesce)
        self._timer = None  # from here on an answer is one more, and stops this no longer
        if self._barrier.timer(math.inf):
            await self.look()

    async def _may_fire(self) -> bool:
        async with self._applying:  # what has arrived already is applied before it is judged
            streaming = self._streaming()
            complete = not streaming and self._barrier.pending and await self._complete()
            return self._barrier.fire(streaming=streaming, complete=complete)
