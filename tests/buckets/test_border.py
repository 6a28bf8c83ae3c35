"""What the S3 drivers make of answers, of none, and of things that are no store."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import pytest

from streams import errors
from streams.buckets.base import Bucket
from streams.buckets.remote import STALE_KEYS, Keys, address_of
from streams.store import Store
from streams.testing import FakeClock

from .opening import SECRET, open_driver
from .stub import Answer, error, found, serving

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


@pytest.mark.parametrize("verb", WITH_BODY)
def test_silence_is_no_answer(impatient, bucket, stub, verb) -> None:
    stub.answers = [Answer(how="hang")]
    with pytest.raises(errors.Unreachable):
        VERBS[verb](bucket)
    assert len(stub.heard(1)) == 1, "the driver asked twice"


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
