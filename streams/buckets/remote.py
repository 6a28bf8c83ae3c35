"""What the S3 drivers share: keys that do not show, HTTP dates, and the border for errors.

Every error answer of a store becomes one typed error here, by its S3 code first and by its HTTP status
where the code says nothing (a HEAD has no body, a proxy knows no codes). Messages name the status, the
code and the remedy, and never a header, a signed URL or a server's own text: those can hold secrets (to a
wrong signature AWS answers with all that was signed, the session token too). So where a store answered, its
text is cut off from the typed error as well, and no traceback shows it.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from streams.errors import (
    AccessDenied,
    BucketMissing,
    ClockSkew,
    CredentialsExpired,
    InvalidId,
    PreconditionFailed,
    StreamError,
    Throttled,
    Unreachable,
    Unsupported,
    WrongEndpoint,
)

CONNECT_SECONDS = 2.0
READ_SECONDS = 5.0  # a third of the shortest lease: a repeated append must fit into it
CONNECTIONS = 256  # kept open for the next requests: those of a few hundred sessions in one process
DEFAULT_REGION = "us-east-1"
META_NONCE = "nonce"
DIRECTORY = "--x-s3"  # so end the names of directory buckets


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials. They do not show in a repr."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def content_md5(data: bytes) -> str:
    """The MD5 of some bytes as S3's headers have it. Where a sender dies between the head and the body of a
    PUT, there are stores that keep an empty object unless the head says this of the body."""
    return b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


# The codes that newly handed out keys may cure.
STALE_KEYS = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"})

_BY_CODE: dict[str, tuple[type[StreamError], str]] = {
    "NoSuchBucket": (BucketMissing, "create the bucket, or mend the URL"),
    "AccessDenied": (
        AccessDenied,
        "these credentials may not do this; `snapshotter policy` prints what each role needs",
    ),
    "AllAccessDisabled": (AccessDenied, "the store disabled all access to this bucket"),
    "AccountProblem": (AccessDenied, "the store reports a problem with the account"),
    **dict.fromkeys(
        STALE_KEYS, (CredentialsExpired, "the session token is no longer valid; get new credentials")
    ),
    "InvalidAccessKeyId": (CredentialsExpired, "the store does not know this access key"),
    "SignatureDoesNotMatch": (
        CredentialsExpired,
        "the secret key (or the region) does not fit the access key",
    ),
    "RequestTimeTooSkewed": (ClockSkew, "set this machine's clock; the store allows 15 minutes"),
    "RequestExpired": (ClockSkew, "set this machine's clock; the request arrived as already expired"),
    "PreconditionFailed": (PreconditionFailed, "the object is not in the expected state"),
    "ConditionalRequestConflict": (Unreachable, "another request to this key was in flight"),
    "NotImplemented": (Unsupported, "the store does not know this request or one of its conditions"),
    "MethodNotAllowed": (Unsupported, "the store does not allow this request"),
    "KeyTooLongError": (InvalidId, "use a shorter session id or prefix"),
    "InvalidBucketName": (WrongEndpoint, "the URL's bucket name is not acceptable to the store"),
    "PermanentRedirect": (WrongEndpoint, "the bucket lives at another endpoint; mend endpoint or region"),
    "TemporaryRedirect": (WrongEndpoint, "the bucket lives at another endpoint; mend endpoint or region"),
    "AuthorizationHeaderMalformed": (WrongEndpoint, "most often a wrong region; mend region="),
    "IllegalLocationConstraintException": (WrongEndpoint, "the bucket lives in another region; mend region="),
    "SlowDown": (Throttled, "the store asks to slow down"),
    "Throttling": (Throttled, "the store asks to slow down"),
    "ThrottlingException": (Throttled, "the store asks to slow down"),
    "TooManyRequests": (Throttled, "the store asks to slow down"),
    "TooManyRequestsException": (Throttled, "the store asks to slow down"),
    "RequestLimitExceeded": (Throttled, "the store asks to slow down"),
    "RequestTimeout": (Unreachable, "the store did not get the whole request in time"),
    "IncompleteBody": (Unreachable, "the store did not get the whole request"),
    "BadDigest": (Unreachable, "the request was damaged on its way"),
    "InternalError": (Unreachable, "the store had a fault"),
}

_BY_STATUS: dict[int, tuple[type[StreamError], str]] = {
    401: (CredentialsExpired, "the store wants credentials"),
    403: _BY_CODE["AccessDenied"],
    404: (WrongEndpoint, "what answers there does not know this path; mend the endpoint"),
    405: _BY_CODE["MethodNotAllowed"],
    408: _BY_CODE["RequestTimeout"],
    409: _BY_CODE["ConditionalRequestConflict"],
    412: _BY_CODE["PreconditionFailed"],
    429: _BY_CODE["SlowDown"],
    501: _BY_CODE["NotImplemented"],
}

_REFUSED = (Unsupported, "the store refuses the request as such")
_FAULT = (Unreachable, "the store had a fault")
_REDIRECT = (WrongEndpoint, "the endpoint redirects; give the URL that it redirects to")


def error_for(status: int, code: str, what: str) -> StreamError:
    """The typed error for an error answer. `what` names the request, for example `PUT out/s/1`."""
    kind, remedy = _BY_CODE.get(code) or _by_status(status)
    return kind(f"{what}: {status} {code}".rstrip() + f": {remedy}")


def _by_status(status: int) -> tuple[type[StreamError], str]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return _FAULT
    return _REDIRECT if 300 <= status < 400 else _REFUSED


def date_of(header: str | None) -> int | None:
    """Epoch milliseconds of an HTTP date; None where there is none or it is not one."""
    if not header:
        return None
    try:
        return round(parsedate_to_datetime(header).timestamp() * 1000)
    except ValueError:
        return None


def iso_of(text: str | None) -> int | None:
    """Epoch milliseconds of a listing's ISO time."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


