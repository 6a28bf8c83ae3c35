"""What a model should see of a session, which is not always the whole history.

A compacted context stands in place of everything up to its message; what the open turn has taken, and what
its answer began with, stand where they belong. All of it is repaired and sanitized; where an attempt was
interrupted, the next one's model is told how to go on.
"""

from __future__ import annotations

from collections.abc import Callable

from .calls import Message, Part
from .fold import Fold
from .onward import note, with_policies
from .repair import Repaired, repair
from .resume import Policies
from .sanitize import sanitize


def model_view(
    fold: Fold,
    answer: list[Message],
    resumed: str | None = None,
    policies: Policies | None = None,
    tell: Callable[[Repaired], object] = lambda repaired: None,  # noqa: ARG005 - nobody listens
) -> list[Message]:
    """The messages for the model; `answer` is what the open turn's attempt began with, `resumed` the kind of
    resumption where it is not the first attempt, `policies` what becomes of calls that were cut off. `tell`
    is told of what was repaired in the history."""
    turn = fold.open
    client_tools = turn.client_tools if turn is not None else ()
    # What was just answered is the turn's own business: a refusal, too, is for its tool loop to report.
    answer = sanitize(repair(answer, client_tools=client_tools, should_repair=_is_unanswered).messages)
    if resumed == "recover_tools" and turn is not None and answer:
        answer[-1] = with_policies(answer[-1], policies, turn.progress)
    repaired = repair(fold.chain.messages, client_tools=client_tools)
    if repaired.replaced or repaired.normalized:
        tell(repaired)
    messages = _spliced(fold, sanitize(repaired.messages), answer)
    added = note(resumed) if resumed is not None else None
    return messages if added is None else [*messages, added]


def _is_unanswered(part: Part) -> bool:
    return part.get("state") != "approval-responded"


def _spliced(fold: Fold, messages: list[Message], answer: list[Message]) -> list[Message]:
    """The answer in its place, and a compacted context in the place of what it covers."""
    upto = fold.chain.find(fold.context["upto"]) if fold.context is not None else None
    turn = fold.open
    if turn is not None and turn.slot is not None:
        messages[turn.slot : turn.slot + 1] = answer
        messages += turn.asked
    elif turn is not None:
        messages += [*turn.asked, *answer]
    if fold.context is None or upto is None:
        return messages
    return [*sanitize(repair(fold.context["messages"]).messages), *messages[upto + 1 :]]
