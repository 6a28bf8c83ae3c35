"""A session that works for another's turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chat_samples import SID, Chunk, Place, ask, call, die, first_turn, result, saying, text, user, write_all

from snapshotter import Busy
from snapshotter.hosting import Child, state_of
from snapshotter.turn import Turn

CHILD = "chat/researcher"


@pytest.fixture
def place() -> Place:
    place = Place()
    place.send("u1")
    return place


def parent_turn(place: Place) -> tuple[Any, Turn]:
    """A parent in the middle of a tool call."""
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, {"type": "start-step"}, call("c1", "research")])
    return session, turn


def progress(place: Place) -> list[dict[str, Any]]:
    chunks = [r["chunk"] for r in place.db.records(SID, "out") if "chunk" in r]
    return [chunk["data"] for chunk in chunks if chunk["type"] == "data-subagent"]


def test_a_child_answers_and_its_parent_hears_of_it(place: Place) -> None:
    session, turn = parent_turn(place)
    child = Child(turn, CHILD, "c1")
    assert state_of(place.db, CHILD).state == "none"
    found = child.ask(place.db, "find it", lambda _: saying("found"))
    assert found is not None
    assert found["parts"][-1]["text"] == "found"
    write_all(turn, [result("c1", "found"), {"type": "finish", "finishReason": "stop"}])
    turn.complete()
    session.close()
    assert [data["last"] for data in progress(place)] == ["text-start"]
    assert progress(place)[0] == {"session": CHILD, "turn": 1, "milestones": 1, "last": "text-start"}
    parts = [p for p in place.db.history(SID)[-1]["parts"] if p["type"] == "data-subagent"]
    assert [part["id"] for part in parts] == [CHILD]
    ended = state_of(place.db, CHILD)
    assert ended.state == "ended"
    assert ended.outcome is not None
    assert ended.outcome.status == "completed"


def test_deltas_are_told_once_in_five_seconds(place: Place) -> None:
    def slow(_turn: Turn) -> Iterator[Chunk]:
        yield {"type": "start"}
        yield {"type": "text-start", "id": "t"}
        for _ in range(13):
            place.clock.advance(1)
            yield {"type": "text-delta", "id": "t", "delta": "x"}
        yield {"type": "text-end", "id": "t"}

    session, turn = parent_turn(place)
    with session:
        Child(turn, CHILD, "c1").ask(place.db, "find it", slow)
        turn.flush()
        assert [data["last"] for data in progress(place)] == ["text-start", "text-delta", "text-delta"]


def test_a_childs_progress_is_its_parents(place: Place) -> None:
    """Each attempt of the parent does nothing but go on with its child; it is not given up for that."""

    def attempts(told: bool) -> list[int]:
        place = Place()
        place.send("u1")
        strikes = []
        for number in range(4):
            place.clock.advance(600)
            session = place.db.boot(SID)
            turn = first_turn(session)
            turn.write({"type": "start"})
            if told:
                Child(turn, CHILD, f"c{number}").ask(place.db, f"step {number}", lambda _: saying("ok"))
            turn.flush()
            die(session)
            strikes.append(place.db.peek(SID).incident.strikes)
        return strikes

    assert attempts(told=False) == [1, 2, 3, 4]
    assert attempts(told=True) == [0, 0, 0, 0]


def test_a_parents_next_attempt_finds_what_its_child_has_done(place: Place) -> None:
    asked: list[str] = []

    def answer(turn: Turn) -> Iterator[Chunk]:
        asked.append(turn.kind)
        return saying("found")

    session, turn = parent_turn(place)
    assert Child(turn, CHILD, "c1").ask(place.db, "find it", answer) is not None
    die(session)
    place.clock.advance(600)
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        assert turn.attempt == 2
        again = Child(turn, CHILD, "c1").ask(place.db, "find it", answer)
        assert again is not None
        assert again["parts"][-1]["text"] == "found"
        assert Child(turn, CHILD, "c2").ask(place.db, "another", answer) is not None
    assert asked == ["message", "message"]
    assert len(place.db.history(CHILD)) == 4


def asking(place: Place, turn: Turn, call_id: str, question: str, asked: list[str]) -> str:
    """What the child says to a question; it answers with the question itself."""

    def answer(child: Turn) -> Iterator[Chunk]:
        asked.append(child.inputs[-1]["message"]["parts"][0]["text"])
        return saying(f"re {asked[-1]}")

    found = Child(turn, CHILD, call_id).ask(place.db, question, answer)
    assert found is not None
    return str(found["parts"][-1]["text"])


@pytest.mark.parametrize("wait", [1, 600])
def test_call_ids_that_count_from_zero_in_each_turn(place: Place, wait: int) -> None:
    asked: list[str] = []
    said = []
    for number, question in enumerate(("A", "B", "A"), 2):
        session, turn = parent_turn(place)
        said.append(asking(place, turn, "c0", question, asked))
        turn.complete()
        session.close()
        place.send(f"u{number}")
        place.clock.advance(wait)
    assert said == ["re A", "re B", "re A"]
    assert asked == ["A", "B", "A"]


def test_call_ids_that_count_from_zero_in_each_step(place: Place) -> None:
    session, turn = parent_turn(place)
    asked: list[str] = []
    with session:
        assert asking(place, turn, "c1", "more", asked) == "re more"
        write_all(
            turn, [result("c1"), {"type": "finish-step"}, {"type": "start-step"}, call("c1", "research")]
        )
        assert asking(place, turn, "c1", "more", asked) == "re more"
    assert asked == ["more", "more"]


@pytest.mark.parametrize("wait", [1, 600])
def test_a_retried_parent_gets_each_answer_again_to_its_own_question(place: Place, wait: int) -> None:
    session, turn = parent_turn(place)
    asked: list[str] = []
    assert asking(place, turn, "c1", "A", asked) == "re A"
    assert asking(place, turn, "c2", "B", asked) == "re B"
    turn.flush()
    die(session)
    place.clock.advance(wait)
    with place.db.boot(SID, takeover=True) as session:
        turn = first_turn(session)
        assert turn.attempt == 2
        assert asking(place, turn, "c1", "A", asked) == "re A"
        assert asking(place, turn, "c2", "B", asked) == "re B"
        assert asked == ["A", "B"]
        assert asking(place, turn, "c1", "another", asked) == "re another"  # the model thought better of it


def test_what_was_given_up_is_no_answer_also_when_another_was_answered_since(place: Place) -> None:
    session, turn = parent_turn(place)

    def failing(child: Turn) -> Iterator[Chunk]:
        yield {"type": "start"}
        yield from text("half")
        yield {"type": "error", "errorText": "no"}

    with session:
        assert Child(turn, CHILD, "c1").ask(place.db, "A", failing) is None
        assert asking(place, turn, "c2", "B", []) == "re B"
        assert Child(turn, CHILD, "c1").ask(place.db, "A", failing) is None


def test_a_child_that_was_interrupted_is_taken_up_by_its_own_recovery(place: Place) -> None:
    session, turn = parent_turn(place)

    def broken(_turn: Turn) -> Iterator[Chunk]:
        yield {"type": "start"}
        yield from text("half")
        raise ValueError("model")

    with pytest.raises(ValueError, match="model"):
        Child(turn, CHILD, "c1").ask(place.db, "find it", broken)
    assert state_of(place.db, CHILD).state == "recovering"
    die(session)
    place.clock.advance(600)
    kinds: list[tuple[str, int]] = []

    def answer(turn: Turn) -> Iterator[Chunk]:
        kinds.append((turn.kind, turn.attempt))
        return saying("found")

    with place.db.boot(SID) as session:
        found = Child(first_turn(session), CHILD, "c1").ask(place.db, "find it", answer)
    assert found is not None
    assert kinds == [("retry_response", 2)]
    assert len(place.db.history(CHILD)) == 2


def test_a_stopped_parent_stops_its_child(place: Place) -> None:
    session, turn = parent_turn(place)

    def endless(_turn: Turn) -> Iterator[Chunk]:
        yield {"type": "start"}
        yield {"type": "text-start", "id": "t"}
        place.db.stop(SID, "u1")
        while True:
            place.clock.advance(6)
            yield {"type": "text-delta", "id": "t", "delta": "x"}

    with session:
        assert Child(turn, CHILD, "c1").ask(place.db, "find it", endless) is None
        assert turn.stopped
    found = state_of(place.db, CHILD)
    assert found.outcome is not None
    assert (found.state, found.outcome.status, found.outcome.reason) == (
        "ended",
        "aborted",
        "the parent was stopped",
    )


def test_how_a_child_stands(place: Place) -> None:
    place.db.send(CHILD, user("c1"))
    assert state_of(place.db, CHILD).state == "owed"
    session = place.db.boot(CHILD)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call(), ask()])
    assert state_of(place.db, CHILD).state == "running"
    other, parent = parent_turn(place)
    with other, pytest.raises(Busy):
        Child(parent, CHILD, "c1").ask(place.db, "more", lambda _: saying("x"), stable_timeout=0)
    turn.complete()
    session.close()
    assert state_of(place.db, CHILD).state == "owed"
    with place.db.boot(CHILD) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, [{"type": "start"}, call("c2"), ask("c2", "ap2")])
    assert state_of(place.db, CHILD).state == "waiting"
