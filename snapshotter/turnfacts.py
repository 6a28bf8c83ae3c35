"""What a turn knows of itself: the session's fold, seen from the turn that is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .chunkwriter import ChunkWriter
from .core.calls import Message, calls_of
from .core.copies import Copies, own, own_item
from .core.queue import Item
from .core.tool_parts import is_settled
from .watch import Watch

if TYPE_CHECKING:
    from .session import Session
    from .spans import TurnSpan


class TurnFacts:
    """The read-only side of a `Turn`. `kind` is its item's kind, or how it resumes; `status` how it ended.

    Messages, inputs, state and the like are the caller's own copies, made when they are first asked for and
    kept for the turn: a host may change them in place, for its model's sake, and changes nothing here. A copy
    of 1,000 messages takes about 15 ms; it is made anew where the history or the context was edited."""

    kind: str
    status: str | None
    span: TurnSpan
    _session: Session
    _chunks: ChunkWriter
    _answer: list[Message]
    _watch: Watch | None
    _recovery: Any
    _item: Item | None
    _copies: Copies
    _claimed: bool
    _ended: bool

    def __repr__(self) -> str:
        """Where it stands, by what is in memory; of a turn that has ended, how it was."""
        try:
            number, attempt = self.span.number, self.span.attempt
            known = f"turn {number}, attempt {attempt}" if number else "not claimed yet"
            said = f"{self.kind}, {known}, {self.status or 'open'}, {self._chunks.written} chunks"
            return f"<snapshotter.{type(self).__name__} of {self._session.id!r}: {said}>"
        except AttributeError:  # it is being made
            return f"<snapshotter.{type(self).__name__}>"

    @property
    def session_id(self) -> str:
        return self._session.id

    def now(self) -> float:
        """Seconds on the session's clock that never go back; for intervals."""
        return self._session.clock.monotonic()

    @property
    def number(self) -> int:
        """The turn's number in the session, from 1."""
        turn = self._session.fold.open
        if turn is not None and (self._claimed or self._ended):
            return turn.turn
        return self._session.fold.turn + (0 if self._claimed else 1)

    @property
    def item(self) -> Item | None:
        """What the turn answers; None for one that is taken up again."""
        item = self._item
        return None if item is None else self._copies.get("item", [item], lambda: own_item(item))

    @property
    def attempt(self) -> int:
        turn = self._session.fold.open
        return turn.attempt if turn is not None else 1

    @property
    def message_id(self) -> str:
        """The id of the assistant message that the turn produces now; "" before an action's first chunk."""
        turn = self._session.fold.open
        return turn.message_id if turn is not None else ""

    @property
    def message(self) -> Message | None:
        """The message as a client shows it now."""
        turn = self._session.fold.open
        return own(turn.current()) if turn is not None else None

    @property
    def messages(self) -> list[Message]:
        """What the model should see: the history (a compacted context in its place), the inputs that this
        turn answers, and what an interrupted attempt left of the answer. Repaired, without what providers do
        not want to see again; in a resumed turn the model is told how to go on. A new list each time."""
        session, fold = self._session, self._session.fold
        sources = [*fold.chain.messages, *self._answer, *(fold.open.asked if fold.open else ()), fold.context]
        resumed = self.kind if self._item is None else None
        return list(self._copies.get("messages", sources, lambda: session.model_view(self._answer, resumed)))

    def settled(self, tool_call_id: str) -> int:
        """How many calls with this id the turn's answer holds that have their result: ids are not unique."""
        turn = self._session.fold.open
        messages = [*turn.done, turn.current()] if turn is not None else []
        calls = [part for message in messages for _, part in calls_of(message)]
        return sum(part["toolCallId"] == tool_call_id and is_settled(part) for part in calls)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The in records that this turn answers."""
        records = self._records()
        return list(self._copies.get("inputs", records, lambda: records))

    def _records(self) -> list[dict[str, Any]]:
        fold = self._session.fold
        if self._item is not None:
            return list(self._item.inputs)
        taken = fold.open.inputs if fold.open is not None else []
        return [entry.record for n in taken if (entry := fold.inputs.get(n)) is not None]

    @property
    def body(self) -> Any:
        """The request's own body, as the sender gave it; None where there was none."""
        turn = self._session.fold.open
        body = turn.body if turn is not None else None
        if body is None:  # one that did not fit into the turn's own record is still in its sender's
            body = next((r["body"] for r in reversed(self._records()) if r.get("body") is not None), None)
        return self._copies.get("body", [body], lambda: body)

    @property
    def state(self) -> dict[str, Any]:
        """The session's state; `set_state` changes it."""
        return self._session.state

    @property
    def recovery_data(self) -> Any:
        """The last `stash` of the attempts before this one."""
        return self._copies.get("recovery", [self._recovery], lambda: self._recovery)

    @property
    def stopped(self) -> bool:
        """True once somebody asked to stop this turn. Asked for about once a second."""
        return self._watch is not None and self._watch.stopped

    @property
    def durable_id(self) -> int:
        """The id of the last record of the out log that would survive now."""
        return self._session.writer.durable_id

    @property
    def dropped(self) -> int:
        """Chunks that were dropped because they only repeated what an earlier attempt settled."""
        return self._chunks.dropped

    @property
    def open(self) -> bool:
        """True until the turn has ended in one way or another."""
        return not self._ended

    @property
    def streaming(self) -> bool:
        """True while a text grows."""
        return self._chunks.streaming

    @property
    def at_work(self) -> bool:
        """True while a tool call is open."""
        return bool(self._chunks.calls)

    @property
    def idle(self) -> float:
        """Seconds since the last chunk."""
        return self._chunks.idle
