"""Where a history can be picked up again: every kind, every refusal, and what the model is told."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from build import INTERRUPTED, SUPERSEDED, asked, bot, tool, user

from snapshotter.core.classify import Classified, NotResumable, classify_resume
from snapshotter.core.onward import CONTINUE, START_AGAIN, for_model
from snapshotter.core.resume import describe, stop_of
from snapshotter.errors import InvalidValue

Message = dict[str, Any]
HI = {"role": "user", "content": "hi"}
U1 = user("u1")
DONE = {"state": "output-available", "output": 1}
PROGRESS = {"state": "output-available", "output": "half", "preliminary": True}
GRANTED = {"state": "approval-responded", "approval": {"id": "p", "approved": True}}
DENIED = {"state": "approval-responded", "approval": {"id": "p", "approved": False}}
STREAMING = {"type": "text", "text": "Hel", "state": "streaming"}
STEP = {"type": "step-start"}


def said(**more: Any) -> Message:
    return {"role": "assistant", "content": "so far", **more}


def calls(*ids: str) -> list[Message]:
    return [{"id": call, "name": f"tool-{call}"} for call in ids]


def answer(call: str) -> Message:
    return {"role": "tool", "tool_call_id": call, "content": "x"}


def verdict(*messages: Any, turn: Any = None, **options: Any) -> str:
    """The kind, or the reason of a refusal."""
    try:
        found = classify_resume(list(messages), turn, **options)
        kind, told = found.kind, found.description
    except NotResumable as refusal:
        kind, told = refusal.reason, str(refusal)
    assert one_sentence(told)
    return kind


def one_sentence(text: str) -> bool:
    return text.endswith(".") and text.count(".") == 1 and text[0].isupper() and "\n" not in text


# -- plain histories --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "empty"),
        ([{"role": "system", "content": "be kind"}], "empty"),
        ([HI], "call_model"),
        ([HI, said(), {"role": "agent", "content": "run the tests"}], "call_model"),
        ([HI, {"role": "developer", "content": "be kind"}], "call_model"),
        ([HI, said()], "completed"),
        ([HI, said(stop="end_turn")], "completed"),
        ([HI, said(finish_reason="stop")], "completed"),
        ([HI, said(tool_calls=calls("c1"), stop="tool_use")], "recover_tools"),
        ([HI, said(tool_calls=calls("c1"), stop="interrupted")], "recover_tools"),
        ([HI, said(tool_calls=calls("c1", "c2")), answer("c2")], "recover_tools"),
        ([HI, said(tool_calls=calls("c1", "c2")), answer("c2"), answer("c1")], "call_model"),
        ([HI, said(tool_calls=calls("c1")), answer("c9")], "recover_tools"),
        ([HI, said(tool_calls=calls("c1")), HI], "call_model"),
        ([HI, answer("c1")], "malformed"),
        ([answer("c1")], "malformed"),
        ([HI, said(), answer("c1")], "malformed"),
        ([HI, said(stop={"reason": "interrupted", "raw": "network_error"})], "retry_response"),
        ([HI, said(stop_reason="network_error")], "retry_response"),
        ([HI, said(finish_reason="length")], "continue_response"),
        ([HI, said(stop="max_output")], "continue_response"),
        ([HI, said(stop="pause_turn")], "call_model"),
        ([HI, said(stop="content_filter")], "refused"),
        ([HI, said(stop="context_full")], "context_full"),
        ([HI, said(stop="weird")], "unknown_stop"),
        ([HI, said(stop={"reason": "other"})], "unknown_stop"),
    ],
)
def test_plain_histories(messages: list[Message], expected: str) -> None:
    assert verdict(*messages) == expected


def test_the_calls_without_a_result_are_listed_and_their_tools_named() -> None:
    found = classify_resume([HI, said(tool_calls=calls("c1", "c2", "c3")), answer("c2")])
    assert found.unanswered == ("c1", "c3")
    assert "tool-c1 and tool-c3" in found.description
    assert found.to_json().keys() == {"kind", "description", "unanswered"}


def test_a_name_may_stand_in_the_calls_function() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
    assert "grep" in classify_resume([HI, said(tool_calls=[call])]).description


@pytest.mark.parametrize("word", ["content-filter", "Content_Filter", " safety "])
def test_a_stop_is_understood_in_any_spelling(word: str) -> None:
    assert stop_of(word) == "refused"


def test_a_plain_answer_without_a_stop_takes_what_is_known_of_its_turn() -> None:
    assert verdict(HI, said(), turn={"status": "interrupted"}) == "retry_response"
    assert verdict(HI, said(), turn={"status": "completed"}) == "completed"
    assert verdict(HI, said(), turn={"finishReason": "length"}) == "continue_response"


# -- UIMessages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["Hello."], "completed"),
        ([], "call_model"),
        ([STREAMING], "retry_response"),
        ([tool("c1", "input-streaming")], "retry_response"),
        ([{"type": "reasoning", "text": "hm", "state": "done"}], "retry_response"),
        ([tool("c1")], "recover_tools"),
        ([tool("c1", DONE), tool("c2")], "recover_tools"),
        ([tool("c1", PROGRESS)], "recover_tools"),
        ([tool("c1", GRANTED)], "recover_tools"),
        ([tool("c1", INTERRUPTED)], "recover_tools"),
        ([tool("c1"), STEP, "Hello."], "recover_tools"),
        ([tool("c1", INTERRUPTED), STEP, "Hello."], "completed"),
        ([tool("c1", SUPERSEDED), STEP, "Hello."], "completed"),
        ([tool("c1", DENIED)], "call_model"),
        ([tool("c1", DONE), tool("c2", "output-denied")], "call_model"),
        (["Let me look.", tool("c1", DONE)], "call_model"),
        ([tool("c1", DONE), STEP], "call_model"),
        ([tool("c1", DONE), STEP, "Hello."], "completed"),
        ([tool("c1", DONE), "Hello."], "completed"),
        ([tool("c1", DONE), STEP, STREAMING], "retry_response"),
        ([asked("c1", "p")], "waiting"),
        ([asked("c1", "p"), tool("c2")], "waiting"),
        ([{"type": "tool-run", "state": "input-available"}], "malformed"),
        ([tool("c1", "half-way")], "malformed"),
    ],
)
def test_an_answer_of_which_nothing_is_known_but_its_parts(parts: list[Any], expected: str) -> None:
    assert verdict(U1, bot("a1", *parts)) == expected


@pytest.mark.parametrize(
    ("turn", "parts", "expected"),
    [
        ({}, ["Hello."], "retry_response"),
        ({"status": "interrupted"}, ["Hello."], "retry_response"),
        ({"status": "aborted"}, ["Hel"], "retry_response"),
        ({"status": "exhausted"}, ["Hel"], "retry_response"),
        ({"why": "deadline"}, [STREAMING], "continue_response"),
        ({"why": "signal"}, ["Hel"], "continue_response"),
        ({"why": "stall"}, ["Hel"], "retry_response"),
        ({"finishReason": "length"}, ["Hel"], "continue_response"),
        ({"finishReason": "stop"}, ["Hello."], "completed"),
        ({"finishReason": "content-filter"}, [], "refused"),
        ({"finishReason": "content-filter"}, [tool("c1")], "recover_tools"),
        ({"finishReason": "context-full"}, ["Hel"], "context_full"),
        ({"finishReason": "other"}, ["Hel"], "unknown_stop"),
        ({"status": "error"}, [], "call_model"),
        ({"status": "completed"}, [], "completed"),
        ({"status": "completed"}, ["Hello."], "completed"),
        ({"status": "completed", "finishReason": "length"}, ["Hel"], "continue_response"),
        ({"status": "completed"}, [tool("c1")], "waiting"),
        ({"status": "completed"}, [tool("c1", GRANTED)], "call_model"),
        ({"status": "completed"}, [tool("c1", PROGRESS)], "recover_tools"),
        ({"status": "completed"}, [tool("c1", INTERRUPTED), STEP, "Hello."], "completed"),
        ({"clientTools": ["run"]}, [tool("c1")], "waiting"),
        ({"clientTools": ["other"]}, [tool("c1")], "recover_tools"),
        ({"status": "interrupted"}, [tool("c1", INTERRUPTED), STEP, "Hel"], "recover_tools"),
    ],
)
def test_an_answer_whose_turn_is_known(turn: Message, parts: list[Any], expected: str) -> None:
    assert verdict(U1, bot("a1", *parts), turn=turn) == expected


def test_what_waits_is_listed() -> None:
    found = classify_resume([U1, bot("a1", tool("c0", DONE), asked("c1", "p", name="pay"))])
    assert found == Classified("waiting", "A person or a client has to answer first (pay).", ("c1",))


def test_a_user_message_last_is_never_answered() -> None:
    assert verdict(U1, bot("a1", tool("c1")), user("u2")) == "call_model"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "robot"}],
        [{"content": "hi"}],
        ["hi"],
        [None],
        [{"role": "tool"}],
        [{"role": "assistant", "tool_calls": [{"name": "x"}]}],
        [{"role": "assistant", "tool_calls": "x"}],
        [{"role": "assistant", "stop": 5}],
        [{"role": "assistant", "stop": {"reason": "no such"}}],
        [{"role": "assistant", "stop": {"raw": 5}}],
        [{"role": "assistant", "parts": None}],
        [{"role": "assistant", "parts": ["x"]}],
        [{"role": "tool", "parts": []}],
        [{"role": "robot"}, HI],
    ],
)
def test_what_is_no_history_is_refused_with_its_place(messages: list[Any]) -> None:
    with pytest.raises(InvalidValue, match=r"messages\[0\]") as refused:
        classify_resume(messages)
    assert refused.value.path.startswith("messages[0]")


@pytest.mark.parametrize("turn", [3, "x", {"status": "odd"}, {"why": 1}, {"clientTools": "run"}])
def test_what_says_nothing_of_a_turn_is_refused(turn: Any) -> None:
    with pytest.raises(InvalidValue, match="turn"):
        classify_resume([U1], turn)


# -- policies, and what the model is told --------------------------------------------------------------------


def test_the_sentence_says_what_becomes_of_each_tool() -> None:
    told = describe("recover_tools", ["b", "a", "c"], {"b": "rerun", "c": "reattach"})
    assert told == (
        "The request stopped while tools were running: a will be reported to the model as interrupted, "
        "b will run again, c will be picked up where it was."
    )


def test_an_unknown_policy_or_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="use interrupted, rerun or reattach"):
        classify_resume([U1], policies={"run": "twice"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="use interrupted, rerun or reattach"):
        for_model([U1], "call_model", policies={"run": "twice"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="kind 'completed'"):
        for_model([U1], "completed")


def test_plain_calls_without_a_result_get_one_behind_those_that_have() -> None:
    history = [HI, said(tool_calls=calls("c1", "c2")), answer("c2")]
    before = deepcopy(history)
    *same, added = for_model(history, "recover_tools")
    assert same == history == before
    assert added["role"] == "tool"
    assert (added["tool_call_id"], added["name"]) == ("c1", "tool-c1")
    assert "may or may not have run" in added["content"]
    assert verdict(*same, added) == "call_model"
    assert for_model(history, "recover_tools", policies={"tool-c1": "rerun"}) == history


@pytest.mark.parametrize(("kind", "text"), [("retry_response", START_AGAIN), ("continue_response", CONTINUE)])
def test_the_model_is_told_how_to_go_on(kind: str, text: str) -> None:
    assert for_model([HI, said()], kind) == [HI, said(), {"role": "user", "content": text}]
    *same, added = for_model([U1, bot("a1", "Hel", STREAMING)], kind)
    assert same == [U1, bot("a1", "Hel", "Hel")]
    assert added["parts"] == [{"type": "text", "text": text}]
    assert added["metadata"] == {"snapshotter": {"resume": kind}}
    assert verdict(*same, added) == "call_model"


@pytest.mark.parametrize("kind", ["call_model", "waiting"])
def test_nothing_is_added_where_nothing_is_missing(kind: str) -> None:
    history = [U1, bot("a1", asked("c1", "p"))]
    assert for_model(history, kind) == history
    assert for_model([], kind) == []


def test_calls_of_an_interrupted_answer_stand_as_their_policies_say() -> None:
    parts = [tool("c0", DONE), tool("c1"), tool("c2", PROGRESS, "watch"), tool("c3", GRANTED, "pay")]
    parts += [tool("c4", "input-streaming"), tool("c5", name="pick"), tool("c6", INTERRUPTED)]
    history = [U1, bot("a1", *parts)]
    before = deepcopy(history)
    kept, errors = for_model(history, "recover_tools", client_tools=["pick"])
    assert kept is U1
    granted = tool("c3", {**GRANTED, **INTERRUPTED}, "pay")
    expected = [tool("c0", DONE), tool("c1", INTERRUPTED), tool("c2", INTERRUPTED, "watch"), granted]
    expected += [tool("c5", name="pick"), tool("c6", INTERRUPTED)]
    assert errors == bot("a1", *expected)
    policies: Any = {"run": "rerun", "watch": "reattach", "pay": "rerun"}
    _, mixed = for_model(history, "recover_tools", policies=policies, client_tools=["pick"])
    expected = [tool("c0", DONE), tool("c1"), tool("c2", PROGRESS, "watch"), tool("c3", GRANTED, "pay")]
    assert mixed == bot("a1", *expected, tool("c5", name="pick"), tool("c6"))
    assert history == before
