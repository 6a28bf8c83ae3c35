"""The request layer: retries, deadlines, unanswered writes, counters. All with fake time."""

from __future__ import annotations

import threading

import pytest

from streams.buckets.file import FileBucket
from streams.buckets.memory import MemoryBucket
from streams.clock import SystemClock
from streams.errors import (
    AccessDenied,
    BucketMissing,
    InvalidId,
    PreconditionFailed,
    Throttled,
    Unknown,
    Unreachable,
    Unsupported,
    WrongEndpoint,
)
from streams.stats import RequestStats
from streams.store import Retries, Store
from streams.testing import FakeClock, Fault, FaultyBucket


def throttled() -> Exception:
    return Throttled("injected: slow down")


def denied() -> Exception:
    return AccessDenied("injected: no")


def make(
    *plan: Fault, retries: Retries | None = None, seed: int = 0
) -> tuple[Store, FaultyBucket, FakeClock]:
    clock = FakeClock(seed=seed)
    bucket = FaultyBucket(MemoryBucket(clock), plan, clock=clock)
    return Store(bucket, clock, retries=retries), bucket, clock


def test_an_absent_key_reads_as_none() -> None:
    store, _, _ = make()
    assert store.get("a") is None
    assert store.head("a") is None


@pytest.mark.parametrize("error", [throttled, lambda: Unreachable("injected")])
@pytest.mark.parametrize("verb", ["get", "head", "list", "delete"])
def test_reads_and_deletes_are_repeated_after_growing_jittered_waits(verb, error) -> None:
    store, bucket, clock = make(Fault(verb, times=4, error=error))
    bucket.inner.put("a", b"1")
    {"get": store.get, "head": store.head, "list": store.list, "delete": store.delete}[verb]("a")
    assert bucket.verbs() == [verb] * 5
    assert clock.slept == sorted(clock.slept)
    assert len(set(clock.slept)) == 4


def test_waits_differ_between_stores() -> None:
    waits = []
    for seed in range(20):
        store, _, clock = make(Fault("put", times=2, error=throttled), seed=seed)
        store.put_once("a", b"1", if_absent=True, nonce="n")
        waits.append(tuple(clock.slept))
    assert len(set(waits)) == 20


@pytest.mark.parametrize(("error", "kind"), [(throttled, Throttled), (lambda: Unreachable("x"), Unreachable)])
def test_a_read_gives_up_at_its_deadline_with_the_last_error(error, kind) -> None:
    store, bucket, clock = make(Fault("get", times=0, error=error), retries=Retries(read_deadline=10))
    with pytest.raises(kind, match=r"tried \d+ times in 10 s") as caught:
        store.get("a")
    assert type(caught.value) is kind
    assert clock.monotonic() == pytest.approx(10)
    assert 3 < len(bucket.calls) < 40


def test_the_number_of_attempts_is_bounded() -> None:
    store, bucket, _ = make(
        Fault(times=0), retries=Retries(read_deadline=1e9, write_deadline=1e9, attempts=7)
    )
    with pytest.raises(Unreachable, match="tried 7 times"):
        store.get("a")
    assert len(bucket.calls) == 7
    with pytest.raises(Unknown):
        store.put_once("a", b"1", if_absent=True, nonce="n")
    assert len(bucket.calls) == 14


def test_a_refusal_is_not_repeated() -> None:
    store, bucket, clock = make(Fault("put", error=lambda: AccessDenied("no")))
    with pytest.raises(AccessDenied):
        store.put("a", b"1")
    assert bucket.verbs() == ["put"]
    assert clock.slept == []


@pytest.mark.parametrize("verb", ["get", "head"])
def test_a_read_that_is_refused_is_absent_only_where_a_listing_says_so(verb: str) -> None:
    """So stores answer whoever may not list, also for what is not there."""
    store, bucket, _ = make(Fault(verb, times=0, error=denied))
    bucket.inner.put("ab", b"1")
    read = getattr(store, verb)
    assert read("a") is None
    assert bucket.verbs() == [verb, "list"]
    assert store.stats.snapshot().requests == 2
    with pytest.raises(AccessDenied):
        read("ab")
    bucket.plan.append(Fault("list", times=0, error=denied))
    with pytest.raises(AccessDenied):
        read("a")


