"""A host's own plan for an interrupted turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from chat_samples import SID, Place, ask, call, die, first_turn, saying, shape, text, user, write_all

from snapshotter import Database
from snapshotter.core.queue import Item
from snapshotter.hosting import RecoveryBoot, RecoveryPlan
from snapshotter.verify import verify


class Hook:
    """Remembers what it was told, and answers what the test wants."""

    def __init__(self) -> None:
        self.told: list[RecoveryBoot] = []
        self.answer: Any = None

    def __call__(self, context: RecoveryBoot) -> Any:
        self.told.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(context) if callable(self.answer) else self.answer


@pytest.fixture
def hook() -> Hook:
    return Hook()


@pytest.fixture
def place(hook: Hook) -> Place:
    """A session whose second turn died after some text and a tool call."""
    place = Place(on_recovery_boot=hook)
    place.send("u1")
    place.answer("first")
    place.send("u2")
    session = place.db.boot(SID)
    turn = first_turn(session)
    write_all(turn, [{"type": "start"}, *text("half of it"), call("c1", "look")])
    turn.stash({"page": 3})
    turn.flush()
    die(session)
    place.clock.advance(3600)
    return place


def work(place: Place, **options: Any) -> list[tuple[str, list[int]]]:
    found = []
    with place.db.boot(SID, **options) as session:
        for turn in session.turns():
            with turn:
                found.append((turn.kind, [record["id"] for record in turn.inputs]))
                write_all(turn, saying("done"))
    assert verify(place.db, SID).ok
    return found


def texts(place: Place) -> list[str]:
    return [content[-1] for _, content in shape(place.db.history(SID))]


def controls(segment: list[dict[str, Any]]) -> list[str]:
    return [r.get("status", r["control"]) for r in segment if "control" in r]


def test_it_is_told_what_is_known(place: Place, hook: Hook) -> None:
    place.send("u3")
    run = place.controls("turn-start")[-1]["run"]
    work(place, cause="out_of_memory")
    (told,) = hook.told
    assert (told.session, told.attempt, told.previous_run, told.cause) == (SID, 1, run, "out_of_memory")
    assert [m["role"] for m in told.messages] == ["user", "assistant"]
    assert (told.in_flight.ids, told.in_flight.messages) == ((2,), (user("u2"),))
    assert told.partial is not None
    assert told.partial["parts"][0]["text"] == "half of it"
    (waiting,) = told.pending_tool_calls
    assert (waiting["toolCallId"], waiting["toolName"], waiting["partIndex"]) == ("c1", "look", 1)
    assert [item.ids for item in told.pending] == [(3,)]
    assert told.stash == {"page": 3}


def test_none_is_the_default(place: Place, hook: Hook) -> None:
    assert work(place) == [("recover_tools", [2])]
    assert len(hook.told) == 1


def test_its_chain_and_the_new_turn_are_one_segment(place: Place, hook: Hook) -> None:
    hook.answer = lambda c: RecoveryPlan(chain=[*c.messages, *c.in_flight.messages])
    before = len(place.segments())
    assert work(place) == [("message", [2])]
    assert controls(place.segments()[before])[:3] == ["interrupted", "history", "turn-start"]
    assert texts(place) == ["hi", "first", "hi", "done"]


def test_a_chain_without_the_input_gets_it_back(place: Place, hook: Hook) -> None:
    summary = {"id": "s", "role": "assistant", "parts": [{"type": "text", "text": "summary"}]}
    hook.answer = RecoveryPlan(chain=[summary])
    work(place)
    assert texts(place) == ["summary", "hi", "done"]
    assert place.db.history(SID)[1]["id"] == "u2"


def test_the_in_flight_input_can_be_left_unanswered(place: Place, hook: Hook) -> None:
    place.send("u3")
    hook.answer = RecoveryPlan(dispatch=[])
    assert work(place) == [("message", [3])]
    assert texts(place) == ["hi", "first", "hi", "tool-look:output-error", "hi", "done"]
    assert place.db.peek(SID).pending == []


def test_items_are_dispatched_in_the_hooks_order_the_own_one_first(place: Place, hook: Hook) -> None:
    for name in ("u3", "u4", "u5"):
        place.send(name)
    hook.answer = lambda c: RecoveryPlan(dispatch=[c.pending[2], c.in_flight, c.pending[1]])
    assert work(place) == [("message", [2]), ("message", [5]), ("message", [4]), ("message", [3])]


def test_with_nothing_to_dispatch_the_chain_is_durable_all_the_same(place: Place, hook: Hook) -> None:
    hook.answer = lambda c: RecoveryPlan(chain=c.messages[:1], dispatch=[])
    before = len(place.segments())
    assert work(place) == []
    assert controls(place.segments()[before]) == ["interrupted", "history"]
    assert texts(place) == ["hi"]
    assert place.db.peek(SID).resume.kind == "none"


def test_something_is_done_before_the_first_turn(place: Place, hook: Hook) -> None:
    seen: list[int] = []
    hook.answer = RecoveryPlan(before_first_turn=lambda: seen.append(len(place.segments())))
    before = len(place.segments())
    assert work(place) == [("recover_tools", [2])]
    assert seen == [before]


@pytest.mark.parametrize(
    "wrong",
    [
        ValueError("broken"),
        RecoveryPlan(before_first_turn=lambda: 1 / 0),
        RecoveryPlan(chain=[{"id": "x", "bad": float("nan")}]),
        RecoveryPlan(dispatch=["u2"]),  # type: ignore[list-item]
        RecoveryPlan(dispatch=[SimpleNamespace(ids=(2,))]),  # type: ignore[list-item]
        RecoveryPlan(dispatch=[Item([2], "message")]),  # type: ignore[arg-type]
        RecoveryPlan(dispatch=2),  # type: ignore[arg-type]
        RecoveryPlan(chain=[user(f"m{number}", "x" * 200_000) for number in range(6)]),
        {"chain": []},
    ],
)
def test_a_hook_that_fails_is_reported_and_the_default_used(place: Place, hook: Hook, wrong: Any) -> None:
    hook.answer = wrong
    with place.db.boot(SID) as session:
        turn = first_turn(session)
        assert turn.kind == "recover_tools"
        assert [line["code"] for line in session.report].count("hook-failed") == 1


def test_a_chain_above_the_logs_limit_does_not_stand_in_the_way(place: Place, hook: Hook) -> None:
    """Each boot would raise TooLarge, and no attempt would ever be counted."""
    done: list[bool] = []
    hook.answer = lambda c: RecoveryPlan(
        chain=[*c.messages, user("note", "x" * 1_100_000)], before_first_turn=lambda: done.append(True)
    )
    assert work(place) == [("recover_tools", [2])]
    assert done == []
    assert texts(place)[-1] == "done"


def test_a_plan_may_come_as_iterators(place: Place, hook: Hook) -> None:
    place.send("u3")
    hook.answer = lambda c: RecoveryPlan(chain=iter(c.messages), dispatch=iter([c.in_flight]))  # type: ignore[arg-type]
    assert work(place) == [("message", [2]), ("message", [3])]
    assert texts(place) == ["hi", "first", "hi", "done", "hi", "done"]


def test_it_is_not_asked_where_nothing_was_interrupted(hook: Hook) -> None:
    place = Place(on_recovery_boot=hook)
    place.send("u1")
    place.answer("first")
    place.send("u2")
    with place.db.boot(SID) as session:  # waits for a person
        write_all(first_turn(session), [{"type": "start"}, call(), ask()])
        session.close()
    assert place.db.peek(SID).resume.kind == "waiting"
    assert work(place) == []
    place.db.approve(SID, "ap1")
    assert [kind for kind, _ in work(place)] == ["tool-answers"]
    assert hook.told == []


def test_a_worker_that_was_overtaken_asks_again(place: Place, hook: Hook) -> None:
    late = place.db.boot(SID)
    assert work(place) == [("recover_tools", [2])]
    with late:
        assert list(late.turns()) == []
    assert len(hook.told) == 2  # both read the interrupted turn; only one could take it


def test_a_plan_that_never_helps_is_given_up_all_the_same(place: Place, hook: Hook) -> None:
    hook.answer = lambda c: RecoveryPlan(chain=[*c.messages, *c.in_flight.messages])
    models = 1
    for _ in range(10):
        session = place.db.boot(SID)
        turn = next(session.turns(), None)
        if turn is None:
            break
        models += 1
        write_all(turn, [{"type": "start"}, *text("half")])
        turn.flush()
        die(session)
        place.clock.advance(3600)
    found = place.db.outcome(SID)
    assert found is not None
    assert (found.status, found.reason) == ("exhausted", "interrupted_attempts_exceeded")
    assert models == 5
    assert verify(place.db, SID).ok
    place.send("u3")
    hook.answer = None
    assert work(place) == [("message", [3])]


def test_a_death_right_after_the_plan_was_written_loses_nothing(place: Place, hook: Hook) -> None:
    place.send("u3")
    hook.answer = lambda c: RecoveryPlan(chain=[*c.messages, *c.in_flight.messages])
    session = place.db.boot(SID)
    first_turn(session)
    die(session)
    place.clock.advance(3600)
    hook.answer = None
    assert work(place) == [("call_model", [2]), ("message", [3])]
    assert texts(place) == ["hi", "first", "hi", "done", "hi", "done"]


def test_a_plain_boot_of_another_database_needs_no_hook(place: Place) -> None:
    with Database(place.bucket, place.clock).boot(SID) as session:
        assert first_turn(session).kind == "recover_tools"
