"""Tool inputs: results, approvals and a client's copy; which way they move a part, and when they act."""

from __future__ import annotations

from typing import Any

import pytest
from build import (
    INTERRUPTED,
    SUPERSEDED,
    answer,
    applied,
    approve,
    ask,
    asked,
    begin,
    boot,
    bot,
    call,
    chain,
    copy_of,
    cut_off,
    done,
    edit,
    finish,
    output,
    owed,
    result,
    say,
    start,
    step,
    tool,
    user,
    words,
)

from snapshotter.core.calls import answer_call

OPEN = [start(1, [1]), begin(), step()]
ASKED = [*OPEN, call("c1"), ask("c1", "p1"), finish(), done(1)]
CALLED = [*OPEN, call("c1"), finish(), done(1)]
TWO = [*OPEN, call("c1"), call("c2"), finish(), done(1)]


def granted(call_id: str, approval: str, approved: bool = True, **more: Any) -> dict[str, Any]:
    fields = {"id": approval, "approved": approved, **more}
    return {**asked(call_id, approval), "state": "approval-responded", "approval": fields}


# -- when they act --------------------------------------------------------------------------------------


def test_an_answer_acts_where_a_turn_start_names_it_and_a_boot_does_not_overlay_it() -> None:
    inputs = [say("u1"), result("c1", 7)]
    seen = boot(inputs, CALLED)
    answered = bot("a1", tool("c1", "output-available", output=7))
    assert seen["messages"][1] == bot("a1", tool("c1"))
    assert seen["pending"] == [
        {"ids": [2], "kind": "tool-answers", "messages": [answered], "messageId": "a1"},
    ]
    assert seen["resume"] == {"kind": "none"}
    taken = boot(inputs, [*CALLED, start(2, [2], mode="continue", messageId="a1")])
    assert taken["messages"][1] == answered


def test_an_answer_acts_where_an_input_applied_names_it() -> None:
    assert chain([say("u1"), result("c1", 7)], [*CALLED, applied(2)])[1] == bot(
        "a1", tool("c1", "output-available", output=7)
    )


def test_an_answer_to_an_open_turns_message_waits_for_its_close() -> None:
    outs = [*OPEN, call("c1"), ask("c1", "p1")]
    inputs = [say("u1"), approve("p1"), say("u3")]
    seen = boot(inputs, [*outs, applied(2)])
    assert seen["partial"] == bot("a1", asked("c1", "p1"))
    assert seen["codes"] == ["unknown-call"]


def test_a_late_answer_to_an_older_open_message_is_not_spent_before_the_close() -> None:
    """It would have no effect there: what is spent is written before the turn is closed."""
    outs = [*CALLED, start(2, [2], mode="action"), *answer("Two."), done(2)]
    outs += [start(3, [3], mode="continue", messageId="a1"), begin("a1"), step(), call("c9"), cut_off("x")[0]]
    inputs = [say("u1"), {"kind": "action", "name": "x", "input": {}}, result("c1"), result("c9"), say("u5")]
    seen = boot(inputs, outs)
    assert (seen["resume"]["kind"], seen["spent"]) == ("none", [])
    assert owed(seen) == [([5], "message")]


# -- forward only ---------------------------------------------------------------------------------------

MOVES = [
    (tool("c1"), result("c1", 7), tool("c1", "output-available", output=7)),
    (
        tool("c1"),
        {"kind": "tool-result", "toolCallId": "c1", "errorText": "no"},
        tool("c1", "output-error", errorText="no"),
    ),
    (tool("c1"), result("c1", None), tool("c1", "output-available", output=None)),
    (asked("c1", "p1"), approve("p1"), granted("c1", "p1")),
    (asked("c1", "p1"), approve("p1", False, reason="why"), granted("c1", "p1", False, reason="why")),
    (
        asked("c1", "p1"),
        {"kind": "tool-approval", "toolCallId": "c1", "approved": True},
        granted("c1", "p1"),
    ),
    (
        granted("c1", "p1"),
        result("c1", 7),
        tool("c1", "output-available", output=7, approval={"id": "p1", "approved": True}),
    ),
    (tool("c1", INTERRUPTED), result("c1", 7), tool("c1", "output-available", output=7)),
    (
        tool("c1", "output-available", output="half", preliminary=True),
        result("c1", 7),
        tool("c1", "output-available", output=7),
    ),
]
STAYS = [
    (tool("c1", "output-available", output=1), result("c1", 2)),
    (tool("c1", "output-error", errorText="e"), result("c1", 2)),
    (tool("c1", SUPERSEDED), result("c1", 2)),
    (tool("c1", "output-denied"), result("c1", 2)),
    (granted("c1", "p1", False), approve("p1")),
    (granted("c1", "p1"), approve("p1", False)),
    (tool("c1"), {"kind": "tool-approval", "toolCallId": "c1", "approved": True}),
    (tool("c1"), result("c2")),
    (asked("c1", "p1"), approve("p2")),
]


