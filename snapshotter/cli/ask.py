"""`approve`, `stop`, `edit`, `regenerate` and `close`: what a user asks for beside sending a message.

Each is one durable input, as with `send`: no worker needs to run, and what is printed is its receipt.

A sender does not read the session, and a worker spends what has no effect. A person who mistypes an id would
learn that from a log, so a command that names a call or a message looks for it first.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from snapshotter import Database, Receipt, Refused, Session
from snapshotter.core.calls import Message, locate
from snapshotter.core.edits import owed_ids
from snapshotter.core.queue import answered
from snapshotter.errors import AccessDenied

from .output import F, aside, json_option, open_database, session_argument, tell_receipt, url_argument
from .work import given_message


def _key_option(command: F) -> F:
    return click.option(
        "--key", help="Idempotency key: the same key and request again gives the first receipt."
    )(command)


def _force_option(command: F) -> F:
    return click.option(
        "--force", is_flag=True, help="Send it without looking whether the session has what it names."
    )(command)


def _ask(
    url: str,
    request: Callable[[Database], Receipt],
    *,
    as_json: bool,
    check: Callable[[Database], None] = lambda _db: None,
) -> None:
    with open_database(url) as db:
        check(db)
        receipt = request(db)
    tell_receipt(receipt, as_json=as_json)


def _check(
    session: str, key: str | None, force: bool, has: Callable[[Session], bool], lacking: str
) -> Callable[[Database], None]:
    """A look at the session before anything is sent to it. It raises Refused, with what is `lacking`, where
    the session has it not; not for a request that was sent before, which gets its first receipt."""

    def check(db: Database) -> None:
        try:
            found = db.peek(session)
        except AccessDenied:  # a sender's credentials: they may write, and not look
            aside("these credentials may not read the session, so nobody looked whether it has what is named")
            return
        if not (has(found) or (key is not None and found.fold.inputs.bears(key))):
            error = Refused(f"session {session!r} has no {lacking}; nothing was sent")
            error.add_note("`snapshotter history --json` shows the ids; --force sends it all the same")
            raise error

    return (lambda _db: None) if force else check


def _messages(found: Session) -> list[Message]:
    """The history, and the messages of an open turn as its stream left them: of those a boot drops some."""
    turn = found.fold.open
    return [*found.plan.messages, *((*turn.done, turn.current()) if turn is not None else ())]


def _has_call(found: Session, approval: str | None, tool_call: str | None) -> bool:
    named = {"approvalId": approval, "toolCallId": tool_call}
    return any(locate(message, named) is not None for message in _messages(found))


def _has_message(found: Session, message_id: str) -> bool:
    """Also one that is owed, one that the open turn has replaced, and the last turn's without parts."""
    fold = found.fold
    owed = [entry for entry in fold.inputs.owed() if entry.role in ("message", "edit")]
    known = {message.get("id") for message in _messages(found)} | answered(fold)
    known |= {name for entry in owed for name in (entry.message.get("id"), entry.record.get("messageId"))}
    known |= set(owed_ids(fold).values())
    return message_id in known | {(fold.last_turn or {}).get("messageId")}


def _check_message(
    session: str, message_id: str | None, key: str | None, force: bool, then: str
) -> Callable[[Database], None]:
    """As `_check`, of a message; where none is named there is nothing to look for."""
    name = message_id or ""
    return _check(
        session,
        key,
        force or message_id is None,
        lambda found: _has_message(found, name),
        f"message {name!r}: {then}",
    )


