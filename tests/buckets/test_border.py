"""What the S3 drivers make of answers, of none, and of things that are no store."""

from __future__ import annotations

import http.client
import inspect
import logging
import socket
import time
from collections.abc import Callable, Iterator
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
from streams.buckets import obstore as obstore_file
from streams.buckets import s3 as s3_file
from streams.buckets import signed
from streams.buckets.base import Bucket
from streams.buckets.minio import MinioBucket, check_driver
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.remote import _BY_CODE, STALE_KEYS, Keys, address_of, date_of, error_for, iso_of
from streams.buckets.s3 import S3Bucket
from streams.store import Store
from streams.testing import FakeClock

from .stub import Answer, Stub, error, found, serving

SECRET = "s3cr3t-value"
AT = "http://store.example.org:9000"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


@pytest.fixture(params=["s3", "minio", "obstore"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def handed_out() -> list[Keys]:
    """The keys that the provider hands out, the last one again and again."""
    return [Keys("AKIRST", SECRET)]


@pytest.fixture
def bucket(driver, stub, handed_out, monkeypatch) -> Iterator[Bucket]:
    monkeypatch.setattr(s3_file, "READ_SECONDS", 0.3)
    monkeypatch.setattr(minio_file, "READ_SECONDS", 0.3)
    monkeypatch.setattr(obstore_file, "READ_SECONDS", 0.3)
    monkeypatch.setattr(signed, "READ_SECONDS", 0.3)
    opened = open_driver(
        driver, stub.url, lambda: handed_out.pop(0) if len(handed_out) > 1 else handed_out[0]
    )
    yield opened
    opened.close()


def open_driver(driver: str, url: str, keys: Callable[[], Keys | None]) -> Bucket:
    kind = {"s3": S3Bucket, "minio": MinioBucket, "obstore": ObstoreBucket}[driver]
    return kind("bucket", "root", endpoint=url, keys=keys)


VERBS: dict[str, Callable[[Bucket], object]] = {
    "get": lambda b: b.get("a"),
    "head": lambda b: b.head("a"),
    "create": lambda b: b.put("a", b"x", if_absent=True, nonce="n"),
    "replace": lambda b: b.put("a", b"x", if_match='"e"', nonce="n"),
    "list": lambda b: b.list("a/"),
    "delete": lambda b: b.delete("a"),
}
WITH_BODY = [verb for verb in VERBS if verb != "head"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "NoSuchBucket"), errors.BucketMissing),
        (error(403, "AccessDenied"), errors.AccessDenied),
        (error(403, "InvalidAccessKeyId"), errors.CredentialsExpired),
        (error(403, "SignatureDoesNotMatch"), errors.CredentialsExpired),
        (error(403, "RequestTimeTooSkewed"), errors.ClockSkew),
        (error(412, "PreconditionFailed"), errors.PreconditionFailed),
        (error(409, "ConditionalRequestConflict"), errors.Unreachable),
        (error(409, "OperationAborted"), errors.Unreachable),
        (error(400, "RequestTimeout"), errors.Unreachable),
        (error(429, "TooManyRequests"), errors.Throttled),
        (Answer(429), errors.Throttled),
        (error(503, "SlowDown"), errors.Throttled),
        (error(503, "ServiceUnavailable"), errors.Unreachable),
        (error(500, "InternalError"), errors.Unreachable),
        (Answer(502, b"<html>bad gateway</html>", {"Content-Type": "text/html"}), errors.Unreachable),
        (Answer(504), errors.Unreachable),
        (error(501, "NotImplemented"), errors.Unsupported),
        (error(405, "MethodNotAllowed"), errors.Unsupported),
        (error(400, "InvalidArgument"), errors.Unsupported),
        (error(400, "KeyTooLongError"), errors.InvalidId),
        (error(400, "AuthorizationHeaderMalformed"), errors.WrongEndpoint),
        (Answer(404, b"<html>not here</html>", {"Content-Type": "text/html"}), errors.WrongEndpoint),
        (Answer(302, b"", {"Location": "http://127.0.0.1:1/login"}), errors.WrongEndpoint),
        (Answer(401, b"<html>log in</html>", {"Content-Type": "text/html"}), errors.CredentialsExpired),
        (Answer(how="drop"), errors.Unreachable),
        (Answer(how="hang"), errors.Unreachable),
    ],
    ids=lambda value: getattr(value, "__name__", None) or f"{value.status}-{value.how}",
)
@pytest.mark.parametrize("verb", WITH_BODY)
def test_each_answer_is_one_typed_error_after_one_request(bucket, driver, stub, verb, answer, kind) -> None:
    if (driver, verb, answer.status) == ("obstore", "get", 302):
        kind = errors.Unreachable  # obstore reads on where it is sent to, and there is nobody
    stub.answers = [answer]
    with pytest.raises(errors.StreamError) as caught:
        VERBS[verb](bucket)
    assert type(caught.value) is kind
    assert len(stub.asked) == 1, "the driver asked twice"
    assert "AKSECRET" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("verb", ["get", "list"])
