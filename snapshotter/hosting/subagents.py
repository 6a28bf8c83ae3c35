"""Sub-agents: a session of its own that works for one tool call of another session's turn.

The child's input bears a key made of its parent's session and call. So when the parent's worker dies and its
next attempt asks again, nothing is asked twice: a child that has answered says the same again without a model
call, one that was interrupted is taken up by its own recovery, with its own budget.

While the child works, its parent hears of it: each milestone, and deltas once in five seconds, become one
data part of the parent's turn (`data-subagent`, under the child's id: one part, however long it takes). It
counts as the parent's progress: a parent whose child gets on is not given up for lack of any. A parent that
is stopped stops its child.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

from snapshotter.core.calls import Message
from snapshotter.core.resume import MODES
from snapshotter.database import Database
from snapshotter.turn import Turn

from .status import Outcome

PROGRESS = "data-subagent"
EVERY = 5.0  # seconds between two reports of deltas
_MILESTONES = frozenset(
    {
        "text-start",
        "reasoning-start",
        "tool-input-available",
        "tool-output-available",
        "tool-output-error",
        "tool-output-denied",
    }
)
_DELTAS = frozenset({"text-delta", "reasoning-delta", "tool-input-delta"})


@dataclass(frozen=True, slots=True)
class ChildState:
    """How a child stands.

    none         it was never asked
    running      a living worker is at it
    recovering   it was interrupted; the next boot goes on with it
    owed         it has inputs that nobody has taken yet, or an answer that only has to be sealed
    waiting      it waits for a person
    ended        `outcome` says how its last turn ended
    """

    state: str
    outcome: Outcome | None = None


class Child:
    """A child session of the turn `parent`, for the tool call `tool_call_id`."""

    def __init__(self, parent: Turn, session_id: str, tool_call_id: str) -> None:
        self.id = session_id
        self.key = f"subagent:{parent.session_id}:{tool_call_id}"
        self._parent = parent
        self._milestones = 0
        self._told = float("-inf")

    def ask(
        self, db: Database, message: Message | str, answer: Callable[[Turn], Iterable[Any]], **options: Any
    ) -> Message | None:
        """Ask the child and run it to its end; its answer, None where it gave none (see `state_of`).

        `answer(turn)` makes the chunks of each of its turns. `options` go to `boot`. Raises Busy while
        another worker is at it, and what `answer` raises; the child's turn is released then.
        """
        receipt = db.send(self.id, message, key=self.key)
        with db.boot(self.id, receipt=receipt, **options) as session:
            for turn in session.turns():
                with turn:
                    for _ in self.tee(turn, answer(turn)):
                        pass
                    if self._parent.stopped:
                        turn.abort("the parent was stopped")
        found = db.outcome(self.id)
        if found is None or found.status != "completed":
            return None
        return next((m for m in reversed(db.history(self.id)) if m["id"] == found.message_id), None)

    def tee(self, turn: Turn, chunks: Iterable[Any]) -> Generator[dict[str, Any], None, None]:
        """As `turn.tee` of the child's turn, telling the parent; ends early when the parent is stopped."""
        for chunk in turn.tee(chunks):
            self._saw(turn, chunk["type"])
            yield chunk
            if self._parent.stopped:
                return

    def _saw(self, turn: Turn, kind: str) -> None:
        milestone = kind in _MILESTONES
        now = turn.now()
        if not milestone and (kind not in _DELTAS or now - self._told < EVERY):
            return
        self._milestones += milestone
        self._told = now
        data = {"session": self.id, "turn": turn.number, "milestones": self._milestones, "last": kind}
        self._parent.write({"type": PROGRESS, "id": self.id, "data": data})


def state_of(db: Database, session_id: str) -> ChildState:
    """How a child stands; what a parent asks before it decides about its own call."""
    session = db.peek(session_id)
    outcome = db.outcome(session_id)
    kind = session.resume.kind
    if session.busy is not None and session.busy.incident is None:
        return ChildState("running", outcome)
    if session.fold.open is not None and (kind in MODES or kind == "none"):
        return ChildState("recovering", outcome)
    if session.pending or kind.startswith("seal"):
        return ChildState("owed", outcome)
    if kind == "waiting":
        return ChildState("waiting", outcome)
    return ChildState("none" if outcome is None else "ended", outcome)
