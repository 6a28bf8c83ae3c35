"""Bounded recovery at work: the pause, the hooks, giving up, and what stays of a turn that was given up."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from chat_samples import SID, Place, call, die, first_turn, result, saying, text, user, write_all

from snapshotter import (
    Busy,
    ChatRecovery,
    RecoveryChoice,
    RecoveryContext,
    RecoveryEvent,
    Refused,
    Unknown,
    Unreachable,
)
from streams.testing.faults import Fault


def place_with(**options: Any) -> Place:
    options.setdefault("max_backoff", 0)
    return Place(recovery=ChatRecovery(**options))


def attempt_and_die(place: Place, *chunks: Any) -> None:
    session = place.db.boot(SID, takeover=True)
    turn = first_turn(session)
    write_all(turn, chunks)
    turn.flush()
    die(session)


def after_deaths(place: Place, deaths: int, *chunks: Any) -> None:
    place.send("u1")
    for _ in range(deaths):
        attempt_and_die(place, *chunks)


STEP = ({"type": "start"}, {"type": "start-step"})


# -- giving up --------------------------------------------------------------------------------------------


def test_the_fifth_death_is_the_last() -> None:
    events: list[RecoveryEvent] = []
    place = place_with(terminal_message="Sorry.", observer=events.append)
    after_deaths(place, 5, *STEP, *text("Hel"))
    found = place.db.peek(SID)
    assert (found.incident.decision, found.incident.reason) == ("give_up", "interrupted_attempts_exceeded")
    with place.db.boot(SID, takeover=True) as session:
        assert list(session.turns()) == []
        assert session.resume.kind == "none"
    (end,) = place.controls("turn-complete")
    assert (end["status"], end["error"]) == ("exhausted", "Sorry.")
    assert end["reason"] == "interrupted_attempts_exceeded"
    cost = {"interruptions": 5, "work": found.incident.work}
    assert [event.detail for event in events if event.kind == "exhausted"] == [cost]
    history = place.db.history(SID)
    assert [m["role"] for m in history] == ["user", "assistant"]
    assert "Sorry" not in str(history)
    assert len(place.controls("turn-start")) == 5


def test_what_was_answered_and_what_tools_did_is_kept() -> None:
    place = place_with(max_interrupted_attempts=1)
    after_deaths(place, 1, *STEP, call("c1"), result("c1", {"paid": 5}), call("c2"))
    place.answer(takeover=True)
    parts = place.db.history(SID)[-1]["parts"]
    tools = {
        part["toolCallId"]: (part["state"], part.get("output")) for part in parts if "toolCallId" in part
    }
    assert tools == {"c1": ("output-available", {"paid": 5}), "c2": ("output-error", None)}


def test_a_new_message_after_it_is_answered() -> None:
    place = place_with(max_interrupted_attempts=1)
    after_deaths(place, 1)
    place.send("u2")
    place.answer("fine", takeover=True)
    assert [end["status"] for end in place.controls("turn-complete")] == ["exhausted", "completed"]
    assert place.db.peek(SID).incident.interruptions == 0


def test_the_cause_of_the_last_death_is_the_reason() -> None:
    place = place_with(max_interrupted_attempts=2)
    after_deaths(place, 2)
    with place.db.boot(SID, takeover=True, cause="out_of_memory") as session:
        assert list(session.turns()) == []
    (end,) = place.controls("turn-complete")
    assert end["reason"] == "out_of_memory"


def test_the_host_is_told_first_and_its_fault_blocks_nothing() -> None:
    told: list[tuple[RecoveryContext, int]] = []

    def exhausted(context: RecoveryContext) -> None:
        told.append((context, len(place.controls("turn-complete"))))
        raise KeyError("a fault of the host")

    place = place_with(max_interrupted_attempts=1, on_exhausted=exhausted)
    after_deaths(place, 1, *STEP, *text("Hel"))
    with place.db.boot(SID, takeover=True) as session:
        assert list(session.turns()) == []
        assert [line["code"] for line in session.report] == ["hook-failed"]
    ((context, sealed),) = told
    assert sealed == 0
    assert (context.session, context.incident.id, context.kind) == (SID, "in1", "retry_response")
    assert context.partial is not None
    assert len(place.controls("turn-complete")) == 1


@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_store_that_fails_while_a_turn_is_given_up_has_it_done_again(effect: Any) -> None:
    told: list[str] = []
    events: list[str] = []
    place = place_with(
        max_interrupted_attempts=1,
        on_exhausted=lambda context: told.append(context.incident.id),
        observer=lambda event: events.append(event.kind),
    )
    after_deaths(place, 1)
    with pytest.raises((Unknown, Unreachable)), place.db.boot(SID, takeover=True) as session:
        faults = [Fault(verb, key="out/", times=0) for verb in ("get", "head")]
        place.bucket.plan = [Fault("put", key="out/", when=effect, times=0), *faults]
        list(session.turns())
    assert events[-1] == "failed"
    place.bucket.plan = []
    place.answer(takeover=True)
    assert len(place.controls("turn-complete")) == 1
    assert told == (["in1"] if effect == "after" else ["in1", "in1"])


def test_deaths_in_other_turns_do_not_count() -> None:
    place = place_with(max_interrupted_attempts=2)
    for name in ("u1", "u2", "u3"):
        place.send(name)
        attempt_and_die(place)
        place.answer(takeover=True)
    assert {end["status"] for end in place.controls("turn-complete")} == {"completed"}


# -- the pause --------------------------------------------------------------------------------------------


def test_a_boot_waits_out_the_pause_that_fits_and_is_busy_else() -> None:
    place = Place(recovery=ChatRecovery())
    after_deaths(place, 1)
    began = place.clock.monotonic()
    session = place.db.boot(SID, takeover=True)  # 4 s after the first death, though nobody holds it
    assert place.clock.monotonic() - began == pytest.approx(4.0, abs=0.1)
    first_turn(session)
    die(session)
    attempt_and_die(place)  # 16 s
    with pytest.raises(Busy, match="attempt 4 begins in 39 s") as raised:
        place.db.boot(SID, takeover=True)  # 64 s, of which it waits 25
    assert raised.value.retry_after == pytest.approx(39, abs=1)
    place.clock.advance(raised.value.retry_after)
    attempt_and_die(place)


def test_the_pause_is_shown_without_waiting() -> None:
    place = Place(recovery=ChatRecovery())
    after_deaths(place, 1)
    place.clock.advance(52.0)
    assert place.db.peek(SID).busy is None
    with place.db.boot(SID) as session, pytest.raises(KeyError), first_turn(session):
        raise KeyError
    busy = place.db.peek(SID).busy
    assert busy is not None
    assert busy.incident is not None
    assert (busy.incident.interruptions, busy.retry_after) == (2, pytest.approx(16, abs=0.1))


def test_the_same_worker_waits_as_any_other_does() -> None:
    events: list[RecoveryEvent] = []
    place = place_with(max_backoff=256, observer=events.append)
    place.send("u1")
    with place.db.boot(SID) as session:
        with pytest.raises(KeyError), first_turn(session):
            raise KeyError
        place.clock.advance(4.0)
        for turn in session.turns():
            with turn:
                assert turn.attempt == 2
    assert [event.kind for event in events] == ["detected", "attempt", "completed"]


def test_a_pause_spares_no_message_that_makes_the_old_answer_moot() -> None:
    place = Place(recovery=ChatRecovery())
    after_deaths(place, 1, *STEP, *text("Hel"))
    place.send("u2")
    began = place.clock.monotonic()
    with place.db.boot(SID, takeover=True) as session:
        assert place.clock.monotonic() == began
        assert first_turn(session).attempt == 1


# -- the hooks --------------------------------------------------------------------------------------------


def test_the_hook_before_an_attempt_knows_the_request() -> None:
    seen: list[RecoveryContext] = []
    place = place_with(on_chat_recovery=lambda context: seen.append(context))
    place.send("u1", body={"model": "m"}, client_tools=["pick"])
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [*STEP, *text("Hel")])
    turn.stash({"at": 7})
    turn.flush()
    die(session)
    with place.db.boot(SID, takeover=True, cause="evicted") as session:
        assert first_turn(session).attempt == 2
    (context,) = seen
    assert (context.kind, context.attempt, context.cause) == ("retry_response", 2, "evicted")
    assert (context.body, context.client_tools, context.recovery_data) == (
        {"model": "m"},
        ("pick",),
        {"at": 7},
    )
    assert context.inputs[0]["message"] == user("u1")
    assert context.created_at == place.controls("turn-start")[0]["ts"]


@pytest.mark.parametrize(
    ("answer", "mode"),
    [
        (None, "continue"),
        ({"persist": True, "continue": True}, "continue"),
        (RecoveryChoice(persist=False), "retry"),
        ({"persist": False}, "retry"),
    ],
)
def test_a_host_may_drop_what_is_unfinished_but_never_a_tools_result(answer: Any, mode: str) -> None:
    place = place_with(on_chat_recovery=lambda _context: answer)
    after_deaths(place, 1, *STEP, call("c1"), result("c1"), {"type": "start-step"}, call("c2"))
    with place.db.boot(SID, takeover=True) as session:
        shown = first_turn(session).message
    assert place.controls("turn-start")[-1]["mode"] == mode
    assert shown is not None
    calls = [part["toolCallId"] for part in shown["parts"] if "toolCallId" in part]
    assert calls == (["c1", "c2"] if mode == "continue" else ["c1"])


@pytest.mark.parametrize(("persist", "left"), [(True, ["c1", "c2"]), (False, ["c1"])])
def test_a_host_may_decline_another_attempt(persist: bool, left: list[str]) -> None:
    events: list[str] = []
    place = place_with(
        on_chat_recovery=lambda _context: RecoveryChoice(persist=persist, go_on=False),
        observer=lambda event: events.append(event.kind),
    )
    after_deaths(place, 1, *STEP, call("c1"), result("c1"), {"type": "start-step"}, call("c2"))
    with place.db.boot(SID, takeover=True) as session:
        assert list(session.turns()) == []
    (end,) = place.controls("turn-complete")
    assert (end["status"], end["reason"]) == ("aborted", "recovery_declined")
    parts = place.db.history(SID)[-1]["parts"]
    assert [part["toolCallId"] for part in parts if "toolCallId" in part] == left
    assert events == ["detected", "skipped"]


def test_should_keep_recovering_is_asked_from_the_third_attempt_on() -> None:
    asked: list[int] = []

    def keep(context: RecoveryContext) -> bool:
        asked.append(context.attempt)
        return context.attempt < 4

    place = place_with(should_keep_recovering=keep)
    after_deaths(place, 3)
    place.answer(takeover=True)
    assert asked == [3, 4]
    (end,) = place.controls("turn-complete")
    assert end["reason"] == "recovery_aborted"


def test_hooks_that_raise_are_told_of_and_the_default_is_used() -> None:
    def fault(_anything: Any) -> Any:
        raise KeyError("a fault of the host")

    place = place_with(on_chat_recovery=fault, should_keep_recovering=fault, observer=fault)
    after_deaths(place, 2)
    with place.db.boot(SID, takeover=True) as session:
        for turn in session.turns():
            with turn:
                write_all(turn, saying("fine"))
        told = {line["detail"].split(":")[0] for line in session.report if line["code"] == "hook-failed"}
    assert told == {"on_chat_recovery", "should_keep_recovering", "observer"}
    (end,) = place.controls("turn-complete")
    assert end["status"] == "completed"


def test_events_go_to_the_observer_and_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    events: list[RecoveryEvent] = []
    place = place_with(observer=events.append)
    after_deaths(place, 1)
    with caplog.at_level(logging.INFO, "snapshotter"):
        place.answer(takeover=True)
    assert [(e.kind, e.incident, e.attempt) for e in events] == [
        ("detected", "in1", 2),
        ("attempt", "in1", 2),
        ("completed", "in1", 2),
    ]
    assert [r.recovery for r in caplog.records if hasattr(r, "recovery")] == events


def test_a_repaired_history_is_told_of_once_a_turn() -> None:
    events: list[RecoveryEvent] = []
    place = place_with(observer=events.append)
    place.send("u1")
    odd = {**call("c1"), "input": "no object"}
    with place.db.boot(SID) as session, first_turn(session) as turn:
        write_all(turn, [*STEP, odd, result("c1"), {"type": "finish-step"}, {"type": "finish"}])
    assert events == []
    place.send("u2")
    with place.db.boot(SID) as session, first_turn(session) as turn:
        assert turn.messages == turn.messages
        write_all(turn, saying("fine"))
    assert [(e.kind, e.detail) for e in events] == [("repaired", {"calls": [], "inputs": 1})]


@pytest.mark.parametrize(
    "limit",
    [
        {"max_attempts": 0},
        {"max_interrupted_attempts": 0.5},
        {"stall_timeout": -1},
        {"max_backoff": float("nan")},
        {"no_progress_timeout": "300"},
        {"max_recovery_work": True},
    ],
)
def test_limits_that_make_no_sense_are_refused(limit: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=next(iter(limit))):
        ChatRecovery(**limit)


# -- a person's time --------------------------------------------------------------------------------------


def test_an_approval_a_day_later_goes_on_at_no_cost() -> None:
    place = Place(recovery=ChatRecovery(max_interrupted_attempts=1))
    place.send("u1")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(
        turn, [*STEP, call("c1"), {"type": "tool-approval-request", "toolCallId": "c1", "approvalId": "ok"}]
    )
    die(session)
    place.clock.advance(86_400.0)
    assert place.db.peek(SID).resume.kind == "waiting"
    assert place.db.peek(SID).busy is None
    place.db.approve(SID, "ok")
    began = place.clock.monotonic()
    with place.db.boot(SID) as session:
        assert place.clock.monotonic() == began
        assert (session.incident.interruptions, session.incident.work) == (0, 0)
        for turn in session.turns():
            with turn:
                write_all(turn, [result("c1"), *text("Done.")])
    message = place.db.history(SID)[-1]
    assert [part.get("output") for part in message["parts"] if "toolCallId" in part] == ["ok"]
    assert [end["status"] for end in place.controls("turn-complete")] == ["interrupted", "completed"]
