"""The director of a drill: hands out work as a queue does, and makes trouble by a seeded schedule.

*Work.* Some sessions live at a time; clients send to them, and each receipt is delivered to a worker until
one has answered `done`: again after a failure, at times twice at once, and again when a worker died (then its
successor is told that the other is dead) or went silent (then it is told so, or has to find out).

*Trouble*, in an order that the seed gives:

    kill      a busy worker, or a client, is killed
    zombie    a busy worker is stopped, its message goes to another, and it wakes when that one is at work, or
              done
    pause     a process is stopped for a moment; nobody notices
    restart   the server is killed, and started again          stall   the server is stopped for some seconds
    full      the disk has no room for some seconds

At the end everything works, everybody wakes, and the queue is emptied. What then has not been answered is
nobody's any more, which the checker finds in the stored bytes.
"""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import client
import worker
from drill_actor import Actor, Job
from drill_journal import Journal
from drill_place import Place, ServedPlace

WORKERS, CLIENTS, LIVE_SESSIONS = 5, 2, 8
RETRYABLE = ("Busy", "Fenced", "Unknown", "Unreachable", "Throttled")
ZOMBIE_SECONDS = 30.0
CALM_SECONDS = 240.0  # real ones, within which a calm world has to answer all that is owed


@dataclass(eq=False)
class Task:
    """A receipt in the queue. `held` are the workers that were handed it and have not answered."""

    receipt: Job
    delivery: int = 0
    due: float = 0.0
    takeover: bool = False
    done: bool = False
    held: set[Actor] = field(default_factory=set)


@dataclass(eq=False)
class Zombie:
    """A stopped worker. It wakes `pause` seconds after another one was handed its session, or when its own
    task is done; and in any case in time, should its successor not get on."""

    actor: Actor
    task: Task
    since: float
    after_done: bool
    pause: float
    handed: float | None = None


@dataclass(eq=False)
class Chat:
    """A session that clients send to, one message at a time."""

    id: str
    left: int
    busy: bool = False


