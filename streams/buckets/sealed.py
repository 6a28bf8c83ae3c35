"""Every object encrypted before it leaves this process. The only file that imports `cryptography`.

AES-256-GCM over the whole object, with a nonce of its own for each write. What is authenticated besides is
the header and the object's key in the store (the URL's path included), so that an object put in another's
place is found out like an altered one. Layout, 96 bytes more than the content (FORMAT.md, "Encrypted
objects"):

     0   4  magic            91 53 4e 50
     4   1  version          1
     5   1  algorithm        1: AES-256-GCM
     6   1  length of the key id
     7   1  0
     8  48  key id           ASCII, then zeros
    56   8  key check        the first bytes of HMAC-SHA-256(key, "snapshotter key check")
    64  12  nonce            random
    76   4  CRC-32           of the 76 bytes before, big-endian
    80   n  ciphertext
        16  tag

The overhead is the same for every object, so that a listing tells the sizes of the contents. The CRC tells a
header that rotted (Corrupt) from a key that lacks (WrongKey); the key check tells a wrong key from an altered
object. Neither is a secret, and neither is what is relied on: the tag is.

Everything else is the bucket's own and stays as it was: names, ETags, dates, conditions, and the write's
nonce, which is random and which a HEAD has to answer. No copy is made by the store: it would not open under
its other name.
"""

from __future__ import annotations

import hmac
import os
import zlib
from collections.abc import Callable
from dataclasses import replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streams import claims
from streams.buckets.base import Blob, Broken, Bucket, Entry, Head, Page, Written
from streams.buckets.through import Through
from streams.encryption import ID_BYTES, KEY_BYTES, MAGIC, Encryption, is_key_id
from streams.errors import Corrupt, NewerVersion, StreamError, Unreachable, Unsupported, WrongKey

VERSION = 1
HEADER = 80
OVERHEAD = 96
_AES_256_GCM = 1
_NONCE = 12
_CHECKED = 76  # what the CRC covers
_CHECK = b"snapshotter key check"


class _Cipher:
    """One key, ready to use."""

    def __init__(self, key_id: str, key: bytes) -> None:
        self.aead = AESGCM(key)
        name = key_id.encode()
        check = hmac.digest(key, _CHECK, "sha256")[:8]
        self.check = check
        self.head = MAGIC + bytes((VERSION, _AES_256_GCM, len(name), 0)) + name.ljust(ID_BYTES, b"\0") + check


