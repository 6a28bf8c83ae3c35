"""Packing loses nothing, from the start and from the middle; surrogate pairs stay whole."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import delta_of, text

from streams.errors import Corrupt, InvalidValue, TooLarge
from streams.packing import SPAN_MS, Carry, Packer, count, last_id, unpack, unpack_after
from streams.records import LIMIT

whole = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
halves = st.lists(
    st.sampled_from(["a", "\ud83d", "\ude00", "é", "😀", "x\ud83d", "\ude00y", ""]), max_size=12
)


def tool(part: str, delta: str) -> dict[str, Any]:
    return {"chunk": {"type": "tool-input-delta", "toolCallId": part, "inputTextDelta": delta}}


bodies = st.one_of(
    st.builds(text, st.sampled_from(["t1", "t2"]), whole),
    st.builds(tool, st.sampled_from(["t1", "c2"]), whole),
    st.just({"chunk": {"type": "text-delta", "id": "t1", "delta": "m", "providerMetadata": {}}}),
    st.just({"control": "heartbeat"}),
)


def pack(items: list[tuple[int, dict[str, Any]]], first: int = 1) -> list[dict[str, Any]]:
    packer = Packer(first, delta_of)
    for ts, body in items:
        packer.add(ts, body)
    return [orjson.loads(line) for line in packer.lines()]


@given(st.lists(st.tuples(st.integers(0, 3000), bodies), max_size=30), st.integers(1, 1000))
def test_unpacking_gives_back_the_same_ids_and_chunks(
    items: list[tuple[int, dict[str, Any]]], first: int
) -> None:
    records = pack(items, first)
    flat = [record for stored in records for record in unpack(stored)]
    assert [r["id"] for r in flat] == list(range(first, first + len(items)))
    assert [{k: v for k, v in r.items() if k not in ("id", "ts")} for r in flat] == [
        body for _, body in items
    ]
    assert all(0 <= ts - r["ts"] < SPAN_MS for r, (ts, _) in zip(flat, items, strict=True))
    assert sum(map(count, records)) == len(items)
    for stored in records:
        everything = list(unpack(stored))
        for after in range(stored["id"] - 1, last_id(stored) + 1):
            assert list(unpack_after(stored, after)) == [r for r in everything if r["id"] > after]


def test_a_run_is_stored_as_the_format_says() -> None:
    records = pack(
        [(5, text("t1", "Hel")), (6, text("t1", "lo")), (7, text("t1", " there")), (8, text("t1", ""))], 43
    )
    chunk = {"type": "text-delta", "id": "t1", "delta": "Hello there"}
    assert records == [{"id": 43, "ts": 5, "chunk": chunk, "cuts": [3, 5, 11, 11]}]


def test_a_lone_delta_is_stored_plainly() -> None:
    assert pack([(5, text("t1", "Hi"))]) == [{"id": 1, "ts": 5, **text("t1", "Hi")}]


@pytest.mark.parametrize(
    "second",
    [
        (5, text("t2", "b")),
        (5, tool("t1", "b")),
        (5 + SPAN_MS, text("t1", "b")),
        (4, text("t1", "b")),
        (5, {"chunk": {"type": "text-delta", "id": "t1", "delta": "b", "providerMetadata": {}}}),
        (5, {**text("t1", "b"), "extra": 1}),
    ],
)
def test_what_differs_is_not_packed(second: tuple[int, dict[str, Any]]) -> None:
    records = pack([(5, text("t1", "a")), second])
    assert len(records) == 2
    assert records[1] == {"id": 2, "ts": second[0], **second[1]}


def test_a_run_ends_at_its_second_and_another_begins() -> None:
    records = pack([(t, text("t", "x")) for t in range(0, 3000, 100)])
    assert [(r["id"], r["ts"], len(r["cuts"])) for r in records] == [
        (1, 0, 10),
        (11, 1000, 10),
        (21, 2000, 10),
    ]


def test_cuts_count_code_points() -> None:
    (record,) = pack([(0, text("t", "😀")), (0, text("t", "é"))])
    assert record["cuts"] == [1, 2]


def test_a_run_stays_below_the_limit_whatever_is_in_it() -> None:
    worst = "\x01" * 5000
    packer = Packer(1, delta_of)
    for _ in range(60):
        packer.add(0, text("t", worst))
    for _ in range(40_000):
        packer.add(0, text("t", ""))
    lines = packer.lines()
    assert max(map(len, lines)) <= LIMIT
    flat = [r["chunk"]["delta"] for line in lines for r in unpack(orjson.loads(line))]
    assert flat == [worst] * 60 + [""] * 40_000


def test_the_limit_is_measured_on_the_encoded_bytes() -> None:
    empty = len(orjson.dumps({"id": 1, "ts": 5, **text("t", "")}))
    packer = Packer(1, delta_of)
    with pytest.raises(TooLarge) as caught:
        packer.add(5, text("t", "a" * (LIMIT - empty + 1)))
    assert (caught.value.size, caught.value.limit) == (LIMIT + 1, LIMIT)
    assert not packer
    assert packer.next == 1
    assert packer.add(5, text("t", "a" * (LIMIT - empty))) == 1
    assert [len(line) for line in packer.lines()] == [LIMIT]


@pytest.mark.parametrize(
    ("letter", "amount", "fits"), [("a", 900_000, True), ('"', 600_000, False), ("😀", 300_000, False)]
)
def test_large_outputs_by_their_encoded_size(letter: str, amount: int, fits: bool) -> None:
    packer = Packer(1, delta_of)
    body = {"chunk": {"type": "tool-output-available", "toolCallId": "c", "output": letter * amount}}
    if fits:
        assert packer.add(0, body) == 1
    else:
        with pytest.raises(TooLarge):
            packer.add(0, body)
        assert not packer


@pytest.mark.parametrize(
    "bad", [{"control": "state", "set": {"x": 2**70}}, {"control": "x", "y": {1, 2}}, text("t", "\ud800")]
)
def test_what_json_cannot_hold_is_refused_and_nothing_taken(bad: dict[str, Any]) -> None:
    packer = Packer(1, delta_of)
    packer.add(0, text("t", "a"))
    with pytest.raises(InvalidValue):
        packer.add(0, bad)
    with pytest.raises(InvalidValue):
        packer.add_all(0, [{"control": "fine"}, bad])
    assert packer.next == 2


def test_a_body_cannot_choose_its_place() -> None:
    (record,) = pack([(5, {"control": "x", "id": 99, "ts": 1})])
    assert (record["id"], record["ts"]) == (1, 5)


def test_later_changes_to_a_chunk_do_not_reach_the_buffer() -> None:
    body = text("t", "a")
    packer = Packer(1, delta_of)
    packer.add(0, body)
    packer.add(0, text("t", "b"))
    body["chunk"]["id"] = "changed"
    body["chunk"]["delta"] = "changed"
    assert orjson.loads(packer.lines()[0])["chunk"] == {"type": "text-delta", "id": "t", "delta": "ab"}


def test_the_size_follows_the_bytes() -> None:
    packer = Packer(1, delta_of)
    for _ in range(1000):
        packer.add(0, text("t", "né😀"))
    packer.add(0, {"control": "heartbeat"})
    assert packer.size == pytest.approx(sum(map(len, packer.lines())), rel=0.2)


@pytest.mark.parametrize("cuts", [[1.0, 2], [True, 2], ["1", 2], [None, 2]])
def test_cuts_that_are_no_whole_numbers_are_corrupt(cuts: list[Any]) -> None:
    with pytest.raises(Corrupt):
        list(unpack({"id": 1, "ts": 0, **text("t", "ab"), "cuts": cuts}))


def test_cuts_without_a_text_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        list(unpack({"id": 1, "ts": 0, "chunk": {"type": "x"}, "cuts": [1]}))


@given(halves)
def test_carry_keeps_pairs_whole_and_the_number_of_deltas(pieces: list[str]) -> None:
    carry = Carry()
    stored = [carry.delta("p", piece) for piece in pieces]
    end = carry.end("p")
    whole_text = "".join(stored) + end
    whole_text.encode()  # no surrogate is left
    assert whole_text == "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert len(stored) == len(pieces)
    assert carry.parts == ()


def test_carry_puts_the_half_before_the_next_delta_of_its_own_part() -> None:
    carry = Carry()
    assert carry.delta("a", "x\ud83d") == "x"
    assert carry.delta("b", "y") == "y"
    assert carry.parts == ("a",)
    assert carry.delta("a", "") == ""
    assert carry.delta("a", "\ude00z") == "😀z"
    assert carry.end("a") == ""


def test_half_a_pair_at_the_end_of_its_part_is_replaced() -> None:
    carry = Carry()
    assert carry.delta("a", "\ud83d") == ""
    assert carry.end("a") == "\ufffd"
    assert carry.end("a") == ""
