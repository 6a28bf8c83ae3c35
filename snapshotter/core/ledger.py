"""What the records of a log say of an incident: the ledger that bounded recovery draws its verdict from.

The fold tells it each record as it goes, so nothing is ever scanned twice, and a boot from a snapshot knows
as much as one from the whole log. It forgets everything at a turn-complete of any status but `interrupted`,
which is where snapshots are taken. So most chunks of a log are told for nothing: the records that are
replayed are only put aside, and counted once that matters.

    attempt        from a turn-start to the next; it ended by death, or let go (`released`)
    credit         a durable milestone; a delta: the first of an attempt, then once per 5 s of record time
    silence        record time since the last credit while no call is open; a gap counts at most 45 s
    claim          a `fence why=boot` that no record of its run but heartbeats followed: loading killed it

SEMANTICS.md, "Bounded recovery", has the rules, and `budget` the verdict. Pure: no clock is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]

CREDIT_MS = 5_000
LONGEST_GAP_MS = 45_000
_ASIDE = 512

# A sub-agent's progress, told to its parent's turn, earns what a delta earns.
_DELTAS = frozenset({"text-delta", "reasoning-delta", "tool-input-delta", "data-subagent"})
_STARTS = frozenset({"text-start", "reasoning-start"})
_RESULTS = frozenset({"tool-output-available", "tool-output-error", "tool-output-denied"})
_POLITE = frozenset({"signal", "cancelled", "deadline"})


@dataclass(slots=True)
class Attempt:
    """One attempt. `settled` are the credits that a retry keeps, `fleeting` those that nobody keeps."""

    began: int
    credits: int = 0
    settled: int = 0
    fleeting: int = 0
    silence: int = 0
    released: str | None = None
    next_mode: str | None = None
    waited: bool = False

    @property
    def interrupted(self) -> bool:
        return self.released not in _POLITE

    def progressed(self, next_mode: str) -> bool:
        """Of an attempt that was let go on purpose only what the next one keeps is progress."""
        if self.interrupted:
            return self.credits > 0
        if (self.next_mode or next_mode) == "retry":
            return self.settled > 0
        return self.credits > self.fleeting


@dataclass(frozen=True, slots=True)
class Claim:
    """A boot that said so before it loaded, for the input `upto`."""

    run: str
    upto: int


@dataclass(slots=True)
class Ledger:
    """What the records since the last turn-complete (but `interrupted`) say of the newest turn's incident."""

    claims: list[Claim] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    first_turn: int = 0
    cause: str | None = None
    error: str | None = None  # of the newest release that says one
    next_credit: int = 0  # record time from which the next delta earns one
    aside: list[Record] = field(default_factory=list)  # records of chunks that are not counted yet
    _attempts: list[Attempt] = field(default_factory=list)
    _claim: Claim | None = None
    _live: Attempt | None = None
    _last: int = 0
    _calls: dict[str, bool] = field(default_factory=dict)  # open calls; True: a person or client answers
    _client_tools: Collection[str] = ()
    _step_settled: bool = False

    # -- what the fold tells ------------------------------------------------------------------------

    def start(
        self, record: Record, turn: int, inputs: Iterable[int], *, again: bool, running: Iterable[str] = ()
    ) -> None:
        """A turn-start. `again`: the next attempt of the open turn. `running`: calls of the message that it
        continues which a person has granted."""
        self._count()
        self._followed(record)
        mode = record.get("mode", "fresh")
        self._end(mode)
        taken = set(inputs)
        if not again and not self._belongs(mode, taken, record.get("messageId")):
            self._attempts, self.inputs, self.messages, self.first_turn = [], set(), set(), turn
            self._step_settled, self.error = False, None
        self.inputs |= taken
        self._named(record.get("messageId"))
        self._last = _time(record, self._last)
        self._live = Attempt(self._last)
        self._attempts.append(self._live)
        self.next_credit = 0
        self._calls = dict.fromkeys(running, False)
        if not again or "clientTools" in record:
            named = record.get("clientTools")
            self._client_tools = [n for n in named if isinstance(n, str)] if named else ()
        self._know(record)

    def _belongs(self, mode: str, taken: set[int], message_id: Any) -> bool:
        """True when a new turn goes on with the incident of the interrupted ones before it. One that brings
        a new message, an edit or a regenerate has a budget of its own."""
        if not self._attempts:
            return False
        if mode == "continue":
            return message_id in self.messages
        return bool(taken) and taken <= self.inputs

    def _named(self, message_id: Any) -> None:
        if isinstance(message_id, str) and message_id:
            self.messages.add(message_id)

    def close(self, status: str, message_id: str = "") -> None:
        """The open turn was closed; `message_id` is what its last message bore."""
        if status != "interrupted":
            self.reset()
            return
        self._count()
        self._named(message_id)
        self._end(None)

    def reset(self) -> None:
        """Nothing before this counts."""
        for record in reversed(self.aside):
            if type(record.get("ts")) is int and type(record["chunk"]) is dict:
                self._last = record["ts"]
                break
        self.aside.clear()
        self._attempts, self.claims, self._claim = [], [], None
        self.inputs, self.messages, self.first_turn = set(), set(), 0
        self.cause = self.error = self._live = None
        self._calls, self._step_settled = {}, False

    def _end(self, next_mode: str | None) -> None:
        """The newest attempt is over."""
        if self._attempts and self._attempts[-1].next_mode is None:
            self._attempts[-1].next_mode = next_mode
            self._attempts[-1].waited = self.waits
        self._live = None

    @property
    def waits(self) -> bool:
        """True when the newest attempt asked a person, or a client, and has no answer."""
        self._count()
        return any(self._calls.values())

    def release(self, record: Record) -> None:
        """A turn-release of the open turn."""
        self.touch(record)
        if self._live is not None:
            self._live.released = record.get("why", "error")
            self._live = None
        error = record.get("error")
        self.error = error if isinstance(error, str) else self.error

    def fence(self, record: Record) -> None:
        """Somebody took the log over; with `why=boot` it is a claim."""
        self._count()
        self._followed(record)
        self._live = None
        if record.get("why") == "boot":
            self._claim = Claim(record.get("run", ""), record.get("for", 0))
            self.claims.append(self._claim)
        self._know(record)

    def _followed(self, record: Record) -> None:
        """A record that is no heartbeat: the claim before it loaded, unless this is another's word."""
        if self._claim is not None and record.get("run", self._claim.run) == self._claim.run:
            self.claims.remove(self._claim)
        self._claim = None

    def _know(self, record: Record) -> None:
        cause = record.get("cause")
        if isinstance(cause, str):
            self.cause = cause

    def touch(self, record: Record, *, heartbeat: bool = False) -> None:
        """Any other control record."""
        self._count()
        if not heartbeat:
            self._followed(record)
        self._pass(_time(record, self._last))

    def _pass(self, now: int) -> None:
        gap = now - self._last
        if gap > 0 and self._live is not None and not self._calls:
            self._live.silence += gap if gap < LONGEST_GAP_MS else LONGEST_GAP_MS
        self._last = now

    # -- chunks -------------------------------------------------------------------------------------

    def _delta(self, ts: Any, kind: str) -> None:
        """A plain delta, or a packed run of them, which counts as one."""
        now = ts if type(ts) is int else self._last
        self._pass(now)
        if now >= self.next_credit and self._live is not None:
            self.next_credit = now + CREDIT_MS
            self._live.fleeting += kind == "tool-input-delta"
            self._credit()

    def chunk(self, ts: Any, chunk: Record) -> None:
        """A chunk of the open turn."""
        self._count()
        self._chunk(ts, chunk)

    def _count(self) -> None:
        """Count what was put aside. Most are deltas that earn nothing: of these the newest time says as much
        as each of them."""
        if not self.aside:
            return
        last, due = self._quiet()
        for record in self.aside:
            ts, chunk = record.get("ts"), record["chunk"]
            kind = chunk.get("type") if type(chunk) is dict else None
            if type(ts) is int and last <= ts < due and type(kind) is str and kind in _DELTAS:
                last = ts
                continue
            self._pass(last)
            if type(chunk) is dict:
                self._chunk(ts, chunk)
            last, due = self._quiet()
        self._pass(last)
        self.aside.clear()

    def _quiet(self) -> tuple[int, int]:
        """Deltas from the first of these record times up to the second, if time does not run back, earn
        nothing and leave no gap that is capped."""
        steady = self._last >= self.next_credit - CREDIT_MS
        return (self._last, self.next_credit) if steady else (self._last, 0)

    def trim(self) -> None:
        """Hold no more than a few hundred records that are not counted."""
        if len(self.aside) > _ASIDE:
            self._count()

    def _chunk(self, ts: Any, chunk: Record) -> None:
        kind = chunk.get("type")
        kind = kind if type(kind) is str else ""
        if kind in _DELTAS:
            self._delta(ts, kind)
            return
        self._pass(ts if type(ts) is int else self._last)
        if kind in _STARTS:
            self._credit()
        elif kind == "start":
            self._named(chunk.get("messageId"))
        elif kind == "start-step":
            self._step_settled = False
        elif kind == "reset-step":
            self._calls.clear()
        elif isinstance(call := chunk.get("toolCallId"), str):
            self._call(kind, call, chunk)

    def _call(self, kind: str, call: str, chunk: Record) -> None:
        if kind == "tool-input-available":
            self._calls[call] = chunk.get("toolName") in self._client_tools
            self._credit()
        elif kind == "tool-approval-request":
            self._calls[call] = True
        elif kind in _RESULTS and chunk.get("preliminary") is not True:
            self._calls.pop(call, None)
            self._step_settled = True
            self._credit()
        elif kind == "tool-input-error":
            self._calls.pop(call, None)

    def _credit(self) -> None:
        attempt = self._live
        if attempt is None:
            return
        attempt.credits += 1
        attempt.silence = 0
        if self._step_settled:
            attempt.settled = attempt.credits

    # -- what is asked of it --------------------------------------------------------------------------

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts of the incident, the oldest first."""
        self._count()
        return self._attempts

    def claimed(self, oldest: int, run: str | None) -> int:
        """How many claims count for an item whose oldest input this is; one's own does not."""
        return sum(claim.upto >= oldest and claim.run != run for claim in self.claims)


def _time(record: Record, default: int) -> int:
    ts = record.get("ts")
    return ts if type(ts) is int else default
