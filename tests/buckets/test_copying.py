"""A copy that the store makes by itself: what each driver asks for, and what it takes for an answer."""

from __future__ import annotations

import pytest

from streams import errors
from streams.buckets.base import Bucket

from .stub import Answer, Stub, error, found

DONE = Answer(body=b'\n \n<CopyObjectResult><ETag>"e2"</ETag></CopyObjectResult>')


def copy(bucket: Bucket) -> bool:
    return bucket.copy("blocks/a%20b/1", "blocks/c/1", '"e1"')


def test_a_copy_is_asked_for_as_a_create_of_a_version_and_all_of_it_is_signed(
    bucket: Bucket, stub: Stub
) -> None:
    stub.answers = [DONE]
    assert copy(bucket) is True
    (asked,) = stub.heard(1)
    assert (asked.method, asked.body) == ("PUT", b"")
    assert asked.path.endswith("/blocks/c/1")
    at = asked.path.removesuffix("/blocks/c/1")
    assert asked.header("x-amz-copy-source").removeprefix("/") == f"{at}/blocks/a%2520b/1".removeprefix("/")
    said = {"if-none-match": "*", "x-amz-copy-source-if-match": '"e1"'}
    assert {name: asked.header(name) for name in said} == said
    signed = asked.header("authorization").partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {*said, "x-amz-copy-source"} <= {*signed}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(412, "PreconditionFailed"), errors.PreconditionFailed),
        (error(409, "ConditionalRequestConflict"), errors.Unreachable),
        (error(501, "NotImplemented"), errors.Unsupported),
        (error(403, "AccessDenied"), errors.AccessDenied),
        (error(404, "NoSuchBucket"), errors.BucketMissing),
        # Begun, and failed on its way: the status was sent long before.
        (error(200, "InternalError"), errors.Unreachable),
        (error(200, "SlowDown"), errors.Throttled),
        (error(200, "PreconditionFailed"), errors.PreconditionFailed),
        (error(200, "Unheard"), errors.Unreachable),
        # No copy: the answer to an empty PUT, of a store that knows no copies.
        (found(b""), errors.WrongEndpoint),
        (found(b"<html>hello</html>"), errors.WrongEndpoint),
        (Answer(body=DONE.body, how="cut"), errors.Unreachable),
        (Answer(how="drop"), errors.Unreachable),
    ],
)
def test_whatever_is_no_success_is_a_typed_error(
    answer: Answer, kind: type[Exception], bucket: Bucket, stub: Stub
) -> None:
    stub.answers = [answer]
    with pytest.raises(kind) as caught:
        copy(bucket)
    assert type(caught.value) is kind
    assert "AKSECRET" not in str(caught.value)
    assert len(stub.asked) == 1, "one call is one request"


def test_where_nothing_stands_at_the_source_nothing_is_copied(bucket: Bucket, stub: Stub) -> None:
    stub.answers = [error(404, "NoSuchKey")]
    assert copy(bucket) is False


@pytest.mark.parametrize(("source", "key"), [("../a", "b"), ("a", "b/../../c")])
def test_no_copy_leaves_the_root(source: str, key: str, bucket: Bucket, stub: Stub) -> None:
    with pytest.raises(errors.InvalidId):
        bucket.copy(source, key, '"e1"')
    assert stub.asked == []
