"""The same run on a real Dask cluster and on a real Ray cluster, both of processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from roots import TESTS, documents, forget, loaded

import snapshotter
from snapshotter.cli import rebuild as command
from snapshotter.database import Database
from snapshotter.rebuilding import LOCAL, dask

pytestmark = pytest.mark.slow

run: Any = loaded(TESTS / "cli" / "cli_runs.py").run


@contextmanager
def dask_here() -> Iterator[str]:
    """The address of its scheduler."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        yield cluster.scheduler_address


def check(root: Path, db: Database, executor: Executor) -> None:
    before = documents(db)
    assert snapshotter.rebuild(root, executor=executor, chunk=10).statuses["same"] == len(before)
    for session in before:
        forget(db, session)
    path = sorted((root / "out" / "chat-000050").iterdir())[0]
    path.write_bytes(path.read_bytes()[:-9])
    summary = snapshotter.rebuild(root, mode="write", executor=executor, chunk=10)
    assert [(r.session, r.error) for r in summary.problems] == [("chat-000050", "Corrupt")]
    del before["chat-000050"]
    after = documents(db)
    assert {session: after[session] for session in before} == before


def test_dask(root: Path, db: Database) -> None:
    with dask_here() as address:
        with dask(address) as executor:
            check(root, db, executor)
        told = run("rebuild", root, "--dask", address, "--prefix", "chat-00001")
        assert (told.code, told.out.split("\n")[0]) == (0, "10 sessions: 10 same")


def test_ray(root: Path, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(snapshotter.__file__).parents[1]))
    # As `--ray` does: a second cluster, for the command, would take as long again.
    with command._executor(None, LOCAL) as executor:
        check(root, db, executor)
