"""A turn being written: chunks in, durable records out, and one of three ends.

    leaving the block          completed; `error` if an error chunk passed; `aborted` after a stop
    leaving by an exception    released: the turn stays open and the next worker goes on
    fail() / abort()           sealed as an error, or as aborted

Each chunk is checked, applied to the fold (the same reducer that a boot runs) and buffered by the writer.
A tool call and a question are durable before `write` returns, so is a tool's result: a side effect must
never be invisible. Everything else is durable within seconds, as the durability preset says;
`durable_id` tells what would survive now.

A turn belongs to one thread. Its own watcher (stops, deadline) is the one other party; a lock stands
between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from streams import keys
from streams.errors import Refused, StreamError, TooLarge
from streams.packing import encode_record
from streams.records import LIMIT, MAX_BATCH
from streams.writer import Flush

from .chunkwriter import Chunk, ChunkWriter
from .core import moves
from .core.calls import Message, calls_of, granted
from .core.cleanup import is_empty
from .core.copies import Copies, own
from .core.openturn import OpenTurn
from .core.queue import Item
from .core.values import clean
from .editing import context_record, history_record, state_record
from .errors import Deadline, Stalled
from .passing import DONE, MADE, Passing, too_late
from .signals import Terminated, guarded
from .spans import TurnSpan
from .watch import Watch

if TYPE_CHECKING:
    from .session import Session


class Turn(Passing):
    """One turn, handed out by `Session.turns()`. Enter it, write its chunks, leave it."""

    def __init__(self, session: Session, item: Item | None, span: TurnSpan, *, claimed: bool) -> None:
        super().__init__()
        self._session = session
        self._lock = session.clock.waiter()  # locks too are the clock's: a simulation sees who waits
        self._chunks = ChunkWriter(session)
        self._copies = Copies()
        self._operations: list[dict[str, Any]] = []
        self._ended = False
        self._error: BaseException | None = None
        self._item = item
        self.span = span
        self.kind: str = session.resume.kind if item is None else item.kind
        self.status: str | None = None
        self._claimed = claimed
        self._answer: list[Message] = []
        self._watch: Watch | None = None
        self._recovery: Any = None
        if claimed:
            self._begin()

    # -- writing ----------------------------------------------------------------------------------

    def write(self, chunk: Any) -> Chunk | None:
        """Write one chunk (a dict or a pydantic model); returns the one to forward to the client, as a dict.

        None for an end marker (`[DONE]`, a dict or model of type `done`), and for a chunk that only repeats
        what an earlier attempt settled. Returns when a tool call, a question or a tool's result is durable;
        else at once.

        Raises ChunkError (a rule of the stream is broken), InvalidValue, TooLarge: nothing was stored and
        the turn can go on. Raises Fenced, Unknown, Deadline: the turn is over for this worker.
        """
        out, barrier = self.write_nowait(chunk)
        if barrier:
            self._session.writer.flush()
        return out

    def write_nowait(self, chunk: Any) -> tuple[Chunk | None, bool]:
        """As `write`, but leaves the waiting to the caller: (chunk to forward, must be flushed first)."""
        with guarded(), self._lock:
            self._check()
            if not self._claimed:
                self._claim()
            return self._chunks.write(chunk)

    def may_block(self, chunk: Any) -> bool:
        """True when to write this may have to talk to the store, or to wait for room, before it returns."""
        session = self._session
        held = session.writer.buffered_bytes >= session.writer.policy.hold_bytes // 2
        return not self._claimed or held or session.deadline_passed() or self._chunks.is_large(chunk)

    def flush(self) -> None:
        """Return when everything written so far is durable."""
        self._session.writer.flush()

    # -- beside the chunks ------------------------------------------------------------------------

    def stash(self, data: Any) -> None:
        """Keep a checkpoint of your own; the next attempt finds the last one as `recovery_data`."""
        self._record({"control": "stash", "data": clean(data)}, Flush.LATER)

    def set_state(self, values: dict[str, Any] | None = None, *, unset: Iterable[str] = ()) -> None:
        """Change the session's state, durable at once."""
        self._operate(state_record(values, unset))

    def set_context(self, upto: str, messages: list[Message]) -> None:
        """Compact: the model sees `messages` in place of everything up to the message `upto`. Raises Refused
        when there is no such message."""
        session = self._session
        self._operate(session.reaching(lambda: context_record(session.id, session.fold, upto, messages)))

    def edit_history(self, op: str, **fields: Any) -> None:
        """One history operation; see `Session.edit_history`."""
        session = self._session
        self._operate(session.reaching(lambda: history_record(session.id, session.fold, op, **fields)))

    def _operate(self, body: dict[str, Any]) -> None:
        """In an action's turn the operations travel with its end, so that they are done once."""
        with guarded(), self._lock:
            self._check()
            if self.kind == "action":
                self._keep(body)
                return
        self._record(body, Flush.NOW)

    def _keep(self, body: dict[str, Any]) -> None:
        """Keep an operation until the action ends. What the log would refuse then is refused now."""
        now = self._session.clock.now_ms()
        sizes = [len(encode_record(keys.MAX, now, operation)) for operation in (*self._operations, body)]
        if sum(sizes) > MAX_BATCH - LIMIT:  # the action's end shares the segment
            raise TooLarge(
                f"the operations of one action take {sum(sizes)} bytes together, the limit is"
                f" {MAX_BATCH - LIMIT}: split the action",
                size=sum(sizes),
                limit=MAX_BATCH - LIMIT,
            )
        self._operations.append(own(body))

    def _record(self, body: dict[str, Any], flush: Flush) -> None:
        with guarded(), self._lock:
            self._check()
            if not self._claimed:
                self._claim()
            self._session.commit([body], flush=flush)

    # -- beginning and ending ---------------------------------------------------------------------

    def _claim(self) -> None:
        """The first write of an action's turn: only now is it known to answer."""
        self._session.open_turn(self._item)
        self._claimed = True
        self._begin()

    def _begin(self) -> None:
        session = self._session
        turn = session.fold.open
        assert turn is not None
        self._recovery = turn.stash
        current = turn.current()
        keeps = turn.slot is not None or not is_empty(current)
        self._answer = [*turn.done, current] if keeps else list(turn.done)
        self._chunks.calls.update(part["toolCallId"] for _, part in calls_of(current) if granted(part))
        session.current = self
        session.writer.reset_pace()
        session.writer.beating = True
        self.span.claimed()
        self._watch = Watch(session, self)
        self._watch.start(session)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._ended:
            raise Refused("this turn has ended; the loop hands out the next one")
        if self._session.deadline_passed():
            self.release("deadline")
            raise self._error or too_late()

    def __enter__(self) -> Turn:
        self.span.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.span.leave()
        if error is None:
            self.complete()
        else:
            self.release(why_of(error), error)  # waits for the watcher, should that be releasing it just now

    def complete(self) -> None:
        """End the turn in good order; what leaving the block does. Returns when it is durable. A stream that
        ended within a text, a tool's input or a step completes it, too, and is reported as `cut-stream`."""
        with guarded(), self._lock:
            if self._ended and self._error is None:
                return
            self._check()
            turn = self._session.fold.open
            if not self._claimed or turn is None:
                self._finish_unanswered()
                return
            self._close(self._status(turn))

    def _status(self, turn: OpenTurn) -> str:
        """How a turn ends whose block is left in good order."""
        if self.stopped or turn.aborted:
            return "aborted"
        streams = {stream.state for stream in self._streams}
        if MADE in streams:
            self.release()
            raise Refused(
                "the stream was never read: iterate `turn.tee(…)` inside the turn's block (a response that"
                " streams later has to hold the block open); the turn was released"
            )
        if streams - {DONE}:
            self._session.note("stream-left", "the stream was left before its end; the turn ends as aborted")
            return "aborted"
        if not self._chunks.written:
            self._session.note("nothing-written", f"turn {turn.turn} ends without a single chunk")
        if turn.error is not None:
            return "error"
        if left := turn.left_open():
            said = f"turn {turn.turn} is completed, but its stream ended within a {left}: cut off?"
            self._session.note("cut-stream", said)
        return "completed"

    def fail(self, error: BaseException | str) -> None:
        """Seal the turn as an error: it is not picked up again. The partial answer is kept."""
        with guarded(), self._lock:
            self._check()
            self._close("error", error=str(error) or type(error).__name__)

    def abort(self, reason: str | None = None) -> None:
        """Seal the turn as aborted. The partial answer is kept."""
        with guarded(), self._lock:
            self._check()
            self._close("aborted", reason=reason)

    def _close(self, status: str, **fields: Any) -> None:
        session = self._session
        if not self._claimed:
            self._claim()
        stops = self._stop_watching()
        self._chunks.end_all_halves()
        session.writer.beating = False
        bodies = [*self._operations, *moves.closing(session.fold, status, stops, **fields)]
        with self.span.closing(status, self._chunks.written):
            session.end_segment(bodies)
        self._end(status)

    def _finish_unanswered(self) -> None:
        """An action without an answer: its operations and its input-applied in one segment."""
        assert self._item is not None
        session = self._session
        bodies = [*self._operations, moves.applied(sorted({*self._item.ids, *session.plan.spent}))]
        with self.span.closing("completed", self._chunks.written):
            session.end_segment(bodies)
        self._end("completed")

    def release(self, why: str = "cancelled", error: BaseException | str | None = None) -> None:
        """Let go in good order: what was written is made durable, and the next worker goes on.

        `why`: error, cancelled, signal, deadline or stall; `error` is what an error or a stall said, for
        whoever asks later why the turn was given up (1,000 characters of it are kept). Never raises: a worker
        that cannot even say that it leaves looks like a dead one, which is safe.
        """
        with guarded(), self._lock:
            if self._ended:
                return
            self._stop_watching()
            self._end("released")
            if why == "deadline":
                self._error = too_late()
            with self.span.closing("released", self._chunks.written, why, error):
                self._let_go(why, error)

    def _let_go(self, why: str, error: BaseException | str | None) -> None:
        session, turn = self._session, self._session.fold.open
        if not self._claimed or turn is None or session.writer.failure is not None:
            return
        session.writer.beating = False
        try:
            body = moves.letting_go(turn.turn, why, error)
            session.commit([body], flush=Flush.NOW, end_segment=True)
        except StreamError as failed:
            session.note("release-failed", str(failed))

    def _stop_watching(self) -> list[int]:
        """Stop the watcher, take in what it read; returns the stops that concern this turn."""
        if self._watch is None:
            return []
        arrived, stops = self._watch.finish()
        self._session.take_in(arrived)
        return stops

    def _end(self, status: str) -> None:
        self._ended, self.status = True, status
        self._session.current = None


def why_of(error: BaseException) -> str:
    """Why a turn that is left by this exception is released."""
    if isinstance(error, Terminated):
        return "signal"
    if isinstance(error, Deadline):
        return "deadline"
    if isinstance(error, Stalled):
        return "stall"
    return "error" if isinstance(error, Exception) else "cancelled"
