"""What the commands share: arguments, JSON out, numbers and texts for people, progress.

What a person is shown holds names and texts that anybody may have chosen: ids of sessions, messages, errors
of stores. On a terminal an escape sequence among them would be obeyed, a line break would begin a line that
looks like ours, and a mark of direction would turn the rest around. So all that is told goes through `shown`,
here and nowhere else; only what a command paints itself (`painted`) goes beside it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import category

import click
import orjson

import snapshotter
from snapshotter import Database, InvalidId, InvalidValue, Receipt, Session

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def store_url(text: str) -> str:
    """A store URL; a path that begins with `/`, `.` or `~` is a folder.

    Raises InvalidId for a path that leads nowhere, and for a bare word, which may be a folder or a bucket,
    where nothing says which."""
    if text.startswith(("/", ".", "~")):
        try:
            return Path(text).expanduser().resolve().as_uri()
        except (RuntimeError, ValueError) as error:  # nobody's home, links in a circle, a NUL
            raise InvalidId(f"{text!r} names no folder: {error}") from None
    # Only what looks like a path is repeated: nothing else is certain to hold no secret.
    if re.fullmatch(r"[\w./-]+", text) and not os.environ.get("OBJECT_STORE_DEFAULT_PROTOCOL"):
        raise InvalidId(
            f"{text!r} is no store URL: for a folder write ./{text}, for a bucket s3://{text} or "
            f"minio://host:port/{text}"
        )
    return text


class _Seconds(click.FloatRange):
    """A number of seconds. NaN lies in every range for a comparison, and no clock waits for it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


SECONDS = _Seconds(min=0, max=1_000_000_000)


def is_unfenced() -> bool:
    """Whether this run has `--allow-unfenced`."""
    return bool(click.get_current_context().find_root().params["allow_unfenced"])


def open_database(url: str, **options: Any) -> Database:
    """`snapshotter.open`, as the options of the whole program say."""
    return snapshotter.open(url, allow_unfenced=is_unfenced(), **options)


def url_argument(command: F) -> F:
    return click.argument("url", callback=lambda _ctx, _param, value: store_url(value))(command)


def session_argument(command: F) -> F:
    return click.argument("session")(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON; lists as one object a line.")(
        command
    )


def dumps(value: Any) -> bytes:
    """Compact JSON. Values that only a wider library takes (integers above 64 bits) are written by it. Raises
    InvalidValue for what nests too deeply for both."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        pass
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except RecursionError:  # what another writer left may nest as deeply as a parser goes
        raise InvalidValue("what is stored there nests too deeply to be printed") from None


def emit(value: Any) -> None:
    """One line of JSON on stdout, at once."""
    click.echo(dumps(value))


def shown(text: str) -> str:
    """A text as one harmless line: what is no visible character stands there as JSON writes it, `\\u001b`. So
    JSON stays the JSON that it was. Tabs, wide spaces, and the joiners that words and emoji are made with
    stay."""
    return "".join(
        char if char.isprintable() or char in _HARMLESS or category(char) == "Zs" else json.dumps(char)[1:-1]
        for char in text
    )


_HARMLESS = "\t\u200c\u200d"


def painted(text: str, **style: Any) -> str:
    """A text of anybody's in colour, to go before what `say` tells."""
    return click.style(shown(text), **style)


def say(text: str = "", *, mark: str = "", err: bool = False) -> None:
    """One line; `mark` is painted already."""
    click.echo(f"{mark}{shown(text)}", err=err)


def field(name: str, text: str) -> None:
    """One line of a small table."""
    say(f" {text}", mark=painted(f"{name:<10}", dim=True))


def tell_receipt(receipt: Receipt, *, as_json: bool) -> None:
    """What a command that sends prints: the receipt, on one line."""
    if as_json:
        emit({"session": receipt.session, "id": receipt.id, "duplicate": receipt.duplicate})
        return
    say(str(receipt))
    if receipt.duplicate:
        aside("sent before: this is the first receipt")


def aside(text: str) -> None:
    """For the person at the terminal, and never for the program behind the pipe: on stderr."""
    say(f"({text})", err=True)


def tell_absent(db: Database, found: Session) -> None:
    """Say so where nothing at all is stored of a session. For commands that have nothing to show."""
    if found.fold.cursor == 0 and found.fold.inputs.last == 0:
        aside(f"there is no session {found.id!r} at {db.url} yet")


def tell_deleted(found: Session) -> None:
    """Say so where what was there is deleted, and nothing has come since."""
    if found.fold.deleted:
        aside(f"session {found.id!r} was deleted")


def named(found: Session) -> str:
    """A session's name, and whether it goes on."""
    return found.id + (" (deleted)" if found.fold.deleted else " (closed)" if found.closed else "")


def tell_empty(db: Database, otherwise: str) -> None:
    """Say that nothing is stored at a root, or (`otherwise`) why there is nothing to show for all that."""
    nothing = next(db.store.entries("", page=1), None) is None
    aside(f"nothing is stored at {db.url} yet" if nothing else otherwise)


def when(epoch_ms: int | None) -> str:
    if epoch_ms is None:
        return "-"
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def milliseconds(taken: float) -> str:
    """A time in milliseconds; below the last digit that is shown it is not nothing."""
    return "<0.1 ms" if taken < 0.1 else f"{taken:,.1f} ms"


def count(number: int, one: str, many: str | None = None) -> str:
    """`count(2, "record")` → `2 records`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def in_words(resume: dict[str, Any]) -> str:
    """What a worker does first: `retry_response · turn 1 · attempt 2`."""
    return " · ".join(str(v) if name == "kind" else f"{name} {v}" for name, v in resume.items())


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
def progress(items: Iterable[T], label: str, length: int) -> Iterator[Iterable[T]]:
    """The items again, of which there are so many; on a terminal with a bar on stderr."""
    if not sys.stderr.isatty():
        yield items
        return
    with click.progressbar(items, length=length, label=label, file=sys.stderr) as bar:
        yield bar
