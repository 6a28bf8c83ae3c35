"""How an interrupted answer is picked up again: the rules, in one place.

A boot asks them of its open turn (`revive`), and anybody of a history of his own (`classify`). Of these
the first that holds:

    waiting             a person or a client has to answer
    recover_tools       a tool was asked for and has no result; it may have run
    a refusal           refused, context_full, unknown_stop: calling the model again would not help
    call_model          nothing was answered yet
    continue_response   what is stored is whole: the output limit, a pause, a signal or a deadline
    retry_response      what is stored was cut off: a death, an error, a cancellation, a stall

Providers name the end of a response in many ways; `stop_of` maps their words onto few. What becomes of a
call without a result is its tool's policy: `interrupted` (the model is told that it may or may not have
run; it never runs again by itself), `rerun` (safe to repeat) or `reattach` (still at work somewhere; its
runner is handed the progress it had).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from .calls import Message, Part, calls_of, granted
from .tool_parts import is_interrupted, tool_name

Policy = Literal["interrupted", "rerun", "reattach"]
Policies = Mapping[str, Policy]

# The mode of the next attempt: `continue` keeps the cleaned message, `retry` what is settled of it.
MODES = {
    "recover_tools": "continue",
    "continue_response": "continue",
    "call_model": "retry",
    "retry_response": "retry",
}

_STOPS: Final = {
    "done": "stop end_turn stop_sequence completed",
    "tools": "tool_calls tool_use function_call",
    "limit": "length max_tokens max_output_tokens max_output",
    "paused": "pause_turn paused",
    "cut_off": "error network_error insufficient_system_resource aborted interrupted",
    "context_full": "model_context_window_exceeded model_length context_length_exceeded context_full",
    "refused": "refusal content_filter sensitive safety recitation blocklist prohibited_content spii"
    " image_safety image_prohibited_content image_recitation jailbreak model_armor",
}
_MEANING: Final = {word: meaning for meaning, words in _STOPS.items() for word in words.split()}
REFUSALS: Final = ("refused", "context_full", "unknown_stop")

_SENTENCES: Final = {
    "none": "Nothing was interrupted.",
    "seal_aborted": "The answer was stopped, and its turn only has to be closed.",
    "seal_completed": "The answer is whole, and its turn only has to be closed.",
    "seal_error": "The answer ended in an error, and its turn only has to be closed.",
    "call_model": "The request stopped before the model answered, so the model will be called.",
    "after_tools": "The tools have finished, and the model will be called with their results.",
    "continue_response": "The last response stopped before its end; the model will be asked to continue it.",
    "retry_response": "The last response was cut off; the model will be asked to start it again.",
    "empty": "There are no messages, so there is nothing to resume.",
    "malformed": "The history ends in a tool result or a tool call that cannot be read.",
    "completed": "The last request was answered, so there is nothing to resume.",
    "refused": "The model declined the last request and would decline it again.",
    "context_full": "The context window is full, which resuming does not change.",
    "unknown_stop": "The last response stopped for a reason that is not known here.",
}
_FATES: Final = {
    "interrupted": "will be reported to the model as interrupted",
    "rerun": "will run again",
    "reattach": "will be picked up where it was",
}


def stop_of(word: str | None) -> str | None:
    """What a provider's stop or finish reason means, whatever its case and hyphens: `done`, `tools`, `limit`,
    `paused`, `cut_off`, `context_full`, `refused`; `unknown_stop` for another; None where there is none."""
    if word is None:
        return None
    return _MEANING.get(word.strip().lower().replace("-", "_"), "unknown_stop")


def describe(kind: str, tools: Iterable[str] = (), policies: Policies | None = None) -> str:
    """One sentence for a person, as on a Resume button. `kind` may be a refusal's reason; `tools` are the
    names of the tools whose calls have no result."""
    names = sorted(set(tools))
    if kind == "waiting":
        return f"A person or a client has to answer first{_listed(names)}."
    if kind != "recover_tools":
        return _SENTENCES.get(kind, kind)
    fates = [
        f"{' and '.join(own)} {fate}"
        for policy, fate in _FATES.items()
        if (own := [name for name in names if policy_of(name, policies) == policy])
    ]
    return f"The request stopped while tools were running: {', '.join(fates)}."


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def policy_of(tool: str, policies: Policies | None) -> Policy:
    """What becomes of a call of this tool that has no result. Raises ValueError for an unknown policy."""
    policy: Policy = (policies or {}).get(tool, "interrupted")
    if policy not in _FATES:
        raise ValueError(f"policy {policy!r} of tool {tool!r}: use interrupted, rerun or reattach")
    return policy


def check_policies(policies: Policies | None) -> None:
    """Raises ValueError for an unknown policy."""
    for tool in policies or {}:
        policy_of(tool, policies)


def is_unanswered(part: Part) -> bool:
    """True when the call has its whole input and no result: it may have run. A call of which only input
    streamed cannot have run; an error that cleanup made is no result."""
    state = part.get("state")
    if state == "input-available" or granted(part) or is_interrupted(part):
        return True
    return state == "output-available" and part.get("preliminary") is True


def unanswered_calls(message: Message) -> list[Part]:
    """The calls without a result, looked for in the whole message."""
    return [part for _, part in calls_of(message) if is_unanswered(part)]


def ids_of(calls: Iterable[Part]) -> tuple[str, ...]:
    return tuple(part["toolCallId"] for part in calls)


def names_of(calls: Iterable[Part]) -> tuple[str, ...]:
    return tuple(tool_name(part) for part in calls)


def classify_turn(
    message: Message, boundary: str | None, finish_reason: str | None, released: str | None
) -> tuple[str, str | None]:
    """The kind for an open turn that added something and waits for nobody, and a refusal's reason.

    `boundary` is the attempt's last chunk that began or ended something; `finish_reason` counts only
    where that is `finish`; `released` is why its worker let go, None for a death.
    """
    if unanswered_calls(message):
        return "recover_tools", None
    kind = classify_stop(finish_reason if boundary == "finish" else None, released)
    return ("seal_error", kind) if kind in REFUSALS else (kind, None)


def classify_stop(finish_reason: str | None, released: str | None) -> str:
    """The kind, or the reason of a refusal, for a response that was not finished in good order."""
    stop = stop_of(finish_reason)
    if stop in REFUSALS:
        return stop
    whole = stop in ("limit", "paused") or released in ("signal", "deadline")
    return "continue_response" if whole else "retry_response"
