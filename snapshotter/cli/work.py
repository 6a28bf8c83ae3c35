"""`send`, `create` and `record`: what comes in, and what goes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, BinaryIO

import click

from snapshotter import Database, InvalidValue, Refused, Session, Turn, release_on_sigterm
from snapshotter.core.values import loads
from snapshotter.scribe import POLICIES

from .chunks import Chunks
from .output import (
    SECONDS,
    aside,
    count,
    emit,
    json_option,
    open_database,
    say,
    session_argument,
    tell_receipt,
    url_argument,
)
from .problems import CutShort

_ENDS = ("finish", "abort", "error")
_ODD = ("unknown-chunk", "chunk-not-stored", "progress-not-stored", "result-not-stored")
_RELEASED = "the turn was released: the next `record`, or any worker, goes on with it"
_NOT_RELEASED = "the turn could not be released; it is free for the next worker when its lease has run out"


@click.command(
    short_help="Append a user message to a session.",
    epilog="\b\nExample:\n  snapshotter send ./data chat-42 'Plan three days in Lisboa'\n"
    "  echo hi | snapshotter send s3://bucket/agents chat-42 - --key mail-17",
)
@url_argument
@session_argument
@click.argument("text", required=False)
@click.option("--key", help="Idempotency key: the same key and message again gives the first receipt.")
@click.option("--id", "message_id", help="The message's id; also makes a repeat harmless.")
@click.option("--message", help="A whole AI SDK UIMessage as JSON, in place of TEXT.")
@json_option
def send(
    url: str,
    session: str,
    text: str | None,
    key: str | None,
    message_id: str | None,
    message: str | None,
    as_json: bool,
) -> None:
    """Append a user message to SESSION; it is durable when the receipt is printed.

    TEXT is the message; "-" reads it from stdin. No worker needs to run: whoever boots the session next finds
    the message owed. The receipt (one line of JSON) is what a queue message carries.
    """
    body = given_message(text, message)
    if message_id is not None:
        body["id"] = message_id
    with open_database(url) as db:
        receipt = db.send(session, body, key=key)
    tell_receipt(receipt, as_json=as_json)


@click.command(
    short_help="Begin a session with a history, or open a deleted one again.",
    epilog="\b\nExample:\n  snapshotter create ./data chat-42\n"
    "  snapshotter history ./data chat-42 --json | snapshotter create s3://bucket/agents chat-42 -",
)
@url_argument
@session_argument
@click.argument("file", type=click.File("rb"), required=False)
@json_option
def create(url: str, session: str, file: BinaryIO | None, as_json: bool) -> None:
    """Create SESSION with the UIMessages in FILE ("-": stdin) as its history, or an empty one.

    FILE holds a JSON array of them, or one a line. A session that exists is left as it is. One that was
    deleted is opened again; what was sent to it meanwhile is not answered. Else there is no need to create a
    session: it begins with its first message.
    """
    messages = [] if file is None else list(_given_history(file.read()))
    with open_database(url) as db:
        db.create(session, messages=messages)
    if as_json:
        emit({"session": session, "messages": len(messages)})
    else:
        say(f"{session}: created with {count(len(messages), 'message')}")


def _given_history(data: bytes) -> Iterator[Any]:
    if data.lstrip().startswith(b"["):
        yield from loads(data)
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                yield loads(line)
            except InvalidValue as error:
                raise InvalidValue(f"line {number}: {error}") from None


def given_message(text: str | None, message: str | None) -> dict[str, Any]:
    """The UIMessage that a command's TEXT (`-`: stdin) or its --message stands for."""
    if (text is None) == (message is None):
        raise click.UsageError("give TEXT (or - for stdin), or --message JSON")
    if message is not None:
        found = loads(message)
        if not isinstance(found, dict):
            raise click.UsageError("--message is a JSON object, a UIMessage")
        return found
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")
    return {"role": "user", "parts": [{"type": "text", "text": text}]}


