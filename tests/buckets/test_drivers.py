"""The table of errors, what each driver may raise by itself, and how its client is set up."""

from __future__ import annotations

import http.client
import inspect
import time
from datetime import UTC, datetime

import boto3
import botocore.exceptions
import botocore.loaders
import minio.error
import obstore.exceptions
import pytest
import urllib3.exceptions
from minio import Minio

from streams import errors
from streams.buckets import minio as minio_file
from streams.buckets import s3 as s3_file
from streams.buckets import signed
from streams.buckets.minio import check_driver
from streams.buckets.remote import _BY_CODE, Keys, date_of, error_for, iso_of
from streams.buckets.s3 import S3Bucket

from .opening import SECRET, open_driver
from .stub import found

AT = "http://store.example.org:9000"


def test_every_code_and_status_has_a_typed_error_with_a_remedy() -> None:
    for status in range(300, 600):
        for code in ("", "Unheard", *_BY_CODE):
            made = error_for(status, code, "GET a")
            assert isinstance(made, errors.StreamError)
            assert type(made) is not errors.StreamError
            assert len(str(made).rpartition(": ")[2]) > 10


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))


def test_every_error_of_botocore_is_mapped() -> None:
    classes = subclasses(botocore.exceptions.BotoCoreError)
    assert len(classes) > 50
    for kind in classes:
        made = s3_file._typed(kind.__new__(kind), "GET a", AT)
        assert isinstance(made, errors.StreamError), kind
    network = subclasses(botocore.exceptions.HTTPClientError) | subclasses(
        botocore.exceptions.ConnectionError
    )
    for kind in network | {
        botocore.exceptions.IncompleteReadError,
        botocore.exceptions.ResponseStreamingError,
    }:
        assert type(s3_file._typed(kind.__new__(kind), "GET a", AT)) is errors.Unreachable, kind


def bare(kind: type[Exception]) -> Exception:
    """An error of this kind with nothing in it but what its own `repr` needs."""
    made = kind.__new__(kind)
    made.partial = made.expected = made.length = 0  # type: ignore[attr-defined]
    made.response = None  # type: ignore[attr-defined]
    return made


def test_every_error_of_minio_and_urllib3_is_mapped() -> None:
    for kind in subclasses(minio.error.MinioException) | subclasses(urllib3.exceptions.HTTPError):
        assert isinstance(minio_file._typed(bare(kind), "GET a", AT), errors.StreamError), kind
    for kind in subclasses(urllib3.exceptions.HTTPError):
        assert type(minio_file._typed(bare(kind), "GET a", AT)) is errors.Unreachable, kind


