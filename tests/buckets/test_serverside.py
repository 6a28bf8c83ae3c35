"""What a store is asked to do with the bytes: each driver says it, and servers do it."""

from __future__ import annotations

import hashlib
import os
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import snapshotter
from streams.buckets import serverside
from streams.buckets.base import Bucket
from streams.buckets.minio import MinioBucket
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.remote import Keys
from streams.buckets.s3 import S3Bucket
from streams.buckets.serverside import ServerSide
from streams.buckets.url import open_bucket
from streams.errors import InvalidId, InvalidValue, Misconfigured, StreamError, Unsupported
from streams.testing.conformance import CHECKS, Traits

from .stub import Asked, Stub, found, serving

DRIVERS = {"s3": S3Bucket, "minio": MinioBucket, "obstore": ObstoreBucket}
KEY = bytes(range(32))
STUB = Keys("a", "b")
CUSTOMER = ServerSide(customer_key=KEY)
SAID = {
    "x-amz-server-side-encryption-customer-algorithm": "AES256",
    "x-amz-server-side-encryption-customer-key": b64encode(KEY).decode(),
    "x-amz-server-side-encryption-customer-key-md5": b64encode(hashlib.md5(KEY).digest()).decode(),
}
KMS = {"x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": "k-1"}


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as served:
        yield served


def opened(driver: str, url: str, side: ServerSide, keys: Keys = STUB, name: str = "b") -> Bucket:
    bucket: Bucket = DRIVERS[driver](name, "p", endpoint=url, keys=lambda: keys, server_side=side)
    return bucket


def sides(asked: Asked) -> dict[str, str]:
    """What a request says of encryption and checksums."""
    marks = ("x-amz-server-side", "x-amz-checksum", "x-amz-sdk-checksum")
    return {name.lower(): value for name, value in asked.headers.items() if name.lower().startswith(marks)}


REQUESTS: dict[str, Callable[[Any], object]] = {
    "put": lambda bucket: bucket.put("a", b"data", if_absent=True, nonce="n"),
    "get": lambda bucket: bucket.get("a"),
    "head": lambda bucket: bucket.head("a"),
    "list": lambda bucket: bucket.list("x/"),
    "delete": lambda bucket: bucket.delete("a"),
}
LISTED = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
BODIES = {"get": b"data", "list": LISTED}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_customer_key_is_in_each_request_that_touches_bytes(driver: str, request_: str, stub: Stub) -> None:
    stub.answers = [found(BODIES.get(request_, b""), **SAID)]
    bucket = opened(driver, stub.url, CUSTOMER)
    REQUESTS[request_](bucket)
    bucket.close()
    (asked,) = stub.heard(1)
    expected = {"list": {}, "delete": {}}.get(request_, SAID)
    assert sides(asked) == expected
    assert b64encode(KEY).decode() not in repr(bucket.__dict__)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_key_of_a_key_service_is_named_where_bytes_are_written(
    driver: str, request_: str, stub: Stub
) -> None:
    stub.answers = [found(BODIES.get(request_, b""), **KMS)]
    bucket = opened(driver, stub.url, ServerSide(sse="aws:kms", kms_key="k-1"))
    REQUESTS[request_](bucket)
    bucket.close()
    assert sides(stub.heard(1)[0]) == (KMS if request_ == "put" else {})