class SealedBucket(Through):
    """A bucket whose every object is encrypted. `root`: the path in the store that comes before each key.

    Raises, beside what the bucket raises: WrongKey where the source of keys has not the one that an object
    was sealed with; Unreachable where the source of keys fails. The bytes of an object that was altered,
    swapped, cut or put there without the key raise Corrupt (see `Broken`). `entropy` makes the nonces.
    """

    copies = False

    def __init__(
        self,
        inner: Bucket,
        encryption: Encryption,
        root: str = "",
        *,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(inner)
        self._encryption = encryption
        self._root = root
        self._entropy = entropy
        self._ciphers: dict[str, _Cipher] = {}

    def get(self, key: str) -> Blob | None:
        blob = self.inner.get(key)
        if blob is None:
            return None
        try:
            return replace(blob, data=self._opened(key, blob.data))
        except Corrupt as problem:
            return Broken(problem, blob)

    def head(self, key: str) -> Head | None:
        head = self.inner.head(key)
        return None if head is None else replace(head, size=self._size(head.size))

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        stored = self._closed(key, data)
        return self.inner.put(key, stored, if_absent=if_absent, if_match=if_match, nonce=nonce)

    def copy(self, source: str, key: str, etag: str) -> bool:  # noqa: ARG002 - as `copies` says
        raise Unsupported(f"{key}: a copy of what was sealed for {source} would not open")

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        page = self.inner.list(prefix, after=after, limit=limit)
        return replace(page, entries=tuple(map(self._entry, page.entries)))

    # --- sizes ------------------------------------------------------------------------------------------

    def _entry(self, entry: Entry) -> Entry:
        size = self._size(entry.size)
        if size < claims.LEAST and entry.size >= OVERHEAD and (size or self._encryption.allow_plain):
            # Nothing or a claim, encrypted; or a short segment that is not: those count as absent.
            blob = self.get(entry.key)
            if blob is not None:
                size = entry.size if isinstance(blob, Broken) else len(blob.data)
        return replace(entry, size=size)

    def _size(self, stored: int) -> int:
        """The size of what an object of so many bytes holds. Too short for a sealed one it is never told as
        empty, which would pass for deleted, or as a claim: whoever reads it finds out."""
        if stored >= OVERHEAD:
            return stored - OVERHEAD
        return stored if self._encryption.allow_plain else max(claims.LEAST, stored)

    # --- sealing ----------------------------------------------------------------------------------------

    def _closed(self, key: str, data: bytes) -> bytes:
        cipher = self._cipher(None, key)
        nonce = self._entropy(_NONCE)
        checked = cipher.head + nonce
        header = checked + zlib.crc32(checked).to_bytes(4, "big")
        return header + cipher.aead.encrypt(nonce, data, header + self._place(key))

    def _opened(self, key: str, stored: bytes) -> bytes:
        if not stored.startswith(MAGIC):
            if self._encryption.allow_plain:
                return stored
            raise Corrupt(
                f"{key} is not encrypted, so anybody may have written it; allow_plain reads it, while an "
                "older root is taken over",
                key=key,
                offset=0,
            )
        header = stored[:HEADER]
        key_id, check = _read(key, header, len(stored))
        cipher = self._cipher(key_id, key)
        if not hmac.compare_digest(cipher.check, check):
            raise WrongKey(f"{key} was sealed with another key than the one now called {key_id!r}")
        try:
            return cipher.aead.decrypt(header[64:_CHECKED], stored[HEADER:], header + self._place(key))
        except InvalidTag:
            raise Corrupt(
                f"{key} was altered, or put there in place of another: its seal does not hold",
                key=key,
                offset=HEADER,
            ) from None

    def _place(self, key: str) -> bytes:
        return f"{self._root}{key}".encode()

    # --- keys -------------------------------------------------------------------------------------------

    def _cipher(self, key_id: str | None, key: str) -> _Cipher:
        """The key of this id, or (None) the one to write with now."""
        known = self._ciphers.get(key_id) if key_id is not None else None
        if known is not None:
            return known
        name, secret = self._asked(key_id, key)
        cipher = self._ciphers.get(name)
        if cipher is None:
            cipher = self._ciphers[name] = _Cipher(name, secret)
        return cipher

    def _asked(self, key_id: str | None, key: str) -> tuple[str, bytes]:
        told = "the key to write with" if key_id is None else f"the key {key_id!r}"
        try:
            answer = self._encryption.key(key_id)
        except StreamError:
            raise
        except LookupError as error:
            raise WrongKey(f"{key}: {told} is not there; give it back to the source of keys") from error
        except (TypeError, ValueError, AttributeError) as error:  # a defect of that code, and no outage
            raise WrongKey(f"{key}: the source of keys failed ({type(error).__name__})") from error
        except Exception as error:
            raise Unreachable(f"{key}: {told} could not be had ({type(error).__name__})") from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise WrongKey(f"{key}: the source of keys has to answer (key id, 32 bytes)")
        name, secret = answer
        if not is_key_id(name) or key_id not in (None, name):
            raise WrongKey(f"{key}: the source of keys answered another id when asked for {told}")
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise WrongKey(f"{key}: {told} is not 32 bytes")
        return name, secret


def _read(key: str, header: bytes, size: int) -> tuple[str, bytes]:
    """The key id and the key check. Raises Corrupt, NewerVersion."""
    if size < OVERHEAD:
        raise Corrupt(
            f"{key} is cut: {size} bytes, and its seal alone takes {OVERHEAD}", key=key, offset=size
        )
    if zlib.crc32(header[:_CHECKED]).to_bytes(4, "big") != header[_CHECKED:]:
        raise Corrupt(f"{key} was altered: the header of its seal does not hold", key=key, offset=0)
    if header[4] > VERSION:
        raise NewerVersion(f"{key} is sealed in version {header[4]}; this release knows {VERSION}", key=key)
    length, padded = header[6], header[8 : 8 + ID_BYTES]
    key_id = padded[:length].decode("ascii", "replace")
    whole = length <= ID_BYTES and not header[7] and not any(padded[length:]) and is_key_id(key_id)
    if header[4] != VERSION or header[5] != _AES_256_GCM or not whole:
        raise Corrupt(f"{key}: the header of its seal is none that is known", key=key, offset=4)
    return key_id, header[56:64]
