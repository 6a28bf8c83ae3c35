"""The drivers against a real server that checks signatures: what is wrong is told apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams.buckets.remote import Keys
from streams.errors import BucketMissing, CredentialsExpired, PreconditionFailed
from streams.store import Store
from streams.testing import FakeClock, Fault, FaultyBucket


@pytest.mark.parametrize("driver", ["s3", "minio", "obstore"])
def test_a_wrong_secret_an_unknown_key_and_a_missing_bucket(driver: str, seaweed: Any) -> None:
    keys = seaweed.keys
    for wrong, kind in (
        (replace(seaweed, keys=Keys(keys.access_key, "wrong")), CredentialsExpired),
        (replace(seaweed, keys=Keys("AKUNKNOWN", keys.secret_key)), CredentialsExpired),
        (replace(seaweed, bucket="no-such-bucket"), BucketMissing),
    ):
        bucket = getattr(wrong, driver)("p")
        for call in (lambda b=bucket: b.get("a"), lambda b=bucket: b.list("")):
            with pytest.raises(kind) as caught:
                call()
            assert keys.secret_key not in str(caught.value)
        bucket.close()


@pytest.mark.parametrize("driver", ["s3", "minio", "obstore"])
def test_a_lost_reply_is_found_again_by_its_nonce(driver: str, seaweed: Any) -> None:
    bucket = getattr(seaweed, driver)(f"lost-{driver}")
    faulty = FaultyBucket(bucket, [Fault("put", when="after", times=2), Fault("put", nth=3, when="after")])
    store = Store(faulty, FakeClock())
    first = store.put_once("a", b"1", if_absent=True, nonce="n1")
    assert faulty.verbs() == ["put", "put", "head"], "the second create met the first"
    second = store.put_once("a", b"2", if_match=first.etag, nonce="n2")
    assert bucket.get("a").data == b"2"
    assert bucket.head("a").etag == second.etag
    with pytest.raises(PreconditionFailed):
        store.put_once("a", b"3", if_absent=True, nonce="n3")
    bucket.close()
