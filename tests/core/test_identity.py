"""Message identity: which id a message bears, and that what is settled in it stays."""

from __future__ import annotations

from typing import Any

import pytest
from build import (
    INTERRUPTED,
    answer,
    approve,
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
    finish,
    fold,
    output,
    result,
    say,
    start,
    step,
    tool,
    user,
    words,
)

U1 = [say("u1")]
OPEN = [start(1, [1]), begin(), step()]
STEP = {"type": "step-start"}


def last(outs: list[dict[str, Any]], inputs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = chain(U1 if inputs is None else inputs, outs)[-1]
    return message


# -- message identity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fresh", "regenerate", "action"])
def test_the_first_start_of_the_first_attempt_renames_the_message(mode: str) -> None:
    assert last([start(1, [1], mode=mode), begin("m"), step(), *words("Hi"), done(1)]) == bot("m", "Hi")


def test_without_an_id_the_turn_starts_id_holds_else_a_derived_one() -> None:
    assert last([*OPEN, *words("Hi"), done(1)])["id"] == "a1"
    nameless = {k: v for k, v in start(1, [1]).items() if k != "messageId"}
    assert last([nameless, begin(), step(), *words("Hi"), done(1)])["id"] == "msg-1"


def test_in_a_later_attempt_the_turn_starts_id_holds() -> None:
    outs = [*OPEN, start(1, [1], attempt=2, mode="retry"), begin("m"), step(), *words("Hi"), done(1)]
    assert chain(U1, outs) == [user("u1"), bot("a1", "Hi")]


def test_in_continue_the_turn_starts_id_holds_and_the_message_grows_in_its_place() -> None:
    outs = [*OPEN, call("c1"), finish(), done(1), start(2, [2], mode="action"), *answer("Two."), done(2)]
    outs += [start(3, [3], mode="continue", messageId="a1"), begin("m"), step(), *words("Good."), done(3)]
    inputs = [say("u1"), {"kind": "action", "name": "x", "input": {}}, result("c1")]
    good = {"type": "text", "text": "Good.", "state": "done"}
    grown = bot("a1", tool("c1", "output-available", output="done"), STEP, good)
    assert chain(inputs, outs) == [user("u1"), grown, bot("a2", "Two.")]


def test_a_later_start_with_another_id_opens_the_next_message_and_both_stay() -> None:
    outs = [*OPEN, *words("One"), begin("m2"), step(), *words("Two"), finish(), done(1)]
    assert chain(U1, outs) == [user("u1"), bot("a1", "One"), bot("m2", "Two")]


def test_a_later_start_with_the_same_id_or_none_goes_on() -> None:
    outs = [start(1, [1]), begin("m"), step(), *words("One"), begin("m"), begin(), *words("Two"), done(1)]
    assert last(outs) == bot("m", "One", "Two")


def test_a_start_that_comes_back_to_an_earlier_id_opens_one_more_message() -> None:
    outs = [start(1, [1]), begin("m"), step(), *words("One"), begin("n"), step(), *words("Two")]
    outs += [begin("m"), step(), *words("Three"), done(1)]
    assert chain(U1, outs)[1:] == [bot("m", "One"), bot("n", "Two"), bot("msg-12", "Three")]


def test_an_id_that_is_held_is_never_given_to_another() -> None:
    inputs, first = [say("u1"), say("u2")], [*OPEN, *words("One"), done(1)]
    seen = boot(inputs, [*first, start(2, [2], messageId="a1"), begin(), step(), *words("Two"), done(2)])
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "u2", "msg-8"]
    assert seen["codes"] == ["id-held"]
    seen = boot(inputs, [*first, start(2, [2]), begin("u1"), step(), *words("Two"), done(2)])
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "u2", "msg-9"]
    seen = boot(inputs, [*first, start(2, [2], messageId="u2"), begin(), step(), *words("Two"), done(2)])
    assert [m["id"] for m in seen["messages"]] == ["u1", "a1", "u2", "msg-8"]


def test_a_derived_id_that_is_held_too_gets_a_number() -> None:
    inputs = [say("msg-3"), say("msg-3-2"), say("msg-3", "again", key="k")]
    outs = [
        start(1, [1, 2]),
        done(1),
        start(2, [], messageId="msg-3"),
        begin(),
        step(),
        *words("Hi"),
        done(2),
    ]
    assert [m["id"] for m in chain(inputs[:2], outs)] == ["msg-3", "msg-3-2", "msg-3-3"]


def test_the_writer_asks_for_the_id_that_a_start_will_bear() -> None:
    whole = fold([say("u1")], [start(1, [1])])
    assert whole.start_id({"type": "start", "messageId": "m"}, 2) == "m"
    assert whole.start_id({"type": "start", "messageId": "u1"}, 2) == "msg-2"
    assert whole.start_id({"type": "start"}, 2) == "a1"
    assert whole.open is not None
    assert whole.open.alias == {}  # asking changes nothing


def test_a_stream_that_repeats_a_held_id_goes_on_in_the_message_that_got_another() -> None:
    """The writer rewrites each start; the second `u1` means what the first one became."""
    whole = fold([say("u1")], [start(1, [1])])
    for number in (2, 3):
        named = whole.start_id({"type": "start", "messageId": "u1"}, number)
        whole.chunk(number, {"type": "start", "messageId": named})
        assert whole.open is not None
        whole.open.alias["u1"] = named  # as the writer notes it, once the start is stored
        whole.chunk(number, {"type": "source-url", "sourceId": "s", "url": "https://example.org"})
    assert whole.open is not None
    assert whole.open.done == []
    assert (whole.open.message_id, len(whole.open.current()["parts"])) == ("msg-2", 2)


