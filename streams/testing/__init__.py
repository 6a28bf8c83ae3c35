"""Shipped helpers for tests: the bucket conformance suite, a fault-injecting bucket, a fake clock.

They need no test framework: plain functions and classes that raise AssertionError.
"""

from streams.testing.clocks import FakeClock
from streams.testing.faults import Call, Fault, FaultyBucket

__all__ = ["Call", "FakeClock", "Fault", "FaultyBucket"]
