"""Inputs and keys: what is owed, taken, applied; duplicates, conflicts and the window of 31."""

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
    numbered,
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

from snapshotter.core.contract import fold_case
from snapshotter.core.inputs import InputLog, body_hash, is_another, keys_of, role_of
from snapshotter.core.modelview import model_view
from snapshotter.core.redacted import blank
from snapshotter.core.snapshot import decode, encode

ONE = [start(1, [1]), *answer("One."), done(1)]
TWO = [*ONE, start(2, [2]), *answer("Two."), done(2)]


def test_an_input_is_owed_then_taken_then_applied() -> None:
    inputs = [say("u1")]
    assert owed(boot(inputs, [])) == [([1], "message")]
    taken = boot(inputs, [start(1, [1])])
    assert (taken["pending"], taken["cursor"]["in"]) == ([], 0)
    assert boot(inputs, ONE)["cursor"]["in"] == 1


def test_the_cursor_passes_only_what_is_applied_without_a_hole() -> None:
    inputs = [say("u1"), say("u2"), stop("u0")]
    seen = boot(inputs, [applied(3)])
    assert seen["cursor"]["in"] == 0
    assert owed(seen) == [([1], "message"), ([2], "message")]
    assert boot(inputs, [applied(3), *ONE])["cursor"]["in"] == 1
    assert boot(inputs, [applied(3), *ONE, applied(2)])["cursor"]["in"] == 3


def test_a_user_message_stands_once_from_its_turn_start() -> None:
    assert chain([say("u1")], []) == []
    assert chain([say("u1")], [start(1, [1])]) == [user("u1")]


def test_a_message_that_is_spent_stands_behind_an_open_turns_messages_and_closes_no_call() -> None:
    outs = [start(1, [1], seen=3), begin(), step(), call("c1"), *cut_off("Hel"), applied(2, 3)]
    seen = boot([say("u1"), say("u2"), stop("u2")], outs)
    assert seen["messages"] == [user("u1"), bot("a1", tool("c1", INTERRUPTED), "Hel"), user("u2")]
    closed = boot([say("u1"), say("u2"), stop("u2")], [*outs, done(1)])
    assert [m["id"] for m in closed["messages"]] == ["u1", "a1", "u2"]
    assert closed["messages"][1]["parts"][1] == tool("c1")


SPENT = [start(2, [2], seen=2), begin(), step(), *cut_off("Hel")]


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ([say("u3"), stop("u3")], ["u1", "a1", "u2", "a2", "u3"]),
        ([say("u3"), edit("u3", "e4"), stop("e4")], ["u1", "a1", "u2", "a2", "e4"]),
        ([edit("u2", "e3"), stop("e3")], ["u1", "a1", "e3"]),
        ([edit("u1", "u1", "new"), stop("u1")], ["u1"]),
        ([edit("u9", "e3"), stop("e3")], ["u1", "a1", "u2", "a2", "e3"]),
        ([say("u1", "another"), stop("u1")], ["u1", "a1", "u2", "a2", "msg-in3"]),
    ],
)
@pytest.mark.parametrize("status", ["completed", "interrupted"])
def test_what_is_spent_while_a_turn_is_open_is_as_if_it_were_spent_behind_it(
    sent: list[dict[str, Any]], left: list[str], status: str
) -> None:
    inputs = [say("u1"), say("u2"), *sent]
    spent = applied(*range(3, len(inputs) + 1))
    inside = boot(inputs, [*ONE, *SPENT, spent, done(2, status)])
    behind = boot(inputs, [*ONE, *SPENT, done(2, status), spent])
    assert [m["id"] for m in inside["messages"]] == left
    assert {**inside, "report": behind["report"]} == behind
    still = boot(inputs, [*ONE, *SPENT, spent])["messages"]
    assert [m["id"] for m in still][:4] == ["u1", "a1", "u2", "a2"], "an edit is made when the turn closes"


