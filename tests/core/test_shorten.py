"""Messages cut to a bound that holds whatever made them large, with their shape kept."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from build import bot, tool, user
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshotter.core.shorten import shorten
from snapshotter.errors import InvalidValue, TooLarge

Message = dict[str, Any]

LIMIT = 2_000
ROWS = [{"name": "x" * 200, "n": number} for number in range(100)]


def size(message: Message) -> int:
    """Not the engine's own measure: the standard library's."""
    return len(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode())


def short(message: Message, limit: int = LIMIT) -> Message:
    before = deepcopy(message)
    (after,) = shorten([message], limit)
    assert message == before
    assert size(after) <= limit
    assert shorten([after], limit)[0] is after
    if after is not message:
        assert after["metadata"]["snapshotter"]["shortened"]["bytes"] == size(message)
    return after


def test_what_fits_is_the_same_object() -> None:
    message = bot("a1", "x" * 1_800)
    assert short(message) is message


def test_a_large_output_keeps_its_shape_and_all_else_stays() -> None:
    output = {"rows": ROWS, "total": 100, "next": None}
    message = bot("a1", tool("c1", "output-available", output=output, input={"q": "all"}), "Here they are.")
    after = short(message)
    _, call, text = after["parts"]
    assert text == message["parts"][2]
    assert (call["input"], call["state"], call["toolCallId"]) == ({"q": "all"}, "output-available", "c1")
    assert (call["output"]["total"], call["output"]["next"]) == (100, None)
    *rows, missing = call["output"]["rows"]
    assert rows[0].keys() == {"name", "n"}
    assert missing == f"[{100 - len(rows)} items left out]"
    assert after["metadata"]["snapshotter"]["shortened"]["parts"] == 1


def test_no_more_is_cut_than_is_needed() -> None:
    message = bot(
        "a1", tool("c1", "output-available", output="x" * 5_000), tool("c2", "output-available", output="y")
    )
    after = short(message)
    assert size(after) > LIMIT - 120
    assert after["parts"][2] == message["parts"][2]
    text = after["parts"][1]["output"]
    kept = len(text) - len(text.lstrip("x"))
    assert text == f"{'x' * kept}… [{5_000 - kept} characters left out]"


LARGE: list[Any] = [
    {"type": "text", "text": "é" * 50_000},
    {"type": "text", "text": '"\\\n' * 50_000},
    {"type": "text", "text": "😀" * 50_000},
    {"type": "reasoning", "text": "x" * 1_900_000, "providerMetadata": {"p": {"signature": "s" * 5_000}}},
    tool("c1", input={"file": "x" * 50_000}),
    tool("c1", "output-error", errorText="x" * 50_000, rawInput="y" * 50_000),
    tool("c1", "output-available", output=[[["x" * 500] * 50] * 50]),
    tool("c1", "output-available", output={f"key-{n}" * 20: n for n in range(1_000)}),
    tool("c1", "output-available", output=10**4_000),
    {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64," + "A" * 50_000},
    {"type": "data-x", "id": "d", "data": ROWS},
    {"type": "source-document", "sourceId": "s", "title": "t" * 50_000},
    {"type": "tool-run", "toolCallId": "c" * 50_000, "state": "input-available", "input": {}},
]


@pytest.mark.parametrize("part", LARGE, ids=lambda part: part["type"])
def test_the_bound_holds_whatever_is_large(part: Message) -> None:
    short(bot("a1", part, "the end"))
    short(bot("a1", part, "the end"), 512)


def test_an_input_stays_an_object() -> None:
    after = short(bot("a1", tool("c1", input={"k" * 300: "x" * 50_000, "b": "y" * 50_000})), 512)
    assert isinstance(after["parts"][1]["input"], dict)


def test_outputs_give_before_inputs_and_those_before_what_was_said() -> None:
    call = tool("c1", "output-available", output="o" * 3_000, input={"a": "i" * 1_000})
    after = short(bot("a1", call, "t" * 500))
    assert after["parts"][1]["input"] == call["input"]
    assert after["parts"][2]["text"] == "t" * 500
    after = short(bot("a1", call, "t" * 500), 1_000)
    assert after["parts"][1]["input"] != call["input"]
    assert after["parts"][2]["text"] == "t" * 500


def test_of_many_small_parts_the_oldest_go() -> None:
    after = short(bot("a1", *(f"part {number}" for number in range(1_000))))
    first, *_, last = after["parts"]
    gone = after["metadata"]["snapshotter"]["shortened"]["parts"]
    assert first == {"type": "text", "text": f"[{gone} earlier parts left out]"}
    assert last["text"] == "part 999"
    assert len(after["parts"]) == 1_001 - gone + 1


def test_metadata_and_other_fields_are_bounded_too() -> None:
    after = short({**bot("a1", "hi"), "metadata": {"trace": "x" * 50_000}, "createdAt": "y" * 50_000})
    assert after["parts"] == bot("a1", "hi")["parts"]
    assert after["metadata"]["trace"].startswith("xxx")


def test_a_plain_message_is_bounded_by_its_content() -> None:
    assert short({"role": "user", "content": "x" * 50_000})["content"].startswith("xxx")


def test_a_limit_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at least 512"):
        shorten([user("u1")], 511)
    with pytest.raises(TooLarge) as refused:
        shorten([bot("a" * 5_000, "x")], LIMIT)
    assert refused.value.size > refused.value.limit == LIMIT


LEAVES = st.none() | st.integers() | st.booleans() | st.text(max_size=300).map(lambda text: text * 9)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=60), inner, max_size=6),
    max_leaves=30,
)
PARTS = st.one_of(
    st.builds(lambda v: tool("c1", "output-available", output=v, input={"v": v}), VALUES),
    st.builds(lambda v: {"type": "data-x", "data": v}, VALUES),
    st.builds(lambda t: {"type": "text", "text": t * 20}, st.text(max_size=100)),
    st.builds(lambda t, v: {"type": "reasoning", "text": t, "providerMetadata": v}, st.text(), VALUES),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PARTS, max_size=6), st.integers(512, 3_000))
def test_the_bound_holds_for_any_message(parts: list[Message], limit: int) -> None:
    short({"id": "a1", "role": "assistant", "parts": parts}, limit)
