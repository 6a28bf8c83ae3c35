"""One small world under one schedule: every request is a place where another process may come first.

The clients, the workers and the judge are those of the worlds that seeds draw (`cast`, `agent`, `checker`).
Here nothing is drawn. Before each request its strand waits at a gate. Whenever all strands that can run stand
at gates, the path of the search says which request is done next, in one instant; and, while a fault is left,
what goes wrong with it:

    refused   an error, and nothing was done
    lost      it is done, and the reply is lost
    late      an error; the write lands at any later place of the schedule
    killed    the process dies before the request, or (a write) when it is done
    asleep    the process stands still for hours, before the request, or (a write) when it is done
    away      for two minutes the process reaches nothing; a write begins it

Requests take no time, so time passes only when everybody waits. To go on with the process that ran last, or
with any other where it cannot go on, costs nothing. To let another one come first costs 1, and so does a
fault; so does another order of requests that one process makes in parallel.

The state for the search is what each process has seen so far (it knows nothing else of the world), what is
stored, the time, what has gone wrong, and the journal: everything that may change what comes, or how it is
judged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

from agent import Worker
from cast import Cast
from checker import Checker, Violation
from searching import Path
from timely import Timely

from snapshotter.core.blocks import DEFAULT
from snapshotter.database import Database
from streams.buckets.base import Blob, Head, Page, Written
from streams.buckets.memory import MemoryBucket, Space
from streams.errors import PreconditionFailed, Unreachable
from streams.testing.simulation import Killed, Process, Strand, World

SESSION = "s1"
SLEEP = 3600.0
AWAY = 120.0
WRITE_FAULTS = ("refused", "lost", "late", "killed", "killed after", "asleep", "asleep after", "away")
READ_FAULTS = ("refused", "killed", "asleep")
REDELIVERED = 90.0


class Broke(BaseException):
    """A promise was broken: this schedule is over. Nothing in the engine may catch it."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation
        self.struck: list[tuple[str, int, str]] = []


