"""What `doctor` asks a store: the probe's questions, each with what a "no" means, and how fast it answers.

The questions come in the order in which things fail: driver, keys of an encryption, credentials, the bucket,
whether its objects can be opened, then what it guarantees. The first one that the store does not let be
answered ends the examination; until then nothing is written. `examine(deep=…)`
goes on from there with the whole contract (see `deep`).

What a deep examination has found against a store is not forgotten by one that asks less: both are kept.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from snapshotter.errors import AccessDenied, CredentialsExpired, Misconfigured, StreamError, WrongKey
from streams import keys, probe
from streams.buckets.url import open_bucket
from streams.clock import Clock, SystemClock
from streams.encryption import of_environment
from streams.probe import Capabilities
from streams.store import Retries, Store
from streams.testing.conformance import Traits

from .deep import Contract, Finding, examine_contract
from .problems import PROBLEM, code_word, failure_of

_TRIES = 5
_PATIENCE = Retries(read_deadline=5.0, write_deadline=10.0, attempts=4)
_MEANS = {
    "driver": "the driver for such URLs is missing, or is not the version that is known: nothing works",
    "encryption": "the right keys are not at hand: what was stored with them cannot be read, and nothing was "
    "written with others",
    "credentials": "no credentials that the store takes were found: nothing works",
    "reachable": "the store cannot be read: nothing works",
    "writable": "the store cannot be written to: senders and workers fail",
    "conditional create": "the store does not create under If-None-Match: nothing keeps two workers apart",
    "conditional replace": "the store ignores If-Match: an older snapshot may replace a newer one; boots "
    "stay right, and read a longer tail",
    "exact bytes": "the store changes what is written: stored history cannot be read back",
    "plain objects": "objects are not named, overwritten or deleted as asked: nothing is where it should be",
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
    """What was found. Latencies are medians in milliseconds. `contract`: what a deep examination found."""

    url: str
    checks: list[Check] = field(default_factory=list)
    latency_ms: dict[str, float] = field(default_factory=dict)
    failure: StreamError | None = None
    contract: Contract | None = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        if self.failure is not None:
            return failure_of(self.failure).exit_code
        if self.contract is not None:
            return self.contract.exit_code
        return 0 if all(check.ok or not check.required for check in self.checks) else PROBLEM

    def to_json(self) -> dict[str, Any]:
        checks = [{**asdict(check), **({} if check.ok else {"means": check.means})} for check in self.checks]
        told = {"ok": self.ok, "url": self.url, "checks": checks, "latency_ms": self.latency_ms}
        if self.failure is not None:
            told |= {"error": code_word(self.failure), "message": str(self.failure)}
        return told | ({} if self.contract is None else self.contract.to_json())


def examine(
    url: str,
    clock: Clock | None = None,
    *,
    deep: Traits | None = None,
    tell: Callable[[str | Check | Finding], None] = lambda _found: None,
) -> Examination:
    """Ask the store. Its answers, errors too, are in the result. Raises InvalidId for a URL that is none.

    `deep`: hold it to the whole contract besides, as hard as this says. `tell` gets the URL and each answer
    at once.
    """
    clock = clock or SystemClock()
    found = Examination(url)
    try:
        encryption = of_environment()
    except Misconfigured as error:
        found.failure = error
        found.checks.append(Check("encryption", False, str(error)))
        _tell(found, tell)
        return found
    try:
        bucket = open_bucket(url, clock=clock, encryption=encryption)
    except Misconfigured as error:
        found.failure = error
        if isinstance(error, CredentialsExpired):
            found.checks += [Check("driver", True), Check("credentials", False, str(error))]
        else:
            found.checks.append(Check("driver", False, str(error)))
        _tell(found, tell)
        return found
    store = Store(bucket, clock, retries=_PATIENCE)
    found.url = store.url
    found.checks.append(Check("driver", True))
    try:
        ready = _read(store, found, with_keys=encryption is not None)
        probed = _ask(store, found, forget=deep is not None) if ready else None
        _tell(found, tell)
        if probed is not None and deep is not None:
            opened = partial(open_bucket, clock=clock, encryption=encryption)
            summed = _with_checksum(url)
            found.contract = examine_contract(
                store,
                partial(opened, url),
                None if summed is None else partial(opened, summed),
                deep,
                probed,
                tell,
            )
    finally:
        store.close()
    return found


def _tell(found: Examination, tell: Callable[[str | Check | Finding], None]) -> None:
    tell(found.url)
    for check in found.checks:
        tell(check)


def _with_checksum(url: str) -> str | None:
    """The URL that sends a checksum with each put; None for one that cannot, or does already."""
    if url.startswith(("file:", "memory:")) or "checksum=" in url:
        return None
    return f"{url}{'&' if '?' in url else '?'}checksum=sha256"


def _read(store: Store, found: Examination, *, with_keys: bool) -> bool:
    """Read what is there, and see how fast that is; whether it went. `with_keys`: objects are encrypted."""
    credentials, reachable = Check("credentials", True), Check("reachable", True)
    try:
        _open_one(store)
        found.latency_ms["get"] = _median(store, lambda: store.get(probe.KEY))
        found.latency_ms["list"] = _median(store, lambda: store.list("sessions/", limit=20))
    except CredentialsExpired as error:
        found.failure = error
        found.checks.append(Check("credentials", False, str(error)))
    except WrongKey as error:
        found.failure = error
        found.checks += [credentials, reachable, Check("encryption", False, str(error))]
    except StreamError as error:
        found.failure = error
        found.checks += [credentials, Check("reachable", False, str(error))]
    else:
        found.checks += [credentials, reachable]
        if with_keys:
            told = "of every object, with keys from the environment"
            found.checks.append(Check("encryption", True, told))
    return found.failure is None


def _open_one(store: Store) -> None:
    """Open an object of some session, then what an earlier examination wrote down. Raises WrongKey where the
    keys at hand do not open it, and the store's errors."""
    for folder in keys.FOLDERS:
        try:
            entry = next((entry for entry in store.entries(f"{folder}/", page=20) if entry.size), None)
            if entry is not None:
                store.get(entry.key)
                break
        except AccessDenied:  # says nothing about the keys; what else these credentials may, the rest asks
            continue
    try:
        store.get(probe.KEY)
    except WrongKey as error:
        told = f"{error}; where the keys at hand are the right ones, delete {probe.KEY} and ask again"
        raise WrongKey(told) from error


