"""Stops, edits, regenerations, actions, operations on the history, state and context."""

from __future__ import annotations

from typing import Any

import pytest
from build import (
    INTERRUPTED,
    answer,
    applied,
    begin,
    boot,
    bot,
    call,
    chain,
    cut_off,
    done,
    edit,
    finish,
    fold,
    history,
    owed,
    result,
    say,
    start,
    step,
    stop,
    tool,
    user,
    words,
)

ONE = [start(1, [1]), *answer("One."), done(1)]
TWO = [*ONE, start(2, [2]), *answer("Two."), done(2)]
HEL = [start(1, [1]), begin(), step(), *cut_off("Hel")]
U12 = [say("u1"), say("u2")]
REGENERATE = {"kind": "regenerate"}


def ids(inputs: list[dict[str, Any]], outs: list[dict[str, Any]]) -> list[str]:
    return [message["id"] for message in chain(inputs, outs)]


# -- stops ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [stop(), stop("u1")])
def test_a_stop_above_seen_ends_the_attempt_that_answers(which: dict[str, Any]) -> None:
    seen = boot([say("u1"), which], HEL)
    assert (seen["resume"]["kind"], seen["spent"]) == ("seal_aborted", [2])


@pytest.mark.parametrize("which", [stop(), stop("u1")])
def test_a_stop_that_the_attempt_had_seen_is_spent_alone(which: dict[str, Any]) -> None:
    outs = [start(1, [1], seen=2), *HEL[1:]]
    seen = boot([say("u1"), which], outs)
    assert (seen["resume"]["kind"], seen["spent"]) == ("retry_response", [2])


def test_a_stop_counts_against_the_newest_attempt() -> None:
    outs = [*HEL, start(1, [1], attempt=2, mode="retry", seen=2), begin("a1"), step(), *cut_off("Hello")]
    seen = boot([say("u1"), stop()], outs)
    assert (seen["resume"]["kind"], seen["spent"]) == ("retry_response", [2])


def test_a_stop_of_another_message_is_spent_alone() -> None:
    seen = boot([say("u1"), stop("u0")], HEL)
    assert (seen["resume"]["kind"], seen["spent"]) == ("retry_response", [2])


@pytest.mark.parametrize("outs", [[], ONE, HEL])
def test_a_stop_of_a_message_that_is_not_there_is_reported(outs: list[dict[str, Any]]) -> None:
    assert boot([say("u1"), stop("gone")], outs)["codes"] == ["unknown-target"]
    assert boot([say("u1"), stop("u1")], outs)["codes"] == [], "too late, or not: it is there"
    assert boot([say("u1"), edit("u1", "u2"), stop("u2")], outs)["codes"] == []


@pytest.mark.parametrize(("named", "kind"), [("u1", "seal_aborted"), ("u0", "retry_response")])
def test_a_stop_of_a_message_ends_the_turn_that_goes_on_with_its_answer(named: str, kind: str) -> None:
    """A tool was called, its result came, and the person thinks better of it."""
    called = [start(1, [1]), begin(), step(), call("c1"), finish(), done(1)]
    outs = [*called, start(2, [2], mode="continue", messageId="a1"), begin("a1"), step(), *cut_off("Hel")]
    seen = boot([say("u1"), result("c1", 7), stop(named)], outs)
    assert (seen["resume"]["kind"], seen["spent"]) == (kind, [3])


@pytest.mark.parametrize(("named", "kind"), [("u2", "seal_aborted"), ("u1", "retry_response")])
def test_a_stop_of_a_message_ends_the_turn_that_answers_it_anew(named: str, kind: str) -> None:
    outs = [*TWO, start(3, [3], mode="regenerate"), begin(), step(), *cut_off("Hel")]
    seen = boot([*U12, REGENERATE, stop(named)], outs)
    assert (seen["resume"]["kind"], seen["spent"]) == (kind, [4])


def test_a_stop_of_an_older_message_does_not_end_the_turn_of_a_newer_one_that_brings_an_answer_along() -> (
    None
):
    """The answer to the older one waits, and its approval is named by the newer message's turn."""
    called = [start(1, [1]), begin(), step(), call("c1"), call("c2"), finish(), done(1)]
    outs = [*called, start(2, [2, 3]), begin(), step(), *cut_off("Hel")]
    for named, kind in (("u1", "retry_response"), ("u3", "seal_aborted")):
        seen = boot([say("u1"), result("c1", 7), say("u3"), stop(named)], outs)
        assert seen["resume"]["kind"] == kind


