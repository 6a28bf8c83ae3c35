"""Where a history can be picked up again, for those who keep their own.

`classify_resume` reads a history's last message, and how its turn ended where that is known, and says what
to do, by the rules of `resume`. `onward` adds what the model has to know before it goes on.

Two forms of history are read. UIMessages have `parts`. Plain messages have none:

    {"role": "system" | "developer" | "user" | "agent", "content"}
    {"role": "assistant", "content", "tool_calls"?: [{"id", "name"?}], "stop"?: reason or {"reason" or "raw"}}
    {"role": "tool", "tool_call_id", "content"}

`stop_reason` and `finish_reason` are read where there is no `stop`; a call's name may stand in `function`.
A plain assistant message without a stop counts as finished, so a partial one needs a stop, `interrupted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams.errors import InvalidValue, Refused

from .calls import Message, Part, calls_of, is_call, parts_of, waits
from .given import messages_in
from .resume import (
    REFUSALS,
    Policies,
    check_policies,
    classify_stop,
    describe,
    ids_of,
    is_unanswered,
    names_of,
    stop_of,
)
from .tool_parts import is_interrupted, is_settled, is_tool

SYSTEM = ("system", "developer")
_ROLES = (*SYSTEM, "user", "agent", "assistant", "tool")
_STATUSES = ("completed", "error", "aborted", "interrupted", "exhausted")
_ENDING = ("status", "finishReason", "why", "clientTools")
_TOOL_STATES = (
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
)


class NotResumable(Refused):
    """The history cannot be picked up again. `reason`: empty, malformed, completed, refused, context_full or
    unknown_stop."""

    def __init__(self, reason: str) -> None:
        super().__init__(describe(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Classified:
    """What resuming a history does. `kind`: call_model, recover_tools, retry_response, continue_response or
    waiting; `description`: one sentence for a person; `unanswered`: ids of the calls without a result."""

    kind: str
    description: str
    unanswered: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "description": self.description, "unanswered": list(self.unanswered)}


@dataclass(frozen=True, slots=True)
class _Ending:
    """How the last message's turn ended; all None while nothing is known of it."""

    known: bool = False
    status: str | None = None
    finish_reason: str | None = None
    why: str | None = None
    client_tools: tuple[str, ...] = ()


def classify_resume(
    messages: Sequence[Message], turn: Mapping[str, Any] | None = None, *, policies: Policies | None = None
) -> Classified:
    """Say how a history, oldest message first, can be picked up again.

    `turn` tells how the last message's turn ended, where that is known: `status` (completed, error, aborted,
    interrupted, exhausted; none while it is open), `finishReason`, `why` its worker let go, `clientTools`
    (names of the tools that a client runs). `policies`: what becomes of a tool's calls without a result.

    Raises NotResumable with its reason; InvalidValue for what is no history; ValueError for a policy that is
    not known.
    """
    check_policies(policies)
    ending = _ending(turn)
    for at, message in enumerate(messages_in(messages)):
        _check(message, at)
    dialogue = [message for message in messages if message["role"] not in SYSTEM]
    if not dialogue:
        raise NotResumable("empty")
    last = dialogue[-1]
    if last["role"] == "tool":
        return _after_results(dialogue, policies)
    if last["role"] != "assistant":
        return Classified("call_model", describe("call_model"))
    if "parts" in last:
        return _after_parts(last, ending, policies)
    return _after_answer(last, ending, policies)


# -- plain histories --------------------------------------------------------------------------------------


def _after_results(dialogue: list[Message], policies: Policies | None) -> Classified:
    missing = missing_calls(dialogue)
    if missing is None:
        raise NotResumable("malformed")
    return _recover(missing, policies) if missing else Classified("call_model", describe("after_tools"))


