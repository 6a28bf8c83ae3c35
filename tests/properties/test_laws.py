"""The laws of the fold, for sessions in which everything goes wrong that can.

`drawn_session.py` makes the sessions, `laws.py` says what must hold. A failing example is best read by
printing the two logs; `test_*` in tests/core keeps the smallest log of everything that was ever found here.
"""

from __future__ import annotations

from collections.abc import Callable

import laws
import pytest
from drawn_session import World, live, redacting, settle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SESSIONS = settings(
    max_examples=300,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def chooser(data: st.DataObject) -> Callable[[int], int]:
    return lambda n: data.draw(st.integers(0, n - 1))


def session(data: st.DataObject) -> World:
    return live(chooser(data), data.draw(st.integers(2, 10)))


@SESSIONS
@given(st.data())
def test_a_snapshot_and_its_tail_say_what_the_whole_log_says(data: st.DataObject) -> None:
    laws.snapshots_agree(session(data))


@SESSIONS
@given(st.data())
def test_of_a_redacted_input_nothing_counts_but_what_is_left(data: st.DataObject) -> None:
    laws.what_is_redacted_says_nothing(redacting(chooser(data), data.draw(st.integers(2, 12))))


@SESSIONS
@given(st.data())
def test_replay_is_idempotent_at_any_cut_and_packing_changes_nothing(data: st.DataObject) -> None:
    laws.replay_is_idempotent(session(data))


@SESSIONS
@given(st.data())
def test_every_prefix_boots_and_the_history_holds(data: st.DataObject) -> None:
    laws.history_holds(session(data))


@SESSIONS
@given(st.data())
def test_junk_and_foreign_records_never_keep_a_log_from_booting(data: st.DataObject) -> None:
    laws.junk_boots(session(data), chooser(data))


@SESSIONS
@given(st.data())
def test_workers_that_live_bring_every_input_to_an_end(data: st.DataObject) -> None:
    world = session(data)
    settle(world, 3 * len(world.inputs) + 12)
    laws.everything_ends(world)
    laws.snapshots_agree(world)
    laws.history_holds(world)


@pytest.mark.parametrize("seed", range(6))
def test_a_long_session_keeps_every_law(seed: int) -> None:
    world = live(numbers(seed), 40)
    laws.snapshots_agree(world)
    laws.what_is_redacted_says_nothing(world)
    laws.history_holds(world)
    laws.what_is_redacted_says_nothing(redacting(numbers(seed), 40))
    settle(world, 3 * len(world.inputs) + 12)
    laws.everything_ends(world)


def test_the_same_choices_make_the_same_bytes() -> None:
    one, two = live(numbers(7), 30), live(numbers(7), 30)
    assert (one.inputs, one.outs, one.ends) == (two.inputs, two.outs, two.ends)
    laws.same(laws.fold_of(one.inputs, one.outs), laws.fold_of(two.inputs, two.outs), "twice")


def test_the_world_reaches_what_the_laws_are_about() -> None:
    """A generator that never opens a turn would let every law pass."""
    found: set[str] = set()
    for seed in range(80):
        world = live(numbers(seed), 30)
        found |= {f"in {record['kind']}" for record in world.inputs}
        for record in world.outs:
            found.add(f"out {record.get('control', 'chunk')}")
            found |= {f"{name} {record[name]}" for name in ("mode", "status", "op") if name in record}
        found |= {f"row {revived.resume.kind}" for revived in laws.plans(world)}
    assert found >= {
        *(f"in {kind}" for kind in ("message", "edit", "stop", "action", "regenerate", "close", "wave")),
        *(f"in {kind}" for kind in ("tool-result", "tool-approval")),
        *(f"out {control}" for control in ("turn-start", "turn-complete", "turn-release", "fence")),
        *(f"out {control}" for control in ("state", "stash", "context", "history", "input-applied")),
        *(f"mode {mode}" for mode in ("fresh", "continue", "retry", "regenerate", "action")),
        *(f"status {status}" for status in ("completed", "error", "aborted", "interrupted")),
        *(f"op {op}" for op in ("put", "remove", "truncate-after", "replace", "clear", "redact")),
        *(f"out {control}" for control in ("session-closed", "session-deleted")),
        *(f"row {kind}" for kind in ("none", "waiting", "call_model", "recover_tools", "retry_response")),
        *(f"row {kind}" for kind in ("continue_response", "seal_completed", "seal_aborted", "seal_error")),
    }


def numbers(seed: int) -> Callable[[int], int]:
    """A small generator of numbers that is the same on every platform and version."""
    state = seed * 2 + 1

    def choose(n: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % n

    return choose
