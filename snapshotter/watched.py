"""A bucket that tells of each request it is asked: a span, a count, a duration.

It stands around the whole bucket, encryption included, so sizes are those that the engine sees. Each attempt
is a request of its own; `snapshotter.resend_count` says how often the same one went unanswered just before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from streams.buckets.base import Blob, Broken, Bucket, Page
from streams.buckets.through import Through, Verb
from streams.clock import Clock
from streams.errors import Misconfigured, PreconditionFailed, Throttled, Unreachable
from streams.store import Retries, Store

from .telemetry import ERROR_TYPE, Telemetry, Trace, type_of

if TYPE_CHECKING:
    from opentelemetry import trace as api
    from opentelemetry.context import Context

T = TypeVar("T")

_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (PreconditionFailed, "lost"),
    (Throttled, "throttled"),
    (Unreachable, "unanswered"),
    (Misconfigured, "refused"),
)
_LOGS = ("in/", "out/")
_S3 = ("s3", "s3+obstore", "minio")


def watched_store(
    bucket: Bucket, clock: Clock, retries: Retries | None, telemetry: Telemetry | None
) -> Store:
    """A store with counters and a trace of its own over this bucket."""
    if telemetry is None:
        return Store(bucket, clock, retries=retries)
    trace = Trace(telemetry, clock)
    store = Store(WatchedBucket(bucket, telemetry, trace), clock, retries=retries)
    trace.stats = store.stats
    return store


def of(store: Store) -> Trace:
    """The trace of a store; one that tells nobody, where it has none."""
    bucket: Bucket | WatchedBucket = store.bucket
    return bucket.trace if isinstance(bucket, WatchedBucket) else Trace(None, store.clock, store.stats)


class WatchedBucket(Through):
    """The same bucket. `trace`: where its requests belong."""

    def __init__(self, inner: Bucket, telemetry: Telemetry, trace: Trace) -> None:
        super().__init__(inner)
        self.trace = trace
        self.telemetry = telemetry
        self.place = telemetry.safely(lambda: _Place(inner.url)) or _Place("")
        self.last = _Last()

    def _through(self, verb: Verb, key: str, call: Callable[[], T], sent: int | None = None) -> T:
        if self.telemetry.tracer is None and self.telemetry.meters is None:
            return call()
        request = _Request(self, verb.upper(), key, sent)
        try:
            found = call()
        except BaseException as error:
            request.failed(error)
            raise
        request.answered(found)
        return found


class _Last(threading.local):
    """What this thread asked last and got no answer to, and how often in a row."""

    asked: tuple[str, str] | None = None
    times = 0


class _Request:
    """One request. Nothing that it does raises."""

    def __init__(self, bucket: WatchedBucket, verb: str, key: str, sent: int | None) -> None:
        self._bucket = bucket
        self._verb, self._key, self._sent = verb, key, sent
        self._telemetry = bucket.telemetry
        self._resent = bucket.last.times if bucket.last.asked == (verb, key) else 0
        self._around: Context | None = None
        self._span = self._telemetry.safely(self._begin)
        self._began = bucket.trace.clock.monotonic()

    def _begin(self) -> api.Span | None:
        """Its span, current from now on; None where none is made."""
        tracer = self._telemetry.tracer
        if tracer is None or not self._telemetry.requests:
            return None
        from opentelemetry import context
        from opentelemetry import trace as otel

        scope = self._bucket.trace.scope
        parent = scope.inside() if scope is not None else None
        if not otel.get_current_span(parent).get_span_context().is_valid:
            return None
        shown = self._key if self._telemetry.session_ids else _without_session(self._key)
        place = self._bucket.place
        attributes = {"db.operation.name": self._verb, **place.attributes, **place.of_key(self._verb, shown)}
        if self._resent:
            attributes["snapshotter.resend_count"] = self._resent
        span = tracer.start_span(self._verb, parent, kind=otel.SpanKind.CLIENT, attributes=attributes)
        self._around = context.get_current()
        context.attach(otel.set_span_in_context(span, parent))
        return span

    def answered(self, found: object) -> None:
        """It was answered. An object that is not there is an answer."""
        outcome, more, received = "ok", {}, None
        if isinstance(found, Broken):
            outcome = "damaged"
        elif isinstance(found, Blob):
            received = more["snapshotter.size"] = len(found.data)
            if self._key.startswith(_LOGS):
                self._bucket.trace.read_segment()
        elif isinstance(found, Page):
            more["db.response.returned_rows"] = len(found.entries)
        elif (found is None and self._verb in ("GET", "HEAD")) or found is False:
            outcome = "absent"
        if self._sent is not None:
            more["snapshotter.size"] = self._sent
        self._done(outcome, None, more, received)

    def failed(self, error: BaseException) -> None:
        """It raised. That a place was taken is an answer, and no failure of the store's."""
        outcome = next((word for kind, word in _OUTCOMES if isinstance(error, kind)), "failed")
        self._done(outcome, None if outcome == "lost" else type_of(error), {}, None)

    def _done(self, outcome: str, error_type: str | None, more: dict[str, int], received: int | None) -> None:
        seconds = self._bucket.trace.clock.monotonic() - self._began
        again = outcome in ("unanswered", "throttled")
        last = self._bucket.last
        last.asked, last.times = ((self._verb, self._key), self._resent + 1) if again else (None, 0)
        self._telemetry.safely(lambda: self._end_span(outcome, error_type, more))
        self._telemetry.safely(lambda: self._measure(outcome, error_type, seconds, received))

    def _end_span(self, outcome: str, error_type: str | None, more: dict[str, int]) -> None:
        span, around = self._span, self._around
        if span is None or around is None:
            return
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode

        context.attach(around)
        try:
            span.set_attributes({"snapshotter.outcome": outcome, **more})
            if error_type is not None:
                span.set_attribute(ERROR_TYPE, error_type)
                span.set_status(Status(StatusCode.ERROR))
        finally:
            span.end()

    def _measure(self, outcome: str, error_type: str | None, seconds: float, received: int | None) -> None:
        meters = self._telemetry.meters
        if meters is None:
            return
        said = {"db.operation.name": self._verb, **self._bucket.place.attributes}
        failed = {} if error_type is None else {ERROR_TYPE: error_type}
        meters.request_seconds.record(seconds, {**said, **failed})
        meters.requests.add(1, {**said, "snapshotter.outcome": outcome})
        if self._resent:
            meters.retries.add(1, said)
        if self._sent:
            meters.bytes.add(self._sent, {**said, "network.io.direction": "transmit"})
        if received:
            meters.bytes.add(received, {**said, "network.io.direction": "receive"})


