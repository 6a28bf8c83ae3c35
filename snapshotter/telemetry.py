"""What OpenTelemetry is told, where an application has configured it: spans, counters, timings.

A store has a `Trace`; whatever happens in it belongs to the innermost `Span` that is open there. So requests
find their parent by their session, in whichever thread they are made: the flusher's, the watcher's, those
that read side by side, a pool's behind the async door. Where a session has no span open they belong to the
span that is current in the caller's context. Beneath none they are counted only: a reader that polls makes no
traces of its own.

Nothing of OpenTelemetry is imported here until the application has done so. One that has not cannot have
configured a provider, and what it pays is the look at `sys.modules`. Without a provider the API's own no-ops
answer.

Telemetry never hurts: what a tracer, a meter or a processor raises is logged (once as a warning) and ends
there. No attribute holds content: no message, no chunk, no text of an error, which may quote some; only ids,
keys, counts and the names of error types. docs/observability.md lists them all.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from streams.clock import Clock
from streams.errors import Fenced
from streams.stats import RequestStats, Stats

if TYPE_CHECKING:
    from opentelemetry import trace as api
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider

T = TypeVar("T")
Attributes = Mapping[str, str | int | float | bool | Sequence[str]]

log = logging.getLogger("snapshotter")

NAME = "snapshotter"
SCHEMA = "https://opentelemetry.io/schemas/1.45.0"
CONVERSATION = "gen_ai.conversation.id"
ERROR_TYPE = "error.type"
OTHER = "_OTHER"  # the conventions' word for an error without a type

# The conventions' boundaries for db.client.operation.duration. What has a person waiting goes further.
_REQUEST_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_SECONDS = (*_REQUEST_SECONDS, 30.0, 60.0)
_WRITING = ("snapshotter.turn", "snapshotter.settle", "snapshotter.edit")


class Meters:
    """The instruments, as docs/observability.md describes them."""

    def __init__(self, meter: Meter) -> None:
        count, time = meter.create_counter, meter.create_histogram
        self.requests = count("snapshotter.requests", "{request}", "Requests to the store")
        self.retries = count("snapshotter.retries", "{request}", "Requests made again after no answer")
        self.bytes = count("snapshotter.io", "By", "Bytes of objects read and written")
        self.turns = count("snapshotter.turns", "{turn}", "Turns that a worker has ended or let go")
        self.recoveries = count("snapshotter.recoveries", "{event}", "What became of interrupted turns")
        self.fenced = count("snapshotter.fenced", "{write}", "Writes refused to a worker that was overtaken")
        self.request_seconds = time(
            "db.client.operation.duration",
            "s",
            "Duration of requests to the store",
            explicit_bucket_boundaries_advisory=_REQUEST_SECONDS,
        )
        self.boot_seconds = time(
            "snapshotter.boot.duration", "s", "Boots", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self.close_seconds = time(
            "snapshotter.turn.close.duration",
            "s",
            "From the end of an answer until it is durable and its snapshot saved",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )


class Telemetry:
    """What a database tells, and whom; `open(…, telemetry=None)` tells nobody.

    `session_ids`: False keeps the ids of sessions out of spans, also where they stand in keys. `requests`:
    False makes no span of a request; they are counted all the same. The providers are the application's
    global ones unless others are given. One object may serve any number of databases and threads.
    """

    def __init__(
        self,
        *,
        session_ids: bool = True,
        requests: bool = True,
        tracer_provider: api.TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self.session_ids = session_ids
        self.requests = requests
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._tracer: api.Tracer | None = None
        self._meters: Meters | None = None
        self._lock = threading.Lock()
        self._complained = False

    @property
    def tracer(self) -> api.Tracer | None:
        """Who makes spans; None where the application has no tracing."""
        if self._tracer is None and (self._tracer_provider is not None or _loaded("opentelemetry.trace")):
            self._tracer = self.safely(self._new_tracer)
        return self._tracer

    @property
    def meters(self) -> Meters | None:
        """The instruments; None where the application has no metrics."""
        if self._meters is None and (self._meter_provider is not None or _loaded("opentelemetry.metrics")):
            with self._lock:  # an instrument that is made twice is complained of
                self._meters = self._meters or self.safely(self._new_meters)
        return self._meters

    def _new_tracer(self) -> api.Tracer:
        from opentelemetry import trace

        return trace.get_tracer(NAME, _version(), self._tracer_provider, SCHEMA)

    def _new_meters(self) -> Meters:
        from opentelemetry import metrics

        return Meters(metrics.get_meter(NAME, _version(), self._meter_provider, SCHEMA))

    def safely(self, tell: Callable[[], T]) -> T | None:
        """What `tell` returns; None where it raises. Only an interrupt comes out of it."""
        try:
            return tell()
        except Exception:  # whoever listens must not disturb the work
            level = logging.DEBUG if self._complained else logging.WARNING
            self._complained = True
            log.log(level, "telemetry failed", exc_info=True, extra={"event": "telemetry-failed"})
            return None

    def count(self, tell: Callable[[Meters], None]) -> None:
        """Tell the instruments, where there are any."""
        meters = self.meters
        if meters is not None:
            self.safely(lambda: tell(meters))


DEFAULT = Telemetry()
"""Everything, to the application's global providers."""


