"""Controls that concern the session as a whole: its own state, who holds it, its end and its return.

A session that is deleted, or opened again, begins anew: what was owed until then is spent, without effect,
and nothing but the controls of its return counts behind a deletion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .chain import Chain
from .controls import ANEW

if TYPE_CHECKING:
    from .fold import Fold, Record


def set_state(fold: Fold, record: Record) -> None:
    new = dict(fold.state)
    new.update(record.get("set", {}))
    for name in record.get("unset", ()):
        if isinstance(name, str):
            new.pop(name, None)
    fold.state = new


def fence(fold: Fold, record: Record) -> None:
    """Somebody took the log over."""
    why = record.get("why")
    if fold.deleted and why not in ANEW:
        fold.note("fence-after-delete", "a fence after the session was deleted; skipped")
        pass_over(fold, record)
        return
    fold.take_over(record)
    fold.budget.fence(record)
    if why == "boot":
        fold.claim = record
    elif why == "create":
        fold.closed = fold.deleted = False
    if why in ANEW:
        fold.budget.reset()
        _spend_before(fold, record.get("for", 0), why)


def pass_over(fold: Fold, record: Record) -> None:
    """Somebody came to a session that is deleted. Whoever creates it anew takes over from there."""
    fold.epoch = max(fold.epoch, record.get("epoch", 0))


def _spend_before(fold: Fold, number: int, why: str) -> None:
    """What was owed up to this input is spent, without effect."""
    for entry in fold.inputs.owed():
        if entry.id <= number:
            fold.note(f"input-before-{why}", f"input {entry.id} came before the session's {why}; spent")
    fold.inputs.spend(number)


def close_session(fold: Fold, _record: Record) -> None:
    if fold.open is not None:
        fold.interrupt(fold.open)
    fold.closed, fold.claim, fold.placed = True, None, {}
    fold.budget.reset()


def delete_session(fold: Fold, record: Record) -> None:
    close_session(fold, record)
    fold.deleted = True
    fold.chain, fold.state, fold.context = Chain(), {}, None
    fold.last_turn, fold.unfinished = None, []
