"""The one reducer: records of both logs → the state of a session.

Inputs are fed first (`feed`), in the order of their ids; then records of the out log are applied
(`apply`). The in log is a look-up table: an input has an effect only where a record of the out log names
it, so nothing depends on how the two logs interleave in time.

The same object serves every purpose. A boot feeds it a snapshot and a tail; a rebuild feeds it both whole
logs; a worker applies each record that it is about to write; a live view applies records as they become
durable. Nothing else computes history, which is why these all agree:

    fold(snapshot at k, tail after k) == fold(nothing, whole log)

Feeding a record at or below the cursor changes nothing. A record that makes no sense where it stands is
skipped and reported; a record that is missing is a Gap. The fold raises nothing else, except, when it is
`strict` (a worker writing a live turn), ChunkError for a chunk that breaks a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streams.errors import Gap

from . import edits, lifetime
from .accumulator import Accumulator
from .apart import Unread, held_apart
from .calls import Message, calls_of, granted
from .chain import Chain, free_id
from .chunks import validate
from .cleanup import kept_on_drop, stands
from .controls import from_middle, mended
from .inputs import InputLog
from .late import late_output
from .ledger import Ledger
from .openturn import OpenTurn

_OUTPUTS = frozenset({"tool-output-available", "tool-output-error"})
_AFTER_DELETE = ("fence", "heartbeat", "session-deleted")
_COUNTED = ("turn-start", "turn-complete", "turn-release", "fence")  # these tell the budget themselves
_REPORT_LIMIT = 1_000
_UNFINISHED = 64

Record = dict[str, Any]


class Fold:
    """The state of one session, and the reducer that moves it. Not safe to share between threads."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.chain = Chain()
        self.inputs = InputLog()
        self.open: OpenTurn | None = None
        self.claim: Record | None = None
        self.cursor = 0
        self.timestamp = 0
        self.epoch = 0
        self.run = ""
        self.turn = 0
        self.last_turn: dict[str, Any] | None = None
        self.unfinished: list[str] = []
        self.state: dict[str, Any] = {}
        self.context: dict[str, Any] | None = None
        self.closed = False
        self.deleted = False
        self.report: list[dict[str, Any]] = []
        self.reported = 0
        self.placed: dict[int, str] = {}
        self.budget = Ledger()
        self._record = 0

    # -- feeding ----------------------------------------------------------------------------------

    def note(self, code: str, detail: str) -> None:
        """Add a line to the report; past a thousand they are only counted."""
        self.reported += 1
        if len(self.report) < _REPORT_LIMIT:
            self.report.append({"code": code, "id": self._record, "detail": detail})

    def feed(self, record: Record) -> None:
        """Take the next record of the in log. Those between that are known as applied may be left out. Raises
        Gap where another is missing."""
        number = record["id"]
        hole = self.inputs.hole_below(number)
        if hole is not None:
            missing = (hole, number - 1)
            raise Gap(f"in log: inputs {missing[0]} to {missing[1]} are missing", log="in", missing=missing)
        if "ref" in record:
            self._know_ref(record)
        entry = self.inputs.feed(record)
        if entry is None:
            return
        self._record = number
        if entry.duplicate_of is not None:
            self.note("duplicate-input", f"same key and body as input {entry.duplicate_of}; answered once")
        elif entry.conflict_with is not None:
            self.note("key-conflict", f"same key as input {entry.conflict_with} with another body")

    def apply(self, record: Record) -> bool:
        """Apply the next record of the out log. False when it was skipped. Raises Gap."""
        number, cuts = record["id"], record.get("cuts")
        last = number + len(cuts) - 1 if cuts else number
        if number != self.cursor + 1:
            if last <= self.cursor:
                return False
            if number > self.cursor + 1:
                missing = (self.cursor + 1, number - 1)
                raise Gap(
                    f"out log: records {missing[0]} to {missing[1]} are missing", log="out", missing=missing
                )
            record = from_middle(record, self.cursor + 1 - number)
            number = self.cursor + 1
        chunk = record.get("chunk")
        if chunk is None:
            edits.check_named(self, record)
        if chunk is not None:
            kept = self._stored(number, record, chunk)
            self.cursor = last
            return kept
        self._record = number
        known = self._control(record)
        self.cursor = last
        return known

    def _stored(self, number: int, record: Record, chunk: Any) -> bool:
        """Apply the chunk that a record holds."""
        self._record = number
        if self.open is not None and type(chunk) is dict:
            self.budget.chunk(record.get("ts"), chunk)
        return self.chunk(number, chunk)

    def replay(self, records: Iterable[Record]) -> None:
        """Apply records in order, as `apply` does. Nearly all of a log are chunks of the open message: those
        take a short way, and are counted for the budget only if the turn does not complete. Raises Gap."""
        expect, turn, told = self.cursor + 1, self.open, self.budget.aside.append
        append = turn.acc.append if turn is not None else _never
        for record in records:
            chunk = record.get("chunk")
            if chunk is None or record["id"] != expect or turn is None:
                self.cursor = expect - 1
                self.apply(record)
                expect, turn = self.cursor + 1, self.open
                append = turn.acc.append if turn is not None else _never
                continue
            told(record)
            if not append(chunk):
                self._record, self.cursor = expect, expect - 1
                self._other(turn, expect, chunk)
                append = turn.acc.append
            cuts = record.get("cuts")
            expect += len(cuts) if cuts else 1
        self.cursor = expect - 1
        self.budget.trim()

    def _control(self, record: Record) -> bool:
        if "ref" in record:
            self._know_ref(record)
        record, wrong = mended(record)
        if wrong:
            self.note("mended-control", f"{record.get('control')!r}: wrong type of {', '.join(wrong)}")
        self.timestamp = record.get("ts", self.timestamp)
        name = record.get("control", "")
        handler = _CONTROLS.get(name)
        if handler is None:
            self.note("unknown-control", f"control {name!r} is not known here; kept, skipped")
        elif self.deleted and name not in _AFTER_DELETE:
            self.note("after-delete", f"{name} after the session was deleted; skipped")
            lifetime.pass_over(self, record)
            return False
        else:
            handler(self, record)
            if name not in _COUNTED:
                self.budget.touch(record, heartbeat=name == "heartbeat")
        return handler is not None

    # -- chunks -----------------------------------------------------------------------------------

    def chunk(self, number: int, chunk: Any) -> bool:
        """Apply one chunk to the open turn. False when it is dropped: it must not be stored then."""
        turn = self.open
        if turn is None:
            self.note("chunk-outside-turn", "a chunk of no open turn; skipped")
            return False
        if turn.acc.append(chunk):
            return True
        return self._other(turn, number, chunk)

    def _other(self, turn: OpenTurn, number: int, chunk: Any) -> bool:
        """As `chunk`, one that the open message does not append."""
        kind = chunk.get("type") if type(chunk) is dict else None
        if type(kind) is not str:
            return turn.acc.take(chunk)
        if kind == "start":
            self._start(turn, number, chunk)
            kept = True
        elif kind in _OUTPUTS and not turn.acc.knows_call(chunk.get("toolCallId")):
            kept = late_output(self, turn, chunk) or turn.acc.take(chunk)
        else:
            kept = turn.acc.take(chunk)
        if kept:
            turn.note(kind, chunk)
        return kept

    def start_id(self, chunk: Record, number: int) -> str:
        """The id that the turn's message bears after this `start`, were it record `number`."""
        turn = self.open
        assert turn is not None
        given, own = chunk.get("messageId"), turn.message_id
        if not isinstance(given, str) or not given or given == own or turn.alias.get(given) == own:
            return own
        target = own
        if turn.started or turn.may_rename:
            held = (lambda i: i != own and self.held(i)) if not turn.started else self.held
            target = free_id(given, f"msg-{number}", held)
        return target

    def _start(self, turn: OpenTurn, number: int, chunk: Record) -> None:
        if self.strict:
            validate(chunk, turn.acc.at + 1)
        target, given = self.start_id(chunk, number), chunk.get("messageId")
        if target != turn.message_id and isinstance(given, str) and target != given:
            self.note("id-held", f"message id {given!r} is held; {target!r} is used")
        if target != turn.message_id and turn.started:
            turn.next_message(target, self.accumulator)
        # Ids are decided here; what is left for the accumulator is the metadata.
        turn.acc.at += 1
        turn.acc.apply_start(chunk, reset=False)
        turn.acc.set_id(target)
        if isinstance(given, str):
            turn.alias[given] = target  # a later start with this id means this message
        turn.started = True

    def accumulator(self, message: Message, frozen: int) -> Accumulator:
        return Accumulator(
            message,
            strict=self.strict,
            report=self.note,
            frozen_parts=frozen,
        )

    # -- turns ------------------------------------------------------------------------------------

    def _turn_start(self, record: Record) -> None:
        if self.closed and record.get("epoch", 0) <= self.epoch:
            self.note("turn-after-end", "a turn-start after the session was closed; skipped")
            return
        self.take_over(record)
        turn = self.open
        if turn is not None and turn.turn == record.get("turn"):
            turn.begin_attempt(record, self.accumulator)
            self._rename(turn, record)
            self.budget.start(record, turn.turn, turn.inputs, again=True)
            return
        if turn is not None:
            self.interrupt(turn)
        turn = edits.open_turn(self, record)
        # Only a message that is continued has calls already.
        calls = calls_of(turn.current()) if turn.seed else ()
        running = [part["toolCallId"] for _, part in calls if granted(part)]
        self.budget.start(record, turn.turn, turn.inputs, again=False, running=running)

    def _rename(self, turn: OpenTurn, record: Record) -> None:
        """A later attempt names the id that the turn's last message bears; a foreign one is taken over
        where it is free."""
        named = record.get("messageId")
        if isinstance(named, str) and named and named != turn.message_id and not self.held(named):
            turn.acc.set_id(named)

    def interrupt(self, turn: OpenTurn) -> None:
        """Close the open turn, behind which something stands that leaves no turn open."""
        self.note("turn-left-open", f"turn {turn.turn} was open; closed as interrupted")
        self._close("interrupted", {})

    def take_over(self, record: Record) -> None:
        """Who writes from here on."""
        epoch = record.get("epoch", 0)
        if epoch > self.epoch:
            self.epoch = epoch
        self.run = record.get("run", self.run)
        self.claim = None

    def _turn_complete(self, record: Record) -> None:
        if self.open is None or self.open.turn != record.get("turn"):
            self.note("close-outside-turn", f"turn-complete of turn {record.get('turn')}, not open; skipped")
            return
        self._close(record.get("status", "completed"), record)

    def _close(self, status: str, record: Record) -> None:
        turn = self.open
        assert turn is not None
        finals = turn.finals(clean=status != "completed")
        if record.get("keep") is False:
            if status == "completed":
                finals[-1] = kept_on_drop(turn.current(), turn.seed)
            else:
                cleaned = turn.cleaned()
                finals[-1] = kept_on_drop(cleaned.message, cleaned.seed)
        keep = [m for m in finals if stands(m, clean=status != "completed")]
        if turn.slot is None:
            for message in (*turn.asked, *keep):
                self.chain.append(message)
        else:
            if keep != [self.chain.messages[turn.slot]]:
                self.touch(turn.slot)
            if len(keep) == 1:
                self.chain.set(turn.slot, keep[0])
            else:
                self.chain.splice(turn.slot, turn.slot + 1, keep)
            for message in turn.asked:
                self.chain.append(message)
        self.open = self.claim = None
        self.budget.close(status, turn.message_id)
        self.inputs.apply(turn.inputs)
        edits.place_after(self, turn.after)
        if status == "interrupted":
            self.placed = {**self.placed, **{number: turn.placed.get(number, "") for number in turn.inputs}}
        else:
            self.placed = {}
        if status != "completed":
            self.unfinished = [*self.unfinished, *(m["id"] for m in keep)][-_UNFINISHED:]
        self.last_turn = {"turn": turn.turn, "status": status, "messageId": turn.message_id}
        for name in ("finishReason", "error", "reason", "detail"):
            if record.get(name) is not None:
                self.last_turn[name] = record[name]

    def _turn_release(self, record: Record) -> None:
        if "turn" not in record:
            self.claim = None
            self.budget.touch(record)
        elif self.open is not None and self.open.turn == record["turn"]:
            self.open.released = record.get("why", "error")
            self.budget.release(record)

    def _stash(self, record: Record) -> None:
        if self.open is None:
            self.note("stash-outside-turn", "a stash of no open turn; skipped")
        else:
            self.open.stash = record.get("data")

    # -- the session ------------------------------------------------------------------------------

    def _heartbeat(self, _record: Record) -> None:
        """Keeps a lease, changes nothing."""

    def _know_ref(self, record: Record) -> None:
        """A record whose message is stored apart, and was put back in its place: the reference is kept, so
        that the message is never written again. Raises Unread where it was not put back. An input may lack it
        for as long as nothing is taken from there."""
        held = held_apart(record)
        if held is None:
            return
        if held in record:
            self.chain.apart.note(record[held], record["ref"])
        elif "kind" not in record:
            raise Unread(record)

    # -- what the parts of the reducer share ---------------------------------------------------------

    def held(self, message_id: str) -> bool:
        """True when the id may not be given to another message."""
        if self.chain.holds(message_id):
            return True
        return self.open is not None and message_id in self.open.ids()

    def change(self, position: int, message: Message) -> None:
        """Replace a settled message; a compacted context that covers it goes."""
        self.chain.set(position, message)
        self.touch(position)

    def touch(self, position: int) -> None:
        """Something at this position of the chain changed: drop a context that covers it."""
        if self.context is not None:
            upto = self.chain.find(self.context["upto"])
            if upto is None or position <= upto:
                self.context = None


def _never(_chunk: Any) -> bool:
    """The short way where no turn is open: there is none."""
    return False


_CONTROLS: dict[str, Callable[[Fold, Record], None]] = {
    "turn-start": Fold._turn_start,
    "turn-complete": Fold._turn_complete,
    "turn-release": Fold._turn_release,
    "stash": Fold._stash,
    "state": lifetime.set_state,
    "context": edits.set_context,
    "history": edits.edit_history,
    "input-applied": edits.apply_inputs,
    "fence": lifetime.fence,
    "heartbeat": Fold._heartbeat,
    "session-closed": lifetime.close_session,
    "session-deleted": lifetime.delete_session,
}
