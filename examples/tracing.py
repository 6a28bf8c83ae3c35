"""What OpenTelemetry sees of one boot and one turn.

    pip install opentelemetry-sdk
    python examples/tracing.py file:///tmp/chats

The worker's own span is above, its model's span within the turn. An application sets its providers once and
for all (docs/observability.md); here they are handed in, and what they were told is printed as a tree.
"""

import sys
from uuid import uuid4

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import snapshotter

SHOWN = ("snapshotter.key", "snapshotter.outcome", "snapshotter.size")
NOT_SHOWN = ("db.operation.name", "db.system.name", "snapshotter.run")  # the last one differs each time


def model(messages):
    yield {"type": "start"}
    yield {"type": "start-step"}
    yield {"type": "tool-input-available", "toolCallId": "c1", "toolName": "look", "input": {"of": "Norway"}}
    yield {"type": "tool-output-available", "toolCallId": "c1", "output": {"capital": "Oslo"}}
    yield {"type": "finish-step"}
    yield {"type": "start-step"}
    yield {"type": "text-start", "id": "t"}
    yield {"type": "text-delta", "id": "t", "delta": f"It is Oslo, as I see from {len(messages)} message(s)."}
    yield {"type": "text-end", "id": "t"}
    yield {"type": "finish-step"}
    yield {"type": "finish", "finishReason": "stop"}


def work(db, tracer, receipt):
    with tracer.start_as_current_span("worker"), db.boot(receipt=receipt) as session:
        for turn in session.turns():
            with turn, tracer.start_as_current_span("model"):
                for _ in turn.tee(model(turn.messages)):
                    pass


def tree(spans, parent=None, indent=""):
    """Lines: each span below its parent, in the order in which they began."""
    for span in sorted(spans, key=lambda span: span.start_time):
        if (span.parent.span_id if span.parent else None) != parent:
            continue
        if "db.operation.name" in span.attributes:
            told = [str(span.attributes[name]) for name in SHOWN if name in span.attributes]
            yield f"{indent}{span.name} {'  '.join(told)}"
        else:
            yield f"{indent}{span.name}"
            for name, value in span.attributes.items():
                if name not in NOT_SHOWN:
                    yield f"{indent}    {name} = {value}"
        yield from tree(spans, span.context.span_id, indent + "    ")


def counted(reader):
    """Lines: each counter and its value, by what was told of it."""
    for resource in reader.get_metrics_data().resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in metric.data.data_points:
                told = {name: value for name, value in point.attributes.items() if name != "db.system.name"}
                if hasattr(point, "value"):
                    yield f"{metric.name} {told} = {point.value}"


def traced(url, chat, **options):
    """The lines of one trace, and of the counters."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider(shutdown_on_exit=False)
    metering = MeterProvider([reader], shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = snapshotter.Telemetry(tracer_provider=tracing, meter_provider=metering)
    with snapshotter.open(url, telemetry=telemetry, **options) as db:
        receipt = db.send(chat, "What is the capital of Norway?")
        work(db, tracing.get_tracer("worker"), receipt)
        spans = exporter.get_finished_spans()
        assert {span.context.trace_id for span in spans} == {spans[0].context.trace_id}
        return [*tree(spans), "", *counted(reader)]


def main(url):
    print("\n".join(traced(url, f"tracing-{uuid4().hex[:8]}")))  # a session of its own for each run
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://tracing")
