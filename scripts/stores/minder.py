"""Run a command, and end it with its whole group when standard input ends: `minder.py COMMAND…`.

Whoever holds the other end of the pipe may die as it likes, even by SIGKILL: the pipe is closed all the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    # Ends this process with the child's own code, where the child is first.
    threading.Thread(target=lambda: os._exit(child.wait() & 0xFF), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the pipe decides
    sys.stdin.buffer.read()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    main()
