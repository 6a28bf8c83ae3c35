"""S3 and what speaks its protocol, through obstore (Rust). The only file that imports obstore.

obstore reads: objects come over with the interpreter's lock let go, so that a boot's GETs run side by side.
Whatever decides something goes by a signed request of our own (`streams.buckets.signed`), because obstore
keeps back what the engine decides by, and does what it must not, and no option changes that (0.12):

* It tells no answer's `Date`. A lease is judged by the store's clock (`Date` less `Last-Modified`), and a
  writer that slept is found out by the dates of what it wrote.
* Its listing takes no `max-keys`: the newest 20 names of a log would come as 1,000; and its prefixes are
  folders.
* It follows redirects, and the one of a PUT as a GET: any page with an ETag would count as written.
* It knows one error for 409 and 412, which are "ask again" and "lost".

obstore's own retries are off, as every driver's are: see `streams.store`. What it says of an error is text,
with the status and the S3 code in it, which is read at one border. An object's nonce and date of change come
with it; a GET's date is carried on from the last answer that was dated, and None before there is one.

Used from threads and never by its async side, whose runtime can abort the interpreter at exit. Its own
threads do not come along when a process forks: a child whose parent has read with it would wait for them
forever, so there a read is refused. A bucket that was opened before a fork, and first read after it, works.
"""

from __future__ import annotations

import os
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import BaseError, GenericError
from obstore.store import S3Store

from streams.buckets.base import Blob
from streams.buckets.names import KEY_BYTES, check_path, check_prefix, root_of
from streams.buckets.remote import (
    CONNECT_SECONDS,
    CONNECTIONS,
    DEFAULT_REGION,
    DIRECTORY,
    META_NONCE,
    READ_SECONDS,
    STALE_KEYS,
    Keys,
    content_md5,
    date_of,
    error_for,
    is_plea_for_tls,
    is_proven,
    no_answer,
    no_keys,
    not_s3,
)
from streams.buckets.rest import NO_KEY, RestOperations
from streams.buckets.serverside import NOTHING, ServerSide
from streams.buckets.signed import NO_ANSWER, Answer, Wire
from streams.clock import SystemClock
from streams.errors import InvalidId, Misconfigured, StreamError

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential

T = TypeVar("T")

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})[^:]*(.*)", re.DOTALL)
_REDIRECTED = "redirect without LOCATION"
_PLAIN = "begin the endpoint with http://"
_SECURE = "begin the endpoint with https://"


_READ = threading.Event()  # obstore's threads run
_LEFT = threading.Event()  # this process is a fork, and they run in its parent


