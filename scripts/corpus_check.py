"""Rebuild a whole corpus, undisturbed, killed, and beside workers: is it always what the logs say?

    python scripts/corpus_check.py --sessions 10000 --store file|s3
    python scripts/corpus_check.py --url minio://host:9000/bucket/path      a root that is empty, and is kept

`file` is a folder, `s3` a real server (SeaweedFS, `s3_server.py`), both made for the check and gone after it.
What is done, in this order, with `make_corpus.py`'s sessions:

    make       the corpus, always the same for the same seed
    compare    every session is folded from its logs alone; each has to equal its stored snapshot
    killed     all snapshots are removed and written back by a run whose processes are all killed (kill -9)
               in the middle of their tasks, again and again; resumed, it has to write what stood there before
    beside     all snapshots are removed again and written back, while workers ask and answer in some of the
               sessions, and lose a snapshot now and then; those sessions are rebuilt again and again. No
               snapshot may step back; every question stands once and is answered; what the workers did not
               touch is written as it was
    verify     every object is read; in each session the fold of the whole logs has to be what the snapshot
               says at its place, and what a boot returns at the end

Exit code 1 where anything is wrong. `--json` prints all that was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import corpus_work
import make_corpus
import s3_server
from corpus_work import Stored, opened, wait_for

from snapshotter.rebuilding import Summary, rebuild
from snapshotter.rebuilding.executors import Inline, Processes

T = TypeVar("T")

_MANY = 50  # sessions of one call in another process
_VISITED = 8  # sessions that one worker goes through: few, so that it meets the rebuild in them
_SHOWN = 20  # of what is wrong


@dataclass
class Step:
    """One part of the check, as it went."""

    name: str
    seconds: float
    counts: dict[str, Any]
    wrong: list[str]


@dataclass
class Report:
    """The whole check. `largest`: of its processes the one that took most memory, in bytes."""

    store: str
    sessions: int
    seed: int
    jobs: int
    steps: list[Step] = field(default_factory=list)
    largest: int = 0

    @property
    def wrong(self) -> list[str]:
        return [f"{step.name}: {each}" for step in self.steps for each in step.wrong]

    def lines(self) -> list[str]:
        """For people."""
        rows = [f"{self.store}: {self.sessions:,} sessions, seed {self.seed}, {self.jobs} processes"]
        for step in self.steps:
            told = ", ".join(f"{_shown(value)} {name}" for name, value in step.counts.items() if value)
            rows.append(f"  {step.name:<8} {step.seconds:8.1f} s   {told}")
        rows.append(f"  no process took more than {self.largest / 1e6:,.0f} MB; {len(self.wrong)} wrong")
        return [*rows, *(f"  WRONG {each}" for each in self.wrong[:_SHOWN])]


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Asked:
    """What is to be checked, and how hard. `kills`: how often the run is killed; `workers`: how many answer
    while it runs; `rounds`: how often the sessions in which they do are rebuilt, after all have been."""

    url: str
    store: str
    sessions: int
    seed: int = 1
    jobs: int = 2
    kills: int = 3
    workers: int = 3
    rounds: int = 60


class Check:
    """One check. `folder`: for journals."""

    def __init__(self, asked: Asked, folder: Path, told: Callable[[str], None]) -> None:
        self._asked = asked
        self._folder = folder
        self._told = told
        self._plans = [make_corpus.planned(asked.seed, number) for number in range(asked.sessions)]
        self._names = [plan.name for plan in self._plans]
        self._saved = [plan.name for plan in self._plans if plan.saved]
        self._before: dict[str, Stored] = {}
        self._others: Executor = Inline() if asked.jobs == 1 else Processes(asked.jobs)
        self.report = Report(asked.store, asked.sessions, asked.seed, asked.jobs)

    def run(self) -> Report:
        """All steps. What is wrong is in the report."""
        with self._others:
            for step in (self.make, self.compare, self.killed, self.beside, self.verify):
                self._told(step.__name__)
                began = time.monotonic()
                counts, wrong = step()
                seconds = round(time.monotonic() - began, 1)
                self.report.steps.append(Step(step.__name__, seconds, counts, wrong))
        own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        unit = 1 if sys.platform == "darwin" else 1024
        self.report.largest = max(own.ru_maxrss, others.ru_maxrss) * unit
        return self.report

    # -- the steps ------------------------------------------------------------------------------------

    def make(self) -> tuple[dict[str, Any], list[str]]:
        make_corpus.make(self._asked.url, self._asked.sessions, self._asked.seed, self._asked.jobs)
        kinds = Counter(str(plan.kind) for plan in self._plans)
        return {**kinds, "turns asked": sum(plan.turns for plan in self._plans)}, []

    def compare(self) -> tuple[dict[str, Any], list[str]]:
        summary = rebuild(self._asked.url, jobs=self._asked.jobs)
        expected = {"same": len(self._saved), "unsaved": len(self._names) - len(self._saved)}
        expected = {status: number for status, number in expected.items() if number}
        wrong = _problems(summary)
        if dict(summary.statuses) != expected:
            wrong.append(f"{dict(summary.statuses)}, and it should be {expected}")
        return _counted(summary), wrong

    def killed(self) -> tuple[dict[str, Any], list[str]]:
        """Also notes what stood there before, for this step and the next."""
        asked, journal = self._asked, self._folder / "killed.jsonl"
        self._before = self._stored(self._names)
        wrong = [f"{name} has no snapshot" for name in self._saved if name not in self._before]
        self._each(corpus_work.forget, list(self._before))
        for kill in range(1, asked.kills + 1):
            upto = max(1, asked.sessions * kill // (asked.kills + 1))
            wrong += self._kill(journal, upto)
        summary = rebuild(asked.url, mode="write", jobs=asked.jobs, journal=journal, resume=True)
        if not 0 < summary.resumed < asked.sessions:
            wrong.append(f"{summary.resumed} sessions were done by the runs that were killed")
        after = self._stored(self._names)
        wrong += [*_problems(summary), *self._changed(after)]
        return {"kills": asked.kills, "resumed": summary.resumed, **_counted(summary)}, wrong

    def _kill(self, journal: Path, upto: int) -> list[str]:
        """Run until so many sessions are done, and then no more."""
        given = [self._asked.url, str(journal), str(self._asked.jobs), str(upto)]
        done = subprocess.run(
            [sys.executable, corpus_work.__file__, *given],
            start_new_session=True,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode == -signal.SIGKILL:
            return []
        return [f"the run that was to be killed at {upto} ended with {done.returncode}: {done.stderr}"]

    def beside(self) -> tuple[dict[str, Any], list[str]]:
        asked = self._asked
        self._each(corpus_work.forget, list(self._before))
        visited = _dealt(self._names, asked.workers)
        with Processes(asked.workers) as pool:
            running = [
                pool.submit(corpus_work.answering, asked.url, asked.seed, number, names, self._folder)
                for number, names in enumerate(visited)
            ]
            try:
                for number in range(asked.workers):
                    wait_for(self._folder / f"{number}.jsonl")
                summary = rebuild(asked.url, mode="write", jobs=asked.jobs)
                names = [name for part in visited for name in part]
                again = [
                    rebuild(asked.url, mode="write", jobs=1, sessions=names) for _ in range(asked.rounds)
                ]
            finally:
                (self._folder / "stop").touch()
            for future in running:
                future.result()
        visits = [*_visits(self._folder, asked.workers)]
        touched = list(dict.fromkeys(visit["session"] for visit in visits))
        stored = self._stored(self._names)
        wrong = [each for run in (summary, *again) for each in _problems(run)]
        wrong += [*_stepped_back(visits, stored), *self._unanswered(visits, touched)]
        wrong += self._changed({name: what for name, what in stored.items() if name not in touched}, touched)
        counts = {"workers": asked.workers, "turns beside": len(visits), "sessions touched": len(touched)}
        counts["written beside"] = sum(run.statuses["written"] for run in again)
        return {**counts, **_counted(summary)}, wrong

    def verify(self) -> tuple[dict[str, Any], list[str]]:
        summary = rebuild(self._asked.url, jobs=self._asked.jobs)
        wrong = [each for found in self._each(corpus_work.judge, self._names) for each in found]
        return _counted(summary), [*_problems(summary), *wrong]

    # -- what they share ------------------------------------------------------------------------------

    def _each(self, call: Callable[[str, Sequence[str]], T], names: Sequence[str]) -> list[T]:
        """The call for all of these, where the jobs run, some at a time."""
        parts = [names[at : at + _MANY] for at in range(0, len(names), _MANY)]
        return list(self._others.map(partial(call, self._asked.url), parts))

    def _stored(self, names: Sequence[str]) -> dict[str, Stored]:
        parts = self._each(corpus_work.snapshots, names)
        return {name: what for part in parts for name, what in part.items()}

    def _changed(self, after: dict[str, Stored], but: Sequence[str] = ()) -> list[str]:
        """Where another snapshot stands than before. Of a long session the stored one may lag behind its
        last turn: what is written back is newer, and `verify` tells whether it is right."""
        wrong = []
        for name, (cursor, digest) in self._before.items():
            now = after.get(name)
            if name in but:
                continue
            if now is None or now[0] < cursor or (now[0] == cursor and now[1] != digest):
                wrong.append(f"{name}: stood at {cursor}, and now {now and now[0]}, another")
        return wrong

    def _unanswered(self, visits: Sequence[dict[str, Any]], touched: Sequence[str]) -> list[str]:
        parts = self._each(corpus_work.histories, touched)
        shown = {name: messages for part in parts for name, messages in part.items()}
        wrong = []
        for visit in visits:
            messages = shown[visit["session"]]
            places = [at for at, message in enumerate(messages) if message["id"] == visit["id"]]
            answered = [messages[at + 1]["role"] for at in places if at + 1 < len(messages)]
            if answered != ["assistant"]:
                wrong.append(f"{visit['session']}: {visit['id']} stands {len(places)} times: {answered}")
        return wrong


def _dealt(names: Sequence[str], workers: int) -> list[list[str]]:
    """Sessions for each worker, none for two, from all over the corpus."""
    each = max(1, min(_VISITED, len(names) // (2 * workers)))
    step = max(1, len(names) // (each * workers))
    chosen = list(names[::step])[: each * workers]
    return [chosen[number::workers] for number in range(workers)]


def _visits(folder: Path, workers: int) -> Iterator[dict[str, Any]]:
    for number in range(workers):
        yield from map(json.loads, (folder / f"{number}.jsonl").read_text().splitlines())


def _stepped_back(visits: Sequence[dict[str, Any]], stored: dict[str, Stored]) -> list[str]:
    """Where a snapshot stood that a later look did not find, nor a newer one. (`before` is -1 where it was
    taken away on purpose.)"""
    newest: dict[str, int] = {}
    wrong = []
    for visit in visits:
        session, known = visit["session"], newest.get(visit["session"], 0)
        if -1 < visit["before"] < known or visit["after"] < visit["before"]:
            steps = f"{known}, {visit['before']}, {visit['after']}"
            wrong.append(f"{session}: its snapshot stepped back: it stood at {steps}")
        newest[session] = visit["after"]
    for session, known in newest.items():
        now = stored.get(session, (0, ""))[0]
        if now < known:
            wrong.append(f"{session}: its snapshot stepped back from {known} to {now}")
    return wrong


def _problems(summary: Summary) -> list[str]:
    return [f"{r.session}: {r.status} {r.error} {r.detail}".strip() for r in summary.problems]


def _counted(summary: Summary) -> dict[str, Any]:
    sums = ("turns", "messages", "segments", "records", "bytes", "requests")
    rate = f"{(summary.sessions - summary.resumed) / max(summary.seconds, 0.001):.0f}"
    timed = {"s of rebuilding": f"{summary.seconds:.1f}", "sessions/s": rate}
    return {**summary.statuses, **{name: summary.sums[name] for name in sums}, **timed}


@contextmanager
def store(kind: str) -> Iterator[str]:
    """An empty root in a folder, or on a real server. Raises NoServer."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        if kind == "file":
            yield (Path(folder) / "root").as_uri()
            return
        with s3_server.running(Path(folder) / "server") as server:
            yield f"minio://{server.endpoint.removeprefix('http://')}/{s3_server.BUCKET}/corpus"


