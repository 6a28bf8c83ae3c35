"""The plan table, row by row: what a boot returns for each state that a log can be left in."""

from __future__ import annotations

import pytest
from build import (
    answer,
    ask,
    asked,
    begin,
    boot,
    bot,
    call,
    chain,
    chunk,
    cut_off,
    done,
    edit,
    finish,
    output,
    owed,
    release,
    result,
    say,
    start,
    step,
    stop,
    tool,
    user,
    words,
)

OPEN = [start(1, [1]), begin(), step()]
HEL = [*OPEN, *cut_off("Hel")]


def resume(kind: str, **more: object) -> dict[str, object]:
    return {"kind": kind, "turn": 1, "attempt": 1, "messageId": "a1"} | more


# -- all turns closed -----------------------------------------------------------------------------------


def test_an_empty_session_has_nothing_to_do() -> None:
    seen = boot([], [])
    del seen["codes"]
    assert seen == {
        "messages": [],
        "partial": None,
        "pending": [],
        "spent": [],
        "pendingToolCalls": [],
        "resume": {"kind": "none"},
        "state": {},
        "context": None,
        "cursor": {"in": 0, "out": 0},
        "report": [],
    }


def test_all_turns_closed_gives_the_chain_and_what_is_owed_in_order() -> None:
    seen = boot([say("u1"), say("u2"), say("u3")], [start(1, [1]), *answer("One."), done(1)])
    assert seen["messages"] == [user("u1"), bot("a1", "One.")]
    assert seen["pending"] == [
        {"ids": [2], "kind": "message", "messages": [user("u2")]},
        {"ids": [3], "kind": "message", "messages": [user("u3")]},
    ]
    assert seen["resume"] == {"kind": "none"}
    assert seen["cursor"] == {"in": 1, "out": 9}


def test_a_closed_turn_that_asked_waits_and_the_newest_such_message_is_named() -> None:
    first = [start(1, [1]), begin(), step(), call("c1"), ask("c1", "p1"), finish(), done(1)]
    second = [start(2, [2], mode="action"), begin(), step(), call("c2"), ask("c2", "p2"), finish(), done(2)]
    inputs = [say("u1"), {"kind": "action", "name": "more", "input": {}}]
    assert boot(inputs, [*first, *second])["resume"] == {"kind": "waiting", "messageId": "a2"}


def test_in_a_closed_turn_every_call_with_its_input_waits_for_a_client() -> None:
    seen = boot([say("u1")], [*OPEN, call("c1"), finish(), done(1)])
    assert seen["resume"] == {"kind": "waiting", "messageId": "a1"}


# -- a turn is open -------------------------------------------------------------------------------------


def test_a_stop_above_seen_seals_as_aborted_before_all_else() -> None:
    seen = boot([say("u1"), stop(), edit("u1", "u1", "new"), say("u2")], HEL)
    assert seen["resume"] == resume("seal_aborted")
    assert seen["spent"] == [2]
    assert seen["messages"] == [user("u1"), bot("a1", "Hel")]
    assert owed(seen) == [([3], "edit"), ([4], "message")]


def test_an_abort_chunk_seals_as_aborted_though_the_stream_finished() -> None:
    seen = boot([say("u1")], [*OPEN, *words("Hello."), chunk("abort"), finish()])
    assert seen["resume"] == resume("seal_aborted")


def test_an_edit_of_the_turns_own_input_comes_first() -> None:
    seen = boot([say("u1"), say("u2"), edit("u1", "u1b")], [*OPEN, *words("Hello."), finish()])
    assert seen["resume"] == resume("none")
    assert owed(seen) == [([3], "edit"), ([2], "message")]
    assert seen["partial"] == bot("a1", "Hello.")


def test_an_edit_that_the_attempt_had_seen_does_not_take_its_turn_away() -> None:
    outs = [start(1, [1], seen=2), begin(), step(), *cut_off("Hel")]
    seen = boot([say("u1"), edit("u1", "u1b")], outs)
    assert seen["resume"] == resume("retry_response")
    assert owed(seen) == [([2], "edit")]


@pytest.mark.parametrize("reason", ["stop", "tool-calls", None])
def test_a_finish_only_needs_its_seal(reason: str | None) -> None:
    seen = boot([say("u1"), say("u2")], [*OPEN, *cut_off("Hello."), finish(reason)])
    assert seen["resume"] == resume("seal_completed")
    raw = bot("a1", {"type": "text", "text": "Hello.", "state": "streaming"})
    assert seen["messages"] == [user("u1"), raw]
    assert seen["partial"] == raw
    assert owed(seen) == [([2], "message")]


def test_a_finish_after_an_error_chunk_is_sealed_as_an_error() -> None:
    seen = boot([say("u1")], [*HEL, chunk("error", errorText="boom"), finish()])
    assert seen["resume"] == resume("seal_error")
    assert seen["partial"] == bot("a1", "Hel")


