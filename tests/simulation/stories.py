"""What happens in the small worlds. Each story sets up its processes; the schedule decides the rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agent import Answering, Worker
from plan import Deed, Fate
from smallworld import SESSION, SmallWorld

from snapshotter.database import Database
from snapshotter.maintenance.compacting import compact
from snapshotter.maintenance.rules import Rules
from snapshotter.session import Session
from snapshotter.turn import Turn

Told = Callable[[SmallWorld], object]


class Zero(random.Random):
    """Dice that always show 0."""

    def random(self) -> float:
        return 0.0

    def getrandbits(self, k: int) -> int:
        return 0


class Steady(Worker):
    """A worker without whims: its model takes no time and makes every text durable."""

    pause = 0.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._dice = Zero()

    def _suffer(self) -> None:
        super()._suffer()
        if self.pause:
            self.db.clock.sleep(self.pause)


class Talking(Steady):
    """It takes a second for each chunk."""

    pause = 1.0


class Slow(Steady):
    """Its tool takes two minutes."""

    def _run_tool(self, call: str) -> Any:
        self.db.clock.sleep(120.0)
        return super()._run_tool(call)


class Lingering(Steady):
    """Its stream has ended, and it does not leave the turn's block yet."""

    def _stream(self, turn: Turn, answering: Answering, inputs: list[int]) -> None:
        super()._stream(turn, answering, inputs)
        turn.flush()
        self.db.clock.sleep(1.0)


class Doomed(Steady):
    """Its model fails when it has said its text."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fate = Fate("raise", 8)


class OneTurn(Steady):
    """It answers one message and goes."""

    def _turns(self, session: Session, wait: float) -> Iterator[Turn]:
        return islice(super()._turns(session, wait), 1)


def say(small: SmallWorld, db: Database, name: str, token: str, flavour: str = "say 2") -> None:
    """Send a message, and know that it arrived."""
    small.act(db, name, Deed(0.0, "say", SESSION, token, f"{token} {flavour}"))


def twice(small: SmallWorld) -> None:
    """A sender and two inputs; the first is delivered to two workers at once, the second to a third one.
    Who finds the session busy goes at once: nobody may be left without an answer."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1")
        small.deliver("q1", kind=Steady, stable_timeout=0.0)
        small.deliver("q1", kind=Steady, stable_timeout=0.0)
        say(small, db, name, "q2")
        small.deliver("q2", kind=Steady, stable_timeout=0.0, redeliveries=0)

    small.client("sender", send)


def one_each(small: SmallWorld) -> None:
    """Two senders with an input and a worker each."""
    for token in ("q1", "q2"):

        def send(db: Database, name: str, token: str = token) -> None:
            say(small, db, name, token)
            small.deliver(token, kind=Steady)

        small.client(f"sender-{token}", send)


def tool(small: SmallWorld) -> None:
    """A worker that runs a tool, and a queue that delivers again."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "tool 2")
        small.deliver("q1", kind=Steady, redeliveries=2)

    small.client("sender", send)


def slow(small: SmallWorld) -> None:
    """A tool that takes longer than a lease, while the queue delivers again, and once more."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "tool 2")
        small.deliver("q1", kind=Slow)
        small.world.after(50.0, lambda: small.deliver("q1", kind=Slow, redeliveries=0))

    small.client("sender", send)


def lingering(small: SmallWorld) -> None:
    """The stream ends, and the turn only later. A second message waits."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1")
        small.deliver("q1", kind=Lingering)
        say(small, db, name, "q2")
        small.deliver("q2", kind=Steady)

    small.client("sender", send)


def stopped(small: SmallWorld) -> None:
    """Somebody stops an answer under way, after three seconds."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "tool 9")
        small.deliver("q1", kind=Talking)

    def stop(db: Database, name: str) -> None:
        db.clock.sleep(3.2)
        small.act(db, name, Deed(0.0, "stop", SESSION, "stop-q1", target="q1"))

    small.client("sender", send)
    small.client("stopper", stop)


