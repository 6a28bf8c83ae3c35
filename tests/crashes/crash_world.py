"""The simulated world of the crash tests: processes over one bucket, whose faults are a plan.

The scheduler is `streams.testing.simulation`'s, with parallel requests one after another, so that the n-th
request is always the same one. A process can be killed or frozen around its n-th request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket, Space
from streams.testing import simulation
from streams.testing.faults import Call, Fault, FaultyBucket
from streams.testing.simulation import START_MS, Killed

__all__ = ["START_MS", "Killed", "Process", "When", "World"]

When = Literal["before", "after"]


class Process(simulation.Process):
    """A process that owns one `FaultyBucket`. `at(number, when, act)` has something happen around its
    number-th request."""

    def __init__(self, world: World, number: int, plan: Iterable[Fault]) -> None:
        super().__init__(world, f"p{number}", seed=number)
        store = world.connect() if world.connect is not None else MemoryBucket(self, space=world.space)
        self.bucket = FaultyBucket(store, plan, clock=self, hook=self._around)
        self._acts: dict[tuple[int, When], Callable[[], object]] = {}

    def at(self, number: int, when: When, act: Callable[[], object]) -> None:
        self._acts[number, when] = act

    def _around(self, call: Call, when: When) -> None:
        if self.dead:
            raise Killed
        act = self._acts.get((call.number, when))
        if act is not None:
            act()
        self.sleep(0.0)


class World(simulation.World):
    """One store, one time, any number of processes. `connect`: how a process reaches another store than the
    one in memory."""

    def __init__(self, connect: Callable[[], Bucket] | None = None) -> None:
        super().__init__(parallel=False)
        self.space = Space()
        self.connect = connect

    def process(self, plan: Iterable[Fault] = ()) -> Process:  # type: ignore[override]
        made = Process(self, len(self.processes) + 1, plan)
        self.processes.append(made)
        return made
