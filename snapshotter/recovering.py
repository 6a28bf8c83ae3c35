"""Bounded recovery at work in a session: judge, pause, ask the hooks, give up.

Before a worker opens the next attempt of an interrupted turn, or takes an input whose loading has killed
before, the incident is judged anew from the log. The order of giving up is what makes it safe: the host is
told first, then one segment keeps the partial answer and its settled tool results and closes the turn as
`exhausted`. A store that fails in between leaves the turn open, and the next boot does all of it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.errors import Busy

from .core import moves
from .core.budget import Incident, Limits
from .core.copies import own, own_item
from .core.fold import Fold
from .core.repair import Repaired
from .core.revive import Plan, revive
from .core.verdict import incident_of
from .holding import Holder
from .loading import Loaded
from .recovery import ChatRecovery, Hooks, RecoveryContext
from .watched import of

if TYPE_CHECKING:
    from .session import Session
    from .turn import Turn

_NO_MODEL = "close"  # an item of this kind is done without a model call


def pause_of(loaded: Loaded, limits: Limits, now_ms: int) -> Holder | None:
    """The pause before the next attempt, as a holder of the session; None where it may begin now, and where
    no date says when the last one ended."""
    if (loaded.fold.open is None and not loaded.fold.budget.claims) or loaded.is_ahead(now_ms):
        return None
    plan = revive(loaded.fold)
    if moves.next_step(plan) not in ("resume", "item"):
        return None
    found = incident_of(loaded.fold, plan, limits=limits)
    left = found.backoff_s - loaded.age(now_ms)
    if found.gives_up or left <= 0:
        return None
    return Holder(loaded.run, loaded.age(now_ms), left, incident=found)


class Recovering:
    """What one session does about interrupted turns."""

    def __init__(self, session: Session, config: ChatRecovery, cause: str | None) -> None:
        self._session = session
        self._config = config
        self._cause = cause
        self._hooks = Hooks(config, session.id, session.note, of(session.store))
        self._repaired_in = 0
        self._under: Incident | None = None  # the incident that the turn under way belongs to

    def judge(self, fold: Fold, plan: Plan, *, ask: bool = False) -> Incident:
        """The verdict on the plan's first step; `ask`: ask `should_keep_recovering`, too."""

        def keep(found: Incident) -> bool:
            return self._hooks.keep(self._context(found))

        return incident_of(
            fold,
            plan,
            limits=self._config.limits,
            run=self._session.run,
            cause=self._cause,
            keep=keep if ask else None,
        )

    def instead(self, step: str) -> tuple[list[dict[str, Any]] | None, bool]:
        """What to write in place of the step, None where it may go on; and whether the next attempt keeps
        what is unfinished. Raises Busy while it is too soon."""
        session = self._session
        fold, plan = session.fold, session.plan
        self._under = None
        if step == "item" and plan.pending[0].kind == _NO_MODEL:
            return None, True
        found = self.judge(fold, plan, ask=True)
        if found.gives_up:
            self._hooks.exhausted(self._context(found))
            return self._exhausting(found, step), True
        left = found.backoff_s - session.age
        if left > 0:
            self.scheduled(found, left)
            raise Busy(_later(session.id, found, left), retry_after=left)
        return (None, True) if step == "item" else self._choose(found)

    def _choose(self, found: Incident) -> tuple[list[dict[str, Any]] | None, bool]:
        fold, plan = self._session.fold, self._session.plan
        if found.attempt == 2:
            self._hooks.emit("detected", found)
        choice = self._hooks.choose(self._context(found))
        if not choice.go_on:
            self._hooks.emit("skipped", found, "recovery_declined")
            return moves.declining(fold, plan, keep=choice.persist), True
        self._hooks.emit("attempt", found)
        self._under = found
        return None, choice.persist

    def _exhausting(self, found: Incident, step: str) -> list[dict[str, Any]]:
        session = self._session
        item = session.plan.pending[0] if step == "item" else None
        opened = [] if item is None else session.opening(item)
        return moves.exhausting(session.fold, session.plan, opened, found, self._config.terminal_message)

    def _context(self, found: Incident) -> RecoveryContext:
        session = self._session
        plan, turn = session.plan, session.fold.open
        resuming = moves.next_step(plan) == "resume" and turn is not None
        if not resuming or turn is None:
            item = plan.pending[0] if plan.pending else None
            inputs = own_item(item).inputs if item is not None else ()
            return RecoveryContext(
                session.id, found, item.kind if item else "none", cause=self._cause, inputs=inputs
            )
        entries = [session.fold.inputs.get(number) for number in turn.inputs]
        return RecoveryContext(
            session.id,
            found,
            plan.resume.kind,
            partial=own(plan.partial),
            recovery_data=own(turn.stash),
            body=own(turn.body),
            client_tools=turn.client_tools,
            cause=self._cause or session.fold.budget.cause,
            inputs=tuple(own(entry.record) for entry in entries if entry is not None),
        )

    def scheduled(self, found: Incident, left: float) -> None:
        """The next attempt begins later."""
        self._hooks.emit("scheduled", found, retry_after=left)

    def failed(self, error: BaseException) -> None:
        """The store failed while a turn was given up; the next boot does it again."""
        self._hooks.emit("failed", self.judge(self._session.fold, self._session.plan), repr(error))

    def repaired(self, repaired: Repaired) -> None:
        """The history that the model is shown had calls without a result, or inputs that were none. Told once
        a turn, however often it is read."""
        turn = self._session.fold.turn
        if turn != self._repaired_in:
            self._repaired_in = turn
            found = self._under or Incident()
            self._hooks.emit("repaired", found, calls=list(repaired.ids), inputs=repaired.normalized)

    def ended(self, turn: Turn) -> None:
        """A turn that was taken up again has ended, in one way or another."""
        if self._under is not None and turn.item is None and turn.status != "released":
            self._hooks.emit("completed", self._under, turn.status)
        self._under = None


def _later(session_id: str, found: Incident, left: float) -> str:
    return (
        f"session {session_id!r}: interruptions: {found.interruptions}, attempts without progress:"
        f" {found.strikes}; attempt {found.attempt} begins in {left:.0f} s;"
        " do not acknowledge the queue message"
    )


def busy(session_id: str, holder: Holder) -> Busy:
    """The error for a session that a holder, or a pause, keeps."""
    if holder.incident is not None:
        return Busy(_later(session_id, holder.incident, holder.retry_after), retry_after=holder.retry_after)
    return Busy(
        f"session {session_id!r}: run {holder.run} spoke {holder.age:.1f} s ago; do not "
        f"acknowledge the queue message, come back in {holder.retry_after:.0f} s",
        retry_after=holder.retry_after,
    )
