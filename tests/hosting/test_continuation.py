"""Going on by itself: once, when the batch is complete."""

from __future__ import annotations

import asyncio
import threading

from snapshotter.hosting.continuation import COALESCE, AsyncContinuations, Barrier, Continuations
from streams.testing import FakeClock


def test_answers_that_come_together_are_one_batch() -> None:
    barrier = Barrier()
    barrier.answered(0.0)
    barrier.answered(0.04)
    assert not barrier.timer(0.06)
    assert barrier.timer(0.04 + COALESCE)
    assert not barrier.timer(9.0)
    assert barrier.fire(streaming=False, complete=True)
    assert not barrier.fire(streaming=False, complete=True)
    assert not barrier.finished()


def test_nothing_fires_while_somebody_streams_or_something_waits() -> None:
    barrier = Barrier()
    assert not barrier.fire(streaming=False, complete=True)
    barrier.answered(0.0)
    assert not barrier.fire(streaming=True, complete=True)
    assert not barrier.fire(streaming=False, complete=False)
    assert barrier.pending
    assert barrier.fire(streaming=False, complete=True)


def test_an_answer_that_does_not_ask_may_complete_a_batch_that_did() -> None:
    barrier = Barrier()
    barrier.answered(0.0, go_on=False)
    assert barrier.due is None
    barrier.answered(0.0)
    assert barrier.timer(1.0)
    barrier.answered(1.0, go_on=False)
    assert barrier.timer(2.0)


def test_answers_during_a_continuation_are_one_more() -> None:
    barrier = Barrier()
    barrier.answered(0.0)
    assert barrier.fire(streaming=False, complete=True)
    barrier.answered(1.0, go_on=False)
    assert not barrier.deferred
    barrier.answered(1.0)
    barrier.answered(1.0)
    assert barrier.due is None
    assert barrier.finished()
    assert barrier.fire(streaming=False, complete=True)
    assert not barrier.finished()


def test_a_reset_forgets() -> None:
    barrier = Barrier()
    barrier.answered(0.0)
    barrier.reset()
    assert not barrier.timer(9.0)
    assert not barrier.fire(streaming=False, complete=True)


class Host:
    """A message that waits for some calls."""

    def __init__(self, calls: set[str], clock: FakeClock) -> None:
        self.waits, self.rounds, self.errors = set(calls), 0, []  # type: ignore[var-annotated]
        self.streaming = False
        self.applied: list[str] = []
        self.inside = 0
        self.gone_on = threading.Semaphore(0)
        self.door = Continuations(
            self.go_on,
            complete=lambda: not self.waits,
            streaming=lambda: self.streaming,
            on_error=self.errors.append,
            clock=clock,
        )

    def go_on(self) -> None:
        self.rounds += 1
        self.gone_on.release()

    def answer(self, call: str) -> None:
        self.inside += 1
        assert self.inside == 1, "two answers were applied at once"
        self.applied.append(call)
        self.waits.discard(call)
        self.inside -= 1


def settle(host: Host, clock: FakeClock) -> None:
    clock.advance(1.0)
    while host.door.armed:
        threading.Event().wait(0.002)


