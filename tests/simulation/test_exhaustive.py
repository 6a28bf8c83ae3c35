"""Every schedule of the small worlds, up to their bounds; every way to damage one stored object."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import tampering
from exhaustive import explore, replay
from kept_stories import KEPT
from mutants import MUTANTS
from searching import Path, Search
from smallworld import READ_FAULTS, WRITE_FAULTS
from stories import STORIES, Story

BY_NAME = {(story.name, story.faults): story for story in STORIES}


@pytest.mark.parametrize("story", [*STORIES, *KEPT], ids=lambda story: f"{story.name} {story.faults}")
def test_no_schedule_breaks_a_promise(story: Story) -> None:
    found = explore(story)
    assert found.broken is None, f"{found.broken}; faults {found.struck}, choices {found.choices}"
    assert found.search.total >= 1
    assert found.search.whole >= (0 if story.limit else story.most)


def test_every_fault_happens_at_every_request() -> None:
    """With no other deviation: a schedule for each request and fault."""
    story = BY_NAME["tool", 1]
    calm = explore(story, most=0)
    assert calm.search.total - calm.search.pruned == 1
    one = explore(story)
    assert one.search.schedules[1] > min(len(READ_FAULTS), len(WRITE_FAULTS)) * 10


def test_a_schedule_repeats_itself() -> None:
    """What a search found is found again by its choices alone."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == "tool-not-durable"]
    story = BY_NAME["tool", 1]
    with mutant.patch():
        found = explore(story)
        small = replay(story, found.choices)
    assert found.broken == small.checker.violations[0]
    assert found.struck == small.struck
    assert not replay(story, found.choices).checker.violations  # the engine as it is


def test_damage_is_found_or_does_no_harm() -> None:
    done: list[str] = []
    tampering.check_all(31, done)
    assert len(done) > 1_000
    assert {"emptied", "removed", "exchanged", "an older one", "misread"} <= set(done)


def _interleaved(path: Path, seen: list[str]) -> None:
    """Two processes of two steps each."""
    left, steps, last = {"a": 2, "b": 2}, "", ""
    while any(left.values()):
        ready = sorted((name for name in left if left[name]), key=lambda name: name != last)
        costs = [0] + [int(ready[0] == last)] * (len(ready) - 1)
        last = ready[path.choose(costs)]
        left[last] -= 1
        steps += last
    seen.append(steps)


@pytest.mark.parametrize(("most", "count"), [(0, 2), (1, 4), (2, 6)])
def test_a_search_takes_every_way_within_its_bound(most: int, count: int) -> None:
    seen: list[str] = []
    search = Search(most).run(lambda path: _interleaved(path, seen))
    assert len(seen) == len(set(seen)) == search.total == count
    assert search.whole == most
    assert set(seen) <= {"".join(steps) for steps in product("ab", repeat=4)}
    assert seen == sorted(seen, key=lambda steps: sum(a != b for a, b in pairwise(steps)))


def test_a_state_that_was_seen_ends_the_run() -> None:
    """Two coins whose sum is all that counts: three states after both, four ways there."""
    ends: list[int] = []

    def two_coins(path: Path) -> None:
        total = path.choose([0, 0])
        total += path.choose([0, 0], ("one coin", total))
        path.choose([0], ("both", total))
        ends.append(total)

    search = Search(0).run(two_coins)
    assert sorted(ends) == [0, 1, 2]
    assert (search.total, search.pruned) == (4, 1)


def test_a_limit_leaves_a_bound_open() -> None:
    seen: list[str] = []
    search = Search(2, limit=3).run(lambda path: _interleaved(path, seen))
    assert (search.total, search.whole) == (3, 0)
