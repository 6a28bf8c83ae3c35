"""Segments: what goes in comes out; what was damaged is noticed."""

from __future__ import annotations

import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import delta_of, text

from streams import keys
from streams.codec import decode_segment, encode_segment, frame, read_records
from streams.errors import Corrupt, Gap, NewerVersion, TooLarge
from streams.packing import Packer, unpack
from streams.records import LIMIT, MAX_SEGMENT, Segment

words = st.text(st.characters(exclude_categories=["Cs"]))
json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def sample(first: int = 42) -> bytes:
    packer = Packer(first, delta_of)
    packer.add(1000, {"control": "turn-start", "turn": 1, "inputs": [1]})
    for piece in ("Hel", "lo", " né😀", ""):
        packer.add(1001, text("t1", piece))
    packer.add(1002, {"chunk": {"type": "text-end", "id": "t1"}})
    return frame(
        "out", first, packer.next - 1, packer.lines(), nonce="n2", prev="n1", epoch=3, run="r-1", lease=15
    )


def seal(header: dict[str, Any], lines: list[bytes]) -> bytes:
    """A segment as a hand might write it: a true checksum, whatever the content."""
    body = b"".join(line + b"\n" for line in lines)
    return (
        orjson.dumps({"v": 1, "log": "out", "nonce": "n", "crc": zlib.crc32(body), **header}) + b"\n" + body
    )


def decoded(data: bytes, key: str = "") -> Segment:
    segment = decode_segment(data, key=key)
    assert segment is not None
    return segment


def test_a_segment_comes_back_with_its_header() -> None:
    key = keys.segment("out", "s", 42)
    segment = decode_segment(sample(), key=key, modified_ms=77)
    assert segment is not None
    header = segment.header
    assert (header.v, header.log, header.first, header.last) == (1, "out", 42, 47)
    assert (header.epoch, header.run, header.nonce, header.prev, header.lease) == (3, "r-1", "n2", "n1", 15)
    assert (segment.key, segment.modified_ms, segment.size) == (key, 77, len(sample()))
    assert [r["id"] for r in segment.records] == [42, 43, 47]


def test_an_in_segment_has_no_fields_of_a_worker() -> None:
    data = encode_segment("in", [{"id": 1, "ts": 5, "kind": "stop"}], nonce="n")
    assert set(orjson.loads(data.split(b"\n")[0])) == {"v", "log", "first", "last", "nonce", "crc", "hcrc"}
    assert decoded(data).records == [{"id": 1, "ts": 5, "kind": "stop"}]


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "chunk", "control"]), json), min_size=1, max_size=5),
    st.integers(1, 10**12),
)
def test_any_json_comes_back_exactly(bodies: list[dict[str, Any]], first: int) -> None:
    records = [{"id": first + i, "ts": 0, **body} for i, body in enumerate(bodies)]
    segment = decoded(encode_segment("out", records, nonce="n"))
    assert segment.records == records
    assert orjson.dumps(segment.records) == orjson.dumps(records)  # 1.0 stays a float, -0.0 keeps its sign


def test_numbers_keep_every_bit() -> None:
    values = [0.1 + 0.2, -0.0, 1.0, 5e-324, 2**64 - 1, -(2**63)]
    (record,) = decoded(encode_segment("out", [{"id": 1, "ts": 0, "v": values}], nonce="n")).records
    assert [repr(v) for v in record["v"]] == [repr(v) for v in values]


def test_the_checksum_is_that_of_the_bytes_behind_the_header() -> None:
    head, _, body = sample().partition(b"\n")
    assert orjson.loads(head)["crc"] == zlib.crc32(body)


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    data = sample()
    good = decoded(data)
    harmless = 0
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            try:
                assert decode_segment(bytes(damaged)) == good
            except Corrupt:
                continue
            harmless += 1
    assert harmless < 60  # only the name of the optional checksum may change unseen


def test_every_truncation_is_corrupt() -> None:
    data = sample()
    for end in range(1, len(data)):
        with pytest.raises(Corrupt):
            decode_segment(data[:end])


