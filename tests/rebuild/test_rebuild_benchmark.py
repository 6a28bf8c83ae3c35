"""The benchmark of rebuilding: what it measures against is what a rebuild has to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from roots import make_corpus

from benchmarks import rebuild as benchmark
from snapshotter.rebuilding import Options, rebuild_some
from snapshotter.rebuilding.executors import Inline


@pytest.fixture
def small(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark, of forty sessions and one round."""
    monkeypatch.setattr(benchmark, "SESSIONS", 40)
    monkeypatch.setattr(benchmark, "TIMES", 1)
    return benchmark


def test_the_bound_reads_what_a_rebuild_reads(root: Path, small: Any) -> None:
    plans = [make_corpus.planned(1, number) for number in range(60)]
    names = [plan.name for plan in plans if plan.kind == "plain"]
    objects = [path for name in names for path in root.glob(f"*/{name}/*") if path.parts[-3] != "blocks"]
    size = sum(path.stat().st_size for path in objects)
    blocks = sum(path.stat().st_size for name in names for path in root.glob(f"blocks/{name}/*"))
    with Inline() as executor:
        assert small.bound(root.as_uri(), names, executor) == size
    results = rebuild_some(root.as_uri(), Options(), names)
    assert sum(result.bytes for result in results) == size + blocks  # which only a comparison needs


def test_each_part_is_a_part_of_a_rebuild(root: Path, small: Any) -> None:
    (sessions, *_, share, bound) = small._measured(root.as_uri(), 1)
    assert min(sessions, bound) > 0
    assert share.endswith(" %")
    whole = small._Whole(root.as_uri())
    results = rebuild_some(root.as_uri(), Options(), whole._names)
    assert whole.fold() == [(result.cursor, result.messages) for result in results]
    table = small._parts(root.as_uri())
    assert [row[0] for row in table.rows[:2]] == ["find and fetch", "parse each line"]
    assert sum(row[1] for row in table.rows) > 0
