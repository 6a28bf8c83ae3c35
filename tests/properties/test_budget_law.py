"""The budget's law: a snapshot and its tail give the verdict of the whole log."""

from __future__ import annotations

from collections.abc import Callable

import laws
import pytest
from drawn_session import live
from hypothesis import given
from hypothesis import strategies as st
from test_laws import SESSIONS, numbers, session

from snapshotter.core.budget import Incident
from snapshotter.core.revive import revive
from snapshotter.core.snapshot import encode
from snapshotter.core.tally import Tally
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


@SESSIONS
@given(st.data())
def test_what_counts_before_loading_is_what_the_fold_counts(data: st.DataObject) -> None:
    """Claims, deaths and the open turn's inputs: the same from the head of a snapshot and the tail."""
    world = session(data)
    for end in [0, *world.ends[-2:]]:
        head = encode(laws.fold_of(world.inputs, world.outs[:end]), "n", 0) if end else None
        tally = Tally.of_snapshot(head)
        assert tally is not None
        whole = laws.fold_of(world.inputs, world.outs[:end])
        for record in world.outs[end:]:
            whole.apply(record)
            tally.apply(record)
            assert (tally.open is not None) == (whole.open is not None), record
            assert len(tally.ledger.claims) == len(whole.budget.claims), record
            if whole.open is not None:
                assert tally.turn == whole.open.turn
                deaths = [a.released for a in whole.budget.attempts]
                assert [a.released for a in tally.ledger.attempts][-len(deaths) :] == deaths
