"""S3's REST interface by hand, for the drivers that see raw answers: headers to send, headers and XML to
read.

Headers are read by lower-case names, from any mapping that has them so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from streams.buckets.base import Entry, Head, Page, Written
from streams.buckets.remote import META_NONCE, date_of, iso_of, not_s3
from streams.errors import Unreachable

Headers = Mapping[str, str]
_NONCE = f"x-amz-meta-{META_NONCE}"


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


def copy_headers(bucket: str, full_source: str) -> dict[str, str]:
    """What a PUT says that copies an object of the same bucket."""
    return {"x-amz-copy-source": quote(f"/{bucket}/{full_source}")}


def check_copied(data: bytes, what: str) -> None:
    """Raise Unreachable for a copy that failed on its way: it was answered 200, its error in the body."""
    if b"<Error" in data:
        raise Unreachable(f"{what}: the store began it and failed")


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