def _loaded(module: str) -> bool:
    return sys.modules.get(module) is not None


def _version() -> str:
    from . import __version__

    return __version__


class Trace:
    """Of one store: the spans that are open in it. `telemetry` None: nobody is told; `stats`: the store's
    counters, None for work that has no store of its own."""

    def __init__(self, telemetry: Telemetry | None, clock: Clock, stats: Stats | None = None) -> None:
        self.telemetry = telemetry
        self.clock = clock
        self.stats = stats
        self.segments = 0
        self._innermost: Span | None = None
        self._lock = threading.Lock()

    def read_segment(self) -> None:
        """A segment of a log was read."""
        with self._lock:
            self.segments += 1

    @property
    def scope(self) -> Span | None:
        """The innermost span that has not ended."""
        while self._innermost is not None and self._innermost.ended:
            self._innermost = self._innermost.outer
        return self._innermost

    def open(self, span: Span) -> None:
        """It is the innermost from now on, until it ends."""
        self._innermost = span

    def count(self, tell: Callable[[Meters], None]) -> None:
        """See `Telemetry.count`."""
        if self.telemetry is not None:
            self.telemetry.count(tell)

    def recovered(self, kind: str, attempt: int, reason: str | None) -> None:
        """One recovery event: counted, and an event of the span that is open. `reason` is None or one of the
        vocabulary of docs/recovery.md."""
        said = {"snapshotter.recovery.kind": kind}
        if reason is not None:
            said["snapshotter.recovery.reason"] = reason
        self.count(lambda meters: meters.recoveries.add(1, said))
        if self.scope is not None:
            self.scope.event("snapshotter.recovery", {**said, "snapshotter.turn.attempt": attempt})


def conversation(telemetry: Telemetry | None, session_id: str) -> dict[str, str]:
    """The session's id as an attribute, unless it is to be left out."""
    return {CONVERSATION: session_id} if telemetry is not None and telemetry.session_ids else {}


