"""A store that times out, throttles and lies: one space in memory, and a bucket for each process.

A request travels: it takes some time to arrive, has its effect at one instant, and takes some time to be
answered. The effect is the store's own business, so it happens also when the sender is dead, frozen or tired
of waiting by then. What can go wrong is drawn for each request, from the chances of a `Weather`:

    refused      nothing arrives; Unreachable
    throttled    503 SlowDown; Throttled
    lost         it is done; the reply is lost
    late         the sender gives up; a write lands within 15 minutes after it was sent, or never
                 (FORMAT.md, "minimum age": no store takes a signature that is older)
    short        the body breaks off, and the driver notices; Unreachable
    twice        a proxy repeats the write; what comes back is the answer to the second one
    flip         a bit of what is read differs, on its way
    cut          the body breaks off, and nobody notices
    rot          a bit of what is written differs from then on

All but the last four are what a conforming store may do at any time. Conditional writes are atomic and reads
see every write that was done, whatever the weather, unless `unfenced` makes the store ignore conditions.

Each process draws from dice of its own, three times a request, so that leaving one fault out (`without`)
changes no other draw of it.
"""

from __future__ import annotations

import builtins
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from streams.buckets.base import Blob, Entry, Head, Page, Written
from streams.buckets.memory import MemoryBucket, Space
from streams.buckets.through import Verb
from streams.errors import PreconditionFailed, Throttled, Unreachable
from streams.testing.faults import Call
from streams.testing.simulation.scheduler import Process, World

LONGEST_LATE = 900.0
PATIENCE = 5.0
"""Seconds after which a driver takes a request for unanswered: a third of the shortest lease."""

When = Literal["before", "flying", "after"]


@dataclass(frozen=True, slots=True)
class Weather:
    """Chances per request, between 0 and 1; `latency` is in seconds, there and back.

    `dates`: whether answers tell the store's time (its Last-Modified always is told); `nonces`: whether it
    keeps metadata; `resolution_ms` of Last-Modified and Date; `unfenced`: conditions are ignored.
    """

    latency: tuple[float, float] = (0.004, 0.06)
    refused: float = 0.0
    throttled: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    short: float = 0.0
    twice: float = 0.0
    flip: float = 0.0
    cut: float = 0.0
    rot: float = 0.0
    dates: bool = True
    nonces: bool = True
    resolution_ms: int = 1000
    unfenced: bool = False

    def clear(self) -> Weather:
        """The same store, with nothing going wrong any more."""
        chances: dict[str, Any] = dict.fromkeys(FAULTS, 0.0)
        return replace(self, **chances)


_STEADY = ("latency", "dates", "nonces", "resolution_ms", "unfenced")
FAULTS = tuple(field.name for field in fields(Weather) if field.name not in _STEADY)
"""What may go wrong with a request, in the order in which it is drawn."""
_OF_VERBS: dict[str, tuple[Verb, ...]] = {
    "twice": ("put", "copy"),
    "rot": ("put",),
    **dict.fromkeys(("short", "flip", "cut"), ("get",)),
}

Struck = tuple[str, int, str]  # the process, the number of its request, the fault


class SimStore:
    """The store of a world. `clock` is its own (Date, Last-Modified); `weather` may change at any time.
    `copies`: it copies by itself.

    `without` names faults that do not happen, by (process, request). `trace`, where it is a list, gets a row
    for each request. `struck` lists what went wrong, `calls` counts requests.
    """

    def __init__(
        self,
        world: World,
        weather: Weather | None = None,
        *,
        seed: object = 0,
        without: frozenset[tuple[str, int]] = frozenset(),
        trusted: bool = True,
        copies: bool = False,
        trace: list[tuple[Any, ...]] | None = None,
    ) -> None:
        self.world = world
        self.weather = weather or Weather()
        self.space = Space()
        self.clock = world.process("store")
        self.seed = seed
        self.without = without
        self.trusted = trusted
        self.copies = copies
        self.trace = trace
        self.calls = 0
        self.struck: list[Struck] = []
        self.rotten: list[str] = []
        self.inner = MemoryBucket(self.clock, space=self.space)

    def bucket(self, process: Process) -> SimBucket:
        """How this process reaches the store."""
        return SimBucket(self, process)

    def objects(self) -> dict[str, bytes]:
        """What is stored, by key."""
        return {key: self.space.objects[key].data for key in self.space.order}

    def counts(self) -> Counter[str]:
        """How often each fault struck."""
        return Counter(fault for _, _, fault in self.struck)

    def put(self, key: str, data: bytes, *, rot: float | None, **condition: Any) -> Written:
        """The effect of a put. `rot` says, as a number in [0, 1), which bit goes bad."""
        if self.weather.unfenced:
            condition = {"nonce": condition["nonce"]}
        if rot is not None:
            data = flipped(data, rot)
            self.rotten.append(key)
        return self.inner.put(key, data, **condition)

    def copy(self, source: str, key: str, etag: str) -> bool:
        """The effect of a copy."""
        if source in self.rotten:
            self.rotten.append(key)
        if not self.weather.unfenced:
            return self.inner.copy(source, key, etag)
        blob = self.inner.get(source)
        if blob is not None:
            self.inner.put(key, blob.data, nonce=blob.nonce or "")
        return blob is not None

    def told(self, found: Any) -> Any:
        """What is answered, as far as this store tells it."""
        weather = self.weather
        step = weather.resolution_ms
        if isinstance(found, Blob | Head):
            return replace(
                found,
                nonce=found.nonce if weather.nonces else None,
                modified_ms=_floor(found.modified_ms, step),
                date_ms=_floor(found.date_ms, step) if weather.dates else None,
            )
        if isinstance(found, Written):
            return Written(found.etag, _floor(found.date_ms, step) if weather.dates else None)
        if isinstance(found, Page):
            entries = tuple(Entry(e.key, e.size, e.etag, _floor(e.modified_ms, step)) for e in found.entries)
            date_ms = _floor(found.date_ms, step) if weather.dates else None
            return Page(entries, found.more, found.resume, date_ms)
        return found


