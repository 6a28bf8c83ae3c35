"""docs/hosts.md does what it says: its blocks run, its prints print what they promise, its tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_the_blocks_print_what_they_promise(tmp_path: Path) -> None:
    printed: list[str] = []
    namespace = {"__name__": "page", "print": lambda value: printed.append(str(value))}
    promised = [found[1] for block in BLOCKS for found in re.finditer(r"^print\(.*\)  # (.+)$", block, re.M)]
    for _ in range(2):  # a reader who tries again finds the same
        for block in BLOCKS:
            exec(block.replace("/tmp/chats", str(tmp_path)), namespace)
    assert len(promised) == 6
    assert printed == promised * 2


def test_each_difference_has_its_test() -> None:
    named = re.findall(r"^\| .* \| `(test_\w+)` \|$", PAGE, re.M)
    assert len(named) == 10
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in tests] == []