@pytest.mark.parametrize("sent", [b"", b"<short>"])
def test_a_short_body_is_no_answer(bucket, stub, verb, sent) -> None:
    stub.answers = [Answer(200, sent, found().headers, how="cut")]
    with pytest.raises(errors.Unreachable):
        VERBS[verb](bucket)
    assert len(stub.asked) == 1


def test_a_short_body_is_read_again_whole_and_never_parsed(bucket, stub) -> None:
    cut = Answer(200, b"short b", found().headers, how="cut")
    stub.answers = [cut, found(b"whole")]
    store = Store(bucket, FakeClock())
    assert store.get("a").data == b"whole"
    stub.answers = [cut] * 40
    with pytest.raises(errors.Unreachable):
        store.get("a")


@pytest.mark.parametrize("verb", ["get", "list", "create", "replace"])
def test_a_web_page_in_place_of_a_store_is_a_wrong_endpoint(bucket, stub, verb) -> None:
    stub.answers = [Answer(200, b"<html><p>Welcome</html>", {"Content-Type": "text/html"})]
    with pytest.raises(errors.WrongEndpoint):
        VERBS[verb](bucket)


def test_an_xml_document_that_is_no_listing_is_a_wrong_endpoint(bucket, stub) -> None:
    stub.answers = [Answer(200, b"<Other/>", {"Content-Type": "application/xml"})]
    with pytest.raises(errors.WrongEndpoint):
        bucket.list("")


def test_a_redirect_to_a_page_is_no_object_and_no_write(driver, stub) -> None:
    page = Answer(200, b"<html>", {"Content-Type": "text/html", "ETag": '"page"'})
    stub.answers = [Answer(302, b"", {"Location": f"{stub.url}/login"}), page]
    bucket = open_driver(driver, stub.url, lambda: Keys("AK", SECRET))
    with pytest.raises(errors.WrongEndpoint):
        bucket.put("a", b"x", if_absent=True, nonce="n")
    bucket.close()


def test_a_read_that_is_led_to_a_page_is_a_wrong_endpoint(driver, stub) -> None:
    page = Answer(200, b"<html>", {"Content-Type": "text/html"})
    stub.answers = [Answer(302, b"", {"Location": f"{stub.url}/login"}), page]
    bucket = open_driver(driver, stub.url, lambda: Keys("AK", SECRET))
    with pytest.raises(errors.WrongEndpoint):
        bucket.get("a")
    bucket.close()


def test_a_redirect_that_names_no_place_is_a_wrong_endpoint(bucket, stub) -> None:
    stub.answers = [error(301, "PermanentRedirect")]
    with pytest.raises(errors.WrongEndpoint):
        bucket.get("a")


