"""Edits from inside a session, as records, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streams.errors import InvalidValue, Refused

from .core.calls import Message
from .core.fold import Fold
from .core.values import clean


def state_record(values: dict[str, Any] | None, unset: Iterable[str]) -> dict[str, Any]:
    """A `state` record. Raises InvalidValue for what JSON cannot hold."""
    body: dict[str, Any] = {"control": "state"}
    if values is not None and not isinstance(values, dict):
        raise InvalidValue("the values to set are a dict", path="values")
    if values:
        body["set"] = clean(values)
    names = [unset] if isinstance(unset, str) else list(unset)
    if not all(isinstance(name, str) for name in names):
        raise InvalidValue("the names to unset are texts", path="unset")
    if names:
        body["unset"] = clean(names)
    return body


def context_record(session_id: str, fold: Fold, upto: str, messages: list[Message]) -> dict[str, Any]:
    """A `context` record. Raises Refused when there is no such message."""
    if fold.chain.find(upto) is None:
        raise Refused(f"no settled message {upto!r} in session {session_id!r}")
    return {"control": "context", "upto": upto, "messages": clean(messages)}


def history_record(
    session_id: str,
    fold: Fold,
    op: str,
    *,
    message: Message | None = None,
    message_id: str | None = None,
    messages: list[Message] | None = None,
) -> dict[str, Any]:
    """A `history` record. Raises Refused for what it cannot act on."""
    body: dict[str, Any] = {"control": "history", "op": op}
    given = {"put": message, "remove": message_id, "truncate-after": message_id, "replace": messages}
    if op not in given and op != "clear":
        raise Refused(f"unknown history operation {op!r}: put, remove, truncate-after, replace or clear")
    if op != "clear" and given[op] is None:
        raise Refused(f"history operation {op!r} lacks its message, message_id or messages")
    named = message.get("id") if message is not None else message_id
    turn = fold.open
    if turn is not None and named is not None and named in turn.ids():
        raise Refused(f"message {named!r} belongs to the open turn: use edit, stop or takeover")
    if op in ("remove", "truncate-after") and fold.chain.find(named) is None:
        raise Refused(f"no settled message {named!r} in session {session_id!r}")
    fields = {"message": message, "messageId": message_id, "messages": messages}
    return body | {name: clean(value) for name, value in fields.items() if value is not None}
