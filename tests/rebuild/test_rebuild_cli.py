"""`snapshotter rebuild`: what it prints, what it exits with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from roots import TESTS, loaded
from test_rebuild_export import rows

from snapshotter.cli import rebuild as command
from snapshotter.database import Database
from streams import keys

run: Any = loaded(TESTS / "cli" / "cli_runs.py").run


def damage(db: Database, session: str) -> None:
    """A snapshot that says something else than its log."""
    blob = db.store.get(keys.snapshot(session))
    assert blob is not None
    document = json.loads(blob.data)
    document.pop("crc")
    document["state"] = {f"n{number}": number for number in range(12)}
    db.store.put(keys.snapshot(session), json.dumps(document).encode())


def test_a_healthy_root(root: Path) -> None:
    told = run("rebuild", root, "--jobs", "1")
    assert told.code == 0
    assert told.out.startswith("60 sessions: 58 same, 2 unsaved\n")
    assert re.search(r" s, [\d,]+\.\d sessions a second$", told.out, re.MULTILINE)
    assert told.err == ""
    as_json = run("rebuild", root, "--jobs", "1", "--json")
    *results, last = as_json.lines
    assert len(results) == 60
    assert last["summary"]["statuses"] == {"same": 58, "unsaved": 2}


def test_problems_are_shown_and_the_exit_code_says_so(root: Path, db: Database) -> None:
    damage(db, "chat-000050")
    sorted((root / "out" / "chat-000051").iterdir())[-1].unlink()
    told = run("rebuild", root, "--jobs", "1")
    assert told.code == 1
    assert "BAD chat-000050  12 differences at out record" in told.out
    assert "state.n0: the logs give absent, stored is 0" in told.out
    assert "… and 2 more (--json shows 12)" in told.out
    assert "BAD chat-000051  Gap: " in told.out
    (line,) = run("rebuild", root, "chat-000050", "--json", "--jobs", "1").lines[:1]
    assert line["different"] == len(line["differences"]) == 12


def test_what_replaces_a_damaged_snapshot_is_told_once(root: Path, db: Database) -> None:
    damaged = ["chat-000050", "chat-000051"]
    for session in damaged:
        db.store.put(keys.snapshot(session), b"{")
    hint = "hint: where a snapshot cannot be read and the logs are whole, --write --replace-unreadable writes"
    for mode in ("--compare", "--write"):
        told = run("rebuild", root, mode, "--jobs", "1")
        assert told.code == 1
        assert (told.out.count(" Corrupt: "), told.err.count(hint)) == (2, 1)
    as_json = run("rebuild", root, *damaged, "--jobs", "1", "--json")
    assert [line.get("replaceable") for line in as_json.lines[:-1]] == [True, True]
    told_problems = as_json.lines[-1]["summary"]["problems"]
    assert [problem["session"] for problem in told_problems] == damaged
    assert as_json.err == ""
    told = run("rebuild", root, *damaged, "--write", "--replace-unreadable", "--jobs", "1")
    assert (told.code, told.err) == (0, "")
    assert "2 written" in told.out


def test_writing_and_resuming(root: Path, db: Database, tmp_path: Path) -> None:
    damage(db, "chat-000050")
    journal = tmp_path / "run.jsonl"
    told = run("rebuild", root, "--write", "--jobs", "1", "--journal", journal)
    assert told.code == 0
    assert "3 written" in told.out  # that one, and two that had none
    assert run("rebuild", root, "chat-000050", "--jobs", "1").code == 0
    told = run("rebuild", root, "--write", "--jobs", "1", "--journal", journal, "--resume")
    assert "60 sessions done by an earlier run, which all numbers include\n" in told.out
    assert "a second" not in told.out  # this run did nothing
    again = run("rebuild", root, "--write", "--journal", journal, "--json")
    assert (again.code, again.json["error"]) == (2, "refused")
    assert run("rebuild", root, "--resume").code == 2


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_exporting_to_a_folder(root: Path, tmp_path: Path, kind: str) -> None:
    dest = tmp_path / "tables"
    told = run("rebuild", root, "--export", kind, dest, "--jobs", "1", "--prefix", "chat-00001")
    assert told.code == 0
    assert "10 exported" in told.out
    assert len(rows(dest, "sessions", kind)) == 10


def test_sessions_from_a_file(root: Path, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("chat-000010\n\nchat-000011\r\n")
    asked = ("rebuild", root, "chat-000012", "--sessions-from", names, "--json", "--jobs", "1")
    assert [line["session"] for line in run(*asked).lines[:-1]] == [
        "chat-000012",
        "chat-000010",
        "chat-000011",
    ]
    none = run("rebuild", root, "--sessions-from", "-", "--json", stdin=b"\n")
    assert none.json["summary"]["sessions"] == 0
    assert (
        run("rebuild", root, "--since", "1000d", "--json", "--jobs", "1").lines[-1]["summary"]["sessions"]
        == 60
    )


def test_what_cannot_be_is_refused(root: Path, tmp_path: Path) -> None:
    assert run("rebuild", root, "--export", "csv", tmp_path).code == 2
    assert run("rebuild", root, "--since", "yesterday").code == 2
    assert run("rebuild", root, "--dask", "tcp://127.0.0.1:1", "--ray").code == 2
    assert run("rebuild", root, "--jobs", "0").code == 2


def test_two_ways_at_once_are_a_mistake(root: Path, tmp_path: Path) -> None:
    for ways in (("--write", "--compare"), ("--write", "--export", "jsonl", tmp_path / "tables")):
        told = run("rebuild", root, *ways, "--json")
        assert (told.code, told.json["error"]) == (2, "usage")
    assert run("rebuild", root, "--compare", "--jobs", "1").out.startswith("60 sessions: 58 same")
    told = run("rebuild", root, "--replace-unreadable", "--json")
    assert (told.code, told.json["error"]) == (2, "usage")
    assert told.json["message"].startswith("--replace-unreadable needs --write")


def test_where_nothing_is_that_is_said(root: Path, tmp_path: Path) -> None:
    told = run("rebuild", tmp_path / "nothing", "--jobs", "1")
    assert told.code == 0
    assert f"nothing is stored at file://{tmp_path}/nothing yet" in told.err
    told = run("rebuild", root, "--jobs", "1", "--prefix", "nobody")
    assert told.code == 0
    assert "there are no such sessions" in told.err


def test_a_journal_that_is_not_there_and_one_that_cannot_be(root: Path, tmp_path: Path) -> None:
    there = ("rebuild", root, "--jobs", "1", "--json", "--journal")
    cases: dict[str, tuple[object, ...]] = {
        f"there is no journal {tmp_path}/no.jsonl": (tmp_path / "no.jsonl", "--resume"),
        f"a journal cannot be written to {tmp_path}/no/run.jsonl: No such": (tmp_path / "no" / "run.jsonl",),
        f"the journal {root}/capabilities.json/x cannot be read: Not a": (
            root / "capabilities.json" / "x",
            "--resume",
        ),
    }
    (root / "capabilities.json").touch()
    for message, arguments in cases.items():
        told = run(*there, *arguments)
        assert (told.code, told.json["error"]) == (2, "refused")
        assert told.json["message"].startswith(message), told.json
        assert "Errno" not in told.json["message"]


def test_on_a_terminal_there_is_a_bar(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Bar:
        length = 0

        def __init__(self, **options: Any) -> None:
            self.rate = options["item_show_func"]
            shown.append(options["hidden"])

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            shown.append(self.length)

        def update(self, steps: int, item: Any) -> None:
            shown.append(steps)
            assert self.rate(item).endswith("/s")

    monkeypatch.setattr(command.click, "progressbar", Bar)
    assert run("rebuild", root, "--jobs", "1", "--chunk", "20").code == 0
    assert shown == [True, 20, 20, 20, 60]
