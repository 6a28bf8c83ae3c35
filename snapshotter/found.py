"""What a boot found: the public face of a fold and its plan.

All that is handed out is the caller's own copy, made when it is first asked for and kept until a further
record or plan takes its source's place; what is changed in it changes nothing here. A copy of 1,000 messages
takes about 15 ms. `fold` and `plan` themselves are the engine's.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from streams.clock import Clock
from streams.store import Store

from .core.calls import Message
from .core.copies import Copies, own_item
from .core.fold import Fold
from .core.queue import Item
from .core.revive import Plan, Resume
from .holding import Holder

if TYPE_CHECKING:
    from streams.stats import RequestStats

log = logging.getLogger("snapshotter")


class Found:
    """A session as it was read, and as this worker has moved it since. `busy`: who holds it, or how long the
    pause before the next attempt lasts; `booted`: what the boot cost."""

    id: str
    sid: str
    store: Store
    clock: Clock
    fold: Fold
    plan: Plan
    busy: Holder | None
    booted: RequestStats
    _notes: list[dict[str, Any]]
    _copies: Copies

    def __repr__(self) -> str:
        """Where it stands, by what is in memory."""
        try:
            turn = self.fold.open
            owed = len(self.fold.inputs.owed(turn.inputs if turn is not None else ()))
            at = f"turn {self.fold.turn}{' open' if turn is not None else ''}"
            known = f"{at}, cursor {self.cursor}, {owed} owed"
            ends = {"busy": self.busy is not None, "closed": self.closed, "deleted": self.fold.deleted}
            said = ", ".join([known, *(word for word, holds in ends.items() if holds)])
            return f"<snapshotter.{type(self).__name__} {self.id!r}: {said}>"
        except AttributeError:  # it is being made
            return f"<snapshotter.{type(self).__name__}>"

    @property
    def messages(self) -> list[Message]:
        """The settled history, what the open turn has taken, and its cleaned partial answer."""
        return list(self._copies.get("messages", [self.plan], lambda: self.plan.messages))

    @property
    def partial(self) -> Message | None:
        """The interrupted turn's answer so far, cleaned; None where there is none."""
        return self._copies.get("partial", [self.plan], lambda: self.plan.partial)

    @property
    def pending(self) -> list[Item]:
        """The owed items, in order."""
        return [
            self._copies.get(f"pending {place}", [item], partial(own_item, item))
            for place, item in enumerate(self.plan.pending)
        ]

    @property
    def resume(self) -> Resume:
        """What a worker does first."""
        return self.plan.resume

    @property
    def pending_tool_calls(self) -> list[dict[str, Any]]:
        """The calls of the partial answer that did not finish."""
        return list(self._copies.get("calls", [self.plan], lambda: self.plan.pending_calls))

    @property
    def state(self) -> dict[str, Any]:
        return self._copies.get("state", [self.fold.state], lambda: self.fold.state)

    @property
    def context(self) -> dict[str, Any] | None:
        return self._copies.get("context", [self.fold.context], lambda: self.fold.context)

    @property
    def closed(self) -> bool:
        return self.fold.closed

    @property
    def cursor(self) -> dict[str, int]:
        """`in`: every input up to it is applied. `out`: the last record folded."""
        return {"in": self.fold.inputs.applied_upto, "out": self.fold.cursor}

    @property
    def report(self) -> list[dict[str, Any]]:
        """All that was dropped, repaired or doubtful: `{"code", "id", "detail"}`."""
        return [*self._notes, *self.plan.report]

    @property
    def stats(self) -> RequestStats:
        """Requests, bytes and round trips of this session so far; `booted` has those of the boot."""
        return self.store.stats.snapshot()

    def applied(self, number: int) -> bool:
        """Whether the input with this id is answered, or spent."""
        return self.fold.inputs.is_applied(number)

    def note(self, code: str, detail: str) -> None:
        """Report something that went wrong and that the session survives."""
        self._notes.append({"code": code, "id": self.fold.cursor, "detail": detail})
        self.log_note(code, detail)

    def log_note(self, code: str, detail: str) -> None:
        """Log a line of the report."""
        fields = {"event": code, "session": self.id, "turn": self.fold.turn, "epoch": self.fold.epoch}
        log.warning("session %s: %s: %s", self.id, code, detail, extra=fields)
