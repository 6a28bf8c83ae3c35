"""`boot`, `history`, `log` and `ls`: what is there. None of them writes."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

import click

from snapshotter import Receipt, Refused, Session
from snapshotter.core.calls import calls_of, parts_of
from snapshotter.core.contract import describe
from snapshotter.core.queue import Item
from snapshotter.holding import Holder
from snapshotter.hosting.status import outcome_of

from .incident import tell_outcome
from .output import (
    SECONDS,
    cost,
    count,
    emit,
    field,
    in_words,
    json_option,
    named,
    open_database,
    painted,
    say,
    session_argument,
    short,
    tell_absent,
    tell_deleted,
    tell_empty,
    url_argument,
    when,
)

_NONE_SAVED = "no session has completed a turn yet; `verify` finds those that have only begun"
_AGO = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.command(
    short_help="What the next worker would get.",
    epilog="\b\nExample:\n  snapshotter boot ./data chat-42\n"
    '  snapshotter boot ./data chat-42 --receipt \'{"session":"chat-42","id":7}\' --json | jq .resume',
)
@url_argument
@session_argument
@click.option("--receipt", help="The receipt that `send` printed: saves a round trip's listing.")
@json_option
def boot(url: str, session: str, receipt: str | None, as_json: bool) -> None:
    """Show what the next worker of SESSION would get, without taking it over.

    The history, an unfinished answer, what is owed, what to do first, whether a worker is at work, and what
    reading all this cost.
    """
    with open_database(url) as db:
        found = db.peek(session, receipt=Receipt.parse(receipt) if receipt is not None else None)
        tell_absent(db, found)
    if as_json:
        holder = found.busy
        busy = {n: getattr(holder, n) for n in ("run", "age", "retry_after")} if holder is not None else None
        stats = {"requests": found.booted.requests, **asdict(found.booted)}
        told = {
            **describe(found.fold, found.plan),
            "busy": busy,
            "deleted": found.fold.deleted,
            "incident": found.incident.to_json(),
            "outcome": None if (ended := outcome_of(found.fold)) is None else asdict(ended),
            "stats": stats,
        }
        emit({**told, "report": found.report})
        return
    _tell_boot(found)


def _tell_boot(found: Session) -> None:
    plan = found.plan
    field("session", named(found))
    field("messages", str(len(plan.messages)))
    for message in plan.messages[-2:]:
        field("", _line(message))
    field("resume", in_words(plan.resume.to_json()))
    for call in _waiting(found):
        field("waits", _asking(call))
    if plan.partial is not None:
        field("partial", f"{plan.partial.get('id')}, {count(len(plan.partial['parts']), 'part')}")
    for call in plan.pending_calls:
        field("unfinished", f"call {call['toolCallId']} of {call['toolName']} ({call['state']})")
    for item in plan.pending:
        field("pending", _pending(item))
    if not plan.pending:
        field("pending", "nothing")
    field("busy", _busy(found.busy))
    incident = found.incident
    if incident.gives_up:
        field("incident", f"{incident.reason}: the next boot gives the turn up")
    elif incident.interruptions or incident.strikes:
        field(
            "incident",
            f"{count(incident.interruptions, 'interruption')}, {count(incident.strikes, 'attempt')} in a row"
            f" without progress; attempt {incident.attempt} may begin",
        )
    tell_outcome(outcome_of(found.fold))
    if found.state:
        field("state", short(found.state))
    field("cursor", f"in {found.cursor['in']}, out {found.cursor['out']}")
    for line in found.report:
        field("report", f"{line['code']} at {line['id']}: {line['detail']}")
    field("cost", cost(found.booted))


def _busy(holder: Holder | None) -> str:
    if holder is None:
        return "no"
    if holder.incident is not None:
        return f"run {holder.run} has ended; the next attempt begins in {holder.retry_after:.0f} s"
    return f"run {holder.run} spoke {holder.age:.1f} s ago; free in {holder.retry_after:.0f} s at most"


def _waiting(found: Session) -> list[dict[str, Any]]:
    """The calls that a person or a client has to answer before anything goes on."""
    resume = found.plan.resume
    if resume.kind != "waiting":
        return []
    message = next((m for m in reversed(found.plan.messages) if m.get("id") == resume.message_id), {})
    return [part for _, part in calls_of(message) if part["toolCallId"] in resume.unanswered]


def _asking(call: dict[str, Any]) -> str:
    """A call that waits, with what its answer has to name."""
    asked = _approval(call)
    wanted = "its result" if asked is None else f"approval {asked}"
    return f"{_called(call)}   {wanted}   (tool call {call['toolCallId']})"


def _called(call: dict[str, Any]) -> str:
    """A call as it would be written: `wipe({"disk":"a"})`."""
    name = call.get("toolName") or str(call.get("type")).removeprefix("tool-")
    return f"{name}({short(call.get('input'), 60)})"


def _approval(call: dict[str, Any]) -> str | None:
    """The id of the approval that a call asks for now."""
    asked = call.get("approval") if call.get("state") == "approval-requested" else None
    return str(asked.get("id")) if isinstance(asked, dict) else None


def _pending(item: Item) -> str:
    """What is owed, by its inputs' ids, with the first words of what was said."""
    told = f"{item.kind}, input {', '.join(map(str, item.ids))}"
    said = short(" ".join(filter(None, map(_asked, item.inputs))), 60)
    return f"{told}: {said}" if said else told


def _asked(record: dict[str, Any]) -> str:
    """An input in words: a message's text, an approval's answer, an action's name."""
    kind = record.get("kind")
    if kind == "tool-approval":
        return "granted" if record.get("approved") else "denied"
    if kind == "tool-result":
        return short(record.get("output", record.get("errorText")))
    if kind == "action":
        return str(record.get("name"))
    message = record.get("message")
    return _text(message) if isinstance(message, dict) else ""