class SmallWorld(Cast):
    """`faults`: how many may happen; `calm`: none will, nor does anybody die, so nothing is paid twice.
    `struck` lists those that did, `calls` counts requests. For stories: to read a key that contains `deadly`
    kills; `sleep` is in seconds; `tidied`: somebody tidies up; `sizes`: thresholds of blocks and values;
    `doom`: faults that happen in any case: (process, verb, room of the key, its n-th such request) → what."""

    def __init__(self, path: Path, *, faults: int = 0, calm: bool = False) -> None:
        self.world = World(pick=self._pick, limit=200_000)
        self.space = Space()
        self.clock = self.world.process("store")
        self.struck: list[tuple[str, int, str]] = []
        self.calls = 0
        self.receipts: dict[str, int] = {}
        self.checker = Checker(calm=calm)
        self.settling = False  # nobody chooses any more: the first that can go on does
        self.deadly = ""
        self.sleep = SLEEP
        self.tidied = False
        self.sizes = DEFAULT
        self.doom: dict[tuple[str, str, str, int], str] = {}
        self._doomed: Counter[tuple[str, str, str]] = Counter()
        self.journal: list[dict[str, Any]] = []
        self._timely = Timely(self.checker, exact=not faults)
        self._path = path
        self._faults = faults
        self._asked: Counter[str] = Counter()
        self._away: dict[str, float] = {}
        self._at_gate: set[Strand] = set()
        self._last: Strand | None = None
        self._told: dict[str, int] = {}
        self._events = 0
        self._cursor = 0

    # -- who acts -----------------------------------------------------------------------------------------

    def process(self, name: str, **options: Any) -> tuple[Process, Database]:
        """A new process, and its database."""
        made = self.world.process(name, **options)
        return made, Database(SmallBucket(self, made), made, sizes=self.sizes)

    def client(self, name: str, act: Callable[[Database, str], object], **options: Any) -> None:
        """A process that does something, and ends."""
        process, db = self.process(name, **options)
        process.start(lambda: act(db, name))

    def deliver(
        self,
        token: str,
        *,
        kind: type[Worker] = Worker,
        times: int = 1,
        redeliveries: int = 1,
        pause: float = REDELIVERED,
        name: str = "",
        **options: Any,
    ) -> None:
        """A queue brings this message to a worker, and again, after a pause, while it is not acknowledged."""
        name = name or f"w{len(self.world.processes)}"
        process, db = self.process(name)
        worker = kind(db, SESSION, name, self.tell, None, 0.0)
        receipt = {"session": SESSION, "id": self.receipts[token]}
        process.start(lambda: worker.run(receipt=receipt, delivery=times, **options))

        def again() -> None:
            if not worker.acknowledged:
                self.deliver(
                    token, kind=kind, times=times + 1, redeliveries=redeliveries - 1, pause=pause, **options
                )

        if redeliveries:
            self.world.after(pause, again)

    def tell(self, who: str, what: str, **fields: Any) -> None:
        event = {"t": self.world.now, "who": who, "what": what, **fields}
        self.journal.append(event)
        self._events = hash((self._events, repr(event)))
        self.checker.see(event)
        self._timely.see(event)
        if what == "fenced" and not self.tidied and len(self._runs()) < 2:
            self.blame("fenced by nobody", f"the out log has one writer, which was told of another: {event}")

    def objects(self) -> dict[str, bytes]:
        return {key: self.space.objects[key].data for key in self.space.order}

    def _runs(self) -> set[str]:
        """Who has written to the out log."""
        stored = self.objects().items()
        return {json.loads(data.partition(b"\n")[0])["run"] for key, data in stored if key.startswith("out/")}

    def blame(self, rule: str, detail: str) -> None:
        self.checker.violations.append(Violation(rule, detail))

    def settle_all(self) -> None:
        """Everybody has ended: a last worker comes, and all is judged. Raises Broke."""
        self.settling, self.deadly = True, ""
        self.client(
            "last", lambda db, _: (db.clock.sleep(300.0), self.settle(db, SESSION, pace=0.0, final=True))
        )
        self.world.run()
        self.checker.tidied = self.tidied
        self.checker.judge(self.objects())
        self.stop_if_broken()

    def stop_if_broken(self) -> None:
        if self.checker.violations:
            raise Broke(self.checker.violations[0])

    # -- the schedule -------------------------------------------------------------------------------------

    def gate(self) -> None:
        """For a strand: wait until the schedule lets its request through."""
        me = self.world.here()
        self._at_gate.add(me)
        try:
            me.pause(self.world.now)
        finally:
            self._at_gate.discard(me)

    def _pick(self, ready: list[Strand]) -> int:
        self.stop_if_broken()
        for index, strand in enumerate(ready):
            if strand not in self._at_gate:
                return index  # what happens inside of a process concerns nobody else
        if self.settling:
            return 0
        order = sorted(range(len(ready)), key=lambda i: self._rank(ready[i]))
        goes_on = self._last is not None and ready[order[0]].process is self._last.process
        costs = [0] + [int(goes_on)] * (len(order) - 1)
        chosen = order[self._path.choose(costs, self._state(ready))]
        self._last = ready[chosen]
        return chosen

    def _rank(self, strand: Strand) -> tuple[bool, bool, int, str]:
        last = self._last
        other = last is None or strand.process is not last.process
        return other, strand is not last, self.world.processes.index(strand.process), strand.name

    def _state(self, ready: list[Strand]) -> Hashable:
        stored = frozenset((key, blob.etag, blob.modified_ms) for key, blob in self.space.objects.items())
        last = self._last.name if self._last is not None else ""
        told = frozenset(self._told.items())
        at_gates = tuple(sorted(strand.name for strand in ready))
        return hash((self.world.now, at_gates, last, stored, told, tuple(self.struck), self._events))

    def seen(self, process: Process, *what: Hashable) -> None:
        """The process has learnt this. Of requests in parallel the order does not matter to it."""
        strand = self.world.here().name
        learner = strand if strand.startswith("gather-") else process.name
        self._told[learner] = hash((self._told.get(learner), self.world.now, what))

    def fault(self, process: Process, verb: str, key: str) -> str:
        """What goes wrong with this request; "" for nothing."""
        self.calls += 1
        self._asked[process.name] += 1
        room = process.name, verb, f"{key.partition('/')[0]}/"
        self._doomed[room] += 1
        if (*room, self._doomed[room]) in self.doom:
            return self.doom[*room, self._doomed[room]]
        if self.world.now < self._away.get(process.name, 0.0):
            return "refused"
        if self.settling or len(self.struck) >= self._faults:
            return ""
        kinds = WRITE_FAULTS if verb == "put" else READ_FAULTS
        found = self._path.choose([0] + [1] * len(kinds))
        if not found:
            return ""
        kind = kinds[found - 1]
        self.struck.append((process.name, self._asked[process.name], kind))
        if kind == "away":
            self._away[process.name] = self.world.now + AWAY
            return "refused"
        return kind

    def land_late(self, effect: Callable[[], object]) -> None:
        """The effect happens when the schedule says so, whatever became of its sender."""
        late = self.world.process(f"late{len(self.world.processes)}")

        def land() -> None:
            self.gate()
            self.seen(late, _gist(_outcome(effect)))

        late.start(land)

    def suspend(self, process: Process) -> None:
        """The process's machine stands still."""
        process.freeze()
        self.world.after(self.sleep, process.thaw)
        process.sleep(0.0)

    def saved(self, data: bytes) -> None:
        """A snapshot was stored: one of an older place never replaces one of a newer."""
        cursor = int(json.loads(data)["lastOutEventId"])
        if cursor < self._cursor:
            self.blame("the snapshot went back", f"from {self._cursor} to {cursor}")
        self._cursor = cursor


