"""The README and the examples do what they say: every block runs, every promised output is compared.

Blocks of one page share a namespace, as a reader who types along would have it. What stands in a comment
behind a `print(…)`, or in the line below it, is what that line has to print.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
PAGES = ["README.md"]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """(line before the block's first one, text) of each block in this language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        if match[1] == language:
            found.append((text.count("\n", 0, match.start(2)), match[2]))
    return found


def promised(source: str) -> dict[int, str]:
    """Line number → what the print on it has to print."""
    lines = source.split("\n")
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("print("):
            continue
        behind = re.search(r"\)\s+# (.+)$", line)
        below = lines[number].strip() if number < len(lines) else ""
        if behind:
            found[number] = behind[1]
        elif below.startswith("# "):
            found[number] = below[2:]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run_and_print_what_they_promise(page: str, tmp_path: Path) -> None:
    kept: list[tuple[str, str]] = []
    namespace: dict[str, Any] = {"__name__": "page"}
    for offset, source in blocks(page, "python"):
        expected = promised(source)

        def record(*values: object, wanted: dict[int, str] = expected) -> None:
            line = sys._getframe(1).f_lineno
            if line in wanted:
                kept.append((wanted.pop(line), " ".join(str(value) for value in values)))

        namespace["print"] = record
        text = source.replace("/tmp/chats", str(tmp_path / "chats"))
        exec(compile(text, f"{page}:{offset}", "exec"), namespace)
        assert not expected, f"never printed: {expected}"
    assert kept
    for wanted, printed in kept:
        assert printed == wanted


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page_succeed(page: str, tmp_path: Path) -> None:
    ran = 0
    for _, source in blocks(page, "sh"):
        for line in source.split("\n"):
            if not line.startswith("snapshotter "):
                continue
            command = line.replace("snapshotter", f"{sys.executable} -m snapshotter", 1)
            done = subprocess.run(
                command.replace("/tmp/chats", str(tmp_path / "chats")),
                shell=True,
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran >= 5


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run_again_and_again(name: str, tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / name), f"file://{tmp_path}/store"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip().endswith("ok"), done.stdout
