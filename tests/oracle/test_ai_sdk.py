"""The accumulator against the real AI SDK client: the same message for every stream and every prefix."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest
from asking import as_js, ask, shown
from streams_gen import streams

from snapshotter.core.accumulator import Accumulator
from snapshotter.core.chunks import FIELDS, ChunkError, validate
from snapshotter.core.partial_json import ABSENT, parse_partial
from snapshotter.core.replay import replay

Line = dict[str, Any]


def recorded() -> list[Line]:
    """The shipped recordings; a continuation goes on from the message that the stream before it made."""
    lines = []
    for path in sorted(files("snapshotter").joinpath("recordings").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".jsonl"):
            head, *chunks = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
            lines.append({"chunks": chunks} | {k: head[k] for k in ("message",) if k in head})
    return lines


def differences(lines: list[Line]) -> list[str]:
    found = []
    for number, (line, answer) in enumerate(zip(lines, ask(lines), strict=True)):
        assert "error" not in answer, f"not a valid stream: {answer['error']}"
        expected = answer["message"] if answer["message"] is not None else line.get("message")
        for strict in (False, True):
            got = replay(line, strict=strict)
            if got.get("report") != [] or shown(got["message"]) != shown(expected):
                found.append(f"stream {number}, strict {strict}: {got}\nexpected {expected}")
    return found


def test_generated_streams_make_the_same_message() -> None:
    lines = list(streams(seed=1, count=5000))
    kinds = Counter(_family(chunk["type"]) for line in lines for chunk in line["chunks"])
    assert set(FIELDS) | {"data-*"} == set(kinds), "the generator must produce every chunk type"
    assert min(kinds.values()) > 100
    assert differences(lines) == []


def _family(kind: str) -> str:
    return "data-*" if kind.startswith("data-") else kind


def test_shipped_recordings_make_the_same_message() -> None:
    lines = recorded()
    assert len(lines) >= 6
    assert differences(lines) == []


def test_every_prefix_makes_the_same_message() -> None:
    lines = list(streams(seed=2, count=300)) + recorded()
    answers = ask({**line, "each": True} for line in lines)
    compared = 0
    for number, (line, answer) in enumerate(zip(lines, answers, strict=True)):
        assert "error" not in answer
        ours = Accumulator(line.get("message"), strict=True)
        theirs = copy.deepcopy(line.get("message"))
        for at, (chunk, change) in enumerate(zip(line["chunks"], answer["each"], strict=True)):
            ours.apply(chunk)
            if change is not None:
                theirs = _changed(theirs, change)
            assert shown(ours.view()) == shown(theirs), f"stream {number}, chunk {at}: {chunk}"
            compared += 1
    assert compared > 5000


def _changed(before: Line | None, change: Line) -> Line:
    old = before["parts"] if before else []
    parts = [change["parts"].get(str(i), old[i] if i < len(old) else None) for i in range(change["length"])]
    return {**change["head"], "parts": parts}


JSON_PIECES = [
    *'{}[]:,"\\-.eE01 9\n\tu',
    *('"a"', '"a":', "true", "false", "null", "tru", "nul", "-1", "1.5e3", "NaN", "1e999", "1" * 24),
    *('"\\u00e9"', '"\\ud83d', "\\ude00", '"b\\n', '{"a":', "[1,", "é", "😀", "\u2028"),
    *('"constructor":{"prototype":', '"__proto__":'),
]


def json_texts(count: int) -> list[str]:
    """Texts that are nearly JSON: random pieces, and real JSON cut off or with one character changed."""
    r = random.Random(7)
    texts = ["".join(r.choice(JSON_PIECES) for _ in range(r.randint(0, 12))) for _ in range(count // 2)]
    whole = json.dumps({"a": [1, -2.5e-3, True, None, 'x\\"é\n'], "b": {"c": {}, "d": [[], "😀"]}}, indent=1)
    for ascii_only in (True, False):
        text = whole if ascii_only else json.dumps(json.loads(whole), ensure_ascii=False)
        texts += [text[:i] for i in range(len(text))]
        while len(texts) < count:
            i = r.randrange(len(text))
            texts.append(
                text[:i] + r.choice(JSON_PIECES) + text[i + r.randint(0, 2) : r.randint(i, len(text))]
            )
    return texts


def test_partial_json_is_read_the_same() -> None:
    texts = json_texts(20_000)
    [answer] = ask([{"json": texts}])
    for text, value in zip(texts, answer["values"], strict=True):
        ours = parse_partial(text)
        assert ([] if ours is ABSENT else [as_js(ours)]) == [as_js(item) for item in value], repr(text)


def test_strict_mode_refuses_what_the_schema_refuses() -> None:
    """Valid chunks with one field broken, dropped, or made null: the same verdict as the SDK's own schema."""
    r = random.Random(11)
    chunks: list[Any] = [None, 3, "x", [], {}, {"type": None}, {"type": "no-such"}]
    for line in streams(seed=3, count=150):
        for chunk in line["chunks"]:
            broken = copy.deepcopy(chunk)
            name = r.choice(list(FIELDS.get(chunk["type"], ({}, {}))[1]) + list(broken))
            if r.random() < 0.3:
                broken.pop(name, None)
            else:
                broken[name] = r.choice(
                    [None, True, 3, "json", "stop", [], {}, {"a": {}}, {"a": 1}, [{"source": 1}]]
                )
            chunks += [chunk, broken]
    [answer] = ask([{"validate": chunks}])
    verdicts = Counter(answer["valid"])
    assert verdicts[True] > 1000
    assert verdicts[False] > 1000
    for chunk, valid in zip(chunks, answer["valid"], strict=True):
        if valid:
            validate(chunk)
        else:
            with pytest.raises(ChunkError):
                validate(chunk)


def test_a_broken_stream_is_an_error_for_both() -> None:
    """Drop one chunk of a valid stream: where the client fails, strict mode fails at the same chunk."""
    r = random.Random(13)
    lines = []
    for line in streams(seed=4, count=300):
        if line["chunks"]:
            gone = r.randrange(len(line["chunks"]))
            lines.append({**line, "chunks": line["chunks"][:gone] + line["chunks"][gone + 1 :], "each": True})
    failed = 0
    for line, answer in zip(lines, ask(lines), strict=True):
        got = replay(line, strict=True)
        assert ("error" in got) == ("error" in answer), (got, answer)
        if "error" in got:
            assert got["at"] == answer["at"]
            failed += 1
    assert failed > 20
