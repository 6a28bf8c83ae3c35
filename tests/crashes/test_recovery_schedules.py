"""A turn interrupted 1 to 12 times, in every way: it ends completed, or exhausted with the right reason.

The schedule says how each attempt ends (killed, by an exception, by a stall, by a signal) and whether it got
anywhere first. A small account of what the rules say is kept beside the engine and knows nothing of it. In
some runs the store fails while the turn is given up, once or twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from crash_world import Process, World

from snapshotter import Busy, ChatRecovery, Database, RecoveryContext, Retryable, Turn
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Fault

SESSION = "schedule/1"
FATAL = ("kill", "raise", "stall")


class ModelFailed(Exception):
    """The model's provider fails."""


@dataclass(frozen=True)
class End:
    """How one attempt ends. `progress`: after a tool's result was durable; else before anything streamed."""

    how: str
    progress: bool


@dataclass
class Account:
    """What the rules say, from the schedule alone. Silence is counted for stalls: they last 300 s each."""

    interruptions: int = 0
    strikes: int = 0
    idle: int = 0
    calls: int = 0

    def attempt(self, end: End) -> None:
        self.calls += 1
        self.interruptions += end.how in FATAL
        self.strikes = 0 if end.progress else self.strikes + 1
        if end.progress:
            self.idle = 0
        self.idle += 301 if end.how == "stall" else 0

    def reason(self) -> str | None:
        if self.interruptions >= 5:
            return "interrupted_attempts_exceeded"
        if self.interruptions >= 2 and self.idle > 300:
            return "no_progress_timeout"
        return "max_attempts_exceeded" if self.strikes > 10 else None


@dataclass
class Run:
    """One schedule, played out."""

    ends: list[End]
    faults_at_the_end: int = 0
    world: World = field(default_factory=World)
    calls: int = 0
    charged: list[Any] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def database(self, process: Process) -> Database:
        def exhausted(context: RecoveryContext) -> None:
            self.told.append(context.incident.id)
            if len(self.told) <= self.faults_at_the_end:
                process.bucket.plan.append(Fault("put", key="out/", times=0))

        return Database(process.bucket, process, recovery=ChatRecovery(on_exhausted=exhausted))

    def play(self) -> None:
        sender = self.world.process()
        sender.start(lambda: Database(sender.bucket, sender).send(SESSION, "hi"))
        self.world.run()
        for _ in range(60):
            process = self.world.process()
            process.start(lambda process=process: self.live(process))
            self.world.run()
            if isinstance(process.error, AssertionError):
                raise process.error
            if self.last_turn() is not None:
                return
        raise AssertionError("nobody finishes the turn")

    def live(self, process: Process) -> None:
        """One worker: comes back when it is told to, leaves by whatever happens."""
        db = self.database(process)
        while True:
            try:
                with db.boot(SESSION) as session:
                    for turn in session.turns():
                        with turn:
                            for _ in turn.tee(self.model(turn, process)):
                                pass
                return
            except Busy as busy:
                process.sleep(busy.retry_after)
            except (Retryable, ModelFailed):
                return

    def model(self, turn: Turn, process: Process) -> Iterator[dict[str, Any]]:
        end = self.ends[self.calls] if self.calls < len(self.ends) else None
        self.calls += 1
        shown = [p for m in turn.messages for p in m["parts"] if p.get("toolCallId")]
        settled = [p["output"] for p in shown if p["state"] == "output-available"]
        assert settled == self.charged, "the model sees each finished charge once"
        yield {"type": "start"}
        if end is not None and not end.progress:
            self.trouble(end.how, turn, process)
        yield {"type": "start-step"}
        call = f"c{self.calls}"
        yield {"type": "tool-input-available", "toolCallId": call, "toolName": "charge", "input": {}}
        yield {"type": "tool-output-available", "toolCallId": call, "output": self.calls}
        self.charged.append(self.calls)
        yield {"type": "finish-step"}
        if end is not None:
            self.trouble(end.how, turn, process)
        yield {"type": "finish", "finishReason": "stop"}

    @staticmethod
    def trouble(how: str, turn: Turn, process: Process) -> None:
        if how == "kill":
            process.kill()
            process.sleep(0)
        elif how == "stall":
            process.sleep(400)  # the watchdog ends it
        elif how == "raise":
            raise ModelFailed
        else:
            turn.release(how)
            raise ModelFailed

    def last_turn(self) -> dict[str, Any] | None:
        reader = self.world.process()
        found = Database(MemoryBucket(reader, space=self.world.space)).peek(SESSION)
        return found.fold.last_turn if found.fold.open is None else None


def expected(ends: list[End]) -> tuple[str, str | None, int]:
    account = Account()
    for end in ends:
        account.attempt(end)
        reason = account.reason()
        if reason is not None:
            return "exhausted", reason, account.calls
    return "completed", None, account.calls + 1


def check(run: Run) -> None:
    run.play()
    status, reason, calls = expected(run.ends)
    last = run.last_turn()
    assert last is not None
    assert (last["status"], last.get("reason"), run.calls) == (status, reason, calls)
    assert (len(run.told) > run.faults_at_the_end) == (status == "exhausted")
    assert len(set(run.told)) <= 1
    reader = run.world.process()
    history = Database(MemoryBucket(reader, space=run.world.space)).history(SESSION)
    charges = [p for m in history for p in m["parts"] if p.get("toolCallId")]
    assert [p["output"] for p in charges] == run.charged, "every charge that was made is shown, once"


@pytest.mark.parametrize("seed", range(40))
def test_a_turn_interrupted_in_many_ways_ends_well(seed: int) -> None:
    dice = random.Random(seed)
    kinds = dice.choice(
        [("kill",), ("raise", "kill"), ("signal", "cancelled", "deadline"), (*FATAL, "signal")]
    )
    ends = [End(dice.choice(kinds), dice.random() < 0.5) for _ in range(dice.randint(1, 12))]
    check(Run(ends, faults_at_the_end=dice.choice([0, 0, 1, 2]) if expected(ends)[0] == "exhausted" else 0))


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize("how", ["kill", "raise", "stall", "signal", "cancelled", "deadline"])
@pytest.mark.parametrize("times", [1, 4, 5, 10, 11, 12])
def test_the_same_end_again_and_again(how: str, progress: bool, times: int) -> None:
    check(Run([End(how, progress)] * times))