def again(small: SmallWorld) -> None:
    """A client sends the same message again, two clients at once and one much later."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1")
        small.deliver("q1", kind=Steady)

    def late(db: Database, name: str) -> None:
        db.clock.sleep(200.0)
        say(small, db, name, "q1")
        small.deliver("q1", kind=Steady)

    small.client("sender", send)
    small.client("double", send)
    small.client("late", late)


def edited(small: SmallWorld) -> None:
    """Two messages, and an edit of the first while the second is owed, which comes first. A worker each."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1")
        small.deliver("q1", kind=OneTurn)
        db.clock.sleep(10.0)
        say(small, db, name, "q2")
        small.act(db, name, Deed(0.0, "edit", SESSION, "q3", "q3 say 2", target="q1"))
        small.deliver("q3", kind=OneTurn)
        db.clock.sleep(10.0)
        small.deliver("q2", kind=Steady)

    small.client("sender", send)


def shown(small: SmallWorld) -> None:
    """Two messages are sent and answered while somebody looks."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1")
        say(small, db, name, "q2")
        small.deliver("q1", kind=Steady)

    small.client("sender", send)
    small.client("reader", lambda db, name: small.look(db, name, SESSION))


def doomed(small: SmallWorld) -> None:
    """Every attempt at this message fails, and the queue is impatient."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1")
        small.deliver("q1", kind=Doomed, redeliveries=30, pause=20.0, stable_timeout=0.0)

    small.client("sender", send)


def deadly(small: SmallWorld) -> None:
    """To load this message kills, for as often as the queue delivers it."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1")
        small.deadly = "in/"
        small.deliver("q1", kind=Steady, redeliveries=8, pause=400.0)

    small.client("sender", send)


def followed(small: SmallWorld) -> None:
    """Somebody follows the session while it is answered."""

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "say 4")
        small.deliver("q1", kind=Steady)

    def follow(db: Database, name: str) -> None:
        at = 0
        for event in db.follow(SESSION, after={"out": 0, "in": 1}, timeout=3.0):
            at += 1
            if event.id != at:
                small.blame("followed", f"record {event.id} comes where {at} is due")
                return

    small.client("sender", send)
    small.client("follower", follow)


def tidied(small: SmallWorld) -> None:
    """Somebody tidies up, and whoever slept for three hours finds a place free that was taken before."""
    small.tidied, small.sleep = True, 3 * 3600.0

    def send(db: Database, name: str) -> None:
        say(small, db, name, "q1", "tool 2")
        small.deliver("q1", kind=Steady)
        db.clock.sleep(200.0)
        say(small, db, name, "q2")
        small.deliver("q2", kind=Steady)

    def tidy(db: Database, _: str) -> None:
        db.clock.sleep(2 * 3600.0)
        compact(db, SESSION, rules=Rules(minimum_age=3600.0))

    small.client("sender", send)
    small.client("keeper", tidy)


@dataclass(frozen=True)
class Story:
    """`faults` and `most` bound the search: so many faults, deviations of so high a cost. `limit`: schedules
    at most in a short run, `full` the bound of a long one. `calm`: no turn is paid twice."""

    name: str
    told: Told
    faults: int
    most: int
    full: int
    limit: int | None = None
    calm: bool = False


STORIES = [
    Story("twice", twice, 0, 1, 3, calm=True),
    Story("twice", twice, 1, 1, 2, limit=700),
    Story("one each", one_each, 0, 1, 3, calm=True),
    Story("one each", one_each, 1, 1, 2, limit=700),
    Story("tool", tool, 1, 1, 2),
    Story("slow", slow, 0, 1, 3, calm=True),
    Story("lingering", lingering, 1, 1, 2, limit=400),
    Story("stopped", stopped, 0, 1, 2, calm=True),
    Story("stopped", stopped, 1, 1, 2),
    Story("again", again, 0, 1, 3, calm=True),
    Story("edited", edited, 0, 1, 3, calm=True),
    Story("edited", edited, 1, 1, 2, limit=300),
    Story("shown", shown, 0, 2, 3, calm=True),
    Story("tidied", tidied, 1, 1, 2, limit=400),
    Story("doomed", doomed, 0, 0, 1),
    Story("deadly", deadly, 0, 0, 1),
    Story("followed", followed, 0, 1, 3, calm=True),
]
