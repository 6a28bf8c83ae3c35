"""What fuzzing has found, each with the right answer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
import seeds
from chat_samples import SID, Place, ask, call, user
from mutations import reframed, sealed
from store_targets import ran

import snapshotter
from snapshotter.cli import chunks
from snapshotter.cli.output import dumps, store_url
from snapshotter.core import draft
from snapshotter.core import reconcile as reconciling
from snapshotter.core.inputs import InputLog
from snapshotter.core.replay import replay
from snapshotter.errors import Corrupt, InvalidId, InvalidValue
from snapshotter.verify import verify
from streams import keys, probe
from streams.buckets.file import FileBucket
from streams.buckets.memory import MemoryBucket
from streams.codec import frame

# orjson reads 1,024 levels and writes 254; Python compares and prints fewer than 1,000.
DEEP = "[" * 990 + "]" * 990
HERE = "<deep>"


def with_deep(value: Any) -> bytes:
    """The value as JSON, `DEEP` where it says `HERE`."""
    return json.dumps(value).replace(json.dumps(HERE), DEEP).encode()


# -- names and documents -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sid", ["\udcff", "a\ud800", "%FF\udcff"])
def test_half_a_pair_in_a_listed_name_is_no_session(sid: str) -> None:
    with pytest.raises(InvalidId):
        keys.decode_sid(sid)
    assert keys.session_of(sid) is None


def test_a_file_name_that_is_no_text_hides_no_session(tmp_path: Path) -> None:
    stored = FileBucket(tmp_path / "root")
    for key, data in seeds.objects().items():
        stored.put(key, data)
    for room in ("sessions", "in", "out"):
        (tmp_path / "root" / room / os.fsdecode(b"\xff\xfe")).mkdir()
        (tmp_path / "root" / room / os.fsdecode(b"\xff\xfe") / "snapshot.json").write_bytes(b"{}")
    url = (tmp_path / "root").as_uri()
    with snapshotter.open(url) as db:
        assert [info.id for info in db.sessions()] == [SID]
    assert ran("ls", url) == 0
    assert ran("verify", url) == 0


GOOD = {
    "version": 1,
    "create": True,
    "replace": True,
    "exact": True,
    "listing": True,
    "etag": "none",
    "checkedAt": 1,
}


@pytest.mark.parametrize(
    "changed",
    [
        {"create": "yes"},
        {"replace": 1},
        {"exact": None},
        {"listing": []},
        {"etag": "odd"},
        {"etag": ["none"]},
        {"checkedAt": "1"},
        {"checkedAt": 1e300},
        {"version": 0.5},
        {"version": True},
    ],
)
def test_capabilities_of_another_shape_blame_no_store(changed: dict[str, Any]) -> None:
    assert probe.decode(json.dumps(GOOD).encode()).etag == "none"
    with pytest.raises(Corrupt, match="delete it and probe again"):
        probe.decode(json.dumps({**GOOD, **changed}).encode())


# -- the reducer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [[], {}, ["text-delta"], None, 5])
def test_a_chunk_whose_type_is_no_text_is_reported(kind: Any) -> None:
    told = replay({"chunks": [{"type": kind, "id": "t", "delta": "x"}]})
    assert told["message"] is None
    assert [line["code"] for line in told["report"]] == ["bad-chunk"]


def test_a_key_of_half_pairs_is_a_key() -> None:
    log = InputLog()
    for number in (1, 2):
        log.feed({"id": number, "kind": "stop", "key": "\ud800" * 65})
    assert log.duplicates == 1


def test_a_part_that_is_no_object_is_no_stale_copy() -> None:
    odd = {"id": "a", "role": "assistant", "parts": [None, 5, {"type": "tool-x", "state": "input-available"}]}
    assert reconciling.reconcile([odd, user("u")], []) == [odd, user("u")]


def test_a_part_that_is_no_object_is_merged_once() -> None:
    odd = {"id": "a", "role": "assistant", "parts": [5, None, "x"]}
    assert reconciling.merge_orphan(odd, odd) == odd


def test_an_answer_to_an_approval_finds_its_call_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 calls that ask, and as many answers, took 12 s, and each doubling four times as long."""
    looked: list[Any] = []
    found = draft.approval_of
    monkeypatch.setattr(draft, "approval_of", lambda part: looked.append(part) or found(part))
    given: list[Any] = [{"type": "start-step"}]
    for n in range(200):
        given += [call(f"c{n}"), ask(f"c{n}", f"ap{n}"), ask("c0", f"again{n}"), ask("c0", "ap0")]
    given += [
        {"type": "tool-approval-response", "approvalId": f"ap{n % 250}", "approved": True} for n in range(500)
    ]
    told = replay({"chunks": given})
    assert {part["state"] for part in told["message"]["parts"][1:]} == {"approval-responded"}
    assert [line["code"] for line in told["report"]] == ["orphan-chunk"] * 100
    assert len(looked) < 5_000


@pytest.mark.parametrize("calls", [False, True])
def test_a_long_transcript_is_not_compared_with_all_that_is_stored(
    monkeypatch: pytest.MonkeyPatch, calls: bool
) -> None:
    """2,000 answers against 2,000 took 9 s, and each doubling four times as long."""

    def answers(prefix: str, words: str) -> list[dict[str, Any]]:
        call = {"type": "tool-x", "state": "input-available", "input": {}}
        return [
            {
                "id": f"{prefix}{n}",
                "role": "assistant",
                "parts": [
                    {**call, "toolCallId": f"{words}{n}"} if calls else {"type": "text", "text": words}
                ],
            }
            for n in range(200)
        ]

    looked: list[Any] = []
    monkeypatch.setattr(reconciling, "same", lambda a, b: looked.append(a) or a == b)
    stored = answers("s", "one")
    assert reconciling.reconcile(answers("c", "two"), stored)[0]["id"] == "c0"
    assert [m["id"] for m in reconciling.reconcile(answers("c", "one"), stored)] == [m["id"] for m in stored]
    assert len(looked) <= 400


