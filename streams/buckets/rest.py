"""S3's REST interface by hand, for the drivers that see raw answers: the operations, headers to send, headers
and XML to read.

Headers are read by lower-case names, from any mapping that has them so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from streams.buckets.base import Blob, Entry, Head, Page, Written
from streams.buckets.names import check_listing, check_path
from streams.buckets.remote import META_NONCE, date_of, error_for, iso_of, not_s3
from streams.buckets.serverside import ServerSide
from streams.errors import PreconditionFailed

Headers = Mapping[str, str]
NO_KEY = frozenset({"NoSuchKey"})
_NONCE = f"x-amz-meta-{META_NONCE}"
_CODE = re.compile(rb"<Code>(\w+)</Code>")


class Answer(Protocol):
    """A raw answer. Any property will do."""

    @property
    def headers(self) -> Any: ...
    @property
    def data(self) -> bytes: ...


class RestOperations:
    """What all drivers that see raw answers do alike. A driver brings `_request`, which is its border: the
    answer, None for a 404 of a code in `absent`, or a typed error; and `get`, with which some read
    otherwise."""

    _bucket: str
    _root: str
    _server_side: ServerSide
    _no_head: ClassVar[frozenset[str]] = frozenset({""})
    """Codes of a HEAD that found nothing. Its answer has no body, so a driver may know none."""

    def get(self, key: str) -> Blob | None:
        raise NotImplementedError

    def _request(
        self,
        method: str,
        key: str | None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> Answer | None:
        raise NotImplementedError

    def _sum(self, _data: bytes) -> dict[str, str]:
        """The header with a body's checksum, where the driver does not send one by itself."""
        return {}

    def head(self, key: str) -> Head | None:
        headers = self._server_side.headers("head")
        answer = self._request("HEAD", key, headers=headers, absent=self._no_head)
        if answer is None:
            # The answer to a HEAD has no body, so a missing bucket looks the same; a GET tells.
            self.get(key)
            return None
        return head_of(answer.headers, f"HEAD {key}")

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        headers = put_headers(if_absent=if_absent, if_match=if_match, nonce=nonce)
        headers |= self._server_side.headers("put", data) | self._sum(data)
        absent = NO_KEY if if_match is not None else frozenset[str]()
        answer = self._request("PUT", key, headers=headers, body=data, absent=absent)
        if answer is None:
            raise PreconditionFailed(f"PUT {key}: the object to be replaced does not exist")
        self._server_side.check(answer.headers, f"PUT {key}")
        return written_of(answer.headers, f"PUT {key}")

    @property
    def copies(self) -> bool:
        return self._server_side.copies

    def copy(self, source: str, key: str, etag: str) -> bool:
        headers = copy_headers(f"/{self._bucket}/{self._root}{check_path(source, 'the key')}", etag)
        answer = self._request("PUT", key, headers=headers, absent=NO_KEY)
        if answer is not None:
            check_copied(answer.data, f"COPY {source}")
        return answer is not None

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        def ask(query: dict[str, str]) -> tuple[bytes, str | None]:
            answer = self._request("GET", None, query=query)
            assert answer is not None  # no code stands for absence here
            return answer.data, answer.headers.get("date")

        return list_page(ask, self._root, check_listing(prefix), after, limit)

    def delete(self, key: str) -> None:
        self._request("DELETE", key, absent=NO_KEY)


def put_headers(*, if_absent: bool, if_match: str | None, nonce: str) -> dict[str, str]:
    """What a PUT says beside its body."""
    headers = {"Content-Type": "application/octet-stream"}
    if nonce:
        headers[_NONCE] = nonce
    if if_absent:
        headers["If-None-Match"] = "*"
    if if_match is not None:
        headers["If-Match"] = if_match
    return headers


def copy_headers(source: str, etag: str) -> dict[str, str]:
    """What a PUT says that creates a copy of this version of `source` (`/bucket/key`). Sources: Amazon S3 API
    reference, CopyObject; user guide, *Conditional writes*."""
    return {"x-amz-copy-source": quote(source), "x-amz-copy-source-if-match": etag, "If-None-Match": "*"}


def check_copied(data: bytes, what: str) -> None:
    """Raise the typed error of a copy that failed when it was under way, which is answered 200 with the error
    in its body; and WrongEndpoint where the answer is none to a copy, but to an empty PUT."""
    if b"<CopyObjectResult" not in data:
        code = _CODE.search(data)
        raise error_for(500, code[1].decode(), what) if code else not_s3(what)


def written_of(headers: Headers, what: str) -> Written:
    """Raises WrongEndpoint where there is no ETag."""
    return Written(_etag(headers, what), date_of(headers.get("date")))


def head_of(headers: Headers, what: str) -> Head:
    """Raises WrongEndpoint where there is no ETag."""
    return Head(
        int(headers.get("content-length", 0)),
        _etag(headers, what),
        headers.get(_NONCE),
        date_of(headers.get("last-modified")),
        date_of(headers.get("date")),
    )


def list_page(
    ask: Callable[[dict[str, str]], tuple[bytes, str | None]], root: str, prefix: str, after: str, limit: int
) -> Page:
    """One page of ListObjectsV2, its keys relative to `root`. `ask` sends a query (plain, to be escaped) for
    the bucket and returns the answer's body and its Date. Raises WrongEndpoint for what is no such answer."""
    query = {
        "list-type": "2",
        "max-keys": str(limit),
        "prefix": root + prefix,
        "encoding-type": "url",
    }
    if after:
        query["start-after"] = root + after
    while True:
        data, date = ask(query)
        page, token = _page_of(data, root, after, date_of(date))
        if page.entries or not page.more:
            return page
        # A page may be empty with more behind it; then only the store's token leads on.
        query["continuation-token"] = token


def _page_of(data: bytes, root: str, after: str, date_ms: int | None) -> tuple[Page, str]:
    try:
        tree = ET.fromstring(data)  # noqa: S314 - expat bounds entity expansion itself
    except ET.ParseError as error:
        raise not_s3("LIST") from error
    space = tree.tag.partition("}")[0] + "}" if tree.tag.startswith("{") else ""
    if tree.tag != f"{space}ListBucketResult":
        raise not_s3("LIST")
    encoded = tree.findtext(f"{space}EncodingType") == "url"
    entries = []
    for found in tree.iterfind(f"{space}Contents"):
        key = found.findtext(f"{space}Key") or ""
        key = unquote(key) if encoded else key
        size = int(found.findtext(f"{space}Size") or 0)
        etag = found.findtext(f"{space}ETag") or ""
        modified = iso_of(found.findtext(f"{space}LastModified"))
        entries.append(Entry(key[len(root) :], size, etag, modified))
    more = tree.findtext(f"{space}IsTruncated") == "true"
    page = Page(tuple(entries), more, entries[-1].key if entries else after, date_ms)
    return page, tree.findtext(f"{space}NextContinuationToken") or ""


def _etag(headers: Headers, what: str) -> str:
    etag = headers.get("etag")
    if not etag:
        raise not_s3(what)
    return etag
