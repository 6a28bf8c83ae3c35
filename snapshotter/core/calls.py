"""Tool calls inside messages: what state a call is in, and how answers move it forward.

A tool part moves only forward:

    input-streaming → input-available → approval-requested → approval-responded → output-*

Three words are used everywhere with one meaning each:

    settled   it holds a final output that cleanup did not make, or a denial; it never changes again
    waits     a person or a client has to act: an approval is asked, or a client has to run it
    granted   its approval was given and it has not been run yet

Two marks under `resultProviderMetadata.snapshotter` tell errors that the engine made from errors that
happened: `interrupted` (the worker died; a late result may still replace it) and `superseded` (the
person went on without answering; settled). Messages are values: every function returns the same object
when nothing changed, else a copy that shares what did not change.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .tool_parts import is_interrupted, is_settled, is_tool, tool_name, without_mark

Message = dict[str, Any]
Part = dict[str, Any]
Answer = dict[str, Any]

INTERRUPTED = "interrupted; may or may not have run"
SUPERSEDED = "superseded"
MARK = "snapshotter"

RANK = {
    "input-streaming": 0,
    "input-available": 1,
    "approval-requested": 2,
    "approval-responded": 3,
    "output-available": 4,
    "output-error": 4,
    "output-denied": 4,
}


def is_call(part: Any) -> bool:
    """True for a static (`tool-NAME`) or dynamic tool part with a call id."""
    return is_tool(part) and isinstance(part.get("toolCallId"), str)


def parts_of(message: Message) -> list[Any]:
    """The message's parts; an empty list where a foreign message has none."""
    parts = message.get("parts")
    return parts if isinstance(parts, list) else []


def calls_of(message: Message) -> list[tuple[int, Part]]:
    """Every tool part of the message with its index."""
    return [(i, part) for i, part in enumerate(parts_of(message)) if is_call(part)]


def waits(part: Part, client_tools: Collection[str] | None = None) -> bool:
    """True when a person or a client has to act.

    `client_tools` are the names a client can run while the turn is open. None means that the turn is
    closed: then every call that has only its input waits for a client, since no worker will run it.
    """
    state = part.get("state")
    if state == "approval-requested":
        return True
    return state == "input-available" and (client_tools is None or tool_name(part) in client_tools)


def granted(part: Part) -> bool:
    """True when an approval was given and the call has no output yet."""
    approval = part.get("approval")
    return (
        part.get("state") == "approval-responded"
        and isinstance(approval, dict)
        and approval.get("approved") is True
    )


def any_waits(message: Message, client_tools: Collection[str] | None = None) -> bool:
    return any(waits(part, client_tools) for _, part in calls_of(message))


def any_unsettled(message: Message) -> bool:
    for part in parts_of(message):
        if isinstance(part, dict) and "toolCallId" in part and is_call(part) and not is_settled(part):
            return True
    return False


def with_part(message: Message, index: int, part: Part) -> Message:
    """A copy of the message with one part replaced."""
    parts = list(parts_of(message))
    parts[index] = part
    return {**message, "parts": parts}


def failed(part: Part, text: str, mark: str) -> Part:
    """The part as an error that the engine made, marked as such; its approval stays."""
    out = {k: v for k, v in part.items() if k not in ("output", "preliminary")}
    metadata = part.get("resultProviderMetadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    metadata[MARK] = {mark: True}
    return {**out, "state": "output-error", "errorText": text, "resultProviderMetadata": metadata}


def with_output(part: Part, answer: Answer) -> Part:
    """The part with its final result: `output`, or `errorText` of a failed call."""
    if is_interrupted(part):
        part = without_mark(part)
    out = {k: v for k, v in part.items() if k not in ("preliminary", "errorText", "output")}
    if "errorText" in answer:
        return {**out, "state": "output-error", "errorText": answer["errorText"]}
    return {**out, "state": "output-available", "output": answer.get("output")}


def supersede(message: Message) -> Message:
    """Close every call that still waits, or is granted and not run: the person went on."""
    for index, part in calls_of(message):
        if waits(part) or granted(part):
            message = with_part(message, index, failed(part, SUPERSEDED, "superseded"))
    return message


def _matches(part: Part, answer: Answer) -> bool:
    approval = part.get("approval")
    if "approvalId" in answer and answer["approvalId"] is not None:
        return isinstance(approval, dict) and approval.get("id") == answer["approvalId"]
    return bool(part["toolCallId"] == answer.get("toolCallId"))


def locate(message: Message, answer: Answer) -> int | None:
    """Index of the call that an answer is for: the newest that waits, else unsettled, else any."""
    found = [(i, part) for i, part in calls_of(message) if _matches(part, answer)]
    if not found:
        return None
    for test in (waits, lambda p: not is_settled(p), lambda _: True):
        for index, part in reversed(found):
            if test(part):
                return index
    return None


def _approve(part: Part, answer: Answer) -> Part:
    if part.get("state") != "approval-requested":
        return part  # a given answer, and above all a denial, is never undone
    approval = part.get("approval")
    approval = dict(approval) if isinstance(approval, dict) else {}
    approval["approved"] = answer.get("approved") is True
    if answer.get("reason") is not None:
        approval["reason"] = answer["reason"]
    return {**part, "state": "approval-responded", "approval": approval}


def _forward(part: Part, copy: Part) -> Part:
    """Move the server's part to where a client's copy of it stands, if that is further on."""
    state, there = part.get("state"), copy.get("state")
    behind = RANK.get(str(there), -1) <= RANK.get(str(state), -1)
    if is_settled(part) or (behind and not is_interrupted(part)):
        return part
    if there == "output-available" and copy.get("preliminary") is not True:
        return with_output(part, {"output": copy.get("output")})
    if there == "output-error" and not is_interrupted(copy):
        return with_output(part, {"errorText": copy.get("errorText", "")})
    approval = copy.get("approval")
    if is_interrupted(part) or not isinstance(approval, dict):
        return part
    if there == "output-denied":
        return {**part, "state": there, "approval": approval}
    if there == "approval-responded":
        return _approve(part, approval)
    return part


def _merge_copy(message: Message, copy: Message) -> Message:
    """Take from a client's copy of a message what is further on. Call ids are not unique: the n-th
    occurrence of an id in the copy stands for the n-th in the message."""
    seen: dict[str, int] = {}
    theirs = [part for _, part in calls_of(copy)]
    ours: dict[str, list[int]] = {}
    for index, part in calls_of(message):
        ours.setdefault(part["toolCallId"], []).append(index)
    for part in theirs:
        call = part["toolCallId"]
        nth = seen[call] = seen.get(call, -1) + 1
        if nth < len(ours.get(call, ())):
            index = ours[call][nth]
            moved = _forward(message["parts"][index], part)
            if moved is not message["parts"][index]:
                message = with_part(message, index, moved)
    return message


def answer_call(message: Message, answer: Answer) -> Message:
    """Lay one answer (an in record of kind tool-result, tool-approval or a client's copy) over a message.

    The same object comes back when the answer has no effect: its call is unknown here, or settled.
    """
    kind = answer.get("kind")
    if kind == "message":
        return _merge_copy(message, answer["message"])
    index = locate(message, answer)
    if index is None:
        return message
    part = message["parts"][index]
    if kind == "tool-approval":
        moved = _approve(part, answer)
    else:
        moved = part if is_settled(part) else with_output(part, answer)
    return message if moved is part else with_part(message, index, moved)
