"""Exhaustive search over the choices of a run: re-execution with a prefix of choices, no state is copied.

A run is a function of a `Path`. Wherever something could go in several ways it asks `path.choose`, and takes
what that says. The first run always takes the first way; each choice it meets for the first time puts its
other ways on a heap, as prefixes for later runs. Each way has a cost, 0 or more, and runs come in the order
of their cost: *bounded* search (as CHESS does it) in which a cost is a preemption, a fault, whatever the run
counts as a deviation. When every run of a cost is done, all schedules of that cost have been seen.

At a choice the run may say in which `state` it is: a hash of everything that decides what can happen and
what will be judged from here on. A state that was seen before ends the run, since what follows was, or will
be, searched from there; it was seen at no higher cost, because cheaper runs come first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field


class Pruned(BaseException):
    """This run has come to a state that was seen before. Nothing in the engine may catch it."""


class Path:
    """The choices of one run: first those of its prefix, then always the first way."""

    def __init__(self, search: Search, prefix: tuple[int, ...], cost: int) -> None:
        self.taken: list[int] = []
        self._search = search
        self._prefix = prefix
        self._cost = cost

    def choose(self, costs: Sequence[int], state: Hashable = None) -> int:
        """Which of the ways to go; `costs` are theirs, and the first has to cost nothing."""
        at = len(self.taken)
        if at < len(self._prefix):
            self.taken.append(self._prefix[at])
            return self._prefix[at]
        if state is not None:
            if state in self._search.seen:
                raise Pruned
            self._search.seen.add(state)
        for way in range(1, len(costs)):
            self._search.push((*self.taken, way), self._cost + costs[way])
        self.taken.append(0)
        return 0


@dataclass
class Search:
    """One search. `most` is the highest cost that is searched, `limit` how many runs at most.

    After `run`: `schedules` run at each cost, of which `pruned` ended at a state seen before; `whole`: the
    highest cost of which every schedule was run, -1 for none.
    """

    most: int
    limit: int | None = None
    seen: set[Hashable] = field(default_factory=set)
    schedules: Counter[int] = field(default_factory=Counter)
    pruned: int = 0
    _heap: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    _pushed: int = 0

    def push(self, prefix: tuple[int, ...], cost: int) -> None:
        if cost <= self.most:
            self._pushed += 1
            heapq.heappush(self._heap, (cost, self._pushed, prefix))

    def run(self, one: Callable[[Path], object]) -> Search:
        """Run `one` for every schedule, cheapest first, until `limit`. Whatever it raises passes on."""
        self.push((), 0)
        while self._heap and (self.limit is None or self.total < self.limit):
            cost, _, prefix = heapq.heappop(self._heap)
            self.schedules[cost] += 1
            try:
                one(Path(self, prefix, cost))
            except Pruned:
                self.pruned += 1
        return self

    @property
    def total(self) -> int:
        return sum(self.schedules.values())

    @property
    def whole(self) -> int:
        return self.most if not self._heap else self._heap[0][0] - 1
