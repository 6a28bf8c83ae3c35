"""What senders write: in records, checked on the way in, appended among any number of other senders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from streams import log
from streams.clock import Clock
from streams.errors import Conflict, InvalidValue, Refused
from streams.store import Store
from streams.writer import Flush

from . import values
from .core.blocks import DEFAULT
from .core.calls import Message
from .core.inputs import body_hash, keys_of
from .core.values import clean, mend_text, to_plain
from .editing import all_checked, check_parts, state_record

if TYPE_CHECKING:
    from .session import Session

Record = dict[str, Any]


def _user_message(given: Any, fallback_id: str | None) -> Message:
    """A UIMessage of role user from what a caller hands in."""
    if isinstance(given, str):
        given = {"role": "user", "parts": [{"type": "text", "text": given}]}
    message: Message = dict(clean(to_plain(given), "message"))
    message.setdefault("role", "user")
    check_parts(message, "message")
    if not message.get("id") and fallback_id is not None:
        message = {"id": fallback_id, **{k: v for k, v in message.items() if k != "id"}}
    if not isinstance(message.get("id"), str):
        raise InvalidValue("a message's id needs to be a text", path="message.id")
    return message


def message_record(message: Any, key: str | None, clock: Clock) -> Record:
    """A user message, or (role assistant) a client's copy of an answer with its tool results."""
    # An id that follows from the key keeps the body of a repeated send the same.
    own = hashlib.sha256(_key(key).encode()).hexdigest()[:24] if key else clock.token()
    found = _user_message(message, f"msg_{own}")
    if found["role"] not in ("user", "assistant"):
        raise InvalidValue("a message's role is user or assistant", path="message.role")
    return {"kind": "message", "message": found}


def edit_record(message_id: str, message: Any) -> Record:
    target = _name(message_id, "message_id")
    found = _user_message(message, target)
    if found["role"] != "user":
        raise InvalidValue("only a user message can be edited", path="message.role")
    return {"kind": "edit", "messageId": target, "message": found}


def approval_record(
    approval_id: str | None, tool_call_id: str | None, approved: bool, reason: str | None
) -> Record:
    if (approval_id is None) == (tool_call_id is None):
        raise Refused("give either the approval's id or the tool call's")
    if type(approved) is not bool:
        raise InvalidValue("needs to be True or False", path="approved")
    record: Record = {"kind": "tool-approval"}
    if approval_id is not None:
        record["approvalId"] = _name(approval_id, "approval_id")
    else:
        record["toolCallId"] = _name(tool_call_id, "tool_call_id")
    record["approved"] = approved
    return record if reason is None else {**record, "reason": _text(reason, "reason")}


def result_record(tool_call_id: str, output: Any, error_text: str | None, message_id: str | None) -> Record:
    record: Record = {"kind": "tool-result", "toolCallId": _name(tool_call_id, "tool_call_id")}
    record |= {"output": output} if error_text is None else {"errorText": _text(error_text, "error_text")}
    return record | _target(message_id)


def named(kind: str, message_id: str | None) -> Record:
    return {"kind": kind, **_target(message_id)}


def _target(message_id: Any) -> Record:
    return {} if message_id is None else {"messageId": _name(message_id, "message_id")}


def action_record(name: str, given: Any) -> Record:
    return {"kind": "action", "name": _name(name, "name"), "input": given}


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{path} needs to be a text that is not empty", path=path)
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{path} needs to be a text", path=path)
    return value


def _key(value: Any) -> str:
    """A key is compared, so it is never mended: two that differ must not become one."""
    if mend_text(_text(value, "key")) != value:
        raise InvalidValue("key holds half of a surrogate pair, which has no UTF-8 form", path="key")
    return str(value)


def tool_names(names: Any, path: str = "client_tools") -> list[str]:
    """Names of tools. Raises InvalidValue for what is no list of texts."""
    listed = isinstance(names, Iterable) and not isinstance(names, str)
    if not listed or not all(isinstance(name, str) for name in names):
        raise InvalidValue(f"{path} needs to be a list of names", path=path)
    return list(names)


def request(
    record: Record,
    key: str | None,
    metadata: Any = None,
    body: Any = None,
    client_tools: list[str] | None = None,
) -> Record:
    """The record with what came with the request. Raises InvalidValue with the path of a bad value."""
    tools = None if client_tools is None else tool_names(client_tools)
    own = None if key is None else _key(key)
    extra = {"key": own, "metadata": metadata, "body": body, "clientTools": tools}
    found: Record = clean({**record, **{name: value for name, value in extra.items() if value is not None}})
    return found


def append(store: Store, sid: str, record: Record, limit: int = DEFAULT.value) -> tuple[int, bool]:
    """Append to the in log; (id, whether it was there before). A message above `limit` bytes is stored
    apart. Raises Conflict, TooLarge."""
    apart: list[tuple[Record, list[tuple[Record, bytes]]]] = []
    own_keys, digest = set(keys_of(record)), body_hash(record)
    first: list[Record] = []  # the input that this one repeats

    def check(recent: list[Record]) -> int | None:
        conflict = None
        for other in values.fill(store, sid, values.known(recent, record), leave=values.UNREADABLE):
            if not own_keys.intersection(keys_of(other)):
                continue
            if body_hash(other) == digest:
                first[:] = [other]
                return int(other["id"])
            conflict = int(other["id"]) if conflict is None else conflict
        if conflict is not None:
            raise Conflict(
                f"the message id or key was used by input {conflict} with another body; to change a message "
                "that was sent, use edit",
                first=conflict,
            )
        return None

    def build(number: int) -> Record:
        own = {"id": number, "ts": store.clock.now_ms()}
        if not apart:  # only now is it known to be no repetition
            apart.append(values.moved(store, sid, own | record, limit))
        return apart[0][0] | own

    number = log.append_input(store, sid, build, check=check if own_keys else None)
    stored = apart[0][1] if apart else []
    if first and values.is_apart(first[0]):  # whoever sent it first may have died before it saw to that
        stored = [(first[0]["ref"], values.encoded(first[0]["message"]))]
    for ref, data in stored:
        values.confirm(store, sid, "in", ref, data)
    return number, bool(first)


def create(session: Session, messages: list[Message], state: dict[str, Any] | None) -> None:
    """Write an imported history as the session's first segment, and its snapshot. Raises Refused where there
    is one, Fenced where somebody was faster."""
    if session.fold.cursor and not session.fold.deleted:
        raise Refused(f"session {session.id!r} exists already; a history is imported once")
    bodies = [{"control": "history", "op": "put", "message": message} for message in _imported(messages)]
    if state:
        bodies.append(state_record(state, ()))
    fence: Record = {"control": "fence", "epoch": session.fold.epoch + 1, "run": session.run, "why": "create"}
    if session.fold.deleted:
        fence["for"] = session.fold.inputs.last  # what came before a deleted session's return is spent
    session.commit([fence, *bodies], flush=Flush.NOW, end_segment=True)
    session.save()


def _imported(given: Any) -> list[Message]:
    """The messages of a history from elsewhere, checked. Raises InvalidValue with the path of a bad one."""
    messages = all_checked(given)
    ids: set[str] = set()
    for index, message in enumerate(messages):
        own = message.get("id")
        if own and own in ids:
            raise InvalidValue(
                f"messages[{index}].id is another's, too: {own!r}", path=f"messages[{index}].id"
            )
        if own:
            ids.add(own)
    return messages