def test_what_was_written_between_a_refusal_and_the_listing_is_read() -> None:
    store, bucket, _ = make(Fault("get", error=lambda: AccessDenied("absent as yet")))
    bucket.inner.put("a", b"1")
    blob = store.get("a")
    assert blob is not None
    assert blob.data == b"1"


def test_a_create_of_ones_own_that_may_not_be_looked_at() -> None:
    """Its reply was lost, the repeated one was refused, and a HEAD is not allowed."""
    for sole in (True, False):
        store, bucket, _ = make(Fault("put", when="after"), Fault("head", times=0, error=denied))
        if sole:
            store.put_once("a", b"1", if_absent=True, nonce="n", sole=True)
        else:
            with pytest.raises(AccessDenied):
                store.put_once("a", b"1", if_absent=True, nonce="n")
        assert bucket.verbs() == ["put", "put", "head"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("failures", [1, 2, 5])
@pytest.mark.parametrize("error", [throttled, lambda: Unreachable("cut")])
def test_a_create_whose_reply_is_lost_is_written_once(when, failures, error) -> None:
    store, bucket, _ = make(Fault("put", when=when, times=failures, error=error))
    written = store.put_once("a", b"1", if_absent=True, nonce="n1")
    blob = bucket.inner.get("a")
    assert blob is not None
    assert (blob.data, blob.nonce, blob.etag) == (b"1", "n1", written.etag)
    assert written.date_ms is not None


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_replacement_whose_reply_is_lost_is_written_once(when) -> None:
    store, bucket, _ = make(Fault("put", when=when))
    first = bucket.inner.put("a", b"0", nonce="n0")
    written = store.put_once("a", b"1", if_match=first.etag, nonce="n1")
    blob = bucket.inner.get("a")
    assert blob is not None
    assert (blob.data, blob.etag) == (b"1", written.etag)


def test_a_lost_race_is_told_from_an_own_write() -> None:
    store, bucket, _ = make()
    bucket.inner.put("a", b"theirs", nonce="other")
    with pytest.raises(PreconditionFailed):
        store.put_once("a", b"ours", if_absent=True, nonce="n1")
    assert bucket.verbs() == ["put", "head"]


def test_a_race_lost_after_an_unanswered_attempt() -> None:
    store, bucket, _ = make(Fault("put"))
    bucket.hook = lambda call, when: (
        bucket.inner.put("a", b"theirs", nonce="other") if call.number == 1 and when == "before" else None
    )
    with pytest.raises(PreconditionFailed):
        store.put_once("a", b"ours", if_absent=True, nonce="n1")
    assert bucket.inner.get("a").data == b"theirs"


def test_the_same_write_tried_again_later_finds_itself() -> None:
    store, _, _ = make(Fault("put", when="after", times=0), retries=Retries(attempts=1))
    with pytest.raises(Unknown):
        store.put_once("a", b"1", if_absent=True, nonce="n1")
    store.bucket.plan.clear()
    assert store.put_once("a", b"1", if_absent=True, nonce="n1").etag == store.head("a").etag


def test_the_question_whose_write_it_is_may_itself_fail() -> None:
    store, bucket, _ = make(Fault("put", when="after"), Fault("head", times=2))
    store.put_once("a", b"1", if_absent=True, nonce="n1")
    assert bucket.verbs() == ["put", "put", "head", "put", "head", "put", "head"]


def test_a_place_taken_and_gone_is_tried_again() -> None:
    store, bucket, _ = make()
    bucket.inner.put("a", b"theirs", nonce="other")
    bucket.hook = lambda call, when: (
        bucket.inner.delete("a") if call.verb == "head" and when == "before" else None
    )
    store.put_once("a", b"ours", if_absent=True, nonce="n1")
    assert bucket.inner.get("a").data == b"ours"


def test_a_replacement_of_a_deleted_object_fails() -> None:
    store, bucket, _ = make()
    first = bucket.inner.put("a", b"0")
    bucket.inner.delete("a")
    with pytest.raises(PreconditionFailed):
        store.put_once("a", b"1", if_match=first.etag, nonce="n1")
    assert bucket.inner.get("a") is None


@pytest.mark.parametrize("when", ["before", "after", "late"])
def test_an_append_never_answered_is_unknown_at_the_deadline(when) -> None:
    store, _, clock = make(Fault("put", when=when, times=0, seconds=5), Fault("head", times=0))
    with pytest.raises(Unknown, match="may still land"):
        store.put_once("a", b"1", if_absent=True, nonce="n1", deadline=30)
    assert 30 <= clock.monotonic() <= 35


def test_absence_is_no_proof_because_a_write_can_land_late() -> None:
    store, bucket, _ = make(Fault("put", when="late"))
    store.put_once("a", b"1", if_absent=True, nonce="n1")
    (landed,) = bucket.land()
    assert isinstance(landed, PreconditionFailed)
    assert bucket.inner.get("a").data == b"1"


def test_a_throttled_create_is_unknown_but_a_throttled_replacement_is_throttled() -> None:
    store, bucket, _ = make(Fault("put", times=0, error=throttled))
    with pytest.raises(Unknown):
        store.put_once("a", b"1", if_absent=True, nonce="n1", deadline=10)
    with pytest.raises(Throttled):
        store.put_once("a", b"1", if_match='"x"', nonce="n2", deadline=10)
    bucket.plan[:] = [Fault("put"), Fault("put", nth=2, times=0, error=throttled)]
    with pytest.raises(Unknown):
        store.put_once("a", b"1", if_match='"x"', nonce="n3", deadline=10)


class Nonceless(MemoryBucket):
    """A bucket that keeps no nonces, as the file bucket."""

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        return super().put(key, data, if_absent=if_absent, if_match=if_match)


@pytest.mark.parametrize(("stored", "ours"), [(b"1", True), (b"2", False), (b"long", False)])
def test_without_nonces_the_bytes_are_compared(stored: bytes, ours: bool) -> None:
    clock = FakeClock()
    store = Store(Nonceless(clock), clock)
    store.bucket.put("a", stored)
    if ours:
        assert store.put_once("a", b"1", if_absent=True, nonce="n").etag == store.head("a").etag
    else:
        with pytest.raises(PreconditionFailed):
            store.put_once("a", b"1", if_absent=True, nonce="n")


def test_a_copy_by_the_store_is_two_requests_and_brings_no_bytes_here() -> None:
    store, bucket, _ = make()
    bucket.inner.put("a", b"12", nonce="n")
    assert store.copy("a", "b", inside=True)
    assert bucket.verbs() == ["head", "copy"]
    assert store.stats.snapshot() == RequestStats(heads=1, puts=1, round_trips=2)
    copied = bucket.inner.get("b")
    assert (copied.data, copied.nonce) == (b"12", "n")


@pytest.mark.parametrize("when", ["before", "after", "late"])
@pytest.mark.parametrize("error", [lambda: Unreachable("cut"), throttled, denied, lambda: Unsupported("501")])
def test_a_copy_that_the_store_does_not_answer_well_is_settled_by_the_way_through_here(when, error) -> None:
    store, bucket, _ = make(Fault("copy", when=when, error=error))
    bucket.inner.put("a", b"12", nonce="n")
    assert store.copy("a", "b", inside=True)
    assert bucket.verbs()[:4] == ["head", "copy", "get", "put"]
    assert all(isinstance(result, PreconditionFailed) for result in bucket.land())
    copied = bucket.inner.get("b")
    assert (copied.data, copied.nonce) == (b"12", "n")


def test_of_copies_that_others_make_each_is_a_success_and_anything_else_is_left_alone() -> None:
    store, bucket, _ = make()
    bucket.inner.put("a", b"12", nonce="n")
    bucket.inner.put("copied", b"12", nonce="n")
    bucket.inner.put("another", b"21", nonce="m")
    assert store.copy("a", "copied", inside=True)
    assert not store.copy("a", "another", inside=True)
    assert bucket.inner.get("another").data == b"21"
    assert not store.copy("nothing", "b", inside=True)


def test_a_copy_that_lands_when_its_source_was_emptied_makes_nothing() -> None:
    store, bucket, _ = make(Fault("copy", when="late"))
    bucket.inner.put("a", b"12", nonce="n")
    bucket.hook = lambda asked, _: asked.verb == "copy" and bucket.inner.put("a", b"")
    assert not store.copy("a", "b", inside=True)
    (landed,) = bucket.land()
    assert isinstance(landed, PreconditionFailed)
    assert bucket.inner.get("b") is None


def test_a_conditional_write_takes_exactly_one_condition() -> None:
    store, bucket, _ = make()
    for conditions in ({}, {"if_absent": True, "if_match": '"x"'}):
        with pytest.raises(ValueError, match="either"):
            store.put_once("a", b"1", nonce="n", **conditions)
    assert bucket.calls == []


def test_requests_bytes_and_round_trips_are_counted() -> None:
    store, _, _ = make()
    before = store.stats.snapshot()
    store.put("a", b"12345")
    store.gather([lambda: store.get("a"), lambda: store.head("a"), lambda: store.list("")])
    store.delete("a")
    spent = store.stats.snapshot() - before
    assert spent == RequestStats(
        gets=1, heads=1, puts=1, lists=1, deletes=1, bytes_read=5, bytes_written=5, round_trips=3
    )
    assert spent.requests == 5


@pytest.mark.parametrize("threads", [False, True])
def test_a_batch_is_as_many_round_trips_as_its_longest_call(threads: bool) -> None:
    clock = FakeClock(threads=threads)
    store = Store(MemoryBucket(clock), clock)

    def twice() -> int:
        store.get("a")
        store.gather([lambda: store.get("b"), lambda: store.get("c")])
        return 2

    assert store.gather([twice, lambda: len(store.list("").entries)]) == [2, 0]
    assert store.stats.snapshot().round_trips == 2
    assert store.gather([]) == []
    assert store.stats.snapshot().round_trips == 2


def test_in_a_folder_only_writes_take_threads(tmp_path) -> None:
    store = Store(FileBucket(tmp_path), SystemClock())
    here = threading.current_thread()

    def where() -> bool:
        store.put("a", b"1")
        store.head("a")
        return threading.current_thread() is here

    assert store.gather([where, where]) == [True, True]
    assert store.stats.snapshot().round_trips == 2
    assert store.gather([where, where], writes=True) == [False, False]
    assert store.stats.snapshot().round_trips == 4
    with pytest.raises(InvalidId):
        store.gather([where, lambda: store.get("../a"), where])
    assert store.stats.snapshot().round_trips == 6


def test_a_failed_call_of_a_batch_raises_and_every_attempt_counts() -> None:
    store, _, _ = make(Fault("get", times=2), Fault("head", error=lambda: BucketMissing("no")))
    with pytest.raises(BucketMissing):
        store.gather([lambda: store.get("a"), lambda: store.head("a")])
    spent = store.stats.snapshot()
    assert (spent.gets, spent.heads, spent.round_trips) == (3, 1, 3)


def test_counters_lose_nothing_between_threads() -> None:
    store, _, _ = make()
    threads = [threading.Thread(target=lambda: [store.get("a") for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.stats.snapshot().gets == 4000


@pytest.mark.parametrize("count", [0, 1, 1000, 2000, 2345])
def test_entries_follow_every_page(count: int) -> None:
    store, _, _ = make()
    for n in range(count):
        store.bucket.inner.put(f"x/{n:06}", b"")
    assert [e.key for e in store.entries("x/")] == [f"x/{n:06}" for n in range(count)]


def test_an_object_added_between_two_pages_hides_and_repeats_nothing() -> None:
    store, bucket, _ = make()
    for n in range(0, 20, 2):
        bucket.inner.put(f"x/{n:02}", b"")
    bucket.hook = lambda call, when: (
        [bucket.inner.put(f"x/{n}", b"") for n in ("01", "99")] and None
        if call.number == 2 and when == "before"
        else None
    )
    assert [e.key for e in store.entries("x/", page=5)] == [f"x/{n:02}" for n in range(0, 20, 2)] + ["x/99"]


def test_an_empty_page_with_more_behind_it_is_followed_and_a_stuck_one_refused() -> None:
    store, bucket, _ = make()
    bucket.inner.put("x/1", b"")
    whole = bucket.inner.list

    def short(prefix, *, after="", limit=1000):
        page = whole(prefix, after=after, limit=limit)
        return type(page)((), True, "x/0", None) if not after else page

    bucket.inner.list = short
    assert [e.key for e in store.entries("x/")] == ["x/1"]
    bucket.inner.list = lambda prefix, *, after="", limit=1000: type(whole(""))((), True, after, None)
    with pytest.raises(WrongEndpoint, match="stands still"):
        list(store.entries("x/"))
