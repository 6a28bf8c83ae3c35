"""The bucket contract of `streams.buckets.base`, as checks that any backend can be held to.

A check is a function of `connect` and `traits`. `connect()` returns another bucket on one and the same root,
empty when the check starts, as another process would open it. `traits` says how hard to race, and what
a backend is known not to do. With pytest:

    @pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
    def test_my_bucket(check, tmp_path):
        check(lambda: MyBucket(tmp_path), Traits())

A check raises AssertionError where the contract is broken. Nothing here needs a test framework.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from streams.buckets.base import Bucket, Entry, Written
from streams.clock import SystemClock
from streams.errors import PreconditionFailed
from streams.store import Store

T = TypeVar("T")
Connect = Callable[[], Bucket]


@dataclass(frozen=True, slots=True)
class Traits:
    """How to test one backend.

    `racers` threads race `rounds` times. `objects` is the size of the long listing. `nonces`: object
    metadata is kept. `byte_order`: listings are in byte order across folders as well as within one.
    """

    racers: int = 16
    rounds: int = 200
    objects: int = 2345
    nonces: bool = True
    byte_order: bool = True


Check = Callable[[Connect, Traits], None]
CHECKS: dict[str, Check] = {}


def _check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


# --- helpers --------------------------------------------------------------------------------------------


def race(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Start all calls at one moment; each result, or the exception it raised, in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        barrier.wait()
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the check judges it
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def refused(call: Callable[[], Any]) -> None:
    """Assert that the call raises PreconditionFailed."""
    try:
        result = call()
    except PreconditionFailed:
        return
    raise AssertionError(f"the condition was ignored: {result!r}")


def fill(bucket: Bucket, keys: Sequence[str]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: bucket.put(key, key.encode()), keys))


def pages(bucket: Bucket, prefix: str, limit: int) -> list[list[Entry]]:
    """Every page of a listing, followed to its end."""
    found: list[list[Entry]] = []
    after = ""
    while True:
        page = bucket.list(prefix, after=after, limit=limit)
        assert len(page.entries) <= limit, f"{len(page.entries)} entries where at most {limit} were asked for"
        found.append(list(page.entries))
        if not page.more:
            return found
        assert page.resume != after, f"the listing stands still at {after!r}"
        after = page.resume


def names(bucket: Bucket, prefix: str, limit: int = 1000) -> list[str]:
    return [entry.key for page in pages(bucket, prefix, limit) for entry in page]


def segment_keys(count: int) -> list[str]:
    """Keys as the logs have them: newest first in byte order."""
    return [f"out/s/{9_999_999_999_999_999 - n}-{n}.jsonl" for n in range(count, 0, -1)]


# --- reading and writing --------------------------------------------------------------------------------


@_check
def absent_reads_as_none(connect: Connect, _: Traits) -> None:
    bucket = connect()
    assert bucket.get("in/nobody/1.jsonl") is None
    assert bucket.head("in/nobody/1.jsonl") is None
    assert bucket.list("in/nobody/").entries == ()
    bucket.put("in/nobody/1.jsonl", b"x")
    assert bucket.get("in/nobody") is None, "a folder is no object"
    assert bucket.get("in/nobody/1.jsonl/2") is None, "nothing is below an object"


@_check
def bytes_come_back_as_they_were(connect: Connect, _: Traits) -> None:
    bucket, other = connect(), connect()
    bodies = {
        "empty": b"",
        "every-byte": bytes(range(256)) * 3,
        "lines": b'{"a":1}\r\n{"b":"\xc3\xa9"}\n\n',
        "framed": b"15\r\n{}\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
        "gzip": b"\x1f\x8b\x08\x00 not really",
    }
    for name, body in bodies.items():
        bucket.put(f"b/{name}", body, if_absent=True)
    for name, body in bodies.items():
        blob, head = other.get(f"b/{name}"), other.head(f"b/{name}")
        assert blob is not None, name
        assert head is not None, name
        assert blob.data == body, f"{name}: {blob.data[:80]!r}"
        assert (head.size, head.etag) == (len(body), blob.etag), name


@_check
def large_bodies_come_back(connect: Connect, _: Traits) -> None:
    body = bytes(range(251)) * (6 * 1024 * 1024 // 251)
    bucket = connect()
    bucket.put("b/large", body, if_absent=True)
    blob = bucket.get("b/large")
    assert blob is not None
    assert blob.data == body


@_check
def keys_are_taken_literally(connect: Connect, _: Traits) -> None:
    bucket = connect()
    keys = [
        "k/a",
        "k/A%20b",
        "k/a%2Fb",
        "k/a%252Fb",
        "k/a+b",
        "k/a=b@c",
        "k/.hidden",
        "k/x..y",
        "k/-_.~"[:-1],
    ]
    for key in keys:
        bucket.put(key, key.encode(), if_absent=True)
    for key in keys:
        blob = bucket.get(key)
        assert blob is not None, key
        assert blob.data == key.encode()
    assert sorted(names(bucket, "k/")) == sorted(keys)


@_check
def deletes_are_final_and_repeatable(connect: Connect, _: Traits) -> None:
    bucket = connect()
    bucket.delete("d/never")
    bucket.put("d/1", b"1", if_absent=True)
    bucket.delete("d/1")
    bucket.delete("d/1")
    assert bucket.get("d/1") is None
    assert names(bucket, "d/") == []
    bucket.put("d/1", b"2", if_absent=True)
    blob = bucket.get("d/1")
    assert blob is not None
    assert blob.data == b"2"


@_check
def nonces_travel_with_the_object(connect: Connect, traits: Traits) -> None:
    bucket = connect()
    bucket.put("n/1", b"1", if_absent=True, nonce="abc123")
    bucket.put("n/2", b"2", if_absent=True)
    seen = []
    for key in ("n/1", "n/2"):
        blob, head = bucket.get(key), bucket.head(key)
        assert blob is not None
        assert head is not None
        assert blob.nonce == head.nonce
        seen.append(head.nonce)
    assert seen == (["abc123", None] if traits.nonces else [None, None])


@_check
def the_store_dates_its_answers(connect: Connect, _: Traits) -> None:
    bucket = connect()
    written = bucket.put("t/1", b"1", if_absent=True)
    blob, head = bucket.get("t/1"), bucket.head("t/1")
    assert blob is not None
    assert head is not None
    (entry,) = bucket.list("t/").entries
    assert written.date_ms is not None
    for date, modified in ((blob.date_ms, blob.modified_ms), (head.date_ms, head.modified_ms)):
        assert date is not None
        assert modified is not None
        # HTTP dates are whole seconds, so two of one clock may differ by almost one.
        assert -1000 <= date - modified <= 600_000, (date, modified)
    assert entry.modified_ms is not None
    assert abs(entry.modified_ms - (head.modified_ms or 0)) <= 1000


# --- conditions -----------------------------------------------------------------------------------------


@_check
def a_key_is_created_once(connect: Connect, _: Traits) -> None:
    bucket, other = connect(), connect()
    bucket.put("c/1", b"first", if_absent=True)
    refused(lambda: bucket.put("c/1", b"second", if_absent=True))
    refused(lambda: other.put("c/1", b"first", if_absent=True))
    bucket.put("c/empty", b"", if_absent=True)
    refused(lambda: bucket.put("c/empty", b"x", if_absent=True))
    blob = other.get("c/1")
    assert blob is not None
    assert blob.data == b"first"


@_check
def only_the_named_version_is_replaced(connect: Connect, _: Traits) -> None:
    bucket, other = connect(), connect()
    first = bucket.put("c/1", b"1", if_absent=True)
    second = other.put("c/1", b"2", if_match=first.etag)
    refused(lambda: bucket.put("c/1", b"3", if_match=first.etag))
    refused(lambda: bucket.put("c/absent", b"1", if_match=first.etag))
    assert bucket.get("c/absent") is None
    assert second.etag != first.etag
    bucket.put("c/1", b"3", if_match=second.etag)
    blob = other.get("c/1")
    assert blob is not None
    assert blob.data == b"3"


@_check
def an_unconditional_put_overwrites(connect: Connect, _: Traits) -> None:
    bucket = connect()
    bucket.put("c/1", b"1")
    bucket.put("c/1", b"2")
    blob = bucket.get("c/1")
    assert blob is not None
    assert blob.data == b"2"


@_check
def every_etag_serves_as_a_condition(connect: Connect, _: Traits) -> None:
    """A listing may leave the ETag empty; where it gives one, it serves."""
    bucket = connect()
    sources: dict[str, Callable[[Written], str]] = {
        "put": lambda written: written.etag,
        "get": lambda _: getattr(bucket.get("e/1"), "etag", ""),
        "head": lambda _: getattr(bucket.head("e/1"), "etag", ""),
        "list": lambda written: bucket.list("e/").entries[0].etag or written.etag,
    }
    written = bucket.put("e/1", b"0", if_absent=True)
    for number, (name, etag_of) in enumerate(sources.items(), 1):
        try:
            written = bucket.put("e/1", f"{number}".encode(), if_match=etag_of(written))
        except PreconditionFailed as error:
            raise AssertionError(f"the ETag that {name} gave was refused") from error


# --- listing --------------------------------------------------------------------------------------------


@_check
def a_listing_is_ordered_bounded_and_resumable(connect: Connect, _: Traits) -> None:
    bucket = connect()
    keys = segment_keys(12)
    fill(bucket, keys)
    first = bucket.list("out/s/", limit=5)
    assert [e.key for e in first.entries] == keys[:5]
    assert first.more
    assert [e.key for e in bucket.list("out/s/", after=keys[6], limit=3).entries] == keys[7:10]
    between = keys[6][:-1]  # no object, sorts right before keys[6]
    assert [e.key for e in bucket.list("out/s/", after=between, limit=1).entries] == [keys[6]]
    assert bucket.list("out/s/", after=keys[-1]).entries == ()
    for limit in (1, 4, 5, 12, 1000):
        assert names(bucket, "out/s/", limit) == keys, f"pages of {limit}"
    whole = bucket.list("out/s/", limit=12)
    assert len(whole.entries) == 12
    assert all(e.size == len(e.key) for e in whole.entries)


@_check
def a_listing_keeps_to_its_prefix(connect: Connect, _: Traits) -> None:
    bucket = connect()
    fill(bucket, ["in/a/1", "in/a/2", "in/a-b/1", "in/ab/1", "in/a.b/1", "inn/a/1", "out/a/1"])
    assert names(bucket, "in/a/") == ["in/a/1", "in/a/2"]
    assert sorted(names(bucket, "in/")) == ["in/a-b/1", "in/a.b/1", "in/a/1", "in/a/2", "in/ab/1"]
    assert names(bucket, "in/a/2") == ["in/a/2"]
    assert names(bucket, "nothing/") == []
    assert len(names(bucket, "")) == 7


@_check
def a_catalogue_over_folders_is_complete(connect: Connect, traits: Traits) -> None:
    bucket = connect()
    sids = ["a", "a-b", "a.b", "ab", "A", "b%20c", "z", "0", *(f"s{n}" for n in range(20))]
    keys = sorted(f"sessions/{sid}/snapshot.json" for sid in sids)
    fill(bucket, keys)
    for limit in (1, 3, 7, len(keys), 1000):
        found = names(bucket, "sessions/", limit)
        assert sorted(found) == keys, f"pages of {limit}: {len(found)} names for {len(keys)} objects"
        if traits.byte_order:
            assert found == keys


@_check
def a_long_listing_misses_and_repeats_nothing(connect: Connect, traits: Traits) -> None:
    bucket = connect()
    keys = segment_keys(traits.objects)
    fill(bucket, keys)
    sizes = [len(page) for page in pages(bucket, "out/s/", 1000)]
    assert sum(sizes) == traits.objects
    assert names(bucket, "out/s/", 1000) == keys
    assert names(bucket, "out/s/", traits.objects // 5) == keys


@_check
def an_object_added_between_pages_disturbs_no_other(connect: Connect, _: Traits) -> None:
    bucket = connect()
    keys = [f"l/s/{n:04}" for n in range(0, 40, 2)]
    fill(bucket, keys)
    first = bucket.list("l/s/", limit=10)
    fill(bucket, ["l/s/0001", "l/s/0099"])
    rest = bucket.list("l/s/", after=first.resume, limit=1000)
    assert [e.key for e in first.entries + rest.entries] == [*keys, "l/s/0099"]


# --- races ----------------------------------------------------------------------------------------------


@_check
def one_racer_creates(connect: Connect, traits: Traits) -> None:
    buckets = [connect() for _ in range(traits.racers)]
    for number in range(traits.rounds):
        key = f"r/{number}"
        puts = [
            partial(bucket.put, key, f"racer {n}".encode(), if_absent=True)
            for n, bucket in enumerate(buckets)
        ]
        _one_winner(race(puts), buckets[0], key)


@_check
def one_racer_replaces(connect: Connect, traits: Traits) -> None:
    buckets = [connect() for _ in range(traits.racers)]
    etag = buckets[0].put("r/1", b"start", if_absent=True).etag
    for number in range(traits.rounds):
        puts = [
            partial(bucket.put, "r/1", f"{number} by {n}".encode(), if_match=etag)
            for n, bucket in enumerate(buckets)
        ]
        etag = _one_winner(race(puts), buckets[0], "r/1").etag


def _one_winner(results: Sequence[Written | Exception], bucket: Bucket, key: str) -> Written:
    won = [(n, r) for n, r in enumerate(results) if isinstance(r, Written)]
    strange = [r for r in results if not isinstance(r, Written | PreconditionFailed)]
    assert not strange, f"a racer met {strange[0]!r}"
    assert len(won) == 1, f"{len(won)} of {len(results)} racers won"
    winner, written = won[0]
    blob = bucket.get(key)
    assert blob is not None
    assert blob.data.endswith(str(winner).encode()), f"racer {winner} won, but {blob.data!r} is stored"
    return written


@_check
def a_copy_has_the_bytes_and_the_nonce(connect: Connect, traits: Traits) -> None:
    """Also where the bucket cannot copy: then the store reads and writes."""
    store = Store(connect(), SystemClock())
    store.put("c/source%20and.more", b"\x00bytes\r\n", nonce="n1")
    store.put("c/target", b"what stood there", nonce="n2")
    assert store.copy("c/source%20and.more", "c/target")
    for key in ("c/source%20and.more", "c/target"):
        blob = store.get(key)
        assert blob is not None
        assert blob.data == b"\x00bytes\r\n"
        assert blob.nonce == ("n1" if traits.nonces else None)
    assert not store.copy("c/nothing", "c/target")
    found = store.get("c/target")
    assert found is not None
    assert found.data == b"\x00bytes\r\n", "a source that is not there leaves the target alone"


@_check
def an_object_is_seen_whole_or_not_at_all(connect: Connect, traits: Traits) -> None:
    writer, reader = connect(), connect()
    bodies = [bytes([65 + n]) * (200_000 + n) for n in range(4)]
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(min(traits.rounds, 50)):
                writer.put("w/1", bodies[number % 4])
                writer.put(f"w/new-{number}", bodies[number % 4], if_absent=True)
        finally:
            done.set()

    def read() -> None:
        number = 0
        while not done.is_set():
            for key in ("w/1", f"w/new-{number}"):
                blob = reader.get(key)
                assert blob is None or blob.data in bodies, f"{key}: {len(blob.data)} torn bytes"
                number += blob is not None and key != "w/1"

    for result in race([write, read]):
        if isinstance(result, Exception):
            raise result
