"""One seed, one world: clients, workers, a queue and a store, run to its end and judged.

    report = run_seed(42)                    raises nothing: look at report.violations
    report = run_seed(42, patches=[ctx])     inside these context managers (a broken engine, say)

    python tests/simulation/run.py --from 42 --seeds 1       the same from a shell; prints what happened

The engine runs unchanged over a simulated bucket and clock. `plan` says what is drawn, `agent` what a worker
does, `checker` what must hold. A world has two halves. First all deeds of the plan happen, in their weather;
then the weather clears, whoever is frozen wakes up, what is late lands, and a last worker, with a client that
answers whatever still waits, goes on until nothing is owed. Then everything is judged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

from agent import Worker
from cast import Cast
from checker import Checker, Violation
from encrypted import EncryptedStore, is_encrypted
from keepers import KINDS, Keeper
from narrow import narrow
from plan import Deed, Plan, plan_of
from upkeeping import kept

from snapshotter.database import Database
from streams.testing.simulation import Process, SimBucket, SimStore, Stuck, World

Item = tuple[Any, ...]
"""What can be left out: ("deed", index), ("fate", index), ("fault", process, request, kind)."""

SETTLED = 1000.0
"""Seconds after the weather clears when the last worker comes: whatever was late has landed by then."""
REDELIVERIES = 3
UNSENT = 20.0
"""Seconds for which a delivery waits for its message to be sent."""


@dataclass
class Report:
    """What one world came to. `items` are all that could have been left out."""

    seed: int
    profile: str
    violations: list[Violation] = field(default_factory=list)
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    items: list[Item] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)
    digest: str = ""


def run_seed(
    seed: int,
    *,
    patches: Iterable[AbstractContextManager[Any]] = (),
    without: frozenset[Item] = frozenset(),
    trace: bool = False,
) -> Report:
    """Run the world of this seed. `without` leaves things out, `trace` keeps the journal and a digest of
    every request and every stored byte."""
    logging.getLogger("snapshotter").setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.enter_context(narrow())
        return Simulation(kept(plan_of(seed)), without, trace).run()


class Simulation(Cast):
    """A plan at work."""

    def __init__(self, plan: Plan, without: frozenset[Item], trace: bool) -> None:
        self.plan = plan
        self.without = without
        self.trace = trace
        self.world = World(random.Random(f"order {plan.seed}"), limit=60_000)
        self.rows: list[tuple[Any, ...]] = []
        kind = EncryptedStore if is_encrypted(plan.seed) else SimStore
        self.store: SimStore = kind(
            self.world,
            plan.weather,
            seed=plan.seed,
            without=frozenset((item[1], item[2]) for item in without if item[0] == "fault"),
            trusted=plan.trusted,
            copies=plan.seed % 2 == 0,
            trace=self.rows if trace else None,
        )
        allowed = {"Unsupported"} if plan.weather.unfenced else set[str]()
        self.checker = Checker(
            damage=plan.damage,
            calm=plan.profile == "calm",
            allowed=allowed,
            jumps=any(deed.kind == "jump" for deed in plan.deeds),
            tidied=plan.kept,
        )
        self.report = Report(plan.seed, plan.profile)
        self.receipts: dict[str, int] = {}
        self.over = False

    # -- the run ------------------------------------------------------------------------------------------

    def run(self) -> Report:
        for index, deed in enumerate(self.plan.deeds):
            if ("deed", index) not in self.without:
                self.report.items.append(("deed", index))
                self.world.after(deed.at, lambda i=index, d=deed: self._do(i, d))
        try:
            with self.world:
                self.world.after(self.plan.end + 60.0, self._clear)
                self.world.run()
        except Stuck as stuck:
            self.checker.violations.append(Violation("stuck", str(stuck)))
        self.checker.rotten.update(self.store.rotten)
        objects = self.store.objects()
        self.checker.judge(objects)
        return self._reported(objects)

    def _reported(self, objects: dict[str, bytes]) -> Report:
        report = self.report
        report.violations = self.checker.violations
        report.calls, report.faults = self.store.calls, self.store.counts()
        report.seen = self.checker.seen
        report.items += [("fault", *struck) for struck in self.store.struck]
        if self.trace:
            told = json.dumps([self.rows, report.journal], default=repr).encode()
            stored = b"".join(key.encode() + b"\0" + data for key, data in objects.items())
            report.digest = hashlib.sha256(told + stored).hexdigest()
        return report

    def tell(self, who: str, what: str, **fields: Any) -> None:
        """An event into the journal, and to the judge."""
        event = {"t": self.world.now, "who": who, "what": what, **fields}
        if self.trace:
            self.report.journal.append(event)
        self.checker.see(event)

    def process(self, name: str, **options: Any) -> tuple[Process, SimBucket]:
        process = self.world.process(name, seed=self.plan.seed, **options)
        return process, self.store.bucket(process)

    def _clear(self) -> None:
        """The weather clears, zombies wake, and after a while the last worker comes."""
        self.over = True
        self.store.weather = self.store.weather.clear()
        for process in self.world.processes:
            if process.frozen:
                self.report.fates["zombie"] += 1
                process.thaw()
        self.world.after(SETTLED, self._close)

    def _close(self) -> None:
        process, bucket = self.process("last")
        db = Database(bucket, process, sizes=self.plan.sizes)
        forks = {deed.target for deed in self.plan.deeds if deed.kind == "fork"}
        sessions = sorted({deed.session for deed in self.plan.deeds if deed.session} | forks)
        pace, whole = self.plan.pace, not self.plan.weather.unfenced and not self.store.rotten
        process.start(lambda: [self.settle(db, session, pace=pace, final=whole) for session in sessions])

    # -- deeds --------------------------------------------------------------------------------------------

    def _do(self, index: int, deed: Deed) -> None:
        if deed.kind == "deliver":
            self._deliver(index, deed, 1)
            return
        if deed.kind == "jump":
            self.store.clock.jump(deed.jump_ms)
            return
        process, bucket = self.process(f"c{index}", skew_ms=deed.options.get("skew_ms", 0))
        db = Database(bucket, process, sizes=self.plan.sizes)
        if deed.kind in KINDS:
            if deed.fate is not None and ("fate", index) not in self.without:
                self.report.items.append(("fate", index))
                self._prepare(process, bucket, deed.fate)
            keeper = Keeper(db, process.name, self.tell, self.store, damage=self.plan.damage)
            process.start(lambda: keeper.run(deed))
            return
        process.start(lambda: self.act(db, process.name, deed))

    # -- the queue and its workers ------------------------------------------------------------------------

    def _deliver(self, index: int, deed: Deed, times: int) -> None:
        """A queue message arrives, for the n-th time."""
        if self.over:
            return
        if deed.token and deed.token not in self.receipts:  # a message is queued when it is durable
            if self.world.now < deed.at + UNSENT:
                self.world.after(0.5, lambda: self._deliver(index, deed, times))
            return
        name = f"w{index}" if times == 1 else f"w{index}-{times}"
        process, bucket = self.process(name, skew_ms=deed.options.get("skew_ms", 0))
        fate = deed.fate if times == 1 and ("fate", index) not in self.without else None
        if fate is not None:
            self.report.items.append(("fate", index))
            self._prepare(process, bucket, fate)
        db = Database(
            bucket, process, durability=deed.options.get("durability", "stream"), sizes=self.plan.sizes
        )
        worker = Worker(db, deed.session, name, self.tell, fate, self.plan.pace)
        options = {
            key: deed.options[key]
            for key in ("takeover", "deadline", "overlap", "window")
            if key in deed.options
        }
        options["claim"] = deed.options.get("claim", False)
        options["delivery"] = times
        if deed.token and deed.options.get("receipt", True):
            options["receipt"] = {"session": deed.session, "id": self.receipts[deed.token]}
        if deed.jump_ms:
            self.world.after(3.0, lambda: process.jump(deed.jump_ms))
        process.start(lambda: worker.run(**options))
        if times <= REDELIVERIES:
            self._watch(index, deed, times, process, worker)

    def _watch(self, index: int, deed: Deed, times: int, process: Process, worker: Worker) -> None:
        """The visibility time-out: what was not acknowledged by then comes again, whoever works."""

        def look() -> None:
            if not worker.acknowledged:
                self._deliver(index, deed, times + 1)

        self.world.after(30.0 * times, look)

    def _prepare(self, process: Process, bucket: SimBucket, fate: Any) -> None:
        def kill() -> None:
            self.report.fates["kill"] += 1
            process.kill()

        def freeze() -> None:
            self.report.fates["freeze"] += 1
            process.freeze()
            self.world.after(fate.seconds, thaw)

        def thaw() -> None:
            if process.frozen:
                self.report.fates["thawed"] += 1
                process.thaw(clock_ran=fate.clock_ran)

        if fate.kind == "kill":
            bucket.at(fate.number, fate.when, kill)
        elif fate.kind == "freeze":
            bucket.at(fate.number, fate.when, freeze)

    # -- the end ------------------------------------------------------------------------------------------
