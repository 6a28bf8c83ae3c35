"""A run: which sessions, in which tasks, where, and what it came to.

The sessions of a root, or a selection of them, are cut into tasks of a few dozen; each is one call of
`rebuild_some`, made wherever the executor makes it. What comes back is written to the journal, told, and
summed up. A session that fails is a result like another. A task that fails as a whole (its process died, its
part of an export could not be written) is told as a failure of each of its sessions; where a process of ours
died, the tasks that were lost with it are done again one by one, so that only the one which kills is told.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from snapshotter.catalogue import checked, selected
from snapshotter.core.blocks import DEFAULT, Sizes
from snapshotter.database import Database
from snapshotter.database import open as open_database
from snapshotter.spans import RebuildSpan
from snapshotter.telemetry import DEFAULT as TELEMETRY
from snapshotter.telemetry import Telemetry
from streams import keys
from streams.clock import SystemClock
from streams.encryption import Encryption
from streams.errors import InvalidValue, Misconfigured, Refused, WrongKey

from .executors import Inline, Processes
from .exporting import check_apart, check_unused, tidy
from .journal import Journal, Tasks
from .results import FORMATS, MODES, Format, Mode, Options, Result, Summary
from .working import rebuild_some

Progress = Callable[[Sequence[Result], int], None]
"""Told of results as they come, and of how many sessions there are in all."""

_CHUNK = 25  # sessions of a task at most, by default
_TASKS_EACH = 4  # tasks that each process gets, where there are enough sessions
_FLIGHT = 1024  # tasks that are handed to somebody's executor at once


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which sessions, and how they are cut into tasks."""

    sessions: Sequence[str] | None
    prefix: str
    since: int | None
    chunk: int | None
    jobs: int


def rebuild(
    url: str | os.PathLike[str],
    *,
    mode: Mode = "compare",
    sessions: Iterable[str] | None = None,
    prefix: str = "",
    since: int | None = None,
    format: Format = "jsonl",  # noqa: A002 - what everybody calls it
    dest: str | os.PathLike[str] | None = None,
    replace_unreadable: bool = False,
    allow_unfenced: bool = False,
    jobs: int | None = None,
    executor: Executor | None = None,
    chunk: int | None = None,
    journal: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    sizes: Sizes = DEFAULT,
    encryption: Encryption | None = None,
    telemetry: Telemetry | None = TELEMETRY,
) -> Summary:
    """Rebuild the histories of a root from its logs alone.

    `mode`: `compare` each with its stored snapshot (nothing is written), `write` the snapshots back, never
    over a newer one, or `export` the histories to `dest` (a folder or a store URL) as `jsonl` or `parquet`.

    `sessions`: these; by default all of the root, also those without a snapshot. Of them those whose id
    begins with `prefix`, and that changed at `since` (epoch ms, the store's clock) or later.

    `jobs`: processes of this machine, by default one for each of its cores; with 1 all is done in this one.
    They begin by importing the caller's main module, which has to stand that (`if __name__ == "__main__":`).
    `executor`: any with the interface of `concurrent.futures`, in their place; it is not shut down.
    `chunk`: sessions of one task. `journal`: a file that says what is done, and with `resume` what need not
    be done again. `replace_unreadable`: of `write`, also over a snapshot that cannot be read.
    `allow_unfenced`: as of `open`. So is `encryption`; its source of keys goes to other processes, so it has
    to be picklable.
    `telemetry`: as of `open`. Of the tasks it tells their sums, and no single request.

    Raises Refused or InvalidValue for what is asked wrongly (also a `dest` that holds tables already),
    Misconfigured for what concerns the whole store, WrongKey where no session's key is at hand, and what its
    listing raises. What goes wrong with one session is told in the summary.
    """
    url = Path(url).absolute().as_uri() if isinstance(url, os.PathLike) else url
    options = _options(mode, format, dest, replace_unreadable, sizes)
    options = replace(options, allow_unfenced=allow_unfenced)
    asked = _asked(sessions, prefix, since, chunk, jobs)
    if resume and journal is None:
        raise Refused("resume needs the journal of the run that is to be resumed")
    clock = SystemClock()
    began = clock.monotonic()
    if encryption is not None and (executor is not None or asked.jobs != 1):
        _check_travels(encryption)
    with (
        RebuildSpan(telemetry, clock, mode) as span,
        open_database(url, encryption=encryption, telemetry=telemetry) as db,
    ):
        if options.dest:
            check_apart(db.url, options.dest)
            if not resume:
                check_unused(options.dest)
        options = replace(options, until_ms=_store_date(db))
        with _journal(journal, resume, url, options, asked) as kept:
            if kept is not None:
                options = replace(options, until_ms=kept.head["until_ms"])
                asked = replace(asked, since=kept.head["since"])
            summary = Summary(mode, options.until_ms)
            tasks = _planned(db, asked, kept)
            call = partial(rebuild_some, url, options)
            if encryption is not None:
                call = partial(call, encryption=encryption)
            run = _Run(call, asked.jobs, kept, progress or _untold, summary)
            run.all(tasks, executor)
        if options.dest:
            tidy(options.dest)
        span.summed(summary)
    _check_keys(summary)
    summary.seconds = clock.monotonic() - began
    return summary


