"""The budget without the history: enough of a fold to judge, from the head of a snapshot and the tail.

Where loading a session kills its worker, the deaths have to be counted by something that loads next to
nothing. A tally keeps the ledger, the open turn's inputs and which inputs are applied; no message, no text.
Its verdict is the fold's where loading has killed; what only messages can tell (an open turn that needs
nothing but its end) it does not know, and so it is asked only about those deaths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .budget import Incident, Limits, evaluate
from .controls import ANEW, mended
from .ledger import Ledger
from .moves import given_up
from .snapshot import is_whole

Record = dict[str, Any]

_HEAD = re.compile(
    rb'\{"version":1,"savedAt":\d+,"lastOutEventId":"(\d+)","lastOutNonce":"([^"\\]*)","lastInEventId":"(\d+)",'
    rb'"inApplied":\[([\d,]*)\],"epoch":(\d+),"turn":(\d+),(?:"run":"[^"\\]*","session":"([^"\\]*)")?'
)
_TAIL = re.compile(
    rb'"closed":(true|false),"deleted":(true|false)(?:,"hydrated":true)?(?:,"crc":\d+)?\}\s*\Z'
)
_LONGEST_TAIL = 128
_CONTINUING = ("signal", "deadline")


@dataclass(slots=True)
class Tally:
    """See the module. Feed it the records above its cursor in order."""

    cursor: int = 0
    nonce: str = ""
    applied_upto: int = 0
    applied: set[int] = field(default_factory=set)
    epoch: int = 0
    turn: int = 0
    ended: bool = False
    deleted: bool = False
    open: Record | None = None
    inputs: list[int] = field(default_factory=list)
    attempt: int = 0
    released: str | None = None
    ledger: Ledger = field(default_factory=Ledger)

    @classmethod
    def of_snapshot(cls, data: bytes | None, session: str = "") -> Tally | None:
        """A tally that stands where the snapshot was taken; None for one that some other writer laid out, and
        for one that has to be called corrupt. `session`: the encoded session id."""
        if data is None:
            return cls()
        found = _HEAD.match(data)
        ends = _TAIL.search(data[-_LONGEST_TAIL:])
        if found is None or ends is None or not is_whole(data):
            return None
        cursor, nonce, upto, applied, epoch, turn, named = found.groups()
        if session and named is not None and named.decode() != session:
            return None
        above = {int(n) for n in applied.split(b",") if n}
        tally = cls(int(cursor), nonce.decode(), int(upto), above, int(epoch), int(turn))
        tally.ended, tally.deleted = b"true" in ends.groups(), ends[2] == b"true"
        return tally

    def apply(self, record: Record) -> None:
        """The next record of the out log."""
        chunk = record.get("chunk")
        if chunk is not None:
            if self.open is not None and type(chunk) is dict:
                self.ledger.chunk(record.get("ts"), chunk)
            return
        record, _ = mended(record)
        name = str(record.get("control"))
        if self.deleted and record.get("why") not in ANEW:
            self.epoch = max(self.epoch, record.get("epoch", 0))
            return
        known = _CONTROLS.get(name)
        if known is not None:
            known(self, record)
        else:
            self.ledger.touch(record, heartbeat=name == "heartbeat")

    def _complete(self, record: Record) -> None:
        if self.open is not None and record.get("turn") == self.turn:
            self._close(record.get("status", "completed"))

    def _release(self, record: Record) -> None:
        if "turn" not in record:
            self.ledger.touch(record)
        elif self.open is not None and record["turn"] == self.turn:
            self.released = record.get("why", "error")
            self.ledger.release(record)

    def _fence(self, record: Record) -> None:
        self.epoch = max(self.epoch, record.get("epoch", 0))
        self.ledger.fence(record)
        if record.get("why") in ANEW:
            self.applied_upto = max(self.applied_upto, record.get("for", 0))
            self.ledger.reset()
        if record.get("why") == "create":
            self.ended = self.deleted = False

    def _applied(self, record: Record) -> None:
        self.applied |= _ids(record)
        self.ledger.touch(record)

    def _closed(self, record: Record) -> None:
        self.open, self.inputs, self.ended = None, [], True
        self.deleted = record.get("control") == "session-deleted"
        self.ledger.reset()

    def _start(self, record: Record) -> None:
        if self.ended and record.get("epoch", 0) <= self.epoch:
            return
        again = self.open is not None and record.get("turn") == self.turn
        if self.open is not None and not again:
            self._close("interrupted")
        if not again:
            self.inputs = sorted(_ids(record))
        self.epoch = max(self.epoch, record.get("epoch", 0))
        self.turn = record.get("turn", self.turn + 1)
        self.attempt = record.get("attempt", 1)
        self.open, self.released = record, None
        self.ledger.start(record, self.turn, self.inputs, again=again)

    def _close(self, status: str) -> None:
        self.applied |= set(self.inputs)
        self.ledger.close(status)
        self.open, self.inputs = None, []

    def oldest_owed(self, upto: int) -> int | None:
        """The oldest input up to this one that nobody has applied or taken."""
        held = {*self.applied, *self.inputs}
        return next((n for n in range(self.applied_upto + 1, upto + 1) if n not in held), None)

    def verdict(
        self, upto: int, *, limits: Limits, run: str, cause: str | None
    ) -> tuple[Incident, list[int]]:
        """The verdict on what comes first, and its inputs; none, where the open turn itself is judged."""
        if self.open is not None and not self.ledger.waits:
            found = evaluate(
                self.ledger,
                inputs=self.inputs,
                attempt=self.attempt + 1,
                next_mode="continue" if self.released in _CONTINUING else "retry",
                limits=limits,
                run=run,
                cause=cause,
            )
            return found, []
        owed = self.oldest_owed(upto)
        inputs = [] if owed is None or self.ended else [owed]
        return evaluate(self.ledger, inputs=inputs, limits=limits, run=run, cause=cause), inputs

    def sealing(
        self, inputs: list[int], found: Incident, *, run: str, message_id: str, error: str
    ) -> list[Record]:
        """Give up what `verdict` judged, without having loaded it."""
        end: Record = {"control": "turn-complete", "turn": self.turn, **given_up(found, error)}
        if not inputs:
            return [end]
        start: Record = {"control": "turn-start", "turn": self.turn + 1, "attempt": 1, "inputs": inputs}
        start |= {"epoch": self.epoch + 1, "run": run, "seen": inputs[-1], "mode": "fresh"}
        start["messageId"] = message_id
        left = (
            []
            if self.open is None
            else [{"control": "turn-complete", "turn": self.turn, "status": "interrupted"}]
        )
        return [*left, start, {**end, "turn": self.turn + 1}]


def _ids(record: Record) -> set[int]:
    return {n for n in record.get("inputs", ()) if type(n) is int}


_CONTROLS: dict[str, Callable[[Tally, Record], None]] = {
    "turn-start": Tally._start,
    "turn-complete": Tally._complete,
    "turn-release": Tally._release,
    "fence": Tally._fence,
    "input-applied": Tally._applied,
    "session-closed": Tally._closed,
    "session-deleted": Tally._closed,
}