def check(asked: Asked, told: Callable[[str], None] = lambda _step: None) -> Report:
    """Check one root, which has to be empty. `told` hears of each step as it begins."""
    with opened(asked.url) as db:
        if db.store.list("", limit=1).entries:
            raise SystemExit(f"{asked.url} is not empty: give a root that the check may fill")
    with tempfile.TemporaryDirectory(prefix="corpus-journals-") as folder:
        return Check(asked, Path(folder), told).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="corpus_check.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--store", choices=("file", "s3"), default="file")
    parser.add_argument("--url", help="an empty root, in place of a store that is made")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--kills", type=int, default=3, help="how often the rebuild is killed")
    parser.add_argument("--workers", type=int, default=3, help="how many answer while it runs")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no server is left behind

    def told(step: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {step}", file=sys.stderr)

    def checked(url: str, name: str) -> Report:
        hard = (given.sessions, given.seed, given.jobs, given.kills, given.workers)
        return check(Asked(url, name, *hard), told)

    if given.url:
        report = checked(given.url, given.url)
    else:
        try:
            with store(given.store) as url:
                report = checked(url, given.store)
        except s3_server.NoServer as error:
            print(error, file=sys.stderr)
            return 2
    print(json.dumps({**asdict(report), "wrong": report.wrong}) if given.json else "\n".join(report.lines()))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