def test_an_empty_object_is_absent() -> None:
    assert decode_segment(b"", key=keys.segment("out", "s", 1)) is None


def test_a_header_without_its_own_checksum_is_read() -> None:
    segment = decoded(seal({"first": 1, "last": 1}, [b'{"id":1,"ts":0}']))
    assert segment.records == [{"id": 1, "ts": 0}]


def test_unknown_header_fields_are_passed_over() -> None:
    assert decoded(seal({"first": 1, "last": 1, "new": [1]}, [b'{"id":1}'])).header.last == 1


def test_a_newer_version_names_both() -> None:
    with pytest.raises(NewerVersion, match=r"version 2.*up to 1") as caught:
        decode_segment(seal({"first": 1, "last": 1, "v": 2}, [b'{"id":1}']), key="k")
    assert caught.value.key == "k"


@pytest.mark.parametrize(
    ("header", "lines", "offset"),
    [
        ({"last": 2}, [b'{"id":1}'], "lines"),
        ({"last": 1}, [b'{"id":1}', b'{"id":2}'], "lines"),
        ({"last": 2}, [b'{"id":1}', b'{"id":3}'], 9),
        ({"last": 2}, [b'{"id":2}', b'{"id":3}'], 0),
        ({"last": 2}, [b'{"id":1}', b"[]"], 9),
        ({"last": 2}, [b'{"id":1}', b"7"], 9),
        ({"last": 2}, [b'{"id":1}', b'{"x":NaN}'], 9),
        ({"last": 2}, [b'{"id":1}', b'{"x":1e999}'], 9),
        ({"last": 2}, [b'{"id":1}', b""], 9),
        ({"last": 2}, [b'{"id":1}', b'{"ts":1}'], 9),
        ({"last": 2}, [b'{"id":1},{"id":2}'], 0),
        ({"last": 2}, [b'{"id":1', b'"x":2}'], 0),
        ({"last": 1}, [b'{"id":true}'], 0),
        ({"last": 2}, [b'{"id":1,"chunk":{"delta":"ab"},"cuts":[1,3]}'], 0),
        ({"last": 2}, [b'{"id":1,"chunk":{"delta":"ab"},"cuts":[3,2]}'], 0),
        ({"last": 2}, [b'{"id":1,"chunk":{"delta":"ab"},"cuts":[-1,2]}'], 0),
        ({"last": 2}, [b'{"id":1,"chunk":{"delta":"ab"},"cuts":["1",2]}'], 0),
        ({"last": 1}, [b'{"id":1,"chunk":{"delta":"ab"},"cuts":[]}'], 0),
        ({"last": 2}, [b'{"id":1,"chunk":{"delta":"ab"},"cuts":[1]}', b'{"id":2}'], 0),
        ({"last": 1}, [b'{"id":1,"chunk":{"x":"ab"},"cuts":[2]}'], 0),
        ({"last": 1}, [b'{"id":1,"chunk":7,"cuts":[2]}'], 0),
        ({"last": 1}, [b'{"id":1,"cuts":[2]}'], 0),
        ({"last": 1}, [b'{"id":1,"chunk":{"delta":"ab"},"cuts":null}'], 0),
        ({"last": 1}, [b'{"id":1,"chunk":{"delta":7},"cuts":[2]}'], 0),
        ({"last": 1}, [b'{"id":1,"chunk":{"delta":[1,2]},"cuts":[2]}'], 0),
    ],
)
def test_records_that_do_not_hold_are_corrupt_at_their_byte(
    header: dict[str, Any], lines: list[bytes], offset: Any
) -> None:
    data = seal({"first": 1, **header}, lines)
    with pytest.raises(Corrupt) as caught:
        decode_segment(data, key="some/key")
    assert caught.value.key == "some/key"
    assert "some/key" in str(caught.value)
    start = data.index(b"\n") + 1
    assert caught.value.offset == start + (0 if offset == "lines" else offset)


