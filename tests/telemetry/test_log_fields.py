"""What is logged has fields, whether or not anybody traces."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from chat_samples import SID, Place, die, first_turn, saying, write_all

from snapshotter import Busy, ChatRecovery


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, "snapshotter"):
        yield caplog


def events(logged: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.__dict__["event"]) for record in logged.records]


def fields(logged: pytest.LogCaptureFixture, event: str) -> dict[str, Any]:
    """Of the last record of an event."""
    return [record.__dict__ for record in logged.records if record.__dict__["event"] == event][-1]


def test_a_boot_and_a_turn_are_logged_with_what_they_cost(
    place: Place, logged: pytest.LogCaptureFixture
) -> None:
    receipt = place.send("u1")
    with place.db.boot(SID, receipt=receipt) as session:
        booted = session.booted
        with first_turn(session) as turn:
            place.clock.advance(2.0)
            write_all(turn, saying("hello"))
        stats = session.stats - booted
    assert events(logged) == [("INFO", "boot"), ("INFO", "turn")]
    boot, done = fields(logged, "boot"), fields(logged, "turn")
    assert (boot["session"], boot["resume"], boot["error"]) == (SID, "none", None)
    assert (boot["requests"], boot["bytes_read"]) == (booted.requests, booted.bytes_read) != (0, 0)
    assert (done["session"], done["turn"], done["attempt"], done["epoch"]) == (SID, 1, 1, 1)
    assert (done["kind"], done["status"], done["chunks"], done["seconds"]) == ("message", "completed", 7, 2.0)
    assert (done["requests"], done["bytes_written"]) == (stats.requests, stats.bytes_written) != (0, 0)
    assert {record.name for record in logged.records} == {"snapshotter"}


def test_what_was_reported_says_where(place: Place, logged: pytest.LogCaptureFixture) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session):
        pass
    assert events(logged)[1] == ("WARNING", "nothing-written")
    said = fields(logged, "nothing-written")
    assert (said["session"], said["turn"], said["epoch"]) == (SID, 1, 1)


def test_a_boot_that_raises_and_a_turn_that_is_let_go_say_why(logged: pytest.LogCaptureFixture) -> None:
    place = Place(recovery=ChatRecovery(stable_timeout=0))
    place.send("u1")
    with pytest.raises(ValueError, match="no"), place.db.boot(SID) as session, first_turn(session):
        raise ValueError("no")
    done = fields(logged, "turn")
    assert (done["status"], done["why"], done["error"]) == ("released", "error", "ValueError")
    with pytest.raises(Busy):
        place.db.boot(SID)
    assert events(logged)[-2:] == [("INFO", "recovery-scheduled"), ("INFO", "boot")]
    assert fields(logged, "boot")["error"] == "Busy"
    said = fields(logged, "recovery-scheduled")
    assert (said["session"], said["attempt"], said["incident"]) == (SID, 2, said["recovery"].incident)


def test_a_worker_that_was_second_says_so(place: Place, logged: pytest.LogCaptureFixture) -> None:
    place.send("u1")
    slow = place.db.boot(SID)
    place.answer()
    assert list(slow.turns()) == []
    assert ("INFO", "overtaken") in events(logged)
    assert fields(logged, "overtaken")["session"] == SID


def test_a_died_worker_logs_no_turn(place: Place, logged: pytest.LogCaptureFixture) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    first_turn(session)
    die(session)
    assert events(logged) == [("INFO", "boot")]


def test_inputs_without_effect_are_told_once_by_whoever_spends_them(
    place: Place, logged: pytest.LogCaptureFixture
) -> None:
    place.send("u1")
    place.answer()
    place.db.approve(SID, "nobody")
    place.db.regenerate(SID, "gone")
    place.db.stop(SID, "gone")
    told = ["unknown-call", "unknown-target", "unknown-target"]
    assert sorted(line["code"] for line in place.db.peek(SID).report) == told
    logged.clear()
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
    assert [event for _, event in events(logged)] == ["boot", *told]
    assert events(logged)[1][0] == "WARNING"
    assert [line["code"] for line in session.report] == told, "it stays in the report of who spent them"
    said = [record.getMessage().partition("unknown-target: ")[2] for record in logged.records[2:]]
    assert sorted(said) == [
        "input 3: no message 'gone' to regenerate; spent",
        "input 4: no message 'gone' to stop the answer to; spent",
    ]
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
    assert [event for _, event in events(logged)][4:] == ["boot"]


def test_what_a_turn_takes_without_effect_is_told(place: Place, logged: pytest.LogCaptureFixture) -> None:
    place.send("u1")
    place.answer()
    place.db.edit(SID, "gone", "another")
    place.answer()
    assert ("WARNING", "edit-without-target") in events(logged)