def test_a_message_that_was_spent_while_a_turn_was_open_can_be_edited_before_it_closes() -> None:
    inputs = [say("u1"), say("u2"), stop("u2"), edit("u2", "e4")]
    seen = boot(inputs, [start(1, [1], seen=4), begin(), step(), *cut_off("Hel"), applied(2, 3)])
    assert owed(seen) == [([4], "edit")]
    outs = [*ONE[:-1], applied(2, 3), done(1), start(2, [4]), *answer("Two."), done(2)]
    assert [m["id"] for m in chain(inputs, outs)] == ["u1", "a1", "e4", "a2"]


def test_the_id_of_a_message_that_waits_for_the_close_is_held() -> None:
    inputs = [say("u1"), say("u2"), stop("u2")]
    outs = [start(1, [1], seen=3), applied(2, 3), begin("u2"), step(), *words("Hi."), finish(), done(1)]
    assert [m["id"] for m in chain(inputs, outs)] == ["u1", "msg-3", "u2"]


def test_the_model_of_an_open_turn_does_not_see_what_was_spent_meanwhile() -> None:
    inputs = [say("u1"), {"kind": "regenerate"}, say("u2"), stop("u2")]
    outs = [*ONE, start(2, [2], mode="regenerate"), begin(), step(), *cut_off("Hel"), applied(3, 4)]
    whole = fold(inputs, outs)
    assert whole.open is not None
    seen = model_view(whole, [whole.open.cleaned().message])
    assert [m["id"] for m in seen] == ["u1", "a2"]


def test_what_is_spent_stands_behind_the_items_before_it() -> None:
    """Else an edit of it would remove them, and their answers."""
    inputs = [say("u1"), say("u2"), say("u3"), stop("u3")]
    seen = boot(inputs, ONE)
    assert (owed(seen), seen["spent"]) == ([([2], "message")], [])
    assert boot(inputs, [*ONE, start(2, [2], seen=4)])["spent"] == [3, 4]


def test_an_edit_of_the_history_that_is_spent_is_made_before_the_items() -> None:
    inputs = [say("u1"), say("u2"), edit("u1", "e3"), stop("e3")]
    seen = boot(inputs, ONE)
    assert (owed(seen), seen["spent"]) == ([([2], "message")], [3, 4])
    assert [m["id"] for m in chain(inputs, [*ONE, applied(3, 4), *TWO[len(ONE) :]])] == ["e3", "u2", "a2"]


def test_an_input_that_is_taken_is_not_spent_by_an_input_applied() -> None:
    seen = boot([say("u1")], [start(1, [1]), applied(1), begin(), step(), *cut_off("Hel")])
    assert seen["messages"] == [user("u1"), bot("a1", "Hel")]


def test_what_was_applied_has_no_second_effect() -> None:
    inputs = [say("u1"), say("u2")]
    seen = boot(inputs, [*ONE, applied(1), start(2, [1, 2]), *answer("Two."), done(2)])
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "u2", "a2"]


def test_a_turn_after_an_interrupted_one_takes_its_inputs_anew_and_the_message_stands_once() -> None:
    outs = [start(1, [1]), begin(), step(), *cut_off("Hel"), done(1, "interrupted"), start(2, [1])]
    seen = boot([say("u1")], [*outs, *answer("Hello."), done(2)])
    assert seen["messages"] == [user("u1"), bot("a1", "Hel"), bot("a2", "Hello.")]
    assert seen["cursor"]["in"] == 1


def test_taken_anew_a_message_is_appended_where_the_chain_no_longer_holds_it() -> None:
    outs = [start(1, [1]), done(1, "interrupted"), {"control": "history", "op": "clear"}, start(2, [1])]
    assert chain([say("u1")], outs) == [user("u1")]


def test_taken_anew_an_edit_stands_once_with_what_it_replaced() -> None:
    outs = [start(1, [1, 2]), begin(), step(), *cut_off("Hel"), done(1, "interrupted"), start(2, [1, 2])]
    assert chain([say("u1"), edit("u1", "u9")], outs) == [user("u9"), bot("a1", "Hel")]


def test_taken_anew_a_regenerate_removes_nothing_more() -> None:
    inputs = [say("u1"), {"kind": "regenerate"}]
    outs = [*ONE, start(2, [2], mode="regenerate"), begin(), step(), *cut_off("Two"), done(2, "interrupted")]
    seen = boot(inputs, [*outs, start(3, [2], mode="regenerate")])
    assert seen["messages"] == [user("u1"), bot("a2", "Two")]


