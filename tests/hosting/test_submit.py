"""What becomes of a message that is sent while an answer is under way: the decisions."""

from __future__ import annotations

import pytest

from snapshotter.errors import Refused
from snapshotter.hosting.submit import POLICIES, Debounce, Decision, Submits


@pytest.mark.parametrize("policy", [*POLICIES, Debounce(5)])
def test_with_nothing_under_way_every_policy_just_runs(policy: str | Debounce) -> None:
    submits = Submits()
    assert submits.decide(policy, 0, 0) == Decision("execute")
    assert submits.decide(policy, 3, 0, submit=False) == Decision("execute")


def test_queue_and_drop() -> None:
    submits = Submits()
    assert submits.decide("queue", 1, 0) == Decision("execute", "queue")
    assert submits.decide("drop", 1, 0) == Decision("drop", "drop")
    assert not submits.superseded(None)


def test_a_later_one_supersedes_those_before_it_once_it_is_stored() -> None:
    submits = Submits()
    assert submits.decide("latest", 1, 0).sequence == 1
    submits.stored(7)
    assert submits.decide("merge", 1, 0).sequence == 2
    assert not submits.superseded(7)
    submits.stored(8)
    assert submits.superseded(7)
    assert not submits.superseded(8)
    submits.stored(6)  # decided later and stored before: it stands for nobody
    assert (submits.superseded(6), submits.superseded(8)) == (True, False)


@pytest.mark.parametrize(
    ("ms", "until"), [(100, 1100), (0, 1000), (None, 1750), (-1, 1750), (float("nan"), 1750)]
)
def test_debounce_waits_from_now(ms: float | None, until: float) -> None:
    assert Submits().decide(Debounce(ms), 1, 1000).until_ms == until
    assert Submits(50).decide("debounce", 1, 1000).until_ms == 1050


def test_what_is_accepted_and_not_queued_yet_counts() -> None:
    submits = Submits()
    release = submits.begin()
    assert submits.decide("drop", 0, 0).action == "drop"
    release()
    release()
    assert submits.pending == 0
    late = submits.begin()
    submits.reset()
    submits.begin()
    late()
    assert submits.pending == 1


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(Refused, match="unknown policy 'newest'"):
        Submits().decide("newest", 0, 0)
