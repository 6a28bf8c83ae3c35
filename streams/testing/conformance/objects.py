"""Reading and writing: the bytes, the names, the metadata and the dates of objects."""

from __future__ import annotations

from streams.buckets.base import Bucket
from streams.clock import SystemClock
from streams.errors import PreconditionFailed, Unsupported
from streams.store import Store

from .checking import Connect, Traits, check, names, refused


@check
def absent_reads_as_none(connect: Connect, _: Traits) -> None:
    bucket = connect()
    assert bucket.get("in/nobody/1.jsonl") is None
    assert bucket.head("in/nobody/1.jsonl") is None
    assert bucket.list("in/nobody/").entries == ()


@check
def a_key_is_no_folder(connect: Connect, _: Traits) -> None:
    bucket = connect()
    bucket.put("in/nobody/1.jsonl", b"x")
    assert bucket.get("in/nobody") is None, "a folder is no object"
    assert bucket.get("in/nobody/1.jsonl/2") is None, "nothing is below an object"


@check
def bytes_come_back_as_they_were(connect: Connect, _: Traits) -> None:
    bucket, other = connect(), connect()
    bodies = {
        "empty": b"",
        "every-byte": bytes(range(256)) * 3,
        "lines": b'{"a":1}\r\n{"b":"\xc3\xa9"}\n\n',
        "framed": b"15\r\n{}\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
        "gzip": b"\x1f\x8b\x08\x00 not really",
    }
    for name, body in bodies.items():
        bucket.put(f"b/{name}", body, if_absent=True)
    for name, body in bodies.items():
        blob, head = other.get(f"b/{name}"), other.head(f"b/{name}")
        assert blob is not None, name
        assert head is not None, name
        assert blob.data == body, f"{name}: {blob.data[:80]!r}"
        assert (head.size, head.etag) == (len(body), blob.etag), name


@check
def large_bodies_come_back(connect: Connect, _: Traits) -> None:
    body = bytes(range(251)) * (6 * 1024 * 1024 // 251)
    bucket = connect()
    bucket.put("b/large", body, if_absent=True)
    blob = bucket.get("b/large")
    assert blob is not None
    assert blob.data == body


@check
def keys_are_taken_literally(connect: Connect, _: Traits) -> None:
    bucket = connect()
    keys = [
        "k/a",
        "k/A%20b",
        "k/a%2Fb",
        "k/a%252Fb",
        "k/a+b",
        "k/a=b@c",
        "k/.hidden",
        "k/x..y",
        "k/-_.~"[:-1],
    ]
    for key in keys:
        bucket.put(key, key.encode(), if_absent=True)
    for key in keys:
        blob = bucket.get(key)
        assert blob is not None, key
        assert blob.data == key.encode()
    assert sorted(names(bucket, "k/")) == sorted(keys)


@check
def long_names_are_kept(connect: Connect, traits: Traits) -> None:
    """A name of 200 bytes, and the longest key that a session of this bucket may have."""
    bucket = connect()
    lengths = [200, *([bucket.room - len("blocks/") - len("/1.json.gz")] if traits.long_keys else [])]
    keys = [f"blocks/{'s' * length}/1.json.gz" for length in lengths]
    for key in keys:
        bucket.put(key, key.encode(), if_absent=True)
    for key in keys:
        blob = bucket.get(key)
        assert blob is not None, f"a key of {len(key)} bytes is not found again"
        assert blob.data == key.encode()
    assert sorted(names(bucket, "blocks/")) == sorted(keys)


@check
def deletes_are_final_and_repeatable(connect: Connect, _: Traits) -> None:
    bucket = connect()
    bucket.delete("d/never")
    bucket.put("d/1", b"1", if_absent=True)
    bucket.delete("d/1")
    bucket.delete("d/1")
    assert bucket.get("d/1") is None
    assert names(bucket, "d/") == []
    bucket.put("d/1", b"2", if_absent=True)
    blob = bucket.get("d/1")
    assert blob is not None
    assert blob.data == b"2"


@check
def nonces_travel_with_the_object(connect: Connect, traits: Traits) -> None:
    bucket = connect()
    bucket.put("n/1", b"1", if_absent=True, nonce="abc123")
    bucket.put("n/2", b"2", if_absent=True)
    seen = []
    for key in ("n/1", "n/2"):
        blob, head = bucket.get(key), bucket.head(key)
        assert blob is not None
        assert head is not None
        assert blob.nonce == head.nonce
        seen.append(head.nonce)
    assert seen == (["abc123", None] if traits.nonces else [None, None])


@check
def the_store_dates_its_answers(connect: Connect, _: Traits) -> None:
    bucket = connect()
    written = bucket.put("t/1", b"1", if_absent=True)
    blob, head = bucket.get("t/1"), bucket.head("t/1")
    assert blob is not None
    assert head is not None
    (entry,) = bucket.list("t/").entries
    assert written.date_ms is not None
    for date, modified in ((blob.date_ms, blob.modified_ms), (head.date_ms, head.modified_ms)):
        assert date is not None
        assert modified is not None
        # HTTP dates are whole seconds, so two of one clock may differ by almost one.
        assert -1000 <= date - modified <= 600_000, (date, modified)
    assert entry.modified_ms is not None
    assert abs(entry.modified_ms - (head.modified_ms or 0)) <= 1000


@check
def a_copy_has_the_bytes_and_the_nonce(connect: Connect, traits: Traits) -> None:
    store = Store(connect(), SystemClock())
    store.put("c/source%20and.more", b"\x00bytes\r\n", nonce="n1")
    assert store.copy("c/source%20and.more", "c/target")
    for key in ("c/source%20and.more", "c/target"):
        blob = store.get(key)
        assert blob is not None
        assert blob.data == b"\x00bytes\r\n"
        assert blob.nonce == ("n1" if traits.nonces else None)
    assert not store.copy("c/nothing", "c/target")
    found = store.get("c/target")
    assert found is not None
    assert found.data == b"\x00bytes\r\n", "a source that is not there leaves the target alone"


@check
def a_copy_by_the_store_is_a_create(connect: Connect, traits: Traits) -> None:
    """Of exactly the version that is named. A backend that is known not to keep this has to break it."""
    if traits.copies:
        _creates_copies(connect(), traits)
        return
    try:
        _creates_copies(connect(), traits)
    except (AssertionError, PreconditionFailed, Unsupported):
        return
    raise AssertionError("its copies are creates, and of the version that is named")


def _creates_copies(bucket: Bucket, traits: Traits) -> None:
    source, other = "c/of%20and.more", "c/other"
    etag = bucket.put(source, b"\x00bytes\r\n", nonce="n1").etag
    assert bucket.copy(source, "c/made", etag)
    made = bucket.get("c/made")
    assert made is not None
    assert (made.data, made.nonce) == (b"\x00bytes\r\n", "n1" if traits.nonces else None)
    taken = bucket.put(other, b"another").etag
    refused(lambda: bucket.copy(source, other, etag))
    refused(lambda: bucket.copy(source, "c/free", taken))
    bucket.put(source, b"")
    refused(lambda: bucket.copy(source, "c/free", etag))
    bucket.delete(source)
    assert not bucket.copy(source, "c/free", etag), "nothing stands at the source"
    assert names(bucket, "c/") == ["c/made", other]
    found = bucket.get(other)
    assert found is not None
    assert found.data == b"another"
