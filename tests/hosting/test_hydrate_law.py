"""Whoever owns the history, it is the same history: a host that stores now and then, and one that never
hears of storing, see the same after any course of events."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest
from chat_samples import (
    SID,
    Chunk,
    Message,
    Place,
    call,
    die,
    result,
    saying,
    shape,
    text,
    user,
    write_all,
)

from snapshotter.turn import Turn


class Lazy:
    """A host that copies the settled history into its own store now and then."""

    def __init__(self) -> None:
        self.kept: list[Message] = []
        self.place = Place(hydrate=lambda _: json.loads(json.dumps(self.kept)))


def course(rng: random.Random) -> list[tuple[str, int]]:
    """A course of events: (what happens, a number that decides how)."""
    kinds = ["send", "work", "work", "die", "edit", "regenerate", "call", "ask", "ask", "reply", "reply"]
    kinds += ["store", "store"]
    return [("send", 0), *((rng.choice(kinds), rng.randrange(1 << 16)) for _ in range(rng.randrange(3, 25)))]


def run(place: Place, event: str, n: int, host: Lazy | None) -> None:
    users = [m["id"] for m in place.db.history(SID) if m["role"] == "user"]
    if event == "send":
        place.send(f"u{n}")
    elif event == "edit" and users:
        target = users[n % len(users)]
        place.db.edit(SID, target, user(f"e{n}" if n % 3 else target, f"edited {n}"))
    elif event == "regenerate":
        place.db.regenerate(SID)
    elif event == "store" and host is not None:
        host.kept = place.db.load(SID).fold.chain.messages
    elif event == "reply":
        calls = [
            p for m in place.db.history(SID)[-1:] for p in m["parts"] if p.get("state") == "input-available"
        ]
        for waiting in calls[-1:]:
            place.db.tool_result(SID, waiting["toolCallId"], f"reply {n}")
    elif event in ("work", "die", "call", "ask"):
        place.clock.advance(3600)
        with place.db.boot(SID, client_tools=["where"]) as session:
            work(session, event, n, host)


def written(turn: Turn, chunks: Iterable[Chunk], host: Lazy | None, n: int) -> None:
    """Write an answer; a host may store it as it is by then, too, in place of what it replaces."""
    for at, chunk in enumerate(chunks):
        turn.write(chunk)
        if host is not None and n % 3 and at == n % 7:
            there = {m["id"] for m in turn.messages} - {turn.message_id}
            others = [m for m in host.kept if m["id"] in there]
            host.kept = [*others, json.loads(json.dumps(turn.message))]


def work(session: object, event: str, n: int, host: Lazy | None) -> None:
    for turn in session.turns():  # type: ignore[attr-defined]
        if event == "die":
            write_all(turn, [{"type": "start"}, {"type": "start-step"}, *text(f"half {n}")])
            if n % 2:
                write_all(turn, [call(), result()])
            turn.flush()
            die(session)  # type: ignore[arg-type]
            session.current = None  # type: ignore[attr-defined]
            return
        begun = [{"type": "start"}, {"type": "start-step"}]
        chunks = {
            "call": [call(f"c{n}"), result(f"c{n}")],
            "ask": [*begun, call(f"q{n}", "where"), call(f"c{n}"), result(f"c{n}")],
        }
        with turn:
            written(turn, chunks.get(event, list(saying(f"done {n}"))), host, n)


@pytest.mark.parametrize("seed", range(25))
def test_the_history_is_the_same(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        lazy, plain = Lazy(), Place()
        events = course(rng)
        for event, n in events:
            run(lazy.place, event, n, lazy)
            run(plain, event, n, None)
            ours, theirs = lazy.place.db.history(SID), plain.db.history(SID)
            assert shape(ours) == shape(theirs), (seed, event, events)
            assert [m["id"] for m in ours if m["role"] == "user"] == [
                m["id"] for m in theirs if m["role"] == "user"
            ]
            found, other = lazy.place.db.peek(SID), plain.db.peek(SID)
            assert [i.ids for i in found.pending] == [i.ids for i in other.pending]
            assert found.resume.kind == other.resume.kind
