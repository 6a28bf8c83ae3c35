"""Reading: listings of any length, dead segments, gaps, chains, merged segments, followers, senders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from log_samples import Chain, text

from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.clock import SystemClock
from streams.codec import encode_segment
from streams.errors import Conflict, Corrupt, Gap, InvalidValue, TooLarge, Unknown, Unreachable, WrongEndpoint
from streams.log import (
    HALF_AGE_MS,
    RECENT_MS,
    Vanished,
    append_input,
    fetch,
    follow,
    newest,
    read_after,
    read_all,
    tail_keys,
)
from streams.records import LIMIT, Cursor
from streams.store import Retries, Store
from streams.testing.clocks import FakeClock
from streams.testing.faults import Call, Fault, FaultyBucket


def ids(records: list[dict[str, Any]]) -> list[int]:
    return [record["id"] for record in records]


# --- listings ---------------------------------------------------------------------------------------------


def test_an_absent_log_is_empty(store: Store) -> None:
    tail = read_all(store, "out", "s")
    assert (tail.segments, tail.records, tail.last) == ([], [], Cursor())
    assert newest(store, "in", "s").entries == ()


def test_newest_shows_the_newest_first_and_says_that_there_is_more(store: Store, chain: Chain) -> None:
    for _ in range(30):
        chain.put(2)
    listing = newest(store, "out", "s")
    assert [place.first for place in listing.entries] == list(range(59, 19, -2))
    assert listing.more
    assert listing.date_ms == store.clock.now_ms()
    assert listing.entries[0].modified_ms == store.clock.now_ms()
    assert not newest(store, "out", "s", limit=100).more


@pytest.mark.parametrize(("size", "lists"), [(2345, 4), (1000, 2), (2000, 3), (20, 1), (21, 2)])
def test_a_log_of_any_length_is_read_whole_and_in_order(store: Store, size: int, lists: int) -> None:
    for i in range(1, size + 1):
        data = encode_segment("in", [{"id": i, "ts": 0, "kind": "stop"}], nonce=f"n{i}")
        store.bucket.put(keys.segment("in", "s", i), data)
    before = store.stats.snapshot()
    assert ids(read_all(store, "in", "s").records) == list(range(1, size + 1))
    cost = store.stats.snapshot() - before
    assert (cost.lists, cost.gets, cost.round_trips) == (lists, size, lists + 1)


def test_a_tail_costs_one_listing_and_one_parallel_read(store: Store, chain: Chain) -> None:
    for _ in range(1100):
        chain.put(1)
    before = store.stats.snapshot()
    tail = read_after(store, "out", "s", Cursor(1095, "n1095"))
    cost = store.stats.snapshot() - before
    assert ids(tail.records) == [1096, 1097, 1098, 1099, 1100]
    assert tail.last == Cursor(1100, "n1100")
    assert (cost.lists, cost.gets, cost.round_trips) == (1, 5, 2)


def test_a_listing_made_before_is_not_made_again(store: Store, chain: Chain) -> None:
    for _ in range(40):
        chain.put(1)
    listing = newest(store, "out", "s")
    before = store.stats.snapshot()
    assert ids(read_after(store, "out", "s", Cursor(30, "n30"), listing).records) == list(range(31, 41))
    assert (store.stats.snapshot() - before).lists == 0
    assert len(read_after(store, "out", "s", Cursor(2, "n2"), listing).records) == 38


def test_other_sessions_and_foreign_keys_are_not_seen(store: Store, chain: Chain) -> None:
    chain.put(1)
    Chain(store, "s2").put(3)
    store.put("out/s/notes.txt", b"hello")
    store.put("out/s/0000000000000000-5.jsonl", b"a key whose parts disagree")
    assert ids(read_all(store, "out", "s").records) == [1]
    assert len(tail_keys(store, "out", "s", 0).entries) == 1


class PagedBucket(MemoryBucket):
    """Gives short and empty pages, and lets something happen between two of them."""

    between: Callable[[], None] = staticmethod(lambda: None)
    stuck = False

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Any:
        from dataclasses import replace

        page = super().list(prefix, after=after, limit=min(limit, 2))
        self.between()
        if after and not after.endswith("!"):
            # An empty page that still says there is more.
            return replace(page, entries=(), more=True, resume=after if self.stuck else after + "!")
        return page


def test_short_and_empty_pages_are_followed(clock: FakeClock) -> None:
    store = Store(PagedBucket(clock), clock)
    chain = Chain(store)
    for _ in range(7):
        chain.put(1)
    assert len(newest(store, "out", "s", 7).entries) == 7
    assert len(read_all(store, "out", "s").records) == 7


def test_a_segment_that_comes_between_two_pages_hides_and_repeats_nothing(clock: FakeClock) -> None:
    bucket = PagedBucket(clock)
    store = Store(bucket, clock)
    chain = Chain(store)
    for _ in range(5):
        chain.put(1)
    late = iter([lambda: chain.put(1)])
    bucket.between = lambda: next(late, lambda: None)()
    assert ids(read_all(store, "out", "s").records) == [1, 2, 3, 4, 5]
    assert ids(read_all(store, "out", "s").records) == [1, 2, 3, 4, 5, 6]


def test_a_listing_that_stands_still_is_not_asked_for_ever(clock: FakeClock) -> None:
    bucket = PagedBucket(clock)
    store = Store(bucket, clock)
    chain = Chain(store)
    for _ in range(5):
        chain.put(1)
    bucket.stuck = True
    with pytest.raises(WrongEndpoint, match="stands still"):
        read_all(store, "out", "s")


# --- the chain --------------------------------------------------------------------------------------------


def test_a_dead_segment_is_skipped_whole_whatever_it_holds(store: Store, chain: Chain) -> None:
    chain.put(10)
    chain.put(3)
    Chain(store).put(9, first=8, nonce="zombie", prev="n1")
    tail = read_all(store, "out", "s")
    assert ids(tail.records) == list(range(1, 14))
    assert {record["by"] for record in tail.records} == {"n1", "n11"}
    assert tail.last == Cursor(13, "n11")


def test_a_dead_segment_above_the_cursor_is_skipped_too(store: Store, chain: Chain) -> None:
    chain.put(2)
    chain.put(5)
    Chain(store).put(9, first=5, nonce="zombie", prev="x")
    assert ids(read_after(store, "out", "s", Cursor(2, "n1")).records) == [3, 4, 5, 6, 7]


def test_missing_records_are_a_gap_that_names_them(store: Store, chain: Chain) -> None:
    chain.put(4)
    middle = chain.put(3)
    chain.put(2)
    store.delete(middle)
    with pytest.raises(Gap) as caught:
        read_all(store, "out", "s")
    assert (caught.value.log, caught.value.missing) == ("out", (5, 7))
    assert "5 to 7" in str(caught.value)


def test_a_trimmed_log_has_a_gap_at_its_beginning_and_reads_from_the_checkpoint(
    store: Store, chain: Chain
) -> None:
    first = chain.put(4)
    chain.put(3)
    store.delete(first)
    with pytest.raises(Gap) as caught:
        read_all(store, "out", "s")
    assert caught.value.missing == (1, 4)
    assert ids(read_after(store, "out", "s", Cursor(4, "n1")).records) == [5, 6, 7]


def test_an_emptied_segment_counts_as_absent(store: Store, chain: Chain) -> None:
    first = chain.put(4)
    chain.put(1)
    store.put(first, b"")
    with pytest.raises(Gap) as caught:
        read_all(store, "out", "s")
    assert caught.value.missing == (1, 4)
    assert ids(read_after(store, "out", "s", Cursor(4, "n1")).records) == [5]


def test_a_segment_that_continues_another_log_is_a_gap(store: Store, chain: Chain) -> None:
    chain.put(4)
    chain.put(3, prev="another")
    with pytest.raises(Gap, match="another log") as caught:
        read_all(store, "out", "s")
    assert caught.value.missing == (5, 7)


def test_the_cursors_own_nonce_is_checked_when_it_is_known(store: Store, chain: Chain) -> None:
    chain.put(4)
    chain.put(1)
    with pytest.raises(Gap, match="another log"):
        read_after(store, "out", "s", Cursor(4, "another"))
    assert ids(read_after(store, "out", "s", Cursor(4)).records) == [5]


def test_a_first_segment_that_continues_something_is_a_gap(store: Store) -> None:
    Chain(store).put(2, prev="before")
    with pytest.raises(Gap, match="another log"):
        read_all(store, "out", "s")


def test_the_in_log_is_no_chain(store: Store) -> None:
    for i in (1, 2):
        data = encode_segment("in", [{"id": i, "ts": 0, "kind": "stop"}], nonce="n")
        store.put(keys.segment("in", "s", i), data)
    assert ids(read_after(store, "in", "s", Cursor(1, "whatever")).records) == [2]


def test_a_merged_segment_covers_a_cursor_in_its_middle(store: Store, chain: Chain) -> None:
    for _ in range(6):
        chain.put(5)
    chain.put(2)
    merged = Chain(store)
    merged.last, merged.nonce = 5, "n1"
    for first in range(11, 21, 5):
        store.delete(keys.segment("out", "s", first))
    merged.put(25, nonce="n26")  # 6 to 30, as compaction leaves it; 21 and 26 are not deleted yet
    tail = read_after(store, "out", "s", Cursor(12, ""))
    assert ids(tail.records) == list(range(13, 33))
    assert tail.last == Cursor(32, "n31")
    assert ids(read_all(store, "out", "s").records) == list(range(1, 33))


def test_what_only_seems_to_cover_a_gap_does_not(store: Store, chain: Chain) -> None:
    chain.put(5)
    gone = chain.put(5)
    chain.put(5)
    store.delete(gone)
    Chain(store).put(9, first=2, nonce="zombie", prev="x")  # ends at 10, but the rest does not follow it
    with pytest.raises(Gap) as caught:
        read_after(store, "out", "s", Cursor(5, "n1"))
    assert caught.value.missing == (6, 10)


def test_a_listed_segment_that_is_gone_asks_for_a_new_start(store: Store, chain: Chain) -> None:
    chain.put(1)
    key = chain.put(1)
    listing = newest(store, "out", "s")
    store.delete(key)
    with pytest.raises(Vanished):
        read_after(store, "out", "s", Cursor(), listing)


def test_a_corrupt_segment_is_neither_absent_nor_unreachable(store: Store, chain: Chain) -> None:
    key = chain.put(3)
    store.put(key, store.get(key).data[:-9] + b"damaged!\n")
    with pytest.raises(Corrupt) as caught:
        read_all(store, "out", "s")
    assert caught.value.key == key


def test_an_unreachable_store_is_unreachable(clock: FakeClock) -> None:
    bucket = FaultyBucket(MemoryBucket(clock), [Fault("get", times=0)])
    store = Store(bucket, clock)
    Chain(store).put(1)
    with pytest.raises(Unreachable):
        read_all(store, "out", "s")


def test_segments_are_fetched_in_the_order_of_ids(store: Store, chain: Chain) -> None:
    written = [chain.put(1) for _ in range(3)]
    assert [s.header.first for s in fetch(store, written[::-1])] == [1, 2, 3]
    assert [s.key for s in fetch(store, written)] == written


# --- followers --------------------------------------------------------------------------------------------


def test_a_follower_gets_what_is_there_and_what_comes(store: Store, chain: Chain, clock: FakeClock) -> None:
    chain.put(2)
    stream = follow(store, "out", "s", timeout=30, poll=1)
    assert [next(stream)["id"] for _ in range(2)] == [1, 2]
    for size in (1, 3):
        chain.put(size)
    assert [next(stream)["id"] for _ in range(4)] == [3, 4, 5, 6]
    before = clock.monotonic()
    assert next(stream, None) is None
    assert clock.monotonic() - before == pytest.approx(30)


def test_a_follower_unpacks_runs(store: Store) -> None:
    run = {"id": 1, "ts": 5, **text("t", "Hello"), "cuts": [3, 5]}
    store.put(keys.segment("out", "s", 1), encode_segment("out", [run], nonce="n"))
    got = list(follow(store, "out", "s", timeout=0))
    assert got == [{"id": 1, "ts": 5, **text("t", "Hel")}, {"id": 2, "ts": 5, **text("t", "lo")}]


def test_a_follower_asks_by_name_and_lists_now_and_then(clock: FakeClock) -> None:
    bucket = FaultyBucket(MemoryBucket(clock))
    store = Store(bucket, clock)
    assert list(follow(store, "in", "s", Cursor(7), timeout=19, poll=1)) == []
    asked = [(call.verb, call.key) for call in bucket.calls]
    assert asked[0] == asked[10] == ("list", "in/s/")
    assert set(asked[1:10]) == {("get", keys.segment("in", "s", 8))}


def test_a_follower_goes_on_from_the_middle_of_a_merged_segment(store: Store, chain: Chain) -> None:
    chain.put(2)
    stream = follow(store, "out", "s", timeout=60, poll=1)
    assert [next(stream)["id"] for _ in range(2)] == [1, 2]
    # While it slept, the turn went on, was closed and merged, and another stands behind it.
    merged = Chain(store)
    merged.put(6, nonce="n5")
    merged.put(1)
    assert [record["id"] for record in stream] == [3, 4, 5, 6, 7]


def test_a_follower_does_not_mix_two_logs(store: Store, chain: Chain) -> None:
    chain.put(2)
    stream = follow(store, "out", "s", timeout=5)
    assert [next(stream)["id"] for _ in range(2)] == [1, 2]
    chain.put(1, prev="another")
    with pytest.raises(Gap):
        next(stream)


@pytest.mark.parametrize(("times", "ends"), [(2, True), (9, False)])
def test_a_follower_starts_again_when_a_segment_vanishes_but_not_for_ever(
    clock: FakeClock, times: int, ends: bool
) -> None:
    left = times

    def hook(call: Call, when: str) -> None:
        nonlocal left
        if call.verb == "get" and when == "before" and left:
            left -= 1
            data = inner.get(call.key)
            inner.delete(call.key)
            lost.append((call.key, data.data if data else b""))

    lost: list[tuple[str, bytes]] = []
    inner = MemoryBucket(clock)
    store = Store(FaultyBucket(inner, hook=hook), clock)
    Chain(store).put(1)

    def put_back() -> None:
        for key, data in lost:
            inner.put(key, data)

    sleep = clock.sleep
    clock.sleep = lambda seconds: (sleep(seconds), put_back())[0]
    stream = follow(store, "out", "s", timeout=10)
    if ends:
        assert [record["id"] for record in stream] == [1]
    else:
        with pytest.raises(Vanished):
            next(stream)


# --- senders ----------------------------------------------------------------------------------------------


def message(name: str) -> Callable[[int], dict[str, Any]]:
    return lambda _id: {"kind": "message", "message": {"id": name}}


def test_inputs_get_ids_from_one_on(store: Store, clock: FakeClock) -> None:
    seen: list[int] = []

    def build(first: int) -> dict[str, Any]:
        seen.append(first)
        return {"id": first, "ts": 5, "kind": "stop"}

    assert [append_input(store, "s", build) for _ in range(3)] == [1, 2, 3] == seen
    assert append_input(store, "s", message("u")) == 4
    records = read_all(store, "in", "s").records
    assert records[0] == {"id": 1, "ts": 5, "kind": "stop"}
    assert records[3] == {"id": 4, "ts": clock.now_ms(), "kind": "message", "message": {"id": "u"}}


def test_a_send_costs_one_listing_and_one_create(store: Store) -> None:
    before = store.stats.snapshot()
    append_input(store, "s", message("u"))
    assert (store.stats.snapshot() - before).requests == 2


def test_racing_senders_each_get_a_place_of_their_own() -> None:
    clock = SystemClock()
    store = Store(MemoryBucket(clock), clock)
    got: list[int] = []

    def send(name: str) -> None:
        got.extend(append_input(store, "s", message(f"{name}-{i}")) for i in range(10))

    threads = [threading.Thread(target=send, args=(str(i),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1, 61))
    names = [record["message"]["id"] for record in read_all(store, "in", "s").records]
    assert len(set(names)) == 60


def test_a_lost_race_looks_again_and_takes_the_next_place(clock: FakeClock) -> None:
    rival = iter([True])
    inner = MemoryBucket(clock)
    plain = Store(inner, clock)

    def hook(call: Call, when: str) -> None:
        if call.verb == "put" and when == "before" and next(rival, False):
            append_input(plain, "s", message("rival"))

    store = Store(FaultyBucket(inner, hook=hook), clock)
    looked: list[list[int]] = []
    assert append_input(store, "s", message("mine"), check=lambda records: looked.append(ids(records))) == 2
    assert looked == [[], [1]]


def test_the_check_finds_a_repeated_input_or_raises(store: Store) -> None:
    append_input(store, "s", message("u1"))
    append_input(store, "s", message("u2"))

    def known(records: list[dict[str, Any]]) -> int | None:
        return next((r["id"] for r in records if r["message"]["id"] == "u1"), None)

    def conflict(records: list[dict[str, Any]]) -> int | None:
        raise Conflict("another body", first=records[0]["id"])

    assert append_input(store, "s", message("u1"), check=known) == 1
    with pytest.raises(Conflict):
        append_input(store, "s", message("u1"), check=conflict)
    assert len(read_all(store, "in", "s").records) == 2


def test_the_check_sees_the_newest_32_of_the_last_two_minutes(store: Store, clock: FakeClock) -> None:
    looked: list[list[int]] = []

    def check(records: list[dict[str, Any]]) -> None:
        looked.append(ids(records))

    append_input(store, "s", message("old"))
    clock.advance(RECENT_MS / 1000 + 1)
    for i in range(3):
        append_input(store, "s", message(f"u{i}"))
    append_input(store, "s", message("x"), check=check)
    for i in range(40):
        append_input(store, "s", message(f"v{i}"))
    append_input(store, "s", message("y"), check=check)
    assert looked == [[2, 3, 4], list(range(14, 46))]


def test_inputs_of_unknown_age_are_looked_at(clock: FakeClock) -> None:
    class Undated(MemoryBucket):
        def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Any:
            from dataclasses import replace

            return replace(super().list(prefix, after=after, limit=limit), date_ms=None)

    store = Store(Undated(clock), clock)
    append_input(store, "s", message("old"))
    clock.advance(RECENT_MS)
    looked: list[list[int]] = []
    append_input(store, "s", message("x"), check=lambda records: looked.append(ids(records)))
    assert looked == [[1]]


def test_a_create_whose_reply_was_lost_is_appended_once(clock: FakeClock) -> None:
    bucket = FaultyBucket(MemoryBucket(clock), [Fault("put", when="after")])
    store = Store(bucket, clock)
    assert append_input(store, "s", message("u")) == 1
    assert len(read_all(store, "in", "s").records) == 1


def test_an_unanswered_create_is_unknown(clock: FakeClock) -> None:
    store = Store(FaultyBucket(MemoryBucket(clock), [Fault("put", times=0)]), clock)
    with pytest.raises(Unknown):
        append_input(store, "s", message("u"), deadline=10)
    assert clock.monotonic() <= 15


def test_a_sender_that_always_loses_gives_up_at_its_deadline(clock: FakeClock) -> None:
    inner = MemoryBucket(clock)
    plain = Store(inner, clock)

    def hook(call: Call, when: str) -> None:
        if call.verb == "put" and when == "before":
            append_input(plain, "s", message("rival"))
            clock.advance(1)

    store = Store(FaultyBucket(inner, hook=hook), clock, retries=Retries())
    with pytest.raises(Unreachable, match="every place"):
        append_input(store, "s", message("u"), deadline=5)


def test_refused_inputs_write_nothing(store: Store) -> None:
    with pytest.raises(TooLarge):
        append_input(store, "s", lambda _: {"kind": "message", "message": "x" * LIMIT})
    with pytest.raises(InvalidValue):
        append_input(store, "s", lambda _: {"kind": "message", "message": {1, 2}})
    assert store.stats.snapshot().puts == 0


def test_a_sender_that_slept_into_a_tidied_place_appends_again(clock: FakeClock) -> None:
    inner = MemoryBucket(clock)
    plain = Store(inner, clock)
    slept = iter([True])

    def hook(call: Call, when: str) -> None:
        if call.verb == "put" and when == "before" and next(slept, False):
            # While this sender is frozen, others append, and the older inputs are trimmed away.
            for i in range(3):
                append_input(plain, "s", message(f"o{i}"))
            for i in (1, 2):
                inner.delete(keys.segment("in", "s", i))
            clock.advance(2 * HALF_AGE_MS / 1000)

    store = Store(FaultyBucket(inner, hook=hook), clock)

    def check(records: list[dict[str, Any]]) -> int | None:
        return next((r["id"] for r in records if r["message"]["id"] == "mine"), None)

    assert append_input(store, "s", message("mine"), check=check) == 4


def test_a_sender_that_slept_before_its_create_reads_again(clock: FakeClock) -> None:
    bucket = FaultyBucket(MemoryBucket(clock))
    store = Store(bucket, clock)
    slept = iter([True])

    def check(_: list[dict[str, Any]]) -> int | None:
        if next(slept, False):
            append_input(store, "s", message("rival"))
            clock.advance(HALF_AGE_MS / 1000 + 1)
        return None

    assert append_input(store, "s", message("mine"), check=check) == 2
    creates = [call.key for call in bucket.calls if call.verb == "put"]
    assert creates == [keys.segment("in", "s", n) for n in (1, 2)], "the taken place was not tried"
