"""A deterministic simulation of processes and of the store between them; one seed decides everything.

    dice = random.Random(seed)
    with World(dice) as world:
        store = SimStore(world, Weather(lost=0.05, late=0.02), seed=seed)
        process = world.process("worker", seed=seed, skew_ms=-90_000)
        process.start(lambda: work(Database(store.bucket(process), process)))
        world.run()

The engine runs over it unchanged: a process is its clock, a `SimBucket` its bucket. `scheduler` has the
processes, `store` the weather. Needs the package `greenlet` (in the extra `test`).
"""

from streams.testing.simulation.scheduler import START_MS, Killed, Process, Strand, Stuck, Waiter, World
from streams.testing.simulation.store import FAULTS, SimBucket, SimStore, Weather

__all__ = [
    "FAULTS",
    "START_MS",
    "Killed",
    "Process",
    "SimBucket",
    "SimStore",
    "Strand",
    "Stuck",
    "Waiter",
    "Weather",
    "World",
]
