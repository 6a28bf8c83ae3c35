"""The encrypted bucket: it is a bucket like any other, and what is done to its objects is found out."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from endpoints import TRAITS
from hypothesis import given
from hypothesis import strategies as st

from streams import claims
from streams.buckets.base import Bucket
from streams.buckets.file import FileBucket
from streams.buckets.memory import MemoryBucket, Space
from streams.buckets.sealed import HEADER, OVERHEAD, SealedBucket
from streams.encryption import MAGIC, Encryption, Keyring
from streams.errors import (
    AccessDenied,
    Corrupt,
    InvalidValue,
    Misconfigured,
    NewerVersion,
    Unknown,
    Unreachable,
    Unsupported,
    WrongKey,
)
from streams.store import Retries, Store
from streams.testing import FakeClock
from streams.testing.conformance import CHECKS, Check, Traits

KEYS = {"k1": bytes(range(32)), "k2": bytes(range(32, 64))}
TEXT = b'{"what":"only the two of us know"}'


def source(current: str = "k1", keys: dict[str, bytes] = KEYS) -> Callable[[str | None], tuple[str, bytes]]:
    return lambda key_id: (key_id or current, keys[key_id or current])


def seal(inner: Bucket, current: str = "k1", root: str = "", **options: Any) -> SealedBucket:
    return SealedBucket(inner, Encryption(source(current), **options), root)


def read(bucket: Bucket, key: str) -> bytes:
    blob = bucket.get(key)
    assert blob is not None
    return blob.data


def changed(inner: Bucket, key: str, data: bytes) -> None:
    """What a bucket's owner does: other bytes in the same place."""
    inner.put(key, data)


# --- a bucket like any other ---------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file", "s3-seaweed"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Callable[[], Bucket], Traits]]:
    name = str(request.param)
    opened: list[Bucket] = []
    space, prefix = Space(), f"sealed-{os.getpid()}-{os.urandom(4).hex()}"
    driver, _, server = name.partition("-")
    endpoint = request.getfixturevalue(server) if server else None

    def connect() -> Bucket:
        inner: Bucket
        if name == "memory":
            inner = MemoryBucket(space=space)
        elif name == "file":
            inner = FileBucket(tmp_path / "root")
        else:
            inner = getattr(endpoint, driver)(prefix)
        opened.append(inner)
        return seal(inner, root=f"{prefix}/")

    # Who wins a race is the inner bucket's business, and held to elsewhere.
    traits = replace(TRAITS[name.rpartition("-")[2]], copies=False)
    yield connect, replace(traits, racers=min(traits.racers, 8), rounds=min(traits.rounds, 30), objects=250)
    for bucket in opened:
        bucket.close()


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_contract_holds_under_encryption(check: Check, backend: Any) -> None:
    check(*backend)


def test_nothing_of_the_content_is_stored_and_no_two_objects_are_alike() -> None:
    inner = MemoryBucket()
    bucket = seal(inner)
    for key in ("a", "b"):
        bucket.put(key, TEXT, nonce="n")
    first, second = (inner.get(key) for key in ("a", "b"))
    assert first is not None
    assert second is not None
    assert len(first.data) == len(TEXT) + OVERHEAD
    assert first.nonce == "n", "a HEAD has to answer it"
    assert not any(TEXT[at : at + 4] in first.data for at in range(len(TEXT) - 4))
    assert first.data[64:] != second.data[64:]
    bucket.put("a", TEXT)
    again = inner.get("a")
    assert again is not None
    assert again.data[64:76] != first.data[64:76], "a nonce is used once"
    assert again.etag != first.etag


def test_the_layout_is_what_is_written_down() -> None:
    """Golden bytes: what is stored now must open for ever."""
    inner = MemoryBucket()
    bucket = SealedBucket(inner, Encryption(source()), "r/", entropy=lambda size: b"\x07" * size)
    bucket.put("in/s/1.jsonl", b"hello")
    golden = bytes.fromhex(
        "91534e50010102006b310000000000000000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000006cd61414b4e48fc40707070707070707070707079a06aa2f"
        "670fca30004291261d5e3d1005d871e38cb55d31ea"
    )
    stored = inner.get("in/s/1.jsonl")
    assert stored is not None
    assert stored.data == golden
    assert stored.data[:4] == MAGIC
    opened = bucket.get("in/s/1.jsonl")
    assert opened is not None
    assert opened.data == b"hello"


