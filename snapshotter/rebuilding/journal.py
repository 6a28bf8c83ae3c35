"""The run's journal: a file of JSON lines that says what is to be done and what is done.

    {"rebuild":1,"url":…,"options":{…}}                 what was asked for, with the cut-off
    {"task":0,"sessions":[…]}   …                       the plan: every task with its sessions
    {"planned":400}                                     the plan is whole
    {"task":17,"results":[…]}   …                       done, in whatever order

A run that was broken off, by whatever, is resumed from it: tasks that are done are not done again, unless a
session of theirs failed. The last line may be half a line then; it does not count. A plan that is not whole
is made anew. Each line is on the disk before the next task counts as done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from streams.errors import Refused

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
        """A new journal. Raises Refused where there is a file already."""
        try:
            file = path.open("xb")
        except FileExistsError:
            raise Refused(f"{path} is there already: resume it, or name another journal") from None
        journal = cls(file, {"rebuild": VERSION, **head})
        journal._write([journal.head])
        return journal

    @classmethod
    def resume(cls, path: Path, head: dict[str, Any]) -> Journal:
        """One that is there. `head`: what is asked for now, which has to be what it says, but for the
        cut-off, which is the first run's. Raises Refused where it is no journal, or another run's."""
        lines, whole = _lines(path)
        if not lines or lines[0].get("rebuild") != VERSION:
            raise Refused(f"{path} is no journal of a rebuild that this release can read")
        asked = {"rebuild": VERSION, **head, "until_ms": lines[0].get("until_ms")}
        wrong = [name for name in {**lines[0], **asked} if lines[0].get(name) != asked.get(name)]
        if wrong:
            raise Refused(f"{path} is of a run that asked for something else: {', '.join(sorted(wrong))}")
        file = path.open("r+b")
        journal = cls(file, lines[0])
        planned = next((number for number, line in enumerate(lines) if "planned" in line), None)
        if planned is None:
            whole = len(orjson.dumps(lines[0])) + 1
        else:
            journal.tasks = {line["task"]: line["sessions"] for line in lines[1:planned]}
            for line in lines[planned + 1 :]:
                journal.done[line["task"]] = [Result.of(row) for row in line["results"]]
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
