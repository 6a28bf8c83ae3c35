"""Workers that claim before they load, killed at any request: nobody is stranded, nobody pays for ever."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from crash_world import Process, World

from snapshotter import Busy, Database, Retryable, Session
from streams.buckets.memory import MemoryBucket

SESSION = "claims/1"
ANSWER = (
    {"type": "start"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "fine"},
    {"type": "text-end", "id": "t"},
    {"type": "finish", "finishReason": "stop"},
)


@dataclass
class Queue:
    """One message in a queue: delivered again until somebody acknowledges it."""

    world: World = field(default_factory=World)
    delivered: int = 0
    calls: int = 0
    acknowledged: bool = False

    def send(self) -> None:
        process = self.world.process()
        process.start(lambda: Database(process.bucket, process).send(SESSION, "hi"))
        self.world.run()

    def deliver(self, kill_at: int | None = None, *, loading: bool = False) -> None:
        """One delivery. The worker dies at its n-th request, or whenever it has loaded the session."""
        self.delivered += 1
        process = self.world.process()
        if kill_at is not None:
            process.at(kill_at, "after" if kill_at % 2 else "before", process.kill)
        process.start(lambda: self.work(process, self.delivered, loading))
        self.world.run()
        if isinstance(process.error, AssertionError):
            raise process.error

    def work(self, process: Process, delivery: int, loading: bool) -> None:
        db = Database(process.bucket, process)
        while True:
            try:
                with db.boot(SESSION, delivery=delivery) as session:
                    if loading:
                        process.kill()
                        process.sleep(0)
                    for turn in session.turns():
                        self.calls += 1
                        with turn:
                            for chunk in ANSWER:
                                turn.write(chunk)
                self.acknowledged = True
                return
            except Busy as busy:
                process.sleep(busy.retry_after)
            except Retryable:
                return

    def found(self) -> Session:
        reader = self.world.process()
        return Database(MemoryBucket(reader, space=self.world.space)).peek(SESSION)


@pytest.mark.parametrize("seed", range(40))
def test_killed_at_any_request(seed: int) -> None:
    dice, queue = random.Random(seed), Queue()
    queue.send()
    deaths = dice.randint(1, 12)
    for _ in range(deaths):
        queue.deliver(dice.randint(1, 14))
    while not queue.acknowledged:
        assert queue.delivered < deaths + 3, "the message is delivered for ever"
        queue.deliver()
    session = queue.found()
    assert (session.resume.kind, session.pending, session.fold.open) == ("none", [], None)
    last = session.fold.last_turn
    assert last is not None
    assert last["status"] in ("completed", "exhausted")
    assert queue.calls <= 5
    if last["status"] == "exhausted":
        assert deaths >= 5
        assert last["reason"] == "interrupted_attempts_exceeded"


@pytest.mark.parametrize("deaths", range(1, 8))
def test_killed_whenever_it_has_loaded(deaths: int) -> None:
    """From the second delivery on each death leaves a claim; the first one left nothing."""
    queue = Queue()
    queue.send()
    for _ in range(deaths):
        queue.deliver(loading=True)
    queue.deliver()
    last = queue.found().fold.last_turn
    assert last is not None
    assert (last["status"], queue.calls) == (("completed", 1) if deaths <= 5 else ("exhausted", 0))
