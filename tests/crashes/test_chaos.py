"""Several workers and senders at once, each with faults, deaths and long sleeps at random: one world per
seed. What must hold at the end is the same as ever. `SNAPSHOTTER_TEST_WORLDS` asks for more of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from crash_checker import check_journal, first_inputs, plain
from crash_worker import SESSION, answer
from crash_world import Killed, Process, When, World

from snapshotter.database import Database
from streams.errors import Retryable, Throttled, Unreachable
from streams.testing.faults import Fault

MESSAGES = 6
WORLDS = int(os.environ.get("SNAPSHOTTER_TEST_WORLDS") or 60)


def faults(dice: random.Random) -> list[Fault]:
    def away() -> Exception:
        return Unreachable("injected")

    def slow_down() -> Exception:
        return Throttled("injected")

    return [
        Fault(
            verb=dice.choice([None, "put", "get", "list"]),
            nth=dice.randint(1, 40),
            when=dice.choice(["before", "after", "late"]),
            times=dice.choice([1, 1, 1, 3, 60]),
            seconds=dice.choice([0.0, 5.0]),
            error=dice.choice([away, slow_down]),
        )
        for _ in range(dice.randint(0, 3))
    ]


class Chaos:
    """One world. `journal` is what the engine acknowledged, `acked` the messages that were sent."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.journal: list[list[Any]] = []
        self.acked: list[str] = []
        self.owing = True
        self.processes: list[Process] = []

    def note(self, *row: Any) -> None:
        self.journal.append(list(row))

    def troubled(self) -> Process:
        """A process with faults, which may be killed or frozen at some call."""
        process = self.world.process(faults(self.dice))
        whens: list[When] = ["before", "after"]
        number, when = self.dice.randint(1, 60), self.dice.choice(whens)
        fate = self.dice.choice(["lives", "dies", "sleeps", "sleeps"])
        if fate == "dies":
            process.at(number, when, process.kill)
        elif fate == "sleeps":
            process.at(number, when, lambda: self.nap(process, self.dice.choice([0.5, 5.0, 40.0, 400.0])))
        return process

    def nap(self, process: Process, seconds: float) -> None:
        """Freeze the process; what it gave up as unanswered may land when it wakes."""
        process.freeze()
        alarm = self.world.process()

        def wake() -> None:
            alarm.sleep(seconds)
            process.bucket.land()
            process.thaw()

        alarm.start(wake)

    def send(self, process: Process, names: list[str]) -> None:
        db = Database(process.bucket, process)
        for name in names:
            process.sleep(self.dice.uniform(0.0, 3.0))
            while True:
                try:
                    db.send(SESSION, {"id": name, "role": "user", "parts": []})
                except Retryable:
                    process.sleep(1.0)
                else:
                    self.acked.append(name)
                    break

    def work(self, process: Process) -> None:
        """A worker that boots again and again, as a queue delivers, until nothing is owed."""
        db = Database(process.bucket, process, durability=self.dice.choice(["stream", "live", "steps"]))
        while self.owing:
            try:
                takeover = self.dice.random() < 0.2
                with db.boot(SESSION, takeover=takeover) as session:
                    for turn in session.turns(wait=self.dice.choice([0.0, 2.0])):
                        number = turn.number
                        with turn:
                            answer(turn, self.note, lambda seconds: process.sleep(seconds * 100))
                        self.note("done", number, turn.status)
            except Retryable:
                pass
            process.sleep(self.dice.uniform(0.1, 5.0))

    def supervise(self) -> None:
        """Replaces those that died, for a while; then a worker without any trouble finishes."""
        process = self.world.process()
        self.processes.append(process)

        def watch() -> None:
            workers: list[Process] = []
            senders: list[Process] = []
            for _ in range(25):
                while sum(not worker.dead for worker in workers) < 3:
                    workers.append(self.start(self.work))
                if all(sender.dead for sender in senders):
                    senders.append(self.start(self.send, self.unsent()))
                process.sleep(5.0)
            self.owing = False
            for other in (*workers, *senders):
                other.bucket.land()
                other.kill()
            last = self.world.process()
            self.processes.append(last)
            last.start(lambda: self.finish(last))

        process.start(watch)

    def start(self, script: Callable[..., None], *args: Any) -> Process:
        process = self.troubled()
        self.processes.append(process)
        process.start(lambda: script(process, *args))
        return process

    def unsent(self) -> list[str]:
        names = [f"m{n}" for n in range(1, MESSAGES + 1)]
        return [name for name in names if name not in self.acked]

    def finish(self, process: Process) -> None:
        self.send(process, self.unsent())
        self.owing = True
        process.sleep(60.0)
        db = Database(process.bucket, process)
        with db.boot(SESSION, stable_timeout=0.0) as session:
            for turn in session.turns():
                with turn:
                    answer(turn, self.note, process.sleep)
        self.owing = False


@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_world_of_trouble(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.supervise()
    chaos.world.run()
    ends = [process.error for process in chaos.processes]
    assert [end for end in ends if end is not None and not isinstance(end, Killed)] == []
    bucket = plain(chaos.world.space)
    sent = list(first_inputs(bucket))
    assert sorted(sent) == sorted({*chaos.acked}) == [f"m{n}" for n in range(1, MESSAGES + 1)]
    check_journal(bucket, SESSION, sent, chaos.journal)
