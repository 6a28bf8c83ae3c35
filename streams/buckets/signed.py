"""Requests to an S3 endpoint with nothing but the standard library: one signed request, one whole answer.

`Wire.ask` signs (Signature Version 4, every header that it sends), sends and reads to the end. It follows no
redirect and repeats nothing, and hands back what an S3 client library tends to hide: status, headers and body
of whatever answered. Connections are kept and used again, the latest first; one that the server has closed
meanwhile is noticed before it is used, since a request that dies on it would look like one without an answer.
A forked process leaves its parent's connections alone.

It knows paths and headers and nothing of buckets: what an answer means is the driver's to say.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from streams.buckets.remote import CONNECT_SECONDS, CONNECTIONS, READ_SECONDS, Keys

if TYPE_CHECKING:
    from ssl import SSLContext

NO_ANSWER = (OSError, HTTPException)
_SAFE = "-_.~"  # RFC 3986's unreserved marks; all else is escaped, and signed as escaped
_EMPTY = hashlib.sha256().hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Wire:
    """Connections to one endpoint (`http://host:port` or `https://…`). Safe to share between threads."""

    def __init__(self, endpoint: str, region: str) -> None:
        parts = urlsplit(endpoint)
        self._host = parts.netloc
        self._secure = parts.scheme == "https"
        self._region = region
        self._idle: list[HTTPConnection] = []
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._context: SSLContext | None = None
        self._derived: tuple[Keys, str, bytes] | None = None

    def ask(
        self,
        keys: Keys,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """One request and its answer. `path` (`/bucket/key`) and `query` are plain and get escaped here.

        Raises OSError or HTTPException (`NO_ANSWER`) where there is no whole answer.
        """
        target = quote(path, safe=f"/{_SAFE}")
        asked = (
            "&".join(f"{name}={quote(query[name], safe=_SAFE)}" for name in sorted(query)) if query else ""
        )
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        self._sign(keys, method, target, asked, sent, body)
        connection = self._take()
        try:
            connection.request(method, f"{target}?{asked}" if asked else target, body or None, sent)
            answer = connection.getresponse()
            data = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            self._give(connection)
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, data)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        self.close()  # a store that nobody closed is no reason to warn of its sockets

    # --- connections ------------------------------------------------------------------------------------

    def _take(self) -> HTTPConnection:
        while True:
            with self._lock:
                if self._process != os.getpid():
                    self._idle, self._process = [], os.getpid()
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            # Nothing is owed on an idle connection, so what is readable is its end.
            if connection.sock is not None and not _is_readable(connection):
                return connection
            connection.close()

    def _give(self, connection: HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> HTTPConnection:
        connection = self._connection()
        connection.connect()
        connection.sock.settimeout(READ_SECONDS)
        return connection

    def _connection(self) -> HTTPConnection:
        if not self._secure:
            return HTTPConnection(self._host, timeout=CONNECT_SECONDS)
        # Imported late: an endpoint of plain http never pays for it.
        import ssl
        from http.client import HTTPSConnection

        with self._lock:
            self._context = self._context or ssl.create_default_context()
        return HTTPSConnection(self._host, timeout=CONNECT_SECONDS, context=self._context)

    # --- signing ----------------------------------------------------------------------------------------

    def _sign(
        self, keys: Keys, method: str, target: str, query: str, sent: dict[str, str], body: bytes
    ) -> None:
        """Add to `sent` what a signature needs, and the signature (AWS, "Signature calculations for the
        Authorization header: transferring payload in a single chunk")."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        day = stamp[:8]
        digest = hashlib.sha256(body).hexdigest() if body else _EMPTY
        sent.update({"host": self._host, "x-amz-date": stamp, "x-amz-content-sha256": digest})
        if keys.session_token:
            sent["x-amz-security-token"] = keys.session_token
        names = sorted(sent)
        lines = "".join(f"{name}:{sent[name].strip()}\n" for name in names)
        signed = ";".join(names)
        canonical = f"{method}\n{target}\n{query}\n{lines}\n{signed}\n{digest}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"
        signature = hmac.digest(self._key(keys, day), text.encode(), "sha256").hex()
        sent["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope},"
            f"SignedHeaders={signed},Signature={signature}"
        )

    def _key(self, keys: Keys, day: str) -> bytes:
        """The day's signing key; made once, as it is the same for every request of the day."""
        found = self._derived
        if found is None or found[:2] != (keys, day):
            key = f"AWS4{keys.secret_key}".encode()
            for word in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, word.encode(), "sha256")
            found = self._derived = (keys, day, key)
        return found[2]


def _is_readable(connection: HTTPConnection) -> bool:
    if hasattr(select, "poll"):  # select alone cannot watch file numbers above 1,023
        poll = select.poll()
        poll.register(connection.sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([connection.sock], [], [], 0)[0])
