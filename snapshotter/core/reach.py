"""Will records find, in what was read of the history, all that they act on?

A session that holds a window of its history asks this before it writes: what a record does once it is
durable must never fail for want of an older block. The rules are those of `edits`: what each record looks
up, and from where on it changes the chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import edits
from .fold import Fold


def check(fold: Fold, bodies: Iterable[dict[str, Any]] = ()) -> None:
    """Raise Unloaded where the fold, or one of the records that it is about to apply, needs more of the
    history than was read."""
    chain = fold.chain
    if not chain.partial:
        return
    if fold.context is not None:
        chain.find(fold.context.get("upto"))
    if fold.open is not None and fold.open.slot is not None:
        chain.reach(fold.open.slot)
    for entry, _ in fold.open.after if fold.open is not None else ():
        if entry.role == "edit":  # it is made when the turn closes
            _reach(fold, chain.find(entry.record["messageId"]))
    for body in bodies:
        if body.get("control") == "history":
            _history(fold, body)
        elif body.get("control") == "context":
            chain.find(body.get("upto"))
        elif body.get("control") in ("turn-start", "input-applied"):
            _inputs(fold, body)


def _history(fold: Fold, body: dict[str, Any]) -> None:
    if body.get("op") in ("clear", "replace"):
        return
    message = body.get("message")
    named = message.get("id") if isinstance(message, dict) else body.get("messageId")
    position = fold.chain.find(named)
    if position is not None and body.get("op") != "put":
        fold.chain.reach(position)


def _inputs(fold: Fold, body: dict[str, Any]) -> None:
    if body.get("mode") == "continue":
        _reach(fold, fold.chain.find(body.get("messageId")))
    for entry in edits.named_inputs(fold, body):
        fold.chain.find(fold.placed.get(entry.id))
        if entry.role == "answer" and entry.message_id is not None:
            fold.chain.find(entry.message_id)
        elif entry.role == "edit":
            _reach(fold, fold.chain.find(entry.record["messageId"]))
        elif entry.role == "regenerate":
            _reach(fold, edits.regenerate_target(fold, entry))


def _reach(fold: Fold, position: int | None) -> None:
    if position is not None and position >= 0:
        fold.chain.reach(position)
