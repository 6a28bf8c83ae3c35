"""The single writer: order, packing, flush policy, fence, poison, back-pressure, lease, sleepers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import Chain, PatientClock, delta_of, eventually, text

from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.errors import AccessDenied, Fenced, InvalidValue, Refused, TooLarge, Unknown, Unreachable
from streams.log import HALF_AGE_MS, read_all
from streams.packing import unpack
from streams.records import LIMIT, Cursor
from streams.store import Store
from streams.testing.clocks import FakeClock
from streams.testing.faults import Call, Fault, FaultyBucket
from streams.writer import LIVE, STEPS, STREAM, Flush, FlushPolicy, Writer

MARK = {"control": "mark"}


class Bench:
    """A writer on a bucket that can fail, hold requests back, and tell what was asked of it."""

    def __init__(self, *plan: Fault, **options: Any) -> None:
        self.clock = PatientClock()
        self.inner = MemoryBucket(self.clock)
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        self.bucket = FaultyBucket(self.inner, plan, clock=self.clock, hook=self._hook)
        self.store = Store(self.bucket, self.clock)
        self.plain = Store(self.inner, self.clock)
        defaults: dict[str, Any] = {"position": Cursor(), "epoch": 1, "run": "r", "delta_of": delta_of}
        self.writer = Writer(self.store, "s", **(defaults | options))

    def _hook(self, call: Call, when: str) -> None:
        if call.verb == "put" and when == "before":
            self.arrived.release()
            assert self.gate.wait(30)

    def hold(self) -> None:
        """From here a put waits at the store's door until `let_go`."""
        self.gate.clear()

    def let_go(self) -> None:
        self.gate.set()

    def await_put(self) -> None:
        """Until a put has come to the door."""
        assert self.arrived.acquire(timeout=30)

    @property
    def puts(self) -> int:
        return self.bucket.verbs().count("put")

    def segments(self) -> list[list[int]]:
        """The ids that each stored segment covers."""
        found = read_all(self.plain, "out", "s").segments
        return [[u["id"] for r in s.records for u in unpack(r)] for s in found]

    def records(self) -> list[dict[str, Any]]:
        return [u for r in read_all(self.plain, "out", "s").records for u in unpack(r)]

    def durable(self, last: int) -> None:
        eventually(lambda: self.writer.durable_id >= last, f"record {last} durable")


def test_records_get_ids_and_are_durable_when_flush_returns() -> None:
    bench = Bench()
    writer = bench.writer
    assert writer.next_id == 1
    assert [writer.append(MARK), writer.append(text("t", "Hel")), writer.append(text("t", "lo"))] == [1, 2, 3]
    assert (writer.next_id, writer.durable_id) == (4, 0)
    writer.flush()
    assert (writer.durable_id, writer.buffered_bytes) == (3, 0)
    now = bench.clock.now_ms()
    assert bench.records() == [
        {"id": 1, "ts": now, **MARK},
        {"id": 2, "ts": now, **text("t", "Hel")},
        {"id": 3, "ts": now, **text("t", "lo")},
    ]


def test_segments_form_a_chain_and_carry_the_writers_marks() -> None:
    bench = Bench(epoch=7, run="r-7", lease=lambda: 15)
    for _ in range(3):
        bench.writer.append(MARK, flush=Flush.NOW)
    headers = [s.header for s in read_all(bench.plain, "out", "s").segments]
    assert [h.prev for h in headers] == [None, headers[0].nonce, headers[1].nonce]
    assert {(h.epoch, h.run, h.lease) for h in headers} == {(7, "r-7", 15)}
    assert bench.writer.position == Cursor(3, headers[2].nonce)
    head = bench.inner.head(keys.segment("out", "s", 2))
    assert head is not None
    assert head.nonce == headers[1].nonce


def test_a_writer_goes_on_from_its_position() -> None:
    bench = Bench(position=Cursor(4, "n1"))
    Chain(bench.plain).put(4)
    assert bench.writer.append(MARK, flush=Flush.NOW) == 5
    assert bench.segments() == [[1, 2, 3, 4], [5]]


