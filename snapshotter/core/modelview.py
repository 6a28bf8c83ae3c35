"""What a model should see of a session, which is not always the whole history.

A compacted context stands in place of everything up to its message; what the open turn has taken, and what
its answer began with, stand where they belong.
"""

from __future__ import annotations

from .calls import Message
from .fold import Fold


def model_view(fold: Fold, answer: list[Message]) -> list[Message]:
    """The messages for the model; `answer` is what the open turn's attempt began with."""
    messages = list(fold.chain.messages)
    upto = fold.chain.find(fold.context["upto"]) if fold.context is not None else None
    turn = fold.open
    if turn is not None and turn.slot is not None:
        messages[turn.slot : turn.slot + 1] = answer
        messages += turn.asked
    elif turn is not None:
        messages += [*turn.asked, *answer]
    if fold.context is None or upto is None:
        return messages
    return [*fold.context["messages"], *messages[upto + 1 :]]
