"""Edits from inside a session, as records, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streams.errors import InvalidValue, Refused

from .core.calls import Message
from .core.fold import Fold
from .core.values import clean, to_plain


def checked(given: Any, path: str) -> Message:
    """A message as it may be stored. Raises InvalidValue naming the place: a role, and a list of parts that
    are objects with a type, are needed; an id is a text."""
    try:
        plain = to_plain(given)
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error}", path=path) from None
    message: Message = clean(plain, path)
    if not isinstance(message.get("role"), str):
        raise InvalidValue(f"{path} needs a role", path=f"{path}.role")
    if not isinstance(message.get("id", ""), str):
        raise InvalidValue(f"{path}.id needs to be a text", path=f"{path}.id")
    check_parts(message, path)
    return message


def check_parts(message: Message, path: str) -> None:
    """Raises InvalidValue for parts that are none."""
    if not isinstance(message.get("parts"), list):
        raise InvalidValue(f"{path} needs a list of parts (AI SDK UIMessage)", path=f"{path}.parts")
    for index, part in enumerate(message["parts"]):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            place = f"{path}.parts[{index}]"
            raise InvalidValue(f"{place} needs to be an object with a type", path=place)


def all_checked(given: Any) -> list[Message]:
    """A list of messages, each as `checked`."""
    if isinstance(given, str | dict) or not isinstance(given, Iterable):
        raise InvalidValue("messages needs to be a list of messages", path="messages")
    return [checked(message, f"messages[{index}]") for index, message in enumerate(given)]


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
    return {"control": "context", "upto": upto, "messages": all_checked(messages)}


def history_record(
    session_id: str,
    fold: Fold,
    op: str,
    *,
    message: Message | None = None,
    message_id: str | None = None,
    messages: list[Message] | None = None,
) -> dict[str, Any]:
    """A `history` record. Raises Refused for what it cannot act on, InvalidValue for what is no message."""
    body: dict[str, Any] = {"control": "history", "op": op}
    if message is not None:
        message = checked(message, "message")
    if messages is not None:
        messages = all_checked(messages)
    if message_id is not None and not isinstance(message_id, str):
        raise InvalidValue("message_id needs to be a text", path="message_id")
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
    return body | {name: value for name, value in fields.items() if value is not None}