def missing_calls(dialogue: list[Message]) -> list[Part] | None:
    """The calls of the last assistant message that the results after it do not answer; None where there is
    no such message."""
    at, answered = len(dialogue) - 1, set()
    while at >= 0 and dialogue[at]["role"] == "tool":
        answered.add(dialogue[at]["tool_call_id"])
        at -= 1
    calls = _plain_calls(dialogue[at]) if at >= 0 and dialogue[at]["role"] == "assistant" else []
    return [call for call in calls if call["toolCallId"] not in answered] if calls else None


def _plain_calls(message: Message) -> list[Part]:
    """The calls that a plain assistant message asks for, as tool parts."""
    found = []
    for call in message.get("tool_calls") or ():
        function = call.get("function")
        name = call.get("name") or (function.get("name") if isinstance(function, dict) else None) or "tool"
        found.append({"type": "dynamic-tool", "toolName": str(name), "toolCallId": call["id"]})
    return found


def _after_answer(message: Message, ending: _Ending, policies: Policies | None) -> Classified:
    calls = _plain_calls(message)
    if calls:
        return _recover(calls, policies)
    word = _stop_word(message) or ending.finish_reason
    if word is None and ending.status not in (None, "completed"):
        word = "interrupted"
    stop = stop_of(word)
    if stop == "paused":  # the provider wants the same messages again, and nothing added
        return Classified("call_model", describe("continue_response"))
    if stop in (None, "done", "tools"):
        raise NotResumable("completed")
    return _judged(classify_stop(word, ending.why))


def _stop_word(message: Message) -> str | None:
    stop = message.get("stop", message.get("stop_reason", message.get("finish_reason")))
    if isinstance(stop, dict):
        stop = stop.get("reason") or stop.get("raw")
    return stop if isinstance(stop, str) else None


# -- UIMessages -------------------------------------------------------------------------------------------


def _after_parts(message: Message, ending: _Ending, policies: Policies | None) -> Classified:
    parts = parts_of(message)
    if any(is_tool(p) and not (is_call(p) and p.get("state") in _TOOL_STATES) for p in parts):
        raise NotResumable("malformed")
    completed = ending.status == "completed"
    waiting = [p for _, p in calls_of(message) if waits(p, None if completed else ending.client_tools)]
    if waiting:
        return Classified("waiting", describe("waiting", names_of(waiting)), ids_of(waiting))
    missing = _without_result(message, ending)
    if missing:
        return _recover(missing, policies)
    if stop_of(ending.finish_reason) in REFUSALS:
        return _judged(classify_stop(ending.finish_reason, ending.why))
    said = [p for p in parts if is_call(p) or p.get("type") in ("text", "reasoning", "file")]
    if not said and not completed:
        return Classified("call_model", describe("call_model"))
    if said and _ends_in_results(parts):
        return Classified("call_model", describe("after_tools"))
    if _is_whole(said, ending):
        raise NotResumable("completed")
    return _judged(classify_stop(ending.finish_reason, ending.why))


def _without_result(message: Message, ending: _Ending) -> list[Part]:
    """The calls without a result. Once a turn is known to be completed only progress is none; where nothing
    is known of it, an error that cleanup made counts until the message goes on behind it."""
    found = []
    for index, part in calls_of(message):
        if not is_unanswered(part):
            continue
        if ending.status == "completed" and part.get("state") != "output-available":
            continue
        if is_interrupted(part) and not ending.known and _goes_on(parts_of(message)[index + 1 :]):
            continue
        found.append(part)
    return found


def _goes_on(parts: list[Part]) -> bool:
    """True when a later step, or a text, follows."""
    steps = [i for i, part in enumerate(parts) if part.get("type") == "step-start"]
    later = parts[steps[0] + 1 :] if steps else []
    return bool(later) or any(part.get("type") in ("text", "reasoning") for part in parts)


def _ends_in_results(parts: list[Part]) -> bool:
    """True when the last step ends in tool calls that all have their answer: the model has not seen them."""
    seen = False
    for part in reversed(parts):
        kind = part.get("type")
        if is_call(part):
            if not (is_settled(part) or part.get("state") == "approval-responded"):
                return False
            seen = True
        elif seen and kind == "step-start":
            return True
        elif not seen and kind in ("text", "reasoning", "file"):
            return False
    return seen


