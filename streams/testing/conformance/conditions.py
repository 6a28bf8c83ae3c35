"""Conditions, one caller at a time: create where nothing stands, replace the very version that was read."""

from __future__ import annotations

from collections.abc import Callable

from streams.buckets.base import Written
from streams.errors import PreconditionFailed

from .checking import Connect, Traits, check, refused


@check
def a_key_is_created_once(connect: Connect, _: Traits) -> None:
    bucket, other = connect(), connect()
    bucket.put("c/1", b"first", if_absent=True)
    refused(lambda: bucket.put("c/1", b"second", if_absent=True))
    refused(lambda: other.put("c/1", b"first", if_absent=True))
    bucket.put("c/empty", b"", if_absent=True)
    refused(lambda: bucket.put("c/empty", b"x", if_absent=True))
    blob = other.get("c/1")
    assert blob is not None
    assert blob.data == b"first"


@check
def only_the_named_version_is_replaced(connect: Connect, _: Traits) -> None:
    bucket, other = connect(), connect()
    first = bucket.put("c/1", b"1", if_absent=True)
    second = other.put("c/1", b"2", if_match=first.etag)
    refused(lambda: bucket.put("c/1", b"3", if_match=first.etag))
    refused(lambda: bucket.put("c/absent", b"1", if_match=first.etag))
    assert bucket.get("c/absent") is None
    assert second.etag != first.etag
    bucket.put("c/1", b"3", if_match=second.etag)
    blob = other.get("c/1")
    assert blob is not None
    assert blob.data == b"3"


@check
def an_unconditional_put_overwrites(connect: Connect, _: Traits) -> None:
    bucket = connect()
    bucket.put("c/1", b"1")
    bucket.put("c/1", b"2")
    blob = bucket.get("c/1")
    assert blob is not None
    assert blob.data == b"2"


@check
def every_etag_serves_as_a_condition(connect: Connect, _: Traits) -> None:
    """A listing may leave the ETag empty; where it gives one, it serves."""
    bucket = connect()
    sources: dict[str, Callable[[Written], str]] = {
        "put": lambda written: written.etag,
        "get": lambda _: getattr(bucket.get("e/1"), "etag", ""),
        "head": lambda _: getattr(bucket.head("e/1"), "etag", ""),
        "list": lambda written: bucket.list("e/").entries[0].etag or written.etag,
    }
    written = bucket.put("e/1", b"0", if_absent=True)
    for number, (name, etag_of) in enumerate(sources.items(), 1):
        try:
            written = bucket.put("e/1", f"{number}".encode(), if_match=etag_of(written))
        except PreconditionFailed as error:
            raise AssertionError(f"the ETag that {name} gave was refused") from error