class _Place:
    """Which store it is, in the words of the conventions. The URL is the one without secrets."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.attributes: dict[str, Any] = {"db.system.name": parts.scheme.partition("+")[0] or "other"}
        self._bucket = self._prefix = ""
        if parts.scheme not in _S3:
            return
        path = parts.path.strip("/")
        if parts.scheme == "minio":
            self._bucket, _, self._prefix = path.partition("/")
            host, port = parts.hostname, parts.port
        else:
            self._bucket, self._prefix = parts.netloc, path
            endpoint = urlsplit(parts.query.removeprefix("endpoint="))
            host, port = endpoint.hostname, endpoint.port
        self.attributes["db.namespace"] = self._bucket
        if host:
            self.attributes["server.address"] = host
        if port:
            self.attributes["server.port"] = port

    def of_key(self, verb: str, key: str) -> dict[str, str]:
        """The key: as the engine names it, and for S3 in its bucket."""
        if not self._bucket:
            return {"snapshotter.key": key}
        found = {"snapshotter.key": key, "aws.s3.bucket": self._bucket}
        if verb != "LIST":
            found["aws.s3.key"] = f"{self._prefix}/{key}" if self._prefix else key
        return found


def _without_session(key: str) -> str:
    """`out/chat-42/…` → `out/*/…`; also of a prefix that ends within a session's id."""
    folder, slash, rest = key.partition("/")
    if not rest:
        return key
    _, inner, name = rest.partition("/")
    return f"{folder}{slash}*{inner}{name}"