def _is_whole(said: list[Part], ending: _Ending) -> bool:
    """True when the answer needs nothing more."""
    stop = stop_of(ending.finish_reason)
    if ending.status is not None:
        return ending.status == "completed" and stop in (None, "done", "tools")
    if ending.known:
        return stop in ("done", "tools")
    streaming = any(part.get("state") in ("streaming", "input-streaming") for part in said)
    return not streaming and said[-1].get("type") != "reasoning"


def _recover(calls: list[Part], policies: Policies | None) -> Classified:
    return Classified("recover_tools", describe("recover_tools", names_of(calls), policies), ids_of(calls))


def _judged(kind: str) -> Classified:
    if kind in REFUSALS:
        raise NotResumable(kind)
    return Classified(kind, describe(kind))


# -- what is no history -----------------------------------------------------------------------------------


def _check(message: Any, at: int) -> None:
    """Raises InvalidValue, naming the place, for what is no message."""
    role = message.get("role") if isinstance(message, dict) else None
    where = f"messages[{at}]"
    if role not in _ROLES:
        raise InvalidValue(f"{where}: a message needs a role: {', '.join(_ROLES)}", path=where)
    if "parts" in message:
        parts = message["parts"]
        if role in ("tool", "agent") or not isinstance(parts, list):
            raise InvalidValue(f"{where}: only a UIMessage has parts, and they are a list", path=where)
        if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
            raise InvalidValue(f"{where}.parts: each part is an object with a type", path=where)
    elif role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise InvalidValue(f"{where}.tool_call_id: a string is needed", path=where)
    elif role == "assistant":
        _check_answer(message, where)


def _check_answer(message: Message, where: str) -> None:
    calls = message.get("tool_calls")
    listed = calls is None or isinstance(calls, list)
    if not listed or not all(isinstance(c, dict) and isinstance(c.get("id"), str) for c in calls or ()):
        raise InvalidValue(f"{where}.tool_calls: a list of objects with an id", path=where)
    stop = message.get("stop", message.get("stop_reason", message.get("finish_reason")))
    if isinstance(stop, dict):
        reason, raw = stop.get("reason"), stop.get("raw")
        if not all(word is None or isinstance(word, str) for word in (reason, raw)):
            raise InvalidValue(f"{where}.stop: reason and raw are strings", path=where)
        if stop_of(reason) == "unknown_stop" and reason != "other":
            raise InvalidValue(f"{where}.stop.reason: {reason!r} is not known", path=where)
    elif stop is not None and not isinstance(stop, str):
        raise InvalidValue(f"{where}.stop: a string or an object", path=where)


def _ending(turn: Any) -> _Ending:
    """How a turn ended. Raises InvalidValue."""
    if turn is None:
        return _Ending()
    if not isinstance(turn, Mapping):
        raise InvalidValue(f"turn: an object with {', '.join(_ENDING)}", path="turn")
    unknown = [str(name) for name in turn if name not in _ENDING]
    if unknown:
        known = f"turn.{unknown[0]}: not known here; a turn has {', '.join(_ENDING)}"
        raise InvalidValue(known, path=f"turn.{unknown[0]}")
    texts = [turn.get(name) for name in ("status", "finishReason", "why")]
    if any(text is not None and not isinstance(text, str) for text in texts):
        raise InvalidValue("turn: status, finishReason and why are strings", path="turn")
    status, finish_reason, why = texts
    if status is not None and status not in _STATUSES:
        raise InvalidValue(f"turn.status: one of {', '.join(_STATUSES)}", path="turn.status")
    tools = turn.get("clientTools")
    if tools is not None and not (isinstance(tools, list | tuple) and all(isinstance(t, str) for t in tools)):
        raise InvalidValue("turn.clientTools: a list of names", path="turn.clientTools")
    return _Ending(True, status, finish_reason, why, tuple(tools or ()))
