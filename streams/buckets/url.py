"""From a store URL to a bucket. A driver is imported only when its URL is opened.

    s3://bucket/prefix?endpoint=http://host:9000&region=eu-west-1     all parameters may be left out
    s3+obstore://bucket/prefix?endpoint=…&region=…                    the same, by another driver
    minio://host:9000/bucket/prefix?secure=0&region=…                 TLS is the rule: see below
    file:///absolute/path
    memory://name/prefix                                              one store per name and process
    bucket/prefix                                                     with OBJECT_STORE_DEFAULT_PROTOCOL

The three kinds of buckets also take sse=, kms_key= and checksum= (see `streams.buckets.serverside`).
A minio URL's first part is always the host. To localhost, 127.0.0.1 and ::1 it speaks plain http, to any
other host https; `secure=0` and `secure=1` say otherwise.

Secrets never stand in a URL; they come from a session or the environment:

    endpoint      AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else OBJECT_STORE_BASE_URL
    region        AWS_REGION, AWS_DEFAULT_REGION, else OBJECT_STORE_REGION
    credentials   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
                  else OBJECT_STORE_ACCESS_KEY_ID, OBJECT_STORE_SECRET_ACCESS_KEY,
                  else (s3://) wherever boto3 looks: profiles, instance and container roles
    customer key  SNAPSHOTTER_SSE_CUSTOMER_KEY, base64

Where the endpoint comes from OBJECT_STORE_BASE_URL, the OBJECT_STORE_ values go first, so that one
store's keys are not sent to another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from streams.buckets import serverside
from streams.buckets.base import Bucket
from streams.buckets.file import FileBucket
from streams.buckets.memory import MemoryBucket
from streams.buckets.names import check_path, check_prefix, root_of
from streams.buckets.remote import Keys
from streams.buckets.serverside import ServerSide
from streams.clock import Clock
from streams.encryption import Encryption, sealed
from streams.errors import InvalidId, InvalidValue, Misconfigured

_PARAMETERS = {
    "s3": frozenset({"endpoint", "region"}) | serverside.PARAMETERS,
    "s3+obstore": frozenset({"endpoint", "region"}) | serverside.PARAMETERS,
    "minio": frozenset({"secure", "region"}) | serverside.PARAMETERS,
    "file": frozenset[str](),
    "memory": frozenset[str](),
}
# Of each scheme: its module here, and what has to be installed for it, as in pyproject.toml.
_DRIVERS = {
    "s3": ("s3", "boto3>=1.36"),
    "minio": ("minio", "minio>=7.2,<7.3"),
    "s3+obstore": ("obstore", "obstore>=0.12,<0.13"),
}
_LONGEST_SCHEME = 12
_WITH_A_SLASH = frozenset({"endpoint", "kms_key"})  # parameters whose values may hold one: a URL, an ARN
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def open_bucket(
    url: str,
    *,
    session: Any = None,
    clock: Clock | None = None,
    env: Mapping[str, str] | None = None,
    encryption: Encryption | None = None,
    server_side: ServerSide | None = None,
) -> Bucket:
    """Open the bucket that `url` names. Nothing is sent yet.

    `session` is a `boto3.Session`, or a function that returns one (called again once its credentials have
    expired). `clock` dates what file and memory stores keep. `env` stands in for `os.environ`. With
    `encryption` every object is encrypted, and bound to its key in the bucket (in the folder, of a file URL).
    `server_side`: what an S3 store is asked to do with the bytes, by default what URL and environment say.

    Raises InvalidId for a URL that cannot be, Misconfigured for a driver or library that is not installed,
    and CredentialsExpired where a minio or s3+obstore URL has no credentials.
    """
    env = os.environ if env is None else env
    scheme, rest = _scheme(url, env)
    parts, parameters = _split(scheme, rest)
    side = _server_side(scheme, parameters, env, server_side)
    if scheme == "file":
        return sealed(_file(parts.netloc, parts.path, clock), encryption)
    path = parts.path.removeprefix("/").removesuffix("/")
    name, _, below = path.partition("/") if scheme == "minio" else (parts.netloc, "", path)
    prefix = check_prefix(below)
    if scheme == "memory":
        bucket: Bucket = MemoryBucket(clock, name=name, prefix=prefix)
    elif scheme == "minio":
        bucket = _minio(parts.netloc, _bucket(name), prefix, parameters, session, env, side)
    else:
        opener = _s3 if scheme == "s3" else _obstore
        bucket = opener(_bucket(name), prefix, parameters, session, env, side)
    return sealed(bucket, encryption, root_of(prefix))


@dataclass(frozen=True, slots=True)
class Location:
    """Where a URL leads: a bucket, the path in it ("": the bucket itself), the region that it names or ""."""

    bucket: str
    prefix: str
    region: str


def located(url: str, *, env: Mapping[str, str] | None = None) -> Location:
    """The place that a bucket's URL names; no driver and no credentials are needed.

    Raises InvalidId for a URL that cannot be, and for a store that is no bucket.
    """
    scheme, rest = _scheme(url, os.environ if env is None else env)
    if scheme in ("file", "memory"):
        raise InvalidId(f"a {scheme} URL names no bucket")
    parts, parameters = _split(scheme, rest)
    if "endpoint" in parameters:
        _checked(parameters["endpoint"])
    path = parts.path.removeprefix("/").removesuffix("/")
    name, _, below = path.partition("/") if scheme == "minio" else (parts.netloc, "", path)
    return Location(_bucket(name), check_prefix(below), parameters.get("region", ""))


def _scheme(url: str, env: Mapping[str, str]) -> tuple[str, str]:
    if not url.isprintable():  # urllib would drop a line break and open another path
        raise InvalidId("the store URL holds a control character; take it out")
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = env.get("OBJECT_STORE_DEFAULT_PROTOCOL", ""), url
        if not scheme:
            raise InvalidId(
                "the store URL has no scheme; begin it with s3://, minio://, file:// or memory://"
            )
        if scheme == "minio":
            rest = f"/{url}"  # the host is OBJECT_STORE_BASE_URL's
    if scheme not in _PARAMETERS:
        known = ", ".join(f"{name}://" for name in _PARAMETERS)
        # What stands before "://" may be a path with a query: only what looks like a scheme is repeated.
        called = (
            f" {scheme!r}"
            if scheme.replace("+", "").isalnum() and len(scheme) <= _LONGEST_SCHEME
            else " that"
        )
        raise InvalidId(f"no store is called{called}; there are {known}")
    return scheme, rest


def _split(scheme: str, rest: str) -> tuple[Any, dict[str, str]]:
    """The URL's parts and its known parameters. No message repeats what may be a secret: query, userinfo or
    port, and urllib's own errors do."""
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:
        raise InvalidId(f"the {scheme} URL cannot be read: its host is none") from None
    if "@" in parts.netloc:
        raise InvalidId("the store URL holds credentials; take them out and set them in the environment")
    if "#" in rest:  # also one with nothing behind it, which urllib drops
        raise InvalidId("the store URL holds a '#'; take it out")
    _check_port(scheme, parts)
    try:
        pairs = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise InvalidId(f"the {scheme} URL's query is not of the form name=value") from None
    if not pairs.keys() <= _PARAMETERS[scheme]:
        known = ", ".join(sorted(_PARAMETERS[scheme])) or "none"
        raise InvalidId(
            f"the {scheme} URL has a parameter that is not known (known: {known}); "
            "credentials belong in the environment"
        )
    for name in sorted(pairs.keys() - _WITH_A_SLASH):
        if "/" in pairs[name]:
            raise InvalidId(
                f"the {scheme} URL's {name}= holds a '/': the path goes before the '?', as in "
                f"{_path_first(scheme)}"
            )
    return parts, pairs


