"""The crash script again, over a real S3 server and through the drivers: real requests, real answers.

Time is fake, so every third call has to do: the store's dates are real and a lease never runs out here. The
next worker takes over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from crash_agent import Ledger, until_done, whole_script
from crash_checker import check_all
from crash_world import Killed, Process, When, World
from test_every_call import CALLS, HICCUPS

from snapshotter import ChatRecovery
from snapshotter.database import Database
from streams.buckets.base import Bucket
from streams.clock import SystemClock
from streams.probe import KEY, probe
from streams.store import Store

EVERY = 3


@pytest.fixture(params=["s3", "minio", "obstore"])
def fresh(request: pytest.FixtureRequest) -> Iterator[Callable[[], Bucket]]:
    """Makes a bucket on a fresh root of the server, through one of the drivers."""
    endpoint = request.getfixturevalue("seaweed")
    made: list[Bucket] = []
    found: list[bytes] = []

    def make() -> Bucket:
        prefix = f"crash-{os.getpid()}-{os.urandom(4).hex()}"
        bucket: Bucket = getattr(endpoint, request.param)(prefix)
        made.append(bucket)
        if not found:  # the server is asked once what it keeps; the script is about what comes then
            found.append(probe(Store(bucket, SystemClock()), SystemClock()).encode())
        bucket.put(KEY, found[0])
        return bucket

    yield make
    for bucket in made:
        bucket.close()


def begin(process: Process, script: Callable[..., None], ledger: Ledger, **options: bool) -> None:
    recovery = ChatRecovery(max_backoff=0)  # a pause ends by the store's clock, which is real
    process.start(lambda: script(Database(process.bucket, process, recovery=recovery), ledger, **options))


@pytest.mark.parametrize("kind", ["error before the effect", "time-out, done", "throttled"])
def test_a_server_that_falters_once_is_not_noticed(kind: str, fresh: Callable[[], Bucket]) -> None:
    reached = 0
    for number in range(1, 200, EVERY):
        bucket = fresh()
        world, ledger = World(lambda bucket=bucket: bucket), Ledger()
        process = world.process([replace(HICCUPS[kind], nth=number)])
        begin(process, whole_script, ledger)
        world.run()
        if len(process.bucket.calls) < number:
            break
        reached = number
        assert process.error is None, f"call {number}"
        check_all(bucket, ledger)
        assert ledger.ran == {"lookup": 1, "charge": 1}, f"call {number}"
    assert reached > CALLS


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_at_a_call_leaves_everything_to_the_next(
    when: When, fresh: Callable[[], Bucket]
) -> None:
    reached = 0
    for number in range(2, 200, EVERY):
        bucket = fresh()
        world, ledger = World(lambda bucket=bucket: bucket), Ledger()
        process = world.process()
        process.at(number, when, process.kill)
        begin(process, whole_script, ledger)
        world.run()
        if len(process.bucket.calls) < number:
            break
        reached = number
        assert isinstance(process.error, Killed), f"call {number}"
        successor = world.process()
        begin(successor, until_done, ledger, takeover=True)
        world.run()
        assert successor.error is None, f"call {number}"
        check_all(bucket, ledger)
    assert reached > CALLS
