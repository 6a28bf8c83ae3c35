"""Sub-agents: a session of its own that works for one tool call of another session's turn.

The child's input bears a key made of its parent's session, turn and call, and of the question. So when the
parent's worker dies and its next attempt asks again, nothing is asked twice: a child that has answered says
the same again without a model call, one that was interrupted is taken up by its own recovery, with its own
budget. Call ids are not unique: the same one in another turn, or in a later step, is another call. And a
child may be asked many things: what `ask` returns is the answer to its own question, not the last one given.

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
from snapshotter.core.inputs import body_hash
from snapshotter.core.resume import MODES
from snapshotter.core.values import clean, to_plain
from snapshotter.database import Database
from snapshotter.session import Session
from snapshotter.turn import Turn

from .status import Outcome, outcome_of

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
    """A child session of the turn `parent`, for the tool call `tool_call_id` that is at work in it."""

    def __init__(self, parent: Turn, session_id: str, tool_call_id: str) -> None:
        self.id = session_id
        place = parent.settled(tool_call_id)  # calls of this id that came before
        self.key = f"subagent:{parent.session_id}:{parent.number}:{tool_call_id}:{place}"
        self._parent = parent
        self._milestones = 0
        self._told = float("-inf")

    def ask(
        self, db: Database, message: Message | str, chunks_of: Callable[[Turn], Iterable[Any]], **options: Any
    ) -> Message | None:
        """Ask the child and run it to its end; its answer to this message, None where it gave none (see
        `state_of`).

        `chunks_of(turn)` returns the chunks of each of its turns. `options` go to `boot`. Raises Busy while
        another worker is at it, and what `chunks_of` raises; the child's turn is released then. Raises Gap
        where the answer was given before, and the child's log is trimmed since.
        """
        key = f"{self.key}:{_digest(message)}"  # a model that is asked again may ask something else
        receipt = db.send(self.id, message, key=key)
        found: Ended | None = None
        with db.boot(self.id, receipt=receipt, **options) as session:
            own = _copies(session, receipt.id)
            for turn in session.turns():
                mine = not own.isdisjoint(record["id"] for record in turn.inputs)
                with turn:
                    for _ in self.tee(turn, chunks_of(turn)):
                        pass
                    if self._parent.stopped:
                        turn.abort("the parent was stopped")
                last = outcome_of(session.fold)
                if mine and last is not None:
                    found = Ended(last.status, last.message_id)
            if found is None and session.applied(receipt.id):
                found = _ended(db, self.id, own)
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


@dataclass(frozen=True, slots=True)
class Ended:
    """How the turn ended that answered a question, and the id of its answer."""

    status: str
    message_id: str


def _digest(message: Message | str) -> str:
    plain = clean(message if isinstance(message, str) else to_plain(message), "message")
    return body_hash({"kind": "message", "message": plain})


def _copies(session: Session, number: int) -> set[int]:
    """An input, and the first one where it only repeats that."""
    entry = session.fold.inputs.get(number)
    first = entry.duplicate_of if entry is not None else None
    return {number} if first is None else {number, first}


def _ended(db: Database, session_id: str, numbers: set[int]) -> Ended | None:
    """How the last turn ended that took one of these inputs, as the log says."""
    found: Ended | None = None
    named: str | None = None
    for record in db.records(session_id, "out"):
        control, chunk = record.get("control"), record.get("chunk")
        if control == "turn-start":
            named = None if numbers.isdisjoint(record["inputs"]) else record["messageId"]
        elif named is not None and control == "turn-complete":
            found = Ended(record["status"], named)
        elif named is not None and chunk is not None and chunk["type"] == "start":
            named = chunk.get("messageId", named)
    return found


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
