"""The questions that a probe puts to a store, and the keys that it puts them on.

A refusal (412) says nothing by itself: behind a proxy that repeats requests, who has written is told that
it was refused. So the probe looks at what stands there then. Only a write that was done against its
condition proves that conditions are ignored; a create that is refused where nothing stands proves nothing.

Its keys are `probe/<token>-…`, and it deletes them whatever happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from streams.clock import Clock
from streams.errors import (
    PreconditionFailed,
    StreamError,
    Unreachable,
    Unsupported,
    WrongEndpoint,
)
from streams.store import Store

logger = logging.getLogger("snapshotter")  # one name for users to configure
T = TypeVar("T")

RACERS = 3  # some real servers answer a fourth racer on one key only after seconds
ROUNDS = 2
_TRIES = 4
# What a driver's chunked upload looks like when a store keeps it, and bytes that no text codec leaves alone.
_BODY = b"15\r\n{}\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n" + bytes(range(256))


class Trial:
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
