"""Outcomes that a later reader learns, the recovering flag, and a clear."""

from __future__ import annotations

from typing import Any

import pytest
from chat_samples import SID, Place, ask, call, die, first_turn, saying, shape, text, user, write_all

from snapshotter import Busy, Refused
from snapshotter.hosting import Outcome
from snapshotter.verify import verify


@pytest.fixture
def place() -> Place:
    place = Place()
    place.send("u1")
    return place


def interrupted(place: Place, *chunks: Any) -> None:
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, chunks or [{"type": "start"}, *text("half")])
    turn.flush()
    die(session)


# -- outcomes -------------------------------------------------------------------------------------------


def test_a_later_reader_learns_how_the_turn_ended(place: Place) -> None:
    assert place.db.outcome(SID) is None
    place.answer()
    done = place.db.outcome(SID)
    assert done is not None
    assert (done.turn, done.status, done.finish_reason, done.error) == (1, "completed", "stop", None)
    assert done.message_id == place.db.history(SID)[-1]["id"]
    place.send("u2")
    assert place.db.outcome(SID) == done  # nobody has begun yet
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        turn.write({"type": "start"})
        assert place.db.outcome(SID) is None
        turn.fail("the model is gone")
    failed = place.db.outcome(SID)
    assert failed is not None
    assert (failed.turn, failed.status, failed.error) == (2, "error", "the model is gone")
    for key in list(place.stored("sessions/")):
        del place.space.objects[key]
        place.space.order.remove(key)
    assert place.db.outcome(SID) == failed  # from the log as from the snapshot


def test_a_turn_that_was_given_up_says_what_a_person_should_be_told(place: Place) -> None:
    for _ in range(6):
        place.clock.advance(600)
        session = place.db.boot(SID)
        turn = next(session.turns(), None)
        if turn is not None:
            turn.write({"type": "start"})
            turn.flush()
            die(session)
    found = place.db.outcome(SID)
    assert isinstance(found, Outcome)
    assert (found.status, found.reason) == ("exhausted", "interrupted_attempts_exceeded")
    assert found.error


# -- recovering -----------------------------------------------------------------------------------------


def test_recovering_is_an_interrupted_turn_that_somebody_may_take_up(place: Place) -> None:
    assert not place.db.recovering(SID)
    interrupted(place)
    assert not place.db.recovering(SID)  # as far as anybody knows its worker lives
    place.clock.advance(60)
    assert place.db.recovering(SID)
    place.clock.advance(15 * 60 - 61)
    assert place.db.recovering(SID)
    place.clock.advance(1)
    assert not place.db.recovering(SID)  # nobody came
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        assert place.db.recovering(SID)
        write_all(turn, saying("done"))
        turn.complete()
    assert not place.db.recovering(SID)


def test_a_turn_that_was_let_go_is_recovering_at_once_one_that_waits_is_not(place: Place) -> None:
    with place.db.boot(SID) as session:
        write_all(first_turn(session), [{"type": "start"}, *text("half")])
    assert place.db.recovering(SID)
    other = Place()
    other.send("u1")
    with other.db.boot(SID) as session:
        write_all(first_turn(session), [{"type": "start"}, call(), ask()])
    assert not other.db.recovering(SID)


# -- clear ----------------------------------------------------------------------------------------------


def test_a_clear_empties_the_history_and_spends_what_is_owed(place: Place) -> None:
    place.answer()
    place.send("u2")
    place.db.edit(SID, "u1", user("u1b"))
    place.db.regenerate(SID)
    place.db.action(SID, "tidy")
    place.db.clear(SID)
    assert place.db.history(SID) == []
    left = place.db.peek(SID)
    assert [item.kind for item in left.pending] == ["action"]
    place.send("u3")
    place.db.action(SID, "other")
    with place.db.boot(SID) as session:
        kinds = []
        for turn in session.turns():
            with turn:
                kinds.append(turn.kind)
                if turn.kind == "message":
                    write_all(turn, saying("fresh"))
    assert kinds == ["action", "message", "action"]
    assert shape(place.db.history(SID)) == [("user", ["hi"]), ("assistant", ["step-start:", "fresh"])]


def test_a_clear_is_the_same_from_the_log_and_from_the_snapshot(place: Place) -> None:
    place.answer()
    place.send("u2")
    interrupted(place)
    place.send("u3")
    place.clock.advance(60)
    place.db.clear(SID)
    with_snapshot = place.db.peek(SID)
    for key in list(place.stored("sessions/")):
        del place.space.objects[key]
        place.space.order.remove(key)
    without = place.db.peek(SID)
    assert verify(place.db, SID).ok
    for found in (with_snapshot, without):
        assert (found.messages, found.pending, found.resume.kind) == ([], [], "none")
        assert found.cursor == with_snapshot.cursor
    outcome = place.db.outcome(SID)
    assert outcome is not None
    assert (outcome.status, outcome.reason) == ("aborted", "cleared")


def test_a_clear_waits_for_no_pause_before_a_further_attempt(place: Place) -> None:
    interrupted(place)
    place.clock.advance(45)
    place.db.clear(SID)
    assert place.db.history(SID) == []


def test_a_clear_asks_a_living_worker_to_stop_and_waits(place: Place) -> None:
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        turn.write({"type": "start"})
        turn.flush()
        with pytest.raises(Busy):
            place.db.clear(SID, stable_timeout=0)
        assert place.records("in")[-1]["kind"] == "stop"
        with pytest.raises(Refused, match="under way"):
            session.clear()
    assert len(place.db.history(SID)) == 1


def test_a_session_clears_itself_between_turns(place: Place) -> None:
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("done"))
        session.clear()
        assert session.messages == []
        place.send("u2")
        assert first_turn(session).inputs[0]["message"]["id"] == "u2"
