"""S3 and what speaks its protocol, through boto3. The only file that imports boto3 or botocore.

It uses boto3's core, botocore, alone: boto3 adds managed transfers, which nobody here needs, and a cold
process waits for them. Only a caller who hands in a `boto3.Session` has imported boto3. Of what a client then
costs, most is the reading of descriptions: see `_Descriptions`.

One call is one request: the driver's own retries are off, since it would re-send a conditional write
and report its own success as a lost race. Its `Expect: 100-continue` is off, because it costs a second
round trip per PUT; checksums only where required, because some stores keep their framing in the object.
A PUT says its `Content-MD5`, as minio-py's do: where a sender dies between head and body, there are stores
that would keep an empty object.

Two exceptions. AWS redirects requests for a bucket of another region, and boto3 follows (a given endpoint
is never left). And when the store says that the session token has expired, the client is built again, once
per call, and the same request repeated. Both refusals are answers: nothing was applied.
"""

from __future__ import annotations

import gzip
import os
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import botocore.exceptions as failures
import botocore.session
import orjson
from botocore.config import Config
from botocore.handlers import BUILTIN_HANDLERS, add_expect_header
from botocore.loaders import JSONFileLoader, Loader
from botocore.parsers import ResponseParserError

from streams.buckets.base import Blob, Entry, Head, Page, Written
from streams.buckets.names import KEY_BYTES, check_listing, check_path, check_prefix, root_of
from streams.buckets.remote import (
    CONNECT_SECONDS,
    CONNECTIONS,
    DEFAULT_REGION,
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
    not_s3,
)
from streams.buckets.serverside import NOTHING, Operation, ServerSide
from streams.errors import (
    CredentialsExpired,
    InvalidId,
    Misconfigured,
    PreconditionFailed,
    StreamError,
    Unreachable,
)

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef

T = TypeVar("T")
_WEB_PAGE = re.compile(rb"\s*<(!doctype\s+)?html", re.IGNORECASE)

# A 404 that means "no such key". A HEAD has no code; anything but a store may give a bare 404 to a GET.
_NO_KEY = frozenset({"NoSuchKey"})
_NO_KEY_HEAD = _NO_KEY | {"404", "NotFound", ""}

_OPERATIONS: dict[str, Operation] = {
    "GetObject": "get",
    "HeadObject": "head",
    "PutObject": "put",
}
_CHECKED = ("PutObject", "CopyObject", "ListObjectsV2")
_NO_KEYS = (
    failures.NoCredentialsError,
    failures.PartialCredentialsError,
    failures.CredentialRetrievalError,
    failures.NoAuthTokenError,
    failures.TokenRetrievalError,
    failures.SSOError,
    failures.ProfileNotFound,
)
# The two ways in which a short body shows, and everything that the network does.
_NO_ANSWER = (
    OSError,
    failures.ConnectionError,
    failures.HTTPClientError,
    failures.IncompleteReadError,
    failures.ResponseStreamingError,
    failures.MetadataRetrievalError,
)


_PLAIN = "begin the endpoint with http://"
_SECURE = "begin the endpoint with https://"


