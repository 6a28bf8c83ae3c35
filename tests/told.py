"""What OpenTelemetry was told, kept by the real SDK in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chat_samples import Place
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from snapshotter.telemetry import Telemetry

VERBS = {"get": "GET", "head": "HEAD", "put": "PUT", "copy": "COPY", "list": "LIST", "delete": "DELETE"}


class Told:
    """Providers of a test's own, and what they were told. `tracer` is the application's."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracing = TracerProvider(shutdown_on_exit=False)
        self.tracing.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.metering = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(tracer_provider=self.tracing, meter_provider=self.metering, **options)
        self.tracer = self.tracing.get_tracer("application")

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that have ended, in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """Children, and theirs."""
        found: list[ReadableSpan] = []
        for span in self.spans:
            if span.parent is not None and span.parent.span_id == parent.context.span_id:
                found += [span, *self.below(span)]
        return found

    def requests(self, parent: ReadableSpan) -> list[tuple[str, str]]:
        """(verb, key) of the requests below a span."""
        return [
            (span.name, str(span.attributes["snapshotter.key"]))
            for span in self.below(parent)
            if span.attributes is not None and "db.operation.name" in span.attributes
        ]

    def forget(self) -> None:
        self._exporter.clear()

    def points(self, metric: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        found = [one for scope in scopes for one in scope.metrics if one.name == metric]
        return [point for one in found for point in one.data.data_points]

    def count(self, metric: str, **said: str) -> int:
        """A counter's value over all points of which this was said; `_` stands for a dot."""
        wanted = {name.replace("__", "."): value for name, value in said.items()}
        return sum(p.value for p in self.points(metric) if wanted.items() <= dict(p.attributes).items())

    def everything(self) -> str:
        """All text that has left the process."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return "".join(span.to_json() for span in self.spans) + data.to_json()


class Watched(Place):
    """A place whose database tells. `told` is what it told."""

    def __init__(self, told: Told | None = None, **options: Any) -> None:
        self.told = told or Told()
        super().__init__(telemetry=self.told.telemetry, **options)

    @contextmanager
    def asked(self) -> Iterator[list[tuple[str, str]]]:
        """(verb, key) of what the bucket is asked within the block."""
        found: list[tuple[str, str]] = []
        before = len(self.bucket.calls)
        yield found
        found += [(VERBS[call.verb], call.key) for call in self.bucket.calls[before:]]


def by_verb(span: ReadableSpan) -> dict[str, int]:
    """What a span says of its requests."""
    said = span.attributes or {}
    found = {verb: int(said.get(f"snapshotter.requests.{verb.lower()}", 0)) for verb in VERBS.values()}
    assert said["snapshotter.requests"] == sum(found.values())
    return {verb: number for verb, number in found.items() if number}


def counted(requests: list[tuple[str, str]]) -> dict[str, int]:
    return dict(Counter(verb for verb, _ in requests))