def test_taken_anew_works_over_several_interrupted_turns() -> None:
    outs = [start(1, [1]), done(1, "interrupted"), start(2, [2]), done(2, "interrupted"), start(3, [1, 2])]
    assert chain([say("u1"), say("u2")], outs) == [user("u1"), user("u2")]


@pytest.mark.parametrize("last", [{}, {"for": 3}])
def test_an_input_that_out_names_and_in_lacks_is_a_gap_of_in(last: dict[str, Any]) -> None:
    named = {"control": "fence", "why": "create"} | last if last else applied(3)
    expected = {"error": "gap", "log": "in", "missing": [2, 3]}
    assert fold_case(numbered([say("u1")]), numbered([named])) == expected


def test_a_hole_in_the_in_log_is_a_gap() -> None:
    inputs = [{"id": 1, **say("u1")}, {"id": 4, **say("u4")}]
    assert fold_case(inputs, []) == {"error": "gap", "log": "in", "missing": [2, 3]}


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "wave"},
        {},
        {"kind": "message"},
        {"kind": "message", "message": {"id": "x", "role": "system", "parts": []}},
        {"kind": "message", "message": {"id": "x", "role": "user", "parts": "text"}},
        {"kind": "edit", "message": user("u2")},
        {"kind": "stop", "messageId": ["u1"]},
    ],
)
def test_what_is_not_understood_stays_owed_is_reported_and_not_pending(odd: dict[str, Any]) -> None:
    assert role_of(odd) == "unknown"
    seen = boot([odd, say("u2")], [])
    assert owed(seen) == [([2], "message")]
    assert (seen["cursor"]["in"], seen["spent"], seen["codes"]) == (0, [], ["unknown-input-kind"])


def test_what_comes_after_the_session_closed_stays_owed_is_reported_and_not_pending() -> None:
    outs = [*ONE, applied(2), {"control": "session-closed"}]
    seen = boot([say("u1"), {"kind": "close"}, say("u3"), stop()], outs)
    assert (seen["pending"], seen["spent"], seen["cursor"]["in"]) == ([], [], 2)
    assert seen["codes"] == ["input-after-close", "input-after-close"]


# -- keys -----------------------------------------------------------------------------------------------


def test_a_user_message_has_two_keys_and_others_the_one_given() -> None:
    assert keys_of(say("u1", key="k")) == ["u1", "k"]
    assert keys_of(say("u1")) == ["u1"]
    assert keys_of(stop("u1")) == []
    assert keys_of(edit("u1", "u2", key="k")) == ["k"]
    assert keys_of({"kind": "message", "message": bot("a1", "x"), "key": "k"}) == ["k"]


def test_a_long_key_is_kept_as_its_hash() -> None:
    assert keys_of({"kind": "close", "key": "k" * 64}) == ["k" * 64]
    assert keys_of({"kind": "close", "key": "k" * 65}) == [
        "f39cdc2584758c99cf81c1f41d2572f54e17066afffc9d187aeafe5f7cbe2122"
    ]


def test_the_body_is_the_kind_and_its_own_fields() -> None:
    plain = body_hash(say("u1"))
    same = {"id": 9, "ts": 5, "key": "k", "metadata": {"a": 1}, "body": {"b": 2}, "clientTools": ["t"]}
    assert body_hash(same | say("u1")) == plain
    assert body_hash({"from": "another release"} | say("u1")) == plain
    assert body_hash(say("u1", "other words")) != plain
    backwards = {"message": dict(reversed(user("u1").items())), "kind": "message"}
    assert body_hash(backwards) == plain
    assert body_hash({"kind": "wave", "hand": 1}) != body_hash({"kind": "wave", "hand": 2})


@pytest.mark.parametrize(
    "again",
    [say("u1", key="other"), say("u1", metadata={"n": 2}), say("u1", body={"m": 1}, clientTools=["t"])],
)
def test_the_same_key_and_body_is_one_message_and_one_answer(again: dict[str, Any]) -> None:
    seen = boot([say("u1"), again], [])
    assert owed(seen) == [([1], "message")]
    assert seen["codes"] == ["duplicate-input"]
    answered = boot([say("u1"), again], ONE)
    assert answered["messages"] == [user("u1"), bot("a1", "One.")]
    assert (answered["pending"], answered["cursor"]["in"]) == ([], 2)


