"""Tasks that other processes run in the tests: they have to be found by name there."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

import snapshotter
from snapshotter.rebuilding import Options, Result, rebuild_some

KILLER = "chat-000033"


def rebuild_or_die(url: str, options: Options, sids: Sequence[str]) -> list[Result]:
    """As `rebuild_some`; the process that has one of the sessions dies of it."""
    if KILLER in sids:
        os.kill(os.getpid(), signal.SIGKILL)
    return rebuild_some(url, options, sids)


def main(url: str, journal: str, jobs: str, *options: str) -> None:
    """A run that is killed once a third of the sessions is done."""
    done = 0

    def progress(results: Sequence[Result], total: int) -> None:
        nonlocal done
        done += len(results)
        if done > total // 3:
            os.kill(os.getpid(), signal.SIGKILL)

    asked = dict(option.split("=") for option in options)
    snapshotter.rebuild(url, jobs=int(jobs), chunk=7, journal=journal, progress=progress, **asked)


if __name__ == "__main__":
    main(*sys.argv[1:])
