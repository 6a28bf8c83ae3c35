"""The bucket contract of `streams.buckets.base`, as checks that any backend can be held to.

A check is a function of `connect` and `traits`. `connect()` returns another bucket on one and the same root,
empty when the check starts, as another process would open it. `traits` says how hard to race, and what
a backend is known not to do. With pytest:

    @pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
    def test_my_bucket(check, tmp_path):
        check(lambda: MyBucket(tmp_path), Traits())

A check raises AssertionError where the contract is broken, and what the bucket raises: Unreachable says that
nothing is settled. Nothing here needs a test framework. `snapshotter doctor --deep URL` runs the same checks.

    objects      bytes, names, metadata, dates         conditions   create and replace, one caller at a time
    listings     complete, in order, in pages          races        the same with several callers at once
"""

from . import conditions, listings, objects, races  # each enters its checks
from .checking import CHECKS, Check, Connect, Traits

__all__ = ["CHECKS", "Check", "Connect", "Traits", "conditions", "listings", "objects", "races"]