def _path_first(scheme: str) -> str:
    return f"{scheme}://{'host:port/' if scheme == 'minio' else ''}bucket/path?region=…"


def _check_port(scheme: str, parts: Any) -> None:
    try:
        port = parts.port
    except ValueError:
        port = -1
    if port == -1:
        raise InvalidId(f"the {scheme} URL's port is no number up to 65535; credentials belong elsewhere")
    if port is not None and scheme in ("s3", "s3+obstore", "file"):
        raise InvalidId(
            f"a {scheme} URL names no port; an S3 endpoint is given as ?endpoint=http://host:port"
        )


def _bucket(name: str) -> str:
    if not name:
        raise InvalidId("the store URL names no bucket")
    if "/" in check_path(name, "the bucket") or "%" in name:
        raise InvalidId(f"{name!r} is no bucket name")
    return name


def _file(host: str, path: str, clock: Clock | None) -> Bucket:
    if host not in ("", "localhost"):
        raise InvalidId(f"write file:///{host}… with three slashes: a file URL holds an absolute path")
    path = unquote(path)
    if any(segment in (".", "..") for segment in path.split("/")) or "\0" in path:
        raise InvalidId("the file URL's path has a segment '.' or '..'; write the plain absolute path")
    if not path.strip("/"):
        raise InvalidId("the file URL names no folder")
    return FileBucket(path, clock)


def _server_side(
    scheme: str, parameters: dict[str, str], env: Mapping[str, str], given: ServerSide | None
) -> ServerSide:
    """What a store is asked to do with the bytes. Raises InvalidValue where that is said twice, or to a store
    that has no server's side."""
    customer_key = env.get("SNAPSHOTTER_SSE_CUSTOMER_KEY")
    if given is None and scheme not in ("file", "memory"):
        return serverside.of_url(parameters, customer_key)
    if given is not None and (scheme in ("file", "memory") or serverside.PARAMETERS & parameters.keys()):
        raise InvalidValue(
            f"server_side is given beside a {scheme} URL that has none, or that says it, too",
            path="server_side",
        )
    return given or serverside.NOTHING


