"""docs/recovery.md names every field of ChatRecovery with its default, every event and every reason."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from snapshotter import ChatRecovery
from snapshotter.cli.app import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8")
EVENTS = {"detected", "attempt", "scheduled", "completed", "skipped", "failed", "exhausted", "repaired"}
REASONS = {
    "interrupted_attempts_exceeded",
    "out_of_memory",
    "work_budget_exceeded",
    "no_progress_timeout",
    "recovery_aborted",
    "max_attempts_exceeded",
}


def test_every_field_stands_there_with_its_default() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?)(?: s)? \|", PAGE, re.M))
    for field in dataclasses.fields(ChatRecovery):
        default: Any = field.default
        shown = "none" if default is None else "a sentence" if isinstance(default, str) else f"{default:,g}"
        assert told.pop(field.name) == shown, field.name
    assert told.keys() == EVENTS


def test_every_reason_stands_there() -> None:
    source = (ROOT / "snapshotter" / "core" / "budget.py").read_text(encoding="utf-8")
    assert {reason for reason in REASONS if f'"{reason}"' in source} == REASONS
    assert {reason for reason in REASONS if f"`{reason}`" in PAGE} == REASONS


def test_its_blocks_run(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    exec(block.replace("/tmp/chats", str(tmp_path)), {"__name__": "page"})
    commands = re.findall(r"^snapshotter (.*)$", PAGE, re.M)
    assert len(commands) == 3
    for command in commands:
        words = [word.strip("'") for word in command.replace("/tmp/chats", str(tmp_path)).split(" ")]
        assert CliRunner().invoke(cli, words).exit_code == 0, command
