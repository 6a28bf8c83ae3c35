"""How the tests ask real packages, and how they compare what those say.

They need the folder that scripts/oracles.sh fills, and `node`. Without them a test is skipped and says so;
with SNAPSHOTTER_TEST_ORACLES=required (as in CI) it fails instead.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from snapshotter.core.values import loads, mend_text

HOME = Path(os.environ.get("SNAPSHOTTER_ORACLES", Path.home() / ".cache" / "snapshotter-oracles"))
SCRIPT = Path(__file__).with_name("ai_sdk.mjs")


def need(installed: Path, package: str) -> None:
    """Skip, or fail where oracles are required, unless this file of a package is there."""
    missing = None
    if installed.suffix in (".json", ".mjs") and shutil.which("node") is None:
        missing = "node is not installed"
    elif not installed.exists():
        missing = f"{package} is not in {HOME}; run scripts/oracles.sh"
    if missing and os.environ.get("SNAPSHOTTER_TEST_ORACLES") == "required":
        pytest.fail(f"oracle required: {missing}")
    if missing:
        pytest.skip(f"no differential test: {missing}")


def run_oracle(command: list[str], questions: Iterable[Any], max_depth: int = 200) -> list[Any]:
    """One answer for each question, from one process: JSON lines in, JSON lines out."""
    run = subprocess.run(
        command,
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "SNAPSHOTTER_ORACLES": str(HOME)},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    # Not splitlines: JSON leaves U+2028 and U+0085 raw.
    return [loads(line, max_depth=max_depth) for line in run.stdout.split("\n") if line]


def need_oracle() -> None:
    """Skip, or fail where oracles are required, unless the real AI SDK client can be asked."""
    need(HOME / "ai" / "node_modules" / "ai" / "package.json", "npm ai")


def ask(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the AI SDK's client says."""
    need_oracle()
    return run_oracle(["node", str(SCRIPT)], questions, max_depth=400)


def as_js(value: Any) -> Any:
    """A value as JavaScript sees it: numbers are doubles (and not booleans), text has no half pairs."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        number = float(value)
        return ("number", number) if math.isfinite(number) else None
    if isinstance(value, str):
        return mend_text(value)
    if isinstance(value, list):
        return [as_js(item) for item in value]
    return {mend_text(key): as_js(item) for key, item in value.items()}


def shown(message: dict[str, Any] | None) -> Any:
    """A message as compared: step-starts at the end are not shown yet, an empty message is none."""
    if message is None:
        return None
    parts = list(message.get("parts", []))
    while parts and parts[-1].get("type") == "step-start":
        parts.pop()
    if not parts and message.get("metadata") is None:
        return None
    return as_js({**message, "parts": parts})
