"""Simulated processes: fake time, one strand of work at a time, the same run every time.

A `World` holds the time. A `Process` is a `streams.clock.Clock`; what is spawned on it belongs to it. Each
line of work is a `Strand`, a greenlet: it runs until it sleeps, waits, or asks a store, and then the world
lets the next one run. When all of them wait, time jumps to the first time-out. So hours pass in milliseconds,
and nothing depends on how fast the machine is.

    kill      nothing of the process runs on; its strands unwind with `Killed`, which no engine may catch
    freeze    nothing of it runs until `thaw`; what it asked the store before goes on without it
    jump      its wall clock is set; `monotonic` never goes back

`World.after` has the world itself do something: the store's side of a request is one, so that a request
arrives also when its sender is dead by then.

Strands that could run at the very same time run in the order in which they asked, or as `dice` says, or as
`pick` says, which is how all orders are searched. A real lock held across a wait is not seen by the
simulation: what is simulated takes its locks from `Clock.waiter`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import Any, TypeVar

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:  # pragma: no cover - an installation without it
    raise ImportError("streams.testing.simulation needs greenlets: pip install greenlet") from error

T = TypeVar("T")

START_MS = 1_750_000_000_000
_TICK = 1e-6  # seconds


class Killed(BaseException):
    """SIGKILL: nothing in the engine may catch it and go on."""


class Stuck(AssertionError):
    """Everybody waits for ever, or nobody ever comes to an end."""


class Strand:
    """One line of work of a process. Implements `streams.clock.Task`."""

    __slots__ = ("_body", "_target", "done", "error", "name", "notified", "process", "ticket", "wake_at")

    def __init__(self, process: Process, target: Callable[[], object], name: str) -> None:
        self.process = process
        self.name = name
        self.done = False
        self.error: BaseException | None = None
        self.notified = False
        self.wake_at: float | None = None
        self.ticket = 0  # of the queue's entries for this strand only the last one counts
        self._target = target
        self._body: greenlet | None = None

    def _run(self) -> None:
        try:
            if not self.process.dead:
                self._target()
        except BaseException as error:  # noqa: BLE001 - the world looks at it
            self.error = error
        self.done = True

    def let(self, hub: greenlet) -> None:
        """For the world: run until this strand waits again."""
        if self._body is None:
            self._body = greenlet(self._run, hub)
        self._body.switch()

    def end(self, hub: greenlet) -> None:
        """For the world: unwind. A strand that never ran has nothing to unwind."""
        if self._body is None:
            self.done = True
            return
        while not self.done:
            self._body.parent = hub
            self._body.throw(Killed)

    def pause(self, wake_at: float | None) -> None:
        """Let others run until `wake_at` (world time), or until somebody wakes this one."""
        process = self.process
        if process.dead:
            raise Killed
        process.world.schedule(self, wake_at)
        process.world.hub.switch()
        if process.dead:
            raise Killed

    def wake(self) -> None:
        """Whatever it waits for: it can go on."""
        self.process.world.schedule(self, self.process.world.now)

    def join(self, timeout: float | None = None) -> None:
        world = self.process.world
        end = math.inf if timeout is None else world.now + timeout
        me, waiting = world.here(), self.process.ended
        while not self.done and world.now < end:
            waiting.append(me)
            me.pause(None if timeout is None else end)
            if me in waiting:  # the time-out was first
                waiting.remove(me)

    def is_alive(self) -> bool:
        return not self.done


class World:
    """One time, any number of processes. Use it from one thread; `close` it (or use it with `with`), so that
    what is frozen or waits unwinds.

    `dice` orders what could happen at the very same time; `pick` (which of these strands?) overrules it.
    `limit`: so many steps of strands are Stuck.
    """

    def __init__(
        self,
        dice: random.Random | None = None,
        *,
        pick: Callable[[list[Strand]], int] | None = None,
        parallel: bool = True,
        limit: int = 1_000_000,
    ) -> None:
        self.now = 0.0
        self.hub: greenlet = getcurrent()
        self.running: Strand | None = None
        self.processes: list[Process] = []
        self.steps = 0
        self.parallel = parallel
        self.dying: list[Process] = []
        self._limit = limit
        self._dice = dice
        self._pick = pick
        self._queue: list[tuple[float, float, int, int, Strand | Callable[[], object]]] = []
        self._entries = 0

    def here(self) -> Strand:
        """The strand that runs."""
        if self.running is None:
            raise RuntimeError("this has to be called from inside a simulated process")
        return self.running

    def process(self, name: str | None = None, **options: Any) -> Process:
        """A new process; options as for `Process`."""
        made = Process(self, name or f"p{len(self.processes) + 1}", **options)
        self.processes.append(made)
        return made

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """The world does something by itself: no process has to be alive for it."""
        self._push(self.now + seconds, act, 0)

    def later(self, seconds: float) -> float:
        """The time in so many seconds. A wait that is too short to be seen in the sum would never end."""
        return self.now + max(seconds, _TICK) if seconds > 0 else self.now

    def schedule(self, strand: Strand, wake_at: float | None) -> None:
        """For strands: when it runs next; None: when it is woken."""
        strand.ticket += 1
        strand.wake_at = wake_at
        if wake_at is not None:
            self._push(wake_at, strand, strand.ticket)

    def run(self, until: float = math.inf) -> None:
        """Until every process has ended or is frozen, or until this time. Raises Stuck, and what a background
        strand let escape."""
        self.hub = getcurrent()
        while self._queue and self._queue[0][0] <= until:
            at, _, _, ticket, what = self._next()
            if isinstance(what, Strand):
                if what.ticket != ticket or what.done or what.process.frozen:
                    continue
                self._step(at, what)
            else:
                self.now = max(self.now, at)
                what()
            while self.dying:
                self.dying.pop().unwind()
        if not self._queue:
            waiting = [s.name for p in self.processes if not p.frozen for s in p.strands if not s.done]
            if waiting:
                raise Stuck(f"everybody waits for ever: {waiting}")

    def close(self) -> None:
        """Kill whatever is left."""
        self.hub = getcurrent()
        for process in self.processes:
            process.kill()
        while self.dying:
            self.dying.pop().unwind()
        self._queue.clear()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _push(self, at: float, what: Strand | Callable[[], object], ticket: int) -> None:
        self._entries += 1
        # What the world does by itself comes first: an answer that is due now is there for who looks now.
        among = 0.0 if self._dice is None or not isinstance(what, Strand) else self._dice.random()
        heapq.heappush(self._queue, (at, among, self._entries, ticket, what))

    def _next(self) -> tuple[float, float, int, int, Strand | Callable[[], object]]:
        first = heapq.heappop(self._queue)
        if self._pick is None or not _can_run(first):
            return first
        ready = [first]
        while self._queue and self._queue[0][0] <= max(first[0], self.now):
            other = heapq.heappop(self._queue)
            if _can_run(other):
                ready.append(other)
            elif not isinstance(other[4], Strand):  # what the world does by itself comes first
                for entry in ready:
                    heapq.heappush(self._queue, entry)
                return other
        chosen = ready.pop(self._pick([e[4] for e in ready if isinstance(e[4], Strand)]))
        for entry in ready:
            heapq.heappush(self._queue, entry)
        return chosen

    def _step(self, at: float, strand: Strand) -> None:
        self.steps += 1
        if self.steps > self._limit:
            raise Stuck(f"no end after {self._limit} steps; {strand.name} is at work")
        self.now = max(self.now, at)
        self.running = strand
        strand.let(self.hub)
        self.running = None
        if strand.done:
            strand.process.left(strand)

    def unwinding(self, strand: Strand) -> None:
        """For a process that dies."""
        self.running = strand
        strand.end(self.hub)
        self.running = None


def _can_run(entry: tuple[float, float, int, int, Strand | Callable[[], object]]) -> bool:
    what = entry[4]
    if not isinstance(what, Strand):
        return False
    return what.ticket == entry[3] and not what.done and not what.process.frozen


class Process:
    """A process: implements `streams.clock.Clock`.

    `skew_ms` is how far its wall clock is off, `seed` where its tokens come from, `since` what its monotonic
    clock showed when the world began. `error` is what its main strand ended with.
    """

    def __init__(
        self, world: World, name: str, *, seed: object = 0, skew_ms: int = 0, since: float = 0.0
    ) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.frozen = False
        self.main: Strand | None = None
        self.strands: list[Strand] = []
        self.ended: list[Strand] = []  # strands that wait for another to end
        self._skew_ms = skew_ms
        self._since = since
        self._frozen_at = 0.0
        self._dice = random.Random(f"{seed}/{name}")  # noqa: S311 - a simulation repeats itself on purpose

    def start(self, target: Callable[[], object]) -> None:
        """Its main strand: the process ends when this one does, and takes all others with it."""
        self.main = self._spawn(target, self.name)

    @property
    def error(self) -> BaseException | None:
        assert self.main is not None
        return self.main.error

    @property
    def alive(self) -> bool:
        """Started, and neither killed nor at its end. A frozen one is alive."""
        return self.main is not None and not self.dead

    def kill(self) -> None:
        """It runs no further than its next wait, if it is running at all."""
        if not self.dead:
            self.dead = True
            self.world.dying.append(self)

    def freeze(self) -> None:
        """From its next wait on nothing of it runs."""
        self.frozen, self._frozen_at = True, self.world.now

    def thaw(self, *, clock_ran: bool = True) -> None:
        """Go on. `clock_ran` False: its monotonic clock stood still meanwhile, as a suspended machine's."""
        if not self.frozen:
            return
        self.frozen = False
        slept = self.world.now - self._frozen_at
        shift = 0.0 if clock_ran else slept
        self._since -= shift
        for strand in self.strands:
            if not strand.done and strand.wake_at is not None:
                self.world.schedule(strand, max(self.world.now, strand.wake_at + shift))

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward, or back."""
        self._skew_ms += by_ms

    def left(self, strand: Strand) -> None:
        """For the world: this strand has ended."""
        self.strands.remove(strand)
        for waiting in self.ended:
            waiting.wake()
        self.ended.clear()
        if strand is self.main:
            self.kill()
        elif strand.error is not None and not isinstance(strand.error, Killed):
            raise AssertionError(f"{strand.name} died") from strand.error

    def unwind(self) -> None:
        """For the world: end what is left of a dead process."""
        while self.strands:
            strand = self.strands.pop()
            self.world.unwinding(strand)

    def _spawn(self, target: Callable[[], object], name: str) -> Strand:
        if self.dead:
            raise Killed
        strand = Strand(self, target, name)
        self.strands.append(strand)
        self.world.schedule(strand, self.world.now)
        return strand

    # streams.clock.Clock
    def now_ms(self) -> int:
        return START_MS + self._skew_ms + round(self.world.now * 1000)

    def monotonic(self) -> float:
        return self._since + self.world.now

    def sleep(self, seconds: float) -> None:
        self.world.here().pause(self.world.later(seconds))

    def token(self) -> str:
        return f"{self._dice.getrandbits(96):024x}"

    def jitter(self) -> float:
        return self._dice.random()

    def waiter(self) -> Waiter:
        return Waiter(self.world)

    def spawn(self, target: Callable[[], None], name: str) -> Strand:
        return self._spawn(target, f"{name}@{self.name}")

    def gather(self, calls: list[Callable[[], Any]]) -> list[Any]:
        if len(calls) < 2 or not self.world.parallel:
            return _all([_outcome(call) for call in calls])
        found: list[tuple[Any, Exception | None]] = [(None, None)] * len(calls)

        def run(index: int) -> None:
            found[index] = _outcome(calls[index])

        strands = [self.spawn(lambda at=at: run(at), f"gather-{at}") for at in range(len(calls))]  # type: ignore[misc]
        for strand in strands:
            strand.join()
        return _all(found)


def _outcome(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - raised in order by the one who gathers
        return None, error


def _all(found: list[tuple[Any, Exception | None]]) -> list[Any]:
    for _, error in found:
        if error is not None:
            raise error
    return [result for result, _ in found]


class Waiter:
    """A condition variable of the simulation, re-entrant as `threading.Condition` is."""

    __slots__ = ("_depth", "_entering", "_owner", "_waiting", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: Strand | None = None
        self._depth = 0
        self._entering: list[Strand] = []
        self._waiting: list[Strand] = []

    def __enter__(self) -> bool:
        me = self._world.here()
        while self._owner is not None and self._owner is not me:
            self._entering.append(me)
            me.pause(None)
        self._owner = me
        self._depth += 1
        return True

    def __exit__(self, *exc: object) -> None:
        if self._owner is not self._world.running:
            return  # killed while it waited: it never got the lock back
        self._depth -= 1
        if self._depth == 0:
            self._let_go()

    def wait(self, timeout: float | None = None) -> bool:
        me, depth = self._world.here(), self._depth
        self._let_go()
        self._waiting.append(me)
        me.notified = False
        me.pause(None if timeout is None else self._world.later(timeout))
        if not me.notified:
            self._waiting.remove(me)
        told = me.notified
        self.__enter__()
        self._depth = depth
        return told

    def notify_all(self) -> None:
        for strand in self._waiting:
            strand.notified = True
            strand.wake()
        self._waiting.clear()

    def _let_go(self) -> None:
        self._owner, self._depth = None, 0
        for strand in self._entering:
            strand.wake()
        self._entering.clear()