class S3Bucket:
    """A bucket (and a prefix in it) behind an S3 endpoint; without `endpoint`, AWS.

    `session` (or a function that makes one) brings the user's own credentials, and wins; else `keys` is
    asked; else boto3 looks where it always does (environment, profiles, instance roles). A function is
    called again after its credentials expired.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        session: boto3.Session | Callable[[], boto3.Session] | None = None,
        keys: Callable[[], Keys | None] | None = None,
        server_side: ServerSide = NOTHING,
    ) -> None:
        self._bucket = bucket
        self._root = root_of(check_prefix(prefix))
        self._endpoint = endpoint
        self._region = region
        self._session = session
        self._keys = keys
        self._server_side = server_side
        self._lock = threading.Lock()
        self._built = 0
        self.url = f"s3://{bucket}/{prefix}".rstrip("/") + (f"?endpoint={endpoint}" if endpoint else "")
        self.room = KEY_BYTES - len(self._root)
        self._client = self._build()
        self.trusted = is_proven(self._client.meta.endpoint_url, bucket)
        self.copies = server_side.copies

    def get(self, key: str) -> Blob | None:
        def request(client: S3Client) -> Blob:
            answer = client.get_object(Bucket=self._bucket, Key=self._full(key))
            data = answer["Body"].read()
            nonce = answer.get("Metadata", {}).get(META_NONCE)
            return Blob(data, _etag(answer, key), nonce, _modified(answer), _date(answer))

        return self._ask(f"GET {key}", request, _NO_KEY)

    def head(self, key: str) -> Head | None:
        def request(client: S3Client) -> Head:
            answer = client.head_object(Bucket=self._bucket, Key=self._full(key))
            nonce = answer.get("Metadata", {}).get(META_NONCE)
            return Head(answer["ContentLength"], _etag(answer, key), nonce, _modified(answer), _date(answer))

        found = self._ask(f"HEAD {key}", request, _NO_KEY_HEAD)
        if found is None:
            # The answer to a HEAD has no body, so a missing bucket looks the same; a GET tells.
            self.get(key)
        return found

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        nonce: str = "",
    ) -> Written:
        extra: dict[str, Any] = {"ContentMD5": content_md5(data)}
        if nonce:
            extra["Metadata"] = {META_NONCE: nonce}
        if if_absent:
            extra["IfNoneMatch"] = "*"
        if if_match is not None:
            extra["IfMatch"] = if_match

        def request(client: S3Client) -> Written:
            answer = client.put_object(Bucket=self._bucket, Key=self._full(key), Body=data, **extra)
            self._server_side.check(_headers(answer), f"PUT {key}")
            return Written(_etag(answer, key), _date(answer))

        written = self._ask(f"PUT {key}", request, _NO_KEY if if_match is not None else frozenset())
        if written is None:
            raise PreconditionFailed(f"PUT {key}: the object to be replaced does not exist")
        return written

    def copy(self, source: str, key: str, etag: str) -> bool:
        where: CopySourceTypeDef = {"Bucket": self._bucket, "Key": self._full(source)}

        def request(client: S3Client) -> bool:
            answer = client.copy_object(
                Bucket=self._bucket, Key=self._full(key), CopySource=where, CopySourceIfMatch=etag
            )
            _etag(answer.get("CopyObjectResult", {}), f"COPY {source}")
            return True

        return bool(self._ask(f"COPY {source}", request, _NO_KEY))

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        where: dict[str, Any] = {"StartAfter": self._root + after} if after else {}

        def request(client: S3Client) -> Page:
            while True:
                answer = client.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._root + check_listing(prefix), MaxKeys=limit, **where
                )
                page = self._page(answer, after)
                if page.entries or not page.more:
                    return page
                # A page may be empty with more behind it; then only the store's token leads on.
                where["ContinuationToken"] = answer["NextContinuationToken"]

        page = self._ask(f"LIST {prefix}", request)
        assert page is not None  # no code stands for absence here
        return page

    def delete(self, key: str) -> None:
        self._ask(
            f"DELETE {key}",
            lambda client: client.delete_object(Bucket=self._bucket, Key=self._full(key)),
            _NO_KEY,
        )

    def close(self) -> None:
        self._client.close()

    # --- inside -----------------------------------------------------------------------------------------

    def _full(self, key: str) -> str:
        return self._root + check_path(key, "the key")

    def _page(self, answer: Mapping[str, Any], after: str) -> Page:
        if "IsTruncated" not in answer:
            raise not_s3("LIST")
        entries = tuple(
            Entry(
                found["Key"][len(self._root) :],
                found["Size"],
                found.get("ETag", ""),
                round(found["LastModified"].timestamp() * 1000),
            )
            for found in answer.get("Contents", ())
        )
        return Page(entries, answer["IsTruncated"], entries[-1].key if entries else after, _date(answer))

    def _ask(
        self,
        what: str,
        request: Callable[[S3Client], T],
        absent: frozenset[str] = frozenset(),
        *,
        refreshed: bool = False,
    ) -> T | None:
        """The one border: the answer, None for a 404 of a code in `absent`, or a typed error."""
        built = self._built
        try:
            return request(self._client)
        except failures.ClientError as error:
            status, code = _answer(error)
            if status == 404 and code in absent:
                return None
            if code not in STALE_KEYS or refreshed:
                raise error_for(status, code, what) from None  # whose text is the store's own
        except (failures.BotoCoreError, ResponseParserError, OSError) as error:
            told = isinstance(error, ResponseParserError)
            raise _typed(error, what, self._client.meta.endpoint_url) from (None if told else error)
        self._rebuild(built)
        return self._ask(what, request, absent, refreshed=True)

    def _rebuild(self, built: int) -> None:
        """Build the client again, unless another thread has done so since the build that failed."""
        with self._lock:
            if self._built == built:
                self._client = self._build()
                self._built += 1

    def _build(self) -> S3Client:
        session = self._session() if callable(self._session) else self._session
        config = Config(
            retries={"total_max_attempts": 1},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            parameter_validation=False,
            s3={"addressing_style": "path"} if self._endpoint else {},
        )
        make, found = (
            _of_environment(self._keys) if session is None else (session.client, session.region_name)
        )
        region = self._region or found or DEFAULT_REGION
        try:
            client: S3Client = make("s3", region_name=region, endpoint_url=self._endpoint, config=config)
        except ValueError as error:  # so botocore refuses an endpoint that is no URL
            raise InvalidId(f"{self.url}: {error}") from error
        _tame(client, redirects=self._endpoint is None)
        client.meta.events.register("before-call.s3", partial(_say, self._server_side))
        return client


def _tame(client: S3Client, *, redirects: bool) -> None:
    """Change the driver's habits that this bucket cannot live with."""
    events = client.meta.events
    events.unregister("before-call.s3", add_expect_header)
    if not redirects:
        events.register("before-call.s3", _follow_no_redirect)
    # Ours has to go before those that turn an odd answer into a server fault.
    first = [entry for entry in BUILTIN_HANDLERS if entry[0] == "before-parse.s3.*" and len(entry) > 2]
    for event, handler, *_ in first:
        events.unregister(event, handler)
    for handler in (_check_answer, *(entry[1] for entry in first)):
        events.register_first("before-parse.s3.*", handler)