def test_an_error_chunk_without_finish_seals_nothing() -> None:
    seen = boot([say("u1")], [*HEL, chunk("error", errorText="boom")])
    assert seen["resume"] == resume("retry_response")


@pytest.mark.parametrize(
    "later",
    [step(), chunk("text-start", id="n"), call("c9"), chunk("reset-step"), begin("a1")],
    ids=["step", "text", "call", "reset", "start"],
)
def test_a_finish_counts_only_as_the_last_that_begins_or_ends_anything(later: dict[str, object]) -> None:
    seen = boot([say("u1")], [*OPEN, *words("Hello."), finish(), step(), *words("Hi", "u"), later])
    assert seen["resume"]["kind"] in ("retry_response", "recover_tools")


@pytest.mark.parametrize(
    "later",
    [
        chunk("message-metadata", messageMetadata={"n": 1}),
        chunk("data-note", data=1),
        chunk("data-note", data=1, transient=True),
    ],
    ids=["metadata", "data", "transient data"],
)
def test_what_begins_and_ends_nothing_may_follow_a_finish(later: dict[str, object]) -> None:
    seen = boot([say("u1")], [*OPEN, *words("Hello."), finish(), later])
    assert seen["resume"]["kind"] == "seal_completed"


def test_a_finish_of_an_older_attempt_does_not_count() -> None:
    seen = boot(
        [say("u1")], [*OPEN, *words("Hello."), finish("length"), start(1, [1], attempt=2, mode="retry")]
    )
    assert seen["resume"] == resume("call_model", attempt=2)


def test_a_finish_that_leaves_a_question_is_sealed_and_waits_then() -> None:
    outs = [*OPEN, call("c1"), ask("c1", "p1"), finish("tool-calls")]
    assert boot([say("u1")], outs)["resume"] == resume("seal_completed")
    assert boot([say("u1")], [*outs, done(1)])["resume"] == {"kind": "waiting", "messageId": "a1"}


def test_at_a_finish_a_client_tools_call_waits_and_a_servers_is_unanswered() -> None:
    where = [start(1, [1], clientTools=["where"]), begin(), step(), call("c1", "where"), finish("tool-calls")]
    assert boot([say("u1")], where)["resume"] == resume("seal_completed")
    server = [*OPEN, call("c1"), finish("tool-calls")]
    assert boot([say("u1")], server)["resume"] == resume("recover_tools")


def test_a_finish_while_a_call_shows_progress_only_is_not_complete() -> None:
    seen = boot([say("u1")], [*OPEN, call("c1"), output("c1", "half", preliminary=True), finish()])
    assert seen["resume"] == resume("recover_tools")


@pytest.mark.parametrize(
    ("came", "kind"),
    [
        (say("u2"), "message"),
        (edit("nobody", "u2"), "edit"),
        ({"kind": "regenerate"}, "regenerate"),
    ],
)
def test_a_person_who_went_on_is_answered_next(came: dict[str, object], kind: str) -> None:
    seen = boot([say("u1"), came], HEL)
    assert seen["resume"] == resume("none")
    assert seen["messages"] == [user("u1"), bot("a1", "Hel")]
    assert owed(seen) == [([2], kind)]


@pytest.mark.parametrize("came", [{"kind": "action", "name": "x", "input": {}}, {"kind": "close"}])
def test_an_action_or_a_close_waits_for_the_resumed_turn(came: dict[str, object]) -> None:
    seen = boot([say("u1"), came], HEL)
    assert seen["resume"] == resume("retry_response")
    assert owed(seen) == [([2], came["kind"])]


def test_a_person_who_went_on_before_anything_was_added_waits_for_the_model() -> None:
    seen = boot([say("u1"), say("u2")], OPEN)
    assert seen["resume"] == resume("call_model")
    assert seen["messages"] == [user("u1")]
    assert owed(seen) == [([2], "message")]


def test_an_open_turn_that_asked_waits_and_delays_nothing() -> None:
    outs = [start(1, [1], seen=2), begin(), step(), call("c1"), ask("c1", "p1")]
    seen = boot([say("u1"), say("u2")], outs)
    assert seen["resume"] == resume("waiting")
    assert owed(seen) == [([2], "message")]
    assert seen["partial"] == bot("a1", asked("c1", "p1"))


def test_answers_that_are_complete_continue_the_open_turn_before_the_rest() -> None:
    outs = [start(1, [1], clientTools=["where"], seen=2), begin(), step(), call("c1", "where")]
    seen = boot([say("u1"), say("u2"), result("c1", "here")], outs)
    assert seen["resume"] == resume("none")
    assert owed(seen) == [([3], "tool-answers"), ([2], "message")]
    answered = bot("a1", tool("c1", "output-available", "where", output="here"))
    assert seen["pending"][0]["messages"] == [answered]
    assert seen["pending"][0]["messageId"] == "a1"
    assert seen["partial"] == bot("a1", tool("c1", name="where"))


