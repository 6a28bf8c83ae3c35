"""A turn: what the model is shown, what is durable when, and how it ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pydantic
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

from snapshotter import (
    ChunkError,
    Deadline,
    Fenced,
    InvalidValue,
    Refused,
    Terminated,
    Throttled,
    TooLarge,
    Unknown,
    Unreachable,
)
from snapshotter.core.onward import CONTINUE, START_AGAIN
from streams.testing.faults import Fault


@pytest.fixture
def place() -> Place:
    return Place()


def interrupted(place: Place, *chunks: Any, stash: Any = None) -> None:
    """A worker that takes what is owed, writes these chunks, and is killed."""
    session = place.db.boot(SID, takeover=True)
    turn = first_turn(session)
    write_all(turn, chunks)
    if stash is not None:
        turn.stash(stash)
    turn.flush()
    die(session)


# -- what the model sees ----------------------------------------------------------------------------------


def test_a_fresh_turn_shows_the_history_and_its_message(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.send("u2")
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        assert shape(turn.messages) == [
            ("user", ["hi"]),
            ("assistant", ["step-start:", "one"]),
            ("user", ["hi"]),
        ]
        assert [message["id"] for message in turn.messages[::2]] == ["u1", "u2"]
        assert (turn.kind, turn.number, turn.attempt, turn.recovery_data) == ("message", 2, 1, None)
        assert [record["id"] for record in turn.inputs] == [2]


def test_a_retry_shows_nothing_of_a_text_that_was_cut_off(place: Place) -> None:
    place.send("u1")
    interrupted(place, {"type": "start"}, *text("half of it"))
    with place.db.boot(SID, takeover=True) as session:
        assert shape(session.messages)[1] == ("assistant", ["half of it"])
        turn = first_turn(session)
        assert (turn.kind, turn.attempt) == ("retry_response", 2)
        assert shape(turn.messages) == [("user", ["hi"]), ("user", [START_AGAIN])]
        assert turn.messages[-1]["metadata"] == {"snapshotter": {"resume": "retry_response"}}


def test_a_retry_shows_the_steps_that_hold_a_finished_tool_call(place: Place) -> None:
    place.send("u1")
    chunks = [{"type": "start-step"}, call(), result(), {"type": "finish-step"}, {"type": "start-step"}]
    interrupted(place, {"type": "start"}, *chunks, *text("and then"))
    with place.db.boot(SID, takeover=True) as session:
        turn = first_turn(session)
        assert turn.kind == "retry_response"
        assert shape(turn.messages)[1:] == [
            ("assistant", ["step-start:", "tool-tool:output-available"]),
            ("user", [START_AGAIN]),
        ]


def test_a_call_that_may_have_run_is_continued_as_an_error(place: Place) -> None:
    place.send("u1")
    interrupted(place, {"type": "start"}, {"type": "start-step"}, call())
    with place.db.boot(SID, takeover=True) as session:
        assert [c["toolCallId"] for c in session.pending_tool_calls] == ["c1"]
        turn = first_turn(session)
        assert turn.kind == "recover_tools"
        part = turn.messages[-1]["parts"][-1]
        assert part["state"] == "output-error"
        assert "may or may not have run" in part["errorText"]
        assert session.resume.unanswered == ("c1",)
        assert session.resume.description.startswith("The request stopped while tools were running: tool ")


@pytest.mark.parametrize(
    ("policy", "state"), [("rerun", "input-available"), ("reattach", "output-available")]
)
def test_a_tool_declared_safe_to_repeat_or_to_reattach_is_left_to_its_runner(
    place: Place, policy: str, state: str
) -> None:
    place.send("u1")
    progress = {"type": "tool-output-available", "toolCallId": "c1", "output": "half", "preliminary": True}
    interrupted(place, {"type": "start"}, {"type": "start-step"}, call(), progress)
    for attempt in (2, 3):  # the progress is still there after another death
        session = place.db.boot(SID, takeover=True, tool_policies={"tool": policy})
        turn = first_turn(session)
        assert (turn.kind, turn.attempt) == ("recover_tools", attempt)
        part = turn.messages[-1]["parts"][-1]
        assert part["state"] == state
        assert part.get("output") == ("half" if policy == "reattach" else None)
        die(session)
    with place.db.boot(SID, takeover=True) as session:
        with first_turn(session) as turn:
            write_all(turn, [result(), {"type": "finish", "finishReason": "stop"}])
    assert shape(place.db.history(SID))[1:] == [("assistant", ["step-start:", "tool-tool:output-available"])]


def test_an_unknown_tool_policy_is_refused(place: Place) -> None:
    place.send("u1")
    with pytest.raises(ValueError, match="use interrupted, rerun or reattach"):
        place.db.boot(SID, tool_policies={"tool": "twice"})


def test_a_released_turn_is_continued_with_all_it_wrote(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, pytest.raises(Terminated):
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, *text("half of it")])
            raise Terminated
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        assert (turn.kind, turn.attempt) == ("continue_response", 2)
        assert shape(turn.messages) == [
            ("user", ["hi"]),
            ("assistant", ["half of it"]),
            ("user", [CONTINUE]),
        ]
        turn.abort()


def test_an_answered_approval_is_shown_in_its_place(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(
                turn, [{"type": "start"}, call(), ask(), {"type": "finish", "finishReason": "tool-calls"}]
            )
    place.db.approve(SID, "ap1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert turn.kind == "tool-answers"
            assert shape(turn.messages)[1:] == [("assistant", ["tool-tool:approval-responded"])]
            turn.write(result())
            write_all(turn, [*text("done"), {"type": "finish", "finishReason": "stop"}])
    assert shape(place.db.history(SID))[1:] == [("assistant", ["tool-tool:output-available", "done"])]


def test_a_compacted_context_is_shown_in_place_of_what_it_covers(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.send("u2")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            covered = turn.messages[1]["id"]
            turn.set_context(covered, [user("summary", "what was said")])
            assert [message["id"] for message in turn.messages] == ["summary", "u2"]
            write_all(turn, saying("two"))
    assert [message["id"] for message in place.db.history(SID)][::2] == ["u1", "u2"]
    place.send("u3")
    with place.db.boot(SID) as session:
        assert [m["id"] for m in first_turn(session).messages][::2] == [
            "summary",
            place.db.history(SID)[3]["id"],
        ]


def test_body_and_client_tools_of_the_request_travel_with_the_turn(place: Place) -> None:
    place.send("u1", body={"model": "m"}, client_tools=["ask_user"], metadata={"ip": "::1"})
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert turn.body == {"model": "m"}
            assert turn.inputs[0]["metadata"] == {"ip": "::1"}
            write_all(turn, saying("x"))
    (start,) = place.controls("turn-start")
    assert start["clientTools"] == ["ask_user"]


# -- what is durable when ---------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [call(), ask()], ids=["call", "question"])
def test_a_call_and_a_question_are_durable_before_write_returns(place: Place, chunk: Any) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call()])
    turn.write(chunk)
    at = turn.durable_id
    die(session)
    assert place.records()[-1] == {"id": at, "ts": place.clock.now_ms(), "chunk": chunk}


def test_the_stored_start_names_the_message(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    forwarded = turn.write({"type": "start", "messageId": "a1"})
    assert forwarded == {"type": "start", "messageId": "a1"}
    assert turn.message_id == "a1"
    turn.flush()
    die(session)
    assert place.records()[-1]["chunk"] == forwarded


def test_a_result_is_durable_before_write_returns_and_deltas_are_not(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call()])
    before = turn.durable_id
    write_all(turn, text("soon"))
    assert turn.durable_id == before
    turn.write(result())
    assert turn.durable_id == before + 4
    die(session)
    assert shape(place.db.history(SID))[1] == ("assistant", ["tool-tool:output-available", "soon"])


def test_durable_id_grows_with_time_and_never_falls(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        seen = [turn.durable_id]
        for chunk in [{"type": "start"}, *text("a"), *text("b", "t2")]:
            turn.write(chunk)
            turn.flush()
            seen.append(turn.durable_id)
        assert seen == list(range(1, 9))


def test_a_worker_killed_right_after_a_call_leaves_it_to_be_seen(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    write_all(first_turn(session), [{"type": "start"}, call()])
    die(session)
    assert [c["toolCallId"] for c in place.db.peek(SID).pending_tool_calls] == ["c1"]


# -- stash, state, context, history -----------------------------------------------------------------------


def test_the_last_stash_is_the_next_attempts_recovery_data(place: Place) -> None:
    place.send("u1")
    interrupted(place, {"type": "start"}, stash={"page": 1})
    interrupted(place, {"type": "start"})
    with place.db.boot(SID, takeover=True) as session:
        with first_turn(session) as turn:
            assert (turn.attempt, turn.recovery_data) == (3, {"page": 1})
            write_all(turn, saying("x"))
    place.send("u2")
    with place.db.boot(SID) as session:
        assert first_turn(session).recovery_data is None


def test_state_is_durable_at_once(place: Place) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    turn.set_state({"title": "T", "n": 1})
    turn.set_state(unset=["n"])
    assert turn.state == {"title": "T"}
    die(session)
    assert place.db.peek(SID).state == {"title": "T"}


def test_context_and_history_operations_are_durable_at_once(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.send("u2")
    session = place.db.boot(SID)
    turn = first_turn(session)
    answer = turn.messages[1]["id"]
    turn.set_context(answer, [user("s")])
    turn.edit_history("remove", message_id="u1")
    die(session)
    found = place.db.peek(SID)
    assert [m["id"] for m in found.messages] == [answer, "u2"]
    assert found.context is None  # what it covered has changed


def test_a_message_of_the_open_turn_is_not_edited(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        with pytest.raises(Refused):
            turn.edit_history("remove", message_id="u1")
        turn.abort()


# -- actions, regenerate, edit, close ---------------------------------------------------------------------


def test_an_action_without_an_answer_is_one_segment(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.db.action(SID, "rename", {"title": "T"})
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert (turn.kind, turn.item.inputs[0]["input"] if turn.item else None) == (
                "action",
                {"title": "T"},
            )
            turn.set_state({"title": "T"})
            turn.edit_history("remove", message_id="u1")
            assert place.db.peek(SID).state == {}  # it travels with the end, so that it is done once
    *_, last = place.segments()
    assert [record["control"] for record in last] == ["state", "history", "input-applied"]
    assert last[-1]["inputs"] == [2]
    assert place.db.peek(SID).state == {"title": "T"}
    assert len(place.controls("turn-start")) == 1


def test_an_action_with_an_answer_is_a_turn(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.db.action(SID, "summarise")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.set_state({"n": 1})
            write_all(turn, saying("a summary"))
    assert [start["mode"] for start in place.controls("turn-start")] == ["fresh", "action"]
    *_, last = place.segments()
    assert [r["control"] for r in last if "control" in r] == ["state", "turn-complete"]
    assert [text for _, (*_, text) in shape(place.db.history(SID))] == ["hi", "one", "a summary"]


def test_a_regenerate_replaces_the_last_answer(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.db.regenerate(SID)
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert turn.kind == "regenerate"
            assert shape(turn.messages) == [("user", ["hi"])]
            write_all(turn, saying("another"))
    assert shape(place.db.history(SID))[1:] == [("assistant", ["step-start:", "another"])]


def test_an_edit_replaces_the_message_and_what_followed(place: Place) -> None:
    place.send("u1")
    place.answer("one")
    place.send("u2")
    place.answer("two")
    place.db.edit(SID, "u1", "better")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert (turn.kind, shape(turn.messages)) == ("edit", [("user", ["better"])])
            write_all(turn, saying("three"))
    assert [texts[-1] for _, texts in shape(place.db.history(SID))] == ["better", "three"]


def test_a_close_ends_the_session_after_what_was_owed(place: Place) -> None:
    place.send("u1")
    place.db.close_session(SID)
    place.send("u2")
    place.answer("one")
    found = place.db.peek(SID)
    assert found.closed
    assert found.pending == []
    assert [line["code"] for line in found.report] == ["input-after-close"]
    assert len(place.controls("session-closed")) == 1


# -- what comes in ----------------------------------------------------------------------------------------


class TextDelta(pydantic.BaseModel):
    type: str = "text-delta"
    id: str = "t"
    delta: str


def test_pydantic_models_and_end_markers(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "text-start", "id": "t"})
            assert turn.write(TextDelta(delta="x")) == {"type": "text-delta", "id": "t", "delta": "x"}
            assert turn.write("[DONE]") is None
            assert turn.write({"type": "done"}) is None
            assert turn.dropped == 0
    assert shape(place.db.history(SID))[1:] == [("assistant", ["x"])]
    assert not any(record.get("chunk", {}).get("type") == "done" for record in place.records())


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("chunk", "error", "where"),
    [
        ({"type": "data-x", "data": {"n": [1, math.nan]}}, InvalidValue, "data.n[1]"),
        ({"type": "data-x", "data": math.inf}, InvalidValue, "data"),
        ({"type": "data-x", "data": 2**80}, InvalidValue, "data"),
        ({"type": "data-x", "data": nested(200)}, InvalidValue, "data"),
        ({"type": "data-x", "data": "a" * 1_048_577}, TooLarge, ""),
        ({"type": "text-delta", "id": "t", "delta": "a" * 1_048_577}, TooLarge, ""),
        ({"type": "text-delta", "id": "nobody", "delta": "a"}, ChunkError, ""),
        ({"type": "tool-output-available", "toolCallId": "nobody", "output": 1}, ChunkError, ""),
        ({"type": "no-such-type"}, ChunkError, ""),
        ({"type": "text-delta", "id": "t", "delta": 5}, ChunkError, ""),
        ({"type": "text-delta", "id": ["t"], "delta": "x"}, ChunkError, ""),
        ({"type": ["text-delta"]}, ChunkError, ""),
        ({"type": "text-end", "id": ["t"]}, ChunkError, ""),
        ({"type": "text-delta", "id": "nobody", "delta": "half a pair: \ud83d"}, ChunkError, ""),
        ({"type": "tool-input-delta", "toolCallId": "nobody", "inputTextDelta": "\ud83d"}, ChunkError, ""),
        (["not", "a", "chunk"], InvalidValue, ""),
        (None, InvalidValue, ""),
    ],
)
def test_a_bad_chunk_is_refused_and_the_turn_goes_on(
    place: Place, chunk: Any, error: type[Exception], where: str
) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "text-start", "id": "t"})
            before = turn.message
            with pytest.raises(error) as caught:
                turn.write(chunk)
            assert turn.message == before
            if where:
                assert str(getattr(caught.value, "path", None)).startswith(where)
            turn.write({"type": "text-delta", "id": "t", "delta": "fine"})
    assert shape(place.db.history(SID))[1:] == [("assistant", ["fine"])]
    chunks = [record["chunk"]["type"] for record in place.records() if "chunk" in record]
    assert chunks == ["text-start", "text-delta"]


def test_nesting_up_to_the_limit_comes_back(place: Place) -> None:
    place.send("u1")
    deepest = nested(199)  # the chunk itself is the first of 200
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "data-x", "data": deepest})
    assert place.db.history(SID)[1]["parts"] == [{"type": "data-x", "data": deepest}]


def test_halves_of_a_surrogate_pair_are_joined_and_a_lone_one_is_replaced(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "text-start", "id": "t"})
            for delta in ("a\ud83d", "\ude00b", "\ud83d"):
                turn.write({"type": "text-delta", "id": "t", "delta": delta})
    assert shape(place.db.history(SID))[1:] == [("assistant", ["a\U0001f600b\ufffd"])]


def halves(*deltas: str, **more: Any) -> list[Any]:
    return [{"type": "text-delta", "id": "t", "delta": delta, **more} for delta in deltas]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (
            [*halves("a\ud83d"), {"type": "reset-step"}, {"type": "text-start", "id": "t"}, *halves("b")],
            ["b"],
        ),
        ([*halves("a\ud83d"), {"type": "start", "messageId": "other"}, *text("b", "x")], ["b"]),
        ([*halves("a\ud83d"), *halves("b", providerMetadata={"p": {}})], ["a\ufffdb"]),
        ([*halves("a\ud83d", "b" * 70_000)], ["a\ufffd" + "b" * 70_000]),
    ],
    ids=["reset", "another message", "a delta with metadata", "a long delta"],
)
def test_half_a_pair_that_never_finds_its_other_half(place: Place, chunks: Any, expected: list[str]) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, {"type": "text-start", "id": "t"}, *chunks])
    assert shape(place.db.history(SID))[-1] == ("assistant", expected)


@pytest.mark.parametrize("over", [0, 1])
def test_a_record_may_take_exactly_its_limit(place: Place, over: int) -> None:
    """1,048,576 bytes, measured on the encoded record."""
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, call()])
            envelope = len(
                f'{{"id":4,"ts":{place.clock.now_ms()},"chunk":{{"type":"tool-output-available",'
                f'"toolCallId":"c1","output":""}}}}'
            )
            output = "a" * (1_048_576 - envelope + over)
            if over:
                with pytest.raises(TooLarge) as caught:
                    turn.write(result(output=output))
                assert (caught.value.size, caught.value.limit) == (1_048_577, 1_048_576)
                turn.write(result(output="a reference"))
            else:
                turn.write(result(output=output))
    part = place.db.history(SID)[1]["parts"][0]
    assert part["output"] == ("a reference" if over else output)


@pytest.mark.parametrize(
    ("output", "fits"), [("a" * 900_000, True), ('"' * 600_000, False), ("\U0001f600" * 300_000, False)]
)
def test_large_outputs_are_measured_on_their_final_bytes(place: Place, output: str, fits: bool) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, call()])
            if fits:
                turn.write(result(output=output))
            else:
                with pytest.raises(TooLarge):
                    turn.write(result(output=output))
                turn.write({"type": "tool-output-error", "toolCallId": "c1", "errorText": "too large"})
    assert len(place.db.history(SID)[1]["parts"]) == 1


def test_what_an_earlier_attempt_settled_is_dropped_when_it_is_repeated(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, pytest.raises(Terminated):
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, call(), result(output="first"), *text("and")])
            raise Terminated
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            assert turn.kind == "continue_response"
            at = session.writer.next_id
            assert turn.write(result(output="second")) is None
            assert (turn.dropped, session.writer.next_id) == (1, at)
            write_all(turn, [*text("more", "t2"), {"type": "finish", "finishReason": "stop"}])
    (part, *_) = place.db.history(SID)[1]["parts"]
    assert part["output"] == "first"


def test_a_very_long_answer(place: Place) -> None:
    """200,000 deltas: linear in time, packed in the store, whole again at the boot."""
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "text-start", "id": "t"})
            for index in range(200_000):
                turn.write({"type": "text-delta", "id": "t", "delta": f"{index} "})
    whole = "".join(f"{index} " for index in range(200_000))
    assert shape(place.db.history(SID))[1:] == [("assistant", [whole])]
    assert len(place.records()) < 200
    place.space.objects.pop(next(iter(place.stored("sessions/"))))
    place.space.order.remove("sessions/chat/snapshot.json")
    assert shape(place.db.history(SID))[1:] == [("assistant", [whole])]


# -- ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunk", "status"),
    [
        ({"type": "finish", "finishReason": "stop"}, "completed"),
        ({"type": "error", "errorText": "upstream"}, "error"),
        ({"type": "abort"}, "aborted"),
    ],
)
def test_how_a_turn_ends_when_its_block_is_left(place: Place, chunk: Any, status: str) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, *text("half"), chunk])
        assert (turn.status, turn.open) == (status, False)
    (end,) = place.controls("turn-complete")
    assert end["status"] == status
    assert end.get("error") == ("upstream" if status == "error" else None)
    assert shape(place.db.history(SID))[1:] == [("assistant", ["half"])]
    assert place.db.peek(SID).resume.kind == "none"  # an errored turn is not answered by itself


def test_fail_and_abort_seal_the_turn_and_keep_the_partial_answer(place: Place) -> None:
    place.send("u1")
    place.send("u2")
    with place.db.boot(SID) as session:
        turns = session.turns()
        with next(turns) as turn:
            write_all(turn, [{"type": "start"}, call(), *text("half")])
            turn.fail(ValueError("no more credit"))
        with next(turns) as turn:
            write_all(turn, [{"type": "start"}, *text("other half")])
            turn.abort("the user left")
    ends = [(end["status"], end.get("error"), end.get("reason")) for end in place.controls("turn-complete")]
    assert ends == [("error", "no more credit", None), ("aborted", None, "the user left")]
    history = place.db.history(SID)
    assert shape(history)[1] == ("assistant", ["tool-tool:output-error", "half"])
    assert shape(history)[3] == ("assistant", ["other half"])


@pytest.mark.parametrize(
    ("error", "why", "kind"),
    [
        (RuntimeError("upstream"), "error", "retry_response"),
        (KeyboardInterrupt(), "cancelled", "retry_response"),
        (asyncio.CancelledError(), "cancelled", "retry_response"),
        (Terminated(), "signal", "continue_response"),
        (Deadline("soon"), "deadline", "continue_response"),
    ],
)
def test_leaving_by_an_exception_releases(place: Place, error: BaseException, why: str, kind: str) -> None:
    place.send("u1")
    with pytest.raises(type(error)), place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, *text("half")])
            raise error
    assert turn.status == "released"
    assert [record["why"] for record in place.controls("turn-release")] == [why]
    with place.db.boot(SID, stable_timeout=0.0) as session:  # not busy
        assert session.resume.kind == kind
        assert shape(session.messages)[1:] == [("assistant", ["half"])]


def test_a_turn_that_is_not_entered_is_released(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, pytest.raises(Refused, match="with turn"):
        for turn in session.turns():
            turn.write({"type": "start"})
    assert [record["why"] for record in place.controls("turn-release")] == ["cancelled"]


def test_a_deadline_leaves_time_for_the_release(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID, deadline=60.0) as session, pytest.raises(Deadline), first_turn(session) as turn:
        write_all(turn, [{"type": "start"}, *text("half")])
        place.clock.advance(58.1)
        turn.write({"type": "finish"})
    with place.db.boot(SID, deadline=1.0) as session:
        assert session.deadline_left() == pytest.approx(0.9)


def test_a_stream_that_is_passed_on_survives_what_cannot_be_stored(place: Place) -> None:
    place.send("u1")
    odd = {"type": "tool-progress", "toolCallId": "c1"}
    huge = {"type": "tool-output-available", "toolCallId": "c1", "output": "x" * 1_100_000}
    stream = [
        {"type": "start"},
        odd,
        call("c1"),
        huge,
        *text("done"),
        {"type": "finish", "finishReason": "end_turn"},
    ]
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            seen = list(turn.tee(iter(stream)))
        codes = [line["code"] for line in session.report]
    assert seen[1] == odd
    assert seen[3]["type"] == "tool-output-error"
    assert "1048576" in seen[3]["errorText"]
    assert seen[-1] == {"type": "finish", "finishReason": "other"}
    assert codes == ["unknown-chunk", "result-not-stored"]
    part = place.db.history(SID)[-1]["parts"][0]
    assert (part["state"], part["errorText"]) == ("output-error", seen[3]["errorText"])
    assert place.db.peek(SID).resume.kind == "none"


def test_a_stream_that_is_never_read_releases_the_turn(place: Place) -> None:
    """The response is returned and streams later, when the block has long been left."""
    place.send("u1")
    with (
        place.db.boot(SID) as session,
        pytest.raises(Refused, match="never read"),
        first_turn(session) as turn,
    ):
        turn.tee(iter(saying("x")))
    assert place.db.peek(SID).resume.kind == "call_model"


def test_a_stream_that_is_left_before_its_end_aborts_the_turn(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            for chunk in turn.tee(iter([{"type": "start"}, *text("half"), *text("more", "u")])):
                if chunk["type"] == "text-delta":
                    break
        assert [line["code"] for line in session.report] == ["stream-left"]
    assert turn.status == "aborted"
    assert place.db.history(SID)[-1]["parts"] == [{"type": "text", "text": "half", "state": "done"}]


def test_every_stream_of_a_turn_has_to_be_read_to_its_end(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        next(turn.tee(iter([{"type": "start"}, *text("half")])))
        list(turn.tee(iter([*text("all of it", "u"), {"type": "finish", "finishReason": "stop"}])))
    assert turn.status == "aborted"


def test_a_stream_that_failed_may_be_replaced_by_another(place: Place) -> None:
    def broken() -> Iterator[Any]:
        yield {"type": "start"}
        raise ConnectionError("model")

    place.send("u1")
    place.send("u2")
    with place.db.boot(SID) as session:
        turns = session.turns()
        with next(turns) as first:
            with pytest.raises(ConnectionError):
                list(first.tee(broken()))
            list(first.tee(iter(saying("the other model"))))
        with next(turns) as second, pytest.raises(ConnectionError):
            list(second.tee(broken()))
    assert (first.status, second.status) == ("completed", "aborted")


@pytest.mark.parametrize("field", [float("nan"), object(), {1: 2}])
def test_an_unknown_chunk_that_is_no_json_is_handed_on(place: Place, field: Any) -> None:
    place.send("u1")
    odd = {"type": "brand-new", "score": field}
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            seen = list(turn.tee(iter([{"type": "start"}, odd, *text("paid for")])))
        assert [line["code"] for line in session.report] == ["unknown-chunk"]
    assert seen[1] == odd
    assert place.db.history(SID)[-1]["parts"] == [{"type": "text", "text": "paid for", "state": "done"}]


def test_progress_that_cannot_be_stored_settles_nothing(place: Place) -> None:
    place.send("u1")
    odd = {**result("c1", float("nan")), "preliminary": True}
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            stream = turn.tee(iter([{"type": "start"}, call("c1"), odd, result("c1", "fine")]))
            seen = [next(stream), next(stream), next(stream)]
            assert turn.message is not None
            assert turn.message["parts"][0]["state"] == "input-available"
            list(stream)
        assert [line["code"] for line in session.report] == ["progress-not-stored"]
    assert seen[2] is odd
    assert place.db.history(SID)[-1]["parts"][0]["output"] == "fine"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "A" * 2_000_000},
        {"type": "data-table", "data": {"rows": "x" * 1_100_000}},
        {"type": "data-score", "data": float("nan")},
        {"type": "source-url", "sourceId": "s", "url": "https://" + "x" * 1_100_000},
    ],
)
def test_a_part_that_cannot_be_stored_is_handed_on(place: Place, odd: dict[str, Any]) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            seen = list(turn.tee(iter([{"type": "start"}, odd, *text("paid for")])))
        (line,) = session.report
    assert line["code"] == "chunk-not-stored"
    assert seen[1] is odd
    assert turn.status == "completed"
    assert place.db.history(SID)[-1]["parts"] == [{"type": "text", "text": "paid for", "state": "done"}]


@pytest.mark.parametrize("char", ["x", "\n", "\u20ac", "\U0001f600"])
def test_a_delta_that_is_too_long_is_stored_as_several(place: Place, char: str) -> None:
    place.send("u1")
    long = char * 1_200_000
    with place.db.boot(SID) as session, first_turn(session) as turn:
        seen = list(turn.tee(iter([{"type": "start"}, *text(long)])))
        assert session.report == []
    assert seen[2]["delta"] == long
    assert place.db.history(SID)[-1]["parts"] == [{"type": "text", "text": long, "state": "done"}]


def test_a_tools_error_that_is_too_long_is_cut(place: Place) -> None:
    place.send("u1")
    huge = {"type": "tool-output-error", "toolCallId": "c1", "errorText": "why " * 500_000}
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            seen = list(turn.tee(iter([{"type": "start"}, call("c1"), huge, *text("sorry")])))
        assert [line["code"] for line in session.report] == ["result-not-stored"]
    assert turn.status == "completed"
    assert (seen[2]["errorText"][:8], len(seen[2]["errorText"].encode())) == ("why why ", 8192)
    assert place.db.history(SID)[-1]["parts"][0]["errorText"] == seen[2]["errorText"]


def test_a_turn_without_a_chunk_is_reported(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session):
            pass
        assert [line["code"] for line in session.report] == ["nothing-written"]


def test_a_broken_stream_is_refused_also_when_it_is_passed_on(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session, pytest.raises(ChunkError), first_turn(session) as turn:
        list(turn.tee(iter([{"type": "start"}, {"type": "text-delta", "id": "t", "delta": "x"}])))


def test_a_deadline_releases_the_turn(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID, deadline=60.0) as session:
        with pytest.raises(Deadline), first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, *text("half")])
            place.clock.advance(61.0)
            turn.write({"type": "finish"})
        with pytest.raises(Deadline):
            turn.write({"type": "finish"})
        assert list(session.turns()) == []
    assert [record["why"] for record in place.controls("turn-release")] == ["deadline"]
    assert place.db.peek(SID).resume.kind == "continue_response"


def test_nothing_is_written_after_the_end(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, saying("x"))
        with pytest.raises(Refused, match="ended"):
            turn.write({"type": "start"})
        with pytest.raises(Refused, match="ended"):
            turn.set_state({"a": 1})
        with pytest.raises(Refused, match="ended"):
            turn.abort()
        turn.complete()  # leaving twice is no error
        turn.release()
    assert len(place.controls("turn-complete")) == 1


def test_tee_forwards_and_closes_its_source(place: Place) -> None:
    place.send("u1")
    closed: list[bool] = []

    def source() -> Iterator[Any]:
        try:
            yield from saying("x")
            yield "[DONE]"
        finally:
            closed.append(True)

    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            forwarded = [chunk["type"] for chunk in turn.tee(source())]
    assert forwarded == [chunk["type"] for chunk in saying("x")]
    assert closed == [True]


def test_tee_closes_its_source_when_the_caller_goes(place: Place) -> None:
    place.send("u1")
    closed: list[bool] = []

    def source() -> Iterator[Any]:
        try:
            yield from saying("x")
        finally:
            closed.append(True)

    with place.db.boot(SID) as session:
        with pytest.raises(KeyError), first_turn(session) as turn:
            for _ in turn.tee(source()):
                raise KeyError("the client is gone")
        del turn
    assert closed == [True]


# -- a store that goes away -------------------------------------------------------------------------------


def test_a_bucket_that_vanishes_in_the_middle_of_a_turn(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with pytest.raises((Unknown, Unreachable)), first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, *text("half")])
            turn.flush()
            place.bucket.plan.append(Fault(times=0, seconds=1.0))
            turn.write(call())
        assert turn.status == "released"
    place.bucket.plan.clear()
    found = place.db.peek(SID)
    assert shape(found.messages)[1:] == [("assistant", ["half"])]
    assert place.controls("turn-release") == []


def test_a_store_that_throttles_does_not_fail_the_turn(place: Place) -> None:
    """Cases: refused twice, then taken; the waits grow and are jittered."""
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            turn.write({"type": "start"})
            place.clock.slept.clear()
            place.bucket.plan.append(Fault("put", times=2, error=lambda: Throttled("slow down")))
            turn.write(call())
            first, second = place.clock.slept
            assert 0 < first <= 0.4 < second <= 0.8
            turn.write(result())
    assert turn.status == "completed"


def test_a_model_that_fails_before_it_says_anything_leaves_no_empty_message(place: Place) -> None:
    place.send("u1")
    with place.db.boot(SID) as session:
        with first_turn(session) as turn:
            write_all(turn, [{"type": "start"}, {"type": "error", "errorText": "x"}])
    assert shape(place.db.history(SID)) == [("user", ["hi"])]
    assert [end["status"] for end in place.controls("turn-complete")] == ["error"]


def test_a_snapshot_that_holds_an_empty_message_still_loads(place: Place) -> None:
    empty = {"id": "a0", "role": "assistant", "parts": []}
    place.db.create(SID, messages=[user("u0"), empty])
    place.send("u1")
    place.answer("fine")
    assert [message["id"] for message in place.db.history(SID)][:3] == ["u0", "a0", "u1"]


def test_a_turn_that_was_fenced_cannot_be_completed(place: Place) -> None:
    """Also where the caller swallowed the first error."""
    place.send("u1")
    zombie = place.db.boot(SID)
    turn = first_turn(zombie)
    turn.write({"type": "start"})
    place.answer("by the heir", takeover=True)
    before = place.stored("")
    for _ in range(2):
        with pytest.raises(Fenced):
            turn.write(call())
    for end in (turn.complete, turn.abort, turn.flush):
        with pytest.raises(Fenced):
            end()
    turn.release()
    zombie.close()
    assert place.stored("") == before