def _ask(store: Store, found: Examination, *, forget: bool) -> Capabilities | None:
    """Ask the probe's questions; what it found, None where it could not ask. `forget`: what an earlier
    examination found does not count."""
    key = f"probe/{store.clock.token()}-latency"
    try:
        found.latency_ms["put"] = _median(store, lambda: store.put(key, b"how long does this take"))
        store.delete(key)
        earlier = None if forget else probe.load(store)
        capabilities = probe.probe(store, store.clock)
        if earlier is not None and earlier.deep:
            readable, capabilities = capabilities.exact, capabilities.less(earlier)
            probe.keep(store, capabilities, readable)
    except StreamError as error:
        found.failure = error
        found.checks.append(Check("writable", False, str(error)))
        return None
    replace = f"etag {capabilities.etag}" if capabilities.replace else ""
    create = "it is refused as such, whatever stands there" if capabilities.refuses else ""
    found.checks += [
        Check("writable", True),
        Check("conditional create", capabilities.create and not capabilities.refuses, create),
        Check("conditional replace", capabilities.replace, replace, required=False),
        Check("exact bytes", capabilities.exact),
        Check("listing order", capabilities.listing),
    ]
    if not capabilities.plain:
        found.checks.append(Check("plain objects", False, "found by an earlier `doctor --deep`"))
    return capabilities


def _median(store: Store, call: Callable[[], object]) -> float:
    """How long the call takes: the median of a few, in milliseconds."""
    taken = []
    for _ in range(_TRIES):
        began = store.clock.monotonic()
        call()
        taken.append((store.clock.monotonic() - began) * 1000)
    return round(statistics.median(taken), 3)
