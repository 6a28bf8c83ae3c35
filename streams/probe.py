"""Does this store keep what the engine needs? Asked once, by trying it; the answer is kept in the store.

Many servers that speak S3 take a conditional write and ignore the condition. Two workers would then
overwrite each other and nobody would notice. So before the first write to a store that is not known,
the probe does what the engine does, on keys of its own:

    create     If-None-Match: * creates once, and of racing creates exactly one wins
    replace    If-Match replaces the named version alone, and of racing replacements exactly one wins
    exact      the bytes come back as they were (some stores keep a driver's upload framing)
    listing    keys come in ascending byte order, after a given one
    copy       where the driver offers it: a copy is a create, and of the named version of its source alone

A refusal (412) says nothing by itself: behind a proxy that repeats requests, who has written is told that
it was refused. So the probe looks at what stands there then. Only a write that was done against its
condition proves that conditions are ignored; a create that is refused where nothing stands proves nothing.

Its keys are `probe/<token>-…`, and it deletes them whatever happens. Readers never probe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import orjson

from streams.clock import Clock
from streams.errors import (
    AccessDenied,
    Corrupt,
    NewerVersion,
    PreconditionFailed,
    StreamError,
    Unreachable,
    Unsupported,
    WrongEndpoint,
)
from streams.store import Store

logger = logging.getLogger("snapshotter")  # one name for users to configure
T = TypeVar("T")

KEY = "capabilities.json"
VERSION = 1
RACERS = 3  # some real servers answer a fourth racer on one key only after seconds
ROUNDS = 2
_TRIES = 4
_USUAL = {
    "plain": True,
    "refuses": False,
    "deep": False,
    "copy": False,
}  # what is written only where it is otherwise
# What a driver's chunked upload looks like when a store keeps it, and bytes that no text codec leaves alone.
_BODY = b"15\r\n{}\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n" + bytes(range(256))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store was found to keep. `etag`: how If-Match wants it; "none" where it never held.

    `checked_at` is epoch milliseconds by this machine's clock. `plain`: objects are named, overwritten and
    deleted as asked; the probe takes that for granted, `snapshotter doctor --deep` tries it. `refuses`: a
    conditional create is not ignored but refused as such (501). `deep`: found by the whole conformance suite.
    `copy`: the store copies by itself, as a create.
    """

    create: bool
    replace: bool
    exact: bool
    listing: bool
    etag: Literal["as-given", "unquoted", "none"]
    checked_at: int
    plain: bool = True
    refuses: bool = False
    deep: bool = False
    copy: bool = False

    def encode(self) -> bytes:
        found = {name: value for name, value in asdict(self).items() if _USUAL.get(name) is not value}
        found["checkedAt"] = found.pop("checked_at")
        return orjson.dumps({"version": VERSION, **found})

    def less(self, other: Capabilities) -> Capabilities:
        """What both found: a guarantee that either misses is missing. ETag form and date are this one's."""
        return replace(
            self,
            create=self.create and other.create,
            replace=self.replace and other.replace,
            exact=self.exact and other.exact,
            listing=self.listing and other.listing,
            plain=self.plain and other.plain,
            refuses=self.refuses or other.refuses,
            deep=self.deep or other.deep,
            copy=self.copy and other.copy,
        )


def decode(data: bytes, key: str = KEY) -> Capabilities:
    """Raises Corrupt, and NewerVersion for a version above ours."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _unreadable(key, str(error)) from error
    if type(found) is not dict or type(found.get("version")) is not int:
        raise _unreadable(key, "no document with a version")
    if found["version"] > VERSION:
        raise NewerVersion(f"{key} has version {found['version']}; this release knows {VERSION}", key=key)
    # A wrong type is no answer: taken for a "no" it would blame the store.
    given = {"exact": False, "etag": "as-given", **_USUAL, **found}
    facts = ("create", "replace", "exact", "listing", *_USUAL)
    wrong = [name for name in facts if type(given.get(name)) is not bool]
    if given["etag"] not in ("as-given", "unquoted", "none"):
        wrong.append("etag")
    if type(given.get("checkedAt")) is not int:
        wrong.append("checkedAt")
    if wrong:
        raise _unreadable(key, f"{wrong[0]} is not what it should be")
    return Capabilities(
        **{name: given[name] for name in facts}, etag=given["etag"], checked_at=given["checkedAt"]
    )


def _unreadable(key: str, why: str) -> Corrupt:
    return Corrupt(f"{key} cannot be read; delete it and probe again: {why}", key=key)


def load(store: Store, key: str = KEY) -> Capabilities | None:
    """What an earlier probe found, None where none has. Raises Corrupt, NewerVersion, the store's errors."""
    blob = store.get(key)
    return None if blob is None else decode(blob.data, key)


