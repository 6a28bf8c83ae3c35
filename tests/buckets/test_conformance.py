"""Every backend keeps the bucket contract."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streams.buckets.memory import MemoryBucket
from streams.errors import PreconditionFailed
from streams.testing.conformance import CHECKS, Check, Traits

ASSERTIONS = (AssertionError, PreconditionFailed)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_contract(check: Check, backend: Any) -> None:
    check(backend.connect, backend.traits)


class IgnoresConditions(MemoryBucket):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        return super().put(key, data, nonce=nonce)


class ForgetsNonces(MemoryBucket):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        return super().put(key, data, if_absent=if_absent, if_match=if_match)


class ChecksThenWrites(MemoryBucket):
    """A condition that holds one racer at a time, and not two: here both have looked before one writes."""

    def __init__(self):
        super().__init__()
        self.both = threading.Barrier(2, timeout=30)

    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        found = self.head(key)
        if key == "r/0" or if_match is not None:
            self.both.wait()
        if (if_absent and found) or (if_match is not None and (found is None or found.etag != if_match)):
            raise PreconditionFailed(key)
        return super().put(key, data, nonce=nonce)


class KeepsFraming(MemoryBucket):
    def put(self, key, data, *, if_absent=False, if_match=None, nonce=""):
        framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        return super().put(key, framed, if_absent=if_absent, if_match=if_match, nonce=nonce)


class ListsBackwards(MemoryBucket):
    def list(self, prefix, *, after="", limit=1000):
        page = super().list(prefix, after=after, limit=limit)
        return type(page)(page.entries[::-1], page.more, page.resume, page.date_ms)


class StopsAtThousand(MemoryBucket):
    def list(self, prefix, *, after="", limit=1000):
        page = super().list(prefix, after=after, limit=limit)
        return type(page)(page.entries, False, page.resume, page.date_ms)


class UnquotesListedTags(MemoryBucket):
    def get(self, key):
        blob = super().get(key)
        return blob and type(blob)(
            blob.data, blob.etag.strip('"'), blob.nonce, blob.modified_ms, blob.date_ms
        )


class KeepsDeleted(MemoryBucket):
    def delete(self, key):
        pass


@pytest.mark.parametrize(
    ("kind", "caught_by"),
    [
        (IgnoresConditions, "a_key_is_created_once"),
        (IgnoresConditions, "only_the_named_version_is_replaced"),
        (ChecksThenWrites, "one_racer_creates"),
        (ChecksThenWrites, "one_racer_replaces"),
        (ForgetsNonces, "nonces_travel_with_the_object"),
        (KeepsFraming, "bytes_come_back_as_they_were"),
        (ListsBackwards, "a_listing_is_ordered_bounded_and_resumable"),
        (StopsAtThousand, "a_long_listing_misses_and_repeats_nothing"),
        (StopsAtThousand, "a_catalogue_over_folders_is_complete"),
        (UnquotesListedTags, "every_etag_serves_as_a_condition"),
        (KeepsDeleted, "deletes_are_final_and_repeatable"),
    ],
)
def test_the_suite_catches_a_bucket_that_breaks_the_contract(kind, caught_by) -> None:
    bucket = kind()
    with pytest.raises(ASSERTIONS):
        CHECKS[caught_by](lambda: bucket, Traits(racers=2, rounds=3))