def test_a_given_key_makes_a_duplicate_of_any_kind() -> None:
    action = {"kind": "action", "name": "x", "input": {}, "key": "k"}
    assert owed(boot([action, action], [])) == [([1], "action")]
    without = {"kind": "action", "name": "x", "input": {}}
    assert owed(boot([without, without], [])) == [([1], "action"), ([2], "action")]


def test_a_turn_that_names_a_duplicate_takes_its_first() -> None:
    for named in ([2], [1, 2]):
        seen = boot([say("u1"), say("u1")], [start(1, named), *answer("One."), done(1)])
        assert seen["messages"] == [user("u1"), bot("a1", "One.")]
        assert (seen["pending"], seen["cursor"]["in"]) == ([], 2)


def test_another_body_is_a_conflict_and_stands_on_its_own() -> None:
    inputs = [say("u1", "x"), say("u1", "y"), say("u1", "y")]
    seen = boot(inputs, [start(1, [1]), *answer("X."), done(1), start(2, [2]), *answer("Y."), done(2)])
    assert seen["messages"] == [user("u1", "x"), bot("a1", "X."), user("msg-in2", "y"), bot("a2", "Y.")]
    assert seen["codes"] == ["key-conflict", "duplicate-input", "id-held"]
    assert seen["cursor"]["in"] == 3


def test_the_window_is_the_31_inputs_before() -> None:
    between = [stop() for _ in range(30)]
    assert boot([say("u1"), *between, say("u1")], [])["codes"] == ["duplicate-input"]
    assert boot([say("u1"), *between, stop(), say("u1")], [])["codes"] == []


def test_every_other_is_a_first_again() -> None:
    """A duplicate does not carry its key on: the window is counted from the first."""
    near = [stop() for _ in range(20)]
    seen = boot([say("u1"), *near, say("u1"), *near, say("u1")], [])
    assert seen["codes"] == ["duplicate-input"]
    assert owed(seen) == [([1], "message"), ([43], "message")]


def test_keys_outlive_a_removal() -> None:
    outs = [*ONE, {"control": "history", "op": "clear"}]
    seen = boot([say("u1"), say("u1")], outs)
    assert (seen["messages"], seen["pending"], seen["cursor"]["in"]) == ([], [], 2)


def test_a_snapshot_carries_the_keys_of_the_last_32_inputs() -> None:
    inputs = [say(f"u{n}") for n in range(1, 41)]
    document = decode(encode(fold(inputs, [applied(*range(1, 41))]), "n", 0))
    assert [row[:2] for row in document["keys"]] == [[n, f"u{n}"] for n in range(9, 41)]
    assert document["keys"][0][2] == body_hash(say("u9"))
    later = [{"id": 41, **say("u10")}, {"id": 42, **say("u10")}, {"id": 43, **say("u13")}]
    seen = fold_case(later, [], document)
    assert [line["detail"] for line in seen["report"]] == [
        "same key and body as input 10; answered once",
        "same key and body as input 13; answered once",
    ]
    assert owed(seen) == [([42], "message")]


def test_answers_that_are_late_are_spent_for_the_worker_to_write() -> None:
    seen = boot([say("u1"), result("nobody")], ONE)
    assert (seen["spent"], seen["pending"], seen["codes"]) == ([2], [], ["unknown-call"])


def test_spending_costs_nothing_however_many_inputs_it_covers() -> None:
    known = InputLog(10**15, [10**15 + 2])
    known.spend(3)
    assert (known.applied_upto, known.snapshot_applied()) == (10**15, [10**15 + 2])
    known.spend(10**15 + 1)
    assert (known.applied_upto, known.snapshot_applied()) == (10**15 + 2, [])


def test_what_is_spent_takes_its_copies_with_it() -> None:
    fence = {"control": "fence", "why": "create", "for": 1, "epoch": 2}
    seen = boot([say("u1"), say("u1"), say("u2")], [fence])
    assert owed(seen) == [([3], "message")]
    assert seen["cursor"]["in"] == 2


