"""Which sessions a command goes through, and how many at once: options that commands over a root share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from snapshotter import Database
from snapshotter.catalogue import selected
from snapshotter.sidebyside import side_by_side

from .look import since_ms
from .output import progress, tell_empty

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The sessions that are asked for. `sessions`: by their ids, None for all of the root; of them those
    whose id begins with `prefix`, and that changed at `since` (epoch ms) or later."""

    sessions: list[str] | None
    prefix: str
    since: int | None

    def of(self, db: Database, everything: Callable[[Database, str], Iterable[str]]) -> list[str]:
        """Their ids. Where there are none, and none was named, that is told."""
        found = [
            *selected(db, self.sessions, prefix=self.prefix, since=self.since, everything=everything),
        ]
        if not found:
            self.tell_none(db)
        return found

    def tell_none(self, db: Database) -> None:
        """Say why there is none, unless sessions were named."""
        if self.sessions is None:
            narrowed = self.prefix or self.since is not None
            tell_empty(db, "there are no such sessions" if narrowed else "there are no sessions")


def selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """`[SESSION]…`, `--prefix`, `--since` and `--sessions-from`; the command takes them as `chosen`."""

    @click.argument("sessions", metavar="[SESSION]…", nargs=-1)
    @click.option("--prefix", default="", help="Only sessions whose id begins so.")
    @click.option(
        "--since", help="Only those changed since: 90s, 15m, 24h, 7d, or a date as 2026-01-31[T12:00]."
    )
    @click.option("--sessions-from", type=click.File(), help="A file with one session id a line; - is stdin.")
    @wraps(command)
    def run(
        *args: Any,
        sessions: tuple[str, ...],
        prefix: str,
        since: str | None,
        sessions_from: Iterable[str] | None,
        **rest: Any,
    ) -> Any:
        names = [*sessions, *(line.rstrip("\r\n") for line in sessions_from or () if line.strip())]
        named = bool(sessions) or sessions_from is not None
        chosen = Chosen(names if named else None, prefix, since_ms(since))
        return command(*args, chosen=chosen, **rest)

    return run


def threads_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--jobs`: sessions at once."""
    return click.option(
        "--jobs", type=click.IntRange(min=1), default=8, show_default=True, help="Sessions at once."
    )(command)


@contextmanager
def at_once(call: Callable[[str], R], names: list[str], jobs: int, label: str) -> Iterator[Iterable[R]]:
    """What the call returns of each session, in their order, so many sessions at once; on a terminal with a
    bar. Raises as `side_by_side`."""
    with closing(side_by_side(call, names, jobs)) as coming, progress(coming, label, len(names)) as each:
        yield each
