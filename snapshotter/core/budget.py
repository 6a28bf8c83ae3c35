"""Bounded recovery: what an interrupted turn has cost so far, and whether it may be tried again.

The *ledger* is kept by the fold as it goes: each record adds to it, so nothing is ever scanned twice, and a
boot from a snapshot knows as much as one from the whole log. It forgets everything at a turn-complete of
any status but `interrupted`, which is where snapshots are taken. So most chunks of a log are told for
nothing: those that are replayed are only put aside, and counted once that matters.

    attempt        from a turn-start to the next; it ended by death, or let go (`released`)
    credit         a durable milestone; a delta: the first of an attempt, then once per 5 s of record time
    silence        record time since the last credit while no call is open; a gap counts at most 45 s
    claim          a `fence why=boot` that no record of its run but heartbeats followed: loading killed it

The *incident* is the verdict that `evaluate` draws from a ledger, the limits, and what the caller knows: its
own run, the cause of the last death, and the answer of its hook. SEMANTICS.md, "Bounded recovery", has
the rules. Pure: no clock is read, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

Record = dict[str, Any]

ATTEMPT_WORK = 100
CREDIT_MS = 5_000
LONGEST_GAP_MS = 45_000
LONGEST_BACKOFF_S = 256.0
_ASIDE = 2_048
OUT_OF_MEMORY = "out_of_memory"

# A sub-agent's progress, told to its parent's turn, earns what a delta earns.
_DELTAS = frozenset({"text-delta", "reasoning-delta", "tool-input-delta", "data-subagent"})
_STARTS = frozenset({"text-start", "reasoning-start"})
_RESULTS = frozenset({"tool-output-available", "tool-output-error", "tool-output-denied"})
_POLITE = frozenset({"signal", "cancelled", "deadline"})


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop. `no_progress_timeout` and `max_backoff` in seconds."""

    max_attempts: int = 10
    no_progress_timeout: float = 300.0
    max_recovery_work: int = 10_000
    max_interrupted_attempts: int = 5
    max_backoff: float = LONGEST_BACKOFF_S


DEFAULTS = Limits()


@dataclass(frozen=True, slots=True)
class Incident:
    """The verdict. `attempt` is the next one's number; `backoff_s` counts from the log's last record.

    `id` names the incident within its session and stays the same over all its attempts; `created_at` is
    when its first attempt began (epoch ms, 0 before the first); `error` what the last attempt said that was
    released for an error or a stall.
    """

    decision: str = "go_on"
    reason: str | None = None
    attempt: int = 1
    interruptions: int = 0
    strikes: int = 0
    work: int = 0
    idle_ms: int = 0
    backoff_s: float = 0
    id: str = ""
    created_at: int = 0
    error: str | None = None

    @property
    def gives_up(self) -> bool:
        return self.decision == "give_up"

    def to_json(self) -> dict[str, Any]:
        backoff = int(self.backoff_s) if self.backoff_s == int(self.backoff_s) else self.backoff_s
        return {
            "decision": self.decision,
            "reason": self.reason,
            "attempt": self.attempt,
            "interruptions": self.interruptions,
            "strikes": self.strikes,
            "work": self.work,
            "idle_ms": self.idle_ms,
            "backoff_s": backoff,
        }


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
    aside: list[tuple[Any, Any]] = field(default_factory=list)  # times and chunks that are not counted yet
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
        for ts, chunk in reversed(self.aside):
            if type(ts) is int and type(chunk) is dict:
                self._last = ts
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
        """Count what was put aside."""
        if not self.aside:
            return
        for ts, chunk in self.aside:
            if type(chunk) is dict:
                self._chunk(ts, chunk)
        self.aside.clear()

    def trim(self) -> None:
        """Hold no more than a few thousand chunks that are not counted."""
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


def evaluate(
    ledger: Ledger,
    *,
    inputs: Collection[int],
    attempt: int = 1,
    next_mode: str | None = None,
    limits: Limits = DEFAULTS,
    run: str | None = None,
    cause: str | None = None,
    keep: Callable[[Incident], bool] | None = None,
) -> Incident:
    """The verdict on what a worker would do next.

    With `next_mode` (`continue` or `retry`) that is the next attempt of the ledger's turn; without, a new
    turn for the owed `inputs`, against which only claims count. `attempt` is the number it would get. `run`
    is the asker's own, `cause` what it knows of the last death. `keep` is asked, at most once, when the third
    attempt or a later one is about to open and nothing stronger decides; what it raises means go on.
    """
    attempts = [a for a in ledger.attempts if not a.waited] if next_mode is not None else []
    judged = bool(inputs) or next_mode is not None
    counted = ledger.claimed(min(inputs, default=0), run) if judged else 0
    interruptions = sum(a.interrupted for a in attempts) + counted
    strikes = _strikes(attempts, next_mode or "continue")
    power = max(strikes, 2 * interruptions)
    first = min((*(ledger.inputs if attempts else ()), *inputs), default=0)
    found = Incident(
        attempt=attempt,
        interruptions=interruptions,
        strikes=strikes,
        work=sum(ATTEMPT_WORK + a.credits for a in attempts),
        idle_ms=_idle(attempts),
        backoff_s=min(2.0 ** min(power, 64), limits.max_backoff) if power else 0,
        id=f"in{first}" if first else f"turn{ledger.first_turn}",
        created_at=attempts[0].began if attempts else 0,
        error=ledger.error if attempts else None,
    )
    reason = _reason(found, limits, cause or ledger.cause)
    if reason is None and len(attempts) >= 2 and keep is not None and not _kept(keep, found):
        reason = "recovery_aborted"
    if reason is None and strikes > limits.max_attempts:
        reason = "max_attempts_exceeded"
    return found if reason is None else replace(found, decision="give_up", reason=reason)


def _reason(found: Incident, limits: Limits, cause: str | None) -> str | None:
    """What decides before the hook is asked."""
    if found.interruptions >= limits.max_interrupted_attempts:
        return OUT_OF_MEMORY if cause == OUT_OF_MEMORY else "interrupted_attempts_exceeded"
    if found.work > limits.max_recovery_work:
        return "work_budget_exceeded"
    if found.interruptions >= 2 and found.idle_ms > limits.no_progress_timeout * 1000:
        return "no_progress_timeout"
    return None


def _kept(keep: Callable[[Incident], bool], found: Incident) -> bool:
    try:
        return keep(found)
    except Exception:  # noqa: BLE001 - a hook's fault must not end a turn
        return True


def _strikes(attempts: list[Attempt], next_mode: str) -> int:
    """Attempts in a row, up to the newest, without progress."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.progressed(next_mode):
            break
        count += 1
    return count


def _idle(attempts: list[Attempt]) -> int:
    """Silence since the last credit, summed over the attempts that were interrupted."""
    total = 0
    for attempt in attempts:
        if attempt.credits:
            total = 0
        if attempt.interrupted:
            total += attempt.silence
    return total
