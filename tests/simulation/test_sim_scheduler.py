"""Simulated processes: time, order, death, frost, and the store's faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streams.buckets.base import Written
from streams.errors import PreconditionFailed, Throttled, Unreachable
from streams.testing.conformance import CHECKS, Traits
from streams.testing.simulation import Killed, Process, SimBucket, SimStore, Stuck, Weather, World

THREADS = {"fill", "race", "threading"}
ORDERLY = {name: check for name, check in CHECKS.items() if not THREADS & {*check.__code__.co_names}}
"""The checks that start no real threads."""


def run(script: Callable[[Process], Any], **options: Any) -> Any:
    """What a script returns that is the only process of its world."""
    found: list[Any] = []
    with World() as world:
        process = world.process("p", **options)
        process.start(lambda: found.append(script(process)))
        world.run()
    if process.error is not None:
        raise process.error
    return found[0]


def test_hours_pass_at_once() -> None:
    def script(process: Process) -> tuple[float, int]:
        before = process.now_ms()
        process.sleep(7200.0)
        return process.monotonic(), process.now_ms() - before

    assert run(script) == (7200.0, 7_200_000)


def test_parallel_calls_interleave_and_come_back_in_order() -> None:
    order: list[str] = []

    def call(process: Process, name: str, seconds: float) -> str:
        order.append(f"{name} begins")
        process.sleep(seconds)
        order.append(f"{name} ends")
        return name

    def script(process: Process) -> list[str]:
        return process.gather([lambda: call(process, "slow", 2.0), lambda: call(process, "fast", 1.0)])

    assert run(script) == ["slow", "fast"]
    assert order == ["slow begins", "fast begins", "fast ends", "slow ends"]


def test_the_first_error_in_order_is_raised_when_all_have_ended() -> None:
    ended: list[str] = []

    def call(process: Process, name: str, seconds: float) -> None:
        process.sleep(seconds)
        ended.append(name)
        raise Unreachable(name)

    def script(process: Process) -> None:
        process.gather([lambda: call(process, "first", 2.0), lambda: call(process, "second", 1.0)])

    with pytest.raises(Unreachable, match="first"):
        run(script)
    assert ended == ["second", "first"]


def test_a_killed_process_unwinds_and_does_nothing_more() -> None:
    told: list[str] = []
    with World() as world:
        process = world.process("p")

        def background() -> None:
            process.sleep(100.0)
            told.append("background went on")

        def script() -> None:
            process.spawn(background, "background")
            try:
                process.sleep(50.0)
            finally:
                told.append("unwound")
                with pytest.raises(Killed):
                    process.sleep(1.0)

        process.start(script)
        world.after(10.0, process.kill)
        world.run()
    assert told == ["unwound"]
    assert isinstance(process.error, Killed)
    assert not process.alive


@pytest.mark.parametrize(("clock_ran", "woke_at", "showed"), [(True, 3700.0, 3700.0), (False, 3710.0, 20.0)])
def test_a_frozen_process_sleeps_on_and_its_clock_may_have_stood_still(
    clock_ran: bool, woke_at: float, showed: float
) -> None:
    seen: list[float] = []
    with World() as world:
        process = world.process("p")
        process.start(lambda: (process.sleep(20.0), seen.extend([world.now, process.monotonic()])))
        world.after(10.0, process.freeze)
        world.after(3700.0, lambda: process.thaw(clock_ran=clock_ran))
        world.run()
    assert seen == [woke_at, showed]


def test_a_wall_clock_is_skewed_and_jumps_and_the_other_one_does_not() -> None:
    with World() as world:
        process = world.process("p", skew_ms=-5000)
        right = world.process("q")
        assert process.now_ms() - right.now_ms() == -5000
        process.jump(86_400_000)
        assert process.now_ms() - right.now_ms() == 86_395_000
        assert process.monotonic() == right.monotonic()


def test_who_waits_for_ever_is_found() -> None:
    with World() as world:
        process = world.process("p")
        waiter = process.waiter()

        def script() -> None:
            with waiter:
                waiter.wait()

        process.start(script)
        with pytest.raises(Stuck, match="for ever"):
            world.run()


def test_a_lock_is_held_across_a_wait_and_is_re_entrant() -> None:
    order: list[str] = []
    with World() as world:
        process = world.process("p")
        lock = process.waiter()

        def other() -> None:
            with lock:
                order.append("other")

        def script() -> None:
            with lock, lock:
                task = process.spawn(other, "other")
                process.sleep(5.0)
                order.append("script")
            task.join()

        process.start(script)
        world.run()
    assert order == ["script", "other"]


def test_enough_of_the_contract_is_checked() -> None:
    assert len(ORDERLY) >= 10


@pytest.mark.parametrize("check", ORDERLY.values(), ids=ORDERLY)
def test_the_simulated_store_is_a_bucket(check: Callable[..., None]) -> None:
    with World() as world:
        store = SimStore(world, Weather(latency=(0.0, 0.0)))
        process = world.process("p")
        process.start(lambda: check(lambda: store.bucket(process), Traits(objects=60)))
        world.run()
    if process.error is not None:
        raise process.error


def asked(weather: Weather, script: Callable[[SimBucket], Any], store: list[SimStore] | None = None) -> Any:
    """What a script gets from a store in this weather."""

    def inside(process: Process) -> Any:
        made = SimStore(process.world, weather)
        if store is not None:
            store.append(made)
        return script(made.bucket(process))

    return run(inside)


def put(bucket: SimBucket) -> Written:
    return bucket.put("k", b"data", if_absent=True, nonce="n")


@pytest.mark.parametrize(
    ("fault", "error", "there"),
    [("refused", Unreachable, False), ("throttled", Throttled, False), ("lost", Unreachable, True)],
)
def test_a_write_that_fails_is_there_or_not(fault: str, error: type[Exception], there: bool) -> None:
    stores: list[SimStore] = []
    with pytest.raises(error):
        asked(Weather(**{fault: 1.0}), put, stores)
    assert ("k" in stores[0].objects()) is there
    assert stores[0].counts() == {fault: 1}


def test_a_late_write_lands_within_a_quarter_of_an_hour_or_never() -> None:
    landed = 0
    for seed in range(40):
        with World(random.Random(seed)) as world:
            store = SimStore(world, Weather(late=1.0), seed=seed)
            process = world.process("p")
            process.start(lambda: put(store.bucket(process)))  # noqa: B023 - runs in this round
            world.run(until=6.0)
            assert isinstance(process.error, Unreachable)
            world.run(until=900.0)
            by_then = len(store.objects())
            world.run()
            assert len(store.objects()) == by_then
            landed += by_then
    assert 5 < landed < 35


def test_a_write_arrives_though_its_sender_is_dead() -> None:
    with World() as world:
        store = SimStore(world)
        process = world.process("p")
        bucket = store.bucket(process)
        bucket.at(1, "flying", process.kill)
        process.start(lambda: put(bucket))
        world.run()
        assert isinstance(process.error, Killed)
        assert store.objects() == {"k": b"data"}


def test_a_proxy_that_repeats_a_create_reports_a_lost_race() -> None:
    stores: list[SimStore] = []
    with pytest.raises(PreconditionFailed):
        asked(Weather(twice=1.0), put, stores)
    assert stores[0].objects() == {"k": b"data"}


@pytest.mark.parametrize(("fault", "size"), [("flip", 4), ("cut", None)])
def test_bytes_go_bad_on_their_way_and_are_good_at_rest(fault: str, size: int | None) -> None:
    def script(bucket: SimBucket) -> bytes:
        bucket.store.inner.put("k", b"data")
        blob = bucket.get("k")
        assert blob is not None
        return blob.data

    stores: list[SimStore] = []
    read = asked(Weather(**{fault: 1.0}), script, stores)
    assert read != b"data"
    assert len(read) == size or b"data".startswith(read)
    assert stores[0].objects() == {"k": b"data"}


def test_rot_changes_what_is_stored_and_says_so_to_the_judge_alone() -> None:
    stores: list[SimStore] = []
    asked(Weather(rot=1.0), put, stores)
    assert stores[0].objects()["k"] != b"data"
    assert stores[0].rotten == ["k"]


def test_a_fault_that_is_left_out_changes_no_other() -> None:
    def struck(without: frozenset[tuple[str, int]]) -> list[tuple[str, int, str]]:
        with World() as world:
            store = SimStore(world, Weather(refused=0.3, lost=0.3), without=without)
            process = world.process("p")
            bucket = store.bucket(process)

            def script() -> None:
                for _ in range(30):
                    try:
                        bucket.get("k")
                    except Unreachable:
                        pass

            process.start(script)
            world.run()
        return store.struck

    everything = struck(frozenset())
    assert len(everything) > 5
    name, number, _ = everything[2]
    assert struck(frozenset({(name, number)})) == [row for row in everything if row != everything[2]]


def test_a_store_without_a_date_header_tells_none() -> None:
    def script(bucket: SimBucket) -> tuple[Any, Any]:
        written = put(bucket)
        return written.date_ms, bucket.list("").date_ms

    assert asked(Weather(dates=False), script) == (None, None)
    assert None not in asked(Weather(), script)