def test_flush_with_nothing_to_write_asks_nothing_of_the_store() -> None:
    bench = Bench()
    bench.writer.flush()
    bench.writer.seal()
    bench.writer.close()
    assert bench.bucket.calls == []


# --- when it writes ---------------------------------------------------------------------------------------


def test_the_pace_slows_down_and_starts_anew() -> None:
    bench = Bench()
    for i, pace in enumerate([1.0, 1.5, 2.25, 3.375, 5.0, 5.0, 1.0, 1.5], 1):
        if i == 7:
            bench.writer.reset_pace()
        bench.writer.append(MARK)
        eventually(lambda i=i: len(bench.clock.waits) == i, "the flusher's wait")
        assert bench.clock.waits[-1] == pytest.approx(pace)
        bench.clock.advance(pace)
        bench.durable(i)


@pytest.mark.parametrize(("policy", "early", "late"), [(STREAM, 0.9, 0.2), (LIVE, 0.1, 0.2)])
def test_later_means_by_time(policy: FlushPolicy, early: float, late: float) -> None:
    bench = Bench(policy=policy)
    bench.writer.append(MARK)
    bench.clock.advance(early)
    bench.writer.append(MARK)
    assert bench.puts == 0
    bench.clock.advance(late)
    bench.durable(2)
    assert bench.puts == 1


def test_steps_write_only_when_asked() -> None:
    bench = Bench(policy=STEPS)
    bench.writer.append(MARK)
    bench.clock.advance(10_000)
    bench.writer.append(MARK, flush=Flush.SOON)
    bench.durable(2)
    assert bench.segments() == [[1, 2]]


def test_a_full_buffer_is_written_without_waiting_for_its_time() -> None:
    bench = Bench(policy=FlushPolicy(max_bytes=1000))
    for _ in range(5):
        bench.writer.append(text("t", "x" * 300))
    bench.durable(3)
    assert bench.clock.monotonic() == 0


def test_soon_does_not_wait_for_the_store() -> None:
    bench = Bench()
    bench.hold()
    assert bench.writer.append(MARK, flush=Flush.SOON) == 1
    bench.await_put()
    assert bench.writer.durable_id == 0
    bench.let_go()
    bench.durable(1)


def test_now_returns_when_durable_and_takes_along_what_came_before() -> None:
    bench = Bench()
    bench.writer.append(MARK)
    bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.segments() == [[1, 2]]


def test_one_request_is_in_flight_and_what_comes_meanwhile_shares_the_next() -> None:
    bench = Bench()
    bench.hold()
    bench.writer.append(MARK, flush=Flush.SOON)
    bench.await_put()
    for _ in range(5):
        bench.writer.append(MARK, flush=Flush.SOON)
    assert bench.puts == 1
    bench.let_go()
    bench.writer.flush()
    assert bench.segments() == [[1], [2, 3, 4, 5, 6]]


def test_the_flusher_ends_when_there_is_nothing_to_do() -> None:
    bench = Bench()
    bench.writer.append(MARK, flush=Flush.NOW)

    def at_work() -> bool:
        return any(thread.name == "flush-ended" for thread in threading.enumerate())

    other = Writer(bench.store, "ended", position=Cursor(), epoch=1, run="r")
    other.append(MARK, flush=Flush.NOW)
    eventually(lambda: not at_work(), "the flusher's end")
    assert other.append(MARK, flush=Flush.NOW) == 2


# --- segments ---------------------------------------------------------------------------------------------


def test_a_turns_end_ends_its_segment() -> None:
    bench = Bench()
    bench.hold()
    bench.writer.append(MARK)
    bench.writer.append({"control": "turn-complete"}, end_segment=True)
    bench.writer.append(MARK)
    bench.writer.seal()
    bench.writer.append(MARK)
    bench.let_go()
    bench.writer.flush()
    assert bench.segments() == [[1, 2], [3], [4]]


def test_a_batch_shares_one_segment() -> None:
    bench = Bench()
    bench.writer.append(MARK)
    last = bench.writer.append_batch(
        [{"control": "turn-complete"}, {"control": "turn-start"}], flush=Flush.NOW
    )
    assert last == 3
    bench.writer.append_batch([MARK, MARK], end_segment=True)
    bench.writer.append_batch([MARK])
    bench.writer.flush()
    assert bench.segments() == [[1, 2, 3], [4, 5], [6]]
    with pytest.raises(ValueError, match="empty"):
        bench.writer.append_batch([])


