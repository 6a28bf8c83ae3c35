"""Each command does what its help says, for people and for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import ANSWER, answered, database, jsonl, run

from snapshotter import Database
from snapshotter.cli import app, check, output
from snapshotter.errors import Retryable
from snapshotter.findings import Verdict
from snapshotter.verify import verify
from streams.log import Vanished


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


def test_create_takes_what_history_prints(root: Path) -> None:
    answered(root)
    lines = run("history", root, "s", "--json")
    told = run("create", root, "copy", "-", stdin=lines.out.encode())
    assert (told.code, told.out) == (0, "copy: created with 2 messages\n")
    assert run("history", root, "copy", "--json").lines == lines.lines
    listed = json.dumps(lines.lines)
    assert run("create", root, "list", "-", "--json", stdin=listed).json == {"session": "list", "messages": 2}
    assert run("history", root, "list", "--json").lines == lines.lines
    again = run("create", root, "copy", "--json")
    assert (again.code, again.json["error"]) == (2, "refused")
    assert run("history", root, "copy", "--json").lines == lines.lines


def test_create_opens_a_deleted_session_again(root: Path) -> None:
    answered(root)
    run("delete", root, "s", "--yes")
    assert run("create", root, "s").out == "s: created with 0 messages\n"
    run("send", root, "s", "again")
    assert [item["ids"] for item in run("boot", root, "s", "--json").json["pending"]] == [[2]]


@pytest.mark.parametrize(
    ("given", "told"),
    [('{"role":"user"}\n{', "line 2: not JSON"), ("[1]", "messages[0]"), ("7", "messages[0]")],
)
def test_create_names_what_is_no_history(root: Path, given: str, told: str) -> None:
    found = run("create", root, "s", "-", stdin=given)
    assert found.code == 2
    assert told in found.err
    assert not root.exists() or not [*root.rglob("*.jsonl")]


@pytest.mark.parametrize("options", [("--key", "k"), ("--id", "u1")])
def test_sending_again_gives_the_first_receipt(root: Path, options: tuple[str, str]) -> None:
    first = run("send", root, "s", "hi", *options, "--json").json
    again = run("send", root, "s", "hi", *options, "--json").json
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["id"] == again["id"] == 1


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


def test_boot_says_what_the_pending_items_ask_for(root: Path) -> None:
    run("send", root, "s", "Plan three days\nin Lisboa " + "and on " * 20)
    with database(root) as db:
        db.action("s", "tidy", {"a": 1})
    told = run("boot", root, "s").out
    assert "message, input 1: Plan three days in Lisboa and on" in told
    assert "action, input 2: tidy" in told
    assert "…" in told


def test_what_a_user_asks_for_is_an_input_each(root: Path) -> None:
    answered(root)
    asked = [
        ("approve", root, "s", "ap1", "--force"),
        ("approve", root, "s", "--tool-call", "c1", "--deny", "--reason", "no", "--force"),
        ("stop", root, "s"),
        ("stop", root, "s", "u1", "--force"),
        ("regenerate", root, "s"),
        ("regenerate", root, "s", "a1", "--force"),
        ("edit", root, "s", "u1", "new", "--force"),
        ("close", root, "s"),
    ]
    for number, command in enumerate(asked, 2):
        assert json.loads(run(*command).out) == {"session": "s", "id": number}
    records = [
        {k: v for k, v in record.items() if k not in ("id", "ts")}
        for record in run("log", root, "s", "in", "--after", 1).lines
    ]
    edited = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "new"}]}
    assert records == [
        {"kind": "tool-approval", "approvalId": "ap1", "approved": True},
        {"kind": "tool-approval", "toolCallId": "c1", "approved": False, "reason": "no"},
        {"kind": "stop"},
        {"kind": "stop", "messageId": "u1"},
        {"kind": "regenerate"},
        {"kind": "regenerate", "messageId": "a1"},
        {"kind": "edit", "messageId": "u1", "message": edited},
        {"kind": "close"},
    ]


@pytest.mark.parametrize("command", ["stop", "regenerate", "close"])
def test_a_request_with_a_key_is_one_however_often_it_is_sent(root: Path, command: str) -> None:
    first = run(command, root, "s", "--key", "k", "--json").json
    again = run(command, root, "s", "--key", "k", "--json").json
    assert (first["id"], first["duplicate"], again["id"], again["duplicate"]) == (1, False, 1, True)
    told = run(command, root, "s", "--key", "k")
    assert (json.loads(told.out)["id"], told.err) == (1, "(sent before: this is the first receipt)\n")


def test_a_session_that_is_not_there_is_told_as_that(root: Path) -> None:
    reads = [("history", root, "no"), ("boot", root, "no"), ("log", root, "no", "in")]
    for command in reads:
        done = run(*command)
        assert (done.code, done.err) == (0, f"(there is no session 'no' at {root.as_uri()} yet)\n")
    run("send", root, "no", "hi")
    assert [run(*command).err for command in reads] == ["", "", ""]
    assert run("log", root, "no", "out").err == "", "it has no records yet, and is there"


def test_a_session_that_was_deleted_is_told_from_others(root: Path) -> None:
    answered(root)
    assert [run(c, root, "s", "--json").json["deleted"] for c in ("boot", "incident")] == [False, False]
    assert run("history", root, "s").err == ""
    assert run("delete", root, "s", "--yes").code == 0
    for command in ("boot", "incident"):
        assert run(command, root, "s").out.splitlines()[0].endswith(" s (deleted)")
        assert run(command, root, "s", "--json").json["deleted"] is True
    told = run("history", root, "s", "--json")
    assert (told.code, told.out, told.err) == (0, "", "(session 's' was deleted)\n")
    database(root).create("s")
    assert run("history", root, "s").err == ""
    assert run("boot", root, "s", "--json").json["deleted"] is False


def test_a_root_where_nothing_is_stored_is_told_as_that(root: Path) -> None:
    for command in ("ls", "verify"):
        done = run(command, root, "--json")
        assert (done.code, done.out, done.err) == (0, "", f"(nothing is stored at {root.as_uri()} yet)\n")
    run("send", root, "s", "hi")
    assert "no session has completed a turn yet" in run("ls", root).err
    assert run("verify", root).err == ""


def test_paths_and_words(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(root)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("OBJECT_STORE_DEFAULT_PROTOCOL", raising=False)
    assert run("ls", "../root", "--json").json["id"] == "s"
    assert run("ls", "./../here/../root", "--json").json["id"] == "s"
    for word in ("root", "some/root"):
        found = run("ls", word, "--json")
        assert (found.code, found.json["error"]) == (2, "invalid-id")
        assert f"for a folder write ./{word}" in found.json["message"]
    assert "hunter2" not in run("ls", "key:hunter2@host").err
    monkeypatch.setenv("OBJECT_STORE_DEFAULT_PROTOCOL", "memory")
    assert run("ls", "root").code == 0


def test_a_folder_has_no_policies_and_is_told_what_it_has(root: Path) -> None:
    told = run("policy", "worker", root)
    assert (told.code, told.out) == (2, "")
    assert told.err.splitlines()[-1] == "hint: a folder has no policies: use the system's rights"
    assert "hint: a folder" not in run("policy", "worker", "memory://x").err


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
    lines = run("ls", root).out.splitlines()
    assert lines[0].split() == ["snapshot", "saved", "bytes", "session"]
    assert "chat/2" in "".join(lines[1:])


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


@pytest.mark.parametrize("error", [Retryable("no room"), Vanished("tidied up")])
def test_verify_goes_on_where_one_session_could_not_be_checked(
    root: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        answered(root, name)

    def checked(db: Database, session: str) -> Verdict:
        if session == "b":
            raise error
        return verify(db, session)

    monkeypatch.setattr(check, "verify_session", checked)
    told = run("verify", root, "--json")
    assert (told.code, [verdict["ok"] for verdict in told.lines]) == (1, [True, False, True])
    assert told.lines[1]["problems"] == [{"code": "not-checked", "detail": str(error)}]


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
    assert " 0.0 ms" not in told.out
    with database(root) as db:
        assert [entry.key for entry in db.store.entries("")] == ["capabilities.json"]


@pytest.mark.parametrize(
    ("taken", "shown"), [(0.0, "<0.1 ms"), (0.0999, "<0.1 ms"), (0.1, "0.1 ms"), (1234.56, "1,234.6 ms")]
)
def test_a_time_is_never_nothing(taken: float, shown: str) -> None:
    assert output.milliseconds(taken) == shown


@pytest.mark.parametrize("command", list(app._COMMANDS))
def test_every_commands_help_has_an_example(command: str) -> None:
    shown = run(command, "--help")
    assert shown.code == 0
    assert f"snapshotter {command}" in shown.out.partition("Example:")[2]
    assert "--json" in shown.out


def test_a_bare_command_shows_the_help() -> None:
    bare = run()
    assert (bare.code, bare.out, bare.err) == (2, run("--help").out, "")


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