def _options(
    mode: Mode, kind: Format, dest: str | os.PathLike[str] | None, replace_unreadable: bool, sizes: Sizes
) -> Options:
    if mode not in MODES:
        raise Refused(f"unknown mode {mode!r}: {', '.join(MODES)}")
    if kind not in FORMATS:
        raise Refused(f"unknown format {kind!r}: {' or '.join(FORMATS)}")
    if (mode == "export") != (dest is not None):
        raise Refused("an export needs a dest, and nothing else takes one")
    if replace_unreadable and mode != "write":
        raise Refused("replace_unreadable is of the mode write: nothing else replaces snapshots")
    if isinstance(dest, os.PathLike):
        dest = Path(dest).absolute().as_uri()
    return Options(mode, None, replace_unreadable, kind, dest or "", sizes)


def _check_travels(encryption: Encryption) -> None:
    try:
        pickle.dumps(encryption)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidValue(
            f"the source of keys cannot be sent to another process ({type(error).__name__}): give a function"
            " of a module or a Keyring, or jobs=1",
            path="encryption",
        ) from error


def _asked(
    sessions: Iterable[str] | None, prefix: str, since: int | None, chunk: int | None, jobs: int | None
) -> _Asked:
    names = None if sessions is None else checked(sessions)
    if not isinstance(prefix, str):
        raise InvalidValue("prefix is what ids begin with, one text", path="prefix")
    if since is not None and type(since) is not int:
        raise InvalidValue("since is a time in epoch ms, an int", path="since")
    for name, number, of in (("jobs", jobs, "processes"), ("chunk", chunk, "sessions")):
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidValue(f"{name} is a number of {of}, 1 or more", path=name)
    return _Asked(names, prefix, since, chunk, jobs or os.cpu_count() or 1)


def _store_date(db: Database) -> int | None:
    """Now, by the store's clock."""
    return db.store.list(keys.sessions_prefix(), limit=1).date_ms


def _journal(
    file: str | os.PathLike[str] | None, resume: bool, url: str, options: Options, asked: _Asked
) -> AbstractContextManager[Journal | None]:
    if file is None:
        return nullcontext()
    path = Path(file)
    given = {"prefix": asked.prefix, "since": asked.since, "sessions": asked.sessions}
    head = {"url": url, **asdict(options), **given}
    return Journal.resume(path, head) if resume else Journal.begin(path, head)


