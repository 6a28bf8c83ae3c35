"""Runs that break off and go on; where their tasks run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import killing
import pytest
from roots import documents, folder, forget, turns
from test_rebuild_export import rows

import snapshotter
from snapshotter.database import Database
from snapshotter.errors import Corrupt, Misconfigured, Refused, Unreachable
from snapshotter.rebuilding import Result, running
from snapshotter.rebuilding.executors import Inline, dask, ray
from snapshotter.rebuilding.journal import Journal
from snapshotter.verify import verify


def killed(url: str, journal: Path, *options: str, jobs: int = 1) -> None:
    """Run `killing.main` in another process, which kills itself. Returns when its processes have ended as
    well: they hold the pipes that are read here."""
    done = subprocess.run(
        [sys.executable, killing.__file__, url, str(journal), str(jobs), *options],
        env={"PYTHONPATH": str(Path(snapshotter.__file__).parents[1])},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr


def journalled(path: Path) -> list[str]:
    """The sessions that a journal says are done."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [row["session"] for line in lines if "results" in line for row in line["results"]]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_was_killed_goes_on_where_it_stopped(
    root: Path, db: Database, tmp_path: Path, jobs: int
) -> None:
    before, journal = documents(db), tmp_path / "run.jsonl"
    for session in before:
        forget(db, session)
    killed(root.as_uri(), journal, "mode=write", jobs=jobs)
    done = journalled(journal)
    assert 20 <= len(done) < 60
    with pytest.raises(Refused, match="is there already"):
        snapshotter.rebuild(root, mode="write", journal=journal)
    told: list[str] = []

    def progress(results: Sequence[Result], _total: int) -> None:
        told.extend(result.session for result in results)

    summary = snapshotter.rebuild(
        root.as_uri(), mode="write", jobs=1, journal=journal, resume=True, progress=progress
    )
    assert (summary.ok, summary.sessions, summary.resumed) == (True, 60, len(done))
    assert sorted(told) == sorted(journalled(journal))
    assert len(set(told)) == 60
    after = documents(db)
    assert {session: after[session] for session in before} == before
    again = snapshotter.rebuild(root, mode="write", jobs=1, journal=journal, resume=True)
    assert (again.resumed, again.statuses) == (60, summary.statuses)


def test_an_export_that_was_killed_has_no_row_twice(root: Path, tmp_path: Path) -> None:
    dest, journal = tmp_path / "tables", tmp_path / "run.jsonl"
    killed(root.as_uri(), journal, "mode=export", f"dest={dest.as_uri()}")
    # The line of the last task is torn, as by a death in the middle of its writing.
    data = journal.read_bytes()
    journal.write_bytes(data[:-25])
    summary = snapshotter.rebuild(root, mode="export", dest=dest, jobs=2, journal=journal, resume=True)
    assert 0 < summary.resumed < 60
    found = [row["session"] for row in rows(dest, "sessions", "jsonl")]
    assert len(found) == len(set(found)) == 60


