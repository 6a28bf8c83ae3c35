"""Upkeep from the command line: what it prints, what it asks, what it exits with."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cli_runs import ANSWER, answered, jsonl, run

import snapshotter
from snapshotter.cli import maintain_one


def aged(root: Path, hours: float) -> None:
    """Everything in this root is older by so many hours."""
    then = time.time() - hours * 3600
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def session(root: Path, name: str = "s", turns: int = 3) -> None:
    for number in range(turns):
        assert run("send", root, name, f"question {number}").code == 0
        chunks = [
            *ANSWER[:2],
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}},
        ]
        chunks += [{"type": "tool-output-available", "toolCallId": "c", "output": 1}, *ANSWER[2:]]
        assert run("record", root, name, stdin=jsonl(*chunks)).code == 0
    aged(root, 24)


def test_maintain_does_what_is_due_to_every_session(root: Path) -> None:
    session(root, "a")
    session(root, "b")
    before = run("history", root, "a", "--json").out
    dry = run("maintain", root, "--dry-run", "--keep-turns", "1", "--json")
    done = run("maintain", root, "--keep-turns", "1", "--json")
    assert dry.code == done.code == 0
    assert [line["session"] for line in done.lines] == ["a", "b"]
    for line in done.lines:
        assert [step["operation"] for step in line["done"]] == ["trim", "compact", "gc"]
        assert line["done"][0]["deleted"] > 3
        assert line["done"][0]["written"] == 1
    assert run("history", root, "a", "--json").out == before
    assert run("verify", root).code == 0
    told = run("maintain", root)
    assert "2 sessions, 0 with problems" in told.out


def test_compact_trim_and_gc_by_themselves(root: Path) -> None:
    session(root)
    told = run("compact", root, "s")
    assert told.code == 0
    assert "s  compact: 2 objects written" in told.out
    aged(root, 24)
    told = run("trim", root, "s", "--keep-turns", "2", "--minimum-age", "12")
    assert "trim: 1 object written, 2 deleted" in told.out
    assert run("gc", root, "--json").json["done"][0]["deleted"] == 0
    assert run("verify", root).code == 0


def test_one_bad_session_is_told_and_the_others_are_maintained(root: Path) -> None:
    session(root, "bad")
    session(root, "good")
    (next(iter(sorted((root / "out" / "bad").iterdir(), reverse=True)))).write_bytes(b"broken")
    aged(root, 24)
    done = run("maintain", root, "--json")
    assert done.code == 1
    bad, good = done.lines
    assert (bad["error"], bad["session"]) == ("Corrupt", "bad")
    assert "error" not in good
    assert good["done"][0]["written"] == 2
    told = run("maintain", root)
    assert told.code == 1
    assert "BAD bad" in told.out
    assert "1 with a problem" in told.out


@pytest.mark.parametrize(
    "options",
    [("--minimum-age", "0.5"), ("--minimum-age", "nan"), ("--keep-turns", "0"), ("--keep-days", "nan")],
)
def test_what_is_not_safe_is_refused(root: Path, options: tuple[str, str]) -> None:
    session(root, turns=1)
    assert run("maintain", root, *options).code == 2


@pytest.mark.parametrize("command", ["maintain", "compact", "trim", "gc", "rebuild"])
def test_a_session_that_is_not_there_is_told(root: Path, command: str) -> None:
    session(root, turns=1)
    told = run(command, root, "nosuch", *(("--keep-turns", "1") if command == "trim" else ()))
    assert told.code == 1
    assert "BAD nosuch  there is no" in told.out


def test_trim_wants_a_limit(root: Path) -> None:
    session(root, turns=1)
    told = run("trim", root, "s")
    assert told.code == 2
    assert all(name in told.err for name in ("--keep-turns", "--keep-days", "--keep-bytes"))


def test_nothing_to_do_says_why(root: Path) -> None:
    session(root)
    aged(root, 0)
    told = run("compact", root, "s")
    assert "objects younger than 6 h" in told.out
    assert "objects younger than 6 h" in run("trim", root, "s", "--keep-turns", "1").out


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("compact",), "(each closed turn is one object already, or no turn has followed it yet)"),
        (("trim", "--keep-turns", "10"), "(the logs hold no more than what is to be left)"),
        (("gc",), "(there is no garbage)"),
    ],
)
def test_a_named_session_to_which_nothing_is_due_says_why(
    root: Path, command: tuple[str, ...], why: str
) -> None:
    session(root, turns=1)
    told = run(*command, root, "s")
    assert (told.code, why in told.out.splitlines()[0]) == (0, True)
    assert len(run(*command, root).out.splitlines()) == 1, "of a whole root only what was done is told"


def test_an_empty_root_is_no_error(root: Path) -> None:
    found = run("maintain", root)
    assert found.code == 0
    assert "nothing is stored" in found.err


def test_delete_asks_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(root, turns=1)
    refused = run("delete", root, "s", stdin="y\n")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert run("redact", root, "s", "--message", "m", stdin="y\n").code == 2
    monkeypatch.setattr(maintain_one, "_is_terminal", lambda: True)
    assert run("redact", root, "s", "--message", "m", stdin="n\n").code == 130
    assert run("delete", root, "s", stdin="n\n").code == 130
    assert len(run("history", root, "s", "--json").lines) == 2
    assert run("delete", root, "s", "--dry-run").out.startswith("s  would delete")
    assert len(run("history", root, "s", "--json").lines) == 2
    assert run("delete", root, "s", stdin="y\n").code == 0
    assert run("history", root, "s", "--json").lines == []
    assert run("delete", root, "nobody", "--yes").code == 2


def test_export_and_import(root: Path, tmp_path: Path) -> None:
    answered(root)
    file, other = tmp_path / "s.zip", tmp_path / "other"
    assert run("export", root, "s", file, "--json").json["written"] > 3
    assert "object" in run("export", root, "s", tmp_path / "again.zip").out
    assert run("export", root, "s", file).code == 2
    assert "would import" in run("import", other, file, "--dry-run").out
    assert run("import", other, file, "--json").json["session"] == "s"
    assert run("history", other, "s", "--json").out == run("history", root, "s", "--json").out
    again = run("import", other, file, "--json")
    assert (again.code, again.json["error"]) == (2, "refused")
    file.write_bytes(file.read_bytes()[:-30])
    cut = run("import", tmp_path / "third", file)
    assert (cut.code, cut.err.splitlines()[-1][:50]) == (
        4,
        "hint: give a whole file that `snapshotter export U",
    )


def test_an_import_says_what_it_writes_beside_the_file(root: Path, tmp_path: Path) -> None:
    """A session that nobody has answered has no out log yet; its first place is taken all the same."""
    run("send", root, "s", "hi")
    assert run("export", root, "s", tmp_path / "s.zip").out.startswith("s: 1 object in ")
    told = run("import", tmp_path / "other", tmp_path / "s.zip").out
    why = "(1 for the beginning of a log, of which the file has none)"
    assert told == f"s  import: 2 objects written, 0 deleted, 0 bytes freed {why}\n"
    answered(root)
    whole = run("export", root, "s", tmp_path / "whole.zip", "--json").json
    brought = run("import", tmp_path / "third", tmp_path / "whole.zip", "--json").json
    assert (brought["written"], brought["why"]) == (whole["written"], "")


def test_an_export_is_not_written_to_standard_output(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(root)
    monkeypatch.chdir(root)
    told = run("export", root, "s", "-")
    assert (told.code, told.out, "name a file" in told.err) == (2, "", True)
    assert not (root / "-").exists()


def test_export_tells_of_what_does_not_verify(root: Path, tmp_path: Path) -> None:
    answered(root)
    next((root / "out" / "s").iterdir()).write_bytes(b"broken")
    found = run("export", root, "s", tmp_path / "s.zip")
    assert found.code == 0
    assert "does not verify" in found.err


def test_fork(root: Path) -> None:
    session(root)
    assert "would fork" in run("fork", root, "s", "t", "--turn", "2", "--dry-run").out
    assert run("fork", root, "s", "t", "--turn", "2", "--json").json["written"] == 4
    assert len(run("history", root, "t", "--json").lines) == 4
    assert len(run("history", root, "s", "--json").lines) == 6
    assert run("fork", root, "s", "t").code == 2
    assert run("fork", root, "s", "u", "--turn", "9").code == 2
    assert run("verify", root).code == 0


def test_redact(root: Path) -> None:
    session(root)
    message = run("history", root, "s", "--json").lines[0]["id"]
    assert "would redact" in run("redact", root, "s", "--message", message, "--dry-run").out
    assert run("redact", root, "s", "--message", message, "--yes", "--json").json["written"] == 1
    assert run("history", root, "s", "--json").lines[0]["parts"][0]["text"] == "[redacted]"
    assert b"question 0" not in b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert run("redact", root, "s", "--message", "nobody", "--yes").code == 2
    assert run("redact", root, "s").code == 2
    assert run("verify", root).code == 0


def test_an_import_has_a_limit_and_reads_nothing_without_an_end(root: Path, tmp_path: Path) -> None:
    text = {"type": "text", "text": "x" * 700_000}
    messages = [{"id": f"m{n}", "role": "user", "parts": [text]} for n in range(2)]
    with snapshotter.open(root) as db:
        db.create("s", messages=messages)
    file, other = tmp_path / "s.zip", tmp_path / "other"
    assert run("export", root, "s", file).code == 0
    above = run("import", other, file, "--limit", "1", "--json")
    assert (above.json["error"], "limit" in above.json["message"]) == ("too-large", True)
    assert not other.exists() or run("ls", other, "--json").lines == []
    assert run("import", other, file, "--limit", "3").code == 0
    endless = run("import", other, "/dev/zero", "--json")
    assert (endless.code, "no regular file" in endless.json["message"]) == (4, True)
