"""`record`: what it writes, what it says of a stream that is not whole, and how it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import ANSWER, answered, database, jsonl, run


def test_record_answers_what_is_owed(root: Path) -> None:
    run("send", root, "s", "hi")
    done = run("record", root, "s", "--json", stdin=jsonl(*ANSWER))
    *grown, result = done.lines
    ids = [line["durable_id"] for line in grown]
    assert ids == sorted(set(ids))
    assert result == {"turn": 1, "status": "completed", "message_id": "a1", "durable_id": ids[-1]}
    assert run("boot", root, "s", "--json").json["cursor"] == {"in": 1, "out": ids[-1]}
    messages = run("history", root, "s", "--json").lines
    assert messages[-1]["parts"][-1]["text"] == "Hello \u2028 there"


def test_record_takes_server_sent_events_and_a_recordings_own_line(root: Path) -> None:
    run("send", root, "s", "hi")
    events = b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in ANSWER)
    stream = b'\xef\xbb\xbf{"name":"x","user":"hi"}\r\n: ping\r\n' + events + b"data: [DONE]\r\n\r\n"
    done = run("record", root, "s", "-", stdin=stream)
    assert done.code == 0
    assert "turn 1: completed, message a1" in done.out
    assert run("history", root, "s", "--json").lines[-1]["parts"][-1]["state"] == "done"


def test_record_releases_the_turn_of_a_stream_that_breaks_off(root: Path) -> None:
    run("send", root, "s", "hi")
    broken = run("record", root, "s", "--json", stdin=jsonl(*ANSWER[:5]) + b'{"type":"text-de')
    assert broken.code == 2
    assert broken.lines[-1]["error"] == "invalid-value"
    assert "line 6" in broken.lines[-1]["message"]
    booted = run("boot", root, "s", "--json").json
    assert booted["resume"]["kind"] == "retry_response"
    assert booted["partial"]["parts"][-1]["text"] == "Hello \u2028 there"
    assert run("record", root, "s", "--json", stdin=jsonl(*ANSWER)).lines[-1]["status"] == "completed"
    assert len(run("history", root, "s", "--json").lines) == 2


def test_record_names_the_line_of_a_chunk_that_is_refused_and_says_what_became_of_the_turn(
    root: Path,
) -> None:
    run("send", root, "s", "hi")
    bad = {"type": "text-delta", "id": "nobody", "delta": "lost"}
    stream = jsonl(*ANSWER[:4]) + b"\n: ping\n" + jsonl(bad)
    found = run("record", root, "s", "--json", stdin=stream)
    assert (found.code, found.lines[-1]["error"], found.lines[-1]["status"]) == (2, "chunk-error", "released")
    assert found.lines[-1]["line"] == 7
    assert found.lines[-1]["message"].startswith("line 7: ")
    partial = run("boot", root, "s", "--json").json["partial"]
    assert [part.get("text") for part in partial["parts"]][-1] == "Hel"
    told = run("record", root, "s", stdin=stream)
    assert told.err.startswith("error: line 7: ")
    assert "nothing of this line was stored" in told.err
    assert "the turn was released" in told.err
    outs = run("log", root, "s", "out").lines
    assert [r["why"] for r in outs if r.get("control") == "turn-release"] == ["error", "error"]
    assert "lost" not in json.dumps(outs)


def test_record_passes_over_a_chunk_that_it_does_not_know_and_names_its_line(root: Path) -> None:
    run("send", root, "s", "hi")
    done = run("record", root, "s", stdin=jsonl(*ANSWER[:2], {"type": "flabber"}, *ANSWER[2:]))
    assert done.code == 0
    assert "(this was line 3: it is not stored as it came)" in done.err.splitlines()
    assert "turn 1: completed" in done.out
    stored = [r["chunk"]["type"] for r in run("log", root, "s", "out").lines if "chunk" in r]
    assert stored == [chunk["type"] for chunk in ANSWER]


@pytest.mark.parametrize(
    ("last", "warned"),
    [
        ([ANSWER[-1]], False),
        ([{"type": "abort"}], False),
        ([{"type": "error", "errorText": "x"}], False),
        ([], True),
    ],
)
def test_record_warns_of_a_stream_without_its_end(root: Path, last: list[object], warned: bool) -> None:
    run("send", root, "s", "hi")
    done = run("record", root, "s", stdin=jsonl(*ANSWER[:-1], *last))
    assert done.code == 0
    assert ("ended without a `finish` chunk" in done.err) is warned
    assert run("boot", root, "s", "--json").json["resume"]["kind"] == "none"


def test_record_seals_an_answer_that_only_lacks_its_end(root: Path) -> None:
    with database(root) as db:
        db.send("s", "hi")
        with db.boot("s") as session:
            turn = next(session.turns())
            for chunk in ANSWER:
                turn.write(chunk)
            turn.release("signal")
    done = run("record", root, "s", "--json", stdin=b"")
    assert done.code == 0
    assert (done.lines[-1]["status"], done.lines[-1]["message_id"]) == ("completed", "a1")


def test_record_does_an_action_without_an_answer(root: Path) -> None:
    answered(root)
    with database(root) as db:
        db.action("s", "tidy")
    done = run("record", root, "s", "--json", stdin=b"")
    assert (done.code, done.lines[-1]["message_id"]) == (0, None)
    assert run("boot", root, "s", "--json").json["pending"] == []


# Python's Ctrl-C may cut a step of the engine in two, which leaves the lease; so none runs when it comes.
@pytest.mark.parametrize(
    ("number", "code", "why", "chunks"),
    [(signal.SIGTERM, 143, "signal", ANSWER[:5]), (signal.SIGINT, 130, "cancelled", [])],
)
def test_a_signal_releases_what_is_being_recorded(
    root: Path, number: signal.Signals, code: int, why: str, chunks: list[dict[str, object]]
) -> None:
    run("send", root, "s", "hi")
    command = [sys.executable, "-m", "snapshotter", "record", str(root), "s", "--durability", "live"]
    with subprocess.Popen(
        [*command, "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as worker:
        assert worker.stdin
        assert worker.stdout
        assert worker.stderr
        worker.stdin.write(jsonl(*chunks))
        worker.stdin.flush()
        # The claim is durable: the worker is inside its turn, and the chunks are in the pipe.
        assert json.loads(worker.stdout.readline()) == {"durable_id": 1}
        worker.send_signal(number)
        lines = [json.loads(line) for line in worker.stdout.read().splitlines()]
        told = worker.stderr.read().decode()
        assert worker.wait(30) == code
    (last,) = [line for line in lines if "status" in line]
    assert (last["turn"], last["status"]) == (1, "released")
    assert "the turn was released" in told
    release = run("log", root, "s", "out").lines[-1]
    assert (release["control"], release["why"]) == ("turn-release", why)
    booted = run("boot", root, "s", "--json").json
    assert booted["resume"]["kind"] in ("call_model", "continue_response")
