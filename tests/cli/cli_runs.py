"""Running the command line in this process, and small streams to give it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import snapshotter
from snapshotter.cli.app import cli

ANSWER = [
    {"type": "start", "messageId": "a1"},
    {"type": "start-step"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "Hel"},
    {"type": "text-delta", "id": "t", "delta": "lo \u2028 there"},
    {"type": "text-end", "id": "t"},
    {"type": "finish-step"},
    {"type": "finish", "finishReason": "stop"},
]


@dataclass(frozen=True)
class Ran:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Its output as JSON lines."""
        return [json.loads(line) for line in self.out.split("\n") if line]

    @property
    def json(self) -> Any:
        (line,) = self.lines
        return line


def run(*args: object, stdin: str | bytes = b"") -> Ran:
    """`run("ls", url)`: the command's exit code and output. Nothing but an exit may leave it."""
    result = CliRunner().invoke(cli, [str(arg) for arg in args], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return Ran(result.exit_code, result.stdout, result.stderr)


def jsonl(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def database(root: Path) -> snapshotter.Database:
    return snapshotter.open(root.as_uri(), durability="live")


def answered(root: Path, session: str = "s", text: str = "hi") -> None:
    """One whole turn."""
    assert run("send", root, session, text).code == 0
    assert run("record", root, session, stdin=jsonl(*ANSWER)).code == 0


def asking(root: Path, session: str = "s") -> None:
    """A turn that ends with a call which waits for an approval, `ap1`."""
    assert run("send", root, session, "hi", "--id", "u1").code == 0
    called = {"type": "tool-input-available", "input": {"disk": "a"}}
    chunks = [
        *ANSWER[:2],
        {**called, "toolCallId": "c1", "toolName": "wipe"},
        {"type": "tool-approval-request", "toolCallId": "c1", "approvalId": "ap1"},
        *ANSWER[-2:],
    ]
    assert run("record", root, session, stdin=jsonl(*chunks)).code == 0
