"""Keys: injective, safe, parsed both ways."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import keys
from streams.errors import InvalidId

HOSTILE = [
    "../victim",
    "a/b",
    "u1/sessions/s2",
    "snapshots",
    "snapshot.json",
    "a%2Fb",
    "a",
    "A",
    "ab",
    "é",
    "e\u0301",
    "x\x00y",
    "-",
    " a",
    "a ",
    "..a",
    "...b",
    "%",
    "%2e%2e",
    "in",
    "out",
    "sessions",
    "\n",
    "💬",
    "a\\b",
    "a+b",
    "a=b",
]

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda s: s.strip(".") != "")


@pytest.mark.parametrize("session_id", HOSTILE)
def test_a_hostile_id_is_one_safe_segment_and_comes_back(session_id: str) -> None:
    sid = keys.encode_sid(session_id)
    assert re.fullmatch(r"[A-Za-z0-9_.%-]+", sid)
    assert sid not in {".", ".."}
    assert keys.decode_sid(sid) == session_id


def test_no_two_hostile_ids_share_a_segment_and_none_is_a_prefix_of_another() -> None:
    prefixes = [keys.log_prefix("out", keys.encode_sid(s)) for s in HOSTILE]
    assert len(set(prefixes)) == len(HOSTILE)
    assert not any(a != b and a.startswith(b) for a in prefixes for b in prefixes)


def test_encoding_is_percent_of_utf8_in_upper_case() -> None:
    assert keys.encode_sid("a/é") == "a%2F%C3%A9"
    assert keys.encode_sid("chat_1.x-Y") == "chat_1.x-Y"


@given(ids, ids)
def test_encoding_is_injective(one: str, other: str) -> None:
    first, second = keys.encode_sid(one, 100_000), keys.encode_sid(other, 100_000)
    assert (first == second) == (one == other)
    assert keys.decode_sid(first) == one


@pytest.mark.parametrize("session_id", ["", ".", "..", "....", "\ud800", "a\udc00b"])
def test_an_id_that_cannot_be_stored_is_refused(session_id: str) -> None:
    with pytest.raises(InvalidId):
        keys.encode_sid(session_id)


def test_an_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidId, match="int"):
        keys.encode_sid(7)


@given(
    one=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), other=st.text("ab.%/é", max_size=9)
)
def test_an_id_begins_as_its_segment_does(one: str, other: str) -> None:
    start = keys.encode_start(one)
    assert keys.encode_sid(one + other + "x").startswith(start)
    assert bool(start) == bool(one.strip("."))
    assert keys.sessions_prefix(start) == f"sessions/{start}"


@pytest.mark.parametrize("start", ["a/b", "..", "a b", "%2f"])
def test_a_listing_takes_no_raw_beginning(start: str) -> None:
    with pytest.raises(InvalidId):
        keys.sessions_prefix(start)


def test_the_longest_id_is_the_one_whose_longest_key_just_fits() -> None:
    room = 300
    longest = len(keys.block("x", keys.content_name("0" * 64, "f" * 24))) - 1
    sid = keys.encode_sid("x" * (room - longest), room)
    others = [
        keys.block(sid, keys.content_name("0" * 64, "f" * 24)),
        keys.value(sid, keys.content_name("0" * 64, "f" * 24)),
        keys.segment("out", sid, keys.MAX),
        keys.checkpoint(sid, keys.MAX),
        keys.snapshot(sid),
    ]
    assert max(map(len, others)) == room
    with pytest.raises(InvalidId, match="shorter"):
        keys.encode_sid("x" * (room - longest + 1), room)
    with pytest.raises(InvalidId, match="shorter"):
        keys.encode_sid("💬" * 20, room)


@pytest.mark.parametrize(
    "sid", ["", ".", "a/b", "a%2fb", "a%41", "%C3", "%FF", "a b", "a%", "a\n", "é", "%ED%A0%80"]
)
def test_what_encode_never_made_is_not_decoded(sid: str) -> None:
    with pytest.raises(InvalidId):
        keys.decode_sid(sid)


@pytest.mark.parametrize("raw", ["a/b", "", "..", "é", "a\n", "a b"])
def test_a_raw_id_never_becomes_a_key(raw: str) -> None:
    for build in (keys.snapshot, lambda s: keys.log_prefix("in", s), lambda s: keys.segment("in", s, 1)):
        with pytest.raises(InvalidId):
            build(raw)


def test_the_table_of_keys() -> None:
    name = keys.content_name("ab" * 32, "n1")
    assert keys.snapshot("s") == "sessions/s/snapshot.json"
    assert keys.segment("out", "s", 42) == "out/s/9999999999999957-42.jsonl"
    assert keys.segment("in", "s", 1) == "in/s/9999999999999998-1.jsonl"
    assert keys.segment("in", "s", keys.MAX) == "in/s/0000000000000000-9999999999999999.jsonl"
    assert keys.checkpoint("s", 5) == "checkpoints/s/9999999999999994-5.json"
    assert keys.checkpoint("s", 0) == "checkpoints/s/9999999999999999-0.json"
    assert keys.parse_checkpoint(keys.checkpoint("s", 0)) == ("s", 0)
    assert keys.parse_segment("in/s/9999999999999999-0.jsonl") is None
    assert keys.block("s", name) == f"blocks/s/{'ab' * 32}-n1.json.gz"
    assert keys.value("s", name) == f"values/s/{'ab' * 32}-n1.json"
    assert keys.sessions_prefix() == "sessions/"
    assert keys.CAPABILITIES == "capabilities.json"


@pytest.mark.parametrize("first", [0, -1, keys.MAX + 1])
def test_a_number_out_of_range_is_refused(first: int) -> None:
    with pytest.raises(ValueError, match="numbers"):
        keys.segment("out", "s", first)


def test_a_name_of_another_form_is_refused() -> None:
    for name in ("", "x", "../x", "ab" * 32, "AB" * 32 + "-n", "ab" * 32 + "-a/b"):
        with pytest.raises(InvalidId):
            keys.value("s", name)


@given(ids, st.integers(1, keys.MAX), st.sampled_from(["in", "out"]))
def test_keys_parse_both_ways(session_id: str, number: int, log: keys.Log) -> None:
    sid = keys.encode_sid(session_id, 100_000)
    name = keys.content_name("0" * 64, "nonce")
    assert keys.parse_segment(keys.segment(log, sid, number)) == (log, sid, number)
    assert keys.parse_checkpoint(keys.checkpoint(sid, number)) == (sid, number)
    assert keys.parse_snapshot(keys.snapshot(sid)) == sid
    assert keys.parse_content(keys.block(sid, name)) == ("blocks", sid, name)
    assert keys.parse_content(keys.value(sid, name)) == ("values", sid, name)


@pytest.mark.parametrize(
    "key",
    [
        "out/s/9999999999999957-41.jsonl",
        "out/s/9999999999999957-42.json",
        "out/s/9999999999999957-042.jsonl",
        "out//9999999999999957-42.jsonl",
        "out/a/b/9999999999999957-42.jsonl",
        "x/s/9999999999999957-42.jsonl",
        "out/s/9999999999999957-42.jsonl\n",
        "out/./9999999999999957-42.jsonl",
        "checkpoints/s/9999999999999994-5.jsonl",
        "sessions/s/snapshot.json",
        "sessions/s/other.json",
        "sessions/../snapshot.json",
        "capabilities.json",
        "",
        "out/s/9999999999999999-0.jsonl",
        "blocks/s/x.json.gz",
    ],
)
def test_a_key_that_is_not_ours_is_none(key: str) -> None:
    assert keys.parse_segment(key) is None
    assert keys.parse_checkpoint(key) is None
    assert keys.parse_content(key) is None
    assert (keys.parse_snapshot(key) is None) == (key != "sessions/s/snapshot.json")


@given(st.integers(1, keys.MAX), st.integers(1, keys.MAX))
def test_an_ascending_listing_shows_the_newest_first(one: int, other: int) -> None:
    assert (keys.segment("out", "s", one) < keys.segment("out", "s", other)) == (one > other)
