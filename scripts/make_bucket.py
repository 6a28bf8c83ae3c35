"""Wait until an S3 server works, and make a bucket: `make_bucket.py ENDPOINT BUCKET ACCESS_KEY SECRET_KEY`.

It works once a PUT and a GET have; an open port proves nothing. Exit status 1 after a minute without.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

SECONDS = 60
REGION = "us-east-1"


class NotReady(Exception):
    """The server did not work in time."""


def make_bucket(
    endpoint: str, bucket: str, access_key: str, secret_key: str, *, check: Callable[[], None] = lambda: None
) -> None:
    """Make the bucket, which may exist. `check` is called between tries. Raises NotReady."""
    import boto3
    from botocore.client import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=REGION,
        config=Config(
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            connect_timeout=1,
            read_timeout=5,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    exists = (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists)
    last: Exception | None = None
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            check()
            try:
                with contextlib.suppress(*exists):
                    client.create_bucket(Bucket=bucket)
                client.put_object(Bucket=bucket, Key="started", Body=b"yes")
                client.get_object(Bucket=bucket, Key="started")["Body"].read()
                client.delete_object(Bucket=bucket, Key="started")
                return
            except (BotoCoreError, ClientError) as error:
                last = error
                time.sleep(0.2)
        raise NotReady(f"{endpoint} did not work within {SECONDS} s: {last}")
    finally:
        client.close()


if __name__ == "__main__":
    try:
        make_bucket(*sys.argv[1:5])
    except NotReady as error:
        sys.exit(str(error))
