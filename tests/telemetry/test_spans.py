"""The spans of boots and turns: what they are told, where they belong, and how they end."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from chat_samples import SID, call, die, first_turn, result, saying, write_all
from opentelemetry import context
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from told import Told, Watched, by_verb, counted

import snapshotter
from snapshotter import Busy, ChatRecovery, Fenced, Unknown
from snapshotter.database import Database
from streams.clock import SystemClock
from streams.errors import AccessDenied
from streams.testing.faults import Fault, FaultyBucket


@pytest.fixture
def place() -> Watched:
    return Watched()


def said(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(f"snapshotter.{name}")


def failed(span: ReadableSpan) -> str | None:
    """The `error.type` of a span whose status is an error; None of one that did not fail."""
    kind = (span.attributes or {}).get("error.type")
    assert (span.status.status_code is StatusCode.ERROR) == (kind is not None)
    assert span.status.description is None
    return None if kind is None else str(kind)


# -- one boot and one turn -----------------------------------------------------------------------------


def test_a_boot_and_a_turn_tell_every_request_that_was_made(place: Watched) -> None:
    receipt = place.send("u1")
    told = place.told
    with told.tracer.start_as_current_span("worker"):
        with place.asked() as booting:
            session = place.db.boot(SID, receipt=receipt)
        with place.asked() as turning:
            turn = first_turn(session)
            with turn:
                write_all(turn, [*saying("hello"), call("c1"), result("c1")])
    boot, done = told.one("snapshotter.boot"), told.one("snapshotter.turn")
    assert told.requests(boot) == booting
    assert sorted(told.requests(done)) == sorted(turning)
    assert by_verb(boot) == counted(booting)
    assert by_verb(done) == counted(turning)
    assert len(booting) == 3
    assert len(turning) >= 4
    assert (said(boot, "round_trips"), said(boot, "format.version"), said(boot, "pending")) == (1, 1, 1)
    assert said(boot, "bytes.read") == len(place.stored("in/").popitem()[1])
    written = [*place.stored("out/").values(), *place.stored("sessions/").values()]
    assert said(done, "bytes.written") == sum(map(len, written))
    assert (said(done, "turn"), said(done, "turn.attempt"), said(done, "epoch")) == (1, 1, 1)
    assert (said(done, "turn.status"), said(done, "turn.chunks"), said(done, "turn.kind")) == (
        "completed",
        9,
        "message",
    )
    assert {(span.attributes or {})["gen_ai.conversation.id"] for span in (boot, done)} == {SID}
    assert failed(boot) is failed(done) is None


def test_the_model_is_below_the_turn_and_the_turn_points_at_the_boot(place: Watched) -> None:
    place.send("u1")
    told = place.told
    with told.tracer.start_as_current_span("worker"), place.db.boot(SID) as session:
        for turn in session.turns():
            with turn, told.tracer.start_as_current_span("model"):
                write_all(turn, saying("hello"))
        told.tracer.start_span("after").end()
    boot, done, worker = (told.one(name) for name in ("snapshotter.boot", "snapshotter.turn", "worker"))
    assert told.one("model").parent == done.context
    assert boot.parent == done.parent == told.one("after").parent == worker.context
    assert [link.context for link in done.links] == [boot.context]
    saved = told.one("snapshotter.save")
    assert saved.parent == done.context
    assert [verb for verb, _ in told.requests(saved)] == ["PUT"]


def test_without_a_span_of_the_application_boot_and_turn_are_traces_of_their_own(place: Watched) -> None:
    place.send("u1")
    place.answer()
    boot, done = place.told.one("snapshotter.boot"), place.told.one("snapshotter.turn")
    assert boot.parent is None
    assert done.parent is None
    assert place.told.requests(boot)
    assert place.told.requests(done)
    # What was asked outside of both, to send and to look again, made no traces.
    assert {span.name for span in place.told.spans if span.parent is None} == {
        "snapshotter.boot",
        "snapshotter.turn",
    }


def test_readers_are_told_below_the_applications_span_alone(place: Watched) -> None:
    place.send("u1")
    place.answer()
    told = place.told
    told.forget()
    place.db.history(SID)
    place.db.peek(SID)
    assert told.spans == []
    with told.tracer.start_as_current_span("page"), place.asked() as asked:
        place.db.history(SID)
    assert told.requests(told.one("page")) == asked != []


def test_requests_made_side_by_side_in_threads_stay_below_their_caller() -> None:
    place = Watched()
    place.send("u1")
    place.answer("x" * 100)
    bucket = FaultyBucket(place.bucket.inner)
    threads: set[int] = set()
    bucket.hook = lambda _call, _when: threads.add(threading.get_ident())
    told = place.told
    told.forget()
    with (
        Database(bucket, SystemClock(), telemetry=told.telemetry) as db,
        told.tracer.start_as_current_span("page") as page,
    ):
        db.history(SID)
        assert otel.get_current_span() is page
    assert len(bucket.calls) == len(told.requests(told.one("page"))) >= 3
    assert threads - {threading.get_ident()}


def test_a_boot_that_claims_tells_what_its_writer_wrote(place: Watched) -> None:
    place.send("u1")
    with place.asked() as asked, place.db.boot(SID, claim=True):
        at_boot = len(place.bucket.calls)
    assert at_boot == len(place.told.requests(place.told.one("snapshotter.boot"))) + 2  # to send
    assert ("PUT", "out/chat/9999999999999998-1.jsonl") in place.told.requests(
        place.told.one("snapshotter.boot")
    )
    assert len(asked) == at_boot - 2 + 1  # and the claim taken back


# -- ends ----------------------------------------------------------------------------------------------


def test_an_interrupted_turn_is_told_by_the_next_boot(place: Watched) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, call("c1")])
    turn.flush()
    die(session)
    told = place.told
    told.forget()
    with place.db.boot(SID, takeover=True) as again:
        for turn in again.turns():
            with turn:
                write_all(turn, saying("again"))
    boot, done = told.one("snapshotter.boot"), told.one("snapshotter.turn")
    assert (said(boot, "resume"), said(boot, "turn.attempt")) == ("recover_tools", 2)
    assert (said(boot, "recovery.decision"), said(boot, "segments")) == ("go_on", 3)
    assert (said(done, "turn.attempt"), said(done, "turn.kind")) == (2, "recover_tools")
    for kind in ("detected", "attempt", "completed"):
        assert told.count("snapshotter.recoveries", snapshotter__recovery__kind=kind) == 1


def test_segments_are_those_of_the_logs_and_not_the_snapshot(place: Watched) -> None:
    place.send("u1")
    place.answer()
    place.told.forget()
    place.db.boot(SID).close()
    boot = place.told.one("snapshotter.boot")
    assert (said(boot, "segments"), said(boot, "requests.get")) == (0, 1)


def test_a_pause_before_the_next_attempt_is_an_event_of_the_boot() -> None:
    place = Watched(recovery=ChatRecovery(stable_timeout=0))
    place.send("u1")
    session = place.db.boot(SID)
    first_turn(session)
    die(session)
    with pytest.raises(Busy):
        place.db.boot(SID, takeover=True)
    boot = place.told.named("snapshotter.boot")[-1]
    assert failed(boot) == "Busy"
    (event,) = boot.events
    assert event.name == "snapshotter.recovery"
    assert dict(event.attributes or {}) == {
        "snapshotter.recovery.kind": "scheduled",
        "snapshotter.turn.attempt": 2,
    }


@pytest.mark.parametrize(
    ("error", "why", "kind"),
    [
        (ValueError("the model said no"), "error", "ValueError"),
        (snapshotter.Stalled("silent"), "stall", "Stalled"),
        (KeyboardInterrupt(), "cancelled", None),
        (snapshotter.Terminated(), "signal", None),
    ],
)
def test_a_turn_that_is_let_go_says_why(
    place: Watched, error: BaseException, why: str, kind: str | None
) -> None:
    place.send("u1")
    with pytest.raises(type(error)), place.db.boot(SID) as session, first_turn(session):
        raise error
    done = place.told.one("snapshotter.turn")
    assert (said(done, "turn.status"), said(done, "release.why")) == ("released", why)
    assert failed(done) == kind


def test_turns_that_fail_or_are_aborted_are_told_as_what_they_are(place: Watched) -> None:
    for name in ("u1", "u2", "u3"):
        place.send(name)
    with place.db.boot(SID) as session:
        for turn in session.turns():
            if turn.number == 1:
                turn.fail("no")
            elif turn.number == 2:
                turn.abort()
            else:
                with turn:
                    write_all(turn, [{"type": "start"}, {"type": "error", "errorText": "no"}])
    turns = place.told.named("snapshotter.turn")
    assert [said(turn, "turn.status") for turn in turns] == ["error", "aborted", "error"]
    assert [failed(turn) for turn in turns] == ["_OTHER", None, "_OTHER"]
    assert place.told.count("snapshotter.turns", snapshotter__turn__status="error") == 2
    assert place.told.count("snapshotter.turns") == 3


def test_a_turn_whose_end_cannot_be_written_is_told_as_open(place: Watched) -> None:
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    place.bucket.plan.append(Fault("put", key="out/", times=0, seconds=30.0))
    with pytest.raises(Unknown):
        turn.complete()
    session.close()
    done = place.told.one("snapshotter.turn")
    assert (said(done, "turn.status"), failed(done)) == ("open", "Unknown")
    assert place.told.count("snapshotter.turns", snapshotter__turn__status="open") == 1


def test_a_snapshot_that_is_not_saved_fails_its_own_span_alone(place: Watched) -> None:
    place.send("u1")
    refused = Fault("put", key="sessions/", times=0, error=lambda: AccessDenied("no"))
    place.bucket.plan.append(refused)
    place.answer()
    assert failed(place.told.one("snapshotter.save")) == "AccessDenied"
    assert failed(place.told.one("snapshotter.turn")) is None


# -- two workers ---------------------------------------------------------------------------------------


def test_a_worker_that_is_overtaken_in_its_turn_counts_one_fence(place: Watched) -> None:
    place.send("u1")
    slow = place.db.boot(SID)
    turn = first_turn(slow)
    place.db.boot(SID, takeover=True).set_state({"mine": True})
    with pytest.raises(Fenced), turn:
        turn.write({"type": "start"})
        turn.flush()
    slow.close()
    done = place.told.one("snapshotter.turn")
    assert (said(done, "turn.status"), failed(done)) == ("released", "Fenced")
    assert place.told.count("snapshotter.fenced") == 1


def test_a_worker_that_is_told_again_and_again_counts_one_fence(place: Watched) -> None:
    """By an edit within its turn, by the turn's end, and by letting it go."""
    place.send("u1")
    slow = place.db.boot(SID)
    turn = first_turn(slow)
    place.db.boot(SID, takeover=True).set_state({"mine": True})
    with pytest.raises(Fenced):
        slow.set_state({"mine": False})
    with pytest.raises(Fenced):
        turn.complete()
    turn.release("error", Fenced("again"))
    assert said(place.told.one("snapshotter.turn"), "turn.status") == "open"
    assert place.told.count("snapshotter.fenced") == 1


