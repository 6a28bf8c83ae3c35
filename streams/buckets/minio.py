"""MinIO and what speaks its protocol, through minio-py. The only file that imports minio or urllib3.

minio-py has no public way to put under a condition, and the obvious spelling is a trap: `metadata=
{"If-None-Match": "*"}` stores that text with the object and overwrites. A presigned URL leaves the
headers unsigned, and MinIO refuses unsigned `x-amz-meta-` headers, so the nonce could not travel. So
requests go through the client's own `_execute`, which signs every header; the version is pinned, and
opening a bucket checks that `_execute` still is what this file was written for.

The pool neither retries nor follows redirects (a re-sent conditional write reports its own success as a
lost race), has time-outs (the default is five minutes), and the region is always given, so that no
request is spent on asking for it.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import certifi
import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import HTTPError

from streams.buckets.base import Blob
from streams.buckets.names import KEY_BYTES, check_path, check_prefix, root_of
from streams.buckets.remote import (
    CONNECT_SECONDS,
    CONNECTIONS,
    DEFAULT_REGION,
    READ_SECONDS,
    STALE_KEYS,
    Keys,
    error_for,
    is_plea_for_tls,
    no_answer,
    no_keys,
)
from streams.buckets.rest import NO_KEY, Answer, RestOperations, head_of
from streams.buckets.serverside import NOTHING, ServerSide
from streams.errors import (
    InvalidId,
    Misconfigured,
    StreamError,
)

T = TypeVar("T")

_EXECUTE = ("method", "bucket_name", "object_name", "body", "headers", "query_params")
_PLAIN = "add ?secure=0 to the URL (or begin OBJECT_STORE_BASE_URL with http://)"
_SECURE = "add ?secure=1 to the URL (or begin OBJECT_STORE_BASE_URL with https://)"


class MinioBucket(RestOperations):
    """A bucket (and a prefix in it) behind `endpoint` (`http://host:port` or `https://…`).

    `keys` is asked for credentials at once, and again after they have expired.
    Raises CredentialsExpired where it has none, InvalidId for an endpoint that is none.
    """

    trusted = False

    _no_head = NO_KEY  # minio-py gives its answer that code

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str,
        region: str | None = None,
        keys: Callable[[], Keys | None],
        server_side: ServerSide = NOTHING,
    ) -> None:
        self._bucket = bucket
        self._root = root_of(check_prefix(prefix))
        self._endpoint = urlsplit(endpoint)
        self._region = region or DEFAULT_REGION
        self._keys = keys
        self._server_side = server_side
        self._lock = threading.Lock()
        self._built = 0
        self._pool = urllib3.PoolManager(
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            maxsize=CONNECTIONS,
            cert_reqs="CERT_REQUIRED",
            ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
        )
        secure = self._endpoint.scheme == "https"
        self.url = f"minio://{self._endpoint.netloc}/{bucket}/{prefix}".rstrip("/") + f"?secure={secure:d}"
        self.room = KEY_BYTES - len(self._root)
        self._client = self._build()

    def get(self, key: str) -> Blob | None:
        answer = self._ask("GET", key, absent=NO_KEY, headers=self._server_side.headers("get"))
        if answer is None:
            return None
        found = head_of(answer.headers, f"GET {key}")
        return Blob(answer.data, found.etag, found.nonce, found.modified_ms, found.date_ms)

    def close(self) -> None:
        self._pool.clear()

    # --- inside -----------------------------------------------------------------------------------------

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
        said: dict[str, Any] = {"query_params": query, "headers": headers, "body": body}
        given = {name: value for name, value in said.items() if value is not None}
        answer: Answer | None = self._ask(method, key, absent=absent, **given)
        return answer

    def _ask(
        self,
        method: str,
        key: str | None,
        *,
        absent: frozenset[str] = frozenset(),
        refreshed: bool = False,
        **request: Any,
    ) -> Any:
        """The one border: the answer, None for a 404 of a code in `absent`, or a typed error."""
        what = f"{method} {key}" if key is not None else "LIST"
        full = None if key is None else self._root + check_path(key, "the key")
        built = self._built
        try:
            return self._client._execute(method, self._bucket, full, **request)
        except S3Error as error:
            status = error.response.status
            if status == 404 and error.code in absent:
                return None
            if error.code not in STALE_KEYS or refreshed:
                raise error_for(status, error.code or "", what) from None  # whose text is the store's own
        except (MinioException, HTTPError, OSError, ValueError, TypeError) as error:
            told = isinstance(error, InvalidResponseError | ServerError)
            raise _typed(error, what, self._endpoint.geturl()) from (None if told else error)
        self._rebuild(built)
        return self._ask(method, key, absent=absent, refreshed=True, **request)

    def _rebuild(self, built: int) -> None:
        """Build the client again, unless another thread has done so since the build that failed."""
        with self._lock:
            if self._built == built:
                self._client = self._build()
                self._built += 1

    def _build(self) -> Minio:
        keys = self._keys()
        if keys is None:
            raise no_keys(self.url)
        try:
            client = Minio(
                endpoint=self._endpoint.netloc,
                access_key=keys.access_key,
                secret_key=keys.secret_key,
                session_token=keys.session_token,
                secure=self._endpoint.scheme == "https",
                region=self._region,
                http_client=self._pool,
            )
        except ValueError as error:
            raise InvalidId(f"{self.url}: {error}") from error
        check_driver(client)
        return client


def check_driver(client: Minio) -> None:
    """Raise Misconfigured unless this minio-py sends requests the way this file relies on."""
    execute = getattr(client, "_execute", None)
    if execute is None or not set(_EXECUTE) <= set(inspect.signature(execute).parameters):
        raise Misconfigured("this version of minio is not supported: pip install 'minio>=7.2,<7.3'")


def _typed(error: Exception, what: str, endpoint: str) -> StreamError:
    """The typed error for an answer that is not S3's XML, or for none at all."""
    refusal = isinstance(error, InvalidResponseError | ServerError)
    if refusal and not is_plea_for_tls(error):
        # One of the two; minio-py has no public name for the first.
        return error_for(int(getattr(error, "_code", 0) or getattr(error, "_status_code", 0)), "", what)
    if refusal or isinstance(error, HTTPError | OSError):
        return no_answer(what, error, endpoint, plain=_PLAIN, secure=_SECURE, lost=_lost(endpoint))
    return Misconfigured(f"{what}: the driver cannot make this request ({type(error).__name__})")


def _lost(endpoint: str) -> str:
    """For an endpoint that is one bare word, as in `minio://bucket/path`, where the host was forgotten."""
    parts = urlsplit(endpoint)
    if parts.port or "." in (parts.hostname or "") or parts.hostname in ("localhost", "::1"):
        return ""
    return f"{parts.hostname!r} is taken for the host: a URL reads minio://host:port/bucket/path"
