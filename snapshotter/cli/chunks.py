r"""Chunks from a byte stream: JSON lines, or the AI SDK's server-sent events; both may be mixed.

    {"type":"text-delta","id":"t","delta":"hi"}          a line that is an object
    data: {"type":"text-delta","id":"t","delta":"hi"}    an event; may go on over several `data:` lines
    : keep-alive                                         a comment, as `event:`, `id:`, `retry:` skipped
    data: [DONE]                                         an end marker; skipped

Lines end with `\n` or `\r\n` and nothing else: U+2028, U+0085 and their like are text. An event counts as
soon as it is a whole JSON object, so nothing waits for the blank line that a proxy may have dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from snapshotter.core.values import loads
from snapshotter.errors import InvalidValue

_SKIPPED = (b":", b"event:", b"id:", b"retry:")
_BOM = b"\xef\xbb\xbf"


class Chunks:
    """The chunks of a stream, each as soon as its line is there; `line` counts the lines read so far.

    A first object without a type (what a recording says of itself) is skipped. Iterating raises InvalidValue
    naming the line for anything that is neither JSON nor SSE.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.line = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first = True
        for chunk in _objects(self._counted()):
            if not (first and "type" not in chunk):
                yield chunk
            first = False

    def _counted(self) -> Iterator[tuple[int, bytes]]:
        for raw in self._lines:
            self.line += 1
            yield self.line, raw


def _objects(lines: Iterable[tuple[int, bytes]]) -> Iterator[dict[str, Any]]:
    event: list[bytes] = []
    number = 0
    for number, raw in lines:
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            event.append(line[5:].removeprefix(b" "))
            whole = _try(event)
            if whole is not None:
                event = []
                yield from whole
        elif not line.strip():
            _no_rest(event, number)
        elif not line.startswith(_SKIPPED):
            _no_rest(event, number)
            yield _object(line, number)
    _no_rest(event, number)


def _try(event: list[bytes]) -> list[dict[str, Any]] | None:
    """The event's object (none for an end marker), or None while it is not whole."""
    data = b"\n".join(event).strip()
    if data in (b"", b"[DONE]"):
        return []
    if not data.endswith(b"}"):
        return None
    try:
        value = loads(data)
    except InvalidValue:
        return None
    return [value] if isinstance(value, dict) else None


def _no_rest(event: list[bytes], number: int) -> None:
    if event:
        _object(b"\n".join(event), number)
        raise InvalidValue(f"line {number}: an event that is no JSON object", path=f"line {number}")


def _object(data: bytes, number: int) -> dict[str, Any]:
    try:
        value = loads(data)
    except InvalidValue as error:
        raise InvalidValue(f"line {number}: {error}", path=f"line {number}") from None
    if not isinstance(value, dict):
        raise InvalidValue(f"line {number}: a chunk is a JSON object", path=f"line {number}")
    return value
