"""The `replay` command: chunks of one stream in, the message and what was wrong with them out.

A way to ask what the engine would show for a stream, without a bucket: for tests against other
implementations, and for a person who has a stream that looks odd.
"""

from __future__ import annotations

from typing import Any

from streams.errors import InvalidValue

from .accumulator import Accumulator
from .chunks import DELTAS, ChunkError
from .values import clean


def replay(line: dict[str, Any], *, strict: bool = False) -> dict[str, Any]:
    """Replay `{"chunks": [...], "message"?: the message to continue}`.

    Returns `{"message", "report": [{"code", "at", "detail"}]}`: the message as a client shows it (None if
    there is none: no parts and no metadata), `at` the index of the chunk that a finding is about. With
    `strict`, a stream that breaks a rule gives `{"error", "at", "rule"}`. Surrogate halves may be split
    over deltas. Raises InvalidValue where `line` is not of that shape.
    """
    chunks, message = line.get("chunks"), line.get("message")
    if not isinstance(chunks, list):
        raise InvalidValue("a line to replay needs a list of chunks", path="chunks")
    if message is not None and not isinstance(message, dict):
        raise InvalidValue("the message to continue is an object", path="message")
    found: list[dict[str, Any]] = []

    def report(code: str, detail: str) -> None:
        found.append({"code": code, "at": accumulator.at, "detail": detail})

    accumulator = Accumulator(clean(message, "message"), strict=strict, report=report)
    for at, chunk in enumerate(chunks):
        try:
            accumulator.apply(_storable(chunk, at, found))
        except InvalidValue as error:
            if strict:
                return {"error": str(error), "at": at, "rule": "invalid-value"}
            found.append({"code": "bad-chunk", "at": at, "detail": str(error)})
        except ChunkError as error:
            return {"error": str(error), "at": at, "rule": error.rule}
    shown = accumulator.view(trailing_step=False)
    if shown is not None and not shown["parts"] and shown.get("metadata") is None:
        shown = None
    return {"message": shown, "report": found}


def _storable(chunk: Any, at: int, found: list[dict[str, Any]]) -> Any:
    """The chunk as the log would hold it; the text of a delta is left alone, its other half may follow."""
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if isinstance(kind, str) and kind in DELTAS:
        field = DELTAS[kind][1]
        rest = {key: value for key, value in chunk.items() if key != field}
        return {**clean(rest), field: chunk[field]} if field in chunk else clean(rest)
    mended = clean(chunk)
    if mended is not chunk:
        found.append({"code": "lone-surrogate", "at": at, "detail": "replaced by U+FFFD"})
    return mended
