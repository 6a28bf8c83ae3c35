"""What an S3 store is asked to do with the bytes it keeps: encrypt them itself, and check a checksum.

    sse=AES256                  SSE-S3: keys of the store
    sse=aws:kms (…:dsse)        SSE-KMS: a key of a key service; `kms_key` names it, else the store's default
    customer_key=32 bytes       SSE-C: our key, sent with each request and kept by nobody; over https alone
    checksum=sha256 or crc32    `x-amz-checksum-…` of each object written: the store refuses what arrived
                                otherwise, and keeps it; a header, since not every store takes a trailer

All are headers, the same for every driver. A store that does not know them ignores them, and would keep plain
bytes where nobody expects it: so each answer to a put has to say that it encrypted, else it is Unsupported.
To a copy not every store says it, so where anything is asked for, nothing is copied by the store. Listing and
deleting need nothing. Sources: Amazon S3 API reference, PutObject, GetObject and HeadObject.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from streams.buckets.remote import content_md5
from streams.errors import InvalidValue, Unsupported

SSE = ("", "AES256", "aws:kms", "aws:kms:dsse")
CHECKSUMS = ("", "crc32", "sha256")
PARAMETERS = frozenset({"sse", "kms_key", "checksum"})
"""What a URL may say. A customer key is a secret, and stands in no URL."""

Operation = Literal["get", "head", "put"]
_CUSTOMER = "server-side-encryption-customer"
_ASKED = "x-amz-server-side-encryption"


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What the store is asked to do; by default nothing. See the top of this file.

    Raises InvalidValue for what is not known, or does not go together.
    """

    sse: str = ""
    kms_key: str = ""
    customer_key: bytes | None = field(default=None, repr=False)
    checksum: str = ""

    def __post_init__(self) -> None:
        if self.sse not in SSE:
            raise InvalidValue(f"sse is one of {', '.join(SSE[1:])}", path="sse")
        if self.checksum not in CHECKSUMS:
            raise InvalidValue(f"checksum is {' or '.join(CHECKSUMS[1:])}", path="checksum")
        if self.kms_key and not self.sse.startswith("aws:kms"):
            raise InvalidValue("kms_key is of sse=aws:kms", path="kms_key")
        if not (self.kms_key.isascii() and self.kms_key.isprintable()):
            raise InvalidValue("kms_key is the id, or the ARN, of a key", path="kms_key")
        key = self.customer_key
        if key is not None and (type(key) is not bytes or len(key) != 32 or self.sse):
            raise InvalidValue("customer_key is 32 bytes, and takes the place of sse", path="customer_key")

    @property
    def copies(self) -> bool:
        """Whether objects may be copied by the store: see the top of this file."""
        return self == NOTHING

    def headers(self, operation: Operation, data: bytes = b"") -> dict[str, str]:
        """What a request says besides; `data`: what a put sends. Names are in lower case."""
        said = self._customer()
        if operation != "put":
            return said
        if self.sse:
            said[_ASKED] = self.sse
        if self.kms_key:
            said[f"{_ASKED}-aws-kms-key-id"] = self.kms_key
        if self.checksum:
            said[f"x-amz-checksum-{self.checksum}"] = _checksum(self.checksum, data)
        return said

    def check(self, headers: Mapping[str, str], what: str) -> None:
        """Raise Unsupported unless the answer to a put (names in lower case) says that it was encrypted."""
        if self.sse and headers.get(_ASKED) != self.sse:
            raise Unsupported(f"{what}: the store did not encrypt it as asked (sse={self.sse})")
        if self.customer_key is not None and headers.get(f"x-amz-{_CUSTOMER}-algorithm") != "AES256":
            raise Unsupported(f"{what}: the store did not encrypt it with the customer key")

    def _customer(self) -> dict[str, str]:
        if self.customer_key is None:
            return {}
        return {
            f"x-amz-{_CUSTOMER}-algorithm": "AES256",
            f"x-amz-{_CUSTOMER}-key": b64encode(self.customer_key).decode(),
            f"x-amz-{_CUSTOMER}-key-md5": content_md5(self.customer_key),
        }


NOTHING = ServerSide()


def of_url(parameters: Mapping[str, str], customer_key: str | None) -> ServerSide:
    """What a URL's parameters, and the environment's customer key (base64), ask for. Raises InvalidValue."""
    found = {name: parameters[name] for name in PARAMETERS & parameters.keys()}
    try:
        key = b64decode(customer_key, validate=True) if customer_key else None
    except ValueError:
        raise InvalidValue("SNAPSHOTTER_SSE_CUSTOMER_KEY is the base64 of 32 bytes") from None
    return ServerSide(**found, customer_key=key)


def _checksum(name: str, data: bytes) -> str:
    digest = hashlib.sha256(data).digest() if name == "sha256" else zlib.crc32(data).to_bytes(4, "big")
    return b64encode(digest).decode()