@click.command(
    short_help="Answer an approval request of a tool call.",
    epilog="\b\nExample:\n  snapshotter approve ./data chat-42 approval_7\n"
    "  snapshotter approve ./data chat-42 --tool-call call_7 --deny --reason 'too expensive'",
)
@url_argument
@session_argument
@click.argument("approval", required=False)
@click.option("--tool-call", help="The tool call's id, in place of APPROVAL.")
@click.option("--deny", is_flag=True, help="Refuse it; without this it is granted.")
@click.option("--reason", help="Why; the model is told.")
@_key_option
@_force_option
@json_option
def approve(
    url: str,
    session: str,
    approval: str | None,
    tool_call: str | None,
    deny: bool,
    reason: str | None,
    key: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Grant (or with --deny refuse) what a tool call of SESSION asks for.

    APPROVAL is the id of the approval request; `boot` and `history` show it.
    """
    if (approval is None) == (tool_call is None):
        raise click.UsageError("give APPROVAL, or --tool-call ID")

    def request(db: Database) -> Receipt:
        return db.approve(
            session, approval, tool_call_id=tool_call, approved=not deny, reason=reason, key=key
        )

    what = f"call that asks for approval {approval!r}" if tool_call is None else f"tool call {tool_call!r}"
    lacking = f"{what}: the answer would be spent without effect"
    check = _check(session, key, force, lambda found: _has_call(found, approval, tool_call), lacking)
    _ask(url, request, as_json=as_json, check=check)


@click.command(
    short_help="Ask the worker to stop an answer.",
    epilog="\b\nExample:\n  snapshotter stop ./data chat-42\n  snapshotter stop ./data chat-42 msg_17",
)
@url_argument
@session_argument
@click.argument("message_id", required=False)
@_key_option
@_force_option
@json_option
def stop(url: str, session: str, message_id: str | None, key: str | None, force: bool, as_json: bool) -> None:
    """Ask to stop the answer to the user message MESSAGE_ID of SESSION (default: whatever runs).

    The worker learns of it within about a second; what was said until then stays.
    """
    check = _check_message(session, message_id, key, force, "the stop would be spent without effect")
    _ask(url, lambda db: db.stop(session, message_id, key=key), as_json=as_json, check=check)


@click.command(
    short_help="Replace a user message; what followed it goes.",
    epilog="\b\nExample:\n  snapshotter edit ./data chat-42 msg_17 'Four days, not three'\n"
    "  echo 'Four days' | snapshotter edit ./data chat-42 msg_17 -",
)
@url_argument
@session_argument
@click.argument("message_id")
@click.argument("text", required=False)
@click.option("--message", help="A whole AI SDK UIMessage as JSON, in place of TEXT.")
@_key_option
@_force_option
@json_option
def edit(
    url: str,
    session: str,
    message_id: str,
    text: str | None,
    message: str | None,
    key: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Replace the user message MESSAGE_ID of SESSION by TEXT ("-" reads stdin), to be answered anew.

    What followed the message is removed from the history.
    """
    body = given_message(text, message)
    check = _check_message(session, message_id, key, force, "what replaces it would be appended")
    _ask(url, lambda db: db.edit(session, message_id, body, key=key), as_json=as_json, check=check)


@click.command(
    short_help="Ask for another answer.",
    epilog="\b\nExample:\n  snapshotter regenerate ./data chat-42\n"
    "  snapshotter regenerate ./data chat-42 msg_18",
)
@url_argument
@session_argument
@click.argument("message_id", required=False)
@_key_option
@_force_option
@json_option
def regenerate(
    url: str, session: str, message_id: str | None, key: str | None, force: bool, as_json: bool
) -> None:
    """Ask for a new answer in place of the assistant message MESSAGE_ID of SESSION (default: the last)."""
    check = _check_message(session, message_id, key, force, "the request would be spent without effect")
    _ask(url, lambda db: db.regenerate(session, message_id, key=key), as_json=as_json, check=check)


@click.command(
    short_help="Close a session.",
    epilog="\b\nExample:\n  snapshotter close ./data chat-42",
)
@url_argument
@session_argument
@_key_option
@json_option
def close(url: str, session: str, key: str | None, as_json: bool) -> None:
    """Close SESSION: what is owed before this is still answered, and nothing after it."""
    _ask(url, lambda db: db.close_session(session, key=key), as_json=as_json)