def _floor(ms: int | None, step: int) -> int | None:
    return None if ms is None else ms - ms % step


def flipped(data: bytes, where: float) -> bytes:
    """The data with one bit changed; `where` in [0, 1) says which."""
    if not data:
        return data
    bit = int(where * len(data) * 8)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


class _Answer:
    """What the store found, once it has."""

    __slots__ = ("error", "result", "there")

    def __init__(self) -> None:
        self.there = False
        self.result: Any = None
        self.error: Exception | None = None

    def take(self, effect: Callable[[], Any]) -> None:
        try:
            self.result = effect()
        except PreconditionFailed as error:
            self.error = error
        self.there = True


class SimBucket:
    """One process's way to the store. Implements `streams.buckets.base.Bucket`.

    `at(number, when, act)` has something happen around its number-th request: `before` it is sent, while it
    is `flying` (sent, not yet arrived), or `after` it was done and before the sender hears of it.
    """

    url = "sim:"
    room = 1024

    def __init__(self, store: SimStore, process: Process) -> None:
        self.store = store
        self.process = process
        self.calls: list[Call] = []
        self.trusted = store.trusted
        self.copies = store.copies
        self._dice = random.Random(f"{store.seed}/{process.name}/weather")  # noqa: S311 - see Process
        self._acts: dict[tuple[int, When], Callable[[], object]] = {}

    def at(self, number: int, when: When, act: Callable[[], object]) -> None:
        self._acts[number, when] = act

    def get(self, key: str) -> Blob | None:
        found: Blob | None = self._do("get", key, lambda _: self.store.inner.get(key))
        return found

    def head(self, key: str) -> Head | None:
        found: Head | None = self._do("head", key, lambda _: self.store.inner.head(key))
        return found

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        def effect(rot: float | None) -> Written:
            return self.store.put(key, data, rot=rot, if_absent=if_absent, if_match=if_match, nonce=nonce)

        found: Written = self._do("put", key, effect)
        return found

    def copy(self, source: str, key: str, etag: str) -> bool:
        return bool(self._do("copy", key, lambda _: self.store.copy(source, key, etag)))

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        found: Page = self._do(
            "list", prefix, lambda _: self.store.inner.list(prefix, after=after, limit=limit)
        )
        return found

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda _: self.store.inner.delete(key))

    def close(self) -> None:
        """Nothing to let go of."""

    def verbs(self) -> builtins.list[Verb]:
        """The verbs asked for, in order."""
        return [call.verb for call in self.calls]

    # --- inside -----------------------------------------------------------------------------------------

    def _do(self, verb: Verb, key: str, effect: Callable[[float | None], Any]) -> Any:
        store = self.store
        store.calls += 1
        call = Call(len(self.calls) + 1, verb, key)
        self.calls.append(call)
        self._act(call, "before")
        fault, detail, there, back = self._draw(call)
        row = [store.world.now, self.process.name, call.number, verb, key, fault]
        if store.trace is not None:
            store.trace.append(tuple(row))
        if fault in ("refused", "throttled"):
            self._wait(there)
            raise Throttled("simulated: 503 SlowDown") if fault == "throttled" else _away("refused")
        answer = _Answer()
        arrives, gives_up = there, PATIENCE
        if fault == "late":
            arrives = detail * 2 * LONGEST_LATE  # half of them never
        if fault == "slow":
            arrives = there + detail * 2 * PATIENCE
        if arrives < LONGEST_LATE:
            store.world.after(
                arrives, lambda: answer.take(lambda: effect(detail if fault == "rot" else None))
            )
            if fault == "twice":
                store.world.after(arrives, lambda: answer.take(lambda: effect(None)))
        self._act(call, "flying")
        self._wait(min(arrives + back, gives_up))
        self._act(call, "after")
        if not answer.there or fault == "lost" or arrives + back > gives_up:
            raise _away("no answer in time")
        return self._answered(answer, fault, detail)

    def _answered(self, answer: _Answer, fault: str, detail: float) -> Any:
        if answer.error is not None:
            raise answer.error
        found = answer.result
        if fault == "short" and found is not None:
            raise _away("the body broke off")
        if isinstance(found, Blob) and fault in ("flip", "cut"):
            data = (
                flipped(found.data, detail)
                if fault == "flip"
                else found.data[: int(detail * len(found.data))]
            )
            found = replace(found, data=data)
        return self.store.told(found)

    def _draw(self, call: Call) -> tuple[str, float, float, float]:
        """The fault (or ""), a number in [0, 1) for its details, seconds there and back."""
        chance, there, back = self._dice.random(), self._dice.random(), self._dice.random()
        weather = self.store.weather
        low, high = weather.latency
        there, back = low + there * (high - low), low + back * (high - low)
        for name in FAULTS:
            share: float = getattr(weather, name)
            if chance < share:
                if not _fits(name, call) or (self.process.name, call.number) in self.store.without:
                    break
                self.store.struck.append((self.process.name, call.number, name))
                return name, chance / share, there, back
            chance -= share
        return "", 0.0, there, back

    def _wait(self, seconds: float) -> None:
        self.process.sleep(seconds)

    def _act(self, call: Call, when: When) -> None:
        act = self._acts.get((call.number, when))
        if act is not None:
            act()


def _fits(fault: str, call: Call) -> bool:
    return fault not in _OF_VERBS or call.verb in _OF_VERBS[fault]


def _away(why: str) -> Unreachable:
    return Unreachable(f"simulated: {why}")
