"""The async door: same engine, nothing blocks the loop, a cancellation releases and is not swallowed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from snapshotter import Busy, ChatRecovery, Database, Deadline, InvalidValue, Refused, Stalled, aio
from streams.buckets.base import Written
from streams.buckets.memory import MemoryBucket
from streams.testing import FakeClock

AT_ONCE = ChatRecovery(max_backoff=0)

Chunk = dict[str, Any]


def words(count: int) -> Iterator[Chunk]:
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield {"type": "text-start", "id": "t"}
    for number in range(count):
        yield {"type": "text-delta", "id": "t", "delta": f"w{number} "}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


class Source:
    """An async stream of chunks that may hang after `hang_after` of them; it knows when it was closed."""

    def __init__(self, count: int = 3, hang_after: int | None = None) -> None:
        self._chunks = words(count)
        self._left = hang_after
        self.hangs = asyncio.Event()
        self.closed = False

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        if self._left == 0:
            self.hangs.set()
            await asyncio.Event().wait()
        if self._left is not None:
            self._left -= 1
        await asyncio.sleep(0)
        try:
            return next(self._chunks)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self.closed = True


async def answer(db: aio.AsyncDatabase, session_id: str, source: Source, **options: Any) -> int:
    turns = 0
    async with await db.boot(session_id, **options) as session:
        async for turn in session.turns():
            turns += 1
            async with turn:
                async for _ in turn.tee(source):
                    pass
    return turns


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return ["".join(p.get("text", "") for p in m["parts"]) for m in messages]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(bounded())


def test_a_turn_from_send_to_history() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            receipt = await db.send("s", "hi")
            source = Source()
            assert await answer(db, "s", source, receipt=receipt) == 1
            assert source.closed
            assert texts(await db.history("s")) == ["hi", "w0 w1 w2 "]
            assert [info.id async for info in db.sessions()] == ["s"]
            kinds = [event.record.get("control") async for event in db.follow("s", timeout=0)]
            assert kinds[1] == "turn-start"
            assert kinds[-1] == "turn-complete"

    run(test)


def test_a_cancelled_task_releases_its_turn_and_stays_cancelled() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            source = Source(hang_after=5)
            task = asyncio.create_task(answer(db, "s", source))
            await source.hangs.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            found = await db.peek("s")
            assert found.busy is None
            assert found.resume.kind == "retry_response"
            assert texts([found.partial]) == ["w0 w1 "]
            assert (await db.records("s", "out").__anext__())["control"] == "turn-start"
            assert [r async for r in db.records("s", "out")][-1]["why"] == "cancelled"
            assert await answer(db, "s", Source()) == 1
            assert texts(await db.history("s")) == ["hi", "w0 w1 w2 "]

    run(test)


class SlowBucket(MemoryBucket):
    """Every put of the out log waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go = threading.Event()

    def put(self, key: str, data: bytes, **options: Any) -> Written:
        if key.startswith("out/"):
            self.entered.set()
            assert self.go.wait(20)
        return super().put(key, data, **options)