# How it shows that only one of the two speaks TLS; a server in Go says so in plain text.
_NO_TLS = (
    *("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"),
    *("InvalidContentType",),  # rustls
)
_NO_TRUST = ("CERTIFICATE_VERIFY_FAILED", "invalid peer certificate", "InvalidCertificate")
_WANTS_TLS = "HTTP request to an HTTPS server"
_CLOSED = (
    *("Connection aborted", "Connection was closed", "Connection broken", "BadStatusLine"),
    *("closed connection without response", "IncompleteMessage"),  # http.client's, hyper's
)


def is_plea_for_tls(answer: object) -> bool:
    """Whether a server said in plain text that it speaks TLS alone. `answer`: an error with it, or a body."""
    return _WANTS_TLS in str(answer)


def address_of(endpoint: str) -> str:
    """`host:port` of an endpoint's URL, also where the port is the scheme's own."""
    parts = urlsplit(endpoint)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def no_answer(
    what: str, error: Exception, endpoint: str, *, plain: str, secure: str, lost: str = ""
) -> StreamError:
    """For a request that got no S3 answer, or none at all: which endpoint, and what may cure it.

    `plain` and `secure` say how this driver's URL is turned to http and to https; `lost` what a host that is
    not found, or that refuses the connection, may come from.
    """
    address, text = address_of(endpoint), f"{error} {getattr(error, 'kwargs', {}).get('error', '')}"
    told, tls = (
        f"{what}: no whole answer from {address} ({type(error).__name__})",
        endpoint.startswith("https:"),
    )
    if any(sign in text for sign in _NO_TRUST):
        return WrongEndpoint(f"{what}: the certificate of {address} cannot be verified")
    if tls and any(sign in text for sign in _NO_TLS):
        return WrongEndpoint(f"{what}: {address} does not speak TLS; for plain http {plain}")
    if not tls and is_plea_for_tls(error):
        return WrongEndpoint(f"{what}: {address} speaks TLS alone; {secure}")
    if "SSL" in type(error).__name__:
        return Unreachable(f"{told}; if it speaks plain http, {plain}")
    if not tls and any(sign in text for sign in _CLOSED):
        return Unreachable(f"{told}; if it wants TLS, {secure}")
    if lost and any(sign in text for sign in ("Failed to resolve", "Connection refused", "Errno 111]")):
        return Unreachable(f"{told}; {lost}")
    return Unreachable(told)


def no_keys(url: str) -> CredentialsExpired:
    """For a driver that looks for credentials nowhere but in the environment, and found none."""
    return CredentialsExpired(
        f"{url}: no credentials; set OBJECT_STORE_ACCESS_KEY_ID and "
        "OBJECT_STORE_SECRET_ACCESS_KEY, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def is_proven(endpoint: str, bucket: str) -> bool:
    """Whether this is a bucket of AWS, which keeps conditions. Directory buckets list in no order and are
    not proven."""
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn")) and not bucket.endswith(DIRECTORY)


def not_s3(what: str) -> WrongEndpoint:
    """For an answer that no S3 store gives: a web page, a missing ETag, a listing that is no XML."""
    return WrongEndpoint(f"{what}: what answers at the endpoint does not speak S3; mend the endpoint")