def test_the_store_makes_no_copy_that_would_not_open() -> None:
    inner = MemoryBucket()
    bucket = seal(inner)
    store = Store(bucket, FakeClock())
    etag = bucket.put("a", b"data").etag
    assert inner.copies
    assert not bucket.copies
    with pytest.raises(Unsupported):
        bucket.copy("a", "b", etag)
    assert store.copy("a", "b", inside=True)
    assert read(bucket, "b") == b"data"


# --- what is done to objects ---------------------------------------------------------------------------


PLACES = {
    "version": 4,
    "algorithm": 5,
    "length of the key id": 6,
    "reserved": 7,
    "key id": 8,
    "padding": 20,
    "key check": 56,
    "nonce": 64,
    "crc": 76,
    "ciphertext": HEADER,
    "tag": -1,
    "magic": 0,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("bit", [0, 7])
def test_a_bit_that_flips_is_found_out(place: int, bit: int) -> None:
    inner = MemoryBucket()
    bucket = seal(inner)
    bucket.put("a", TEXT)
    stored = bytearray(inner.get("a").data)  # type: ignore[union-attr]
    stored[place] ^= 1 << bit
    changed(inner, "a", bytes(stored))
    with pytest.raises(Corrupt, match=r"^a ") as caught:
        read(bucket, "a")
    assert caught.value.key == "a"


@pytest.mark.parametrize(
    "size", [0, 1, 4, HEADER - 1, HEADER, OVERHEAD - 1, OVERHEAD, OVERHEAD + len(TEXT) - 1]
)
def test_an_object_that_was_cut_is_found_out_and_never_passes_for_an_empty_one(size: int) -> None:
    inner = MemoryBucket()
    bucket = seal(inner)
    bucket.put("a", TEXT)
    changed(inner, "a", inner.get("a").data[:size])  # type: ignore[union-attr]
    with pytest.raises(Corrupt):
        read(bucket, "a")
    if size < OVERHEAD:
        assert bucket.list("").entries[0].size > 0
        assert bucket.head("a").size > 0  # type: ignore[union-attr]


def test_what_is_added_is_found_out() -> None:
    inner = MemoryBucket()
    bucket = seal(inner)
    bucket.put("a", TEXT)
    changed(inner, "a", inner.get("a").data + b"\0")  # type: ignore[union-attr]
    with pytest.raises(Corrupt):
        read(bucket, "a")


def forged(stored: bytes, **fields: tuple[int, bytes]) -> bytes:
    """The object with fields of its header changed, and a CRC that fits again."""
    data = bytearray(stored)
    for at, value in fields.values():
        data[at : at + len(value)] = value
    data[76:80] = zlib.crc32(bytes(data[:76])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ((4, b"\x02"), NewerVersion),
        ((4, b"\x00"), Corrupt),
        ((5, b"\x02"), Corrupt),
        ((6, b"\x00"), Corrupt),
        ((6, b"\x01"), Corrupt),  # leaves a letter in the padding
        ((6, b"\xff"), Corrupt),
        ((7, b"\x01"), Corrupt),
        ((8, b"\xff\xff"), Corrupt),  # no name
        ((8, b"k9"), WrongKey),  # a name that nobody knows
        ((8, b"k2"), WrongKey),  # another's name
        ((56, b"\0" * 8), WrongKey),
        ((64, b"\0" * 12), Corrupt),
    ],
)
def test_a_header_that_is_forged_with_its_crc_opens_nothing(field: Any, error: type[Exception]) -> None:
    inner = MemoryBucket()
    bucket = seal(inner)
    bucket.put("a", TEXT)
    changed(inner, "a", forged(inner.get("a").data, field=field))  # type: ignore[union-attr]
    with pytest.raises(error):
        read(bucket, "a")


