"""Chunks → message: the rules that matter beside the differential test, and what invalid input does."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshotter.core.accumulator import Accumulator
from snapshotter.core.chunks import DELTAS, FIELDS, ChunkError

Chunk = dict[str, Any]


def text(ident: str, *deltas: str, end: bool = True) -> list[Chunk]:
    chunks: list[Chunk] = [{"type": "text-start", "id": ident}]
    chunks += [{"type": "text-delta", "id": ident, "delta": delta} for delta in deltas]
    return [*chunks, {"type": "text-end", "id": ident}] if end else chunks


def call(ident: str, **fields: Any) -> Chunk:
    return {"type": "tool-input-available", "toolCallId": ident, "toolName": "search", "input": {}, **fields}


def output(ident: str, value: Any, **fields: Any) -> Chunk:
    return {"type": "tool-output-available", "toolCallId": ident, "output": value, **fields}


START = {"type": "start", "messageId": "m1"}
STEP = {"type": "start-step"}


class Run:
    """An accumulator with its findings at hand."""

    def __init__(self, *chunks: Chunk, **options: Any) -> None:
        self.findings: list[tuple[str, str]] = []
        self.acc = Accumulator(report=lambda code, detail: self.findings.append((code, detail)), **options)
        self.kept = [self.acc.apply(chunk) for chunk in chunks]

    @property
    def parts(self) -> list[Chunk]:
        return self.acc.parts


def test_nothing_started_is_no_message() -> None:
    assert Accumulator().view() is None
    assert Run({"type": "start"}, {"type": "finish"}).acc.view() is None
    assert Run(START).acc.view() == {"id": "m1", "role": "assistant", "parts": []}


def test_a_view_stays_as_it_was_handed_out() -> None:
    acc = Accumulator(strict=True)
    views, copies = [], []
    chunks = [
        START,
        STEP,
        *text("t", "a", "b"),
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "search"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"q":'},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '"x"}'},
        call("c"),
        {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a"},
        {"type": "tool-approval-response", "approvalId": "a", "approved": True},
        output("c", 1, preliminary=True),
        output("c", 2),
        {"type": "data-x", "id": "1", "data": {"n": 1}},
        {"type": "data-x", "id": "1", "data": {"n": 2}},
        {"type": "message-metadata", "messageMetadata": {"a": {"b": 1}}},
        {"type": "message-metadata", "messageMetadata": {"a": {"c": 2}}},
        {"type": "reset-step"},
    ]
    before = copy.deepcopy(chunks)
    for chunk in chunks:
        acc.apply(chunk)
        views.append(acc.view())
        copies.append(copy.deepcopy(views[-1]))
    assert views == copies
    assert chunks == before, "chunks are not changed either"
    assert acc.view() == {
        "id": "m1",
        "role": "assistant",
        "metadata": {"a": {"b": 1, "c": 2}},
        "parts": [STEP_PART],
    }


STEP_PART = {"type": "step-start"}


def test_the_seed_is_not_changed() -> None:
    seed = {
        "id": "m1",
        "role": "assistant",
        "parts": [{"type": "data-x", "id": "1", "data": 1}],
        "metadata": {"a": 1},
    }
    before = copy.deepcopy(seed)
    run = Run(
        {"type": "data-x", "id": "1", "data": 2},
        {"type": "message-metadata", "messageMetadata": {"a": 2}},
        *text("t", "x"),
        message=seed,
    )
    assert seed == before
    assert run.parts[0]["data"] == 2
    assert len(run.parts) == 2


def test_halves_of_a_pair_meet_across_deltas_and_a_lone_one_is_replaced() -> None:
    run = Run(*text("t", "a\ud83d", end=False))
    assert run.parts[0]["text"] == "a\ufffd"
    run.acc.apply({"type": "text-delta", "id": "t", "delta": "\ude00b\ud83d"})
    assert run.parts[0]["text"] == "a😀b\ufffd"
    run.acc.apply({"type": "text-end", "id": "t"})
    orjson.dumps(run.acc.view())
    tool = Run(
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "x"},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '["\ud83d'},
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '\ude00", "\\ud83d'},
    )
    assert tool.parts[0]["input"] == ["😀", "\ufffd"]
    assert tool.parts[0]["rawInput"] == '["😀", "\\ud83d'


def test_a_start_with_another_id_begins_anew_unless_the_caller_decides() -> None:
    run = Run(START, *text("t", "x"), {"type": "start", "messageId": "m2"})
    assert run.acc.view() == {"id": "m2", "role": "assistant", "parts": []}
    run = Run(START, *text("t", "x"))
    run.acc.apply_start({"type": "start", "messageId": "m2", "messageMetadata": {"a": 1}}, reset=False)
    assert run.acc.message_id == "m1"
    run.acc.set_id("m3")
    view = run.acc.view()
    assert view is not None
    assert (view["id"], view["metadata"], len(view["parts"])) == ("m3", {"a": 1}, 1)


def test_trailing_steps_are_left_out_when_asked() -> None:
    run = Run(START, STEP, *text("t", "x"), STEP, STEP)
    shown = run.acc.view(trailing_step=False)
    assert shown is not None
    assert [part["type"] for part in shown["parts"]] == ["step-start", "text"]
    assert run.acc.part_count == 4


def test_a_late_delta_of_a_dynamic_call_makes_a_part_without_its_raw_text() -> None:
    """A quirk of the client, found by the differential test: the raw text shows from the next delta on."""
    run = Run(
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "x", "dynamic": True},
        STEP,
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "[1"},
    )
    assert run.parts[2] == {
        "type": "dynamic-tool", "toolName": "x", "toolCallId": "c", "state": "input-streaming", "input": [1],
    }  # fmt: skip
    run.acc.apply({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": ",2"})
    assert run.parts[2]["rawInput"] == "[1,2"


# -- strict ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunk", "rule"),
    [
        ({"type": "text-delta", "id": "t9", "delta": "x"}, "text-delta-without-start"),
        ({"type": "text-end", "id": "t9"}, "text-end-without-start"),
        ({"type": "reasoning-delta", "id": "t9", "delta": "x"}, "reasoning-delta-without-start"),
        ({"type": "reasoning-end", "id": "t9"}, "reasoning-end-without-start"),
        (
            {"type": "tool-input-delta", "toolCallId": "t9", "inputTextDelta": ""},
            "tool-input-delta-without-start",
        ),
        (output("t9", 1), "tool-output-available-without-call"),
        (
            {"type": "tool-output-error", "toolCallId": "t9", "errorText": ""},
            "tool-output-error-without-call",
        ),
        ({"type": "tool-output-denied", "toolCallId": "t9"}, "tool-output-denied-without-call"),
        (
            {"type": "tool-approval-request", "toolCallId": "t9", "approvalId": "a"},
            "tool-approval-request-without-call",
        ),
        (
            {"type": "tool-approval-response", "approvalId": "t9", "approved": True},
            "tool-approval-response-without-request",
        ),
        ({"type": "tool-output-available", "toolCallId": "t9"}, "missing-field"),
        ({"type": "text-start", "id": "t9", "providerMetadata": None}, "wrong-field"),
        ({"type": "text-delta", "id": "t9", "delta": 3}, "wrong-field"),
    ],
)
def test_strict_names_the_chunk_its_place_and_the_rule(chunk: Chunk, rule: str) -> None:
    acc = Accumulator(strict=True)
    for good in (START, *text("t1", "x")):
        acc.apply(good)
    before = acc.view()
    with pytest.raises(ChunkError, match="t9") as caught:
        acc.apply(chunk)
    assert (caught.value.at, caught.value.rule) == (4, rule)
    assert acc.view() == before


@pytest.mark.parametrize(
    ("chunk", "rule"),
    [
        (None, "not-an-object"),
        ("text", "not-an-object"),
        ({"id": "t"}, "no-type"),
        ({"type": ["text-delta"], "id": "t", "delta": "x"}, "no-type"),
        ({"type": "no-such"}, "unknown-type"),
    ],
)
def test_strict_refuses_what_is_no_chunk(chunk: Any, rule: str) -> None:
    with pytest.raises(ChunkError) as caught:
        Accumulator(strict=True).apply(chunk)
    assert (caught.value.at, caught.value.rule) == (0, rule)


def test_metadata_merges_objects_only() -> None:
    meta = {"type": "message-metadata", "messageMetadata": "v1"}
    run = Run(meta, {**meta, "messageMetadata": {"a": 1}})
    assert run.findings == [("metadata-replaced", "message-metadata")]
    acc = Accumulator(strict=True)
    acc.apply(meta)
    with pytest.raises(ChunkError) as caught:
        acc.apply(meta)
    assert caught.value.rule == "metadata-not-object"
    guarded = {"__proto__": 1, "constructor": 2, "b": {"c": 3}}
    run = Run({**meta, "messageMetadata": {"b": {"d": 4}}}, {**meta, "messageMetadata": guarded})
    view = run.acc.view()
    assert view is not None
    assert view["metadata"] == {"b": {"d": 4, "c": 3}}


def test_end_markers_are_skipped_quietly() -> None:
    for strict in (True, False):
        run = Run("[DONE]", {"type": "done"}, strict=strict)  # type: ignore[arg-type]
        assert run.kept == [False, False]
        assert run.findings == []


# -- recovery ----------------------------------------------------------------------------------------


def test_a_tail_that_begins_in_the_middle_is_shown_as_far_as_it_goes() -> None:
    """vercel/ai 11700: the delta opens a part that is reported, other orphans are skipped."""
    run = Run(
        {"type": "text-delta", "id": "t1", "delta": "lo"},
        {"type": "text-end", "id": "t1"},
        {"type": "tool-input-delta", "toolCallId": "c9", "inputTextDelta": "{"},
        *text("t2", "ok"),
        {"type": "finish"},
    )
    assert [part["text"] for part in run.parts] == ["lo", "ok"]
    assert run.findings == [("missing-start", "text-delta t1"), ("orphan-chunk", "tool-input-delta c9")]
    assert run.kept == [True, True, False, True, True, True, True]


def test_what_can_be_mended_is_mended() -> None:
    run = Run(
        {"type": "text-start", "id": "t", "providerMetadata": None},
        call("c", title=None),
        {"type": "tool-output-available", "toolCallId": "c"},
        {"type": "text-start", "id": 7},
        {"type": "new-in-version-9"},
    )
    assert run.parts[0] == {"type": "text", "text": "", "state": "streaming"}
    assert run.parts[1]["output"] is None
    assert [code for code, _ in run.findings] == ["mended-chunk"] * 3 + ["bad-chunk", "unknown-chunk"]


def test_an_output_for_another_message_is_an_orphan() -> None:
    stray = output("elsewhere", 1)
    run = Run(stray)
    assert run.kept == [False]
    assert run.findings == [("orphan-output", "tool-output-available elsewhere")]
    assert run.acc.find_call("elsewhere") is None
    with pytest.raises(ChunkError):
        Accumulator(strict=True).apply(stray)


FIELD_VALUES = st.sampled_from(
    [
        None,
        True,
        0,
        1.5,
        "",
        "t",
        "c",
        "a",
        "json",
        "\ud83d",
        [],
        {},
        ["x"],
        {"a": {}},
        [{"type": "text"}],
        "[DONE]",
    ]
)
FIELD_NAMES = sorted(
    {name for need, may in FIELDS.values() for name in (*need, *may)} | {"data", "transient"}
)
GARBAGE = st.one_of(
    FIELD_VALUES,
    st.dictionaries(st.sampled_from(FIELD_NAMES), FIELD_VALUES, max_size=6).flatmap(
        lambda rest: st.sampled_from([*FIELDS, "data-x", "?", None, 3]).map(
            lambda kind: {"type": kind, **rest}
        )
    ),
)
SEED_PARTS = st.one_of(
    FIELD_VALUES,
    st.dictionaries(
        st.sampled_from(["toolCallId", "state", "approval", "id", "rawInput"]), FIELD_VALUES
    ).flatmap(
        lambda rest: st.sampled_from(["tool-x", "dynamic-tool", "data-x", 3]).map(
            lambda kind: {"type": kind, **rest}
        )
    ),
)


@given(st.lists(GARBAGE, max_size=20), st.lists(SEED_PARTS, max_size=4), st.integers(0, 4))
def test_no_chunk_and_no_seed_raises_in_recovery(chunks: list[Any], parts: list[Any], frozen: int) -> None:
    run = Run(message={"id": 3, "parts": parts, "metadata": None}, frozen_parts=frozen)
    for chunk in chunks:
        run.acc.apply(chunk)
        run.acc.view()
    for _, detail in run.findings:
        detail.encode("utf-8")


@given(st.lists(GARBAGE, max_size=20))
def test_strict_raises_nothing_but_chunk_errors(chunks: list[Any]) -> None:
    acc = Accumulator(strict=True)
    for chunk in chunks:
        before = acc.view()
        try:
            acc.apply(chunk)
        except ChunkError:
            assert acc.view() == before


def test_a_million_deltas_keep_to_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas of open parts never reach the checks; the text is joined once, when somebody looks."""
    starts = [*text("t", end=False), {"type": "reasoning-start", "id": "t"}]
    starts.append({"type": "tool-input-start", "toolCallId": "t", "toolName": "x"})
    run = Run(*starts)
    monkeypatch.setattr(Accumulator, "_accept", lambda *_: pytest.fail("the long way was taken"))
    for kind, (name, field) in DELTAS.items():
        for _ in range(1000):
            assert run.acc.apply({"type": kind, name: "t", field: "1"})
    assert [part.get("text", part.get("rawInput")) for part in run.parts] == ["1" * 1000] * 3
    assert json.dumps(run.parts)