class Span:
    """A piece of work, timed, with what it cost in requests. Begins when it is made; use it with `with`, or
    `end` it. `seconds` and `cost` are there once it has ended."""

    def __init__(
        self, trace: Trace, name: str, attributes: Attributes | None = None, *, after: Span | None = None
    ) -> None:
        """`after`: a span that led here without being the parent, as a boot does to its turns."""
        self.trace = trace
        self.name = name
        self.outer = trace.scope
        self.ended = self.fenced = False
        self.seconds = 0.0
        self.cost = RequestStats()
        self._began = trace.clock.monotonic()
        self._before = self._counted()
        self._around: Context | None = None
        self.told = None if trace.telemetry is None else self._start(trace.telemetry, attributes, after)
        trace.open(self)

    def _counted(self) -> RequestStats:
        return RequestStats() if self.trace.stats is None else self.trace.stats.snapshot()

    def _start(
        self, telemetry: Telemetry, attributes: Attributes | None, after: Span | None
    ) -> api.Span | None:
        tracer = telemetry.tracer
        if tracer is None:
            return None

        def start() -> api.Span:
            from opentelemetry import trace as otel

            links = [otel.Link(after.told.get_span_context())] if after is not None and after.told else []
            return tracer.start_span(self.name, self.context(), attributes=attributes, links=links)

        return telemetry.safely(start)

    def context(self) -> Context | None:
        """The context that a child of the enclosing span begins in; None for the caller's own."""
        return None if self.outer is None else self.outer.inside()

    def inside(self) -> Context | None:
        """The context that this span's children begin in; None where it is not told."""
        if self.told is None:
            return None
        from opentelemetry import trace as otel

        return otel.set_span_in_context(self.told)

    def tell(self, tell: Callable[[api.Span], object]) -> None:
        """Tell the span, where there is one and it is kept."""
        self._safely(lambda span: tell(span) if span.is_recording() else None)

    def _safely(self, call: Callable[[api.Span], object]) -> None:
        told, telemetry = self.told, self.trace.telemetry
        if told is not None and telemetry is not None:
            telemetry.safely(lambda: call(told))

    def set(self, attributes: Attributes) -> None:
        """More that is known by now."""
        self.tell(lambda span: span.set_attributes(attributes))

    def event(self, name: str, attributes: Attributes) -> None:
        """Something that happened meanwhile."""
        self.tell(lambda span: span.add_event(name, attributes))

    def enter(self) -> None:
        """Make it current in the caller's context: spans of his own are its children. So it is also where it
        is not kept, or they would be traces of their own."""

        def attach(_span: api.Span) -> None:
            from opentelemetry import context

            self._around = context.get_current()
            context.attach(self.inside() or self._around)

        self._safely(attach)

    def leave(self) -> None:
        """Undo `enter`, wherever it is current. No token is used: a stream that a web framework reads leaves
        its turn in another context than it entered it in, where nothing has to be undone."""

        def detach(span: api.Span) -> None:
            from opentelemetry import context
            from opentelemetry import trace as otel

            if otel.get_current_span() is span and self._around is not None:
                context.attach(self._around)

        self._safely(detach)

    def end(self, error_type: str | None = None, attributes: Attributes | None = None) -> None:
        """It is over; `error_type` where it failed. Once."""
        if self.ended:
            return
        self.ended = True
        self.seconds = self.trace.clock.monotonic() - self._began
        self.cost = self._counted() - self._before
        self.tell(lambda span: self._finish(span, error_type, attributes or {}))

    def _finish(self, span: api.Span, error_type: str | None, attributes: Attributes) -> None:
        try:
            cost = {} if self.trace.stats is None else costs(self.cost)
            span.set_attributes({**cost, **attributes})
            if error_type is not None:
                from opentelemetry.trace import Status, StatusCode

                span.set_attribute(ERROR_TYPE, error_type)
                span.set_status(Status(StatusCode.ERROR))
        finally:
            span.end()

    def failed(self, error: BaseException) -> None:
        """It ended by this error."""
        self.count_fence(error)
        self.end(type_of(error))

    def count_fence(self, error: object) -> None:
        """Count the error of a worker that was overtaken: once, by the outermost span that writes."""
        if isinstance(error, Fenced) and self.name in _WRITING and self.outer is None and not self.fenced:
            self.fenced = True
            self.trace.count(lambda meters: meters.fenced.add(1))

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        if error is None:
            self.end()
        else:
            self.failed(error)


def type_of(error: BaseException) -> str:
    """The name of an error's type, as `error.type` has it: with its module, unless it is one of ours."""
    kind = type(error)
    ours = kind.__module__.partition(".")[0] in ("streams", "snapshotter", "builtins")
    return kind.__qualname__ if ours else f"{kind.__module__}.{kind.__qualname__}"


def costs(cost: RequestStats) -> dict[str, int]:
    """Requests and bytes as attributes; verbs that were not used are left out."""
    verbs = {
        "snapshotter.requests.get": cost.gets,
        "snapshotter.requests.head": cost.heads,
        "snapshotter.requests.put": cost.puts,
        "snapshotter.requests.list": cost.lists,
        "snapshotter.requests.delete": cost.deletes,
    }
    return {
        "snapshotter.requests": cost.requests,
        **{name: number for name, number in verbs.items() if number},
        "snapshotter.round_trips": cost.round_trips,
        "snapshotter.bytes.read": cost.bytes_read,
        "snapshotter.bytes.written": cost.bytes_written,
    }
