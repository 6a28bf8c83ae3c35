"""`replay` and `fold` over files: what they print, for good input and for bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ANSWER, answered, database, jsonl, run

U1 = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
IN = {"id": 1, "ts": 1, "kind": "message", "message": U1}
START = {"id": 1, "ts": 2, "control": "turn-start", "turn": 1, "attempt": 1, "epoch": 1, "run": "r"}
START |= {"inputs": [1], "seen": 1, "mode": "fresh", "messageId": "a1"}
OUT = [START, *({"id": i, "ts": 3, "chunk": chunk} for i, chunk in enumerate(ANSWER[:5], 2))]


def fold(folder: Path, incoming: Any, outgoing: Any, *options: object) -> Any:
    for name, records in (("in", incoming), ("out", outgoing)):
        (folder / name).write_bytes(records if isinstance(records, bytes) else jsonl(*records))
    return run("fold", "--in", folder / "in", "--out", folder / "out", "--json", *options)


# -- replay ---------------------------------------------------------------------------------------------


def test_replay_prints_a_message_for_each_line() -> None:
    continued = {"id": "a0", "role": "assistant", "parts": [{"type": "text", "text": "so", "state": "done"}]}
    done = run("replay", "--json", stdin=jsonl({"chunks": ANSWER}, {"chunks": [], "message": continued}))
    assert done.code == 0
    first, second = done.lines
    assert first["message"]["parts"][-1] == {"type": "text", "text": "Hello \u2028 there", "state": "done"}
    assert first["report"] == []
    assert second == {"message": continued, "report": []}


def test_replay_reads_a_file_and_skips_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "streams").write_bytes(b"\n" + jsonl({"chunks": ANSWER[:2]}) + b"\r\n")
    assert run("replay", tmp_path / "streams", "--json").json == {"message": None, "report": []}


def test_replay_goes_on_where_a_stream_breaks_a_rule_and_strict_stops() -> None:
    stream = jsonl({"chunks": [{"type": "start"}, {"type": "text-delta", "id": "t", "delta": "x"}]})
    lenient = run("replay", "--json", stdin=stream).json
    assert lenient["message"]["parts"][0]["text"] == "x"
    assert lenient["report"][0]["at"] == 1
    strict = run("replay", "--json", "--strict", stdin=stream)
    assert strict.code == 0
    assert strict.json.keys() == {"error", "at", "rule"}
    assert strict.json["at"] == 1
    assert "error" in run("replay", "--strict", stdin=stream).out


def test_replay_joins_halves_of_a_pair_and_mends_lone_ones() -> None:
    def stream(*deltas: str) -> bytes:
        chunks = [{"type": "text-delta", "id": "t", "delta": delta} for delta in deltas]
        return jsonl({"chunks": [{"type": "start"}, {"type": "text-start", "id": "t"}, *chunks]})

    joined = run("replay", "--json", stdin=stream("\ud83d", "\ude00")).json
    assert joined["message"]["parts"][0]["text"] == "😀"
    lone = run("replay", "--json", stdin=stream("a\ud83d", "b")).json
    assert lone["message"]["parts"][0]["text"] == "a\ufffdb"


def test_replay_never_turns_a_large_number_into_another() -> None:
    big = 2**64 - 1
    kept = run("replay", "--json", stdin=jsonl({"chunks": [{"type": "data-n", "data": big}]})).json
    assert kept["message"]["parts"][0]["data"] == big
    beyond = run("replay", "--json", stdin=jsonl({"chunks": [{"type": "data-n", "data": 10**400}]}))
    assert beyond.code == 0
    assert beyond.json["report"][0]["code"] == "bad-chunk"
    assert beyond.json["message"] is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"chunks":[{"type":"data-n","data":NaN}]}',
        b'{"chunks":[{"type":"data-n","data":1e999}]}',
        b'{"chunks":7}',
        b"[]",
        b"{",
        b"\xff",
        b'{"chunks":' + b"[" * 100_000,
        b'{"chunks":[],"message":[]}',
    ],
)
def test_replay_answers_a_bad_line_in_its_place(line: bytes) -> None:
    done = run("replay", "--json", stdin=line + b"\n" + jsonl({"chunks": ANSWER}))
    assert done.code == 2
    bad, good = done.lines
    assert (bad["at"], bad["rule"]) == (None, "bad-input")
    assert good["message"]["id"] == "a1"


def test_replay_tells_people_too() -> None:
    told = run("replay", stdin=jsonl({"chunks": [{"type": "nope"}, *ANSWER]}))
    assert '"id":"a1"' in told.out
    assert "at chunk 0" in told.out


def test_replay_names_the_line_and_the_chunk_once() -> None:
    late = {"chunks": [{"type": "start"}, {"type": "text-delta", "id": "t", "delta": "x"}]}
    odd = {"chunks": [{"type": "data-n", "data": 10**400}]}
    told = run("replay", "--strict", stdin=jsonl(late) + b"\n[]\n" + jsonl(odd)).out.splitlines()
    assert told[0].split(None, 1)[1].startswith("line 1 (text-delta-without-start): chunk 1: ")
    assert told[1].split(None, 1)[1] == "line 3 (bad-input): a JSON object is needed"
    assert told[2].split(None, 1)[1].startswith("line 4 (invalid-value): chunk 0: ")
    assert [line.count("chunk ") for line in told] == [1, 0, 1]


def test_replay_of_a_file_for_record_says_how_to_make_one_for_it() -> None:
    done = run("replay", "--json", stdin=jsonl(*ANSWER[:2]))
    assert done.code == 2
    assert all("jq -sc '{chunks: .}'" in line["error"] for line in done.lines)
    assert "jq" not in run("replay", "--json", stdin=b'{"chunks":7}\n').json["error"]


def test_the_example_of_replay_gives_a_message() -> None:
    shown = run("replay", "--help").out.partition("echo '")[2].partition("'")[0]
    assert run("replay", "--json", stdin=shown.encode()).json["message"]["parts"][0]["text"] == "hi"


# -- fold -----------------------------------------------------------------------------------------------


def test_fold_prints_what_a_boot_returns(tmp_path: Path) -> None:
    done = fold(tmp_path, [IN], OUT)
    assert done.code == 0
    assert done.json.keys() == {
        *("messages", "partial", "pending", "spent", "pendingToolCalls"),
        *("resume", "state", "context", "cursor", "report"),
    }
    assert [message["id"] for message in done.json["messages"]] == ["u1", "a1"]
    assert done.json["resume"]["kind"] == "retry_response"
    assert done.json["cursor"] == {"in": 0, "out": 6}


def test_fold_takes_records_in_any_order_packed_or_not_with_headers_between(tmp_path: Path) -> None:
    whole = fold(tmp_path, [IN], OUT).json
    packed = {"id": 5, "ts": 3, "chunk": {**ANSWER[3], "delta": "Hello \u2028 there"}, "cuts": [3, 13]}
    assert fold(tmp_path, [IN], [packed, *reversed(OUT[:4])]).json == whole
    header = b'{"v":1,"log":"out","first":1,"last":6,"nonce":"n","crc":0}\n\n'
    assert fold(tmp_path, b"\n" + jsonl(IN), header + jsonl(*OUT)).json == whole


@pytest.mark.parametrize(
    ("incoming", "outgoing", "log", "missing"),
    [
        ([IN], [*OUT[:2], *OUT[4:]], "out", [3, 4]),
        ([IN], OUT[1:], "out", [1, 1]),
        ([], OUT, "in", [1, 1]),
        ([{**IN, "id": 3}], [], "in", [1, 2]),
    ],
)
def test_fold_of_a_log_with_a_hole(
    tmp_path: Path, incoming: Any, outgoing: Any, log: str, missing: list[int]
) -> None:
    done = fold(tmp_path, incoming, outgoing)
    assert (done.code, done.json) == (3, {"error": "gap", "log": log, "missing": missing})
    assert run("fold", "--in", tmp_path / "in", "--out", tmp_path / "out").code == 3


def test_fold_of_a_real_log_is_what_boot_says(tmp_path: Path, root: Path) -> None:
    answered(root)
    with database(root) as db:
        db.send("s", "more")
        booted = run("boot", root, "s", "--json").json
        logs = [jsonl(*db.records("s", which)) for which in ("in", "out")]
    (snapshot,) = root.rglob("snapshot.json")
    for options in ((), ("--snapshot", snapshot)):
        found = fold(tmp_path, *logs, *options).json
        assert found == {name: booted[name] for name in found}
    told = run("fold", "--in", tmp_path / "in", "--out", tmp_path / "out").out
    lines = dict(line.split(None, 1) for line in told.splitlines())
    assert lines["messages"].endswith(", assistant a1")
    assert lines["pending"] == "message, input 2"
    assert lines["cursor"] == f"in 1, out {booted['cursor']['out']}"
    assert not set('{"…') & set(told), "words, and no JSON that breaks off"


def test_fold_keeps_what_is_at_or_below_the_snapshots_cursors_out(tmp_path: Path, root: Path) -> None:
    answered(root)
    (snapshot,) = root.rglob("snapshot.json")
    upto = json.loads(snapshot.read_text())["lastOutEventId"]
    done = fold(tmp_path, [], [{"id": 1, "ts": 1, "control": "session-deleted"}], "--snapshot", snapshot)
    assert done.json["cursor"] == {"in": 1, "out": int(upto)}
    assert len(done.json["messages"]) == 2


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"ts":1}',
        b'{"id":0,"control":"heartbeat"}',
        b'{"id":"1","control":"heartbeat"}',
        b'{"id":true,"control":"heartbeat"}',
        b'{"id":1,"chunk":{"type":"text-delta","id":"t","delta":"abc"},"cuts":[1,7]}',
        b'{"id":1,"chunk":{"type":"text-delta","id":"t","delta":"abc"},"cuts":[2,1,3]}',
        b'{"id":1,"chunk":{"type":"start"},"cuts":[1]}',
        b'{"id":1,"chunk":{"type":"text-delta","id":"t","delta":"abc"},"cuts":"x"}',
        b'{"id":1,"chunk":NaN}',
    ],
)
def test_fold_names_a_line_that_is_no_record(tmp_path: Path, line: bytes) -> None:
    done = fold(tmp_path, [IN], b"\n" + line + b"\n")
    assert (done.code, done.json["error"]) == (4, "corrupt")
    assert "line 2" in done.json["message"]


def test_fold_refuses_a_snapshot_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "snapshot").write_bytes(b"[]")
    done = fold(tmp_path, [IN], OUT, "--snapshot", tmp_path / "snapshot")
    assert (done.code, done.json["error"]) == (4, "corrupt")