@pytest.mark.parametrize("named", ["u1", "u2"])
def test_a_stop_of_any_of_the_messages_that_were_answered_together_ends_what_goes_on(named: str) -> None:
    called = [start(1, [1, 2]), begin(), step(), call("c1"), finish(), done(1)]
    outs = [*called, start(2, [3], mode="continue", messageId="a1"), begin("a1"), step(), *cut_off("Hel")]
    assert boot([*U12, result("c1", 7), stop(named)], outs)["resume"]["kind"] == "seal_aborted"


def test_a_stop_of_the_message_before_an_action_is_spent_alone() -> None:
    outs = [*ONE, start(2, [2], mode="action"), begin(), step(), *cut_off("Hel")]
    seen = boot([say("u1"), {"kind": "action", "name": "x", "input": {}}, stop("u1")], outs)
    assert (seen["resume"]["kind"], seen["spent"]) == ("retry_response", [3])


def test_a_stop_of_an_edits_message_ends_its_attempt() -> None:
    inputs = [say("u1"), edit("u1", "u1b"), stop("u1b")]
    outs = [*ONE, start(2, [2]), begin(), step(), *cut_off("Hel")]
    assert boot(inputs, outs)["resume"]["kind"] == "seal_aborted"


def test_a_stop_ends_a_turn_that_answers_no_message() -> None:
    outs = [*ONE, start(2, [2], mode="regenerate"), begin(), step(), *cut_off("Hel")]
    assert boot([say("u1"), REGENERATE, stop()], outs)["resume"]["kind"] == "seal_aborted"


def test_a_stop_spends_the_owed_message_it_names_which_stands_unanswered() -> None:
    inputs = [say("u1"), say("u2"), stop("u2"), say("u4")]
    seen = boot(inputs, ONE)
    assert (seen["spent"], owed(seen)) == ([2, 3], [([4], "message")])
    assert ids(inputs, [*ONE, applied(2, 3)]) == ["u1", "a1", "u2"]


def test_a_stop_without_a_turn_is_spent_and_touches_no_owed_message() -> None:
    seen = boot([say("u1"), say("u2"), stop()], ONE)
    assert (seen["spent"], owed(seen)) == ([3], [([2], "message")])


def test_a_stop_of_an_owed_message_leaves_the_open_turn_alone() -> None:
    seen = boot([say("u1"), say("u2"), stop("u2")], HEL)
    assert (seen["resume"]["kind"], seen["spent"], seen["pending"]) == ("retry_response", [2, 3], [])


def test_a_stop_spends_an_owed_edit_and_the_edit_takes_place() -> None:
    inputs = [say("u1"), say("u2"), edit("u2", "u3"), stop("u3")]
    assert boot(inputs, TWO)["spent"] == [3, 4]
    assert ids(inputs, [*TWO, applied(3, 4)]) == ["u1", "a1", "u3"]


# -- edits ----------------------------------------------------------------------------------------------


def test_an_edit_replaces_its_message_and_removes_what_followed_when_it_is_taken() -> None:
    inputs = [*U12, edit("u1", "u1", "anew")]
    assert ids(inputs, TWO) == ["u1", "a1", "u2", "a2"]
    outs = [*TWO, start(3, [3]), begin("a1"), step(), *words("Anew."), done(3)]
    assert chain(inputs, outs) == [user("u1", "anew"), bot("a1", "Anew.")]


def test_an_edit_of_what_is_in_the_history_comes_first() -> None:
    assert owed(boot([*U12, edit("u1", "u3")], ONE)) == [([3], "edit"), ([2], "message")]


def test_an_edit_of_a_message_still_owed_takes_its_place_as_one_item() -> None:
    seen = boot([say("u1"), say("u2"), say("u3"), edit("u2", "u2", "better")], ONE)
    assert owed(seen) == [([2, 4], "edit"), ([3], "message")]
    assert seen["pending"][0]["messages"] == [user("u2"), user("u2", "better")]
    taken = chain([say("u1"), say("u2"), edit("u2", "u2", "better")], [*ONE, start(2, [2, 3])])
    assert taken == [user("u1"), bot("a1", "One."), user("u2", "better")]


@pytest.mark.parametrize("again", ["u1", "u3"])
def test_an_edit_of_an_owed_edit_is_one_item_with_it(again: str) -> None:
    """Under the id that the first edit named, or under the one that it brought."""
    seen = boot([say("u1"), edit("u1", "u3"), edit(again, "u4")], ONE)
    assert owed(seen) == [([2, 3], "edit")]