def _forked() -> None:
    if _READ.is_set():
        _LEFT.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _RefusalError(Exception):
    """An error answer: its HTTP status, its S3 code ("" where it has none), and its text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        found = _CODE.search(text)
        self.status, self.code = status, found[1] if found else ""


@dataclass(frozen=True, slots=True)
class _Access:
    """What credentials open."""

    keys: Keys
    reader: S3Store


class ObstoreBucket(RestOperations):
    """A bucket (and a prefix in it) behind an S3 endpoint; without `endpoint`, AWS. Addressed by path.

    `keys` is asked for credentials at once, and again after they have expired.
    Raises CredentialsExpired where it has none, InvalidId for a directory bucket.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        keys: Callable[[], Keys | None],
        server_side: ServerSide = NOTHING,
    ) -> None:
        if bucket.endswith(DIRECTORY):
            raise InvalidId(f"{bucket!r} is a directory bucket, which this driver cannot open; take s3://")
        self._bucket = bucket
        self._root = root_of(check_prefix(prefix))
        self._region = region or DEFAULT_REGION
        self._endpoint = endpoint or _aws(self._region)
        self._keys = keys
        self._server_side = server_side
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._ahead_ms: int | None = None  # the store's clock less ours
        self.url = f"s3+obstore://{bucket}/{prefix}".rstrip("/") + (
            f"?endpoint={endpoint}" if endpoint else ""
        )
        self.room = KEY_BYTES - len(self._root)
        self.trusted = is_proven(self._endpoint, bucket)
        self._wire = Wire(self._endpoint, self._region)
        self._access = self._open()

    def get(self, key: str) -> Blob | None:
        full = self._full(key)

        def read(access: _Access) -> Blob:
            found = _read(access.reader, full)
            ahead = self._ahead_ms
            date = None if ahead is None else self._clock.now_ms() + ahead
            return Blob(found.data, found.etag, found.nonce, found.modified_ms, date)

        return self._ask(f"GET {key}", read, NO_KEY)

    def close(self) -> None:
        self._wire.close()

    # --- inside -----------------------------------------------------------------------------------------

    def _sum(self, data: bytes) -> dict[str, str]:
        return {"Content-MD5": content_md5(data)}

    def _full(self, key: str) -> str:
        return self._root + check_path(key, "the key")

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
        path = f"/{self._bucket}" if key is None else f"/{self._bucket}/{self._full(key)}"

        def send(access: _Access) -> Answer:
            before = self._clock.now_ms()
            answer = self._wire.ask(access.keys, method, path, query=query, headers=headers, body=body or b"")
            if answer.status >= 300:
                raise _RefusalError(answer.status, answer.data.decode(errors="replace"))
            date = date_of(answer.headers.get("date"))
            if date is not None:
                self._ahead_ms = date - before
            return answer

        return self._ask("LIST" if key is None else f"{method} {key}", send, absent)

    def _ask(
        self,
        what: str,
        request: Callable[[_Access], T],
        absent: frozenset[str] = frozenset(),
        *,
        refreshed: bool = False,
    ) -> T | None:
        """The one border: the answer, None for a 404 of a code in `absent`, or a typed error."""
        access = self._access
        try:
            return request(access)
        except _RefusalError as error:
            if error.status == 404 and error.code in absent:
                return None
            if error.code not in STALE_KEYS or refreshed:
                raise self._typed(error, what) from None  # whose text is the store's own
        except (*NO_ANSWER, BaseError, ValueError, TypeError) as error:
            raise self._typed(error, what) from error
        self._reopen(access)
        return self._ask(what, request, absent, refreshed=True)

    def _typed(self, error: Exception, what: str) -> StreamError:
        refusal = isinstance(error, _RefusalError)
        if isinstance(error, _RefusalError) and not is_plea_for_tls(error):
            return error_for(error.status, error.code, what)
        if refusal or isinstance(error, (*NO_ANSWER, GenericError)):
            return no_answer(what, error, self._endpoint, plain=_PLAIN, secure=_SECURE)
        return Misconfigured(f"{what}: the driver cannot make this request ({type(error).__name__})")

    def _reopen(self, stale: _Access) -> None:
        """Ask for credentials again, unless another thread has done so since those that failed."""
        with self._lock:
            if self._access is stale:
                self._access = self._open()

    def _open(self) -> _Access:
        keys = self._keys()
        if keys is None:
            raise no_keys(self.url)
        found: S3Credential = {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.session_token,
            "expires_at": None,
        }
        endpoint = urlsplit(self._endpoint)
        reader = S3Store(
            self._bucket,
            endpoint=self._endpoint,
            region=self._region,
            virtual_hosted_style_request=False,
            skip_signature=False,
            # By a function, since keys given as such would be completed from the environment.
            credential_provider=lambda: found,
            client_options={
                "allow_http": endpoint.scheme == "http",
                "http1_only": True,
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "read_timeout": timedelta(seconds=READ_SECONDS),
                "pool_max_idle_per_host": str(CONNECTIONS),
                # Some proxy, and none for this host: else reads alone would take that of the environment.
                "proxy_url": self._endpoint,
                "proxy_excludes": endpoint.hostname or "",
            },
            retry_config={"max_retries": 0},
            config=_reading(self._server_side),
        )
        return _Access(keys, reader)


@dataclass(frozen=True, slots=True)
class _Found:
    data: bytes
    etag: str
    nonce: str | None
    modified_ms: int | None


def _read(reader: S3Store, full: str) -> _Found:
    """The object, whole. Raises _RefusalError for an error answer, WrongEndpoint for one that is not S3's."""
    if _LEFT.is_set():
        raise Misconfigured(
            "this process was forked from one that had read through s3+obstore://, which cannot go on here; "
            "start workers by spawn, read first after the fork, or open the store by s3://"
        )
    _READ.set()
    try:
        answer = reader.get(full)
        meta = answer.meta
        etag = meta["e_tag"]
        if not etag:
            raise not_s3("GET")
        modified = round(meta["last_modified"].timestamp() * 1000) or None  # 1970 stands for "not told"
        return _Found(answer.bytes().to_bytes(), etag, answer.attributes.get(META_NONCE), modified)
    except (BaseError, FileNotFoundError) as error:
        text = str(error).partition("\n\nDebug source")[0]
        told = _STATUS.search(text)
        if told is not None:
            raise _RefusalError(int(told[1]), told[2]) from error
        if _REDIRECTED in text:
            raise _RefusalError(301, text) from error
        raise


def _reading(server_side: ServerSide) -> S3Config:
    """What obstore has to be told to read what the store encrypted with our key."""
    if server_side.customer_key is None:
        return {}
    key = b64encode(server_side.customer_key).decode()
    return {"server_side_encryption": "sse-c", "sse_customer_key_base64": key}


def _aws(region: str) -> str:
    return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
