"""Every row of docs/differences.md names a test that there is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_difference_names_a_test_that_exists() -> None:
    rows = re.findall(r"^\| .* \| `(\w+)` \|$", (ROOT / "docs" / "differences.md").read_text("utf-8"), re.M)
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) >= 14
    assert [name for name in rows if f"def {name}(" not in tests] == []