def test_a_claim_that_is_lost_is_no_turn(place: Watched) -> None:
    place.send("u1")
    slow = place.db.boot(SID)
    place.answer()
    assert list(slow.turns()) == []
    lost = [turn for turn in place.told.named("snapshotter.turn") if failed(turn)]
    assert [(failed(turn), said(turn, "turn.status")) for turn in lost] == [("Fenced", None)]
    assert place.told.count("snapshotter.fenced") == 1
    assert place.told.count("snapshotter.turns") == 1


def test_an_edit_that_is_refused_counts_one_fence(place: Watched) -> None:
    place.send("u1")
    place.answer()
    slow = place.db.boot(SID)
    slow.set_state({"a": 1})
    place.db.boot(SID).set_state({"a": 2})
    with pytest.raises(Fenced):
        slow.set_state({"a": 3})
    assert [failed(span) for span in place.told.named("snapshotter.edit")] == [None, None, "Fenced"]
    assert place.told.count("snapshotter.fenced") == 1


# -- other work ----------------------------------------------------------------------------------------


def test_an_action_without_an_answer_is_a_turn_too(place: Watched) -> None:
    place.db.action(SID, "rename", {"to": "x"})
    with place.db.boot(SID) as session:
        for turn in session.turns():
            with turn:
                turn.set_state({"name": "x"})
    done = place.told.one("snapshotter.turn")
    assert (said(done, "turn.kind"), said(done, "turn.status"), said(done, "turn.chunks")) == (
        "action",
        "completed",
        0,
    )
    assert [verb for verb, _ in place.told.requests(done)] == ["PUT", "PUT"]


