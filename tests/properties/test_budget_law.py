"""The budget's law: a snapshot and its tail give the verdict of the whole log."""

from __future__ import annotations

from collections.abc import Callable

import laws
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_laws import SESSIONS, numbers, session
from world import live

from snapshotter.core.budget import Incident
from snapshotter.core.revive import revive
from snapshotter.core.verdict import incident_of


@SESSIONS
@given(st.data())
def test_a_snapshot_and_its_tail_give_the_verdict_of_the_whole_log(data: st.DataObject) -> None:
    laws.budgets_agree(session(data))


@pytest.mark.parametrize("seed", range(6))
def test_a_long_session_has_one_verdict(seed: int) -> None:
    laws.budgets_agree(live(numbers(seed), 40))


def test_the_world_reaches_what_the_law_is_about() -> None:
    """A world whose turns are never interrupted, or never make progress, would let the law pass."""
    seen: list[Incident] = []
    waited = False
    for seed in range(60):
        world = live(numbers(seed), 30)
        for fold in laws.every_prefix_boots(world):
            seen.append(incident_of(fold, revive(fold)))
            waited = waited or any(a.waited for a in fold.budget.attempts)
    reached: dict[str, Callable[[Incident], bool]] = {
        "two interruptions": lambda i: i.interruptions >= 2,
        "a strike": lambda i: i.strikes >= 2,
        "progress": lambda i: bool(i.work % 100),
        "silence": lambda i: i.idle_ms > 0,
        "an end": lambda i: i.gives_up,
    }
    assert [name for name, is_so in reached.items() if not any(map(is_so, seen))] == []
    assert waited
