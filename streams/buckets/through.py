"""A bucket by way of another one: what stands around a bucket overrides what it does otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from streams.buckets.base import Blob, Bucket, Head, Page, Written

T = TypeVar("T")
Verb = Literal["get", "head", "put", "copy", "list", "delete"]


class Through:
    """The same bucket. Each request goes by `_through`."""

    def __init__(self, inner: Bucket) -> None:
        self.inner = inner

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def room(self) -> int:
        return self.inner.room

    @property
    def trusted(self) -> bool:
        return self.inner.trusted

    @property
    def copies(self) -> bool:
        return self.inner.copies

    def get(self, key: str) -> Blob | None:
        return self._through("get", key, lambda: self.inner.get(key))

    def head(self, key: str) -> Head | None:
        return self._through("head", key, lambda: self.inner.head(key))

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        def call() -> Written:
            return self.inner.put(key, data, if_absent=if_absent, if_match=if_match, nonce=nonce)

        return self._through("put", key, call, len(data))

    def copy(self, source: str, key: str, etag: str) -> bool:
        return self._through("copy", key, lambda: self.inner.copy(source, key, etag))

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        return self._through("list", prefix, lambda: self.inner.list(prefix, after=after, limit=limit))

    def delete(self, key: str) -> None:
        self._through("delete", key, lambda: self.inner.delete(key))

    def close(self) -> None:
        self.inner.close()

    def _through(self, verb: Verb, key: str, call: Callable[[], T], sent: int | None = None) -> T:  # noqa: ARG002
        """Make one request. `key`: of a list the prefix. `sent`: bytes of a put."""
        return call()