@pytest.mark.parametrize(("before", "what", "after"), MOVES)
def test_an_answer_moves_its_part_forward(
    before: dict[str, Any], what: dict[str, Any], after: dict[str, Any]
) -> None:
    message = bot("a1", before)
    assert answer_call(message, what) == bot("a1", after)
    assert message == bot("a1", before)


@pytest.mark.parametrize(("before", "what"), STAYS)
def test_an_answer_without_effect_gives_the_same_message(
    before: dict[str, Any], what: dict[str, Any]
) -> None:
    message = bot("a1", before)
    assert answer_call(message, what) is message


COPIES = [
    (tool("c1"), tool("c1", "output-available", output=7), tool("c1", "output-available", output=7)),
    (tool("c1"), tool("c1", "output-error", errorText="e"), tool("c1", "output-error", errorText="e")),
    (asked("c1", "p1"), granted("c1", "p1"), granted("c1", "p1")),
    (asked("c1", "p1"), granted("c1", "p1", False), granted("c1", "p1", False)),
    (
        tool("c1", INTERRUPTED),
        tool("c1", "output-available", output=7),
        tool("c1", "output-available", output=7),
    ),
]


@pytest.mark.parametrize(("before", "theirs", "after"), COPIES)
def test_a_clients_copy_moves_parts_forward(
    before: dict[str, Any], theirs: dict[str, Any], after: dict[str, Any]
) -> None:
    assert answer_call(bot("a1", before), copy_of(bot("a1", theirs))) == bot("a1", after)


@pytest.mark.parametrize(
    ("before", "theirs"),
    [
        (tool("c1", "output-available", output=1), tool("c1", "output-available", output=2)),
        (tool("c1", "output-available", output=1), tool("c1")),
        (asked("c1", "p1"), tool("c1")),
        (granted("c1", "p1", False), granted("c1", "p1")),
        (tool("c1", "output-denied"), granted("c1", "p1")),
        (tool("c1"), tool("c1", "output-available", output="half", preliminary=True)),
        (tool("c1", INTERRUPTED), tool("c1", INTERRUPTED)),
        (tool("c1"), tool("c1", INTERRUPTED)),
        (tool("c1"), tool("c9", "output-available", output=1)),
    ],
)
def test_a_clients_copy_moves_nothing_back(before: dict[str, Any], theirs: dict[str, Any]) -> None:
    message = bot("a1", before)
    assert answer_call(message, copy_of(bot("a1", theirs, "and other words"))) is message


def test_the_nth_of_a_call_id_in_the_copy_stands_for_the_nth_in_the_message() -> None:
    message = bot("a1", tool("c1", "output-available", output=1), {"type": "step-start"}, tool("c1"))
    theirs = bot("a1", tool("c1", "output-available", output=9), tool("c1", "output-available", output=2))
    moved = answer_call(message, copy_of(theirs))
    assert [part.get("output") for part in moved["parts"]] == [None, 1, None, 2]


# -- which message --------------------------------------------------------------------------------------


def test_an_answer_without_a_message_is_for_the_newest_where_its_call_waits() -> None:
    outs = [*CALLED, start(2, [2], mode="action"), begin(), step(), call("c1"), finish(), done(2)]
    inputs = [say("u1"), {"kind": "action", "name": "x", "input": {}}, result("c1", 7)]
    assert boot(inputs, outs)["pending"][0]["messageId"] == "a2"
    named = [*inputs[:2], result("c1", 7, messageId="a1")]
    assert boot(named, outs)["pending"][0]["messageId"] == "a1"


def test_else_for_the_newest_where_the_call_is_unsettled() -> None:
    outs = [*OPEN, call("c1"), done(1, "error"), start(2, [2], mode="action"), *answer("Two."), done(2)]
    inputs = [say("u1"), {"kind": "action", "name": "x", "input": {}}, result("c1", 7)]
    assert chain(inputs, [*outs, applied(3)])[1] == bot("a1", tool("c1", "output-available", output=7))


@pytest.mark.parametrize(
    "what",
    [result("none"), approve("none"), {"kind": "tool-result"}, result("c1", messageId="none")],
)
def test_unknown_ids_are_reported_and_spent(what: dict[str, Any]) -> None:
    seen = boot([say("u1"), what], CALLED)
    assert (seen["spent"], seen["pending"], seen["codes"]) == ([2], [], ["unknown-call"])
    assert seen["resume"] == {"kind": "waiting", "messageId": "a1"}


def test_a_late_answer_to_a_closed_call_is_reported_and_spent() -> None:
    outs = [*OPEN, call("c1"), output("c1"), finish(), done(1)]
    seen = boot([say("u1"), result("c1", 9, messageId="a1")], outs)
    assert (seen["spent"], seen["pending"], seen["codes"]) == ([2], [], ["late-answer"])


# -- one item -------------------------------------------------------------------------------------------


def test_all_answers_to_one_message_are_one_item_where_the_first_stands() -> None:
    inputs = [say("u1"), result("c1", 1), say("u3"), result("c2", 2)]
    seen = boot(inputs, TWO)
    assert owed(seen) == [([2, 4], "tool-answers"), ([3], "message")]