def _check_answer(operation_model: Any, response_dict: dict[str, Any], **_: object) -> None:
    """Before boto3 parses an answer: it would call a web page a server fault, and not miss missing bytes."""
    if response_dict["status_code"] == 400 and is_plea_for_tls(body := response_dict["body"]):
        raise ResponseParserError(body)
    if response_dict["status_code"] >= 300 or operation_model.name not in _CHECKED:
        return
    body, what = response_dict["body"], str(operation_model.name)
    if len(body) < int(response_dict["headers"].get("content-length", 0)):
        raise Unreachable(f"{what}: the answer ended early")
    if _WEB_PAGE.match(body):
        raise not_s3(what)


def _say(server_side: ServerSide, model: Any, params: dict[str, Any], **_: object) -> None:
    """What the store is asked to do with an object, in headers of each request that they concern. That a copy
    is a create, too: a botocore that does not know this of it would leave it out without a word."""
    if model.name == "CopyObject":
        params["headers"]["If-None-Match"] = "*"
    operation = _OPERATIONS.get(model.name)
    if operation is not None:
        # What was given as bytes is a BytesIO by now.
        data = params["body"].getvalue() if operation == "put" else b""
        params["headers"].update(server_side.headers(operation, data))


def _follow_no_redirect(context: dict[str, Any], **_: object) -> None:
    """Make boto3's region redirector believe that it has redirected this request already."""
    context.setdefault("s3_redirect", {})["redirected"] = True


def _answer(error: failures.ClientError) -> tuple[int, str]:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status, error.response.get("Error", {}).get("Code", "")


def _typed(error: Exception, what: str, endpoint: str) -> StreamError:
    """The typed error for a request that got no S3 answer."""
    if isinstance(error, ResponseParserError) and not is_plea_for_tls(error):
        return not_s3(what)
    if isinstance(error, _NO_KEYS):
        return CredentialsExpired(
            f"{what}: no usable credentials ({type(error).__name__}); set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or OBJECT_STORE_ACCESS_KEY_ID and OBJECT_STORE_SECRET_ACCESS_KEY"
        )
    if isinstance(error, (*_NO_ANSWER, ResponseParserError)):
        return no_answer(what, error, endpoint, plain=_PLAIN, secure=_SECURE)
    return Misconfigured(f"{what}: the driver cannot make this request ({type(error).__name__})")


def _etag(answer: Mapping[str, Any], what: str) -> str:
    etag = answer.get("ETag")
    if not etag:
        raise not_s3(what)
    return str(etag)


def _modified(answer: Mapping[str, Any]) -> int | None:
    modified = answer.get("LastModified")
    return None if modified is None else round(modified.timestamp() * 1000)


def _date(answer: Mapping[str, Any]) -> int | None:
    return date_of(_headers(answer).get("date"))


def _headers(answer: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
    return found


def _of_environment(find: Callable[[], Keys | None] | None) -> tuple[Callable[..., Any], str | None]:
    """What makes a client, and the region of the user's own configuration. The session is a fresh one, so
    that credentials are looked up anew; without keys, wherever boto3 looks."""
    session = botocore.session.Session()
    session.register_component("data_loader", _DESCRIPTIONS)
    keys = find() if find else None
    if keys is not None:
        session.set_credentials(keys.access_key, keys.secret_key, keys.session_token)
    return session.create_client, session.get_config_variable("region")


class _Json(JSONFileLoader):
    def load_file(self, file_path: str) -> Any:
        for path, opener in ((f"{file_path}.json", open), (f"{file_path}.json.gz", gzip.open)):
            try:
                with opener(path, "rb") as file:
                    return orjson.loads(file.read())
            except FileNotFoundError:
                continue
        return None


class _Descriptions(Loader):
    """botocore's descriptions of services, read by a quicker reader, and without looking into the folders of
    all 400 services for a file of that kind. A service that has none is missed one step later."""

    FILE_LOADER_CLASS = _Json

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - botocore's signature
        folders = [Path(path) for path in self.search_paths]
        return [found.name for folder in folders if folder.is_dir() for found in os.scandir(folder)]


# Once a process is enough.
_DESCRIPTIONS = _Descriptions()
