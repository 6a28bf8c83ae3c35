"""The probe: what it finds, what it leaves, and what the engine demands."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from lying import (
    NO_CREATES_BY_COPY,
    IgnoresConditions,
    IgnoresIfMatch,
    IgnoresStartAfter,
    KeepsFraming,
    RefusesConditions,
    TakesNoIfMatch,
    Unsorted,
    WantsUnquoted,
)

from streams.buckets.memory import MemoryBucket
from streams.errors import (
    AccessDenied,
    Corrupt,
    NewerVersion,
    PreconditionFailed,
    Throttled,
    Unreachable,
    Unsupported,
)
from streams.probe import KEY, Capabilities, decode, ensure, load, probe, require
from streams.store import Retries, Store
from streams.testing import FakeClock, Fault, FaultyBucket

GOOD = Capabilities(create=True, replace=True, exact=True, listing=True, etag="as-given", checked_at=1)


def store_of(bucket, *plan: Fault, threads: bool = True) -> Store:
    clock = FakeClock(threads=threads)
    return Store(FaultyBucket(bucket, plan, trusted=False), clock, retries=Retries(attempts=3))


class Racy(MemoryBucket):
    """Looks, and writes later: conditions hold for one caller at a time and for no two."""

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if "race" in key and if_absent:
            return super().put(key, data, nonce=nonce)
        return super().put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)


class DirectoryBucket(MemoryBucket):
    """As S3 Express lists: folders alone, from the beginning, in no order."""

    def list(self, prefix, *, after="", limit=1000):
        if after or not prefix.endswith("/"):
            raise Unsupported("400 InvalidRequest")
        page = super().list(prefix, limit=limit)
        return type(page)(page.entries[::-1], page.more, page.resume, page.date_ms)


class IgnoresAfter(MemoryBucket):
    def list(self, prefix, *, after="", limit=1000):
        return super().list(prefix, limit=1000)


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize(
    ("kind", "create", "replace", "exact", "listing", "etag"),
    [
        (MemoryBucket, True, True, True, True, "as-given"),
        (IgnoresConditions, False, False, True, True, "as-given"),
        (TakesNoIfMatch, True, False, True, True, "none"),
        (WantsUnquoted, True, True, True, True, "unquoted"),
        (IgnoresIfMatch, True, False, True, True, "as-given"),
        (Racy, False, True, True, True, "as-given"),
        (KeepsFraming, True, True, False, True, "as-given"),
        (Unsorted, True, True, True, False, "as-given"),
        (IgnoresAfter, True, True, True, False, "as-given"),
        (DirectoryBucket, True, True, True, False, "as-given"),
        (IgnoresStartAfter, True, True, True, False, "as-given"),
        (RefusesConditions, False, False, True, True, "none"),
    ],
)
def test_the_probe_finds_what_a_store_keeps(kind, create, replace, exact, listing, etag, threads) -> None:
    inner = kind()
    store = store_of(inner, threads=threads)
    found = probe(store, store.clock)
    refuses = kind is RefusesConditions
    copy = create and exact
    expected = Capabilities(
        create, replace, exact, listing, etag, found.checked_at, refuses=refuses, copy=copy
    )
    assert found == expected
    assert [e.key for e in MemoryBucket.list(inner, "").entries] == [KEY] * exact, "a probe key was left"
    assert load(store) == (found if exact else None)


def test_the_real_backends_pass(backend) -> None:
    store = Store(backend.connect(), FakeClock(threads=True))
    found = probe(store, store.clock)
    copy = backend.traits.copies
    assert found == Capabilities(True, True, True, True, "as-given", found.checked_at, copy=copy)
    assert [e.key for e in store.entries("")] == [KEY]
    require(found)


@pytest.mark.parametrize("kind", NO_CREATES_BY_COPY)
def test_a_store_whose_copies_are_no_creates_is_asked_for_none(kind) -> None:
    inner = kind()
    store = store_of(inner, threads=False)
    found = probe(store, store.clock)
    assert found == replace(GOOD, checked_at=found.checked_at)
    assert [e.key for e in inner.list("").entries] == [KEY]


@pytest.mark.parametrize(
    ("verb", "number"), [*(("put", n) for n in range(1, 32)), *(("copy", n) for n in range(1, 8))]
)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [lambda: Unreachable("cut"), lambda: Throttled("slow")])
def test_a_reply_lost_anywhere_changes_no_answer(verb, number, when, error) -> None:
    inner = MemoryBucket()
    store = store_of(inner, Fault(verb, nth=number, when=when, error=error), threads=False)
    found = probe(store, store.clock)
    assert found == Capabilities(True, True, True, True, "as-given", found.checked_at, copy=True)
    assert [e.key for e in inner.list("").entries] == [KEY]


@pytest.mark.parametrize("number", range(1, 22))
def test_the_probes_keys_go_also_when_it_fails(number) -> None:
    inner = MemoryBucket()
    fault = Fault("put", nth=number, times=0, error=lambda: AccessDenied("no"))
    store = store_of(inner, fault, threads=False)
    with pytest.raises(AccessDenied):
        probe(store, store.clock)
    assert inner.list("").entries == ()


def test_a_store_that_never_answers_is_unreachable_and_not_unsupported() -> None:
    store = store_of(MemoryBucket(), Fault("put", times=0))
    with pytest.raises(Unreachable):
        probe(store, store.clock)


def test_a_key_that_cannot_be_deleted_is_told(caplog) -> None:
    store = store_of(MemoryBucket(), Fault("delete", error=lambda: AccessDenied("no")))
    probe(store, store.clock)
    assert "could not be deleted" in caplog.text


def test_what_the_engine_demands(caplog) -> None:
    require(GOOD)
    assert caplog.text == ""

    def without(**changes: object) -> Capabilities:
        return Capabilities(**{name: getattr(GOOD, name) for name in GOOD.__slots__} | changes)  # type: ignore[arg-type]

    for unfenced in (False, True):
        with pytest.raises(Unsupported, match="bytes"):
            require(without(exact=False), allow_unfenced=unfenced)
        with pytest.raises(Unsupported, match="order"):
            require(without(listing=False), allow_unfenced=unfenced)
        with pytest.raises(Unsupported, match="doctor --deep"):
            require(without(plain=False), allow_unfenced=unfenced)
        with pytest.raises(Unsupported, match="fenced or not"):
            require(without(create=False, refuses=True), allow_unfenced=unfenced)
    with pytest.raises(Unsupported, match="If-None-Match"):
        require(without(create=False))
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        require(without(create=False), allow_unfenced=True)
    assert "unnoticed" in caplog.text
    require(without(replace=False, etag="none"))
    assert "If-Match" in caplog.text


def test_a_writer_probes_once_and_a_trusted_store_never() -> None:
    store = store_of(MemoryBucket())
    first = ensure(store)
    asked = len(store.bucket.calls)
    assert ensure(store) == first
    assert store.bucket.verbs()[asked:] == ["get"]
    trusted = Store(FaultyBucket(MemoryBucket()), FakeClock())
    assert ensure(trusted) is None
    assert trusted.bucket.calls == []


def test_what_could_not_be_read_again_is_not_written_down() -> None:
    store = store_of(KeepsFraming())
    MemoryBucket.put(store.bucket.inner, KEY, GOOD.encode())
    probe(store, store.clock)
    assert load(store) is None
    for _ in range(2):
        with pytest.raises(Unsupported, match="bytes"):
            ensure(store)


def test_a_store_without_conditions_is_refused_by_a_writer_each_time() -> None:
    store = store_of(IgnoresConditions())
    for _ in range(2):
        with pytest.raises(Unsupported):
            ensure(store)
    assert ensure(store, allow_unfenced=True) == load(store)


def test_the_stored_form() -> None:
    assert GOOD.encode() == (
        b'{"version":1,"create":true,"replace":true,"exact":true,"listing":true,"etag":"as-given","checkedAt":1}'
    )
    assert decode(GOOD.encode()) == GOOD
    assert decode(GOOD.encode()[:-1] + b',"later":1}') == GOOD
    for changes in ({"plain": False}, {"refuses": True, "create": False}, {"deep": True}, {"copy": True}):
        told = replace(GOOD, **changes)
        assert decode(told.encode()) == told
    with pytest.raises(NewerVersion, match="version 2"):
        decode(GOOD.encode().replace(b'"version":1', b'"version":2'))
    for data in (
        b"",
        b"{}",
        b"[]",
        b"null",
        b"15\r\n{}",
        b'{"version":"x"}',
        GOOD.encode()[:-5],
        GOOD.encode()[:-1] + b',"plain":null}',
    ):
        with pytest.raises(Corrupt) as caught:
            decode(data)
        assert caught.value.key == KEY
    assert load(store_of(MemoryBucket())) is None


def test_of_two_findings_what_either_misses_is_missing() -> None:
    worse = replace(
        GOOD, create=False, listing=False, plain=False, refuses=True, deep=True, etag="none", checked_at=2
    )
    assert GOOD.less(worse) == replace(worse, etag="as-given", checked_at=1)
    copying = replace(GOOD, copy=True)
    assert (copying.less(GOOD), GOOD.less(copying), copying.less(copying)) == (GOOD, GOOD, copying)
    assert worse.less(GOOD) == worse
    assert GOOD.less(replace(GOOD, replace=False, exact=False)) == replace(GOOD, replace=False, exact=False)


class Repeating(MemoryBucket):
    """Behind a proxy that sends every conditional write twice: the answer is that to the second."""

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        written = super().put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)
        if if_absent or if_match is not None:
            raise PreconditionFailed(key)
        return written


class RefusesFirst(MemoryBucket):
    """Refuses the first creates, though nothing stands there."""

    refusals = 3

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if if_absent and self.refusals:
            self.refusals -= 1
            raise PreconditionFailed(key)
        return super().put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)


class RepeatingRacy(Repeating):
    """The same proxy before a store that ignores If-None-Match: the second create is done, too."""

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if if_absent:
            return MemoryBucket.put(self, key, data, nonce=nonce)
        return super().put(key, data, if_match=if_match, nonce=nonce)


@pytest.mark.parametrize(
    ("kind", "create"), [(Repeating, True), (RefusesFirst, True), (RepeatingRacy, False)]
)
def test_a_refusal_proves_nothing_but_a_second_success_does(kind, create) -> None:
    store = store_of(kind(), threads=False)
    found = probe(store, store.clock)
    assert found == Capabilities(create, True, True, True, "as-given", found.checked_at, copy=create)


def test_a_store_that_refuses_every_create_is_not_taken_for_one_that_ignores_conditions() -> None:
    bucket = RefusesFirst()
    bucket.refusals = 1_000
    store = store_of(bucket, threads=False)
    with pytest.raises(Unreachable, match="where nothing stands"):
        probe(store, store.clock)
    assert bucket.list("").entries == ()


class LandsLate(MemoryBucket):
    """Of the first write of a key that names `word` no answer comes, and it lands behind the next but one."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word, self.late, self.left = word, (), 2

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        if self.word in key and not self.late:
            self.late = (key, data)
            raise Unreachable("no answer")
        written = super().put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)
        if self.late and key == self.late[0] and self.left:
            self.left -= 1
            if not self.left:
                super().put(*self.late)
        return written


@pytest.mark.parametrize("word", ["replace", "swap0"])
def test_a_write_that_lands_late_is_not_taken_for_a_store_that_does_not_replace(word) -> None:
    store = Store(LandsLate(word), FakeClock(), retries=Retries(attempts=3))
    found = probe(store, store.clock)
    assert (found.replace, found.etag) == (True, "as-given")
