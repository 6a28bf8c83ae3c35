"""What a process was told by the engine, on disk before it goes on: JSON lines, one file a process.

Each event is one write at the end of the file, synced; a process that is killed leaves whole lines or, of the
last one, nothing. `t` is the machine's monotonic clock, which all processes share, so that the files can be
laid together in order.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Journal:
    """The file of one process, `who`."""

    def __init__(self, folder: Path, who: str) -> None:
        self.who = who
        self._file = os.open(
            folder / f"{who}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644
        )

    def note(self, what: str, session: str, **more: Any) -> None:
        """`more` may name another `who`: the director tells of those that cannot any more."""
        event = {"t": time.monotonic(), "who": self.who, "what": what, "session": session, **more}
        os.write(self._file, json.dumps(event).encode() + b"\n")
        os.fdatasync(self._file)


def read_all(folder: Path) -> list[Event]:
    """Every process's events, in the order of their time."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda event: float(event["t"]))
