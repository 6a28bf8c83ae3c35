"""Maintenance and rebuilds are told, one span for each kind of work on each session."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import upkeep
from chat_samples import SID, saying, write_all
from opentelemetry.trace import StatusCode
from told import Told, Watched

import snapshotter
from snapshotter import maintenance
from snapshotter.database import Database
from snapshotter.errors import InvalidId, Refused
from snapshotter.maintenance import Keep


def attributes(told: Told, name: str) -> dict[str, Any]:
    return dict(told.one(f"snapshotter.{name}").attributes or {})


@pytest.fixture
def place() -> Watched:
    place = Watched()
    upkeep.session_of(place)
    place.told.forget()
    return place


@pytest.mark.parametrize("kind", ["compact", "trim", "gc", "export", "fork", "redact", "delete"])
def test_each_kind_tells_its_requests_and_what_it_did(place: Watched, kind: str) -> None:
    arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "trim": ((), {"keep": Keep(turns=1)}),
        "export": ((io.BytesIO(),), {}),
        "fork": (("copy",), {}),
        "redact": (("u1",), {}),
    }
    args, options = arguments.get(kind, ((), {}))
    with place.asked() as asked:
        done = getattr(maintenance, kind)(place.db, SID, *args, **options)
    told = place.told
    span = told.one(f"snapshotter.{kind}")
    assert sorted(told.requests(span)) == sorted(asked) != []
    said = attributes(told, kind)
    assert said["gen_ai.conversation.id"] == ("copy" if kind == "fork" else SID)
    assert (said["snapshotter.objects.written"], said["snapshotter.objects.deleted"]) == (
        done.written,
        done.deleted,
    )
    assert (said["snapshotter.bytes.freed"], said["snapshotter.dry_run"]) == (done.freed, False)
    assert "snapshotter.requests" not in said  # it is told by its children


def test_an_import_names_the_session_that_came(place: Watched, tmp_path: Path) -> None:
    file = tmp_path / "package.zip"
    maintenance.export(place.db, SID, file)
    other = Watched()
    maintenance.import_(other.db, file)
    assert attributes(other.told, "import")["gen_ai.conversation.id"] == SID
    assert str(tmp_path) not in other.told.everything()


def test_one_that_is_refused_is_an_error(place: Watched) -> None:
    with pytest.raises(Refused):
        maintenance.redact(place.db, SID, "nobody")
    span = place.told.one("snapshotter.redact")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "Refused"
    assert (span.attributes or {})["gen_ai.conversation.id"] == SID


def test_a_whole_root_is_a_trace_for_each_session_and_kind(place: Watched) -> None:
    maintenance.maintain(place.db, keep=Keep(turns=1))
    roots = [span.name for span in place.told.spans if span.parent is None]
    assert roots == ["snapshotter.trim", "snapshotter.compact", "snapshotter.gc"]


def answered(root: Path, sessions: int) -> None:
    with snapshotter.open(root, telemetry=None) as db:
        for number in range(sessions):
            db.send(f"chat-{number}", "hi")
            with db.boot(f"chat-{number}") as session:
                for turn in session.turns():
                    with turn:
                        write_all(turn, saying("hello"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_rebuild_is_one_span_with_the_sums_of_its_tasks(tmp_path: Path, jobs: int) -> None:
    answered(tmp_path, 3)
    told = Told()
    summary = snapshotter.rebuild(tmp_path, jobs=jobs, telemetry=told.telemetry)
    said = attributes(told, "rebuild")
    assert (said["snapshotter.sessions"], said["snapshotter.sessions.same"]) == (3, 3)
    assert said["snapshotter.rebuild.mode"] == "compare"
    assert said["snapshotter.rebuild.turns"] == 3
    assert said["snapshotter.rebuild.requests"] == summary.sums["requests"] > 0
    assert said["snapshotter.rebuild.bytes"] == summary.sums["bytes"] > 0
    # The requests of the tasks are summed only; those that list the root are this process's own.
    keys = {key for _, key in told.requests(told.one("snapshotter.rebuild"))}
    assert keys
    assert not [key for key in keys if "chat-" in key]


def test_a_rebuild_in_one_process_tells_no_session_either(tmp_path: Path) -> None:
    """Also where the application's providers are global."""
    answered(tmp_path, 2)
    code = f"""
import snapshotter
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
snapshotter.rebuild({tmp_path.as_uri()!r}, jobs=1)
found = exporter.get_finished_spans()
print(found[-1].name, any("chat-" in span.to_json() for span in found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(snapshotter.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("snapshotter.rebuild False\n", "")


def test_a_rebuild_that_cannot_begin_is_an_error() -> None:
    told = Told()
    with pytest.raises(InvalidId):
        snapshotter.rebuild("nonsense://x", jobs=1, telemetry=told.telemetry)
    assert attributes(told, "rebuild")["error.type"] == "InvalidId"


def test_a_claim_that_is_overtaken_before_the_boot_counts_one_fence() -> None:
    place = Watched()
    place.send("u1")
    other = Database(place.bucket, place.clock, telemetry=None)
    raced = []

    def race(call: Any, when: str) -> None:
        if when == "before" and call.verb == "put" and call.key.startswith("out/") and not raced:
            raced.append(call)
            other.boot(SID, takeover=True).set_state({"mine": True})

    place.bucket.hook = race
    with place.db.boot(SID, claim=True, takeover=True):
        assert raced
    assert place.told.count("snapshotter.fenced") == 1
