"""What senders write: in records, checked on the way in, appended among any number of other senders."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from streams import log
from streams.clock import Clock
from streams.errors import Conflict, InvalidValue, Refused
from streams.store import Store
from streams.writer import Flush

from .core.calls import Message
from .core.inputs import body_hash, keys_of
from .core.values import clean, to_plain

if TYPE_CHECKING:
    from .session import Session

Record = dict[str, Any]


def _user_message(given: Any, fallback_id: str | None) -> Message:
    """A UIMessage of role user from what a caller hands in."""
    if isinstance(given, str):
        given = {"role": "user", "parts": [{"type": "text", "text": given}]}
    message: Message = dict(clean(to_plain(given), "message"))
    message.setdefault("role", "user")
    if not isinstance(message.get("parts"), list):
        raise InvalidValue("a message needs a list of parts (AI SDK UIMessage)", path="message.parts")
    for index, part in enumerate(message["parts"]):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise InvalidValue("a part needs to be an object with a type", path=f"message.parts[{index}]")
    if not message.get("id") and fallback_id is not None:
        message = {"id": fallback_id, **{k: v for k, v in message.items() if k != "id"}}
    if not isinstance(message.get("id"), str):
        raise InvalidValue("a message's id needs to be a text", path="message.id")
    return message


def message_record(message: Any, key: str | None, clock: Clock) -> Record:
    """A user message, or (role assistant) a client's copy of an answer with its tool results."""
    # An id that follows from the key keeps the body of a repeated send the same.
    own = hashlib.sha256(key.encode()).hexdigest()[:24] if key else clock.token()
    found = _user_message(message, f"msg_{own}")
    if found["role"] not in ("user", "assistant"):
        raise InvalidValue("a message's role is user or assistant", path="message.role")
    return {"kind": "message", "message": found}


def edit_record(message_id: str, message: Any) -> Record:
    found = _user_message(message, message_id)
    if found["role"] != "user":
        raise InvalidValue("only a user message can be edited", path="message.role")
    return {"kind": "edit", "messageId": _name(message_id, "message_id"), "message": found}


def approval_record(
    approval_id: str | None, tool_call_id: str | None, approved: bool, reason: str | None
) -> Record:
    if (approval_id is None) == (tool_call_id is None):
        raise Refused("give either the approval's id or the tool call's")
    named = {"approvalId": approval_id} if approval_id is not None else {"toolCallId": tool_call_id}
    record: Record = {"kind": "tool-approval", **named, "approved": bool(approved)}
    return record if reason is None else {**record, "reason": reason}


def result_record(tool_call_id: str, output: Any, error_text: str | None, message_id: str | None) -> Record:
    record: Record = {"kind": "tool-result", "toolCallId": _name(tool_call_id, "tool_call_id")}
    record |= {"output": output} if error_text is None else {"errorText": error_text}
    return record if message_id is None else {**record, "messageId": message_id}


def named(kind: str, message_id: str | None) -> Record:
    return {"kind": kind} if message_id is None else {"kind": kind, "messageId": message_id}


def action_record(name: str, given: Any) -> Record:
    return {"kind": "action", "name": _name(name, "name"), "input": given}


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue("needs to be a text that is not empty", path=path)
    return value


def request(
    record: Record,
    key: str | None,
    metadata: Any = None,
    body: Any = None,
    client_tools: list[str] | None = None,
) -> Record:
    """The record with what came with the request. Raises InvalidValue with the path of a bad value."""
    extra = {"key": key, "metadata": metadata, "body": body, "clientTools": client_tools}
    found: Record = clean({**record, **{name: value for name, value in extra.items() if value is not None}})
    return found


def append(store: Store, sid: str, record: Record) -> tuple[int, bool]:
    """Append to the in log; (id, whether it was there before). Raises Conflict."""
    own_keys, digest = set(keys_of(record)), body_hash(record)
    repeated = False

    def check(recent: list[Record]) -> int | None:
        nonlocal repeated
        conflict = None
        for other in recent:
            if not own_keys.intersection(keys_of(other)):
                continue
            if body_hash(other) == digest:
                repeated = True
                return int(other["id"])
            conflict = int(other["id"]) if conflict is None else conflict
        if conflict is not None:
            raise Conflict(
                f"the message id or key was used by input {conflict} with another body; to change a message "
                "that was sent, use edit",
                first=conflict,
            )
        return None

    clock = store.clock
    number = log.append_input(
        store, sid, lambda n: {"id": n, "ts": clock.now_ms(), **record}, check=check if own_keys else None
    )
    return number, repeated


def create(session: Session, messages: list[Message], state: dict[str, Any] | None) -> None:
    """Write an imported history as the session's first segment, and its snapshot."""
    if session.fold.cursor and not session.fold.deleted:
        raise Refused(f"session {session.id!r} exists already; a history is imported once")
    writer = session.writer
    fence: Record = {"control": "fence", "epoch": session.fold.epoch + 1, "run": session.run, "why": "create"}
    if session.fold.deleted:
        fence["for"] = session.fold.inputs.last  # what came before a deleted session's return is spent
    bodies = [fence]
    for index, message in enumerate(messages):
        plain = clean(to_plain(message), f"messages[{index}]")
        if not isinstance(plain.get("role"), str) or not isinstance(plain.get("parts"), list):
            raise InvalidValue("a message needs a role and a list of parts", path=f"messages[{index}]")
        bodies.append({"control": "history", "op": "put", "message": plain})
    if state:
        bodies.append({"control": "state", "set": clean(state, "state")})
    session.commit(bodies, flush=Flush.NOW, end_segment=True)
    writer.seal()
    session.save()
