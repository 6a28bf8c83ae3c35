"""Real bytes to begin from: one session that has met most of what a session can meet, object by object.

A fuzzer that begins at nothing spends its life on the checksum. What is made here is what the engine itself
wrote: segments of both logs, a snapshot, chunks as a model sends them, a client's messages.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from chat_samples import SID, Place, ask, call, die, first_turn, result, saying, text, user, write_all

import snapshotter

RECORDINGS = Path(snapshotter.__file__).parent / "recordings"

ANSWER = [
    {"type": "start", "messageId": "a1", "messageMetadata": {"model": "m"}},
    {"type": "start-step"},
    {"type": "reasoning-start", "id": "r"},
    {"type": "reasoning-delta", "id": "r", "delta": "Hm."},
    {"type": "reasoning-end", "id": "r"},
    *text("It is \U0001f3d4 é."),
    {"type": "tool-input-start", "toolCallId": "c0", "toolName": "look"},
    {"type": "tool-input-delta", "toolCallId": "c0", "inputTextDelta": '{"q":[1,'},
    {"type": "tool-input-delta", "toolCallId": "c0", "inputTextDelta": "2]}"},
    {"type": "tool-input-available", "toolCallId": "c0", "toolName": "look", "input": {"q": [1, 2]}},
    {"type": "tool-output-available", "toolCallId": "c0", "output": {"n": 1}, "preliminary": True},
    result("c0", {"n": 2}),
    {"type": "source-url", "sourceId": "s", "url": "https://example.org", "title": "T"},
    {"type": "data-weather", "id": "d", "data": {"t": 1.5}},
    {"type": "file", "url": "data:,x", "mediaType": "text/plain"},
    {"type": "finish-step"},
    {"type": "finish", "finishReason": "stop", "messageMetadata": {"tokens": 9}},
]


def lived() -> Place:
    """A session with a whole turn, a question that waits for a person, and a turn that was cut off."""
    place = Place(durability="steps")
    place.send("u1", body={"user": "x"})
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, ANSWER)
    place.send("u2", client_tools=["ask_user"])
    with place.db.boot(SID) as session:
        session.set_state({"title": "Hills"})
        turn = first_turn(session)
        with turn:
            write_all(turn, [{"type": "start"}, {"type": "start-step"}, call("c1"), ask("c1", "ap1")])
            write_all(turn, [{"type": "finish", "finishReason": "tool-calls"}])
    place.db.approve(SID, "ap1", approved=True)
    place.db.edit(SID, "u2", user("u2", "no, there"))
    place.db.stop(SID, "u9")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [*saying("half")][:4])
    turn.stash({"at": 1})
    turn.flush()
    die(session)
    place.db.action(SID, "rate", {"stars": 5})
    return place


@cache
def objects() -> dict[str, bytes]:
    """The stored objects of `lived`, by key."""
    place = lived()
    return {key: place.space.objects[key].data for key in place.space.order}


def segments() -> list[bytes]:
    return [data for key, data in objects().items() if not key.startswith("sessions/")]


def records(log: str) -> list[bytes]:
    """Every record of a log as its line, oldest first."""
    found = [data for key, data in sorted(objects().items(), reverse=True) if key.startswith(f"{log}/")]
    return [line for data in found for line in data.splitlines()[1:]]


def snapshots() -> list[bytes]:
    return [data for key, data in objects().items() if key.startswith("sessions/")]


def messages() -> list[Any]:
    """The history that a client shows, as JSON values."""
    found: list[Any] = lived().db.history(SID)
    return found


def lines(values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def recordings() -> list[bytes]:
    """The shipped streams, as JSON lines and as server-sent events."""
    plain = [path.read_bytes() for path in sorted(RECORDINGS.glob("*.jsonl"))]
    return [*plain, *(b"".join(b"data: %b\n\n" % line for line in data.splitlines()) for data in plain[:2])]