def test_half_an_answer_to_an_open_turn_stays_owed() -> None:
    outs = [start(1, [1], clientTools=["where"]), begin(), step(), call("c1", "where"), call("c2", "where")]
    seen = boot([say("u1"), result("c1")], outs)
    assert seen["resume"] == resume("waiting")
    assert (seen["pending"], seen["spent"]) == ([], [])


def test_a_turn_that_added_nothing_calls_the_model() -> None:
    seen = boot([say("u1")], OPEN)
    assert seen["resume"] == resume("call_model")
    assert (seen["messages"], seen["partial"]) == ([user("u1")], None)


def test_metadata_alone_is_nothing_added_and_not_shown() -> None:
    seen = boot([say("u1")], [start(1, [1]), chunk("start", messageMetadata={"model": "m"}), step()])
    assert seen["resume"] == resume("call_model")
    assert (seen["messages"], seen["partial"]) == ([user("u1")], None)


def test_a_call_of_which_only_input_streamed_is_nothing_added() -> None:
    seen = boot([say("u1")], [*OPEN, chunk("tool-input-start", toolCallId="c1", toolName="run")])
    assert seen["resume"] == resume("call_model")
    assert seen["pendingToolCalls"] == [
        {"toolCallId": "c1", "toolName": "run", "state": "input-streaming", "partIndex": None}
    ]


def test_a_granted_approval_that_an_attempt_took_is_something_added() -> None:
    outs = [
        *OPEN,
        call("c1"),
        ask("c1", "p1"),
        finish(),
        done(1),
        start(2, [2], mode="continue", messageId="a1"),
    ]
    seen = boot([say("u1"), {"kind": "tool-approval", "approvalId": "p1", "approved": True}], outs)
    assert seen["resume"] == {"kind": "recover_tools", "turn": 2, "attempt": 1, "messageId": "a1"}
    assert seen["pendingToolCalls"][0]["state"] == "approval-responded"


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("signal", "continue_response"),
        ("deadline", "continue_response"),
        ("error", "retry_response"),
        ("cancelled", "retry_response"),
        ("stall", "retry_response"),
    ],
)
def test_how_the_worker_let_go_decides_what_becomes_of_its_text(why: str, kind: str) -> None:
    assert boot([say("u1")], [*HEL, release(1, why)])["resume"] == resume(kind)


def test_a_release_of_an_older_attempt_is_forgotten() -> None:
    outs = [
        *HEL,
        release(1, "signal"),
        start(1, [1], attempt=2, mode="continue"),
        begin("a1"),
        *cut_off("lo", "v"),
    ]
    assert boot([say("u1")], outs)["resume"] == resume("retry_response", attempt=2)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("length", {"kind": "continue_response"}),
        ("error", {"kind": "retry_response"}),
        ("interrupted", {"kind": "retry_response"}),
        ("content-filter", {"kind": "seal_error", "reason": "refused"}),
        ("other", {"kind": "seal_error", "reason": "unknown_stop"}),
    ],
)
def test_the_reason_of_a_finish_decides(reason: str, expected: dict[str, str]) -> None:
    seen = boot([say("u1")], [*OPEN, *words("Hello."), finish(reason)])
    assert seen["resume"] == resume("none") | expected


def test_a_call_without_a_result_goes_before_a_refusal() -> None:
    seen = boot([say("u1")], [*OPEN, call("c1"), finish("content-filter")])
    assert seen["resume"] == resume("recover_tools")


def test_the_newest_attempt_is_named() -> None:
    seen = boot([say("u1")], [*HEL, start(1, [1], attempt=4, mode="retry")])
    assert seen["resume"] == resume("call_model", attempt=4)


# -- a message that is owed under an id that another holds --------------------------------------------

NAMESAKE = [say("u1"), say("u1", "other words")]
ANSWERED = [start(1, [1]), begin(), *answer("yes"), done(1)]


def test_it_can_be_stopped_by_the_id_that_it_is_to_bear() -> None:
    seen = boot([*NAMESAKE, stop("msg-in2")], ANSWERED)
    assert (seen["pending"], seen["spent"]) == ([], [2, 3])


def test_it_can_be_edited_by_the_id_that_it_is_to_bear() -> None:
    inputs = [*NAMESAKE, edit("msg-in2", "u3", "what I meant")]
    assert owed(boot(inputs, ANSWERED)) == [([2, 3], "edit")]
    messages = chain(inputs, [*ANSWERED, start(2, [2, 3]), begin(), *answer("so"), done(2)])
    assert [m["id"] for m in messages if m["role"] == "user"] == ["u1", "u3"]


def test_an_edit_of_its_own_id_means_the_message_that_holds_it() -> None:
    seen = boot([*NAMESAKE, edit("u1", "u3", "what I meant")], ANSWERED)
    assert owed(seen) == [([3], "edit"), ([2], "message")]