def test_an_edit_of_an_edit_of_an_owed_message_is_one_item_with_both() -> None:
    seen = boot([say("u1"), say("u2"), edit("u2", "u3"), edit("u3", "u4")], ONE)
    assert owed(seen) == [([2, 3, 4], "edit")]
    assert ids([say("u1"), say("u2"), edit("u2", "u3"), edit("u3", "u4")], [*ONE, start(2, [2, 3, 4])]) == [
        "u1",
        "a1",
        "u4",
    ]


def test_an_edit_of_an_id_that_the_history_holds_does_not_mean_an_owed_namesake() -> None:
    inputs = [say("u1"), say("u1", "other words"), edit("u1", "u3")]
    assert owed(boot(inputs, ONE)) == [([3], "edit"), ([2], "message")]


def test_an_edit_without_its_target_appends() -> None:
    inputs = [say("u1"), say("u2"), edit("gone", "u3")]
    assert owed(boot(inputs, ONE)) == [([2], "message"), ([3], "edit")]
    seen = boot(inputs, [*ONE, start(2, [3])])
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "u3"]
    assert seen["codes"] == ["edit-without-target"]


def test_an_edit_of_an_assistant_message_appends() -> None:
    assert ids([say("u1"), edit("a1", "u2")], [*ONE, start(2, [2])]) == ["u1", "a1", "u2"]


# -- regenerate -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "left"),
    [
        ({}, ["u1", "a1", "u2"]),
        ({"messageId": "a1"}, ["u1"]),
        ({"messageId": "a2"}, ["u1", "a1", "u2"]),
        ({"messageId": "u1"}, ["u1"]),
    ],
)
def test_a_regenerate_removes_its_target_and_all_after_it(named: dict[str, str], left: list[str]) -> None:
    assert ids([*U12, REGENERATE | named], [*TWO, start(3, [3], mode="regenerate")]) == left


def test_a_regenerate_removes_only_at_its_first_turn_start() -> None:
    inputs = [*U12, REGENERATE]
    assert ids(inputs, TWO) == ["u1", "a1", "u2", "a2"]
    outs = [*TWO, start(3, [3], mode="regenerate"), begin(), step(), *cut_off("Hm")]
    outs += [start(3, [3], attempt=2, mode="retry"), begin("a3"), step(), *words("New."), done(3)]
    assert ids(inputs, outs) == ["u1", "a1", "u2", "a3"]


def test_a_regenerated_answer_may_bear_the_id_of_the_old() -> None:
    outs = [
        *ONE,
        start(2, [2], mode="regenerate", messageId="a1"),
        begin("a1"),
        step(),
        *words("New."),
        done(2),
    ]
    assert chain([say("u1"), REGENERATE], outs) == [user("u1"), bot("a1", "New.")]


def test_a_target_gone_for_having_no_parts_counts_as_none_given() -> None:
    failed = [*ONE, start(2, [2]), begin(), done(2, "error")]
    inputs = [*U12, {"kind": "regenerate", "messageId": "a2"}]
    assert owed(boot(inputs, failed)) == [([3], "regenerate")]
    assert ids(inputs, [*failed, start(3, [3], mode="regenerate")]) == ["u1", "a1", "u2"]


def test_an_unknown_target_is_reported_and_spent() -> None:
    seen = boot([say("u1"), {"kind": "regenerate", "messageId": "gone"}], ONE)
    assert (seen["spent"], seen["pending"], seen["codes"]) == ([2], [], ["unknown-target"])


# -- actions and close ----------------------------------------------------------------------------------

ACTION = {"kind": "action", "name": "x", "input": {}}


def test_an_action_and_a_close_are_items_in_order() -> None:
    seen = boot([say("u1"), ACTION, {"kind": "close"}, say("u4")], ONE)
    assert owed(seen) == [([2], "action"), ([3], "close"), ([4], "message")]
    assert seen["pending"][0]["messages"] == []


def test_an_action_without_an_answer_leaves_an_open_turn_open() -> None:
    outs = [
        start(1, [1], clientTools=["run"]),
        begin(),
        step(),
        call("c1"),
        history("put", message=user("h")),
        applied(2),
    ]
    seen = boot([say("u1"), ACTION], outs)
    assert (seen["resume"]["kind"], seen["cursor"]["in"]) == ("waiting", 0)
    assert [m["id"] for m in seen["messages"]] == ["h", "u1", "a1"]