def lack(capabilities: Capabilities, *, allow_unfenced: bool = False) -> str | None:
    """Why the engine does not write to a store that keeps no more than this; None where it does."""
    if not capabilities.exact:
        return "the store does not give back the bytes that were written; update it, or use another"
    if not capabilities.listing:
        return (
            "the store does not list all keys in ascending byte order, after a given one; use another "
            "bucket type"
        )
    if not capabilities.plain:
        return (
            "the store does not name, overwrite or delete objects as it is asked to; `snapshotter doctor "
            "--deep` says where; use another"
        )
    if capabilities.refuses:
        return (
            "the store refuses If-None-Match as such, so nothing can be appended, fenced or not; use another"
        )
    if not capabilities.create and not allow_unfenced:
        return (
            "the store ignores If-None-Match, so two workers could overwrite each other; use another store, "
            "or allow unfenced work (allow_unfenced=True, --allow-unfenced) where never more than one worker "
            "runs"
        )
    return None


def require(capabilities: Capabilities, *, allow_unfenced: bool = False) -> None:
    """Raise Unsupported where the store lacks a guarantee that the engine cannot do without.

    With `allow_unfenced` a store without conditional create is taken, with a warning: then the caller vouches
    that no session ever has two workers, or two senders at one moment.
    """
    lacking = lack(capabilities, allow_unfenced=allow_unfenced)
    if lacking is not None:
        raise Unsupported(lacking)
    if not capabilities.create:
        logger.warning(
            "the store ignores If-None-Match: two workers on one session would go unnoticed",
            extra={"event": "store-unfenced"},
        )
    if not capabilities.replace:
        logger.warning(
            "the store does not replace under If-Match (etag: %s)",
            capabilities.etag,
            extra={"event": "store-no-replace"},
        )


def ensure(store: Store, *, allow_unfenced: bool = False) -> Capabilities | None:
    """For writers: None for a store known to keep its word, else what is stored or a probe finds now.

    Raises Unsupported (see `require`), Corrupt, NewerVersion, AccessDenied where the store was not probed yet
    and this writer may not, and the store's errors.
    """
    if store.bucket.trusted:
        return None
    found = load(store)
    if found is None:
        try:
            found = probe(store, store.clock)
        except AccessDenied as error:
            raise AccessDenied(
                f"{KEY} is not there, and these credentials may not probe the store ({error}); let somebody "
                "run `snapshotter doctor` who may"
            ) from error
    require(found, allow_unfenced=allow_unfenced)
    return found


def probe(store: Store, clock: Clock, *, key: str = KEY) -> Capabilities:
    """Try the store and write down at `key` what it keeps. Raises the store's errors, never Unsupported."""
    found = _probed(store, clock)
    keep(store, found, found.exact, key)
    return found


def keep(store: Store, found: Capabilities, readable: bool, key: str = KEY) -> None:
    """Write it down, unless nothing is `readable` again here: then every writer finds out anew."""
    if readable:
        store.put(key, found.encode())
    else:
        store.delete(key)


def _probed(store: Store, clock: Clock) -> Capabilities:
    trial = _Trial(store, clock)
    try:
        create = trial.steadily(trial.creates)
        etag = trial.steadily(trial.etag)
        return Capabilities(
            create=create,
            replace=etag != "none" and trial.steadily(partial(trial.replaces, etag)),
            exact=trial.exact(),
            listing=trial.lists(),
            etag=etag,
            checked_at=clock.now_ms(),
            refuses=trial.refuses,
            copy=create and trial.copies(),
        )
    finally:
        trial.clean()


