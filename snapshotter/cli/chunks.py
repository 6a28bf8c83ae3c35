r"""Chunks from a byte stream: JSON lines, or the AI SDK's server-sent events; both may be mixed.

    {"type":"text-delta","id":"t","delta":"hi"}          a line that is an object
    data: {"type":"text-delta","id":"t","delta":"hi"}    an event; may go on over several `data:` lines
    : keep-alive                                         a comment, as `event:`, `id:`, `retry:` skipped
    data: [DONE]                                         an end marker; skipped

Lines end with `\n` or `\r\n` and nothing else: U+2028, U+0085 and their like are text. An event counts as
soon as it is a whole JSON object, so nothing waits for the blank line that a proxy may have dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from snapshotter.core.values import loads
from snapshotter.errors import InvalidValue

_SKIPPED = (b":", b"event:", b"id:", b"retry:")
_BOM = b"\xef\xbb\xbf"
_NOTHING = (b"", b"[DONE]")
_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*+(?:"|\Z)')


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
    event = _Event()
    number = 0
    for number, raw in lines:
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            event.add(line[5:].removeprefix(b" "))
            if event.may_be_whole():
                yield from event.take(number)
        elif not line.strip():
            event.end(number)
        elif not line.startswith(_SKIPPED):
            event.end(number)
            yield _object(line, number)
    event.end(number)


class _Event:
    """The `data:` lines of one event. Brackets are counted as they come, so that it is parsed once, when it
    can be whole, and not anew with every line."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._open = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        bare = _STRING.sub(b"", line)  # no JSON string goes on in the next line
        self._open += bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")

    def may_be_whole(self) -> bool:
        last = self._lines[-1].strip()
        return self._open <= 0 and (last.endswith(b"}") or (len(self._lines) == 1 and last in _NOTHING))

    def take(self, number: int) -> list[dict[str, Any]]:
        """The event's object, none for an end marker. With no bracket open nothing could make it whole any
        more, so what is none is refused."""
        data = b"\n".join(self._lines).strip()
        self._lines, self._open = [], 0
        return [] if data in _NOTHING else [_object(data, number)]

    def end(self, number: int) -> None:
        """The event is over; raises InvalidValue where anything of it is left."""
        if self._lines:
            self.take(number)
            raise InvalidValue(f"line {number}: an event that is no JSON object", path=f"line {number}")


def _object(data: bytes, number: int) -> dict[str, Any]:
    try:
        value = loads(data)
    except InvalidValue as error:
        raise InvalidValue(f"line {number}: {error}", path=f"line {number}") from None
    if not isinstance(value, dict):
        raise InvalidValue(f"line {number}: a chunk is a JSON object", path=f"line {number}")
    return value
