"""Made-up sessions, always the same: turns as chunks, and their segments as a worker would write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import texts
from snapshotter.core.chunks import delta_of
from streams.codec import frame
from streams.packing import Packer
from streams.records import Record

Chunk = dict[str, Any]

_WORDS = """
    the of and a to in is you that it he was for on are as with his they at be this have from or one had by
    word but not what all were we when your can said there use an each which she do how their if will
""".split()  # noqa: SIM905 - fifty quoted words are no better to read
_START_MS = 1_750_000_000_000


def tokens(count: int, seed: int = 0) -> Iterator[str]:
    """`count` tokens of plain English, about five characters each."""
    for i in range(count):
        yield " " + _WORDS[(seed * 7919 + i * 104_729) % len(_WORDS)]


def block(kind: str, ident: str, count: int, seed: int = 0) -> Iterator[Chunk]:
    """A text or reasoning part of `count` deltas."""
    yield {"type": f"{kind}-start", "id": ident}
    for token in tokens(count, seed):
        yield {"type": f"{kind}-delta", "id": ident, "delta": token}
    yield {"type": f"{kind}-end", "id": ident}


def call(ident: str, output: str, pieces: int = 8) -> Iterator[Chunk]:
    """A tool call whose input streams in, and its result."""
    query = " ".join(tokens(pieces))
    text = f'{{"query":"{query}"}}'
    yield {"type": "tool-input-start", "toolCallId": ident, "toolName": "search"}
    size = -(-len(text) // pieces)
    for i in range(0, len(text), size):
        yield {"type": "tool-input-delta", "toolCallId": ident, "inputTextDelta": text[i : i + size]}
    yield {
        "type": "tool-input-available",
        "toolCallId": ident,
        "toolName": "search",
        "input": {"query": query},
    }
    yield {"type": "tool-output-available", "toolCallId": ident, "output": {"text": output}}


def answer(number: int, deltas: int) -> Iterator[Chunk]:
    """An answer in two steps: reasoning (a quarter of the deltas), a tool call, then text."""
    yield {"type": "start", "messageId": f"msg_{number:024x}"}
    yield {"type": "start-step"}
    yield from block("reasoning", "r", deltas // 4, number)
    yield from call(f"call-{number}", "found " * 300)
    yield {"type": "finish-step"}
    yield {"type": "start-step"}
    yield from block("text", "t", deltas - deltas // 4, number)
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def peers_turn(number: int) -> Iterator[Chunk]:
    """A tool call, a result of 4,000 bytes, an answer of 1,000: with its question about 6.1 kB (`texts`)."""
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield from call(f"call-{number}", texts.result(number))
    yield {"type": "finish-step"}
    yield from _spoken(number)


def short_turn(number: int) -> Iterator[Chunk]:
    """An answer of 1,000 bytes, and no tool."""
    yield {"type": "start"}
    yield from _spoken(number)


def _spoken(number: int) -> Iterator[Chunk]:
    yield {"type": "start-step"}
    yield {"type": "text-start", "id": "t"}
    yield {"type": "text-delta", "id": "t", "delta": texts.answer(number)}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def question(number: int, size: int = 80) -> dict[str, Any]:
    """A user message of so many bytes of text; of `texts.QUESTION` it is that of a turn that is compared."""
    text = texts.digits(f"question {number}", size)
    return {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}


def inputs(turns: int) -> list[Record]:
    """The in log of a session of this many turns."""
    return [
        {"id": n, "ts": _START_MS, "kind": "message", "key": f"u{n}", "message": question(n)}
        for n in range(1, turns + 1)
    ]


def segments(turns: int, deltas: int, *, per_second: int = 50, packed: bool = True) -> list[bytes]:
    """The out log of such a session: segments of 1 to 5 s, as the preset `stream` cuts them."""
    made: list[bytes] = []
    packer = Packer(1, delta_of if packed else lambda _chunk: None)
    now = _START_MS
    for number in range(1, turns + 1):
        began, pace = now, 1.0
        bodies = list(_records(number, deltas))
        for at, body in enumerate(bodies, 1):
            now += 1000 // per_second
            packer.add(now, body)
            if now - began >= pace * 1000 or at == len(bodies):
                made.append(_segment(packer, len(made)))
                packer = Packer(packer.next, delta_of if packed else lambda _chunk: None)
                began, pace = now, min(5.0, pace * 1.5)
    return made


def _records(number: int, deltas: int) -> Iterator[Record]:
    yield {
        "control": "turn-start",
        "turn": number,
        "attempt": 1,
        "epoch": 1,
        "run": "r-1",
        "mode": "fresh",
        "inputs": [number],
        "seen": number,
        "messageId": f"msg_{number:024x}",
    }
    for chunk in answer(number, deltas):
        yield {"chunk": chunk}
    yield {"control": "turn-complete", "turn": number, "status": "completed"}


def _segment(packer: Packer, number: int) -> bytes:
    return frame(
        "out",
        packer.first,
        packer.next - 1,
        packer.lines(),
        nonce=f"{number + 1:024x}",
        epoch=1,
        run="r-1",
        prev=f"{number:024x}" if number else None,
        lease=15,
    )