def test_absence_is_told_from_a_missing_bucket_also_for_a_head(bucket, stub) -> None:
    stub.answers = [error(404, "NoSuchKey")]
    assert bucket.get("a") is None
    stub.answers = [Answer(404), error(404, "NoSuchKey")]
    assert bucket.head("a") is None
    stub.answers = [Answer(404), error(404, "NoSuchBucket")]
    with pytest.raises(errors.BucketMissing):
        bucket.head("a")
    stub.answers = [Answer(403)]
    with pytest.raises(errors.AccessDenied):
        bucket.head("a")
    stub.answers = [error(404, "NoSuchKey")]
    bucket.delete("a")


def test_a_replacement_of_nothing_is_a_failed_condition(bucket, stub) -> None:
    stub.answers = [error(404, "NoSuchKey")]
    with pytest.raises(errors.PreconditionFailed):
        bucket.put("a", b"x", if_match='"e"')
    stub.answers = [error(404, "NoSuchKey")]
    with pytest.raises(errors.StreamError) as caught:
        bucket.put("a", b"x", if_absent=True)
    assert not isinstance(caught.value, errors.PreconditionFailed)


def test_a_refused_connection_is_unreachable(driver) -> None:
    with serving() as gone:
        url = gone.url
    bucket = open_driver(driver, url, lambda: Keys("AK", SECRET))
    with pytest.raises(errors.Unreachable):
        bucket.get("a")
    bucket.close()


def test_conditions_and_the_nonce_travel_as_headers(bucket, stub) -> None:
    stub.answers = [found(b""), found(b"")]
    bucket.put("a", b"x", if_absent=True, nonce="n1")
    bucket.put("a", b"x", if_match='"e1"', nonce="n2")
    first, second = ({k.lower(): v for k, v in asked.headers.items()} for asked in stub.asked)
    assert (first["if-none-match"], first["x-amz-meta-nonce"], "if-match" in first) == ("*", "n1", False)
    assert (second["if-match"], second["x-amz-meta-nonce"], "if-none-match" in second) == (
        '"e1"',
        "n2",
        False,
    )
    for headers in (first, second):
        assert "expect" not in headers, "costs a second round trip"
        assert "x-amz-trailer" not in headers, "some stores keep a trailer in the object"
        assert "nonce" in headers["authorization"], "an unsigned x-amz- header is refused by MinIO"
    assert [asked.body for asked in stub.asked] == [b"x", b"x"]
    assert stub.asked[0].path.startswith("/bucket/root/a")


@pytest.mark.parametrize("code", sorted(STALE_KEYS))
@pytest.mark.parametrize("verb", WITH_BODY)
def test_expired_keys_are_asked_for_anew_and_the_same_request_repeated(
    bucket, stub, handed_out, verb, code
) -> None:
    handed_out[:] = [Keys("AKSECOND", SECRET, "token2")]
    listing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    stub.answers = [error(400, code), found({"list": listing, "get": b"data"}.get(verb, b""))]
    VERBS[verb](bucket)
    first, second = stub.asked
    assert "AKIRST" in first.header("authorization")
    assert "AKSECOND" in second.header("authorization")
    assert (first.method, first.path, first.body) == (second.method, second.path, second.body)


def test_keys_that_stay_expired_end_in_an_error_after_one_refresh(bucket, stub) -> None:
    stub.answers = [error(400, "ExpiredToken")] * 3
    with pytest.raises(errors.CredentialsExpired):
        bucket.put("a", b"x", if_absent=True)
    assert len(stub.asked) == 2


