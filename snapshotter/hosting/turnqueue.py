"""Turns of one session, one after another.

First in, first out. Each waiting turn belongs to a *generation*; `reset` begins the next one, and what was
queued under an older one is not run when its time comes: its caller is told that it is stale. The turn that
runs goes on.

`Line` is the order itself and waits for nothing; `TurnQueue` is its door for threads, `AsyncTurnQueue` for
asyncio. A queue lives in one process: what keeps two processes apart is the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streams.clock import Clock, SystemClock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of a queued turn: `completed` with its value, or `stale`: it was not run."""

    status: str
    value: T | None = None


@dataclass(eq=False, slots=True)
class Ticket:
    """A place in the line: `waiting`, `running`, `stale` or `left`."""

    key: str
    generation: int
    state: str = "waiting"


class Line:
    """The order of turns. Not safe to share between threads: the doors see to that."""

    def __init__(self) -> None:
        self.generation = 0
        self._tickets: deque[Ticket] = deque()

    @property
    def active(self) -> str | None:
        """The key of the turn that runs."""
        head = self._tickets[0] if self._tickets else None
        return head.key if head is not None and head.state == "running" else None

    @property
    def idle(self) -> bool:
        """True when nothing runs and nothing waits."""
        return not self._tickets

    def count(self, generation: int | None = None) -> int:
        """How many turns of a generation (this one by default) run or wait."""
        wanted = self.generation if generation is None else generation
        return sum(ticket.generation == wanted for ticket in self._tickets)

    def join(self, key: str, generation: int | None = None) -> Ticket:
        """Stand at the end of the line, in this generation or the one given."""
        ticket = Ticket(key, self.generation if generation is None else generation)
        self._tickets.append(ticket)
        self._advance()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Leave the line: the turn has ended, or nobody waits for it any more."""
        if ticket in self._tickets:
            self._tickets.remove(ticket)
            ticket.state = "left"
            self._advance()

    def reset(self) -> None:
        """Begin the next generation."""
        self.generation += 1

    def _advance(self) -> None:
        while self._tickets and self._tickets[0].state == "waiting":
            head = self._tickets[0]
            if head.generation == self.generation:
                head.state = "running"
            else:
                head.state = "stale"
                self._tickets.popleft()


class TurnQueue:
    """The line for threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._line = Line()
        self._changed = self._clock.waiter()

    def run(
        self,
        key: str,
        work: Callable[[], T],
        *,
        generation: int | None = None,
        joined: Callable[[], None] = lambda: None,
    ) -> Outcome[T]:
        """Wait for this turn's time, then run `work`. What it raises is raised here, and the next turn runs.
        `joined` is called as soon as the turn stands in the line."""
        with self._changed:
            ticket = self._line.join(key, generation)
        try:
            joined()
            with self._changed:
                while ticket.state == "waiting":
                    self._changed.wait()
            return Outcome("stale") if ticket.state == "stale" else Outcome("completed", work())
        finally:
            with self._changed:
                self._line.leave(ticket)
                self._changed.notify_all()

    def reset(self) -> None:
        """Make what is queued stale; what runs goes on."""
        with self._changed:
            self._line.reset()

    def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Return when nothing runs and nothing waits; False when `timeout` seconds have passed before."""
        end = None if timeout is None else self._clock.monotonic() + timeout
        with self._changed:
            while not self._line.idle:
                left = None if end is None else end - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True

    @property
    def generation(self) -> int:
        with self._changed:
            return self._line.generation

    @property
    def active(self) -> str | None:
        """The key of the turn that runs."""
        with self._changed:
            return self._line.active

    def count(self, generation: int | None = None) -> int:
        """How many turns of a generation (this one by default) run or wait."""
        with self._changed:
            return self._line.count(generation)


class AsyncTurnQueue:
    """The line for the tasks of one event loop."""

    def __init__(self) -> None:
        self._line = Line()
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}
        self._idle: list[asyncio.Future[None]] = []

    async def run(
        self,
        key: str,
        work: Callable[[], Awaitable[T]],
        *,
        generation: int | None = None,
        joined: Callable[[], None] = lambda: None,
    ) -> Outcome[T]:
        """As `TurnQueue.run`. A task that is cancelled while it waits leaves the line."""
        ticket = self._line.join(key, generation)
        try:
            joined()
            if ticket.state == "waiting":
                self._waiting[ticket] = asyncio.get_running_loop().create_future()
                await self._waiting[ticket]
            return Outcome("stale") if ticket.state == "stale" else Outcome("completed", await work())
        finally:
            self._waiting.pop(ticket, None)
            self._line.leave(ticket)
            self._wake()

    def _wake(self) -> None:
        ready = [future for ticket, future in self._waiting.items() if ticket.state != "waiting"]
        if self._line.idle:
            ready += self._idle
            self._idle = []
        for future in ready:
            if not future.done():
                future.set_result(None)

    def reset(self) -> None:
        """Make what is queued stale; what runs goes on."""
        self._line.reset()

    async def wait_for_idle(self) -> None:
        """Return when nothing runs and nothing waits."""
        while not self._line.idle:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future

    @property
    def generation(self) -> int:
        return self._line.generation

    @property
    def active(self) -> str | None:
        """The key of the turn that runs."""
        return self._line.active

    def count(self, generation: int | None = None) -> int:
        """How many turns of a generation (this one by default) run or wait."""
        return self._line.count(generation)