def test_what_needs_no_model_is_settled_in_a_span_of_its_own(place: Watched) -> None:
    place.db.close_session(SID)
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
    settled = place.told.one("snapshotter.settle")
    assert "session-closed" in said(settled, "controls")
    assert [verb for verb, _ in place.told.requests(settled)] == ["PUT", "PUT"]


def test_a_turn_that_is_left_in_another_context_leaves_no_trace_there(
    place: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """As a web framework does that reads each part of a stream in a context of its own."""
    import contextvars

    place.send("u1")
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        contextvars.copy_context().run(turn.__enter__)
        write_all(turn, saying("hello"))
        contextvars.copy_context().run(turn.__exit__, None, None, None)
        assert otel.get_current_span() is otel.INVALID_SPAN
    assert caplog.records == []
    assert said(place.told.one("snapshotter.turn"), "turn.status") == "completed"
    assert context.get_current() == {}


def test_nothing_is_told_where_nobody_wants_to_hear() -> None:
    place = Watched()
    silent = Database(place.bucket, place.clock, telemetry=None)
    silent.send(SID, "hi")
    with place.told.tracer.start_as_current_span("worker"), silent.boot(SID) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("hello"))
    assert [span.name for span in place.told.spans] == ["worker"]
    assert place.told.points("snapshotter.requests") == []


def test_one_telemetry_serves_several_databases() -> None:
    told = Told()
    places = [Watched(told), Watched(told)]
    for place in places:
        place.send("u1")
        place.answer()
    assert len(told.named("snapshotter.turn")) == 2
    assert told.count("snapshotter.turns") == 2
