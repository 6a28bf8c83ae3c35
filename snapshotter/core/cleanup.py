"""What becomes of a message whose turn did not complete.

A worker died, or let go: parts of its message hang in the air. `cleanup` closes them so that the
message can be shown, stored and sent to a model again, and lists every call that did not finish, with
its state as it was:

    text, reasoning     streaming → done
    input-streaming     dropped: a call of which only input streamed cannot have run
    input-available     an error "may or may not have run", unless a client can still answer it
    preliminary output  progress, not a result: the same error, its last output handed on as progress
    approval asked      stays asked
    approval granted    the same error: the attempt took it, so the tool may have run
    approval refused    output-denied
    final outputs       stay

`kept_for_retry` and `kept_on_drop` say how much of a cleaned message survives a retry, and a
turn-complete with `keep: false`. Both keep the *seed* (the message as it stood when the turn opened)
and never lose a settled call.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .calls import INTERRUPTED, Message, Part, failed, is_call, parts_of
from .tool_parts import is_settled, tool_name


@dataclass(slots=True)
class Cleaned:
    """A cleaned message, its calls that did not finish, and how many parts of the seed are left."""

    message: Message
    pending: list[dict[str, Any]] = field(default_factory=list)
    seed: int = 0


def is_empty(message: Message | None) -> bool:
    """True for a message that a client would not show: no parts but a trailing step, no metadata."""
    if message is None:
        return True
    parts = parts_of(message)
    return not message.get("metadata") and all(_is_step(part) for part in parts)


def stands(message: Message, *, clean: bool) -> bool:
    """True when a close would keep the message: in a completed turn it has parts or metadata, in any other
    (`clean`) something to be seen."""
    return not says_nothing(message) if clean else bool(parts_of(message) or message.get("metadata"))


def says_nothing(message: Message) -> bool:
    """True for a message in which a reader sees nothing: steps, and texts and reasoning that are empty and
    carry no metadata of a provider."""
    return all(_is_step(part) or _is_blank(part) for part in parts_of(message))


def _is_blank(part: Any) -> bool:
    is_words = isinstance(part, dict) and part.get("type") in ("text", "reasoning")
    return is_words and not part.get("text") and not part.get("providerMetadata")


def _is_step(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "step-start"


def _is_streaming(part: Any) -> bool:
    text = isinstance(part, dict) and part.get("type") in ("text", "reasoning")
    return text and part.get("state") == "streaming"


def drop_trailing_steps(message: Message) -> Message:
    """A step that holds nothing is not shown yet; at a close it goes."""
    parts = parts_of(message)
    end = len(parts)
    while end and _is_step(parts[end - 1]):
        end -= 1
    return message if end == len(parts) else {**message, "parts": parts[:end]}


def _close_call(part: Part, client_tools: Collection[str]) -> Part | None:
    """One tool part after cleanup: itself when final, None when it is dropped."""
    state = part.get("state")
    if state == "input-streaming":
        return None
    if state == "input-available":
        return part if tool_name(part) in client_tools else failed(part, INTERRUPTED, "interrupted")
    if state == "output-available" and part.get("preliminary") is True:
        return failed(part, INTERRUPTED, "interrupted")
    if state == "approval-responded":
        approval = part.get("approval")
        if isinstance(approval, dict) and approval.get("approved") is True:
            return failed(part, INTERRUPTED, "interrupted")
        return {**part, "state": "output-denied"}
    return part


def pending_call(part: Part, index: int | None) -> dict[str, Any]:
    """One entry of the pending tool calls: the state before cleanup, and the place after it."""
    call = {"toolCallId": part["toolCallId"], "toolName": tool_name(part), "state": part.get("state")}
    call |= {key: part[key] for key in ("input", "rawInput") if key in part}
    if part.get("state") == "output-available":
        call["progress"] = part.get("output")
    return {**call, "partIndex": index}


def is_unfinished(part: Part) -> bool:
    """True for a call that holds no final output, not even an error that cleanup made."""
    state = part.get("state")
    if state == "output-available":
        return part.get("preliminary") is True
    return state not in ("output-error", "output-denied")


def cleanup(message: Message, client_tools: Collection[str] = (), seed: int = 0) -> Cleaned:
    """Close everything that hangs. `seed` counts the leading parts that the turn found."""
    parts: list[Any] = []
    pending: list[dict[str, Any]] = []
    kept_seed, changed = seed, False
    for index, part in enumerate(parts_of(message)):
        new = part
        if is_call(part):
            new = _close_call(part, client_tools)
            if is_unfinished(part):
                pending.append(pending_call(part, None if new is None else len(parts)))
        elif _is_streaming(part):
            new = {**part, "state": "done"}
        changed = changed or new is not part
        if new is None:
            kept_seed -= index < seed
        else:
            parts.append(new)
    cleaned = {**message, "parts": parts} if changed else message
    cleaned = drop_trailing_steps(cleaned)
    return Cleaned(cleaned, pending, min(kept_seed, len(parts_of(cleaned))))


def _steps(parts: list[Any], start: int) -> list[tuple[int, int]]:
    """The half-open ranges of the steps in parts[start:]; what precedes the first step is one, too."""
    bounds = [i for i in range(start, len(parts)) if _is_step(parts[i])]
    if not bounds or bounds[0] != start:
        bounds.insert(0, start)
    return [(a, b) for a, b in zip(bounds, [*bounds[1:], len(parts)], strict=True) if a < b]


def _holds_settled(parts: list[Any], start: int, end: int) -> bool:
    return any(is_call(part) and is_settled(part) for part in parts[start:end])


def kept_for_retry(message: Message, seed: int) -> Message:
    """The seed, and what the turn added up to the last step that holds a settled call."""
    parts = parts_of(message)
    end = max((b for a, b in _steps(parts, seed) if _holds_settled(parts, a, b)), default=seed)
    return drop_trailing_steps(message if end == len(parts) else {**message, "parts": parts[:end]})


def kept_on_drop(message: Message, seed: int) -> Message:
    """The seed, and the steps that hold settled calls. Metadata stays."""
    parts = parts_of(message)
    kept = list(parts[:seed])
    for start, end in _steps(parts, seed):
        if _holds_settled(parts, start, end):
            kept += parts[start:end]
    return drop_trailing_steps({**message, "parts": kept})
