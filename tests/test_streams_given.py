"""What a model's stream is given as, and what it ends with: models, texts, end markers, a cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest
from chat_samples import SID, Place, call, die, first_turn, result, saying, text, write_all

from snapshotter import ChunkError, InvalidValue, aio


@pytest.fixture
def place() -> Place:
    return Place()


class TextDelta(pydantic.BaseModel):
    type: str = "text-delta"
    id: str = "t"
    delta: str


class Done(pydantic.BaseModel):
    """As pydantic-ai's adapter ends each stream: its encoder writes it as `[DONE]`."""

    type: str = "done"
    note: str | None = None


@pytest.mark.parametrize("marker", ["[DONE]", {"type": "done"}, Done()])
def test_an_end_marker_is_neither_stored_nor_handed_on_nor_reported(place: Place, marker: Any) -> None:
    async def source() -> AsyncIterator[Any]:
        for chunk in saying("x"):
            yield chunk
        yield marker

    async def answered() -> list[str]:
        db = aio.AsyncDatabase(place.db)
        async with await db.boot(SID) as session:
            async for turn in session.turns():
                async with turn:
                    seen = [chunk["type"] async for chunk in turn.tee(source())]
                    assert await turn.write(marker) is None
            assert session.report == []
        return seen

    wanted = [chunk["type"] for chunk in saying("x")]
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert [chunk["type"] for chunk in turn.tee([*saying("x"), marker])] == wanted
            assert turn.write(marker) is None
        assert session.report == []
    place.send("u2")
    assert asyncio.run(answered()) == wanted
    stored = [record["chunk"]["type"] for record in place.records() if "chunk" in record]
    assert stored == 2 * wanted


def test_a_stream_of_nothing_but_its_end_marker_is_an_empty_one(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert list(turn.tee([Done()])) == []
        assert [line["code"] for line in session.report] == ["nothing-written"]


def test_models_are_handed_on_as_dicts(place: Place) -> None:
    place.send("u1")
    opening: list[Any] = [{"type": "start"}, {"type": "text-start", "id": "t"}]
    with place.db.boot(SID) as session, first_turn(session) as turn:
        *_, delta, _ = turn.tee([*opening, TextDelta(delta="x"), {"type": "text-end", "id": "t"}, Done()])
    assert type(delta) is dict
    assert delta == {"type": "text-delta", "id": "t", "delta": "x"}


@pytest.mark.parametrize("passed_on", [False, True])
def test_a_text_that_is_given_as_a_chunk_is_refused_with_one_traceback(place: Place, passed_on: bool) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        with pytest.raises(InvalidValue, match="not a str; `text_chunks") as raised:
            list(turn.tee(["hello"])) if passed_on else turn.write("hello")
        assert raised.value.__context__ is None
        turn.abort()


def test_a_refused_chunk_is_named_by_its_place_among_those_given(place: Place) -> None:
    place.send("u1")
    bad = {"type": "text-delta", "id": "nobody", "delta": "x"}
    with place.db.boot(SID) as session, first_turn(session) as turn:
        with pytest.raises(ChunkError, match="chunk 0: text-delta for"):
            turn.write(bad)
        with pytest.raises(ChunkError, match="chunk 1: text-end needs"):
            turn.write({"type": "text-end"})
        write_all(turn, [*text("fine"), "[DONE]"])  # an end marker is none
        with pytest.raises(ChunkError, match="chunk 5: ") as raised:
            turn.write(bad)
        assert raised.value.at == 5


BEGIN, STEP = {"type": "start"}, {"type": "start-step"}
CALLING = {"type": "tool-input-start", "toolCallId": "c1", "toolName": "tool"}


@pytest.mark.parametrize(
    ("stream", "within"),
    [
        ([BEGIN, *list(text("half"))[:2]], "text"),
        ([BEGIN, STEP, {"type": "reasoning-start", "id": "r"}], "reasoning"),
        ([BEGIN, *text("let me see"), CALLING], "tool input"),
        ([BEGIN, STEP, *text("all of it")], "step"),
        ([BEGIN, STEP, call(), result()], "step"),
        ([BEGIN, *list(text("unended"))[:2], {"type": "finish", "finishReason": "stop"}], "text"),
        ([BEGIN, *text("all of it")], None),
        ([BEGIN, STEP, *text("all of it"), {"type": "finish-step"}], None),
        ([BEGIN, STEP, *text("all of it"), {"type": "finish", "finishReason": "stop"}], None),
        ([BEGIN, STEP, call(), {"type": "finish-step"}], None),
        ([BEGIN, *list(text("half"))[:2], {"type": "error", "errorText": "overloaded"}], None),
    ],
)
def test_a_stream_that_was_cut_off_is_completed_and_reported(
    place: Place, caplog: pytest.LogCaptureFixture, stream: list[Any], within: str | None
) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            list(turn.tee(iter(stream)))
            shown = turn.message
        told = [line["detail"] for line in session.report if line["code"] == "cut-stream"]
    assert turn.status == ("error" if stream[-1]["type"] == "error" else "completed")
    assert shown is not None
    if turn.status == "completed":
        assert place.db.history(SID)[-1]["parts"] == shown["parts"]  # as a client shows it
    logged = [record for record in caplog.records if record.__dict__.get("event") == "cut-stream"]
    assert len(told) == len(logged) == (within is not None)
    assert all(f"ended within a {within}:" in detail for detail in told)


def test_what_an_attempt_before_left_open_is_not_this_ones_cut(place: Place) -> None:
    place.send("u1")
    dead = place.db.boot(SID)
    write_all(turn := first_turn(dead), [BEGIN, STEP, *list(text("half"))[:2]])
    turn.flush()
    die(dead)
    with place.db.boot(SID, takeover=True) as session:
        with first_turn(session) as turn:
            list(turn.tee(iter([BEGIN, *text("whole")])))
        assert session.report == []
