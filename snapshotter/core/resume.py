"""How an interrupted turn is picked up again.

The order of precedence, first that holds: a call without a result, a refusal, a failure or a hand-over.
A refusal ends the turn in an error that names its reason: calling the model again would not help.

    recover_tools       a tool was asked for and has no result; it may have run
    seal_error          refused, context_full, unknown_stop
    continue_response   what is stored is whole: the output limit, a signal or a deadline
    retry_response      what is stored was cut off: a death, an error, a cancellation, a stall
"""

from __future__ import annotations

from .calls import Message, calls_of, granted
from .tool_parts import is_interrupted

# The mode of the next attempt: `continue` keeps the cleaned message, `retry` what is settled of it.
MODES = {
    "recover_tools": "continue",
    "continue_response": "continue",
    "call_model": "retry",
    "retry_response": "retry",
}

_REFUSALS = {
    "content-filter": "refused",
    "context-full": "context_full",
    "context_full": "context_full",
}
_CUT_OFF = ("error", "interrupted", "stop", "tool-calls", None)


def unanswered(message: Message) -> bool:
    """True when a call has its whole input and no result: it may have run. A call of which only input
    streamed cannot have run; an error that cleanup made is no result."""
    for _, part in calls_of(message):
        state = part.get("state")
        if state == "input-available" or granted(part) or is_interrupted(part):
            return True
        if state == "output-available" and part.get("preliminary") is True:
            return True
    return False


def classify_turn(
    message: Message, boundary: str | None, finish_reason: str | None, released: str | None
) -> tuple[str, str | None]:
    """The kind for an open turn that added something and waits for nobody, and a refusal's reason.

    `boundary` is the attempt's last chunk that began or ended something; `finish_reason` counts only
    where that is `finish`; `released` is why its worker let go, None for a death.
    """
    if unanswered(message):
        return "recover_tools", None
    if boundary == "finish":
        if finish_reason in _REFUSALS:
            return "seal_error", _REFUSALS[finish_reason]
        if finish_reason == "length":
            return "continue_response", None
        if finish_reason not in _CUT_OFF:
            return "seal_error", "unknown_stop"
    if released in ("signal", "deadline"):
        return "continue_response", None
    return "retry_response", None