def test_without_credentials_the_error_says_what_to_set(driver, stub, monkeypatch, tmp_path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(errors.CredentialsExpired, match="AWS_ACCESS_KEY_ID"):
        open_driver(driver, stub.url, lambda: None).get("a")
    assert stub.asked == []


def test_secrets_show_nowhere(driver, stub, caplog) -> None:
    caplog.set_level(logging.INFO)
    keys = Keys("AKVISIBLE", SECRET, "t0ken")
    bucket = open_driver(driver, stub.url, lambda: keys)
    stub.answers = [error(403, "SignatureDoesNotMatch")]
    with pytest.raises(errors.CredentialsExpired) as caught:
        bucket.get("a")
    for text in (repr(keys), str(keys), repr(bucket), bucket.url, str(caught.value), caplog.text):
        for secret in ("AKVISIBLE", SECRET, "t0ken"):
            assert secret not in text
    bucket.close()


@pytest.mark.parametrize("pages_empty", [1, 3])
def test_an_empty_page_with_more_behind_it_is_followed(bucket, stub, pages_empty) -> None:
    empty = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated>"
        b"<NextContinuationToken>t%d</NextContinuationToken></ListBucketResult>"
    )
    last = (
        b"<ListBucketResult><IsTruncated>false</IsTruncated><EncodingType>url</EncodingType><Contents>"
        b"<Key>root/a/x%2525y</Key><Size>3</Size><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
        b"</Contents></ListBucketResult>"
    )
    xml = {"Content-Type": "application/xml"}
    stub.answers = [Answer(200, empty % n, xml) for n in range(pages_empty)] + [Answer(200, last, xml)]
    page = bucket.list("a/", after="a/0", limit=7)
    (entry,) = page.entries
    assert (entry.key, entry.size, entry.etag, entry.modified_ms) == ("a/x%25y", 3, "", 1_704_067_200_000)
    assert not page.more
    assert all("max-keys=7" in asked.path for asked in stub.asked)
    assert f"continuation-token=t{pages_empty - 1}" in stub.asked[-1].path


# --- the table and the drivers' own errors --------------------------------------------------------------


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


# -- which endpoint, and what may be wrong with its URL ---------------------------------------------------

PLAIN = {"minio": "add ?secure=0", **dict.fromkeys(("s3", "obstore"), "begin the endpoint with http://")}
SECURE = {"minio": "add ?secure=1", **dict.fromkeys(("s3", "obstore"), "begin the endpoint with https://")}


def refusal(bucket: Bucket) -> errors.StreamError:
    with pytest.raises(errors.StreamError) as caught:
        bucket.get("a")
    bucket.close()
    return caught.value


def test_https_to_a_server_of_plain_http_says_how_to_speak_http(driver, stub) -> None:
    found = refusal(open_driver(driver, stub.url.replace("http:", "https:"), lambda: Keys("AK", SECRET)))
    assert type(found) is errors.WrongEndpoint, "no retry makes it speak TLS"
    assert f"{stub.url.removeprefix('http://')} does not speak TLS" in str(found)
    assert PLAIN[driver] in str(found)


def test_http_to_a_server_that_says_it_wants_https(bucket, driver, stub) -> None:
    text = b"Client sent an HTTP request to an HTTPS server.\n"
    stub.answers = [Answer(400, text, {"Content-Type": "text/plain"})]
    found = refusal(bucket)
    assert type(found) is errors.WrongEndpoint
    assert SECURE[driver] in str(found)


def test_http_to_a_server_that_hangs_up(bucket, driver, stub) -> None:
    stub.answers = [Answer(how="drop")]
    found = refusal(bucket)
    assert type(found) is errors.Unreachable
    assert f"no whole answer from {stub.url.removeprefix('http://')}" in str(found)
    assert SECURE[driver] in str(found)


def test_a_refused_connection_names_the_address(driver) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    found = refusal(open_driver(driver, f"http://{address}", lambda: Keys("AK", SECRET)))
    assert type(found) is errors.Unreachable
    assert f"no whole answer from {address}" in str(found)
    assert "taken for the host" not in str(found)


def test_a_bucket_in_the_place_of_the_host_is_named(monkeypatch) -> None:
    def unknown(*_args: object, **_options: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for url, hint in (("https://my-bucket", True), ("https://store.example.org", False)):
        found = refusal(open_driver("minio", url, lambda: Keys("AK", SECRET)))
        assert type(found) is errors.Unreachable
        assert f"{url.removeprefix('https://')}:443" in str(found)
        assert ("minio://host:port/bucket/path" in str(found)) is hint


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", "h:80"),
        ("https://h", "h:443"),
        ("https://h:9000", "h:9000"),
        ("http://[::1]:9000", "[::1]:9000"),
    ],
)
def test_an_address_always_has_its_port(url, address) -> None:
    assert address_of(url) == address