@given(rest=st.binary(max_size=200), whole=st.booleans())
def test_whatever_begins_like_a_sealed_object_ends_in_a_typed_error(rest: bytes, whole: bool) -> None:
    inner = MemoryBucket()
    data = MAGIC + rest
    inner.put("a", forged(data) if whole and len(data) >= HEADER else data)
    with pytest.raises((Corrupt, WrongKey)):
        read(seal(inner), "a")


def test_the_other_key_and_its_check_open_nothing_either() -> None:
    """An owner who has seen objects under both keys can forge the whole header, and no tag."""
    inner = MemoryBucket()
    seal(inner, "k1").put("a", TEXT)
    seal(inner, "k2").put("b", TEXT)
    a, b = inner.get("a").data, inner.get("b").data  # type: ignore[union-attr]
    changed(inner, "a", b[:HEADER] + a[HEADER:])
    with pytest.raises(Corrupt):
        read(seal(inner), "a")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("", "in/s/1.jsonl"), ("", "in/s/2.jsonl")),
        (("", "in/s/1.jsonl"), ("", "out/s/1.jsonl")),
        (("", "in/s/1.jsonl"), ("", "in/t/1.jsonl")),
        (("tenant-a/", "in/s/1.jsonl"), ("tenant-b/", "in/s/1.jsonl")),
    ],
    ids=["segments", "logs", "sessions", "roots"],
)
def test_an_object_in_the_place_of_another_is_found_out(one: Any, other: Any) -> None:
    inner, elsewhere = MemoryBucket(), MemoryBucket()
    seal(inner, root=one[0]).put(one[1], TEXT)
    changed(elsewhere, other[1], inner.get(one[1]).data)  # type: ignore[union-attr]
    with pytest.raises(Corrupt, match="in place of another"):
        read(seal(elsewhere, root=other[0]), other[1])


def test_an_object_that_is_not_encrypted_is_refused_unless_that_is_allowed() -> None:
    inner = MemoryBucket()
    inner.put("a", TEXT)
    with pytest.raises(Corrupt, match="allow_plain"):
        read(seal(inner), "a")
    bucket = seal(inner, allow_plain=True)
    assert bucket.get("a").data == TEXT  # type: ignore[union-attr]
    bucket.put("a", TEXT)
    assert inner.get("a").data.startswith(MAGIC)  # type: ignore[union-attr]
    assert seal(inner).get("a").data == TEXT  # type: ignore[union-attr]


def test_where_plain_objects_are_allowed_an_empty_one_is_told_from_a_full_one() -> None:
    inner = MemoryBucket()
    bucket = seal(inner, allow_plain=True)
    bucket.put("sealed-empty", b"")
    bucket.put("sealed-full", b"x")
    inner.put("plain-empty", b"")
    inner.put("plain-full", b"x" * OVERHEAD)
    inner.put("plain-short", b"x")
    found = {entry.key: bool(entry.size) for entry in bucket.list("").entries}
    assert found == {
        "sealed-empty": False,
        "sealed-full": True,
        "plain-empty": False,
        "plain-full": True,
        "plain-short": True,
    }


@pytest.mark.parametrize("allow_plain", [False, True])
def test_a_short_object_that_is_not_sealed_is_never_told_as_a_claim(allow_plain: bool) -> None:
    inner, claim = MemoryBucket(), claims.encode("0123456789abcdef", 7)
    bucket = seal(inner, allow_plain=allow_plain)
    bucket.put("claim", claim)
    inner.put("segment", b"x" * (OVERHEAD + len(claim)))
    found = {entry.key: entry.size for entry in bucket.list("").entries}
    assert found == {"claim": len(claim), "segment": OVERHEAD + len(claim)}


# --- keys ----------------------------------------------------------------------------------------------


def test_after_a_rotation_old_objects_stay_readable_and_new_ones_have_the_new_key() -> None:
    inner = MemoryBucket()
    current = ["k1"]
    bucket = SealedBucket(inner, Encryption(lambda key_id: source(current[0])(key_id)))
    bucket.put("old", TEXT)
    current[0] = "k2"
    bucket.put("new", TEXT)
    assert [bucket.get(key).data for key in ("old", "new")] == [TEXT, TEXT]  # type: ignore[union-attr]
    only_new = SealedBucket(inner, Encryption(source("k2", {"k2": KEYS["k2"]})))
    assert only_new.get("new").data == TEXT  # type: ignore[union-attr]
    with pytest.raises(WrongKey, match="k1"):
        only_new.get("old")


