"""Simulated processes over one bucket in memory: fake time, one thread at a time, the same run every time.

A `World` holds a store and the time. A `Process` is a clock and a faulty bucket over that store; what the
engine spawns on its clock belongs to it. Threads are real, but a scheduler lets exactly one run, and
changes it only where one waits, sleeps or asks the store. When all of them wait, time jumps to the
first time-out.

So a process can be killed or frozen at its n-th request, before or after the effect, and a run is as
exact as its arguments. A process that ends takes its background threads with it, as a real one does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket, Space
from streams.testing.faults import Call, Fault, FaultyBucket

START_MS = 1_750_000_000_000
_PATIENCE = 30.0  # real seconds until a scheduler that hears nothing gives up; no result depends on it

When = Literal["before", "after"]


class Killed(BaseException):
    """SIGKILL: nothing in the engine may catch it and go on."""


class _Thread:
    """One thread of a simulated process. Runs only while the scheduler lets it."""

    def __init__(self, process: Process, target: Callable[[], None], name: str) -> None:
        self.process = process
        self.name = name
        self.wake_at: float | None = 0.0
        self.waits_for: object = None
        self.done = False
        self.error: BaseException | None = None
        self._target = target
        self._go = threading.Semaphore(0)
        self.real = threading.Thread(target=self._run, name=name, daemon=True)
        self.real.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.process.dead:
                self._target()
        except BaseException as error:
            self.error = error
        self.done = True
        self.process.world.baton.release()

    def let(self) -> None:
        """Called by the scheduler: run until this thread waits again."""
        world = self.process.world
        world.running = self
        self._go.release()
        assert world.baton.acquire(timeout=_PATIENCE), f"{self.name} blocks outside of the simulation"
        world.running = None

    def pause(self, wake_at: float | None, waits_for: object = None) -> None:
        """Called by this thread: let others run until `wake_at`, or until somebody wakes it."""
        if self.process.dead:
            raise Killed
        self.wake_at, self.waits_for = wake_at, waits_for
        self.process.world.baton.release()
        self._go.acquire()
        self.waits_for = None
        if self.process.dead:
            raise Killed

    def wake(self) -> None:
        self.wake_at, self.waits_for = self.process.world.now, None

    # streams.clock.Task
    def join(self, timeout: float | None = None) -> None:
        while not self.done:
            self.process.world.here().pause(self.process.world.now)

    def is_alive(self) -> bool:
        return not self.done


class World:
    """One store, one time, any number of processes. `connect`: how a process reaches another store than the
    one in memory."""

    def __init__(self, connect: Callable[[], Bucket] | None = None) -> None:
        self.space = Space()
        self.connect = connect
        self.now = 0.0
        self.baton = threading.Semaphore(0)
        self.running: _Thread | None = None
        self.threads: list[_Thread] = []
        self.processes = 0

    def here(self) -> _Thread:
        assert self.running is not None
        return self.running

    def process(self, plan: Iterable[Fault] = ()) -> Process:
        self.processes += 1
        return Process(self, self.processes, plan)

    def run(self) -> None:
        """Until every process has ended, or is frozen. Raises what a background thread let escape."""
        while True:
            for thread in [t for t in self.threads if t.process.dead and not t.done]:
                thread.let()  # unwinds with Killed
            self._reap()
            ready = [t for t in self.threads if not t.process.frozen and t.wake_at is not None]
            if not any(not t.process.frozen for t in self.threads):
                return
            assert ready, f"everybody waits for ever: {[t.name for t in self.threads]}"
            thread = min(ready, key=lambda t: t.wake_at or 0.0)  # the first in order, among equals
            self.now = max(self.now, thread.wake_at or 0.0)
            self.threads.remove(thread)
            self.threads.append(thread)
            thread.let()
            if thread.done and thread is thread.process.main:
                thread.process.dead = True

    def _reap(self) -> None:
        ended = [t for t in self.threads if t.done]
        self.threads = [t for t in self.threads if not t.done]
        for thread in ended:
            background = thread is not thread.process.main
            if background and thread.error is not None and not isinstance(thread.error, Killed):
                raise AssertionError(f"{thread.name} died") from thread.error


class Process:
    """A process: implements `streams.clock.Clock`, and owns one `FaultyBucket`.

    `at(number, when, act)` has something happen around its number-th request. `error` is what its main
    thread ended with.
    """

    def __init__(self, world: World, number: int, plan: Iterable[Fault]) -> None:
        self.world = world
        self.number = number
        self.dead = False
        self.frozen = False
        self.main: _Thread | None = None
        store = world.connect() if world.connect is not None else MemoryBucket(self, space=world.space)
        self.bucket = FaultyBucket(store, plan, clock=self, hook=self._around)
        self._acts: dict[tuple[int, When], Callable[[], object]] = {}
        self._tokens = 0

    def start(self, target: Callable[[], object]) -> None:
        self.main = self._spawn(lambda: void(target()), f"main-{self.number}")

    @property
    def error(self) -> BaseException | None:
        assert self.main is not None
        return self.main.error

    def at(self, number: int, when: When, act: Callable[[], object]) -> None:
        self._acts[number, when] = act

    def kill(self) -> None:
        self.dead = True

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False

    def _around(self, call: Call, when: When) -> None:
        if self.dead:
            raise Killed
        act = self._acts.get((call.number, when))
        if act is not None:
            act()
        self.world.here().pause(self.world.now)

    def _spawn(self, target: Callable[[], None], name: str) -> _Thread:
        thread = _Thread(self, target, name)
        thread.wake_at = self.world.now
        self.world.threads.append(thread)
        return thread

    # streams.clock.Clock
    def now_ms(self) -> int:
        return START_MS + round(self.world.now * 1000)

    def monotonic(self) -> float:
        return self.world.now

    def sleep(self, seconds: float) -> None:
        self.world.here().pause(self.world.now + seconds)

    def token(self) -> str:
        self._tokens += 1
        return f"{self.number:06x}{self._tokens:018x}"

    def jitter(self) -> float:
        self._tokens += 1
        return self._tokens * 0.6180339887498949 % 1.0

    def waiter(self) -> Waiter:
        return Waiter(self.world)

    def spawn(self, target: Callable[[], None], name: str) -> _Thread:
        return self._spawn(target, f"{name}-{self.number}")

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        results: list[Any] = []
        errors: list[Exception] = []
        for call in calls:
            try:
                results.append(call())
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return results


class Waiter:
    """A condition variable of the simulation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: _Thread | None = None
        self._depth = 0

    def __enter__(self) -> bool:
        me = self._world.here()
        while self._owner not in (None, me):
            me.pause(None, ("lock", self))
        self._owner = me
        self._depth += 1
        return True

    def __exit__(self, *exc: object) -> None:
        if self._owner is not self._world.here():
            return  # killed while it waited: it never got the lock back
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._wake("lock")

    def wait(self, timeout: float | None = None) -> bool:
        me, depth = self._world.here(), self._depth
        self._owner, self._depth = None, 0
        self._wake("lock")
        end = None if timeout is None else self._world.now + timeout
        me.pause(end, ("news", self))
        self.__enter__()
        self._depth = depth
        return end is None or self._world.now < end

    def notify_all(self) -> None:
        self._wake("news")

    def _wake(self, what: str) -> None:
        for thread in self._world.threads:
            if thread.waits_for == (what, self):
                thread.wake()


def void(_: object) -> None:
    """For callables whose result nobody wants."""