# -- operations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "left"),
    [
        (history("put", message=user("h1")), ["u1", "a1", "u2", "a2", "h1"]),
        (history("put", message=bot("a1", "Other.")), ["u1", "a1", "u2", "a2"]),
        (history("put", message={"role": "user", "parts": []}), ["u1", "a1", "u2", "a2", "msg-19"]),
        (history("remove", messageId="a1"), ["u1", "u2", "a2"]),
        (history("truncate-after", messageId="a1"), ["u1", "a1"]),
        (history("replace", messages=[user("h1"), user("h1", "two"), user("u1")]), ["h1", "msg-19", "u1"]),
        (history("clear"), []),
    ],
)
def test_operations_on_the_settled_history(operation: dict[str, Any], left: list[str]) -> None:
    assert ids(U12, [*TWO, operation]) == left


def test_a_put_replaces_in_its_place() -> None:
    assert chain(U12, [*TWO, history("put", message=bot("a1", "Other."))])[1] == bot("a1", "Other.")


@pytest.mark.parametrize(
    "operation",
    [
        history("remove", messageId="none"),
        history("truncate-after", messageId="none"),
        history("turn-upside-down"),
        history("put"),
        history("replace"),
    ],
)
def test_an_operation_with_nothing_to_act_on_is_skipped_and_reported(operation: dict[str, Any]) -> None:
    seen = boot([say("u1")], [*ONE, operation])
    assert ([m["id"] for m in seen["messages"]], seen["codes"]) == (["u1", "a1"], ["unknown-history-op"])


@pytest.mark.parametrize(
    "operation",
    [
        history("remove", messageId="u2"),
        history("truncate-after", messageId="u2"),
        history("put", message=bot("a2", "Mine.")),
    ],
)
def test_an_operation_that_names_a_message_of_the_open_turn_is_refused(operation: dict[str, Any]) -> None:
    outs = [*ONE, start(2, [2]), begin(), step(), *cut_off("Tw"), operation]
    seen = boot(U12, outs)
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "u2", "a2"]
    assert (seen["messages"][3], seen["codes"]) == (bot("a2", "Tw"), ["history-of-open-turn"])


CONTINUED = [start(1, [1]), begin(), step(), call("c1"), finish(), done(1)]
CONTINUED += [start(2, [2], mode="action"), *answer("Two."), done(2)]
CONTINUED += [start(3, [3], mode="continue", messageId="a1"), begin("a1"), step(), *words("So.")]
THREE = [say("u1"), ACTION, result("c1")]


@pytest.mark.parametrize(
    ("operation", "left"),
    [
        (history("clear"), ["a1"]),
        (history("remove", messageId="u1"), ["a2", "a1"]),
        (history("remove", messageId="a2"), ["u1", "a1"]),
        (history("truncate-after", messageId="u1"), ["u1", "a1"]),
        (history("put", message=user("h")), ["u1", "a1", "a2", "h"]),
        (history("replace", messages=[user("h")]), ["h", "a1"]),
        (history("replace", messages=[user("u1"), user("h")]), ["u1", "a1", "h"]),
        (history("replace", messages=[user("u1"), bot("a1", "old"), user("h")]), ["u1", "a1", "h"]),
    ],
)
def test_operations_leave_the_message_that_an_open_turn_continues(
    operation: dict[str, Any], left: list[str]
) -> None:
    seen = boot(THREE, [*CONTINUED, operation, done(3)])
    assert [m["id"] for m in seen["messages"]] == left
    grown = seen["messages"][left.index("a1")]["parts"]
    assert [part["type"] for part in grown] == ["step-start", "tool-run", "step-start", "text"]


def test_an_edit_that_is_spent_is_made_when_the_turn_that_continues_a_message_closes() -> None:
    inputs = [*THREE, edit("u1", "u9"), stop("u9")]
    assert boot(inputs, CONTINUED)["spent"] == [4, 5]
    assert ids(inputs, [*CONTINUED, applied(4, 5)]) == ["u1", "a1", "a2"]
    assert ids(inputs, [*CONTINUED, applied(4, 5), done(3)]) == ["u9"]


def test_a_message_that_is_spent_stands_behind_a_turn_that_continues_a_message() -> None:
    inputs = [*THREE, say("u4"), stop("u4"), edit("u4", "u9")]
    seen = boot(inputs, [*CONTINUED, applied(4, 5)])
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "a2", "u4"]
    assert owed(seen) == [([6], "edit")]
    assert ids(inputs, [*CONTINUED, applied(4, 5), done(3)]) == ["u1", "a1", "a2", "u4"]


