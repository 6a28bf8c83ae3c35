"""The workers of the examples, killed between any two of their lines: the next delivery carries on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import snapshotter

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


def deliver(name: str, url: str, receipt: str, number: int, journal: Path) -> int:
    done = subprocess.run(
        [sys.executable, HERE / "killed_example.py", EXAMPLES / name, url, receipt, str(number), journal],
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize("name", ["agent_worker.py", "agent_worker_async.py"])
def test_a_worker_killed_before_any_of_its_lines_carries_on(name: str, tmp_path: Path) -> None:
    killed = 0
    for number in range(1, 200):
        url, journal = f"file://{tmp_path}/{number}", tmp_path / f"journal-{number}"
        with snapshotter.open(url) as db:
            receipt = str(db.send("shop", "Charge me five."))
            if deliver(name, url, receipt, number, journal) == 0:
                break  # it has fewer lines than that
            killed += 1
            assert deliver(name, url, receipt, 0, journal) == 0
            assert deliver(name, url, receipt, 0, journal) == 0, "a second delivery finds it answered"
            question, answer = db.history("shop")
            text = "".join(part.get("text", "") for part in answer["parts"])
            charged = journal.read_text().split() if journal.exists() else []
        assert question["parts"] == [{"type": "text", "text": "Charge me five."}]
        # Killed between the deed and its result nobody knows: then it is said, and never done again.
        assert len(charged) <= 1, f"line {number}"
        assert text.endswith(("It is paid.", "It is unclear; ask your bank.")), f"line {number}: {text}"
        assert charged or "unclear" in text, f"line {number}: {text}"
    assert killed > 25
