"""Cleanup: what becomes of each part of a message whose turn did not complete."""

from __future__ import annotations

from typing import Any

import pytest
from build import INTERRUPTED, asked, bot, tool

from snapshotter.core.cleanup import cleanup, drop_trailing_steps, is_empty, kept_for_retry, kept_on_drop

STEP = {"type": "step-start"}


def text(words: str, state: str = "done") -> dict[str, Any]:
    return {"type": "text", "text": words, "state": state}


def answered(approved: bool) -> dict[str, Any]:
    return tool("c", "approval-responded", approval={"id": "p", "approved": approved})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (text("x", "streaming"), text("x")),
        (
            {"type": "reasoning", "id": "r", "text": "x", "state": "streaming"},
            {"type": "reasoning", "id": "r"},
        ),
        (tool("c", "input-available"), tool("c", INTERRUPTED)),
        (tool("c", "input-available", name="where"), tool("c", "input-available", name="where")),
        (asked("c", "p"), asked("c", "p")),
        (answered(True), {**answered(True), **INTERRUPTED}),
        (answered(False), {**answered(False), "state": "output-denied"}),
        (tool("c", "output-available", output=1, preliminary=True), tool("c", INTERRUPTED)),
        (tool("c", "output-available", output=1), tool("c", "output-available", output=1)),
        (tool("c", "output-error", errorText="e"), tool("c", "output-error", errorText="e")),
        (tool("c", "output-denied"), tool("c", "output-denied")),
        (tool("c", INTERRUPTED), tool("c", INTERRUPTED)),
        ({"type": "data-x", "data": 1}, {"type": "data-x", "data": 1}),
        (None, None),
    ],
)
def test_every_kind_of_part(before: Any, after: Any) -> None:
    if after is not None and after["type"] == "reasoning":
        after = {**before, "state": "done"}
    message = {"id": "a", "role": "assistant", "parts": [before]}
    got = cleanup(message, ["where"]).message
    assert got["parts"] == [after]
    assert (got is message) is (before == after)


def test_a_dynamic_client_tool_can_be_answered_too() -> None:
    part = {"type": "dynamic-tool", "toolName": "where", "toolCallId": "c", "state": "input-available"}
    assert cleanup(bot("a", part), ["where"]).message == bot("a", part)


def test_a_mark_stands_beside_what_the_provider_said_of_the_result() -> None:
    part = tool("c", "output-available", output=1, preliminary=True, resultProviderMetadata={"p": {"x": 1}})
    marks = {"p": {"x": 1}, "snapshotter": {"interrupted": True}}
    assert cleanup(bot("a", part)).message == bot(
        "a", tool("c", INTERRUPTED | {"resultProviderMetadata": marks})
    )


def test_all_that_did_not_finish_is_listed_with_its_state_and_its_place() -> None:
    streaming = {"type": "tool-run", "toolCallId": "c1", "state": "input-streaming", "rawInput": '{"a'}
    calls = [
        streaming,
        tool("c2"),
        tool("c3", "output-available", output="half", preliminary=True),
        tool("c4", "output-available", output=1),
        asked("c5", "p"),
    ]
    cleaned = cleanup(bot("a", *calls))
    assert cleaned.pending == [
        {
            "toolCallId": "c1",
            "toolName": "run",
            "state": "input-streaming",
            "rawInput": '{"a',
            "partIndex": None,
        },
        {"toolCallId": "c2", "toolName": "run", "state": "input-available", "input": {}, "partIndex": 1},
        {
            "toolCallId": "c3",
            "toolName": "run",
            "state": "output-available",
            "input": {},
            "progress": "half",
            "partIndex": 2,
        },
        {"toolCallId": "c5", "toolName": "run", "state": "approval-requested", "input": {}, "partIndex": 4},
    ]


def test_cleanup_counts_what_is_left_of_the_seed() -> None:
    streaming = tool("c1", "input-streaming")
    message = {"id": "a", "role": "assistant", "parts": [STEP, streaming, text("x"), STEP, streaming]}
    assert (cleanup(message, seed=3).seed, cleanup(message, seed=3).message["parts"]) == (
        2,
        [STEP, text("x")],
    )
    assert cleanup(message, seed=2).seed == 1
    assert cleanup(message, seed=5).seed == 2


def test_cleanup_of_what_is_clean_gives_the_same_message() -> None:
    message = bot("a", "x", tool("c", "output-available", output=1))
    assert cleanup(message).message is message
    assert cleanup(cleanup(bot("a", tool("c"))).message).message == bot("a", tool("c", INTERRUPTED))


SETTLED = tool("c", "output-available", output=1)


@pytest.mark.parametrize(
    ("parts", "seed", "kept"),
    [
        ([STEP, text("a")], 0, []),
        ([STEP, text("a"), SETTLED, text("b"), STEP, text("c")], 0, [STEP, text("a"), SETTLED, text("b")]),
        ([STEP, text("a"), STEP, SETTLED, STEP, text("b")], 0, [STEP, text("a"), STEP, SETTLED]),
        ([STEP, text("s"), text("a")], 2, [STEP, text("s")]),
        ([STEP, text("s"), text("a"), STEP, SETTLED], 2, [STEP, text("s"), text("a"), STEP, SETTLED]),
        ([STEP, SETTLED, STEP, text("a")], 2, [STEP, SETTLED]),
        ([STEP, tool("c", INTERRUPTED)], 0, []),
        ([text("a"), SETTLED, STEP, text("b")], 0, [text("a"), SETTLED]),
    ],
)
def test_what_a_retry_keeps(parts: list[Any], seed: int, kept: list[Any]) -> None:
    assert kept_for_retry({"id": "a", "parts": parts}, seed) == {"id": "a", "parts": kept}


@pytest.mark.parametrize(
    ("parts", "seed", "kept"),
    [
        ([STEP, text("a")], 0, []),
        ([STEP, text("a"), STEP, SETTLED, STEP, text("b")], 0, [STEP, SETTLED]),
        (
            [STEP, text("s"), STEP, text("a"), STEP, text("b"), SETTLED],
            2,
            [STEP, text("s"), STEP, text("b"), SETTLED],
        ),
        ([STEP, text("s"), text("a")], 2, [STEP, text("s")]),
        ([STEP, tool("c", INTERRUPTED)], 0, []),
    ],
)
def test_what_a_drop_keeps(parts: list[Any], seed: int, kept: list[Any]) -> None:
    got = kept_on_drop({"id": "a", "metadata": {"m": 1}, "parts": parts}, seed)
    assert got == {"id": "a", "metadata": {"m": 1}, "parts": kept}


def test_a_message_is_empty_without_parts_and_metadata() -> None:
    assert is_empty(None)
    assert is_empty({"parts": [STEP]})
    assert not is_empty({"parts": [STEP], "metadata": {"m": 1}})
    assert not is_empty({"parts": [None]})
    assert drop_trailing_steps({"parts": [text("a"), STEP, STEP]}) == {"parts": [text("a")]}
