"""What the tests of sessions share: a database in memory whose clock and faults the test owns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from snapshotter.database import Database
from snapshotter.recovery import ChatRecovery
from snapshotter.session import Session
from snapshotter.turn import Turn
from streams.buckets.memory import MemoryBucket, Space
from streams.testing.clocks import FakeClock
from streams.testing.faults import FaultyBucket

SID = "chat"
AT_ONCE = ChatRecovery(max_backoff=0)  # most tests are not about the pause before a further attempt
Chunk = dict[str, Any]
Message = dict[str, Any]


class Place:
    """A store, a clock and a database over them."""

    def __init__(self, **options: Any) -> None:
        self.space = Space()
        self.clock = FakeClock()
        self.bucket = FaultyBucket(MemoryBucket(self.clock, space=self.space), clock=self.clock)
        options.setdefault("recovery", AT_ONCE)
        self.db = Database(self.bucket, self.clock, **options)

    def send(self, message_id: str, **options: Any) -> Any:
        return self.db.send(SID, user(message_id), **options)

    def stored(self, prefix: str) -> dict[str, bytes]:
        """The objects below a prefix, newest first for logs."""
        return {key: self.space.objects[key].data for key in self.space.order if key.startswith(prefix)}

    def segments(self, log: str = "out") -> list[list[dict[str, Any]]]:
        """The records of each segment, oldest first; runs as stored."""
        found = [data.splitlines()[1:] for data in self.stored(f"{log}/").values()]
        return [[json.loads(line) for line in lines] for lines in reversed(found)]

    def records(self, log: str = "out") -> list[dict[str, Any]]:
        return [record for segment in self.segments(log) for record in segment]

    def controls(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record.get("control") == name]

    def answer(self, text: str = "hello", **options: Any) -> None:
        """A worker that answers everything with one text."""
        with self.db.boot(SID, **options) as session:
            for turn in session.turns():
                with turn:
                    for chunk in saying(text):
                        turn.write(chunk)


def user(message_id: str, text: str = "hi") -> Message:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


def text(value: str, part: str = "t") -> Iterator[Chunk]:
    yield {"type": "text-start", "id": part}
    yield {"type": "text-delta", "id": part, "delta": value}
    yield {"type": "text-end", "id": part}


def saying(value: str) -> Iterator[Chunk]:
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield from text(value)
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def call(call_id: str = "c1", tool: str = "tool") -> Chunk:
    return {"type": "tool-input-available", "toolCallId": call_id, "toolName": tool, "input": {"n": 1}}


def result(call_id: str = "c1", output: Any = "ok") -> Chunk:
    return {"type": "tool-output-available", "toolCallId": call_id, "output": output}


def ask(call_id: str = "c1", approval_id: str = "ap1") -> Chunk:
    return {"type": "tool-approval-request", "toolCallId": call_id, "approvalId": approval_id}


def write_all(turn: Turn, chunks: Any) -> None:
    for chunk in chunks:
        turn.write(chunk)


def first_turn(session: Session) -> Turn:
    return next(session.turns())


def die(session: Session) -> None:
    """End a worker as SIGKILL does: nothing more is written, nothing is released."""
    turn = session.current
    assert turn is not None
    turn._stop_watching()
    session.writer.close(flush=False)


def shape(messages: list[Message]) -> list[tuple[str, list[str]]]:
    """(role, part types or texts) of each message, for comparing at a glance."""
    return [
        (
            m["role"],
            [p["text"] if p["type"] == "text" else f"{p['type']}:{p.get('state', '')}" for p in m["parts"]],
        )
        for m in messages
    ]