def _private(side: ServerSide, endpoint: str | None) -> ServerSide:
    """Raise Misconfigured where a customer key would travel in plain text."""
    if side.customer_key is not None and endpoint is not None:
        parts = urlsplit(endpoint)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise Misconfigured("a customer key is sent with each request: the endpoint has to be https")
    return side


def _s3(
    bucket: str,
    prefix: str,
    parameters: dict[str, str],
    session: Any,
    env: Mapping[str, str],
    side: ServerSide,
) -> Bucket:
    endpoint, own = _endpoint(env, parameters.get("endpoint"))
    driver = _driver("s3", ("boto3", "botocore"))
    opened: Bucket = driver.S3Bucket(
        bucket,
        prefix,
        endpoint=endpoint,
        region=parameters.get("region") or _region(env, own),
        session=session,
        keys=lambda: _keys(env, own),
        server_side=_private(side, endpoint),
    )
    return opened


def _obstore(
    bucket: str,
    prefix: str,
    parameters: dict[str, str],
    session: Any,
    env: Mapping[str, str],
    side: ServerSide,
) -> Bucket:
    endpoint, own = _endpoint(env, parameters.get("endpoint"))
    driver = _driver("s3+obstore", ("obstore",))
    opened: Bucket = driver.ObstoreBucket(
        bucket,
        prefix,
        endpoint=endpoint,
        region=parameters.get("region") or _region(env, own),
        keys=_given(session, env, own),
        server_side=_private(side, endpoint),
    )
    return opened


def _minio(
    host: str,
    bucket: str,
    prefix: str,
    parameters: dict[str, str],
    session: Any,
    env: Mapping[str, str],
    side: ServerSide,
) -> Bucket:
    endpoint, own = None, False
    if host:
        name = urlsplit(f"//{host}").hostname or ""
        secure = parameters.get("secure", "0" if name in _LOOPBACK else "1")
        if secure not in ("0", "1"):
            raise InvalidId("secure= is 0 (http) or 1 (https)")
        endpoint = f"{'https' if secure == '1' else 'http'}://{host}"
    else:
        endpoint, own = _endpoint(env, None)
    if endpoint is None:
        raise InvalidId("the minio URL names no host, and OBJECT_STORE_BASE_URL is not set")
    driver = _driver("minio", ("minio", "urllib3", "certifi"))
    opened: Bucket = driver.MinioBucket(
        bucket,
        prefix,
        endpoint=_checked(endpoint),
        region=parameters.get("region") or _region(env, own),
        keys=_given(session, env, own),
        server_side=_private(side, endpoint),
    )
    return opened


def _driver(scheme: str, packages: tuple[str, ...]) -> Any:
    module, package = _DRIVERS[scheme]
    try:
        return import_module(f"streams.buckets.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise Misconfigured(
            f"{scheme}:// needs a driver that is not installed: pip install '{package}'"
        ) from error


# --- the environment ------------------------------------------------------------------------------------


def _endpoint(env: Mapping[str, str], given: str | None) -> tuple[str | None, bool]:
    """The endpoint (None: AWS), and whether it is OBJECT_STORE_BASE_URL's."""
    found = given or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    if found:
        return _checked(found), False
    base = env.get("OBJECT_STORE_BASE_URL")
    return (_checked(base), True) if base else (None, False)


def _checked(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidId("the endpoint must read http://host:port or https://host, with no credentials in it")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidId(
            "the endpoint has a path; put the bucket and the prefix into the store URL, before its '?'"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _region(env: Mapping[str, str], own: bool) -> str | None:
    aws = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    ours = env.get("OBJECT_STORE_REGION")
    return ((ours or aws) if own else (aws or ours)) or None


def _keys(env: Mapping[str, str], own: bool) -> Keys | None:
    aws = _pair(env, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", env.get("AWS_SESSION_TOKEN"))
    ours = _pair(env, "OBJECT_STORE_ACCESS_KEY_ID", "OBJECT_STORE_SECRET_ACCESS_KEY", None)
    if env.get("AWS_PROFILE") and not own and aws is None:
        return None  # the user chose a profile; boto3 reads it
    return (ours or aws) if own else (aws or ours)


def _pair(env: Mapping[str, str], name: str, secret: str, token: str | None) -> Keys | None:
    if not env.get(name) or not env.get(secret):
        return None
    return Keys(env[name], env[secret], token or None)


def _given(session: Any, env: Mapping[str, str], own: bool) -> Callable[[], Keys | None]:
    """Where a driver that takes keys gets them: from the session that was given, else the environment."""
    return (lambda: _keys(env, own)) if session is None else _keys_of(session)


def _keys_of(session: Any) -> Callable[[], Keys | None]:
    """Credentials of a boto3 session (or of one that a function makes) for the driver that takes keys."""

    def keys() -> Keys | None:
        found = (session() if callable(session) else session).get_credentials()
        if found is None:
            return None
        frozen = found.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)

    return keys
