"""Worlds by the hundred, each judged; the same seed is the same world; a failing world becomes a small one.

`SNAPSHOTTER_TEST_WORLDS` asks for more worlds than a quick run has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from keepers import KINDS
from plan import FLAVOURS, PROFILES, plan_of
from run import Tally, run_batch
from shrink import shrink, told
from upkeeping import TWO_DAYS, kept
from world import Item, Report, run_seed

from snapshotter.core.blocks import DEFAULT
from streams.testing.simulation import FAULTS
from streams.writer import Writer

HERE = Path(__file__).parent
WORLDS = int(os.environ.get("SNAPSHOTTER_TEST_WORLDS") or 1200)


@pytest.fixture(scope="module")
def tally() -> Tally:
    return run_batch(range(WORLDS))


def test_no_promise_is_broken_in_any_world(tally: Tally) -> None:
    assert tally.failed == []


def test_the_worlds_are_not_idle(tally: Tally) -> None:
    """Everything that may happen has happened, and not once only."""
    assert tally.calls > 60 * WORLDS
    assert set(tally.profiles) == set(PROFILES)
    assert {name for name in FAULTS if tally.faults[name] < 5} == set()
    assert {name for name in ("kill", "freeze", "thawed", "zombie") if tally.fates[name] < 20} == set()
    expected = {"booted", "busy", "fenced", "model-call", "tool-run", "durable", "turn-ended", "send-failed"}
    assert {name for name in expected if tally.seen[name] < 10} == set()
    tidying = {"upkeep", "deleted", "created", "forked", "redacted", "exported", "rebuilt", "acted"}
    assert {name for name in tidying if tally.seen[name] < 5} == set()


def test_the_plans_have_everything_that_people_do() -> None:
    deeds = [deed for seed in range(300) for deed in plan_of(seed).deeds]
    kinds = {deed.kind for deed in deeds}
    assert kinds == {
        "say", "again", "stop", "edit", "regenerate", "answer", "look", "action", "close", "deliver", "jump"
    }  # fmt: skip
    assert {deed.fate.kind for deed in deeds if deed.fate} == {"kill", "freeze", "raise", "signal"}
    assert {deed.text.split()[1] for deed in deeds if deed.text} == set(FLAVOURS)
    assert {option for deed in deeds for option, given in deed.options.items() if given} >= {
        "claim", "takeover", "receipt", "deadline", "overlap", "skew_ms", "window"
    }  # fmt: skip
    assert any(deed.jump_ms for deed in deeds)


def test_some_plans_go_on_for_days_and_everybody_tidies_up() -> None:
    plans = [kept(plan_of(seed)) for seed in range(600)]
    tidied = [plan for plan in plans if plan.kept]
    assert 0.25 < len(tidied) / len(plans) < 0.45
    deeds = [deed for plan in tidied for deed in plan.deeds]
    assert {deed.kind for deed in deeds} >= set(KINDS) | {"jump"}
    assert {deed.fate.seconds for deed in deeds if deed.fate} >= {TWO_DAYS}
    assert {deed.kind for deed in deeds if deed.fate and deed.fate.kind == "kill"} >= set(KINDS) - {"create"}
    assert {plan.sizes == DEFAULT for plan in tidied} == {True, False}
    assert all(plan.end > 1300.0 for plan in tidied)


@pytest.mark.parametrize("hash_seeds", [("1", "2")])
def test_the_same_seed_is_the_same_world_byte_for_byte(hash_seeds: tuple[str, str]) -> None:
    script = "from world import run_seed\nfor seed in range(60): print(run_seed(seed, trace=True).digest)"
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": one, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for one in hash_seeds
    ]
    assert len(set(found[0])) == 60
    assert found[0] == found[1]


@contextmanager
def acknowledged_too_early() -> Iterator[None]:
    """An engine that says "durable" before it is."""
    waits = Writer._await
    Writer._await = lambda self, last: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Writer._await = waits  # type: ignore[method-assign]


def broken(seed: int, without: frozenset[Item] = frozenset()) -> Report:
    return run_seed(seed, patches=[acknowledged_too_early()], without=without)


def test_a_failing_world_is_made_small() -> None:
    seed = next(seed for seed in range(200) if broken(seed).violations)
    before = broken(seed)
    without, after = shrink(lambda left_out: broken(seed, left_out))
    assert before.violations[0].rule in {violation.rule for violation in after.violations}
    assert 3 * len(set(after.items) - without) <= len(before.items)
    assert len(told(plan_of(seed), without, after)) >= 1
    assert broken(seed, without).violations == after.violations  # the small one can be run again


def test_a_world_that_holds_cannot_be_made_small() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(lambda left_out: run_seed(0, without=left_out))