def test_what_a_deletion_left_of_an_input_is_applied_and_no_sign_of_a_loss() -> None:
    assert owed(boot([{"kind": "deleted"}, say("u2")], [])) == [([2], "message")]
    assert not is_another({"id": 1, "kind": "deleted"}, [[1, "u1", "00"]])


def test_what_was_written_anew_is_no_sign_of_another_log() -> None:
    assert is_another({"id": 1, **say("u1")}, [[1, "u1", "00"]])
    assert not is_another({"id": 1, **anew(say("u1"), 1)}, [[1, "u1", "00"]])


def redacted(*numbers: int) -> dict[str, Any]:
    return {"control": "history", "op": "redact", "inputs": list(numbers)}


def announced(*pairs: tuple[int, int]) -> dict[str, Any]:
    return {"kind": "redaction", "inputs": [list(pair) for pair in pairs]}


def anew(record: dict[str, Any], first: int) -> dict[str, Any]:
    return {**record, "message": blank(record["message"]), "redacted": first}


def test_of_an_owed_message_that_is_redacted_what_is_left_is_answered() -> None:
    seen = boot([say("u1"), say("u2"), say("u1")], [redacted(1, 3)])
    (first, second) = seen["pending"]
    assert (first["ids"], second["ids"]) == ([1], [2])
    assert first["messages"] == [blank(say("u1")["message"])]
    assert second["messages"] == [say("u2")["message"]]


def test_what_is_sent_behind_a_redaction_is_no_copy_of_what_was_redacted() -> None:
    for brought in (say("u1"), anew(say("u1"), 1)):
        seen = boot([brought, announced((1, 1)), say("u1")], [redacted(1, 2)])
        assert owed(seen) == [([1], "message"), ([3], "message")]


def test_a_copy_stays_one_whichever_of_the_two_was_written_anew() -> None:
    one, two = say("u1"), say("u1")
    for brought in ([one, two], [anew(one, 1), two], [one, anew(two, 1)], [anew(one, 1), anew(two, 1)]):
        seen = boot([*brought, announced((1, 1), (2, 1))], [redacted(1, 2, 3)])
        assert owed(seen) == [([1], "message")]
        assert seen["cursor"]["in"] == 0


def test_two_of_one_id_stay_two_when_both_are_written_anew() -> None:
    one, two = say("u1"), say("u1", "other words")
    for brought in ([one, two], [anew(one, 1), anew(two, 2)]):
        seen = boot([*brought, announced((1, 1), (2, 2))], [redacted(1, 2, 3)])
        assert owed(seen) == [([1], "message"), ([2], "message")]


def test_what_a_redaction_names_may_be_anything() -> None:
    for odd in (None, 7, [1], [[1]], [[1, "1"]], [[2, 2]], [[9, 1]], [[1, 9]]):
        seen = boot([say("u1"), {"kind": "redaction", "inputs": odd}, say("u1")], [])
        assert owed(seen)[0] == ([1], "message")


def test_a_redaction_says_which_of_its_inputs_are_applied_and_of_no_other() -> None:
    told = {**redacted(1, 2, 3), "applied": [2, 4, 9, "1", None]}
    seen = boot([say("u1"), say("u2"), announced((1, 1), (2, 2)), say("u4")], [told])
    assert owed(seen) == [([1], "message"), ([4], "message")]
    assert owed(boot([say("u1")], [{**redacted(1), "applied": 1}])) == [([1], "message")]


def test_what_was_applied_is_not_redacted_by_an_input() -> None:
    seen = boot([say("u1"), say("u2")], [applied(1), redacted(1)])
    assert seen["messages"] == [say("u1")["message"]]


def test_a_snapshot_says_which_owed_inputs_are_redacted() -> None:
    before = fold([say("u1"), say("u2")], [redacted(1, 2), applied(2)])
    document = decode(encode(before, "n", 0))
    assert document["redacted"] == [1]
    later = fold_case([{"id": 1, **say("u1")}, {"id": 2, **say("u2")}], [], document)
    assert later["pending"][0]["messages"] == [blank(say("u1")["message"])]
