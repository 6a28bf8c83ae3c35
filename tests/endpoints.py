"""The backends of the tests, what each is known to do, and how a driver reaches a server."""

from __future__ import annotations

import os
from dataclasses import dataclass

from streams.buckets.minio import MinioBucket
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.remote import Keys
from streams.buckets.s3 import S3Bucket
from streams.testing.conformance import Traits

ENDPOINT = os.environ.get("SNAPSHOTTER_TEST_ENDPOINT")
DRIVERS = ["s3", "minio", "obstore"]
SERVERS = ["moto", "seaweed", *(["endpoint"] if ENDPOINT else [])]
BACKENDS = ["memory", "file", *(f"{driver}-{server}" for server in SERVERS for driver in DRIVERS)]

TRAITS = {
    "memory": Traits(),
    "file": Traits(nonces=False, long_keys=False, copies=False),
    "moto": Traits(racers=8, rounds=6, objects=1105, copies=False),
    # A fourth racer on one key may wait for seconds there, and its folders are not in byte order.
    "seaweed": Traits(racers=2, rounds=10, objects=1105, byte_order=False),
    # MinIO keeps names of 255 bytes, as the filesystem below it does.
    "endpoint": Traits(racers=4, rounds=10, objects=2345, long_keys=False),
}


@dataclass(frozen=True)
class Endpoint:
    """An S3 endpoint with a bucket that exists."""

    url: str
    bucket: str
    keys: Keys

    def s3(self, prefix: str = "") -> S3Bucket:
        return S3Bucket(self.bucket, prefix, endpoint=self.url, keys=lambda: self.keys)

    def minio(self, prefix: str = "") -> MinioBucket:
        return MinioBucket(self.bucket, prefix, endpoint=self.url, keys=lambda: self.keys)

    def obstore(self, prefix: str = "") -> ObstoreBucket:
        return ObstoreBucket(self.bucket, prefix, endpoint=self.url, keys=lambda: self.keys)
