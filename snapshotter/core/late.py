"""Results that come late: a final tool output in a stream whose message does not hold the call.

A tool may outlive the turn that called it. Its result goes, once, to the newest message where the call is
unsettled; an error that cleanup made is not settled, so the real result replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .calls import Message, any_unsettled, locate, with_part
from .chunks import mend, validate
from .openturn import OpenTurn
from .tool_parts import is_interrupted, is_settled, with_output, without_mark

if TYPE_CHECKING:
    from .fold import Fold

Chunk = dict[str, Any]


def late_output(fold: Fold, turn: OpenTurn, chunk: Chunk) -> bool:
    """Lay the output over the newest message where its call is unsettled; False where there is none. Raises
    ChunkError in a strict fold."""
    if fold.strict:
        validate(chunk, turn.acc.at + 1)
    if chunk.get("preliminary") is True or mend(chunk)[0] is None:
        return False
    for index in range(len(turn.done) - 1, -1, -1):
        moved = _with_late(turn.done[index], chunk)
        if moved is not None:
            turn.done[index] = moved
            return True
    for position in fold.chain.unsettled():
        moved = None if position == turn.slot else _with_late(fold.chain.messages[position], chunk)
        if moved is not None:
            fold.change(position, moved)
            return True
    return False


def _with_late(message: Message, chunk: Chunk) -> Message | None:
    """The message with a late result laid over its unsettled call; None where it has none."""
    if not any_unsettled(message):
        return None
    index = locate(message, {"toolCallId": chunk.get("toolCallId")})
    if index is None or is_settled(message["parts"][index]):
        return None
    part = message["parts"][index]
    mended = mend(chunk)[0] or chunk
    return with_part(
        message, index, with_output(without_mark(part) if is_interrupted(part) else part, mended)
    )