def test_a_slow_store_does_not_block_the_loop() -> None:
    async def test() -> None:
        bucket = SlowBucket()
        async with aio.AsyncDatabase(Database(bucket, recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            task = asyncio.create_task(answer(db, "s", Source()))
            while not bucket.entered.is_set():
                await asyncio.sleep(0.001)  # the loop goes round while the claim hangs
            assert not task.done()
            assert texts(await db.history("s")) == ["hi"]
            bucket.go.set()
            assert await task == 1

    run(test)


def test_a_cancellation_during_the_claim_leaves_no_turn_behind() -> None:
    async def test() -> None:
        bucket = SlowBucket()
        async with aio.AsyncDatabase(Database(bucket, recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            task = asyncio.create_task(answer(db, "s", Source()))
            while not bucket.entered.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            bucket.go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            found = await db.peek("s")
            assert found.busy is None
            assert [r["control"] async for r in db.records("s", "out")] == ["turn-start", "turn-release"]
            assert await answer(db, "s", Source()) == 1

    run(test)


def test_a_tool_call_is_durable_when_write_returns() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            async with await db.boot("s") as session:
                async for turn in session.turns():
                    async with turn:
                        await turn.write({"type": "start"})
                        call = {"toolCallId": "c", "toolName": "pay", "input": {"sum": 5}}
                        await turn.write({"type": "tool-input-available", **call})
                        stored = [r async for r in db.records("s", "out")]
                        assert stored[-1]["chunk"]["toolName"] == "pay"
                        await turn.write({"type": "tool-output-available", "toolCallId": "c", "output": None})
                        stored = [r async for r in db.records("s", "out")]
                        assert stored[-1]["chunk"] == {
                            "type": "tool-output-available",
                            "toolCallId": "c",
                            "output": None,
                        }
                        await turn.set_state({"paid": True})
            assert (await db.peek("s")).state == {"paid": True}

    run(test)


def test_many_sessions_at_once() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            ids = [f"s{n}" for n in range(60)]
            await asyncio.gather(*(db.send(i, "hi") for i in ids))
            assert sum(await asyncio.gather(*(answer(db, i, Source(20)) for i in ids))) == 60
            histories = await asyncio.gather(*(db.history(i) for i in ids))
            assert {tuple(texts(h)) for h in histories} == {("hi", "".join(f"w{n} " for n in range(20)))}

    run(test)


def test_an_action_is_claimed_by_its_first_chunk_only() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.action("s", "rename", {"to": "x"})
            async with await db.boot("s") as session:
                async for turn in session.turns():
                    async with turn:
                        assert turn.item.inputs[0]["name"] == "rename"
                        await turn.set_state({"title": "x"})
            assert [r["control"] async for r in db.records("s", "out")] == ["state", "input-applied"]
            await db.action("s", "greet")
            assert await answer(db, "s", Source()) == 1
            assert texts(await db.history("s")) == ["w0 w1 w2 "]

    run(test)


def test_errors_come_through() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), stable_timeout=0.0)) as db:
            await db.send("s", "hi")
            async with await db.boot("s") as session:
                async for turn in session.turns():
                    with pytest.raises(Busy) as busy:
                        await db.boot("s")
                    assert 0 < busy.value.retry_after <= 52
                    async with turn:
                        await turn.fail("no answer today")
                        assert turn.status == "error"
            assert (await db.peek("s")).found.fold.last_turn["error"] == "no answer today"

    run(test)


def test_a_hundred_idle_viewers_hold_no_thread() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            seen: list[int] = []

            async def view() -> None:
                async for event in db.follow("s", poll=3600.0):
                    seen.append(event.id)

            async def read() -> None:
                async for record in db.records("s", "in", follow=True, poll=3600.0):
                    seen.append(record["id"])

            viewers = [asyncio.create_task(view() if n % 2 else read()) for n in range(100)]
            while len(seen) < 100:
                await asyncio.sleep(0.001)
            assert texts(await db.history("s")) == ["hi"]  # while they all wait
            assert await answer(db, "s", Source()) == 1
            for viewer in viewers:
                viewer.cancel()
            await asyncio.gather(*viewers, return_exceptions=True)
            assert all(viewer.cancelled() for viewer in viewers)
            await db.send("s", "again")
            assert await answer(db, "s", Source()) == 1
            assert len(await db.history("s")) == 4

    run(test)


def test_a_follower_sees_what_comes_later_and_ends_after_its_silence() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "one")
            events = db.follow("s", timeout=0.2, poll=0.01)
            assert (await anext(events)).id == 1
            await db.send("s", "two")
            assert [event.id async for event in events] == [2]
            with pytest.raises(InvalidValue):
                await anext(db.follow("s", after=-1))

    run(test)


def test_cancelling_a_wait_for_further_inputs_takes_effect_at_once() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            done = asyncio.Event()

            async def work() -> None:
                async with await db.boot("s") as session:
                    async for turn in session.turns(wait=3600.0):
                        async with turn:
                            async for _ in turn.tee(Source()):
                                pass
                        done.set()

            task = asyncio.create_task(work())
            await done.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 5)
            assert (await db.peek("s")).busy is None

    run(test)


def test_an_input_that_comes_while_a_worker_waits_is_answered_by_it() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "one")
            async with await db.boot("s") as session:
                seen = 0
                async for turn in session.turns(wait=20.0):
                    async with turn:
                        async for _ in turn.tee(Source()):
                            pass
                    seen += 1
                    if seen == 2:
                        break
                    await db.send("s", "two")
            assert len(await db.history("s")) == 4

    run(test)


def test_a_stop_ends_a_tee_whose_source_is_silent() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", {"id": "u1", "role": "user", "parts": []})
            source = Source(hang_after=4)
            task = asyncio.create_task(answer(db, "s", source))
            await source.hangs.wait()
            await db.stop("s", "u1")
            assert await task == 1
            assert source.closed
            assert (await db.peek("s")).found.fold.last_turn["status"] == "aborted"

    run(test)


def test_the_deadline_ends_a_tee_whose_source_is_silent() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            source = Source(hang_after=4)
            with pytest.raises(Deadline):
                await answer(db, "s", source, deadline=1.0)
            assert source.closed
            assert [r async for r in db.records("s", "out")][-1]["why"] == "deadline"

    run(test)


