"""The writing side of a session: its writer, what it commits, the snapshot, edits.

The log's writer is made at the first write, which takes the log over. Everything that is written goes through
the same reducer that a boot runs, so the fold is at any time what the next boot would find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from streams.errors import Closed, InvalidValue, Refused, StreamError
from streams.records import Cursor
from streams.writer import LIVE, STEPS, STREAM, Flush, Writer

from . import values
from .core import moves, reach
from .core.blocks import Sizes
from .core.calls import Message
from .core.chain import Unloaded
from .core.chunks import delta_of
from .core.copies import own
from .core.revive import revive
from .core.snapshot import encode
from .editing import context_record, history_record, state_record
from .found import Found
from .keeping import Keeper
from .signals import guarded
from .spans import editing, saving

if TYPE_CHECKING:
    from .turn import Turn

T = TypeVar("T")
Large = list[tuple[dict[str, Any], bytes]]

_OWN = ("id", "ts")

POLICIES = {"stream": STREAM, "live": LIVE, "steps": STEPS}
LEASE_STREAMING = 15
LEASE = 45
SILENCE = 15 * 60.0  # seconds without a chunk after which the lease is kept no longer, with no deadline
SILENCE_IN_TOOL = 60 * 60.0


class Scribe(Found):
    """A session that can be written to. `current` is the turn under way."""

    durability: str
    run: str
    current: Turn | None
    sizes: Sizes
    _position: Cursor
    _keeper: Keeper
    _readable: bool
    _hydrated: bool
    _checkpoint: tuple[bytes, int] | None
    _date_ms: int | None
    _deadline: float | None
    _writer: Writer | None
    _epoch: int
    _claiming: bool
    _looked: bool
    _over: bool
    _apart_bytes: int
    _before_write: Callable[[], None]

    @property
    def _claims(self) -> bool:
        """True while this worker's claim stands and no turn has come of it."""
        return self.fold.claim is not None and self.fold.claim.get("run") == self.run

    @property
    def writer(self) -> Writer:
        """The log's writer. The first use takes the log over: the epoch grows by one."""
        if self._writer is None:
            self._before_write()
            self._epoch = self.fold.epoch + 1
            self._writer = Writer(
                self.store,
                self.sid,
                position=self._position,
                epoch=self._epoch,
                run=self.run,
                delta_of=delta_of,
                policy=POLICIES[self.durability],
                lease=self._lease,
                may_beat=self._may_beat,
                patience=self._patience,
                date_ms=self._date_ms,
            )
        return self._writer

    def commit(self, bodies: list[dict[str, Any]], *, flush: Flush, end_segment: bool = False) -> None:
        """Write control records that belong together, then apply them. Raises as `Writer.append`."""
        if self._over:
            raise Refused(f"session {self.id!r} was closed here; boot it again to go on")
        self.reaching(lambda: reach.check(self.fold, bodies))
        with guarded():
            moved = [self.stored(body) for body in bodies]
            stored, large = [body for body, _ in moved], [pair for _, pairs in moved for pair in pairs]
            flush = Flush.NOW if large else flush
            last = self.writer.append_batch(stored, flush=flush, end_segment=end_segment)
            now, told = self.clock.now_ms(), len(self.fold.report)
            # Heartbeats, which change nothing, may stand between what was applied and this.
            self.fold.cursor = last - len(bodies)
            for number, body in enumerate(bodies, self.fold.cursor + 1):
                ref = {name: value for name, value in stored[number - last - 1].items() if name == "ref"}
                # A caller may hold what is in the body.
                self.fold.apply({"id": number, "ts": now, **own(body), **ref})
            self._tell_new(bodies, told)
            self.confirm(large)

    def _tell_new(self, bodies: list[dict[str, Any]], told: int) -> None:
        """Log what the report says of what was just written, from its line `told` on: an answer that nothing
        waits for, an edit without its message … Nobody else will: the next boot reads none of this."""
        spent = {n for body in bodies if body.get("control") == "input-applied" for n in body["inputs"]}
        for line in self.plan.missed:
            if line["id"] in spent:
                self.fold.note(line["code"], f"input {line['id']}: {line['detail']}")
        for line in self.fold.report[told:]:
            self.log_note(line["code"], line["detail"])

    def stored(self, body: dict[str, Any]) -> tuple[dict[str, Any], Large]:
        """The body as it is stored, and what of it was stored apart for that. Raises TooLarge before
        anything is written, InvalidValue, and what requests raise."""
        record = {"id": self.writer.next_id, "ts": self.clock.now_ms(), **body}
        moved, large = values.moved(self.store, self.sid, record, self.sizes.value)
        return (body if moved is record else {name: moved[name] for name in moved if name not in _OWN}), large

    def confirm(self, large: Large) -> None:
        """The record that names this is durable: see `values.confirm`."""
        for ref, data in large:
            values.confirm(self.store, self.sid, "out", ref, data)
            self._apart_bytes += ref["bytes"]

    def reaching(self, call: Callable[[], T]) -> T:
        """What the call returns, once as much of the history has been read as it needs."""
        while True:
            try:
                return call()
            except Unloaded:
                self._keeper.widen()

    def replan(self) -> None:
        """The plan of the fold as it stands now."""
        self.plan = self.reaching(lambda: revive(self.fold))

    def end_segment(self, bodies: list[dict[str, Any]]) -> None:
        """Write records that end a turn, or stand between two, and save the snapshot. What came in meanwhile
        has to be looked for then."""
        self.commit(bodies, flush=Flush.NOW, end_segment=True)
        self._looked = False
        self.save()

    def save(self) -> None:
        """Save the snapshot. What goes wrong is reported, never raised: the log is the truth."""
        if self.fold.open is not None or self.fold.claim is not None or self.fold.budget.claims:
            return
        if not self._readable:
            self.note("snapshot-not-saved", "the stored snapshot could not be read and is not overwritten")
            return
        if self._hydrated:
            self._save_cursor()
            return
        position, written = self.writer.position, self.writer.bytes_written + self._apart_bytes
        self.fold.cursor = position.id  # a last heartbeat may stand behind what was applied
        if self._keeper.is_due(written):
            self._try_to_save(lambda: self._keeper.save(position, written))

    def _encode_cursor(self, at: Cursor) -> bytes | None:
        """The snapshot document of a session whose history somebody else owns, at this place of the out log;
        None, and reported, where there is no such document."""
        now = self.clock.now_ms()
        try:
            return encode(self.fold, at.nonce, now, session=self.sid, first=at.first, hydrated=True)
        except InvalidValue as error:
            self.note("snapshot-not-saved", str(error))
            return None

    def _save_cursor(self) -> None:
        """Somebody else owns the history: move the cursor up to where they were seen to hold all of it."""
        if self._checkpoint is not None:
            data, cursor = self._checkpoint
            self._try_to_save(lambda: self._keeper.save_document(data, cursor))
            self._checkpoint = None

    def _try_to_save(self, save: Callable[[], None]) -> None:
        try:
            with saving(self.store):
                save()
        except StreamError as error:
            self.note("snapshot-not-saved", str(error))

    def _lease(self) -> int:
        turn = self.current
        if turn is None and not self._claiming:
            return LEASE if self._claims else 0
        streaming = turn is not None and turn.streaming and self.durability != "steps"
        return LEASE_STREAMING if streaming else LEASE

    def _may_beat(self) -> bool:
        turn = self.current
        if turn is None:
            return False
        if self._deadline is not None:
            return not self.deadline_passed()
        return turn.idle < (SILENCE_IN_TOOL if turn.at_work else SILENCE)

    def _patience(self) -> float:
        left = self.deadline_left()
        return 60.0 if left is None else max(1.0, min(60.0, left))

    def deadline_left(self) -> float | None:
        """Seconds until the turn has to be released; None without a deadline."""
        return None if self._deadline is None else self._deadline - self.clock.monotonic()

    def deadline_passed(self) -> bool:
        left = self.deadline_left()
        return left is not None and left <= 0

    # -- editing ------------------------------------------------------------------------------------

    def set_state(self, values: dict[str, Any] | None = None, *, unset: Iterable[str] = ()) -> None:
        """Change the session's state, durable at once."""
        self._edit([state_record(values, unset)])

    def set_context(self, upto: str, messages: list[Message]) -> None:
        """Compact: the model sees `messages` in place of everything up to the message `upto`; the history
        stays whole. Raises Refused when there is no such message."""
        self._edit([self.reaching(lambda: context_record(self.id, self.fold, upto, messages))])

    def edit_history(self, op: str, **fields: Any) -> None:
        """Edit the settled history, durable at once.

        `put` (message) · `remove` (message_id) · `truncate-after` (message_id) · `replace` (messages) ·
        `clear`. Raises Refused for a message of an open turn (use edit, stop or takeover) or an unknown one.
        """
        self._edit([self.reaching(lambda: history_record(self.id, self.fold, op, **fields))])

    def redact(self, inputs: list[int], op: str | None = None, **fields: Any) -> None:
        """Redact the messages that these inputs bring (`core.redacted`), and edit the history with it, as
        `edit_history` does: durable at once, together."""
        applied = [number for number in inputs if self.fold.inputs.is_applied(number)]
        said = [{"control": "history", "op": "redact", "inputs": inputs, "applied": applied}]
        if op is not None:
            said.append(self.reaching(lambda: history_record(self.id, self.fold, op, **fields)))
        self._edit(said)

    def _edit(self, bodies: list[dict[str, Any]]) -> None:
        if self.fold.deleted:
            raise Closed(f"session {self.id!r} is deleted")
        if self._writer is None:
            bodies = [self._fence(), *bodies]
        writer = self.writer
        with editing(self.store):
            self.commit(bodies, flush=Flush.NOW, end_segment=self.fold.open is None)
            if self.fold.open is None and writer.failure is None:
                self.save()
        self.replan()

    def clear(self) -> None:
        """Empty the history, durable at once: an interrupted turn is sealed as aborted, and every message,
        edit, regenerate, answer and stop that is still owed is spent. Actions and a close stay owed, so does
        the session's state. Raises Refused while a turn of this session is under way."""
        if self.current is not None:
            raise Refused(f"a turn of session {self.id!r} is under way: end it, then clear")
        fence = [] if self._writer is not None else [self._fence()]
        with editing(self.store):
            self.end_segment([*fence, *moves.clearing(self.fold)])
        self.replan()

    def _fence(self) -> dict[str, Any]:
        """The record that takes the log over for an edit."""
        assert self.writer is not None
        return {"control": "fence", "epoch": self._epoch, "run": self.run, "why": "edit"}

    # -- leaving ------------------------------------------------------------------------------------

    def close(self, why: str = "cancelled", error: BaseException | None = None) -> None:
        """Let go of the session; an open turn is released, for `why` and `error` (see `Turn.release`)."""
        if self.current is not None:
            self.current.release(why, error)
        if self._writer is not None and self._claims and self._writer.failure is None:
            self._take_back(why)
        if self._writer is not None:
            self._writer.close(flush=False)
        self._over = True

    def _take_back(self, why: str) -> None:
        """A claim of which no turn came leaves in good order."""
        assert self._writer is not None
        self._writer.beating = False
        try:
            self.fold.claim = None  # promises nothing more
            self.commit([{"control": "turn-release", "why": why}], flush=Flush.NOW, end_segment=True)
        except StreamError as error:
            self.note("release-failed", str(error))