# -- deep, long, many ----------------------------------------------------------------------------------------


def with_record(log: str, number: int, **fields: Any) -> Place:
    """The session of `seeds`, with other fields in one record of it, and without its snapshot."""
    place = Place()
    for key, data in seeds.objects().items():
        head, *lines = data.splitlines()
        for at, line in enumerate(lines):
            record = orjson.loads(line)
            if key.startswith(f"{log}/") and record["id"] == number:
                lines[at] = with_deep({"id": number, "ts": 1, **fields})
                data = reframed(b"\n".join([head, *lines, b""]))
        if not key.startswith("sessions/"):
            place.bucket.inner.put(key, data)
    return place


def test_a_kind_that_nests_deeply_is_not_understood_and_stays_owed() -> None:
    place = with_record("in", 6, kind=HERE, name="rate")
    report = place.db.peek(SID).report
    assert [line["id"] for line in report if line["code"] == "unknown-input-kind"] == [6]


def test_a_call_id_that_nests_deeply_is_a_bad_chunk() -> None:
    number = next(r["id"] for r in map(orjson.loads, seeds.records("out")) if "delta" in r.get("chunk", {}))
    chunk = {"type": "tool-output-available", "toolCallId": HERE, "output": 1}
    report = with_record("out", number, chunk=chunk).db.peek(SID).report
    assert "bad-chunk" in [line["code"] for line in report if line["id"] == number]


def test_deep_values_are_compared_and_refused_by_the_printer() -> None:
    place = Place()
    for key, data in seeds.objects().items():
        place.bucket.inner.put(key, data)
    key = keys.snapshot(SID)
    document = orjson.loads(seeds.objects()[key])
    document["state"] = {"a": HERE}
    place.bucket.inner.put(key, sealed(with_deep(document)))
    assert [finding.code for finding in verify(place.db, SID).problems] == ["law", "law"]
    with pytest.raises(InvalidValue, match="too deeply"):
        dumps(orjson.loads(DEEP))


def test_a_run_of_very_many_deltas_is_handed_on_piece_by_piece() -> None:
    """Each costs two bytes in the store and some hundred once it stands alone."""
    many = 200_000
    line = b'{"id":1,"ts":1,"chunk":{"type":"text-delta","id":"t","delta":""},"cuts":[%b0]}' % (
        b"0," * (many - 1)
    )
    place = Place()
    place.bucket.inner.put(keys.segment("out", SID, 1), frame("out", 1, many, [line], nonce="n"))
    follower = place.db.records(SID, "out", timeout=0)
    found, _ = follower.step()
    assert [record["id"] for record in found] == list(range(1, 1001))
    assert sum(1 for _ in follower) == many - 1000
    assert next(place.db.records(SID, "out", after=many - 1, timeout=0))["id"] == many


def test_an_event_of_many_lines_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every line tried anew, 20,000 lines took half a minute."""
    parsed: list[bytes] = []
    monkeypatch.setattr(chunks, "loads", lambda data: parsed.append(data) or json.loads(data))
    lines = [b'data: {"type":"data-x","data":[{}\n', *[b"data: ,{}\n"] * 500, b"data: ]}\n"]
    assert [len(chunk["data"]) for chunk in chunks.Chunks(lines)] == [501]
    assert len(parsed) == 1


@pytest.mark.parametrize("data", [b"data: {}}\ndata: {}\n", b'data: "}\ndata: x}\n\n', b"data: [1]}\n"])
def test_an_event_with_too_many_brackets_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidValue, match=r"line [12]"):
        list(chunks.Chunks(data.splitlines(keepends=True)))


# -- the command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [None, "abc", 5, {}, [1, None, "x"], [{"type": "text", "text": 5}], [[]]])
def test_a_history_with_odd_parts_is_shown(parts: Any) -> None:
    bucket = MemoryBucket(name="found")
    document = {"version": 1, "messages": [{"id": "m", "role": "user", "parts": parts}, {"id": "n"}]}
    bucket.put(keys.snapshot(SID), json.dumps(document).encode())
    for command in ("history", "boot"):
        assert ran(command, "memory://found", SID) == 0


@pytest.mark.parametrize(
    "args",
    [
        ("ls", "memory://found", "--since", "9" * 5000 + "d"),
        ("ls", "~nobody-of-this-name/x"),
        ("log", "memory://found", SID, "in", "--timeout", "nan"),
        ("log", "memory://found", SID, "in", "--timeout", "inf"),
        ("record", "memory://found", SID, "--delay", "nan"),
        ("record", "memory://found", SID, "--delay", "1e300"),
        ("record", "memory://found", SID, "--wait", "nan"),
        ("incident", "--in", os.devnull, "--out", os.devnull, "--now", "1", "--options", "\udcff"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(args: tuple[str, ...]) -> None:
    assert ran(*args) == 2


def test_links_in_a_circle_name_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InvalidId, match="names no folder"):
        store_url(str(tmp_path / "a" / "x"))
