"""The crash script over an encrypted store: a fault, or a kill, at every call; then everything must hold.

What the owner of the store sees are sealed objects; the checker reads with the key.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from crash_agent import Ledger, begin, until_done, whole_script
from crash_checker import check_all
from crash_world import Killed, When, World
from test_every_call import CALLS, HICCUPS, ended

from streams.buckets.base import Bucket
from streams.buckets.memory import MemoryBucket, Space
from streams.buckets.sealed import SealedBucket
from streams.encryption import MAGIC, Encryption


class Store:
    """One encrypted store in memory."""

    def __init__(self) -> None:
        self.space = Space()

    def connect(self) -> Bucket:
        encryption = Encryption(lambda key_id: (key_id or "k1", b"\x01" * 32))
        return SealedBucket(MemoryBucket(space=self.space), encryption, "root/")

    def check(self, ledger: Ledger) -> None:
        assert all(blob.data.startswith(MAGIC) for blob in self.space.objects.values())
        check_all(self.connect(), ledger)


@pytest.mark.parametrize("kind", ["error before the effect", "time-out, done", "time-out, done later"])
def test_a_store_that_falters_once_is_not_noticed(kind: str) -> None:
    for number in count(1):
        store, ledger = Store(), Ledger()
        world = World(store.connect)
        process = world.process([replace(HICCUPS[kind], nth=number)])
        begin(process, whole_script, ledger)
        world.run()
        if ended(process, number):
            assert number > CALLS
            break
        process.bucket.land()
        assert process.error is None, f"call {number}"
        store.check(ledger)
        assert ledger.ran == {"lookup": 1, "charge": 1}, f"call {number}"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_killed_at_any_call_leaves_everything_to_the_next(when: When) -> None:
    for number in count(1):
        store, ledger = Store(), Ledger()
        world = World(store.connect)
        process = world.process()
        process.at(number, when, process.kill)
        begin(process, whole_script, ledger)
        world.run()
        if ended(process, number):
            assert number > CALLS
            break
        assert isinstance(process.error, Killed), f"call {number}"
        successor = world.process()
        begin(successor, until_done, ledger, takeover=True)
        world.run()
        assert successor.error is None, f"call {number}"
        store.check(ledger)
