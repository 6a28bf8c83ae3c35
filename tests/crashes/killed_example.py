"""Runs a worker of the examples in a process of its own, and kills it before its n-th line.

    killed_example.py FILE URL RECEIPT N JOURNAL      (N 0: not at all)

The journal gets a line for each time the tool did something to the outer world.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import itertools
import os
import signal
import sys
from types import FrameType
from typing import Any

from snapshotter import ChatRecovery, aio
from snapshotter import open as open_sync


class Journal(list[int]):
    """What the tool did, kept outside of the process."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def append(self, item: int) -> None:
        with open(self._path, "a") as file:  # noqa: PTH123 - one write, gone with the process or not
            file.write(f"{item}\n")


def main(path: str, url: str, receipt: str, number: int, journal: str) -> None:
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.charged = Journal(journal)
    lines = itertools.count(1)

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename != path:
            return None
        if event == "line" and next(lines) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    recovery = ChatRecovery(max_backoff=0)
    event = {"receipt": receipt, "others_are_dead": True}
    sys.settrace(trace)
    if inspect.iscoroutinefunction(example.handler):

        async def run() -> bool:
            async with aio.open(url, recovery=recovery) as db:
                return bool(await example.handler(event, db))

        done = asyncio.run(run())
    else:
        with open_sync(url, recovery=recovery) as db:
            done = example.handler(event, db)
    sys.settrace(None)
    sys.exit(0 if done else 3)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