def test_the_item_is_pending_once_no_call_of_the_message_waits() -> None:
    seen = boot([say("u1"), result("c1", 1), say("u3")], TWO)
    assert owed(seen) == [([3], "message")]
    assert (seen["spent"], seen["resume"]) == ([], {"kind": "waiting", "messageId": "a1"})


def test_answers_without_effect_ride_with_the_others_in_the_order_of_ids() -> None:
    inputs = [say("u1"), approve("p1"), approve("p1", False), say("u4")]
    seen = boot(inputs, ASKED)
    assert owed(seen) == [([2, 3], "tool-answers"), ([4], "message")]
    assert seen["pending"][0]["messages"] == [bot("a1", granted("c1", "p1"))]


def test_a_continue_in_place_leaves_what_stands_behind() -> None:
    outs = [*CALLED, start(2, [2], mode="action"), *answer("Two."), done(2)]
    inputs = [say("u1"), {"kind": "action", "name": "x", "input": {}}, result("c1", 7)]
    assert owed(boot(inputs, outs)) == [([3], "tool-answers")]


# -- the person goes on ---------------------------------------------------------------------------------


def test_a_user_message_closes_what_still_waits() -> None:
    assert chain([say("u1"), say("u2")], [*ASKED, start(2, [2])])[1] == bot(
        "a1", {**asked("c1", "p1"), **SUPERSEDED}
    )
    assert chain([say("u1"), say("u2")], [*CALLED, start(2, [2])])[1] == bot("a1", tool("c1", SUPERSEDED))


def test_answers_that_the_turn_takes_act_first() -> None:
    inputs = [say("u1"), result("c1", 7), say("u3")]
    assert chain(inputs, [*TWO, start(2, [2, 3])])[1] == bot(
        "a1", tool("c1", "output-available", output=7), tool("c2", SUPERSEDED)
    )


def test_a_grant_that_was_not_run_is_superseded_and_a_refusal_stays() -> None:
    inputs = [say("u1"), approve("p1"), say("u3")]
    closed = {**granted("c1", "p1"), **SUPERSEDED}
    assert chain(inputs, [*ASKED, start(2, [2, 3])])[1] == bot("a1", closed)
    refused = [say("u1"), approve("p1", False), say("u3")]
    assert chain(refused, [*ASKED, start(2, [2, 3])])[1] == bot("a1", granted("c1", "p1", False))


def test_an_edit_closes_calls_before_it() -> None:
    outs = [*CALLED, start(2, [2]), *answer("Two."), done(2)]
    inputs = [say("u1"), say("u2"), edit("u2", "u3")]
    again = [*CALLED, {"control": "history", "op": "put", "message": user("u2")}, start(2, [3])]
    assert chain(inputs, [*outs, start(3, [3])])[1] == bot("a1", tool("c1", SUPERSEDED))
    assert chain(inputs, again)[1] == bot("a1", tool("c1", SUPERSEDED))


def test_a_regenerate_or_an_action_closes_nothing() -> None:
    inputs = [say("u1"), {"kind": "action", "name": "x", "input": {}}]
    assert chain(inputs, [*CALLED, start(2, [2], mode="action")])[1] == bot("a1", tool("c1"))


def test_an_answer_that_comes_after_the_person_went_on_is_late() -> None:
    seen = boot([say("u1"), say("u2"), approve("p1")], [*ASKED, start(2, [2]), *answer("Two."), done(2)])
    assert (seen["spent"], seen["codes"][-1]) == ([3], "unknown-call")
    named = approve("p1", messageId="a1")
    seen = boot([say("u1"), say("u2"), named], [*ASKED, start(2, [2]), *answer("Two."), done(2)])
    assert (seen["spent"], seen["codes"][-1]) == ([3], "late-answer")


# -- late results of interrupted calls ------------------------------------------------------------------

DEAD = [*OPEN, *words("Wait."), call("c1"), done(1, "error")]


def test_a_late_result_of_an_interrupted_call_continues_the_last_message() -> None:
    seen = boot([say("u1"), result("c1", 7)], DEAD)
    assert owed(seen) == [([2], "tool-answers")]
    assert seen["resume"] == {"kind": "none"}


def test_a_late_result_for_an_older_message_takes_effect_without_a_turn() -> None:
    inputs = [say("u1"), say("u2"), result("c1", 7)]
    outs = [*DEAD, start(2, [2]), *answer("Two."), done(2)]
    seen = boot(inputs, outs)
    assert (seen["spent"], seen["pending"]) == ([3], [])
    settled = tool("c1", "output-available", output=7)
    assert chain(inputs, [*outs, applied(3)])[1] == bot("a1", "Wait.", settled)


def test_a_late_result_stays_owed_while_another_call_of_its_message_waits() -> None:
    outs = [
        start(1, [1], clientTools=["where"]),
        begin(),
        step(),
        call("c1"),
        call("c2", "where"),
        done(1, "error"),
    ]
    seen = boot([say("u1"), result("c1", 7)], outs)
    assert (seen["spent"], seen["pending"]) == ([], [])
    assert seen["resume"] == {"kind": "waiting", "messageId": "a1"}
