"""Sessions of a corpus that the engine itself writes, since bytes alone could not be made up for them.

Each story is one way in which a session goes; `worked` plays one, and always the same for the same seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.samples import Chunk, block, call
from snapshotter import maintenance
from snapshotter.database import Database

Message = dict[str, Any]

_LARGE = 40_000  # bytes of a tool's result that is stored apart


class _Died(Exception):
    """Ends a worker in the middle of its answer."""


def question(rng: random.Random, number: int | str) -> Message:
    """A user message with the id `u<number>`."""
    text = "Tell me" + " about it" * rng.randrange(1, 30)
    return {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}


def answer(rng: random.Random, number: int, message_id: str | None = None) -> Iterator[Chunk]:
    """The chunks of one answer: some reasoning, up to three tool calls, text."""
    yield {"type": "start", "messageId": message_id or f"msg_{number:024x}"}
    if rng.random() < 0.5:
        yield {"type": "start-step"}
        yield from block("reasoning", "r", rng.randrange(20, 200), rng.randrange(1000))
        for nth in range(rng.randrange(4)):
            yield from call(f"call-{number}-{nth}", "found " * rng.randrange(5, 800))
        yield {"type": "finish-step"}
    yield {"type": "start-step"}
    yield from block("text", "t", int(rng.lognormvariate(4.5, 0.8)), rng.randrange(1000))
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def respond(db: Database, session_id: str, chunks: Callable[[], Iterable[Chunk]]) -> None:
    """A worker that answers all that is owed, whoever had the session before."""
    with db.boot(session_id, takeover=True) as session:
        for turn in session.turns():
            with turn:
                for chunk in chunks():
                    turn.write(chunk)


def _plain(db: Database, name: str, rng: random.Random, turns: int) -> None:
    for number in range(1, turns + 1):
        db.send(name, question(rng, number))
        respond(db, name, lambda number=number: answer(rng, number))  # type: ignore[misc]


def _edited(db: Database, name: str, rng: random.Random, turns: int) -> None:
    """A question is asked anew, and what followed it is gone."""
    _plain(db, name, rng, turns)
    db.edit(name, f"u{rng.randrange(1, turns + 1)}", question(rng, "-again"))
    respond(db, name, lambda: answer(rng, turns + 1))


def _large(db: Database, name: str, rng: random.Random, turns: int) -> None:
    """A tool finds so much that it is stored apart."""

    def chunks() -> Iterator[Chunk]:
        yield {"type": "start-step"}
        yield from call("call-large", "found " * (_LARGE // 6 + rng.randrange(1000)))
        yield {"type": "finish-step"}
        yield from list(answer(rng, turns + 1))[1:]

    _plain(db, name, rng, turns)
    db.send(name, question(rng, "-large"))
    respond(db, name, chunks)


def _approved(db: Database, name: str, rng: random.Random, turns: int) -> None:
    """A tool asks first, and runs in the turn that the answer continues."""
    _plain(db, name, rng, turns)
    ready = {"type": "tool-input-available", "toolCallId": "ask", "toolName": "pay", "input": {"amount": 7}}
    asked = {"type": "tool-approval-request", "toolCallId": "ask", "approvalId": "approval"}
    ran = {"type": "tool-output-available", "toolCallId": "ask", "output": {"paid": True}}
    db.send(name, question(rng, "-pay"))
    respond(db, name, lambda: [{"type": "start-step"}, ready, asked, {"type": "finish-step"}])
    db.approve(name, "approval", approved=rng.random() < 0.5)
    respond(db, name, lambda: [ran, *list(answer(rng, turns + 2))[1:]])


def _interrupted(db: Database, name: str, rng: random.Random, turns: int) -> None:
    """A worker lets go in the middle, and the next one answers; the session's state is kept."""
    _plain(db, name, rng, turns)
    db.send(name, question(rng, "-cut"))
    half = [*answer(rng, turns + 1)]

    def dying() -> Iterator[Chunk]:
        yield from half[: len(half) // 2]
        raise _Died

    try:
        respond(db, name, dying)
    except _Died:
        respond(db, name, lambda: half)
    with db.boot(name, takeover=True) as session:
        session.set_state({"turns": turns, "title": name})


def _recreated(db: Database, name: str, rng: random.Random, turns: int) -> None:
    """Deleted, and created anew with a history from elsewhere."""
    _plain(db, name, rng, 1)
    maintenance.delete(db, name)
    db.create(name, messages=[question(rng, "-given")], state={"moved": True})
    db.send(name, question(rng, "-new"))
    respond(db, name, lambda: answer(rng, turns + 1))


STORIES = (_plain, _edited, _large, _approved, _interrupted, _recreated)


def worked(db: Database, name: str, rng: random.Random, turns: int, story: int) -> None:
    """Play one of `STORIES` (by its place) in the session `name`."""
    STORIES[story](db, name, rng, turns)
