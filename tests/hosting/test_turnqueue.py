"""Turns of one session, one after another: the line, and its doors for threads and for asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest

from snapshotter.hosting.turnqueue import AsyncTurnQueue, Line, Outcome, TurnQueue
from streams.testing import FakeClock


def test_first_in_first_out() -> None:
    line = Line()
    a, b, c = (line.join(key) for key in "abc")
    assert (line.active, line.count(), a.state, b.state) == ("a", 3, "running", "waiting")
    line.leave(b)
    line.leave(a)
    assert (line.active, c.state, b.state) == ("c", "running", "left")
    line.leave(c)
    assert line.idle
    assert line.active is None


def test_a_reset_makes_what_is_queued_stale_when_its_time_comes() -> None:
    line = Line()
    a, b = line.join("a"), line.join("b")
    line.reset()
    c = line.join("c")
    assert (line.count(0), line.count(), a.state, b.state) == (2, 1, "running", "waiting")
    line.leave(a)
    assert (b.state, c.state, line.active) == ("stale", "running", "c")
    assert line.join("d", 0).state == "waiting"
    line.leave(c)
    assert line.idle
    assert line.join("e", 0).state == "stale"


def test_threads_run_one_at_a_time_in_order() -> None:
    queue, order, at_once = TurnQueue(), [], []
    gate, joined = threading.Event(), threading.Semaphore(0)
    running = threading.Lock()

    def work(key: int) -> int:
        assert running.acquire(blocking=False)
        at_once.append(queue.active)
        if key == 0:
            assert gate.wait(30)
        order.append(key)
        running.release()
        return key * 10

    found: dict[int, Outcome[int]] = {}

    def run(key: int) -> None:
        found[key] = queue.run(str(key), lambda: work(key), joined=joined.release)

    threads = []
    for key in range(5):
        threads.append(threading.Thread(target=run, args=(key,)))
        threads[-1].start()
        assert joined.acquire(timeout=30)
    assert queue.count() == 5
    assert not queue.wait_for_idle(0)
    gate.set()
    assert queue.wait_for_idle(30)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    assert at_once == ["0", "1", "2", "3", "4"]
    assert found[3] == Outcome("completed", 30)


def test_waiting_for_idle_gives_up_by_the_clock_it_was_given() -> None:
    clock = FakeClock()
    queue, inside, gate = TurnQueue(clock), threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        assert gate.wait(30)

    thread = threading.Thread(target=lambda: queue.run("a", work))
    thread.start()
    assert inside.wait(30)
    given_up = threading.Event()

    def pass_time() -> None:
        while not given_up.wait(0.001):
            clock.advance(1)

    passing = threading.Thread(target=pass_time)
    passing.start()
    assert queue.wait_for_idle(5) is False
    given_up.set()
    passing.join()
    gate.set()
    assert queue.wait_for_idle()
    thread.join()


def test_what_a_turn_raises_is_its_callers_and_the_next_one_runs() -> None:
    queue = TurnQueue()

    def broken() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        queue.run("a", broken)
    assert queue.run("b", lambda: 1) == Outcome("completed", 1)
    generation = queue.generation
    queue.reset()
    assert queue.run("c", lambda: 1, generation=generation) == Outcome("stale")


def test_tasks_run_one_at_a_time_in_order() -> None:
    async def main() -> None:
        queue, order = AsyncTurnQueue(), []
        gate = asyncio.Event()

        async def work(key: str) -> str:
            assert queue.active == key
            await gate.wait()
            order.append(key)
            return key

        tasks = [asyncio.create_task(queue.run(key, lambda k=key: work(k))) for key in "abcd"]  # type: ignore[misc]
        idle = asyncio.create_task(queue.wait_for_idle())
        await asyncio.sleep(0)
        assert queue.count() == 4
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        queue.reset()
        gate.set()
        assert await tasks[0] == Outcome("completed", "a")
        assert await tasks[2] == Outcome("stale")
        assert await tasks[3] == Outcome("stale")
        assert order == ["a"]
        await idle
        assert (queue.count(), queue.generation, queue.active) == (0, 1, None)
        await queue.wait_for_idle()

    asyncio.run(main())


def test_a_task_cancelled_while_it_runs_lets_the_next_one_run() -> None:
    async def main() -> None:
        queue, inside = AsyncTurnQueue(), asyncio.Event()

        async def endless() -> None:
            inside.set()
            await asyncio.Event().wait()

        async def quick() -> int:
            return 1

        first = asyncio.create_task(queue.run("a", endless))
        await inside.wait()
        second = asyncio.create_task(queue.run("b", quick))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == Outcome("completed", 1)
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(main())
