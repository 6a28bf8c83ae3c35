"""Telling: what OpenTelemetry costs a request, and a turn, from nobody who listens to all that there is.

CPU time of a process, over a store in memory, so that all of it is ours and the SDK's.
"""

from __future__ import annotations

from benchmarks.common import Table, fresh, median

TIMES = 3

_SETUP = {
    "`telemetry=None`": "telemetry = None",
    "OpenTelemetry is not imported": "telemetry = snapshotter.Telemetry()",
    "its API is imported, and no provider set": """
import opentelemetry.metrics, opentelemetry.trace
telemetry = snapshotter.Telemetry()
""",
    "the SDK, nothing sampled, metrics on": "sampler = 'ALWAYS_OFF'",
    "the SDK, everything, `BatchSpanProcessor`": "sampler = 'ALWAYS_ON'",
}
_PROVIDERS = """
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
tracing = TracerProvider(sampler=getattr(sampling, sampler))
tracing.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
metering = MeterProvider([InMemoryMetricReader()])
telemetry = snapshotter.Telemetry(tracer_provider=tracing, meter_provider=metering)
"""
_MEASURE = """
import json, time
from snapshotter.telemetry import Span
from snapshotter.watched import of

CHUNKS = [
    {"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "x"},
    {"type": "text-end", "id": "t"}, {"type": "finish"},
]
db = snapshotter.open("memory://telling", telemetry=telemetry)
store = db._own_store()
store.put("values/s/x", b"x" * 100)

def fastest(call, times):
    best = 1.0
    for _ in range(25):
        began = time.process_time()
        for _ in range(times):
            call()
        best = min(best, (time.process_time() - began) / times)
    return best

numbers = iter(range(1 << 30))

def turn():
    receipt = db.send(f"chat-{next(numbers)}", "hi")
    with db.boot(receipt=receipt) as session:
        for turn in session.turns():
            with turn:
                for chunk in CHUNKS:
                    turn.write(chunk)

with Span(of(store), "work"):
    request = fastest(lambda: store.get("values/s/x"), 1000)
print(json.dumps([request * 1e6, fastest(turn, 40) * 1e3]))
"""


def run() -> list[Table]:
    table = Table("What telling costs", ("", "a request, µs", "`send`, `boot` and a turn (9 requests), ms"))
    for name, setup in _SETUP.items():
        told = _PROVIDERS if "sampler" in setup else ""
        code = f"import snapshotter\n{setup}\n{told}\n{_MEASURE}"
        runs = [fresh(code) for _ in range(TIMES)]
        table.rows.append((name, *(median(column) for column in zip(*runs, strict=True))))
    return [table]
