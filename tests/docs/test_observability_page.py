"""docs/observability.md shows what the example prints, and names whatever is told."""

from __future__ import annotations

import ast
import inspect
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from snapshotter import Telemetry
from streams.testing.clocks import FakeClock

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
NAME = re.compile(r"""["'](snapshotter\.[a-z_.]+)["']""")
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
SOURCES = ("spans", "telemetry", "watched")


def test_the_trace_and_the_counters_are_those_of_the_example() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "tracing.py"))
    lines = example["traced"]("memory://page", "chat-42", clock=FakeClock())
    cut = lines.index("")
    shown = re.findall(r"^```text\n(.*?)\n```", PAGE, re.M | re.S)
    assert shown == ["\n".join(lines[:cut]), "\n".join(lines[cut + 1 :])]


def test_its_blocks_run(tmp_path: Path) -> None:
    """In processes of their own: a process has one provider for ever."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OTEL_SDK_DISABLED": "true"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    source = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S))
    run(sys.executable, "-c", source.replace("/tmp/chats", str(tmp_path)))
    commands = [line for line in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)[-1].splitlines() if line]
    assert len(commands) == 2
    for command in commands:
        words = command.replace("/tmp/chats", str(tmp_path))
        errors = run("sh", "-c", words.replace("snapshotter ", f"{sys.executable} -m snapshotter ", 1))
    assert '"event": "boot"' in errors
    assert '"event": "turn"' in errors


def test_every_name_that_the_code_tells_stands_there() -> None:
    source = "".join((ROOT / "snapshotter" / f"{name}.py").read_text(encoding="utf-8") for name in SOURCES)
    names = set(NAME.findall(source))
    assert len(names) > 40
    shown = set(re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", PAGE, flags=re.M | re.S)))
    short = {name.removeprefix("snapshotter") for name in names}
    missing = {
        name
        for name in short
        if not {f"snapshotter{name}", name, name.removeprefix("."), f".{name.rpartition('.')[2]}"} & shown
    }
    assert missing == set()


def logging_calls() -> Iterator[tuple[str, ast.Call]]:
    """Each call of a logger's in the package, and where it stands."""
    for package in ("snapshotter", "streams"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = node.func.value
                    if (
                        isinstance(owner, ast.Name)
                        and owner.id in ("log", "logger")
                        and node.func.attr in LEVELS
                    ):
                        yield f"{path.name}:{node.lineno}", node


def test_every_record_that_is_logged_has_fields() -> None:
    calls = dict(logging_calls())
    assert len(calls) >= 10
    bare = [place for place, call in calls.items() if "extra" not in {word.arg for word in call.keywords}]
    assert bare == []


def test_every_event_that_is_logged_stands_there() -> None:
    sources = [path for package in ("snapshotter", "streams") for path in (ROOT / package).rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    events = set(re.findall(r'"event": "([a-z-]+)"', text)) | set(re.findall(r'_fields\(\s*"([a-z]+)"', text))
    assert events >= {"boot", "turn", "overtaken", "store-unfenced"}
    assert [event for event in sorted(events) if f"`{event}`" not in PAGE] == []


def test_every_option_stands_there() -> None:
    for name in inspect.signature(Telemetry).parameters:
        assert f"`{name}`" in PAGE