CHECKSUMS = {
    "sha256": b64encode(hashlib.sha256(b"data").digest()).decode(),
    "crc32": b64encode(zlib.crc32(b"data").to_bytes(4, "big")).decode(),
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", CHECKSUMS)
def test_a_checksum_is_a_header_of_each_put_and_the_body_is_plain(driver: str, name: str, stub: Stub) -> None:
    stub.answers = [found(b"")]
    bucket = opened(driver, stub.url, ServerSide(checksum=name))
    bucket.put("a", b"data")
    bucket.close()
    (asked,) = stub.heard(1)
    assert sides(asked) == {f"x-amz-checksum-{name}": CHECKSUMS[name]}
    assert asked.body == b"data"


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("side", [CUSTOMER, ServerSide(sse="AES256"), ServerSide(checksum="crc32")])
def test_where_the_store_is_asked_for_more_it_does_not_copy_by_itself(driver: str, side: ServerSide) -> None:
    """Not every store says of a copy that it was encrypted."""
    for asked, copies in ((side, False), (serverside.NOTHING, True), (ServerSide(), True)):
        bucket = opened(driver, "http://127.0.0.1:1", asked)
        assert bucket.copies is copies
        bucket.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_without_a_wish_nothing_is_said(driver: str, stub: Stub) -> None:
    stub.answers = [found(b"")]
    bucket = opened(driver, stub.url, serverside.NOTHING)
    bucket.put("a", b"data")
    bucket.close()
    assert sides(stub.heard(1)[0]) == {}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("side", [CUSTOMER, ServerSide(sse="AES256"), ServerSide(sse="aws:kms")])
def test_a_store_that_does_not_say_that_it_encrypted_is_refused(
    driver: str, side: ServerSide, stub: Stub
) -> None:
    stub.answers = [found(b"")]
    bucket = opened(driver, stub.url, side)
    with pytest.raises(Unsupported, match="did not encrypt"):
        bucket.put("a", b"data")
    bucket.close()


# --- servers -------------------------------------------------------------------------------------------


@pytest.fixture(params=DRIVERS)
def at_server(request: pytest.FixtureRequest, seaweed: Any) -> Iterator[Callable[[ServerSide], Any]]:
    """Opens one fresh root of a real server, by each driver in turn."""
    prefix = f"side-{os.getpid()}-{os.urandom(4).hex()}"
    made: list[Bucket] = []

    def connect(side: ServerSide) -> Bucket:
        driver = DRIVERS[request.param]
        made.append(
            driver(seaweed.bucket, prefix, endpoint=seaweed.url, keys=lambda: seaweed.keys, server_side=side)
        )
        return made[-1]

    yield connect
    for bucket in made:
        bucket.close()


SOME = (
    "bytes_come_back_as_they_were",
    "nonces_travel_with_the_object",
    "a_key_is_created_once",
    "only_the_named_version_is_replaced",
    "every_etag_serves_as_a_condition",
    "a_copy_has_the_bytes_and_the_nonce",
)


@pytest.mark.parametrize("check", SOME)
@pytest.mark.parametrize(
    "side",
    [CUSTOMER, ServerSide(sse="AES256"), ServerSide(checksum="sha256"), ServerSide(checksum="crc32")],
    ids=["SSE-C", "SSE-S3", "sha256", "crc32"],
)
def test_the_contract_holds_on_a_real_server(check: str, side: ServerSide, at_server: Any) -> None:
    CHECKS[check](lambda: at_server(side), Traits(racers=2, rounds=2, byte_order=False))


def test_a_real_server_gives_nothing_out_without_the_customer_key(at_server: Any) -> None:
    at_server(CUSTOMER).put("a", b"data")
    for side in (serverside.NOTHING, ServerSide(customer_key=b"x" * 32)):
        with pytest.raises(StreamError):
            at_server(side).get("a")
    assert at_server(CUSTOMER).get("a").data == b"data"


def test_a_real_server_says_what_it_encrypted_itself(seaweed: Any, at_server: Any) -> None:
    bucket = at_server(ServerSide(sse="AES256"))
    bucket.put("a", b"data")
    looking = seaweed.s3()
    head = looking._client.head_object(Bucket=seaweed.bucket, Key=f"{bucket._root}a")
    assert head["ServerSideEncryption"] == "AES256"
    looking.close()


def test_a_real_server_refuses_what_does_not_match_its_checksum(
    at_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = at_server(ServerSide(checksum="sha256"))
    monkeypatch.setattr(serverside, "_checksum", lambda *_: b64encode(b"\0" * 32).decode())
    with pytest.raises(StreamError):
        bucket.put("a", b"data")
    assert bucket.get("a") is None


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_server_keeps_which_key_of_its_key_service_was_named(driver: str, moto_server: Any) -> None:
    side = ServerSide(sse="aws:kms", kms_key="arn:aws:kms:us-east-1:1:key/k-1")
    bucket = opened(driver, moto_server.url, side, moto_server.keys, moto_server.bucket)
    bucket.put("kms", b"data")
    bucket.close()
    looking = moto_server.s3()
    head = looking._client.head_object(Bucket=moto_server.bucket, Key="p/kms")
    looking.close()
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", side.kms_key)


def test_a_session_under_a_customer_key_on_a_real_server(seaweed: Any) -> None:
    url = f"s3://{seaweed.bucket}/sse-{os.urandom(4).hex()}?endpoint={seaweed.url}"
    env = {
        "AWS_ACCESS_KEY_ID": seaweed.keys.access_key,
        "AWS_SECRET_ACCESS_KEY": seaweed.keys.secret_key,
        "SNAPSHOTTER_SSE_CUSTOMER_KEY": b64encode(KEY).decode(),
    }
    with snapshotter.open(url, env=env) as db:
        db.send("s", "hello")
        with db.boot("s") as session:
            for turn in session.turns():
                with turn:
                    for kind in ("start", "text-start", "text-delta", "text-end", "finish"):
                        more = {"id": "t"} if kind.startswith("text") else {}
                        turn.write({"type": kind, **more, **({"delta": "hi"} if "delta" in kind else {})})
        assert len(db.history("s")) == 2
    del env["SNAPSHOTTER_SSE_CUSTOMER_KEY"]
    with snapshotter.open(url, env=env) as db, pytest.raises(StreamError):
        db.history("s")


# --- what is asked wrongly -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"sse": "aes"},
        {"checksum": "md5"},
        {"kms_key": "k"},
        {"sse": "AES256", "kms_key": "k"},
        {"sse": "aws:kms", "kms_key": "k\r\nx-evil: 1"},
        {"customer_key": b"short"},
        {"customer_key": "x" * 32},
        {"customer_key": KEY, "sse": "AES256"},
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        ServerSide(**options)


ENV = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


@pytest.mark.parametrize(
    "url", ["s3://b/p?endpoint=http://localhost:1&", "s3+obstore://b/p?", "minio://localhost:1/b/p?"]
)
def test_a_url_says_it(url: str) -> None:
    bucket: Any = open_bucket(f"{url}sse=aws:kms&kms_key=k-1&checksum=crc32", env=ENV)
    assert bucket._server_side == ServerSide("aws:kms", "k-1", checksum="crc32")
    bucket.close()
    with pytest.raises(InvalidValue):
        open_bucket(f"{url}sse=none", env=ENV)


def test_it_is_said_once_and_to_a_store_that_has_a_server() -> None:
    side = ServerSide(sse="AES256")
    for url in ("memory://x", "file:///tmp/x", "s3://b?sse=AES256"):
        with pytest.raises(InvalidValue, match="server_side"):
            open_bucket(url, env=ENV, server_side=side)
    for url in ("memory://x?sse=AES256", "file:///tmp/x?checksum=crc32"):
        with pytest.raises(InvalidId, match="not known"):
            open_bucket(url, env=ENV)


@pytest.mark.parametrize(
    "url",
    ["s3://b?endpoint=http://far:1", "s3+obstore://b?endpoint=http://far:1", "minio://far:1/b?secure=0"],
)
def test_a_customer_key_does_not_travel_in_plain_text(url: str) -> None:
    with pytest.raises(Misconfigured, match="https"):
        open_bucket(url, env={**ENV, "SNAPSHOTTER_SSE_CUSTOMER_KEY": b64encode(KEY).decode()})
    with pytest.raises(Misconfigured, match="https"):
        open_bucket(url, env=ENV, server_side=CUSTOMER)


def test_a_customer_key_that_is_none_is_refused_and_not_repeated() -> None:
    for wrong in ("c2hvcnQ=", "!!!!"):
        with pytest.raises(InvalidValue) as caught:
            open_bucket("s3://b", env={**ENV, "SNAPSHOTTER_SSE_CUSTOMER_KEY": wrong})
        assert wrong not in str(caught.value)