def test_another_key_of_the_same_name_is_told_from_an_altered_object() -> None:
    inner = MemoryBucket()
    seal(inner).put("a", TEXT)
    wrong = SealedBucket(inner, Encryption(source("k1", {"k1": b"\xaa" * 32})))
    with pytest.raises(WrongKey, match="another key than the one now called 'k1'"):
        wrong.get("a")


def failing(error: Exception) -> Callable[[str | None], tuple[str, bytes]]:
    def key(_: str | None) -> tuple[str, bytes]:
        raise error

    return key


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (KeyError("k1"), WrongKey),
        (TypeError("the secret"), WrongKey),
        (AccessDenied("the key service says no"), AccessDenied),
        (OSError("the secret"), Unreachable),
    ],
)
def test_what_the_source_of_keys_raises(error: Exception, becomes: type[Exception]) -> None:
    inner = MemoryBucket()
    seal(inner).put("a", TEXT)
    bucket = SealedBucket(inner, Encryption(failing(error)))
    for call in (lambda: bucket.get("a"), lambda: bucket.put("b", TEXT)):
        with pytest.raises(becomes) as caught:
            call()
        assert "the secret" not in str(caught.value)
    assert inner.get("b") is None, "nothing is written without a key"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "k1",
        ("k1",),
        ("k1", "x" * 32),
        ("k1", b"short"),
        *((name, b"x" * 32) for name in ("", "a b", 7, "é", "k" * 49)),
    ],
)
def test_a_source_of_keys_that_answers_nonsense_writes_nothing(answer: Any) -> None:
    inner = MemoryBucket()
    with pytest.raises(WrongKey):
        SealedBucket(inner, Encryption(lambda _: answer)).put("a", TEXT)
    assert inner.get("a") is None


def test_a_source_of_keys_that_answers_another_id_is_not_believed() -> None:
    inner = MemoryBucket()
    seal(inner).put("a", TEXT)
    with pytest.raises(WrongKey, match="another id"):
        SealedBucket(inner, Encryption(lambda _: ("k2", KEYS["k2"]))).get("a")


def test_a_key_service_that_is_away_for_a_moment_is_not_noticed() -> None:
    answers: list[Any] = [OSError(), OSError(), ("k1", KEYS["k1"])]

    def key(_: str | None) -> tuple[str, bytes]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    store = Store(SealedBucket(MemoryBucket(), Encryption(key)), FakeClock())
    store.put_once("a", TEXT, if_absent=True, nonce="n")
    assert answers == []
    gone = Store(SealedBucket(MemoryBucket(), Encryption(failing(OSError()))), FakeClock(), retries=Retries())
    with pytest.raises(Unknown):
        gone.put_once("a", TEXT, if_absent=True, nonce="n")


# --- keyrings ------------------------------------------------------------------------------------------

K1 = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def test_a_keyring_writes_with_its_first_key_and_reads_with_all() -> None:
    ring = Keyring(f"# newest first\n\nk2 {'A' * 43}=\n{K1}\n")
    assert ring(None) == ("k2", bytes(32))
    assert ring("k1") == ("k1", KEYS["k1"])
    with pytest.raises(LookupError):
        ring("k3")
    assert "AAEC" not in repr(ring)
    assert "AAEC" not in repr(Encryption(ring))


@pytest.mark.parametrize(
    "text", ["", "# nothing", "k1", "k1 x y", "k1 !!!", "k1 c2hvcnQ=", f"{K1}\n{K1}", f"{'k' * 49} {K1[3:]}"]
)
def test_a_text_that_is_no_keyring_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        Keyring(text)
    assert "AAEC" not in str(caught.value)
    assert "c2hv" not in str(caught.value)


def test_what_is_no_source_of_keys_is_refused_at_once() -> None:
    with pytest.raises(InvalidValue):
        Encryption(b"x" * 32)  # type: ignore[arg-type]
