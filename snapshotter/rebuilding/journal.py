"""The run's journal: a file of JSON lines that says what is to be done and what is done.

    {"rebuild":1,"url":…,"options":{…}}                 what was asked for, with the cut-off
    {"task":0,"sessions":[…]}   …                       the plan: every task with its sessions
    {"planned":400}                                     the plan is whole
    {"task":17,"results":[…]}   …                       done, in whatever order

A run that was broken off, by whatever, is resumed from it: tasks that are done are not done again, unless a
session of theirs failed. The last line may be half a line then; it does not count. A plan that is not whole
is made anew. Each line is on the disk before the next task counts as done. A line that is whole and none of
these, or results of other sessions than the plan's, are damage: nothing of that journal counts then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from streams.errors import Corrupt, Refused

from .results import Result

VERSION = 1
Tasks = dict[int, list[str]]


class Journal:
    """A journal that is open. `tasks`: those of the plan, None while there is none; `done`: their results.
    `head`: what the run was asked for. Close it, or use it with `with`."""

    def __init__(self, file: BinaryIO, head: dict[str, Any]) -> None:
        self._file = file
        self.head = head
        self.tasks: Tasks | None = None
        self.done: dict[int, list[Result]] = {}

    @classmethod
    def begin(cls, path: Path, head: dict[str, Any]) -> Journal:
        """A new journal. Raises Refused where there is a file already, or none can be made."""
        try:
            file = path.open("xb")
        except FileExistsError:
            raise Refused(f"{path} is there already: resume it, or name another journal") from None
        except OSError as error:
            raise Refused(f"a journal cannot be written to {path}: {error.strerror}") from error
        journal = cls(file, {"rebuild": VERSION, **head})
        journal._write([journal.head])
        return journal

    @classmethod
    def resume(cls, path: Path, head: dict[str, Any]) -> Journal:
        """One that is there. `head`: what is asked for now, which has to be what it says, but for the
        cut-off and a `since` that is later (as 24 hours ago is, by then), which are the first run's. Raises
        Refused where there is none, it is no journal, or another run's, Corrupt for one that is damaged."""
        try:
            lines, whole = _lines(path)
        except FileNotFoundError:
            raise Refused(f"there is no journal {path}: leave --resume out, and it is begun") from None
        except OSError as error:
            raise Refused(f"the journal {path} cannot be read: {error.strerror}") from error
        if not lines or lines[0].get("rebuild") != VERSION:
            raise Refused(f"{path} is no journal of a rebuild that this release can read")
        asked = {"rebuild": VERSION, **head, "until_ms": lines[0].get("until_ms")}
        since, first = head.get("since"), lines[0].get("since")
        if since is not None and type(first) is int and since > first:
            asked["since"] = first
        wrong = [name for name in {**lines[0], **asked} if lines[0].get(name) != asked.get(name)]
        if wrong:
            raise Refused(f"{path} is of a run that asked for something else: {', '.join(sorted(wrong))}")
        planned = next((number for number, line in enumerate(lines) if "planned" in line), None)
        tasks: Tasks | None = None
        done: dict[int, list[Result]] = {}
        if not isinstance(lines[0].get("until_ms", ""), int | None):
            raise _damaged(path, 1)
        if planned is None:
            whole = len(orjson.dumps(lines[0])) + 1
        else:
            tasks = _plan(path, lines[: planned + 1])
            for number, line in enumerate(lines[planned + 1 :], planned + 2):
                done[line["task"]] = _results(path, number, line, tasks)
        file = path.open("r+b")
        journal = cls(file, lines[0])
        journal.tasks, journal.done = tasks, done
        file.truncate(whole)
        file.seek(whole)
        return journal

    def plan(self, tasks: Tasks) -> None:
        """What is to be done."""
        rows = [{"task": number, "sessions": sessions} for number, sessions in tasks.items()]
        self._write([*rows, {"planned": len(rows)}])
        self.tasks = tasks

    def finished(self, task: int, results: Sequence[Result]) -> None:
        """A task is done."""
        self._write([{"task": task, "results": [result.to_json() for result in results]}])

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        self._file.write(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines that are whole, and how many bytes they take."""
    found: list[dict[str, Any]] = []
    size = 0
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            value = orjson.loads(line) if line.endswith(b"\n") else None
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            break
        found.append(value)
        size += len(line)
    return found, size


def _plan(path: Path, lines: list[dict[str, Any]]) -> Tasks:
    """The tasks of a plan, whose last line says that it is whole. Raises Corrupt."""
    tasks: Tasks = {}
    for number, line in enumerate(lines[1:-1], 2):
        sessions = line.get("sessions")
        whole = isinstance(sessions, list) and all(isinstance(session, str) for session in sessions)
        if not whole or line.get("task") != len(tasks):
            raise _damaged(path, number)
        tasks[len(tasks)] = line["sessions"]
    if lines[-1]["planned"] != len(tasks):
        raise _damaged(path, len(lines))
    return tasks


def _results(path: Path, number: int, line: dict[str, Any], tasks: Tasks) -> list[Result]:
    """What became of a task of the plan. Raises Corrupt."""
    task, rows = line.get("task"), line.get("results")
    if type(task) is not int or task not in tasks or not isinstance(rows, list):
        raise _damaged(path, number)
    try:
        results = [Result.of(row) for row in rows]
    except ValueError as error:
        raise _damaged(path, number) from error
    if [result.session for result in results] != tasks[task]:
        raise _damaged(path, number)
    return results


def _damaged(path: Path, number: int) -> Corrupt:
    error = Corrupt(f"{path} is damaged in line {number}", key=str(path))
    error.add_note("delete it and begin again without resuming: what is done is looked at once more")
    return error
