"""A nursery of worker processes, for tests that kill them. Run as a program.

Each line on stdin is a job; a child is forked for it, killed after `kill_after` seconds if it lives that
long, and its exit code is printed. The nursery kills its own child, which it has not reaped yet, so no
other process can ever be hit. With `dies_at` the child sends the signal to itself as soon as it has written
so many rows of the journal: that is the middle of a turn on a machine of any speed.

    {"url": …, "journal": path, "takeover": bool, "signal": 9 or 15,
     "kill_after": seconds or null, "dies_at": rows or null}

What the engine acknowledged goes to the journal, one JSON line each, in one write:

    ["model", turn, attempt, [in ids]]     the model is called
    ["text", turn, attempt, text]          so much of the attempt's text is durable
    ["result", call, output]               the write of a tool's result has returned
    ["done", turn, status]                 the turn's block was left
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import snapshotter
from snapshotter.turn import Turn

SESSION = "kill/1"
WORDS = 12
EXIT_BUSY = 75
# These tests kill more often than any budget allows, and do not wait.
EVER = snapshotter.ChatRecovery(max_backoff=0, max_interrupted_attempts=1_000, max_recovery_work=10**9)


class Journal:
    """The journal's end that one worker writes; at row `dies_at` the worker sends `signum` to itself."""

    def __init__(self, path: str, dies_at: int | None, signum: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._dies_at, self._signum, self._rows = dies_at, signum, 0

    def note(self, *row: Any) -> None:
        os.write(self._file, json.dumps(row).encode() + b"\n")
        self._rows += 1
        if self._rows == self._dies_at:
            os.kill(os.getpid(), self._signum)


def answer(turn: Turn, note: Callable[..., None], sleep: Callable[[float], None] = time.sleep) -> None:
    """Some words, a tool call with its result, some words more; `note` is told what was acknowledged."""
    number, attempt = turn.number, turn.attempt
    note("model", number, attempt, [record["id"] for record in turn.inputs])
    said = ""

    def say(part: str) -> None:
        nonlocal said
        turn.write({"type": "text-start", "id": part})
        for index in range(WORDS):
            word = f"{part}{number}.{attempt}.{index} "
            turn.write({"type": "text-delta", "id": part, "delta": word})
            said += word
            sleep(0.001)
            if index == WORDS // 2:
                turn.flush()
                note("text", number, attempt, said)
        turn.write({"type": "text-end", "id": part})

    turn.write({"type": "start"})
    turn.write({"type": "start-step"})
    say("a")
    call = f"call-{number}-{attempt}"
    turn.write({"type": "tool-input-available", "toolCallId": call, "toolName": "tool", "input": {}})
    note("text", number, attempt, said)
    output = {"ran": call}
    turn.write({"type": "tool-output-available", "toolCallId": call, "output": output})
    note("result", call, output)
    turn.write({"type": "finish-step"})
    turn.write({"type": "start-step"})
    say("b")
    turn.write({"type": "finish-step"})
    turn.write({"type": "finish", "finishReason": "stop"})


def work(job: dict[str, Any]) -> int:
    """A worker's life. Returns its exit code."""
    polite = snapshotter.release_on_sigterm() if job["signal"] == signal.SIGTERM else nullcontext()
    journal = Journal(job["journal"], job["dies_at"], job["signal"])
    try:
        with polite, snapshotter.open(job["url"], durability="live", recovery=EVER) as db:
            hurried = job["kill_after"] is not None or job["dies_at"] is not None
            timeout = 0.0 if hurried else None
            with db.boot(SESSION, takeover=job["takeover"], stable_timeout=timeout) as session:
                for turn in session.turns():
                    number = turn.number
                    with turn:
                        answer(turn, journal.note)
                    journal.note("done", number, turn.status)
    except snapshotter.Busy:
        return EXIT_BUSY
    except snapshotter.Fenced:
        return 0
    return 0


def watch(pid: int, kill_after: float | None, number: int) -> int:
    """Wait for the child; kill it when its time has come. Returns its exit code."""
    end = None if kill_after is None else time.monotonic() + kill_after
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() >= end:
            os.kill(pid, number)
            end = None
        time.sleep(0.001)


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        if job["url"].startswith("minio:"):
            import minio  # noqa: F401 - once, here, for all children
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = work(job)
            except SystemExit as ended:
                code = int(ended.code or 0)
            finally:
                sys.stderr.flush()
                os._exit(code)
        sys.stdout.write(f"{watch(pid, job['kill_after'], job['signal'])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
