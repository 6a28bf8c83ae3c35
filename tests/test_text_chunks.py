"""Plain texts as a stream of chunks: a whole answer, whatever the pieces, and a source that is closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from chat_samples import SID, Place, first_turn
from hypothesis import given
from hypothesis import strategies as st

from snapshotter import InvalidValue, aio, text_chunks
from snapshotter.core.accumulator import Accumulator
from snapshotter.core.values import mend_text


@pytest.fixture
def place() -> Place:
    return Place()


async def later(pieces: list[str | None], closed: list[bool]) -> AsyncIterator[str | None]:
    try:
        for piece in pieces:
            yield piece
    finally:
        closed.append(True)


@given(st.lists(st.none() | st.text(max_size=4), max_size=6), st.none() | st.text(min_size=1, max_size=3))
def test_texts_as_chunks_make_a_whole_message_of_one_text(
    pieces: list[str | None], message_id: str | None
) -> None:
    chunks = list(text_chunks(iter(pieces), message_id=message_id, finish_reason="length"))
    message = Accumulator(strict=True)
    assert all(message.apply(chunk) for chunk in chunks)
    said = mend_text("".join(filter(None, pieces)))
    assert message.view() == {
        "id": message_id or "",
        "role": "assistant",
        "parts": [{"type": "step-start"}, {"type": "text", "text": said, "state": "done"}],
    }
    assert len(chunks) == 6 + len(list(filter(None, pieces)))
    assert chunks[-1] == {"type": "finish", "finishReason": "length"}

    async def collected() -> list[Any]:
        source = later(pieces, [])
        return [chunk async for chunk in text_chunks(source, message_id=message_id, finish_reason="length")]

    assert asyncio.run(collected()) == chunks


def test_a_text_alone_is_one_piece() -> None:
    assert [chunk.get("delta") for chunk in text_chunks("It is Oslo.")][3] == "It is Oslo."
    assert len(list(text_chunks("It is Oslo."))) == 7


def test_texts_that_are_passed_on_complete_the_turn(place: Place) -> None:
    closed: list[bool] = []

    async def answered() -> None:
        db = aio.AsyncDatabase(place.db)
        async with await db.boot(SID) as session:
            async for turn in session.turns():
                async with turn:
                    async for chunk in turn.tee(text_chunks(later(["It ", "is."], closed))):
                        if chunk["type"] == "text-delta":
                            break

    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            list(turn.tee(text_chunks(word for word in ["It ", "", None, "is ", "Oslo."])))
        assert (turn.status, session.report) == ("completed", [])
    (_, part) = place.db.history(SID)[-1]["parts"]
    assert part == {"type": "text", "text": "It is Oslo.", "state": "done"}
    place.send("u2")
    asyncio.run(answered())
    assert closed == [True]


def test_a_source_of_texts_that_is_left_or_fails_is_closed() -> None:
    closed: list[str] = []

    def source(name: str) -> Iterator[str]:
        try:
            yield "half"
            raise ConnectionError(name)
        finally:
            closed.append(name)

    left = text_chunks(held := source("left"))
    assert [next(left)["type"] for _ in range(4)][-1] == "text-delta"
    left.close()
    assert closed == ["left"]
    failed = text_chunks(source("failed"))
    with pytest.raises(ConnectionError):
        list(failed)
    assert closed == ["left", "failed"]
    del held


def test_it_is_exported_and_loaded_when_it_is_asked_for() -> None:
    code = "import sys, snapshotter; m = 'snapshotter.core.texts'; a = m in sys.modules"
    code += "; snapshotter.text_chunks; print(a, m in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("deltas", [7, None, b"abc", bytearray(b"abc")])
def test_what_is_no_texts_is_refused_at_once(deltas: Any) -> None:
    with pytest.raises(InvalidValue, match="need to be texts"):
        text_chunks(deltas)


@pytest.mark.parametrize("piece", [1, b"abc", {"delta": "x"}])
def test_a_piece_that_is_no_text_is_refused_when_it_comes(piece: Any) -> None:
    chunks = text_chunks(["a", piece])
    with pytest.raises(InvalidValue, match="needs to be a text"):
        list(chunks)
