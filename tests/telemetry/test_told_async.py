"""Behind the async door the spans are the same, and belong to the task that asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from chat_samples import SID, saying
from opentelemetry import trace as otel
from told import Watched, by_verb, counted

from snapshotter.aio import AsyncDatabase


async def model(place: Watched) -> AsyncIterator[dict[str, object]]:
    with place.told.tracer.start_as_current_span("model"):
        for chunk in saying("hello"):
            await asyncio.sleep(0)
            yield chunk


async def work(place: Watched, session_id: str) -> None:
    db = AsyncDatabase(place.db)
    with place.told.tracer.start_as_current_span(f"worker {session_id}") as worker:
        receipt = await db.send(session_id, "hi")
        async with await db.boot(receipt=receipt) as session:
            async for turn in session.turns():
                async with turn:
                    inside = otel.get_current_span()
                    async for _ in turn.tee(model(place)):
                        assert otel.get_current_span() is inside
                assert otel.get_current_span() is worker
        assert otel.get_current_span() is worker


def test_a_boot_and_a_turn_tell_every_request_that_was_made() -> None:
    place = Watched()
    with place.asked() as asked:
        asyncio.run(work(place, SID))
    told = place.told
    boot, done = told.one("snapshotter.boot"), told.one("snapshotter.turn")
    worker = told.one(f"worker {SID}")
    assert boot.parent == done.parent == worker.context
    assert told.one("model").parent == done.context
    assert sorted(told.requests(worker)) == sorted(asked)
    for span in (boot, done):
        assert by_verb(span) == counted(told.requests(span)) != {}


def test_tasks_side_by_side_keep_their_spans_apart() -> None:
    place = Watched()
    names = [f"chat-{number}" for number in range(5)]

    async def together() -> None:
        await asyncio.gather(*(work(place, name) for name in names))

    with place.asked() as asked:
        asyncio.run(together())
    told = place.told
    found = {name: told.requests(told.one(f"worker {name}")) for name in names}
    assert sum(map(len, found.values())) == len(asked)
    for name, requests in found.items():
        assert requests
        assert {key.split("/")[1] for _, key in requests} == {name}
        spans = [span.name for span in told.below(told.one(f"worker {name}"))]
        assert [spans.count(kind) for kind in ("snapshotter.boot", "snapshotter.turn", "model")] == [1, 1, 1]


def test_a_cancelled_task_lets_go_of_its_turn_and_says_so() -> None:
    place = Watched()
    place.send("u1")

    async def cancelled() -> None:
        db, began = AsyncDatabase(place.db), asyncio.Event()

        async def answer() -> None:
            async with await db.boot(SID) as session:
                async for turn in session.turns():
                    async with turn:
                        began.set()
                        await asyncio.Event().wait()

        task = asyncio.create_task(answer())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    said = dict(place.told.one("snapshotter.turn").attributes or {})
    assert (said["snapshotter.turn.status"], said["snapshotter.release.why"]) == ("released", "cancelled")
    assert "error.type" not in said
