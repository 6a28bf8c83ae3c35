"""What a host hands in is looked at when it is given, and what its hooks answer when they answer it."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
from chat_samples import SID, Place, die, first_turn, text, write_all

from snapshotter import ChatRecovery, InvalidValue, RecoveryChoice, RecoveryEvent, Refused
from snapshotter.hosting import ChatHost
from snapshotter.hosting.status import Outcome

HOOKS = ("on_chat_recovery", "should_keep_recovering", "on_exhausted", "observer")


async def awaited(*_: Any) -> None:
    """A hook that nobody would await."""


async def yielding(*_: Any) -> Any:
    yield


class Callable:
    async def __call__(self, _: Any) -> None: ...


ASYNC = {"function": awaited, "partial": partial(awaited, 1), "generator": yielding, "object": Callable()}


def interrupted(deaths: int = 1, **options: Any) -> Place:
    place = Place(recovery=ChatRecovery(max_backoff=0, **options))
    place.send("u1")
    for _ in range(deaths):
        session = place.db.boot(SID, takeover=True)
        turn = first_turn(session)
        write_all(turn, [{"type": "start"}, {"type": "start-step"}, *text("Hel")])
        turn.flush()
        die(session)
    return place


# -- what is given -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("hook", ASYNC.values(), ids=ASYNC)
def test_an_async_hook_is_refused_where_it_is_given(name: str, hook: Any) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is an async function: give a plain function") as raised:
        ChatRecovery(**{name: hook})
    assert raised.value.path == name


@pytest.mark.parametrize("name", ["on_recovery_boot", "hydrate"])
@pytest.mark.parametrize("hook", ASYNC.values(), ids=ASYNC)
def test_so_are_those_of_a_database(name: str, hook: Any) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is an async function: give a plain function"):
        Place(**{name: hook})


def test_so_is_what_answers_in_a_host() -> None:
    with pytest.raises(InvalidValue, match="answer is an async function: give a plain function"):
        ChatHost(Place().db, awaited)
    with pytest.raises(InvalidValue, match="on_error is 'log': a function is needed"):
        ChatHost(Place().db, lambda *_: None, on_error="log")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HOOKS)
def test_what_cannot_be_called_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is 'no': a function is needed"):
        ChatRecovery(**{name: "no"})  # type: ignore[arg-type]


def test_limits_are_a_chat_recovery_and_their_text_a_text() -> None:
    with pytest.raises(InvalidValue, match=r"recovery is \{'max_attempts': 3\}: a ChatRecovery is needed"):
        Place(recovery={"max_attempts": 3})
    with pytest.raises(Refused, match="terminal_message is None: a text is needed"):
        ChatRecovery(terminal_message=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("cause", [137, b"oom", ["oom"]])
def test_a_cause_is_a_text(cause: Any) -> None:
    with pytest.raises(InvalidValue, match="a text is needed, like 'out_of_memory'") as raised:
        Place().db.boot(SID, cause=cause)
    assert raised.value.path == "cause"


# -- what hooks answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"persist": False, "go_on": False}, "'go_on' is not known: an answer has persist and continue"),
        ({"continue": "no"}, "continue is 'no': true or false is needed"),
        (RecoveryChoice(persist=None), "persist is None: true or false is needed"),  # type: ignore[arg-type]
        (False, "a RecoveryChoice, a dict or None is needed, not False"),
    ],
)
def test_a_wrong_answer_is_told_and_the_default_used(answer: Any, told: str) -> None:
    events: list[RecoveryEvent] = []
    place = interrupted(on_chat_recovery=lambda _: answer, observer=events.append)
    with place.db.boot(SID, takeover=True) as session:
        turn = first_turn(session)
        assert (turn.attempt, turn.kind) == (2, "retry_response")
        (line,) = session.report
    assert line["code"] == "hook-failed"
    assert told in line["detail"]
    (failed,) = [event for event in events if event.kind == "failed"]
    assert told in str(failed.reason)


def test_a_hook_that_returns_a_coroutine_is_told_and_the_default_used() -> None:
    hook: Any = lambda context: awaited(context)  # noqa: E731 - a plain function, as far as can be seen
    place = interrupted(2, should_keep_recovering=hook)
    with place.db.boot(SID, takeover=True) as session:
        assert first_turn(session).attempt == 3
        (line,) = session.report
    assert "should_keep_recovering returned something to await" in line["detail"]


@pytest.mark.parametrize(("answer", "goes_on"), [(None, True), (True, True), (False, False)])
def test_none_of_should_keep_recovering_goes_on(answer: Any, goes_on: bool) -> None:
    place = interrupted(2, should_keep_recovering=lambda _: answer)
    with place.db.boot(SID, takeover=True) as session:
        found = []
        for turn in session.turns():
            found.append(turn.attempt)
            turn.complete()
        assert found == [3] * goes_on
        assert "hook-failed" not in [line["code"] for line in session.report]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"chain": []}, "a dict is no plan: return RecoveryPlan(chain=…, dispatch=…)"),
        (awaited, "a function is no plan"),
    ],
)
def test_what_is_no_plan_names_the_plan(answer: Any, told: str) -> None:
    place = Place(on_recovery_boot=lambda _: answer)
    place.send("u1")
    die(first_turn(place.db.boot(SID))._session)
    with place.db.boot(SID, takeover=True) as session:
        assert first_turn(session).attempt == 2
        (line,) = session.report
    assert line["code"] == "hook-failed"
    assert told in line["detail"]


# -- what the model's error was ------------------------------------------------------------------------------


def failing(place: Place, error: BaseException, **options: Any) -> None:
    with (
        pytest.raises(type(error)),
        place.db.boot(SID, takeover=True, **options) as session,
        first_turn(session) as turn,
    ):
        turn.write({"type": "start"})
        raise error


def test_the_error_of_an_attempt_is_told_to_whoever_asks(caplog: pytest.LogCaptureFixture) -> None:
    contexts: list[Any] = []
    events: list[RecoveryEvent] = []
    place = Place(
        recovery=ChatRecovery(
            max_backoff=0,
            max_interrupted_attempts=2,
            on_chat_recovery=contexts.append,
            on_exhausted=contexts.append,
            observer=events.append,
        )
    )
    place.send("u1")
    failing(place, RuntimeError("provider 500"))
    (release,) = place.controls("turn-release")
    assert (release["why"], release["error"]) == ("error", "RuntimeError: provider 500")
    assert place.db.peek(SID).incident.error == "RuntimeError: provider 500"
    with caplog.at_level(logging.INFO, "snapshotter"):
        failing(place, ValueError("no such model"))
        with place.db.boot(SID, takeover=True) as session:
            assert list(session.turns()) == []
    assert [context.error for context in contexts] == [
        "RuntimeError: provider 500",
        "ValueError: no such model",
    ]
    told = {event.kind: event.detail.get("error") for event in events}
    assert told == {
        "detected": "RuntimeError: provider 500",
        "attempt": "RuntimeError: provider 500",
        "exhausted": "ValueError: no such model",
    }
    assert any("it said: ValueError: no such model" in record.getMessage() for record in caplog.records)
    assert place.db.outcome(SID) == Outcome(
        turn=1,
        status="exhausted",
        message_id=place.controls("turn-start")[0]["messageId"],
        error=place.db.recovery.terminal_message,
        reason="interrupted_attempts_exceeded",
        detail="ValueError: no such model",
    )
    place.send("u2")
    assert place.db.peek(SID).incident.error is None


def test_without_a_terminal_message_a_person_is_told_what_the_model_said() -> None:
    place = Place(recovery=ChatRecovery(max_backoff=0, max_interrupted_attempts=1, terminal_message=""))
    place.send("u1")
    failing(place, RuntimeError("provider 500"))
    with place.db.boot(SID) as session:
        assert list(session.turns()) == []
    outcome = place.db.outcome(SID)
    assert outcome is not None
    assert outcome.error == "RuntimeError: provider 500"


def test_a_death_says_nothing_and_what_was_said_before_it_stays() -> None:
    place = interrupted()
    assert place.db.peek(SID).incident.error is None
    failing(place, RuntimeError("provider 500"))
    die(first_turn(place.db.boot(SID))._session)
    assert place.db.peek(SID).incident.error == "RuntimeError: provider 500"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("x" * 5_000), "RuntimeError: " + "x" * 986),
        (RuntimeError("half \udcff"), "RuntimeError: half \ufffd"),
        (RuntimeError(), "RuntimeError"),
        (Unprintable(), "Unprintable"),
    ],
)
def test_what_is_kept_of_an_error_is_bounded_and_can_be_stored(error: Exception, told: str) -> None:
    place = Place()
    place.send("u1")
    failing(place, error)
    assert place.controls("turn-release")[0]["error"] == told


def test_a_cancellation_and_a_signal_say_no_error() -> None:
    place = Place()
    place.send("u1")
    failing(place, KeyboardInterrupt("stop"))
    assert "error" not in place.controls("turn-release")[0]
