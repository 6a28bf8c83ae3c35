"""What the tests of logs share: a store in memory on a clock that they own."""

from __future__ import annotations

import pytest
from log_samples import Chain

from streams.buckets.memory import MemoryBucket
from streams.store import Store
from streams.testing.clocks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bucket(clock: FakeClock) -> MemoryBucket:
    return MemoryBucket(clock)


@pytest.fixture
def store(bucket: MemoryBucket, clock: FakeClock) -> Store:
    return Store(bucket, clock)


@pytest.fixture
def chain(store: Store) -> Chain:
    return Chain(store)
