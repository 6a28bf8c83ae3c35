"""A session: what a boot finds, the worker's loop, edits, and who may write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_samples import (
    SID,
    Place,
    ask,
    call,
    die,
    first_turn,
    result,
    saying,
    shape,
    text,
    user,
    write_all,
)

import snapshotter
from snapshotter import Busy, Closed, Database, Fenced, InvalidId, InvalidValue, Refused
from streams import keys
from streams.codec import encode_segment
from streams.errors import AccessDenied, CredentialsExpired, Unsupported
from streams.log import newest
from streams.testing.faults import Fault


@pytest.fixture
def place() -> Place:
    return Place()


def ids(place: Place) -> list[str]:
    return [message["id"] for message in place.db.history(SID)]


# -- the loop ---------------------------------------------------------------------------------------------


def test_a_new_session_is_empty(place: Place) -> None:
    with place.db.boot(SID) as session:
        assert (session.messages, session.pending, session.partial) == ([], [], None)
        assert (session.resume.kind, session.cursor, session.report) == ("none", {"in": 0, "out": 0}, [])
        assert list(session.turns()) == []
    assert place.stored("") == {}


def test_items_are_answered_in_order(place: Place) -> None:
    for name in ("u1", "u2", "u3"):
        place.send(name)
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying(f"to {turn.inputs[0]['message']['id']}"))
    assert [texts[-1] for role, texts in shape(place.db.history(SID)) if role == "assistant"] == [
        "to u1",
        "to u2",
        "to u3",
    ]


def test_a_crash_between_two_messages_leaves_the_others_owed(place: Place) -> None:
    for name in ("u1", "u2", "u3"):
        place.send(name)
    session = place.db.boot(SID)
    turns = session.turns()
    with next(turns) as turn:
        write_all(turn, saying("to u1"))
    # Killed here.
    (end,) = place.controls("turn-start")
    assert end["inputs"] == [1]
    with place.db.boot(SID) as session:
        assert session.cursor["in"] == 1
        assert [item.ids for item in session.pending] == [(2,), (3,)]
    place.answer()
    assert [start["inputs"] for start in place.controls("turn-start")] == [[1], [2], [3]]


def test_a_message_that_waits_costs_one_look_and_what_stands_behind_it_none(place: Place) -> None:
    """A worker that stays asks for as many inputs as there are, and once more at the end."""
    place.send("u1")
    asked: list[str] = []
    with place.db.boot(SID, receipt=place.send("u2")) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("yes"))
            if turn.number == 2:
                place.send("u3")
                place.send("u4")
                place.bucket.hook = lambda call, when: (
                    asked.append(call.key) if (call.verb, when) == ("get", "before") else None
                )
    assert asked == [keys.segment("in", SID, number) for number in (3, 4, 5)]
    assert [texts[-1] for role, texts in shape(place.db.history(SID)) if role == "assistant"] == ["yes"] * 4


def answered_by(session: snapshotter.Session) -> list[list[int]]:
    found = []
    for turn in session.turns():
        with turn:
            write_all(turn, saying("yes"))
        found.append([record["id"] for record in turn.inputs])
    return found


@pytest.mark.parametrize("receipts", [True, False])
def test_who_thought_better_of_a_message_that_waited_is_heard_before_it_is_answered(
    place: Place, receipts: bool
) -> None:
    """Woken by a receipt, or staying: a stop and an edit that came before the turn count."""
    first, second = place.send("u1"), place.send("u2")
    place.db.stop(SID, "u1")
    place.db.edit(SID, "u2", user("u2b", "better"))
    place.clock.advance(3)
    with place.db.boot(SID, receipt=first if receipts else None) as session:
        assert answered_by(session) == [[2, 4]]
    assert second.id == 2
    assert [m["id"] for m in place.db.history(SID) if m["role"] == "user"] == ["u1", "u2b"]


def test_a_stop_that_came_with_its_message_during_the_turn_before_is_heard(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        turns = session.turns()
        with next(turns) as turn:
            write_all(turn, saying("yes"))
            place.send("u2")
            place.db.stop(SID, "u2")
            place.clock.advance(3)
        assert list(turns) == []
    assert ids(place)[-1] == "u2"


def test_messages_are_merged_also_for_a_worker_that_was_woken_by_the_first(place: Place) -> None:
    first = place.send("u1")
    place.send("u2")
    with place.db.boot(SID, receipt=first, overlap="merge") as session:
        assert answered_by(session) == [[1, 2]]


@pytest.mark.parametrize("overlap", ["merge", "latest"])
def test_messages_that_overlap_are_read_together(place: Place, overlap: str) -> None:
    place.send("u1")
    answered: list[list[int]] = []
    with place.db.boot(SID, overlap=overlap) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("yes"))
            answered.append([record["id"] for record in turn.inputs])
            if len(answered) == 1:
                place.send("u2")
                place.send("u3")
    assert answered == [[1], [2, 3] if overlap == "merge" else [3]]


def test_an_input_that_arrives_during_a_turn_is_the_next_turn(place: Place) -> None:
    place.send("u1")
    seen = []
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                seen.append([record["id"] for record in turn.inputs])
                write_all(turn, saying("x"))
                if len(seen) < 4:
                    place.send(f"u{len(seen) + 1}")
    assert seen == [[1], [2], [3], [4]]


def test_waiting_for_further_inputs(place: Place) -> None:
    place.send("u1")
    seen: list[str] = []
    polls: list[int] = []

    def arrive(asked: Any, when: str) -> None:
        """Two seconds after the first turn a second message comes."""
        if seen == ["u1"] and when == "before" and asked.verb == "get" and asked.key.startswith("in/"):
            polls.append(asked.number)
            if len(polls) == 4:
                place.bucket.hook = None
                place.send("u2")

    place.bucket.hook = arrive
    with place.db.boot(SID) as session:
        for turn in session.turns(wait=10.0):
            with turn:
                write_all(turn, saying("x"))
                seen.append(turn.inputs[0]["message"]["id"])
    assert seen == ["u1", "u2"]
    assert sum(place.clock.slept) == pytest.approx(2.0 + 10.0, abs=1.01)


def test_what_only_lacks_its_turn_complete_is_sealed_without_a_model_call(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, saying("whole"))
    turn.flush()
    die(session)
    with place.db.boot(SID, takeover=True) as session:
        assert session.resume.kind == "seal_completed"
        assert list(session.turns()) == []
        assert session.resume.kind == "none"
    (end,) = place.controls("turn-complete")
    assert (end["status"], end["finishReason"]) == ("completed", "stop")
    assert shape(place.db.history(SID))[1:] == [("assistant", ["step-start:", "whole"])]


@pytest.mark.parametrize(
    ("chunk", "kind", "status", "reason"),
    [
        ({"type": "abort"}, "seal_aborted", "aborted", None),
        ({"type": "finish", "finishReason": "content-filter"}, "seal_error", "error", "refused"),
    ],
)
def test_an_abort_and_a_refusal_are_sealed(
    place: Place, chunk: Any, kind: str, status: str, reason: str | None
) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, *text("half"), chunk])
    turn.flush()
    die(session)
    with place.db.boot(SID, takeover=True) as session:
        assert session.resume.kind == kind
        assert list(session.turns()) == []
    (end,) = place.controls("turn-complete")
    assert (end["status"], end.get("reason")) == (status, reason)


def test_an_answer_cut_at_the_output_limit_is_continued(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, *text("as long as"), {"type": "finish", "finishReason": "length"}])
    turn.flush()
    die(session)
    with place.db.boot(SID, takeover=True) as session:
        with first_turn(session) as turn:
            assert turn.kind == "continue_response"
            write_all(turn, [*text("it takes"), {"type": "finish", "finishReason": "stop"}])
    assert shape(place.db.history(SID))[1:] == [("assistant", ["as long as", "it takes"])]


def test_a_stop_without_effect_is_spent(place: Place) -> None:
    place.send("u1")
    place.answer()
    place.db.stop(SID)
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
        assert session.cursor["in"] == 2
    assert [record["inputs"] for record in place.controls("input-applied")] == [[2]]


def test_a_message_that_is_stopped_before_it_is_taken_stands_unanswered(place: Place) -> None:
    place.send("u1")
    place.db.stop(SID, "u1")
    place.send("u2")
    place.answer("to u2")
    assert shape(place.db.history(SID)) == [
        ("user", ["hi"]),
        ("user", ["hi"]),
        ("assistant", ["step-start:", "to u2"]),
    ]


def test_a_person_who_goes_on_after_a_crash_is_answered_once(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, *text("half")])
    turn.flush()
    die(session)
    place.send("u2")
    with place.db.boot(SID, takeover=True) as session:
        assert session.resume.kind == "none"
        with first_turn(session) as turn:
            assert [m["role"] for m in turn.messages] == ["user", "assistant", "user"]
            write_all(turn, saying("to both"))
    assert [end["status"] for end in place.controls("turn-complete")] == ["interrupted", "completed"]


def test_a_question_waits_for_its_answer(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    write_all(first_turn(session), [{"type": "start"}, call(), ask()])
    die(session)
    with place.db.boot(SID, takeover=True) as session:
        assert session.resume.kind == "waiting"
        assert list(session.turns()) == []
    place.db.approve(SID, "ap1", approved=False, reason="too dear")
    with place.db.boot(SID, takeover=True) as session:
        with first_turn(session) as turn:
            (part,) = turn.messages[-1]["parts"]
            assert part["state"] == "approval-responded"
            assert part["approval"]["approved"] is False
            write_all(turn, [{"type": "tool-output-denied", "toolCallId": "c1"}, *text("as you wish")])
    assert shape(place.db.history(SID))[1:] == [("assistant", ["tool-tool:output-denied", "as you wish"])]


def test_a_client_tool_is_answered_by_its_result(place: Place) -> None:
    place.send("u1", client_tools=["tool"])
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, call(), {"type": "finish", "finishReason": "tool-calls"}])
    place.db.tool_result(SID, "c1", {"picked": 3})
    assert place.db.history(SID)[-1]["parts"][0]["output"] == {"picked": 3}  # seen at once
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert turn.messages[-1]["parts"][0]["output"] == {"picked": 3}
            write_all(turn, [*text("three"), {"type": "finish", "finishReason": "stop"}])
    assert shape(place.db.history(SID))[1:] == [("assistant", ["tool-tool:output-available", "three"])]


def test_one_boots_client_tools_serve_inputs_that_do_not_say(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID, client_tools=["tool"])
    write_all(first_turn(session), [{"type": "start"}, call()])
    die(session)
    assert place.db.peek(SID).resume.kind == "waiting"


# -- whose turn is it -------------------------------------------------------------------------------------


def test_a_busy_session_says_when_to_come_back(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    write_all(first_turn(session), [{"type": "start"}])
    place.clock.advance(10.0)
    with pytest.raises(Busy, match="do not acknowledge") as caught:
        place.db.boot(SID, stable_timeout=0.0)
    holder = place.db.peek(SID).busy
    assert holder is not None
    assert (holder.run, holder.age) == (session.run, 10.0)
    assert holder.retry_after == caught.value.retry_after == 45 + 7 - 10
    session.close()


def test_a_boot_waits_for_the_other_to_close_its_turn(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    polls: list[int] = []

    def finish(asked: Any, when: str) -> None:
        """Three looks later the other one is done."""
        if asked.verb == "list" and when == "before":
            polls.append(asked.number)
            if len(polls) == 5:
                place.bucket.hook = None
                write_all(turn, saying("x"))
                turn.complete()

    place.bucket.hook = finish
    with place.db.boot(SID) as other:
        assert other.pending == []
        assert list(other.turns()) == []
    session.close()
    assert 0 < sum(place.clock.slept) < 25


def test_takeover_does_not_wait_and_fences_the_other(place: Place) -> None:
    place.send("u1")
    zombie = place.db.boot(SID)
    turn = first_turn(zombie)
    turn.write({"type": "start"})
    place.clock.slept.clear()
    with place.db.boot(SID, takeover=True, cause="out_of_memory") as heir:
        assert place.clock.slept == []
        with first_turn(heir) as second:
            write_all(second, saying("x"))
    with pytest.raises(Fenced):
        turn.write(call())
    with pytest.raises(Fenced):
        turn.write({"type": "start-step"})
    turn.release()
    zombie.close()
    assert [start["epoch"] for start in place.controls("turn-start")] == [1, 2]
    assert place.controls("turn-start")[1]["cause"] == "out_of_memory"
    assert place.controls("turn-release") == []


def test_a_lost_claim_is_planned_anew(place: Place) -> None:
    """Both booted; the other one answered first. The model is not called again."""
    place.send("u1")
    with place.db.boot(SID) as slow:
        place.answer("first")
        assert list(slow.turns()) == []
    assert len(place.controls("turn-start")) == 1


def test_a_lost_claim_takes_what_is_left(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as slow:
        place.answer("first")
        place.send("u2")
        with first_turn(slow) as turn:
            assert [record["id"] for record in turn.inputs] == [2]
            write_all(turn, saying("second"))
    assert [start["epoch"] for start in place.controls("turn-start")] == [1, 2]


def test_claims_that_are_always_lost_end_in_busy(place: Place) -> None:
    place.send("u1")
    other = Database(place.bucket.inner, place.clock)

    def first(asked: Any, when: str) -> None:
        if asked.verb == "put" and asked.key.startswith("out/") and when == "before":
            with other.boot(SID, takeover=True) as session:
                session.set_state({"n": asked.number})

    place.bucket.hook = first
    with place.db.boot(SID) as session, pytest.raises(Busy):
        list(session.turns())
    place.bucket.hook = None


def test_peek_writes_nothing(place: Place) -> None:
    place.send("u1")
    before = place.stored("")
    found = place.db.peek(SID)
    assert [item.kind for item in found.pending] == ["message"]
    found.close()
    assert place.stored("") == before


def test_a_boot_needs_a_session_that_fits_its_receipt(place: Place) -> None:
    receipt = place.send("u1")
    with pytest.raises(Refused):
        place.db.boot()
    with pytest.raises(Refused):
        place.db.boot("other", receipt=receipt)
    for bad in (
        "{}",
        "not json",
        {"session": SID, "id": 0},
        {"session": 5, "id": 1},
        {"session": SID, "id": True},
    ):
        with pytest.raises(InvalidValue):
            place.db.boot(SID, receipt=bad)


# -- snapshots --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [AccessDenied, CredentialsExpired])
def test_a_snapshot_that_cannot_be_saved_is_reported_and_legal(place: Place, error: type[Exception]) -> None:
    place.send("u1")
    place.bucket.plan.append(Fault("put", key="sessions/", times=0, error=lambda: error("injected")))
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("x"))
        assert turn.status == "completed"
        assert [line["code"] for line in session.report] == ["snapshot-not-saved"]
    place.bucket.plan.clear()
    assert place.stored("sessions/") == {}
    assert len(place.db.history(SID)) == 2
    place.send("u2")
    place.answer()
    assert len(json.loads(place.stored("sessions/").popitem()[1])["messages"]) == 4


def test_a_store_that_may_not_be_written_fails_the_claim_loudly(place: Place) -> None:
    place.send("u1")
    place.bucket.plan.append(Fault("put", times=0, error=lambda: AccessDenied("injected")))
    with place.db.boot(SID) as session, pytest.raises(AccessDenied):
        first_turn(session)


# -- edits ------------------------------------------------------------------------------------------------


def test_edits_are_durable_at_once_and_take_the_log_over(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    with place.db.boot(SID) as session:
        session.set_state({"title": "T"})
        session.set_context("u1", [user("s")])
        session.edit_history("put", message=user("u0", "imported"))
        assert (session.state, len(session.messages)) == ({"title": "T"}, 3)
        assert session.context == {"upto": "u1", "messages": [user("s")]}
        assert place.db.peek(SID).state == {"title": "T"}
    assert [record["why"] for record in place.controls("fence")] == ["edit"]
    stored = json.loads(place.stored("sessions/").popitem()[1])
    assert [message["id"] for message in stored["messages"]][::2] == ["u1", "u0"]


def test_every_history_operation(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.send("u2")
    place.answer("two")
    first, answer, *_ = ids(place)
    with place.db.boot(SID) as session:
        session.edit_history("put", message={**user("u1", "changed")})
        assert session.messages[0]["parts"][0]["text"] == "changed"
        session.edit_history("truncate-after", message_id=answer)
        assert [m["id"] for m in session.messages] == [first, answer]
        session.edit_history("remove", message_id=first)
        assert [m["id"] for m in session.messages] == [answer]
        session.edit_history("replace", messages=[user("n1"), user("n2")])
        assert [m["id"] for m in session.messages] == ["n1", "n2"]
        session.edit_history("clear")
        assert session.messages == []
    assert place.db.history(SID) == []


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("no-such", {}),
        ("put", {}),
        ("remove", {}),
        ("remove", {"message_id": "nobody"}),
        ("truncate-after", {"message_id": "nobody"}),
        ("replace", {}),
    ],
)
def test_an_edit_with_nothing_to_act_on_is_refused(place: Place, op: str, fields: Any) -> None:
    place.send("u1")
    place.answer()
    before = place.records()
    with place.db.boot(SID) as session:
        with pytest.raises(Refused):
            session.edit_history(op, **fields)
        with pytest.raises(Refused):
            session.set_context("nobody", [])
        with pytest.raises(InvalidValue):
            session.set_state({"n": float("nan")})
    assert place.records() == before


def test_an_edit_fences_a_worker_in_its_turn(place: Place) -> None:
    place.send("u1")
    worker = place.db.boot(SID)
    turn = first_turn(worker)
    turn.write({"type": "start"})
    with place.db.boot(SID, takeover=True) as editor:
        editor.set_state({"n": 1})
    with pytest.raises(Fenced):
        turn.write(call())
    worker.close()
    assert place.db.peek(SID).state == {"n": 1}


def test_create_imports_a_history_once(place: Place) -> None:
    history = [user("h1"), {"id": "h2", "role": "assistant", "parts": [{"type": "text", "text": "yes"}]}]
    place.db.create(SID, messages=history, state={"title": "T"})
    assert place.db.history(SID) == history
    assert place.db.peek(SID).state == {"title": "T"}
    assert [info.id for info in place.db.sessions()] == [SID]
    with pytest.raises(Refused, match="exists already"):
        place.db.create(SID, messages=history)
    place.send("u1")
    place.answer("more")
    assert ids(place)[:3] == ["h1", "h2", "u1"]


@pytest.mark.parametrize(
    "bad", [{"id": "x"}, {"role": "user"}, {"role": 5, "parts": []}, {"role": "user", "parts": "x"}]
)
def test_create_refuses_what_is_no_message(place: Place, bad: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        place.db.create(SID, messages=[user("h1"), bad])
    assert caught.value.path.startswith("messages[1].")
    assert place.stored("") == {}


# -- readers ----------------------------------------------------------------------------------------------


def test_history_pages_backwards(place: Place) -> None:
    for name in ("u1", "u2", "u3"):
        place.send(name)
        place.answer()
    whole = ids(place)
    assert [m["id"] for m in place.db.history(SID, limit=2)] == whole[4:]
    assert [m["id"] for m in place.db.history(SID, limit=2, before=whole[4])] == whole[2:4]
    assert [m["id"] for m in place.db.history(SID, before="u2")] == whole[:2]
    assert place.db.history(SID, limit=0) == []
    with pytest.raises(Refused):
        place.db.history(SID, before="nobody")
    with pytest.raises(Refused):
        place.db.history(SID, limit=-1)


def test_history_shows_an_unfinished_answer(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, {"type": "text-start", "id": "t"}])
    turn.write({"type": "text-delta", "id": "t", "delta": "so far"})
    turn.flush()
    assert shape(place.db.history(SID))[-1] == ("assistant", ["so far"])
    turn.abort()
    session.close()


def test_the_catalogue(place: Place) -> None:
    for name in ("a/1", "a/2", "b/1"):
        place.db.create(name)
        place.clock.advance(10.0)
    assert [info.id for info in place.db.sessions()] == ["a/1", "a/2", "b/1"]
    assert [info.id for info in place.db.sessions(prefix="a/")] == ["a/1", "a/2"]
    *_, last = place.db.sessions()
    assert [info.id for info in place.db.sessions(since=last.modified_ms)] == ["b/1"]
    assert last.size == len(place.stored("sessions/b%2F1/").popitem()[1])


# -- the door ---------------------------------------------------------------------------------------------


def test_opening(place: Place) -> None:
    with snapshotter.open("memory://test-session-opening") as db:
        db.send(SID, "hi")
        assert repr(db) == "<snapshotter.Database memory://test-session-opening>"
    with snapshotter.open("memory://test-session-opening") as db:
        assert len(db.peek(SID).pending) == 1
    with pytest.raises(Refused, match="durability"):
        Place(durability="never")
    for bad in ("", ".", "..", "a" * 2000):
        with pytest.raises(InvalidId):
            place.db.send(bad, "hi")


@pytest.mark.parametrize(("durability", "after_step"), [("steps", True), ("stream", False)])
def test_steps_are_durable_at_their_end_where_that_is_asked_for(durability: str, after_step: bool) -> None:
    place = Place(durability=durability)
    place.send("u1")
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, {"type": "start-step"}, *text("x")])
        assert turn.durable_id == 1
        turn.write({"type": "finish-step"})
        if after_step:
            session.writer.flush()  # it is on its way already
        assert (turn.durable_id == 7) is after_step
        turn.abort()


def test_a_store_without_conditional_create_is_refused(place: Place) -> None:
    """Before anything is written; unless the caller vouches that there is never more than one worker."""
    from streams.testing.faults import FaultyBucket

    class Careless(FaultyBucket):
        """Takes the condition and ignores it."""

        def put(self, key: str, data: bytes, **options: Any) -> Any:
            return super().put(key, data, nonce=options.get("nonce", ""))

    careless = Careless(place.bucket.inner, trusted=False)
    with pytest.raises(Unsupported):
        Database(careless, place.clock).send(SID, "hi")
    assert place.stored("in/") == {}


def test_a_closed_session_answers_nothing_more(place: Place) -> None:
    place.db.close_session(SID)
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
        assert session.closed
    place.send("u1")
    with place.db.boot(SID) as session, pytest.raises(Closed, match="is not answered"):
        next(session.turns())
    assert place.controls("turn-start") == []


def test_a_deleted_session_takes_no_turns(place: Place) -> None:
    place.send("u1")
    place.answer()
    last = place.records()[-1]["id"]
    records = [
        {"id": last + 1, "ts": 1, "control": "fence", "epoch": 2, "run": "r", "why": "delete"},
        {"id": last + 2, "ts": 1, "control": "session-deleted"},
    ]
    prev = json.loads(next(iter(place.stored("out/").values())).splitlines()[0])["nonce"]
    data = encode_segment("out", records, nonce="x", epoch=2, prev=prev)
    place.bucket.inner.put(keys.segment("out", SID, last + 1), data)
    with place.db.boot(SID) as session, pytest.raises(Closed):
        list(session.turns())
    with place.db.boot(SID) as session, pytest.raises(Closed):
        session.set_state({"n": 1})
    assert newest(place.db.store, "out", SID).entries[0].first == last + 1


def test_a_result_without_its_call_never_reaches_the_model(place: Place) -> None:
    """A late result of an unknown call is spent and reported; also where the snapshot was not saved."""
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(
                turn, [{"type": "start"}, call(), ask(), {"type": "finish", "finishReason": "tool-calls"}]
            )
    place.space.objects.pop(f"sessions/{SID}/snapshot.json")
    place.space.order.remove(f"sessions/{SID}/snapshot.json")
    place.db.approve(SID, "ap1")
    place.db.tool_result(SID, "c9", "of nobody")
    assert "unknown-call" in [line["code"] for line in place.db.peek(SID).report]
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [result(output={"done": 1}), *text("ok"), {"type": "finish"}])
    parts = place.db.history(SID)[1]["parts"]
    assert [part["type"] for part in parts] == ["tool-tool", "text"]
    assert {part.get("toolCallId") for part in parts} == {"c1", None}