def _planned(db: Database, asked: _Asked, journal: Journal | None) -> Tasks:
    """The tasks, from the journal where it has them."""
    if journal is not None and journal.tasks is not None:
        return journal.tasks
    names = list(selected(db, asked.sessions, prefix=asked.prefix, since=asked.since))
    share = -(-len(names) // (_TASKS_EACH * asked.jobs))
    size = asked.chunk or max(1, min(_CHUNK, share))
    tasks = {n: names[at : at + size] for n, at in enumerate(range(0, len(names), size))}
    if journal is not None:
        journal.plan(tasks)
    return tasks


def _check_keys(summary: Summary) -> None:
    """Raise WrongKey where that was the end of every session: then it is no session's own problem."""
    lacking = [result for result in summary.problems if result.error == WrongKey.__name__]
    if lacking and len(lacking) == summary.sessions:
        raise WrongKey(lacking[0].detail)


class _Run:
    """The tasks of a run, and what becomes of them."""

    def __init__(
        self,
        call: Callable[[Sequence[str]], list[Result]],
        jobs: int,
        journal: Journal | None,
        progress: Progress,
        summary: Summary,
    ) -> None:
        self._call = call
        self._jobs = jobs
        self._journal = journal
        self._progress = progress
        self._summary = summary
        self._total = 0

    def all(self, tasks: Tasks, executor: Executor | None) -> None:
        """Do what is not done yet."""
        self._total = sum(map(len, tasks.values()))
        left = dict(tasks)
        for number, results in (self._journal.done if self._journal is not None else {}).items():
            if all(result.error == "" for result in results):
                del left[number]
                self._summary.resumed += len(results)
                self._tell(results)
        if executor is not None:
            for number, error in self._through(executor, left, _FLIGHT):
                self._failed(number, left[number], error)
        elif self._jobs == 1:
            for number, error in self._through(Inline(), left, 1):
                self._failed(number, left[number], error)
        else:
            self._local(left)

    def _local(self, left: Tasks) -> None:
        lost: Tasks = {}
        with Processes(min(self._jobs, len(left) or 1)) as pool:
            for number, error in self._through(pool, left, 2 * self._jobs):
                if isinstance(error, BrokenExecutor):
                    lost[number] = left[number]
                else:
                    self._failed(number, left[number], error)
        while lost:
            # One process died, and with it the pool. One by one it shows whose task it was.
            with Processes(1) as pool:
                for number in list(lost):
                    sessions = lost.pop(number)
                    died = [e for _, e in self._through(pool, {number: sessions}, 1)]
                    for error in died:
                        self._failed(number, sessions, error)
                    if any(isinstance(error, BrokenExecutor) for error in died):
                        break

    def _through(self, executor: Executor, tasks: Tasks, flight: int) -> Iterator[tuple[int, Exception]]:
        """Do these, so many at a time; yields those that failed as a whole. Raises Misconfigured."""
        rest = iter(tasks.items())
        begun: dict[Future[list[Result]], int] = {}
        try:
            while True:
                while len(begun) < flight and (task := next(rest, None)) is not None:
                    try:
                        begun[executor.submit(self._call, task[1])] = task[0]
                    except BrokenExecutor as error:
                        yield task[0], error
                if not begun:
                    return
                for future in wait(begun, return_when=FIRST_COMPLETED).done:
                    number = begun.pop(future)
                    try:
                        results = future.result()
                    except Misconfigured:
                        raise
                    except Exception as error:  # noqa: BLE001 - one task must not end the others' run
                        yield number, error
                    else:
                        self._finished(number, results)
        finally:
            if not isinstance(executor, Processes):  # which ends by itself
                for future in begun:
                    future.cancel()

    def _finished(self, number: int, results: list[Result]) -> None:
        if self._journal is not None:
            self._journal.finished(number, results)
        self._tell(results)

    def _failed(self, number: int, sessions: Sequence[str], error: Exception) -> None:
        died = isinstance(error, BrokenExecutor)
        why = "the process that had it died: it may have run out of memory" if died else str(error)
        name = "ProcessDied" if died else type(error).__name__
        self._finished(number, [Result(s, "failed", error=name, detail=why) for s in sessions])

    def _tell(self, results: Sequence[Result]) -> None:
        self._summary.add(results)
        self._progress(results, self._total)


def _untold(_results: Sequence[Result], _total: int) -> None:
    """Nobody wants to know."""