def test_a_timeout_of_the_source_itself_is_its_own() -> None:
    async def broken() -> AsyncIterator[Chunk]:
        yield {"type": "start"}
        raise TimeoutError("the model's")

    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            async with await db.boot("s") as session:
                async for turn in session.turns():
                    with pytest.raises(TimeoutError, match="the model's"):
                        async with turn:
                            async for _ in turn.tee(broken()):
                                pass
                    assert turn.status == "released"

    run(test)


def test_a_boot_that_is_cancelled_takes_its_claim_back() -> None:
    async def test() -> None:
        bucket = SlowBucket()
        async with aio.AsyncDatabase(Database(bucket, recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            task = asyncio.create_task(db.boot("s", claim=True))
            while not bucket.entered.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task  # at once: the boot goes on behind it
            bucket.go.set()
            written: list[str] = []
            while len(written) < 2:
                written = [record["control"] async for record in db.records("s", "out")]
            assert written == ["fence", "turn-release"]
            assert await answer(db, "s", Source()) == 1

    run(test)


def test_an_async_stream_survives_what_cannot_be_stored_and_has_to_be_read() -> None:
    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket())) as db:
            await db.send("s", "hi")
            odd = [
                {"type": "start"},
                {"type": "tool-progress"},
                {"type": "finish", "finishReason": "end_turn"},
            ]
            async with await db.boot("s") as session:
                async for turn in session.turns():
                    async with turn:
                        seen = [chunk async for chunk in turn.tee(odd)]
            assert [chunk["type"] for chunk in seen] == ["start", "tool-progress", "finish"]
            assert seen[-1]["finishReason"] == "other"
            await db.send("s", "again")
            async with await db.boot("s") as session:
                with pytest.raises(Refused, match="never read"):
                    async for turn in session.turns():
                        async with turn:
                            turn.tee(odd)
            assert (await db.peek("s")).resume.kind == "call_model"

    run(test)


async def swallowing(free: asyncio.Event) -> AsyncIterator[Chunk]:
    """Never lets itself be cancelled."""
    yield {"type": "start"}
    while not free.is_set():
        with suppress(asyncio.CancelledError):
            await free.wait()


async def slow_to_close(free: asyncio.Event) -> AsyncIterator[Chunk]:
    """Drains its connection when it is cancelled."""
    try:
        yield {"type": "start"}
        await asyncio.Event().wait()
    finally:
        await free.wait()


@pytest.mark.parametrize("source", [swallowing, slow_to_close])
@pytest.mark.parametrize(
    ("how", "record"),
    [("stop", "aborted"), ("deadline", "deadline"), ("stall", "stall"), ("cancel", "cancelled")],
)
def test_a_source_that_resists_its_end_does_not_hold_the_turn(
    monkeypatch: pytest.MonkeyPatch, source: Any, how: str, record: str
) -> None:
    monkeypatch.setattr("snapshotter.watchdog.GRACE", 0.05)
    clock = FakeClock()
    limits = ChatRecovery(max_backoff=0, stall_timeout=20.0 if how == "stall" else 300.0)

    async def test() -> None:
        free, pulled = asyncio.Event(), asyncio.Event()
        async with aio.AsyncDatabase(Database(MemoryBucket(clock), clock, recovery=limits)) as db:
            await db.send("s", "hi")

            async def work() -> None:
                async with await db.boot("s", deadline=20.0 if how == "deadline" else None) as session:
                    async for turn in session.turns():
                        async with turn:
                            async for _ in turn.tee(source(free)):
                                pulled.set()

            task = asyncio.create_task(work())
            await pulled.wait()
            if how == "cancel":
                task.cancel()
            elif how == "stop":
                await db.stop("s")
            while not task.done():
                clock.advance(1.0)
                await asyncio.wait({task}, timeout=0.01)
            if how == "cancel":
                assert task.cancelled()
            elif how != "stop":
                assert isinstance(task.exception(), Deadline if how == "deadline" else Stalled)
            last = [r async for r in db.records("s", "out")][-1]
            assert last.get("status", last.get("why")) == record
            free.set()

    run(test)


def test_a_source_lives_in_one_task_and_one_context() -> None:
    """Scopes (a timeout, a task group) and context variables reach over its chunks."""
    tasks, values = set(), []
    variable = ContextVar("variable", default=0)

    async def source() -> AsyncIterator[Chunk]:
        try:
            for chunk in words(1):
                tasks.add(asyncio.current_task())
                values.append(variable.get())
                variable.set(variable.get() + 1)
                yield chunk
        finally:
            tasks.add(asyncio.current_task())

    async def test() -> None:
        async with aio.AsyncDatabase(Database(MemoryBucket(), recovery=AT_ONCE)) as db:
            await db.send("s", "hi")
            assert await answer(db, "s", source()) == 1  # type: ignore[arg-type]

    run(test)
    assert len(tasks) == 1
    assert values == list(range(7))
