"""What the model has to know before it goes on with an interrupted answer.

`for_model` is for those who keep their own history; a resumed turn uses its two halves: `with_policies`
for the calls of the answer, `note` for the message at the end.

    recover_tools        each call without a result gets an errored one; by its tool's policy `rerun` it
                         stands as not yet run, `reattach` with its last progress as a preliminary output
    retry_response       "you were interrupted, start again"
    continue_response    "continue where you stopped"

All of it is for the model's eyes. The history stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .calls import INTERRUPTED, Message, Part, calls_of, with_part
from .classify import SYSTEM, missing_calls
from .cleanup import cleanup
from .given import messages_in, names_in
from .resume import Policies, check_policies, policy_of
from .tool_parts import is_interrupted, tool_name, without_mark

START_AGAIN = (
    "Your last response was interrupted before it was complete. Start that response again; what tools have "
    "already returned still stands."
)
CONTINUE = "Your last response stopped before its end. Continue exactly where it stopped; repeat nothing."
_NOTES = {"retry_response": START_AGAIN, "continue_response": CONTINUE}
_KINDS = ("call_model", "recover_tools", "retry_response", "continue_response", "waiting")


def for_model(
    messages: Sequence[Message],
    kind: str,
    *,
    policies: Policies | None = None,
    client_tools: Collection[str] = (),
) -> list[Message]:
    """The messages with what the model has to know before it goes on, as `kind` (of `classify_resume`) says.

    A message that is added at the end is of role user; a UIMessage is marked in its metadata. What was
    streaming in the last UIMessage is closed, and a call of which only input streamed is dropped. Nothing is
    changed in place. `client_tools`: names of the tools that a client runs, whose calls stay as they are.
    Raises ValueError for an unknown kind or policy; InvalidValue, with its path, for what is no list of
    messages, or of names.
    """
    if kind not in _KINDS:
        raise ValueError(f"kind {kind!r}: use one of {', '.join(_KINDS)}")
    check_policies(policies)
    out, client_tools = list(messages_in(messages)), names_in(client_tools)
    at = max((i for i, m in enumerate(out) if m.get("role") not in SYSTEM), default=None)
    if at is None:
        return out
    if "parts" in out[at]:
        if out[at].get("role") == "assistant" and kind in ("recover_tools", *_NOTES):
            cleaned = cleanup(out[at], client_tools)
            pending = {c["partIndex"]: c for c in cleaned.pending if c["partIndex"] is not None}
            out[at] = with_policies(cleaned.message, policies, pending)
    elif kind == "recover_tools":
        missing = missing_calls([m for m in out[: at + 1] if m.get("role") not in SYSTEM]) or []
        results = [_plain_error(c) for c in missing if policy_of(tool_name(c), policies) == "interrupted"]
        out[at + 1 : at + 1] = results
    added = note(kind, plain="parts" not in out[at])
    return out if added is None else [*out, added]


def note(kind: str, *, plain: bool = False) -> Message | None:
    """The message that tells the model how to go on; None for a kind that needs none."""
    text = _NOTES.get(kind)
    if text is None:
        return None
    if plain:
        return {"role": "user", "content": text}
    parts = [{"type": "text", "text": text}]
    return {
        "id": f"resume-{kind}",
        "role": "user",
        "parts": parts,
        "metadata": {"snapshotter": {"resume": kind}},
    }


def _plain_error(call: Part) -> Message:
    name = tool_name(call)
    return {"role": "tool", "tool_call_id": call["toolCallId"], "name": name, "content": INTERRUPTED}


def with_policies(
    message: Message, policies: Policies | None, pending: Mapping[int, Mapping[str, Any]]
) -> Message:
    """A cleaned message whose interrupted calls stand as their tools' policies say. `pending` has, by the
    place of a part, the call as it was before cleanup."""
    for index, part in calls_of(message):
        if is_interrupted(part) and policy_of(tool_name(part), policies) != "interrupted":
            message = with_part(message, index, _reopened(part, policies, pending.get(index, {})))
    return message


def _reopened(part: Part, policies: Policies | None, call: Mapping[str, Any]) -> Part:
    """The call as it stood before cleanup closed it."""
    part = {key: value for key, value in without_mark(part).items() if key != "errorText"}
    known = "progress" in call and call["toolCallId"] == part["toolCallId"]
    if known and policy_of(tool_name(part), policies) == "reattach":
        return {**part, "state": "output-available", "output": call["progress"], "preliminary": True}
    return {**part, "state": "approval-responded" if "approval" in part else "input-available"}
