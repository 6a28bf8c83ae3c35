"""Small worlds, searched exhaustively: every interleaving of their requests up to a stated bound.

    python tests/simulation/exhaustive.py            every story, as far as the tests go
    python tests/simulation/exhaustive.py --full     further; takes long

`stories` says what happens, `smallworld` what a schedule is and what a deviation costs, `searching` how all
of them are found, `checker` and `timely` what must hold. The bound of a story is printed with its counts: all
schedules with at most so many faults, whose preemptions and faults are together at most so many.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import click
from checker import Violation
from kept_stories import KEPT
from narrow import narrow
from searching import Path, Search
from smallworld import Broke, SmallWorld
from stored import story_of
from stories import SESSION, STORIES, Story

from streams.testing.simulation import Stuck


@dataclass
class Found:
    """What the search of one story came to. `broken` is the first violation, `struck` its schedule's faults,
    `choices` how to come there again."""

    story: Story
    search: Search
    calls: int = 0
    broken: Violation | None = None
    struck: list[tuple[str, int, str]] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)


def play(story: Story, path: Path, calls: list[int]) -> None:
    """One schedule of a story, judged. Raises Broke; `calls` is told how many requests it made."""
    small = SmallWorld(path, faults=story.faults, calm=story.calm)
    try:
        with small.world, narrow():
            story.told(small)
            small.world.run()
            if not small.struck and not small.doom and not small.tidied:
                _nobody_waits(small)
            small.settle_all()
    except Stuck as stuck:
        raise Broke(Violation("stuck", str(stuck))) from stuck
    except Broke as broke:
        broke.struck = small.struck
        raise
    finally:
        calls.append(small.calls)


def _nobody_waits(small: SmallWorld) -> None:
    """Where nothing went wrong, an input is never left to a worker that nobody sends."""
    small.stop_if_broken()
    told = story_of(small.objects(), SESSION)
    left = [number for number in told.inputs if number not in told.applied | told.repeats]
    if left:
        small.blame("left to nobody", f"inputs {left}: nobody is at work, and nobody will come for them")
        small.stop_if_broken()


def explore(story: Story, *, full: bool = False, most: int | None = None) -> Found:
    """Search one story, up to its first violation; `full`: to its full bound, however long it takes."""
    logging.getLogger("snapshotter").setLevel(logging.CRITICAL)
    bound = story.full if full else story.most
    search = Search(bound if most is None else most, None if full else story.limit)
    found = Found(story, search)
    calls: list[int] = []

    def one(path: Path) -> None:
        found.choices = path.taken
        play(story, path, calls)

    try:
        search.run(one)
    except Broke as broke:
        found.broken, found.struck = broke.violation, broke.struck
    found.calls = sum(calls)
    return found


def replay(story: Story, choices: Sequence[int]) -> SmallWorld:
    """The same schedule again, for a look at its journal and objects."""
    small = SmallWorld(Path(Search(10**6), tuple(choices), 0), faults=story.faults, calm=story.calm)
    with small.world, narrow():
        story.told(small)
        try:
            small.world.run()
            small.settle_all()
        except Broke:
            return small
    return small


@click.command()
@click.option("--full", is_flag=True, help="Up to each story's full bound.")
@click.option("--story", "names", multiple=True, help="Only these stories.")
def main(full: bool, names: tuple[str, ...]) -> None:
    """Search every story."""
    total = calls = broken = 0
    for story in [*STORIES, *KEPT]:
        if names and story.name not in names:
            continue
        began = time.process_time()
        found = explore(story, full=full)
        took = time.process_time() - began
        total, calls = total + found.search.total, calls + found.calls
        click.echo(
            f"{story.name:10} at most {story.faults} faults, {found.search.whole} deviations: "
            f"{found.search.total:7,} schedules ({found.search.pruned:,} ended in a state seen before), "
            f"{found.calls:9,} calls, {took:6.1f} s  {found.broken or 'all is well'}"
        )
        if found.broken is not None:
            broken += 1
            click.echo(f"    faults {found.struck}, choices {found.choices}")
    click.echo(f"{total:,} schedules, {calls:,} calls, {broken} stories in which a promise broke")
    if broken:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