@pytest.mark.parametrize(
    "wrong",
    [
        {"v": 0},
        {"v": True},
        {"v": "1"},
        {"log": "up"},
        {"first": 0},
        {"first": True},
        {"first": 2},
        {"last": 1.0},
        {"nonce": ""},
        {"nonce": 7},
        {"prev": 7},
        {"epoch": "1"},
        {"run": 1},
        {"lease": "15"},
        {"crc": None},
        {"crc": 1},
        {"log": None},
        {"log": []},
        {"hcrc": 1},
    ],
)
def test_a_bad_header_is_corrupt(wrong: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        decode_segment(seal({"first": 1, "last": 1, **wrong}, [b'{"id":1}']))


@pytest.mark.parametrize(
    "data", [b"\n", b"{}\n", b"[]\n", b"x", b"\x00" * 100, b"\xff\n", b"[" * 5000 + b"\n"]
)
def test_garbage_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_segment(data)


def test_a_very_deep_record_is_corrupt_and_nothing_worse() -> None:
    deep = b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(Corrupt):
        decode_segment(seal({"first": 1, "last": 1}, [deep]))


def test_an_object_above_every_segment_is_not_parsed() -> None:
    with pytest.raises(Corrupt, match="more than any segment"):
        decode_segment(bytes(MAX_SEGMENT + 1))


@pytest.mark.parametrize("key", [keys.segment("out", "s", 41), keys.segment("in", "s", 42)])
def test_a_segment_under_another_key_is_corrupt(key: str) -> None:
    with pytest.raises(Corrupt):
        decode_segment(sample(42), key=key)


def test_a_record_at_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    empty = len(orjson.dumps({"id": 1, "ts": 0, "x": ""}))
    encode_segment("out", [{"id": 1, "ts": 0, "x": "a" * (LIMIT - empty)}], nonce="n")
    with pytest.raises(TooLarge) as caught:
        encode_segment("out", [{"id": 1, "ts": 0, "x": "a" * (LIMIT - empty + 1)}], nonce="n")
    assert caught.value.size == LIMIT + 1


def test_ids_with_a_hole_are_not_encoded() -> None:
    with pytest.raises(ValueError, match="3 stands where 2"):
        encode_segment("out", [{"id": 1}, {"id": 3}], nonce="n")


def test_stored_runs_are_encoded_as_they_are() -> None:
    segment = decoded(sample(1))
    again = encode_segment("out", segment.records, nonce="n2", prev="n1", epoch=3, run="r-1", lease=15)
    assert again == sample(1)


def test_unframed_records_are_read_with_or_without_headers() -> None:
    plain = [
        b'{"id":5,"ts":1,"control":"x"}\n',
        b"\n",
        '{"id":6,"ts":1,"chunk":{"type":"text-delta","delta":"né"},"cuts":[1,2]}\n',
        b'{"id":8}',
    ]
    assert [r["id"] for r in read_records(plain, log="out")] == [5, 6, 8]
    framed = sample(1).splitlines(keepends=True) + sample(7).splitlines(keepends=True)
    records = read_records(framed, log="out")
    assert [u["id"] for r in records for u in unpack(r)] == list(range(1, 13))


@pytest.mark.parametrize(
    ("lines", "offset"),
    [
        ([b'{"id":1}\n', b"nope\n"], 9),
        ([b'{"id":1}\n', b"[1]\n"], 9),
        ([b'{"id":1}\n', b'{"ts":1}\n'], 9),
        ([b'{"id":"1"}\n'], 0),
        ([b'{"id":1}\n', b'{"id":1}\n'], 9),
        ([b'{"id":1}\n', '{"id":2,"x":"\ud800"}\n'], 9),
        ([b'{"id":1,"chunk":{"delta":"ab"},"cuts":[1]}\n'], 0),
    ],
)
def test_unframed_records_that_do_not_hold_are_named(lines: list[bytes | str], offset: int) -> None:
    with pytest.raises(Corrupt) as caught:
        read_records(lines, log="out", name="input.jsonl")
    assert (caught.value.key, caught.value.offset) == ("input.jsonl", offset)


def test_a_hole_between_unframed_records_is_a_gap() -> None:
    with pytest.raises(Gap) as caught:
        read_records([b'{"id":1}', b'{"id":5}'], log="in")
    assert (caught.value.log, caught.value.missing) == ("in", (2, 4))
