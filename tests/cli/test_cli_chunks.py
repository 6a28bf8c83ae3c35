"""Chunks from JSON lines and server-sent events, however they are framed."""

from __future__ import annotations

import io
import json

import pytest
from cli_runs import ANSWER
from hypothesis import given
from hypothesis import strategies as st

from snapshotter import InvalidValue
from snapshotter.cli.chunks import Chunks

A, B = {"type": "start"}, {"type": "text-delta", "id": "t", "delta": "a\u2028b\u0085c\rd"}


def read(data: bytes) -> list[dict[str, object]]:
    return list(Chunks(io.BytesIO(data)))


def text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "data",
    [
        text(A) + b"\n" + text(B),
        text(A) + b"\r\n\r\n" + text(B) + b"\n",
        b"data: " + text(A) + b"\n\ndata: " + text(B) + b"\n\ndata: [DONE]\n\n",
        b"data:" + text(A) + b"\r\n\r\ndata:" + text(B),
        b"data: " + text(A) + b"\ndata: " + text(B) + b"\n",
        b": ping\n\n" + text(A) + b"\nevent: x\nid: 7\nretry: 10\ndata: " + text(B) + b"\n\n",
        b'data: {"type":\ndata: "start"}\n\ndata: ' + text(B) + b"\n\n",
        b"\xef\xbb\xbf" + text(A) + b"\n" + text(B),
        b"data:\n\ndata: " + text(A) + b"\n\n\n\n\ndata: " + text(B) + b"\n\n",
        b'{"name":"a recording","user":"hi"}\n' + text(A) + b"\n" + text(B),
    ],
)
def test_framings(data: bytes) -> None:
    assert read(data) == [A, B]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"nonsense", 1),
        (text(A) + b"\n[1]\n", 2),
        (b'{"type":"start","x":NaN}\n', 1),
        (text(A) + b"\n\n\xff\xfe\n", 3),
        (b"data: {broken\n\n", 2),
        (b'data: {"type":\n' + text(A) + b"\n", 2),
        (b"data: 7\n\n", 2),
        (text(A) + b'\ndata: {"type":', 2),
    ],
)
def test_what_is_neither_is_named_by_its_line(data: bytes, line: int) -> None:
    with pytest.raises(InvalidValue, match=f"line {line}"):
        read(data)


def test_the_line_of_a_chunk_is_known_while_it_is_handled() -> None:
    chunks = Chunks(
        io.BytesIO(b": ping\n\n" + text(A) + b"\ndata: " + text(B)[:9] + b"\ndata: " + text(B)[9:])
    )
    assert [chunks.line for _ in chunks] == [3, 5]


def test_only_the_first_object_may_lack_a_type() -> None:
    assert read(text(A) + b'\n{"name":"x"}\n') == [A, {"name": "x"}]


def test_a_chunk_is_there_before_the_next_line() -> None:
    def lines() -> object:
        yield b"data: " + text(A) + b"\n"
        raise AssertionError("asked for another line")

    assert next(iter(Chunks(lines()))) == A  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from(ANSWER), st.sampled_from(["json", "sse", "split"]))), st.booleans())
def test_mixed_framings_give_the_same_chunks(plan: list[tuple[dict[str, object], str]], crlf: bool) -> None:
    end = b"\r\n" if crlf else b"\n"
    data = b""
    for chunk, form in plan:
        raw = json.dumps(chunk, ensure_ascii=False, indent=1 if form == "split" else None).encode()
        if form == "json":
            data += raw + end
        else:
            data += b"".join(b"data: " + line + end for line in raw.split(b"\n")) + end
    assert read(data) == [chunk for chunk, _ in plan]
