"""What waits for a person is shown with its ids, and an answer with a wrong one is not sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import ANSWER, answered, asking, database, jsonl, run

from snapshotter import Database
from snapshotter.errors import AccessDenied
from streams import log


def inputs(root: Path) -> int:
    return len(run("log", root, "s", "in").lines)


def test_a_call_that_asks_is_shown_with_its_approval(root: Path) -> None:
    asking(root)
    told = run("boot", root, "s").out.splitlines()
    assert any(line.endswith('a1: wipe({"disk":"a"}): approval-requested, approval ap1') for line in told)
    assert [line for line in told if line.startswith("waits")] == [
        'waits      wipe({"disk":"a"})   approval ap1   (tool call c1)'
    ]
    assert '  wipe({"disk":"a"}): approval-requested, approval ap1\n' in run("history", root, "s").out
    assert run("approve", root, "s", "ap1").code == 0
    assert "waits" not in run("boot", root, "s").out
    assert "approval ap1" not in run("history", root, "s").out, "it is answered"


def test_a_call_that_waits_for_its_client_is_shown(root: Path) -> None:
    run("send", root, "s", "hi")
    with database(root) as db, db.boot("s", client_tools=["locate"]) as session:
        for turn in session.turns():
            with turn:
                called = {
                    "type": "tool-input-available",
                    "toolCallId": "c1",
                    "toolName": "locate",
                    "input": {},
                }
                for chunk in (*ANSWER[:2], called, *ANSWER[-2:]):
                    turn.write(chunk)
    assert "waits      locate({})   its result   (tool call c1)\n" in run("boot", root, "s").out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("approve", "nope"), "no call that asks for approval 'nope': the answer would be spent"),
        (("approve", "--tool-call", "nope", "--deny"), "no tool call 'nope': the answer would be spent"),
        (("stop", "nope"), "no message 'nope': the stop would be spent"),
        (("regenerate", "nope"), "no message 'nope': the request would be spent"),
        (("edit", "nope", "text"), "no message 'nope': what replaces it would be appended"),
    ],
)
def test_an_id_that_the_session_does_not_have_is_not_sent(
    root: Path, command: tuple[str, ...], said: str
) -> None:
    asking(root)
    name, *rest = command
    told = run(name, root, "s", *rest)
    assert (told.code, told.out, said in told.err, "--force" in told.err) == (2, "", True, True)
    assert run(name, root, "s", *rest, "--json").json["error"] == "refused"
    assert inputs(root) == 1
    assert run(name, root, "s", *rest, "--force").code == 0
    assert inputs(root) == 2


def test_what_is_there_in_any_way_is_sent(root: Path) -> None:
    """The call of an attempt that was cut off; a message that is owed, or that the open turn answers."""
    run("send", root, "s", "hi", "--id", "u1")
    with database(root) as db:
        turn = next(db.boot("s").turns())
        for chunk in (ANSWER[0], ANSWER[1]):
            turn.write(chunk)
        turn.write({"type": "tool-input-available", "toolCallId": "c1", "toolName": "wipe", "input": {}})
        turn.release()
    run("send", root, "s", "later", "--id", "u2")
    sent = [
        ("approve", root, "s", "--tool-call", "c1"),
        ("stop", root, "s", "u1"),
        ("edit", root, "s", "u2", "new"),
        ("stop", root, "s", "u2"),
    ]
    assert [run(*command).code for command in sent] == [0, 0, 0, 0]


def test_a_request_that_was_sent_before_gets_its_receipt_when_its_target_is_gone(root: Path) -> None:
    answered(root)
    run("send", root, "s", "and you?", "--id", "u2")
    answer = {"type": "start", "messageId": "a2"}
    run("record", root, "s", stdin=jsonl(answer, *ANSWER[1:]))
    first = run("edit", root, "s", "u2", "--message", MOVED, "--key", "k", "--json").json
    run("record", root, "s", stdin=jsonl({**answer, "messageId": "a3"}, *ANSWER[1:]))
    assert "u2" not in [line["id"] for line in run("history", root, "s", "--json").lines]
    again = run("edit", root, "s", "u2", "--message", MOVED, "--key", "k", "--json").json
    assert again == {**first, "duplicate": True}
    assert run("edit", root, "s", "u2", "--message", MOVED, "--key", "another").code == 2


MOVED = '{"id": "u3", "role": "user", "parts": [{"type": "text", "text": "and they?"}]}'


def test_who_may_write_and_not_look_sends_all_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def peek(*_args: object, **_options: object) -> None:
        raise AccessDenied("sessions/s/snapshot.json")

    answered(root)
    monkeypatch.setattr(Database, "peek", peek)
    told = run("stop", root, "s", "nope")
    assert (told.code, "nobody looked" in told.err) == (0, True)


def test_what_waits_is_edited_and_stopped_by_the_id_that_the_history_shows(root: Path) -> None:
    nameless = {"kind": "message", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
    with database(root) as db:
        log.append_input(db.store, db.sid("s"), lambda _number: nameless)
    assert '"msg-in1"' in run("history", root, "s", "--json").out
    assert run("edit", root, "s", "msg-in1", "hello").code == 0
    assert run("stop", root, "s", "msg-in1").code == 0
