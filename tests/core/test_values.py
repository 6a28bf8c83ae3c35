"""Values at the door: what is refused, what is mended, and that nothing else changes."""

from __future__ import annotations

import datetime as dt
import enum
import json
from collections import OrderedDict
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from snapshotter.core.values import MAX_DEPTH, clean, loads, mend_text, to_plain
from streams.errors import InvalidValue

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "says"),
    [
        ({"x": [0, 1, 2, float("nan")]}, "data.x[3]", "not a JSON number"),
        ({"x": float("inf")}, "data.x", "not a JSON number"),
        ([{"a": {"b": -float("inf")}}], "data[0].a.b", "not a JSON number"),
        ({"n": 2**64}, "data.n", "64 bits"),
        ({"n": -(2**63) - 1}, "data.n", "64 bits"),
        ({"t": {1: "x"}}, "data.t", "int"),
        ({"b": b"x"}, "data.b", "bytes"),
        ([dt.date(2026, 1, 1)], "data[0]", "date"),
        ((1, {2}), "data[1]", "set"),
        (dict.fromkeys(["\ud800", "\udc00"]), "data", "same"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any, path: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says) as caught:
        clean(value, "data")
    assert caught.value.path == path


def test_the_path_of_an_error_begins_at_the_value_when_no_name_was_given() -> None:
    with pytest.raises(InvalidValue) as caught:
        clean({"type": "data-metric", "data": {"x": float("nan")}})
    assert caught.value.path == "data.x"


def test_nesting_has_one_limit() -> None:
    deep = nested(MAX_DEPTH)
    assert clean(deep) is deep
    assert loads(json.dumps(deep)) == deep
    for too_deep in (nested(MAX_DEPTH + 1), {"a": nested(MAX_DEPTH)}):
        with pytest.raises(InvalidValue):
            clean(too_deep)
        with pytest.raises(InvalidValue):
            loads(json.dumps(too_deep))
    assert loads(json.dumps(nested(MAX_DEPTH + 1)), max_depth=MAX_DEPTH + 1)


def test_of_a_long_path_a_message_shows_both_ends() -> None:
    deep: Any = 0
    for number in range(MAX_DEPTH + 1, 0, -1):
        deep = {f"n{number}": deep}
    with pytest.raises(InvalidValue) as caught:
        clean(deep, "data")
    last = MAX_DEPTH
    ends = f"data.n1.n2.n3….n{last - 3}.n{last - 2}.n{last - 1}.n{last}"
    assert str(caught.value) == f"{ends}: nested more than {MAX_DEPTH} deep"
    assert caught.value.path.startswith("data.n1.n2.n3.n4.n5")
    with pytest.raises(InvalidValue, match=r"^data\.a\.b\[0\]\.c\[0\]\.d\.e: nan is not"):
        clean({"a": {"b": [{"c": [{"d": {"e": float("nan")}}]}]}}, "data")


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidValue):
        clean(value)


@given(JSON)
def test_a_clean_value_is_returned_as_the_same_object_and_can_be_stored(value: Any) -> None:
    assert clean(value) is value
    assert orjson.loads(orjson.dumps(value)) == value


@given(st.text(st.characters(exclude_categories=())))
def test_mended_text_can_be_stored_and_only_halves_changed(text: str) -> None:
    mended = mend_text(text)
    mended.encode("utf-8")
    assert mend_text(mended) is mended
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert mended is text


def test_halves_are_joined_and_lone_ones_replaced_in_keys_and_values() -> None:
    value = {"k\ud83d\ude00": ["\ud83d\ude00", "a\ud83d", "\ude00b"], "same": {"x": 1}}
    mended = clean(value)
    assert mended == {"k😀": ["😀", "a\ufffd", "\ufffdb"], "same": {"x": 1}}
    assert mended["same"] is value["same"]
    assert "k\ud83d\ude00" in value, "what the user handed in stays as it was"


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    a: int
    b: str


def test_subclasses_become_the_plain_types() -> None:
    mended = clean({"c": Colour.RED, "l": Level.HIGH, "p": Pair(1, "x"), "o": OrderedDict(a=True)})
    assert mended == {"c": "red", "l": 3, "p": [1, "x"], "o": {"a": True}}
    assert [type(item) for item in mended.values()] == [str, int, list, dict]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        '{"a":1',
        "[" * 100_000,
        "9" * 5000,
        b"\xff",
        b'"\xed\xa0\x80"',
    ],
)
def test_loads_refuses_with_one_error(text: str | bytes) -> None:
    with pytest.raises(InvalidValue):
        loads(text)


def test_loads_is_exact() -> None:
    assert loads("123456789012345678901234567890") == 123456789012345678901234567890
    assert loads('"\\ud83d"') == "\ud83d"
    assert loads('"a\u2028\u0085\\u0000"'.encode()) == "a\u2028\u0085\0"
    number = loads("[1.0, -0.0, 5e-324, 0.30000000000000004]")
    assert [repr(item) for item in number] == ["1.0", "-0.0", "5e-324", "0.30000000000000004"]


class Model(BaseModel):
    type: str
    tool_call_id: str | None = Field(None, serialization_alias="toolCallId")
    output: Any = None
    data: Any = None
    input: Any = None
    title: str | None = None


class Message(BaseModel):
    id: str
    metadata: Any = None
    parts: list[dict[str, Any]]


def test_a_model_becomes_a_dict_by_alias_without_absent_fields() -> None:
    chunk = Model(type="tool-output-available", tool_call_id="c1")
    assert to_plain(chunk) == {"type": "tool-output-available", "toolCallId": "c1", "output": None}
    assert to_plain(Model(type="data-x")) == {"type": "data-x", "data": None}
    assert to_plain(Model(type="tool-input-available", tool_call_id="c")) == {
        "type": "tool-input-available",
        "toolCallId": "c",
        "input": None,
    }
    assert to_plain(Model(type="data-x", data={"keep": None}))["data"] == {"keep": None}


def test_a_message_model_loses_absent_fields_of_its_parts_only() -> None:
    call = {"type": "tool-x", "toolCallId": "c", "title": None}
    parts = [
        {**call, "state": "output-available", "input": {"a": None}, "output": None, "errorText": None},
        {**call, "state": "input-streaming", "input": None},
        {**call, "state": "input-available", "input": None, "output": None},
        {"type": "text", "text": "", "providerMetadata": None},
        {**call, "state": "approval-responded", "input": 1, "approval": {"id": "a", "reason": None}},
    ]
    plain = to_plain(Message(id="m", parts=parts))
    call.pop("title")
    assert plain == {
        "id": "m",
        "parts": [
            {**call, "state": "output-available", "input": {"a": None}, "output": None},
            {**call, "state": "input-streaming"},
            {**call, "state": "input-available", "input": None},
            {"type": "text", "text": ""},
            {**call, "state": "approval-responded", "input": 1, "approval": {"id": "a"}},
        ],
    }


def test_a_dict_stays_and_anything_else_is_refused() -> None:
    chunk = {"type": "finish", "odd": None}
    assert to_plain(chunk) is chunk
    for value in (None, 3, "x", [chunk], Model):
        with pytest.raises(InvalidValue):
            to_plain(value)
