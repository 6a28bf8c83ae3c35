"""Bounded recovery: what an interrupted turn has cost so far, and whether it may be tried again.

The *incident* is the verdict that `evaluate` draws from a ledger (see `ledger`), the limits, and what the
caller knows: its own run, the cause of the last death, and the answer of its hook. SEMANTICS.md, "Bounded
recovery", has the rules. Pure: no clock is read, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from .ledger import Attempt, Ledger

ATTEMPT_WORK = 100
LONGEST_BACKOFF_S = 256.0
OUT_OF_MEMORY = "out_of_memory"


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