def test_every_error_of_obstore_is_mapped(stub) -> None:
    bucket = open_driver("obstore", stub.url, lambda: Keys("AK", SECRET))
    kinds = subclasses(obstore.exceptions.BaseError)
    assert len(kinds) > 8
    for kind in kinds | {FileNotFoundError, ValueError, TypeError, *signed.NO_ANSWER}:
        made = bucket._typed(kind("told"), "GET a")
        assert isinstance(made, errors.StreamError), kind
    ours = {kind for kind in subclasses(http.client.HTTPException) if kind.__module__ == "http.client"}
    for kind in {obstore.exceptions.GenericError} | ours:
        assert type(bucket._typed(kind("told"), "GET a")) is errors.Unreachable, kind
    bucket.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_reads_and_writes_take_the_same_way_whatever_proxy_is_set(host, stub, monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    bucket = open_driver("obstore", stub.url.replace("127.0.0.1", host), lambda: Keys("AK", SECRET))
    stub.answers = [found(b""), found(b"data")]
    bucket.put("a", b"x")
    assert bucket.get("a").data == b"data"
    bucket.close()


def test_a_read_is_dated_by_what_the_store_said_last(stub) -> None:
    bucket = open_driver("obstore", stub.url, lambda: Keys("AK", SECRET))
    day = 86_400_000
    tomorrow = datetime.fromtimestamp((time.time_ns() // 1_000_000 + day) / 1000, UTC)
    stub.answers = [
        found(),
        found(b"", Date=tomorrow.strftime("%a, %d %b %Y %H:%M:%S GMT")),
        found(),
        found(b"", **{"Last-Modified": "soon"}),
    ]
    assert bucket.get("a").date_ms is None, "nothing was dated yet"
    bucket.put("a", b"x")
    blob = bucket.get("a")
    assert abs(blob.date_ms - time.time_ns() // 1_000_000 - day) < 60_000
    assert blob.modified_ms == 1_704_067_200_000
    bucket.close()


def test_the_minio_driver_still_has_the_entry_that_the_bucket_needs() -> None:
    client = Minio("127.0.0.1:1", access_key="a", secret_key="b", region="us-east-1", secure=False)
    check_driver(client)
    assert "retries" not in inspect.signature(client._execute).parameters

    class Changed:
        def _execute(self, request: object) -> None: ...

    with pytest.raises(errors.Misconfigured, match="pip install"):
        check_driver(Changed())  # type: ignore[arg-type]
    with pytest.raises(errors.Misconfigured):
        check_driver(object())  # type: ignore[arg-type]


def test_metadata_is_no_condition_in_the_minio_driver(moto_server) -> None:
    """The trap that the private call avoids; were it closed, the public call would do."""
    bucket = moto_server.minio("trap")
    bucket.put("a", b"first")
    bucket._client.put_object(
        moto_server.bucket, "trap/a", __import__("io").BytesIO(b"2nd"), 3, metadata={"If-None-Match": "*"}
    )
    assert bucket.get("a").data == b"2nd"
    bucket.close()


def test_the_client_is_set_up_for_other_stores_too(stub) -> None:
    bucket = S3Bucket("bucket", endpoint=stub.url, keys=lambda: Keys("a", "b"))
    config = bucket._client.meta.config
    assert config.request_checksum_calculation == "when_required"
    assert config.response_checksum_validation == "when_required"
    assert config.retries["total_max_attempts"] == 1
    assert config.s3["addressing_style"] == "path"
    bucket.close()


def test_roles_that_boto3_looks_up_at_another_service_are_still_found() -> None:
    make, _ = s3_file._of_environment(lambda: Keys("a", "b"))
    for service in ("sts", "sso", "sso-oidc"):
        assert make(service, region_name="eu-west-1").meta.service_model.service_name == service
    with pytest.raises(botocore.exceptions.DataNotFoundError):
        make("no-such-service", region_name="eu-west-1")


def test_descriptions_read_quickly_are_botocores_own() -> None:
    own, quick = botocore.loaders.create_loader(), s3_file._Descriptions()  # clients change those they use
    for kind in ("service-2", "endpoint-rule-set-1"):
        assert quick.load_service_model("s3", kind) == own.load_service_model("s3", kind)
    assert quick.load_data("endpoints") == own.load_data("endpoints")
    assert set(own.list_available_services("service-2")) <= set(quick.list_available_services("service-2"))


@pytest.mark.parametrize(
    ("bucket", "endpoint", "trusted"),
    [
        ("b", None, True),
        ("b", "https://s3.eu-west-1.amazonaws.com", True),
        ("b--usw2-az1--x-s3", None, False),
        ("b", "https://amazonaws.com.example.org", False),
        ("b", "https://store.example.org", False),
    ],
)
def test_only_aws_is_trusted_without_a_probe(bucket, endpoint, trusted, monkeypatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    opened = S3Bucket(bucket, endpoint=endpoint, region="eu-west-1", keys=lambda: Keys("a", "b"))
    assert opened.trusted is trusted
    opened.close()


def test_a_users_session_brings_the_credentials(stub) -> None:
    session = boto3.Session("AKSESSION", "x", region_name="eu-west-3")
    for given in (session, lambda: session):
        bucket = S3Bucket("bucket", endpoint=stub.url, session=given, keys=lambda: Keys("AKOTHER", "b"))
        stub.answers = [found()]
        bucket.get("a")
        assert "AKSESSION" in stub.asked[-1].headers["Authorization"]
        assert "eu-west-3" in stub.asked[-1].headers["Authorization"]
        bucket.close()


def test_dates() -> None:
    stamp = round(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert date_of("Mon, 01 Jan 2024 00:00:00 GMT") == stamp
    assert iso_of("2024-01-01T00:00:00.000Z") == iso_of("2024-01-01T00:00:00") == stamp
    assert date_of(None) is date_of("soon") is iso_of("") is iso_of("soon") is None