def test_a_batch_with_one_bad_record_appends_none() -> None:
    bench = Bench()
    with pytest.raises(TooLarge):
        bench.writer.append_batch([MARK, {"control": "x", "data": "x" * LIMIT}])
    bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.segments() == [[1]]


def test_a_batch_that_no_segment_can_hold_is_refused() -> None:
    bench = Bench()
    big = {"control": "x", "data": "x" * (LIMIT - 100)}
    with pytest.raises(TooLarge, match="split"):
        bench.writer.append_batch([big] * 33)
    assert bench.writer.append_batch([big] * 31, flush=Flush.NOW) == 31


@pytest.mark.parametrize(
    ("body", "error"),
    [({"control": "x", "data": "x" * LIMIT}, TooLarge), ({"control": "x", "data": {1}}, InvalidValue)],
)
def test_a_refused_record_leaves_the_writer_as_it_was(body: dict[str, Any], error: type[Exception]) -> None:
    bench = Bench()
    with pytest.raises(error):
        bench.writer.append(body)
    assert bench.writer.next_id == 1
    assert bench.writer.append(MARK, flush=Flush.NOW) == 1


bodies = st.one_of(
    st.builds(text, st.sampled_from(["a", "b"]), st.text("xé😀", max_size=4)),
    st.just(MARK),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), bodies, st.sampled_from([Flush.LATER] * 6 + [Flush.SOON, Flush.NOW])),
        st.tuples(st.just("batch"), st.lists(bodies, min_size=1, max_size=3), st.just(Flush.LATER)),
        st.tuples(st.sampled_from(["flush", "seal", "pass"]), st.none(), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_whatever_is_appended_is_read_back_in_order(plan: list[tuple[str, Any, Any]]) -> None:
    bench = Bench()
    expected: list[dict[str, Any]] = []
    sealed_at: list[int] = []
    for what, body, flush in plan:
        if what == "append":
            expected.append(body)
            assert bench.writer.append(body, flush=flush) == len(expected)
        elif what == "batch":
            expected.extend(body)
            assert bench.writer.append_batch(body, flush=flush) == len(expected)
        elif what == "flush":
            bench.writer.flush()
            assert bench.writer.durable_id == len(expected)
        elif what == "seal":
            bench.writer.seal()
            sealed_at.append(len(expected))
        else:
            bench.clock.advance(0.4)
    bench.writer.close()
    got = bench.records()
    assert [record["id"] for record in got] == list(range(1, len(expected) + 1))
    assert [{k: v for k, v in record.items() if k not in ("id", "ts")} for record in got] == expected
    ends = {segment[-1] for segment in bench.segments()}
    assert all(at in ends for at in sealed_at if at)


def test_threads_may_share_a_writer() -> None:
    bench = Bench()
    got: list[int] = []

    def work(part: str) -> None:
        got.extend(
            bench.writer.append(text(part, str(i)), flush=Flush.NOW if i % 40 == 0 else Flush.LATER)
            for i in range(200)
        )

    threads = [threading.Thread(target=work, args=(p,)) for p in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.writer.close()
    records = bench.records()
    assert sorted(got) == [r["id"] for r in records] == list(range(1, 801))
    for part in "abcd":
        assert [r["chunk"]["delta"] for r in records if r["chunk"]["id"] == part] == [
            str(i) for i in range(200)
        ]


# --- failures ---------------------------------------------------------------------------------------------


def test_a_lost_place_fences_the_writer_for_good() -> None:
    bench = Bench()
    bench.writer.append(MARK, flush=Flush.NOW)
    rival = Writer(bench.plain, "s", position=bench.writer.position, epoch=2, run="r2")
    rival.append({"control": "turn-start"}, flush=Flush.NOW)
    with pytest.raises(Fenced):
        bench.writer.append(MARK, flush=Flush.NOW)
    puts = bench.puts
    calls: list[Callable[[], Any]] = [
        lambda: bench.writer.append(MARK),
        lambda: bench.writer.append_batch([MARK]),
        bench.writer.flush,
        bench.writer.seal,
        bench.writer.close,
    ]
    for call in calls:
        with pytest.raises(Fenced):
            call()
    assert bench.puts == puts
    assert bench.writer.durable_id == 1
    assert isinstance(bench.writer.failure, Fenced)
    assert [r["id"] for r in bench.records()] == [1, 2]
    assert bench.records()[1]["control"] == "turn-start"


def test_a_failure_in_the_background_reaches_the_next_call() -> None:
    bench = Bench(Fault("put", times=0, error=lambda: AccessDenied("injected")))
    bench.writer.append(MARK, flush=Flush.SOON)
    eventually(lambda: bench.writer.failure is not None, "the failure")
    for call in (lambda: bench.writer.append(MARK), bench.writer.flush):
        with pytest.raises(AccessDenied) as caught:
            call()
        assert caught.value is bench.writer.failure


def test_an_unanswered_write_is_unknown_and_poisons() -> None:
    bench = Bench(Fault("put", times=0), patience=lambda: 5.0)
    with pytest.raises(Unknown):
        bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.clock.monotonic() <= 10
    puts = bench.puts
    with pytest.raises(Unknown):
        bench.writer.flush()
    assert bench.puts == puts
    assert bench.writer.durable_id == 0


def test_what_was_acknowledged_stays_so_when_a_later_write_fails() -> None:
    bench = Bench(Fault("put", nth=2, times=0))
    bench.writer.append(MARK, flush=Flush.NOW)
    with pytest.raises(Unknown):
        bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.writer.durable_id == 1
    assert bench.segments() == [[1]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_passing_failure_is_not_seen_and_nothing_is_written_twice(when: Any) -> None:
    bench = Bench(Fault("put", nth=2, times=3, when=when))
    for _ in range(3):
        bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.segments() == [[1], [2], [3]]


def test_a_write_that_lands_late_meets_its_own_repeat() -> None:
    bench = Bench(Fault("put", when="late"))
    bench.writer.append(MARK, flush=Flush.NOW)
    bench.bucket.land()
    bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.segments() == [[1], [2]]


def test_every_waiter_hears_of_a_failure() -> None:
    bench = Bench(Fault("put", times=0, error=lambda: AccessDenied("injected")))
    bench.hold()
    heard: list[Exception] = []

    def wait() -> None:
        try:
            bench.writer.append(MARK, flush=Flush.NOW)
        except AccessDenied as error:
            heard.append(error)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    bench.await_put()
    bench.let_go()
    for thread in threads:
        thread.join(30)
    assert len(heard) == 4


def test_a_callback_that_raises_is_heard() -> None:
    def lease() -> int:
        raise RuntimeError("from the callback")

    bench = Bench(lease=lease)
    with pytest.raises(RuntimeError, match="from the callback"):
        bench.writer.append(MARK, flush=Flush.NOW)


def test_an_interrupt_while_waiting_leaves_a_whole_writer() -> None:
    bench = Bench()
    bench.hold()
    waiter = bench.writer._cond
    wait = waiter.wait

    def interrupted(timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return wait(timeout)

    waiter.wait = interrupted
    with pytest.raises(KeyboardInterrupt):
        bench.writer.append(MARK, flush=Flush.NOW)
    waiter.wait = wait
    bench.let_go()
    assert bench.writer.append(MARK, flush=Flush.NOW) == 2
    assert [i for segment in bench.segments() for i in segment] == [1, 2]


def interrupt_at(line: int, call: Callable[[], Any]) -> bool:
    """Run `call`, broken off before the `line`th line of the writer or packer. False: it has no such line."""
    left = line

    def trace(frame: Any, event: str, _arg: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("writer.py", "packing.py")):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("flush", [Flush.LATER, Flush.NOW])
@pytest.mark.parametrize("body", [MARK, text("t", "é"), text("u", "b")])
def test_an_interrupt_at_any_line_of_append_leaves_a_whole_writer(flush: Flush, body: dict[str, Any]) -> None:
    line = 0
    interrupted = True
    while interrupted:
        line += 1
        bench = Bench()
        bench.writer.append(text("t", "a"))
        interrupted = interrupt_at(line, lambda: bench.writer.append(body, flush=flush))  # noqa: B023
        taken = bench.writer.next_id - 1
        assert taken in (1, 2)
        assert bench.writer.append(MARK, flush=Flush.NOW) == taken + 1
        expected = [text("t", "a"), body, MARK] if taken == 2 else [text("t", "a"), MARK]
        got = [{k: v for k, v in record.items() if k not in ("id", "ts")} for record in bench.records()]
        assert got == expected
    assert line > 15


# --- back-pressure ----------------------------------------------------------------------------------------


def test_append_waits_while_too_much_is_not_durable() -> None:
    bench = Bench(policy=FlushPolicy(max_bytes=1000, hold_bytes=2000))
    bench.hold()
    done = threading.Event()

    def stream() -> None:
        for _ in range(10):
            bench.writer.append({"control": "x", "data": "y" * 900})
        done.set()

    thread = threading.Thread(target=stream)
    thread.start()
    bench.await_put()
    eventually(lambda: bench.writer.buffered_bytes > 2000, "a full buffer")
    assert not done.is_set()
    assert bench.writer.buffered_bytes < 4000
    bench.let_go()
    thread.join(30)
    assert done.is_set()
    bench.writer.close()
    assert [i for segment in bench.segments() for i in segment] == list(range(1, 11))


def test_who_waits_for_room_hears_of_a_failure() -> None:
    bench = Bench(
        Fault("put", times=0, error=lambda: AccessDenied("injected")),
        policy=FlushPolicy(max_bytes=100, hold_bytes=100),
    )
    bench.hold()
    bench.writer.append({"control": "x", "data": "y" * 200})
    bench.await_put()
    bench.let_go()
    with pytest.raises(AccessDenied):
        bench.writer.append(MARK)


# --- lease and heartbeat ----------------------------------------------------------------------------------


def beats(bench: Bench) -> int:
    return sum(record.get("control") == "heartbeat" for record in bench.records())


def test_a_silent_turn_keeps_its_lease() -> None:
    bench = Bench(lease=lambda: 45)
    bench.writer.append(MARK, flush=Flush.NOW)
    bench.writer.beating = True
    bench.clock.advance(29)
    assert bench.puts == 1
    bench.clock.advance(1.5)
    bench.durable(2)
    bench.clock.advance(30.5)
    bench.durable(3)
    assert beats(bench) == 2
    bench.writer.beating = False
    bench.clock.advance(1000)
    bench.writer.append(MARK, flush=Flush.NOW)
    assert beats(bench) == 2


def test_no_heartbeat_before_the_first_write() -> None:
    bench = Bench()
    bench.writer.beating = True
    bench.clock.advance(1000)
    bench.writer.append(MARK, flush=Flush.NOW)
    assert beats(bench) == 0
    assert bench.segments() == [[1]]


def test_what_is_buffered_keeps_the_lease_in_place_of_a_heartbeat() -> None:
    bench = Bench(policy=STEPS, lease=lambda: 15)
    bench.writer.append(MARK, flush=Flush.NOW)
    bench.writer.beating = True
    bench.writer.append(text("t", "a"))
    bench.clock.advance(10.5)
    bench.durable(2)
    assert beats(bench) == 0


def test_heartbeats_stop_when_they_may_not_be_written_and_come_back_after_an_append() -> None:
    asked = threading.Semaphore(0)
    allowed = [False]

    def may_beat() -> bool:
        asked.release()
        return allowed[0]

    bench = Bench(lease=lambda: 15, may_beat=may_beat)
    bench.writer.append(MARK, flush=Flush.NOW)
    bench.writer.beating = True
    bench.clock.advance(10.5)
    assert asked.acquire(timeout=30)
    bench.clock.advance(1000)
    allowed[0] = True
    assert bench.writer.append(MARK, flush=Flush.NOW) == 2
    assert beats(bench) == 0
    bench.clock.advance(10.5)
    bench.durable(3)
    assert beats(bench) == 1


def test_an_append_during_the_question_is_not_forgotten() -> None:
    answers = iter([False, True])

    def may_beat() -> bool:
        answer = next(answers)
        if not answer:
            bench.writer.append(MARK)
        return answer

    bench = Bench(lease=lambda: 15, may_beat=may_beat)
    bench.writer.append(MARK, flush=Flush.NOW)
    bench.writer.beating = True
    bench.clock.advance(10.5)
    eventually(lambda: bench.writer.next_id == 3, "the question")
    bench.clock.advance(1)
    bench.durable(2)
    bench.clock.advance(10.5)
    bench.durable(3)
    assert beats(bench) == 1


def test_a_heartbeat_that_loses_its_place_fences() -> None:
    bench = Bench(lease=lambda: 15)
    bench.writer.append(MARK, flush=Flush.NOW)
    Writer(bench.plain, "s", position=bench.writer.position, epoch=2, run="r2").append(MARK, flush=Flush.NOW)
    bench.writer.beating = True
    bench.clock.advance(11)
    eventually(lambda: bench.writer.failure is not None, "the fence")
    with pytest.raises(Fenced):
        bench.writer.append(MARK)


# --- a writer that slept ----------------------------------------------------------------------------------


def sleeper(*, tidied: bool) -> Bench:
    """A writer frozen before its second request; meanwhile its place was taken, and perhaps freed again."""
    bench = Bench(date_ms=FakeClock().now_ms())
    bench.writer.append(MARK, flush=Flush.NOW)
    if tidied:
        rival = Writer(bench.plain, "s", position=bench.writer.position, epoch=2, run="r2")
        for _ in range(3):
            rival.append(MARK, flush=Flush.NOW)
        bench.inner.delete(keys.segment("out", "s", 2))
    bench.clock.advance(HALF_AGE_MS / 1000 + 1)
    return bench


def test_a_sleeper_whose_segment_is_the_newest_goes_on() -> None:
    bench = sleeper(tidied=False)
    bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.bucket.verbs() == ["put", "put", "list"]
    bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.bucket.verbs()[3:] == ["put"]
    assert bench.segments() == [[1], [2], [3]]


def test_a_sleeper_whose_place_was_freed_is_fenced_before_it_acknowledges() -> None:
    bench = sleeper(tidied=True)
    with pytest.raises(Fenced, match="slept"):
        bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.writer.durable_id == 1


def test_a_first_write_long_after_the_boot_looks_too() -> None:
    bench = Bench(date_ms=FakeClock().now_ms())
    bench.clock.advance(HALF_AGE_MS / 1000 + 1)
    bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.bucket.verbs() == ["put", "list"]


def test_a_look_that_fails_acknowledges_nothing() -> None:
    bench = Bench(Fault("list", times=0), date_ms=0)
    with pytest.raises(Unreachable):
        bench.writer.append(MARK, flush=Flush.NOW)
    assert bench.writer.durable_id == 0


# --- close ------------------------------------------------------------------------------------------------


def test_close_writes_what_is_buffered() -> None:
    bench = Bench()
    bench.writer.append(MARK)
    bench.writer.close()
    assert bench.segments() == [[1]]
    bench.writer.close()
    for call in (lambda: bench.writer.append(MARK), bench.writer.flush):
        with pytest.raises(Refused, match="closed"):
            call()


def test_close_without_flush_drops_what_is_not_durable() -> None:
    bench = Bench(lease=lambda: 15)
    bench.writer.append(MARK, flush=Flush.NOW)
    bench.writer.beating = True
    bench.writer.append(MARK)
    bench.writer.close(flush=False)
    bench.clock.advance(1000)
    eventually(lambda: bench.writer._task is None, "the flusher's end")
    assert bench.segments() == [[1]]


def test_close_without_flush_wakes_who_waits() -> None:
    bench = Bench()
    bench.hold()
    heard: list[Exception] = []

    def wait() -> None:
        try:
            bench.writer.append(MARK, flush=Flush.NOW)
        except Refused as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    bench.await_put()
    bench.writer.close(flush=False)
    thread.join(30)
    bench.let_go()
    assert len(heard) == 1
