"""What a debugger and a log line show of a session and its turns: short, true, without a request."""

from __future__ import annotations

import pytest
from chat_samples import SID, Place, die, first_turn, saying, write_all

from snapshotter import Session, Turn, aio


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_session_says_where_it_stands(place: Place) -> None:
    place.send("u1")
    peeked = place.db.peek(SID)
    assert repr(peeked) == (f"<snapshotter.Session {SID!r}: turn 0, cursor {{'in': 0, 'out': 0}}, 1 owed>")
    session = place.db.boot(SID)
    turn = first_turn(session)
    assert repr(session) == f"<snapshotter.Session {SID!r}: turn 1 open, cursor {session.cursor}, 0 owed>"
    seen = place.db.peek(SID)
    requests = seen.stats.requests
    assert repr(seen).endswith(", 0 owed, busy>")
    assert seen.stats.requests == requests
    write_all(turn, saying("x"))
    turn.complete()
    assert repr(session).endswith(", 0 owed>")
    session.close()
    place.db.close_session(SID)
    place.answer()
    assert repr(place.db.peek(SID)).endswith(", 0 owed, closed>")


def test_a_turn_says_what_it_is_also_when_the_next_one_is_under_way(place: Place) -> None:
    place.send("u1")
    place.send("u2")
    with place.db.boot(SID) as session:
        turns = session.turns()
        with next(turns) as first:
            write_all(first, [{"type": "start"}])
            assert repr(first) == f"<snapshotter.Turn of {SID!r}: message, turn 1, attempt 1, open, 1 chunks>"
        second = next(turns)
        assert ", turn 1, attempt 1, completed, 1 chunks>" in repr(first)
        assert ", turn 2, attempt 1, open, 0 chunks>" in repr(second)
        die(session)
    with place.db.boot(SID, takeover=True) as session:
        assert ": call_model, turn 2, attempt 2, open, 0 chunks>" in repr(first_turn(session))


def test_an_action_that_is_not_claimed_says_so(place: Place) -> None:
    place.db.action(SID, "wipe", {})
    with place.db.boot(SID) as session, first_turn(session) as turn:
        assert repr(turn) == f"<snapshotter.Turn of {SID!r}: action, not claimed yet, open, 0 chunks>"


def test_the_async_ones_show_what_is_behind_them(place: Place) -> None:
    db = aio.AsyncDatabase(place.db)
    session = aio.AsyncSession(place.db.peek(SID), db._pool)
    assert repr(db) == f"AsyncDatabase({place.db!r})"
    assert repr(session) == f"AsyncSession({session.found!r})"


@pytest.mark.parametrize("kind", [Session, Turn])
def test_one_that_is_not_made_yet_does_not_raise(kind: type) -> None:
    assert repr(kind.__new__(kind)) == f"<snapshotter.{kind.__name__}>"
