"""The history as a provider takes it: repaired and sanitized, and nothing else touched."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from build import INTERRUPTED, SUPERSEDED, asked, bot, tool, user
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshotter.core.repair import NOT_RUN, normalize_input, repair
from snapshotter.core.sanitize import sanitize

Part = dict[str, Any]

GRANTED = {"state": "approval-responded", "approval": {"id": "p", "approved": True}}
REFUSED = {"state": "approval-responded", "approval": {"id": "p", "approved": False, "reason": "no"}}
SETTLED = [
    tool("c1", "output-available", output=None),
    tool("c2", "output-error", errorText="disk full"),
    tool("c3", "output-denied", approval={"id": "p", "approved": False, "reason": "no"}),
    tool("c4", INTERRUPTED),
    tool("c5", SUPERSEDED),
]


def repaired(part: Part, **options: Any) -> Any:
    """What becomes of one part; the message around it keeps its identity if and only if the part does."""
    message = {"id": "a1", "role": "assistant", "parts": [part]}
    before = deepcopy(message)
    done = repair([message], **options)
    again = repair(done.messages, **options)
    assert again.messages == done.messages
    assert (again.replaced, again.normalized) == (0, 0)
    assert again.messages[0] is done.messages[0]
    assert message == before
    (after,) = done.messages[0]["parts"]
    assert (done.messages[0] is message) == (after is part)
    return after


def test_calls_without_a_result_become_errors_in_their_places() -> None:
    history = [user("u1"), bot("a1", tool("c1"), *SETTLED), user("u2"), bot("a2", tool("c9"), "Hm.")]
    done = repair(history)
    assert done.messages[0] is history[0]
    assert done.messages[1] == bot("a1", tool("c1", INTERRUPTED), *SETTLED)
    assert done.messages[2] is history[2]
    assert done.messages[3] == bot("a2", tool("c9", INTERRUPTED), "Hm.")
    assert (done.replaced, done.normalized, done.ids) == (2, 0, ("c1", "c9"))


@pytest.mark.parametrize("part", SETTLED, ids=lambda part: part["state"])
def test_what_is_settled_never_changes(part: Part) -> None:
    assert repaired(part) is part


def test_a_call_whose_input_never_came_whole_has_not_run() -> None:
    after = repaired({"type": "tool-run", "toolCallId": "c1", "state": "input-streaming"})
    assert after["state"] == "output-error"
    assert after["errorText"] == NOT_RUN
    assert after["input"] == {}


def test_progress_is_no_result() -> None:
    after = repaired(tool("c1", "output-available", output="half", preliminary=True))
    assert after == tool("c1", INTERRUPTED)


def test_a_dynamic_call_is_repaired_like_any() -> None:
    part = {"type": "dynamic-tool", "toolName": "x", "toolCallId": "c1", "state": "input-available"}
    assert repaired(part)["state"] == "output-error"


def test_what_was_answered_and_has_not_run_stays_and_a_refusal_is_a_denial() -> None:
    granted = tool("c1", GRANTED, input="{}")
    assert repaired(granted) is granted
    assert repaired(tool("c1", REFUSED)) == tool("c1", {**REFUSED, "state": "output-denied"})
    spared = tool("c1", REFUSED)
    assert repaired(spared, should_repair=lambda _: False) is spared


def test_what_a_client_can_still_answer_stays() -> None:
    question, pick = asked("c1", "p"), tool("c2", name="pick")
    assert repaired(question) is question
    assert repaired(pick, client_tools=["pick"]) is pick
    assert repaired(pick, client_tools=["other"])["state"] == "output-error"


def test_a_part_that_is_no_call_stays() -> None:
    for part in ({"type": "tool-x", "state": "input-available"}, {"type": "text", "text": "x"}, None, 3):
        assert repaired(part) is part  # type: ignore[arg-type]
    plain = {"role": "user", "content": "hi"}
    assert repair([plain]).messages[0] is plain


def test_the_hooks_choose_and_make() -> None:
    parts = [tool("c1"), tool("c2", name="keep")]
    done = repair(
        [bot("a1", *parts)],
        repair_part=lambda part: {"type": "text", "text": f"[{part['toolCallId']}]"},
        should_repair=lambda part: part["type"] != "tool-keep",
    )
    assert done.messages == [bot("a1", {"type": "text", "text": "[c1]"}, parts[1])]
    assert done.ids == ("c1",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (' \ufeff{"a":1}', {}),
        ('\n{"a":{"b":[1]}} ', {"a": {"b": [1]}}),
        ('{"n": 18446744073709551615}', {"n": 2**64 - 1}),
        ('{"a":', {}),
        ('{"a": NaN}', {}),
        ("[1]", {}),
        ("x", {}),
        ("", {}),
        (None, {}),
        ([1], {}),
        (True, {}),
        ("{" * 5000, {}),
        ('{"a":' * 5000, {}),
    ],
)
def test_inputs_are_objects(value: Any, expected: Any) -> None:
    got, changed = normalize_input(value)
    assert got == expected
    assert changed == (got is not value)


def test_inputs_of_settled_calls_are_normalized_and_nothing_else() -> None:
    settled = tool("c1", "output-available", output=1, input='{"a":1}')
    assert repaired(settled) == {**settled, "input": {"a": 1}}
    bare = {"type": "tool-run", "toolCallId": "c1", "state": "output-error", "errorText": "e"}
    done = repair([bot("a1", bare)])
    assert done.messages == [bot("a1", {**bare, "input": {}})]
    assert (done.replaced, done.normalized, done.ids) == (0, 1, ())


# -- sanitize ---------------------------------------------------------------------------------------------


def cleaned(*parts: Part) -> list[Part]:
    message = bot("a1", *parts)
    before = deepcopy(message)
    (after,) = sanitize([message])
    assert message == before
    assert sanitize([after])[0] is after
    same: list[Part] = after["parts"][1:]
    return same


@pytest.mark.parametrize("name", ["providerMetadata", "callProviderMetadata", "resultProviderMetadata"])
def test_ephemeral_fields_go_and_objects_that_are_empty_then(name: str) -> None:
    part = {"type": "text", "text": "x"}
    ids = {"itemId": "i", "reasoningEncryptedContent": "e"}
    assert cleaned({**part, name: {"openai": ids}}) == [part]
    assert cleaned({**part, name: {"openai": {**ids, "keep": 1}, "b": 2}}) == [
        {**part, name: {"openai": {"keep": 1}, "b": 2}}
    ]
    assert cleaned({**part, name: {"openai": ids, "b": 2}}) == [{**part, name: {"b": 2}}]


def test_reasoning_that_says_nothing_goes() -> None:
    blank = {"type": "reasoning", "text": " \n\ufeff"}
    signed = {"type": "reasoning", "text": "", "providerMetadata": {"anthropic": {"signature": "s"}}}
    thought = {"type": "reasoning", "text": "hm", "providerMetadata": {"openai": {"itemId": "i"}}}
    unsaid = {**blank, "providerMetadata": {"openai": {"itemId": "i"}}}
    assert cleaned(blank, signed, thought, unsaid) == [signed, {"type": "reasoning", "text": "hm"}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "", "providerMetadata": {"openai": {"keep": 1}}},
        {"type": "text", "text": "x", "providerMetadata": {"openai": None}},
        {"type": "text", "text": "x", "providerMetadata": "odd"},
        {"type": "text", "text": "x", "providerMetadata": {"google": {"itemId": "theirs"}}},
    ],
)
def test_a_message_without_them_is_the_same_object(part: Part) -> None:
    message = bot("a1", part)
    assert sanitize([message, {"role": "user", "content": "x"}])[0] is message


# -- for any history --------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "x", "{}", '{"a":1}', "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
STATES = (
    "input-streaming input-available approval-requested approval-responded"
    " output-available output-error output-denied"
).split()
APPROVAL = st.fixed_dictionaries({"id": st.just("p")}, optional={"approved": st.booleans()})
CALL = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["tool-a", "tool-b", "dynamic-tool"]),
        "toolCallId": st.sampled_from(["c1", "c2"]),
        "state": st.sampled_from(STATES),
    },
    optional={
        "input": JSON,
        "output": JSON,
        "preliminary": st.booleans(),
        "approval": APPROVAL | JSON,
        "resultProviderMetadata": st.just({"snapshotter": {"interrupted": True}}) | JSON,
        "errorText": st.just("disk full"),
    },
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"id": st.just("m"), "role": st.just("assistant"), "parts": st.lists(CALL | JSON)}),
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(MESSAGES, st.sets(st.sampled_from("ab")))
def test_after_repair_every_call_has_a_result_or_can_still_get_one(
    messages: list[Part], client_tools: set[str]
) -> None:
    before = deepcopy(messages)
    done = repair(messages, client_tools=client_tools)
    assert messages == before
    again = repair(done.messages, client_tools=client_tools).messages
    assert all(a is b for a, b in zip(again, done.messages, strict=True))
    for old, new in zip(messages, done.messages, strict=True):
        for part, after in zip(old["parts"], new["parts"], strict=True):
            if isinstance(part, dict) and "toolCallId" in part:
                check(part, after, client_tools)
            else:
                assert after is part


def check(part: Part, after: Part, client_tools: set[str]) -> None:
    final = part["state"] in ("output-available", "output-error", "output-denied")
    if final and not (part["state"] == "output-available" and part.get("preliminary") is True):
        assert {**after, "input": 0} == {**part, "input": 0}
    kept = after["state"] in ("approval-requested", "approval-responded") or "output" in after
    client = after["state"] == "input-available" and after["type"][5:] in client_tools
    assert kept or client or after["state"] in ("output-available", "output-error", "output-denied")
    if after is not part:
        assert isinstance(after["input"], dict)
