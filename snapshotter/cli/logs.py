"""What the engine logs, on stderr: for a person, or as one JSON object a line for a program."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import click

from .output import shown

FORMATS = ("text", "json")
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """`time`, `level`, `logger`, `message`, and the record's fields that are plain values."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str | int | float] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in record.__dict__.items():
            if name not in _OWN and isinstance(value, str | int | float | bool):
                line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Lines(logging.Formatter):
    """A line for a person, `WARNING: …`."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return shown(f"{record.levelname}: {record.getMessage()}")

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        return "\n".join(map(shown, super().formatException(ei).split("\n")))


def show_logs(ctx: click.Context, how: str) -> None:
    """Show what is logged, from `info` on, until the command ends."""
    logger = logging.getLogger("snapshotter")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if how == "json" else Lines())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def hide() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    ctx.call_on_close(hide)
