"""Plain texts as a stream of chunks: an answer that is one text, of a model that yields nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable
from typing import Any, overload

from streams.errors import InvalidValue

from .chunks import Chunk

_ID = "t1"


@overload
def text_chunks(
    deltas: Iterable[str | None], *, message_id: str | None = None, finish_reason: str = "stop"
) -> Generator[Chunk, None, None]: ...


@overload
def text_chunks(
    deltas: AsyncIterable[str | None], *, message_id: str | None = None, finish_reason: str = "stop"
) -> AsyncGenerator[Chunk, None]: ...


def text_chunks(
    deltas: Iterable[str | None] | AsyncIterable[str | None],
    *,
    message_id: str | None = None,
    finish_reason: str = "stop",
) -> Generator[Chunk, None, None] | AsyncGenerator[Chunk, None]:
    """The AI SDK chunks of an answer that is one text, for `Turn.tee`: start, start-step, text-start, a
    text-delta for each piece, text-end, finish-step, finish. An async iterator where `deltas` is async.

    Empty pieces and None are passed over; a `str` is one piece. `finish_reason`: `stop`, `length`,
    `content-filter`, `tool-calls`, `error` or `other`. What `deltas` raises comes through, and nothing is
    ended then; it is closed in any case. Raises InvalidValue for anything that is no texts: at once, or when
    the piece comes.
    """
    if isinstance(deltas, bytes | bytearray) or not isinstance(deltas, Iterable | AsyncIterable):
        raise InvalidValue(f"deltas need to be texts, not {type(deltas).__name__}", path="deltas")
    start = {"type": "start"} if message_id is None else {"type": "start", "messageId": message_id}
    before = [start, {"type": "start-step"}, {"type": "text-start", "id": _ID}]
    finish = {"type": "finish", "finishReason": finish_reason}
    after = [{"type": "text-end", "id": _ID}, {"type": "finish-step"}, finish]
    if isinstance(deltas, AsyncIterable):
        return _framed_async(before, deltas, after)
    return _framed(before, [deltas] if isinstance(deltas, str) else deltas, after)


def _delta(piece: str) -> Chunk:
    if not isinstance(piece, str):
        raise InvalidValue(f"a piece needs to be a text, not {type(piece).__name__}", path="deltas")
    return {"type": "text-delta", "id": _ID, "delta": piece}


def _framed(
    before: list[Chunk], deltas: Iterable[str | None], after: list[Chunk]
) -> Generator[Chunk, None, None]:
    try:
        yield from before
        for piece in deltas:
            if piece:
                yield _delta(piece)
        yield from after
    finally:
        close: Any = getattr(deltas, "close", None)
        if close is not None:
            close()


async def _framed_async(
    before: list[Chunk], deltas: AsyncIterable[str | None], after: list[Chunk]
) -> AsyncGenerator[Chunk, None]:
    try:
        for chunk in before:
            yield chunk
        async for piece in deltas:
            if piece:
                yield _delta(piece)
        for chunk in after:
            yield chunk
    finally:
        close: Any = getattr(deltas, "aclose", None)
        if close is not None:
            await close()
