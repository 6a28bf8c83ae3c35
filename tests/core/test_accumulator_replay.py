"""The replay filter of continued and retried turns, the chunk tables, and the replay command's function."""

from __future__ import annotations

from typing import Any

import pytest

from snapshotter.core.accumulator import Accumulator
from snapshotter.core.chunks import (
    BOUNDARIES,
    DELTAS,
    FIELDS,
    FLUSH_POINTS,
    delta_of,
    is_end_marker,
    is_milestone,
    is_transient,
    is_urgent,
)
from snapshotter.core.replay import replay
from streams.errors import InvalidValue

Chunk = dict[str, Any]
MARK = {"snapshotter": {"interrupted": True}}
CALL = {"toolCallId": "c", "toolName": "search"}

AVAILABLE = {"type": "tool-input-available", **CALL, "input": {"again": 1}}
RESULT = {"type": "tool-output-available", "toolCallId": "c", "output": "new"}
FAILURE = {"type": "tool-output-error", "toolCallId": "c", "errorText": "new"}
CHANGES: list[Chunk] = [
    {"type": "tool-input-start", **CALL},
    {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{"},
    AVAILABLE,
    {"type": "tool-input-error", **CALL, "input": {}, "errorText": "x"},
    {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "new"},
    {"type": "tool-approval-response", "approvalId": "old", "approved": False},
    {"type": "tool-output-denied", "toolCallId": "c"},
    RESULT,
    FAILURE,
]


def part(state: str, **fields: Any) -> Chunk:
    approval = {"id": "old", "approved": True}
    return {
        "type": "tool-search",
        "toolCallId": "c",
        "state": state,
        "input": {},
        "approval": approval,
        **fields,
    }


def continued(*parts: Chunk, strict: bool = True) -> tuple[Accumulator, list[str]]:
    findings: list[str] = []
    seed = {"id": "m", "role": "assistant", "parts": [{"type": "step-start"}, *parts]}
    acc = Accumulator(
        seed, strict=strict, frozen_parts=len(parts) + 1, report=lambda code, _detail: findings.append(code)
    )
    return acc, findings


SETTLED = [
    part("output-available", output="old"),
    part("output-error", errorText="old"),
    part("output-error", errorText="old", resultProviderMetadata={"snapshotter": {"superseded": True}}),
    part("output-denied"),
]


@pytest.mark.parametrize("settled", SETTLED)
@pytest.mark.parametrize("chunk", CHANGES, ids=lambda chunk: chunk["type"])
def test_what_is_settled_never_changes(settled: Chunk, chunk: Chunk) -> None:
    acc, findings = continued(settled)
    assert acc.apply(chunk) is False
    assert acc.parts[1:] == [settled]
    assert findings == ["replayed"]


def test_a_dropped_replay_of_a_whole_call_leaves_no_trace() -> None:
    acc, findings = continued(SETTLED[0])
    kept = [acc.apply(chunk) for chunk in (*CHANGES[:3], RESULT)]
    assert kept == [False] * 4
    assert findings == ["replayed"] * 4
    assert acc.parts[1:] == [SETTLED[0]]


def test_a_call_id_met_again_in_a_new_step_is_a_new_call() -> None:
    acc, findings = continued(SETTLED[0])
    for chunk in ({"type": "start-step"}, *CHANGES[:3], RESULT):
        assert acc.apply(chunk)
    assert acc.parts[1] == SETTLED[0]
    assert acc.parts[3]["output"] == "new"
    assert findings == []


def test_a_result_in_a_new_step_does_not_reach_back_to_a_settled_call() -> None:
    acc, findings = continued(SETTLED[0])
    acc.apply({"type": "start-step"})
    assert acc.apply(RESULT) is False
    assert findings == ["replayed"]


@pytest.mark.parametrize("state", ["input-available", "approval-responded"])
def test_what_is_not_settled_goes_on_as_in_the_client(state: str) -> None:
    acc, findings = continued(part(state))
    assert acc.apply(AVAILABLE)
    assert acc.apply({**RESULT, "preliminary": True})
    assert acc.apply(RESULT)
    assert acc.parts[1] == part("output-available", input={"again": 1}, output="new")
    assert findings == []


def test_what_this_attempt_settled_may_change_again() -> None:
    acc, _ = continued(part("approval-responded"))
    assert acc.apply(RESULT)
    assert acc.apply({**RESULT, "output": "newer"})
    assert acc.parts[1]["output"] == "newer"
    for chunk in ({"type": "start-step"}, AVAILABLE, RESULT, {**RESULT, "output": "newer"}):
        assert acc.apply(chunk)
    assert acc.parts[3]["output"] == "newer"


@pytest.mark.parametrize(
    ("marks", "left"),
    [
        (MARK, {}),
        ({**MARK, "openai": {"a": 1}}, {"resultProviderMetadata": {"openai": {"a": 1}}}),
        (
            {"snapshotter": {"interrupted": True, "progress": 1}},
            {"resultProviderMetadata": {"snapshotter": {"progress": 1}}},
        ),
    ],
)
def test_a_late_result_replaces_an_error_that_cleanup_made(marks: Chunk, left: Chunk) -> None:
    interrupted = part("output-error", errorText="interrupted", rawInput="{}", resultProviderMetadata=marks)
    acc, findings = continued(interrupted)
    assert acc.apply(RESULT)
    assert acc.parts[1] == part("output-available", output="new", **left)
    acc, findings = continued(interrupted)
    assert acc.apply(FAILURE)
    assert acc.parts[1] == part("output-error", errorText="new", rawInput="{}", **left)
    assert findings == []


def test_a_second_late_result_within_the_attempt_is_a_replay() -> None:
    acc, findings = continued(part("output-error", errorText="x", resultProviderMetadata=MARK))
    assert acc.apply(RESULT)
    assert acc.apply({**RESULT, "output": "second"}) is False
    assert acc.parts[1]["output"] == "new"
    assert findings == ["replayed"]


def test_reset_step_reaches_back_to_the_attempts_start_at_most() -> None:
    acc, _ = continued({"type": "text", "text": "kept", "state": "done"})
    for chunk in ({"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "x"}):
        acc.apply(chunk)
    acc.apply({"type": "reset-step"})
    assert [p["type"] for p in acc.parts] == ["step-start", "text"]
    acc.apply({"type": "start-step"})
    acc.apply({"type": "text-start", "id": "t"})
    acc.apply({"type": "reset-step"})
    assert [p["type"] for p in acc.parts] == ["step-start", "text", "step-start"]


# -- the tables --------------------------------------------------------------------------------------


def test_the_tables_speak_of_known_chunks() -> None:
    assert set(FIELDS) >= FLUSH_POINTS | BOUNDARIES | set(DELTAS)
    assert not BOUNDARIES & {*DELTAS, "abort", "error", "message-metadata", "tool-approval-response"}
    assert "finish" in BOUNDARIES
    assert "steering-message" in BOUNDARIES
    urgent = {kind for kind in FIELDS if is_urgent({"type": kind})}
    results = {"tool-output-available", "tool-output-denied", "tool-output-error"}
    assert urgent == results | {"abort", "error", "finish", "tool-input-error"}
    milestones = {kind for kind in FIELDS if is_milestone({"type": kind})}
    assert milestones == results | {"text-start", "reasoning-start", "tool-input-available"}


def test_progress_of_a_tool_is_neither_urgent_nor_a_milestone() -> None:
    assert is_urgent(RESULT)
    assert is_milestone(RESULT)
    assert not is_urgent({**RESULT, "preliminary": True})
    assert not is_milestone({**RESULT, "preliminary": True})


def test_transient_data_and_end_markers_are_known() -> None:
    assert is_transient({"type": "data-x", "data": 1, "transient": True})
    assert not is_transient({"type": "data-x", "data": 1, "transient": False})
    assert not is_transient({"type": "text-start", "id": "t", "transient": True})
    assert [is_end_marker(x) for x in ("[DONE]", {"type": "done"}, {"type": "finish"}, None)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_plain_delta_names_its_part_and_its_text() -> None:
    delta = {"type": "text-delta", "id": "t", "delta": "x"}
    assert delta_of(delta) == (("text-delta", "t"), "delta")
    assert delta_of({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": ""}) == (
        ("tool-input-delta", "c"),
        "inputTextDelta",
    )
    for other in (
        {**delta, "providerMetadata": {}},
        {**delta, "delta": None},
        {"type": "finish"},
        {"a": 1, "b": 2, "c": 3},
    ):
        assert delta_of(other) is None


# -- the command -------------------------------------------------------------------------------------


def test_replay_shows_what_a_client_shows() -> None:
    chunks = [{"type": "start", "messageId": "m"}, {"type": "start-step"}, {"type": "text-start", "id": "t"}]
    assert replay({"chunks": chunks[:2]}) == {"message": None, "report": []}
    assert replay({"chunks": []}) == {"message": None, "report": []}
    shown = replay({"chunks": [*chunks, {"type": "start-step"}]})["message"]
    assert [p["type"] for p in shown["parts"]] == ["step-start", "text"]


def test_replay_reports_by_the_place_of_the_chunk() -> None:
    data = {"type": "data-x", "data": {"t": "\ud83d"}}
    lines = [data, {"type": "text-delta", "id": "t", "delta": "lo"}, {"type": "data-x", "data": float("nan")}]
    answer = replay({"chunks": lines})
    assert [(found["code"], found["at"]) for found in answer["report"]] == [
        ("lone-surrogate", 0),
        ("missing-start", 1),
        ("bad-chunk", 2),
    ]
    assert answer["message"]["parts"][0]["data"] == {"t": "\ufffd"}
    assert replay({"chunks": lines}, strict=True) == {
        "error": "chunk 1: text-delta for 't', start unknown",
        "at": 1,
        "rule": "text-delta-without-start",
    }
    refused = replay({"chunks": lines[2:]}, strict=True)
    assert (refused["at"], refused["rule"]) == (0, "invalid-value")


def test_replay_refuses_a_line_of_another_shape() -> None:
    for line in ({}, {"chunks": "x"}, {"chunks": [], "message": []}):
        with pytest.raises(InvalidValue):
            replay(line)
