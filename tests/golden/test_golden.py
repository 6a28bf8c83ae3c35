"""Golden bytes of every format version: they are read for ever, and version 1 is still written like this.

The files were written once and are never made again by a test. `expected.json` says what each holds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streams import keys
from streams.buckets.memory import MemoryBucket
from streams.codec import decode_segment, encode_segment
from streams.log import read_all
from streams.packing import Packer, unpack
from streams.store import Store
from streams.testing.clocks import FakeClock

V1 = Path(__file__).parent / "v1"
EXPECTED: dict[str, Any] = json.loads((V1 / "expected.json").read_text())
HEADER = ("epoch", "run", "nonce", "prev", "lease")


def test_every_golden_file_has_its_expectation() -> None:
    assert {path.name for path in V1.glob("*.jsonl")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_bytes_decode_to_what_they_always_did(name: str) -> None:
    expected = EXPECTED[name]
    key = keys.segment(expected["log"], "s", expected["first"])
    segment = decode_segment((V1 / name).read_bytes(), key=key)
    assert segment is not None
    header = {field: getattr(segment.header, field) for field in ("v", "log", "first", "last", *HEADER)}
    assert header == {field: expected.get(field) for field in header}
    assert segment.records == expected["stored"]
    assert [u for record in segment.records for u in unpack(record)] == expected["records"]


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name]["ours"]])
def test_the_same_records_still_give_the_same_bytes(name: str) -> None:
    expected = EXPECTED[name]
    header = {field: expected[field] for field in HEADER if field in expected}
    assert encode_segment(expected["log"], expected["stored"], **header) == (V1 / name).read_bytes()


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name]["ours"]])
def test_the_same_deltas_are_still_packed_like_this(name: str) -> None:
    def delta_of(chunk: dict[str, Any]) -> tuple[Any, str] | None:
        field = {"text-delta": "delta", "reasoning-delta": "delta", "tool-input-delta": "inputTextDelta"}.get(
            chunk["type"]
        )
        return ((chunk["type"], chunk.get("id", chunk.get("toolCallId"))), field) if field else None

    expected = EXPECTED[name]
    packer = Packer(expected["first"], delta_of)
    for record in expected["records"]:
        packer.add(record["ts"], {k: v for k, v in record.items() if k not in ("id", "ts")})
    lines = (V1 / name).read_bytes().splitlines()[1:]
    assert packer.lines() == lines


def test_the_golden_log_is_read_as_a_whole() -> None:
    clock = FakeClock()
    store = Store(MemoryBucket(clock), clock)
    for name, expected in EXPECTED.items():
        store.put(keys.segment(expected["log"], "s", expected["first"]), (V1 / name).read_bytes())
    out = [u["id"] for record in read_all(store, "out", "s").records for u in unpack(record)]
    assert out == list(range(1, 16))
    assert [record["kind"] for record in read_all(store, "in", "s").records] == ["message"]
