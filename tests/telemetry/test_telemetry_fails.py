"""What listens may break, and hurts nothing; where it is not there, nothing is looked for."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_samples import SID, Place, saying, shape, write_all
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from told import Told

from snapshotter import spans
from snapshotter.telemetry import Telemetry

ROOT = Path(__file__).parents[2]


class Broken(Exception):
    """What a listener raises."""


def broken(*_args: Any, **_kwargs: Any) -> Any:
    raise Broken


class NoExporter(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        raise Broken


class NoProcessor(SpanProcessor):
    def __init__(self, method: str) -> None:
        setattr(self, method, broken)


class NoTracer:
    start_span = broken


class NoProvider:
    get_tracer = get_meter = broken


class NoMeter:
    """Makes instruments of which each raises."""

    def create_counter(self, *_args: Any, **_kwargs: Any) -> Any:
        return type("Instrument", (), {"add": broken, "record": broken})()

    create_histogram = create_counter


class Handing:
    """A provider that hands out one thing."""

    def __init__(self, thing: Any) -> None:
        self.get_tracer = self.get_meter = lambda *_args, **_kwargs: thing


def processing(processor: SpanProcessor) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


class BrokenSpan:
    """A span of which every call raises, its end too."""

    def __getattr__(self, name: str) -> Any:
        return broken


WAYS: dict[str, Callable[[], Telemetry]] = {
    "no provider": lambda: Telemetry(tracer_provider=NoProvider(), meter_provider=NoProvider()),  # type: ignore[arg-type]
    "no tracer": lambda: Telemetry(tracer_provider=Handing(NoTracer())),  # type: ignore[arg-type]
    "a span": lambda: Telemetry(
        tracer_provider=Handing(type("T", (), {"start_span": lambda *_a, **_k: BrokenSpan()})())  # type: ignore[arg-type]
    ),
    "on start": lambda: Telemetry(tracer_provider=processing(NoProcessor("on_start"))),
    "on end": lambda: Telemetry(tracer_provider=processing(NoProcessor("on_end"))),
    "instruments": lambda: Telemetry(meter_provider=Handing(NoMeter())),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("way", WAYS)
def test_no_boot_and_no_turn_is_disturbed(way: str, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(telemetry=WAYS[way]())
    place.send("u1")
    with Told().tracer.start_as_current_span("worker"):
        place.answer("hello")
    assert shape(place.db.history(SID)) == [("user", ["hi"]), ("assistant", ["step-start:", "hello"])]
    assert place.controls("turn-complete")
    told = [record for record in caplog.records if getattr(record, "event", None) == "telemetry-failed"]
    assert [record.levelname for record in told if record.levelno >= logging.WARNING] == ["WARNING"]


def test_an_exporter_that_raises_disturbs_nothing() -> None:
    """The SDK logs it."""
    place = Place(telemetry=Telemetry(tracer_provider=processing(SimpleSpanProcessor(NoExporter()))))
    place.send("u1")
    place.answer("hello")
    assert place.controls("turn-complete")


def test_an_interrupt_is_no_failure_of_telemetry() -> None:
    def interrupt(*_args: Any, **_kwargs: Any) -> Any:
        raise KeyboardInterrupt

    provider: Any = Handing(type("T", (), {"start_span": interrupt})())
    place = Place(telemetry=Telemetry(tracer_provider=provider))
    with pytest.raises(KeyboardInterrupt):
        place.db.boot(SID)


_LIFE = """
import snapshotter
db = snapshotter.open("memory://x")
receipt = db.send("chat", "hi")
with db.boot("chat", receipt=receipt) as session:
    for turn in session.turns():
        with turn:
            turn.write({"type": "start"})
            turn.write({"type": "text-start", "id": "t"})
            turn.write({"type": "text-delta", "id": "t", "delta": "hello"})
            turn.write({"type": "text-end", "id": "t"})
assert db.history("chat")[-1]["parts"][-1]["text"] == "hello"
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_nothing_of_it_is_needed() -> None:
    run("import sys; sys.modules['opentelemetry'] = None\n" + _LIFE)
    gone = "sys.modules['opentelemetry.trace'] = sys.modules['opentelemetry.metrics'] = None"
    run(f"import sys; {gone}\n{_LIFE}")


def test_nothing_of_it_is_imported_by_the_engine() -> None:
    """So the import of the package, and a cold boot, take what they took."""
    loaded = "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    assert run(f"import sys\n{_LIFE}\n{loaded}").strip() == "[]"


def test_without_a_provider_the_api_alone_tells_nobody() -> None:
    code = (
        "import sys\nfrom opentelemetry import metrics, trace\n"
        f"{_LIFE}\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    assert run(code).strip() == "[]"


def test_providers_that_are_set_after_the_database_was_opened_are_told() -> None:
    code = _LIFE.replace(
        "receipt =",
        """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
db.send("chat", "earlier")
exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
metrics.set_meter_provider(MeterProvider([reader]))
receipt =""",
        1,
    )
    shown = """
print(sorted({span.name for span in exporter.get_finished_spans()}))
data = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
print(data.scope.name, data.scope.version == snapshotter.__version__)
print(*sorted(metric.name for metric in data.metrics))
"""
    metrics = "db.client.operation.duration snapshotter.boot.duration snapshotter.io snapshotter.requests"
    assert run(code + shown).splitlines() == [
        "['GET', 'LIST', 'PUT', 'snapshotter.boot', 'snapshotter.save', 'snapshotter.turn']",
        "snapshotter True",
        f"{metrics} snapshotter.turn.close.duration snapshotter.turns",
    ]


def test_spans_that_are_not_sampled_cost_no_attributes_and_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    told.tracing.sampler = ALWAYS_OFF
    monkeypatch.setattr(spans, "_found", broken)
    place = Place(telemetry=told.telemetry)
    place.send("u1")
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                assert turn.span.told is not None
                assert otel.get_current_span().get_span_context() == turn.span.told.get_span_context()
                write_all(turn, saying("hello"))
            assert otel.get_current_span() is otel.INVALID_SPAN
    assert told.spans == caplog.records == []
    assert told.count("snapshotter.requests") == len(place.bucket.calls)
    assert told.count("snapshotter.turns") == 1
