"""The same run on a real Dask cluster and on a real Ray cluster, both of processes of this machine; and
addresses where there is none."""

from __future__ import annotations

import socket
import sys
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
from snapshotter.errors import Misconfigured
from snapshotter.rebuilding import LOCAL, dask, executors, ray

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


@pytest.mark.slow
def test_dask(root: Path, db: Database) -> None:
    with dask_here() as address:
        with dask(address) as executor:
            check(root, db, executor)
        told = run("rebuild", root, "--dask", address, "--prefix", "chat-00001")
        assert (told.code, told.out.split("\n")[0]) == (0, "10 sessions: 10 same")


@pytest.mark.slow
def test_ray(root: Path, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(snapshotter.__file__).parents[1]))
    # As `--ray` does: a second cluster, for the command, would take as long again.
    with command._executor(None, LOCAL) as executor:
        check(root, db, executor)


@pytest.fixture
def nobody() -> Iterator[str]:
    """A host and a port where nothing answers, and where nothing else can come to stand meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("address", ["nonsense", "tcp://host", "tcp://host:port", "http://host:8786", ""])
def test_what_is_no_address_of_a_dask_scheduler_is_refused_at_once(root: Path, address: str) -> None:
    told = run("rebuild", root, "--dask", address, "--json")
    assert (told.code, told.json["error"]) == (2, "invalid-value")
    assert told.json["message"].endswith("no address of a Dask scheduler: give one as tcp://host:8786")


@pytest.mark.parametrize("address", ["nonsense", "host:99999", "host:port", "http://host:6379", ""])
def test_what_is_no_address_of_a_ray_cluster_is_refused_at_once(root: Path, address: str) -> None:
    told = run("rebuild", root, "--ray", address, "--json")
    assert (told.code, told.json["error"]) == (2, "invalid-value")
    assert told.json["message"].endswith("a Ray cluster: give auto, host:6379 or ray://host:10001")


def test_a_cluster_that_does_not_answer_is_unreachable(
    root: Path, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_PATIENCE", 0.5)
    for kind, address in (("--dask", f"tcp://{nobody}"), ("--ray", nobody)):
        told = run("rebuild", root, kind, address)
        assert told.code == 5
        assert f" answers at {address}\nhint: look whether it runs there" in told.err


def test_where_no_ray_cluster_runs_auto_finds_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray as package

    def none(**_options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(package, "init", none)
    told = run("rebuild", root, "--ray", "auto")
    assert (told.code, told.err.split("\n")[0]) == (5, "error: no Ray cluster answers at auto")


def test_an_address_for_rays_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(Misconfigured, match=r"pip install 'ray\[client\]'"), ray("ray://host:10001"):
        pass
