"""What the commands share: arguments, JSON out, numbers and texts for people, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def store_url(text: str) -> str:
    """A store URL; a path that begins with `/`, `.` or `~` is a folder."""
    return Path(text).expanduser().absolute().as_uri() if text.startswith(("/", ".", "~")) else text


def url_argument(command: F) -> F:
    return click.argument("url", callback=lambda _ctx, _param, value: store_url(value))(command)


def session_argument(command: F) -> F:
    return click.argument("session")(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON; lists as one object a line.")(
        command
    )


def dumps(value: Any) -> bytes:
    """Compact JSON. Values that only a wider library takes (integers above 64 bits) are written by it."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def emit(value: Any) -> None:
    """One line of JSON on stdout, at once."""
    click.echo(dumps(value))


def say(text: str = "") -> None:
    click.echo(text)


def field(name: str, text: str) -> None:
    """One line of a small table."""
    click.echo(f"{click.style(f'{name:<10}', dim=True)} {text}")


def when(epoch_ms: int | None) -> str:
    if epoch_ms is None:
        return "-"
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def count(number: int, one: str, many: str | None = None) -> str:
    """`count(2, "record")` → `2 records`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def short(value: Any, length: int = 100) -> str:
    """A value as one short line."""
    text = value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def cost(stats: Any) -> str:
    """What requests were made, in words."""
    kinds = {"GET": stats.gets, "HEAD": stats.heads, "LIST": stats.lists, "PUT": stats.puts}
    told = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
    return (
        f"{count(stats.requests, 'request')} ({told}) in {count(stats.round_trips, 'round trip')}, "
        f"{stats.bytes_read:,} bytes read"
    )


@contextmanager
def progress(items: Iterable[T], label: str) -> Iterator[Iterable[T]]:
    """The items again; on a terminal with a bar on stderr."""
    if not sys.stderr.isatty():
        yield items
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        yield bar
