"""Which sessions the commands over a root go through."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cli_runs import run

COMMANDS = [("maintain",), ("compact",), ("trim", "--keep-turns", "1"), ("gc",), ("verify",), ("due",)]


def chosen(command: tuple[str, ...], root: Path, *options: object, stdin: bytes = b"") -> list[str]:
    name, *own = command
    found = run(name, root, *own, *options, "--json", stdin=stdin)
    assert found.code == 0, found.err
    return [line["session"] for line in found.lines]


@pytest.mark.parametrize("command", COMMANDS)
def test_sessions_are_selected(root: Path, command: tuple[str, ...]) -> None:
    for name in ("a-1", "a-2", "b-1"):
        assert run("send", root, name, "hi").code == 0
    then = time.time() - 3 * 3600
    for path in root.rglob("a-1/*"):
        os.utime(path, (then, then))
    assert chosen(command, root) == ["a-1", "a-2", "b-1"]
    assert chosen(command, root, "--jobs", "1") == ["a-1", "a-2", "b-1"]
    assert chosen(command, root, "b-1", "a-1", "b-1") == ["b-1", "a-1"]
    assert chosen(command, root, "--prefix", "a-") == ["a-1", "a-2"]
    assert chosen(command, root, "--since", "1h") == ["a-2", "b-1"]
    assert chosen(command, root, "--since", "1h", "--prefix", "a-") == ["a-2"]
    assert chosen(command, root, "--sessions-from", "-", stdin=b"b-1\r\n\na-2\n") == ["b-1", "a-2"]
    assert chosen(command, root, "a-1", "--sessions-from", "-", "--since", "1h", stdin=b"b-1\n") == ["b-1"]
    assert chosen(command, root, "--sessions-from", "-", stdin=b"\n") == [], "none is not all"
    none = run(command[0], root, *command[1:], "--prefix", "nosuch")
    assert (none.code, "there are no such sessions" in none.err) == (0, True)
    assert run(command[0], root, *command[1:], "--since", "yesterday").code == 2
    assert run(command[0], root, *command[1:], "--jobs", "0").code == 2


@pytest.mark.parametrize("jobs", [1, 8])
def test_a_session_without_its_object_is_told_in_its_place(root: Path, jobs: int) -> None:
    names = [f"s-{number:02}" for number in range(20)]
    for name in names:
        assert run("send", root, name, "hi").code == 0
    next((root / "in" / "s-07").iterdir()).write_bytes(b"broken")
    found = run("verify", root, "--json", "--jobs", jobs)
    assert found.code == 1
    assert [line["session"] for line in found.lines] == names
    assert [line["session"] for line in found.lines if not line["ok"]] == ["s-07"]
