"""Each command does what its help says, for people and for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import ANSWER, answered, database, jsonl, run

from snapshotter.cli import app


def test_send_prints_a_receipt_that_boot_takes(root: Path) -> None:
    receipt = run("send", root, "s", "hi").out
    assert json.loads(receipt) == {"session": "s", "id": 1}
    booted = run("boot", root, "s", "--receipt", receipt, "--json").json
    assert [item["ids"] for item in booted["pending"]] == [[1]]
    assert booted["stats"]["lists"] == 1  # the receipt saved the other listing


def test_send_takes_text_from_stdin_as_it_is(root: Path) -> None:
    assert run("send", root, "s", "-", stdin="two\nlines \u2028\n").code == 0
    message = run("log", root, "s", "in").json["message"]
    assert message["parts"] == [{"type": "text", "text": "two\nlines \u2028"}]


def test_send_takes_a_whole_message(root: Path) -> None:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {"a": 1}}
    assert run("send", root, "s", "--message", json.dumps(message)).code == 0
    assert run("log", root, "s", "in").json["message"] == message


@pytest.mark.parametrize("options", [("--key", "k"), ("--id", "u1")])
def test_sending_again_gives_the_first_receipt(root: Path, options: tuple[str, str]) -> None:
    first = run("send", root, "s", "hi", *options, "--json").json
    again = run("send", root, "s", "hi", *options, "--json").json
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["id"] == again["id"] == 1


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


def test_sigterm_releases_what_is_being_recorded(root: Path) -> None:
    run("send", root, "s", "hi")
    command = [
        sys.executable,
        "-m",
        "snapshotter",
        "record",
        str(root),
        "s",
        "--durability",
        "live",
        "--json",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin
        assert worker.stdout
        worker.stdin.write(jsonl(*ANSWER[:5]))
        worker.stdin.flush()
        # The claim is durable: the worker is inside its turn, and the chunks are in the pipe.
        assert json.loads(worker.stdout.readline()) == {"durable_id": 1}
        worker.send_signal(signal.SIGTERM)
        last = json.loads(worker.stdout.read().split(b"\n")[-2])
        assert worker.wait(30) == 143
    assert (last["turn"], last["status"]) == (1, "released")
    booted = run("boot", root, "s", "--json").json
    assert (booted["incident"]["interruptions"], booted["incident"]["decision"]) == (0, "go_on")
    if booted["busy"] is not None:  # nothing had streamed: a short pause, and no longer a lease
        assert booted["incident"]["strikes"] == 1
        assert booted["busy"]["retry_after"] <= 2
    assert booted["resume"]["kind"] in ("call_model", "continue_response")


def test_boot_shows_an_unfinished_answer_and_who_holds_it(root: Path) -> None:
    with database(root) as db:
        db.send("s", "hi")
        session = db.boot("s")
        turn = next(session.turns())
        for chunk in ANSWER[:5]:
            turn.write(chunk)
        turn.flush()
        found = run("boot", root, "s", "--json").json
        told = run("boot", root, "s")
        session.close()
    assert found["busy"]["run"] == session.run
    assert found["resume"]["kind"] == "retry_response"
    assert found["stats"]["requests"] > 0
    assert {"messages", "pending", "state", "context", "cursor", "report", "spent"} <= found.keys()
    assert f"run {session.run} spoke" in told.out
    assert "retry_response · turn 1 · attempt 1" in told.out


def test_history_pages_backwards(root: Path) -> None:
    for text in ("one", "two"):
        run("send", root, "s", text, "--id", text)
        run("record", root, "s", stdin=jsonl({"type": "start", "messageId": f"a-{text}"}, *ANSWER[1:]))
    ids = [message["id"] for message in run("history", root, "s", "--limit", 3, "--json").lines]
    assert ids == ["a-one", "two", "a-two"]
    before = run("history", root, "s", "--before", "two", "--json").lines
    assert [message["id"] for message in before] == ["one", "a-one"]
    assert "user two" in run("history", root, "s").out


def test_history_tells_of_every_kind_of_part(root: Path) -> None:
    parts = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm", "state": "done"},
        {
            "type": "tool-look",
            "toolCallId": "c",
            "state": "output-available",
            "input": {"q": 1},
            "output": "x",
        },
        {
            "type": "dynamic-tool",
            "toolName": "dyn",
            "toolCallId": "d",
            "state": "input-available",
            "input": {},
        },
        {"type": "data-note", "data": 7},
    ]
    with database(root) as db:
        db.create("s", messages=[{"id": "a", "role": "assistant", "parts": parts}])
    told = run("history", root, "s").out
    for piece in (
        "(thinks) hm",
        'look({"q":1}): output-available x',
        "dyn({}): input-available",
        "[data-note]",
    ):
        assert piece in told


def test_log_prints_records_unpacked(root: Path) -> None:
    answered(root)
    records = run("log", root, "s", "out").lines
    assert [record["id"] for record in records] == list(range(1, len(records) + 1))
    assert [r["chunk"] for r in records if "chunk" in r] == ANSWER
    assert not any("cuts" in record for record in records)
    assert run("log", root, "s", "out", "--after", 4, "--json").lines == records[4:]
    assert [record["kind"] for record in run("log", root, "s", "in").lines] == ["message"]


def test_log_follows_until_it_is_silent(root: Path) -> None:
    answered(root)
    followed = run("log", root, "s", "out", "--follow", "--timeout", "0")
    assert followed.lines == run("log", root, "s", "out").lines


def test_a_reader_that_goes_away_ends_log_quietly(root: Path) -> None:
    with database(root) as db:
        messages = [
            {"id": f"u{i}", "role": "user", "parts": [{"type": "text", "text": "x" * 200_000}]}
            for i in range(4)
        ]
        db.create("s", messages=messages)
    command = [sys.executable, "-m", "snapshotter", "log", str(root), "s", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def test_ls_lists_by_prefix_and_date(root: Path) -> None:
    for session in ("chat-1", "chat/2", "other"):
        answered(root, session)
    listed = run("ls", root, "--json").lines
    assert {line["id"] for line in listed} == {"chat-1", "chat/2", "other"}
    assert all(line["size"] > 0 and line["modified_ms"] > 0 for line in listed)
    assert {line["id"] for line in run("ls", root, "--prefix", "chat", "--json").lines} == {
        "chat-1",
        "chat/2",
    }
    assert len(run("ls", root, "--since", "1h", "--json").lines) == 3
    assert len(run("ls", root, "--since", "2001-01-01", "--json").lines) == 3
    none = run("ls", root, "--since", "2999-01-01T00:00+02:00")
    assert (none.code, none.out, none.err) == (0, "", "(no session has been saved that fits)\n")
    assert "chat/2" in run("ls", root).out


def test_verify_checks_all_sessions_also_those_never_answered(root: Path) -> None:
    answered(root, "one")
    run("send", root, "two", "hi")
    found = {verdict["session"]: verdict for verdict in run("verify", root, "--json").lines}
    assert {name: verdict["ok"] for name, verdict in found.items()} == {"one": True, "two": True}
    assert found["one"]["problems"] == []
    assert found["one"]["records"] == len(run("log", root, "one", "out").lines) + 1
    told = run("verify", root)
    assert told.code == 0
    assert "2 sessions, 0 with problems" in told.out


def test_verify_names_what_is_broken(root: Path) -> None:
    answered(root)
    (segment,) = [path for path in root.rglob("*-2.jsonl") if "out" in path.parts]
    segment.write_bytes(segment.read_bytes()[:-3])
    found = run("verify", root, "s", "--json")
    assert found.code == 1
    (problem,) = found.json["problems"]
    assert (found.json["ok"], problem["code"]) == (False, "corrupt")
    assert problem["key"].endswith("-2.jsonl")
    assert "corrupt: out/s/" in run("verify", root).out


def test_doctor_trusts_a_folder(root: Path) -> None:
    found = run("doctor", root, "--json")
    assert found.code == 0
    assert found.json["ok"] is True
    assert all(check["ok"] for check in found.json["checks"])
    assert {"conditional create", "conditional replace", "listing order", "exact bytes"} <= {
        check["check"] for check in found.json["checks"]
    }
    assert set(found.json["latency_ms"]) == {"get", "put", "list"}
    told = run("doctor", root)
    assert "this store can be trusted" in told.out
    with database(root) as db:
        assert [entry.key for entry in db.store.entries("")] == ["capabilities.json"]


@pytest.mark.parametrize("command", list(app._COMMANDS))
def test_every_commands_help_has_an_example(command: str) -> None:
    shown = run(command, "--help")
    assert shown.code == 0
    assert f"snapshotter {command}" in shown.out.partition("Example:")[2]
    assert "--json" in shown.out


def test_the_help_lists_every_command_and_exit_code() -> None:
    shown = run("--help").out
    for word in (
        *app._COMMANDS,
        "Exit codes:",
        "0  ok",
        "3  gap",
        "4  corrupt",
        "5  try again",
        "6  misconf",
    ):
        assert word in shown
    assert run("-h").out == shown


def test_the_library_does_not_load_the_command_line() -> None:
    code = "import snapshotter, snapshotter.verify, snapshotter.demo, sys; sys.exit('click' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snapshotter", "--version"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert done.stdout.startswith("snapshotter 0.")