class Director:
    """Runs one drill in `place`. `trouble` is how much of each kind; `told()` hears of each trouble made."""

    def __init__(
        self, place: Place, about: Job, trouble: dict[str, int], seed: int, told: Callable[[], None]
    ) -> None:
        self._place, self._about, self._told = place, about, told
        self._journal = Journal(Path(about["journals"]), "director")
        self._dice = Random(seed)
        self._schedule = [kind for kind, count in sorted(trouble.items()) for _ in range(count)]
        self._dice.shuffle(self._schedule)
        self._next = time.monotonic() + 0.5
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._tasks: dict[tuple[str, int], Task] = {}
        self._sends: list[tuple[float, Job]] = []
        self._chats: list[Chat] = []
        self._zombies: list[Zombie] = []
        self._workers: list[Actor] = []
        self._clients: list[Actor] = []
        self._harmed = self._hopeless = False
        self._mended: float | None = None
        self.sessions: list[str] = []
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    # --- the run ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """The whole drill. What the director itself finds wrong is in `wrong` then."""
        try:
            while (self._schedule or self._zombies) and not self._hopeless:
                self._turn(trouble=True)
            self._calm()
            end = time.monotonic() + CALM_SECONDS
            while self._owing() and time.monotonic() < end and not self._hopeless:
                self._turn(trouble=False)
            if self._owing() and not self._hopeless:
                owed = [task.receipt for task in self._tasks.values() if not task.done]
                self.wrong.append(f"stranded: still owed after {CALM_SECONDS:.0f} s of calm: {owed}")
            for session in self.sessions:
                self._sends.append((0.0, {"session": session}))
            while (self._sends or any(actor.job for actor in self._clients)) and not self._hopeless:
                self._turn(trouble=False)
        finally:
            for actor in (*self._workers, *self._clients):
                actor.bury()

    def _turn(self, *, trouble: bool) -> None:
        now = time.monotonic()
        for due, act in [each for each in self._later if each[0] <= now]:
            self._later.remove((due, act))
            act()
        self._staff()
        self._wake(now)
        if trouble:
            self._chat()
            if self._schedule and now >= self._next:
                self._trouble(now)
        self._hand_out(now)
        heard = [actor for actor in (*self._workers, *self._clients) if actor.job or not actor.ready]
        for actor in select.select(heard, [], [], 0.01)[0]:
            self._hear(actor)

    def _staff(self) -> None:
        """Replace the dead and the undead; let go of those that are too many when such a one is back."""
        undead = {zombie.actor for zombie in self._zombies}
        for crew, count, script in (
            (self._workers, WORKERS, worker.prepare),
            (self._clients, CLIENTS, client.prepare),
        ):
            while sum(actor not in undead for actor in crew) < count:
                self.counts[script.__module__] += 1
                who = f"{script.__module__}-{self.counts[script.__module__]}"
                crew.append(Actor(who, partial(script, self._about, who, self._dice.getrandbits(32))))
            idle = [actor for actor in crew if actor not in undead and not actor.job and not actor.stopped]
            for actor in idle[: len(crew) - len(undead & set(crew)) - count]:
                crew.remove(actor)
                actor.bury()

    def _calm(self) -> None:
        for _, act in sorted(self._later, key=lambda each: each[0]):
            act()
        self._later.clear()
        for actor in (*self._workers, *self._clients):
            actor.go_on()
        self._place.calm()

    def _owing(self) -> bool:
        return (
            bool(self._sends)
            or any(not task.done for task in self._tasks.values())
            or any(actor.job for actor in (*self._workers, *self._clients))
        )

    # --- work -------------------------------------------------------------------------------------------

    def _chat(self) -> None:
        """Keep the clients busy, as long as the workers keep up with them."""
        self._chats = [chat for chat in self._chats if chat.left]
        while len(self._chats) < LIVE_SESSIONS:
            self.sessions.append(f"drill-{len(self.sessions) + 1}")
            self._chats.append(Chat(self.sessions[-1], self._dice.randint(2, 9)))
        owed = sum(not task.done for task in self._tasks.values())
        free = [chat for chat in self._chats if not chat.busy]
        if free and owed < LIVE_SESSIONS and len(self._sends) < CLIENTS:
            chat = self._dice.choice(free)
            chat.busy, chat.left = True, chat.left - 1
            token = f"tok-{self._dice.getrandbits(64):016x}"
            keyed = self._dice.random() < 0.5
            self._sends.append((0.0, {"session": chat.id, "token": token, "keyed": keyed}))

    def _hand_out(self, now: float) -> None:
        idle = [actor for actor in self._clients if actor.ready and not actor.job and not actor.stopped]
        for due, job in [each for each in self._sends if each[0] <= now][: len(idle)]:
            self._sends.remove((due, job))
            idle.pop().begin(job)
        idle = [actor for actor in self._workers if actor.ready and not actor.job and not actor.stopped]
        owed = [task for task in self._tasks.values() if not task.done]
        due_now = [task for task in owed if task.due <= now and not task.held]
        for task in due_now:
            for actor in idle[: 1 + (self._dice.random() < 0.1)]:  # now and then twice at once
                idle.remove(actor)
                self._deliver(task, actor)

    def _deliver(self, task: Task, actor: Actor) -> None:
        task.delivery += 1
        # A platform that counts deliveries says so, others do not.
        delivery = task.delivery if self._dice.random() < 0.5 else 1
        actor.begin({"receipt": task.receipt, "takeover": task.takeover, "delivery": delivery})
        task.held.add(actor)
        task.takeover = False
        for zombie in self._zombies:
            if zombie.task.receipt["session"] == task.receipt["session"] and zombie.handed is None:
                zombie.handed = time.monotonic()

    def _hear(self, actor: Actor) -> None:
        answer = actor.answer()
        if answer is None:
            if actor.dead:
                self.wrong.append(f"crash: {actor.who} ended by itself, at {actor.job}")
                self._remove(actor)
            return
        job, actor.job = actor.job, None
        assert job is not None
        # What nobody meant to raise is in the journal, and comes again and again.
        self._hopeless |= answer.get("later") not in (None, *RETRYABLE)
        if actor in self._clients:
            self._sent(job, answer)
            return
        task = self._task_of(job)
        task.held.discard(actor)
        if "done" in answer:
            task.done = True
            self._harmed &= self._mended is None
        else:
            task.due = time.monotonic() + self._dice.uniform(0.05, 0.5)

    def _sent(self, job: Job, answer: Job) -> None:
        if "later" in answer:
            self._sends.append((time.monotonic() + self._dice.uniform(0.05, 0.5), job))
        elif "receipt" in answer:
            self._chat_of(job["session"]).busy = False
            receipt = answer["receipt"]
            self._tasks.setdefault((receipt["session"], receipt["id"]), Task(receipt))

    def _task_of(self, job: Job) -> Task:
        return self._tasks[job["receipt"]["session"], job["receipt"]["id"]]

    def _chat_of(self, session: str) -> Chat:
        return next((chat for chat in self._chats if chat.id == session), Chat(session, 0))

    # --- trouble ----------------------------------------------------------------------------------------

    def _trouble(self, now: float) -> None:
        """The next trouble of the schedule, if the world is ready for it."""
        kind = self._schedule[-1]
        if kind in ("restart", "stall", "full") and self._harmed:
            self._schedule.insert(0, self._schedule.pop())  # one at a time
            if self._mended is not None and now > self._mended + CALM_SECONDS:
                self.wrong.append("the store does not work any more, long after it was mended")
                self._hopeless = True
            return
        if getattr(self, f"_{kind}")(now):
            self._schedule.pop()
            self.counts[kind] += 1
            self._told()
            # A world whose store does not work has nobody worth killing.
            self._next = now + self._dice.expovariate(0.5 if self._harmed else 4.0)

    def _kill(self, now: float) -> bool:
        crew = self._clients if self._dice.random() < 0.15 else self._workers
        busy = [actor for actor in crew if actor.job and (not actor.stopped or crew is self._workers)]
        if not busy:
            return False
        self._remove(self._dice.choice(busy))
        return True

    def _remove(self, actor: Actor) -> None:
        """An actor's end, and what becomes of its job."""
        actor.bury()
        job = actor.job
        if job is not None:
            session = job["session"] if actor in self._clients else job["receipt"]["session"]
            self._journal.note("left", session, how="killed", who=actor.who)
        if actor in self._clients:
            self._clients.remove(actor)
            if job is not None:
                self._sends.append((0.0, job))
            return
        self._workers.remove(actor)
        for zombie in [each for each in self._zombies if each.actor is actor]:
            self._zombies.remove(zombie)
            self._again("zombie")
        if job is not None:
            task = self._task_of(job)
            task.held.discard(actor)
            others = any(
                other.job and other.job["receipt"]["session"] == job["receipt"]["session"]
                for other in self._workers
            )
            task.takeover = not others and self._dice.random() < 0.8

    def _zombie(self, now: float) -> bool:
        at_work = [
            actor
            for actor in self._workers
            if actor.job and not actor.stopped and not self._task_of(actor.job).done
        ]
        if not at_work or len(self._zombies) >= WORKERS:
            return False
        actor = self._dice.choice(at_work)
        assert actor.job is not None
        actor.stop()
        task = self._task_of(actor.job)
        task.held.discard(actor)
        task.takeover = self._dice.random() < 0.6
        after_done, pause = self._dice.random() < 0.5, self._dice.uniform(0.0, 0.4)
        self._zombies.append(Zombie(actor, task, now, after_done, pause))
        return True

    def _wake(self, now: float) -> None:
        """Let those zombies go on whose session is in other hands. One that nobody came after was none."""
        for zombie in list(self._zombies):
            at_work = zombie.handed is not None and now >= zombie.handed + zombie.pause
            amid = at_work and not zombie.after_done
            if amid or zombie.task.done or now > zombie.since + ZOMBIE_SECONDS:
                self._zombies.remove(zombie)
                zombie.actor.go_on()
                if zombie.handed is None:
                    self._again("zombie")

    def _again(self, kind: str) -> None:
        """It came to nothing, so it is made up for."""
        self._schedule.insert(0, kind)
        self.counts[kind] -= 1

    def _pause(self, now: float) -> bool:
        running = [actor for actor in (*self._workers, *self._clients) if actor.job and not actor.stopped]
        if not running:
            return False
        actor = self._dice.choice(running)
        actor.stop()
        self._later.append((now + self._dice.uniform(0.05, 0.5), actor.go_on))
        return True

    def _full(self, now: float) -> bool:
        self._place.fill()
        return self._harm(now, self._dice.choice([0.5, 2.0, 9.0]), self._place.free)

    def _stall(self, now: float) -> bool:
        assert isinstance(self._place, ServedPlace)
        self._place.stall()
        return self._harm(now, self._dice.choice([1.0, 4.0, 8.0]), self._place.go_on)

    def _restart(self, now: float) -> bool:
        assert isinstance(self._place, ServedPlace)
        self._place.kill()
        return self._harm(now, self._dice.uniform(0.0, 2.0), self._place.revive)

    def _harm(self, now: float, seconds: float, mend: Callable[[], Any]) -> bool:
        def mended() -> None:
            mend()
            self._mended = time.monotonic()

        self._harmed, self._mended = True, None
        self._later.append((now + seconds, mended))
        return True