def test_the_cut_off_is_the_first_runs(root: Path, db: Database, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    killed(root.as_uri(), journal, "mode=write")
    until = json.loads(journal.read_bytes().splitlines()[0])["until_ms"]
    last = json.loads(journal.read_bytes().split(b'{"planned"')[0].splitlines()[-3])["sessions"][0]
    known = db.peek(last).fold.turn
    turns(db, last, 1, start=known + 1)
    forget(db, last)
    found: list[Result] = []
    summary = snapshotter.rebuild(
        root.as_uri(),
        mode="write",
        jobs=1,
        journal=journal,
        resume=True,
        progress=lambda results, _: found.extend(results),
    )
    assert summary.until_ms == until
    (result,) = [result for result in found if result.session == last]
    assert (result.status, result.turns) == ("written", known)


def test_a_task_with_a_session_that_failed_is_done_again(root: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    path = sorted((root / "out" / "chat-000050").iterdir())[0]
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    assert not snapshotter.rebuild(root, jobs=1, chunk=20, journal=journal).ok
    path.write_bytes(data)
    summary = snapshotter.rebuild(root, jobs=1, chunk=20, journal=journal, resume=True)
    assert (summary.ok, summary.resumed, summary.sessions) == (True, 40, 60)


def test_a_plan_that_is_not_whole_is_made_anew(root: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    snapshotter.rebuild(root, jobs=1, chunk=20, journal=journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    summary = snapshotter.rebuild(root, jobs=1, chunk=20, journal=journal, resume=True)
    assert (summary.resumed, summary.sessions) == (0, 60)
    assert len(journalled(journal)) == 60


def test_another_runs_journal_is_refused(root: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    snapshotter.rebuild(root, jobs=1, journal=journal, prefix="chat-00000")
    with pytest.raises(Refused, match="mode, prefix"):
        snapshotter.rebuild(root, mode="write", journal=journal, resume=True)
    other = tmp_path / "other.jsonl"
    other.write_text('{"rebuild":2}\n')
    for path in (other, root / "sessions" / "chat-000050" / "snapshot.json"):
        with pytest.raises(Refused, match="no journal"):
            Journal.resume(path, {})


def test_since_is_the_first_runs_where_it_has_become_later(root: Path, db: Database, tmp_path: Path) -> None:
    journal, since = tmp_path / "run.jsonl", max(info.modified_ms or 0 for info in db.sessions()) + 1
    turns(db, "late", 1)
    assert snapshotter.rebuild(root, jobs=1, journal=journal, since=since).sessions == 1
    with pytest.raises(Refused, match="something else: since"):
        snapshotter.rebuild(root, jobs=1, journal=journal, since=since - 1, resume=True)
    with pytest.raises(Refused, match="something else: since"):
        snapshotter.rebuild(root, jobs=1, journal=journal, resume=True)
    later = since + 3_600_000
    assert snapshotter.rebuild(root, jobs=1, journal=journal, since=later, resume=True).resumed == 1
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])  # the plan was not made any more
    assert snapshotter.rebuild(root, jobs=1, journal=journal, since=later, resume=True).sessions == 1


@pytest.mark.parametrize(
    ("line", "there", "instead"),
    [
        (1, b'"until_ms":1', b'"until_ms":-0.1'),
        (2, b'"task":0', b'"task":1'),
        (3, b'"sessions":["', b'"sessions":[20,"'),
        (5, b'"planned":3', b'"planned":4'),
        (6, b'"task":0', b'"task":[0]'),
        (6, b'"task":0', b'"task":9'),
        (6, b'"results"', b'"resvlts"'),
        (6, b'"results":[', b'"results":5,"was":['),
        (6, b'"session":"chat-000001"', b'"session":"chat-000099"'),
        (6, b'"status":"same"', b'"stadus":"same"'),
        (6, b'"status":"same"', b'"status":"seme"'),
        (6, b'"cursor":', b'"cursor":true,"turns":'),
        (6, b'"status":"same"', b'"status":"same","differences":[{}]'),
    ],
)
def test_a_damaged_journal_is_corrupt_and_says_what_to_do(
    root: Path, tmp_path: Path, line: int, there: bytes, instead: bytes
) -> None:
    journal = tmp_path / "run.jsonl"
    snapshotter.rebuild(root, jobs=1, chunk=20, journal=journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    assert there in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(there, instead, 1)
    damaged = b"".join(lines)
    journal.write_bytes(damaged)
    with pytest.raises(Corrupt, match=f"damaged in line {line}") as caught:
        snapshotter.rebuild(root, jobs=1, chunk=20, journal=journal, resume=True)
    assert "begin again" in caught.value.__notes__[0]
    assert journal.read_bytes() == damaged


def test_threads_of_the_callers_do(root: Path) -> None:
    with ThreadPoolExecutor(3) as executor:
        summary = snapshotter.rebuild(root, executor=executor, chunk=9)
        assert executor.submit(int, "7").result() == 7  # it is not shut down
    assert (summary.ok, summary.sessions) == (True, 60)


def test_a_process_that_dies_costs_its_own_task_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "rebuild_some", killing.rebuild_or_die)
    summary = snapshotter.rebuild(root, jobs=2, chunk=2)
    assert summary.sessions == 60
    assert len(summary.problems) == 2
    assert killing.KILLER in [result.session for result in summary.problems]
    assert {result.error for result in summary.problems} == {"ProcessDied"}


class Broken(Executor):
    """An executor whose tasks fail, each in the way of its own."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.errors:
            future.set_exception(self.errors.pop())
            return future
        return Inline().submit(fn, *args, **kwargs)


def test_a_task_that_fails_as_a_whole_is_told_for_its_sessions(root: Path) -> None:
    summary = snapshotter.rebuild(root, executor=Broken(Unreachable("no answer")), chunk=10)
    assert [(r.error, r.detail) for r in summary.problems] == [("Unreachable", "no answer")] * 10
    assert summary.sessions == 60
    with pytest.raises(Misconfigured):
        snapshotter.rebuild(root, executor=Broken(Misconfigured("no credentials")))


def test_a_cluster_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, opened, packages in (("distributed", dask, "dask distributed"), ("ray", ray, "ray")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(Misconfigured, match=f"pip install {packages}$"), opened("tcp://127.0.0.1:1"):
            pass


def test_workers_go_on_while_a_root_is_rebuilt(root: Path, db: Database) -> None:
    """Three workers answer in sessions of their own, and snapshots are written back again and again."""
    names = [f"chat-{number:06d}" for number in (20, 21, 22)]
    started = {name: db.peek(name).fold.turn for name in names}
    seen = dict(started)

    def work(name: str) -> None:
        with folder(root) as own:
            turns(own, name, 8, start=started[name] + 1)

    with ThreadPoolExecutor(len(names)) as workers:
        busy = [workers.submit(work, name) for name in names]
        while not all(future.done() for future in busy):
            summary = snapshotter.rebuild(root, mode="write", jobs=1, sessions=names)
            assert summary.ok, summary.problems
            for name, document in documents(db).items():
                if name in seen:  # what a worker saved is never written over
                    assert document["turn"] >= seen[name]
                    seen[name] = document["turn"]
        for future in busy:
            future.result()
    assert snapshotter.rebuild(root, jobs=1).ok
    for name in names:
        assert db.peek(name).fold.turn == started[name] + 8
        assert verify(db, name).ok
