"""`--log-format`: what the engine logs, on stderr."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from chat_samples import SID, saying
from cli_runs import run

from snapshotter.cli.logs import JsonLines

CHUNKS = "\n".join(json.dumps(chunk) for chunk in saying("hello"))


def test_json_lines_on_stderr(root: Path) -> None:
    run("send", root, SID, "hi")
    shown = run("--log-format", "json", "record", root, SID, "-", stdin=CHUNKS)
    assert shown.code == 0
    boot, turn = (json.loads(line) for line in shown.err.splitlines() if line.startswith("{"))
    assert (boot["event"], boot["level"], boot["logger"]) == ("boot", "info", "snapshotter")
    assert (turn["event"], turn["session"], turn["status"], turn["chunks"]) == ("turn", SID, "completed", 7)
    assert turn["message"].startswith("session chat: turn 1 completed after ")
    assert "{" not in shown.out


def test_lines_for_a_person(root: Path) -> None:
    run("send", root, SID, "hi")
    shown = run("--log-format", "text", "record", root, SID, "-", stdin=CHUNKS)
    assert "INFO: session chat: booted in " in shown.err
    assert "INFO: session chat: turn 1 completed after " in shown.err


def test_nothing_unless_it_is_asked_for_and_nothing_afterwards(root: Path) -> None:
    run("send", root, SID, "hi")
    before = logging.getLogger("snapshotter").level, list(logging.getLogger("snapshotter").handlers)
    run("--log-format", "json", "ls", root)
    assert (logging.getLogger("snapshotter").level, logging.getLogger("snapshotter").handlers) == before
    assert run("record", root, SID, "-", stdin=CHUNKS).err == ""


def test_what_json_cannot_hold_is_left_out_and_an_exception_is_told() -> None:
    error = ValueError("no")
    record = logging.getLogger("snapshotter").makeRecord(
        "snapshotter",
        logging.ERROR,
        "file.py",
        1,
        "failed: %s",
        ("x",),
        (ValueError, error, None),
        extra={"event": "e", "thing": object(), "level": "mine"},
    )
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["event"], line["level"]) == ("failed: x", "e", "error")
    assert "ValueError: no" in line["exception"]
    assert "thing" not in line
