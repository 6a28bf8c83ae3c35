"""The S3 drivers by their names, on a bucket behind any endpoint."""

from __future__ import annotations

from collections.abc import Callable

from streams.buckets.base import Bucket
from streams.buckets.minio import MinioBucket
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.remote import Keys
from streams.buckets.s3 import S3Bucket

SECRET = "s3cr3t-value"
DRIVERS = {"s3": S3Bucket, "minio": MinioBucket, "obstore": ObstoreBucket}


def open_driver(driver: str, url: str, keys: Callable[[], Keys | None]) -> Bucket:
    return DRIVERS[driver]("bucket", "root", endpoint=url, keys=keys)
