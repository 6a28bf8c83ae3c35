"""A turn: how it opens and closes, its attempts, what a retry and `keep: false` leave."""

from __future__ import annotations

from typing import Any

import pytest
from build import (
    INTERRUPTED,
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
    release,
    result,
    say,
    start,
    step,
    tool,
    user,
    words,
)

from snapshotter.core.chunks import ChunkError
from snapshotter.core.fold import Fold

U1 = [say("u1")]
OPEN = [start(1, [1]), begin(), step()]
STEP = {"type": "step-start"}


def last(outs: list[dict[str, Any]], inputs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = chain(U1 if inputs is None else inputs, outs)[-1]
    return message


# -- opening and closing --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["finish", "abort"])
def test_no_chunk_closes_a_turn(kind: str) -> None:
    assert fold(U1, [*OPEN, *words("Hi"), chunk(kind)]).open is not None
    assert fold(U1, [*OPEN, *words("Hi"), chunk("error", errorText="x")]).open is not None


def test_a_release_leaves_the_turn_open() -> None:
    whole = fold(U1, [*OPEN, release(1, "signal")])
    assert whole.open is not None
    assert whole.open.released == "signal"


def test_a_turn_start_of_another_turn_closes_the_open_one_as_interrupted() -> None:
    seen = boot([say("u1"), say("u2")], [*OPEN, *cut_off("Hel"), start(2, [2])])
    assert seen["messages"] == [user("u1"), bot("a1", "Hel"), user("u2")]
    assert seen["codes"] == ["turn-left-open"]
    assert seen["cursor"]["in"] == 1


def test_closing_the_session_closes_the_open_turn() -> None:
    whole = fold(U1, [*OPEN, *cut_off("Hel"), {"control": "session-closed"}])
    assert (whole.open, whole.closed) == (None, True)
    assert whole.chain.messages == [user("u1"), bot("a1", "Hel")]
    assert whole.last_turn == {"turn": 1, "status": "interrupted", "messageId": "a1"}


def test_deleting_the_session_leaves_nothing_of_it() -> None:
    outs = [*OPEN, *words("Hi"), done(1, "error", error="secret"), {"control": "state", "set": {"a": 1}}]
    whole = fold(U1, [*outs, {"control": "session-deleted"}])
    assert (whole.chain.messages, whole.state, whole.last_turn, whole.unfinished) == ([], {}, None, [])
    assert (whole.deleted, whole.closed) == (True, True)


def test_after_a_deletion_only_a_create_counts() -> None:
    gone = [*OPEN, {"control": "session-deleted"}]
    late = [
        start(2, [2], epoch=9),
        {"control": "state", "set": {"a": 1}},
        {"control": "fence", "why": "boot"},
    ]
    whole = fold(
        [say("u1"), say("u2")], [*gone, *late, {"control": "history", "op": "put", "message": user("x")}]
    )
    assert (whole.chain.messages, whole.state, whole.open, whole.claim) == ([], {}, None, None)
    codes = ["after-delete", "after-delete", "fence-after-delete", "after-delete"]
    assert [line["code"] for line in whole.report][-4:] == codes


def test_a_second_deletion_spends_what_came_since() -> None:
    gone = {"control": "fence", "why": "delete", "for": 1, "epoch": 2}
    again = {"control": "fence", "why": "delete", "for": 2, "epoch": 3}
    deleted = {"control": "session-deleted"}
    seen = boot([say("u1"), say("u2"), say("u3")], [*OPEN, gone, deleted, again, deleted])
    assert (seen["cursor"]["in"], seen["pending"]) == (2, [])
    assert "after-delete" not in seen["codes"]
    back = {"control": "fence", "why": "create", "for": 2, "epoch": 4}
    whole = fold([say("u1"), say("u2"), say("u3")], [*OPEN, gone, deleted, again, deleted, back])
    assert (whole.epoch, [entry.id for entry in whole.inputs.owed()]) == (4, [3])


def test_who_creates_a_deleted_session_takes_over_from_all_that_came_to_it() -> None:
    gone = [*OPEN, {"control": "session-deleted"}]
    assert fold(U1, [*gone, {"control": "fence", "why": "boot", "epoch": 7}]).epoch == 7
    assert fold(U1, [*gone, start(2, [1], epoch=9)]).epoch == 9


def test_a_create_opens_a_deleted_session_and_spends_what_came_before() -> None:
    create = {"control": "fence", "why": "create", "for": 2}
    seen = boot([say("u1"), say("u2"), say("u3")], [*OPEN, {"control": "session-deleted"}, create])
    assert (seen["messages"], seen["cursor"]["in"]) == ([], 2)
    assert [item["ids"] for item in seen["pending"]] == [[3]]
    assert seen["codes"] == ["turn-left-open", "input-before-create"]


def test_a_delete_spends_what_was_owed_up_to_the_input_that_its_fence_names() -> None:
    fence = {"control": "fence", "why": "delete", "for": 2}
    seen = boot([say("u1"), say("u2"), say("u3")], [fence, {"control": "session-deleted"}])
    assert (seen["messages"], seen["pending"], seen["cursor"]["in"]) == ([], [], 2)
    assert seen["codes"] == ["input-before-delete", "input-before-delete", "input-after-close"]
    assert seen["report"][-1]["detail"] == "came after the session was deleted; is never answered"


def test_after_a_close_only_a_higher_epoch_opens_a_turn() -> None:
    outs = [*OPEN, done(1), {"control": "session-closed"}]
    assert fold(U1, [*outs, start(2, [], epoch=1)]).open is None
    assert fold(U1, [*outs, start(2, [], epoch=2)]).open is not None


@pytest.mark.parametrize("record", [done(2), done(1), {"control": "stash", "data": 1}, chunk("start")])
def test_what_is_of_no_open_turn_is_skipped_and_reported(record: dict[str, Any]) -> None:
    seen = boot(U1, [*OPEN, *words("Hi"), done(1), record])
    assert seen["messages"] == [user("u1"), bot("a1", "Hi")]
    assert len(seen["codes"]) == 1


def test_a_completed_turn_stands_as_a_client_shows_it() -> None:
    text = {"type": "text", "text": "Hel", "state": "streaming"}
    outs = [*OPEN, *cut_off("Hel"), call("c1"), chunk("tool-input-start", toolCallId="c2", toolName="run")]
    half = {"toolCallId": "c2", "type": "tool-run", "state": "input-streaming"}
    assert last([*outs, done(1)]) == bot("a1", text, tool("c1"), half)


@pytest.mark.parametrize("status", ["error", "aborted", "exhausted", "interrupted"])
def test_every_other_end_cleans(status: str) -> None:
    outs = [*OPEN, *cut_off("Hel"), call("c1"), chunk("tool-input-start", toolCallId="c2", toolName="run")]
    assert last([*outs, done(1, status)]) == bot("a1", "Hel", tool("c1", INTERRUPTED))


def test_at_a_close_a_trailing_step_goes_and_an_empty_message_with_it() -> None:
    assert last([*OPEN, *words("Hi"), step(), done(1)]) == bot("a1", "Hi")
    assert chain(U1, [*OPEN, done(1)]) == [user("u1")]


def test_metadata_keeps_an_empty_message_in_a_completed_turn_only() -> None:
    outs = [start(1, [1]), chunk("start", messageMetadata={"m": 1}), step()]
    assert last([*outs, done(1)]) == {"id": "a1", "role": "assistant", "parts": [], "metadata": {"m": 1}}
    assert chain(U1, [*outs, done(1, "error")]) == [user("u1")]


def test_the_last_turn_is_known_by_how_it_ended() -> None:
    whole = fold(
        U1, [*OPEN, finish("length"), done(1, "exhausted", finishReason="length", error="e", reason="r")]
    )
    assert whole.last_turn == {
        "turn": 1,
        "status": "exhausted",
        "messageId": "a1",
        "finishReason": "length",
        "error": "e",
        "reason": "r",
    }


def test_messages_of_turns_that_did_not_complete_are_listed_for_people() -> None:
    assert fold(U1, [*OPEN, *cut_off("Hel"), done(1, "error")]).unfinished == ["a1"]
    assert fold(U1, [*OPEN, *words("Hi"), done(1)]).unfinished == []


# -- attempts -------------------------------------------------------------------------------------------

TWO_STEPS = [*OPEN, *words("Look:"), call("c1"), output("c1"), step(), *cut_off("Then")]
FIRST_STEP = [
    {"type": "text", "text": "Look:", "state": "done"},
    tool("c1", "output-available", output="ok"),
]


def test_continue_keeps_the_cleaned_message() -> None:
    then = {"type": "text", "text": "Then", "state": "done"}
    again = start(1, [1], attempt=2, mode="continue")
    assert last([*TWO_STEPS, again]) == bot("a1", *FIRST_STEP, STEP, then)


def test_retry_keeps_up_to_the_last_step_that_holds_a_settled_part() -> None:
    again = start(1, [1], attempt=2, mode="retry")
    outs = [*TWO_STEPS, again, begin("a1"), step(), *cut_off("Now")]
    assert last(outs) == bot("a1", *FIRST_STEP, STEP, {"type": "text", "text": "Now", "state": "done"})


def test_retry_of_a_text_begins_anew() -> None:
    outs = [*OPEN, *cut_off("Hel"), start(1, [1], attempt=2, mode="retry"), begin("a1"), step()]
    assert last([*outs, *words("Hello.")]) == bot("a1", "Hello.")


def test_retry_of_a_continued_message_keeps_its_seed() -> None:
    outs = [*OPEN, call("c1"), finish(), done(1), start(2, [2], mode="continue", messageId="a1")]
    outs += [begin("a1"), step(), *cut_off("So"), start(2, [2], attempt=2, mode="retry", messageId="a1")]
    outs += [begin("a1"), step(), *words("So be it."), done(2)]
    so = {"type": "text", "text": "So be it.", "state": "done"}
    got = last(outs, [say("u1"), result("c1", 7)])
    assert got == bot("a1", tool("c1", "output-available", output=7), STEP, so)


def test_a_later_attempt_without_client_tools_keeps_the_old() -> None:
    outs = [start(1, [1], clientTools=["run"]), begin(), step(), call("c1")]
    assert last([*outs, start(1, [1], attempt=2, mode="continue")]) == bot("a1", tool("c1"))
    fresh = [*outs, start(1, [1], attempt=2, mode="continue", clientTools=[])]
    assert last([*fresh, step(), call("c2")]) == bot(
        "a1", tool("c1", INTERRUPTED), STEP, tool("c2", INTERRUPTED)
    )


def test_keep_false_leaves_the_seed_and_the_steps_that_hold_settled_parts() -> None:
    outs = [*TWO_STEPS, step(), call("c2"), output("c2"), done(1, "error", keep=False)]
    assert last(outs) == bot("a1", *FIRST_STEP, STEP, tool("c2", "output-available", output="ok"))


def test_keep_false_keeps_metadata_in_a_completed_turn_and_cleans_nothing() -> None:
    outs = [
        *OPEN,
        call("c1"),
        output("c1"),
        *cut_off("Hm"),
        chunk("message-metadata", messageMetadata={"m": 1}),
    ]
    text = {"type": "text", "text": "Hm", "state": "streaming"}
    settled = tool("c1", "output-available", output="ok")
    assert last([*outs, done(1, keep=False)]) == bot("a1", settled, text) | {"metadata": {"m": 1}}


def test_keep_false_of_a_text_leaves_no_message() -> None:
    assert chain(U1, [*OPEN, *cut_off("Hel"), done(1, "aborted", keep=False)]) == [user("u1")]


def test_keep_false_concerns_the_last_message_only() -> None:
    outs = [*OPEN, *words("One"), begin("m2"), step(), *words("Two"), done(1, "error", keep=False)]
    assert chain(U1, outs) == [user("u1"), bot("a1", "One")]


# -- strict ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        ({"type": "start", "messageId": 5}, "wrong-field"),
        ({"type": "tool-output-available", "toolCallId": "c1"}, "missing-field"),
        ({"type": "text-delta", "id": "x", "delta": "y"}, "text-delta-without-start"),
        (
            {"type": "tool-output-error", "toolCallId": "c9", "errorText": "e"},
            "tool-output-error-without-call",
        ),
    ],
)
def test_a_live_turn_refuses_a_chunk_that_breaks_a_rule_and_stays_as_it_was(
    bad: dict[str, Any], rule: str
) -> None:
    live = Fold(strict=True)
    live.feed({"id": 1, "ts": 1, **say("u1")})
    live.apply({"id": 1, "ts": 1, **start(1, [1])})
    live.chunk(2, {"type": "start"})
    assert live.open is not None
    before = live.open.current()
    with pytest.raises(ChunkError) as caught:
        live.chunk(3, bad)
    assert (caught.value.rule, caught.value.at) == (rule, 1)
    assert live.open.current() == before


EMPTY = [*OPEN, chunk("text-start", id="t")]


@pytest.mark.parametrize("status", ["exhausted", "aborted", "error", "interrupted"])
def test_an_empty_text_leaves_no_message_when_its_turn_did_not_complete(status: str) -> None:
    open_ = boot(U1, EMPTY)
    assert (open_["messages"], open_["partial"], open_["resume"]["kind"]) == (
        [user("u1")],
        None,
        "retry_response",
    )
    assert chain(U1, [*EMPTY, done(1, status)]) == [user("u1")]


def test_an_empty_text_of_a_completed_turn_stands_as_a_client_shows_it() -> None:
    seen = chain(U1, [*EMPTY, chunk("text-end", id="t"), finish(), done(1)])
    assert seen == [user("u1"), bot("a1", "")]


def test_an_empty_reasoning_that_bears_a_providers_metadata_is_kept() -> None:
    secret = {"openai": {"reasoningEncryptedContent": "x"}}
    outs = [*EMPTY, chunk("reasoning-start", id="r", providerMetadata=secret), done(1, "aborted")]
    assert [m["id"] for m in chain(U1, outs)] == ["u1", "a1"]