def test_a_continue_of_a_user_message_opens_a_new_one() -> None:
    outs = [*OPEN, *words("One"), done(1), start(2, [], mode="continue", messageId="u1"), begin("u1"), step()]
    seen = boot(U1, [*outs, *words("Two"), done(2)])
    assert seen["messages"] == [user("u1"), bot("a1", "One"), bot("msg-8", "Two")]
    assert seen["codes"] == ["continue-without-message", "id-held"]


def test_the_next_attempt_names_the_message_that_was_last_by_then() -> None:
    outs = [*OPEN, *words("One"), begin("m2"), step(), *cut_off("Two")]
    outs += [
        start(1, [1], attempt=2, mode="retry", messageId="m2"),
        begin("m2"),
        step(),
        *words("Zwei"),
        done(1),
    ]
    assert chain(U1, outs) == [user("u1"), bot("a1", "One"), bot("m2", "Zwei")]


# -- what is settled stays ------------------------------------------------------------------------------


def test_what_an_earlier_attempt_settled_does_not_change() -> None:
    again = [start(1, [1], attempt=2, mode="continue"), begin("a1")]
    outs = [*OPEN, call("c1"), output("c1", 1), *again, call("c1"), output("c1", 2)]
    seen = boot(U1, outs)
    assert seen["partial"] == bot("a1", tool("c1", "output-available", output=1))
    assert seen["codes"] == ["replayed", "replayed"]
    assert (
        fold(U1, outs).chunk(99, {"type": "tool-output-available", "toolCallId": "c1", "output": 3}) is False
    )


def test_a_call_id_met_again_in_a_new_step_is_a_new_call() -> None:
    again = [start(1, [1], attempt=2, mode="continue"), begin("a1"), step(), call("c1"), output("c1", 2)]
    first, second = (tool("c1", "output-available", output=n) for n in (1, 2))
    assert last([*OPEN, call("c1"), output("c1", 1), *again]) == bot("a1", first, STEP, second)


def test_within_an_attempt_the_newest_result_counts_as_in_a_client() -> None:
    assert last([*OPEN, call("c1"), output("c1", 1), output("c1", 2)]) == bot(
        "a1", tool("c1", "output-available", output=2)
    )


def test_a_result_of_an_older_call_goes_once_to_the_newest_message_where_it_is_unsettled() -> None:
    outs = [
        *OPEN,
        call("c1"),
        done(1, "error"),
        start(2, [2]),
        begin(),
        step(),
        output("c1", 1),
        output("c1", 2),
    ]
    seen = boot([say("u1"), say("u2")], [*outs, *words("Hi"), done(2)])
    assert seen["messages"][1] == bot("a1", tool("c1", "output-available", output=1))
    assert seen["codes"] == ["orphan-output"]


def test_a_late_result_keeps_what_the_provider_says_of_it() -> None:
    late = chunk("tool-output-available", toolCallId="c1", output=1, providerMetadata={"p": {"a": 1}})
    outs = [*OPEN, call("c1"), done(1, "error"), start(2, [2]), begin(), step(), late, *words("Hi"), done(2)]
    settled = tool("c1", "output-available", output=1, resultProviderMetadata={"p": {"a": 1}})
    assert chain([say("u1"), say("u2")], outs)[1] == bot("a1", settled)


def test_progress_of_an_older_call_goes_nowhere() -> None:
    outs = [
        *OPEN,
        call("c1"),
        done(1, "error"),
        start(2, [2]),
        begin(),
        step(),
        output("c1", 1, preliminary=True),
    ]
    seen = boot([say("u1"), say("u2")], outs)
    assert seen["messages"][1] == bot("a1", tool("c1", INTERRUPTED))
    assert seen["codes"] == ["orphan-output"]


def test_an_error_that_cleanup_made_is_replaced_by_one_later_result() -> None:
    again = [start(1, [1], attempt=2, mode="continue"), begin("a1"), output("c1", 1)]
    assert last([*OPEN, call("c1"), *again]) == bot("a1", tool("c1", "output-available", output=1))
    seen = boot(U1, [*OPEN, call("c1"), *again, output("c1", 2)])
    assert seen["partial"] == bot("a1", tool("c1", "output-available", output=1))
    assert seen["codes"] == ["replayed"]


def test_reset_step_reaches_back_to_the_attempts_start_at_most() -> None:
    again = [start(1, [1], attempt=2, mode="continue"), begin("a1"), *words("new", "n"), chunk("reset-step")]
    assert last([*OPEN, *words("old"), *again]) == bot("a1", "old")


def test_a_refused_approval_that_an_attempt_took_is_a_denial_after_cleanup() -> None:
    outs = [*OPEN, call("c1"), ask("c1", "p1"), finish(), done(1)]
    outs += [start(2, [2], mode="continue", messageId="a1"), begin("a1"), done(2, "error")]
    denied = {**asked("c1", "p1"), "state": "output-denied", "approval": {"id": "p1", "approved": False}}
    assert last(outs, [say("u1"), approve("p1", approved=False)]) == bot("a1", denied)
