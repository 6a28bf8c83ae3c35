"""A fault at every single storage call of the script, of every kind; then a fresh worker finishes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from crash_agent import Ledger, begin, once, until_done, whole_script
from crash_checker import check_all, plain, snapshot_cursors
from crash_world import Killed, Process, When, World

from streams.errors import Throttled, Unreachable
from streams.testing.faults import Fault

CALLS = 50  # the script makes more than this: what has fewer did not run whole


def throttled() -> Exception:
    return Throttled("injected: slow down")


def refused() -> Exception:
    return Unreachable("injected: connection refused")


HICCUPS = {
    "error before the effect": Fault(when="before", error=refused),
    "time-out, not done": Fault(when="before", seconds=5.0),
    "time-out, done": Fault(when="after", seconds=5.0),
    "time-out, done later": Fault(when="late", seconds=5.0),
    "throttled": Fault(when="before", error=throttled, times=3),
}
"""The store falters and comes back: the worker goes on, and nobody notices."""


def ended(process: Process, number: int) -> bool:
    """True when the script is shorter than this."""
    return len(process.bucket.calls) < number


@pytest.mark.parametrize("kind", HICCUPS)
def test_a_store_that_falters_once_is_not_noticed(kind: str) -> None:
    for number in count(1):
        world, ledger = World(), Ledger()
        process = world.process([replace(HICCUPS[kind], nth=number)])
        begin(process, whole_script, ledger)
        world.run()
        if ended(process, number):
            assert number > CALLS
            break
        process.bucket.land()
        assert process.error is None, f"call {number}"
        check_all(plain(world.space), ledger)
        assert ledger.ran == {"lookup": 1, "charge": 1}, f"call {number}"
        assert [attempt for _, attempt in ledger.model_calls] == [1, 1, 1], f"call {number}"


OUTAGES = {
    "not done": [Fault(when="before", seconds=5.0, times=0)],
    "the first done": [Fault(when="after", seconds=5.0), Fault(when="before", seconds=5.0, times=0)],
    "throttled for ever": [Fault(when="before", error=throttled, times=0)],
    "the first lands late": [Fault(when="late", seconds=5.0), Fault(when="before", seconds=5.0, times=0)],
}
"""From the n-th call on the worker never hears from the store again."""


def outage(kind: str, number: int) -> list[Fault]:
    first, *rest = OUTAGES[kind]
    return [replace(first, nth=number), *[replace(fault, nth=number + 1) for fault in rest]]


@pytest.mark.parametrize("kind", OUTAGES)
def test_a_worker_that_loses_the_store_leaves_everything_to_the_next(kind: str) -> None:
    for number in count(1):
        world, ledger = World(), Ledger()
        process = world.process(outage(kind, number))
        begin(process, once, ledger)
        world.run()
        if ended(process, number):
            assert number > CALLS
            break
        assert process.error is None, f"call {number}"
        process.bucket.land()
        finish(world, ledger, f"call {number}")


@pytest.mark.parametrize("landing", [3, 6, 14])
def test_a_write_that_lands_while_the_next_worker_is_at_work(landing: int) -> None:
    landed: set[str] = set()
    for number in count(1):
        world, ledger = World(), Ledger()
        process = world.process(outage("the first lands late", number))
        begin(process, once, ledger)
        world.run()
        if ended(process, number):
            assert number > CALLS
            break
        late = process.bucket.land

        def land(late: Callable[[], list[object]] = late) -> None:
            landed.update(type(result).__name__ for result in late())

        finish(world, ledger, f"call {number}", lambda p: p.at(landing, "before", land))
    assert {"Written", "PreconditionFailed"} <= landed


@pytest.mark.parametrize("takeover", [False, True], ids=["stale", "takeover"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_at_any_call(when: When, takeover: bool) -> None:
    for number in count(1):
        world, ledger = World(), Ledger()
        process = world.process()
        process.at(number, when, process.kill)
        begin(process, whole_script, ledger)
        world.run()
        if ended(process, number):
            assert number > CALLS
            break
        assert isinstance(process.error, Killed), f"call {number}"
        finish(world, ledger, f"call {number}", takeover=takeover)


@pytest.mark.parametrize("second", [4, 7, 11])
def test_a_worker_killed_at_any_call_and_its_successor_too(second: int) -> None:
    for number in count(1):
        world, ledger = World(), Ledger()
        process = world.process()
        process.at(number, "after", process.kill)
        begin(process, whole_script, ledger)
        world.run()
        if ended(process, number):
            assert number > CALLS
            break
        again = world.process()
        again.at(second, "after", again.kill)
        begin(again, until_done, ledger, takeover=True)
        world.run()
        finish(world, ledger, f"calls {number}, {second}", takeover=True)


def finish(
    world: World,
    ledger: Ledger,
    note: str,
    prepare: Callable[[Process], None] = lambda process: None,
    *,
    takeover: bool = False,
) -> None:
    """A fresh worker does what is left; then everything must hold."""
    before = snapshot_cursors(plain(world.space))
    calls = len(ledger.model_calls)
    process = world.process()
    prepare(process)
    begin(process, until_done, ledger, takeover=takeover)
    world.run()
    if process.error is not None:
        raise AssertionError(note) from process.error
    try:
        check_all(plain(world.space), ledger)
        assert before <= snapshot_cursors(plain(world.space)), "the snapshot went back"
        new = ledger.model_calls[calls:]
        assert len(new) == len(set(new)), f"the model was called twice for one attempt: {new}"
    except AssertionError as error:
        raise AssertionError(note) from error
