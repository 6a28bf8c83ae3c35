"""What somebody learns of a session who was not there: how its last turn ended, and whether it is being
taken up again.

Both come from the log alone. A terminal outcome stays to be read until a later turn begins; that a session is
recovering is believed for 15 minutes after its last word, since nobody may ever come.
"""

from __future__ import annotations

from dataclasses import dataclass

from snapshotter.core.fold import Fold
from snapshotter.core.resume import MODES
from snapshotter.core.revive import revive
from snapshotter.loading import Loaded

STALE = 15 * 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended. `status`: completed, error, aborted, exhausted or interrupted; `error` is what a
    person should be told of it, `reason` why it was given up, `detail` what its last attempt said then
    (`type: message`, for an operator's eyes); `message_id` names its answer."""

    turn: int
    status: str
    message_id: str
    finish_reason: str | None = None
    error: str | None = None
    reason: str | None = None
    detail: str | None = None


def outcome_of(fold: Fold) -> Outcome | None:
    """How the last turn ended; None before the first, and while a turn is open."""
    last = fold.last_turn
    if last is None or fold.open is not None:
        return None
    return Outcome(
        turn=last.get("turn", 0),
        status=last.get("status", ""),
        message_id=last.get("messageId", ""),
        finish_reason=last.get("finishReason"),
        error=last.get("error"),
        reason=last.get("reason"),
        detail=last.get("detail"),
    )


def is_recovering(loaded: Loaded, now_ms: int) -> bool:
    """Whether an interrupted turn is being taken up again, or about to be: it is open, is no first attempt of
    a living worker, waits for nobody, and its last word is less than 15 minutes old by the store's clock."""
    turn = loaded.fold.open
    if turn is None or loaded.age(now_ms) >= STALE:
        return False
    if revive(loaded.fold).resume.kind not in MODES:
        return False
    return turn.attempt > 1 or turn.released is not None or loaded.holder(now_ms) is None