class SmallBucket:
    """One process's way to the store. Implements `streams.buckets.base.Bucket`."""

    url = "small:"
    room = 1024
    trusted = True
    copies = False

    def __init__(self, small: SmallWorld, process: Process) -> None:
        self._small = small
        self._process = process
        self._inner = MemoryBucket(small.clock, space=small.space)

    def get(self, key: str) -> Blob | None:
        if self._small.deadly and self._small.deadly in key:
            self._die()
        return self._do("get", key, lambda: self._inner.get(key))

    def head(self, key: str) -> Head | None:
        return self._do("head", key, lambda: self._inner.head(key))

    def put(self, key: str, data: bytes, **condition: Any) -> Written:
        def effect() -> Written:
            written = self._inner.put(key, data, **condition)
            if key.startswith("sessions/"):
                self._small.saved(data)
            return written

        return self._do("put", key, effect)

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        return self._do("list", prefix, lambda: self._inner.list(prefix, after=after, limit=limit))

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self._inner.delete(key))

    def close(self) -> None:
        """Nothing to let go of."""

    def _do(self, verb: str, key: str, effect: Callable[[], Any]) -> Any:
        small, process = self._small, self._process
        small.gate()
        fault = small.fault(process, verb, key)
        if fault == "killed":
            self._die()
        if fault == "asleep":
            small.suspend(process)
            small.gate()
        if fault == "late":
            small.land_late(effect)
        if fault in ("refused", "late"):
            small.seen(process, verb, key, fault)
            raise Unreachable(f"simulated: {fault}")
        found = _outcome(effect)
        if fault == "killed after":
            self._die()
        if fault == "asleep after":
            small.suspend(process)
        small.seen(process, verb, key, fault, _gist(found))
        if fault == "lost":
            raise Unreachable("simulated: lost")
        if isinstance(found, PreconditionFailed):
            raise found
        return found

    def _die(self) -> None:
        self._process.kill()
        raise Killed


def _outcome(effect: Callable[[], Any]) -> Any:
    try:
        return effect()
    except PreconditionFailed as error:
        return error


def _gist(found: Any) -> Hashable:
    """What the process can know of an answer."""
    if isinstance(found, Blob):
        return found.etag, found.modified_ms, found.date_ms
    if isinstance(found, Page):
        return found.entries, found.more, found.date_ms
    return found if isinstance(found, Head | Written | None) else type(found).__name__
