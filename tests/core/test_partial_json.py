"""JSON that is still arriving. The real reader is asked in tests/oracle; these are the rules in short."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshotter.core.partial_json import ABSENT, fix_json, parse_partial

KEYS = st.text().filter(lambda key: '"' not in key)  # see test_a_quote_in_a_key_ends_it
JSON = st.recursive(
    st.text() | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":tr', {"a": True}),
        ('"\\u00', ""),
        ("1.5e", 1.5),
        ('{"a":-', {}),
        ('{"a":1} x', {"a": 1}),
        ('{"a":[1,{"b":"c', {"a": [1, {"b": "c"}]}),
        ('{"a', {}),
        ('{"a":1,', {"a": 1}),
        ("[1,", [1]),
        ("nul", None),
        ('{"n":123456789012345678901234}', {"n": 1.2345678901234568e23}),
        ("[1e999]", [None]),
        ('["\ud83d', ["\ufffd"]),
    ],
)
def test_the_prefix_is_completed(text: str, value: Any) -> None:
    assert parse_partial(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "[1😀",
        "[true😀",
        "",
        "nope",
        "-",
        '"a\nb"',
        '{"__proto__":1}',
        '{"constructor":{"prototype":1}}',
        "NaN",
        "[" * 50_000,
    ],
)
def test_no_value_is_not_null(text: str) -> None:
    assert parse_partial(text) is ABSENT


@given(st.text(alphabet='{}[]:,"\\-.eE019truefalsn \n', max_size=40))
def test_no_text_raises(text: str) -> None:
    parse_partial(text)


@given(JSON, st.booleans())
def test_every_prefix_of_json_closes_to_json(value: Any, compact: bool) -> None:
    text = json.dumps({"v": value}, ensure_ascii=False, separators=(",", ":") if compact else None)
    for end in range(1, len(text)):
        assert isinstance(json.loads(fix_json(text[:end])), dict)


def test_a_quote_in_a_key_ends_it() -> None:
    """As the AI SDK reads it: its partial parser knows no escapes in keys. Whole JSON is read as it is."""
    assert parse_partial('{"v":{"\\":":nul') is ABSENT
    assert parse_partial('{"v":{"\\":":null}}') == {"v": {'":': None}}