def _line(message: dict[str, Any]) -> str:
    said = _text(message) or "; ".join(filter(None, map(_part, _dicts(message))))
    return f"{message.get('role')} {message.get('id')}: {short(said, 70)}"


def _text(message: dict[str, Any]) -> str:
    return " ".join(str(part.get("text", "")) for part in _dicts(message) if part.get("type") == "text")


def _dicts(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in parts_of(message) if isinstance(part, dict)]


@click.command(
    short_help="The messages as a client sees them now.",
    epilog="\b\nExample:\n  snapshotter history ./data chat-42 --limit 4\n"
    "  snapshotter history ./data chat-42 --before msg_17 --limit 20 --json",
)
@url_argument
@session_argument
@click.option("--limit", type=click.IntRange(min=0), help="At most this many messages, the newest.")
@click.option("--before", help="Only messages before the one with this id.")
@json_option
def history(url: str, session: str, limit: int | None, before: str | None, as_json: bool) -> None:
    """Show the messages of SESSION as a client would see them now."""
    with open_database(url) as db:
        messages = db.history(session, limit=limit, before=before)
        if not messages:
            found = db.peek(session)
            tell_absent(db, found)
            tell_deleted(found)
    for message in messages:
        if as_json:
            emit(message)
        else:
            _tell_message(message)


def _tell_message(message: dict[str, Any]) -> None:
    role = str(message.get("role"))
    color = "cyan" if role == "user" else "green"
    say(mark=f"{painted(role, fg=color, bold=True)} {painted(str(message.get('id')), dim=True)}")
    for part in parts_of(message):
        told = _part(part) if isinstance(part, dict) else f"[no part] {short(part, 80)}"
        if isinstance(part, dict) and part.get("type") == "reasoning":
            say(mark=painted(f"  {told}", dim=True))
        elif told is not None:
            for line in told.split("\n"):
                say(f"  {line}")


def _part(part: dict[str, Any]) -> str | None:
    kind = str(part.get("type"))
    if kind == "text":
        return str(part.get("text", ""))
    if kind == "reasoning":
        return f"(thinks) {short(part.get('text', ''))}"
    if "toolCallId" in part:
        asked = _approval(part)
        told = f"{_called(part)}: {part.get('state')}{f', approval {asked}' if asked else ''}"
        result = part.get("output", part.get("errorText"))
        return told if result is None else f"{told} {short(result, 60)}"
    return None if kind == "step-start" else f"[{kind}] {short(part, 80)}"


@click.command(
    short_help="The records of one log, as JSON lines.",
    epilog="\b\nExample:\n  snapshotter log ./data chat-42 out --after 40 | jq -c .chunk\n"
    "  snapshotter log ./data chat-42 in --follow",
)
@url_argument
@session_argument
@click.argument("which", metavar="in|out", type=click.Choice(["in", "out"]))
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only records with ids above this.")
@click.option("--follow", is_flag=True, help="Wait for further records.")
@click.option(
    "--timeout",
    type=SECONDS,
    help="With --follow: end after so many seconds without a new one (default: never).",
)
@json_option
def log(
    url: str,
    session: str,
    which: Literal["in", "out"],
    after: int,
    follow: bool,
    timeout: float | None,
    as_json: bool,  # noqa: ARG001 - records are always JSON lines
) -> None:
    """Print the records of one log of SESSION, unpacked, as JSON lines.

    "in" is what came from the world (messages, approvals, stops), "out" what the agent did.
    """
    with open_database(url) as db:
        empty = True
        for record in db.records(session, which, after=after, follow=follow, timeout=timeout):
            empty = False
            emit(record)
        if empty:
            tell_absent(db, db.peek(session))


@click.command(
    short_help="The sessions, with their dates.",
    epilog="\b\nExample:\n  snapshotter ls s3://bucket/agents --since 24h\n"
    "  snapshotter ls ./data --prefix chat- --json",
)
@url_argument
@click.option("--prefix", default="", help="Only sessions whose id begins so.")
@click.option("--since", help="Only those saved since: 90s, 15m, 24h, 7d, or a date as 2026-01-31[T12:00].")
@json_option
def ls(url: str, prefix: str, since: str | None, as_json: bool) -> None:
    """List the sessions that have completed a turn: when they were last saved, how large, which.

    A session that has never completed a turn has no snapshot yet and is not listed; `verify` finds it too.
    One that was deleted is listed: what says so stands in its snapshot's place, and only `boot` reads that.
    Date and size are the snapshot's: that of a long session is up to 16 turns old, and has its history in
    blocks beside it.
    """
    empty = True
    with open_database(url) as db:
        for info in db.sessions(prefix=prefix, since=since_ms(since)):
            if empty and not as_json:
                say(mark=painted(f"{'snapshot saved':<24} {'bytes':>10}  session", dim=True))
            empty = False
            if as_json:
                emit(asdict(info))
            else:
                say(f"{when(info.modified_ms):<24} {info.size:>10,}  {info.id}")
        if empty:
            tell_empty(db, "no session has been saved that fits" if prefix or since else _NONE_SAVED)


def since_ms(text: str | None) -> int | None:
    """Epoch ms. Raises Refused for what is no time."""
    if text is None:
        return None
    ago = re.fullmatch(r"(\d{1,12})([smhd])", text)
    if ago is not None:
        return int((time.time_ns() // 1_000_000) - int(ago[1]) * _AGO[ago[2]] * 1000)
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"--since {text!r} is no time: give 15m, 24h, 7d or a date as 2026-01-31") from None
    return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000)
