"""Ctrl-C, as a terminal sends it: to every process of the run at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import snapshotter

ABSENT = "nobody"
STUCK = ("chat-000050", "chat-000051")


def opened_by(path: Path, process: subprocess.Popen[bytes]) -> int:
    """Our end of a named pipe, once somebody reads it."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody does yet
            time.sleep(0.05)
    raise AssertionError(f"nobody reads {path}")


def killed(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def running(root: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run of three processes. Two are stuck in the middle of a session, whose snapshot is a pipe, and one
    has told what it had to tell and waits for work."""
    pipes = [root / "sessions" / session / "snapshot.json" for session in STUCK]
    for pipe in pipes:
        pipe.unlink()
        os.mkfifo(pipe)
    command = [sys.executable, "-m", "snapshotter", "rebuild", str(root), ABSENT, *STUCK]
    with (
        subprocess.Popen(
            [*command, "--jobs", "3", "--chunk", "1", *options],
            env={**os.environ, "PYTHONPATH": str(Path(snapshotter.__file__).parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process,
        ExitStack() as ends,
    ):
        ends.callback(killed, process)
        for pipe in pipes:
            ends.callback(os.close, opened_by(pipe, process))
        assert process.stdout is not None
        assert ABSENT.encode() in process.stdout.readline()
        yield process


@pytest.mark.parametrize("journalled", [False, True])
def test_ctrl_c_ends_all_processes_and_says_how_to_go_on(
    root: Path, tmp_path: Path, journalled: bool
) -> None:
    journal = tmp_path / "run.jsonl"
    with running(root, *(["--journal", str(journal)] if journalled else [])) as process:
        os.killpg(process.pid, signal.SIGINT)
        # Whoever is left behind holds these pipes, and they would not end.
        _, told = process.communicate(timeout=120)
    hint = (
        f"hint: the same command with --journal {journal} --resume goes on there"
        if journalled
        else "hint: a run with --journal FILE goes on where it was interrupted, with --resume"
    )
    assert (process.returncode, told.decode().split("\n")) == (130, ["", "error: interrupted", hint, ""])
    if journalled:
        for session in STUCK:
            (root / "sessions" / session / "snapshot.json").unlink()
        summary = snapshotter.rebuild(
            root.as_uri(), sessions=[ABSENT, *STUCK], jobs=1, journal=journal, resume=True
        )
        assert (summary.resumed, dict(summary.statuses)) == (1, {"absent": 1, "unsaved": 2})
