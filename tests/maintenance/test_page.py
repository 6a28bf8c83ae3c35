"""docs/maintenance.md does what it says: its block runs, its prints and its commands are tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from snapshotter.cli.app import cli

PAGE = (Path(__file__).parents[2] / "docs" / "maintenance.md").read_text(encoding="utf-8")


def test_the_page_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    commands, every = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    printed: list[str] = []
    here = str(tmp_path / "chats")
    namespace: dict[str, Any] = {"print": lambda *values: printed.append(" ".join(map(str, values)))}
    exec(block.replace("/tmp/chats", here), namespace)
    assert printed == re.findall(r"print\(.*\)  # (.+)$", block, re.M)
    assert len(printed) == 3
    for line in (commands + every).strip().split("\n"):
        asked = line.partition("  #")[0].replace("/tmp/chats", here).replace("s3://bucket/agents", here)
        result = CliRunner().invoke(cli, asked.split()[1:])
        assert result.exit_code == 0, (line, result.output)


@pytest.mark.parametrize("rule", range(1, 8))
def test_no_rule_is_left_out(rule: int) -> None:
    assert re.search(rf"^{rule}\. \*", PAGE, re.M)
