"""`approve`, `stop`, `edit`, `regenerate` and `close`: what a user asks for beside sending a message.

Each is one durable input, as with `send`: no worker needs to run, and what is printed is its receipt.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from snapshotter import Database, Receipt

from .output import F, json_option, open_database, session_argument, tell_receipt, url_argument
from .work import given_message


def _key_option(command: F) -> F:
    return click.option(
        "--key", help="Idempotency key: the same key and request again gives the first receipt."
    )(command)


def _ask(url: str, request: Callable[[Database], Receipt], *, as_json: bool) -> None:
    with open_database(url) as db:
        receipt = request(db)
    tell_receipt(receipt, as_json=as_json)


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
@json_option
def approve(
    url: str,
    session: str,
    approval: str | None,
    tool_call: str | None,
    deny: bool,
    reason: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Grant (or with --deny refuse) what a tool call of SESSION asks for.

    APPROVAL is the id of the approval request; `history --json` shows it in the call's part.
    """
    if (approval is None) == (tool_call is None):
        raise click.UsageError("give APPROVAL, or --tool-call ID")

    def request(db: Database) -> Receipt:
        return db.approve(
            session, approval, tool_call_id=tool_call, approved=not deny, reason=reason, key=key
        )

    _ask(url, request, as_json=as_json)


@click.command(
    short_help="Ask the worker to stop an answer.",
    epilog="\b\nExample:\n  snapshotter stop ./data chat-42\n  snapshotter stop ./data chat-42 msg_17",
)
@url_argument
@session_argument
@click.argument("message_id", required=False)
@_key_option
@json_option
def stop(url: str, session: str, message_id: str | None, key: str | None, as_json: bool) -> None:
    """Ask to stop the answer to the user message MESSAGE_ID of SESSION (default: whatever runs).

    The worker learns of it within about a second; what was said until then stays.
    """
    _ask(url, lambda db: db.stop(session, message_id, key=key), as_json=as_json)


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
@json_option
def edit(
    url: str,
    session: str,
    message_id: str,
    text: str | None,
    message: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Replace the user message MESSAGE_ID of SESSION by TEXT ("-" reads stdin), to be answered anew.

    What followed the message is removed from the history.
    """
    body = given_message(text, message)
    _ask(url, lambda db: db.edit(session, message_id, body, key=key), as_json=as_json)


@click.command(
    short_help="Ask for another answer.",
    epilog="\b\nExample:\n  snapshotter regenerate ./data chat-42\n"
    "  snapshotter regenerate ./data chat-42 msg_18",
)
@url_argument
@session_argument
@click.argument("message_id", required=False)
@_key_option
@json_option
def regenerate(url: str, session: str, message_id: str | None, key: str | None, as_json: bool) -> None:
    """Ask for a new answer in place of the assistant message MESSAGE_ID of SESSION (default: the last)."""
    _ask(url, lambda db: db.regenerate(session, message_id, key=key), as_json=as_json)


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
