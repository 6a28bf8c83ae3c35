"""A process of a drill, seen from both of its ends: jobs go in and answers come out as JSON lines.

It is forked and not started anew, since a Python that imports a driver takes a second; so the director has to
have one thread. Signals are sent by the director to its own children, which it has not reaped yet: no other
process can ever be hit.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]
Handle = Callable[[Job], Job]

_ours: set[socket.socket] = set()  # the director's ends; a child holds none of them, so that it sees the end


class Actor:
    """One child. `job` is what it is at, None while it is idle. `prepare` runs in it once, and gives what
    handles its jobs; then it is `ready`."""

    def __init__(self, who: str, prepare: Callable[[], Handle]) -> None:
        self.who = who
        self.job: Job | None = None
        self.ready = False
        self.stopped = False
        self.dead = False
        self._rest = b""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            for other in _ours:
                other.close()
            _live(theirs, prepare)
        theirs.close()
        ours.setblocking(False)
        self._line = ours
        _ours.add(ours)

    def fileno(self) -> int:
        return self._line.fileno()

    def begin(self, job: Job) -> None:
        """Hand it a job. It may be stopped, or dead by now: then nobody answers."""
        self.job = job
        try:
            self._line.send(json.dumps(job).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            self.dead = True

    def answer(self) -> Job | None:
        """Its answer to the job; None while there is none, or there will never be one (`dead`)."""
        try:
            data = self._line.recv(1 << 16)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            data = b""
        if not data:
            self.dead = True
            return None
        self._rest += data
        if not self._rest.endswith(b"\n"):
            return None
        line, self._rest = self._rest, b""
        if not self.ready:
            self.ready = True
            return None
        return dict(json.loads(line))

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        """Let it go on, if it is stopped and lives."""
        if self.stopped and not self.dead:
            os.kill(self.pid, signal.SIGCONT)
        self.stopped = False

    def bury(self) -> None:
        """Kill it, if it lives, and reap it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.dead = True
        _ours.discard(self._line)
        self._line.close()


def _live(line: socket.socket, prepare: Callable[[], Handle]) -> None:
    """The child: handle jobs until the director is gone. Never returns."""
    code = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        handle = prepare()
        line.sendall(b"\n")
        with line.makefile("rb") as jobs:
            for job in jobs:
                line.sendall(json.dumps(handle(json.loads(job))).encode() + b"\n")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
