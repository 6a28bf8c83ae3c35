"""What `doctor` asks a store: the probe's questions, each with what a "no" means, and how fast it answers.

The questions come in the order in which things fail: driver, credentials, the bucket, then what it
guarantees. The first one that the store does not let be answered ends the examination.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from snapshotter.errors import CredentialsExpired, Misconfigured, StreamError
from streams import probe
from streams.buckets.url import open_bucket
from streams.clock import Clock, SystemClock
from streams.encryption import of_environment
from streams.store import Retries, Store

from .problems import PROBLEM, code_word, failure_of

_TRIES = 5
_PATIENCE = Retries(read_deadline=5.0, write_deadline=10.0, attempts=4)
_MEANS = {
    "driver": "the driver for such URLs is missing, or is not the version that is known: nothing works",
    "credentials": "no credentials were found: nothing works",
    "reachable": "the store cannot be read: nothing works",
    "writable": "the store cannot be written to: senders and workers fail",
    "conditional create": "the store ignores If-None-Match: two workers can overwrite each other unseen",
    "conditional replace": "the store ignores If-Match: an older snapshot may replace a newer one; boots "
    "stay right, and read a longer tail",
    "exact bytes": "the store changes what is written: stored history cannot be read back",
    "listing order": "keys do not come in ascending order: the newest part of a log cannot be found",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One question. `means` says what follows from a no; one that is not `required` is a warning."""

    check: str
    ok: bool
    detail: str = ""
    required: bool = True

    @property
    def means(self) -> str:
        return _MEANS[self.check]


@dataclass(slots=True)
class Examination:
    """What was found. Latencies are medians in milliseconds."""

    url: str
    checks: list[Check] = field(default_factory=list)
    latency_ms: dict[str, float] = field(default_factory=dict)
    failure: StreamError | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None and all(check.ok or not check.required for check in self.checks)

    @property
    def exit_code(self) -> int:
        if self.failure is not None:
            return failure_of(self.failure).exit_code
        return 0 if self.ok else PROBLEM

    def to_json(self) -> dict[str, Any]:
        checks = [{**asdict(check), **({} if check.ok else {"means": check.means})} for check in self.checks]
        told = {"ok": self.ok, "url": self.url, "checks": checks, "latency_ms": self.latency_ms}
        if self.failure is not None:
            told |= {"error": code_word(self.failure), "message": str(self.failure)}
        return told


def examine(url: str, clock: Clock | None = None) -> Examination:
    """Ask the store. Its answers, errors too, are in the result. Raises InvalidId for a URL that is none."""
    clock = clock or SystemClock()
    found = Examination(url)
    try:
        encryption = of_environment()
        bucket = open_bucket(url, clock=clock, encryption=encryption)
    except Misconfigured as error:
        found.failure = error
        if isinstance(error, CredentialsExpired):
            found.checks += [Check("driver", True), Check("credentials", False, str(error))]
        else:
            found.checks.append(Check("driver", False, str(error)))
        return found
    store = Store(bucket, clock, retries=_PATIENCE)
    found.url = store.url
    found.checks += [Check("driver", True), Check("credentials", True)]
    if encryption is not None:
        found.checks.append(Check("encryption", True, "of every object, with keys from the environment"))
    try:
        _ask(store, found)
    finally:
        store.close()
    return found


def _ask(store: Store, found: Examination) -> None:
    try:
        found.latency_ms["get"] = _median(store, lambda: store.get(probe.KEY))
        found.latency_ms["list"] = _median(store, lambda: store.list("sessions/", limit=20))
    except StreamError as error:
        found.failure = error
        found.checks.append(Check("reachable", False, str(error)))
        return
    found.checks.append(Check("reachable", True))
    key = f"probe/{store.clock.token()}-latency"
    try:
        found.latency_ms["put"] = _median(store, lambda: store.put(key, b"how long does this take"))
        store.delete(key)
        capabilities = probe.probe(store, store.clock)
    except StreamError as error:
        found.failure = error
        found.checks.append(Check("writable", False, str(error)))
        return
    replace = f"etag {capabilities.etag}" if capabilities.replace else ""
    found.checks += [
        Check("writable", True),
        Check("conditional create", capabilities.create),
        Check("conditional replace", capabilities.replace, replace, required=False),
        Check("exact bytes", capabilities.exact),
        Check("listing order", capabilities.listing),
    ]


def _median(store: Store, call: Callable[[], object]) -> float:
    """How long the call takes: the median of a few, in milliseconds."""
    taken = []
    for _ in range(_TRIES):
        began = store.clock.monotonic()
        call()
        taken.append((store.clock.monotonic() - began) * 1000)
    return round(statistics.median(taken), 3)
