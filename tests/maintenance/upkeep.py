"""What the tests of maintenance share: long sessions in memory, hours that pass, and the pictures of a
session that must not change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

from chat_samples import AT_ONCE, SID, Place, call, first_turn, result, saying, user, write_all

from snapshotter import Database, Session
from snapshotter.maintenance import delete, gc
from snapshotter.verify import verify
from streams.buckets.memory import MemoryBucket
from streams.testing.faults import Call, FaultyBucket

HOURS = 3600.0


class Killed(BaseException):
    """The process ends here."""


def session_of(place: Place, turns: int = 3, session: str = SID) -> None:
    """A session of so many turns, each of several segments, and one that used a tool; then a day passes."""
    for number in range(1, turns + 1):
        place.db.send(session, user(f"u{number}"))
        with place.db.boot(session, takeover=True) as booted:
            for turn in booted.turns():
                with turn:
                    chunks = list(saying(f"answer {number}"))
                    if number == 2:
                        chunks[2:2] = [call(f"c{number}"), result(f"c{number}")]
                    for chunk in chunks:
                        turn.write(chunk)
                        turn.flush()
    place.clock.advance(24 * HOURS)


def again(place: Place) -> None:
    """Deleted and opened again; a day later gc has swept what the deletion emptied."""
    session_of(place, 3)
    delete(place.db, SID)
    place.db.create(SID)
    place.db.send(SID, user("u9"))
    place.answer("anew")
    place.clock.advance(24 * HOURS)
    gc(place.db, SID)
    place.clock.advance(24 * HOURS)


def overtaken(place: Place) -> Session:
    """The session of a worker that has written two segments of its turn, and sleeps while another answers."""
    place.send("u1")
    zombie = place.db.boot(SID)
    turn = first_turn(zombie)
    write_all(turn, [{"type": "start"}, call("c1")])
    turn.flush()
    with fresh(place).boot(SID, takeover=True) as session:
        for other in session.turns():
            with other:
                for chunk in saying("by another"):
                    other.write(chunk)
                    other.flush()
    return zombie


def fresh(place: Place) -> Database:
    """Another process's door to the same store."""
    bucket = MemoryBucket(place.clock, space=place.space)
    return Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes)


def picture(place: Place, session: str = SID) -> str:
    """All that a reader sees of a session: history, plan, state, the end of the log."""
    found = fresh(place).peek(session)
    seen = {
        "messages": found.messages,
        "pending": [item.ids for item in found.pending],
        "resume": found.resume.kind,
        "state": found.fold.state,
        "turn": found.fold.turn,
        "cursor": found.cursor,
    }
    return json.dumps(seen, indent=1, default=str)


def out_records(place: Place, session: str = SID) -> list[dict[str, Any]]:
    """The out log as a follower reads it from its beginning."""
    return list(fresh(place).records(session, "out"))


def check(place: Place, session: str = SID) -> None:
    """The session is whole, and keeps the law."""
    verdict = verify(fresh(place), session)
    assert verdict.ok, verdict.problems


def killed_at(
    place: Place, number: int, when: Literal["before", "after"], run: Callable[[Database], Any]
) -> bool:
    """Run with a process that ends around its number-th request; False where it makes fewer."""

    def hook(asked: Call, at: str) -> None:
        if asked.number == number and at == when:
            raise Killed

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    try:
        run(Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes))
    except Killed:
        return True
    return False


def watched(place: Place, look: Callable[[], Any]) -> Database:
    """A database that looks with other eyes after each of its requests."""

    def hook(_: Call, when: str) -> None:
        if when == "after":
            look()

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    return Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes)


def interrupted(place: Place, verb: str, prefix: str, number: int, act: Callable[[], Any]) -> Database:
    """A door; `act` happens before its number-th request of this kind (empty: any) for a key with
    this prefix."""
    asked: list[str] = []

    def hook(request: Call, when: str) -> None:
        if when == "before" and verb in ("", request.verb) and request.key.startswith(prefix):
            asked.append(request.key)
            if len(asked) == number:
                act()

    bucket = FaultyBucket(MemoryBucket(place.clock, space=place.space), clock=place.clock, hook=hook)
    return Database(bucket, place.clock, recovery=AT_ONCE, sizes=place.db._sizes)


def names(keys: Iterable[str]) -> list[int]:
    """The first ids of segments, oldest first."""
    return sorted(int(key.rpartition("-")[2].partition(".")[0]) for key in keys)