@click.command(
    short_help="Answer what a session owes, as a worker would.",
    epilog="\b\nExample:\n  snapshotter record ./data chat-42 answer.jsonl --delay 0.05\n"
    "  curl -sN https://my.app/api/chat -d @request.json | snapshotter record ./data chat-42 -",
)
@url_argument
@session_argument
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--delay", type=SECONDS, default=0.0, help="Seconds to wait before each chunk.")
@click.option(
    "--durability",
    type=click.Choice(list(POLICIES)),
    default="stream",
    show_default=True,
    help="How soon a chunk is safe.",
)
@click.option("--takeover", is_flag=True, help="Do not wait for the worker before: it is known to be dead.")
@click.option(
    "--wait",
    type=SECONDS,
    default=25.0,
    show_default=True,
    help="Seconds to wait for a worker that may be alive.",
)
@json_option
def record(
    url: str,
    session: str,
    file: BinaryIO,
    delay: float,
    durability: str,
    takeover: bool,
    wait: float,
    as_json: bool,
) -> None:
    """Answer what SESSION owes with the chunks in FILE (default: stdin), as a worker would.

    FILE holds AI SDK UI message chunks, as JSON lines or as server-sent events. The first owed turn is taken
    (an interrupted one comes first) and its chunks are written; the last durable record's id is shown as it
    grows. SIGTERM, Ctrl-C, a line that cannot be read and a chunk that breaks a rule of the stream release
    the turn for the next worker; what came before them stays. A chunk of a type that is not known is passed
    over, with a warning.
    """
    with (
        release_on_sigterm(),
        open_database(url, durability=durability) as db,
        db.boot(session, takeover=takeover, stable_timeout=wait) as booted,
    ):
        _Recording(db, booted, as_json).run(Chunks(file), delay)


class _Recording:
    """One turn from a stream of chunks, telling how it goes."""

    def __init__(self, db: Database, session: Session, as_json: bool) -> None:
        self._clock = db.clock
        self._session = session
        self._json = as_json
        self._live = not as_json and sys.stderr.isatty()
        self._durable = session.cursor["out"]
        self._last = session.fold.last_turn
        self._ended = False  # a chunk that ends the stream was there

    def run(self, chunks: Chunks, delay: float) -> None:
        """Write the chunks into the first turn.

        Raises Refused when nothing is owed, CutShort for a line or a chunk that is refused."""
        found = self._session.resume.kind
        turn = next(self._session.turns(), None)
        if turn is None:
            if not found.startswith("seal"):
                raise Refused(f"nothing is owed in session {self._session.id!r}: send a message first")
            self._result(None)  # the stream of a dead worker had ended; only its end was missing
            return
        try:
            with turn:
                self._write(turn, self._paced(chunks, delay))
        except Refused as error:
            self._end_line()
            raise CutShort(error, chunks.line) from error
        except (SystemExit, KeyboardInterrupt):
            self._result(turn)
            raise
        self._result(turn)
        if turn.kind != "action" and turn.status == "completed" and not self._ended:
            aside("the stream ended without a `finish` chunk; the turn is completed all the same")

    def _paced(self, chunks: Chunks, delay: float) -> Iterator[dict[str, Any]]:
        for chunk in chunks:
            if delay:
                self._clock.sleep(delay)
            self._ended = self._ended or chunk.get("type") in _ENDS
            known = self._odd()
            yield chunk
            if self._odd() > known:
                aside(f"this was line {chunks.line}: it is not stored as it came")

    def _odd(self) -> int:
        """How many chunks the turn has passed on and not stored, or stored as an error."""
        return sum(line["code"] in _ODD for line in self._session.report)

    def _write(self, turn: Turn, chunks: Iterator[dict[str, Any]]) -> None:
        self._show(turn.durable_id)
        with closing(turn.tee(chunks)) as written:
            for _ in written:
                self._show(turn.durable_id)

    def _show(self, durable_id: int) -> None:
        if durable_id <= self._durable:
            return
        self._durable = durable_id
        if self._json:
            emit({"durable_id": durable_id})
        elif self._live:
            click.echo(f"\rdurable up to {durable_id}", err=True, nl=False)

    def _end_line(self) -> None:
        """The line that counts up on a terminal is left as it stands."""
        if self._live:
            click.echo(err=True)

    def _result(self, turn: Turn | None) -> None:
        """How the turn stands: released, or its end as the log has it."""
        fold = self._session.fold
        self._show(self._session.writer.durable_id)
        self._end_line()
        message_id: str | None
        if turn is not None and turn.status == "released":
            number, status, message_id = turn.number, turn.status, turn.message_id
        elif fold.last_turn is not None and fold.last_turn != self._last:
            last = fold.last_turn
            number, status = last.get("turn", 0), last.get("status", "completed")
            message_id = last.get("messageId")
        else:  # an action that was done without an answer
            number, status, message_id = fold.turn, "completed", None
        if self._json:
            ended = {"turn": number, "status": status, "message_id": message_id}
            emit({**ended, "durable_id": self._durable})
        else:
            message = f"message {message_id}" if message_id else "no message"
            say(f"turn {number}: {status}, {message}, durable up to record {self._durable}")
        if status == "released":
            told = fold.open is not None and fold.open.released is not None
            aside(_RELEASED if told else _NOT_RELEASED)
