"""Nothing too large ever bricks a session: it is refused at the call, cut, or left out and reported."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from chat_samples import SID, Place, call, die, first_turn, saying, text, user, write_all

from snapshotter import InvalidValue, TooLarge
from snapshotter.core.values import REASON_BYTES, reason_text
from streams.records import LIMIT, MAX_BATCH

EMPTY = {"id": "u1", "role": "user", "parts": []}


@pytest.fixture
def place() -> Place:
    return Place()


def last_turn(place: Place) -> dict[str, Any]:
    found = place.db.peek(SID).fold.last_turn
    assert found is not None
    return found


def largest_body(place: Place) -> dict[str, str]:
    """A body with which the in record takes exactly its limit."""
    record = {"id": 1, "ts": place.clock.now_ms(), "kind": "message", "message": EMPTY, "body": {"x": ""}}
    return {"x": "a" * (LIMIT - len(orjson.dumps(record)))}


# -- the request -----------------------------------------------------------------------------------------


def test_a_body_that_fits_the_input_but_not_the_turn_start_is_read_from_the_input(place: Place) -> None:
    body = largest_body(place)
    with pytest.raises(TooLarge):
        place.db.send(SID, EMPTY, body={"x": body["x"] + "a"})
    place.db.send(SID, EMPTY, body=body, client_tools=None)
    place.send("u2")
    bodies = []
    with place.db.boot(SID) as session:
        for turn in session.turns():
            bodies.append(turn.body)
            with turn:
                write_all(turn, saying("ok"))
        assert [note["code"] for note in session.report] == ["request-not-copied"]
    assert bodies == [body, None]
    assert "body" not in place.controls("turn-start")[0]
    assert len(place.db.history(SID)) == 4


def test_client_tools_that_do_not_fit_beside_the_body_are_kept_without_it(place: Place) -> None:
    place.db.send(SID, EMPTY, body={"x": "a" * 1_040_000})
    tools = [f"tool_number_{n}" for n in range(600)]
    with place.db.boot(SID, client_tools=tools) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("ok"))
    start = place.controls("turn-start")[0]
    assert start["clientTools"] == tools
    assert "body" not in start


def test_client_tools_that_fit_nowhere_are_left_out_and_reported(place: Place) -> None:
    place.send("u1", body={"x": 1})
    with place.db.boot(SID, client_tools=["t" * LIMIT]) as session:
        with first_turn(session) as turn:
            assert turn.body == {"x": 1}
            write_all(turn, saying("ok"))
        assert [note["code"] for note in session.report] == ["request-not-copied", "request-not-copied"]


# -- what is said of an error, an end or a cause -----------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("no answer today", "no answer today"),
        ("bad \udcff name", "bad \ufffd name"),
        ("\ud83d\ude00", "\U0001f600"),
        ("a" * REASON_BYTES, "a" * REASON_BYTES),
        ("a" * 2_000_000, "a" * (REASON_BYTES - 3) + "…"),
        ("\U0001f600" * 2_048, "\U0001f600" * 2_048),
        ("\U0001f600" * 2_049, "\U0001f600" * 2_047 + "…"),
        (OSError("f\udcff"), "f\ufffd"),
    ],
    ids=["plain", "half", "pair", "at the limit", "long", "wide", "wide and long", "error"],
)
def test_a_turn_fails_whatever_the_error_says(place: Place, given: Any, stored: str) -> None:
    assert reason_text(given) == stored
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "start"})
            turn.fail(given)
    assert (last_turn(place)["status"], last_turn(place)["error"]) == ("error", stored)


def test_a_turn_is_aborted_whatever_the_reason_says(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.abort("\udcff" * 10_000)
    assert last_turn(place)["reason"] == "\ufffd" * 2_729 + "…"


def test_a_cause_and_a_release_say_what_can_be_stored(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        first_turn(session).release("killed by \udcff")
    assert place.controls("turn-release")[0]["why"] == "killed by \ufffd"
    with place.db.boot(SID, cause="c\udcff" * 9_000) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("ok"))
    assert place.controls("turn-start")[1]["cause"] == "c\ufffd" * 2_047 + "c…"
    place.send("u2")
    with place.db.boot(SID, cause="\udcff", claim=True):
        assert place.controls("fence")[0]["cause"] == "\ufffd"


@pytest.mark.parametrize("dies", [False, True])
def test_an_error_chunk_as_large_as_a_record_can_be_ends_its_turn(place: Place, dies: bool) -> None:
    place.send("u1")
    chunk = {"type": "error", "errorText": "e" * 1_048_480}
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, chunk, {"type": "finish", "finishReason": "stop"}])
    if dies:
        turn.flush()
        die(session)
        assert place.db.peek(SID).resume.kind == "seal_error"
        place.answer(takeover=True)
    else:
        turn.complete()
    assert last_turn(place)["error"] == "e" * (REASON_BYTES - 3) + "…"
    place.send("u2")
    place.answer("and on", takeover=True)
    assert last_turn(place)["status"] == "completed"


# -- operations of an action -------------------------------------------------------------------------------


def test_an_operation_that_an_action_cannot_store_fails_where_it_is_asked_for(place: Place) -> None:
    place.answer()
    place.db.action(SID, "big")
    place.send("u1")
    with place.db.boot(SID) as session:
        turns = session.turns()
        with next(turns) as turn:
            with pytest.raises(TooLarge) as caught:
                turn.set_state({"x": "a" * (LIMIT + 1)})
            assert caught.value.limit == LIMIT
            with pytest.raises(TooLarge):
                turn.edit_history("put", message=user("u9", "a" * LIMIT))
            turn.set_state({"fine": True}, unset=["\udcff"])
        with next(turns) as turn:
            write_all(turn, saying("ok"))
    assert place.db.peek(SID).state == {"fine": True}
    assert place.controls("state")[0]["unset"] == ["\ufffd"]
    assert len(place.db.history(SID)) == 2


def test_operations_that_an_action_cannot_store_together_fail_where_they_are_asked_for(place: Place) -> None:
    place.db.action(SID, "many")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            kept = 0
            with pytest.raises(TooLarge) as caught:
                while True:
                    turn.set_state({"x": "a" * 1_000_000})
                    kept += 1
            assert (kept, caught.value.limit) == (32, MAX_BATCH - LIMIT)
    assert len(place.controls("state")) == 32


@pytest.mark.parametrize("unset", [[5], ["fine", None]])
def test_names_to_unset_are_texts(place: Place, unset: Any) -> None:
    with place.db.boot(SID) as session, pytest.raises(InvalidValue):
        session.set_state(unset=unset)
    assert place.records() == []


def test_a_single_name_to_unset_is_that_name(place: Place) -> None:
    with place.db.boot(SID) as session:
        session.set_state({"ab": 1, "a": 2})
        session.set_state(unset="ab")
        assert session.state == {"a": 2}


# -- chunks ------------------------------------------------------------------------------------------------


def test_a_start_that_is_too_large_leaves_the_turn_as_it_was(place: Place) -> None:
    """Too large only with the id that is put into it."""
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            number, now = session.writer.next_id, place.clock.now_ms()
            start: dict[str, Any] = {"type": "start", "messageMetadata": {"m": ""}}
            room = LIMIT - len(orjson.dumps({"id": number, "ts": now, "chunk": start}))
            start["messageMetadata"] = {"m": "x" * room}
            before, own = turn.message, turn.message_id
            with pytest.raises(TooLarge):
                turn.write(start)
            with pytest.raises(TooLarge):
                turn.write({**start, "messageId": "another"})
            assert (turn.message, turn.message_id) == (before, own)
            assert session.fold.open is not None
            assert (session.fold.open.started, session.fold.open.alias) == (False, {})
            write_all(turn, saying("ok"))
    (shown,) = [m for m in place.db.history(SID) if m["role"] == "assistant"]
    assert "metadata" not in shown
    for key in place.stored("sessions/"):
        place.bucket.inner.delete(key)
    assert place.db.history(SID)[1] == shown


def test_ids_of_parts_are_mended_alike_in_each_chunk_of_the_part(place: Place) -> None:
    place.send("u1")
    odd = "t\ud800"
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, *text("one", odd)])
            turn.write({"type": "tool-input-start", "toolCallId": odd, "toolName": "tool"})
            turn.write({"type": "tool-input-delta", "toolCallId": odd, "inputTextDelta": '{"n": 1}'})
            write_all(turn, [call(odd)])
    message = place.db.history(SID)[1]
    assert [p.get("text", p.get("toolCallId")) for p in message["parts"]] == ["one", "t\ufffd"]
