"""`due` finds every session that has work for a worker, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import ANSWER, answered, asking, database, jsonl, run

from snapshotter.cli import due
from snapshotter.errors import AccessDenied, WrongKey


def sessions(root: Path) -> None:
    """Five with work, three without."""
    answered(root, "done")
    asking(root, "asks")
    run("send", root, "new", "hi")
    run("send", root, "new", "and this")
    answered(root, "more")
    run("send", root, "more", "again")
    answered(root, "spends")
    run("stop", root, "spends")
    run("send", root, "cut", "hi")
    run("record", root, "cut", stdin=jsonl(*ANSWER[:4]) + b"no chunk")
    run("close", root, "closed")
    run("record", root, "closed")
    run("send", root, "closed", "too late")
    asking(root, "granted")
    assert run("approve", root, "granted", "ap1").code == 0


def test_it_tells_those_with_work_and_no_others(root: Path) -> None:
    sessions(root)
    found = {line["session"]: line for line in run("due", root, "--json").lines}
    told = {name: (line["next"], line["owed"], line["spent"]) for name, line in found.items()}
    assert told == {
        "new": ("answers input 1 (message)", 2, 0),
        "more": ("answers input 2 (message)", 1, 0),
        "spends": ("writes off what has no effect any more", 0, 1),
        "cut": ("begins attempt 2 (retry_response)", 1, 0),
        "granted": ("answers input 2 (tool-answers)", 1, 0),
    }
    assert found["new"]["since_ms"] == run("log", root, "new", "in").lines[0]["ts"]
    assert all(line["holder"] is None for line in found.values())
    assert found["cut"]["wait_s"] > 0
    shown = run("due", root, "new", "done", "spends", "cut", "nobody")
    lines = shown.out.splitlines()
    assert lines[0].startswith("new  answers input 1 (message); 2 inputs owed since 20")
    assert lines[1].startswith(
        "spends  writes off what has no effect any more; 1 input to write off since 20"
    )
    assert "cut  waits " in lines[2]
    assert ", then begins attempt 2 (retry_response); 1 input owed since" in lines[2]
    assert lines[3:] == ["5 sessions, 3 with work for a worker, 0 with problems"]
    assert (shown.code, "there is no session 'nobody'" in shown.err) == (0, True)


def test_it_says_who_is_at_work(root: Path) -> None:
    with database(root) as db:
        db.send("s", "hi")
        session = db.boot("s")
        turn = next(session.turns())
        found, told = run("due", root, "--json").json, run("due", root).out
        turn.release()
    assert (found["holder"]["run"], found["owed"]) == (session.run, 1)
    assert f"run {session.run} holds it, and spoke" in told
    assert "waits" not in told


def test_nothing_due_is_no_error(root: Path) -> None:
    empty = run("due", root)
    assert (empty.code, empty.err) == (0, f"(nothing is stored at {root.as_uri()} yet)\n")
    answered(root)
    assert run("due", root).out == "1 session, 0 with work for a worker, 0 with problems\n"
    assert run("due", root, "--json").out == ""


@pytest.mark.parametrize("jobs", [1, 8])
def test_a_session_that_cannot_be_read_is_told_and_the_others_are_looked_at(root: Path, jobs: int) -> None:
    for name in ("a", "b", "c"):
        run("send", root, name, "hi")
    next((root / "in" / "b").iterdir()).write_bytes(b"broken")
    found = run("due", root, "--json", "--jobs", jobs)
    assert (found.code, [line["session"] for line in found.lines]) == (1, ["a", "b", "c"])
    assert [line["error"] for line in found.lines if "error" in line] == ["corrupt"]
    told = run("due", root, "--jobs", jobs)
    assert told.code == 1
    assert told.out.splitlines()[1].startswith("BAD b  corrupt: in/b/")
    assert told.out.endswith("3 sessions, 2 with work for a worker, 1 with a problem\n")


def test_what_concerns_the_whole_store_ends_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        run("send", root, name, "hi")

    def refuse(error: Exception, *names: str) -> None:
        def peek(_db: object, session: str, **_options: object) -> object:
            if session in names:
                raise error
            return original(_db, session, **_options)  # type: ignore[arg-type]

        monkeypatch.setattr(due.Database, "peek", peek)

    original = due.Database.peek
    refuse(WrongKey("no key"), "a")
    one = run("due", root, "--json")
    assert (one.code, [line.get("error") for line in one.lines]) == (1, ["wrong-key", None])
    refuse(WrongKey("no key"), "a", "b")
    assert run("due", root).code == 6
    refuse(AccessDenied("no"), "b")
    assert run("due", root, "--json").code == 6
