"""When a turn is given up, and for what reason, against Cloudflare's chat module.

The quantities (interruptions, work, silence, attempts without progress) are generated and the same to both;
how each side comes to them differs, and docs/differences.md says why.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from asking import HOME, need, run_oracle

from snapshotter.core.budget import Incident, Limits, evaluate
from snapshotter.core.ledger import Attempt, Ledger

SCRIPT = Path(__file__).with_name("agents_incident.mjs")
Json = dict[str, Any]


def ask(cases: list[Json]) -> list[Json]:
    """What the module decides in each case. Without it the test is skipped, or fails where oracles are
    required."""
    need(HOME / "agents" / "node_modules" / "agents" / "package.json", "npm agents")
    found = run_oracle(["node", str(SCRIPT)], cases)
    assert len(found) == len(cases)
    return found


class Case:
    """Quantities near their limits. `strikes` attempts without progress, of which `interruptions` died."""

    def __init__(self, dice: random.Random) -> None:
        self.limits = Limits(
            max_attempts=dice.randint(1, 6),
            no_progress_timeout=float(dice.randint(0, 3)),
            max_recovery_work=dice.randint(300, 900),
            max_interrupted_attempts=dice.randint(1, 6),
        )
        self.strikes = dice.randint(1, 8)
        self.interruptions = dice.randint(0, self.strikes)
        near = self.limits.max_recovery_work - 100 * (self.strikes + 1) + dice.randint(-2, 2)
        self.credits = max(1, near if dice.random() < 0.5 else dice.randint(1, 50))
        silences = [
            int(self.limits.no_progress_timeout * 1000) + dice.randint(-1, 1),
            0,
            dice.randint(0, 5_000),
        ]
        # Silence is judged from the second interruption on here, always there: below that there is none.
        self.idle = max(0, dice.choice(silences)) if self.interruptions >= 2 else 0
        self.keep = dice.choice([True, "raise", False])
        if self.strikes > self.limits.max_attempts and self.keep is False:
            self.keep = True  # they do not ask then; here the hook's no is the stronger reason

    @property
    def work(self) -> int:
        return 100 * (self.strikes + 1) + self.credits

    def theirs(self) -> Json:
        now = 10_000_000
        existing = {
            "incidentId": "r:u",
            "requestId": "r",
            "recoveryKind": "retry",
            "attempt": self.strikes - 1,
            "maxAttempts": self.limits.max_attempts,
            "status": "attempting",
            "firstSeenAt": 0,
            "lastAttemptAt": 0,
            "lastProgressAt": now - self.idle,
            "progress": self.work,
            "workBaseline": 0,
            "interruptedAttempts": self.interruptions,
        }
        config = {
            "maxAttempts": self.limits.max_attempts,
            "noProgressTimeoutMs": int(self.limits.no_progress_timeout * 1000),
            "maxRecoveryWork": self.limits.max_recovery_work,
            "maxInterruptedAttempts": self.limits.max_interrupted_attempts,
        }
        return {"config": config, "existing": existing, "progress": self.work, "now": now, "keep": self.keep}

    def ours(self) -> Incident:
        attempts = [Attempt(0, credits=self.credits, released="deadline", next_mode="continue")]
        attempts += [Attempt(0, released="signal") for _ in range(self.strikes - self.interruptions)]
        attempts += [Attempt(0) for _ in range(self.interruptions)]
        if self.interruptions:
            attempts[-1].silence = self.idle

        def keep(_found: Incident) -> bool:
            if self.keep == "raise":
                raise ValueError
            return bool(self.keep)

        ledger = Ledger()
        ledger.attempts.extend(attempts)
        return evaluate(ledger, inputs=[1], next_mode="retry", limits=self.limits, keep=keep)


def test_when_and_why_a_turn_is_given_up() -> None:
    cases = [Case(random.Random(seed)) for seed in range(3_000)]
    seen: Counter[str | None] = Counter()
    for case, theirs in zip(cases, ask([case.theirs() for case in cases]), strict=True):
        found = case.ours()
        assert found.work == case.work
        assert found.idle_ms == case.idle
        assert found.reason == theirs["reason"], vars(case)
        seen[found.reason] += 1
    assert len(seen) == 6
    assert min(seen.values()) > 50, seen