class _Trial:
    """One probe's keys and questions. A question answers, or raises Unreachable where it is not settled."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._prefix = f"probe/{clock.token()}-"
        self._keys: list[str] = []
        self.refuses = False

    def steadily(self, question: Callable[[], T]) -> T:
        """Ask again, on fresh keys, where the store did not answer: an unanswered write proves nothing."""
        for attempt in range(1, _TRIES):
            try:
                return question()
            except Unreachable:
                self._clock.sleep(attempt * (1 + self._clock.jitter()) / 2)
        return question()

    def clean(self) -> None:
        for key in self._keys:
            try:
                self._store.delete(key)
            except StreamError as error:
                left = {"event": "probe-key-left", "key": key}
                logger.warning("the probe's key %s could not be deleted: %s", key, error, extra=left)

    def creates(self) -> bool:
        key = self._key("create")
        if not self._holds(key, b"1", if_absent=True) or self._holds(key, b"2", if_absent=True):
            return False
        return all(self._one_wins(self._key(f"race{n}"), if_absent=True) for n in range(ROUNDS))

    def etag(self) -> Literal["as-given", "unquoted", "none"]:
        key = self._key("etag")
        etag = self._once(key, b"1")
        if self._holds(key, b"2", if_match=etag):
            return "as-given"
        return "unquoted" if self._holds(key, b"2", if_match=etag.strip('"')) else "none"

    def replaces(self, form: str) -> bool:
        key = self._key("replace")
        stale = _formed(self._once(key, b"1"), form)
        fresh = _formed(self._once(key, b"2"), form)
        if self._holds(key, b"3", if_match=stale) or not self._holds(key, b"3", if_match=fresh):
            return False
        if self._holds(self._key("absent"), b"1", if_match=fresh):
            return False
        for n in range(ROUNDS):
            key = self._key(f"swap{n}")
            etag = _formed(self._once(key, b"1"), form)
            if not self._one_wins(key, if_match=etag):
                return False
        return True

    def exact(self) -> bool:
        key = self._key("exact")
        self._store.put(key, _BODY)
        blob = self._store.get(key)
        return blob is not None and blob.data == _BODY

    def lists(self) -> bool:
        keys = [self._key(f"list{9 - n}-{n}") for n in (1, 2, 3)]
        for key in keys:
            self._store.put(key, b"")
        keys.sort()
        try:
            found = list(self._store.entries(f"{self._prefix}list", page=2))
            rest = self._store.list(f"{self._prefix}list", after=keys[0], limit=1)
        except (Unsupported, WrongEndpoint):
            # Directory buckets take no start-after, and no prefix but a folder; other listings stand still.
            return False
        return [e.key for e in found] == keys and [e.key for e in rest.entries] == keys[1:2]

    def copies(self) -> bool:
        """Whether a copy is a create. Nothing depends on it: what the store does not answer is a "no"."""
        try:
            return self._store.bucket.copies and self.steadily(self._copies)
        except StreamError:
            return False

    def _copies(self) -> bool:
        names = ("source", "gone", "made", "taken", "free", "raced")
        source, gone, made, taken, free, raced = map(self._key, names)
        etag = self._store.bucket.put(source, _BODY, nonce="0").etag
        self._copied(source, made, etag)
        stands, found = self._store.get(source), self._store.get(made)
        if stands is None or found is None or (found.data, found.nonce) != (_BODY, stands.nonce):
            return False
        self._once(taken, b"1")
        if self._copied(source, taken, etag) or not self._stands(taken, [b"1"]):
            return False
        self._once(source, b"2")
        if any(self._copied(stale, free, etag) for stale in (source, gone)):
            return False
        if self._store.head(free) is not None:
            return False
        sources = {self._key(name): name.encode() for name in ("a", "b", "c")}
        copy = self._store.bucket.copy
        racers = {data: partial(copy, key, raced, self._once(key, data)) for key, data in sources.items()}
        return self._one_of(raced, racers, if_absent=True)

    def _copied(self, source: str, key: str, etag: str) -> bool:
        """Whether the store says that it has copied."""
        try:
            return self._store.bucket.copy(source, key, etag)
        except PreconditionFailed:
            return False

    def _key(self, name: str) -> str:
        key = f"{self._prefix}{name}-{len(self._keys)}"
        self._keys.append(key)
        return key

    def _once(self, key: str, data: bytes) -> str:
        """The ETag of a write that was tried a single time: the first try of two may land behind the second,
        and what is then stored has another ETag. Unanswered, the question is asked again on fresh keys."""
        return self._store.bucket.put(key, data).etag

    def _holds(self, key: str, data: bytes, **condition: Any) -> bool:
        """True if the conditional write was done, whatever its answer says; False if it was refused."""
        try:
            self._store.bucket.put(key, data, **condition)
        except Unsupported:
            self.refuses = self.refuses or "if_absent" in condition
            return False
        except PreconditionFailed:
            return self._stands(key, [data], **condition)
        return True

    def _stands(self, key: str, written: list[bytes], **condition: Any) -> bool:
        """Whether one of these writes, all of which were refused under a condition, was done all the same."""
        blob = self._store.get(key)
        if blob is None and "if_absent" in condition:
            raise Unreachable(f"a create of {key} was refused where nothing stands")
        return blob is not None and blob.data in written

    def _one_wins(self, key: str, **condition: Any) -> bool:
        written = [f"racer {number}".encode() for number in range(RACERS)]
        put = self._store.bucket.put
        return self._one_of(
            key, {data: partial(put, key, data, **condition) for data in written}, **condition
        )

    def _one_of(self, key: str, racers: Mapping[bytes, Callable[[], object]], **condition: Any) -> bool:
        """Whether one of these writes wins; each by what it writes."""

        def run(racer: Callable[[], object]) -> object:
            try:
                return racer()
            except (PreconditionFailed, Unsupported, Unreachable) as error:
                return error

        results = self._store.gather([partial(run, racer) for racer in racers.values()], writes=True)
        winners = sum(not isinstance(result, StreamError) for result in results)
        unsettled = next((r for r in results if isinstance(r, Unreachable)), None)
        if winners == 0 and unsettled is not None:
            raise unsettled
        if winners == 0 and all(isinstance(result, PreconditionFailed) for result in results):
            return self._stands(key, [*racers], **condition)
        return winners == 1


def _formed(etag: str, form: str) -> str:
    return etag.strip('"') if form == "unquoted" else etag