@pytest.mark.parametrize("also", [edit("u1", "e9"), edit("e2", "e9")])
@pytest.mark.parametrize("owing", [True, False])
def test_edits_of_one_message_are_one_item_and_the_last_one_stands(also: dict[str, Any], owing: bool) -> None:
    inputs = [say("u1"), edit("u1", "e2"), also, edit("u1", "e10")]
    outs = [] if owing else ONE
    (item,) = owed(boot(inputs, outs))
    assert item == ([1, 2, 3, 4] if owing else [2, 3, 4], "edit")
    assert ids(inputs, [*outs, start(2, item[0]), *answer("Two."), done(2)]) == ["e10", "a2"]
    assert ids(inputs, [*outs, applied(*item[0])]) == ["e10"], "spent, it is the same message"


def test_a_stop_of_an_owed_edit_spends_what_it_replaces() -> None:
    seen = boot([say("u1"), edit("u1", "e2"), stop("e2")], [])
    assert (seen["pending"], seen["spent"]) == ([], [1, 2, 3])
    settled = boot([say("u1"), edit("u1", "e2"), stop("e2")], ONE)
    assert (settled["pending"], settled["spent"]) == ([], [2, 3])


def test_a_stop_of_an_edit_that_a_later_one_replaces_spends_nothing() -> None:
    seen = boot([say("u1"), edit("u1", "e2"), edit("u1", "e3"), stop("e2")], [])
    assert (owed(seen), seen["spent"]) == ([([1, 2, 3], "edit")], [4])


# -- state, stash, context ------------------------------------------------------------------------------


def test_state_is_set_and_unset_key_by_key() -> None:
    outs = [
        {"control": "state", "set": {"a": 1, "b": {"c": 2}}},
        {"control": "state", "set": {"b": 3}, "unset": ["a"]},
    ]
    assert boot([], outs)["state"] == {"b": 3}


def test_the_last_stash_of_a_turn_is_kept_while_it_is_open() -> None:
    whole = fold([say("u1")], [*HEL, {"control": "stash", "data": 1}, {"control": "stash", "data": {"n": 2}}])
    assert whole.open is not None
    assert whole.open.stash == {"n": 2}


CONTEXT = {"control": "context", "upto": "a1", "messages": [user("sum", "so far")]}


def test_a_context_never_changes_the_history() -> None:
    seen = boot(U12, [*TWO, CONTEXT])
    assert seen["context"] == {"upto": "a1", "messages": [user("sum", "so far")]}
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "u2", "a2"]


@pytest.mark.parametrize(
    ("what", "kept"),
    [
        (history("put", message=bot("a1", "Other.")), False),
        (history("put", message=user("u1", "other")), False),
        (history("put", message=bot("a2", "Other.")), True),
        (history("put", message=user("h")), True),
        (history("remove", messageId="u1"), False),
        (history("remove", messageId="u2"), True),
        (history("truncate-after", messageId="u1"), False),
        (history("truncate-after", messageId="a1"), True),
        (history("clear"), False),
        (history("replace", messages=[user("u1")]), False),
        (start(3, [3]), False),
        (start(3, [4]), True),
        (start(3, [5], mode="regenerate"), False),
    ],
)
def test_a_change_of_anything_up_to_it_drops_the_context(what: dict[str, Any], kept: bool) -> None:
    inputs = [*U12, edit("u1", "u3"), edit("u2", "u4"), {"kind": "regenerate", "messageId": "a1"}]
    assert (boot(inputs, [*TWO, CONTEXT, what])["context"] is not None) is kept


def test_a_result_for_a_message_that_a_context_covers_drops_it() -> None:
    called = [start(1, [1]), begin(), step(), call("c1"), done(1, "error"), CONTEXT]
    seen = boot([say("u1"), result("c1", 7)], [*called, applied(2)])
    assert (seen["context"], seen["messages"][1]["parts"][1]["output"]) == (None, 7)
    assert boot([say("u1")], called)["messages"][1] == bot("a1", tool("c1", INTERRUPTED))


def test_a_message_that_grew_under_a_context_drops_it_at_its_close() -> None:
    outs = [*CONTINUED[:-4], CONTEXT, *CONTINUED[-3:]]
    assert boot(THREE, outs)["context"] is not None
    assert boot(THREE, [*outs, done(3)])["context"] is None


def test_a_context_up_to_an_unknown_message_is_skipped() -> None:
    seen = boot([say("u1")], [*ONE, {**CONTEXT, "upto": "none"}])
    assert (seen["context"], seen["codes"]) == (None, ["context-without-message"])