def test_parallel_answers_go_on_once() -> None:
    clock = FakeClock()
    calls = {str(n) for n in range(20)}
    host = Host(calls, clock)
    threads = [
        threading.Thread(target=host.door.apply, args=(lambda c=call: host.answer(c),)) for call in calls
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(host.applied) == sorted(calls)
    assert host.rounds == 0
    clock.advance(COALESCE)
    assert host.gone_on.acquire(timeout=30)
    assert host.rounds == 1


def test_half_a_batch_waits_for_the_other_half() -> None:
    clock = FakeClock()
    host = Host({"a", "b"}, clock)
    host.door.apply(lambda: host.answer("a"))
    settle(host, clock)
    assert host.rounds == 0
    host.door.apply(lambda: host.answer("b"), go_on=False)
    clock.advance(1.0)
    assert host.gone_on.acquire(timeout=30)
    assert host.rounds == 1


def test_the_end_of_a_stream_looks_again() -> None:
    clock = FakeClock()
    host = Host({"a"}, clock)
    host.streaming = True
    host.door.apply(lambda: host.answer("a"))
    settle(host, clock)
    assert host.rounds == 0
    host.streaming = False
    host.door.look()
    host.door.look()
    assert host.rounds == 1


def test_what_a_continuation_raises_is_handed_on_and_the_next_one_runs() -> None:
    clock = FakeClock()
    host = Host(set(), clock)
    broken = ValueError("model")

    def fail() -> None:
        raise broken

    door = Continuations(fail, complete=lambda: True, on_error=host.errors.append, clock=clock)
    for _ in range(2):
        door.apply(lambda: None)
        door.look()
    assert host.errors == [broken, broken]
    door.reset()
    door.look()
    assert len(host.errors) == 2
    clock.advance(1.0)


# -- asyncio --------------------------------------------------------------------------------------------


class AsyncHost:
    """As `Host`, in one event loop whose time the test owns."""

    def __init__(self, calls: set[str]) -> None:
        self.waits = set(calls)
        self.rounds = 0
        self.streaming = False
        self.errors: list[Exception] = []
        self.fails: list[Exception] = []
        self.inside = 0
        self.timers: list[asyncio.Future[None]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.door = AsyncContinuations(
            self.go_on,
            complete=self.complete,
            streaming=lambda: self.streaming,
            on_error=self.errors.append,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        assert seconds == COALESCE
        self.timers.append(asyncio.get_running_loop().create_future())
        await self.timers[-1]

    async def time_out(self) -> None:
        await turn_over()
        for timer in self.timers:
            if not timer.done():
                timer.set_result(None)
        await turn_over()

    async def complete(self) -> bool:
        return not self.waits

    async def go_on(self) -> None:
        self.rounds += 1
        await self.gate.wait()
        if self.fails:
            raise self.fails.pop()

    async def answer(self, call: str) -> None:
        self.inside += 1
        assert self.inside == 1, "two answers were applied at once"
        await asyncio.sleep(0)
        self.waits.discard(call)
        self.inside -= 1

    async def apply(self, call: str, *, go_on: bool = True) -> None:
        await self.door.apply(lambda: self.answer(call), go_on=go_on)


async def turn_over() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_async_parallel_answers_go_on_once() -> None:
    async def main() -> None:
        host = AsyncHost({"a", "b", "c"})
        await asyncio.gather(*(host.apply(call) for call in "abc"))
        await turn_over()
        assert host.rounds == 0
        await host.time_out()
        assert host.rounds == 1
        await host.time_out()
        assert host.rounds == 1

    asyncio.run(main())


def test_async_half_a_batch_waits_and_a_stream_is_not_interrupted() -> None:
    async def main() -> None:
        host = AsyncHost({"a", "b"})
        await host.apply("a")
        await host.time_out()
        assert host.rounds == 0
        host.streaming = True
        await host.apply("b", go_on=False)
        await host.time_out()
        assert host.rounds == 0
        host.streaming = False
        await host.door.look()
        await host.door.look()
        assert host.rounds == 1

    asyncio.run(main())


def test_async_answers_during_a_continuation_are_one_more_though_it_fails() -> None:
    async def main() -> None:
        host = AsyncHost(set())
        broken = ValueError("model")
        host.fails.append(broken)
        host.gate.clear()
        await host.apply("a")
        await host.time_out()
        assert host.rounds == 1
        await asyncio.gather(host.apply("b"), host.apply("c"))
        host.gate.set()
        await host.time_out()
        assert host.rounds == 2
        assert host.errors == [broken]

    asyncio.run(main())


def test_async_a_reset_forgets() -> None:
    async def main() -> None:
        host = AsyncHost(set())
        await host.apply("a")
        host.door.reset()
        await host.time_out()
        await host.door.look()
        assert host.rounds == 0

    asyncio.run(main())
